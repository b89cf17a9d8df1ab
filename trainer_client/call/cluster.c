#include "trainer_client/call/cluster.h"
#include "trainer_client/call/call_hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"

#define ASK_SILENT_US 1000000u /* between questions about members that may have been replaced */

/* ---- the map ---- */

/* What a member told. */
struct told {
    uint64_t words[MR_CLUSTER_WORDS];
    const struct mr_cluster_node *nodes;
    uint16_t owner[MR_PARTITION_COUNT];
    const uint32_t *restored_in; /* [MR_PARTITION_COUNT]; NULL: no partition was taken over */
    uint32_t count;
    uint32_t self; /* UINT32_MAX: none of `nodes` */
    struct mrc_addresses addresses[MR_CLUSTER_NODES_MAX];
    bool owns[MR_CLUSTER_NODES_MAX];
};

static bool is_text(const char text[MR_CLUSTER_NAME_BYTES])
{
    return text[0] != '\0' && memchr(text, '\0', MR_CLUSTER_NAME_BYTES) != NULL;
}

bool mrc_cluster_read_owners(const struct mr_future *f, uint32_t node_count,
                             uint16_t owner[MR_PARTITION_COUNT])
{
    const struct mr_tensor *of_few = mrc_answer_tensor(f, 0, 4, MR_U8, 1),
                           *of_many = mrc_answer_tensor(f, 0, 4, MR_U16, 1);
    const struct mr_tensor *t = of_few != NULL ? of_few : of_many;
    if (t == NULL || t->dims[0] != MR_PARTITION_COUNT || (of_few != NULL && node_count > MR_CLUSTER_NO_NODE))
        return false;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const uint32_t at = of_few != NULL ? ((const uint8_t *)t->data)[p] : ((const uint16_t *)t->data)[p];
        const bool is_none = at == (of_few != NULL ? MR_CLUSTER_NO_NODE : MR_CLUSTER_NO_NODE_OF_MANY);
        if (!is_none && at >= node_count)
            return false;
        owner[p] = is_none ? MRC_NO_OWNER : (uint16_t)at;
    }
    return true;
}

/* False: it is malformed. */
static bool read_restored(const struct mr_future *f, struct told *told)
{
    const uint32_t at = 2 + MR_CLUSTER_TENSORS;
    if (f->requests[0].answer_count <= at)
        return true;
    const struct mr_tensor *t = mrc_answer_tensor(f, 0, at, MR_U32, 1);
    if (t == NULL || t->dims[0] != MR_PARTITION_COUNT)
        return false;
    told->restored_in = t->data;
    return true;
}

static bool read_tensors(const struct mr_future *f, struct told *told)
{
    const struct mr_tensor *nodes = mrc_answer_tensor(f, 0, 3, MR_U8, 2);
    if (!mrc_answer_body(f, 0, 2, MR_BODY_CLUSTER, told->words) || nodes == NULL ||
        nodes->dims[0] > MR_CLUSTER_NODES_MAX || nodes->dims[1] != sizeof(struct mr_cluster_node))
        return false;
    told->nodes = nodes->data;
    told->count = nodes->dims[0];
    const uint64_t self = told->words[MR_CLUSTER_SELF];
    told->self = self < told->count ? (uint32_t)self : UINT32_MAX;
    return told->words[MR_CLUSTER_NODES] == told->count &&
           (self < told->count || self == MR_CLUSTER_NO_NODE || self == MR_CLUSTER_NO_NODE_OF_MANY) &&
           mrc_cluster_read_owners(f, told->count, told->owner) && read_restored(f, told);
}

/* Finds which nodes own something. *whole: each partition has an owner. */
static void find_owners(struct told *told, bool *whole)
{
    *whole = told->words[MR_CLUSTER_EPOCH] != 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (told->owner[p] == MRC_NO_OWNER)
            *whole = false;
        else
            told->owns[told->owner[p]] = true;
}

static void describe_unfound(struct mr_client *client, const struct mr_cluster_node *n, const char *why)
{
    snprintf(client->cluster.unfound, sizeof(client->cluster.unfound),
             "the cluster's node %s is not found from here by the address that it gives to clients "
             "(cluster.address, or port.ipv4, in its configuration): %s",
             n->name, why);
}

/* Finds the client's node that has told this name. */
static struct mrc_node *find_named(const struct mr_client *client, const char *name)
{
    for (uint32_t n = 0; n < client->node_count; n++)
        if (strcmp(client->nodes[n]->name, name) == 0)
            return client->nodes[n];
    return NULL;
}

/* Finds where an owner is. One that the client knows stays where it was while its address is not found: the
 * map holds for the others all the same. Of one that is new the address is looked up, and the map read again
 * after that. */
static bool find_address(struct mr_client *client, struct told *told, uint32_t i)
{
    const struct mr_cluster_node *n = &told->nodes[i];
    char why[384];
    const enum mr_status status =
        mrc_names_find(client->names, n->address, &told->addresses[i], why, sizeof(why));
    const struct mrc_node *known = status == MR_OK ? NULL : find_named(client, n->name);
    if (status != MR_OK && (known == NULL || !mrc_node_is_up(known)))
        describe_unfound(client, n, why);
    if (known != NULL)
        told->addresses[i] = (struct mrc_addresses){.count = 1, .list = {known->address}};
    return status == MR_OK || known != NULL;
}

/* Finds the addresses of the owners. A node that has not said how many cores it has is no owner yet. */
static bool read_nodes(struct mr_client *client, struct told *told, bool *whole)
{
    find_owners(told, whole);
    client->cluster.unfound[0] = '\0';
    for (uint32_t i = 0; i < told->count; i++) {
        const struct mr_cluster_node *n = &told->nodes[i];
        if (!is_text(n->name) || n->core_count > MR_CORE_MAX)
            return false;
        if (!told->owns[i])
            continue;
        *whole &= n->core_count > 0 && is_text(n->address) && find_address(client, told, i);
    }
    return true;
}

static bool is_other(struct mrc_node *node, const struct mr_future *f, struct told *told)
{
    bool whole;
    if (!read_tensors(f, told) || told->self == UINT32_MAX || !read_nodes(node->client, told, &whole) ||
        strcmp(told->nodes[told->self].name, node->name) == 0)
        return false;
    for (uint32_t i = 0; i < told->count; i++) {
        if (told->words[MR_CLUSTER_EPOCH] < node->client->cluster.epoch || !told->owns[i] ||
            told->addresses[i].count == 0 || strcmp(told->nodes[i].name, node->name) != 0 ||
            mrc_addresses_has(&told->addresses[i], &node->address))
            continue;
        memcpy(node->host, told->nodes[i].address, sizeof(node->host));
        node->is_elsewhere = true;
        node->elsewhere = told->addresses[i];
    }
    return true;
}

/* What was told is too large for the stack of a caller's thread. */
bool mrc_cluster_is_other(struct mrc_node *node, const struct mr_future *f)
{
    if (node->name[0] == '\0' || f->requests[0].answer_count < 2 + MR_CLUSTER_TENSORS)
        return false;
    struct told *told = calloc(1, sizeof(*told));
    const bool is_it = told != NULL && is_other(node, f, told);
    free(told);
    return is_it;
}

/* Finds the client's node that this is: by its name, or by its address if it has not said its name. */
static struct mrc_node *find_node(const struct mr_client *client, const char *name,
                                  const struct mrc_addresses *addresses)
{
    struct mrc_node *named = find_named(client, name);
    for (uint32_t n = 0; named == NULL && n < client->node_count; n++)
        if (client->nodes[n]->name[0] == '\0' && mrc_addresses_has(addresses, &client->nodes[n]->address))
            named = client->nodes[n];
    return named;
}

static struct mrc_node *meet_node(struct mr_client *client, const struct told *told, uint32_t i)
{
    const struct mr_cluster_node *from = &told->nodes[i];
    struct mrc_node *node = find_node(client, from->name, &told->addresses[i]);
    char why[384];
    if (node == NULL && mrc_client_add_node(client, &told->addresses[i], &node, why, sizeof(why)) != MR_OK) {
        describe_unfound(client, from, why);
        return NULL;
    }
    memcpy(node->name, from->name, sizeof(node->name));
    memcpy(node->host, from->address, sizeof(node->host));
    if (!mrc_node_is_up(node))
        mrc_node_set_addresses(node, &told->addresses[i]);
    /* Until it tells itself, its partitions are taken for as evenly spread as nodes spread them. */
    if (node->core_count == 0) {
        node->core_count = from->core_count;
        for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
            node->partition_core[p] = (uint16_t)(p * from->core_count / MR_PARTITION_COUNT);
    }
    return node;
}

/* Who is away may change without another map. */
static void note_absent(struct mr_client *client, const struct told *told)
{
    for (uint32_t i = 0; i < told->count; i++)
        for (uint32_t n = 0; n < client->node_count; n++)
            if (strcmp(client->nodes[n]->name, told->nodes[i].name) == 0)
                client->nodes[n]->is_absent = (told->nodes[i].flags & MR_CLUSTER_NODE_PRESENT) == 0;
}

/* Nodes that own nothing are left: servers that were named twice, and members without partitions. */
static void leave_others(struct mr_client *client, struct mrc_node *const met[], uint32_t count)
{
    for (uint32_t n = 0; n < client->node_count; n++) {
        bool is_met = false;
        for (uint32_t i = 0; i < count; i++)
            is_met |= met[i] == client->nodes[n];
        if (!is_met)
            mrc_node_leave(client->nodes[n]);
    }
}

/* What was taken over since the map before: its new owners have what the checkpoint had. */
static void note_restored(struct mrc_cluster *c, const struct told *told)
{
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const uint32_t in = told->restored_in != NULL ? told->restored_in[p] : 0;
        if (c->epoch != 0 && in > c->restored_in[p])
            c->restored[p / 64] |= UINT64_C(1) << (p % 64);
        c->restored_in[p] = in;
    }
}

static bool take_map(struct mr_client *client, const struct told *told)
{
    struct mrc_cluster *c = &client->cluster;
    struct mrc_node *met[MR_CLUSTER_NODES_MAX] = {NULL};
    for (uint32_t i = 0; i < told->count; i++) {
        if (!told->owns[i])
            continue;
        met[i] = meet_node(client, told, i);
        if (met[i] == NULL)
            return false;
    }
    for (uint32_t i = 0; i < told->count; i++)
        if (met[i] != NULL)
            met[i]->place = i;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        c->owner[p] = (uint16_t)met[told->owner[p]]->index;
    leave_others(client, met, told->count);
    note_restored(c, told);
    c->epoch = told->words[MR_CLUSTER_EPOCH];
    c->was_met = true;
    c->lease_us = told->words[MR_CLUSTER_LEASE_US];
    return true;
}

/* ---- other nodes in the cluster's place ---- */

/* Whether a node but this one still is a member of the cluster as the client knows it. One that may be silent
 * is asked. */
static bool has_members(struct mr_client *client, const struct mrc_node *but)
{
    bool has = false;
    for (uint32_t n = 0; n < client->node_count; n++) {
        struct mrc_node *node = client->nodes[n];
        if (node == but || node->core_count == 0 || node->outsider_in == node->start_id ||
            !mrc_node_is_up(node))
            continue;
        has = true;
        node->stale = true;
    }
    return has;
}

static void forget_cluster(struct mr_client *client)
{
    client->cluster.epoch = 0;
    client->cluster.lease_us = 0;
    memset(client->cluster.restored_in, 0, sizeof(client->cluster.restored_in));
    memset(client->cluster.restored, 0, sizeof(client->cluster.restored));
    mrc_call_hooks.replaced(client);
}

/* A node that was a member is one by itself now. */
static enum mrc_map_news read_loner(struct mrc_node *node)
{
    struct mr_client *client = node->client;
    struct mrc_node *const met[] = {node};
    if (!node->is_member || client->cluster.epoch == 0) {
        if (client->cluster.is_expected && !client->cluster.was_met)
            client->cluster.loner = node;
        return MRC_MAP_NONE;
    }
    node->outsider_in = node->start_id;
    if (has_members(client, node))
        return MRC_MAP_MISSING;
    forget_cluster(client);
    node->is_member = node->has_no_lease = false;
    memset(node->name, 0, sizeof(node->name));
    leave_others(client, met, 1);
    return MRC_MAP_NEW;
}

static enum mrc_map_news read_member(struct mrc_node *node, const struct mr_future *f, struct told *told)
{
    struct mr_client *client = node->client;
    bool whole;
    if (!read_tensors(f, told) || !read_nodes(client, told, &whole))
        return MRC_MAP_GARBLED;
    if (told->self != UINT32_MAX && node->name[0] == '\0')
        memcpy(node->name, told->nodes[told->self].name, sizeof(node->name));
    node->is_member = true;
    node->has_no_lease = told->words[MR_CLUSTER_LEASE_LEFT_US] == 0;
    const uint64_t epoch = told->words[MR_CLUSTER_EPOCH];
    if (epoch < client->cluster.epoch && node->member_in != node->start_id) {
        node->outsider_in = node->start_id;
        if (!whole || has_members(client, node))
            return MRC_MAP_MISSING;
        forget_cluster(client);
    }
    if (epoch < client->cluster.epoch)
        return MRC_MAP_SAME;
    node->member_in = node->start_id;
    const bool is_same = epoch == client->cluster.epoch && epoch != 0;
    const bool is_taken = !is_same && whole && take_map(client, told);
    note_absent(client, told);
    return is_same ? MRC_MAP_SAME : is_taken ? MRC_MAP_NEW : MRC_MAP_MISSING;
}

enum mrc_map_news mrc_cluster_read(struct mrc_node *node, const struct mr_future *f)
{
    if (f->requests[0].answer_count < 2 + MR_CLUSTER_TENSORS)
        return read_loner(node);
    struct told *told = calloc(1, sizeof(*told));
    const enum mrc_map_news news = told == NULL ? MRC_MAP_MISSING : read_member(node, f, told);
    free(told);
    return news;
}

/* ---- members that may have been replaced ---- */

static bool is_for_owners(uint32_t op)
{
    switch (op) {
    case MR_OP_LOOKUP:
    case MR_OP_LOOKUP_TABLES:
    case MR_OP_PUSH_GRAD:
    case MR_OP_VARIABLE_PULL:
    case MR_OP_VARIABLE_PUSH:
    case MR_OP_FEED_SAMPLE:
    case MR_OP_LOOKUP_BATCH:
    case MR_OP_PUSH_GRAD_BATCH:
        return true;
    default:
        return false;
    }
}

static bool is_any_silent(const struct mr_client *client)
{
    for (uint32_t n = 0; n < client->node_count; n++)
        if (client->nodes[n]->core_count > 0 && !mrc_node_is_up(client->nodes[n]))
            return true;
    return false;
}

/* When a call that only the owner answers will have waited at this link for so long that the node may be
 * without a lease, and its partitions others'; UINT64_MAX: none is there. */
static uint64_t waits_until_us(const struct mrc_link *link)
{
    for (const struct mr_link *l = link->requests.next; l != &link->requests; l = l->next) {
        const struct mr_future *f = MR_CONTAINER(l, struct mrc_shard_request, in_flight)->future;
        if (f->sent && is_for_owners(f->options.op))
            return f->sent_us + ASK_SILENT_US; /* the others were begun later */
    }
    return UINT64_MAX;
}

static uint64_t oldest_waits_until_us(const struct mr_client *client)
{
    uint64_t first_us = UINT64_MAX;
    for (uint32_t i = 0; i < client->link_count; i++) {
        const uint64_t us = waits_until_us(client->links[i]);
        first_us = us < first_us ? us : first_us;
    }
    return first_us;
}

/* Whether calls to the node wait: it is asked last, as it may not know the newest map. */
static bool is_waited_for(const struct mrc_node *node, uint64_t now_us)
{
    bool waits = false;
    for (uint32_t i = 0; i < node->link_count; i++)
        waits |= waits_until_us(node->links[i]) <= now_us;
    return waits;
}

void mrc_cluster_poll(struct mr_client *client)
{
    struct mrc_cluster *c = &client->cluster;
    const uint64_t now_us = mr_clock_us();
    const uint32_t count = client->node_count;
    if (c->epoch == 0 || count == 0 || now_us < c->ask_us ||
        (!is_any_silent(client) && oldest_waits_until_us(client) > now_us))
        return;
    c->ask_us = now_us + ASK_SILENT_US;
    for (uint32_t i = 0; i < 2 * count; i++) {
        struct mrc_node *node = client->nodes[c->turn++ % count];
        const bool is_last_choice = i >= count;
        if (node->core_count > 0 && mrc_node_is_up(node) &&
            (is_last_choice || !is_waited_for(node, now_us))) {
            node->stale = true;
            return;
        }
    }
}

uint64_t mrc_cluster_next_us(const struct mr_client *client)
{
    const struct mrc_cluster *c = &client->cluster;
    if (c->epoch == 0)
        return UINT64_MAX;
    const uint64_t waits_us = is_any_silent(client) ? 0 : oldest_waits_until_us(client);
    return waits_us > c->ask_us ? waits_us : c->ask_us;
}

/* ---- calls ---- */

bool mrc_cluster_is_late(const struct mr_client *client, uint32_t op, uint64_t sent_us)
{
    return client->cluster.epoch != 0 && client->cluster.lease_us != 0 && is_for_owners(op) &&
           mr_clock_us() - sent_us > client->cluster.lease_us;
}

uint16_t mrc_cluster_epoch_of(const struct mr_client *client, uint32_t op)
{
    /* Who has taken partitions over does not say what is applied before it has loaded them. */
    return is_for_owners(op) || op == MR_OP_BATCH_STATE ? (uint16_t)client->cluster.epoch : 0;
}

void mrc_cluster_refused(struct mrc_node *node)
{
    if (node->core_count == 0) /* by a map that the client has replaced: the node owns nothing any more */
        return;
    node->refused = true;
    node->stale = true;
}

bool mrc_cluster_is_settled(const struct mr_client *client)
{
    for (uint32_t n = 0; n < client->node_count; n++)
        if (client->nodes[n]->refused)
            return false;
    return true;
}

static bool is_settled(const void *arg)
{
    return mrc_cluster_is_settled(arg);
}

bool mrc_cluster_wait(struct mr_client *client, uint64_t deadline_us)
{
    pthread_mutex_lock(&client->lock);
    bool settled = mrc_wait(client, is_settled, client, deadline_us);

    pthread_mutex_unlock(&client->lock);
    return settled;
}
