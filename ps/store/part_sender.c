#include "ps/store/part_sender.h"

#include <stdbool.h>
#include <stdlib.h>
#include "ps/io/io_threads.h"

/* A part on its way. */
struct sending {
    struct ps_io_job job; /* first: the threads know no more of it */
    struct ps_part_sender *sender;
    uint32_t number;
    uint8_t *data;
    size_t bytes;
    bool is_done;
};

struct ps_part_sender {
    struct ps_part_sender_options options;
    struct ps_io_threads *threads;
    struct sending slots[PS_PART_SENDER_MAX]; /* the i-th that was begun is in slot i % PS_PART_SENDER_MAX */
    uint32_t begun, ended;
    uint32_t count;                 /* parts so far */
    uint32_t sent;                  /* of these, from the first on, known to be sent */
    const struct ps_io_job *failed; /* the first; nothing is sent after it */
};

struct ps_part_sender *ps_part_sender_create(const struct ps_part_sender_options *options)
{
    struct ps_part_sender *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    if (ps_io_threads_create("mr-part-sender", PS_PART_SENDER_MAX, &s->threads) != 0) {
        free(s);
        return NULL;
    }
    s->options = *options;
    s->count = s->sent = options->sent;
    return s;
}

/* ---- buffers ---- */

static bool take_memory(struct ps_part_sender *s)
{
    const long long room = (long long)s->options.room;
    long long left = atomic_load(s->options.memory);
    while (left >= room)
        if (atomic_compare_exchange_weak(s->options.memory, &left, left - room))
            return true;
    return false;
}

static uint8_t *new_buffer(struct ps_part_sender *s)
{
    if (!take_memory(s))
        return NULL;
    uint8_t *buffer = malloc(s->options.room);
    if (!buffer)
        atomic_fetch_add(s->options.memory, (long long)s->options.room);
    return buffer;
}

static void free_buffer(struct ps_part_sender *s, uint8_t *buffer)
{
    free(buffer);
    atomic_fetch_add(s->options.memory, (long long)s->options.room);
}

/* ---- parts ---- */

static int part_send(struct ps_io_job *job)
{
    const struct sending *part = (const struct sending *)job;
    const struct ps_part_sender_options *o = &part->sender->options;
    return o->send(o->arg, part->number, part->data, part->bytes);
}

static int part_sender_error(const struct ps_part_sender *s)
{
    return s->failed ? ps_io_job_error(s->failed) : 0;
}

/* Notes which parts are over; waits for one at most wait_us. */
static void part_note_done(struct ps_part_sender *s, uint32_t wait_us)
{
    struct ps_io_job *job = ps_io_threads_take(s->threads, wait_us);
    for (; job; job = ps_io_threads_take(s->threads, 0))
        ((struct sending *)job)->is_done = true;
}

/* Waits for the oldest. Returns its buffer. */
static uint8_t *part_end_oldest(struct ps_part_sender *s)
{
    struct sending *part = &s->slots[s->ended++ % PS_PART_SENDER_MAX];
    while (!part->is_done)
        part_note_done(s, PS_IO_FOREVER);
    if (!s->failed && part->job.error != 0)
        s->failed = &part->job;
    if (!s->failed && part->number == s->sent + 1)
        s->sent = part->number;
    return part->data;
}

int ps_part_sender_put(struct ps_part_sender *s, uint8_t **part, size_t bytes)
{
    /* A buffer that may be filled while others are sent; without one this part is waited for. */
    uint8_t *next = s->begun - s->ended < PS_PART_SENDER_MAX ? new_buffer(s) : NULL;
    if (!next && s->begun != s->ended)
        next = part_end_oldest(s);
    if (s->failed) {
        if (next)
            free_buffer(s, next);
        return part_sender_error(s);
    }
    struct sending *sending = &s->slots[s->begun++ % PS_PART_SENDER_MAX];
    *sending = (struct sending){.job = {.run = part_send, .queue = PS_IO_NO_QUEUE},
                                .sender = s,
                                .number = ++s->count,
                                .data = *part,
                                .bytes = bytes};
    ps_io_threads_put(s->threads, &sending->job);
    *part = next ? next : part_end_oldest(s);
    return part_sender_error(s);
}

uint32_t ps_part_sender_sent(struct ps_part_sender *s)
{
    uint32_t sent = s->sent;
    part_note_done(s, 0);
    for (uint32_t i = s->ended; i < s->begun; i++) {
        const struct sending *part = &s->slots[i % PS_PART_SENDER_MAX];
        if (part->number == sent + 1 && part->is_done && part->job.error == 0)
            sent++;
    }
    return sent;
}

int ps_part_sender_finish(struct ps_part_sender *s)
{
    while (s->ended < s->begun)
        free_buffer(s, part_end_oldest(s));
    return part_sender_error(s);
}

void ps_part_sender_destroy(struct ps_part_sender *s)
{
    if (!s)
        return;
    (void)ps_part_sender_finish(s);
    ps_io_threads_destroy(s->threads);
    free(s);
}
