/* The batches of an input that is read once: standard input, or a file that grows. A thread of its own reads
 * ahead and cuts the samples into batches in the order of their coming.
 *
 * Batches that are not released stay in memory, and so do released ones as far as memory_bytes reach: a
 * server that was restored to an earlier state needs them again. An input that can be repeated (a file;
 * standard input that the user says is the same at each start) begins at its first sample, so that batch n is
 * always the same; a file is read again from there if a batch is wanted that is no longer in memory. One
 * thread at a time calls these functions.
 */
#ifndef HUB_LIVE_SOURCE_H
#define HUB_LIVE_SOURCE_H

#include "trainer_client/hub/batch_source.h"

struct hub_live_source;

struct hub_live_options {
    const char *path;                  /* HUB_STANDARD_INPUT or a file's */
    const struct hub_allowed *allowed; /* outlives the source; NULL: any path */
    const struct hub_formats *formats; /* outlive the source */
    const char *format;                /* name of one of them, or HUB_BLOCK_FORMAT */
    uint32_t batch_samples;
    bool strict;
    bool held_out;    /* its samples are scored, and have no labels */
    bool follow;      /* a file's end is no end until it is renamed or removed */
    bool is_repeated; /* standard input is the same at each start */
    size_t memory_bytes;
    /* As of hub_batch_source_options; on the reading thread. */
    void (*on_broken_line)(void *arg, const char *path, uint64_t line_number, const char *reason);
    void (*on_batch)(void *arg);
    void *arg;
};

/* Begins to read. MR_INVALID_ARGUMENT (path, format), MR_NO_MEMORY, MR_INTERNAL; `error` (HUB_ERROR_BYTES)
 * says why. */
enum mr_status hub_live_source_open(const struct hub_live_options *options, struct hub_live_source **out,
                                    char *error);
void hub_live_source_close(struct hub_live_source *s); /* NULL is fine */
/* MR_OK: the slots and dense values of its samples are known. MR_NOT_READY: the first block has not come.
 * Else why none comes. */
enum mr_status hub_live_source_ready(struct hub_live_source *s, char *error);
/* Its samples and keys are not counted beforehand, and 0. The digest is of the input's identity. */
const struct hub_sample_file_info *hub_live_source_info(struct hub_live_source *s);
bool hub_live_source_can_repeat(const struct hub_live_source *s);
/* HUB_BATCHES_UNKNOWN until its end is known. */
uint64_t hub_live_source_batches(struct hub_live_source *s);
/* MR_NOT_READY: it has not come yet, or the input is at its end. MR_IO_ERROR, MR_BAD_MESSAGE, MR_NO_MEMORY:
 * the input failed, or the batch is no longer in memory; `error` says why and what to do. */
enum mr_status hub_live_source_build(struct hub_live_source *s, uint64_t sequence, struct hub_batch *batch,
                                     char *error);
/* Batches below `oldest` are applied. */
void hub_live_source_release(struct hub_live_source *s, uint64_t oldest);
/* Reads no more: the end is what has been read. The last batch of a file that is followed is left out unless
 * it is full, as the next start reads its samples again. */
void hub_live_source_finish(struct hub_live_source *s);

#endif
