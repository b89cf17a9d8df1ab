/* Makes batches of lines or blocks of an input that is read once, as they come: standard input, a file that
 * grows, a topic's messages. Broken lines are counted, reported and left out, or refused where the plan is
 * strict; a batch that fits into no message is refused. One thread at a time, but for `broken`.
 */
#ifndef HUB_BATCH_BUILDER_H
#define HUB_BATCH_BUILDER_H

#include <stdatomic.h>
#include "trainer_client/hub/samples/batch_source.h"

/* A batch that is put together: its first `placed` samples are there. All zero at first. */
struct hub_growing {
    struct hub_batch batch;
    uint32_t placed;
};

struct hub_batch_builder {
    char path[HUB_PATH_BYTES];       /* of the plan, for messages */
    const struct hub_format *format; /* NULL: blocks */
    struct hub_format shape;         /* `format`, or what the first block says */
    bool has_shape;
    bool strict;
    bool held_out;           /* its samples are scored, and have no labels */
    uint64_t good;           /* lines or blocks */
    _Atomic uint64_t broken; /* read by any thread */
    void (*on_broken_line)(void *arg, const char *path, uint64_t line_number, const char *reason);
    void *arg;
    struct hub_sample *sample;
    /* The caller's to set. Batches have so many samples, and on_full() gets each that is full, and begins the
     * next one; 0: a batch grows as far as a message holds it. */
    uint32_t batch_samples;
    enum mr_status (*on_full)(void *source, char *error);
    void *source;
};

/* Where a line or a block is. */
struct hub_position {
    const char *input; /* the path, or a partition: "kafka:clicks[3]" */
    bool is_message;   /* of the message at `offset` */
    bool is_again;     /* it was counted before */
    uint64_t offset;
    uint64_t number; /* of the line in its input, or its message; from 1 */
};

/* MR_INVALID_ARGUMENT: there is no such format, or its samples are not for this part; MR_NO_MEMORY. */
enum mr_status hub_batch_builder_init(struct hub_batch_builder *b,
                                      const struct hub_batch_source_options *options, char *error);
void hub_batch_builder_free(struct hub_batch_builder *b);
/* Makes `g` an empty batch of the shape, which is known, with the arrays that it has. */
void hub_batch_builder_begin(const struct hub_batch_builder *b, struct hub_growing *g);
/* The first block says what all are like. NULL, or why this one cannot be one of them. */
const char *hub_batch_builder_check_head(struct hub_batch_builder *b, const struct hub_block_head *head);
/* The line's sample, if it has one, goes to the batch. format: the input's, with its columns where its first
 * line names them. MR_BAD_MESSAGE (strict, or most lines are broken), MR_INVALID_ARGUMENT (more than a
 * message holds), MR_NO_MEMORY, or what on_full() returns; `error` says why. */
enum mr_status hub_batch_builder_line(struct hub_batch_builder *b, struct hub_growing *g,
                                      const struct hub_position *at, const struct hub_format *format,
                                      const char *text, size_t bytes, char *error);
/* The samples of a block that was opened go to the batch, and to those after it. Status as above. */
enum mr_status hub_batch_builder_block(struct hub_batch_builder *b, struct hub_growing *g,
                                       const struct hub_position *at, const struct hub_block *block,
                                       uint32_t samples, char *error);
/* A line or a block cannot be used. MR_OK: it is left out. MR_BAD_MESSAGE: as above. */
enum mr_status hub_batch_builder_broken(struct hub_batch_builder *b, const struct hub_position *at,
                                        const char *reason, char *error);

#endif
