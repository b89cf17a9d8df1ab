#include "ps/cluster/member.h"

#include <stddef.h>
#include <string.h>

void ps_member_init(struct ps_member *m, const struct ps_member_ops *ops, void *context,
                    const struct ps_cluster_node *self, uint64_t session_us, uint64_t fence_us_max,
                    uint32_t partition_count)
{
    *m = (struct ps_member){.ops = ops,
                            .context = context,
                            .self = *self,
                            .session_us = session_us,
                            .fence_us_max = fence_us_max,
                            .index = PS_CLUSTER_NO_NODE};
    ps_cluster_map_init(&m->map, partition_count);
}

enum ps_member_answer ps_member_serves(const struct ps_member *m, uint32_t partition, uint64_t grant,
                                       uint64_t start_id, uint64_t now_us)
{
    const struct ps_cluster_map *map = &m->map;
    if (m->index == PS_CLUSTER_NO_NODE || map->nodes[m->index].session != m->session ||
        now_us >= m->lease_end_us)
        return PS_MEMBER_WAIT;
    if (map->owner[partition] != m->index || map->grant[partition] != grant || m->self.start_id != start_id)
        return PS_MEMBER_OTHER_OWNER;
    return m->have[partition] == grant && !m->fenced[partition] ? PS_MEMBER_SERVES : PS_MEMBER_WAIT;
}

void ps_member_confirmed(struct ps_member *m, uint64_t session, uint64_t sent_us)
{
    m->session = session;
    const uint64_t end_us = sent_us + m->session_us / 2;
    if (end_us > m->lease_end_us)
        m->lease_end_us = end_us;
}

void ps_member_expired(struct ps_member *m)
{
    m->session = 0;
    m->lease_end_us = 0;
    m->writes = false;
    m->asks = true;
}

static bool is_own(const struct ps_member *m, uint32_t partition)
{
    return m->index != PS_CLUSTER_NO_NODE && m->map.owner[partition] == m->index;
}

/* ---- migrations ---- */

struct ps_migration *ps_member_migration(struct ps_member *m, uint64_t id)
{
    for (uint32_t i = 0; i < m->migration_count; i++)
        if (m->migrations[i].move.id == id)
            return &m->migrations[i];
    return NULL;
}

static void member_fence(struct ps_member *m, const struct ps_cluster_move *move, bool is_fenced)
{
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        m->fenced[p] = is_fenced;
}

static bool member_has_all(const struct ps_member *m, const struct ps_cluster_move *move)
{
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        if (m->have[p] != m->map.grant[p])
            return false;
    return true;
}

/* Ends migrations that the map no longer has: done if the target owns their partitions, else cancelled. */
static void end_migrations(struct ps_member *m)
{
    for (uint32_t i = m->migration_count; i-- > 0;) {
        struct ps_migration *migration = &m->migrations[i];
        const struct ps_cluster_move *move = &migration->move;
        if (ps_migration_has_ended(migration) ||
            (m->index != PS_CLUSTER_NO_NODE && ps_cluster_map_move(&m->map, move->id) != NULL))
            continue;
        const bool was_waiting = migration->state == PS_MIGRATION_WAITING;
        if (migration->role == PS_MIGRATION_SOURCE)
            member_fence(m, move, false);
        if (m->map.grant[move->first] != move->id || !ps_migration_to(migration, PS_MIGRATION_DONE))
            (void)ps_migration_to(migration, PS_MIGRATION_CANCELLED);
        m->ops->migration_changed(m->context, migration);
        if (was_waiting)
            *migration = m->migrations[--m->migration_count];
    }
}

static void begin_migrations(struct ps_member *m)
{
    for (uint32_t i = 0; i < m->map.move_count && m->migration_count < PS_MEMBER_MIGRATIONS_MAX; i++) {
        const struct ps_cluster_move *move = &m->map.moves[i];
        const bool is_source = move->from == m->index;
        if ((!is_source && move->to != m->index) || ps_member_migration(m, move->id) != NULL ||
            (is_source && !member_has_all(m, move)))
            continue;
        struct ps_migration *migration = &m->migrations[m->migration_count++];
        *migration = (struct ps_migration){.move = *move,
                                           .peer = m->map.nodes[is_source ? move->to : move->from],
                                           .role = is_source ? PS_MIGRATION_SOURCE : PS_MIGRATION_TARGET};
        m->ops->migration_changed(m->context, migration);
    }
}

void ps_member_release(struct ps_member *m, uint64_t id)
{
    struct ps_migration *migration = ps_member_migration(m, id);
    if (migration != NULL && ps_migration_has_ended(migration))
        *migration = m->migrations[--m->migration_count];
}

bool ps_member_answer_waits(const struct ps_member *m, uint32_t partition)
{
    return (is_own(m, partition) && m->map.in_sync[partition]) || m->map.epoch < m->in_sync_from[partition];
}

bool ps_member_propose(struct ps_member *m, const struct ps_cluster_map *next)
{
    if (m->writes || m->asks)
        return false;
    for (uint32_t p = 0; p < next->partition_count; p++)
        if (next->in_sync[p] && is_own(m, p))
            m->in_sync_from[p] = next->epoch;
    m->writes = true;
    m->ops->write_map(m->context, next);
    return true;
}

static void propose_end(struct ps_member *m, const struct ps_migration *migration)
{
    struct ps_cluster_map next = m->map;
    const bool fits = migration->state == PS_MIGRATION_INSTALLED
                          ? ps_cluster_map_finish_move(&next, migration->move.id)
                          : ps_cluster_map_cancel_move(&next, migration->move.id);
    if (fits)
        (void)ps_member_propose(m, &next);
}

bool ps_member_migrate(struct ps_member *m, uint64_t id, enum ps_migration_state state, uint64_t now_us)
{
    struct ps_migration *migration = ps_member_migration(m, id);
    if (migration == NULL || !ps_migration_to(migration, state))
        return false;
    if (state == PS_MIGRATION_FENCING) {
        migration->fenced_us = now_us;
        member_fence(m, &migration->move, true);
    }
    m->ops->migration_changed(m->context, migration);
    if (migration->role == PS_MIGRATION_SOURCE && state == PS_MIGRATION_INSTALLED)
        propose_end(m, migration); /* or at a tick, once another change has ended */
    return true;
}

void ps_member_tick(struct ps_member *m, uint64_t now_us)
{
    if (m->writes || m->asks || m->index == PS_CLUSTER_NO_NODE)
        return;
    for (uint32_t i = 0; i < m->migration_count; i++) {
        const struct ps_migration *migration = &m->migrations[i];
        const bool waits =
            migration->state == PS_MIGRATION_FENCING || migration->state == PS_MIGRATION_FENCED;
        if (migration->role == PS_MIGRATION_SOURCE &&
            (migration->state == PS_MIGRATION_INSTALLED ||
             (waits && now_us - migration->fenced_us > m->fence_us_max))) {
            propose_end(m, migration);
            return;
        }
    }
}

/* ---- what the node owns ---- */

static void match_partitions(struct ps_member *m)
{
    const struct ps_cluster_map *map = &m->map;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        const uint64_t grant = map->grant[p];
        if (!is_own(m, p)) {
            m->loading[p] = 0;
            if (m->have[p] != 0)
                m->ops->cleanup(m->context, p);
            m->have[p] = 0;
        } else if (m->have[p] != grant && m->loading[p] != grant) {
            if (m->have[p] != 0)
                m->ops->cleanup(m->context, p); /* it was another's meanwhile */
            m->have[p] = 0;
            if (m->ops->install(m->context, p, grant)) {
                m->have[p] = grant;
            } else {
                m->loading[p] = grant;
                m->ops->load(m->context, p, map->committed, grant);
            }
        }
    }
}

/* A node cuts once it has all that it owns. */
static void match_cut(struct ps_member *m)
{
    if (m->cut != 0 && m->map.cut != m->cut) {
        m->ops->cancel_cut(m->context, m->cut);
        m->cut = 0;
    }
    if (m->map.cut == 0 || m->cut == m->map.cut || m->index == PS_CLUSTER_NO_NODE)
        return;
    for (uint32_t p = 0; p < m->map.partition_count; p++)
        if (is_own(m, p) && m->have[p] != m->map.grant[p])
            return;
    m->cut = m->map.cut;
    m->ops->cut(m->context, m->cut, m->map.cut_step);
}

void ps_member_loaded(struct ps_member *m, uint32_t partition, uint64_t grant)
{
    if (m->loading[partition] != grant || grant == 0)
        return;
    m->loading[partition] = 0;
    m->have[partition] = grant;
    begin_migrations(m);
    match_cut(m);
}

void ps_member_take_map(struct ps_member *m, const struct ps_cluster_map *map)
{
    m->asks = false;
    if (map->epoch <= m->map.epoch)
        return;
    const bool was_in = m->index != PS_CLUSTER_NO_NODE;
    m->map = *map;
    m->index = ps_cluster_map_find(map, m->self.name);
    if (m->index != PS_CLUSTER_NO_NODE && map->nodes[m->index].start_id != m->self.start_id) {
        m->index = PS_CLUSTER_NO_NODE;
        m->is_superseded = m->is_superseded || was_in;
    }
    end_migrations(m);
    match_partitions(m);
    begin_migrations(m);
    match_cut(m);
}

void ps_member_glimpse_map(struct ps_member *m, const struct ps_cluster_map *map)
{
    bool has_ended = false;
    if (m->writes || m->asks || m->index == PS_CLUSTER_NO_NODE || map->cut != 0)
        return;
    for (uint32_t i = 0; i < m->map.move_count; i++) {
        const struct ps_cluster_move *move = &m->map.moves[i];
        has_ended |=
            (move->from == m->index || move->to == m->index) && ps_cluster_map_move(map, move->id) == NULL;
    }
    if (has_ended)
        ps_member_take_map(m, map);
}

void ps_member_map_written(struct ps_member *m, const struct ps_cluster_map *next,
                           enum ps_member_written outcome)
{
    m->writes = false;
    if (outcome == PS_WRITTEN)
        ps_member_take_map(m, next);
    else
        m->asks = true;
}
