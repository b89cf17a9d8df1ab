#include "trainer_client/hub/kafka/message_samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/samples/lines.h"
#include "trainer_client/hub/plan/request.h"
#include "trainer_client/hub/format/sample_block.h"

enum mr_status hub_message_samples_init(struct hub_message_samples *s, const struct hub_formats *formats,
                                        const char *format, char *error)
{
    enum mr_status status = hub_find_format(formats, format, s->held_out, &s->format, error);
    if (status != MR_OK)
        return status;
    if (s->format != NULL && hub_format_has_names(s->format)) {
        snprintf(error, HUB_ERROR_BYTES,
                 "%.200s: format %s finds its columns by a file's first line, which messages do not have: "
                 "describe it with header = none",
                 s->path, s->format->name);
        return MR_INVALID_ARGUMENT;
    }
    s->shape = s->format != NULL ? *s->format : (struct hub_format){.name = HUB_BLOCK_FORMAT};
    s->has_shape = s->format != NULL;
    s->sample = malloc(sizeof(*s->sample));
    if (s->sample != NULL)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "no memory");
    return MR_NO_MEMORY;
}

void hub_message_samples_free(struct hub_message_samples *s)
{
    free(s->sample);
    free(s->scratch);
    s->sample = NULL;
    s->scratch = NULL;
}

/* ---- room ---- */

static enum mr_status fail_for_memory(const struct hub_message_samples *s, char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "no memory for the batches of %.200s", s->path);
    return MR_NO_MEMORY;
}

void hub_message_samples_begin(const struct hub_message_samples *s, struct hub_batch *b)
{
    if (b->slots != s->shape.slots || b->dense_count != s->shape.dense ||
        b->has_weights != s->shape.has_weights)
        hub_batch_free(b); /* its arrays were for another shape */
    b->slots = s->shape.slots;
    b->dense_count = s->shape.dense;
    b->has_weights = s->shape.has_weights;
    b->key_count = 0;
    b->samples = b->samples_size; /* the room that there is */
}

/* The batch has room for so many samples and keys more. */
static enum mr_status make_room(const struct hub_message_samples *s, const struct hub_message *m,
                                struct hub_batch *b, uint32_t placed, uint32_t samples, uint32_t keys,
                                char *error)
{
    const uint32_t needed = placed + samples;
    if (needed > HUB_BATCH_SAMPLES_MAX ||
        ((uint64_t)b->key_count + keys) * sizeof(uint64_t) > HUB_BATCH_KEY_BYTES_MAX) {
        snprintf(
            error, HUB_ERROR_BYTES,
            "the batch that has offset %" PRIu64
            " of %.200s does not fit into one message, with more than %u samples or %zu keys: take fewer "
            "messages for a batch (kafka:TOPIC?messages=N)",
            m->offset, m->place, HUB_BATCH_SAMPLES_MAX, HUB_BATCH_KEY_BYTES_MAX / sizeof(uint64_t));
        return MR_INVALID_ARGUMENT;
    }
    if (b->samples < needed)
        b->samples = needed < HUB_BATCH_SAMPLES_MAX / 2 ? 2 * needed : HUB_BATCH_SAMPLES_MAX;
    return hub_batch_make_room(b, keys) ? MR_OK : fail_for_memory(s, error);
}

/* ---- what is broken ---- */

static enum mr_status take_broken(struct hub_message_samples *s, const struct hub_message *m,
                                  const char *reason, char *error)
{
    if (s->strict) {
        snprintf(error, HUB_ERROR_BYTES, "%.200s: offset %" PRIu64 ": broken line: %s", m->place, m->offset,
                 reason);
        return MR_BAD_MESSAGE;
    }
    if (m->is_again)
        return MR_OK;
    s->broken++;
    if (s->on_broken_line != NULL && s->broken <= HUB_BROKEN_SHOWN_MAX)
        s->on_broken_line(s->arg, m->place, m->offset, reason);
    if (!hub_is_other_format(s->broken, s->good))
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES,
             "%.200s is not in the format %s: %" PRIu64 " of %" PRIu64
             " lines are broken, such as at offset %" PRIu64 " of %.200s: %.60s",
             s->path, s->shape.name, s->broken, s->broken + s->good, m->offset, m->place, reason);
    return MR_BAD_MESSAGE;
}

/* ---- lines ---- */

static enum mr_status take_line(struct hub_message_samples *s, const struct hub_message *m, const char *line,
                                size_t bytes, uint64_t number, struct hub_batch *b, uint32_t *placed,
                                char *error)
{
    char reason[HUB_REASON_BYTES];
    enum hub_parse parsed = HUB_BROKEN;
    bytes = hub_line_trim(line, bytes);
    if (bytes > HUB_LINE_BYTES_MAX)
        snprintf(reason, sizeof(reason), "longer than %u bytes", HUB_LINE_BYTES_MAX);
    else
        parsed = hub_format_parse(s->format, line, bytes, number, s->sample, reason);
    if (parsed == HUB_BROKEN)
        return take_broken(s, m, reason, error);
    if (parsed == HUB_NO_SAMPLE)
        return MR_OK;
    s->good += !m->is_again;
    enum mr_status status = make_room(s, m, b, *placed, 1, s->sample->key_count, error);
    if (status != MR_OK)
        return status;
    if (!hub_batch_append(b, *placed, s->sample))
        return fail_for_memory(s, error);
    ++*placed;
    return MR_OK;
}

static enum mr_status take_lines(struct hub_message_samples *s, const struct hub_message *m,
                                 struct hub_batch *b, uint32_t *placed, char *error)
{
    const char *line = m->bytes, *end = line + m->size;
    enum mr_status status = MR_OK;
    for (uint64_t number = 1; line < end && status == MR_OK; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const size_t bytes = (size_t)((stop != NULL ? stop : end) - line);
        status = take_line(s, m, line, bytes, number, b, placed, error);
        line += bytes + 1;
    }
    return status;
}

/* ---- blocks ---- */

/* NULL, or what is wrong with what is at `bytes`; `head` is set. */
static const char *check_block(const void *bytes, size_t size, struct hub_block_head *head)
{
    *head = (struct hub_block_head){0};
    if (size < sizeof(*head))
        return "it is shorter than a block's head";
    memcpy(head, bytes, sizeof(*head));
    const char *wrong = hub_block_check_head(head);
    if (wrong == NULL && head->samples == 0)
        wrong = "it has no samples";
    if (wrong == NULL && size - sizeof(*head) < hub_block_body_bytes(head))
        wrong = "it is cut off";
    return wrong;
}

const char *hub_message_samples_look(struct hub_message_samples *s, const void *bytes, size_t size)
{
    struct hub_block_head head;
    if (s->has_shape)
        return NULL;
    const char *wrong = check_block(bytes, size, &head);
    if (wrong == NULL)
        wrong = hub_format_take_block(&s->shape, &head, s->held_out);
    s->has_shape = wrong == NULL;
    return wrong;
}

/* A copy of the body that is aligned. NULL: no memory. */
static const void *align(struct hub_message_samples *s, const void *body, size_t bytes)
{
    if (s->scratch_bytes < bytes) {
        free(s->scratch);
        s->scratch = malloc(bytes);
        s->scratch_bytes = s->scratch != NULL ? bytes : 0;
    }
    return s->scratch != NULL ? memcpy(s->scratch, body, bytes) : NULL;
}

static enum mr_status take_block(struct hub_message_samples *s, const struct hub_message *m,
                                 const struct hub_block_head *head, const void *body, struct hub_batch *b,
                                 uint32_t *placed, char *error)
{
    struct hub_block block;
    const void *aligned = align(s, body, hub_block_body_bytes(head));
    if (aligned == NULL)
        return fail_for_memory(s, error);
    const char *wrong = hub_format_check_block(&s->shape, head);
    if (wrong == NULL)
        wrong = hub_block_open(head, aligned, &block);
    if (wrong != NULL)
        return take_broken(s, m, wrong, error);
    s->good += !m->is_again;
    enum mr_status status = make_room(s, m, b, *placed, head->samples, head->keys, error);
    if (status != MR_OK)
        return status;
    hub_batch_place_block(b, *placed, &block, 0, head->samples);
    *placed += head->samples;
    return MR_OK;
}

static enum mr_status take_blocks(struct hub_message_samples *s, const struct hub_message *m,
                                  struct hub_batch *b, uint32_t *placed, char *error)
{
    const uint8_t *at = m->bytes, *end = at + m->size;
    enum mr_status status = MR_OK;
    while (at < end && status == MR_OK) {
        struct hub_block_head head;
        const char *wrong = check_block(at, (size_t)(end - at), &head);
        if (wrong != NULL) /* and nobody knows where the next one begins */
            return take_broken(s, m, wrong, error);
        status = take_block(s, m, &head, at + sizeof(head), b, placed, error);
        at += sizeof(head) + hub_block_body_bytes(&head);
    }
    return status;
}

enum mr_status hub_message_samples_take(struct hub_message_samples *s, const struct hub_message *message,
                                        struct hub_batch *batch, uint32_t *placed, char *error)
{
    return s->format != NULL ? take_lines(s, message, batch, placed, error)
                             : take_blocks(s, message, batch, placed, error);
}
