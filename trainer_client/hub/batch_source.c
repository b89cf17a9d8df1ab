#include "trainer_client/hub/batch_source.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"
#include "trainer_client/hub/kafka/kafka_path.h"
#include "trainer_client/hub/kafka/kafka_source.h"
#include "trainer_client/hub/samples/live_input.h"
#include "trainer_client/hub/live_source.h"
#include "trainer_client/hub/samples/permutation.h"

#define PREFETCH 8u /* samples ahead of the one that is read */

struct hub_batch_source {
    /* one of these */
    struct hub_live_source *live;
    struct hub_kafka_source *kafka;
    struct hub_sample_file *file; /* that was read through */
    struct hub_sample *sample;
    uint64_t *order; /* [batch_samples]: the samples of a batch that is built */
    uint32_t batch_samples;
    uint64_t samples, batches_per_epoch, batches;
    uint64_t shuffle_seed, window_samples;
};

void hub_batch_free(struct hub_batch *b)
{
    free(b->dense);
    free(b->labels);
    free(b->keys);
    free(b->offsets);
    free(b->weights);
    *b = (struct hub_batch){0};
}

void hub_batch_source_close(struct hub_batch_source *s)
{
    if (s != NULL) {
        hub_live_source_close(s->live);
        hub_kafka_source_close(s->kafka);
        hub_sample_file_close(s->file);
        free(s->sample);
        free(s->order);
        free(s);
    }
}

/* A batch that cannot be sent is refused before training begins, not in its midst. */
static enum mr_status check_batch_bytes(const struct hub_request *request,
                                        const struct hub_sample_file_info *info, char *error)
{
    uint64_t keys = (uint64_t)request->batch_samples * info->sample_keys_max;
    if (keys * sizeof(uint64_t) <= HUB_BATCH_KEY_BYTES_MAX)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES,
             "%.200s has up to %u key%s in a sample: with batch_samples = %u a batch does not fit into one "
             "message; take at most %zu",
             request->path, info->sample_keys_max, mr_plural(info->sample_keys_max), request->batch_samples,
             HUB_BATCH_KEY_BYTES_MAX / sizeof(uint64_t) / info->sample_keys_max);
    return MR_INVALID_ARGUMENT;
}

/* What is read once has one order, and one part: whether it is the one for training, its samples tell. */
static enum mr_status check_live(const struct hub_request *request, char *error)
{
    if (request->epochs == 1 && request->shuffle_seed == 0 && request->held_out_ppm == 0)
        return MR_OK;
    snprintf(
        error, HUB_ERROR_BYTES,
        "%.200s is read once, in its order: its plan has epochs = 1, shuffle_seed = 0 and held_out_share = 0",
        request->path);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status open_live(struct hub_batch_source *s, const struct hub_batch_source_options *o,
                                char *error)
{
    const struct hub_live_options options = {
        .path = o->request->path,
        .allowed = o->allowed,
        .formats = o->formats,
        .format = o->request->format,
        .batch_samples = o->request->batch_samples,
        .strict = o->request->strict,
        .held_out = o->request->held_out,
        .follow = o->follow,
        .is_repeated = o->is_repeated,
        .memory_bytes = o->memory_bytes,
        .on_broken_line = o->on_broken_line,
        .on_batch = o->on_batch,
        .arg = o->arg,
    };
    enum mr_status status = check_live(o->request, error);
    return status == MR_OK ? hub_live_source_open(&options, &s->live, error) : status;
}

static enum mr_status open_kafka(struct hub_batch_source *s, const struct hub_batch_source_options *o,
                                 char *error)
{
    enum mr_status status = check_live(o->request, error);
    return status == MR_OK ? hub_kafka_source_open(o, &s->kafka, error) : status;
}

static enum mr_status open_file(struct hub_batch_source *s, const struct hub_batch_source_options *o,
                                char *error)
{
    const struct hub_request *request = o->request;
    const struct hub_sample_file_options options = {
        .path = request->path,
        .allowed = o->allowed,
        .formats = o->formats,
        .format = request->format,
        .seed = request->shuffle_seed,
        .held_out_share = request->held_out_ppm / 1e6,
        .held_out = request->held_out,
        .strict = request->strict,
        .memory_bytes = o->memory_bytes,
        .stop = o->stop,
        .on_broken_line = o->on_broken_line,
        .arg = o->arg,
    };
    enum mr_status status = hub_sample_file_open(&options, &s->file, error);
    if (status == MR_OK)
        status = check_batch_bytes(request, hub_sample_file_info(s->file), error);
    if (status != MR_OK)
        return status;
    s->samples = hub_sample_file_info(s->file)->samples;
    const uint64_t window_samples = hub_sample_file_info(s->file)->window_samples;
    s->window_samples = window_samples != 0 ? window_samples : s->samples + 1;
    s->batch_samples = request->batch_samples;
    s->shuffle_seed = request->shuffle_seed;
    s->batches_per_epoch = (s->samples + s->batch_samples - 1) / s->batch_samples;
    s->batches = s->batches_per_epoch * request->epochs;
    return MR_OK;
}

enum mr_status hub_batch_source_open(const struct hub_batch_source_options *options,
                                     struct hub_batch_source **out, char *error)
{
    const struct hub_request *request = options->request;
    struct hub_batch_source *s = calloc(1, sizeof(*s));
    if (s == NULL || (s->sample = malloc(sizeof(*s->sample))) == NULL ||
        (s->order = malloc(request->batch_samples * sizeof(*s->order))) == NULL) {
        hub_batch_source_close(s);
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    enum mr_status status;
    if (hub_kafka_path_is(request->path))
        status = open_kafka(s, options, error);
    else if (options->follow || strcmp(request->path, HUB_STANDARD_INPUT) == 0)
        status = open_live(s, options, error);
    else
        status = open_file(s, options, error);
    if (status != MR_OK) {
        hub_batch_source_close(s);
        return status;
    }
    *out = s;
    return MR_OK;
}

const struct hub_sample_file_info *hub_batch_source_info(const struct hub_batch_source *s)
{
    if (s->kafka != NULL)
        return hub_kafka_source_info(s->kafka);
    return s->live != NULL ? hub_live_source_info(s->live) : hub_sample_file_info(s->file);
}

enum mr_status hub_batch_source_check(const struct hub_batch_source *s, char *error)
{
    return s->file != NULL ? hub_sample_file_check(s->file, error) : MR_OK;
}

enum mr_status hub_batch_source_ready(struct hub_batch_source *s, char *error)
{
    if (s->kafka != NULL)
        return hub_kafka_source_ready(s->kafka, error);
    return s->live != NULL ? hub_live_source_ready(s->live, error) : MR_OK;
}

bool hub_batch_source_is_live(const struct hub_batch_source *s)
{
    return s->file == NULL;
}

bool hub_batch_source_can_repeat(const struct hub_batch_source *s)
{
    return s->live == NULL || hub_live_source_can_repeat(s->live);
}

uint32_t hub_batch_source_parts(struct hub_batch_source *s)
{
    return s->kafka != NULL ? hub_kafka_source_partitions(s->kafka) : 1;
}

uint64_t hub_batch_source_salt(const struct hub_batch_source *s, uint32_t part)
{
    return s->kafka != NULL ? hub_kafka_source_salt(s->kafka, part) : 0;
}

enum mr_status hub_batch_source_begin(struct hub_batch_source *s, uint32_t part, const uint64_t *known,
                                      uint64_t *data, char *error)
{
    if (s->kafka != NULL)
        return hub_kafka_source_begin(s->kafka, part, known, data, error);
    *data = hub_batch_source_info(s)->digest;
    return MR_OK;
}

enum mr_status hub_batch_source_look(struct hub_batch_source *s, uint32_t part, char *error)
{
    return s->kafka != NULL ? hub_kafka_source_look(s->kafka, part, error) : MR_OK;
}

uint64_t hub_batch_source_batches(const struct hub_batch_source *s, uint32_t part)
{
    if (s->kafka != NULL)
        return hub_kafka_source_batches(s->kafka, part);
    return s->live != NULL ? hub_live_source_batches(s->live) : s->batches;
}

void hub_batch_source_release(struct hub_batch_source *s, uint32_t part, uint64_t oldest)
{
    assert(part == 0 || s->kafka != NULL);
    if (s->live != NULL)
        hub_live_source_release(s->live, oldest);
    else if (s->kafka != NULL)
        hub_kafka_source_release(s->kafka, part, oldest);
}

uint64_t hub_batch_source_lag(const struct hub_batch_source *s, uint32_t part, uint64_t oldest)
{
    return s->kafka != NULL ? hub_kafka_source_lag(s->kafka, part, oldest) : 0;
}

const char *hub_batch_source_trouble(const struct hub_batch_source *s)
{
    return s->kafka != NULL ? hub_kafka_source_trouble(s->kafka) : "";
}

void hub_batch_source_finish(struct hub_batch_source *s)
{
    if (s->live != NULL)
        hub_live_source_finish(s->live);
    else if (s->kafka != NULL)
        hub_kafka_source_finish(s->kafka);
}

static bool batch_source_grow(void **array, size_t count, size_t element_bytes)
{
    void *grown = realloc(*array, (count > 0 ? count : 1) * element_bytes);
    if (grown != NULL)
        *array = grown;
    return grown != NULL;
}

bool hub_batch_make_room(struct hub_batch *b, uint32_t keys_more)
{
    if (b->samples_size < b->samples) {
        if (!batch_source_grow((void **)&b->dense, (size_t)b->samples * b->dense_count, sizeof(*b->dense)) ||
            !batch_source_grow((void **)&b->labels, b->samples, sizeof(*b->labels)) ||
            !batch_source_grow((void **)&b->offsets, (size_t)b->samples * b->slots + 1, sizeof(*b->offsets)))
            return false;
        b->samples_size = b->samples;
    }
    if (b->keys_size - b->key_count < keys_more) {
        uint32_t size = (b->key_count + keys_more) * 2;
        if (!batch_source_grow((void **)&b->keys, size, sizeof(*b->keys)) ||
            (b->has_weights && !batch_source_grow((void **)&b->weights, size, sizeof(*b->weights))))
            return false;
        b->keys_size = size;
    }
    return true;
}

bool hub_batch_append(struct hub_batch *b, uint32_t place, const struct hub_sample *sample)
{
    if (!hub_batch_make_room(b, sample->key_count))
        return false;
    if (place == 0)
        b->offsets[0] = 0;
    uint32_t *bag_end = b->offsets + (size_t)place * b->slots + 1;
    for (uint32_t slot = 0; slot < b->slots; slot++)
        bag_end[slot] = b->key_count + sample->bag_end[slot];
    memcpy(b->keys + b->key_count, sample->keys, sample->key_count * sizeof(*b->keys));
    memcpy(b->dense + (size_t)place * b->dense_count, sample->dense, b->dense_count * sizeof(*b->dense));
    if (b->has_weights)
        memcpy(b->weights + b->key_count, sample->weights, sample->key_count * sizeof(*b->weights));
    b->labels[place] = sample->label;
    b->key_count += sample->key_count;
    return true;
}

void hub_batch_place_block(struct hub_batch *b, uint32_t place, const struct hub_block *block, uint32_t from,
                           uint32_t count)
{
    const uint32_t *offsets = block->offsets + (size_t)from * b->slots;
    const size_t bags = (size_t)count * b->slots;
    const uint32_t first = offsets[0], keys = offsets[bags] - first;
    uint32_t *bag_end = b->offsets + (size_t)place * b->slots + 1;
    b->offsets[0] = 0;
    for (size_t i = 0; i < bags; i++)
        bag_end[i] = b->key_count + (offsets[i + 1] - first);
    memcpy(b->keys + b->key_count, block->keys + (size_t)first * sizeof(uint64_t), keys * sizeof(uint64_t));
    if (b->has_weights)
        memcpy(b->weights + b->key_count, block->weights + first, keys * sizeof(float));
    if (block->labels != NULL)
        memcpy(b->labels + place, block->labels + from, count * sizeof(float));
    for (uint32_t i = place; block->labels == NULL && i < place + count; i++)
        b->labels[i] = NAN;
    memcpy(b->dense + (size_t)place * b->dense_count, block->dense + (size_t)from * b->dense_count,
           (size_t)count * b->dense_count * sizeof(float));
    b->key_count += keys;
}

enum mr_status hub_find_format(const struct hub_formats *formats, const char *name, bool held_out,
                               const struct hub_format **out, char *error)
{
    char names[HUB_FORMAT_NAMES_BYTES];
    *out = hub_formats_find(formats, name);
    const char *wrong = *out != NULL ? hub_format_wrong_part(!(*out)->has_no_labels, held_out) : NULL;
    if (wrong != NULL) {
        snprintf(error, HUB_ERROR_BYTES, "format %.40s: %s", name, wrong);
        return MR_INVALID_ARGUMENT;
    }
    if (*out != NULL || strcmp(name, HUB_BLOCK_FORMAT) == 0)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES,
             "unknown format '%.40s'; there are %s, " HUB_BLOCK_FORMAT "; the hub's --format FILE adds one",
             name, hub_formats_names(formats, names));
    return MR_INVALID_ARGUMENT;
}

bool hub_is_other_format(uint64_t broken, uint64_t good)
{
    return broken >= HUB_BROKEN_LINES_OF && broken > good;
}

static void begin_batch(const struct hub_batch_source *s, uint64_t sequence, struct hub_batch *b)
{
    const struct hub_format *format = hub_sample_file_info(s->file)->format;
    if (b->slots != format->slots || b->dense_count != format->dense)
        b->samples_size = 0; /* the arrays were for another shape */
    b->sequence = sequence;
    b->epoch = (uint32_t)(sequence / s->batches_per_epoch);
    b->first_sample = sequence % s->batches_per_epoch * s->batch_samples;
    uint64_t left = s->samples - b->first_sample;
    b->samples = left < s->batch_samples ? (uint32_t)left : s->batch_samples;
    b->slots = format->slots;
    b->dense_count = format->dense;
    b->key_count = 0;
    if (format->has_weights && !b->has_weights)
        b->keys_size = 0; /* there may be no room for weights */
    b->has_weights = format->has_weights;
}

/* Each window has an order of its own, and with seed 0 that of the file. */
static uint64_t seed_of(const struct hub_batch_source *s, uint64_t begin)
{
    return begin == 0 || s->shuffle_seed == 0 ? s->shuffle_seed : hub_mix(s->shuffle_seed, begin) | 1;
}

/* Writes which samples are in the batch: those of a window are shuffled among themselves, and windows follow
 * each other in file order. */
static void order_batch(struct hub_batch_source *s, const struct hub_batch *b)
{
    const uint64_t size = s->window_samples;
    struct hub_permutation order = {0};
    uint64_t begin = 0;
    for (uint32_t i = 0; i < b->samples; i++) {
        uint64_t place = b->first_sample + i;
        if (order.count == 0 || place >= begin + order.count) {
            begin = place / size * size;
            order = hub_permutation_make(mr_min_u64(size, s->samples - begin), seed_of(s, begin), b->epoch);
        }
        s->order[i] = begin + hub_permutation_at(&order, place - begin);
    }
}

enum mr_status hub_batch_source_build(struct hub_batch_source *s, uint32_t part, uint64_t sequence,
                                      struct hub_batch *b, char *error)
{
    if (s->kafka != NULL)
        return hub_kafka_source_build(s->kafka, part, sequence, b, error);
    if (s->live != NULL)
        return hub_live_source_build(s->live, sequence, b, error);
    assert(sequence < s->batches);
    begin_batch(s, sequence, b);
    order_batch(s, b);
    for (uint32_t i = 0; i < b->samples; i++) {
        hub_sample_file_prefetch(s->file, s->order[mr_min_u32(i + PREFETCH, b->samples - 1)],
                                 s->order[mr_min_u32(i + 2 * PREFETCH, b->samples - 1)]);
        enum mr_status status = hub_sample_file_read(s->file, s->order[i], s->sample, error);
        if (status != MR_OK)
            return status;
        if (!hub_batch_append(b, i, s->sample)) {
            snprintf(error, HUB_ERROR_BYTES, "no memory for a batch of %u sample%s", b->samples,
                     mr_plural(b->samples));
            return MR_NO_MEMORY;
        }
    }
    return hub_sample_file_check_some(s->file, error); /* what was read is of the files that were opened */
}
