#include "trainer_client/hub/samples/live_source.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/list.h"
#include "trainer_client/hub/format/sample_block.h"
#include "trainer_client/hub/samples/batch_builder.h"
#include "trainer_client/hub/samples/lines.h"
#include "trainer_client/hub/samples/live_input.h"
#include "trainer_client/hub/samples/permutation.h"
#include "trainer_client/hub/plan/plan.h"

#define AHEAD_BATCHES     64u /* that are read before they are asked for */
#define KEPT_FIRST        64u
#define IDENTITY_REPEATED UINT64_C(0x726570656174) /* of standard input that is the same at each start */

struct live_source {
    struct hub_batch_source base;
    bool is_repeated;    /* standard input is the same at each start */
    size_t memory_bytes; /* for batches that were released */
    void (*on_batch)(void *arg);
    void *arg;
    struct hub_live_input input;
    pthread_t thread;
    bool has_thread;

    /* of the reading thread */
    struct hub_batch_builder builder; /* its shape is set under the lock */
    struct hub_format *bound;         /* the format with the input's columns, if its first line names them */
    struct hub_growing growing;
    uint64_t parts; /* lines or blocks */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t room;
    struct hub_sample_file_info info; /* as asked for last */
    struct hub_batch *kept;           /* ring: batch n is at n % kept_size for first <= n < end */
    uint64_t first, end, kept_size;
    size_t kept_bytes;
    uint64_t wanted, released; /* one past the highest batch asked for; all below are applied */
    bool is_starved, has_ended, is_closing, is_finishing;
    enum mr_status status; /* not MR_OK: what comes after `end` */
    char error[HUB_ERROR_BYTES];
};

static struct live_source *live_source_of(const struct hub_batch_source *base)
{
    return MR_CONTAINER(base, struct live_source, base);
}

/* ---- what is kept ---- */

static size_t bytes_of(const struct hub_batch *b)
{
    return (size_t)b->samples * (1 + b->dense_count) * sizeof(float) +
           ((size_t)b->samples * b->slots + 1) * sizeof(uint32_t) +
           (size_t)b->key_count * (sizeof(uint64_t) + (b->has_weights ? sizeof(float) : 0));
}

static struct hub_batch *kept_at(const struct live_source *s, uint64_t sequence)
{
    return &s->kept[sequence % s->kept_size];
}

static void drop_first(struct live_source *s)
{
    struct hub_batch *b = kept_at(s, s->first++);
    s->kept_bytes -= bytes_of(b);
    hub_batch_free(b);
}

static void drop_released(struct live_source *s)
{
    while (s->kept_bytes > s->memory_bytes && s->first < s->released && s->first < s->end)
        drop_first(s);
}

static bool grow_kept(struct live_source *s)
{
    uint64_t size = 2 * s->kept_size;
    struct hub_batch *grown = calloc(size, sizeof(*grown));
    if (grown == NULL)
        return false;
    for (uint64_t n = s->first; n < s->end; n++)
        grown[n % size] = *kept_at(s, n);
    free(s->kept);
    s->kept = grown;
    s->kept_size = size;
    return true;
}

/* Whether the reading thread may add a batch now: not too far ahead, and within the memory unless nothing
 * else is left to be applied. */
static bool has_room(const struct live_source *s)
{
    return s->end < s->wanted + AHEAD_BATCHES &&
           (s->kept_bytes < s->memory_bytes || s->end <= s->released || s->first == s->end);
}

/* ---- the reading thread ---- */

static void live_source_tell(struct live_source *s)
{
    if (s->on_batch != NULL)
        s->on_batch(s->arg);
}

/* Hands the batch that was put together over, once there is room, and begins the next one. */
static enum mr_status keep_batch(void *arg, char *error)
{
    struct live_source *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!has_room(s) && !s->is_closing)
        pthread_cond_wait(&s->room, &s->lock);
    bool kept = s->end - s->first < s->kept_size || grow_kept(s);
    if (kept) {
        struct hub_batch *b = kept_at(s, s->end);
        *b = s->growing.batch;
        b->sequence = s->end++;
        b->first_sample = b->sequence * s->builder.batch_samples;
        s->kept_bytes += bytes_of(b);
        s->growing.batch = (struct hub_batch){0};
        drop_released(s);
    }
    bool is_starved = s->is_starved, is_closing = s->is_closing;
    s->is_starved = false;
    pthread_mutex_unlock(&s->lock);
    if (!kept) {
        snprintf(error, HUB_ERROR_BYTES, "no memory for the batches of %.200s", s->builder.path);
        return MR_NO_MEMORY;
    }
    hub_batch_builder_begin(&s->builder, &s->growing);
    if (is_starved)
        live_source_tell(s);
    return is_closing ? MR_CANCELLED : MR_OK;
}

static struct hub_position live_position(const struct live_source *s)
{
    return (struct hub_position){.input = s->builder.path, .number = s->parts};
}

/* The first line says where the columns are. */
static enum mr_status bind_format(struct live_source *s, const char *text, size_t bytes, char *error)
{
    const struct hub_format *format = s->builder.format;
    char reason[HUB_REASON_BYTES] = "its first line is too long";
    hub_format_free(s->bound); /* of a reading before this one */
    s->bound = NULL;
    bytes = hub_line_trim(text, bytes);
    if (bytes <= HUB_LINE_BYTES_MAX)
        s->bound = hub_format_bind(format, text, bytes, reason);
    if (s->bound != NULL)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%.200s is not in the format %s: %s", s->builder.path, format->name,
             reason);
    return MR_BAD_MESSAGE;
}

static enum mr_status take_line(struct live_source *s, const char *text, size_t bytes, char *error)
{
    const struct hub_format *format = s->builder.format;
    s->parts++;
    if (s->parts == 1 && hub_format_has_names(format))
        return bind_format(s, text, bytes, error);
    const struct hub_position at = live_position(s);
    return hub_batch_builder_line(&s->builder, &s->growing, &at, s->bound != NULL ? s->bound : format, text,
                                  bytes, error);
}

/* Lines until the input ends. MR_OK: it did, or was stopped (`state`). */
static enum mr_status read_lines(struct live_source *s, enum hub_live_input_state *state, char *error)
{
    struct hub_live_input *in = &s->input;
    bool is_rest = false; /* of a line that was too long */
    size_t looked = 0;
    enum mr_status status = MR_OK;
    while (status == MR_OK) {
        size_t bytes;
        bool is_whole;
        if (!hub_line_find(in->buffer + in->begin, in->end - in->begin, looked, &bytes, &is_whole)) {
            looked = in->end - in->begin;
            *state = hub_live_input_wait(in, looked + 1, error);
            if (*state == HUB_LIVE_INPUT_FAILED)
                return MR_IO_ERROR;
            if (*state == HUB_LIVE_INPUT_BYTES)
                continue;
            /* A line without an end is one at the input's end, but none where that was only stopped. */
            return *state == HUB_LIVE_INPUT_END && looked > 0 && !is_rest
                       ? take_line(s, in->buffer + in->begin, looked, error)
                       : MR_OK;
        }
        if (!is_rest)
            status = take_line(s, in->buffer + in->begin, bytes, error);
        in->begin += bytes + is_whole;
        is_rest = !is_whole;
        looked = 0;
    }
    return status;
}

static enum mr_status fail_block(const struct live_source *s, const char *why, char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "block %" PRIu64 " of %.200s cannot be used: %s", s->parts,
             s->builder.path, why);
    return MR_BAD_MESSAGE;
}

static enum mr_status fail_as_told(const struct live_source *s, const char *reason, uint32_t bytes,
                                   char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "the program that writes %.40s has failed: %.*s", s->builder.path,
             (int)bytes, reason);
    return MR_IO_ERROR;
}

/* The first block says what all are like. */
static const char *check_head(struct live_source *s, const struct hub_block_head *head)
{
    const bool is_first = !s->builder.has_shape;
    pthread_mutex_lock(&s->lock);
    const char *wrong = hub_batch_builder_check_head(&s->builder, head);
    pthread_mutex_unlock(&s->lock);
    if (wrong == NULL && is_first) {
        hub_batch_builder_begin(&s->builder, &s->growing);
        live_source_tell(s);
    }
    return wrong;
}

static enum mr_status take_block(struct live_source *s, const struct hub_block_head *head, const void *body,
                                 char *error)
{
    struct hub_block block;
    const struct hub_position at = live_position(s);
    const char *wrong = check_head(s, head);
    if (wrong == NULL)
        wrong = hub_block_open(head, body, &block);
    return wrong != NULL
               ? fail_block(s, wrong, error)
               : hub_batch_builder_block(&s->builder, &s->growing, &at, &block, head->samples, error);
}

/* Blocks until the last one. As read_lines(). */
static enum mr_status read_blocks(struct live_source *s, enum hub_live_input_state *state, char *error)
{
    struct hub_live_input *in = &s->input;
    for (;;) {
        struct hub_block_head head = {0};
        size_t bytes = 0;
        s->parts++;
        *state = hub_live_input_wait(in, sizeof(head), error);
        if (*state == HUB_LIVE_INPUT_BYTES) {
            memcpy(&head, in->buffer + in->begin, sizeof(head));
            const char *wrong = hub_block_check_head(&head);
            if (wrong != NULL)
                return fail_block(s, wrong, error);
            bytes = hub_block_body_bytes(&head);
            *state = hub_live_input_wait(in, sizeof(head) + bytes, error);
        }
        if (*state == HUB_LIVE_INPUT_FAILED)
            return MR_IO_ERROR;
        if (*state == HUB_LIVE_INPUT_END)
            return fail_block(s,
                              "the input ends without the block that ends it; whoever writes it has broken "
                              "off",
                              error);
        if (*state == HUB_LIVE_INPUT_STOPPED)
            return MR_OK;
        const void *body = in->buffer + in->begin + sizeof(head);
        in->begin += sizeof(head) + bytes;
        if ((head.flags & HUB_BLOCK_FAILED) != 0)
            return fail_as_told(s, body, head.keys, error);
        if ((head.flags & HUB_BLOCK_END) != 0) {
            *state = HUB_LIVE_INPUT_END;
            return MR_OK;
        }
        enum mr_status status = take_block(s, &head, body, error);
        if (status != MR_OK)
            return status;
    }
}

/* What is there of the last batch. */
static enum mr_status keep_rest(struct live_source *s, char *error)
{
    if (s->growing.placed == 0)
        return MR_OK;
    s->growing.batch.samples = s->growing.placed;
    return keep_batch(s, error);
}

static bool live_source_can_repeat(const struct hub_batch_source *base)
{
    const struct live_source *s = live_source_of(base);
    return s->input.is_file || s->is_repeated;
}

static void *read_input(void *arg)
{
    struct live_source *s = arg;
    char error[HUB_ERROR_BYTES] = "";
    enum hub_live_input_state state = HUB_LIVE_INPUT_BYTES;
    enum mr_status status =
        s->builder.format != NULL ? read_lines(s, &state, error) : read_blocks(s, &state, error);
    /* Samples that nobody can read a second time are all there are. */
    if (status == MR_OK && (state == HUB_LIVE_INPUT_END || !live_source_can_repeat(&s->base)))
        status = keep_rest(s, error);
    pthread_mutex_lock(&s->lock);
    s->has_ended = status == MR_OK;
    if (status != MR_OK && status != MR_CANCELLED) {
        s->status = status;
        memcpy(s->error, error, HUB_ERROR_BYTES);
    }
    pthread_mutex_unlock(&s->lock);
    live_source_tell(s);
    return NULL;
}

/* ---- the other threads ---- */

static enum mr_status start_thread(struct live_source *s, char *error)
{
    if (s->builder.has_shape) /* not before the first block */
        hub_batch_builder_begin(&s->builder, &s->growing);
    s->has_thread = pthread_create(&s->thread, NULL, read_input, s) == 0;
    if (s->has_thread)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "cannot start a thread to read %.200s", s->builder.path);
    return MR_INTERNAL;
}

static void end_thread(struct live_source *s)
{
    if (!s->has_thread)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
    hub_live_input_stop(&s->input);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
}

static void drop_all(struct live_source *s)
{
    while (s->first < s->end)
        drop_first(s);
    hub_batch_free(&s->growing.batch);
}

static void live_source_close(struct hub_batch_source *base)
{
    struct live_source *s = live_source_of(base);
    end_thread(s);
    drop_all(s);
    hub_live_input_close(&s->input);
    hub_batch_builder_free(&s->builder);
    hub_format_free(s->bound);
    pthread_cond_destroy(&s->room);
    pthread_mutex_destroy(&s->lock);
    free(s->kept);
    free(s);
}

/* Under the lock. */
static enum mr_status failure(const struct live_source *s, char *error)
{
    if (s->status != MR_OK)
        memcpy(error, s->error, HUB_ERROR_BYTES);
    return s->status;
}

static enum mr_status live_source_ready(struct hub_batch_source *base, char *error)
{
    struct live_source *s = live_source_of(base);
    pthread_mutex_lock(&s->lock);
    enum mr_status status = MR_OK;
    if (!s->builder.has_shape) {
        status = failure(s, error);
        if (status == MR_OK && s->has_ended)
            snprintf(error, HUB_ERROR_BYTES, "%.200s has ended without a sample", s->builder.path);
        status = status != MR_OK ? status : s->has_ended ? MR_END_OF_DATA : MR_NOT_READY;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static const struct hub_sample_file_info *live_source_info(struct hub_batch_source *base)
{
    struct live_source *s = live_source_of(base);
    uint64_t identity = hub_live_input_identity(&s->input);
    if (identity == 0 && s->is_repeated)
        identity = IDENTITY_REPEATED;
    const struct hub_format *format = s->builder.format;
    if (format != NULL && !format->is_built_in) /* another description makes other samples of it */
        identity = hub_mix(identity, format->digest);
    pthread_mutex_lock(&s->lock);
    s->info = (struct hub_sample_file_info){
        .format = &s->builder.shape,
        .broken_lines = s->builder.broken,
        .digest = identity,
    };
    pthread_mutex_unlock(&s->lock);
    return &s->info;
}

static uint64_t live_source_batches(struct hub_batch_source *base, uint32_t part)
{
    struct live_source *s = live_source_of(base);
    pthread_mutex_lock(&s->lock);
    uint64_t batches = s->has_ended ? s->end : HUB_BATCHES_UNKNOWN;
    pthread_mutex_unlock(&s->lock);
    return batches;
}

/* A batch that is no longer in memory is wanted: the input is read again from its start. */
static enum mr_status read_again(struct live_source *s, uint64_t sequence, char *error)
{
    if (s->is_finishing)
        return MR_NOT_READY;
    if (!s->input.is_file) {
        snprintf(error, HUB_ERROR_BYTES,
                 "the parameter server went back to batch %" PRIu64 " of %.200s, and batches below %" PRIu64
                 " are no longer in memory (--sample-memory): start a plan with another `run` to go on with "
                 "what comes next",
                 sequence, s->builder.path, s->first);
        return MR_IO_ERROR;
    }
    end_thread(s);
    drop_all(s);
    hub_live_input_rewind(&s->input);
    s->first = s->end = s->kept_bytes = 0;
    s->parts = s->builder.good = s->builder.broken = 0;
    s->released = sequence;
    s->wanted = sequence + 1;
    s->is_closing = s->has_ended = false;
    s->status = MR_OK;
    enum mr_status status = start_thread(s, error);
    return status == MR_OK ? MR_NOT_READY : status;
}

static bool copy_batch(const struct hub_batch *from, struct hub_batch *to)
{
    if (to->slots != from->slots || to->dense_count != from->dense_count ||
        to->has_weights != from->has_weights)
        hub_batch_free(to);
    to->samples = from->samples;
    to->slots = from->slots;
    to->dense_count = from->dense_count;
    to->has_weights = from->has_weights;
    to->sequence = from->sequence;
    to->first_sample = from->first_sample;
    to->key_count = 0;
    if (!hub_batch_make_room(to, from->key_count))
        return false;
    to->key_count = from->key_count;
    memcpy(to->dense, from->dense, (size_t)from->samples * from->dense_count * sizeof(*to->dense));
    memcpy(to->labels, from->labels, from->samples * sizeof(*to->labels));
    memcpy(to->offsets, from->offsets, ((size_t)from->samples * from->slots + 1) * sizeof(*to->offsets));
    memcpy(to->keys, from->keys, from->key_count * sizeof(*to->keys));
    if (from->has_weights)
        memcpy(to->weights, from->weights, from->key_count * sizeof(*to->weights));
    return true;
}

static enum mr_status live_source_build(struct hub_batch_source *base, uint32_t part, uint64_t sequence,
                                        struct hub_batch *batch, char *error)
{
    struct live_source *s = live_source_of(base);
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&s->lock);
    bool is_gone = sequence < s->first;
    if (!is_gone && sequence < s->end) {
        if (!copy_batch(kept_at(s, sequence), batch)) {
            snprintf(error, HUB_ERROR_BYTES, "no memory for a batch of %.200s", s->builder.path);
            status = MR_NO_MEMORY;
        }
    } else if (!is_gone) {
        status = failure(s, error);
        status = status == MR_OK ? MR_NOT_READY : status;
        s->is_starved = true;
    }
    s->wanted = sequence < s->wanted ? s->wanted : sequence + 1;
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
    return is_gone ? read_again(s, sequence, error) : status;
}

static void live_source_release(struct hub_batch_source *base, uint32_t part, uint64_t oldest)
{
    struct live_source *s = live_source_of(base);
    pthread_mutex_lock(&s->lock);
    s->released = oldest;
    drop_released(s);
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
}

static void live_source_finish(struct hub_batch_source *base)
{
    struct live_source *s = live_source_of(base);
    pthread_mutex_lock(&s->lock);
    s->is_finishing = true;
    pthread_mutex_unlock(&s->lock);
    hub_live_input_stop(&s->input);
}

static const struct hub_batch_source_functions live_source_functions = {
    .is_live = true,
    .close = live_source_close,
    .info = live_source_info,
    .ready = live_source_ready,
    .can_repeat = live_source_can_repeat,
    .batches = live_source_batches,
    .release = live_source_release,
    .finish = live_source_finish,
    .build = live_source_build,
};

enum mr_status hub_live_source_open(const struct hub_batch_source_options *o, struct hub_batch_source **out,
                                    char *error)
{
    struct live_source *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    s->base.functions = &live_source_functions;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->room, NULL);
    s->is_repeated = o->is_repeated;
    s->memory_bytes = o->memory_bytes;
    s->on_batch = o->on_batch;
    s->arg = o->arg;
    s->input.fd = s->input.stop_fd = -1;
    s->kept_size = KEPT_FIRST;
    s->kept = calloc(s->kept_size, sizeof(*s->kept));
    enum mr_status status = hub_batch_builder_init(&s->builder, o, error);
    s->builder.batch_samples = o->request->batch_samples;
    s->builder.on_full = keep_batch;
    s->builder.source = s;
    if (status == MR_OK && s->kept == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        status = MR_NO_MEMORY;
    }
    if (status == MR_OK)
        status = hub_live_input_open(&s->input, s->builder.path, o->allowed, o->follow, error);
    if (status == MR_OK)
        status = start_thread(s, error);
    if (status == MR_OK)
        *out = &s->base;
    else
        live_source_close(&s->base);
    return status;
}
