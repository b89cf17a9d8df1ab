#include "trainer_client/call/owners.h"

#include <stdlib.h>
#include "trainer_client/call/client.h"

struct mrc_owners *mrc_owners_hold(struct mr_client *client)
{
    if (mrc_is_inherited(client))
        return NULL;
    pthread_mutex_lock(&client->lock);
    struct mrc_owners *owners = client->owners;

    atomic_fetch_add_explicit(&owners->holders, 1, memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
    return owners;
}

void mrc_owners_release(struct mrc_owners *owners)
{
    if (owners != NULL && atomic_fetch_sub_explicit(&owners->holders, 1, memory_order_acq_rel) == 1)
        free(owners);
}

uint32_t mrc_owners_count(struct mr_client *client, uint32_t *changes)
{
    *changes = UINT32_MAX;
    if (mrc_is_inherited(client))
        return 1;
    pthread_mutex_lock(&client->lock);
    const uint32_t count = client->owners->count;

    *changes = client->owners->changes;
    pthread_mutex_unlock(&client->lock);
    return count;
}

/* Returns the node that owns a partition; without a map the first that has told its cores. */
static const struct mrc_node *node_of(const struct mr_client *client, uint32_t partition)
{
    if (client->cluster.epoch != 0)
        return client->nodes[client->cluster.owner[partition]];
    for (uint32_t n = 0; n < client->node_count; n++)
        if (client->nodes[n]->core_count > 0)
            return client->nodes[n];
    return client->nodes[0];
}

/* Lists the nodes that have partitions, in the order of the map. Returns how many they are. */
static uint32_t sort_nodes(const struct mr_client *client, struct mrc_node *sorted[MRC_NODES_MAX])
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < client->node_count; n++) {
        struct mrc_node *node = client->nodes[n];
        uint32_t at = count;
        if (node->core_count == 0)
            continue;
        for (; at > 0 && sorted[at - 1]->place > node->place; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = node;
        count++;
    }
    return count;
}

static struct mrc_link *link_of(const struct mrc_owners *owners, uint32_t partition)
{
    const struct mrc_owner *o = &owners->owners[owners->of_partition[partition]];
    return o->core < o->node->link_count ? o->node->links[o->core] : NULL;
}

/* What is kept for cores that have got or lost partitions belongs to others. */
static void regroup(const struct mrc_owners *before, const struct mrc_owners *now)
{
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        struct mrc_link *from = link_of(before, p), *to = link_of(now, p);
        if (from == to)
            continue;
        if (from != NULL)
            from->regrouped = true;
        if (to != NULL)
            to->regrouped = true;
    }
}

bool mrc_owners_renew(struct mr_client *client)
{
    struct mrc_node *nodes[MRC_NODES_MAX];
    uint32_t first[MRC_NODES_MAX] = {0}, count = 0;
    const uint32_t node_count = sort_nodes(client, nodes);
    for (uint32_t n = 0; n < node_count; n++)
        count += nodes[n]->core_count;
    struct mrc_owners *owners = calloc(1, sizeof(*owners) + count * sizeof(*owners->owners));

    if (owners == NULL)
        return false;
    atomic_init(&owners->holders, 1);
    owners->changes = client->owners == NULL ? 0 : client->owners->changes + 1;
    owners->count = count;
    for (uint32_t n = 0, o = 0; n < node_count; n++) {
        first[nodes[n]->index] = o;
        for (uint32_t core = 0; core < nodes[n]->core_count; core++)
            owners->owners[o++] = (struct mrc_owner){.node = nodes[n], .core = (uint16_t)core};
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const struct mrc_node *node = node_of(client, p);
        owners->of_partition[p] = (uint16_t)(first[node->index] + node->partition_core[p]);
    }
    if (client->owners != NULL)
        regroup(client->owners, owners);
    mrc_owners_release(client->owners);
    client->owners = owners;
    return true;
}

struct mrc_link *mrc_owners_link(const struct mr_client *client, uint32_t owner)
{
    if (client->owners == NULL || owner >= client->owners->count)
        return NULL;
    const struct mrc_owner *o = &client->owners->owners[owner];

    return o->core < o->node->link_count ? o->node->links[o->core] : NULL;
}

struct mrc_link *mrc_owners_control(const struct mr_client *client)
{
    for (uint32_t o = 0; client->owners != NULL && o < client->owners->count; o++) {
        const struct mrc_owner *owner = &client->owners->owners[o];
        if (owner->core == 0 && mrc_node_is_up(owner->node) && !owner->node->links[0]->held)
            return owner->node->links[0];
    }
    return mrc_owners_link(client, 0);
}

uint64_t mrc_owners_start_id(const struct mr_client *client)
{
    uint64_t start_id = 0;
    for (uint32_t o = 0; o < client->owners->count; o++)
        if (client->owners->owners[o].core == 0)
            start_id += client->owners->owners[o].node->start_id;
    return start_id;
}

uint32_t mrc_owners_changes(const struct mr_client *client)
{
    return client->owners == NULL ? 0 : client->owners->changes;
}
