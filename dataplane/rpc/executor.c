#include "dataplane/rpc/executor.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define TELL_JOBS_MAX 16u    /* brief jobs that are told together, */
#define TELL_NS_MAX   50000u /* and for how long the first waits at most */

struct mr_executor {
    struct mr_executor_config config;
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct mr_job *first, *last;
    uint32_t waiting; /* jobs in the list, */
    uint32_t urgent;  /* and those of them that functions that run may wait for */
    uint32_t running; /* jobs */
    uint32_t idle;    /* threads asleep, */
    uint32_t waking;  /* and those of them that were woken */
    uint32_t blocked; /* threads that wait for other workers */
    uint32_t count;   /* threads alive */
    uint32_t made;
    uint32_t joined; /* of these; who stops it */
    bool stopping;
    pthread_t threads[MR_EXECUTOR_THREADS_MAX];
};

static _Thread_local struct mr_executor *own;

static void *thread_run(void *arg);

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Under the lock. */
static void wake_one(struct mr_executor *e)
{
    if (e->idle == e->waking)
        return;
    e->waking++;
    pthread_cond_signal(&e->given);
}

/* Under the lock: somebody shall see to what waits. */
static void bring_another(struct mr_executor *e)
{
    if (e->waiting == 0)
        return;
    if (e->idle > e->waking) {
        wake_one(e);
        return;
    }
    if ((e->count - e->blocked >= e->config.threads && e->urgent == 0) || e->made == MR_EXECUTOR_THREADS_MAX)
        return;
    if (pthread_create(&e->threads[e->made], NULL, thread_run, e) == 0) {
        e->made++;
        e->count++;
    }
}

/* What a thread has run and not told yet. */
struct untold {
    uint32_t jobs;
    uint64_t since_ns;
};

static void tell(struct mr_executor *e, struct untold *untold)
{
    if (untold->jobs == 0)
        return;
    untold->jobs = 0;
    pthread_mutex_unlock(&e->lock);
    e->config.done(e->config.self);
    pthread_mutex_lock(&e->lock);
}

static bool tell_is_due(const struct untold *untold)
{
    return untold->jobs >= TELL_JOBS_MAX || (untold->jobs > 0 && now_ns() - untold->since_ns > TELL_NS_MAX);
}

static struct mr_job *pop(struct mr_executor *e)
{
    struct mr_job *job = e->first;

    e->first = job->next;
    if (e->first == NULL)
        e->last = NULL;
    e->waiting--;
    e->urgent -= job->urgent;
    return job;
}

/* Under the lock, which it gives up meanwhile. */
static void run_first(struct mr_executor *e, struct untold *untold)
{
    if (!e->first->brief || tell_is_due(untold)) {
        tell(e, untold);
        if (e->first == NULL)
            return;
    }
    struct mr_job *job = pop(e);

    e->running++;
    if (!job->brief)
        bring_another(e);
    pthread_mutex_unlock(&e->lock);
    if (untold->jobs == 0)
        untold->since_ns = now_ns();
    job->run(job);
    pthread_mutex_lock(&e->lock);
    e->running--;
    untold->jobs++;
}

static void *thread_run(void *arg)
{
    struct mr_executor *e = arg;
    struct untold untold = {.jobs = 0};

    own = e;
    if (e->config.begins != NULL)
        e->config.begins(e->config.self);
    pthread_mutex_lock(&e->lock);
    for (;;) {
        /* Those that stood in for others go to sleep when these have come back; at the end nobody would wake them. */
        bool surplus = e->count - e->blocked - e->idle > e->config.threads && e->urgent == 0 && !e->stopping;

        if (e->first != NULL && !surplus) {
            run_first(e, &untold);
            continue;
        }
        if (untold.jobs > 0) {
            tell(e, &untold);
            continue;
        }
        if (e->stopping && e->first == NULL)
            break;
        e->idle++;
        pthread_cond_wait(&e->given, &e->lock);
        e->idle--;
        e->waking -= e->waking > 0;
    }
    e->count--;
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

enum mr_status mr_executor_create(const struct mr_executor_config *config, struct mr_executor **out)
{
    struct mr_executor *e = calloc(1, sizeof *e);

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
    /* One that waits for what is still in the list may be stood in for until it ends: by a thread behind it. */
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

/* Under the lock: all its threads have ended, so that who gives jobs runs them. */
static bool is_over(const struct mr_executor *e)
{
    return e->stopping && e->count == 0;
}

static void run_here(struct mr_job *first)
{
    while (first != NULL) {
        struct mr_job *next = first->next;

        first->run(first);
        first = next;
    }
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
        wake_one(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (over)
        run_here(first);
}

void mr_executor_give_one(struct mr_executor *e, struct mr_job *job)
{
    pthread_mutex_lock(&e->lock);
    bool over = is_over(e);

    if (!over) {
        if (job->urgent)
            prepend(e, job);
        else
            append(e, job, job, 1);
        if (e->idle > 0)
            wake_one(e);
        else
            bring_another(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (over)
        run_here(job);
}

bool mr_executor_hurry(struct mr_executor *e)
{
    pthread_mutex_lock(&e->lock);
    bool wait = e->waiting > 0;

    if (wait)
        bring_another(e);
    pthread_mutex_unlock(&e->lock);
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
    *out = (struct mr_executor_use){
        .threads = e->count, .running = e->running, .waiting = e->waiting, .blocked = e->blocked};
    pthread_mutex_unlock(&e->lock);
}

struct mr_job *mr_executor_take_back(struct mr_executor *e,
                                     bool (*match)(const struct mr_job *job, const void *arg),
                                     const void *arg)
{
    struct mr_job *before = NULL, *job;

    pthread_mutex_lock(&e->lock);
    for (job = e->first; job != NULL && !match(job, arg); job = job->next)
        before = job;
    if (job != NULL) {
        if (before == NULL)
            e->first = job->next;
        else
            before->next = job->next;
        if (e->last == job)
            e->last = before;
        e->waiting--;
    }
    pthread_mutex_unlock(&e->lock);
    return job;
}

void mr_executor_blocks(void)
{
    if (own == NULL)
        return;
    pthread_mutex_lock(&own->lock);
    own->blocked++;
    bring_another(own);
    pthread_mutex_unlock(&own->lock);
}

void mr_executor_goes_on(void)
{
    if (own == NULL)
        return;
    pthread_mutex_lock(&own->lock);
    own->blocked--;
    pthread_mutex_unlock(&own->lock);
}
