#include "trainer_client/hub/kafka/kafka_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "trainer_client/hub/plan/parts.h"

#define INTERVAL_US UINT64_C(1000000)    /* between two requests */
#define FAILED_US   UINT64_C(60000000)   /* after one that failed */
#define AGAIN_US    UINT64_C(3600000000) /* brokers keep offsets of a group that rests for days */
#define CLOSE_MS    1000
#define ANSWER_MS   5000
#define FROM_TEXT   "millrace from %" PRIu64 /* the metadata */
#define FROM_BYTES  40u

/* Offsets of a partition that have no message. */
struct gap {
    uint64_t from, to; /* from < to; both 0: none is known */
    uint64_t sent_us;  /* 0: it is to be sent */
};

struct hub_kafka_group {
    const char *topic;
    char name[HUB_KAFKA_GROUP_BYTES];
    rd_kafka_t *client;
    rd_kafka_queue_t *answers;
    bool is_asked; /* a request is on its way */
    bool said_failed;
    uint64_t next_us; /* no request before that */
    struct gap gaps[HUB_PARTS_MAX];
};

static rd_kafka_t *group_client(struct hub_kafka_group *g, const rd_kafka_conf_t *of_reader)
{
    char reason[256];
    size_t bytes = sizeof(g->name);
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(of_reader);
    rd_kafka_conf_set_error_cb(conf, NULL); /* the reader's trouble is another one */
    rd_kafka_t *client = NULL;
    char given[HUB_KAFKA_GROUP_BYTES] = "";
    if (rd_kafka_conf_get(conf, "group.id", given, &bytes) == RD_KAFKA_CONF_OK && given[0] != '\0')
        memcpy(g->name, given, sizeof(given));
    if (rd_kafka_conf_set(conf, "group.id", g->name, reason, sizeof(reason)) == RD_KAFKA_CONF_OK &&
        rd_kafka_conf_set(conf, "statistics.interval.ms", "0", reason, sizeof(reason)) == RD_KAFKA_CONF_OK)
        client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
    if (client == NULL) {
        mr_log_warning("group_failed", "kafka:%s: no client for the consumer group %s: %s", g->topic, g->name,
                       reason);
        rd_kafka_conf_destroy(conf);
    }
    return client;
}

struct hub_kafka_group *hub_kafka_group_new(const rd_kafka_conf_t *conf, const char *topic, const char *name)
{
    struct hub_kafka_group *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->topic = topic;
    snprintf(g->name, sizeof(g->name), "%s", name);
    g->client = group_client(g, conf);
    if (g->client == NULL) {
        free(g);
        return NULL;
    }
    g->answers = rd_kafka_queue_new(g->client);
    return g;
}

const char *hub_kafka_group_name(const struct hub_kafka_group *g)
{
    return g->name;
}

/* ---- keeping ---- */

/* Nothing is known to be kept now: all is sent again, later. */
static void group_failed(struct hub_kafka_group *g, rd_kafka_resp_err_t code)
{
    for (uint32_t i = 0; i < HUB_PARTS_MAX; i++)
        g->gaps[i].sent_us = 0;
    g->next_us = mr_clock_us() + FAILED_US;
    if (g->said_failed)
        return;
    g->said_failed = true;
    mr_log_warning(
        "group_failed",
        "kafka:%s: the consumer group %s takes no offsets: %s; if retention deletes the end of a "
        "transaction at which the plan continues, nobody will know that it was no message: let the "
        "hub read and commit that group, or give it another one by group.id in the file of "
        "--kafka-config",
        g->topic, g->name, rd_kafka_err2str(code));
}

static rd_kafka_resp_err_t answer_code(rd_kafka_event_t *answer)
{
    rd_kafka_resp_err_t code = rd_kafka_event_error(answer);
    const rd_kafka_topic_partition_list_t *all = rd_kafka_event_topic_partition_list(answer);
    for (int i = 0; code == RD_KAFKA_RESP_ERR_NO_ERROR && all != NULL && i < all->cnt; i++)
        code = all->elems[i].err;
    return code;
}

static void take_answer(struct hub_kafka_group *g, int timeout_ms)
{
    rd_kafka_event_t *answer = rd_kafka_queue_poll(g->answers, timeout_ms);
    if (answer == NULL)
        return;
    g->is_asked = false;
    const rd_kafka_resp_err_t code = answer_code(answer);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        g->said_failed = false;
    else
        group_failed(g, code);
    rd_kafka_event_destroy(answer);
}

static void add_gap(rd_kafka_topic_partition_list_t *list, const char *topic, uint32_t partition,
                    const struct gap *gap)
{
    char text[FROM_BYTES];
    rd_kafka_topic_partition_t *one = rd_kafka_topic_partition_list_add(list, topic, (int32_t)partition);
    snprintf(text, sizeof(text), FROM_TEXT, gap->from);
    one->offset = (int64_t)gap->to;
    one->metadata = strdup(text); /* the list's */
    one->metadata_size = one->metadata != NULL ? strlen(text) : 0;
}

/* Sends what is new of all partitions, in one request. */
static void send_gaps(struct hub_kafka_group *g, uint64_t now_us)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    for (uint32_t i = 0; i < HUB_PARTS_MAX; i++) {
        struct gap *gap = &g->gaps[i];
        if (gap->to == 0 || (gap->sent_us != 0 && now_us - gap->sent_us < AGAIN_US))
            continue;
        add_gap(list, g->topic, i, gap);
        gap->sent_us = now_us;
    }
    g->next_us = now_us + INTERVAL_US;
    g->is_asked = list->cnt > 0 && rd_kafka_commit_queue(g->client, list, g->answers, NULL, NULL) ==
                                       RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
}

void hub_kafka_group_keep(struct hub_kafka_group *g, uint32_t partition, uint64_t from, uint64_t to)
{
    const uint64_t now_us = mr_clock_us();
    struct gap *gap = &g->gaps[partition];
    if (gap->from != from || gap->to != to)
        *gap = (struct gap){from, to, 0};
    rd_kafka_poll(g->client, 0);
    if (g->is_asked)
        take_answer(g, 0);
    if (!g->is_asked && now_us >= g->next_us && (gap->sent_us == 0 || now_us - gap->sent_us >= AGAIN_US))
        send_gaps(g, now_us);
}

void hub_kafka_group_free(struct hub_kafka_group *g)
{
    if (g == NULL)
        return;
    if (g->is_asked)
        take_answer(g, CLOSE_MS);
    if (!g->is_asked && !g->said_failed)
        send_gaps(g, mr_clock_us());
    if (g->is_asked)
        take_answer(g, CLOSE_MS);
    rd_kafka_queue_destroy(g->answers);
    rd_kafka_destroy_flags(g->client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE); /* closing may wait for ever */
    free(g);
}

/* ---- finding ---- */

/* The metadata is exactly that of `from`. */
static bool is_from(const rd_kafka_topic_partition_t *one, uint64_t from)
{
    char text[FROM_BYTES];
    const int bytes = snprintf(text, sizeof(text), FROM_TEXT, from);
    return one->metadata != NULL && one->metadata_size == (size_t)bytes &&
           memcmp(one->metadata, text, (size_t)bytes) == 0;
}

uint64_t hub_kafka_group_find(struct hub_kafka_group *g, uint32_t partition, uint64_t from, const char **why)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    const rd_kafka_topic_partition_t *one =
        rd_kafka_topic_partition_list_add(list, g->topic, (int32_t)partition);
    rd_kafka_resp_err_t code = rd_kafka_committed(g->client, list, ANSWER_MS);
    code = code == RD_KAFKA_RESP_ERR_NO_ERROR ? one->err : code;
    *why = code == RD_KAFKA_RESP_ERR_NO_ERROR ? NULL : rd_kafka_err2str(code);
    const bool is_known = *why == NULL && one->offset > (int64_t)from && is_from(one, from);
    const uint64_t to = is_known ? (uint64_t)one->offset : from;
    rd_kafka_topic_partition_list_destroy(list);
    return to;
}
