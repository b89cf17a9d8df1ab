#include "trainer_client/call/node.h"
#include "trainer_client/call/call_hooks.h"
#include "trainer_client/call/last_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/capability.h"

#define ASK_PAUSE_US     20000u /* after a question without an answer; doubled each time, up to: */
#define ASK_PAUSE_MAX_US 1000000u
/* How long a server is looked for at one of its addresses before the next is tried: longer in each round */
#define HOSTS_US            1000000u /* between looks at the names of silent nodes */
#define ADDRESS_US          250000u
#define ADDRESS_LEAST_US    20000u
#define ADDRESS_DOUBLED_MAX 3u

struct mrc_node *mrc_node_create(struct mr_client *client, const struct mrc_addresses *addresses)
{
    struct mrc_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return NULL;
    node->client = client;
    node->addresses = *addresses;
    node->address = addresses->list[0];
    if (mrc_call_hooks.node_init(node))
        return node;
    mrc_node_destroy(node);
    return NULL;
}

void mrc_node_destroy(struct mrc_node *node)
{
    mrc_call_hooks.node_fini(node);
    free(node);
}

enum mr_status mrc_node_add_link(struct mrc_node *node, char *error, size_t error_bytes)
{
    struct mr_client *client = node->client;
    struct mr_address address = node->address;
    struct mrc_link *link;
    const uint16_t core = (uint16_t)node->link_count;
    address.port = (uint16_t)(address.port + core);
    enum mr_status status =
        mrc_link_create(node, &client->link_config, core, &address, &link, error, error_bytes);

    if (status != MR_OK)
        return status;
    if (!mrc_client_add_link(client, link)) {
        snprintf(error, error_bytes, "%s: cannot wait for the socket", link->name);
        mrc_link_close(link, mr_clock_us());
        mrc_link_destroy(link);
        return MR_NO_MEMORY;
    }
    node->links[core] = link;
    node->link_count++;
    return MR_OK;
}

bool mrc_node_is_up(const struct mrc_node *node)
{
    struct mr_client_session_info info = {.up = false};
    if (node->link_count > 0 && node->links[0]->session != NULL)
        mr_client_session_info(node->links[0]->session, &info);
    return info.up;
}

bool mrc_node_is_away(const struct mrc_node *node)
{
    return node->is_absent && !mrc_node_is_up(node);
}

/* ---- addresses ---- */

static void address_set(struct mrc_node *node, const struct mr_address *address)
{
    const uint32_t rounds = node->addresses.count == 0 ? 0 : node->addresses_tried / node->addresses.count;
    const uint32_t doubled = rounds < ADDRESS_DOUBLED_MAX ? rounds : ADDRESS_DOUBLED_MAX;
    const uint64_t now_us = mr_clock_us();
    node->address = *address;
    node->addresses_tried++;
    node->address_us = now_us + ((uint64_t)ADDRESS_US << doubled);
    node->address_least_us = now_us + ((uint64_t)ADDRESS_LEAST_US << doubled);
}

/* Its cores are looked for at another address from now on. */
static void node_move(struct mrc_node *node, const struct mr_address *address)
{
    address_set(node, address);
    for (uint32_t i = 0; i < node->link_count; i++) {
        struct mr_address core = *address;
        core.port = (uint16_t)(core.port + i);
        mrc_link_move(node->links[i], &core, mr_clock_us());
    }
}

enum mr_status mrc_node_open(struct mrc_node *node, char *error, size_t error_bytes)
{
    enum mr_status status = MR_UNREACHABLE;
    for (uint32_t i = 0; i < node->addresses.count && status == MR_UNREACHABLE; i++) {
        address_set(node, &node->addresses.list[i]);
        status = mrc_node_add_link(node, error, error_bytes);
    }
    return status;
}

void mrc_node_set_addresses(struct mrc_node *node, const struct mrc_addresses *addresses)
{
    node->addresses = *addresses;
    if (mrc_addresses_has(addresses, &node->address))
        return;
    node->addresses_tried = 0;
    node_move(node, &addresses->list[0]);
}

/* Returns when another address of the node is tried; UINT64_MAX: never, as it has answered at this one. */
static uint64_t address_next_us(const struct mrc_node *node)
{
    if (node->addresses.count < 2 || node->start_id != 0 || node->link_count == 0 ||
        node->links[0]->session == NULL)
        return UINT64_MAX;
    return node->links[0]->refused ? node->address_least_us : node->address_us;
}

static void address_poll(struct mrc_node *node)
{
    if (node->addresses.count == 0 || address_next_us(node) > mr_clock_us())
        return;
    uint32_t at = 0;
    while (at < node->addresses.count && !mr_address_is_same(&node->addresses.list[at], &node->address))
        at++;
    node_move(node, &node->addresses.list[(at + 1) % node->addresses.count]);
}

/* Names are looked up again while nobody answers where the node was. */
static void host_poll(struct mrc_node *node)
{
    struct mrc_addresses found;
    char error[256];
    if (node->host[0] == '\0' || node->core_count == 0 || mrc_node_is_up(node))
        return;
    if (mrc_names_find(node->client->names, node->host, &found, error, sizeof(error)) != MR_OK)
        return;
    node->client->cluster.unfound[0] = '\0';
    mrc_node_set_addresses(node, &found);
}

void mrc_node_leave(struct mrc_node *node)
{
    node->core_count = 0;
    node->stale = node->refused = false;
    node->left = true;
    for (uint32_t i = 0; i < node->link_count; i++)
        node->links[i]->regrouped = true;
}

void mrc_node_session_up(struct mrc_link *link, const struct mr_client_session_info *info)
{
    struct mrc_node *node = link->node;
    bool first = node->core_count == 0, started = info->start_id != node->start_id;
    node->incarnation = info->incarnation;
    if (started) {
        node->start_id = info->start_id;
        if (!first) {
            /* Numbers and descriptors may have changed. */
            mrc_features_clear(&node->client->features);
            node->stale = true;
        }
    }
    mrc_call_hooks.node_up(node, info, started && !first);
    if (link->core != 0)
        return;
    if (first || node->is_member || info->map_version != node->map_version)
        node->stale = true;
}

/* Finds the longest message that all nodes take which have told it. */
static void note_message_bytes(struct mr_client *client)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t n = 0; n < client->node_count; n++) {
        const uint32_t told = client->nodes[n]->message_bytes_max;
        if (client->nodes[n]->core_count > 0 && told > 0 && told < least)
            least = told;
    }
    atomic_store_explicit(&client->message_bytes_max,
                          least < MRC_MESSAGE_BYTES_LEAST ? MRC_MESSAGE_BYTES_LEAST : least,
                          memory_order_relaxed);
}

/* Reads the reply into the node; false when it is malformed. */
static bool read_info(struct mrc_node *node, const struct mr_future *f)
{
    uint32_t info[MR_NODE_INFO_WORDS];
    const struct mr_tensor *map = mrc_answer_tensor(f, 0, 1, MR_U16, 1);
    if (!mrc_answer_body(f, 0, 0, MR_BODY_NODE_INFO, info) || map == NULL ||
        map->dims[0] != MR_PARTITION_COUNT)
        return false;
    const uint32_t cores = info[MR_NODE_INFO_CORES];
    const uint16_t *owner = map->data;

    if (cores == 0 || cores > MR_CORE_MAX)
        return false;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (owner[p] >= cores)
            return false;
    node->unlisted |=
        node->core_count != cores || memcmp(owner, node->partition_core, sizeof(node->partition_core)) != 0;
    node->core_count = cores;
    node->map_version = info[MR_NODE_INFO_MAP_VERSION];
    node->message_bytes_max = info[MR_NODE_INFO_MESSAGE_BYTES_MAX];
    note_message_bytes(node->client);
    memcpy(node->partition_core, owner, sizeof(node->partition_core));
    return true;
}

static void ask_later(struct mrc_node *node)
{
    uint64_t pause_us = (uint64_t)ASK_PAUSE_US << (node->asked_in_vain < 8 ? node->asked_in_vain : 8);
    node->stale = true;
    node->asked_in_vain++;
    node->ask_us = mr_clock_us() + (pause_us < ASK_PAUSE_MAX_US ? pause_us : ASK_PAUSE_MAX_US);
}

/* Opens links to all cores of a node. */
static void open_links(struct mrc_node *node)
{
    char error[128];
    while (node->link_count < node->core_count && mrc_node_add_link(node, error, sizeof(error)) == MR_OK) {
    }
    for (uint32_t i = 0; i < node->core_count && i < node->link_count; i++)
        if (node->links[i]->session == NULL)
            (void)mrc_link_reopen(node->links[i], mr_clock_us());
}

/* Shows what is known of the node's partitions to calls, which may come at once. */
static void list_owners(struct mrc_node *node)
{
    for (uint32_t n = 0; n < node->client->node_count; n++)
        open_links(node->client->nodes[n]);
    node->unlisted = !mrc_shard_map_renew(node->client);
    if (node->unlisted)
        ask_later(node);
}

/* Reads what the node tells of its cluster. A map that has not changed although the node refused a call by it
 * is asked for again after a pause, by the next call that is refused. */
static void read_map(struct mrc_node *node, const struct mr_future *f)
{
    const enum mrc_map_news news = mrc_cluster_read(node, f);
    const bool in_vain = news == MRC_MAP_SAME && node->refused;
    node->garbled = news == MRC_MAP_GARBLED;
    node->unlisted |= news == MRC_MAP_NEW;
    node->refused = false;
    if (news == MRC_MAP_MISSING || in_vain)
        ask_later(node);
    else
        node->asked_in_vain = 0;
    if (in_vain)
        node->stale = false;
}

static void info_came(struct mr_future *f)
{
    struct mrc_node *node = f->requests[0].link->node;
    node->asking = false;
    if (f->requests[0].status == MR_OK) {
        const bool is_other = mrc_cluster_is_other(node, f);
        node->garbled = !is_other && !read_info(node, f);
        if (!node->garbled)
            read_map(node, f);
        if (is_other)
            ask_later(node);
        /* Without a map the node stands for all of them: it refuses calls for keys until there is one. */
        if (node->unlisted &&
            (!node->is_member || node->client->cluster.epoch != 0 || node->client->any_node))
            list_owners(node);
    } else if (f->requests[0].status != MR_CANCELLED) {
        ask_later(node);
    }
    mrc_future_free_locked(f);
}

static void node_ask(struct mrc_node *node)
{
    struct mr_future *f;
    if (mrc_future_new(node->client, NULL, MR_OP_NODE_INFO, 0, 1, 0, 0, &f) != MR_OK) {
        ask_later(node);
        return;
    }
    f->requests[0].to = node->links[0];
    f->on_end = info_came;
    f->options.ahead = true; /* held sessions are released once the map is known */
    if (mrc_future_send_locked(f) != MR_OK) {
        mrc_future_free_locked(f);
        ask_later(node);
        return;
    }
    node->asking = true;
    node->stale = false;
}

/* Closes links to cores that the node no longer has. */
static void close_surplus_links(struct mrc_node *node)
{
    for (uint32_t i = node->core_count; i < node->link_count; i++)
        mrc_link_close(node->links[i], mr_clock_us());
}

/* Returns when the node is to be asked for its map. The answer is long: it would fill a path that is too
 * narrow for it, so it is known first what the path carries. */
static uint64_t ask_next_us(const struct mrc_node *node)
{
    return node->stale && !node->asking && node->links[0]->path_known ? node->ask_us : UINT64_MAX;
}

static void close_links(struct mrc_node *node)
{
    for (uint32_t i = 0; i < node->link_count; i++)
        mrc_link_close(node->links[i], mr_clock_us());
}

/* Not while its answer is read: the links get other sockets. */
static void go_elsewhere(struct mrc_node *node)
{
    if (node->is_elsewhere)
        mrc_node_set_addresses(node, &node->elsewhere);
    node->is_elsewhere = false;
}

/* A node that waits for the addresses of others is asked again once they are known. */
static void names_poll(struct mr_client *client)
{
    const uint32_t ended = mrc_names_ended(client->names);
    const uint64_t now_us = mr_clock_us();
    const bool is_news = ended != client->names_ended, is_due = now_us >= client->hosts_us;
    if (!is_news && !is_due)
        return;
    client->names_ended = ended;
    client->hosts_us = now_us + HOSTS_US;
    for (uint32_t n = 0; n < client->node_count; n++) {
        if (is_news && client->nodes[n]->stale)
            client->nodes[n]->ask_us = 0;
        host_poll(client->nodes[n]);
    }
}

void mrc_nodes_poll(struct mr_client *client)
{
    names_poll(client);
    for (uint32_t n = 0; n < client->node_count; n++) {
        go_elsewhere(client->nodes[n]);
        address_poll(client->nodes[n]);
    }
    for (uint32_t n = 0; n < client->node_count; n++)
        if (ask_next_us(client->nodes[n]) <= mr_clock_us())
            node_ask(client->nodes[n]);
    mrc_call_hooks.take_regrouped(client);
    for (uint32_t n = 0; n < client->node_count; n++) {
        struct mrc_node *node = client->nodes[n];
        if (node->core_count > 0) {
            open_links(node);
            close_surplus_links(node);
            mrc_call_hooks.poll_node(node);
        } else if (node->left) {
            close_links(node);
        }
        node->left = false;
    }
    mrc_call_hooks.give_regrouped(client);
}

uint64_t mrc_node_next_us(const struct mrc_node *node)
{
    if (node->asking)
        return UINT64_MAX;
    uint64_t probe_us = mrc_call_hooks.node_next_us(node), next_us = ask_next_us(node);
    const uint64_t address_us = address_next_us(node);

    next_us = address_us < next_us ? address_us : next_us;
    return probe_us < next_us ? probe_us : next_us;
}

/* ---- the first time ---- */

static bool is_ready(const struct mrc_link *link)
{
    return link->up && link->path_known;
}

/* Returns a member that waits for its cluster's map; NULL: none does. */
static const struct mrc_node *find_mapless(const struct mr_client *client)
{
    for (uint32_t n = 0; n < client->node_count && client->cluster.epoch == 0; n++)
        if (client->nodes[n]->is_member)
            return client->nodes[n];
    return NULL;
}

/* Returns a link that is not ready, of a node that is waited for if there is one; NULL: all are. */
static const struct mrc_link *find_unready(const struct mr_client *client)
{
    const struct mrc_link *unready = NULL;
    for (uint32_t i = 0; i < client->link_count; i++)
        if (client->links[i]->session != NULL && !is_ready(client->links[i]) &&
            (unready == NULL || mrc_node_is_away(unready->node)))
            unready = client->links[i];
    return unready;
}

static bool is_complete(const struct mrc_node *node)
{
    if (node->core_count == 0 || node->link_count < node->core_count || node->stale || node->asking)
        return false;
    for (uint32_t i = 0; i < node->core_count; i++)
        if (!is_ready(node->links[i]))
            return false;
    return true;
}

/* Also when there is nothing to wait for any more. */
static bool connected(const void *arg)
{
    const struct mr_client *client = arg;
    for (uint32_t i = 0; i < client->link_count; i++)
        if (client->links[i]->path_narrow)
            return true;
    for (uint32_t n = 0; n < client->node_count; n++)
        if (client->nodes[n]->garbled)
            return true;
    if (client->cluster.loner != NULL)
        return true;
    for (uint32_t n = 0; n < client->node_count && client->any_node && client->shard_map != NULL; n++)
        if (client->nodes[n]->core_count > 0 && is_ready(client->nodes[n]->links[0]))
            return true;
    bool is_any = false; /* calls for what absent nodes own wait for them, as they do later */
    for (uint32_t i = 0; client->shard_map != NULL && i < client->shard_map->count; i++) {
        const struct mrc_node *node = client->shard_map->shards[i].node;
        if (!is_complete(node) && !mrc_node_is_away(node))
            return false;
        is_any |= is_complete(node);
    }
    return is_any;
}

static bool find_loner(const struct mr_client *client, char *error, size_t error_bytes)
{
    char text[MR_ADDRESS_TEXT_BYTES];
    const struct mrc_node *loner = client->cluster.loner;
    if (loner == NULL)
        return false;
    mr_address_text(&loner->address, text);
    snprintf(error, error_bytes,
             "%s is in no cluster, and several servers were named: name one server, or give each of them "
             "the same [cluster] name",
             text);
    return true;
}

static bool find_narrow(const struct mr_client *client, char *error, size_t error_bytes)
{
    char text[MRC_PATH_TEXT_BYTES];
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        if (mrc_link_describe_path(link, text, sizeof(text))) {
            snprintf(error, error_bytes, "%s: %s", link->name, text);
            return true;
        }
    }
    return false;
}

static bool find_garbled(const struct mr_client *client, char *error, size_t error_bytes)
{
    for (uint32_t n = 0; n < client->node_count; n++) {
        char versions[MRC_PATH_TEXT_BYTES];
        const struct mrc_link *link = client->nodes[n]->links[0];
        if (!client->nodes[n]->garbled)
            continue;
        mrc_link_versions(link, versions, sizeof(versions));
        snprintf(error, error_bytes, "%s: answered, but not with a partition map: %s", link->name, versions);
        return true;
    }
    return false;
}

/* Appends where else the node was looked for. */
static void describe_addresses(const struct mrc_node *node, char *error, size_t error_bytes)
{
    const char *before = "; the name has other addresses, and there was no answer at ";
    for (uint32_t i = 0; i < node->addresses.count; i++) {
        const size_t used = strlen(error);
        char text[MR_ADDRESS_TEXT_BYTES];
        if (mr_address_is_same(&node->addresses.list[i], &node->address))
            continue;
        mr_address_text(&node->addresses.list[i], text);
        snprintf(error + used, error_bytes - used, "%s%s", before, text);
        before = ", ";
    }
}

static enum mr_status describe_unready(const struct mr_client *client, double waited_s, char *error,
                                       size_t error_bytes)
{
    const struct mrc_link *silent = find_unready(client);
    char text[MRC_PATH_TEXT_BYTES];
    const struct mrc_node *mapless = find_mapless(client);
    if (client->link_count == 0) /* no name has been found yet: the caller says which */
        return MR_UNREACHABLE;
    if (mapless != NULL && client->cluster.unfound[0] != '\0') {
        snprintf(error, error_bytes, "%s: %s", mapless->links[0]->name, client->cluster.unfound);
        return MR_UNREACHABLE;
    }
    if (mapless != NULL) {
        snprintf(error, error_bytes,
                 "%s: the cluster has no map of its partitions yet (tried for %.1f s): do its nodes reach "
                 "ZooKeeper, and are as many started as cluster.nodes says?",
                 mapless->links[0]->name, waited_s);
        return MR_UNREACHABLE;
    }
    if (silent == NULL)
        silent = client->links[0];
    if (mrc_link_describe_version(silent, text, sizeof(text))) {
        snprintf(error, error_bytes, "%s: %s", silent->name, text);
        return MR_VERSION_MISMATCH;
    }
    if (silent->refused)
        snprintf(error, error_bytes,
                 "%s: nothing listens there (tried for %.1f s): start the server, or correct the address",
                 silent->name, waited_s);
    else
        snprintf(
            error, error_bytes,
            "%s: no answer for %.1f s: is the server running there, does a firewall drop UDP, %s, and is the "
            "server as new as this library (protocol %u)?",
            silent->name, waited_s,
            client->link_config.has_psk ? "has the server the key that this client has"
                                        : "does the server want a key (this client has none)",
            MR_PROTOCOL_VERSION);
    describe_addresses(silent->node, error, error_bytes);
    return MR_UNREACHABLE;
}

struct nodes_wait {
    const struct mr_client *client;
    uint32_t ended;
};

static bool is_connected_or_told(const void *arg)
{
    const struct nodes_wait *wait = arg;
    return connected(wait->client) || mrc_names_ended(wait->client->names) != wait->ended;
}

bool mrc_nodes_wait(struct mr_client *client, uint32_t ended, uint64_t deadline_us)
{
    const struct nodes_wait wait = {.client = client, .ended = ended};
    (void)mrc_wait(client, is_connected_or_told, &wait, deadline_us);
    return connected(client) || mr_clock_us() >= deadline_us;
}

enum mr_status mrc_nodes_connected(const struct mr_client *client, double waited_s, char *error,
                                   size_t error_bytes)
{
    if (!connected(client))
        return describe_unready(client, waited_s, error, error_bytes);
    if (find_narrow(client, error, error_bytes))
        return MR_UNREACHABLE;
    if (find_loner(client, error, error_bytes))
        return MR_INVALID_ARGUMENT;
    return find_garbled(client, error, error_bytes) ? MR_BAD_MESSAGE : MR_OK;
}

bool mrc_nodes_lookup_tables(const struct mr_client *client)
{
    for (uint32_t i = 0; i < client->node_count; i++) {
        const struct mrc_node *node = client->nodes[i];
        if (node->lacks_lookup_tables_in != 0 && node->lacks_lookup_tables_in == node->start_id)
            return false;
    }
    return true;
}

/* The first node that lacks some of it. */
static const struct mrc_node *find_lacking(const struct mr_client *client, uint64_t *needs,
                                           struct mr_peer_version *version)
{
    for (uint32_t i = 0; i < client->node_count; i++) {
        const struct mrc_node *node = client->nodes[i];
        struct mr_client_session_info info;
        if (node->core_count == 0 || node->links[0]->session == NULL || !node->links[0]->up)
            continue;
        mr_client_session_info(node->links[0]->session, &info);
        if ((*needs & ~info.version.capabilities) == 0)
            continue;
        *needs &= ~info.version.capabilities;
        *version = info.version;
        return node;
    }
    return NULL;
}

enum mr_status mrc_nodes_check(struct mr_client *client, const char *call, uint64_t needs)
{
    struct mr_peer_version version;
    char name[MRC_LINK_NAME_BYTES] = "", text[MR_VERSION_TEXT_BYTES], lacks[128];
    if (needs == 0)
        return MR_OK;
    pthread_mutex_lock(&client->lock);
    const struct mrc_node *node = find_lacking(client, &needs, &version);
    if (node != NULL)
        memcpy(name, node->links[0]->name, sizeof(name));
    pthread_mutex_unlock(&client->lock);
    if (node == NULL)
        return MR_OK;
    mr_version_name(&version, text);
    mr_capability_text(needs, lacks, sizeof(lacks));
    return mrc_error(
        MR_VERSION_MISMATCH,
        "%s: %s: this needs %s, which the server's version (%s) lacks and this library's (%s) has: "
        "upgrade the server",
        name, call, lacks, text, mr_version_text());
}
