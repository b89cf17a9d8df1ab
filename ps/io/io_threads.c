#include "ps/io/io_threads.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/thread.h"
#include "ps/io/store.h"

struct job_list {
    struct ps_io_job *first, **end;
};

struct io_thread {
    struct ps_io_threads *pool;
    pthread_t thread;
    uint32_t queue; /* of the job that it runs */
};

struct ps_io_threads {
    const char *name;
    struct io_thread threads[PS_IO_THREADS_MAX];
    uint32_t thread_count;
    uint32_t pending; /* the owner's: put, and not taken back */

    pthread_mutex_t lock; /* of what follows, and of the threads' queues */
    pthread_cond_t has_work, has_done;
    bool is_ending, is_cancelled;
    struct job_list waiting, done;
};

static void job_append(struct job_list *list, struct ps_io_job *job)
{
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
}

static struct ps_io_job *job_remove(struct job_list *list, struct ps_io_job **at)
{
    struct ps_io_job *job = *at;
    *at = job->next;
    if (list->end == &job->next)
        list->end = at;
    return job;
}

/* ---- its threads; the caller holds the lock ---- */

static bool queue_is_busy(const struct ps_io_threads *t, uint32_t queue)
{
    for (uint32_t i = 0; queue != PS_IO_NO_QUEUE && i < t->thread_count; i++)
        if (t->threads[i].queue == queue)
            return true;
    return false;
}

/* The first job whose queue is free; NULL: there is none. */
static struct ps_io_job *next_job(struct ps_io_threads *t)
{
    for (struct ps_io_job **at = &t->waiting.first; *at; at = &(*at)->next)
        if (!queue_is_busy(t, (*at)->queue))
            return job_remove(&t->waiting, at);
    return NULL;
}

static void job_run(struct ps_io_threads *t, struct ps_io_job *job, uint32_t *queue)
{
    job->error = -ECANCELED;
    job->line[0] = '\0';
    if (!t->is_cancelled) {
        *queue = job->queue;
        pthread_mutex_unlock(&t->lock);
        const int error = job->run(job);
        const char *said = error != 0 ? ps_store_explanation(-error) : NULL;
        (void)snprintf(job->line, sizeof(job->line), "%s", said ? said : "");
        pthread_mutex_lock(&t->lock);
        *queue = PS_IO_NO_QUEUE;
        job->error = error;
        t->is_cancelled = t->is_cancelled || error != 0;
    }
    job_append(&t->done, job);
    pthread_cond_signal(&t->has_done);
}

static void *io_thread_run(void *arg)
{
    struct io_thread *self = arg;
    struct ps_io_threads *t = self->pool;
    (void)pthread_setname_np(pthread_self(), t->name);
    pthread_mutex_lock(&t->lock);
    while (!t->is_ending) {
        struct ps_io_job *job = next_job(t);
        if (job)
            job_run(t, job, &self->queue);
        else
            pthread_cond_wait(&t->has_work, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- the owner's side ---- */

int ps_io_threads_create(const char *name, uint32_t wanted, struct ps_io_threads **out)
{
    assert(wanted <= PS_IO_THREADS_MAX);
    struct ps_io_threads *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->name = name;
    t->waiting.end = &t->waiting.first;
    t->done.end = &t->done.first;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->has_work, NULL);
    pthread_cond_init(&t->has_done, NULL);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < wanted; i++) {
        t->threads[i] = (struct io_thread){.pool = t, .queue = PS_IO_NO_QUEUE};
        if (mr_thread_start(&t->threads[i].thread, io_thread_run, &t->threads[i]) != 0)
            break;
        t->thread_count++;
    }
    pthread_mutex_unlock(&t->lock);
    *out = t;
    return 0;
}

void ps_io_threads_put(struct ps_io_threads *t, struct ps_io_job *job)
{
    uint32_t no_queue;
    pthread_mutex_lock(&t->lock);
    t->pending++;
    if (t->thread_count == 0) {
        job_run(t, job, &no_queue);
    } else {
        job_append(&t->waiting, job);
        pthread_cond_signal(&t->has_work);
    }
    pthread_mutex_unlock(&t->lock);
}

struct ps_io_job *ps_io_threads_take(struct ps_io_threads *t, uint32_t wait_us)
{
    const struct timespec until = mr_clock_after_us(wait_us);
    pthread_mutex_lock(&t->lock);
    int error = wait_us > 0 && t->pending > 0 ? 0 : ETIMEDOUT;
    while (!t->done.first && error != ETIMEDOUT)
        error = wait_us == PS_IO_FOREVER
                    ? pthread_cond_wait(&t->has_done, &t->lock)
                    : pthread_cond_clockwait(&t->has_done, &t->lock, CLOCK_MONOTONIC, &until);
    struct ps_io_job *job = t->done.first ? job_remove(&t->done, &t->done.first) : NULL;
    pthread_mutex_unlock(&t->lock);
    t->pending -= job != NULL;
    return job;
}

void ps_io_threads_cancel(struct ps_io_threads *t)
{
    pthread_mutex_lock(&t->lock);
    t->is_cancelled = true;
    pthread_mutex_unlock(&t->lock);
}

int ps_io_job_error(const struct ps_io_job *job)
{
    if (job->error != 0 && job->line[0] != '\0')
        ps_store_explain(-job->error, "%s", job->line);
    return job->error;
}

void ps_io_threads_destroy(struct ps_io_threads *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->is_ending = true;
    pthread_cond_broadcast(&t->has_work);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->thread_count; i++)
        (void)pthread_join(t->threads[i].thread, NULL);
    pthread_cond_destroy(&t->has_done);
    pthread_cond_destroy(&t->has_work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
