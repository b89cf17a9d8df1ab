#include "trainer_client/hub/kafka/kafka_topic.h"

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "trainer_client/hub/kafka/kafka_config.h"
#include "trainer_client/hub/kafka/kafka_group.h"
#include "trainer_client/hub/plan/parts.h"
#include "trainer_client/hub/samples/sample_file.h"

#define OPEN_LIMIT_US UINT64_C(10000000)
#define DOWN_LIMIT_US UINT64_C(1000000)  /* the same, where every broker refuses */
#define TROUBLE_US    UINT64_C(10000000) /* with nothing new, after which the brokers are asked about it */
#define ASK_MS        200                /* of one question, after which `stop` is looked at */
#define ANSWER_MS     5000
#define TROUBLE_BYTES 256u
#define REASON_BYTES  256u
#define WARNING_LEVEL 4 /* of syslog, as librdkafka counts */

struct partition {
    rd_kafka_queue_t *queue; /* NULL: it was not started */
    uint64_t position;       /* the offset that comes next, or a later one */
    uint64_t lost_below;     /* messages below it were deleted unread */
};

struct hub_kafka_topic {
    struct hub_kafka_options options;
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    char group_name[HUB_KAFKA_GROUP_BYTES]; /* "": it has none */
    struct hub_kafka_group *group;          /* NULL until it is needed */
    struct partition partitions[HUB_PARTS_MAX];
    uint32_t partition_count;
    uint64_t refresh_us;   /* between two questions how many there are; 0: none */
    uint64_t refreshed_us; /* when the last one was asked */
    bool said_too_many;
    uint64_t cluster;
    bool skips_deleted; /* goes on behind what retention has deleted */
    rd_kafka_resp_err_t trouble_code;
    uint64_t trouble_us; /* when it came, or was asked about last */
    bool are_all_down;   /* no broker could be connected to */
    char trouble[TROUBLE_BYTES];
};

/* ---- what librdkafka reports by itself ---- */

static void on_error(rd_kafka_t *client, int code, const char *reason, void *arg)
{
    struct hub_kafka_topic *k = arg;
    k->trouble_us = mr_clock_us();
    k->are_all_down |= code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && k->trouble[0] != '\0')
        return; /* what went wrong with one of them says more */
    k->trouble_code = (rd_kafka_resp_err_t)code;
    snprintf(k->trouble, sizeof(k->trouble), "%s", reason);
}

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    if (level <= WARNING_LEVEL)
        mr_log_debug("kafka", "Kafka: %s: %s", facility, text); /* what matters comes as an error, too */
}

static void on_event(rd_kafka_t *client, void *arg)
{
    const struct hub_kafka_topic *k = arg;
    if (k->options.on_messages != NULL)
        k->options.on_messages(k->options.arg);
}

static void clear_trouble(struct hub_kafka_topic *k)
{
    k->trouble_code = RD_KAFKA_RESP_ERR_NO_ERROR;
    k->are_all_down = false;
    k->trouble[0] = '\0';
}

const char *hub_kafka_trouble(const struct hub_kafka_topic *k)
{
    return k->trouble;
}

/* ---- opening ---- */

static bool is_refusal(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
           code == RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
}

static enum mr_status fail_open(const struct hub_kafka_topic *k, enum mr_status status, const char *why,
                                char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "kafka:%s: %s", k->options.topic, why);
    return status;
}

static enum mr_status refuse_topic(const struct hub_kafka_topic *k, rd_kafka_resp_err_t code, char *error)
{
    if (is_refusal(code))
        return fail_open(k, MR_UNAUTHORIZED, rd_kafka_err2str(code), error);
    if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
        return fail_open(k, MR_INVALID_ARGUMENT, "the brokers have no such topic", error);
    return fail_open(k, MR_IO_ERROR, rd_kafka_err2str(code), error);
}

/* What the brokers say of the topic. MR_NOT_READY: nothing yet. */
static enum mr_status take_metadata(struct hub_kafka_topic *k, const struct rd_kafka_metadata *metadata,
                                    char *error)
{
    const struct rd_kafka_metadata_topic *topic = metadata->topic_cnt == 1 ? &metadata->topics[0] : NULL;
    if (topic == NULL || topic->err == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE)
        return MR_NOT_READY;
    if (topic->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refuse_topic(k, topic->err, error);
    if (topic->partition_cnt < 1 || topic->partition_cnt > (int)HUB_PARTS_MAX) {
        snprintf(error, HUB_ERROR_BYTES, "kafka:%s has %d partitions; a plan reads 1 to %u", k->options.topic,
                 topic->partition_cnt, HUB_PARTS_MAX);
        return MR_INVALID_ARGUMENT;
    }
    k->partition_count = (uint32_t)topic->partition_cnt;
    return MR_OK;
}

static enum mr_status ask_for_metadata(struct hub_kafka_topic *k, char *error)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t code = rd_kafka_metadata(k->client, 0, k->topic, &metadata, ASK_MS);
    rd_kafka_poll(k->client, 0); /* on_error() */
    if (is_refusal(k->trouble_code))
        return fail_open(k, MR_UNAUTHORIZED, k->trouble, error);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return MR_NOT_READY;
    enum mr_status status = take_metadata(k, metadata, error);
    rd_kafka_metadata_destroy(metadata);
    return status;
}

/* Waits for the brokers to answer. */
static enum mr_status find_topic(struct hub_kafka_topic *k, char *error)
{
    const uint64_t begin_us = mr_clock_us();
    enum mr_status status;
    while ((status = ask_for_metadata(k, error)) == MR_NOT_READY) {
        if (k->options.stop != NULL && atomic_load(k->options.stop))
            return fail_open(k, MR_CANCELLED, "the hub stops", error);
        if (mr_clock_us() - begin_us >= (k->are_all_down ? DOWN_LIMIT_US : OPEN_LIMIT_US))
            return fail_open(k, MR_IO_ERROR, k->trouble[0] != '\0' ? k->trouble : "the brokers do not answer",
                             error);
        rd_kafka_poll(k->client, ASK_MS); /* where a question has failed at once */
    }
    return status;
}

static enum mr_status make_client(struct hub_kafka_topic *k, char *error)
{
    char reason[REASON_BYTES];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    enum mr_status status =
        hub_kafka_configure(conf, k->options.brokers, k->options.config_path, &k->skips_deleted, error);
    rd_kafka_conf_set_opaque(conf, k);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    if (status == MR_OK) {
        k->client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
        if (k->client != NULL)
            conf = NULL; /* it is the client's */
        else
            status = fail_open(k, MR_INVALID_ARGUMENT, reason, error);
    }
    if (conf != NULL)
        rd_kafka_conf_destroy(conf);
    if (status == MR_OK && (k->topic = rd_kafka_topic_new(k->client, k->options.topic, NULL)) == NULL)
        status = fail_open(k, MR_INVALID_ARGUMENT, rd_kafka_err2str(rd_kafka_last_error()), error);
    return status;
}

static uint64_t refresh_interval_us(const struct hub_kafka_topic *k)
{
    char value[24];
    size_t bytes = sizeof(value);
    if (rd_kafka_conf_get(rd_kafka_conf(k->client), "topic.metadata.refresh.interval.ms", value, &bytes) !=
        RD_KAFKA_CONF_OK)
        return 0;
    const long long ms = strtoll(value, NULL, 10);
    return ms > 0 ? (uint64_t)ms * 1000 : 0;
}

enum mr_status hub_kafka_open(const struct hub_kafka_options *options, struct hub_kafka_topic **out,
                              char *error)
{
    struct hub_kafka_topic *k = calloc(1, sizeof(*k));
    if (k == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    k->options = *options; /* its texts are the caller's */
    snprintf(k->group_name, sizeof(k->group_name), "%s", options->group != NULL ? options->group : "");
    enum mr_status status = make_client(k, error);
    if (status == MR_OK)
        status = find_topic(k, error);
    if (status != MR_OK) {
        hub_kafka_close(k);
        return status;
    }
    char *cluster = rd_kafka_clusterid(k->client, ANSWER_MS);
    k->cluster =
        cluster != NULL ? XXH3_64bits(cluster, strlen(cluster)) : 0; /* brokers before 0.10.1 have none */
    if (cluster != NULL)
        rd_kafka_mem_free(k->client, cluster);
    clear_trouble(k);
    k->refresh_us = refresh_interval_us(k);
    k->refreshed_us = mr_clock_us();
    *out = k;
    return MR_OK;
}

static void partition_stop(struct hub_kafka_topic *k, uint32_t partition)
{
    struct partition *p = &k->partitions[partition];
    if (p->queue == NULL)
        return;
    rd_kafka_queue_cb_event_enable(p->queue, NULL, NULL);
    (void)rd_kafka_consume_stop(k->topic, (int32_t)partition);
    rd_kafka_queue_destroy(p->queue); /* with what has come */
    p->queue = NULL;
}

void hub_kafka_close(struct hub_kafka_topic *k)
{
    if (k == NULL)
        return;
    for (uint32_t i = 0; i < k->partition_count; i++)
        partition_stop(k, i);
    hub_kafka_group_free(k->group);
    if (k->topic != NULL)
        rd_kafka_topic_destroy(k->topic);
    if (k->client != NULL)
        rd_kafka_destroy(k->client);
    free(k);
}

/* ---- partitions ---- */

/* What the brokers say of the topic now, for rd_kafka_metadata_destroy(); NULL: they do not answer. */
static const struct rd_kafka_metadata *ask_briefly(const struct hub_kafka_topic *k)
{
    const struct rd_kafka_metadata *metadata;
    return rd_kafka_metadata(k->client, 0, k->topic, &metadata, ASK_MS) == RD_KAFKA_RESP_ERR_NO_ERROR
               ? metadata
               : NULL;
}

/* NULL: nothing is known of it now. */
static const struct rd_kafka_metadata_topic *topic_of(const struct rd_kafka_metadata *metadata)
{
    return metadata->topic_cnt == 1 && metadata->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR
               ? &metadata->topics[0]
               : NULL;
}

/* Takes in partitions that were added. A topic that was recreated with fewer keeps its count here: reading
 * them fails. */
static void take_count(struct hub_kafka_topic *k, int partitions)
{
    const int most = (int)HUB_PARTS_MAX;
    if (partitions > most && !k->said_too_many) {
        mr_log_warning(
            "input_too_large",
            "kafka:%s has %d partitions now; a plan reads at most %u: the others are not read, and "
            "the plan cannot be started again",
            k->options.topic, partitions, HUB_PARTS_MAX);
        k->said_too_many = true;
    }
    if (partitions > (int)k->partition_count)
        k->partition_count = (uint32_t)(partitions < most ? partitions : most);
}

uint32_t hub_kafka_partitions(struct hub_kafka_topic *k)
{
    if (k->refresh_us == 0 || k->trouble[0] != '\0' || mr_clock_us() - k->refreshed_us < k->refresh_us)
        return k->partition_count;
    const struct rd_kafka_metadata *metadata = ask_briefly(k);
    if (metadata != NULL) {
        const struct rd_kafka_metadata_topic *topic = topic_of(metadata);
        take_count(k, topic != NULL ? topic->partition_cnt : 0);
        rd_kafka_metadata_destroy(metadata);
    }
    k->refreshed_us = mr_clock_us();
    return k->partition_count;
}

uint64_t hub_kafka_cluster(const struct hub_kafka_topic *k)
{
    return k->cluster;
}

/* ---- messages ---- */

enum mr_status hub_kafka_start(struct hub_kafka_topic *k, uint32_t partition, uint64_t offset, char *error)
{
    struct partition *p = &k->partitions[partition];
    partition_stop(k, partition);
    p->position = offset == HUB_KAFKA_OLDEST ? 0 : offset;
    p->queue = rd_kafka_queue_new(k->client); /* a new one, so that nothing of the old position is in it */
    rd_kafka_queue_cb_event_enable(p->queue, on_event, k);
    if (rd_kafka_consume_start_queue(k->topic, (int32_t)partition,
                                     offset == HUB_KAFKA_OLDEST ? RD_KAFKA_OFFSET_BEGINNING : (int64_t)offset,
                                     p->queue) == 0)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "kafka:%s[%u] cannot be read: %s", k->options.topic, partition,
             rd_kafka_err2str(rd_kafka_last_error()));
    return MR_IO_ERROR;
}

/* An offset was refused: [low, high) are there. False: it was for another reason, or they are not known. */
static bool find_range(struct hub_kafka_topic *k, uint32_t partition, rd_kafka_resp_err_t code, uint64_t *low,
                       uint64_t *high)
{
    int64_t first = -1, end = -1;
    if ((code != RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET && code != RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE) ||
        rd_kafka_query_watermark_offsets(k->client, k->options.topic, (int32_t)partition, &first, &end,
                                         ANSWER_MS) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        first < 0 || end < first)
        return false;
    *low = (uint64_t)first;
    *high = (uint64_t)end;
    return true;
}

/* NULL: there is none. */
static struct hub_kafka_group *group_of(struct hub_kafka_topic *k)
{
    if (k->group == NULL && k->group_name[0] != '\0')
        k->group = hub_kafka_group_new(rd_kafka_conf(k->client), k->options.topic, k->group_name);
    return k->group;
}

void hub_kafka_keep_gap(struct hub_kafka_topic *k, uint32_t partition, uint64_t from, uint64_t to)
{
    struct hub_kafka_group *group = from >= k->partitions[partition].lost_below ? group_of(k) : NULL;
    if (group != NULL)
        hub_kafka_group_keep(group, partition, from, to);
}

/* Offsets [wanted, low) were deleted. Goes on behind them if they had no messages, or if that is wanted. */
static enum hub_kafka_next pass_deleted(struct hub_kafka_topic *k, uint32_t partition, uint64_t wanted,
                                        uint64_t low, char *error)
{
    const char *why = NULL;
    struct hub_kafka_group *group = group_of(k);
    const uint64_t lost = group != NULL ? hub_kafka_group_find(group, partition, wanted, &why) : wanted;
    if (lost < low && !k->skips_deleted) {
        const int at = snprintf(error, HUB_ERROR_BYTES,
                                "kafka:%s[%u]: retention has deleted offsets %" PRIu64 " to %" PRIu64
                                ", at which the plan continues: messages that were not trained on, or ends "
                                "of transactions that no hub has seen; go on behind them with "
                                "auto.offset.reset=earliest in the file of --kafka-config, or give the plan "
                                "another `run`",
                                k->options.topic, partition, lost, low - 1);
        if (why != NULL && at > 0 && (size_t)at < HUB_ERROR_BYTES)
            snprintf(error + at, HUB_ERROR_BYTES - (size_t)at,
                     " (the consumer group %s, which may know more, does not answer: %s)",
                     hub_kafka_group_name(group), why);
        return HUB_KAFKA_FAILED;
    }
    if (lost < low) {
        k->partitions[partition].lost_below = low;
        mr_log_warning("messages_skipped",
                       "kafka:%s[%u]: retention has deleted offsets %" PRIu64 " to %" PRIu64
                       ", which were not trained on: going on behind them",
                       k->options.topic, partition, lost, low - 1);
    } else {
        mr_log_info("gap_deleted",
                    "kafka:%s[%u]: retention has deleted offsets %" PRIu64 " to %" PRIu64
                    ", at which the plan continues: no messages were there",
                    k->options.topic, partition, wanted, low - 1);
    }
    return hub_kafka_start(k, partition, low, error) == MR_OK ? HUB_KAFKA_NONE : HUB_KAFKA_FAILED;
}

/* The partition cannot be read at its position. */
static enum hub_kafka_next fail_partition(struct hub_kafka_topic *k, uint32_t partition,
                                          const rd_kafka_message_t *m, char *error)
{
    const uint64_t wanted = k->partitions[partition].position;
    uint64_t low, high;
    const bool is_out = find_range(k, partition, m->err, &low, &high);
    if (is_out && low > wanted)
        return pass_deleted(k, partition, wanted, low, error);
    if (is_out && wanted > high)
        snprintf(error, HUB_ERROR_BYTES,
                 "kafka:%s[%u] ends at offset %" PRIu64 ", before offset %" PRIu64
                 " at which the plan continues: the topic was recreated, or has lost messages; give the plan "
                 "another `run` to train on what is there",
                 k->options.topic, partition, high, wanted);
    else
        snprintf(error, HUB_ERROR_BYTES, "kafka:%s[%u] cannot be read from offset %" PRIu64 " on: %.200s",
                 k->options.topic, partition, wanted, rd_kafka_message_errstr(m));
    return HUB_KAFKA_FAILED;
}

static bool passes(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
        return true;
    default:
        return false;
    }
}

static enum hub_kafka_next take_error(struct hub_kafka_topic *k, uint32_t partition,
                                      const rd_kafka_message_t *m, char *error)
{
    if (passes(m->err)) {
        on_error(k->client, m->err, rd_kafka_message_errstr(m), k);
        return HUB_KAFKA_NONE;
    }
    return fail_partition(k, partition, m, error);
}

/* Whether the brokers answer, and every partition has a leader that can be reached. */
static bool are_all_led(struct hub_kafka_topic *k)
{
    const struct rd_kafka_metadata *metadata = ask_briefly(k);
    if (metadata == NULL)
        return false;
    const struct rd_kafka_metadata_topic *topic = topic_of(metadata);
    bool are_led = topic != NULL;
    for (int i = 0; are_led && i < topic->partition_cnt; i++)
        are_led = topic->partitions[i].err == RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_metadata_destroy(metadata);
    return are_led;
}

/* No message tells that trouble is over where none is written. */
static void ask_about_trouble(struct hub_kafka_topic *k)
{
    if (k->trouble[0] == '\0' || mr_clock_us() - k->trouble_us < TROUBLE_US)
        return;
    k->trouble_us = mr_clock_us();
    if (are_all_led(k))
        clear_trouble(k);
}

enum hub_kafka_next hub_kafka_next(struct hub_kafka_topic *k, uint32_t partition,
                                   struct hub_kafka_message *message, char *error)
{
    struct partition *p = &k->partitions[partition];
    rd_kafka_message_t *m = rd_kafka_consume_queue(p->queue, 0);
    if (m == NULL) {
        rd_kafka_poll(k->client, 0); /* on_error() */
        ask_about_trouble(k);
        return HUB_KAFKA_NONE;
    }
    *message = (struct hub_kafka_message){.offset = (uint64_t)m->offset, .timestamp_ms = -1};
    enum hub_kafka_next next = HUB_KAFKA_END;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        message->timestamp_ms = rd_kafka_message_timestamp(m, NULL);
        message->bytes = m->payload;
        message->size = m->len;
        message->owner = m;
        next = HUB_KAFKA_MESSAGE;
    } else if (m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        next = take_error(k, partition, m, error);
    }
    if (next == HUB_KAFKA_MESSAGE || next == HUB_KAFKA_END) {
        p->position = message->offset + (next == HUB_KAFKA_MESSAGE);
        clear_trouble(k);
    }
    if (next != HUB_KAFKA_MESSAGE)
        rd_kafka_message_destroy(m);
    return next;
}

void hub_kafka_message_free(struct hub_kafka_message *message)
{
    if (message->owner != NULL)
        rd_kafka_message_destroy(message->owner);
    *message = (struct hub_kafka_message){0};
}

uint64_t hub_kafka_high(const struct hub_kafka_topic *k, uint32_t partition)
{
    int64_t low = -1, high = -1;
    if (rd_kafka_get_watermark_offsets(k->client, k->options.topic, (int32_t)partition, &low, &high) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    return high > 0 ? (uint64_t)high : 0;
}
