/* The server's configuration: an INI file, read at start, and again at a reload (config_reload.h).
 * ps/config/config_keys.def declares the keys.
 *
 * Any error is one line: file and line, the key, what is wrong and what is allowed.
 */
#ifndef PS_CONFIG_H
#define PS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"

#define PS_CONFIG_ERROR_BYTES 512
#define PS_CONFIG_PLACE_BYTES 192 /* of FILE:LINE */

/* One per key. */
enum {
#define PS_TEXT(section, key, value, bytes, check, help) PS_CONFIG_KEY_##section##_##key,
#define PS_NUMBER(section, key, value, low, high, help)  PS_CONFIG_KEY_##section##_##key,
#define PS_CHOICE(section, key, value, choices, help)    PS_CONFIG_KEY_##section##_##key,
#define PS_FLAG(section, key, value, help)               PS_CONFIG_KEY_##section##_##key,
#define PS_LIST(section, key, check, help)               PS_CONFIG_KEY_##section##_##key,
#include "ps/config/config_keys.def"
    PS_CONFIG_KEY_COUNT
};

#define PS_CONFIG_ON_COMMAND_LINE UINT32_MAX

/* Of a key that may be given several times. */
#define PS_CONFIG_LIST_MAX  16u
#define PS_CONFIG_VALUE_MAX 384u
struct ps_config_list {
    uint32_t count, zero;
    uint32_t lines[PS_CONFIG_LIST_MAX]; /* as in struct ps_config */
    char values[PS_CONFIG_LIST_MAX][PS_CONFIG_VALUE_MAX];
};

/* A field per key: <section>_<key>. */
struct ps_config { // NOLINT(clang-analyzer-optin.performance.Padding): the order is that of the file
#define PS_TEXT(section, key, value, bytes, check, help) char section##_##key[bytes];
#define PS_NUMBER(section, key, value, low, high, help)  uint64_t section##_##key;
#define PS_CHOICE(section, key, value, choices, help)    uint32_t section##_##key;
#define PS_FLAG(section, key, value, help)               bool section##_##key;
#define PS_LIST(section, key, check, help)               struct ps_config_list section##_##key;
#include "ps/config/config_keys.def"
    const char *path; /* of the file, for messages; NULL when none was read */
    uint32_t lines
        /* where it gives each key (the first time); 0 = nowhere, or PS_CONFIG_ON_COMMAND_LINE */
        [PS_CONFIG_KEY_COUNT];
};

/* port.driver; the order of enum dp_driver */
enum ps_port_driver {
    PS_DRIVER_AUTO,
    PS_DRIVER_AF_XDP,
    PS_DRIVER_AF_PACKET,
    PS_DRIVER_TAP,
    PS_DRIVER_MEMIF,
    PS_DRIVER_PCI,
    PS_DRIVER_SOCKET
};
enum ps_durable_where { PS_DURABLE_DISK, PS_DURABLE_REMOTE };                     /* checkpoint.durable */
enum ps_durability { PS_DURABILITY_CHECKPOINT, PS_DURABILITY_LOG };               /* checkpoint.durability */
enum ps_cluster_role { PS_ROLE_MEMBER, PS_ROLE_SPARE };                           /* cluster.role */
enum ps_cluster_rebalance { PS_REBALANCE_AUTO, PS_REBALANCE_BY_HAND };            /* cluster.rebalance */
enum ps_cluster_copies { PS_COPIES_ASYNC, PS_COPIES_SYNC };                       /* cluster.copies */
enum ps_hugepages { PS_HUGEPAGES_AUTO, PS_HUGEPAGES_ALWAYS, PS_HUGEPAGES_NEVER }; /* memory.hugepages */

/* Every key at its default. */
void ps_config_default(struct ps_config *config);

/* Reads `path` over what is in `config`. Refuses unknown sections and keys, keys given twice, values of a
 * wrong type or out of their range. MR_INVALID_ARGUMENT, MR_IO_ERROR; `error` gets the first one and `config`
 * is untouched then. `path` must stay as long as `config`. */
enum mr_status ps_config_load(const char *path, struct ps_config *config, char error[PS_CONFIG_ERROR_BYTES]);

/* One "section.key=value", as given on the command line. Of a list, the first takes the place of the file's,
 * and further ones are added. */
enum mr_status ps_config_set(struct ps_config *config, const char *assignment,
                             char error[PS_CONFIG_ERROR_BYTES]);

/* "FILE:LINE" or "--set": where a key was given, by its entry of `lines`. "" when it was not. */
void ps_config_place(const struct ps_config *config, uint32_t line, char *out, size_t out_bytes);

/* Keys that nobody gave follow those that somebody did, where their defaults would contradict them:
 * batches.memory_mib memory.limit_mib, and transport.message_mib_max memory.messages_mib; and in a cluster
 * rpc.name the node's name there. Before ps_config_check. */
void ps_config_settle(struct ps_config *config);

/* Rules between keys, and keys that must be given. Names the place of the first key of the rule that was
 * given. */
enum mr_status ps_config_check(const struct ps_config *config, char error[PS_CONFIG_ERROR_BYTES]);

/* Whether a key of that role is listed as node.key. */
bool ps_config_has_role(const struct ps_config *config, enum mr_role role);

/* The file of the first operator's key among node.key_file and node.key, under which the node calls other
 * nodes; "": there are no keys; NULL: none of them is an operator's. Points into `config`. */
const char *ps_config_operator_key(const struct ps_config *config);

/* A file with every key, its help, what is allowed, and its default: as a comment where it follows other
 * keys. */
void ps_config_print(FILE *out);

#endif
