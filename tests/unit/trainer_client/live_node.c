#include "tests/unit/trainer_client/live_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "dataplane/wire/format/op.h"
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "ps/core/core.h"
#include "ps/server/server.h"
#include "tests/checkpoint_calls.h"
#include "tests/test.h"
#include "tests/unit/ps/fake_dp.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

#define OPERATOR_BYTES (4u << 20)
#define PORT_TRIES     200u
#define PORT_FIRST     10240u /* up to where Linux begins with ephemeral ports */
#define PORT_COUNT     22000u

/* ---- in front of the node; by its cores' threads ---- */

static void live_count(struct live_node *node, uint32_t core, const struct mr_request *request)
{
    const struct mr_preamble *p = &request->message->preamble;
    atomic_fetch_add(&node->cores[core].requests, 1);
    if (p->op < MR_OP_COUNT)
        atomic_fetch_add(&node->asked[p->op], 1);
    if (p->op == MR_OP_PUSH_GRAD && (p->flags & MR_PUSH_UNSEEN) != 0)
        atomic_fetch_add(&node->unseen, 1);
    if (p->op == MR_OP_SAVE)
        atomic_store(&node->applied_at_save, live_node_applied(node));
}

static bool is_late(struct live_node *node, uint32_t core)
{
    return !node->cores[core].expects_late && (atomic_load(&node->late) >> core & 1) != 0;
}

/* Of a core's thread; and the request that it executes now, which had been put off before. */
static _Thread_local struct live_core *here;
static _Thread_local const struct mr_request *put_off;

void __real_mr_reply_end(struct mr_endpoint *ep, struct mr_call_ref ref);
void __wrap_mr_reply_end(struct mr_endpoint *ep, struct mr_call_ref ref);
void __wrap_mr_reply_end(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    for (uint32_t i = 0; here != NULL && i < here->unanswered_count; i++) {
        if (memcmp(&here->unanswered[i], &ref, sizeof(ref)) != 0)
            continue;
        here->has_late |= here->expects_late && memcmp(&here->late, &ref, sizeof(ref)) == 0;
        if (here->executing != NULL)
            (void)mr_reply_later(ep, here->executing);
        return;
    }
    __real_mr_reply_end(ep, ref);
}

const struct mr_request *__real_mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request);
const struct mr_request *__wrap_mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request);
const struct mr_request *__wrap_mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request)
{
    if (here != NULL)
        here->executing = NULL;
    return request == put_off ? request : __real_mr_reply_later(ep, request);
}

/* It is executed, and its answer, which the node begins, does not leave, or only when the core is late no
 * more. */
static void leave_unanswered(struct live_node *node, struct dp_core *dp, const struct mr_request *request)
{
    struct live_core *core = &node->cores[dp_core_index(dp)];
    if (core->unanswered_count == LIVE_UNANSWERED_MAX)
        core->unanswered_count = 0; /* these are over */
    core->unanswered[core->unanswered_count++] = request->ref;
    if (!atomic_load(&node->dumb)) {
        core->expects_late = true;
        core->late = request->ref;
    }
    core->executing = request;
    fake_dp_handle(dp, request);
    core->executing = NULL;
}

/* One of the pushes that are sent again is held. */
static bool hold_push(struct live_node *node, struct dp_core *dp, const struct mr_request *request)
{
    const uint32_t at = atomic_load(&node->hold_core);
    if (request->message->preamble.op != MR_OP_PUSH_GRAD || atomic_load(&node->hold_at) == 0 ||
        (request->message->preamble.flags & MR_PUSH_AGAIN) == 0 ||
        (at != LIVE_ALL_CORES && at != dp_core_index(dp)) || atomic_fetch_sub(&node->hold_at, 1) != 1)
        return false;
    const struct mr_request *later = mr_reply_later(dp_core_endpoint(dp), request);
    if (later == NULL)
        abort();
    node->held = *later;
    node->held_core = dp_core_index(dp);
    atomic_store(&node->is_let_go, false);
    atomic_store(&node->is_held, true);
    return true;
}

static void live_on_request(void *self, struct dp_core *dp, const struct mr_request *request)
{
    struct live_node *node = self;
    const uint32_t core = dp_core_index(dp);
    const live_answer answer = atomic_load(&node->answer);
    live_count(node, core, request);
    if ((answer != NULL && answer(dp_core_endpoint(dp), core, request)) || hold_push(node, dp, request))
        return;
    const uint8_t op = request->message->preamble.op;
    const uint32_t refusal = op < MR_OP_COUNT ? atomic_load(&node->refusals[op]) : 0;
    const uint32_t status = (refusal >> 8 >> core & 1) != 0 ? refusal & 0xff : MR_OK;
    if (status == LIVE_SILENT)
        (void)mr_reply_later(dp_core_endpoint(dp), request);
    else if (status == MR_BUSY)
        mr_reply_busy(dp_core_endpoint(dp), request->ref);
    else if (status != MR_OK)
        mr_reply_status(dp_core_endpoint(dp), request->ref, (enum mr_status)status);
    else if (op == MR_OP_PUSH_GRAD && (atomic_load(&node->dumb) || is_late(node, core)))
        leave_unanswered(node, dp, request);
    else
        fake_dp_handle(dp, request);
}

void live_node_refuse(struct live_node *node, enum mr_op op, uint32_t status, uint32_t cores)
{
    atomic_store(&node->refusals[op], status == MR_OK ? 0 : (cores & LIVE_ALL_CORES) << 8 | status);
}

/* As a NIC that spreads by source ports: the first two ports that each core meets lead astray. */
static uint16_t live_arrived_at(void *self, uint32_t index, const struct mr_address *from)
{
    struct live_node *node = self;
    struct live_core *core = &node->cores[index];
    uint32_t i = 0;
    atomic_fetch_add(&core->packets, 1);
    if (!atomic_load(&node->spreads))
        return (uint16_t)index;
    while (i < 2 && core->wrong_ports[i] != 0 && core->wrong_ports[i] != from->port)
        i++;
    if (i == 2) {
        atomic_fetch_add(&core->direct, 1);
        return (uint16_t)index;
    }
    core->wrong_ports[i] = from->port;
    atomic_fetch_add(&core->detours, 1);
    return (uint16_t)((index + 1) % node->core_count);
}

static void live_poll(void *self, struct dp_core *dp, void *app)
{
    struct live_node *node = self;
    struct live_core *core = &node->cores[dp_core_index(dp)];
    const uint32_t bit = 1u << dp_core_index(dp);
    if (!atomic_load(&node->is_dying))
        atomic_store(&core->app, app);
    here = core;
    for (; atomic_load(&node->is_pausing); wait_pause())
        atomic_fetch_or(&node->paused, bit);
    atomic_fetch_and(&node->paused, ~bit);
    if (core->has_late && (atomic_load(&node->late) & bit) == 0) {
        core->has_late = core->expects_late = false;
        __real_mr_reply_end(dp_core_endpoint(dp), core->late);
    }
    if (atomic_load(&node->is_held) && atomic_load(&node->is_let_go) &&
        node->held_core == dp_core_index(dp)) {
        atomic_store(&node->is_held, false);
        put_off = &node->held;
        fake_dp_handle(dp, &node->held);
        put_off = NULL;
    }
    if (!atomic_load(&node->is_dying) || (atomic_load(&node->cut_off) & bit) != 0)
        return;
    fake_dp_cut_off(dp);
    atomic_fetch_or(&node->cut_off, bit);
}

static void live_configure(void *self, struct mr_endpoint_config *config)
{
    const struct live_node *node = self;
    if (node->is_old)
        config->version = (struct mr_peer_version){0};
    if (node->incarnation != 0)
        config->incarnation = node->incarnation;
}

/* The process is the test's: it keeps what it may do. */
bool __wrap_ps_privileges_drop(uint64_t kept);
bool __wrap_ps_privileges_drop(uint64_t kept)
{
    return true;
}

void __wrap_ps_privileges_refuse_new_code(void);
void __wrap_ps_privileges_refuse_new_code(void)
{
}

/* ---- life ---- */

struct live_node *live_node_new(uint32_t core_count)
{
    struct live_node *node = calloc(1, sizeof(*node));
    assert_non_null(node);
    assert_int_in_range(core_count, 1, LIVE_CORES_MAX);
    node->core_count = core_count;
    node->directory = temporary_directory_make();
    struct ps_config *config = &node->config;
    ps_config_default(config);
    (void)snprintf(config->checkpoint_directory, sizeof(config->checkpoint_directory), "%s/ckpt",
                   node->directory);
    (void)snprintf(config->checkpoint_restore, sizeof(config->checkpoint_restore), "latest");
    config->checkpoint_every_s = 0;
    config->checkpoint_save_on_stop = false;
    config->checkpoint_allow.count = 1;
    (void)snprintf(config->checkpoint_allow.values[0], PS_CONFIG_VALUE_MAX, "%s", node->directory);
    config->memory_limit_mib = 512;
    config->memory_messages_mib = 64;
    config->transport_message_mib_max = 16;
    config->batches_memory_mib = 64;
    config->port_driver = DP_DRIVER_SOCKET;
    return node;
}

/* None that the kernel gives to others while the node is away. */
static uint16_t any_port(void)
{
    uint16_t random = 0;
    assert_int_equal(getrandom(&random, sizeof(random), 0), sizeof(random));
    return (uint16_t)(PORT_FIRST + random % PORT_COUNT);
}

static enum mr_status live_node_try(struct live_node *node, char error[DP_ERROR_BYTES])
{
    const struct fake_dp_front front = {.self = node,
                                        .configure = live_configure,
                                        .on_request = live_on_request,
                                        .arrived_at = live_arrived_at,
                                        .poll = live_poll};
    node->config.cores_count = node->core_count;
    node->config.port_udp_port = node->base_port;
    atomic_store(&node->is_dying, false);
    atomic_store(&node->cut_off, 0);
    for (uint32_t i = 0; i < node->core_count; i++) {
        node->cores[i].has_late = node->cores[i].expects_late = false;
        node->cores[i].unanswered_count = 0;
    }
    fake_dp_set_front(&front);
    return ps_server_start(&node->config, &node->server, error);
}

void live_node_start(struct live_node *node)
{
    char error[DP_ERROR_BYTES] = "";
    enum mr_status status = MR_BUSY;
    if (node->next_port != 0)
        node->base_port = node->next_port;
    node->next_port = 0;
    const bool is_new = node->base_port == 0;
    for (uint32_t i = 0; i < PORT_TRIES && status != MR_OK; i++) {
        if (is_new)
            node->base_port = any_port();
        status = live_node_try(node, error);
        if (status != MR_OK && status != MR_BUSY)
            break;
    }
    if (status != MR_OK)
        fail_msg("the node does not start: %s", error);
    for (uint32_t i = 0; i < node->core_count; i++)
        WAIT_UNTIL(atomic_load(&node->cores[i].app) != NULL);
}

struct live_node *live_node_start_new(uint32_t core_count)
{
    struct live_node *node = live_node_new(core_count);
    live_node_start(node);
    return node;
}

static uint32_t all_cores(const struct live_node *node)
{
    return (1u << node->core_count) - 1;
}

void live_node_pause(struct live_node *node)
{
    atomic_store(&node->is_pausing, true);
    WAIT_UNTIL(atomic_load(&node->paused) == all_cores(node));
}

void live_node_go_on(struct live_node *node)
{
    atomic_store(&node->is_pausing, false);
    WAIT_UNTIL(atomic_load(&node->paused) == 0);
}

static const struct ps_core *core_of(const struct live_node *node, uint32_t i)
{
    return atomic_load(&node->cores[i].app);
}

uint64_t live_node_applied(const struct live_node *node)
{
    uint64_t sum = node->applied_before;
    for (uint32_t i = 0; i < LIVE_CORES_MAX; i++)
        sum += core_of(node, i) != NULL ? mr_counter_read(&core_of(node, i)->counters.pushes_applied) : 0;
    return sum;
}

uint64_t live_node_repeated(const struct live_node *node)
{
    uint64_t sum = node->repeated_before;
    for (uint32_t i = 0; i < LIVE_CORES_MAX; i++)
        sum += core_of(node, i) != NULL ? mr_counter_read(&core_of(node, i)->counters.pushes_repeated) : 0;
    return sum;
}

void live_node_kill(struct live_node *node)
{
    if (node->server == NULL)
        return;
    atomic_store(&node->is_dying, true);
    WAIT_UNTIL(atomic_load(&node->cut_off) == all_cores(node));
    node->applied_before = live_node_applied(node);
    node->repeated_before = live_node_repeated(node);
    for (uint32_t i = 0; i < LIVE_CORES_MAX; i++)
        atomic_store(&node->cores[i].app, NULL);
    assert_int_equal(ps_server_stop(node->server), MR_OK);
    node->server = NULL;
}

void live_node_restart(struct live_node *node)
{
    live_node_start(node);
}

void live_node_restart_with(struct live_node *node, uint32_t core_count)
{
    node->core_count = core_count;
    live_node_start(node);
}

void live_node_restart_aside(struct live_node *node)
{
    const uint16_t port = node->base_port;
    node->base_port = 0;
    live_node_start(node);
    node->next_port = port;
}

void live_node_destroy(struct live_node *node)
{
    live_node_kill(node);
    assert_int_equal(temporary_directory_remove(node->directory), 0);
    free(node);
}

const char *live_node_address(const struct live_node *node)
{
    static _Thread_local char text[32];
    (void)snprintf(text, sizeof(text), "127.0.0.1:%u", node->base_port);
    return text;
}

/* ---- what the test does besides ---- */

struct mr_client *live_node_operator(const struct live_node *node)
{
    const struct mr_client_options options = {
        .server = live_node_address(node), .deadline_ms = 60000, .memory_bytes = OPERATOR_BYTES};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

void live_node_save(struct live_node *node)
{
    struct mr_client *client = live_node_operator(node);
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    uint64_t id = 0;
    if (save_into(client, NULL, NULL, &id) != MR_OK)
        fail_msg("%s", mr_last_error());
    WAIT_UNTIL(mr_checkpoint_info(client, NULL, 0, &info, NULL, NULL) == MR_OK && info.last_good_id == id);
    mr_client_destroy(client);
}

void live_node_take_back(struct live_node *node, uint64_t id)
{
    struct mr_client *client = live_node_operator(node);
    if (restore_from(client, NULL, NULL, id, NULL) != MR_OK)
        fail_msg("%s", mr_last_error());
    mr_client_destroy(client);
}

float live_value(uint64_t key, uint32_t d)
{
    return (float)(key % 1000) + 0.25f * (float)d;
}

void live_node_fill(struct live_node *node, uint32_t table, uint32_t dim, const uint64_t *keys,
                    uint32_t count)
{
    struct mr_client *client = live_node_operator(node);
    float *rows = calloc((size_t)count * dim + 1, sizeof(*rows));
    assert_non_null(rows);
    for (uint32_t i = 0; i < count * dim; i++)
        rows[i] = live_value(keys[i / dim], i % dim);
    if (mr_set_rows(client, NULL, table, keys, count, dim, false, rows) != MR_OK)
        fail_msg("%s", mr_last_error());
    free(rows);
    mr_client_destroy(client);
}

uint16_t live_owner(uint32_t core_count, uint32_t partition)
{
    return (uint16_t)(partition * core_count / MR_PARTITION_COUNT);
}

uint64_t live_node_requests(const struct live_node *node)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < node->core_count; i++)
        sum += atomic_load(&node->cores[i].requests);
    return sum;
}
