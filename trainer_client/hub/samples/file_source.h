/* The batches of a file that was read through (sample_file.h), or of several: each sample once an epoch, in
 * the order of the plan's seed. */
#ifndef HUB_FILE_SOURCE_H
#define HUB_FILE_SOURCE_H

#include "trainer_client/hub/samples/batch_source.h"

/* Reads the file. Of the options: follow, is_repeated and on_batch mean nothing here. As
 * hub_sample_file_open(); also MR_INVALID_ARGUMENT where a batch may be larger than a message. */
enum mr_status hub_file_source_open(const struct hub_batch_source_options *options,
                                    struct hub_batch_source **out, char *error);

#endif
