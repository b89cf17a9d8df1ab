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
 * Nothing is kept: a batch that is wanted again is read again. One thread at a time calls these functions.
 */
#ifndef HUB_KAFKA_SOURCE_H
#define HUB_KAFKA_SOURCE_H

#include "trainer_client/hub/batch_source.h"

struct hub_kafka_source;

/* Of the options: follow and is_repeated mean nothing here. As hub_kafka_open(); also MR_INVALID_ARGUMENT for
 * a path or a format that cannot be. */
enum mr_status hub_kafka_source_open(const struct hub_batch_source_options *options,
                                     struct hub_kafka_source **out, char *error);
void hub_kafka_source_close(struct hub_kafka_source *s); /* NULL is fine */
/* As hub_batch_source_ready(), hub_batch_source_info(); the digest is 0. MR_BAD_MESSAGE: in no
 * partition is the first message that has a value a block, from which the shape of samples is taken. */
enum mr_status hub_kafka_source_ready(struct hub_kafka_source *s, char *error);
const struct hub_sample_file_info *hub_kafka_source_info(struct hub_kafka_source *s);
/* As hub_kafka_partitions(). */
uint32_t hub_kafka_source_partitions(struct hub_kafka_source *s);
/* Tells the partition apart from others, also of other clusters. */
uint64_t hub_kafka_source_salt(const struct hub_kafka_source *s, uint32_t partition);
/* The partition begins where the data word says that the server's record has of it (`known`), or, if that is
 * NULL or of other messages, at its first message; `*data` is the word for it. MR_NOT_READY: there is no
 * message yet. MR_IO_ERROR, MR_INVALID_ARGUMENT: `error` says why. */
enum mr_status hub_kafka_source_begin(struct hub_kafka_source *s, uint32_t partition, const uint64_t *known,
                                      uint64_t *data, char *error);
/* MR_OK: the partition has a message. MR_NOT_READY: none yet. MR_IO_ERROR: `error` says why. */
enum mr_status hub_kafka_source_look(struct hub_kafka_source *s, uint32_t partition, char *error);
/* HUB_BATCHES_UNKNOWN; after hub_kafka_source_finish() those that were built. */
uint64_t hub_kafka_source_batches(const struct hub_kafka_source *s, uint32_t partition);
void hub_kafka_source_finish(struct hub_kafka_source *s);
/* Of a partition that has begun. MR_OK: the batch may be empty. MR_NOT_READY: not all of it has come. Else
 * the plan cannot continue, and `error` says why; the next call reads the batch from its start. */
enum mr_status hub_kafka_source_build(struct hub_kafka_source *s, uint32_t partition, uint64_t sequence,
                                      struct hub_batch *batch, char *error);
/* Batches of the partition below `oldest` are applied: where no message follows them, that is kept for a
 * later start. */
void hub_kafka_source_release(struct hub_kafka_source *s, uint32_t partition, uint64_t oldest);
/* Messages of the partition from batch `oldest` on, as last heard. While batches are on their way, ends of
 * transactions count as messages. */
uint64_t hub_kafka_source_lag(const struct hub_kafka_source *s, uint32_t partition, uint64_t oldest);
/* As hub_kafka_trouble(). */
const char *hub_kafka_source_trouble(const struct hub_kafka_source *s);

#endif
