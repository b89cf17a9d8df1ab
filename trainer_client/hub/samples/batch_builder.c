#include "trainer_client/hub/samples/batch_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/samples/lines.h"

/* A format, or blocks (NULL). */
static enum mr_status builder_find_format(struct hub_batch_builder *b, const struct hub_formats *formats,
                                          const char *name, char *error)
{
    char names[HUB_FORMAT_NAMES_BYTES];
    b->format = hub_formats_find(formats, name);
    if (b->format == NULL && strcmp(name, HUB_BLOCK_FORMAT) != 0) {
        snprintf(error, HUB_ERROR_BYTES,
                 "unknown format '%.40s'; there are %s, " HUB_BLOCK_FORMAT
                 "; the hub's --format FILE adds one",
                 name, hub_formats_names(formats, names));
        return MR_INVALID_ARGUMENT;
    }
    const char *wrong =
        b->format != NULL ? hub_format_wrong_part(!b->format->has_no_labels, b->held_out) : NULL;
    if (wrong != NULL) {
        snprintf(error, HUB_ERROR_BYTES, "format %.40s: %s", name, wrong);
        return MR_INVALID_ARGUMENT;
    }
    b->has_shape = b->format != NULL;
    b->shape = b->has_shape ? *b->format : (struct hub_format){.name = HUB_BLOCK_FORMAT};
    return MR_OK;
}

enum mr_status hub_batch_builder_init(struct hub_batch_builder *b, const struct hub_batch_source_options *o,
                                      char *error)
{
    *b = (struct hub_batch_builder){.strict = o->request->strict,
                                    .held_out = o->request->held_out,
                                    .on_broken_line = o->on_broken_line,
                                    .arg = o->arg};
    snprintf(b->path, sizeof(b->path), "%s", o->request->path);
    enum mr_status status = builder_find_format(b, o->formats, o->request->format, error);
    if (status != MR_OK)
        return status;
    b->sample = malloc(sizeof(*b->sample));
    if (b->sample != NULL)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "no memory");
    return MR_NO_MEMORY;
}

void hub_batch_builder_free(struct hub_batch_builder *b)
{
    free(b->sample);
    b->sample = NULL;
}

void hub_batch_builder_begin(const struct hub_batch_builder *b, struct hub_growing *g)
{
    struct hub_batch *batch = &g->batch;
    if (batch->slots != b->shape.slots || batch->dense_count != b->shape.dense ||
        batch->has_weights != b->shape.has_weights)
        hub_batch_free(batch); /* its arrays were for another shape */
    batch->slots = b->shape.slots;
    batch->dense_count = b->shape.dense;
    batch->has_weights = b->shape.has_weights;
    batch->key_count = 0;
    batch->samples = b->batch_samples != 0 ? b->batch_samples : batch->samples_size;
    g->placed = 0;
}

const char *hub_batch_builder_check_head(struct hub_batch_builder *b, const struct hub_block_head *head)
{
    const char *wrong = b->has_shape ? hub_format_check_block(&b->shape, head)
                                     : hub_format_take_block(&b->shape, head, b->held_out);
    b->has_shape |= wrong == NULL;
    return wrong;
}

/* ---- room ---- */

static enum mr_status builder_no_memory(const struct hub_batch_builder *b, char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "no memory for the batches of %.200s", b->path);
    return MR_NO_MEMORY;
}

static enum mr_status builder_too_large(const struct hub_batch_builder *b, const struct hub_growing *g,
                                        const struct hub_position *at, uint64_t keys, char *error)
{
    if (at->is_message)
        snprintf(
            error, HUB_ERROR_BYTES,
            "the batch that has offset %" PRIu64
            " of %.200s does not fit into one message, with more than %u samples or %zu keys: take fewer "
            "messages for a batch (kafka:TOPIC?messages=N)",
            at->offset, at->input, HUB_BATCH_SAMPLES_MAX, HUB_BATCH_KEY_BYTES_MAX / sizeof(uint64_t));
    else
        snprintf(error, HUB_ERROR_BYTES,
                 "%" PRIu64 " keys in the first %u samples of a batch of %.200s do not fit into one message: "
                 "take a smaller batch_samples than %u",
                 keys, g->placed + 1, at->input, b->batch_samples);
    return MR_INVALID_ARGUMENT;
}

/* The batch has room for so many samples and keys more. */
static enum mr_status builder_make_room(const struct hub_batch_builder *b, struct hub_growing *g,
                                        const struct hub_position *at, uint32_t samples, uint32_t keys_more,
                                        char *error)
{
    struct hub_batch *batch = &g->batch;
    const uint32_t needed = g->placed + samples;
    const uint64_t keys = (uint64_t)batch->key_count + keys_more;
    if (needed > HUB_BATCH_SAMPLES_MAX || keys * sizeof(uint64_t) > HUB_BATCH_KEY_BYTES_MAX)
        return builder_too_large(b, g, at, keys, error);
    if (batch->samples < needed)
        batch->samples = needed < HUB_BATCH_SAMPLES_MAX / 2 ? 2 * needed : HUB_BATCH_SAMPLES_MAX;
    return hub_batch_make_room(batch, keys_more) ? MR_OK : builder_no_memory(b, error);
}

static enum mr_status builder_placed(const struct hub_batch_builder *b, struct hub_growing *g,
                                     uint32_t samples, char *error)
{
    g->placed += samples;
    return b->batch_samples != 0 && g->placed == b->batch_samples ? b->on_full(b->source, error) : MR_OK;
}

/* ---- lines and blocks ---- */

/* So many broken lines of an input without an end, beside the good ones, mean another format. */
static bool is_other_format(uint64_t broken, uint64_t good)
{
    return broken >= HUB_BROKEN_LINES_OF && broken > good;
}

enum mr_status hub_batch_builder_broken(struct hub_batch_builder *b, const struct hub_position *at,
                                        const char *reason, char *error)
{
    const uint64_t shown = at->is_message ? at->offset : at->number;
    if (!at->is_again && atomic_fetch_add(&b->broken, 1) < HUB_BROKEN_SHOWN_MAX && b->on_broken_line != NULL)
        b->on_broken_line(b->arg, at->input, shown, reason);
    if (b->strict) {
        snprintf(error, HUB_ERROR_BYTES, "%.200s:%s%" PRIu64 ": broken line: %s", at->input,
                 at->is_message ? " offset " : "", shown, reason);
        return MR_BAD_MESSAGE;
    }
    const uint64_t broken = b->broken;
    if (at->is_again || !is_other_format(broken, b->good))
        return MR_OK;
    const int begun =
        snprintf(error, HUB_ERROR_BYTES,
                 "%.200s is not in the format %s: %" PRIu64 " of %" PRIu64 " lines are broken, such as ",
                 b->path, b->shape.name, broken, broken + b->good);
    if (at->is_message)
        snprintf(error + begun, HUB_ERROR_BYTES - (size_t)begun, "at offset %" PRIu64 " of %.200s: %.60s",
                 at->offset, at->input, reason);
    else
        snprintf(error + begun, HUB_ERROR_BYTES - (size_t)begun, "line %" PRIu64 ": %.60s", at->number,
                 reason);
    return MR_BAD_MESSAGE;
}

enum mr_status hub_batch_builder_line(struct hub_batch_builder *b, struct hub_growing *g,
                                      const struct hub_position *at, const struct hub_format *format,
                                      const char *text, size_t bytes, char *error)
{
    char reason[HUB_REASON_BYTES];
    enum hub_parse parsed = HUB_BROKEN;
    bytes = hub_line_trim(text, bytes);
    if (bytes > HUB_LINE_BYTES_MAX)
        snprintf(reason, sizeof(reason), "longer than %u bytes", HUB_LINE_BYTES_MAX);
    else
        parsed = hub_format_parse(format, text, bytes, at->number, b->sample, reason);
    if (parsed == HUB_BROKEN)
        return hub_batch_builder_broken(b, at, reason, error);
    if (parsed == HUB_NO_SAMPLE)
        return MR_OK;
    b->good += !at->is_again;
    enum mr_status status = builder_make_room(b, g, at, 1, b->sample->key_count, error);
    if (status != MR_OK)
        return status;
    if (!hub_batch_append(&g->batch, g->placed, b->sample))
        return builder_no_memory(b, error);
    return builder_placed(b, g, 1, error);
}

enum mr_status hub_batch_builder_block(struct hub_batch_builder *b, struct hub_growing *g,
                                       const struct hub_position *at, const struct hub_block *block,
                                       uint32_t samples, char *error)
{
    enum mr_status status = MR_OK;
    b->good += !at->is_again;
    for (uint32_t from = 0, count; from < samples && status == MR_OK; from += count) {
        count = samples - from;
        if (b->batch_samples != 0 && count > b->batch_samples - g->placed)
            count = b->batch_samples - g->placed;
        const uint32_t *offsets = block->offsets + (size_t)from * g->batch.slots;
        const uint32_t keys = offsets[(size_t)count * g->batch.slots] - offsets[0];
        status = builder_make_room(b, g, at, count, keys, error);
        if (status != MR_OK)
            return status;
        hub_batch_place_block(&g->batch, g->placed, block, from, count);
        status = builder_placed(b, g, count, error);
    }
    return status;
}
