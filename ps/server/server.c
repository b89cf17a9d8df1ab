#include "ps/server/server.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/base/trace.h"
#include "ps/base/cpu_affinity.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/config/config_rules.h"
#include "ps/control/control.h"
#include "ps/node_cluster/node_cluster.h"
#include "ps/core/core.h"
#include "ps/core/facts.h"
#include "ps/core/annotations.h"
#include "ps/memory/prefault.h"
#include "ps/ops/ops.h"
#include "ps/ops/push_replay.h"
#include "ps/server/drop_log.h"
#include "ps/server/incarnation.h"
#include "ps/server/kept_files.h"
#include "ps/server/keys.h"
#include "ps/server/node_metrics.h"
#include "ps/server/checkpoint_sync.h"
#include "ps/server/poll.h"
#include "ps/server/reload.h"
#include "ps/server/privileges.h"
#include "ps/server/rpc_node.h"
#include "ps/server/serve.h"
#include "ps/server/watch.h"

struct ps_server {
    struct ps_node node;
    struct ps_node_metrics *metrics; /* NULL: nobody may ask for them */
    struct ps_config given;          /* the configuration as it was read, with what reloads have changed */
    struct ps_kept_files kept_files;
    struct ps_config config; /* the one in use: cluster and checkpoint.serve decide some keys */
    struct ps_watch *watch;  /* for systemd; NULL: nobody is told */
    bool started;            /* dp_start succeeded */
    bool left_world;         /* its worker has been closed */
    enum dp_port_state port; /* as ps_server_watch_port has seen it last */
    struct ps_drop_log drops;
};

/* ---- configuration ---- */

static void set_port(const struct ps_config *config, struct dp_config *out)
{
    static const int hugepages[] = {
        [PS_HUGEPAGES_AUTO] = -1, [PS_HUGEPAGES_ALWAYS] = 1, [PS_HUGEPAGES_NEVER] = 0};
    snprintf(out->file_prefix, sizeof(out->file_prefix), "%s", config->node_name);
    out->hugepage_memory_mib = (uint32_t)config->memory_packets_mib;
    out->hugepages = hugepages[config->memory_hugepages];
    out->driver = (enum dp_driver)config->port_driver;
    snprintf(out->device, sizeof(out->device), "%s", config->port_device);
    snprintf(out->mac, sizeof(out->mac), "%s", config->port_mac);
    snprintf(out->ipv4, sizeof(out->ipv4), "%s", config->port_ipv4);
    snprintf(out->ipv6, sizeof(out->ipv6), "%s", config->port_ipv6);
    snprintf(out->ipv4_gateway, sizeof(out->ipv4_gateway), "%s", config->port_ipv4_gateway);
    snprintf(out->ipv6_gateway, sizeof(out->ipv6_gateway), "%s", config->port_ipv6_gateway);
    out->vlan = (uint16_t)config->port_vlan;
    out->mtu = (uint16_t)config->port_mtu;
    out->udp_port = (uint16_t)config->port_udp_port;
    out->rx_descriptors = (uint16_t)config->port_rx_descriptors;
    out->tx_descriptors = (uint16_t)config->port_tx_descriptors;
}

static void set_fault(const struct ps_config *config, struct dp_fault_config *out)
{
    out->direction = (enum dp_fault_direction)config->fault_direction;
    out->seed = config->fault_seed;
    out->rates = (struct dp_fault_rates){.loss_ppm = (uint32_t)config->fault_loss_ppm,
                                         .duplicate_ppm = (uint32_t)config->fault_duplicate_ppm,
                                         .reorder_ppm = (uint32_t)config->fault_reorder_ppm,
                                         .delay_ppm = (uint32_t)config->fault_delay_ppm,
                                         .corrupt_ppm = (uint32_t)config->fault_corrupt_ppm,
                                         .reorder_packets = (uint32_t)config->fault_reorder_packets,
                                         .delay_us = (uint32_t)config->fault_delay_us};
}

static void dp_config_of(const struct ps_node *node, struct dp_config *out)
{
    const struct ps_config *config = node->config;
    dp_config_default(out);
    set_port(config, out);
    set_fault(config, &out->fault);
    out->core_count = (uint32_t)config->cores_count;
    for (uint32_t i = 0; i < out->core_count; i++)
        out->core_cpus[i] = i < node->cpu_count ? node->cpus[i] : -1;
    out->poll_mode = (enum dp_poll_mode)config->cores_poll_mode;
    out->adaptive_idle_us = (uint32_t)config->cores_adaptive_idle_us;
    out->cpu_events = config->cores_cpu_events;
    out->measured_turns = (uint32_t)config->cores_measured_turns;
    out->endpoint.sessions_max = (uint32_t)config->transport_sessions_max;
    out->endpoint.sessions_per_address = (uint32_t)config->transport_sessions_per_address;
    out->endpoint.hellos_per_address = (uint32_t)config->transport_hellos_per_address;
    out->endpoint.message_bytes_max = (uint32_t)(config->transport_message_mib_max * MR_MIB);
    out->endpoint.receive_window_bytes = (uint32_t)config->transport_receive_window_kib * 1024;
    out->endpoint.memory_bytes = config->memory_messages_mib * MR_MIB;
    out->endpoint.session_memory_bytes = config->transport_session_memory_mib * MR_MIB;
    if (!config->transport_bundle)
        out->endpoint.bundle_bytes_max = 0;
    out->endpoint.session_idle_us = config->transport_session_idle_s * 1000000;
    out->endpoint.map_version = 1;
    out->endpoint.takes_epochs = node->is_member;
}

/* ---- keys ---- */

static enum mr_status configure_keys(const struct ps_config *config, struct mr_endpoint_config *endpoint,
                                     char error[DP_ERROR_BYTES])
{
    struct ps_keys keys;
    char text[96];
    enum mr_status status = ps_keys_read(config, &keys, error);
    if (status == MR_OK) {
        static_assert(sizeof(endpoint->psk) == sizeof(keys.psks), "the same keys");
        memcpy(endpoint->psk, keys.psks, sizeof(keys.psks));
        memcpy(endpoint->psk_roles, keys.roles, sizeof(keys.roles));
        endpoint->psk_count = keys.count;
    }
    if (status == MR_OK && keys.count == 0) {
        mr_log_warning("no_key",
                       "no key: everybody who can reach the port may do everything (set node.key_file)");
    } else if (status == MR_OK) {
        ps_keys_describe(&keys, text, sizeof(text));
        mr_log_info("keys", "%s", text);
    }
    explicit_bzero(&keys, sizeof(keys));
    return status;
}

static void set_core_keys(struct ps_core *core, void *arg)
{
    const struct ps_keys *keys = arg;
    mr_endpoint_set_role_keys(dp_core_endpoint(core->dp_core), keys->psks, keys->roles, keys->count,
                              dp_now_us());
}

/* True: there are key files. */
static bool has_key_files(const struct ps_config *config)
{
    return config->node_key_file[0] != '\0' || config->node_key.count > 0;
}

enum mr_status ps_server_reload(struct ps_server *server, const struct ps_config *config,
                                char error[DP_ERROR_BYTES])
{
    struct ps_keys keys;
    enum mr_status status = ps_keys_read_again(config, has_key_files(&server->given), &keys, error);
    if (status == MR_OK && !ps_reload(&server->node, &server->given, &server->config, config, error))
        status = MR_INVALID_ARGUMENT;
    if (status == MR_OK && keys.missing[0] != '\0')
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"paths", .text = keys.missing}), "key_file_missing",
                    "key files are missing, and what was in them is no key any more: %s", keys.missing);
    if (status == MR_OK && keys.count > 0) {
        ps_node_each_core(&server->node, set_core_keys, &keys);
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"keys", .number = keys.count}), "keys_read",
                    "keys read again: %u in use", keys.count);
    }
    if (status == MR_OK)
        (void)ps_kept_files_warn(&server->kept_files, &server->config);
    explicit_bzero(&keys, sizeof(keys));
    return status;
}

/* ---- start ---- */

static enum mr_status open_with_keys(struct ps_server *server, struct dp_config *config,
                                     char error[DP_ERROR_BYTES])
{
    struct ps_node *node = &server->node;
    enum mr_status status = ps_control_claim_directory(node->control, error);
    if (status != MR_OK)
        return status;
    status = ps_checkpoint_sync_fetch_history(node, error);
    if (status != MR_OK)
        return status;
    const struct ps_place *own = ps_control_own_place(node->control);
    status = ps_incarnation_next(own->store, own->path, &node->incarnation, error, DP_ERROR_BYTES);
    if (status == MR_OK)
        status = ps_incarnation_start_id(&node->start_id, error, DP_ERROR_BYTES);
    if (status == MR_OK)
        status = ps_incarnation_key_secret(&node->key_secret, error, DP_ERROR_BYTES);
    if (status == MR_OK)
        status = ps_control_open_history(node->control, error, DP_ERROR_BYTES);
    if (status != MR_OK)
        return status;
    config->endpoint.incarnation = node->incarnation;
    config->endpoint.start_id = node->start_id;
    config->endpoint.lineage = ps_control_lineage(node->control);
    config->endpoint.restores = atomic_load(&node->restores);
    if (config->fault.direction != DP_FAULT_OFF)
        mr_log_warning("fault_injection",
                       "fault.direction is on: packets are lost and damaged on purpose; this is for tests");
    node->message_bytes_max = config->endpoint.message_bytes_max;
    if (node->rpc != NULL)
        ps_rpc_dp_config(node->rpc, config);
    status = dp_create(config, &node->dp, error);
    if (status != MR_OK)
        return status;
    node->dispatch = ps_dispatch;
    node->started_us = dp_now_us();
    struct dp_app app = {.self = node,
                         .core_start = ps_core_start,
                         .core_poll = ps_core_poll,
                         .core_stop = ps_core_stop,
                         .dispatch = ps_dispatch,
                         .last_push_step = ps_core_last_push_step,
                         .prefetch = ps_prefetch,
                         .arriving = ps_arriving};
    if (node->rpc != NULL)
        ps_rpc_dp_app(&app);
    status = dp_start(node->dp, &app, error);
    server->started = status == MR_OK;
    return status;
}

static enum mr_status open_data_plane(struct ps_server *server, char error[DP_ERROR_BYTES])
{
    struct dp_config config;
    dp_config_of(&server->node, &config);
    enum mr_status status = configure_keys(server->node.config, &config.endpoint, error);
    if (status == MR_OK)
        status = open_with_keys(server, &config, error);
    explicit_bzero(config.endpoint.psk, sizeof(config.endpoint.psk));
    return status;
}

/* What has come after the checkpoint, and the log from here on. */
static enum mr_status log_at_start(struct ps_server *server, const struct ps_restore_request *request,
                                   bool replays, char error[DP_ERROR_BYTES])
{
    char text[PS_CONTROL_TEXT_BYTES] = "";
    const enum mr_status status =
        ps_control_log_start(server->node.control, replays, request->id != 0, ps_replay_record, text);
    if (status != MR_OK)
        snprintf(error, DP_ERROR_BYTES, "checkpoint.durability: %s: %.400s", mr_status_text(status), text);
    return status;
}

/* Whether the node goes on from where it was. With a log, a checkpoint by its number, or none, is begun from
 * once: the node may have been started again because it died. */
static bool goes_on_at_start(const struct ps_server *server)
{
    const struct ps_config *config = server->node.config;
    uint64_t id = 0;
    if (strcmp(config->checkpoint_restore, "latest") == 0)
        return true;
    if (strcmp(config->checkpoint_restore, "none") != 0)
        ps_number_parse(config->checkpoint_restore, &id);
    if (config->checkpoint_durability != PS_DURABILITY_LOG ||
        !ps_control_log_was_told(server->node.control, id))
        return false;
    mr_log_warning(
        "restore_was_done",
        "checkpoint.restore = %s: an earlier start has done that, and this one goes on from what has "
        "been acknowledged since: set it to latest; to do it once more, start with latest in between",
        config->checkpoint_restore);
    return true;
}

/* checkpoint.restore, before the first data call is let in. */
static enum mr_status restore_at_start(struct ps_server *server, char error[DP_ERROR_BYTES])
{
    const struct ps_config *config = server->node.config;
    char text[PS_CONTROL_TEXT_BYTES] = "";
    struct ps_restore_request request = {.directory = ""};
    struct ps_restored restored;
    uint64_t id = 0, begun = 0;
    const bool is_latest = goes_on_at_start(server);
    const bool has_begun = is_latest && ps_control_log_begins(server->node.control, &begun);
    const bool is_empty = is_latest ? config->checkpoint_directory[0] == '\0' || (has_begun && begun == 0)
                                    : strcmp(config->checkpoint_restore, "none") == 0;
    if (is_empty) {
        mr_log_info("starts_empty", "restore: none; starting empty");
        const enum mr_status ended = ps_checkpoint_sync_end_fetch(&server->node, error);
        return ended == MR_OK ? log_at_start(server, &request, is_latest, error) : ended;
    }
    enum mr_status status = is_latest ? ps_checkpoint_sync_fetch(&server->node, 0, error) : MR_OK;
    if (status != MR_OK)
        return status;
    if (is_latest && ps_control_goes_back(server->node.control, &request)) {
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"checkpoint", .number = request.id}), "restore_goes_back",
                    "restore: going on from checkpoint %" PRIu64
                    " of %s, which was restored by call, and not from the newest one",
                    request.id, request.directory);
    }
    if (is_latest && request.id == 0 && has_begun)
        request.id = begun;
    request.goes_on = is_latest;
    if (!is_latest)
        ps_number_parse(config->checkpoint_restore, &request.id);
    if (request.id != 0 &&
        (request.directory[0] == '\0' || strcmp(request.directory, config->checkpoint_directory) == 0))
        status = ps_checkpoint_sync_fetch(&server->node, request.id, error);
    if (status != MR_OK)
        return status;
    uint32_t count = 0;
    const struct ps_place *own = ps_control_own_place(server->node.control);
    bool is_read = ps_checkpoint_list_all(own->store, own->path, &id, 1, &count) == 0;
    if (is_latest && request.id == 0 && is_read &&
        count == 0) { /* of one that cannot be read the restore says why */
        mr_log_info("starts_empty", "restore: no checkpoint in %s; starting empty",
                    config->checkpoint_directory);
        return log_at_start(server, &request, is_latest, error);
    }
    status = ps_control_restore(server->node.control, &request, &restored, text);
    if (status != MR_OK) {
        snprintf(
            error, DP_ERROR_BYTES,
            "checkpoint.restore = %s: %s: %.300s; --restore ID takes another, --restore none starts empty",
            config->checkpoint_restore, mr_status_text(status), text);
        return status;
    }
    status = log_at_start(server, &request, is_latest, error);
    if (status == MR_OK)
        ps_control_durable(server->node.control);
    return status;
}

/* Before the first data call is let in. A member of a cluster loads what the map says it owns. */
static enum mr_status load_at_start(struct ps_server *server, char error[DP_ERROR_BYTES])
{
    struct ps_node *node = &server->node;
    if (node->config->checkpoint_serve[0] != '\0')
        return ps_serve_start(node, error);
    if (!node->is_member)
        return restore_at_start(server, error);
    char text[PS_CONTROL_TEXT_BYTES] = "";
    const enum mr_status status = ps_control_log_check_none(node->control, text);
    if (status != MR_OK)
        snprintf(error, DP_ERROR_BYTES, "%.400s", text);
    return status;
}

/* So that nobody finds out by a restart. */
static void log_what_is_kept(const struct ps_config *config)
{
    char by_time[48] = "", by_steps[48] = "";
    const char *on_stop = config->checkpoint_save_on_stop ? ", when it stops" : "";
    if (config->checkpoint_serve[0] != '\0')
        return;
    if (config->checkpoint_directory[0] == '\0') {
        mr_log_warning("keeps_nothing",
                       "this node keeps nothing: what it learns ends with it (set checkpoint.directory)");
        return;
    }
    if (config->checkpoint_every_s != 0)
        snprintf(by_time, sizeof(by_time), ", every %" PRIu64 " s", config->checkpoint_every_s);
    if (config->checkpoint_every_steps != 0) {
        snprintf(by_steps, sizeof(by_steps), ", every %" PRIu64 " step%s", config->checkpoint_every_steps,
                 mr_plural(config->checkpoint_every_steps));
    }
    mr_log_info("keeps_checkpoints", "checkpoints are kept in %s: when asked for%s%s%s",
                config->checkpoint_directory, by_time, by_steps, on_stop);
    if (config->checkpoint_durability == PS_DURABILITY_LOG)
        mr_log_info("keeps_log",
                    "pushes are kept in %s/log until a checkpoint has them: what was acknowledged survives",
                    config->checkpoint_directory);
}

static void log_missing_counters(const struct dp *dp)
{
    char why[DP_ERROR_BYTES];
    if (dp_cpu_events_missing(dp, why))
        mr_log_warning("no_hardware_counters", "hardware counters: %s", why);
}

static void take_apart(struct ps_server *server, uint32_t store_wait_s)
{
    struct ps_node *node = &server->node;
    char error[DP_ERROR_BYTES];
    ps_node_cluster_stop(node->cluster);
    if (node->control != NULL)
        ps_control_stop(node->control, false);
    ps_watch_stop(server->watch);
    ps_node_cluster_end_migrations(node->cluster);
    if (server->started && node->rpc != NULL && !server->left_world)
        ps_rpc_close(node->rpc);
    ps_node_metrics_stop(server->metrics);
    if (server->started)
        dp_stop(node->dp);
    ps_checkpoint_sync_stop(node, store_wait_s);
    if (node->dp != NULL)
        dp_destroy(node->dp);
    ps_node_metrics_destroy(server->metrics);
    ps_control_destroy(node->control);
    ps_node_cluster_destroy(node->cluster);
    ps_prefault_destroy(node->prefault);
    ps_rpc_destroy(node->rpc);
    mr_named_destroy(node->parameters);
    if (!mr_trace_close(node->trace, error, sizeof(error)))
        mr_log_warning("trace_not_written", "%s", error);
    mr_log_listen(NULL, NULL);
    ps_annotations_destroy(node->annotations);
    ps_facts_destroy(node->facts);
    free(server);
}

/* The first CPUs of cores.cpus, one for each core. */
static void set_cpus(struct ps_node *node)
{
    const int named = ps_cpus_parse(node->config->cores_cpus, node->cpus, DP_CORES_MAX);
    const int cores = (int)node->config->cores_count;
    node->cpu_count = named > 0 ? (uint32_t)(named < cores ? named : cores) : 0;
}

void ps_server_leave_cores(const struct ps_config *config)
{
    int cpus[DP_CORES_MAX];
    const int named = ps_cpus_parse(config->cores_cpus, cpus, DP_CORES_MAX);
    if (named > 0)
        ps_cpu_affinity_avoid(pthread_self(), cpus, (uint32_t)named);
}

/* What the log says is an annotation, too. */
static void hear_log(void *annotations, const char *event, const char *message)
{
    ps_annotations_add(annotations, event, "", message);
}

/* Before modules are loaded and a checkpoint is restored. */
static void give_up_privileges(const struct ps_node *node)
{
    (void)ps_privileges_drop(ps_privileges_needed(node->config, dp_driver(node->dp)));
    if (node->config->rpc_module.count == 0)
        ps_privileges_refuse_new_code();
}

enum mr_status ps_server_start(const struct ps_config *config, struct ps_server **out,
                               char error[DP_ERROR_BYTES])
{
    enum mr_status status = MR_NO_MEMORY;
    struct ps_server *server = calloc(1, sizeof(*server));
    snprintf(error, DP_ERROR_BYTES, "no memory left");
    if (server == NULL)
        return status;
    struct ps_node *node = &server->node;
    bool is_serving = config->checkpoint_serve[0] != '\0';
    server->given = server->config = *config;
    ps_kept_files_note(&server->kept_files, config);
    config = node->config = &server->config;
    if (is_serving)
        ps_serve_config(&server->config);
    atomic_store(&node->state, MR_NODE_RESTORING);
    ps_node_map_partitions(node, (uint32_t)config->cores_count);
    set_cpus(node);
    /* This thread loads checkpoints, and so does the control thread, with others that they begin: all inherit
     * it. */
    ps_cpu_affinity_avoid(pthread_self(), node->cpus, node->cpu_count);
    node->is_member = config->cluster_name[0] != '\0';
    node->annotations = ps_annotations_create();
    mr_log_listen(hear_log, node->annotations);
    node->parameters = mr_named_create();
    node->control = ps_control_create(node);
    if (node->annotations == NULL || node->parameters == NULL || node->control == NULL ||
        !ps_watch_start(node, &server->watch))
        goto fail;
    if (node->is_member) {
        node->cluster = ps_node_cluster_create(node, error);
        status = MR_INVALID_ARGUMENT;
        if (node->cluster == NULL)
            goto fail;
        if (!is_serving && !ps_node_cluster_config(node->cluster, &server->config, error))
            goto fail;
    }
    atomic_store_explicit(&node->checkpoint_every_s, config->checkpoint_every_s, memory_order_relaxed);
    status = MR_NO_MEMORY;
    /* Before the data plane, so that it does not inherit a data core's place. */
    node->prefault = ps_prefault_create(node->cpus, node->cpu_count);
    if (node->prefault == NULL) {
        snprintf(error, DP_ERROR_BYTES, "the prefault thread cannot be started: raise the limit of threads");
        goto fail;
    }
    if (!mr_trace_open(config->node_trace, "millraced", &node->trace, error, DP_ERROR_BYTES)) {
        status = MR_INVALID_ARGUMENT;
        goto fail;
    }
    if (config->rpc_world_size != 0) {
        node->rpc = ps_rpc_create(node);
        if (node->rpc == NULL)
            goto fail;
    }
    status = open_data_plane(server, error);
    if (status == MR_OK)
        node->facts = ps_facts_create(node);
    if (status == MR_OK)
        status = ps_node_metrics_start(node, &server->metrics, error);
    if (status == MR_OK)
        give_up_privileges(node);
    if (status == MR_OK && node->rpc != NULL)
        status = ps_rpc_load(node->rpc, error, DP_ERROR_BYTES);
    if (status == MR_OK)
        status = load_at_start(server, error);
    if (status == MR_OK && node->rpc != NULL)
        status = ps_rpc_start_modules(node->rpc, error, DP_ERROR_BYTES);
    if (status == MR_OK && !is_serving)
        ps_control_freeze_as_before(node->control);
    if (status == MR_OK)
        status = ps_checkpoint_sync_start(node, error);
    if (status != MR_OK)
        goto fail;
    if (!node->is_member)
        ps_control_gate(node->control, PS_GATE_OPEN);
    if (!ps_control_start(node->control)) {
        snprintf(error, DP_ERROR_BYTES, "the control thread cannot be started: raise the limit of threads");
        status = MR_NO_MEMORY;
        goto fail;
    }
    if (node->rpc != NULL && !ps_rpc_open(node->rpc)) {
        snprintf(error, DP_ERROR_BYTES, "the thread of worlds cannot be started: raise the limit of threads");
        status = MR_NO_MEMORY;
        goto fail;
    }
    if (node->is_member)
        status = ps_node_cluster_start(node->cluster, error);
    if (status != MR_OK)
        goto fail;
    log_what_is_kept(config);
    log_missing_counters(node->dp);
    *out = server;
    return MR_OK;
fail:
    take_apart(server, 0);
    return status;
}

void ps_server_print_ready(const struct ps_server *server, FILE *out)
{
    const struct ps_node *node = &server->node;
    const struct ps_config *config = node->config;
    char host[64];
    const char *address = config->port_ipv4[0] != '\0' ? config->port_ipv4 : config->port_ipv6;
    bool is_ipv6 = address == config->port_ipv6;
    if (address[0] != '\0')
        snprintf(host, sizeof(host), "%.*s", (int)strcspn(address, "/"), address);
    else
        dp_link_local(node->dp, host);
    fprintf(out,
            "millraced: ready port=%s (%s) memory=%s cores=%u listen=%s%s%s:%" PRIu64
            " steering=%s (%s) carrier=%s incarnation=%u\n",
            dp_driver_name(node->dp), dp_driver_why(node->dp), dp_memory_name(node->dp), node->core_count,
            is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", config->port_udp_port, dp_steering_name(node->dp),
            dp_steering_why(node->dp), dp_carrier_name(node->dp), node->incarnation);
    fflush(out);
    if (dp_faster(node->dp) != NULL)
        mr_log_info("port_could_be_faster", "port: %s", dp_faster(node->dp));
}

void ps_server_tell_ready(struct ps_server *server)
{
    ps_watch_ready(server->watch);
}

bool ps_server_watch_port(struct ps_server *server)
{
    char why[DP_ERROR_BYTES] = "";
    const char *device = server->node.config->port_device;
    enum dp_port_state state = dp_port_state(server->node.dp, why);
    dp_refresh_counters(server->node.dp);
    ps_drop_log_look(&server->drops, &server->node, dp_now_us());
    if (state != server->port && state == DP_PORT_UP)
        mr_log_info("port_up", "port %s: the link is up again", device);
    else if (state != server->port && state == DP_PORT_DOWN)
        mr_log_warning("port_down", "port %s: %s", device, why);
    else if (state != server->port)
        mr_log_error("port_lost", "port %s: %s", device, why);
    server->port = state;
    return state != DP_PORT_LOST;
}

/* ---- stop ---- */

enum mr_status ps_server_stop(struct ps_server *server)
{
    struct ps_node *node = &server->node;
    enum mr_status status = MR_OK;
    char text[PS_CONTROL_TEXT_BYTES] = "";
    bool saves = node->config->checkpoint_save_on_stop;
    ps_watch_stopping(server->watch);
    ps_node_cluster_stop(node->cluster);
    ps_control_stop(node->control, saves);
    ps_node_set_state(node, MR_NODE_STOPPING);
    if (saves && node->rpc != NULL) { /* every step that was answered is in the last save */
        ps_rpc_close(node->rpc);
        server->left_world = true;
    }
    if (saves && node->config->checkpoint_directory[0] != '\0') {
        status = ps_control_save_last(node->control, text);
        if (status != MR_OK)
            mr_log_error("save_on_stop_failed", "the save on stop failed: %s", text);
    }
    take_apart(server, (uint32_t)node->config->checkpoint_remote_stop_s);
    return status;
}
