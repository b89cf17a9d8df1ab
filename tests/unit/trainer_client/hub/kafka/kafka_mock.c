#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/kafka/kafka_mock.h"

#define FLUSH_MS 30000

atomic_int kafka_mock_shown_partitions = INT_MAX;
atomic_uint kafka_mock_answers;

rd_kafka_resp_err_t __real_rd_kafka_metadata(rd_kafka_t *client, int all_topics, rd_kafka_topic_t *topic,
                                             const struct rd_kafka_metadata **metadata, int timeout_ms);
rd_kafka_resp_err_t __wrap_rd_kafka_metadata(rd_kafka_t *client, int all_topics, rd_kafka_topic_t *topic,
                                             const struct rd_kafka_metadata **metadata, int timeout_ms);
rd_kafka_resp_err_t __wrap_rd_kafka_metadata(rd_kafka_t *client, int all_topics, rd_kafka_topic_t *topic,
                                             const struct rd_kafka_metadata **metadata, int timeout_ms)
{
    rd_kafka_resp_err_t code = __real_rd_kafka_metadata(client, all_topics, topic, metadata, timeout_ms);
    const int shown = atomic_load(&kafka_mock_shown_partitions);
    for (int i = 0; code == RD_KAFKA_RESP_ERR_NO_ERROR && i < (*metadata)->topic_cnt; i++)
        if ((*metadata)->topics[i].partition_cnt > shown)
            (*metadata)->topics[i].partition_cnt = shown;
    atomic_fetch_add(&kafka_mock_answers, code == RD_KAFKA_RESP_ERR_NO_ERROR);
    return code;
}

static const char marker[900000] = "the end of a transaction"; /* large, so that retention deletes it */

rd_kafka_message_t *__real_rd_kafka_consume_queue(rd_kafka_queue_t *queue, int timeout_ms);
rd_kafka_message_t *__wrap_rd_kafka_consume_queue(rd_kafka_queue_t *queue, int timeout_ms);
rd_kafka_message_t *__wrap_rd_kafka_consume_queue(rd_kafka_queue_t *queue, int timeout_ms)
{
    rd_kafka_message_t *m = __real_rd_kafka_consume_queue(queue, timeout_ms);
    while (m != NULL && m->err == RD_KAFKA_RESP_ERR_NO_ERROR && m->len == sizeof(marker) &&
           memcmp(m->payload, marker, sizeof(marker)) == 0) {
        rd_kafka_message_destroy(m);
        m = __real_rd_kafka_consume_queue(queue, timeout_ms);
    }
    return m;
}

static rd_kafka_t *make_producer(const char *brokers)
{
    char error[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (brokers != NULL)
        assert_int_equal(rd_kafka_conf_set(conf, "bootstrap.servers", brokers, NULL, 0), RD_KAFKA_CONF_OK);
    assert_int_equal(rd_kafka_conf_set(conf, "log_level", "0", NULL, 0), RD_KAFKA_CONF_OK);
    assert_int_equal(rd_kafka_conf_set(conf, "linger.ms", "1", NULL, 0), RD_KAFKA_CONF_OK);
    assert_int_equal(rd_kafka_conf_set(conf, "reconnect.backoff.max.ms", "100", NULL, 0), RD_KAFKA_CONF_OK);
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
    if (producer == NULL)
        fail_msg("%s", error);
    return producer;
}

static void write_config(struct kafka_mock *k)
{
    snprintf(k->config, sizeof(k->config), "/tmp/kafka_mock.XXXXXX");
    int fd = mkstemp(k->config);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "# nothing waits for long\n\nfetch.wait.max.ms = 10\nfetch.error.backoff.ms=10\n"
                            "reconnect.backoff.ms=10\nreconnect.backoff.max.ms=50\n"
                            "topic.metadata.refresh.interval.ms=20\n") > 0);
    close(fd);
}

void kafka_mock_start(struct kafka_mock *k, int broker_count)
{
    *k = (struct kafka_mock){.owner = make_producer(NULL)};
    k->cluster = rd_kafka_mock_cluster_new(k->owner, broker_count);
    assert_non_null(k->cluster);
    k->brokers = rd_kafka_mock_cluster_bootstraps(k->cluster);
    k->producer = make_producer(k->brokers);
    write_config(k);
}

void kafka_mock_stop(struct kafka_mock *k)
{
    rd_kafka_destroy(k->producer);
    rd_kafka_mock_cluster_destroy(k->cluster);
    rd_kafka_destroy(k->owner);
    unlink(k->config);
}

void kafka_mock_topic(struct kafka_mock *k, const char *topic, int partitions)
{
    assert_int_equal(rd_kafka_mock_topic_create(k->cluster, topic, partitions, 1),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
    /* The producer would look for it only once a second. */
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *of_producer = rd_kafka_topic_new(k->producer, topic, NULL);
    assert_int_equal(rd_kafka_metadata(k->producer, 0, of_producer, &metadata, FLUSH_MS),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(of_producer);
}

void kafka_mock_put(struct kafka_mock *k, const char *topic, int32_t partition, const void *bytes,
                    size_t size)
{
    assert_int_equal(rd_kafka_producev(k->producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                                       RD_KAFKA_V_VALUE((void *)bytes, size),
                                       RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
}

void kafka_mock_put_marker(struct kafka_mock *k, const char *topic, int32_t partition)
{
    kafka_mock_put(k, topic, partition, marker, sizeof(marker));
}

void kafka_mock_flush(struct kafka_mock *k)
{
    assert_int_equal(rd_kafka_flush(k->producer, FLUSH_MS), RD_KAFKA_RESP_ERR_NO_ERROR);
}
