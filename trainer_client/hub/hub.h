/* The hub's two threads and what they share.
 *
 * The serving thread answers trainers (service.c). The feeding thread reads samples, feeds their keys to the
 * parameter server and asks it what it has applied (feeder.c); it alone waits for files and for the server,
 * so that trainers get an answer whatever happens to those. Everything below `lock` is shared under it;
 * neither thread holds it while it waits.
 */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/trace.h"
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/hub/samples/batch_source.h"
#include "trainer_client/hub/plan/parts.h"
#include "trainer_client/hub/plan/request.h"
#include "trainer_client/hub/plan/trainers.h"

#define HUB_PREFETCH_MAX 64u

enum hub_track { HUB_TRACK_SERVING, HUB_TRACK_FEEDING }; /* of hub->trace */

enum hub_stage {
    HUB_IDLE,    /* no plan yet */
    HUB_OPENING, /* the feeding thread reads the file through, and finds the plan's stream on the server */
    HUB_RUNNING,
    HUB_FAILED, /* `status` and `error` say why */
};

/* A batch on its way from the file to a trainer. Belongs to the feeding thread until `ready`. */
struct hub_feed {
    bool used, ready;
    uint32_t generation; /* of the plan when it was fed */
    uint32_t part;
    uint64_t number; /* rises with each feed */
    struct mr_future *future;
    struct hub_batch batch;
};

struct hub_config {
    const char *listen; /* NULL: port 7800, of this machine alone if there is no key */
    const char *server, *key_file;
    bool without_key;    /* other machines may reach it without a key */
    const char *trace;   /* file for the timeline; NULL: none */
    const char *metrics; /* address for metrics over HTTP; NULL: none */
    const struct hub_formats *formats;
    const struct hub_allowed *allowed; /* where trainers may name files; NULL: anywhere */
    uint32_t prefetch;
    size_t sample_memory_bytes;               /* samples that stay in memory take at most this */
    bool follow;                              /* sample files are followed as they grow */
    bool is_repeated;                         /* standard input is the same at each start */
    const char *kafka_brokers, *kafka_config; /* NULL: none given */
    bool ends_with_input; /* ends, as by `ending`, once whoever writes standard input closes it */
    uint64_t trainer_timeout_us;
};

struct hub {
    struct hub_config config;
    uint64_t started_us;
    uint32_t incarnation;     /* rises from start to start, unless two fall into one second */
    uint64_t start_id;        /* random */
    struct mr_trace *trace;   /* NULL: none */
    atomic_bool ending;       /* stop once what has come on an input that is read once is applied */
    atomic_bool stop;         /* at once */
    atomic_uint port;         /* UDP port that trainers reach it at; 0 = it does not listen yet */
    atomic_uint metrics_port; /* set before that; 0: there is none */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool nudged; /* there may be something for the feeding thread to do; goes with `changed` */
    enum hub_stage stage;
    uint64_t plan_number; /* rises with each plan taken up; 0 = none yet */
    uint64_t ended_plan;  /* number of the newest plan that came to its end */
    struct hub_request request;
    enum mr_status status;
    char error[HUB_ERROR_BYTES];
    enum mr_status fatal; /* not MR_OK: the hub ends with it, and `error` says why */
    struct hub_sample_file_info info;
    uint64_t batches;       /* 0 as well while their number is not known */
    bool is_live;           /* the plan's input is read once */
    struct hub_parts parts; /* at least one */
    struct hub_feed feeds[HUB_PREFETCH_MAX];
    uint64_t samples_read;
    bool server_away;
    char waits_for[HUB_ERROR_BYTES]; /* why there is nothing to hand out; "": nothing in particular */
    struct hub_trainers trainers;
};

bool hub_init(struct hub *hub, const struct hub_config *config);
void hub_free(struct hub *hub);
/* Wakes the feeding thread. Under the lock. */
void hub_nudge(struct hub *hub);
/* Frees feeds that no longer lead to a READY batch: theirs was applied, or has to be fed again. Under the
 * lock. */
void hub_drop_void_feeds(struct hub *hub);

/* Serves until hub->stop, or the end of hub->ending: the socket, the feeding thread, and the loop that
 * answers trainers. MR_OK, or why it could not begin or continue: `error` (HUB_ERROR_BYTES) has what, where
 * and how to fix it. hub->port is set once it listens. */
enum mr_status hub_serve(struct hub *hub, char *error);
/* The feeding thread: file -> batches -> parameter server, and the server's record of what it has applied.
 * Runs until hub->stop; `arg` is a struct hub *. For pthread_create(). */
void *hub_feeder_run(void *arg);

#endif
