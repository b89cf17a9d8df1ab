/* What the coordinator says (its thread), and what follows: the lease, what the control thread is to do. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/node_cluster/node_cluster_internal.h"

static_assert(PS_CLUSTER_NODES_MAX == MR_CLUSTER_NODES_MAX, "nodes");
static_assert(PS_CLUSTER_NO_NODE == MR_CLUSTER_NO_NODE_OF_MANY, "no node");
static_assert(PS_CLUSTER_NAME_BYTES == MR_CLUSTER_NAME_BYTES, "names");

/* ---- the lease ---- */

static bool is_in_map(const struct ps_member *m)
{
    return m->index != PS_CLUSTER_NO_NODE && m->map.nodes[m->index].session == m->session;
}

void ps_node_cluster_renew_lease(struct ps_node_cluster *c)
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

void ps_node_cluster_note_change(struct ps_node_cluster *c)
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
    ps_node_cluster_note_change(context);
}

static void cut(void *context, uint64_t id, uint64_t step)
{
    (void)id;
    (void)step;
    ps_node_cluster_note_change(context);
}

static void cancel_cut(void *context, uint64_t id)
{
    (void)id;
    ps_node_cluster_note_change(context);
}

const struct ps_member_ops ps_node_cluster_member_ops = {.write_map = write_map,
                                                         .load = node_cluster_load,
                                                         .migration_changed =
                                                             ps_node_cluster_migration_changed,
                                                         .install = ps_node_cluster_install,
                                                         .cleanup = ps_node_cluster_cleanup,
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
    ps_node_cluster_renew_lease(c);
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
        ps_node_cluster_note_change(c);
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
        ps_node_cluster_note_change(c);
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

/* As NODE_INFO tells it. */
static uint64_t tolerance_of(const struct ps_node_cluster *c, const struct ps_zookeeper_view *view,
                             const bool present[PS_CLUSTER_NODES_MAX])
{
    uint32_t node = PS_CLUSTER_NO_NODE;
    const enum mr_tolerance tolerance =
        ps_cluster_map_tolerance(view->map, present, view->is_whole ? c->room : NULL, &node);
    return (uint64_t)tolerance | (uint64_t)node << MR_TOLERANCE_NODE_SHIFT;
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
    uint32_t away = 0;
    for (uint32_t i = 0; i < view->map->node_count; i++)
        away += !present[i];
    ps_counter_set(&c->node->cluster_counters.nodes, view->map->node_count);
    ps_counter_set(&c->node->cluster_counters.nodes_away, away);
    if (view->is_whole)
        ps_node_cluster_find_room(c, view);
    const uint64_t tolerance = tolerance_of(c, view, present);
    if (memcmp(present, c->present, sizeof(present)) != 0 || outside != c->outside ||
        tolerance != c->tolerance)
        ps_node_cluster_note_change(c);
    c->tolerance = tolerance;
    memcpy(c->present, present, sizeof(present));
    c->outside = outside;
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
    ps_node_cluster_note_progress(c, view);
    ps_cluster_save_see(&c->save, view);
    ps_member_tick(&c->member, mr_clock_boot_us());
    ps_node_cluster_propose(c, view);
    if (c->zookeeper != NULL &&
        (c->save.is_wanted || c->save.asked != 0)) /* who asked is told why it failed */
        ps_zookeeper_read_all(c->zookeeper);
    heard(c);
}

static void written(void *context, const struct ps_cluster_map *next, enum ps_member_written outcome)
{
    struct ps_node_cluster *c = hear(context);
    ps_cluster_save_proposed(&c->save, next->cut, outcome == PS_WRITTEN);
    if (outcome == PS_WRITTEN && next->cut != 0 && next->cut == c->save.own && c->save.is_by_trainer &&
        c->zookeeper != NULL) {
        c->report.trainer_cut = next->cut;
        ps_zookeeper_report(c->zookeeper, &c->report);
    }
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
