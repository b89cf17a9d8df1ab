#include "trainer_client/hub/live_source.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "trainer_client/hub/format/sample_block.h"
#include "trainer_client/hub/samples/lines.h"
#include "trainer_client/hub/samples/live_input.h"
#include "trainer_client/hub/samples/permutation.h"
#include "trainer_client/hub/plan/plan.h"

#define AHEAD_BATCHES     64u /* that are read before they are asked for */
#define KEPT_FIRST        64u
#define IDENTITY_REPEATED UINT64_C(0x726570656174) /* of standard input that is the same at each start */

/* A batch that is put together: the first `placed` of its batch_samples samples are there. */
struct growing {
    struct hub_batch batch;
    uint32_t placed;
};

struct hub_live_source {
    struct hub_live_options options;
    char *path;
    struct hub_live_input input;
    pthread_t thread;
    bool has_thread;

    /* of the reading thread */
    const struct hub_format *format; /* NULL: blocks */
    struct hub_format *bound;        /* `format` with the input's columns, if its first line names them */
    struct growing growing;
    struct hub_sample *sample;
    uint64_t parts; /* lines or blocks */
    uint64_t good_lines;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t room;
    struct hub_format shape;
    struct hub_sample_file_info info; /* as asked for last */
    uint64_t broken_lines;
    struct hub_batch *kept; /* ring: batch n is at n % kept_size for first <= n < end */
    uint64_t first, end, kept_size;
    size_t kept_bytes;
    uint64_t wanted, released; /* one past the highest batch asked for; all below are applied */
    bool has_shape, is_starved, has_ended, is_closing, is_finishing;
    enum mr_status status; /* not MR_OK: what comes after `end` */
    char error[HUB_ERROR_BYTES];
};

/* ---- what is kept ---- */

static size_t bytes_of(const struct hub_batch *b)
{
    return (size_t)b->samples * (1 + b->dense_count) * sizeof(float) +
           ((size_t)b->samples * b->slots + 1) * sizeof(uint32_t) +
           (size_t)b->key_count * (sizeof(uint64_t) + (b->has_weights ? sizeof(float) : 0));
}

static struct hub_batch *kept_at(const struct hub_live_source *s, uint64_t sequence)
{
    return &s->kept[sequence % s->kept_size];
}

static void drop_first(struct hub_live_source *s)
{
    struct hub_batch *b = kept_at(s, s->first++);
    s->kept_bytes -= bytes_of(b);
    hub_batch_free(b);
}

static void drop_released(struct hub_live_source *s)
{
    while (s->kept_bytes > s->options.memory_bytes && s->first < s->released && s->first < s->end)
        drop_first(s);
}

static bool grow_kept(struct hub_live_source *s)
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
static bool has_room(const struct hub_live_source *s)
{
    return s->end < s->wanted + AHEAD_BATCHES &&
           (s->kept_bytes < s->options.memory_bytes || s->end <= s->released || s->first == s->end);
}

/* ---- the reading thread ---- */

static enum mr_status source_fail(struct hub_live_source *s, enum mr_status status, const char *error)
{
    pthread_mutex_lock(&s->lock);
    if (s->status == MR_OK) {
        s->status = status;
        memcpy(s->error, error, HUB_ERROR_BYTES);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static enum mr_status fail_for_memory(struct hub_live_source *s)
{
    char error[HUB_ERROR_BYTES];
    snprintf(error, sizeof(error), "no memory for the batches of %.200s", s->path);
    return source_fail(s, MR_NO_MEMORY, error);
}

static void live_source_tell(struct hub_live_source *s)
{
    if (s->options.on_batch != NULL)
        s->options.on_batch(s->options.arg);
}

static void begin_batch(struct hub_live_source *s)
{
    s->growing.placed = 0;
    s->growing.batch.samples = s->options.batch_samples;
    s->growing.batch.slots = s->shape.slots;
    s->growing.batch.dense_count = s->shape.dense;
    s->growing.batch.has_weights = s->shape.has_weights;
    s->growing.batch.key_count = 0;
}

/* Hands the batch that was put together over, once there is room. */
static enum mr_status keep_batch(struct hub_live_source *s)
{
    pthread_mutex_lock(&s->lock);
    while (!has_room(s) && !s->is_closing)
        pthread_cond_wait(&s->room, &s->lock);
    bool kept = s->end - s->first < s->kept_size || grow_kept(s);
    if (kept) {
        struct hub_batch *b = kept_at(s, s->end);
        *b = s->growing.batch;
        b->sequence = s->end++;
        b->first_sample = b->sequence * s->options.batch_samples;
        s->kept_bytes += bytes_of(b);
        s->growing.batch = (struct hub_batch){0};
        drop_released(s);
    }
    bool is_starved = s->is_starved, is_closing = s->is_closing;
    s->is_starved = false;
    pthread_mutex_unlock(&s->lock);
    if (!kept)
        return fail_for_memory(s);
    begin_batch(s);
    if (is_starved)
        live_source_tell(s);
    return is_closing ? MR_CANCELLED : MR_OK;
}

/* Hands it over if it is full. */
static enum mr_status placed(struct hub_live_source *s, uint32_t samples)
{
    s->growing.placed += samples;
    return s->growing.placed == s->options.batch_samples ? keep_batch(s) : MR_OK;
}

static enum mr_status check_keys(struct hub_live_source *s, uint32_t keys_more)
{
    char error[HUB_ERROR_BYTES];
    uint64_t keys = (uint64_t)s->growing.batch.key_count + keys_more;
    if (keys * sizeof(uint64_t) <= HUB_BATCH_KEY_BYTES_MAX)
        return MR_OK;
    snprintf(error, sizeof(error),
             "%" PRIu64
             " keys in the first %u samples of a batch of %.200s do not fit into one message: take a "
             "smaller batch_samples than %u",
             keys, s->growing.placed + 1, s->path, s->options.batch_samples);
    return source_fail(s, MR_INVALID_ARGUMENT, error);
}

static enum mr_status take_sample(struct hub_live_source *s)
{
    enum mr_status status = check_keys(s, s->sample->key_count);
    if (status != MR_OK)
        return status;
    if (!hub_batch_append(&s->growing.batch, s->growing.placed, s->sample))
        return fail_for_memory(s);
    return placed(s, 1);
}

static enum mr_status take_broken(struct hub_live_source *s, const char *reason)
{
    char error[HUB_ERROR_BYTES];
    pthread_mutex_lock(&s->lock);
    uint64_t broken = ++s->broken_lines;
    pthread_mutex_unlock(&s->lock);
    if (s->options.on_broken_line != NULL && broken <= HUB_BROKEN_SHOWN_MAX)
        s->options.on_broken_line(s->options.arg, s->path, s->parts, reason);
    if (s->options.strict) {
        snprintf(error, sizeof(error), "%.200s:%" PRIu64 ": broken line: %s", s->path, s->parts, reason);
        return source_fail(s, MR_BAD_MESSAGE, error);
    }
    if (hub_is_other_format(broken, s->good_lines)) {
        snprintf(error, sizeof(error),
                 "%.200s is not in the format %s: %" PRIu64 " of %" PRIu64
                 " lines are broken, such as line %" PRIu64 ": %.60s",
                 s->path, s->format->name, broken, broken + s->good_lines, s->parts, reason);
        return source_fail(s, MR_BAD_MESSAGE, error);
    }
    return MR_OK;
}

/* The first line says where the columns are. */
static enum mr_status bind_format(struct hub_live_source *s, const char *text, size_t bytes)
{
    char reason[HUB_REASON_BYTES] = "its first line is too long", error[HUB_ERROR_BYTES];
    hub_format_free(s->bound); /* of a reading before this one */
    s->bound = NULL;
    if (bytes <= HUB_LINE_BYTES_MAX)
        s->bound = hub_format_bind(s->format, text, bytes, reason);
    if (s->bound != NULL)
        return MR_OK;
    snprintf(error, sizeof(error), "%.200s is not in the format %s: %s", s->path, s->format->name, reason);
    return source_fail(s, MR_BAD_MESSAGE, error);
}

static enum mr_status take_line(struct hub_live_source *s, const char *text, size_t bytes)
{
    char reason[HUB_REASON_BYTES];
    enum hub_parse parsed = HUB_BROKEN;
    s->parts++;
    bytes = hub_line_trim(text, bytes);
    if (s->parts == 1 && hub_format_has_names(s->format))
        return bind_format(s, text, bytes);
    if (bytes > HUB_LINE_BYTES_MAX)
        snprintf(reason, sizeof(reason), "longer than %u bytes", HUB_LINE_BYTES_MAX);
    else
        parsed = hub_format_parse(s->bound != NULL ? s->bound : s->format, text, bytes, s->parts, s->sample,
                                  reason);
    if (parsed == HUB_BROKEN)
        return take_broken(s, reason);
    s->good_lines += parsed == HUB_PARSED;
    return parsed == HUB_PARSED ? take_sample(s) : MR_OK;
}

/* Lines until the input ends. MR_OK: it did, or was stopped (`state`). */
static enum mr_status read_lines(struct hub_live_source *s, enum hub_live_input_state *state)
{
    struct hub_live_input *in = &s->input;
    char error[HUB_ERROR_BYTES];
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
                return source_fail(s, MR_IO_ERROR, error);
            if (*state == HUB_LIVE_INPUT_BYTES)
                continue;
            /* A line without an end is one at the input's end, but none where that was only stopped. */
            return *state == HUB_LIVE_INPUT_END && looked > 0 && !is_rest
                       ? take_line(s, in->buffer + in->begin, looked)
                       : MR_OK;
        }
        if (!is_rest)
            status = take_line(s, in->buffer + in->begin, bytes);
        in->begin += bytes + is_whole;
        is_rest = !is_whole;
        looked = 0;
    }
    return status;
}

static enum mr_status fail_block(struct hub_live_source *s, const char *why)
{
    char error[HUB_ERROR_BYTES];
    snprintf(error, sizeof(error), "block %" PRIu64 " of %.200s cannot be used: %s", s->parts, s->path, why);
    return source_fail(s, MR_BAD_MESSAGE, error);
}

static enum mr_status fail_as_told(struct hub_live_source *s, const char *reason, uint32_t bytes)
{
    char error[HUB_ERROR_BYTES];
    snprintf(error, sizeof(error), "the program that writes %.40s has failed: %.*s", s->path, (int)bytes,
             reason);
    return source_fail(s, MR_IO_ERROR, error);
}

/* The first block says what all are like. */
static const char *check_shape(struct hub_live_source *s, const struct hub_block_head *head)
{
    if (s->has_shape)
        return hub_format_check_block(&s->shape, head);
    pthread_mutex_lock(&s->lock);
    const char *wrong = hub_format_take_block(&s->shape, head, s->options.held_out);
    s->has_shape = wrong == NULL;
    pthread_mutex_unlock(&s->lock);
    if (wrong != NULL)
        return wrong;
    begin_batch(s);
    live_source_tell(s);
    return NULL;
}

/* Samples [from, from + count) of a block go to the batch. */
static enum mr_status place_samples(struct hub_live_source *s, const struct hub_block *block, uint32_t from,
                                    uint32_t count)
{
    struct hub_batch *b = &s->growing.batch;
    const size_t begin = (size_t)from * b->slots, end = (size_t)(from + count) * b->slots;
    const uint32_t keys = block->offsets[end] - block->offsets[begin];
    enum mr_status status = check_keys(s, keys);
    if (status != MR_OK)
        return status;
    if (!hub_batch_make_room(b, keys))
        return fail_for_memory(s);
    hub_batch_place_block(b, s->growing.placed, block, from, count);
    return placed(s, count);
}

static enum mr_status take_block(struct hub_live_source *s, const struct hub_block_head *head,
                                 const void *body)
{
    struct hub_block block;
    const char *wrong = check_shape(s, head);
    if (wrong == NULL)
        wrong = hub_block_open(head, body, &block);
    if (wrong != NULL)
        return fail_block(s, wrong);
    enum mr_status status = MR_OK;
    for (uint32_t from = 0, count; from < head->samples && status == MR_OK; from += count) {
        uint32_t room = s->options.batch_samples - s->growing.placed, left = head->samples - from;
        count = left < room ? left : room;
        status = place_samples(s, &block, from, count);
    }
    return status;
}

/* Blocks until the last one. As read_lines(). */
static enum mr_status read_blocks(struct hub_live_source *s, enum hub_live_input_state *state)
{
    struct hub_live_input *in = &s->input;
    char error[HUB_ERROR_BYTES];
    for (;;) {
        struct hub_block_head head = {0};
        size_t bytes = 0;
        s->parts++;
        *state = hub_live_input_wait(in, sizeof(head), error);
        if (*state == HUB_LIVE_INPUT_BYTES) {
            memcpy(&head, in->buffer + in->begin, sizeof(head));
            const char *wrong = hub_block_check_head(&head);
            if (wrong != NULL)
                return fail_block(s, wrong);
            bytes = hub_block_body_bytes(&head);
            *state = hub_live_input_wait(in, sizeof(head) + bytes, error);
        }
        if (*state == HUB_LIVE_INPUT_FAILED)
            return source_fail(s, MR_IO_ERROR, error);
        if (*state == HUB_LIVE_INPUT_END)
            return fail_block(s,
                              "the input ends without the block that ends it; whoever writes it has broken "
                              "off");
        if (*state == HUB_LIVE_INPUT_STOPPED)
            return MR_OK;
        const void *body = in->buffer + in->begin + sizeof(head);
        in->begin += sizeof(head) + bytes;
        if ((head.flags & HUB_BLOCK_FAILED) != 0)
            return fail_as_told(s, body, head.keys);
        if ((head.flags & HUB_BLOCK_END) != 0) {
            *state = HUB_LIVE_INPUT_END;
            return MR_OK;
        }
        enum mr_status status = take_block(s, &head, body);
        if (status != MR_OK)
            return status;
    }
}

/* What is there of the last batch. */
static enum mr_status keep_rest(struct hub_live_source *s)
{
    if (s->growing.placed == 0)
        return MR_OK;
    s->growing.batch.samples = s->growing.placed;
    return keep_batch(s);
}

static void *read_input(void *arg)
{
    struct hub_live_source *s = arg;
    enum hub_live_input_state state = HUB_LIVE_INPUT_BYTES;
    enum mr_status status = s->format != NULL ? read_lines(s, &state) : read_blocks(s, &state);
    /* Samples that nobody can read a second time are all there are. */
    if (status == MR_OK && (state == HUB_LIVE_INPUT_END || !hub_live_source_can_repeat(s)))
        status = keep_rest(s);
    pthread_mutex_lock(&s->lock);
    s->has_ended = status == MR_OK;
    pthread_mutex_unlock(&s->lock);
    live_source_tell(s);
    return NULL;
}

/* ---- the other threads ---- */

static enum mr_status start_thread(struct hub_live_source *s, char *error)
{
    if (s->format != NULL)
        begin_batch(s);
    s->has_thread = pthread_create(&s->thread, NULL, read_input, s) == 0;
    if (s->has_thread)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "cannot start a thread to read %.200s", s->path);
    return MR_INTERNAL;
}

static void end_thread(struct hub_live_source *s)
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

static void drop_all(struct hub_live_source *s)
{
    while (s->first < s->end)
        drop_first(s);
    hub_batch_free(&s->growing.batch);
}

enum mr_status hub_live_source_open(const struct hub_live_options *options, struct hub_live_source **out,
                                    char *error)
{
    const struct hub_format *format;
    enum mr_status status =
        hub_find_format(options->formats, options->format, options->held_out, &format, error);
    if (status != MR_OK)
        return status;
    struct hub_live_source *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->room, NULL);
    s->options = *options; /* its texts are the caller's */
    s->input.fd = s->input.stop_fd = -1;
    s->format = format;
    s->shape = format != NULL ? *format : (struct hub_format){.name = HUB_BLOCK_FORMAT};
    s->has_shape = format != NULL;
    s->path = strdup(options->path);
    s->sample = malloc(sizeof(*s->sample));
    s->kept_size = KEPT_FIRST;
    s->kept = calloc(s->kept_size, sizeof(*s->kept));
    status = MR_NO_MEMORY;
    snprintf(error, HUB_ERROR_BYTES, "no memory");
    if (s->path != NULL && s->sample != NULL && s->kept != NULL)
        status = hub_live_input_open(&s->input, s->path, options->allowed, options->follow, error);
    if (status == MR_OK)
        status = start_thread(s, error);
    if (status != MR_OK) {
        hub_live_source_close(s);
        return status;
    }
    *out = s;
    return MR_OK;
}

void hub_live_source_close(struct hub_live_source *s)
{
    if (s == NULL)
        return;
    end_thread(s);
    drop_all(s);
    hub_live_input_close(&s->input);
    hub_format_free(s->bound);
    pthread_cond_destroy(&s->room);
    pthread_mutex_destroy(&s->lock);
    free(s->kept);
    free(s->sample);
    free(s->path);
    free(s);
}

bool hub_live_source_can_repeat(const struct hub_live_source *s)
{
    return s->input.is_file || s->options.is_repeated;
}

/* Under the lock. */
static enum mr_status failure(const struct hub_live_source *s, char *error)
{
    if (s->status != MR_OK)
        memcpy(error, s->error, HUB_ERROR_BYTES);
    return s->status;
}

enum mr_status hub_live_source_ready(struct hub_live_source *s, char *error)
{
    pthread_mutex_lock(&s->lock);
    enum mr_status status = MR_OK;
    if (!s->has_shape) {
        status = failure(s, error);
        if (status == MR_OK && s->has_ended)
            snprintf(error, HUB_ERROR_BYTES, "%.200s has ended without a sample", s->path);
        status = status != MR_OK ? status : s->has_ended ? MR_END_OF_DATA : MR_NOT_READY;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

const struct hub_sample_file_info *hub_live_source_info(struct hub_live_source *s)
{
    uint64_t identity = hub_live_input_identity(&s->input);
    if (identity == 0 && s->options.is_repeated)
        identity = IDENTITY_REPEATED;
    if (s->format != NULL && !s->format->is_built_in) /* another description makes other samples of it */
        identity = hub_mix(identity, s->format->digest);
    pthread_mutex_lock(&s->lock);
    s->info = (struct hub_sample_file_info){
        .format = &s->shape,
        .broken_lines = s->broken_lines,
        .digest = identity,
    };
    pthread_mutex_unlock(&s->lock);
    return &s->info;
}

uint64_t hub_live_source_batches(struct hub_live_source *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t batches = s->has_ended ? s->end : HUB_BATCHES_UNKNOWN;
    pthread_mutex_unlock(&s->lock);
    return batches;
}

/* A batch that is no longer in memory is wanted: the input is read again from its start. */
static enum mr_status read_again(struct hub_live_source *s, uint64_t sequence, char *error)
{
    if (s->is_finishing)
        return MR_NOT_READY;
    if (!s->input.is_file) {
        snprintf(error, HUB_ERROR_BYTES,
                 "the parameter server went back to batch %" PRIu64 " of %.200s, and batches below %" PRIu64
                 " are no longer in memory (--sample-memory): start a plan with another `run` to go on with "
                 "what comes next",
                 sequence, s->path, s->first);
        return MR_IO_ERROR;
    }
    end_thread(s);
    drop_all(s);
    hub_live_input_rewind(&s->input);
    s->first = s->end = s->kept_bytes = 0;
    s->parts = s->good_lines = s->broken_lines = 0;
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

enum mr_status hub_live_source_build(struct hub_live_source *s, uint64_t sequence, struct hub_batch *batch,
                                     char *error)
{
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&s->lock);
    bool is_gone = sequence < s->first;
    if (!is_gone && sequence < s->end) {
        if (!copy_batch(kept_at(s, sequence), batch)) {
            snprintf(error, HUB_ERROR_BYTES, "no memory for a batch of %.200s", s->path);
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

void hub_live_source_release(struct hub_live_source *s, uint64_t oldest)
{
    pthread_mutex_lock(&s->lock);
    s->released = oldest;
    drop_released(s);
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
}

void hub_live_source_finish(struct hub_live_source *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_finishing = true;
    pthread_mutex_unlock(&s->lock);
    hub_live_input_stop(&s->input);
}
