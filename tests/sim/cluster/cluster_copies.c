/* Copies: an owner sends its backups what was pushed, in order, from the beginning on, and says which are in
 * sync. The network loses and doubles; what came under another assignment is worth nothing. */
#include <stdio.h>
#include <string.h>
#include "cluster_world.h"

#define RING      6u     /* pushes that an owner keeps for a backup */
#define BEHIND_US 60000u /* a backup that lacks something for longer is left behind */

void copies_draw(struct world *w, uint64_t seed)
{
    struct sim_rng *rng = &w->copies_rng;
    rng->state = seed ^ UINT64_C(0xd1342543de82ef95);
    w->has_copies = seed >= COPIES_FIRST;
    w->answers_wait = seed % 2 == 0;
    w->backups_lose = seed % 8 >= 6;
    w->host_count = sim_chance(rng, 700000) ? w->node_count : (uint32_t)sim_between(rng, 1, w->node_count);
    w->drop_us = sim_chance(rng, 500000) ? sim_below(rng, 2000) : sim_below(rng, w->session_us);
}

void copies_describe(const struct world *w, uint32_t i, struct ps_cluster_node *self)
{
    if (w->has_copies)
        (void)snprintf(self->host, sizeof(self->host), "h%u", i % w->host_count);
}

/* ---- the owner ---- */

static bool owns(const struct node *node, uint32_t p)
{
    const struct ps_member *m = &node->member;
    return m->index != PS_CLUSTER_NO_NODE && m->map.owner[p] == m->index && m->have[p] == m->map.grant[p];
}

static void send_copy(struct world *w, uint32_t i, uint32_t p)
{
    struct node *node = &w->nodes[i];
    const struct ps_cluster_node *backup = &node->member.map.nodes[node->member.map.backup[p]];
    const struct state *s = &node->states[p];
    struct feed *feed = &node->feeds[p];
    struct message m = {.kind = COPY_DATA,
                        .from = i,
                        .to = (uint32_t)(backup->name[0] - 'a'),
                        .start_id = backup->start_id,
                        .grant = feed->grant,
                        .partition = p,
                        .offset = feed->position};
    while (feed->position + m.entry_count < s->length && m.entry_count < 8) {
        m.entries[m.entry_count] = s->log[feed->position + m.entry_count];
        m.entry_count++;
    }
    if (m.entry_count == 0)
        feed->behind_since_us = 0;
    else if (feed->behind_since_us == 0)
        feed->behind_since_us = node_now(w, i);
    if (m.entry_count > 0 || !feed->has_begun)
        send_message(w, m);
}

/* What is to be said of a backup: 1 that it is in sync, -1 that it is not any more, 0 nothing. Answers that
 * are to wait wait from now on, so now the backup must have what was answered without it. */
static int to_be_said(const struct world *w, uint32_t i, uint32_t p)
{
    const struct node *node = &w->nodes[i];
    const struct feed *feed = &node->feeds[p];
    const uint32_t lag = node->states[p].length - feed->position, lag_max = w->answers_wait ? 0 : RING / 2;
    if (node->member.map.in_sync[p])
        return lag > RING || (lag > 0 && node_now(w, i) - feed->behind_since_us > BEHIND_US) ? -1 : 0;
    return feed->has_begun && lag <= lag_max && feed->position >= node->part_length[p] ? 1 : 0;
}

static void say(struct world *w, uint32_t i, int what)
{
    struct node *node = &w->nodes[i];
    static struct ps_cluster_map next;
    uint64_t grants[PS_CLUSTER_PARTITIONS_MAX] = {0};
    next = node->member.map;
    for (uint32_t p = 0; p < w->partition_count; p++)
        if (node->feeds[p].grant != 0 && to_be_said(w, i, p) == what)
            grants[p] = node->feeds[p].grant;
    if (ps_copies_set_sync(&next, node->member.index, grants, what > 0))
        (void)ps_member_propose(&node->member, &next);
}

/* A backup without memory, or whose stream was damaged: it gives up what it was assigned, and until then the
 * map may say that it has it. */
static void lose(struct world *w, uint32_t i)
{
    struct node *node = &w->nodes[i];
    const struct ps_cluster_map *map = &node->member.map;
    static struct ps_cluster_map next;
    uint64_t grants[PS_CLUSTER_PARTITIONS_MAX] = {0};
    for (uint32_t p = 0; p < w->partition_count; p++) {
        struct copied *copy = &node->copies[p];
        if (copy->grant != 0 && !is_calm(w) && sim_chance(&w->copies_rng, 3000)) {
            node->lost[p] = copy->grant;
            *copy = (struct copied){0};
        }
        grants[p] = map->backup_grant[p] == node->lost[p] ? node->lost[p] : 0;
    }
    next = *map;
    if (ps_copies_give_up(&next, node->member.index, grants))
        (void)ps_member_propose(&node->member, &next);
}

void copies_tick(struct world *w, uint32_t i)
{
    struct node *node = &w->nodes[i];
    const struct ps_cluster_map *map = &node->member.map;
    const bool is_in = node->member.index != PS_CLUSTER_NO_NODE;
    if (w->has_copies && is_in && sim_chance(&w->copies_rng, 700000)) {
        say(w, i, -1); /* of what it last looked at: the map may have changed since */
        say(w, i, 1);
    }
    if (w->backups_lose && w->has_copies && is_in)
        lose(w, i);
    for (uint32_t p = 0; p < w->partition_count && w->has_copies; p++) {
        const bool follows = is_in && map->backup[p] == node->member.index;
        if (!follows || node->copies[p].grant != map->backup_grant[p])
            node->copies[p] = (struct copied){0};
        const uint64_t grant = owns(node, p) ? map->backup_grant[p] : 0;
        if (node->feeds[p].grant != grant)
            node->feeds[p] = (struct feed){.grant = grant};
        if (grant != 0)
            send_copy(w, i, p);
    }
}

static bool has_push(const struct state *s, uint16_t length, uint32_t client, uint32_t step)
{
    for (uint32_t k = 0; k < length; k++)
        if (s->log[k].client == client && s->log[k].step == step)
            return true;
    return false;
}

bool copies_may_answer(const struct world *w, uint32_t i, uint32_t p, uint32_t client, uint32_t step)
{
    const struct node *node = &w->nodes[i];
    const struct feed *feed = &node->feeds[p];
    if (!w->has_copies || !w->answers_wait || !ps_member_answer_waits(&node->member, p))
        return true;
    return feed->grant != 0 && feed->grant == node->member.map.backup_grant[p] &&
           has_push(&node->states[p], feed->position, client, step);
}

void copies_answered(struct world *w, uint32_t p, uint32_t client, uint32_t step)
{
    w->acknowledged[p][client] |= UINT64_C(1) << step;
}

void copies_cut(struct world *w, uint32_t i)
{
    struct node *node = &w->nodes[i];
    for (uint32_t p = 0; p < w->partition_count; p++)
        node->part_length[p] = owns(node, p) ? node->states[p].length : 0;
}

bool copies_part_waits(const struct world *w, uint32_t i)
{
    const struct node *node = &w->nodes[i];
    for (uint32_t p = 0; p < w->partition_count && w->has_copies; p++)
        if (owns(node, p) && ps_member_answer_waits(&node->member, p) &&
            node->feeds[p].position < node->part_length[p])
            return true;
    return false;
}

/* ---- the backup ---- */

static void take_data(struct world *w, uint32_t i, const struct message *m)
{
    struct node *node = &w->nodes[i];
    const struct ps_cluster_map *map = &node->member.map;
    struct copied *copy = &node->copies[m->partition];
    if (m->start_id != node->start_id || node->member.index == PS_CLUSTER_NO_NODE ||
        map->backup[m->partition] != node->member.index || map->backup_grant[m->partition] != m->grant ||
        node->lost[m->partition] == m->grant)
        return;
    if (copy->grant != m->grant)
        *copy = (struct copied){.grant = m->grant};
    if (m->offset > copy->state.length)
        return;
    for (uint32_t k = copy->state.length - m->offset; k < m->entry_count && copy->state.length < LOG_MAX;
         k++) {
        copy->state.log[copy->state.length++] = m->entries[k];
        copy->state.upto[m->entries[k].client] = m->entries[k].step;
    }
    send_message(w, (struct message){.kind = COPY_HAVE,
                                     .from = i,
                                     .to = m->from,
                                     .grant = m->grant,
                                     .partition = m->partition,
                                     .length = copy->state.length});
}

void copies_receive(struct world *w, uint32_t i, const struct message *m)
{
    struct feed *feed = &w->nodes[i].feeds[m->partition];
    if (m->kind == COPY_DATA) {
        take_data(w, i, m);
    } else if (feed->grant == m->grant) {
        feed->has_begun = true;
        if (m->length > feed->position) {
            feed->position = m->length;
            feed->behind_since_us = 0;
        }
    }
}

static void check_state(struct world *w, uint32_t p, const struct state *s, const char *what)
{
    for (uint32_t c = 0; c < w->client_count && w->has_copies; c++)
        for (uint32_t step = 1; step <= w->steps; step++)
            if ((w->acknowledged[p][c] >> step & 1) != 0 && s->upto[c] < step)
                fail(w, "partition %u goes on from %s without push %u of client %u, which was answered", p,
                     what, step, c);
}

void copies_begin(struct world *w, uint32_t i, uint32_t p, const struct state *s, const char *what)
{
    const struct ps_cluster_map *map = &w->maps[w->coordinator.epoch];
    const struct ps_member *m = &w->nodes[i].member;
    if (map->grant[p] != m->map.grant[p] || map->nodes[map->owner[p]].start_id != w->nodes[i].start_id)
        return; /* it goes by an older map, and will not serve it */
    if (what != NULL)
        check_state(w, p, s, what);
    for (uint32_t c = 0; c < w->client_count; c++)
        w->acknowledged[p][c] &= (UINT64_C(2) << s->upto[c]) - 1;
}

bool copies_adopt(struct world *w, uint32_t i, uint32_t p, uint64_t grant)
{
    struct node *node = &w->nodes[i];
    struct copied *copy = &node->copies[p];
    if (copy->grant != grant)
        return false;
    copies_begin(w, i, p, &copy->state, w->answers_wait ? "its backup" : NULL);
    node->states[p] = copy->state;
    *copy = (struct copied){0};
    return true;
}

/* ---- the promises ---- */

/* The node whose process the map names, if that runs. */
static uint32_t running(const struct world *w, const struct ps_cluster_map *map, uint32_t node)
{
    const uint32_t i = (uint32_t)(map->nodes[node].name[0] - 'a');
    return w->nodes[i].runs && w->nodes[i].start_id == map->nodes[node].start_id ? i : NOBODY;
}

/* A leader lets a partition go on from a checkpoint although its backup is in sync, and there, by what this
 * leader knows, or not away for long enough; or it ends such a copy. */
void copies_check_proposal(struct world *w, const struct ps_cluster_map *before,
                           const struct ps_cluster_map *next, const struct message *view,
                           const uint64_t absent_us[PS_CLUSTER_NODES_MAX])
{
    for (uint32_t p = 0; p < w->partition_count && w->has_copies; p++) {
        const uint32_t owner = before->owner[p], backup = before->backup[p];
        if (owner == PS_CLUSTER_NO_NODE || !before->in_sync[p])
            continue;
        const uint64_t registered = view->registered[before->nodes[backup].name[0] - 'a'];
        const bool may_return = registered == 0 && absent_us[backup] <= w->take_over_us;
        if (registered != before->nodes[backup].start_id && !may_return)
            continue;
        const uint32_t now = ps_cluster_map_find(next, before->nodes[owner].name);
        const bool is_restarted = now != PS_CLUSTER_NO_NODE && now == next->owner[p] &&
                                  next->nodes[now].start_id != before->nodes[owner].start_id;
        const bool is_taken =
            next->restored_in[p] == next->epoch && next->grant[p] != before->backup_grant[p];
        if (is_restarted || is_taken)
            fail(w, "partition %u goes on from a checkpoint, and its backup is in sync", p);
        if (view->registered[before->nodes[owner].name[0] - 'a'] == 0 && next->grant[p] == before->grant[p] &&
            !next->in_sync[p])
            fail(w, "the only copy of partition %u is given up while its owner is away", p);
    }
}

static void check_promoted(struct world *w, const struct ps_cluster_map *before,
                           const struct ps_cluster_map *map, uint32_t p)
{
    if (before->backup_grant[p] == 0 || map->grant[p] != before->backup_grant[p] ||
        map->grant[p] == before->grant[p])
        return;
    w->counts.promotions++;
    const uint32_t i = running(w, before, before->backup[p]);
    if (i == NOBODY) /* it has died as well, and nobody knows it yet */
        return;
    const struct copied *copy = &w->nodes[i].copies[p];
    if (copy->grant != map->grant[p] && w->nodes[i].lost[p] == map->grant[p])
        w->counts.promotions_lost++; /* it goes on from a checkpoint */
    else if (copy->grant != map->grant[p])
        fail(w, "node %u is promoted for partition %u, and has nothing of it", i, p);
    else if (w->answers_wait)
        check_state(w, p, &copy->state, "its backup");
}

void copies_check_map(struct world *w, const struct ps_cluster_map *map)
{
    const struct ps_cluster_map *before = &w->maps[map->epoch - 1];
    if (!w->has_copies)
        return;
    if (map->replication > 1 && (map->needs & MR_CAN(COPIES)) == 0)
        fail(w, "map %llu has copies, and does not say so", (unsigned long long)map->epoch);
    for (uint32_t p = 0; p < w->partition_count; p++) {
        const uint32_t backup = map->backup[p];
        const bool is_new = map->backup_grant[p] != before->backup_grant[p];
        if (backup == PS_CLUSTER_NO_NODE) {
            if (map->backup_grant[p] != 0 || map->in_sync[p])
                fail(w, "partition %u has no backup, which is in sync", p);
        } else if (map->owner[p] == PS_CLUSTER_NO_NODE || backup == map->owner[p] ||
                   strcmp(map->nodes[backup].host, map->nodes[map->owner[p]].host) == 0) {
            fail(w, "partition %u and its backup are on one host", p);
        } else if (is_new && (map->backup_grant[p] <= before->last_id || map->in_sync[p])) {
            fail(w, "the number of a backup of partition %u comes again, or it is in sync at once", p);
        } else if (!is_new && (map->grant[p] != before->grant[p] ||
                               strcmp(map->nodes[backup].name, before->nodes[before->backup[p]].name) != 0)) {
            fail(w, "partition %u has another owner or backup, and goes on as the copy before", p);
        }
        w->counts.synced += map->in_sync[p] && !before->in_sync[p];
        check_promoted(w, before, map, p);
    }
}

bool copies_are_made(const struct world *w, uint32_t *without)
{
    const struct ps_cluster_map *map = &w->maps[w->coordinator.epoch];
    for (uint32_t p = 0; p < w->partition_count && w->has_copies; p++) {
        const uint32_t i = map->in_sync[p] ? running(w, map, map->backup[p]) : NOBODY;
        if (i != NOBODY && w->nodes[i].copies[p].grant != map->backup_grant[p]) {
            *without = p;
            return false;
        }
        for (uint32_t k = 0; k < map->node_count && !map->in_sync[p]; k++)
            if (map->owner[p] == PS_CLUSTER_NO_NODE ||
                strcmp(map->nodes[k].host, map->nodes[map->owner[p]].host) != 0) {
                *without = p;
                return false;
            }
    }
    return true;
}
