/* A Kafka cluster on loopback for tests: librdkafka's mock of one. */
#ifndef TESTS_KAFKA_MOCK_H
#define TESTS_KAFKA_MOCK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

/* Numbers of requests, for rd_kafka_mock_push_request_errors(). */
#define KAFKA_FETCH         1
#define KAFKA_OFFSET_COMMIT 8
#define KAFKA_OFFSET_FETCH  9

struct kafka_mock {
    rd_kafka_t *owner, *producer;
    rd_kafka_mock_cluster_t *cluster;
    const char *brokers;
    char config[64]; /* file with properties by which nothing waits for long */
};

void kafka_mock_start(struct kafka_mock *k, int broker_count);
void kafka_mock_stop(struct kafka_mock *k);
void kafka_mock_topic(struct kafka_mock *k, const char *topic, int partitions);
/* Appends a message; it is there once kafka_mock_flush() returns. bytes NULL: it has no value. */
void kafka_mock_put(struct kafka_mock *k, const char *topic, int32_t partition, const void *bytes,
                    size_t size);
/* Appends what consumers are not given, as the end of a transaction is not. The mock writes none: a message
 * stands for it, which is taken out of what comes by rd_kafka_consume_queue(). */
#define KAFKA_MARKERS_KEPT 5 /* retention deletes what is before so many of them */
void kafka_mock_put_marker(struct kafka_mock *k, const char *topic, int32_t partition);
void kafka_mock_flush(struct kafka_mock *k);
/* The brokers say that a topic has at most so many partitions; INT_MAX at first. The mock cannot add
 * partitions: a topic that has more of them than it shows stands for one that grows. rd_kafka_metadata() is
 * wrapped for it. Any thread. */
extern atomic_int kafka_mock_shown_partitions;
/* Calls of rd_kafka_metadata() that ended with an answer. */
extern atomic_uint kafka_mock_answers;

#endif
