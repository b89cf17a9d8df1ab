/* Opens the batches of a plan by the kind of its path: a Kafka topic, standard input or a file that is
 * followed, or files that are read through. */
#ifndef HUB_OPEN_SOURCE_H
#define HUB_OPEN_SOURCE_H

#include "trainer_client/hub/samples/batch_source.h"

/* Errors as of hub_file_source_open(), hub_live_source_open() or hub_kafka_source_open();
 * MR_INVALID_ARGUMENT also for a plan that an input that is read once cannot have. */
enum mr_status hub_batch_source_open(const struct hub_batch_source_options *options,
                                     struct hub_batch_source **out, char *error);

#endif
