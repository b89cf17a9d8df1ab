/* Samples of messages, as they go into a batch: lines of a format, or blocks. Messages are whole: a line or a
 * block does not go on in the next one. Broken ones are counted and passed over as those of files are. One
 * thread at a time.
 */
#ifndef HUB_MESSAGE_SAMPLES_H
#define HUB_MESSAGE_SAMPLES_H

#include "trainer_client/hub/batch_source.h"

struct hub_message_samples {
    const char *path;                /* for messages; the caller's */
    const struct hub_format *format; /* NULL: blocks */
    struct hub_format shape;         /* `format`, or what the first block says */
    bool has_shape;
    bool strict;
    bool held_out;         /* its samples are scored, and have no labels */
    uint64_t good, broken; /* lines or blocks */
    void (*on_broken_line)(void *arg, const char *path, uint64_t line_number, const char *reason);
    void *arg;
    struct hub_sample *sample;
    void *scratch; /* aligned, for blocks */
    size_t scratch_bytes;
};

struct hub_message {
    const char *place; /* the partition, as "kafka:clicks[3]" */
    uint64_t offset;
    const void *bytes;
    size_t size;
    bool is_again; /* it was counted before */
};

/* Sets format and shape. MR_INVALID_ARGUMENT: the format is unknown, is not for this part, or needs a first
 * line that messages do not have; MR_NO_MEMORY. The other fields are the caller's to set. */
enum mr_status hub_message_samples_init(struct hub_message_samples *s, const struct hub_formats *formats,
                                        const char *format, char *error);
void hub_message_samples_free(struct hub_message_samples *s);
/* Looks at a message for the shape; nothing is counted. NULL, or why the shape is still not known: "it is cut
 * off". */
const char *hub_message_samples_look(struct hub_message_samples *s, const void *bytes, size_t size);
/* Makes an empty batch of the shape, which is known, with the arrays that it has. */
void hub_message_samples_begin(const struct hub_message_samples *s, struct hub_batch *batch);
/* Appends the message's samples to the batch, whose first `*placed` samples are there; `samples` of the batch
 * is the room for them, and grows. MR_BAD_MESSAGE (strict, or most of it is broken), MR_INVALID_ARGUMENT
 * (more than a batch can hold), MR_NO_MEMORY; `error` says why. */
enum mr_status hub_message_samples_take(struct hub_message_samples *s, const struct hub_message *message,
                                        struct hub_batch *batch, uint32_t *placed, char *error);

#endif
