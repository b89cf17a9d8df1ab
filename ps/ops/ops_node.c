/* What a core reports about itself, whatever the node's state. */
#include <assert.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/clock_name.h"
#include "dataplane/wire/format/capability.h"
#include "ps/ops/ops.h"

/* Of a member that has no map yet. */
static const struct ps_cluster_info no_cluster = {
    .words = {[MR_CLUSTER_SELF] = MR_CLUSTER_NO_NODE},
    .owner_of_few = {[0 ... MR_PARTITION_COUNT - 1] = MR_CLUSTER_NO_NODE}};

static uint64_t lease_left_us(const struct ps_node *node)
{
    const uint64_t end_us = atomic_load_explicit(&node->lease_end_us, memory_order_relaxed);
    const uint64_t now_us = mr_clock_boot_us();
    return end_us > now_us ? end_us - now_us : 0;
}

void ps_op_node_info(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    const struct ps_node *node = op.core->node;
    const struct ps_cluster_info *cluster = op.core->owns.info != NULL ? op.core->owns.info : &no_cluster;
    const uint32_t info[MR_NODE_INFO_WORDS] = {[MR_NODE_INFO_CORES] = node->core_count,
                                               [MR_NODE_INFO_MAP_VERSION] = 1,
                                               [MR_NODE_INFO_BASE_PORT] =
                                                   (uint32_t)node->config->port_udp_port,
                                               [MR_NODE_INFO_MESSAGE_BYTES_MAX] = node->message_bytes_max};
    uint64_t words[MR_CLUSTER_WORDS];
    memcpy(words, cluster->words, sizeof(words));
    words[MR_CLUSTER_LEASE_LEFT_US] = lease_left_us(node);
    struct mr_tensor
        tensors[2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS + MR_CLUSTER_COPIES_TENSORS] = {
            mr_body_tensor(MR_BODY_NODE_INFO, info),
            mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, node->partition_core),
            mr_body_tensor(MR_BODY_CLUSTER, words),
            mr_tensor_2d(MR_U8, cluster->node_count, sizeof(struct mr_cluster_node), cluster->nodes),
            cluster->node_count <= MR_CLUSTER_FEW_NODES
                ? mr_tensor_1d(MR_U8, MR_PARTITION_COUNT, cluster->owner_of_few)
                : mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, cluster->owner),
            mr_tensor_1d(MR_U32, MR_PARTITION_COUNT, cluster->restored_in),
            mr_body_rows(MR_BODY_COPIES, cluster->node_count, cluster->copies)};
    const bool tells_copies = cluster->has_copies && (request->capabilities & MR_CAN(COPIES)) != 0;
    const bool tells_restored =
        tells_copies || (cluster->any_restored && (request->capabilities & MR_CAN(TAKE_OVER)) != 0);
    const uint32_t of_cluster = MR_CLUSTER_TENSORS + (tells_restored ? MR_CLUSTER_RESTORED_TENSORS : 0) +
                                (tells_copies ? MR_CLUSTER_COPIES_TENSORS : 0);
    ps_reply(ep, request, tensors, node->is_member ? 2 + of_cluster : 2);
}

void ps_op_clock(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    (void)core_app;
    const uint64_t words[MR_CLOCK_WORDS] = {[MR_CLOCK_NAME] = mr_clock_name(), [MR_CLOCK_NS] = mr_clock_ns()};
    struct mr_tensor t = mr_body_tensor(MR_BODY_CLOCK, words);
    ps_reply(ep, request, &t, 1);
}

struct echo {
    uint32_t tensor_count, at;
    struct ps_copy copies[MR_TENSORS_MAX];
};

static bool step_echo(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct echo *echo = state;
    for (; echo->at < echo->tensor_count; echo->at++) {
        if (!ps_copy_step(&echo->copies[echo->at], &budget_bytes)) {
            ps_reply_advance(op, echo->copies[echo->at].to);
            return false;
        }
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_coop_task echo_job = {.step = step_echo, .state_bytes = sizeof(struct echo)};
static_assert(sizeof(struct echo) <= PS_COOP_STATE_BYTES, "an echo waits in place");

void ps_op_echo(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct mr_tensor tensors[MR_TENSORS_MAX];
    struct echo echo;
    uint64_t bytes = 0;
    memcpy(tensors, op.tensors, op.tensor_count * sizeof(*tensors));
    for (uint32_t i = 0; i < op.tensor_count; i++) {
        tensors[i].data = NULL;
        bytes += tensors[i].bytes;
    }
    if (ps_defer(&op, bytes) || !ps_reply_begin(ep, request, tensors, op.tensor_count))
        return;
    echo.tensor_count = op.tensor_count;
    echo.at = 0;
    for (uint32_t i = 0; i < op.tensor_count; i++)
        echo.copies[i] = (struct ps_copy){op.tensors[i].data, tensors[i].data, tensors[i].bytes};
    ps_run(&op, &echo_job, &echo);
}

void ps_op_for_hub(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    (void)core_app;
    mr_reply_error(
        ep, request->ref, MR_UNKNOWN_OP,
        "%s is for a hub, and this is a parameter server: name the hub, whose port is 7800 by default",
        mr_op_name(request->message->preamble.op));
}

void ps_op_heartbeat(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_core *core = core_app;
    const struct ps_node *node = core->node;
    char why[PS_WHY_BYTES];
    const enum mr_node_state state = ps_node_state(node, why);
    ps_core_refresh_gauges(core);
    const struct ps_core_counters *counters = &core->counters;
    const struct ps_table_counters *tables = &core->table_counters;
    const uint64_t words[MR_HEARTBEAT_WORDS] = {[MR_HEARTBEAT_STATE] = state,
                                                [MR_HEARTBEAT_INCARNATION] = node->incarnation,
                                                [MR_HEARTBEAT_UPTIME_US] = request->now_us - node->started_us,
                                                [MR_HEARTBEAT_BUSY_PPM] = dp_core_busy_ppm(core->dp_core),
                                                [MR_HEARTBEAT_LAST_STEP] = counters->last_step,
                                                [MR_HEARTBEAT_BATCHES] = counters->batches_cached,
                                                [MR_HEARTBEAT_ROWS] = tables->rows - tables->rows_copied,
                                                [MR_HEARTBEAT_MEMORY_BYTES] = counters->memory_bytes,
                                                [MR_HEARTBEAT_REFUSED] = tables->rows_refused,
                                                [MR_HEARTBEAT_WITHOUT_ROW] = tables->gradients_without_row,
                                                [MR_HEARTBEAT_SKIPPED] = tables->gradients_skipped +
                                                                         counters->variable_gradients_skipped,
                                                [MR_HEARTBEAT_STEPS_IGNORED] = counters->steps_ignored};
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_HEARTBEAT, words),
                                   mr_tensor_1d(MR_U8, (uint32_t)strlen(why), why)};
    ps_reply(ep, request, tensors, state == MR_NODE_FAILED ? 2 : 1);
}

/* Counts counters and bytes of their names first, then writes both. */
struct stats_visit {
    uint32_t count, name_bytes;
    char *names;
    uint64_t *values;
};

static void visit_counter(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                          uint64_t value)
{
    struct stats_visit *v = arg;
    if (v->names != NULL) {
        char *at = stpcpy(v->names + v->name_bytes, set->name);
        *at++ = '.';
        at = stpcpy(at, counter->name);
        *at = '\n';
        v->values[v->count] = value;
    }
    v->name_bytes += (uint32_t)(strlen(set->name) + strlen(counter->name)) + 2;
    v->count++;
}

void ps_op_stats(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_core *core = core_app;
    struct stats_visit v = {0};
    ps_core_refresh_gauges(core);
    dp_core_each_counter(core->dp_core, visit_counter, &v);
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, v.name_bytes, NULL),
                                   mr_tensor_1d(MR_U64, v.count, NULL)};
    if (!ps_reply_begin(ep, request, tensors, 2))
        return;
    v = (struct stats_visit){.names = tensors[0].data, .values = tensors[1].data};
    dp_core_each_counter(core->dp_core, visit_counter, &v);
    mr_reply_end(ep, request->ref);
}

/* ---- where every byte of a core is ---- */

static void core_words(const struct ps_core *core, uint64_t words[MR_MEMORY_WORDS])
{
    uint64_t variable_bytes = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_feature *f = core->features[id];
        if (f != NULL)
            variable_bytes += ps_feature_variable_bytes(f);
    }
    const uint64_t all[MR_MEMORY_WORDS] = {
        [MR_MEMORY_LIMIT] = ps_arena_limit_bytes(core->arena),
        [MR_MEMORY_MAPPED] = ps_arena_mapped_bytes(core->arena),
        [MR_MEMORY_ALLOCATED] = ps_arena_allocated_bytes(core->arena),
        [MR_MEMORY_AHEAD] = ps_arena_ahead_bytes(core->arena),
        [MR_MEMORY_PAGES_FAILED] = ps_arena_huge_pages_failed(core->arena),
        [MR_MEMORY_BATCH_LIMIT] = ps_arena_limit_bytes(core->batch_arena),
        [MR_MEMORY_BATCH_MAPPED] = ps_arena_mapped_bytes(core->batch_arena),
        [MR_MEMORY_BATCHES] = ps_batch_cache_bytes(core->batches),
        [MR_MEMORY_VARIABLES] = variable_bytes,
        [MR_MEMORY_SCRATCH] = ps_arena_scratch_bytes(core->arena) + ps_arena_scratch_bytes(core->batch_arena),
        [MR_MEMORY_CHECKPOINT] =
            core->save.capacity_bytes + core->save.copy_bytes + core->save.variable_copy_bytes,
    };
    memcpy(words, all, sizeof(all));
}

static void table_words(const struct ps_feature *f, uint64_t *words)
{
    struct ps_table_memory m;
    ps_table_memory(f->table, &m);
    const uint64_t all[MR_MEMORY_TABLE_WORDS] = {
        [MR_MEMORY_TABLE_ID] = f->id,
        [MR_MEMORY_TABLE_ROWS] = m.rows,
        [MR_MEMORY_TABLE_INDEX] = m.index_bytes,
        [MR_MEMORY_TABLE_VALUES] = m.values_bytes,
        [MR_MEMORY_TABLE_STATE] = m.state_bytes,
        [MR_MEMORY_TABLE_SLACK] = m.slack_bytes,
        [MR_MEMORY_TABLE_FILTER] = m.filter_bytes,
        [MR_MEMORY_TABLE_LIMIT] = f->feature.memory_bytes,
    };
    memcpy(words, all, sizeof(all));
}

void ps_op_memory(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_core *core = core_app;
    uint64_t words[MR_MEMORY_WORDS];
    uint32_t table_count = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        table_count += core->features[id] != NULL && core->features[id]->table != NULL;
    core_words(core, words);
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_MEMORY, words),
                                   mr_body_rows(MR_BODY_MEMORY_TABLE, table_count, NULL)};
    if (!ps_reply_begin(ep, request, tensors, 2))
        return;
    uint64_t *at = tensors[1].data;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        if (core->features[id] != NULL && core->features[id]->table != NULL) {
            table_words(core->features[id], at);
            at += MR_MEMORY_TABLE_WORDS;
        }
    }
    mr_reply_end(ep, request->ref);
}
