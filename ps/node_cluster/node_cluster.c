#include "ps/node_cluster/node_cluster.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"
#include "ps/config/config_rules.h"
#include "ps/node_cluster/node_cluster_internal.h"
#include "ps/store/store_url.h"

#define FENCE_US_MAX   3000000u
#define LOOK_US        10000u  /* at what goes on */
#define COPIES_LOOK_US 250000u /* at copies that follow */

void ps_node_cluster_report(struct ps_node_cluster *c)
{
    if (c->zookeeper != NULL)
        ps_zookeeper_report(c->zookeeper, &c->report);
}

/* ---- what the control thread asks for ---- */

static void write_catalog(void *context, const struct ps_cluster_catalog *next)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    if (c->zookeeper != NULL)
        ps_zookeeper_write_catalog(c->zookeeper, next);
    pthread_mutex_unlock(&c->lock);
}

static void report_catalog(void *context, const struct ps_cluster_features_report *report)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->report.features = *report;
    ps_node_cluster_report(c);
    pthread_mutex_unlock(&c->lock);
}

void ps_node_cluster_wake(void *context)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    if (c->zookeeper != NULL) {
        ps_zookeeper_read_all(c->zookeeper);
        ps_zookeeper_wake(c->zookeeper);
    }
    pthread_mutex_unlock(&c->lock);
}

static void serve(void *context, uint64_t session)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->features_session = session;
    ps_node_cluster_renew_lease(c);
    ps_node_cluster_note_change(c);
    pthread_mutex_unlock(&c->lock);
}

/* For a feature that is to be created. */
static enum mr_status use(void *context, uint64_t needs, char *text)
{
    struct ps_node_cluster *c = context;
    struct ps_cluster_node node = {0};
    char version[MR_VERSION_TEXT_BYTES], lacks[128];
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_map *map = &c->member.map;
    const uint32_t lacking = ps_cluster_map_lacking(map, needs);
    if (lacking != PS_CLUSTER_NO_NODE)
        node = map->nodes[lacking];
    else
        c->wants |= needs & ~map->needs;
    struct ps_zookeeper *zookeeper = c->zookeeper;
    if (lacking == PS_CLUSTER_NO_NODE && zookeeper != NULL)
        ps_zookeeper_wake(zookeeper);
    pthread_mutex_unlock(&c->lock);
    if (lacking == PS_CLUSTER_NO_NODE)
        return MR_OK;
    mr_version_name(&node.version, version);
    mr_capability_text(needs & ~node.version.capabilities, lacks, sizeof(lacks));
    (void)snprintf(
        text, PS_RULES_TEXT_BYTES,
        "it needs %.90s, which node %.63s lacks: it has version %s, and this node version %s; upgrade "
        "all nodes first (millrace ctl nodes)",
        lacks, node.name, version, mr_version_text());
    return MR_VERSION_MISMATCH;
}

static void node_cluster_poll(void *context)
{
    struct ps_node_cluster *c = context;
    ps_node_cluster_apply_map(c);
    ps_node_cluster_poll_migrations(c);
    ps_node_cluster_poll_copies(c);
    ps_node_cluster_poll_take_over(c);
    ps_node_cluster_poll_save(c); /* the previous migration has released the dirty bits */
    ps_node_cluster_answer_move(c);
}

static uint64_t node_cluster_pause_us(void *context)
{
    struct ps_node_cluster *c = context;
    if (c->load.waits || ps_node_cluster_is_migrating(c) || ps_node_cluster_is_taking_over(c) ||
        c->copies.waits)
        return LOOK_US;
    return c->copies.feed_count + c->copies.follower_count > 0 ? COPIES_LOOK_US : UINT64_MAX;
}

static const struct ps_control_cluster_ops control_ops = {.write_catalog = write_catalog,
                                                          .report = report_catalog,
                                                          .use = use,
                                                          .wake = ps_node_cluster_wake,
                                                          .serve = serve,
                                                          .poll = node_cluster_poll,
                                                          .pause_us = node_cluster_pause_us,
                                                          .save = ps_node_cluster_save,
                                                          .move = ps_node_cluster_move,
                                                          .show_moves = ps_node_cluster_show_moves};

static bool copies_have(void *context, uint64_t cut)
{
    return ps_node_cluster_copies_have(context, cut);
}

/* ---- life ---- */

__attribute__((format(printf, 2, 3))) static bool fail(char *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error, DP_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_credentials(struct ps_node_cluster *c, char *error)
{
    const char *path = c->node->config->cluster_credentials_file;
    struct stat st;
    if (path[0] == '\0')
        return true;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return fail(error, "cluster.credentials_file = %.200s: %s", path, strerror(errno));
    const bool is_line =
        fstat(fileno(f), &st) == 0 && fgets(c->credentials, sizeof(c->credentials), f) != NULL;
    (void)fclose(f);
    if (!is_line)
        return fail(error, "cluster.credentials_file = %.200s: it is empty: write USER:PASSWORD into it",
                    path);
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return fail(error, "cluster.credentials_file = %.200s: others can read it: chmod 0600 it", path);
    c->credentials[strcspn(c->credentials, "\n")] = '\0';
    const char *colon = strchr(c->credentials, ':');
    return (colon != NULL && colon != c->credentials && colon[1] != '\0') ||
           fail(error, "cluster.credentials_file = %.200s: its line is not USER:PASSWORD", path);
}

static bool find_name(struct ps_node_cluster *c, char *error)
{
    char *name = c->options.self.name;
    char host[256] = "";
    (void)gethostname(host, sizeof(host) - 1);
    const char *from = c->node->config->cluster_node[0] != '\0' ? c->node->config->cluster_node : host;
    if (from[0] == '\0' || strlen(from) >= PS_CLUSTER_NAME_BYTES || ps_rule_cluster_name(from) != NULL)
        return fail(
            error,
            "cluster.node is not set, and this machine's name \"%.100s\" is no name for a node: set it",
            from);
    (void)snprintf(name, PS_CLUSTER_NAME_BYTES, "%s", from);
    return true;
}

static bool prepare_load(struct ps_node_cluster *c, char *error)
{
    const struct ps_config *config = c->node->config;
    c->load = (struct ps_cluster_load){.cluster = c->options.cluster,
                                       .node = c->options.self.name,
                                       .init_from = config->cluster_init_from,
                                       .commit = {.directory = c->save.directory,
                                                  .credentials = config->checkpoint_remote_credentials,
                                                  .pause_ms_max = (uint32_t)config->checkpoint_store_pause_ms,
                                                  .retention = ps_control_retention(config),
                                                  .ended = ps_node_cluster_wake,
                                                  .context = c}};
    return ps_cluster_init_create(&c->load.init, config->cluster_init_from) ||
           fail(error, "cluster.init_from = %.200s: it is too long", config->cluster_init_from);
}

static void find_address(struct ps_node_cluster *c)
{
    const struct ps_config *config = c->node->config;
    char *address = c->options.self.address;
    if (config->cluster_address[0] != '\0')
        (void)snprintf(address, PS_CLUSTER_NAME_BYTES, "%s", config->cluster_address);
    else if (config->port_ipv4[0] != '\0')
        (void)snprintf(address, PS_CLUSTER_NAME_BYTES, "%.*s:%u", (int)strcspn(config->port_ipv4, "/"),
                       config->port_ipv4, (unsigned)config->port_udp_port);
    else
        (void)snprintf(address, PS_CLUSTER_NAME_BYTES, "[%.*s]:%u", (int)strcspn(config->port_ipv6, "/"),
                       config->port_ipv6, (unsigned)config->port_udp_port);
}

bool ps_node_cluster_config(const struct ps_node_cluster *c, struct ps_config *config, char *error)
{
    config->checkpoint_every_s = config->checkpoint_every_steps = 0;
    config->checkpoint_save_on_stop = false;
    if (config->checkpoint_remote[0] != '\0')
        return fail(
            error, "checkpoint.remote is not for members of a cluster: let checkpoint.directory be that URL, "
                   "which all nodes see");
    if (c->save.directory[0] == '\0' ||
        ps_store_url_join(c->save.directory, c->options.self.name, config->checkpoint_directory,
                          sizeof(config->checkpoint_directory)))
        return true;
    return fail(error, "checkpoint.directory = %.200s: with this node's name it is too long",
                c->save.directory);
}

/* The leader commits checkpoints, so every node must be able to. */
static bool start_commit(struct ps_node_cluster *c, char *error)
{
    if (c->save.directory[0] == '\0')
        return true;
    c->save.commit = ps_cluster_commit_start(&c->load.commit);
    return c->save.commit != NULL || fail(error, "the thread that commits checkpoints cannot be started");
}

struct ps_node_cluster *ps_node_cluster_create(struct ps_node *node, char *error)
{
    struct ps_node_cluster *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        fail(error, "no memory left");
        return NULL;
    }
    c->node = node;
    (void)snprintf(c->save.directory, sizeof(c->save.directory), "%s", node->config->checkpoint_directory);
    c->save.copies_have = copies_have;
    c->save.context = c;
    c->save.every_us = node->config->checkpoint_every_s * UINT64_C(1000000);
    c->said_served = c->said_nodes = UINT32_MAX;
    memset(c->owned.since, 0xff, sizeof(c->owned.since));
    memset(c->since, 0xff, sizeof(c->since));
    c->options = (struct ps_zookeeper_options){
        .servers = node->config->cluster_zookeeper,
        .cluster = node->config->cluster_name,
        .credentials = c->credentials,
        .session_ms = (uint32_t)node->config->cluster_session_ms,
        .self = {.core_count = node->core_count,
                 .is_spare = node->config->cluster_role == PS_ROLE_SPARE,
                 .take_over_s = (uint32_t)node->config->cluster_take_over_s,
                 .replication = (uint32_t)node->config->cluster_replication,
                 .answers_wait = node->config->cluster_copies == PS_COPIES_SYNC},
        .partition_count = MR_PARTITION_COUNT,
        .events = &ps_node_cluster_events,
        .context = c};
    if (!read_credentials(c, error) || !find_name(c, error) || !prepare_load(c, error)) {
        explicit_bzero(c->credentials, sizeof(c->credentials));
        free(c);
        return NULL;
    }
    find_address(c);
    (void)snprintf(c->options.self.host, sizeof(c->options.self.host), "%s", node->config->cluster_host);
    if (ps_control_join(node->control, c->options.self.name, &control_ops, c) != MR_OK) {
        fail(error, "no memory left");
        explicit_bzero(c->credentials, sizeof(c->credentials));
        free(c);
        return NULL;
    }
    if (c->load.init.directory[0] != '\0')
        ps_control_cluster_hold(node->control);
    (void)pthread_mutex_init(&c->lock, NULL);
    return c;
}

void ps_node_cluster_destroy(struct ps_node_cluster *c)
{
    if (c == NULL)
        return;
    ps_cluster_init_destroy(&c->load.init);
    (void)pthread_mutex_destroy(&c->lock);
    explicit_bzero(c->credentials, sizeof(c->credentials));
    free(c->info);
    free(c);
}

enum mr_status ps_node_cluster_start(struct ps_node_cluster *c, char *error)
{
    char text[PS_CLUSTER_TEXT_BYTES] = "";
    c->options.self.start_id = c->node->start_id;
    c->options.self.version = mr_version_own();
    pthread_mutex_lock(&c->lock); /* the control thread looks for migrations already */
    ps_member_init(&c->member, &ps_node_cluster_member_ops, c, &c->options.self,
                   c->options.session_ms * UINT64_C(1000), FENCE_US_MAX, MR_PARTITION_COUNT);
    pthread_mutex_unlock(&c->lock);
    mr_log_with(
        MR_LOG_INFO,
        MR_LOG_FIELDS({"cluster", .text = c->options.cluster}, {"zookeeper", .text = c->options.servers}),
        "cluster", "cluster %s: this is node %s at %s; the coordinator is ZooKeeper at %s",
        c->options.cluster, c->options.self.name, c->options.self.address, c->options.servers);
    if (!start_commit(c, error))
        return MR_NO_MEMORY;
    pthread_mutex_lock(&c->lock); /* what it hears first may need `zookeeper` */
    const enum mr_status status = ps_zookeeper_start(&c->options, &c->zookeeper, text);
    pthread_mutex_unlock(&c->lock);
    if (status != MR_OK)
        fail(error, "cluster.zookeeper = %.150s: %.200s", c->options.servers, text);
    return status;
}

void ps_node_cluster_stop(struct ps_node_cluster *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    struct ps_zookeeper *zookeeper = c->zookeeper;
    c->is_stopped = true;
    c->zookeeper = NULL; /* the control thread may ask for something meanwhile */
    ps_node_cluster_renew_lease(c);
    pthread_mutex_unlock(&c->lock);
    /* Who leads next may give up what this node is about to commit. */
    ps_cluster_commit_stop(c->save.commit);
    c->save.commit = NULL;
    ps_zookeeper_stop(zookeeper);
}
