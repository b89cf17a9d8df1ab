/* An instance of the plug-in: a thread that does one fetch or push after the other, in the order in which
 * they were asked for. What the functions below are about belongs to that thread, but for tde_instance_add().
 */
#ifndef TDE_INSTANCE_H
#define TDE_INSTANCE_H

#include <pthread.h>
#include "millrace.h"
#include "trainer_client/torchrec/configuration.h"
#include "trainer_client/torchrec/interface.h"
#include "trainer_client/torchrec/report.h"
#include "trainer_client/torchrec/tables.h"

/* Of rows and keys in one call at most: any node takes messages of 1 MiB. */
#define TDE_CALL_BYTES  ((UINT32_C(1) << 20) - 4096)
#define TDE_ERROR_BYTES 512u

/* A fetch or a push that was asked for. */
struct tde_job {
    struct tde_job *next;
    bool is_push;
    union {
        struct tde_fetch fetch;
        struct tde_push push;
    };
    uint64_t deadline_us;
    /* the copied arrays follow */
};

struct tde_instance {
    struct tde_configuration configuration;
    struct mr_client *client;
    struct tde_tables tables;
    uint64_t fetches, pushes, fetches_failed, pushes_failed;
    struct tde_losses losses;
    pthread_t thread;
    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tde_job *first, **last;
    bool ends;
};

/* NULL, with one line in `error`. */
struct tde_instance *tde_instance_create(const char *configuration, char *error, size_t error_bytes);
/* Once all jobs are done. */
void tde_instance_destroy(struct tde_instance *t);
/* Any thread. The job is freed when it is done. */
void tde_instance_add(struct tde_instance *t, struct tde_job *job);

/* A line on stderr for a fetch or a push that cannot be done. Unless the configuration says otherwise it ends
 * the process, as TorchRec would continue with wrong state: rows that seem never to have been pushed, or
 * pushes that are lost. */
void tde_fail(const struct tde_instance *t, const char *what, const char *table, const char *why);

/* Of the job, in ms; 0: its time is up. */
uint32_t tde_left_ms(const struct tde_job *job);
/* Whether a call that ended so may do better when it is made again, after a little while. Then it has waited
 * that little while, or until the job's deadline. */
bool tde_waits_for_better(const struct tde_job *job, enum mr_status status);

/* How many of `left` rows of `dim` floats, with their keys, go into one call; at least 1. */
uint32_t tde_rows_of_call(uint32_t left, uint32_t dim);
/* Takes the text of the last call's error; returns the status. */
enum mr_status tde_note(char error[TDE_ERROR_BYTES], enum mr_status status);
/* The error of a job whose time is up. */
enum mr_status tde_time_is_up(const struct tde_instance *t, char error[TDE_ERROR_BYTES]);

/* fetch.c, push.c: true if all of it was done. Either way they report the end of the job to TorchRec. */
bool tde_fetch_run(struct tde_instance *t, struct tde_job *job);
bool tde_push_run(struct tde_instance *t, struct tde_job *job);

#endif
