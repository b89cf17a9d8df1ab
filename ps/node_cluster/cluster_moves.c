#include "ps/node_cluster/cluster_moves.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/move.h"
#include "ps/control/control_internal.h"
#include "ps/core/core.h"
#include "ps/move/cleanup.h"
#include "ps/move/migration_source.h"

#define SILENCE_US 60000000u /* a giver that gives nothing for longer ends the move */

static struct ps_partition_set partitions_of(const struct ps_cluster_move *move)
{
    struct ps_partition_set set = {{0}};
    for (uint32_t slot = move->first; slot < (uint32_t)move->first + move->count; slot++)
        ps_partitions_add(&set, ps_cluster_slot(slot));
    return set;
}

/* ---- with the lock ---- */

bool ps_cluster_moves_adopt(const struct ps_cluster_moves *m, uint64_t move)
{
    for (uint32_t i = 0; i < m->arrived_count; i++)
        if (m->arrived[i] == move)
            return true;
    return false;
}

void ps_cluster_moves_drop(struct ps_cluster_moves *m, uint32_t slot)
{
    ps_partitions_add(&m->drops, ps_cluster_slot(slot));
    m->has_drops = true;
}

bool ps_cluster_moves_propose(struct ps_cluster_moves *m, const struct ps_cluster_map *map,
                              const bool present[PS_CLUSTER_NODES_MAX], struct ps_cluster_map *next)
{
    *next = *map;
    if (m->failed != 0 && ps_cluster_map_cancel_move(next, m->failed)) {
        next->balances = false; /* or it would be begun again and again */
        return true;
    }
    m->failed = 0;
    if (m->wish_state != PS_WISH_PENDING)
        return false;
    const enum ps_migration_request_state state =
        ps_migration_request_propose(map, present, &m->wish, next, m->wish_text);
    if (state == PS_REQUEST_WAITS || state == PS_REQUEST_WRITES)
        return state == PS_REQUEST_WRITES;
    m->wish_status = state == PS_REQUEST_MADE ? MR_OK : MR_INVALID_ARGUMENT;
    m->wish_epoch = map->epoch;
    m->wish_state = PS_WISH_ENDED;
    ps_node_wake_control(m->node);
    return false;
}

static const struct ps_member_give *giving(const struct ps_member *member, uint64_t id)
{
    for (uint32_t i = 0; i < member->giving_count; i++)
        if (member->giving[i].move.id == id)
            return &member->giving[i];
    return NULL;
}

bool ps_cluster_moves_advance(struct ps_cluster_moves *m, struct ps_member *member, uint64_t now_us)
{
    const struct ps_member_give *give = m->gives != 0 ? giving(member, m->gives) : NULL;
    if (give == NULL)
        return false;
    if (give->state == PS_GIVING_COPIES && atomic_load(&m->hold_asked) == m->gives) {
        ps_member_copied(member, m->gives, now_us);
        return true;
    }
    if (give->state == PS_GIVING_HELD && atomic_load(&m->done_heard) == m->gives)
        ps_member_handed_over(member, m->gives);
    return false;
}

void ps_cluster_moves_look(struct ps_cluster_moves *m, const struct ps_member *member,
                           struct ps_cluster_moves_now *out)
{
    const struct ps_cluster_map *map = &member->map;
    *out = (struct ps_cluster_moves_now){.has_drops = m->has_drops, .drops = m->drops};
    m->has_drops = false;
    m->drops = (struct ps_partition_set){{0}};
    for (uint32_t i = 0; i < member->giving_count; i++) {
        const struct ps_member_give *give = &member->giving[i];
        if (out->give.id != 0 && out->give.id < give->move.id)
            continue;
        out->give = give->move;
        out->give_is_held = give->state != PS_GIVING_COPIES;
    }
    for (uint32_t i = 0; i < map->move_count && member->index != PS_CLUSTER_NO_NODE; i++) {
        const struct ps_cluster_move *move = &map->moves[i];
        if (move->to != member->index || (out->take.id != 0 && out->take.id < move->id))
            continue;
        out->take = *move;
        out->giver = map->nodes[move->from];
    }
    out->has_taken = m->takes.id != 0 && member->have[m->takes.first] == m->takes.id;
    uint32_t kept = 0; /* of those that arrived, the ones that the map still has */
    for (uint32_t i = 0; i < m->arrived_count; i++)
        if (ps_cluster_map_move(map, m->arrived[i]) != NULL)
            m->arrived[kept++] = m->arrived[i];
    m->arrived_count = kept;
}

/* ---- any thread ---- */

void ps_cluster_moves_heard(struct ps_cluster_moves *m, uint64_t move, uint64_t flags)
{
    bool is_new = false;
    if ((flags & MR_MOVE_FENCE) != 0)
        is_new |= atomic_exchange(&m->hold_asked, move) != move;
    if ((flags & MR_MOVE_INSTALLED) != 0)
        is_new |= atomic_exchange(&m->done_heard, move) != move;
    if (is_new)
        ps_node_wake_control(m->node);
}

/* ---- giving ---- */

struct give_order {
    uint64_t move;
    struct ps_partition_set partitions;
    _Atomic bool has_failed;
};

static void give_begin(struct ps_core *core, void *arg)
{
    struct give_order *order = arg;
    ps_save_marks_lost(core);
    if (ps_migration_source_begin(core, order->move, &order->partitions) != MR_OK)
        atomic_store(&order->has_failed, true);
}

static void give_hold(struct ps_core *core, void *arg)
{
    const struct give_order *order = arg;
    ps_migration_source_fence(core, order->move);
}

static void give_end(struct ps_core *core, void *arg)
{
    const struct give_order *order = arg;
    ps_migration_source_end(core, order->move);
}

/* False: a core has no memory for it. */
static bool poll_give(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now)
{
    struct give_order order = {.move = m->gives};
    if (m->gives != 0 && now->give.id != m->gives) {
        ps_node_each_core(m->node, give_end, &order);
        m->gives = 0;
    }
    if (now->give.id != 0 && m->gives == 0 && now->give.id != m->cannot_give) {
        order.move = now->give.id;
        order.partitions = partitions_of(&now->give);
        m->gives_held = false;
        ps_node_each_core(m->node, give_begin, &order);
        if (atomic_load(&order.has_failed)) {
            ps_node_each_core(m->node, give_end, &order);
            m->cannot_give = order.move;
            mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"move", .number = order.move}), "move_no_memory",
                        "move %" PRIu64 ": no memory to give %u partition%s: raise memory.limit_mib",
                        order.move, now->give.count, mr_plural(now->give.count));
            return false;
        }
        m->gives = now->give.id;
    }
    if (m->gives != 0 && now->give_is_held && !m->gives_held) {
        order.move = m->gives;
        ps_node_each_core(m->node, give_hold, &order);
        m->gives_held = true;
    }
    return true;
}

/* ---- dropping ---- */

struct drop_order {
    const struct ps_partition_set *partitions;
    bool has[DP_CORES_MAX];
};

static void drop_add(struct ps_core *core, void *arg)
{
    const struct drop_order *order = arg;
    ps_cleanup_add(core, order->partitions);
}

static void drop_look(struct ps_core *core, void *arg)
{
    struct drop_order *order = arg;
    order->has[core->index] = ps_cleanup_has(core, order->partitions);
}

static bool any_has(const struct ps_cluster_moves *m, const struct drop_order *order)
{
    bool any = false;
    for (uint32_t i = 0; i < m->node->core_count; i++)
        any |= order->has[i];
    return any;
}

static void cluster_moves_drop(struct ps_cluster_moves *m, const struct ps_partition_set *partitions)
{
    struct drop_order order = {.partitions = partitions};
    ps_node_each_core(m->node, drop_add, &order);
}

/* ---- taking ---- */

static void end_take(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now)
{
    struct ps_migration_target_progress p = {0};
    const struct ps_partition_set partitions = partitions_of(&m->takes);
    const uint64_t now_us = mr_clock_us();
    if (m->take != NULL)
        ps_migration_target_progress(m->take, &p);
    ps_migration_target_stop(m->take);
    m->take = NULL;
    if (now->has_taken) {
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"move", .number = m->takes.id}, {"from", .text = m->from},
                                  {"partitions", .number = m->takes.count}, {"rows", .number = p.rows},
                                  {"bytes", .number = p.bytes}),
                    "move_taken",
                    "move %" PRIu64 ": %u partition%s of node %s are here: %" PRIu64 " rows, %" PRIu64
                    " MiB in %.2f s; calls waited for %.1f ms",
                    m->takes.id, m->takes.count, mr_plural(m->takes.count), m->from, p.rows, p.bytes / MR_MIB,
                    (double)(now_us - p.started_us) / 1e6, (double)(now_us - p.held_us) / 1e3);
    } else {
        if (!m->has_reported)
            mr_log_with(MR_LOG_INFO,
                        MR_LOG_FIELDS({"move", .number = m->takes.id}, {"from", .text = m->from}),
                        "move_cancelled", "move %" PRIu64 ": cancelled: node %s keeps its %u partition%s",
                        m->takes.id, m->from, m->takes.count, mr_plural(m->takes.count));
        cluster_moves_drop(m, &partitions);
    }
    m->takes.id = 0;
}

static void begin_take(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now)
{
    const struct ps_partition_set partitions = partitions_of(&now->take);
    m->takes = now->take;
    m->has_reported = false;
    (void)snprintf(m->from, sizeof(m->from), "%s", now->giver.name);
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"move", .number = m->takes.id}, {"from", .text = m->from},
                              {"partitions", .number = m->takes.count}),
                "move_begins", "move %" PRIu64 ": this node takes %u partition%s from node %s", m->takes.id,
                m->takes.count, mr_plural(m->takes.count), m->from);
    cluster_moves_drop(m, &partitions);
    m->cleans = true;
}

/* A take has come further, on its own thread. */
static void take_changed(void *context)
{
    ps_node_wake_control(context);
}

static bool start_take(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now)
{
    char text[PS_MOVE_TEXT_BYTES] = "";
    const uint64_t mib_s = m->takes.mib_s != 0 ? m->takes.mib_s : m->mib_s;
    const struct ps_migration_target_options options = {.node = m->node,
                                                        .move = m->takes.id,
                                                        .partitions = partitions_of(&m->takes),
                                                        .address = now->giver.address,
                                                        .core_count = now->giver.core_count,
                                                        .bytes_per_s_max = mib_s * MR_MIB,
                                                        .silence_us = SILENCE_US,
                                                        .changed = take_changed,
                                                        .context = m->node};
    if (ps_migration_target_start(&options, &m->take, text) == MR_OK)
        return true;
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"move", .number = m->takes.id}, {"from", .text = m->from}),
                "move_unreadable", "move %" PRIu64 ": cannot read from node %s: %s", m->takes.id, m->from,
                text);
    m->has_reported = true;
    return false;
}

/* Returns the move in hand if it is complete, or has failed. */
static uint64_t follow_take(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now, bool *failed)
{
    struct ps_migration_target_progress p;
    if (m->cleans) {
        const struct ps_partition_set partitions = partitions_of(&m->takes);
        struct drop_order order = {.partitions = &partitions};
        ps_node_each_core(m->node, drop_look, &order);
        m->cleans = any_has(m, &order);
        if (m->cleans)
            return 0;
        *failed = !start_take(m, now);
        return *failed ? m->takes.id : 0;
    }
    if (m->take == NULL || m->has_reported)
        return 0;
    ps_migration_target_progress(m->take, &p);
    if (p.state == PS_TAKE_RUNS)
        return 0;
    *failed = p.state == PS_TAKE_FAILED;
    if (*failed)
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"move", .number = m->takes.id}, {"from", .text = m->from}),
                    "move_failed", "move %" PRIu64 ": %u partition%s of node %s cannot be taken: %s",
                    m->takes.id, m->takes.count, mr_plural(m->takes.count), m->from, p.text);
    m->has_reported = true;
    return m->takes.id;
}

void ps_cluster_moves_tell(struct ps_cluster_moves *m)
{
    if (m->take != NULL)
        ps_migration_target_confirm(m->take);
}

static void marks_lost(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_save_marks_lost(core);
}

uint64_t ps_cluster_moves_poll(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now,
                               bool *failed)
{
    *failed = !poll_give(m, now);
    if (*failed)
        return now->give.id;
    if (now->has_drops)
        cluster_moves_drop(m, &now->drops);
    if (m->takes.id != 0 && now->take.id != m->takes.id) {
        ps_node_each_core(m->node, marks_lost, NULL);
        end_take(m, now);
    }
    if (m->takes.id == 0 && now->take.id != 0)
        begin_take(m, now);
    return m->takes.id != 0 ? follow_take(m, now, failed) : 0;
}

/* ---- what clients ask for ---- */

#define WISH_US   UINT64_C(30000000)
#define REPORT_US 1000000u /* between two reports of the same move */

bool ps_cluster_moves_ask(struct ps_cluster_moves *m, pthread_mutex_t *lock, struct ps_command *command)
{
    if (m->command != NULL) {
        ps_command_fail(command, MR_BUSY, "another change of the moves is being made: ask again");
        return true;
    }
    pthread_mutex_lock(lock);
    m->wish = command->move;
    m->wish_state = PS_WISH_PENDING;
    pthread_mutex_unlock(lock);
    m->command = command;
    m->command_until_us = mr_clock_us() + WISH_US;
    return false;
}

void ps_cluster_moves_answer(struct ps_cluster_moves *m, pthread_mutex_t *lock, struct ps_control *control)
{
    if (m->command == NULL)
        return;
    pthread_mutex_lock(lock);
    const bool is_late = m->wish_state == PS_WISH_PENDING && mr_clock_us() > m->command_until_us;
    const bool has_ended = m->wish_state == PS_WISH_ENDED || is_late;
    if (is_late)
        ps_command_fail(m->command, MR_DEADLINE_EXCEEDED,
                        "the map could not be changed in time: a checkpoint is being made, %u moves are in "
                        "progress, or ZooKeeper does not answer",
                        PS_CLUSTER_MOVES_MAX);
    else if (has_ended && m->wish_status != MR_OK)
        ps_command_fail(m->command, m->wish_status, "%s", m->wish_text);
    else if (has_ended)
        ps_command_answer(m->command, mr_tensor_1d(MR_U64, 1, NULL), &m->wish_epoch);
    m->wish_state = has_ended ? PS_WISH_NONE : m->wish_state;
    pthread_mutex_unlock(lock);
    if (!has_ended)
        return;
    ps_command_send_back(control, m->command);
    m->command = NULL;
}

bool ps_cluster_moves_report(struct ps_cluster_moves *m, struct ps_cluster_move_report *out)
{
    struct ps_migration_target_progress p;
    const uint64_t now_us = mr_clock_us();
    *out = (struct ps_cluster_move_report){0};
    if (m->take != NULL) {
        ps_migration_target_progress(m->take, &p);
        *out = (struct ps_cluster_move_report){.id = m->takes.id,
                                               .is_ending = p.held_us != 0,
                                               .rows = p.rows,
                                               .bytes = p.bytes,
                                               .left_bytes = p.left_bytes,
                                               .us = now_us - p.started_us};
    }
    if (out->id == m->reported && (out->id == 0 || now_us - m->reported_us < REPORT_US))
        return false;
    m->reported = out->id;
    m->reported_us = now_us;
    return true;
}

void ps_cluster_moves_see(struct ps_cluster_moves *m, const struct ps_cluster_map *map,
                          const struct ps_cluster_node *registered, const struct ps_cluster_report *reports,
                          uint32_t count)
{
    memset(m->progress, 0, sizeof(m->progress));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t node = ps_cluster_map_find(map, registered[i].name);
        if (node != PS_CLUSTER_NO_NODE)
            m->progress[node] = reports[i].move;
    }
}

static void show_move(const struct ps_cluster_moves *m, const struct ps_cluster_move *move, uint64_t *row)
{
    const struct ps_cluster_move_report *p = &m->progress[move->to];
    row[MR_MOVES_ID] = move->id;
    row[MR_MOVES_FIRST] = move->first;
    row[MR_MOVES_COUNT] = move->count;
    row[MR_MOVES_FROM] = move->from;
    row[MR_MOVES_TO] = move->to;
    row[MR_MOVES_MIB_S] = move->mib_s;
    row[MR_MOVES_STATE] = MR_MOVES_WAITS;
    if (p->id != move->id)
        return;
    row[MR_MOVES_STATE] = p->is_ending ? MR_MOVES_ENDS : MR_MOVES_COPIES;
    row[MR_MOVES_ROWS] = p->rows;
    row[MR_MOVES_BYTES] = p->bytes;
    row[MR_MOVES_LEFT_BYTES] = p->left_bytes;
    row[MR_MOVES_US] = p->us;
}

void ps_cluster_moves_show(const struct ps_cluster_moves *m, const struct ps_cluster_map *map,
                           struct ps_command *command)
{
    uint64_t words[MR_MOVES_WORDS] = {[MR_MOVES_EPOCH] = map->epoch, [MR_MOVES_BALANCES] = map->balances};
    uint64_t rows[PS_CLUSTER_MOVES_MAX][MR_MOVES_ROW_WORDS] = {{0}};
    char names[PS_CLUSTER_NODES_MAX][PS_CLUSTER_NAME_BYTES] = {{0}};
    const uint32_t node_count = map->node_count;
    assert(node_count <= PS_CLUSTER_NODES_MAX && map->move_count <= PS_CLUSTER_MOVES_MAX);
    for (uint32_t i = 0; i < node_count; i++) {
        words[MR_MOVES_DRAINED + i / 64] |= (uint64_t)map->drained[i] << i % 64;
        memcpy(names[i], map->nodes[i].name, sizeof(names[i]));
    }
    for (uint32_t i = 0; i < map->move_count; i++)
        show_move(m, &map->moves[i], rows[i]);
    ps_command_answer(command, mr_tensor_1d(MR_U64, MR_MOVES_WORDS, NULL), words);
    ps_command_answer(command, mr_tensor_2d(MR_U64, map->move_count, MR_MOVES_ROW_WORDS, NULL), rows);
    ps_command_answer(command, mr_tensor_2d(MR_U8, map->node_count, PS_CLUSTER_NAME_BYTES, NULL), names);
}

bool ps_cluster_moves_is_busy(const struct ps_cluster_moves *m)
{
    return m->gives != 0 || m->takes.id != 0;
}

bool ps_cluster_moves_is_waiting(const struct ps_cluster_moves *m)
{
    return m->takes.id != 0 || m->command != NULL;
}

void ps_cluster_moves_stop(struct ps_cluster_moves *m)
{
    if (m->command != NULL)
        ps_command_free(m->command);
    m->command = NULL;
    ps_migration_target_stop(m->take);
    m->take = NULL;
}
