#include "trainer_client/hub/kafka/message_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/format/sample_block.h"

enum mr_status hub_message_samples_init(struct hub_message_samples *s,
                                        const struct hub_batch_source_options *options, char *error)
{
    enum mr_status status = hub_batch_builder_init(&s->builder, options, error);
    const struct hub_format *format = s->builder.format;
    if (status != MR_OK || format == NULL || !hub_format_has_names(format))
        return status;
    snprintf(error, HUB_ERROR_BYTES,
             "%.200s: format %s finds its columns by a file's first line, which messages do not have: "
             "describe it with header = none",
             s->builder.path, format->name);
    return MR_INVALID_ARGUMENT;
}

void hub_message_samples_free(struct hub_message_samples *s)
{
    hub_batch_builder_free(&s->builder);
    free(s->scratch);
    s->scratch = NULL;
}

static enum mr_status take_lines(struct hub_batch_builder *b, const struct hub_message *m,
                                 struct hub_position *at, struct hub_growing *growing, char *error)
{
    const char *line = m->bytes, *end = line + m->size;
    enum mr_status status = MR_OK;
    for (at->number = 1; line < end && status == MR_OK; at->number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const size_t bytes = (size_t)((stop != NULL ? stop : end) - line);
        status = hub_batch_builder_line(b, growing, at, b->format, line, bytes, error);
        line += bytes + 1;
    }
    return status;
}

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
    if (s->builder.has_shape)
        return NULL;
    const char *wrong = check_block(bytes, size, &head);
    return wrong != NULL ? wrong : hub_batch_builder_check_head(&s->builder, &head);
}

/* A copy of the body that is aligned. NULL: no memory. */
static const void *align_body(struct hub_message_samples *s, const void *body, size_t bytes)
{
    if (s->scratch_bytes < bytes) {
        free(s->scratch);
        s->scratch = malloc(bytes);
        s->scratch_bytes = s->scratch != NULL ? bytes : 0;
    }
    return s->scratch != NULL ? memcpy(s->scratch, body, bytes) : NULL;
}

static enum mr_status take_block(struct hub_message_samples *s, const struct hub_position *at,
                                 const struct hub_block_head *head, const void *body,
                                 struct hub_growing *growing, char *error)
{
    struct hub_block block;
    const void *aligned = align_body(s, body, hub_block_body_bytes(head));
    if (aligned == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory for the batches of %.200s", s->builder.path);
        return MR_NO_MEMORY;
    }
    const char *wrong = hub_batch_builder_check_head(&s->builder, head);
    if (wrong == NULL)
        wrong = hub_block_open(head, aligned, &block);
    return wrong != NULL ? hub_batch_builder_broken(&s->builder, at, wrong, error)
                         : hub_batch_builder_block(&s->builder, growing, at, &block, head->samples, error);
}

static enum mr_status take_blocks(struct hub_message_samples *s, const struct hub_message *m,
                                  const struct hub_position *at, struct hub_growing *growing, char *error)
{
    const uint8_t *block = m->bytes, *end = block + m->size;
    enum mr_status status = MR_OK;
    while (block < end && status == MR_OK) {
        struct hub_block_head head;
        const char *wrong = check_block(block, (size_t)(end - block), &head);
        if (wrong != NULL) /* and nobody knows where the next one begins */
            return hub_batch_builder_broken(&s->builder, at, wrong, error);
        status = take_block(s, at, &head, block + sizeof(head), growing, error);
        block += sizeof(head) + hub_block_body_bytes(&head);
    }
    return status;
}

enum mr_status hub_message_samples_take(struct hub_message_samples *s, const struct hub_message *m,
                                        struct hub_growing *growing, char *error)
{
    struct hub_position at = {
        .input = m->place, .is_message = true, .is_again = m->is_again, .offset = m->offset};
    return s->builder.format != NULL ? take_lines(&s->builder, m, &at, growing, error)
                                     : take_blocks(s, m, &at, growing, error);
}
