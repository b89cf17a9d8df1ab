#include "ps/config/config.h"

#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/ini.h"
#include "ps/config/config_table.h"

#define PS_CORE_MEMORY_MIB_MIN 64u

static bool on_value(void *arg, uint32_t line, const char *section, const char *name, const char *value,
                     char *why)
{
    struct ps_config *config = arg;
    char text[400];
    const struct ps_config_key *key = ps_config_find(section, name);
    if (key == NULL) {
        ps_config_explain_unknown(section, name, why, MR_INI_WHY_MAX);
        return false;
    }
    if (config->lines[key - ps_config_keys] != 0 && key->type != PS_CONFIG_TYPE_LIST) {
        snprintf(why, MR_INI_WHY_MAX, "%s.%s is given twice", section, name);
        return false;
    }
    if (!ps_config_set_value(config, key, value, text, sizeof(text))) {
        snprintf(why, MR_INI_WHY_MAX, "%s.%s = \"%.64s\": allowed: %.380s", section, name, value, text);
        return false;
    }
    ps_config_note_line(config, key, line);
    return true;
}

enum mr_status ps_config_load(const char *path, struct ps_config *config, char error[PS_CONFIG_ERROR_BYTES])
{
    struct ps_config parsed = *config;
    parsed.path = path;
    memset(parsed.lines, 0, sizeof(parsed.lines));
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(error, PS_CONFIG_ERROR_BYTES,
                 "%.300s: %s; millraced --print-config writes a file to start from", path, strerror(errno));
        return MR_IO_ERROR;
    }
    enum mr_ini outcome = mr_ini_read(file, path, on_value, &parsed, error, PS_CONFIG_ERROR_BYTES);
    fclose(file);
    if (outcome != MR_INI_OK)
        return outcome == MR_INI_WRONG ? MR_INVALID_ARGUMENT : MR_IO_ERROR;
    *config = parsed;
    return MR_OK;
}

enum mr_status ps_config_set(struct ps_config *config, const char *assignment,
                             char error[PS_CONFIG_ERROR_BYTES])
{
    char name[2 * PS_CONFIG_NAME_MAX], text[384];
    size_t length = strcspn(assignment, "=");
    if (assignment[length] != '=' || length >= sizeof(name) || memchr(assignment, '.', length) == NULL) {
        snprintf(error, PS_CONFIG_ERROR_BYTES, "--set %.128s: expected section.key=value", assignment);
        return MR_INVALID_ARGUMENT;
    }
    memcpy(name, assignment, length);
    name[length] = '\0';
    char *dot = strchr(name, '.');
    *dot = '\0';
    const struct ps_config_key *key = ps_config_find(name, dot + 1);
    if (key == NULL) {
        ps_config_explain_unknown(name, dot + 1, text, sizeof(text));
        snprintf(error, PS_CONFIG_ERROR_BYTES, "--set: %s", text);
        return MR_INVALID_ARGUMENT;
    }
    if (key->type == PS_CONFIG_TYPE_LIST && config->lines[key - ps_config_keys] != PS_CONFIG_ON_COMMAND_LINE)
        memset((uint8_t *)config + key->offset, 0, key->bytes);
    if (!ps_config_set_value(config, key, assignment + length + 1, text, sizeof(text))) {
        snprintf(error, PS_CONFIG_ERROR_BYTES, "--set %.96s: allowed: %s", assignment, text);
        return MR_INVALID_ARGUMENT;
    }
    ps_config_note_line(config, key, PS_CONFIG_ON_COMMAND_LINE);
    return MR_OK;
}

/* ---- rules between keys ---- */

#define KEY(name) PS_CONFIG_KEY_##name

struct rule {
    bool is_broken;
    const char *what;
    uint32_t keys[6]; /* that it is about, as ABOUT() gives them; 0 ends them */
};

#define ABOUT(name) (KEY(name) + 1) /* 0: no key */

void ps_config_place(const struct ps_config *config, uint32_t line, char *out, size_t out_bytes)
{
    if (line == PS_CONFIG_ON_COMMAND_LINE)
        snprintf(out, out_bytes, "--set");
    else if (line != 0)
        snprintf(out, out_bytes, "%.160s:%u", config->path, line);
    else
        snprintf(out, out_bytes, "%s", "");
}

static enum mr_status refuse(const struct ps_config *config, const struct rule *rule,
                             char error[PS_CONFIG_ERROR_BYTES])
{
    uint32_t line = 0;
    for (uint32_t i = 0; rule->keys[i] != 0 && line == 0; i++)
        line = config->lines[rule->keys[i] - 1];
    char place[PS_CONFIG_PLACE_BYTES];
    ps_config_place(config, line, place, sizeof(place));
    if (place[0] != '\0')
        snprintf(error, PS_CONFIG_ERROR_BYTES, "%s: %s", place, rule->what);
    else if (config->path != NULL)
        snprintf(error, PS_CONFIG_ERROR_BYTES, "%.160s: %s", config->path, rule->what);
    else
        snprintf(error, PS_CONFIG_ERROR_BYTES, "%s", rule->what);
    return MR_INVALID_ARGUMENT;
}

const char *ps_config_operator_key(const struct ps_config *config)
{
    if (config->node_key_file[0] != '\0' || config->node_key.count == 0)
        return config->node_key_file;
    for (uint32_t i = 0; i < config->node_key.count; i++) {
        enum mr_role role;
        const char *path = ps_role_file_parse(config->node_key.values[i], &role);
        if (path != NULL && role == MR_ROLE_OPERATOR)
            return path;
    }
    return NULL;
}

void ps_config_settle(struct ps_config *c)
{
    if (c->rpc_world_size != 0 && c->rpc_name[0] == '\0' && c->cluster_name[0] != '\0') {
        if (c->cluster_node[0] != '\0')
            snprintf(c->rpc_name, sizeof(c->rpc_name), "%s", c->cluster_node);
        else
            (void)gethostname(c->rpc_name, sizeof(c->rpc_name) - 1);
    }
    if (c->lines[KEY(batches_memory_mib)] == 0 && c->batches_memory_mib > c->memory_limit_mib / 4)
        c->batches_memory_mib = c->memory_limit_mib / 4;
    if (c->lines[KEY(transport_message_mib_max)] == 0 &&
        c->transport_message_mib_max > c->memory_messages_mib / 2)
        c->transport_message_mib_max = c->memory_messages_mib / 2;
}

/* Errors that name the numbers that break a rule. */
struct rule_texts {
    char batches[160], per_core[224], messages[208], device[256];
};

/* For users who have nothing but the printed configuration. */
static void describe_device(char *out, size_t out_bytes)
{
    struct if_nameindex *interfaces = if_nameindex();
    size_t at = (size_t)snprintf(
        out, out_bytes,
        "port.device is not set: name a PCI address, a network interface, or a memif "
        "socket, here or with --set port.device=NAME, or set port.driver = socket; this machine has");
    for (const struct if_nameindex *i = interfaces; i != NULL && i->if_index != 0 && at + 32 < out_bytes; i++)
        at += (size_t)snprintf(out + at, out_bytes - at, "%s %.15s", i == interfaces ? "" : ",", i->if_name);
    if_freenameindex(interfaces);
}

static void describe_numbers(const struct ps_config *c, struct rule_texts *out)
{
    snprintf(out->batches, sizeof(out->batches),
             "batches.memory_mib (%" PRIu64 ") is a part of memory.limit_mib (%" PRIu64
             ") and must be smaller",
             c->batches_memory_mib, c->memory_limit_mib);
    snprintf(out->per_core, sizeof(out->per_core),
             "memory.limit_mib (%" PRIu64 ") is too small: 64 MiB for each core (cores.count = %" PRIu64
             ") and batches.memory_mib (%" PRIu64 ") make %" PRIu64 " at least",
             c->memory_limit_mib, c->cores_count, c->batches_memory_mib,
             c->batches_memory_mib + c->cores_count * PS_CORE_MEMORY_MIB_MIN);
    snprintf(out->messages, sizeof(out->messages),
             "memory.messages_mib (%" PRIu64
             ") is too small: it must hold two messages of transport.message_mib_max (%" PRIu64 ")",
             c->memory_messages_mib, c->transport_message_mib_max);
    describe_device(out->device, sizeof(out->device));
}

enum mr_status ps_config_check(const struct ps_config *c, char error[PS_CONFIG_ERROR_BYTES])
{
    struct rule_texts texts = {0};
    describe_numbers(c, &texts);
    int cpus[64];
    int cpu_count = ps_cpus_parse(c->cores_cpus, cpus, 64);
    uint64_t core_mib = (c->memory_limit_mib - c->batches_memory_mib) / c->cores_count;
    const struct rule rules[] = {
        {c->port_device[0] == '\0' && c->port_driver != PS_DRIVER_SOCKET, texts.device, {ABOUT(port_device)}},
        {c->port_mtu != 0 && c->port_mtu < 1280, "port.mtu: allowed: 0, or 1280 to 9000", {ABOUT(port_mtu)}},
        {cpu_count > 0 && (uint64_t)cpu_count < c->cores_count,
         "cores.cpus names fewer CPUs than cores.count; name one for each core, or none",
         {ABOUT(cores_cpus), ABOUT(cores_count)}},
        {c->batches_memory_mib >= c->memory_limit_mib,
         texts.batches,
         {ABOUT(batches_memory_mib), ABOUT(memory_limit_mib)}},
        {core_mib < PS_CORE_MEMORY_MIB_MIN,
         texts.per_core,
         {ABOUT(memory_limit_mib), ABOUT(batches_memory_mib), ABOUT(cores_count)}},
        {c->memory_messages_mib < 2 * c->transport_message_mib_max,
         texts.messages,
         {ABOUT(memory_messages_mib), ABOUT(transport_message_mib_max)}},
        {c->checkpoint_every_steps != 0 && c->checkpoint_directory[0] == '\0',
         "checkpoint.every_steps saves to checkpoint.directory: set it",
         {ABOUT(checkpoint_every_steps), ABOUT(checkpoint_directory)}},
        {c->checkpoint_remote[0] != '\0' && c->checkpoint_directory[0] == '\0' &&
             c->checkpoint_serve[0] == '\0',
         "checkpoint.remote gets copies of what is in checkpoint.directory: set it",
         {ABOUT(checkpoint_remote), ABOUT(checkpoint_directory)}},
        {c->checkpoint_remote[0] != '\0' && strstr(c->checkpoint_directory, "://") != NULL &&
             c->checkpoint_serve[0] == '\0',
         "checkpoint.directory is in a store already: leave checkpoint.remote out, or name a directory of "
         "this machine",
         {ABOUT(checkpoint_remote), ABOUT(checkpoint_directory)}},
        {c->checkpoint_durable == PS_DURABLE_REMOTE && c->checkpoint_remote[0] == '\0',
         "checkpoint.durable = remote waits for copies in checkpoint.remote: set it",
         {ABOUT(checkpoint_durable), ABOUT(checkpoint_remote)}},
        {c->checkpoint_durability == PS_DURABILITY_LOG && c->cluster_name[0] != '\0',
         "checkpoint.durability = log is for a node by itself: in a cluster another node takes over, which "
         "does not have the log; set it to checkpoint",
         {ABOUT(checkpoint_durability), ABOUT(cluster_name)}},
        {c->checkpoint_durability == PS_DURABILITY_LOG && c->checkpoint_serve[0] == '\0' &&
             (c->checkpoint_directory[0] == '\0' || strstr(c->checkpoint_directory, "://") != NULL),
         "checkpoint.durability = log needs a disk of this machine: set checkpoint.directory to a directory "
         "there (checkpoint.remote copies its checkpoints to a store)",
         {ABOUT(checkpoint_durability), ABOUT(checkpoint_directory)}},
        {c->cluster_copies == PS_COPIES_SYNC && c->cluster_replication < 2,
         "cluster.copies = sync has answers wait for copies, of which there are none: set "
         "cluster.replication "
         "= 2",
         {ABOUT(cluster_copies), ABOUT(cluster_replication)}},
        {c->cluster_name[0] == '\0' && (c->cluster_zookeeper[0] != '\0' || c->cluster_node[0] != '\0' ||
                                        c->cluster_credentials_file[0] != '\0' ||
                                        c->cluster_address[0] != '\0' || c->cluster_init_from[0] != '\0'),
         "cluster.name is not set, so that the node is in no cluster: name the cluster, or leave out the "
         "rest "
         "of the section",
         {ABOUT(cluster_zookeeper), ABOUT(cluster_node), ABOUT(cluster_credentials_file),
          ABOUT(cluster_address), ABOUT(cluster_init_from)}},
        {c->cluster_name[0] != '\0' && c->cluster_zookeeper[0] == '\0',
         "cluster.name is set and cluster.zookeeper is not: name the servers there, as zk1:2181,zk2:2181",
         {ABOUT(cluster_name)}},
        {c->cluster_name[0] != '\0' && c->cluster_address[0] == '\0' && c->port_ipv4[0] == '\0' &&
             c->port_ipv6[0] == '\0',
         "cluster.address: nobody would know where this node is: set it, or port.ipv4",
         {ABOUT(cluster_name)}},
        {c->cluster_name[0] != '\0' && c->checkpoint_serve[0] != '\0',
         "checkpoint.serve: a node that serves a checkpoint read only is in no cluster: leave out "
         "cluster.name",
         {ABOUT(checkpoint_serve), ABOUT(cluster_name)}},
        {c->node_key_file[0] == '\0' && c->node_key_file_next[0] != '\0',
         "node.key_file_next is set and node.key_file is not: name the file of the key in use there",
         {ABOUT(node_key_file_next), ABOUT(node_key_file)}},
        {c->rpc_world_size == 0 &&
             (c->rpc_name[0] != '\0' || c->rpc_module.count > 0 || c->rpc_rendezvous[0] != '\0'),
         "rpc.world_size is 0, so that the node takes no part in remote calls: say how many workers there "
         "are",
         {ABOUT(rpc_name), ABOUT(rpc_module), ABOUT(rpc_world_size)}},
        {c->rpc_name[0] != '\0' && c->rpc_rank >= c->rpc_world_size,
         "rpc.rank must be 0 to rpc.world_size - 1",
         {ABOUT(rpc_rank), ABOUT(rpc_world_size)}},
        {c->rpc_world_size != 0 && c->transport_message_mib_max < 8,
         "remote calls need transport.message_mib_max of 8 at least: other workers send that much at once",
         {ABOUT(transport_message_mib_max), ABOUT(rpc_world_size)}},
        {c->rpc_long_memory_mib != 0 && c->rpc_long_memory_mib < c->rpc_message_mib_max,
         "rpc.long_memory_mib has to hold one message of rpc.message_mib_max: raise it, or lower that",
         {ABOUT(rpc_long_memory_mib), ABOUT(rpc_message_mib_max)}},
        {c->rpc_name[0] == '\0' && c->rpc_rank != 0,
         "rpc.rank: the node is a worker only with a name: give it one with rpc.name",
         {ABOUT(rpc_rank)}},
        {c->rpc_rendezvous[0] != '\0' && c->rpc_name[0] == '\0',
         "rpc.rendezvous: a node that is not where the workers meet is one of them: give it a name with "
         "rpc.name, and rpc.rank",
         {ABOUT(rpc_rendezvous)}},
        {c->rpc_world_size != 0 && c->cluster_name[0] != '\0' && c->rpc_rendezvous[0] == '\0',
         "rpc.rendezvous: the nodes of a cluster are workers of one world: name the node where they meet, "
         "the "
         "same on each of them, as node1:7700",
         {ABOUT(rpc_world_size), ABOUT(cluster_name)}},
        {c->rpc_name[0] == '\0' && c->rpc_module.count > 0,
         "rpc.module: the node offers functions only as a worker: give it a name with rpc.name, and rpc.rank",
         {ABOUT(rpc_module)}},
    };
    for (uint32_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].is_broken)
            return refuse(c, &rules[i], error);
    return MR_OK;
}

bool ps_config_has_role(const struct ps_config *config, enum mr_role role)
{
    enum mr_role found;
    for (uint32_t i = 0; i < config->node_key.count; i++)
        if (ps_role_file_parse(config->node_key.values[i], &found) != NULL && found == role)
            return true;
    return false;
}
