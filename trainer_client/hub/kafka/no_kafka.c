/* In the place of kafka_topic.c where librdkafka was not there to build with: no topic can be opened. */
#include <stdio.h>
#include "trainer_client/hub/kafka/kafka_topic.h"
#include "trainer_client/hub/samples/sample_file.h"

enum mr_status hub_kafka_open(const struct hub_kafka_options *options, struct hub_kafka_topic **out,
                              char *error)
{
    snprintf(error, HUB_ERROR_BYTES,
             "kafka:%s: this hub was built without librdkafka and cannot read Kafka; take one that was built "
             "where librdkafka-dev is installed",
             options->topic);
    return MR_UNSUPPORTED;
}

void hub_kafka_close(struct hub_kafka_topic *k)
{
}

uint32_t hub_kafka_partitions(struct hub_kafka_topic *k)
{
    return 0;
}

uint64_t hub_kafka_cluster(const struct hub_kafka_topic *k)
{
    return 0;
}

enum mr_status hub_kafka_start(struct hub_kafka_topic *k, uint32_t partition, uint64_t offset, char *error)
{
    return MR_UNSUPPORTED;
}

enum hub_kafka_next hub_kafka_next(struct hub_kafka_topic *k, uint32_t partition,
                                   struct hub_kafka_message *message, char *error)
{
    return HUB_KAFKA_NONE;
}

void hub_kafka_keep_gap(struct hub_kafka_topic *k, uint32_t partition, uint64_t from, uint64_t to)
{
}

void hub_kafka_message_free(struct hub_kafka_message *message)
{
}

uint64_t hub_kafka_high(const struct hub_kafka_topic *k, uint32_t partition)
{
    return 0;
}

const char *hub_kafka_trouble(const struct hub_kafka_topic *k)
{
    return "";
}
