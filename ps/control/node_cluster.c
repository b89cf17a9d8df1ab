#include "ps/control/node_cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/cluster/leader.h"
#include "ps/config/config_rules.h"
#include "ps/control/cluster_load.h"
#include "ps/control/cluster_moves.h"
#include "ps/control/cluster_save.h"
#include "ps/control/control_internal.h"
#include "ps/core/ownership.h"
#include "ps/store/store_url.h"

#define CREDENTIALS_BYTES 256u
#define HOLD_US_MAX       3000000u
#define TAKE_OVER_US      0u                    /* a node that is away keeps its partitions */
#define REFUSED_MAX       64u                   /* processes of which it is known that the log has them */
#define FORGET_US         UINT64_C(86400000000) /* and its name, if it owns none, for a day */

static_assert(PS_CLUSTER_NODES_MAX == MR_CLUSTER_NODES_MAX, "nodes");
static_assert(PS_CLUSTER_NO_NODE == MR_CLUSTER_NO_NODE_OF_MANY, "no node");
static_assert(PS_CLUSTER_NAME_BYTES == MR_CLUSTER_NAME_BYTES, "names");

struct ps_node_cluster {
    struct ps_node *node;
    char credentials[CREDENTIALS_BYTES];
    struct ps_zookeeper_options options;
    pthread_mutex_t lock; /* of what follows, up to `is_changed` */
    struct ps_zookeeper *zookeeper;
    struct ps_member member;
    bool present[PS_CLUSTER_NODES_MAX]; /* the map's nodes that have a session */
    struct absence {
        char name[PS_CLUSTER_NAME_BYTES];
        uint64_t since_us;            /* 0: it has one */
    } absences[PS_CLUSTER_NODES_MAX]; /* of the map's nodes */
    uint64_t session;                 /* that was registered last */
    uint64_t features_session; /* under which the node has the catalogue's features; 0: it lacks some */
    bool is_stopped;
    bool is_changed; /* the control thread has something to do */
    struct ps_cluster_report report;
    uint64_t wants; /* capabilities that are to be put into use */
    uint32_t
        said_session_ms;    /* the shortest session, of which the log says that others are longer; 0: none */
    uint32_t outside;       /* nodes with a session that the map lacks */
    uint32_t refused_count; /* processes that were not admitted, by this node as leader */
    uint64_t refused_start_ids[REFUSED_MAX];
    struct ps_cluster_save save;
    struct ps_cluster_moves moves;
    /* the control thread's own */
    uint64_t
        served[MR_PARTITION_COUNT]; /* of slots: the grant by which the cores serve them; 0: they do not */
    uint32_t since[MR_PARTITION_COUNT]; /* as in ps_owned, calls that wait left aside */
    struct ps_owned owned;
    struct ps_cluster_info *info; /* that the cores have */
    uint32_t said_served, said_nodes;
    bool said_superseded;
    struct ps_cluster_load load;
};

/* ---- the lease ---- */

static bool is_in_map(const struct ps_member *m)
{
    return m->index != PS_CLUSTER_NO_NODE && m->map.nodes[m->index].session == m->session;
}

/* With the lock. */
static void renew_lease(struct ps_node_cluster *c)
{
    const struct ps_member *m = &c->member;
    const bool may_serve = is_in_map(m) && c->features_session == m->session && !c->is_stopped;
    const uint64_t end_us = may_serve ? m->lease_end_us : 0;
    const uint64_t before_us = atomic_load_explicit(&c->node->lease_end_us, memory_order_relaxed);
    const uint64_t now_us = mr_clock_boot_us();
    if (before_us != 0 && before_us <= now_us && end_us > now_us) {
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"ms", .number = (now_us - before_us) / 1000}),
                    "lease_goes_on", "cluster %s: the lease goes on; calls waited for %" PRIu64 " ms",
                    c->options.cluster, (now_us - before_us) / 1000);
    }
    atomic_store_explicit(&c->node->lease_end_us, end_us, memory_order_release);
}

/* ---- what the member asks for; with the lock ---- */

static void write_map(void *context, const struct ps_cluster_map *next)
{
    struct ps_node_cluster *c = context;
    if (c->zookeeper != NULL)
        ps_zookeeper_write_map(c->zookeeper, next);
}

static void note_change(struct ps_node_cluster *c)
{
    c->is_changed = true;
    ps_node_wake_control(c->node);
}

/* The control thread finds in member.loading what is to be loaded. */
static void node_cluster_load(void *context, uint32_t slot, uint64_t checkpoint, uint64_t grant)
{
    (void)slot;
    (void)checkpoint;
    (void)grant;
    note_change(context);
}

/* The control thread finds in member.giving what is to be given, and how far that has come. */
static void node_cluster_give(void *context, const struct ps_cluster_move *move)
{
    (void)move;
    note_change(context);
}

static bool adopt(void *context, uint32_t slot, uint64_t move)
{
    const struct ps_node_cluster *c = context;
    (void)slot;
    return ps_cluster_moves_adopt(&c->moves, move);
}

/* The cores stop to serve it once they have the map, or the lease has ended; then it is freed. */
static void node_cluster_drop(void *context, uint32_t slot)
{
    struct ps_node_cluster *c = context;
    ps_cluster_moves_drop(&c->moves, slot);
    note_change(c);
}

static void cut(void *context, uint64_t id, uint64_t step)
{
    (void)id;
    (void)step;
    note_change(context);
}

static void cancel_cut(void *context, uint64_t id)
{
    (void)id;
    note_change(context);
}

static const struct ps_member_ops member_ops = {.write_map = write_map,
                                                .load = node_cluster_load,
                                                .copy = node_cluster_give,
                                                .send_rest = node_cluster_give,
                                                .keep = node_cluster_give,
                                                .adopt = adopt,
                                                .drop = node_cluster_drop,
                                                .cut = cut,
                                                .cancel_cut = cancel_cut};

/* ---- what the coordinator says, on its thread ---- */

static struct ps_node_cluster *hear(void *context)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    return c;
}

static void heard(struct ps_node_cluster *c)
{
    renew_lease(c);
    pthread_mutex_unlock(&c->lock);
}

static void confirmed(void *context, uint64_t session, uint64_t session_us, uint64_t sent_us)
{
    struct ps_node_cluster *c = hear(context);
    if (c->session != session)
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"cluster", .text = c->options.cluster},
                                  {"session_ms", .number = session_us / 1000}),
                    "registered", "cluster %s: registered as node %s at %s, with a session of %" PRIu64 " ms",
                    c->options.cluster, c->options.self.name, c->options.self.address, session_us / 1000);
    c->session = session;
    c->member.session_us = session_us;
    ps_member_confirmed(&c->member, session, sent_us);
    heard(c);
}

static void expired(void *context)
{
    struct ps_node_cluster *c = hear(context);
    ps_control_cluster_expired(c->node->control);
    ps_member_expired(&c->member);
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"cluster", .text = c->options.cluster}), "session_ended",
                "cluster %s: ZooKeeper has ended this node's session: calls wait until it has another one",
                c->options.cluster);
    heard(c);
}

/* Takes in a map that was read or written. */
static void take_map(struct ps_node_cluster *c, const struct ps_cluster_map *map)
{
    const bool was_superseded = c->member.is_superseded;
    const uint64_t epoch = c->member.map.epoch;
    ps_member_take_map(&c->member, map);
    if (c->member.map.epoch != epoch)
        note_change(c);
    if (c->member.is_superseded && !was_superseded)
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"cluster", .text = c->options.cluster}), "node_name_taken",
                    "cluster %s: another process is node %s now: this one serves nothing any more; stop it",
                    c->options.cluster, c->options.self.name);
}

static void glimpsed(void *context, const struct ps_cluster_map *map)
{
    struct ps_node_cluster *c = hear(context);
    const uint64_t epoch = c->member.map.epoch;
    ps_member_glimpse_map(&c->member, map);
    if (c->member.map.epoch != epoch)
        note_change(c);
    heard(c);
}

/* Since when the map's nodes are away. A node has another place once one before it was forgotten. */
static void note_absences(struct ps_node_cluster *c, const struct ps_cluster_map *map, const bool *present)
{
    const uint64_t now_us = mr_clock_boot_us();
    uint32_t at = 0;
    for (uint32_t i = 0; i < map->node_count; i++, at++) {
        uint32_t from = at;
        while (from < PS_CLUSTER_NODES_MAX && strcmp(c->absences[from].name, map->nodes[i].name) != 0)
            from++;
        at = from < PS_CLUSTER_NODES_MAX ? from : at;
        const uint64_t before_us = from < PS_CLUSTER_NODES_MAX ? c->absences[from].since_us : 0;
        memcpy(c->absences[i].name, map->nodes[i].name, sizeof(c->absences[i].name));
        c->absences[i].since_us = present[i] ? 0 : before_us != 0 ? before_us : now_us;
    }
    for (uint32_t i = map->node_count; i < PS_CLUSTER_NODES_MAX; i++)
        c->absences[i].name[0] = '\0';
}

static void see_who_is_there(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    bool present[PS_CLUSTER_NODES_MAX] = {false};
    uint32_t outside = 0;
    for (uint32_t i = 0; i < view->registered_count; i++) {
        const uint32_t index = ps_cluster_map_find(view->map, view->registered[i].name);
        if (index != PS_CLUSTER_NO_NODE)
            present[index] = true;
        else
            outside++;
    }
    note_absences(c, view->map, present);
    if (memcmp(present, c->present, sizeof(present)) != 0 || outside != c->outside)
        note_change(c);
    memcpy(c->present, present, sizeof(present));
    c->outside = outside;
}

/* What was to move is where it should be, but for what absent nodes own. */
static void log_absent_owners(const struct ps_node_cluster *c, const struct ps_cluster_map *map)
{
    for (uint32_t i = 0; i < map->node_count; i++) {
        const uint32_t load = c->present[i] ? 0 : ps_cluster_map_load(map, i);
        if (load == 0)
            continue;
        mr_log_with(MR_LOG_WARNING,
                    MR_LOG_FIELDS({"node", .text = map->nodes[i].name}, {"partitions", .number = load}),
                    "moves_without_absent",
                    "cluster %s: node %.63s is away and keeps its %u partition%s: the others are balanced "
                    "without it",
                    c->options.cluster, map->nodes[i].name, load, mr_plural(load));
    }
}

static void propose(struct ps_node_cluster *c, const struct ps_cluster_map *map,
                    const struct ps_cluster_map *next)
{
    if (!ps_member_propose(&c->member, next))
        return;
    for (uint32_t i = 0; i < map->node_count && next->node_count < map->node_count; i++)
        if (ps_cluster_map_find(next, map->nodes[i].name) == PS_CLUSTER_NO_NODE)
            mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"node", .text = map->nodes[i].name}), "node_forgotten",
                        "cluster %s: node %.63s, which is away and owns nothing, leaves the map",
                        c->options.cluster, map->nodes[i].name);
}

/* What the leader does next, if this node leads. */
static void lead(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const uint64_t now_us = mr_clock_boot_us();
    uint64_t absent_us[PS_CLUSTER_NODES_MAX] = {0};
    struct ps_cluster_map next;
    if (!view->leads || c->member.writes || c->is_stopped)
        return;
    for (uint32_t i = 0; i < view->map->node_count; i++)
        absent_us[i] = c->absences[i].since_us == 0 ? 0 : now_us - c->absences[i].since_us + 1;
    struct ps_leader_view all = {.map = view->map,
                                 .registered = view->registered,
                                 .registered_count = view->registered_count,
                                 .absent_us = absent_us,
                                 .nodes_wanted = (uint32_t)c->node->config->cluster_nodes,
                                 .take_over_us = TAKE_OVER_US,
                                 .forget_us = FORGET_US,
                                 .wants_balance = view->map->balances && view->map->move_count == 0,
                                 .drained = view->map->drained};
    for (uint32_t i = 0; i < view->registered_count; i++)
        all.wants_balance &=
            !view->reports[i].wants_cut; /* the next move waits for the cut, not it for all */
    all.wants_balance &= !c->save.is_wanted;
    ps_cluster_save_look(&c->save, view, now_us, &all);
    const enum ps_leader_action action = ps_leader_next(&all, &next);
    if (action == PS_LEADER_COMMITS_CUT)
        ps_cluster_save_commit(&c->save, view);
    if (action != PS_LEADER_WRITES_MAP) {
        if (action != PS_LEADER_WAITS || !ps_move_balance_ends(view->map, c->present, &next))
            return;
        log_absent_owners(c, view->map);
    }
    if (next.move_count > view->map->move_count)
        next.moves[next.move_count - 1].mib_s = next.balance_mib_s;
    propose(c, view->map, &next);
}

/* Anybody may put capabilities into use that all nodes have. */
static void propose_use(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_cluster_map next = *view->map;
    c->wants &= ~view->map->needs;
    if (!c->is_stopped && c->wants != 0 && ps_cluster_map_use(&next, c->wants))
        (void)ps_member_propose(&c->member, &next);
}

/* On the control thread, for a feature that is to be created. */
static enum mr_status use(void *context, uint64_t needs, char *text)
{
    struct ps_node_cluster *c = context;
    struct ps_cluster_node node = {0};
    char version[MR_VERSION_TEXT_BYTES], lacks[128];
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_map *map = &c->member.map;
    const uint32_t lacking = ps_cluster_map_lacking(map, needs);
    if (lacking != PS_CLUSTER_NO_NODE)
        node = map->nodes[lacking];
    else
        c->wants |= needs & ~map->needs;
    struct ps_zookeeper *zookeeper = c->zookeeper;
    if (lacking == PS_CLUSTER_NO_NODE && zookeeper != NULL)
        ps_zookeeper_wake(zookeeper);
    pthread_mutex_unlock(&c->lock);
    if (lacking == PS_CLUSTER_NO_NODE)
        return MR_OK;
    mr_version_name(&node.version, version);
    mr_capability_text(needs & ~node.version.capabilities, lacks, sizeof(lacks));
    (void)snprintf(
        text, PS_RULES_TEXT_BYTES,
        "it needs %.90s, which node %.63s lacks: it has version %s, and this node version %s; upgrade "
        "all nodes first (millrace ctl nodes)",
        lacks, node.name, version, mr_version_text());
    return MR_VERSION_MISMATCH;
}

/* Whether the log has it already that this process is not admitted; else it has it from now on. */
static bool is_refusal_logged(struct ps_node_cluster *c, uint64_t start_id)
{
    for (uint32_t i = 0; i < REFUSED_MAX; i++)
        if (c->refused_start_ids[i] == start_id)
            return true;
    c->refused_start_ids[c->refused_count++ % REFUSED_MAX] = start_id;
    return false;
}

/* A node that lacks what is in use stays outside: it would misread tables, or the map. */
static void log_refused(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const struct ps_cluster_map *map = view->map;
    for (uint32_t i = 0; i < view->registered_count && view->leads; i++) {
        const struct ps_cluster_node *node = &view->registered[i];
        char version[MR_VERSION_TEXT_BYTES], lacks[128], why[PS_CLUSTER_TEXT_BYTES];
        const enum ps_cluster_refusal refusal = ps_cluster_map_admits(map, node);
        if (refusal == PS_CLUSTER_ADMITS || is_refusal_logged(c, node->start_id))
            continue;
        mr_version_name(&node->version, version);
        mr_capability_text(map->needs & ~node->version.capabilities, lacks, sizeof(lacks));
        if (refusal == PS_CLUSTER_LACKS_USED)
            (void)snprintf(why, sizeof(why),
                           "it has version %s, which lacks %.90s that the cluster's tables or its size need: "
                           "install version %s there",
                           version, lacks, mr_version_text());
        else if (refusal == PS_CLUSTER_NOT_SO_MANY)
            (void)snprintf(why, sizeof(why),
                           "it or another node has a version that knows no clusters of more than %u nodes: "
                           "upgrade all nodes (millrace ctl nodes)",
                           MR_CLUSTER_FEW_NODES);
        else
            (void)snprintf(
                why, sizeof(why),
                "the map has %u nodes, which is all that it can have: take out those that have left "
                "(millrace ctl forget)",
                map->node_count);
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"node", .text = node->name}), "node_not_admitted",
                    "cluster %s: node %.63s is not admitted: %s", c->options.cluster, node->name, why);
    }
}

/* Clients compare how late an answer is with one lease, whichever node it comes from: the shortest. */
static void log_sessions(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const struct ps_cluster_map *map = view->map;
    const uint32_t shortest = ps_cluster_map_session_ms(map);
    const struct ps_cluster_node *has_it = NULL, *other = NULL;
    for (uint32_t i = 0; i < map->node_count; i++)
        if (map->nodes[i].session_ms == shortest)
            has_it = &map->nodes[i];
        else if (map->nodes[i].session_ms != 0)
            other = &map->nodes[i];
    if (!view->leads || (other != NULL && c->said_session_ms == shortest))
        return;
    c->said_session_ms = other != NULL ? shortest : 0;
    if (other != NULL)
        mr_log_with(
            MR_LOG_WARNING, MR_LOG_FIELDS({"node", .text = other->name}), "sessions_differ",
            "cluster %s: node %.63s has a session of %u ms, and node %.63s of %u ms: clients take the "
            "shorter for all; give all nodes one cluster.session_ms",
            c->options.cluster, has_it->name, shortest, other->name, other->session_ms);
}

/* Anybody may begin a cut; the map decides. */
static void propose_cut(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_cluster_map next;
    if (!c->is_stopped && ps_cluster_save_propose(&c->save, view->map, &next) &&
        !ps_member_propose(&c->member, &next))
        ps_cluster_save_proposed(&c->save, next.cut, false);
    if (c->report.wants_cut != c->save.is_wanted && c->zookeeper != NULL) {
        c->report.wants_cut = c->save.is_wanted;
        ps_zookeeper_report(c->zookeeper, &c->report);
    }
}

/* The same of moves. */
static void propose_moves(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_cluster_map next;
    if (!c->is_stopped && ps_cluster_moves_propose(&c->moves, view->map, c->present, &next))
        propose(c, view->map, &next);
}

static void viewed(void *context, const struct ps_zookeeper_view *view)
{
    struct ps_node_cluster *c = hear(context);
    const struct ps_catalog_view features = {.session = c->session,
                                             .catalog = view->catalog,
                                             .in_use = view->map->needs,
                                             .reports = view->reports,
                                             .report_count = view->registered_count,
                                             .own = view->self,
                                             .leads = view->leads};
    ps_control_cluster_viewed(c->node->control, &features);
    take_map(c, view->map);
    see_who_is_there(c, view);
    ps_cluster_moves_see(&c->moves, view->map, view->registered, view->reports, view->registered_count);
    ps_cluster_save_see(&c->save, view);
    ps_member_tick(&c->member, mr_clock_boot_us());
    log_refused(c, view);
    log_sessions(c, view);
    lead(c, view);
    propose_use(c, view);
    propose_cut(c, view);
    propose_moves(c, view);
    if (c->zookeeper != NULL &&
        (c->save.is_wanted || c->save.asked != 0)) /* who asked is told why it failed */
        ps_zookeeper_read_all(c->zookeeper);
    heard(c);
}

static void written(void *context, const struct ps_cluster_map *next, enum ps_member_written outcome)
{
    struct ps_node_cluster *c = hear(context);
    ps_cluster_save_proposed(&c->save, next->cut, outcome == PS_WRITTEN);
    if (outcome == PS_WRITTEN)
        take_map(c, next);
    ps_member_map_written(&c->member, next, outcome);
    heard(c);
}

static void catalog_written(void *context, const struct ps_cluster_catalog *next,
                            enum ps_member_written outcome)
{
    const struct ps_node_cluster *c = context;
    ps_control_cluster_written(c->node->control, next, outcome);
}

static void troubled(void *context, const char *text)
{
    const struct ps_node_cluster *c = context;
    if (text != NULL)
        mr_log_warning("zookeeper_trouble", "cluster %s: %s", c->options.cluster, text);
    else
        mr_log_info("zookeeper_back", "cluster %s: ZooKeeper answers again", c->options.cluster);
}

const struct ps_zookeeper_events ps_node_cluster_events = {.confirmed = confirmed,
                                                           .expired = expired,
                                                           .glimpsed = glimpsed,
                                                           .viewed = viewed,
                                                           .written = written,
                                                           .catalog_written = catalog_written,
                                                           .troubled = troubled};

/* ---- what the catalogue's part of the control thread asks for ---- */

static void write_catalog(void *context, const struct ps_cluster_catalog *next)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    if (c->zookeeper != NULL)
        ps_zookeeper_write_catalog(c->zookeeper, next);
    pthread_mutex_unlock(&c->lock);
}

static void report(void *context, const struct ps_cluster_report *report)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_report before = c->report;
    c->report = *report;
    c->report.cut = before.cut; /* these are not the catalogue's */
    c->report.part = before.part;
    c->report.wants_cut = before.wants_cut;
    c->report.move = before.move;
    if (c->zookeeper != NULL)
        ps_zookeeper_report(c->zookeeper, &c->report);
    pthread_mutex_unlock(&c->lock);
}

static void node_cluster_wake(void *context)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    if (c->zookeeper != NULL) {
        ps_zookeeper_read_all(c->zookeeper);
        ps_zookeeper_wake(c->zookeeper);
    }
    pthread_mutex_unlock(&c->lock);
}

static void serve(void *context, uint64_t session)
{
    struct ps_node_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->features_session = session;
    renew_lease(c);
    note_change(c);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the control thread's part ---- */

/* Loads the slots that the member has asked for, as far as it can now. */
static void load_own(struct ps_node_cluster *c, struct ps_control *control)
{
    struct ps_cluster_load_now now;
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_map *map = &c->member.map;
    now.epoch = map->epoch;
    now.committed = map->committed;
    now.last_cut = map->last_cut;
    memcpy(now.grants, c->member.loading, sizeof(now.grants));
    pthread_mutex_unlock(&c->lock);
    if (!ps_cluster_load_look(&c->load, control, &now))
        return;
    pthread_mutex_lock(&c->lock);
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++)
        if (now.grants[slot] != 0)
            ps_member_loaded(&c->member, slot, now.grants[slot]);
    pthread_mutex_unlock(&c->lock);
}

/* With the lock: since when each partition is served. Returns whether the node can serve: somebody owns each
 * partition, and this node has all that it owns. */
static bool find_owned(struct ps_node_cluster *c)
{
    const struct ps_member *m = &c->member;
    bool has_all = m->index != PS_CLUSTER_NO_NODE;
    c->owned.epoch = (uint32_t)m->map.epoch;
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        uint32_t *since = &c->since[ps_cluster_slot(slot)];
        const bool is_own = m->index != PS_CLUSTER_NO_NODE && m->map.owner[slot] == m->index;
        const uint64_t grant = is_own && m->have[slot] == m->map.grant[slot] ? m->have[slot] : 0;
        has_all &= m->map.owner[slot] != PS_CLUSTER_NO_NODE && (!is_own || grant != 0);
        if (grant == 0)
            *since = PS_NOT_OWNED;
        else if (grant != c->served[slot])
            *since = c->owned.epoch;
        c->served[slot] = grant;
        c->owned.since[ps_cluster_slot(slot)] = m->holds[slot] && *since != PS_NOT_OWNED ? PS_HELD : *since;
    }
    return has_all;
}

/* With the lock: the cluster as NODE_INFO shows it. */
static void describe(const struct ps_node_cluster *c, struct ps_cluster_info *out)
{
    const struct ps_member *m = &c->member;
    const struct ps_cluster_map *map = &m->map;
    const uint64_t shortest_us = ps_cluster_map_session_ms(map) * UINT64_C(1000);
    const uint64_t lease_us =
        (shortest_us != 0 && shortest_us < m->session_us ? shortest_us : m->session_us) / 2;
    const bool is_few = map->node_count <= MR_CLUSTER_FEW_NODES;
    const uint64_t self = m->index == PS_CLUSTER_NO_NODE && is_few ? MR_CLUSTER_NO_NODE : m->index;
    *out = (struct ps_cluster_info){.words = {[MR_CLUSTER_EPOCH] = map->epoch,
                                              [MR_CLUSTER_SELF] = self,
                                              [MR_CLUSTER_NODES] = map->node_count,
                                              [MR_CLUSTER_LEASE_US] = lease_us,
                                              [MR_CLUSTER_OUTSIDE] = c->outside},
                                    .node_count = map->node_count};
    for (uint32_t i = 0; i < map->node_count; i++) {
        out->nodes[i] = (struct mr_cluster_node){.core_count = map->nodes[i].core_count,
                                                 .flags = c->present[i] ? MR_CLUSTER_NODE_PRESENT : 0,
                                                 .start_id = map->nodes[i].start_id};
        memcpy(out->nodes[i].name, map->nodes[i].name, sizeof(out->nodes[i].name));
        memcpy(out->nodes[i].address, map->nodes[i].address, sizeof(out->nodes[i].address));
        memcpy(out->nodes[i].version, map->nodes[i].version.text, sizeof(out->nodes[i].version));
    }
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        const uint32_t p = ps_cluster_slot(slot);
        out->owner[p] = map->owner[slot];
        out->owner_of_few[p] =
            map->owner[slot] == PS_CLUSTER_NO_NODE ? MR_CLUSTER_NO_NODE : (uint8_t)map->owner[slot];
    }
}

struct order {
    const struct ps_owned *owned;
    _Atomic enum mr_status status;
    char texts[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static void own(struct ps_core *core, void *arg)
{
    struct order *order = arg;
    const enum mr_status status = ps_core_own(core, order->owned, order->texts[core->index]);
    if (status != MR_OK)
        atomic_store(&order->status, status);
}

/* Tells the cores what they serve, at one instant. */
static enum mr_status tell_cores(struct ps_node_cluster *c, struct order *order, char *text)
{
    order->owned = &c->owned;
    ps_node_each_core_at_once(c->node, own, order);
    for (uint32_t i = 0; i < c->node->core_count; i++)
        if (order->texts[i][0] != '\0')
            memcpy(text, order->texts[i], PS_CORE_TEXT_BYTES);
    return atomic_load(&order->status);
}

static void say_state(struct ps_node_cluster *c, bool has_all)
{
    const struct ps_cluster_info *info = c->info;
    const uint64_t wanted = c->node->config->cluster_nodes;
    uint32_t served = 0, present = 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        served += c->owned.since[p] != PS_NOT_OWNED;
    for (uint32_t i = 0; i < info->node_count; i++)
        present += (info->nodes[i].flags & MR_CLUSTER_NODE_PRESENT) != 0;
    if (info->owner[0] == PS_CLUSTER_NO_NODE && present < wanted) {
        if (c->said_nodes != present)
            mr_log_with(
                MR_LOG_INFO, MR_LOG_FIELDS({"nodes", .number = present}, {"wanted", .number = wanted}),
                "waits_for_nodes",
                "cluster %s: %u of %" PRIu64 " nodes %s there (cluster.nodes): waiting for the others",
                c->options.cluster, present, wanted, present == 1 ? "is" : "are");
        c->said_nodes = present;
    } else if (has_all && c->said_served != served) {
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"epoch", .number = c->owned.epoch}, {"partitions", .number = served}),
                    "serves_partitions", "cluster %s: map epoch %u: this node serves %u of %u partitions",
                    c->options.cluster, c->owned.epoch, served, MR_PARTITION_COUNT);
        c->said_served = served;
    }
}

/* Checkpoints of the cluster: this node's part, and what its clients have asked for. */
static void poll_save(struct ps_node_cluster *c, struct ps_control *control)
{
    char why[sizeof(c->save.failed_why)];
    pthread_mutex_lock(&c->lock);
    const struct ps_member *m = &c->member;
    memcpy(why, c->save.failed_why, sizeof(why));
    struct ps_cluster_cut now = {
        .cut = m->cut,
        .step = m->map.cut_step,
        .map_cut = m->map.cut,
        .committed = m->map.committed,
        .asked = c->save.asked,
        .why = c->save.asked == c->save.failed_cut ? why : NULL,
        .owns = m->index != PS_CLUSTER_NO_NODE && ps_cluster_map_owns_any(&m->map, m->index),
        .is_by_trainer = c->save.is_by_trainer && c->save.own == m->cut,
        .may_begin = control->gate == PS_GATE_OPEN && !c->is_changed && !ps_cluster_moves_is_busy(&c->moves)};
    pthread_mutex_unlock(&c->lock);
    const bool is_new = ps_cluster_save_poll(&c->save, control, &now);
    if (!is_new && !now.asked_ended)
        return;
    pthread_mutex_lock(&c->lock);
    c->save.asked = now.asked_ended ? 0 : c->save.asked;
    c->report.cut = c->save.part;
    c->report.part = c->save.progress;
    if (is_new && c->zookeeper != NULL)
        ps_zookeeper_report(c->zookeeper, &c->report);
    pthread_mutex_unlock(&c->lock);
}

/* What an absent node owns would be in no part: the checkpoint would be given up as soon as it has begun. */
static bool has_absent_owner(struct ps_node_cluster *c, char *text)
{
    const struct ps_cluster_map *map = &c->member.map;
    uint32_t absent = 0;
    pthread_mutex_lock(&c->lock);
    while (absent < map->node_count && (c->present[absent] || !ps_cluster_map_owns_any(map, absent)))
        absent++;
    const bool has_absent = absent < map->node_count;
    if (has_absent)
        (void)snprintf(
            text, PS_CONTROL_TEXT_BYTES,
            "node %.63s is away, and a checkpoint of the cluster needs its %u partitions: start it, "
            "and save again",
            map->nodes[absent].name, ps_cluster_map_load(map, absent));
    pthread_mutex_unlock(&c->lock);
    return has_absent;
}

enum mr_status ps_node_cluster_save(struct ps_node_cluster *c, struct ps_control *control,
                                    const struct ps_command *command, uint64_t *number, char *text)
{
    const char *wrong = NULL;
    struct ps_save_request request = command->save;
    const enum mr_status whole = ps_control_check_whole(control, text);
    if (whole != MR_OK)
        return whole;
    if (command->cancel_number != 0) {
        *number = command->cancel_number;
        const enum mr_status status = ps_cluster_save_cancel(
            &c->save, control, &c->lock, command->cancel_number, request.is_by_trainer, text);
        node_cluster_wake(c);
        return status;
    }
    if (command->name_list_count > 0 || request.directory[0] != '\0')
        wrong = "a cluster saves all tables, to checkpoint.directory: name neither";
    else if (request.trainers > 0 && request.step == 0)
        wrong = "a cut at a step of a cluster needs the step (ctl save --step)";
    else if (c->save.directory[0] == '\0')
        wrong = "this node has no checkpoint.directory: set one that all nodes see";
    if (wrong != NULL) {
        (void)snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", wrong);
        return MR_INVALID_ARGUMENT;
    }
    if (has_absent_owner(c, text))
        return MR_CANCELLED;
    pthread_mutex_lock(&c->lock);
    const bool is_free = !c->save.is_wanted && c->save.asked == 0;
    if (is_free) {
        c->save.is_wanted = true;
        c->save.wanted_step = request.step;
        c->save.is_by_trainer = request.is_by_trainer;
        c->save.is_cancelled = false;
        c->report.wants_cut = true;
    }
    if (is_free && c->zookeeper != NULL)
        ps_zookeeper_report(c->zookeeper, &c->report);
    pthread_mutex_unlock(&c->lock);
    if (!is_free) {
        (void)snprintf(text, PS_CONTROL_TEXT_BYTES,
                       "save %" PRIu64 " of the whole cluster is in progress; wait for its end",
                       c->save.number);
        return MR_CHECKPOINT_RUNNING;
    }
    ps_control_note_save(control, &request, PS_SAVE_QUEUED);
    c->save.begun_us = dp_now_us();
    c->save.number = *number = request.number;
    return MR_OK;
}

void ps_node_cluster_heard_taker(struct ps_node_cluster *c, uint64_t move, uint64_t flags)
{
    ps_cluster_moves_heard(&c->moves, move, flags);
}

bool ps_node_cluster_is_waiting(const struct ps_node_cluster *c)
{
    return c->load.waits || ps_cluster_moves_is_waiting(&c->moves);
}

/* A take has ended, on its own thread. */
static void move_changed(void *context)
{
    const struct ps_node_cluster *c = context;
    ps_node_wake_control(c->node);
}

/* With the lock: the move that this node takes has come to its end here. */
static void note_ended(struct ps_node_cluster *c, uint64_t move, bool failed)
{
    if (failed)
        c->moves.failed = move;
    else if (c->moves.arrived_count < PS_CLUSTER_MOVES_MAX)
        c->moves.arrived[c->moves.arrived_count++] = move;
    if (failed && c->zookeeper != NULL)
        ps_zookeeper_wake(c->zookeeper);
}

/* Moves: what this node gives and takes. By a map that the cores do not know yet nothing begins or ends: they
 * would keep what they are to drop, and change what they are to hold. */
static void poll_moves(struct ps_node_cluster *c)
{
    struct ps_cluster_moves_now now;
    struct ps_cluster_move_report report;
    bool failed = false;
    pthread_mutex_lock(&c->lock);
    if (c->is_changed) {
        pthread_mutex_unlock(&c->lock);
        return;
    }
    ps_cluster_moves_look(&c->moves, &c->member, &now);
    if (c->features_session == 0 && c->moves.takes.id == 0)
        now.take.id = 0; /* it has not all tables yet that rows may be of */
    pthread_mutex_unlock(&c->lock);
    const uint64_t ended = ps_cluster_moves_poll(&c->moves, &now, &failed);
    const bool has_news = ps_cluster_moves_report(&c->moves, &report);
    pthread_mutex_lock(&c->lock);
    if (ended != 0)
        note_ended(c, ended, failed);
    if (has_news) {
        c->report.move = report;
        if (c->zookeeper != NULL)
            ps_zookeeper_report(c->zookeeper, &c->report);
    }
    pthread_mutex_unlock(&c->lock);
    if (ended != 0 && !failed)
        ps_cluster_moves_tell(&c->moves); /* from now on the map may say so */
}

/* Tells the cores what has changed. */
static void tell_changes(struct ps_node_cluster *c, struct ps_control *control, struct ps_cluster_info *info,
                         struct order *order)
{
    char text[PS_CORE_TEXT_BYTES] = "";
    ps_control_cluster_poll(control); /* what came with the map says which features are to be loaded */
    load_own(c, control);
    pthread_mutex_lock(&c->lock);
    const bool has_all = find_owned(c) && c->features_session != 0;
    describe(c, info);
    pthread_mutex_unlock(&c->lock);
    c->owned.info = info;
    const enum mr_status status = tell_cores(c, order, text);
    free(c->info); /* no core has it any more */
    c->info = info;
    if (status != MR_OK) {
        mr_log_error("cannot_serve", "cluster %s: this node cannot serve what it owns: %s",
                     c->options.cluster, text);
        ps_control_gate_broken(control, status, text);
    } else if (has_all && control->gate == PS_GATE_BUSY) {
        ps_control_gate(control, PS_GATE_OPEN);
    }
    say_state(c, has_all);
}

/* What another process has taken over never comes back to this one. Its calls wait, as without a lease, until
 * clients have the map in which the other one is: an answer of failure would reach trainers. */
static void look_if_superseded(struct ps_node_cluster *c)
{
    char why[PS_WHY_BYTES];
    pthread_mutex_lock(&c->lock);
    const bool is_superseded = c->member.is_superseded;
    pthread_mutex_unlock(&c->lock);
    if (!is_superseded || c->said_superseded)
        return;
    c->said_superseded = true;
    (void)snprintf(why, sizeof(why), "another process is node %.63s of the cluster now: stop this one",
                   c->options.self.name);
    ps_node_fail(c->node, why);
}

/* Takes what has changed, if anything has. Without memory it stays until there is some. */
static void take_changes(struct ps_node_cluster *c, struct ps_control *control)
{
    struct ps_cluster_info *info = NULL;
    struct order *order = NULL;
    pthread_mutex_lock(&c->lock);
    c->is_changed |= ps_cluster_moves_advance(&c->moves, &c->member, mr_clock_boot_us()) || c->load.waits;
    if (c->is_changed) {
        info = malloc(sizeof(*info));
        order = calloc(1, sizeof(*order));
    }
    const bool takes = info != NULL && order != NULL;
    c->is_changed &= !takes;
    pthread_mutex_unlock(&c->lock);
    if (takes)
        tell_changes(c, control, info, order);
    else
        free(info);
    free(order);
}

void ps_node_cluster_poll(struct ps_node_cluster *c, struct ps_control *control)
{
    take_changes(c, control);
    look_if_superseded(c);
    poll_moves(c);
    poll_save(c, control); /* what the last move had of the rows' marks, it has given back */
    ps_cluster_moves_answer(&c->moves, &c->lock, control);
}

bool ps_node_cluster_move(struct ps_node_cluster *c, struct ps_command *command)
{
    if (ps_cluster_moves_ask(&c->moves, &c->lock, command))
        return true;
    node_cluster_wake(c);
    return false;
}

void ps_node_cluster_show_moves(struct ps_node_cluster *c, struct ps_command *command)
{
    pthread_mutex_lock(&c->lock);
    ps_cluster_moves_show(&c->moves, &c->member.map, command);
    pthread_mutex_unlock(&c->lock);
}

void ps_node_cluster_end_moves(struct ps_node_cluster *c)
{
    if (c != NULL)
        ps_cluster_moves_stop(&c->moves);
}

/* ---- life ---- */

__attribute__((format(printf, 2, 3))) static bool fail(char *error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error, DP_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_credentials(struct ps_node_cluster *c, char *error)
{
    const char *path = c->node->config->cluster_credentials_file;
    struct stat st;
    if (path[0] == '\0')
        return true;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return fail(error, "cluster.credentials_file = %.200s: %s", path, strerror(errno));
    const bool is_line =
        fstat(fileno(f), &st) == 0 && fgets(c->credentials, sizeof(c->credentials), f) != NULL;
    (void)fclose(f);
    if (!is_line)
        return fail(error, "cluster.credentials_file = %.200s: it is empty: write USER:PASSWORD into it",
                    path);
    if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return fail(error, "cluster.credentials_file = %.200s: others can read it: chmod 0600 it", path);
    c->credentials[strcspn(c->credentials, "\n")] = '\0';
    const char *colon = strchr(c->credentials, ':');
    return (colon != NULL && colon != c->credentials && colon[1] != '\0') ||
           fail(error, "cluster.credentials_file = %.200s: its line is not USER:PASSWORD", path);
}

static bool find_name(struct ps_node_cluster *c, char *error)
{
    char *name = c->options.self.name;
    char host[256] = "";
    (void)gethostname(host, sizeof(host) - 1);
    const char *from = c->node->config->cluster_node[0] != '\0' ? c->node->config->cluster_node : host;
    if (from[0] == '\0' || strlen(from) >= PS_CLUSTER_NAME_BYTES || ps_rule_cluster_name(from) != NULL)
        return fail(
            error,
            "cluster.node is not set, and this machine's name \"%.100s\" is no name for a node: set it",
            from);
    (void)snprintf(name, PS_CLUSTER_NAME_BYTES, "%s", from);
    return true;
}

static bool prepare_load(struct ps_node_cluster *c, char *error)
{
    const struct ps_config *config = c->node->config;
    c->load = (struct ps_cluster_load){.cluster = c->options.cluster,
                                       .node = c->options.self.name,
                                       .init_from = config->cluster_init_from,
                                       .commit = {.directory = c->save.directory,
                                                  .credentials = config->checkpoint_remote_credentials,
                                                  .pause_ms_max = (uint32_t)config->checkpoint_store_pause_ms,
                                                  .retention = ps_control_retention(config),
                                                  .ended = node_cluster_wake,
                                                  .context = c}};
    return ps_cluster_init_create(&c->load.init, config->cluster_init_from) ||
           fail(error, "cluster.init_from = %.200s: it is too long", config->cluster_init_from);
}

static void find_address(struct ps_node_cluster *c)
{
    const struct ps_config *config = c->node->config;
    char *address = c->options.self.address;
    if (config->cluster_address[0] != '\0')
        (void)snprintf(address, PS_CLUSTER_NAME_BYTES, "%s", config->cluster_address);
    else if (config->port_ipv4[0] != '\0')
        (void)snprintf(address, PS_CLUSTER_NAME_BYTES, "%.*s:%u", (int)strcspn(config->port_ipv4, "/"),
                       config->port_ipv4, (unsigned)config->port_udp_port);
    else
        (void)snprintf(address, PS_CLUSTER_NAME_BYTES, "[%.*s]:%u", (int)strcspn(config->port_ipv6, "/"),
                       config->port_ipv6, (unsigned)config->port_udp_port);
}

bool ps_node_cluster_config(const struct ps_node_cluster *c, struct ps_config *config, char *error)
{
    config->checkpoint_every_s = config->checkpoint_every_steps = 0;
    config->checkpoint_save_on_stop = false;
    if (config->checkpoint_remote[0] != '\0')
        return fail(
            error, "checkpoint.remote is not for members of a cluster: let checkpoint.directory be that URL, "
                   "which all nodes see");
    if (c->save.directory[0] == '\0' ||
        ps_store_url_join(c->save.directory, c->options.self.name, config->checkpoint_directory,
                          sizeof(config->checkpoint_directory)))
        return true;
    return fail(error, "checkpoint.directory = %.200s: with this node's name it is too long",
                c->save.directory);
}

/* The leader commits checkpoints, so every node must be able to. */
static bool start_commit(struct ps_node_cluster *c, char *error)
{
    if (c->save.directory[0] == '\0')
        return true;
    c->save.commit = ps_cluster_commit_start(&c->load.commit);
    return c->save.commit != NULL || fail(error, "the thread that commits checkpoints cannot be started");
}

struct ps_node_cluster *ps_node_cluster_create(struct ps_node *node, char *error)
{
    struct ps_node_cluster *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        fail(error, "no memory left");
        return NULL;
    }
    c->node = node;
    (void)snprintf(c->save.directory, sizeof(c->save.directory), "%s", node->config->checkpoint_directory);
    c->save.every_us = node->config->checkpoint_every_s * UINT64_C(1000000);
    c->said_served = c->said_nodes = UINT32_MAX;
    memset(c->owned.since, 0xff, sizeof(c->owned.since));
    memset(c->since, 0xff, sizeof(c->since));
    c->moves = (struct ps_cluster_moves){
        .node = node, .changed = move_changed, .context = c, .mib_s = node->config->cluster_move_mib_s};
    c->options = (struct ps_zookeeper_options){.servers = node->config->cluster_zookeeper,
                                               .cluster = node->config->cluster_name,
                                               .credentials = c->credentials,
                                               .session_ms = (uint32_t)node->config->cluster_session_ms,
                                               .self = {.core_count = node->core_count},
                                               .partition_count = MR_PARTITION_COUNT,
                                               .events = &ps_node_cluster_events,
                                               .context = c};
    if (!read_credentials(c, error) || !find_name(c, error) || !prepare_load(c, error)) {
        explicit_bzero(c->credentials, sizeof(c->credentials));
        free(c);
        return NULL;
    }
    find_address(c);
    const struct ps_control_coordinator coordinator = {.context = c,
                                                       .node = c->options.self.name,
                                                       .write_catalog = write_catalog,
                                                       .report = report,
                                                       .use = use,
                                                       .wake = node_cluster_wake,
                                                       .serve = serve};
    if (ps_control_join(node->control, &coordinator) != MR_OK) {
        fail(error, "no memory left");
        explicit_bzero(c->credentials, sizeof(c->credentials));
        free(c);
        return NULL;
    }
    if (c->load.init.directory[0] != '\0')
        ps_control_cluster_hold(node->control);
    (void)pthread_mutex_init(&c->lock, NULL);
    return c;
}

void ps_node_cluster_destroy(struct ps_node_cluster *c)
{
    if (c == NULL)
        return;
    ps_cluster_init_destroy(&c->load.init);
    (void)pthread_mutex_destroy(&c->lock);
    explicit_bzero(c->credentials, sizeof(c->credentials));
    free(c->info);
    free(c);
}

enum mr_status ps_node_cluster_start(struct ps_node_cluster *c, char *error)
{
    char text[PS_CLUSTER_TEXT_BYTES] = "";
    c->options.self.start_id = c->node->start_id;
    c->options.self.version = mr_version_own();
    ps_member_init(&c->member, &member_ops, c, &c->options.self, c->options.session_ms * UINT64_C(1000),
                   HOLD_US_MAX, MR_PARTITION_COUNT);
    mr_log_with(
        MR_LOG_INFO,
        MR_LOG_FIELDS({"cluster", .text = c->options.cluster}, {"zookeeper", .text = c->options.servers}),
        "cluster", "cluster %s: this is node %s at %s; the coordinator is ZooKeeper at %s",
        c->options.cluster, c->options.self.name, c->options.self.address, c->options.servers);
    if (!start_commit(c, error))
        return MR_NO_MEMORY;
    pthread_mutex_lock(&c->lock); /* what it hears first may need `zookeeper` */
    const enum mr_status status = ps_zookeeper_start(&c->options, &c->zookeeper, text);
    pthread_mutex_unlock(&c->lock);
    if (status != MR_OK)
        fail(error, "cluster.zookeeper = %.150s: %.200s", c->options.servers, text);
    return status;
}

void ps_node_cluster_stop(struct ps_node_cluster *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    struct ps_zookeeper *zookeeper = c->zookeeper;
    c->is_stopped = true;
    c->zookeeper = NULL; /* the control thread may ask for something meanwhile */
    renew_lease(c);
    pthread_mutex_unlock(&c->lock);
    /* Who leads next may give up what this node is about to commit. */
    ps_cluster_commit_stop(c->save.commit);
    c->save.commit = NULL;
    ps_zookeeper_stop(zookeeper);
}
