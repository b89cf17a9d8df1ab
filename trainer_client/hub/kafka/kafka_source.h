/* The batches of a Kafka topic, by partition and number. Batch n of a partition has the samples of the
 * messages at offsets [start + n * messages, start + (n + 1) * messages): where it is cut depends on nothing
 * that somebody would have to remember, so that a later start makes the same batches. Offsets without a
 * message (of transactions, or compacted) and messages without a good line leave a batch smaller, at times
 * empty; messages of several lines or blocks make it larger.
 *
 * A partition joins in with its first message, also one that is added to the topic. Where it starts, and a
 * digest of that message, make the data word of its plan: the server's record keeps it, and a topic that was
 * recreated is noticed.
 *
 * Each partition is a part. Nothing is kept: a batch that is wanted again is read again. A part has something
 * once it has a message; the data word that hub_batch_source_begin() is given is taken for its own unless it
 * is of other messages. While batches are on their way, lag counts ends of transactions as messages.
 */
#ifndef HUB_KAFKA_SOURCE_H
#define HUB_KAFKA_SOURCE_H

#include "trainer_client/hub/samples/batch_source.h"

/* Of the options: follow, is_repeated, allowed and memory_bytes mean nothing here. As hub_kafka_open(); also
 * MR_INVALID_ARGUMENT for a path or a format that cannot be. hub_batch_source_ready() then also ends with
 * MR_BAD_MESSAGE: in no partition is the first message that has a value a block, from which the shape of
 * samples is taken. */
enum mr_status hub_kafka_source_open(const struct hub_batch_source_options *options,
                                     struct hub_batch_source **out, char *error);

#endif
