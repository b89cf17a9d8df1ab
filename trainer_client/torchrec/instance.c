#include "trainer_client/torchrec/instance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/thread.h"
#include "trainer_client/torchrec/connection.h"
#include "trainer_client/torchrec/report.h"

#define PAUSE_US 10000u

void tde_fail(const struct tde_instance *t, const char *what, const char *table, const char *why)
{
    bool goes_on = t->configuration.goes_on;
    tde_line("%s of table %s failed: %s. %s", what, table, why,
             goes_on ? "Going on, as on_error=continue says"
                     : "Ending the process, as going on would be with wrong rows (on_error=abort)");
    if (!goes_on)
        abort();
}

uint32_t tde_left_ms(const struct tde_job *job)
{
    uint64_t now = mr_clock_us();
    return now >= job->deadline_us ? 0 : (uint32_t)((job->deadline_us - now + 999) / 1000);
}

bool tde_waits_for_better(const struct tde_job *job, enum mr_status status)
{
    switch (status) {
    case MR_UNKNOWN_OUTCOME: /* setting a row once more does no harm */
    case MR_UNREACHABLE:
    case MR_BUSY:
    case MR_SHUTTING_DOWN:
    case MR_NOT_READY:
    case MR_CHECKPOINT_RUNNING:
    case MR_UNKNOWN_TABLE: /* of a server that restarted without it */
    case MR_WRONG_DIM:     /* or with other tables under the same numbers */
        break;
    default:
        return false;
    }
    uint64_t now = mr_clock_us();
    if (now >= job->deadline_us)
        return false;
    uint64_t pause_us = job->deadline_us - now < PAUSE_US ? job->deadline_us - now : PAUSE_US;
    const struct timespec pause = {.tv_nsec = (long)(pause_us * 1000)};
    (void)nanosleep(&pause, NULL);
    return true;
}

/* ---- the thread ---- */

static struct tde_job *instance_take(struct tde_instance *t)
{
    (void)pthread_mutex_lock(&t->lock);
    while (t->first == NULL && !t->ends)
        (void)pthread_cond_wait(&t->changed, &t->lock);
    struct tde_job *job = t->first;
    if (job != NULL && (t->first = job->next) == NULL)
        t->last = &t->first;
    (void)pthread_mutex_unlock(&t->lock);
    return job;
}

static void *instance_run(void *arg)
{
    struct tde_instance *t = arg;
    for (struct tde_job *job; (job = instance_take(t)) != NULL; free(job)) {
        bool done = job->is_push ? tde_push_run(t, job) : tde_fetch_run(t, job);
        *(job->is_push ? &t->pushes : &t->fetches) += 1;
        *(job->is_push ? &t->pushes_failed : &t->fetches_failed) += !done;
    }
    return NULL;
}

void tde_instance_add(struct tde_instance *t, struct tde_job *job)
{
    job->deadline_us = mr_clock_us() + (uint64_t)t->configuration.deadline_ms * 1000u;
    job->next = NULL;
    (void)pthread_mutex_lock(&t->lock);
    *t->last = job;
    t->last = &job->next;
    (void)pthread_cond_signal(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

struct tde_instance *tde_instance_create(const char *configuration, char *error, size_t error_bytes)
{
    struct tde_instance *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        (void)snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    t->last = &t->first;
    if (!tde_configuration_parse(configuration, &t->configuration, error, error_bytes) ||
        (t->client = tde_connection_open(&t->configuration, error, error_bytes)) == NULL) {
        free(t);
        return NULL;
    }
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    if (mr_thread_start(&t->thread, instance_run, t) == 0)
        return t;
    (void)snprintf(error, error_bytes, "no thread could be started");
    tde_connection_close(t->client);
    free(t);
    return NULL;
}

void tde_instance_destroy(struct tde_instance *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->ends = true;
    (void)pthread_cond_signal(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    tde_losses_end(&t->losses);
    if (t->fetches_failed + t->pushes_failed > 0)
        tde_line("%s: %" PRIu64 " of %" PRIu64 " fetches and %" PRIu64 " of %" PRIu64 " pushes failed",
                 t->configuration.server, t->fetches_failed, t->fetches, t->pushes_failed, t->pushes);
    tde_connection_close(t->client);
    tde_tables_free(&t->tables);
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

uint32_t tde_rows_of_call(uint32_t left, uint32_t dim)
{
    const uint32_t most = TDE_CALL_BYTES / (dim * (uint32_t)sizeof(float) + (uint32_t)sizeof(uint64_t));
    return left < most ? left : most > 0 ? most : 1;
}

enum mr_status tde_note(char error[TDE_ERROR_BYTES], enum mr_status status)
{
    (void)snprintf(error, TDE_ERROR_BYTES, "%s", mr_last_error());
    return status;
}

enum mr_status tde_time_is_up(const struct tde_instance *t, char error[TDE_ERROR_BYTES])
{
    (void)snprintf(error, TDE_ERROR_BYTES, "its deadline of %u ms passed", t->configuration.deadline_ms);
    return MR_DEADLINE_EXCEEDED;
}
