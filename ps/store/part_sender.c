#include "ps/store/part_sender.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "ps/io/store.h"

#define LINE_BYTES 512u

/* A part on its thread. */
struct sending {
    struct ps_part_sender *sender;
    pthread_t thread;
    uint32_t number;
    uint8_t *data;
    size_t bytes;
    int error;
    char line[LINE_BYTES]; /* what the store said about that; "": nothing */
    atomic_bool is_sent;
};

struct ps_part_sender {
    struct ps_part_sender_options options;
    struct sending slots[PS_PART_SENDER_MAX]; /* the i-th that was begun is in slot i % PS_PART_SENDER_MAX */
    uint32_t begun, ended;
    uint32_t count; /* parts so far */
    uint32_t sent;  /* of these, from the first on, known to be sent */
    int error;      /* the first */
    char line[LINE_BYTES];
};

struct ps_part_sender *ps_part_sender_create(const struct ps_part_sender_options *options)
{
    struct ps_part_sender *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
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

static void *part_sender_run(void *arg)
{
    struct sending *part = arg;
    const struct ps_part_sender_options *o = &part->sender->options;
    (void)pthread_setname_np(pthread_self(), "mr-part-sender");
    part->error = o->send(o->arg, part->number, part->data, part->bytes);
    const char *line = part->error != 0 ? ps_store_explanation(-part->error) : NULL;
    (void)snprintf(part->line, sizeof(part->line), "%s", line ? line : "");
    atomic_store(&part->is_sent, part->error == 0);
    return NULL;
}

/* False: there is no thread. end_oldest() returns the buffer. */
// NOLINTNEXTLINE(readability-non-const-parameter): whoever gets it back fills it
static bool part_sender_begin(struct ps_part_sender *s, uint8_t *data, size_t bytes)
{
    struct sending *part = &s->slots[s->begun % PS_PART_SENDER_MAX];
    *part = (struct sending){.sender = s, .number = s->count, .data = data, .bytes = bytes};
    if (pthread_create(&part->thread, NULL, part_sender_run, part) != 0)
        return false;
    s->begun++;
    return true;
}

static void note_error(struct ps_part_sender *s, int error, const char *line)
{
    if (s->error != 0 || error == 0)
        return;
    s->error = error;
    (void)snprintf(s->line, sizeof(s->line), "%s", line ? line : "");
}

/* Waits for the oldest. Returns its buffer. */
static uint8_t *end_oldest(struct ps_part_sender *s)
{
    struct sending *part = &s->slots[s->ended++ % PS_PART_SENDER_MAX];
    (void)pthread_join(part->thread, NULL);
    note_error(s, part->error, part->line);
    if (s->error == 0 && part->number == s->sent + 1)
        s->sent = part->number;
    return part->data;
}

static int error_of(const struct ps_part_sender *s)
{
    if (s->error != 0 && s->line[0] != '\0')
        ps_store_explain(-s->error, "%s", s->line);
    return s->error;
}

/* A buffer that may be filled while others are sent; NULL: there is none. */
static uint8_t *next_buffer(struct ps_part_sender *s)
{
    uint8_t *buffer = s->begun - s->ended < PS_PART_SENDER_MAX ? new_buffer(s) : NULL;
    return buffer || s->begun == s->ended ? buffer : end_oldest(s);
}

int ps_part_sender_put(struct ps_part_sender *s, uint8_t **part, size_t bytes)
{
    if (s->error != 0)
        return error_of(s);
    uint8_t *next = next_buffer(s);
    s->count++;
    if (next && s->error == 0 && part_sender_begin(s, *part, bytes)) {
        *part = next;
        return 0;
    }
    if (next)
        free_buffer(s, next);
    if (s->error == 0) {
        const int error = s->options.send(s->options.arg, s->count, *part, bytes);
        note_error(s, error, error != 0 ? ps_store_explanation(-error) : NULL);
        if (error == 0 && s->count == s->sent + 1)
            s->sent = s->count;
    }
    return error_of(s);
}

uint32_t ps_part_sender_sent(const struct ps_part_sender *s)
{
    uint32_t sent = s->sent;
    for (uint32_t i = s->ended; i < s->begun; i++) {
        const struct sending *part = &s->slots[i % PS_PART_SENDER_MAX];
        if (part->number == sent + 1 && atomic_load(&part->is_sent))
            sent++;
    }
    return sent;
}

int ps_part_sender_finish(struct ps_part_sender *s)
{
    while (s->ended < s->begun)
        free_buffer(s, end_oldest(s));
    return error_of(s);
}

void ps_part_sender_destroy(struct ps_part_sender *s)
{
    if (!s)
        return;
    (void)ps_part_sender_finish(s);
    free(s);
}
