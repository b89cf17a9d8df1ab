#include "dataplane/rpc/base/executor.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/list.h"

#include <pthread.h>
#include <stdlib.h>

#define REPORT_JOBS_MAX 16u    /* short jobs that are reported together, */
#define REPORT_NS_MAX   50000u /* and for how long the first waits at most */

struct mr_executor {
    struct mr_executor_config config;
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct mr_job *first, *last;
    uint32_t waiting;       /* jobs in the list, */
    uint32_t urgent;        /* and those of them that functions that run may wait for */
    uint32_t running;       /* jobs, */
    uint32_t running_short; /* and those of them that are short */
    uint32_t idle;          /* threads asleep, */
    uint32_t waking;        /* and those of them that were woken */
    uint32_t blocked;       /* threads that wait for other workers */
    uint32_t count;         /* threads alive */
    uint32_t made;
    uint32_t joined; /* of these; who stops it */
    bool stopping;
    pthread_t threads[MR_EXECUTOR_THREADS_MAX + MR_EXECUTOR_SPARE];
};

static _Thread_local struct mr_executor *own;
/* Of the job that this thread runs. */
static _Thread_local uint8_t own_depth;
static _Thread_local bool own_is_short; /* and has not waited */

static void *thread_run(void *arg);

/* ---- under the lock: which may begin ---- */

static bool may_begin(const struct mr_executor *e, const struct mr_job *job)
{
    uint32_t kept = job->urgent || job->depth + 1u >= MR_EXECUTOR_DEPTHS
                        ? 0
                        : MR_EXECUTOR_THREADS_MAX >> (job->depth + 1);
    return e->blocked < MR_EXECUTOR_THREADS_MAX - kept || job->urgent;
}

/* Returns the link to the first job that may begin; it points to NULL if there is none. */
static struct mr_job **first_that_may(struct mr_executor *e)
{
    struct mr_job **at = &e->first;
    while (*at != NULL && !may_begin(e, *at))
        at = &(*at)->next;
    return at;
}

/* Jobs have no link back: the predecessor is found from the link when the last job is taken out. */
static struct mr_job *unlink_job(struct mr_executor *e, struct mr_job **at)
{
    struct mr_job *job = *at;
    *at = job->next;
    if (e->last == job)
        e->last = at == &e->first ? NULL : MR_CONTAINER(at, struct mr_job, next);
    e->waiting--;
    e->urgent -= job->urgent;
    return job;
}

/* Takes out, as a chain, the jobs of this depth or deeper that may be refused; none if a thread runs, which
 * will get to them. */
static struct mr_job *take_stuck(struct mr_executor *e, uint8_t depth)
{
    struct mr_job *stuck = NULL, **at = &e->first, **end = &stuck;
    if (e->count - e->idle > e->blocked)
        return NULL;
    while (*at != NULL) {
        if (!(*at)->may_refuse || (*at)->depth < depth) {
            at = &(*at)->next;
            continue;
        }
        *end = unlink_job(e, at);
        (*end)->refused = true;
        (*end)->next = NULL;
        end = &(*end)->next;
    }
    return stuck;
}

/* Under the lock. */
static void wake_one(struct mr_executor *e)
{
    if (e->idle == e->waking)
        return;
    e->waking++;
    pthread_cond_signal(&e->given);
}

/* Under the lock: finds a thread for waiting jobs. Returns the jobs that no thread can run; the caller
 * refuses them without the lock. */
static struct mr_job *bring_another(struct mr_executor *e)
{
    uint32_t most = MR_EXECUTOR_THREADS_MAX + (e->urgent > 0 ? MR_EXECUTOR_SPARE : 0);
    if (e->waiting == 0)
        return NULL;
    if (*first_that_may(e) == NULL)
        return take_stuck(e, MR_EXECUTOR_DEPTHS - 1);
    if (e->idle > e->waking) {
        wake_one(e);
        return NULL;
    }
    if (e->count - e->blocked >= e->config.threads && e->urgent == 0)
        return NULL;
    bool no_thread = e->made >= most || pthread_create(&e->threads[e->made], NULL, thread_run, e) != 0;

    if (no_thread)
        return e->idle > 0
                   ? NULL
                   : take_stuck(e, 1); /* the system gives no thread: only calls of programs can wait */
    e->made++;
    e->count++;
    return NULL;
}

static void run_here(struct mr_job *first)
{
    while (first != NULL) {
        struct mr_job *next = first->next;
        first->run(first);
        first = next;
    }
}

/* Jobs that a thread has run and not reported yet. */
struct unreported {
    uint32_t jobs;
    uint64_t since_ns;
};

static void report(struct mr_executor *e, struct unreported *unreported)
{
    if (unreported->jobs == 0)
        return;
    unreported->jobs = 0;
    pthread_mutex_unlock(&e->lock);
    e->config.done(e->config.self);
    pthread_mutex_lock(&e->lock);
}

static bool report_is_due(const struct unreported *unreported)
{
    return unreported->jobs >= REPORT_JOBS_MAX ||
           (unreported->jobs > 0 && mr_clock_ns() - unreported->since_ns > REPORT_NS_MAX);
}

/* Under the lock, which it releases in the meantime. There is a job that may begin. */
static void run_first(struct mr_executor *e, struct unreported *unreported)
{
    struct mr_job **at = first_that_may(e);
    if (!(*at)->is_short || report_is_due(unreported)) {
        report(e, unreported);
        at = first_that_may(e);
        if (*at == NULL)
            return;
    }
    struct mr_job *job = unlink_job(e, at);

    e->running++;
    own_is_short = job->is_short;
    e->running_short += own_is_short;
    if (!own_is_short)
        (void)bring_another(e); /* nobody is stuck: this thread runs */
    pthread_mutex_unlock(&e->lock);
    own_depth = job->depth;
    if (unreported->jobs == 0)
        unreported->since_ns = mr_clock_ns();
    job->run(job);
    pthread_mutex_lock(&e->lock);
    e->running--;
    e->running_short -= own_is_short;
    own_is_short = false;
    unreported->jobs++;
}

/* Under the lock, which it releases in the meantime. */
static void refuse(struct mr_executor *e, struct mr_job *stuck, struct unreported *unreported)
{
    pthread_mutex_unlock(&e->lock);
    run_here(stuck);
    pthread_mutex_lock(&e->lock);
    unreported->jobs++;
}

static void *thread_run(void *arg)
{
    struct mr_executor *e = arg;
    struct unreported unreported = {.jobs = 0};
    own = e;
    if (e->config.begins != NULL)
        e->config.begins(e->config.self);
    pthread_mutex_lock(&e->lock);
    for (;;) {
        /* Replacement threads go to sleep when those that they replaced have returned; not at the end, when
         * nobody would wake them. */
        bool surplus = e->count - e->blocked - e->idle > e->config.threads && e->urgent == 0 && !e->stopping;

        if (*first_that_may(e) != NULL && !surplus) {
            run_first(e, &unreported);
            continue;
        }
        if (unreported.jobs > 0) {
            report(e, &unreported);
            continue;
        }
        if (e->stopping && e->first == NULL)
            break;
        e->idle++;
        struct mr_job *stuck = *first_that_may(e) == NULL ? take_stuck(e, MR_EXECUTOR_DEPTHS - 1) : NULL;

        if (stuck != NULL) {
            e->idle--;
            refuse(e, stuck, &unreported);
            continue;
        }
        pthread_cond_wait(&e->given, &e->lock);
        e->idle--;
        e->waking -= e->waking > 0;
    }
    e->count--;
    pthread_cond_broadcast(&e->given); /* when it stops, threads that wait for a job's turn end, too */
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

enum mr_status mr_executor_create(const struct mr_executor_config *config, struct mr_executor **out)
{
    struct mr_executor *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return MR_NO_MEMORY;
    e->config = *config;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->given, NULL);
    if (pthread_create(&e->threads[0], NULL, thread_run, e) != 0) {
        pthread_cond_destroy(&e->given);
        pthread_mutex_destroy(&e->lock);
        free(e);
        return MR_NO_MEMORY;
    }
    pthread_mutex_lock(&e->lock);
    e->made = 1;
    e->count++;
    pthread_mutex_unlock(&e->lock);
    *out = e;
    return MR_OK;
}

static bool has_made(struct mr_executor *e, uint32_t i)
{
    pthread_mutex_lock(&e->lock);
    bool made = i < e->made;

    pthread_mutex_unlock(&e->lock);
    return made;
}

void mr_executor_stop(struct mr_executor *e)
{
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_broadcast(&e->given);
    pthread_mutex_unlock(&e->lock);
    /* A job that waits for another one in the list may be replaced until it ends, by a thread that comes
     * later. */
    for (; has_made(e, e->joined); e->joined++)
        pthread_join(e->threads[e->joined], NULL);
}

void mr_executor_destroy(struct mr_executor *e)
{
    if (e == NULL)
        return;
    mr_executor_stop(e);
    pthread_cond_destroy(&e->given);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* Under the lock: all threads have ended, so that jobs run on the thread that gives them. */
static bool is_over(const struct mr_executor *e)
{
    return e->stopping && e->count == 0;
}

/* Under the lock. */
static void append(struct mr_executor *e, struct mr_job *first, struct mr_job *last, uint32_t count)
{
    if (e->last == NULL)
        e->first = first;
    else
        e->last->next = first;
    e->last = last;
    e->waiting += count;
}

/* Under the lock. */
static void prepend(struct mr_executor *e, struct mr_job *job)
{
    job->next = e->first;
    e->first = job;
    if (e->last == NULL)
        e->last = job;
    e->waiting++;
    e->urgent++;
}

void mr_executor_give(struct mr_executor *e, struct mr_job *first, struct mr_job *last, uint32_t count)
{
    pthread_mutex_lock(&e->lock);
    bool over = is_over(e);

    if (!over) {
        append(e, first, last, count);
        if (!first->is_short || (e->running_short == 0 && e->waking == 0))
            wake_one(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (over)
        run_here(first);
}

void mr_executor_give_one(struct mr_executor *e, struct mr_job *job)
{
    struct mr_job *stuck = NULL;
    pthread_mutex_lock(&e->lock);
    bool over = is_over(e);

    if (!over) {
        if (job->urgent)
            prepend(e, job);
        else
            append(e, job, job, 1);
        if (e->idle > 0 && *first_that_may(e) != NULL)
            wake_one(e);
        else
            stuck = bring_another(e);
    }
    pthread_mutex_unlock(&e->lock);
    run_here(over ? job : stuck);
}

bool mr_executor_nudge(struct mr_executor *e)
{
    pthread_mutex_lock(&e->lock);
    struct mr_job *stuck = bring_another(e);
    bool wait = e->waiting > 0;

    pthread_mutex_unlock(&e->lock);
    run_here(stuck);
    return wait;
}

uint32_t mr_executor_load(struct mr_executor *e)
{
    pthread_mutex_lock(&e->lock);
    uint32_t load = e->waiting + e->running;

    pthread_mutex_unlock(&e->lock);
    return load;
}

void mr_executor_use(struct mr_executor *e, struct mr_executor_use *out)
{
    pthread_mutex_lock(&e->lock);
    *out = (struct mr_executor_use){.threads = e->count,
                                    .asleep = e->idle - e->waking,
                                    .running = e->running,
                                    .waiting = e->waiting,
                                    .blocked = e->blocked};
    pthread_mutex_unlock(&e->lock);
}

struct mr_job *mr_executor_take_back(struct mr_executor *e,
                                     bool (*match)(const struct mr_job *job, const void *arg),
                                     const void *arg)
{
    struct mr_job *job = NULL;
    pthread_mutex_lock(&e->lock);
    struct mr_job **at = &e->first;

    while (*at != NULL && !match(*at, arg))
        at = &(*at)->next;
    if (*at != NULL)
        job = unlink_job(e, at);
    pthread_mutex_unlock(&e->lock);
    return job;
}

uint8_t mr_executor_depth(void)
{
    if (own == NULL)
        return 0;
    return own_depth + 1u < MR_EXECUTOR_DEPTHS ? (uint8_t)(own_depth + 1) : own_depth;
}

void mr_executor_blocks(void)
{
    if (own == NULL)
        return;
    pthread_mutex_lock(&own->lock);
    own->blocked++;
    own->running_short -= own_is_short;
    own_is_short = false;
    struct mr_job *stuck = bring_another(own);

    pthread_mutex_unlock(&own->lock);
    if (stuck == NULL)
        return;
    run_here(stuck);
    own->config.done(own->config.self);
}

void mr_executor_unblocks(void)
{
    if (own == NULL)
        return;
    pthread_mutex_lock(&own->lock);
    own->blocked--;
    if (own->stopping)
        pthread_cond_broadcast(&own->given); /* a job may begin now, and no new one would wake a thread */
    pthread_mutex_unlock(&own->lock);
}
