#include "trainer_client/hub/samples/file_source.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"
#include "trainer_client/hub/samples/permutation.h"

#define PREFETCH 8u /* samples ahead of the one that is read */

struct file_source {
    struct hub_batch_source base;
    struct hub_sample_file *file;
    struct hub_sample *sample;
    uint64_t *order; /* [batch_samples]: the samples of a batch that is built */
    uint32_t batch_samples;
    uint64_t samples, batches_per_epoch, batches;
    uint64_t shuffle_seed, window_samples;
};

static struct file_source *file_source_of(const struct hub_batch_source *base)
{
    return MR_CONTAINER(base, struct file_source, base);
}

static void file_source_close(struct hub_batch_source *base)
{
    struct file_source *s = file_source_of(base);
    hub_sample_file_close(s->file);
    free(s->sample);
    free(s->order);
    free(s);
}

static const struct hub_sample_file_info *file_source_info(struct hub_batch_source *base)
{
    return hub_sample_file_info(file_source_of(base)->file);
}

static enum mr_status file_source_check(struct hub_batch_source *base, char *error)
{
    return hub_sample_file_check(file_source_of(base)->file, error);
}

static uint64_t file_source_batches(struct hub_batch_source *base, uint32_t part)
{
    return file_source_of(base)->batches;
}

static void file_source_begin_batch(const struct file_source *s, uint64_t sequence, struct hub_batch *b)
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
static uint64_t seed_of(const struct file_source *s, uint64_t begin)
{
    return begin == 0 || s->shuffle_seed == 0 ? s->shuffle_seed : hub_mix(s->shuffle_seed, begin) | 1;
}

/* Writes which samples are in the batch: those of a window are shuffled among themselves, and windows follow
 * each other in file order. */
static void order_batch(struct file_source *s, const struct hub_batch *b)
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

static enum mr_status file_source_build(struct hub_batch_source *base, uint32_t part, uint64_t sequence,
                                        struct hub_batch *b, char *error)
{
    struct file_source *s = file_source_of(base);
    assert(sequence < s->batches);
    file_source_begin_batch(s, sequence, b);
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

static const struct hub_batch_source_functions file_source_functions = {
    .close = file_source_close,
    .info = file_source_info,
    .check = file_source_check,
    .batches = file_source_batches,
    .build = file_source_build,
};

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

static enum mr_status file_source_read(struct file_source *s, const struct hub_batch_source_options *o,
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

enum mr_status hub_file_source_open(const struct hub_batch_source_options *options,
                                    struct hub_batch_source **out, char *error)
{
    struct file_source *s = calloc(1, sizeof(*s));
    enum mr_status status = MR_NO_MEMORY;
    snprintf(error, HUB_ERROR_BYTES, "no memory");
    if (s == NULL)
        return status;
    s->base.functions = &file_source_functions;
    s->sample = malloc(sizeof(*s->sample));
    s->order = malloc(options->request->batch_samples * sizeof(*s->order));
    if (s->sample != NULL && s->order != NULL)
        status = file_source_read(s, options, error);
    if (status == MR_OK)
        *out = &s->base;
    else
        file_source_close(&s->base);
    return status;
}
