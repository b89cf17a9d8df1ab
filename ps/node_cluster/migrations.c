/* Migrations that this node is the source or the target of (ps/cluster/migration.h), and what clients ask
 * for. Which there are stands in the map. A node does the work of one of each role at a time, in the order
 * of their ids, which cannot end in a circle of nodes that wait for each other. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/move.h"
#include "ps/move/cleanup.h"
#include "ps/move/migration_source.h"
#include "ps/node_cluster/node_cluster_internal.h"

#define SILENCE_US UINT64_C(60000000) /* a source that sends nothing for longer ends the migration */
#define REQUEST_US UINT64_C(30000000) /* for the map to say what a client asks for */
#define REPORT_US  1000000u           /* between two reports of the same migration */

/* ---- the member's operations; caller holds c->lock ---- */

void ps_node_cluster_migration_changed(void *context, const struct ps_migration *m)
{
    struct ps_node_cluster *c = context;
    const bool is_source = m->role == PS_MIGRATION_SOURCE;
    if (m->state == PS_MIGRATION_FAILED && c->zookeeper != NULL)
        ps_zookeeper_wake(c->zookeeper); /* it is to be cancelled */
    else if (m->state != PS_MIGRATION_FAILED)
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"move", .number = m->move.id},
                                  {"role", .text = is_source ? "source" : "target"},
                                  {"state", .text = ps_migration_state_text(m->state)},
                                  {"peer", .text = m->peer.name}, {"partitions", .number = m->move.count}),
                    "move_state", "move %" PRIu64 " of %u partition%s %s node %s: %s", m->move.id,
                    m->move.count, mr_plural(m->move.count), is_source ? "to" : "from", m->peer.name,
                    ps_migration_state_text(m->state));
    if (m->state == PS_MIGRATION_WAITING || m->state == PS_MIGRATION_FENCING || ps_migration_has_ended(m))
        ps_node_cluster_note_change(c);
}

/* The map has just ended it: its rows are here. */
bool ps_node_cluster_install(void *context, uint32_t slot, uint64_t id)
{
    struct ps_node_cluster *c = context;
    const struct ps_migration *m = ps_member_migration(&c->member, id);
    (void)slot;
    return m != NULL && m->role == PS_MIGRATION_TARGET && m->state == PS_MIGRATION_DONE;
}

/* The cores stop to serve it once they have the map, or the lease has ended; then it is freed. */
void ps_node_cluster_cleanup(void *context, uint32_t slot)
{
    struct ps_node_cluster *c = context;
    ps_partitions_add(&c->migrations.cleanup, ps_cluster_slot(slot));
    c->migrations.has_cleanup = true;
    ps_node_cluster_note_change(c);
}

/* ---- the table of migrations ---- */

/* The oldest migration of a role: the one in progress. NULL: there is none. Caller holds c->lock. */
static const struct ps_migration *migration_oldest(const struct ps_member *member,
                                                   enum ps_migration_role role)
{
    const struct ps_migration *oldest = NULL;
    for (uint32_t i = 0; i < member->migration_count; i++)
        if (member->migrations[i].role == role &&
            (oldest == NULL || member->migrations[i].move.id < oldest->move.id))
            oldest = &member->migrations[i];
    return oldest;
}

/* Copies the migration of a role that is in progress. False: there is none to be worked on. None begins or
 * ends until all cores have the current map: a stale core could keep a partition that was freed, or write
 * one that is fenced. And none begins here before the node has all tables that rows may be of, nor while it
 * takes over partitions, which may be those that were to move here. */
static bool migration_get(struct ps_node_cluster *c, enum ps_migration_role role, struct ps_migration *out)
{
    pthread_mutex_lock(&c->lock);
    const struct ps_migration *m = c->is_changed ? NULL : migration_oldest(&c->member, role);
    if (m != NULL && role == PS_MIGRATION_TARGET && m->state == PS_MIGRATION_WAITING &&
        (c->features_session == 0 || c->take_over.state != PS_NODE_TAKES_NOTHING))
        m = NULL;
    if (m != NULL)
        *out = *m;
    pthread_mutex_unlock(&c->lock);
    return m != NULL;
}

static bool migration_set(struct ps_node_cluster *c, const struct ps_migration *m,
                          enum ps_migration_state state)
{
    pthread_mutex_lock(&c->lock);
    const bool is_set = ps_member_migrate(&c->member, m->move.id, state, mr_clock_boot_us());
    pthread_mutex_unlock(&c->lock);
    return is_set;
}

static void migration_release(struct ps_node_cluster *c, const struct ps_migration *m)
{
    pthread_mutex_lock(&c->lock);
    ps_member_release(&c->member, m->move.id);
    pthread_mutex_unlock(&c->lock);
}

bool ps_node_cluster_has_begun_migrations(const struct ps_node_cluster *c)
{
    for (uint32_t i = 0; i < c->member.migration_count; i++)
        if (c->member.migrations[i].state != PS_MIGRATION_WAITING)
            return true;
    return false;
}

/* ---- on the cores ---- */

struct migration_order {
    uint64_t id;
    struct ps_partition_set partitions;
    _Atomic bool has_failed;
};

static void source_begin(struct ps_core *core, void *arg)
{
    struct migration_order *order = arg;
    ps_save_marks_lost(core);
    if (ps_migration_source_begin(core, order->id, &order->partitions) != MR_OK)
        atomic_store(&order->has_failed, true);
}

static void source_fence(struct ps_core *core, void *arg)
{
    const struct migration_order *order = arg;
    ps_migration_source_fence(core, order->id);
}

static void source_end(struct ps_core *core, void *arg)
{
    const struct migration_order *order = arg;
    ps_migration_source_end(core, order->id);
}

static void target_end(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_save_marks_lost(core);
}

/* ---- the work of each state, on the control thread; true: there may be more ---- */

void ps_node_cluster_advance_source(struct ps_node_cluster *c)
{
    const struct ps_migration *m = migration_oldest(&c->member, PS_MIGRATION_SOURCE);
    if (m == NULL)
        return;
    const uint64_t id = m->move.id;
    if (m->state == PS_MIGRATION_COPYING && atomic_load(&c->migrations.fence_asked) == id)
        (void)ps_member_migrate(&c->member, id, PS_MIGRATION_FENCING, mr_clock_boot_us());
    else if (m->state == PS_MIGRATION_FENCED && atomic_load(&c->migrations.installed) == id)
        (void)ps_member_migrate(&c->member, id, PS_MIGRATION_INSTALLED, mr_clock_boot_us());
}

static bool work_source(struct ps_node_cluster *c)
{
    struct ps_migration m;
    if (!migration_get(c, PS_MIGRATION_SOURCE, &m))
        return false;
    struct migration_order order = {.id = m.move.id, .partitions = ps_migration_partitions(&m)};
    switch (m.state) {
    case PS_MIGRATION_WAITING:
        if (!migration_set(c, &m, PS_MIGRATION_COPYING))
            return true;
        ps_node_each_core(c->node, source_begin, &order);
        if (!order.has_failed)
            return false;
        ps_node_each_core(c->node, source_end, &order);
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"move", .number = order.id}), "move_no_memory",
                    "move %" PRIu64 ": no memory to copy %u partition%s: raise memory.limit_mib", order.id,
                    m.move.count, mr_plural(m.move.count));
        (void)migration_set(c, &m, PS_MIGRATION_FAILED);
        return false;
    case PS_MIGRATION_FENCING: /* the cores have the map in which calls wait */
        if (migration_set(c, &m, PS_MIGRATION_FENCED))
            ps_node_each_core(c->node, source_fence, &order);
        return false;
    case PS_MIGRATION_CANCELLED:
    case PS_MIGRATION_DONE:
        ps_node_each_core(c->node, source_end, &order);
        migration_release(c, &m);
        return true;
    default:
        return false;
    }
}

/* Has the cores free what is no longer the node's. */
static void work_cleanup(struct ps_node_cluster *c)
{
    struct ps_partition_set partitions = {{0}};
    pthread_mutex_lock(&c->lock);
    const bool has_cleanup = c->migrations.has_cleanup && !c->is_changed;
    if (has_cleanup) {
        partitions = c->migrations.cleanup;
        c->migrations.cleanup = (struct ps_partition_set){{0}};
        c->migrations.has_cleanup = false;
    }
    pthread_mutex_unlock(&c->lock);
    if (has_cleanup)
        ps_cleanup_add_everywhere(c->node, &partitions);
}

static bool target_start(struct ps_node_cluster *c, const struct ps_migration *m)
{
    char text[PS_MOVE_TEXT_BYTES] = "";
    const uint64_t mib_s = m->move.mib_s != 0 ? m->move.mib_s : c->node->config->cluster_move_mib_s;
    const struct ps_migration_target_options options = {
        .node = c->node, .migration = *m, .bytes_per_s_max = mib_s * MR_MIB, .silence_us = SILENCE_US};
    if (!migration_set(c, m, PS_MIGRATION_COPYING))
        return true;
    if (ps_migration_target_start(&options, &c->migrations.target, text) == MR_OK)
        return false;
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"move", .number = m->move.id}, {"from", .text = m->peer.name}),
                "move_unreadable", "move %" PRIu64 ": cannot read from node %s: %s", m->move.id, m->peer.name,
                text);
    (void)migration_set(c, m, PS_MIGRATION_FAILED);
    return false;
}

/* Follows what the target's thread has come to, state by state. */
static bool target_follow(struct ps_node_cluster *c, const struct ps_migration *m)
{
    struct ps_migration_target_progress p;
    ps_migration_target_progress(c->migrations.target, &p);
    const bool skips = m->state == PS_MIGRATION_COPYING && p.state == PS_MIGRATION_INSTALLED;
    const enum ps_migration_state state = skips ? PS_MIGRATION_FENCED : p.state;
    if (state == m->state)
        return false;
    if (state == PS_MIGRATION_FAILED)
        mr_log_with(MR_LOG_ERROR,
                    MR_LOG_FIELDS({"move", .number = m->move.id}, {"from", .text = m->peer.name}),
                    "move_failed", "move %" PRIu64 ": %u partition%s of node %s cannot be copied: %s",
                    m->move.id, m->move.count, mr_plural(m->move.count), m->peer.name, p.text);
    if (migration_set(c, m, state) && state == PS_MIGRATION_INSTALLED)
        ps_migration_target_confirm(c->migrations.target); /* from now on the map may say so */
    return true;
}

static void target_stop(struct ps_node_cluster *c, const struct ps_migration *m,
                        const struct ps_partition_set *partitions)
{
    struct ps_migration_target_progress p = {0};
    const uint64_t now_us = mr_clock_us();
    ps_node_each_core(c->node, target_end, NULL);
    if (c->migrations.target != NULL)
        ps_migration_target_progress(c->migrations.target, &p);
    ps_migration_target_stop(c->migrations.target);
    c->migrations.target = NULL;
    if (m->state == PS_MIGRATION_DONE)
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"move", .number = m->move.id}, {"from", .text = m->peer.name},
                                  {"partitions", .number = m->move.count}, {"rows", .number = p.rows},
                                  {"bytes", .number = p.bytes}),
                    "move_done",
                    "move %" PRIu64 ": %u partition%s of node %s are here: %" PRIu64 " rows, %" PRIu64
                    " MiB in %.2f s; calls waited for %.1f ms",
                    m->move.id, m->move.count, mr_plural(m->move.count), m->peer.name, p.rows,
                    p.bytes / MR_MIB, (double)(now_us - p.started_us) / 1e6,
                    (double)(now_us - p.fenced_us) / 1e3);
    else
        ps_cleanup_add_everywhere(c->node, partitions);
    migration_release(c, m);
}

static bool work_target(struct ps_node_cluster *c)
{
    struct ps_migration m;
    if (!migration_get(c, PS_MIGRATION_TARGET, &m))
        return false;
    const struct ps_partition_set partitions = ps_migration_partitions(&m);
    switch (m.state) {
    case PS_MIGRATION_WAITING:
        if (ps_node_cluster_copies_keep(c,
                                        &partitions)) /* they are freed when the copy ends, and not later */
            return false;
        if (migration_set(c, &m, PS_MIGRATION_CLEANUP))
            ps_cleanup_add_everywhere(c->node, &partitions);
        return true;
    case PS_MIGRATION_CLEANUP:
        return !ps_cleanup_has_anywhere(c->node, &partitions) && target_start(c, &m);
    case PS_MIGRATION_COPYING:
    case PS_MIGRATION_FENCED:
        return target_follow(c, &m);
    case PS_MIGRATION_CANCELLED:
    case PS_MIGRATION_DONE:
        target_stop(c, &m, &partitions);
        return true;
    default:
        return false; /* the map says what becomes of it */
    }
}

/* Puts into the node's entry how far the migration has come that it is the target of. */
static void report_target(struct ps_node_cluster *c)
{
    struct ps_node_migrations *n = &c->migrations;
    struct ps_cluster_move_report report = {0};
    struct ps_migration_target_progress p;
    const uint64_t now_us = mr_clock_us();
    if (n->target != NULL) {
        ps_migration_target_progress(n->target, &p);
        report = (struct ps_cluster_move_report){.id = p.id,
                                                 .is_ending = p.fenced_us != 0,
                                                 .rows = p.rows,
                                                 .bytes = p.bytes,
                                                 .left_bytes = p.left_bytes,
                                                 .us = now_us - p.started_us};
    }
    if (report.id == n->reported && (report.id == 0 || now_us - n->reported_us < REPORT_US))
        return;
    n->reported = report.id;
    n->reported_us = now_us;
    pthread_mutex_lock(&c->lock);
    c->report.move = report;
    ps_node_cluster_report(c);
    pthread_mutex_unlock(&c->lock);
}

void ps_node_cluster_poll_migrations(struct ps_node_cluster *c)
{
    while (work_source(c)) {
    }
    work_cleanup(c);
    while (work_target(c)) {
    }
    report_target(c);
}

bool ps_node_cluster_is_migrating(struct ps_node_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    const bool is_target = migration_oldest(&c->member, PS_MIGRATION_TARGET) != NULL;
    pthread_mutex_unlock(&c->lock);
    return is_target || c->migrations.command != NULL;
}

void ps_node_cluster_end_migrations(struct ps_node_cluster *c)
{
    if (c == NULL)
        return;
    if (c->migrations.command != NULL)
        ps_command_free(c->migrations.command);
    c->migrations.command = NULL;
    ps_migration_target_stop(c->migrations.target);
    c->migrations.target = NULL;
    ps_node_cluster_end_take_over(c);
    ps_node_cluster_end_copies(c);
}

/* ---- a core's thread ---- */

void ps_node_cluster_heard_target(struct ps_node_cluster *c, uint64_t id, uint64_t flags)
{
    bool is_new = false;
    if ((flags & MR_MOVE_FENCE) != 0)
        is_new |= atomic_exchange(&c->migrations.fence_asked, id) != id;
    if ((flags & MR_MOVE_INSTALLED) != 0)
        is_new |= atomic_exchange(&c->migrations.installed, id) != id;
    if (is_new)
        ps_node_wake_control(c->node);
}

/* ---- what clients ask for ---- */

/* The map does not yet say what becomes of it. Caller holds c->lock. */
static bool request_is_open(const struct ps_node_migrations *n)
{
    return n->request_state == PS_REQUEST_WAITS || n->request_state == PS_REQUEST_WRITES;
}

bool ps_node_cluster_move(void *context, struct ps_command *command)
{
    struct ps_node_cluster *c = context;
    struct ps_node_migrations *n = &c->migrations;
    if (n->command != NULL) {
        ps_command_fail(command, MR_BUSY, "another change of the moves is being made: ask again");
        return true;
    }
    pthread_mutex_lock(&c->lock);
    n->request = command->move;
    n->request_state = PS_REQUEST_WAITS;
    pthread_mutex_unlock(&c->lock);
    n->command = command;
    n->command_until_us = mr_clock_us() + REQUEST_US;
    ps_node_cluster_wake(c);
    return false;
}

bool ps_node_cluster_next_migrations(struct ps_node_cluster *c, const struct ps_zookeeper_view *view,
                                     struct ps_cluster_map *next)
{
    struct ps_node_migrations *n = &c->migrations;
    const struct ps_cluster_map *map = view->map;
    *next = *map;
    for (uint32_t i = 0; i < c->member.migration_count; i++) {
        const struct ps_migration *m = &c->member.migrations[i];
        if (m->state == PS_MIGRATION_FAILED && ps_cluster_map_cancel_move(next, m->move.id)) {
            next->balances = false; /* or it would be begun again and again */
            return true;
        }
    }
    if (!request_is_open(n))
        return false;
    if (n->request.kind == MR_MOVE_TAKE_OVER && !ps_node_cluster_knows_room(c, view))
        return false;
    n->request.room = c->room;
    n->request.has_no_directory = c->save.commit == NULL;
    n->request_state = ps_migration_request_propose(map, c->present, &n->request, next, n->request_text);
    n->request.room = NULL;
    n->request_epoch = map->epoch;
    if (!request_is_open(n))
        ps_node_wake_control(c->node);
    return n->request_state == PS_REQUEST_WRITES;
}

void ps_node_cluster_answer_move(struct ps_node_cluster *c)
{
    struct ps_node_migrations *n = &c->migrations;
    if (n->command == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    const bool is_open = request_is_open(n);
    const bool is_late = is_open && mr_clock_us() > n->command_until_us;
    if (is_late)
        ps_command_fail(n->command, MR_DEADLINE_EXCEEDED,
                        "the map could not be changed in time: a checkpoint is being made, %u moves are in "
                        "progress, or ZooKeeper does not answer",
                        PS_CLUSTER_MOVES_MAX);
    else if (n->request_state == PS_REQUEST_FAILED)
        ps_command_fail(n->command, MR_INVALID_ARGUMENT, "%s", n->request_text);
    else if (n->request_state == PS_REQUEST_MADE)
        ps_command_answer(n->command, mr_tensor_1d(MR_U64, 1, NULL), &n->request_epoch);
    if (is_late)
        n->request_state = PS_REQUEST_NONE;
    pthread_mutex_unlock(&c->lock);
    if (is_open && !is_late)
        return;
    ps_command_send_back(c->node->control, n->command);
    n->command = NULL;
}

void ps_node_cluster_note_progress(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    memset(c->migrations.progress, 0, sizeof(c->migrations.progress));
    for (uint32_t i = 0; i < view->registered_count; i++) {
        const uint32_t node = ps_cluster_map_find(view->map, view->registered[i].name);
        if (node != PS_CLUSTER_NO_NODE)
            c->migrations.progress[node] = view->reports[i].move;
    }
}

static void show_move(const struct ps_cluster_move *move, const struct ps_cluster_move_report *p,
                      uint64_t *row)
{
    const bool has_begun = p->id == move->id;
    const uint64_t words[MR_MOVES_ROW_WORDS] = {[MR_MOVES_ROW_ID] = move->id,
                                                [MR_MOVES_ROW_FIRST] = move->first,
                                                [MR_MOVES_ROW_COUNT] = move->count,
                                                [MR_MOVES_ROW_FROM] = move->from,
                                                [MR_MOVES_ROW_TO] = move->to,
                                                [MR_MOVES_ROW_MIB_S] = move->mib_s,
                                                [MR_MOVES_ROW_STATE] = !has_begun     ? MR_MOVES_WAITS
                                                                       : p->is_ending ? MR_MOVES_ENDS
                                                                                      : MR_MOVES_COPIES,
                                                [MR_MOVES_ROW_ROWS] = has_begun ? p->rows : 0,
                                                [MR_MOVES_ROW_BYTES] = has_begun ? p->bytes : 0,
                                                [MR_MOVES_ROW_LEFT_BYTES] = has_begun ? p->left_bytes : 0,
                                                [MR_MOVES_ROW_US] = has_begun ? p->us : 0};
    memcpy(row, words, sizeof(words));
}

void ps_node_cluster_show_moves(void *context, struct ps_command *command)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_map *map = &c->member.map;
    uint64_t words[MR_MOVES_WORDS] = {[MR_MOVES_EPOCH] = map->epoch, [MR_MOVES_BALANCES] = map->balances};
    uint64_t rows[PS_CLUSTER_MOVES_MAX][MR_MOVES_ROW_WORDS] = {{0}};
    char names[PS_CLUSTER_NODES_MAX][PS_CLUSTER_NAME_BYTES] = {{0}};
    assert(map->node_count <= PS_CLUSTER_NODES_MAX && map->move_count <= PS_CLUSTER_MOVES_MAX);
    for (uint32_t i = 0; i < map->node_count; i++) {
        words[MR_MOVES_DRAINED + i / 64] |= (uint64_t)map->drained[i] << i % 64;
        memcpy(names[i], map->nodes[i].name, sizeof(names[i]));
    }
    for (uint32_t i = 0; i < map->move_count; i++)
        show_move(&map->moves[i], &c->migrations.progress[map->moves[i].to], rows[i]);
    ps_command_answer(command, mr_body_tensor(MR_BODY_MOVES, NULL), words);
    ps_command_answer(command, mr_body_rows(MR_BODY_MOVES_ROW, map->move_count, NULL), rows);
    ps_command_answer(command, mr_tensor_2d(MR_U8, map->node_count, PS_CLUSTER_NAME_BYTES, NULL), names);
    pthread_mutex_unlock(&c->lock);
}
