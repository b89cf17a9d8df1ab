#include "ps/cluster/member.h"

#include <stddef.h>
#include <string.h>

void ps_member_init(struct ps_member *m, const struct ps_member_ops *ops, void *context,
                    const struct ps_cluster_node *self, uint64_t session_us, uint64_t hold_us_max,
                    uint32_t partition_count)
{
    *m = (struct ps_member){.ops = ops,
                            .context = context,
                            .self = *self,
                            .session_us = session_us,
                            .hold_us_max = hold_us_max,
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
    return m->have[partition] == grant && !m->holds[partition] ? PS_MEMBER_SERVES : PS_MEMBER_WAIT;
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

/* ---- giving ---- */

static struct ps_member_give *find_giving(struct ps_member *m, uint64_t id)
{
    for (uint32_t i = 0; i < m->giving_count; i++)
        if (m->giving[i].move.id == id)
            return &m->giving[i];
    return NULL;
}

static void hold(struct ps_member *m, const struct ps_cluster_move *move, bool holds)
{
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        m->holds[p] = holds;
}

static bool has_all(const struct ps_member *m, const struct ps_cluster_move *move)
{
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        if (m->have[p] != m->map.grant[p])
            return false;
    return true;
}

/* Moves that the map no longer has: finished, and then the partitions are the taker's, or cancelled. */
static void end_giving(struct ps_member *m)
{
    for (uint32_t i = m->giving_count; i-- > 0;) {
        const struct ps_cluster_move move = m->giving[i].move;
        if (m->index != PS_CLUSTER_NO_NODE && ps_cluster_map_move(&m->map, move.id) != NULL)
            continue;
        hold(m, &move, false);
        m->ops->keep(m->context, &move);
        m->giving[i] = m->giving[--m->giving_count];
    }
}

static void begin_giving(struct ps_member *m)
{
    for (uint32_t i = 0; i < m->map.move_count; i++) {
        const struct ps_cluster_move *move = &m->map.moves[i];
        if (move->from != m->index || find_giving(m, move->id) != NULL || !has_all(m, move))
            continue;
        m->giving[m->giving_count++] = (struct ps_member_give){.move = *move, .state = PS_GIVING_COPIES};
        m->ops->copy(m->context, move);
    }
}

void ps_member_copied(struct ps_member *m, uint64_t id, uint64_t now_us)
{
    struct ps_member_give *give = find_giving(m, id);
    if (give == NULL || give->state != PS_GIVING_COPIES)
        return;
    give->state = PS_GIVING_HELD;
    give->held_us = now_us;
    hold(m, &give->move, true);
    m->ops->send_rest(m->context, &give->move);
}

bool ps_member_propose(struct ps_member *m, const struct ps_cluster_map *next)
{
    if (m->writes || m->asks)
        return false;
    m->writes = true;
    m->ops->write_map(m->context, next);
    return true;
}

static void propose_end(struct ps_member *m, const struct ps_member_give *give)
{
    struct ps_cluster_map next = m->map;
    const bool fits = give->state == PS_GIVING_HANDED_OVER ? ps_cluster_map_finish_move(&next, give->move.id)
                                                           : ps_cluster_map_cancel_move(&next, give->move.id);
    if (fits)
        (void)ps_member_propose(m, &next);
}

void ps_member_handed_over(struct ps_member *m, uint64_t id)
{
    struct ps_member_give *give = find_giving(m, id);
    if (give == NULL || give->state != PS_GIVING_HELD)
        return;
    give->state = PS_GIVING_HANDED_OVER;
    propose_end(m, give); /* or at a tick, once another change has ended */
}

void ps_member_tick(struct ps_member *m, uint64_t now_us)
{
    if (m->writes || m->asks || m->index == PS_CLUSTER_NO_NODE)
        return;
    for (uint32_t i = 0; i < m->giving_count; i++) {
        const struct ps_member_give *give = &m->giving[i];
        if (give->state == PS_GIVING_HANDED_OVER ||
            (give->state == PS_GIVING_HELD && now_us - give->held_us > m->hold_us_max)) {
            propose_end(m, give);
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
                m->ops->drop(m->context, p);
            m->have[p] = 0;
        } else if (m->have[p] != grant && m->loading[p] != grant) {
            if (m->have[p] != 0)
                m->ops->drop(m->context, p); /* it was another's meanwhile */
            m->have[p] = 0;
            if (m->ops->adopt(m->context, p, grant)) {
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
    begin_giving(m);
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
    end_giving(m);
    match_partitions(m);
    begin_giving(m);
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
