#include "ps/checkpoint/sender.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/clock.h"

/* Buffers that wait in their order, by number; each is in one list. */
struct queue {
    uint32_t first, last; /* NONE: it is empty */
};

#define NONE UINT32_MAX

struct ps_sender {
    struct ps_sender_options options;
    pthread_t threads[PS_SENDER_THREADS];
    uint32_t thread_count;
    uint32_t pending; /* the caller's: put, and not taken back */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t has_work, has_written;
    bool is_ending, is_cancelled;
    struct queue *waiting; /* of each file */
    bool *is_busy;         /* of each file: a thread is writing to it */
    uint32_t turn;         /* the file that is looked at first */
    struct queue written;
    uint32_t *next; /* of each buffer */
    struct ps_write_done *writes;
    char text[256];
};

/* ---- lists ---- */

static void append(struct ps_sender *s, struct queue *q, uint32_t buffer)
{
    s->next[buffer] = NONE;
    if (q->first == NONE)
        q->first = buffer;
    else
        s->next[q->last] = buffer;
    q->last = buffer;
}

static uint32_t take_first(struct ps_sender *s, struct queue *q)
{
    const uint32_t buffer = q->first;
    q->first = s->next[buffer];
    return buffer;
}

/* ---- its threads; the caller holds the lock ---- */

/* A file that has something to write and that nobody writes to; NONE: there is none. */
static uint32_t find_file(struct ps_sender *s)
{
    for (uint32_t i = 0; i < s->options.file_count; i++) {
        const uint32_t file = (s->turn + i) % s->options.file_count;
        if (s->waiting[file].first == NONE || s->is_busy[file])
            continue;
        s->turn = file + 1;
        return file;
    }
    return NONE;
}

static void note_error(struct ps_sender *s, int error)
{
    const char *said = ps_store_explanation(-error);
    if (!s->is_cancelled && said)
        (void)snprintf(s->text, sizeof(s->text), "%s", said);
    s->is_cancelled = true;
}

static void write_first(struct ps_sender *s, uint32_t file)
{
    const uint32_t buffer = take_first(s, &s->waiting[file]);
    struct ps_write_done *w = &s->writes[buffer];
    w->error = s->is_cancelled ? -ECANCELED : 0;
    if (w->error == 0) {
        const uint8_t *from = s->options.buffers + (size_t)buffer * s->options.buffer_bytes;
        s->is_busy[file] = true;
        pthread_mutex_unlock(&s->lock);
        const int error = ps_store_write_all(s->options.store, s->options.files[file], from,
                                             s->options.buffer_bytes, w->offset);
        pthread_mutex_lock(&s->lock);
        s->is_busy[file] = false;
        w->error = error;
        if (error != 0)
            note_error(s, error);
    }
    append(s, &s->written, buffer);
    pthread_cond_signal(&s->has_written);
}

static void *sender_run(void *arg)
{
    struct ps_sender *s = arg;
    (void)pthread_setname_np(pthread_self(), "mr-sender");
    pthread_mutex_lock(&s->lock);
    while (!s->is_ending) {
        const uint32_t file = find_file(s);
        if (file == NONE)
            pthread_cond_wait(&s->has_work, &s->lock);
        else
            write_first(s, file);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the caller's side ---- */

static bool make_lists(struct ps_sender *s)
{
    s->waiting = calloc(s->options.file_count, sizeof(*s->waiting));
    s->is_busy = calloc(s->options.file_count, sizeof(*s->is_busy));
    s->next = calloc(s->options.buffer_count, sizeof(*s->next));
    s->writes = calloc(s->options.buffer_count, sizeof(*s->writes));
    for (uint32_t i = 0; i < s->options.file_count && s->waiting; i++)
        s->waiting[i] = (struct queue){NONE, NONE};
    s->written = (struct queue){NONE, NONE};
    return s->waiting && s->is_busy && s->next && s->writes;
}

/* Others handle signals. */
static void start_threads(struct ps_sender *s)
{
    const uint32_t wanted =
        s->options.file_count < PS_SENDER_THREADS ? s->options.file_count : PS_SENDER_THREADS;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (s->thread_count < wanted && pthread_create(&s->threads[s->thread_count], NULL, sender_run, s) == 0)
        s->thread_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int ps_sender_create(const struct ps_sender_options *options, struct ps_sender **out)
{
    struct ps_sender *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->options = *options;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->has_work, NULL);
    pthread_cond_init(&s->has_written, NULL);
    const bool is_made = make_lists(s);
    if (is_made)
        start_threads(s);
    if (s->thread_count > 0) {
        *out = s;
        return 0;
    }
    ps_sender_destroy(s);
    return is_made ? -EAGAIN : -ENOMEM;
}

void ps_sender_put(struct ps_sender *s, uint32_t file, uint32_t buffer, uint64_t offset)
{
    pthread_mutex_lock(&s->lock);
    s->writes[buffer] = (struct ps_write_done){.buffer = buffer, .file = file, .offset = offset};
    append(s, &s->waiting[file], buffer);
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&s->lock);
    s->pending++;
}

uint32_t ps_sender_pending(const struct ps_sender *s)
{
    return s->pending;
}

bool ps_sender_reap(struct ps_sender *s, uint32_t wait_us, struct ps_write_done *done)
{
    const struct timespec until = mr_clock_after_us(wait_us);
    pthread_mutex_lock(&s->lock);
    int error = wait_us > 0 && s->pending > 0 ? 0 : ETIMEDOUT;
    while (s->written.first == NONE && error != ETIMEDOUT)
        error = pthread_cond_clockwait(&s->has_written, &s->lock, CLOCK_MONOTONIC, &until);
    const bool is_any = s->written.first != NONE;
    if (is_any)
        *done = s->writes[take_first(s, &s->written)];
    pthread_mutex_unlock(&s->lock);
    s->pending -= is_any;
    return is_any;
}

const char *ps_sender_text(const struct ps_sender *s)
{
    return s->text;
}

void ps_sender_cancel(struct ps_sender *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_cancelled = true;
    pthread_mutex_unlock(&s->lock);
}

void ps_sender_destroy(struct ps_sender *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    pthread_cond_broadcast(&s->has_work);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->thread_count; i++)
        (void)pthread_join(s->threads[i], NULL);
    pthread_cond_destroy(&s->has_written);
    pthread_cond_destroy(&s->has_work);
    pthread_mutex_destroy(&s->lock);
    free(s->waiting);
    free(s->is_busy);
    free(s->next);
    free(s->writes);
    free(s);
}
