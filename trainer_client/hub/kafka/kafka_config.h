/* What a hub tells librdkafka about its Kafka cluster: the brokers, and the properties of a file. */
#ifndef HUB_KAFKA_CONFIG_H
#define HUB_KAFKA_CONFIG_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include "dataplane/wire/format/mr_status.h"

/* Reads the file, of lines "key=value", blank lines and lines that begin with '#', into `conf`, and sets what
 * the hub needs to be so. brokers: HOST:PORT,..., or NULL if the file has bootstrap.servers; config_path:
 * NULL: none. *skips_deleted: the file has auto.offset.reset=earliest. MR_INVALID_ARGUMENT: `error`
 * (HUB_ERROR_BYTES) has the file, the line, and what librdkafka says of it. MR_IO_ERROR, MR_NO_MEMORY. */
enum mr_status hub_kafka_configure(rd_kafka_conf_t *conf, const char *brokers, const char *config_path,
                                   bool *skips_deleted, char *error);

#endif
