#include "ps/cluster/zookeeper.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "ps/cluster/catalog_json.h"
#include "ps/cluster/zookeeper_calls.h"
#include "ps/cluster/zookeeper_hosts.h"

#define SERVERS_BYTES   1024u
#define ROOT            "/millrace"
#define PATH_BYTES      (sizeof(ROOT) + 2 * PS_CLUSTER_NAME_BYTES + 16)
#define MAP_BYTES_MAX   (1u << 20) /* ZooKeeper's own limit of a znode, the map's and the catalogue's */
#define ENTRY_BYTES_MAX 2048u
#define ROUNDS          6u       /* in the time after which a session is dead */
#define AWAY_US         1000000u /* without a connection for longer: trouble */
#define OPEN_AGAIN_US   1000000u
#define HANG_US         10000000u /* beside two sessions: a longer request is lost in the library */

struct ps_zookeeper {
    struct ps_zookeeper_options options;
    char cluster_path[PATH_BYTES], map_path[PATH_BYTES], catalog_path[PATH_BYTES], nodes_path[PATH_BYTES],
        self_path[PATH_BYTES], leader_path[PATH_BYTES];
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows, up to `report` */
    pthread_cond_t changed;
    bool is_woken;
    bool stops;
    bool writes;    /* `next` is to be written */
    bool reads_all; /* somebody waits for what all nodes say */
    struct ps_cluster_map next;
    struct ps_cluster_catalog *next_catalog; /* to be written; NULL: nothing is */
    struct ps_cluster_report report;
    /* The thread's own. */
    struct ps_zookeeper_link link;
    bool has_shown_credentials; /* by this handle, which shows them again at each connection */
    bool is_registered;
    char *announced;        /* the entry as it was written last; NULL: not yet */
    uint64_t announced_us;  /* when that was answered */
    bool is_in_doubt;       /* whether a change was written: the next entry's answer comes after it */
    uint64_t away_since_us; /* 0: connected */
    struct ps_cluster_map map;
    struct Stat map_stat; /* of the znode, when `map` was read; czxid 0: it was not there */
    /* the nodes' entries, of this round and of the one before */
    struct entries {
        uint32_t count;
        struct ps_cluster_node nodes[PS_CLUSTER_REGISTERED_MAX];
        struct ps_cluster_report reports[PS_CLUSTER_REGISTERED_MAX];
    } entries[2];
    uint32_t round; /* entries[round % 2] is this round's */
    bool led;       /* in the round before */
    struct ps_cluster_catalog *catalog;
    struct Stat catalog_stat; /* of the znode, when `catalog` was read; czxid 0: it was not there */
    char trouble[PS_CLUSTER_TEXT_BYTES];
    bool is_troubled; /* in this round */
    char *buffer;     /* MAP_BYTES_MAX */
};

/* ---- trouble ---- */

static void zookeeper_say(struct ps_zookeeper *z, const char *text)
{
    if (strcmp(z->trouble, text) == 0)
        return;
    (void)snprintf(z->trouble, sizeof(z->trouble), "%s", text);
    z->options.events->troubled(z->options.context, text[0] == '\0' ? NULL : z->trouble);
}

__attribute__((format(printf, 2, 3))) static void trouble(struct ps_zookeeper *z, const char *format, ...)
{
    char text[PS_CLUSTER_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    z->is_troubled = true;
    zookeeper_say(z, text);
}

/* A request was refused. What is lost with the connection is not said: the state of the session is. */
static void refused(struct ps_zookeeper *z, const char *what, const char *path, int error)
{
    if (error == ZCONNECTIONLOSS || error == ZOPERATIONTIMEOUT || error == ZSESSIONEXPIRED ||
        error == ZINVALIDSTATE || error == ZCLOSING || error == ZSESSIONMOVED || error == PS_ZOOKEEPER_HANGS)
        return;
    if (error == ZNOAUTH)
        trouble(z,
                "ZooKeeper does not let us %s %s, which belongs to other credentials: put those that the "
                "cluster was made with into cluster.credentials_file, or choose another cluster.name",
                what, path);
    else
        trouble(z, "ZooKeeper does not %s %s: %s", what, path, zerror(error));
}

/* ---- the session ---- */

static void drop_message(const char *message)
{
    (void)message; /* `troubled` says what matters */
}

static void session_changed(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle;
    (void)type;
    (void)state;
    (void)path;
    ps_zookeeper_wake(context);
}

static uint64_t session_of(const struct ps_zookeeper *z)
{
    return (uint64_t)zoo_client_id(z->link.handle)->client_id;
}

static void close_session(struct ps_zookeeper *z)
{
    if (z->link.handle)
        (void)zookeeper_close(z->link.handle);
    z->link = (struct ps_zookeeper_link){.handle = NULL};
    z->has_shown_credentials = z->is_registered = false;
}

static bool open_session(struct ps_zookeeper *z)
{
    const struct ps_zookeeper_options *o = &z->options;
    char servers[SERVERS_BYTES], why[SERVERS_BYTES];
    (void)ps_zookeeper_hosts(o->servers, servers, sizeof(servers), why, sizeof(why));
    z->link.handle = zookeeper_init2(servers, session_changed, (int)o->session_ms, NULL, z,
                                     ZOO_NO_LOG_CLIENTENV, drop_message);
    if (!z->link.handle) {
        const int error = errno;
        trouble(z, "cluster.zookeeper = %s: %s", o->servers,
                why[0] != '\0'                       ? why
                : error == EINVAL || error == ENOENT ? "no such host"
                                                     : strerror(error));
        return false;
    }
    z->link.limit_us = HANG_US + 2u * 1000u * (uint64_t)o->session_ms;
    z->away_since_us = mr_clock_boot_us();
    return true;
}

/* The library takes no credentials while connections are refused. */
static bool show_credentials(struct ps_zookeeper *z)
{
    const char *credentials = z->options.credentials;
    if (!z->has_shown_credentials && credentials[0] != '\0')
        z->has_shown_credentials =
            zoo_add_auth(z->link.handle, "digest", credentials, (int)strlen(credentials), NULL, NULL) == ZOK;
    return z->has_shown_credentials || credentials[0] == '\0';
}

/* The library has not answered a request: what it has of the session is given up, and so is the session. */
static void end_hang(struct ps_zookeeper *z)
{
    const unsigned seconds = (unsigned)(z->link.limit_us / 1000000u);
    close_session(z);
    z->options.events->expired(z->options.context);
    trouble(z,
            "ZooKeeper's client library has not answered a request for %u s: this node opens another session",
            seconds);
}

/* Is there a session by which requests can be sent? */
static bool is_connected(struct ps_zookeeper *z)
{
    const int state = z->link.handle ? zoo_state(z->link.handle) : 0;
    if (z->link.handle && state == ZOO_EXPIRED_SESSION_STATE) {
        close_session(z);
        z->options.events->expired(z->options.context);
    } else if (z->link.handle && state == ZOO_AUTH_FAILED_STATE) {
        trouble(z, "ZooKeeper refuses what is in cluster.credentials_file: it is USER:PASSWORD of its digest "
                   "scheme");
        close_session(z);
        return false;
    }
    if (!z->link.handle)
        (void)open_session(z);
    if (z->link.handle && zoo_state(z->link.handle) == ZOO_CONNECTED_STATE) {
        z->away_since_us = 0;
        return show_credentials(z);
    }
    if (z->link.handle && z->away_since_us == 0)
        z->away_since_us = mr_clock_boot_us();
    if (z->link.handle && mr_clock_boot_us() - z->away_since_us > AWAY_US)
        trouble(z,
                "no ZooKeeper server of cluster.zookeeper = %s answers: are they running, more than half of "
                "them, and can this machine reach them?",
                z->options.servers);
    return false;
}

/* ---- the node's own entry ---- */

static struct ps_zookeeper_new znode_of(const struct ps_zookeeper *z, const char *path, const char *value,
                                        int mode)
{
    const bool is_shared = strcmp(path, ROOT) == 0; /* by clusters with credentials of their own */
    return (struct ps_zookeeper_new){
        .path = path,
        .value = value,
        .acl = z->options.credentials[0] == '\0' || is_shared ? &ZOO_OPEN_ACL_UNSAFE : &ZOO_CREATOR_ALL_ACL,
        .mode = mode,
    };
}

static int zookeeper_create(struct ps_zookeeper *z, const char *path, const char *value, int mode)
{
    const struct ps_zookeeper_new znode = znode_of(z, path, value, mode);
    return ps_zookeeper_create(&z->link, &znode, 1);
}

/* Creates the entry and the folders above it that are missing, in one transaction: each costs a sync of a
 * majority of the servers' disks, and reads cost none. Another node may create a folder in between. */
static int create_entry(struct ps_zookeeper *z, const char *json)
{
    const struct ps_zookeeper_new all[] = {
        znode_of(z, ROOT, "", ZOO_PERSISTENT), znode_of(z, z->cluster_path, "", ZOO_PERSISTENT),
        znode_of(z, z->nodes_path, "", ZOO_PERSISTENT), znode_of(z, z->self_path, json, ZOO_EPHEMERAL)};
    const uint32_t count = sizeof(all) / sizeof(*all), entry = count - 1;
    int error = ZNODEEXISTS;
    for (uint32_t attempt = 0; attempt < count; attempt++) {
        uint32_t first = entry;
        struct Stat stat;
        while (first > 0) {
            error = ps_zookeeper_exists(&z->link, all[first - 1].path, NULL, NULL, &stat);
            if (error == ZOK)
                break;
            if (error != ZNONODE)
                return error;
            first--;
        }
        error = ps_zookeeper_create(&z->link, &all[first], count - first);
        if (error != ZNODEEXISTS || first == entry) /* else another node was faster with a folder */
            break;
    }
    return error;
}

/* The name has an entry: of this session, if the answer to its creation was lost, or of another process. */
static bool is_own_entry(struct ps_zookeeper *z)
{
    char json[ENTRY_BYTES_MAX];
    int bytes = sizeof(json);
    struct Stat stat;
    struct ps_cluster_node other;
    struct ps_cluster_report report;
    char text[PS_CLUSTER_TEXT_BYTES];
    if (ps_zookeeper_get(&z->link, z->self_path, NULL, NULL, json, &bytes, &stat) != ZOK)
        return false;
    if ((uint64_t)stat.ephemeralOwner == session_of(z))
        return true;
    const bool is_read = bytes > 0 && ps_cluster_node_parse(json, (size_t)bytes, &other, &report, text);
    if (is_read && other.start_id == z->options.self.start_id)
        return false; /* this process's session before this one: it ends by itself */
    trouble(
        z,
        "another process is node %s of cluster %s, at %s: if it was this machine's, it is gone in %u s at "
        "most; if not, give each node a cluster.node of its own",
        z->options.self.name, z->options.cluster, is_read ? other.address : "an unknown address",
        (z->options.session_ms + 999) / 1000);
    return false;
}

/* Whether the entry is as it was written a moment ago, and nothing has happened since that a write would
 * have to come after: each costs a sync of a majority of the servers' disks, and changes wake all nodes
 * several times. */
static bool is_announced(const struct ps_zookeeper *z, const char *json)
{
    const uint64_t age_us = mr_clock_boot_us() - z->announced_us;
    return z->is_registered && !z->is_in_doubt && z->announced != NULL && strcmp(z->announced, json) == 0 &&
           age_us < (uint64_t)zoo_recv_timeout(z->link.handle) * 1000u / ROUNDS / 2;
}

/* Writes the entry; true: it is there, and if *is_written, the answer shows that the session lives. */
static bool announce(struct ps_zookeeper *z, bool *is_written)
{
    pthread_mutex_lock(&z->lock);
    const struct ps_cluster_report report = z->report;
    pthread_mutex_unlock(&z->lock);
    struct ps_cluster_node self = z->options.self;
    self.session_ms = (uint32_t)zoo_recv_timeout(z->link.handle);
    char *json = ps_cluster_node_json(&self, &report);
    if (!json)
        return false;
    *is_written = !is_announced(z, json);
    int error = ZOK;
    if (*is_written)
        error = z->is_registered ? ps_zookeeper_set(&z->link, z->self_path, json, -1) : ZNONODE;
    if (error == ZNONODE)
        error = create_entry(z, json);
    if (error == ZOK && *is_written) {
        z->is_registered = true;
        z->is_in_doubt = false;
        z->announced_us = mr_clock_boot_us();
        free(z->announced);
        z->announced = json;
        return true;
    }
    free(json);
    if (error == ZOK)
        return true;
    if (error == ZNODEEXISTS && is_own_entry(z)) {
        z->is_registered = true;
        ps_zookeeper_wake(z);
    } else if (error == ZNONODE || error == ZNODEEXISTS) {
        z->is_registered = false;
    } else {
        refused(z, "write", z->self_path, error);
    }
    return false;
}

/* ---- the map ---- */

static enum ps_member_written write_json(struct ps_zookeeper *z, const struct ps_cluster_map *next,
                                         const char *json)
{
    int error;
    if (next->epoch != z->map.epoch + 1)
        return PS_NOT_WRITTEN;
    if (z->map.epoch == 0)
        error = zookeeper_create(z, z->map_path, json, ZOO_PERSISTENT);
    else
        error = ps_zookeeper_set(&z->link, z->map_path, json, z->map_stat.version);
    if (error == ZOK)
        return PS_WRITTEN;
    if (error == ZBADVERSION || error == ZNODEEXISTS)
        return PS_NOT_WRITTEN;
    refused(z, "write", z->map_path, error);
    z->is_in_doubt = true;
    return PS_PERHAPS_WRITTEN;
}

static void write_next(struct ps_zookeeper *z)
{
    pthread_mutex_lock(&z->lock);
    const bool writes = z->writes;
    const struct ps_cluster_map next = z->next;
    z->writes = false;
    pthread_mutex_unlock(&z->lock);
    if (!writes)
        return;
    char *json = ps_cluster_map_json(&next);
    const enum ps_member_written outcome = json ? write_json(z, &next, json) : PS_NOT_WRITTEN;
    free(json);
    z->options.events->written(z->options.context, &next, outcome);
}

/* Large, and read in each round: its version is asked for first. */
static bool read_map(struct ps_zookeeper *z)
{
    int bytes = MAP_BYTES_MAX;
    struct Stat stat;
    char text[PS_CLUSTER_TEXT_BYTES];
    int error = ps_zookeeper_exists(&z->link, z->map_path, session_changed, z, &stat);
    if (error == ZNONODE) {
        ps_cluster_map_init(&z->map, z->options.partition_count);
        z->map_stat = (struct Stat){0};
        return true;
    }
    if (error == ZOK && stat.czxid == z->map_stat.czxid && stat.version == z->map_stat.version)
        return true;
    if (error == ZOK)
        error = ps_zookeeper_get(&z->link, z->map_path, NULL, NULL, z->buffer, &bytes, &stat);
    if (error != ZOK) {
        refused(z, "read", z->map_path, error);
        return false;
    }
    z->map_stat = (struct Stat){0};
    if (bytes < 0 || !ps_cluster_map_parse(z->buffer, (size_t)bytes, &z->map, text)) {
        trouble(z, "%s in ZooKeeper is no map that this version reads: %s", z->map_path,
                bytes < 0 ? "it is empty" : text);
        return false;
    }
    if (z->map.partition_count != z->options.partition_count) {
        trouble(z, "%s in ZooKeeper has %u partitions, and this version has %u: run one version on all nodes",
                z->map_path, z->map.partition_count, z->options.partition_count);
        return false;
    }
    z->map_stat = stat;
    return true;
}

/* ---- the catalogue ---- */

static enum ps_member_written write_catalog(struct ps_zookeeper *z, const struct ps_cluster_catalog *next,
                                            const char *json)
{
    int error;
    if (next->version != z->catalog->version + 1)
        return PS_NOT_WRITTEN;
    if (z->catalog->version == 0)
        error = zookeeper_create(z, z->catalog_path, json, ZOO_PERSISTENT);
    else
        error = ps_zookeeper_set(&z->link, z->catalog_path, json, z->catalog_stat.version);
    if (error == ZOK)
        return PS_WRITTEN;
    if (error == ZBADVERSION || error == ZNODEEXISTS)
        return PS_NOT_WRITTEN;
    refused(z, "write", z->catalog_path, error);
    z->is_in_doubt = true;
    return PS_PERHAPS_WRITTEN;
}

static void write_next_catalog(struct ps_zookeeper *z)
{
    pthread_mutex_lock(&z->lock);
    struct ps_cluster_catalog *next = z->next_catalog;
    z->next_catalog = NULL;
    pthread_mutex_unlock(&z->lock);
    if (!next)
        return;
    char *json = ps_cluster_catalog_json(next);
    const enum ps_member_written outcome = json ? write_catalog(z, next, json) : PS_NOT_WRITTEN;
    free(json);
    z->options.events->catalog_written(z->options.context, next, outcome);
    free(next);
}

/* Much larger than the map, and changes seldom: its version is asked for first. */
static bool read_catalog(struct ps_zookeeper *z)
{
    int bytes = MAP_BYTES_MAX;
    struct Stat stat;
    char text[PS_CLUSTER_TEXT_BYTES];
    int error = ps_zookeeper_exists(&z->link, z->catalog_path, session_changed, z, &stat);
    if (error == ZNONODE) {
        z->catalog->version = 0;
        z->catalog->count = z->catalog->last_feature = z->catalog->freeze = z->catalog->taken_back_count = 0;
        z->catalog_stat = (struct Stat){0};
        return true;
    }
    if (error == ZOK && stat.czxid == z->catalog_stat.czxid && stat.version == z->catalog_stat.version)
        return true;
    z->catalog_stat = (struct Stat){0};
    if (error == ZOK)
        error = ps_zookeeper_get(&z->link, z->catalog_path, NULL, NULL, z->buffer, &bytes, &stat);
    if (error != ZOK) {
        refused(z, "read", z->catalog_path, error);
        return false;
    }
    if (bytes < 0 || !ps_cluster_catalog_parse(z->buffer, (size_t)bytes, z->catalog, text)) {
        trouble(z, "%s in ZooKeeper is no catalogue that this version reads: %s", z->catalog_path,
                bytes < 0 ? "it is empty" : text);
        return false;
    }
    z->catalog_stat = stat;
    return true;
}

/* ---- who is there, and who leads ---- */

/* False: it cannot be read now. is_node: not if the entry is gone, or no node's. */
static bool read_entry(struct ps_zookeeper *z, const char *name, struct ps_cluster_node *node,
                       struct ps_cluster_report *report, bool *is_node)
{
    char path[PATH_BYTES + PS_CLUSTER_NAME_BYTES];
    char json[ENTRY_BYTES_MAX];
    int bytes = sizeof(json);
    struct Stat stat;
    char text[PS_CLUSTER_TEXT_BYTES];
    *is_node = false;
    if (strlen(name) >= PS_CLUSTER_NAME_BYTES)
        return true;
    (void)snprintf(path, sizeof(path), "%s/%s", z->nodes_path, name);
    const int error = ps_zookeeper_get(&z->link, path, NULL, NULL, json, &bytes, &stat);
    if (error != ZOK)
        return error == ZNONODE;
    if (bytes < 0 || !ps_cluster_node_parse(json, (size_t)bytes, node, report, text)) {
        trouble(z, "%s in ZooKeeper is no node that this version reads: %s", path,
                bytes < 0 ? "it is empty" : text);
        return true;
    }
    *is_node = true;
    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    node->session = (uint64_t)stat.ephemeralOwner;
    return true;
}

/* A change of the map waits, for which what is still to be read of this round is of no use. */
static bool is_overtaken(struct ps_zookeeper *z)
{
    pthread_mutex_lock(&z->lock);
    const bool writes = z->writes;
    pthread_mutex_unlock(&z->lock);
    return writes;
}

static bool takes_move(const struct ps_cluster_map *map, const char *name)
{
    for (uint32_t i = 0; i < map->move_count; i++)
        if (strcmp(map->nodes[map->moves[i].to].name, name) == 0)
            return true;
    return false;
}

/* The entry as it was read in an earlier round, if it need not be read again. */
static bool keep_entry(const struct ps_zookeeper *z, const char *name, struct entries *now)
{
    const struct entries *before = &z->entries[(z->round + 1) % 2];
    uint32_t at = 0;
    while (at < before->count && strcmp(before->nodes[at].name, name) != 0)
        at++;
    if (at == before->count || strcmp(name, z->options.self.name) == 0 || takes_move(&z->map, name))
        return false;
    now->nodes[now->count] = before->nodes[at];
    now->reports[now->count] = before->reports[at];
    return true;
}

/* The nodes of the map come first: others may be more than there is room for. */
static bool read_entries(struct ps_zookeeper *z, const struct String_vector *names, bool in_map, bool all)
{
    struct entries *now = &z->entries[z->round % 2];
    for (int32_t i = 0; i < names->count && now->count < PS_CLUSTER_REGISTERED_MAX; i++) {
        const char *name = names->data[i];
        bool is_node = true;
        if ((ps_cluster_map_find(&z->map, name) != PS_CLUSTER_NO_NODE) != in_map)
            continue;
        if ((all || !keep_entry(z, name, now)) &&
            (!read_entry(z, name, &now->nodes[now->count], &now->reports[now->count], &is_node) ||
             is_overtaken(z)))
            return false;
        now->count += is_node;
    }
    return true;
}

/* Who is there, and what all of them say, or, unless that is wanted, those that were not known. */
static bool read_nodes(struct ps_zookeeper *z, bool all)
{
    struct String_vector names;
    struct entries *now = &z->entries[(z->round + 1) % 2];
    const int error = ps_zookeeper_children(&z->link, z->nodes_path, session_changed, z, &names);
    if (error != ZOK) {
        refused(z, "list", z->nodes_path, error);
        return false;
    }
    z->round++;
    now->count = 0;
    const bool is_read = read_entries(z, &names, true, all) && read_entries(z, &names, false, all);
    (void)deallocate_String_vector(&names);
    return is_read; /* of an entry that could not be read, for want of a connection, nothing is known */
}

static bool is_asked_for_all(struct ps_zookeeper *z)
{
    pthread_mutex_lock(&z->lock);
    const bool is_asked = z->reads_all;
    z->reads_all = false;
    pthread_mutex_unlock(&z->lock);
    return is_asked;
}

static bool read_leader(struct ps_zookeeper *z, bool *leads)
{
    struct Stat stat;
    int error = ps_zookeeper_exists(&z->link, z->leader_path, session_changed, z, &stat);
    if (error == ZNONODE) {
        error = zookeeper_create(z, z->leader_path, z->options.self.name, ZOO_EPHEMERAL);
        *leads = error == ZOK;
        return error == ZOK || error == ZNODEEXISTS;
    }
    *leads = error == ZOK && (uint64_t)stat.ephemeralOwner == session_of(z);
    return error == ZOK;
}

/* ---- the thread ---- */

static void go_round(struct ps_zookeeper *z)
{
    const struct ps_zookeeper_options *o = &z->options;
    struct ps_zookeeper_view view = {.map = &z->map, .catalog = z->catalog};
    z->is_troubled = false;
    if (!is_connected(z))
        return;
    if (z->is_registered) { /* calls wait for the end of a move: what has to do with that comes first */
        write_next(z);
        if (!read_map(z))
            return;
        o->events->glimpsed(o->context, &z->map);
    }
    const uint64_t sent_us = mr_clock_boot_us();
    bool is_written;
    if (!announce(z, &is_written))
        return;
    if (is_written)
        o->events->confirmed(o->context, session_of(z), (uint64_t)zoo_recv_timeout(z->link.handle) * 1000u,
                             sent_us);
    write_next(z);
    write_next_catalog(z);
    if (!read_map(z) || !read_catalog(z))
        return;
    const bool is_asked = is_asked_for_all(z);
    bool is_read = read_nodes(z, is_asked || z->led) && read_leader(z, &view.leads);
    if (is_read && view.leads && !z->led && !is_asked)
        is_read = read_nodes(z, true);
    z->led = is_read && view.leads;
    if (!is_read && is_asked)
        ps_zookeeper_read_all(z);
    if (!is_read)
        return;
    if (!z->is_troubled)
        zookeeper_say(z, "");
    const struct entries *now = &z->entries[z->round % 2];
    view.is_whole = is_asked || view.leads;
    view.registered = now->nodes;
    view.reports = now->reports;
    view.registered_count = now->count;
    while (view.self < view.registered_count && now->nodes[view.self].session != session_of(z))
        view.self++;
    o->events->viewed(o->context, &view);
}

/* Until something changes, or the next round is due. */
static bool wait_for_round(struct ps_zookeeper *z, uint64_t us)
{
    const struct timespec end = mr_clock_after_us(us);
    pthread_mutex_lock(&z->lock);
    while (!z->is_woken && !z->stops)
        if (pthread_cond_timedwait(&z->changed, &z->lock, &end) == ETIMEDOUT)
            break;
    z->is_woken = false;
    const bool stops = z->stops;
    pthread_mutex_unlock(&z->lock);
    return !stops;
}

static void *zookeeper_run(void *arg)
{
    struct ps_zookeeper *z = arg;
    (void)pthread_setname_np(pthread_self(), "mr-cluster");
    uint64_t pause_us = 0;
    while (wait_for_round(z, pause_us)) {
        go_round(z);
        if (z->link.hangs)
            end_hang(z);
        const int session_ms = z->link.handle ? zoo_recv_timeout(z->link.handle) : 0;
        pause_us = session_ms > 0 ? (uint64_t)session_ms * 1000u / ROUNDS : OPEN_AGAIN_US;
    }
    close_session(z);
    return NULL;
}

static void zookeeper_destroy(struct ps_zookeeper *z)
{
    pthread_cond_destroy(&z->changed);
    pthread_mutex_destroy(&z->lock);
    free(z->next_catalog);
    free(z->catalog);
    free(z->announced);
    free(z->buffer);
    free(z);
}

enum mr_status ps_zookeeper_start(const struct ps_zookeeper_options *options, struct ps_zookeeper **out,
                                  char text[PS_CLUSTER_TEXT_BYTES])
{
    struct ps_zookeeper *z = calloc(1, sizeof(*z));
    pthread_condattr_t monotonic;
    *out = NULL;
    if (z) {
        z->buffer = malloc(MAP_BYTES_MAX);
        z->catalog = calloc(1, sizeof(*z->catalog));
    }
    if (!z || !z->buffer || !z->catalog) {
        if (z) {
            free(z->buffer);
            free(z->catalog);
        }
        free(z);
        (void)snprintf(text, PS_CLUSTER_TEXT_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    z->options = *options;
    (void)snprintf(z->cluster_path, PATH_BYTES, ROOT "/%s", options->cluster);
    (void)snprintf(z->map_path, PATH_BYTES, ROOT "/%s/map", options->cluster);
    (void)snprintf(z->catalog_path, PATH_BYTES, ROOT "/%s/catalog", options->cluster);
    (void)snprintf(z->nodes_path, PATH_BYTES, ROOT "/%s/nodes", options->cluster);
    (void)snprintf(z->self_path, PATH_BYTES, ROOT "/%s/nodes/%s", options->cluster, options->self.name);
    (void)snprintf(z->leader_path, PATH_BYTES, ROOT "/%s/leader", options->cluster);
    ps_cluster_map_init(&z->map, options->partition_count);
    (void)pthread_mutex_init(&z->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&z->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    const int error = pthread_create(&z->thread, NULL, zookeeper_run, z);
    if (error != 0) {
        (void)snprintf(text, PS_CLUSTER_TEXT_BYTES, "no thread: %s", strerror(error));
        zookeeper_destroy(z);
        return MR_NO_MEMORY;
    }
    *out = z;
    return MR_OK;
}

void ps_zookeeper_write_map(struct ps_zookeeper *z, const struct ps_cluster_map *next)
{
    pthread_mutex_lock(&z->lock);
    z->next = *next;
    z->writes = true;
    z->is_woken = true;
    pthread_cond_signal(&z->changed);
    pthread_mutex_unlock(&z->lock);
}

void ps_zookeeper_write_catalog(struct ps_zookeeper *z, const struct ps_cluster_catalog *next)
{
    struct ps_cluster_catalog *copy = malloc(sizeof(*copy));
    if (copy)
        ps_cluster_catalog_copy(copy, next);
    else
        z->options.events->catalog_written(z->options.context, next, PS_NOT_WRITTEN);
    pthread_mutex_lock(&z->lock);
    free(z->next_catalog);
    z->next_catalog = copy;
    z->is_woken = true;
    pthread_cond_signal(&z->changed);
    pthread_mutex_unlock(&z->lock);
}

void ps_zookeeper_report(struct ps_zookeeper *z, const struct ps_cluster_report *report)
{
    pthread_mutex_lock(&z->lock);
    z->report = *report;
    z->is_woken = true;
    pthread_cond_signal(&z->changed);
    pthread_mutex_unlock(&z->lock);
}

void ps_zookeeper_wake(struct ps_zookeeper *z)
{
    pthread_mutex_lock(&z->lock);
    z->is_woken = true;
    pthread_cond_signal(&z->changed);
    pthread_mutex_unlock(&z->lock);
}

void ps_zookeeper_read_all(struct ps_zookeeper *z)
{
    pthread_mutex_lock(&z->lock);
    z->reads_all = true;
    pthread_mutex_unlock(&z->lock);
}

void ps_zookeeper_stop(struct ps_zookeeper *z)
{
    if (!z)
        return;
    pthread_mutex_lock(&z->lock);
    z->stops = true;
    pthread_cond_signal(&z->changed);
    pthread_mutex_unlock(&z->lock);
    (void)pthread_join(z->thread, NULL);
    zookeeper_destroy(z);
}
