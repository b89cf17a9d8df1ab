/* Nodes of two versions: one of before capabilities, and this one. Each node is upgraded once, at a time of
 * its own, by a restart. Older processes know no versions of others, and no map in which capabilities are in
 * use. */
#include <string.h>
#include "cluster_world.h"

void versions_draw(struct world *w, uint64_t seed)
{
    struct sim_rng *rng = &w->versions_rng;
    rng->state = seed ^ UINT64_C(0x9e3779b97f4a7c15);
    w->has_versions = seed >= COPIES_FIRST ? seed % 7 == 0 : seed >= VERSIONS_FIRST;
    for (uint32_t i = 0; i < w->node_count && w->has_versions; i++) {
        w->upgrade_us[i] = sim_below(rng, 4) == 0 ? 0 : sim_below(rng, w->calm_us);
        if (w->upgrade_us[i] > 0)
            post(w, (struct message){.kind = UPGRADE, .to = i}, w->upgrade_us[i]);
    }
}

/* From now on a start of the node runs this version. */
void versions_upgrade(struct world *w, uint32_t i)
{
    if (!w->nodes[i].runs)
        return;
    w->nodes[i].runs = false;
    w->counts.restarts++;
    post(w, (struct message){.kind = START, .to = i}, 1000 + sim_below(&w->versions_rng, w->session_us * 3));
}

void versions_start(struct world *w, uint32_t i)
{
    const uint64_t start = w->nodes[i].start_id;
    w->nodes[i].is_older = w->now_us < w->upgrade_us[i];
    if (start >= VERSION_STARTS_MAX)
        fail(w, "nodes start again without end");
    else
        w->is_older_start[start] = w->nodes[i].is_older;
}

bool versions_is_older(const struct world *w, uint64_t start_id)
{
    return start_id < VERSION_STARTS_MAX && w->is_older_start[start_id];
}

/* As a process of that start registers. */
struct mr_peer_version versions_of(const struct world *w, uint64_t start_id)
{
    if (w->has_versions && versions_is_older(w, start_id))
        return (struct mr_peer_version){.capabilities = 0};
    return (struct mr_peer_version){.capabilities = MR_CAN(TAKE_OVER) |
                                                    (w->has_versions ? MR_CAN(ADAM_STEP) : 0) |
                                                    (w->has_copies ? MR_CAN(COPIES) : 0),
                                    .text = "0.4.0"};
}

/* Older processes do not know the fields with versions, and drop them from a map that they write. */
void versions_forget(struct ps_cluster_map *map)
{
    for (uint32_t k = 0; k < map->node_count; k++)
        map->nodes[k].version = (struct mr_peer_version){.capabilities = 0};
}

bool versions_can_read(const struct world *w, uint32_t i, const struct ps_cluster_map *map)
{
    return map->needs == 0 || !w->nodes[i].is_older;
}

/* As ps/node_cluster/node_cluster.c has it. */
enum mr_status versions_use(struct world *w, uint32_t i, uint64_t needs)
{
    struct node *node = &w->nodes[i];
    if (ps_cluster_map_lacking(&node->member.map, needs) != PS_CLUSTER_NO_NODE)
        return MR_VERSION_MISMATCH;
    node->wants |= needs & ~node->member.map.needs;
    return MR_OK;
}

void versions_propose(struct world *w, uint32_t i, const struct ps_cluster_map *map)
{
    struct node *node = &w->nodes[i];
    static struct ps_cluster_map next;
    next = *map;
    node->wants &= ~map->needs;
    if (node->wants != 0 && ps_cluster_map_use(&next, node->wants))
        (void)ps_member_propose(&node->member, &next);
}

/* What is in use stays, and every node of the map has it. */
void versions_check_map(struct world *w, const struct ps_cluster_map *map)
{
    const struct ps_cluster_map *before = &w->maps[map->epoch - 1];
    if ((before->needs & ~map->needs) != 0)
        fail(w, "what was in use is not any more");
    for (uint32_t k = 0; k < map->node_count && map->needs != 0; k++)
        if (versions_is_older(w, map->nodes[k].start_id))
            fail(w, "node %s lacks what map %llu has in use", map->nodes[k].name,
                 (unsigned long long)map->epoch);
}

/* A feature is in the catalogue only if what it needs is in use. */
void versions_check_feature(struct world *w, const struct mr_feature *feature)
{
    if ((mr_feature_needs(feature) & ~w->maps[w->coordinator.epoch].needs) != 0)
        fail(w, "feature %s needs what is not in use", feature->name);
}
