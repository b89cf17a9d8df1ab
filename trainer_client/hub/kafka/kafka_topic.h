/* A Kafka topic as the hub reads it: each partition from an offset on, in its order. No consumer group takes
 * part, and no offset is committed.
 *
 * librdkafka's threads fetch ahead of the caller. One thread at a time calls these functions; none but
 * hub_kafka_open() waits for a broker, and hub_kafka_next() for one that has refused an offset, or, briefly,
 * to see whether trouble is over, and hub_kafka_partitions(), briefly, for partitions that were added.
 */
#ifndef HUB_KAFKA_TOPIC_H
#define HUB_KAFKA_TOPIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define HUB_KAFKA_OLDEST UINT64_MAX /* the first offset that there is */

struct hub_kafka_topic;

struct hub_kafka_options {
    const char *brokers, *config_path; /* as of hub_kafka_configure(); may be NULL */
    const char *topic;
    const char *group;       /* NULL, or a consumer group's name; copied: see kafka_group.h */
    const atomic_bool *stop; /* NULL, or gives up with MR_CANCELLED once it is true */
    /* There may be something to take from a partition that had nothing; any thread, at once; or NULL. */
    void (*on_messages)(void *arg);
    void *arg;
};

struct hub_kafka_message {
    uint64_t offset;
    int64_t timestamp_ms; /* -1: it has none */
    const void *bytes;
    size_t size; /* 0 as well for one without a value */
    void *owner; /* hub_kafka_message_free() */
};

enum hub_kafka_next {
    HUB_KAFKA_MESSAGE,
    HUB_KAFKA_NONE, /* none has come yet */
    HUB_KAFKA_END,  /* all below `offset` have come, and there are no more now */
    HUB_KAFKA_FAILED,
};

/* Waits some seconds for the brokers. MR_INVALID_ARGUMENT (properties, no such topic), MR_UNAUTHORIZED (they
 * do not let it in), MR_IO_ERROR (no broker answers), MR_NO_MEMORY, MR_CANCELLED; `error` (HUB_ERROR_BYTES)
 * says why. */
enum mr_status hub_kafka_open(const struct hub_kafka_options *options, struct hub_kafka_topic **out,
                              char *error);
void hub_kafka_close(struct hub_kafka_topic *k); /* NULL is fine */
/* At most HUB_PARTS_MAX, and never fewer than before: partitions can be added to a topic. The brokers are
 * asked once in topic.metadata.refresh.interval.ms (never if it is -1), and not while there is trouble. */
uint32_t hub_kafka_partitions(struct hub_kafka_topic *k);
/* Tells its cluster apart from others. */
uint64_t hub_kafka_cluster(const struct hub_kafka_topic *k);
/* Messages of the partition come from `offset` on, or from HUB_KAFKA_OLDEST. */
enum mr_status hub_kafka_start(struct hub_kafka_topic *k, uint32_t partition, uint64_t offset, char *error);
/* HUB_KAFKA_FAILED: `error` says why: `offset` was deleted, or is not there yet; the brokers refuse. Deleted
 * offsets that are known to have had no message are passed over. What passes, such as a broker that is away,
 * is HUB_KAFKA_NONE, and hub_kafka_trouble() says what it is. */
enum hub_kafka_next hub_kafka_next(struct hub_kafka_topic *k, uint32_t partition,
                                   struct hub_kafka_message *message, char *error);
/* The plan continues at `from`, and the partition has no messages at offsets [from, to): that is kept for a
 * later start, in options.group. Called again and again while it is so. */
void hub_kafka_keep_gap(struct hub_kafka_topic *k, uint32_t partition, uint64_t from, uint64_t to);
void hub_kafka_message_free(struct hub_kafka_message *message);
/* The offset after the newest message, as last heard; 0 before. */
uint64_t hub_kafka_high(const struct hub_kafka_topic *k, uint32_t partition);
/* Why nothing comes, one line; "": nothing is known to be wrong. It ends with the next message, or, where
 * none comes, once the brokers answer again: they are asked every 10 seconds. */
const char *hub_kafka_trouble(const struct hub_kafka_topic *k);

#endif
