#include "trainer_client/hub/kafka/kafka_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/samples/sample_file.h"

#define PREFIX   "kafka:"
#define MESSAGES "?messages="
#define NAME_CHARACTERS                                                                                      \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-" /* as Kafka has it */

bool hub_kafka_path_is(const char *path)
{
    return strncmp(path, PREFIX, strlen(PREFIX)) == 0;
}

static enum mr_status refuse(const char *path, const char *why, char *error)
{
    snprintf(error, HUB_ERROR_BYTES, "%.200s: %s; a path is kafka:TOPIC or kafka:TOPIC?messages=N", path,
             why);
    return MR_INVALID_ARGUMENT;
}

/* 0: it is none that can be. */
static uint32_t messages_of(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    const unsigned long n = digits >= 1 && digits <= 5 && text[digits] == '\0' ? strtoul(text, NULL, 10) : 0;
    return n <= HUB_KAFKA_MESSAGES_MAX ? (uint32_t)n : 0;
}

enum mr_status hub_kafka_path_parse(const char *path, struct hub_kafka_path *out, char *error)
{
    const char *topic = path + strlen(PREFIX);
    const size_t bytes = strspn(topic, NAME_CHARACTERS);
    const char *rest = topic + bytes;
    uint32_t messages = 0;
    if (strncmp(topic, "//", 2) == 0)
        return refuse(path, "brokers are the hub's (--kafka HOST:PORT,...), not the plan's", error);
    if (bytes == 0 || bytes >= HUB_KAFKA_TOPIC_BYTES)
        return refuse(path, "a topic's name has 1 to 249 letters, digits, '.', '_' and '-'", error);
    if (rest[0] != '\0' && strncmp(rest, MESSAGES, strlen(MESSAGES)) != 0)
        return refuse(path, "what follows the topic is not known", error);
    if (rest[0] != '\0' && (messages = messages_of(rest + strlen(MESSAGES))) == 0)
        return refuse(path, "messages is not a number from 1 to 65536", error);
    *out = (struct hub_kafka_path){.messages = messages};
    memcpy(out->topic, topic, bytes);
    return MR_OK;
}
