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

#include "trainer_client/hub/samples/batch_source.h"

/* Begins to read; on_broken_line and on_batch are called on the reading thread. MR_INVALID_ARGUMENT (path,
 * format), MR_UNAUTHORIZED, MR_NO_MEMORY, MR_INTERNAL; `error` (HUB_ERROR_BYTES) says why.
 *
 * Of the calls of batch_source.h: samples and keys are not counted beforehand, and 0 in the info, whose
 * digest is of the input's identity. A batch that is no longer in memory is MR_IO_ERROR unless the input is a
 * file. Once it is finished, the end is what has been read; the last batch of a file that is followed is left
 * out then unless it is full, as the next start reads its samples again. */
enum mr_status hub_live_source_open(const struct hub_batch_source_options *options,
                                    struct hub_batch_source **out, char *error);

#endif
