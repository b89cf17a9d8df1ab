/* The path of a plan over a Kafka topic: "kafka:TOPIC" or "kafka:TOPIC?messages=N". Pure, any thread. */
#ifndef HUB_KAFKA_PATH_H
#define HUB_KAFKA_PATH_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define HUB_KAFKA_TOPIC_BYTES  250u /* of a topic's name, with its NUL */
#define HUB_KAFKA_MESSAGES_MAX 65536u

struct hub_kafka_path {
    char topic[HUB_KAFKA_TOPIC_BYTES];
    uint32_t messages; /* of a batch; 0: as many as a batch has samples */
};

bool hub_kafka_path_is(const char *path);
/* MR_INVALID_ARGUMENT: `error` (HUB_ERROR_BYTES) says what is wrong with it. */
enum mr_status hub_kafka_path_parse(const char *path, struct hub_kafka_path *out, char *error);

#endif
