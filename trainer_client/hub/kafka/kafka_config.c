#include "trainer_client/hub/kafka/kafka_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/samples/sample_file.h"

#define REASON_BYTES 256u
#define OFFSET_RESET                                                                                         \
    "auto.offset.reset" /* the hub's own, for what has been deleted; librdkafka also meets others */

struct property {
    const char *key, *value;
};

/* Unless the file says otherwise. */
static const struct property defaults[] = {
    {"client.id", "millrace-hub"},
    {"queued.max.messages.kbytes", "4096"},          /* of each partition */
    {"topic.metadata.refresh.interval.ms", "60000"}, /* after which partitions that were added are found */
};

/* The server's record says where to continue, and nothing else; a gap is never passed over, and what a
 * transaction has not committed is not read. */
static const struct property fixed[] = {
    {"enable.auto.commit", "false"},       {"enable.auto.offset.store", "false"},
    {"enable.partition.eof", "true"},      {OFFSET_RESET, "error"},
    {"allow.auto.create.topics", "false"}, {"isolation.level", "read_committed"},
};

static bool is_fixed(const char *key)
{
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        if (strcmp(fixed[i].key, key) == 0)
            return true;
    return false;
}

static enum mr_status kafka_config_set(rd_kafka_conf_t *conf, const char *key, const char *value, char *error)
{
    char reason[REASON_BYTES];
    if (rd_kafka_conf_set(conf, key, value, reason, sizeof(reason)) == RD_KAFKA_CONF_OK)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES, "%s = %.100s: %s", key, value, reason);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status set_all(rd_kafka_conf_t *conf, const struct property *all, size_t count, char *error)
{
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < count && status == MR_OK; i++)
        status = kafka_config_set(conf, all[i].key, all[i].value, error);
    return status;
}

/* Without the blanks around it. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

/* NULL, or what is wrong with the line, in `reason` or constant. A value may be a secret, and is not shown.
 */
static const char *take_line(rd_kafka_conf_t *conf, char *line, bool *skips_deleted,
                             char reason[REASON_BYTES])
{
    char *key = trim(line), *equals = strchr(key, '=');
    if (*key == '\0' || *key == '#')
        return NULL;
    if (equals == NULL)
        return "a line is key=value";
    *equals = '\0';
    key = trim(key);
    if (strcmp(key, OFFSET_RESET) == 0) {
        *skips_deleted = strcmp(trim(equals + 1), "earliest") == 0;
        return *skips_deleted || strcmp(trim(equals + 1), "error") == 0 ? NULL
                                                                        : OFFSET_RESET
                   " is error or earliest: any other would pass over messages that are there";
    }
    if (is_fixed(key)) {
        snprintf(reason, REASON_BYTES, "%.60s is the hub's own to set", key);
        return reason;
    }
    return rd_kafka_conf_set(conf, key, trim(equals + 1), reason, REASON_BYTES) == RD_KAFKA_CONF_OK ? NULL
                                                                                                    : reason;
}

static enum mr_status read_file(rd_kafka_conf_t *conf, const char *path, bool *skips_deleted, char *error)
{
    enum mr_status status = MR_OK;
    char *line = NULL, reason[REASON_BYTES];
    size_t room = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "--kafka-config %.300s: %s", path, strerror(errno));
        return MR_IO_ERROR;
    }
    for (uint32_t number = 1; status == MR_OK && getline(&line, &room, file) >= 0; number++) {
        const char *wrong = take_line(conf, line, skips_deleted, reason);
        if (wrong == NULL)
            continue;
        snprintf(error, HUB_ERROR_BYTES, "%.300s:%u: %s", path, number, wrong);
        status = MR_INVALID_ARGUMENT;
    }
    free(line);
    (void)fclose(file);
    return status;
}

static enum mr_status check_brokers(const rd_kafka_conf_t *conf, char *error)
{
    size_t bytes = 0;
    if (rd_kafka_conf_get(conf, "bootstrap.servers", NULL, &bytes) == RD_KAFKA_CONF_OK && bytes > 1)
        return MR_OK;
    snprintf(error, HUB_ERROR_BYTES,
             "the hub knows no Kafka brokers: start it with --kafka HOST:PORT,..., or with "
             "bootstrap.servers in the file of --kafka-config");
    return MR_INVALID_ARGUMENT;
}

enum mr_status hub_kafka_configure(rd_kafka_conf_t *conf, const char *brokers, const char *config_path,
                                   bool *skips_deleted, char *error)
{
    *skips_deleted = false;
    enum mr_status status = set_all(conf, defaults, sizeof(defaults) / sizeof(defaults[0]), error);
    if (status == MR_OK && config_path != NULL)
        status = read_file(conf, config_path, skips_deleted, error);
    if (status == MR_OK && brokers != NULL)
        status = kafka_config_set(conf, "bootstrap.servers", brokers, error);
    if (status == MR_OK)
        status = set_all(conf, fixed, sizeof(fixed) / sizeof(fixed[0]), error);
    return status == MR_OK ? check_brokers(conf, error) : status;
}
