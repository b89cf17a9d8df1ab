/* The node itself: heartbeat, counters, echo. */
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/capability.h"
#include "millrace_observe.h"
#include "trainer_client/api/calls.h"

enum mr_status mrc_run_by_map(struct mr_future *f, uint32_t map_generation, const struct mr_options *options,
                              struct mr_reply **reply)
{
    const struct mr_client *client = f->client;
    uint8_t op = f->options.op;
    f->map_generation = map_generation;
    enum mr_status status = mrc_future_run(f, options, reply);

    if (status == MRC_STALE_MAP)
        return mrc_error(MR_CANCELLED, "%s: %s: the node's cores changed before it was sent: make it again",
                         client->server, mr_op_name(op));
    return status;
}

/* ---- heartbeat ---- */

static uint64_t link_rtt_us(struct mr_client *client, const struct mrc_link *link)
{
    struct mr_client_session_info info = {.rtt_us = 0};
    pthread_mutex_lock(&client->lock);
    if (link->session != NULL)
        mr_client_session_info(link->session, &info);
    pthread_mutex_unlock(&client->lock);
    return info.rtt_us;
}

struct heartbeat_context {
    struct mr_core_state *states; /* [core count] */
};

static enum mr_status finish_heartbeat(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_core_state *states = ((const struct heartbeat_context *)f->context)->states;
    uint64_t w[MR_HEARTBEAT_WORDS];
    for (uint32_t i = 0; i < f->request_count; i++)
        if (f->requests[i].status == MR_OK && !mrc_answer_body(f, i, 0, MR_BODY_HEARTBEAT, w))
            return mrc_answer_garbled(f, i);
    for (uint32_t i = 0; i < f->request_count; i++) {
        states[i] = (struct mr_core_state){.core = i};
        if (f->requests[i].status != MR_OK)
            continue;
        (void)mrc_answer_body(f, i, 0, MR_BODY_HEARTBEAT, w);
        states[i] = (struct mr_core_state){.core = i,
                                           .state = (uint32_t)w[MR_HEARTBEAT_STATE],
                                           .incarnation = (uint32_t)w[MR_HEARTBEAT_INCARNATION],
                                           .uptime_us = w[MR_HEARTBEAT_UPTIME_US],
                                           .busy_share = (double)w[MR_HEARTBEAT_BUSY_PPM] * 1e-6,
                                           .last_step = w[MR_HEARTBEAT_LAST_STEP],
                                           .cached_batches = w[MR_HEARTBEAT_BATCHES],
                                           .rows = w[MR_HEARTBEAT_ROWS],
                                           .memory_bytes = w[MR_HEARTBEAT_MEMORY_BYTES],
                                           .rtt_us = link_rtt_us(f->client, f->requests[i].link),
                                           .rows_refused = w[MR_HEARTBEAT_REFUSED],
                                           .gradients_without_row = w[MR_HEARTBEAT_WITHOUT_ROW],
                                           .gradients_skipped = w[MR_HEARTBEAT_SKIPPED],
                                           .steps_ignored = w[MR_HEARTBEAT_STEPS_IGNORED]};
        const struct mr_tensor *why =
            states[i].state == MR_NODE_FAILED ? mrc_answer_tensor(f, i, 1, MR_U8, 1) : NULL;
        if (why != NULL)
            (void)mr_printable(states[i].why, sizeof(states[i].why), why->data, why->bytes);
    }
    return MR_OK;
}

enum mr_status mr_heartbeat(struct mr_client *client, const struct mr_options *options,
                            struct mr_core_state *states)
{
    struct mr_future *f;
    if (client == NULL || states == NULL)
        return mrc_bad_argument("mr_heartbeat", client == NULL ? "client is NULL" : "states is NULL");
    uint32_t map_generation, cores = mrc_shard_map_count(client, &map_generation);
    enum mr_status status =
        mrc_future_new(client, options, MR_OP_HEARTBEAT, 0, cores, 0, sizeof(struct heartbeat_context), &f);

    if (status != MR_OK)
        return status;
    ((struct heartbeat_context *)f->context)->states = states;
    f->finish = finish_heartbeat;
    f->takes_some = true;
    for (uint32_t i = 0; i < cores; i++) /* also if the call is not even made */
        states[i] = (struct mr_core_state){.core = i};
    return mrc_run_by_map(f, map_generation, options, NULL);
}

/* ---- counters ---- */

#define COUNTER_NAME_BYTES 128u

struct stats_context {
    void (*visit)(void *arg, const char *name, uint64_t value);
    void *arg;
};

static enum mr_status finish_stats(struct mr_future *f, struct mr_reply **reply)
{
    const struct stats_context *context = f->context;
    const struct mr_tensor *names = mrc_answer_tensor(f, 0, 0, MR_U8, 1);
    const struct mr_tensor *values = mrc_answer_tensor(f, 0, 1, MR_U64, 1);
    if (names == NULL || values == NULL)
        return mrc_answer_garbled(f, 0);
    const char *at = names->data, *end = at + names->bytes;
    const uint64_t *value = values->data;

    for (uint32_t i = 0; i < values->dims[0] && at < end; i++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((line_end == NULL ? end : line_end) - at);
        char name[COUNTER_NAME_BYTES];
        if (bytes >= sizeof(name))
            return mrc_answer_garbled(f, 0);
        (void)mr_printable(name, sizeof(name), at, bytes);
        context->visit(context->arg, name, value[i]);
        at = line_end == NULL ? end : line_end + 1;
    }
    return MR_OK;
}

enum mr_status mr_stats(struct mr_client *client, const struct mr_options *options, uint32_t core,
                        void (*visit)(void *arg, const char *name, uint64_t value), void *arg)
{
    const struct stats_context context = {.visit = visit, .arg = arg};
    const struct mrc_core_call call = {.name = "mr_stats",
                                       .op = MR_OP_STATS,
                                       .finish = finish_stats,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    if (visit == NULL)
        return mrc_bad_argument("mr_stats", "visit is NULL");
    return mrc_run_on_core(client, options, core, &call, NULL);
}

/* ---- memory ---- */

struct memory_context {
    struct mr_core_memory *memory;
    void (*visit)(void *arg, const struct mr_table_memory *table);
    void *arg;
};

static enum mr_status finish_memory(struct mr_future *f, struct mr_reply **reply)
{
    const struct memory_context *context = f->context;
    uint64_t c[MR_MEMORY_WORDS], t[MR_MEMORY_TABLE_WORDS];
    const struct mr_tensor *tables = mrc_answer_body_rows(f, 0, 1, MR_BODY_MEMORY_TABLE);
    if (!mrc_answer_body(f, 0, 0, MR_BODY_MEMORY, c) || tables == NULL)
        return mrc_answer_garbled(f, 0);
    *context->memory = (struct mr_core_memory){.limit_bytes = c[MR_MEMORY_LIMIT],
                                               .mapped_bytes = c[MR_MEMORY_MAPPED],
                                               .allocated_bytes = c[MR_MEMORY_ALLOCATED],
                                               .ahead_bytes = c[MR_MEMORY_AHEAD],
                                               .units_failed = c[MR_MEMORY_PAGES_FAILED],
                                               .batch_limit_bytes = c[MR_MEMORY_BATCH_LIMIT],
                                               .batch_mapped_bytes = c[MR_MEMORY_BATCH_MAPPED],
                                               .batch_bytes = c[MR_MEMORY_BATCHES],
                                               .variable_bytes = c[MR_MEMORY_VARIABLES],
                                               .scratch_bytes = c[MR_MEMORY_SCRATCH],
                                               .checkpoint_bytes = c[MR_MEMORY_CHECKPOINT]};
    for (uint32_t i = 0; i < tables->dims[0] && context->visit != NULL; i++) {
        mr_body_read_row(MR_BODY_MEMORY_TABLE, tables, i, t);
        struct mr_table_memory table = {.id = (uint32_t)t[MR_MEMORY_TABLE_ID],
                                        .rows = t[MR_MEMORY_TABLE_ROWS],
                                        .index_bytes = t[MR_MEMORY_TABLE_INDEX],
                                        .values_bytes = t[MR_MEMORY_TABLE_VALUES],
                                        .state_bytes = t[MR_MEMORY_TABLE_STATE],
                                        .slack_bytes = t[MR_MEMORY_TABLE_SLACK],
                                        .filter_bytes = t[MR_MEMORY_TABLE_FILTER],
                                        .limit_bytes = t[MR_MEMORY_TABLE_LIMIT]};
        context->visit(context->arg, &table);
    }
    return MR_OK;
}

enum mr_status mr_memory(struct mr_client *client, const struct mr_options *options, uint32_t core,
                         struct mr_core_memory *memory,
                         void (*visit)(void *arg, const struct mr_table_memory *table), void *arg)
{
    const struct memory_context context = {memory, visit, arg};
    const struct mrc_core_call call = {.name = "mr_memory",
                                       .op = MR_OP_MEMORY,
                                       .finish = finish_memory,
                                       .context = &context,
                                       .context_bytes = sizeof(context)};
    if (memory == NULL)
        return mrc_bad_argument("mr_memory", "memory is NULL");
    return mrc_run_on_core(client, options, core, &call, NULL);
}

/* ---- cluster ---- */

struct cluster_context {
    struct mr_cluster_state *state;
    void (*visit)(void *arg, const struct mr_cluster_member *node);
    void *arg;
};

static bool is_terminated(const char text[MR_CLUSTER_NAME_BYTES])
{
    return memchr(text, '\0', MR_CLUSTER_NAME_BYTES) != NULL;
}

/* Reads the nodes and their shares; false: they are malformed. */
static bool read_members(const struct cluster_context *context, const struct mr_tensor *nodes,
                         const uint16_t *owner, const struct mr_tensor *copies)
{
    const struct mr_cluster_node *node = nodes->data;
    uint32_t partitions[MR_CLUSTER_NODES_MAX] = {0};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (owner[p] == MRC_NO_OWNER)
            context->state->without_owner++;
        else
            partitions[owner[p]]++;
    for (uint32_t i = 0; i < nodes->dims[0]; i++)
        if (!is_terminated(node[i].name) || !is_terminated(node[i].address))
            return false;
    for (uint32_t i = 0; i < nodes->dims[0] && context->visit != NULL; i++) {
        struct mr_peer_version version = {0};
        char text[MR_VERSION_TEXT_BYTES], name[MR_CLUSTER_NAME_BYTES], address[MR_CLUSTER_NAME_BYTES];
        (void)mr_printable(name, sizeof(name), node[i].name, strlen(node[i].name));
        (void)mr_printable(address, sizeof(address), node[i].address, strlen(node[i].address));
        memcpy(version.text, node[i].version, sizeof(version.text));
        mr_version_name(&version, text);
        uint32_t of_copies[MR_COPIES_WORDS] = {0};
        if (copies != NULL)
            mr_body_read_row(MR_BODY_COPIES, copies, i, of_copies);
        const struct mr_cluster_member member = {.name = name,
                                                 .address = address,
                                                 .core_count = node[i].core_count,
                                                 .partitions = partitions[i],
                                                 .backups = of_copies[MR_COPIES_BACKUPS],
                                                 .uncopied = of_copies[MR_COPIES_UNCOPIED],
                                                 .is_present = (node[i].flags & MR_CLUSTER_NODE_PRESENT) != 0,
                                                 .is_spare = (node[i].flags & MR_CLUSTER_NODE_SPARE) != 0,
                                                 .start_id = node[i].start_id,
                                                 .version = text};
        context->visit(context->arg, &member);
    }
    return true;
}

static enum mr_status finish_cluster(struct mr_future *f, struct mr_reply **reply)
{
    const struct cluster_context *context = f->context;
    uint64_t w[MR_CLUSTER_WORDS];
    const struct mr_tensor *nodes = mrc_answer_tensor(f, 0, 3, MR_U8, 2);
    uint16_t owner[MR_PARTITION_COUNT];
    *context->state = (struct mr_cluster_state){.self = UINT32_MAX};
    if (f->requests[0].answer_count <= 2)
        return MR_OK;
    if (!mrc_answer_body(f, 0, 2, MR_BODY_CLUSTER, w) || nodes == NULL ||
        nodes->dims[0] > MR_CLUSTER_NODES_MAX || nodes->dims[1] != sizeof(struct mr_cluster_node) ||
        !mrc_cluster_read_owners(f, nodes->dims[0], owner))
        return mrc_answer_garbled(f, 0);
    const uint32_t copies_at = 2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS;
    const struct mr_tensor *copies = NULL;
    if (f->requests[0].answer_count > copies_at) {
        copies = mrc_answer_tensor(f, 0, copies_at, MR_U32, 2);
        if (copies == NULL || !mr_body_is_rows(MR_BODY_COPIES, copies) || copies->dims[0] != nodes->dims[0])
            return mrc_answer_garbled(f, 0);
    }
    const enum mr_status status = mrc_check_epoch(f, w[MR_CLUSTER_EPOCH]);
    if (status != MR_OK)
        return status;
    *context->state = (struct mr_cluster_state){
        .epoch = w[MR_CLUSTER_EPOCH],
        .node_count = nodes->dims[0],
        .self = w[MR_CLUSTER_SELF] < nodes->dims[0] ? (uint32_t)w[MR_CLUSTER_SELF] : UINT32_MAX,
        .outside = (uint32_t)w[MR_CLUSTER_OUTSIDE],
        .lease_us = w[MR_CLUSTER_LEASE_US],
        .lease_left_us = w[MR_CLUSTER_LEASE_LEFT_US],
        .is_member = true,
        .has_copies = copies != NULL,
        .answers_wait = w[MR_CLUSTER_ANSWERS_WAIT] != 0};
    const uint64_t tolerance = w[MR_CLUSTER_TOLERANCE] & ((1u << MR_TOLERANCE_NODE_SHIFT) - 1);
    const uint64_t about = w[MR_CLUSTER_TOLERANCE] >> MR_TOLERANCE_NODE_SHIFT;
    context->state->tolerance =
        tolerance < MR_TOLERANCE_COUNT ? (uint8_t)tolerance : (uint8_t)MR_TOLERANCE_UNKNOWN;
    context->state->tolerance_node = about < nodes->dims[0] ? (uint16_t)about : UINT16_MAX;
    return read_members(context, nodes, owner, copies) ? MR_OK : mrc_answer_garbled(f, 0);
}

/* Returns the link to core 0 of a node that answers, whether it owns anything or not. */
static struct mrc_link *any_link(struct mr_client *client)
{
    pthread_mutex_lock(&client->lock);
    struct mrc_link *link = client->nodes[0]->links[0];
    for (uint32_t n = client->node_count; n-- > 0;)
        if (mrc_node_is_up(client->nodes[n]))
            link = client->nodes[n]->links[0];
    pthread_mutex_unlock(&client->lock);
    return link;
}

struct cluster_call {
    struct mrc_retry retry;
    struct cluster_context context;
};

static enum mr_status cluster_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mr_future *f;
    const enum mr_status status =
        mrc_future_new(r->client, r->options, r->op, 0, 1, 0, sizeof(struct cluster_context), &f);
    if (status != MR_OK)
        return status;
    mrc_retry_future(r, f);
    *(struct cluster_context *)f->context = MR_CONTAINER(r, struct cluster_call, retry)->context;
    f->requests[0].to = any_link(r->client);
    f->finish = finish_cluster;
    return mrc_future_run(f, r->options, reply);
}

enum mr_status mr_cluster(struct mr_client *client, const struct mr_options *options,
                          struct mr_cluster_state *state,
                          void (*visit)(void *arg, const struct mr_cluster_member *node), void *arg)
{
    if (client == NULL || state == NULL)
        return mrc_bad_argument("mr_cluster", client == NULL ? "client is NULL" : "state is NULL");
    struct cluster_call c = {.retry = {.client = client,
                                       .options = options,
                                       .op = MR_OP_NODE_INFO,
                                       .make = cluster_make,
                                       .is_due = mrc_retry_shown},
                             .context = {state, visit, arg}};
    return mrc_retry_run(&c.retry, NULL);
}

/* ---- echo ---- */

static enum mr_status check_tensor(const struct mr_tensor *tensor, uint32_t i)
{
    uint64_t bytes = mr_dtype_bytes(tensor->dtype);
    if (bytes == 0 || tensor->rank > MR_RANK_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_echo: tensors[%u] has %s", i,
                         bytes == 0 ? "an unknown dtype" : "a rank above 4");
    for (uint32_t d = 0; d < tensor->rank; d++)
        if (__builtin_mul_overflow(bytes, tensor->dims[d], &bytes))
            return mrc_error(MR_INVALID_ARGUMENT, "mr_echo: tensors[%u] is larger than memory", i);
    if (bytes != tensor->bytes)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_echo: tensors[%u] has %llu bytes; its dims make %llu", i,
                         (unsigned long long)tensor->bytes, (unsigned long long)bytes);
    if (tensor->data == NULL && bytes > 0)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_echo: tensors[%u] has no data", i);
    return MR_OK;
}

enum mr_status mr_echo(struct mr_client *client, const struct mr_options *options, uint32_t core,
                       const struct mr_tensor *tensors, uint32_t count, struct mr_reply **reply)
{
    const struct mrc_core_call call = {
        .name = "mr_echo", .op = MR_OP_ECHO, .tensors = tensors, .tensor_count = count};
    enum mr_status status = MR_OK;
    if (count > MR_TENSORS_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_echo: count is %u; it goes up to %u", count,
                         MR_TENSORS_MAX);
    if (tensors == NULL && count > 0)
        return mrc_bad_argument("mr_echo", "tensors is NULL");
    for (uint32_t t = 0; t < count && status == MR_OK; t++)
        status = check_tensor(&tensors[t], t);
    return status == MR_OK ? mrc_run_on_core(client, options, core, &call, reply) : status;
}
