/* Samples of messages, as they go into a batch: lines of a format, or blocks. Messages are whole: a line or a
 * block does not go on in the next one. One thread at a time.
 */
#ifndef HUB_MESSAGE_SAMPLES_H
#define HUB_MESSAGE_SAMPLES_H

#include "trainer_client/hub/samples/batch_builder.h"

struct hub_message_samples {
    struct hub_batch_builder builder;
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

/* As hub_batch_builder_init(); also MR_INVALID_ARGUMENT where the format needs a first line, which messages
 * do not have. */
enum mr_status hub_message_samples_init(struct hub_message_samples *s,
                                        const struct hub_batch_source_options *options, char *error);
void hub_message_samples_free(struct hub_message_samples *s);
/* Looks at a message for the shape; nothing is counted. NULL, or why the shape is still not known: "it is cut
 * off". */
const char *hub_message_samples_look(struct hub_message_samples *s, const void *bytes, size_t size);
/* The message's samples go to the batch. Status as of hub_batch_builder_line(). */
enum mr_status hub_message_samples_take(struct hub_message_samples *s, const struct hub_message *message,
                                        struct hub_growing *growing, char *error);

#endif
