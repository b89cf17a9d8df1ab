#include "ps/store/read_ahead.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define READ_ALIGN 4096u
#define LINE_BYTES 512u

struct slot {
    uint8_t *data;
    bool is_ready;
    int error;             /* -errno of its read */
    char line[LINE_BYTES]; /* what the store said about that; "": nothing */
};

struct ps_read_ahead {
    struct ps_read_ahead_options options;
    uint64_t range_count;
    pthread_t threads[PS_READ_AHEAD_BUFFERS_MAX];
    uint32_t thread_count;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint64_t begun, given, released; /* ranges: range i is in slot i % buffer_count from begun to released */
    bool is_ending;
    struct slot slots[PS_READ_AHEAD_BUFFERS_MAX];
};

static size_t bytes_of(const struct ps_read_ahead *r, uint64_t range)
{
    const uint64_t left = r->options.file_bytes - range * r->options.range_bytes;
    return left < r->options.range_bytes ? (size_t)left : r->options.range_bytes;
}

/* The next range to read; false: there is none, or it ends. */
static bool read_ahead_begin(struct ps_read_ahead *r, uint64_t *range)
{
    pthread_mutex_lock(&r->lock);
    while (!r->is_ending && r->begun < r->range_count && r->begun - r->released == r->options.buffer_count)
        pthread_cond_wait(&r->changed, &r->lock);
    const bool goes_on = !r->is_ending && r->begun < r->range_count;
    if (goes_on)
        *range = r->begun++;
    pthread_mutex_unlock(&r->lock);
    return goes_on;
}

static void *read_ahead_run(void *arg)
{
    struct ps_read_ahead *r = arg;
    uint64_t range;
    (void)pthread_setname_np(pthread_self(), "mr-read-ahead");
    while (read_ahead_begin(r, &range)) {
        struct slot *slot = &r->slots[range % r->options.buffer_count];
        slot->error = ps_store_read_all(r->options.store, r->options.file, slot->data, bytes_of(r, range),
                                        range * r->options.range_bytes);
        const char *line = slot->error != 0 ? ps_store_explanation(-slot->error) : NULL;
        (void)snprintf(slot->line, sizeof(slot->line), "%s", line != NULL ? line : "");
        pthread_mutex_lock(&r->lock);
        slot->is_ready = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

int ps_read_ahead_next(struct ps_read_ahead *r, uint8_t **data, size_t *bytes)
{
    struct slot *slot = &r->slots[r->given % r->options.buffer_count];
    const uint64_t range = r->given;
    *bytes = 0;
    pthread_mutex_lock(&r->lock);
    r->released = range;
    pthread_cond_broadcast(&r->changed);
    while (range < r->range_count && !slot->is_ready)
        pthread_cond_wait(&r->changed, &r->lock);
    slot->is_ready = false;
    pthread_mutex_unlock(&r->lock);
    if (range == r->range_count)
        return 0;
    if (slot->error != 0) {
        if (slot->line[0] != '\0')
            ps_store_explain(-slot->error, "%s", slot->line);
        return slot->error;
    }
    r->given++;
    *data = slot->data;
    *bytes = bytes_of(r, range);
    return 0;
}

static bool make_slots(struct ps_read_ahead *r)
{
    bool good = true;
    for (uint32_t i = 0; i < r->options.buffer_count && good; i++) {
        r->slots[i].data = aligned_alloc(READ_ALIGN, r->options.range_bytes);
        good = r->slots[i].data != NULL;
    }
    return good;
}

int ps_read_ahead_open(const struct ps_read_ahead_options *options, struct ps_read_ahead **out)
{
    assert(options->buffer_count >= 2 && options->buffer_count <= PS_READ_AHEAD_BUFFERS_MAX);
    struct ps_read_ahead *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    r->options = *options;
    r->range_count = (options->file_bytes + options->range_bytes - 1) / options->range_bytes;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    int error = make_slots(r) ? 0 : -ENOMEM;
    while (error == 0 && r->thread_count + 1 < options->buffer_count && r->thread_count < r->range_count &&
           pthread_create(&r->threads[r->thread_count], NULL, read_ahead_run, r) == 0)
        r->thread_count++;
    if (error == 0 && r->thread_count == 0 && r->range_count > 0)
        error = -EAGAIN;
    if (error != 0)
        ps_read_ahead_close(r);
    else
        *out = r;
    return error;
}

void ps_read_ahead_close(struct ps_read_ahead *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    r->is_ending = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->thread_count; i++)
        (void)pthread_join(r->threads[i], NULL);
    for (uint32_t i = 0; i < r->options.buffer_count; i++)
        free(r->slots[i].data);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
