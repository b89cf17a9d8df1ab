/* Copies of partitions on other nodes (replication = 2), on the control thread: what the cores tell the
 * backups of this node's partitions, what this node keeps as a backup of others, and its promotion. Which
 * there are stands in the map (ps/cluster/copies.h), by the numbers of their assignments.
 *
 * The owner alone says whether a backup is in sync. It says so once the backup has what its cores had and
 * what they have applied since, up to its last part of a checkpoint. A backup that falls behind by more than
 * a ring, or does not go on, is left alone by a change of the map. One that only stood still goes on where it
 * was, and is in sync again once it has caught up; one that has lost what it had begins again. Until the map
 * says so it has an older state that the cores had between two calls, with which it can be promoted.
 *
 * With copies = async pushes are answered at once meanwhile: clients send what a promoted backup lacks again,
 * and what is in a checkpoint it has. With sync answers wait for the backup: from before the owner says that
 * it is in sync, until the map says that it is not. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"
#include "ps/cluster/copies.h"
#include "ps/move/cleanup.h"
#include "ps/move/copy_source.h"
#include "ps/node_cluster/node_cluster_internal.h"

#define SILENCE_US          UINT64_C(10000000) /* of the owner, before all is copied: it begins again */
#define STALL_US            UINT64_C(5000000)  /* a backup that stands still for longer is left alone, ... */
#define WAIT_US             UINT64_C(1000000)  /* ... and for so long if answers wait for it */
#define MEMORY_FAILURES_MAX 2u                 /* in a row: then this node is no backup for a while */
#define REFUSAL_US          UINT64_C(600000000)
#define FREED_US            UINT64_C(10000000) /* by then what was given up is free */

/* ---- on the cores ---- */

struct copies_order {
    uint64_t id;
    struct ps_partition_set partitions;
    struct ps_copy_status *status; /* by core */
    bool waits;
    _Atomic bool has_failed;
};

static void copies_feed_begin(struct ps_core *core, void *arg)
{
    struct copies_order *order = arg;
    if (ps_copy_source_begin(core, order->id, &order->partitions, PS_COPY_RING_BYTES,
                             &order->status[core->index]) != MR_OK)
        atomic_store(&order->has_failed, true);
}

static void copies_feed_wait(struct ps_core *core, void *arg)
{
    struct copies_order *order = arg;
    if (ps_copy_source_wait(core, order->id, order->waits) != MR_OK)
        atomic_store(&order->has_failed, true);
}

static void copies_feed_end(struct ps_core *core, void *arg)
{
    const struct copies_order *order = arg;
    ps_copy_source_end(core, order->id);
}

static void copies_feed_narrow(struct ps_core *core, void *arg)
{
    const struct copies_order *order = arg;
    ps_copy_source_narrow(core, order->id, &order->partitions);
}

static void copies_unfollow(struct ps_core *core, void *arg)
{
    const struct copies_order *order = arg;
    ps_core_follow(core, &order->partitions, false);
}

static void copies_follow(struct ps_core *core, void *arg)
{
    const struct copies_order *order = arg;
    ps_core_follow(core, &order->partitions, true);
}

/* They are this node's own: the next part of a checkpoint has them, too. */
static void copies_adopt(struct ps_core *core, void *arg)
{
    const struct copies_order *order = arg;
    ps_core_follow(core, &order->partitions, false);
    ps_save_marks_lost(core);
}

static void clean_partitions(struct ps_node_cluster *c, const struct ps_partition_set *partitions)
{
    struct copies_order order = {.partitions = *partitions};
    if (ps_partitions_empty(partitions))
        return;
    ps_node_each_core(c->node, copies_unfollow, &order);
    ps_cleanup_add_everywhere(c->node, partitions);
}

static uint32_t partition_count(const struct ps_partition_set *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PS_PARTITION_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(set->words[i]);
    return count;
}

/* ---- what the map says ---- */

/* The assignments that concern this node, as owner or as backup. */
struct copies_wanted {
    uint64_t epoch;
    bool answers_wait; /* copies = sync */
    uint32_t count;
    struct copies_assignment {
        uint64_t id;
        uint32_t peer;            /* index of the map's nodes: the backup, or the owner */
        bool is_in_sync, is_told; /* by the map; it may be so, and this node does not know it */
        struct ps_partition_set partitions;
    } items[PS_NODE_COPIES_MAX];
};

static struct copies_assignment *wanted_find(struct copies_wanted *w, uint64_t id)
{
    for (uint32_t i = 0; i < w->count; i++)
        if (w->items[i].id == id)
            return &w->items[i];
    return NULL;
}

/* Beyond PS_NODE_COPIES_MAX none is looked after: the map shows that they are not in sync. */
static void wanted_add(struct copies_wanted *w, const struct ps_member *m, uint32_t slot, uint32_t peer)
{
    struct copies_assignment *a = wanted_find(w, m->map.backup_grant[slot]);
    if (a == NULL && w->count == PS_NODE_COPIES_MAX)
        return;
    if (a == NULL) {
        a = &w->items[w->count++];
        *a = (struct copies_assignment){.id = m->map.backup_grant[slot], .peer = peer};
    }
    a->is_in_sync |= m->map.in_sync[slot];
    a->is_told |= ps_member_answer_waits(m, slot);
    ps_partitions_add(&a->partitions, ps_cluster_slot(slot));
}

/* Caller holds c->lock. */
static void wanted_find_all(const struct ps_member *m, struct copies_wanted *feeds,
                            struct copies_wanted *followers)
{
    const struct ps_cluster_map *map = &m->map;
    feeds->count = followers->count = 0;
    feeds->epoch = followers->epoch = map->epoch;
    feeds->answers_wait = followers->answers_wait = map->answers_wait;
    for (uint32_t slot = 0; slot < map->partition_count && m->index != PS_CLUSTER_NO_NODE; slot++) {
        if (map->backup[slot] == PS_CLUSTER_NO_NODE || map->owner[slot] == PS_CLUSTER_NO_NODE)
            continue;
        if (map->owner[slot] == m->index && m->have[slot] == map->grant[slot])
            wanted_add(feeds, m, slot, map->backup[slot]);
        else if (map->backup[slot] == m->index)
            wanted_add(followers, m, slot, map->owner[slot]);
    }
}

/* ---- the owner ---- */

/* What is noted may be proposed at any time: it counts as told. Caller holds c->lock. */
static void wanted_add_wishes(struct copies_wanted *w, const struct ps_node_copies *n)
{
    for (uint32_t i = 0; i < n->wish_count; i++) {
        struct copies_assignment *a = wanted_find(w, n->wishes[i].id);
        if (a != NULL)
            a->is_told |= n->wishes[i].is_in_sync;
    }
}

/* Notes what the map is to say; the coordinator's thread proposes it. */
static void feed_wish(struct ps_node_cluster *c, uint64_t id, bool is_in_sync)
{
    struct ps_node_copies *n = &c->copies;
    uint32_t at = 0;
    pthread_mutex_lock(&c->lock);
    while (at < n->wish_count && n->wishes[at].id != id)
        at++;
    const bool is_new = at == n->wish_count || n->wishes[at].is_in_sync != is_in_sync;
    if (at < PS_NODE_COPIES_MAX)
        n->wishes[at] = (struct ps_copies_wish){id, is_in_sync};
    n->wish_count += at == n->wish_count && at < PS_NODE_COPIES_MAX;
    pthread_mutex_unlock(&c->lock);
    if (is_new)
        ps_node_cluster_wake(c);
}

static bool feed_start(struct ps_node_cluster *c, struct ps_copies_feed *f)
{
    struct copies_order order = {.id = f->id, .partitions = f->partitions, .status = f->status};
    memset(f->status, 0, c->node->core_count * sizeof(*f->status));
    memset(f->cut_end, 0, sizeof(f->cut_end));
    f->lag = (struct ps_copies_lag){0};
    f->waits = f->said_behind = f->said_in_sync = false;
    ps_node_each_core(c->node, copies_feed_begin, &order);
    f->is_begun = !order.has_failed;
    if (f->is_begun)
        return true;
    ps_node_each_core(c->node, copies_feed_end, &order);
    ps_copies_retry_failed(&f->retry, mr_clock_us());
    if (!f->said)
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"copy", .number = f->id}), "copy_no_memory",
                    "cluster %s: no memory to tell the backup of %u partition%s what changes",
                    c->options.cluster, partition_count(&f->partitions),
                    mr_plural(partition_count(&f->partitions)));
    f->said = true;
    return false;
}

/* Answers that still wait for it are taken back. */
static void feed_stop(struct ps_node_cluster *c, struct ps_copies_feed *f)
{
    struct copies_order order = {.id = f->id};
    if (f->is_begun)
        ps_node_each_core(c->node, copies_feed_end, &order);
    f->is_begun = f->waits = false;
    f->lag = (struct ps_copies_lag){0};
}

static void feed_ends(const struct ps_node_cluster *c, const struct ps_copies_feed *f, uint64_t *ends)
{
    for (uint32_t i = 0; i < c->node->core_count; i++)
        ends[i] = atomic_load_explicit(&f->status[i].end, memory_order_acquire);
}

/* Has the backup applied what was there then? */
static bool feed_has(const struct ps_node_cluster *c, const struct ps_copies_feed *f, const uint64_t *ends)
{
    for (uint32_t i = 0; i < c->node->core_count; i++)
        if (atomic_load_explicit(&f->status[i].applied, memory_order_relaxed) < ends[i])
            return false;
    return true;
}

/* Has answers wait for the backup, or not any more: then those that do leave. */
static void feed_wait(struct ps_node_cluster *c, struct ps_copies_feed *f, bool waits)
{
    struct copies_order order = {.id = f->id, .waits = waits};
    if (f->waits == waits)
        return;
    ps_node_each_core(c->node, copies_feed_wait, &order);
    f->waits = waits && !order.has_failed;
    if (order.has_failed) {
        order.waits = false;
        ps_node_each_core(c->node, copies_feed_wait, &order);
    }
    feed_ends(c, f, f->wait_end);
}

/* Does the backup of one core's stream stand still? Not if this thread did: then it is not known. */
static bool feed_core_is_still(struct ps_copies_feed *f, uint32_t core, uint64_t now_us, uint64_t bound_us)
{
    const uint64_t applied = atomic_load_explicit(&f->status[core].applied, memory_order_relaxed),
                   end = atomic_load_explicit(&f->status[core].end, memory_order_relaxed);
    if (applied != f->progress[core].applied || applied == end || now_us - f->looked_us > WAIT_US / 2)
        f->progress[core].moved_us = now_us;
    f->progress[core].applied = applied;
    return now_us - f->progress[core].moved_us > bound_us;
}

/* What the cores say of it together; PS_COPY_FOLLOWS also if it stands still. */
static enum ps_copy_state feed_state(const struct ps_node_cluster *c, struct ps_copies_feed *f,
                                     bool answers_wait, bool *is_still)
{
    bool follows = true, repeats = false, is_lost = false;
    const uint64_t now_us = mr_clock_us();
    *is_still = false;
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        const uint32_t state = atomic_load_explicit(&f->status[i].state, memory_order_acquire);
        follows &= state == PS_COPY_FOLLOWS;
        repeats |= state == PS_COPY_REPEATS;
        is_lost |= state == PS_COPY_LOST;
        *is_still |= feed_core_is_still(f, i, now_us, answers_wait ? WAIT_US : STALL_US);
    }
    f->looked_us = now_us;
    return is_lost ? PS_COPY_LOST : repeats ? PS_COPY_REPEATS : follows ? PS_COPY_FOLLOWS : PS_COPY_FORMS;
}

static void feed_log_behind(struct ps_node_cluster *c, struct ps_copies_feed *f, const char *what)
{
    const uint32_t count = partition_count(&f->partitions);
    if (f->said_behind)
        return;
    f->said_behind = true;
    f->said_in_sync = false;
    ps_counter_add(&c->node->cluster_counters.backups_left_behind, 1);
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"copy", .number = f->id}, {"partitions", .number = count}),
                "backup_left_behind",
                "cluster %s: the backup of %u partition%s %s: it is not in sync any more", c->options.cluster,
                count, mr_plural(count), what);
}

static void feed_log_in_sync(struct ps_node_cluster *c, struct ps_copies_feed *f)
{
    const uint32_t count = partition_count(&f->partitions);
    if (f->said_in_sync)
        return;
    f->said_in_sync = true;
    f->said_behind = false;
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"copy", .number = f->id}, {"partitions", .number = count}),
                "backup_in_sync", "cluster %s: the backup of %u partition%s is in sync%s", c->options.cluster,
                count, mr_plural(count), f->waits ? ", and answers wait for it" : "");
}

/* The backup has all that was applied but what is new. True: it is to be looked at again soon. */
static bool feed_work_in_sync(struct ps_node_cluster *c, struct ps_copies_feed *f,
                              const struct copies_assignment *a, bool answers_wait)
{
    feed_wait(c, f, answers_wait);
    if (a->is_in_sync && f->waits == answers_wait) {
        feed_log_in_sync(c, f);
        ps_copies_retry_well(&f->retry, mr_clock_us());
        return false;
    }
    if (a->is_in_sync)
        feed_wish(c, f->id, false); /* no memory for answers that wait */
    if (f->waits == answers_wait && feed_has(c, f, f->cut_end) && (!f->waits || feed_has(c, f, f->wait_end)))
        feed_wish(c, f->id, true);
    return true;
}

/* True: it is to be looked at again soon. */
static bool feed_work(struct ps_node_cluster *c, struct ps_copies_feed *f, const struct copies_assignment *a,
                      bool answers_wait)
{
    bool is_still;
    if (!f->is_begun) {
        if (mr_clock_us() >= f->retry.at_us)
            (void)feed_start(c, f);
        return false;
    }
    const enum ps_copy_state state = feed_state(c, f, answers_wait, &is_still);
    if (state == PS_COPY_FORMS)
        return false;
    ps_copies_lag_measure(&f->lag, f->status, c->node->core_count, mr_clock_us());
    if (state == PS_COPY_FOLLOWS && !is_still)
        return feed_work_in_sync(c, f, a, answers_wait);
    const char *what = state == PS_COPY_LOST      ? "has fallen behind"
                       : state == PS_COPY_REPEATS ? "has lost what it had"
                                                  : "stands still";
    if (a->is_told) { /* neither is answered alone nor dropped what it lacks before the map says so */
        feed_log_behind(c, f, state == PS_COPY_LOST ? "has fallen behind by more than is kept for it" : what);
        feed_wish(c, f->id, false);
        return true;
    }
    feed_wait(c, f, false);
    if (state == PS_COPY_FOLLOWS)
        return false; /* it goes on where it was, if it does */
    feed_stop(c, f);
    char when[32] = "";
    if (state == PS_COPY_LOST) {
        const uint64_t now_us = mr_clock_us();
        ps_copies_retry_failed(&f->retry, now_us);
        (void)snprintf(when, sizeof(when), " in %" PRIu64 " s", (f->retry.at_us - now_us + 500000) / 1000000);
    }
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"copy", .number = f->id}), "copy_begins_again",
                "cluster %s: the backup of %u partition%s %s: the copy begins again%s", c->options.cluster,
                partition_count(&a->partitions), mr_plural(partition_count(&a->partitions)), what, when);
    if (state == PS_COPY_REPEATS) /* it is the backup that waits after a failure of its own */
        (void)feed_start(c, f);
    return false;
}

static struct ps_copies_feed *feed_add(struct ps_node_cluster *c, const struct copies_assignment *a,
                                       uint64_t epoch)
{
    struct ps_node_copies *n = &c->copies;
    struct ps_copies_feed *f = &n->feeds[n->feed_count];
    struct ps_copy_status *status = calloc(c->node->core_count, sizeof(*status));
    if (n->feed_count == PS_NODE_COPIES_MAX || status == NULL) {
        free(status);
        return NULL;
    }
    n->feed_count++;
    *f = (struct ps_copies_feed){.id = a->id, .partitions = a->partitions, .epoch = epoch, .status = status};
    return f;
}

static struct ps_copies_feed *feed_find(struct ps_node_copies *n, uint64_t id)
{
    for (uint32_t i = 0; i < n->feed_count; i++)
        if (n->feeds[i].id == id)
            return &n->feeds[i];
    return NULL;
}

/* An assignment's number is never used again: its partitions become fewer, if they change. */
static void feed_match(struct ps_node_cluster *c, struct ps_copies_feed *f, const struct copies_assignment *a)
{
    struct copies_order order = {.id = f->id, .partitions = a->partitions};
    if (memcmp(&f->partitions, &a->partitions, sizeof(f->partitions)) == 0)
        return;
    f->partitions = a->partitions;
    if (f->is_begun)
        ps_node_each_core(c->node, copies_feed_narrow, &order);
}

/* The map has a feed's assignment no more. May answers leave that wait for the backup? So if the partitions
 * are still this node's, or have gone to another one with all that was applied, by a move. */
static bool feed_may_answer(struct ps_node_cluster *c, const struct ps_copies_feed *f)
{
    pthread_mutex_lock(&c->lock);
    const struct ps_member *m = &c->member;
    bool may = m->index != PS_CLUSTER_NO_NODE && !m->is_superseded;
    for (uint32_t slot = 0; slot < m->map.partition_count && may; slot++)
        may =
            !ps_partitions_has(&f->partitions, ps_cluster_slot(slot)) || m->map.restored_in[slot] <= f->epoch;
    pthread_mutex_unlock(&c->lock);
    return may;
}

static bool work_feeds(struct ps_node_cluster *c, struct copies_wanted *wanted)
{
    struct ps_node_copies *n = &c->copies;
    bool waits = false;
    for (uint32_t i = n->feed_count; i-- > 0;) {
        if (wanted_find(wanted, n->feeds[i].id) != NULL)
            continue;
        if (n->feeds[i].waits && feed_may_answer(c, &n->feeds[i]))
            feed_wait(c, &n->feeds[i], false);
        feed_stop(c, &n->feeds[i]);
        free(n->feeds[i].status);
        n->feeds[i] = n->feeds[--n->feed_count];
    }
    for (uint32_t i = 0; i < wanted->count; i++) {
        const struct copies_assignment *a = &wanted->items[i];
        struct ps_copies_feed *f = feed_find(n, a->id);
        if (f == NULL && (f = feed_add(c, a, wanted->epoch)) == NULL)
            continue;
        feed_match(c, f, a);
        waits |= feed_work(c, f, a, wanted->answers_wait);
    }
    return waits;
}

bool ps_node_cluster_copies_have(struct ps_node_cluster *c, uint64_t cut)
{
    struct ps_node_copies *n = &c->copies;
    struct copies_wanted feeds, followers;
    bool have = true;
    pthread_mutex_lock(&c->lock);
    wanted_find_all(&c->member, &feeds, &followers);
    wanted_add_wishes(&feeds, n);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < n->feed_count; i++) {
        struct ps_copies_feed *f = &n->feeds[i];
        const struct copies_assignment *a = wanted_find(&feeds, f->id);
        if (!f->is_begun)
            continue;
        if (n->cut != cut)
            feed_ends(c, f, f->cut_end);
        have &= a == NULL || !a->is_told || feed_has(c, f, f->cut_end);
    }
    n->cut = cut;
    return have;
}

/* Proposes that assignments end that this node has given up. */
static bool propose_give_ups(struct ps_node_cluster *c, const struct ps_cluster_map *map, uint32_t self)
{
    struct ps_node_copies *n = &c->copies;
    uint64_t grants[PS_CLUSTER_PARTITIONS_MAX] = {0};
    struct ps_cluster_map next;
    if (n->give_up_count == 0)
        return false;
    for (uint32_t slot = 0; slot < map->partition_count; slot++)
        for (uint32_t i = 0; i < n->give_up_count; i++)
            if (n->give_ups[i] == map->backup_grant[slot])
                grants[slot] = n->give_ups[i];
    next = *map;
    if (ps_copies_give_up(&next, self, grants))
        return ps_member_propose(&c->member, &next);
    n->give_up_count = 0; /* the map has none of them any more */
    return false;
}

void ps_node_cluster_propose_copies(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_node_copies *n = &c->copies;
    const struct ps_cluster_map *map = view->map;
    const uint32_t self = ps_cluster_map_find(map, c->options.self.name);
    struct ps_cluster_map next;
    if (c->is_stopped || self == PS_CLUSTER_NO_NODE || c->member.writes || propose_give_ups(c, map, self) ||
        n->wish_count == 0)
        return;
    for (uint32_t is_in_sync = 0; is_in_sync < 2; is_in_sync++) { /* those that are not come first */
        uint64_t grants[PS_CLUSTER_PARTITIONS_MAX] = {0};
        bool any = false;
        for (uint32_t slot = 0; slot < map->partition_count; slot++)
            for (uint32_t i = 0; i < n->wish_count; i++)
                if (n->wishes[i].id == map->backup_grant[slot] && n->wishes[i].is_in_sync == is_in_sync) {
                    grants[slot] = n->wishes[i].id;
                    any |= map->in_sync[slot] != is_in_sync;
                }
        next = *map;
        if (any && ps_copies_set_sync(&next, self, grants, is_in_sync) &&
            ps_member_propose(&c->member, &next))
            return;
    }
    n->wish_count = 0; /* the map says so, or they are of assignments that have ended */
}

/* ---- the backup ---- */

static void follower_stop(struct ps_node_cluster *c, struct ps_copies_follower *f)
{
    ps_migration_target_stop(f->target);
    f->target = NULL;
    clean_partitions(c, &f->partitions);
}

/* The map is to end the assignment. */
static void follower_give_up(struct ps_node_cluster *c, struct ps_copies_follower *f)
{
    struct ps_node_copies *n = &c->copies;
    uint32_t at = 0;
    pthread_mutex_lock(&c->lock);
    while (at < n->give_up_count && n->give_ups[at] != f->id)
        at++;
    const bool is_new = at == n->give_up_count && at < PS_NODE_COPIES_MAX;
    if (is_new)
        n->give_ups[n->give_up_count++] = f->id;
    pthread_mutex_unlock(&c->lock);
    f->ends = true;
    if (is_new)
        ps_node_cluster_wake(c);
}

/* Says in the node's entry whether it gets copies. */
static void report_refusal(struct ps_node_cluster *c, bool refuses)
{
    pthread_mutex_lock(&c->lock);
    c->report.room.refuses_copies = refuses;
    ps_node_cluster_report(c);
    pthread_mutex_unlock(&c->lock);
    c->copies.refuses_until = refuses ? mr_clock_us() + REFUSAL_US : 0;
    c->copies.refuses_below_mib = 0;
}

/* It also ends when half of the memory is free, or more than after what was given up was freed, as by a table
 * that was dropped. */
static void end_refusal(struct ps_node_cluster *c)
{
    struct ps_node_copies *n = &c->copies;
    const uint64_t now_us = mr_clock_us();
    ps_copies_retry_well(&n->memory, now_us);
    if (n->refuses_until == 0)
        return;
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_room_report room = c->report.room;
    pthread_mutex_unlock(&c->lock);
    if (n->refuses_below_mib == 0 && n->refuses_until - now_us < REFUSAL_US - FREED_US)
        n->refuses_below_mib = room.free_mib + (room.free_mib + room.used_mib) / 8;
    const bool is_free = room.free_mib > room.used_mib || room.free_mib >= n->refuses_below_mib;
    if (now_us > n->refuses_until || (n->refuses_below_mib != 0 && is_free))
        report_refusal(c, false);
}

/* A source that cannot complete the copy begins again by itself, later after each time. What this node has
 * lost by itself while the map says that it is here, it gives up at once. */
static void follower_fail(struct ps_node_cluster *c, struct ps_copies_follower *f, enum mr_status status,
                          const char *text)
{
    const bool lacks_memory = status == MR_OUT_OF_MEMORY || status == MR_NO_MEMORY;
    const uint32_t count = partition_count(&f->partitions);
    follower_stop(c, f);
    f->state = PS_FOLLOWER_CLEANS;
    if (status == MR_BUSY)
        f->retry = (struct ps_copies_retry){.at_us = mr_clock_us() + PS_COPIES_RETRY_US};
    else
        ps_copies_retry_failed(&f->retry, mr_clock_us());
    if (lacks_memory)
        ps_copies_retry_failed(&c->copies.memory, mr_clock_us());
    if (!lacks_memory || (c->copies.memory.failures < MEMORY_FAILURES_MAX && c->copies.refuses_until == 0)) {
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"copy", .number = f->id}, {"owner", .text = f->peer.name}),
                    "copy_failed", "cluster %s: the copy of %u partition%s of node %.63s begins again: %s",
                    c->options.cluster, count, mr_plural(count), f->peer.name, text);
        return;
    }
    if (c->copies.refuses_until == 0) {
        mr_log_with(
            MR_LOG_ERROR, MR_LOG_FIELDS({"copy", .number = f->id}, {"owner", .text = f->peer.name}),
            "copy_given_up",
            "cluster %s: this node has no memory for the copy of %u partition%s of node %.63s, and is "
            "no backup for %u minutes: raise memory.limit_mib (%s)",
            c->options.cluster, count, mr_plural(count), f->peer.name, (unsigned)(REFUSAL_US / 60000000),
            text);
        report_refusal(c, true);
    }
    follower_give_up(c, f);
}

static void follower_start(struct ps_node_cluster *c, struct ps_copies_follower *f)
{
    char text[PS_MOVE_TEXT_BYTES] = "";
    struct copies_order order = {.partitions = f->partitions};
    const struct ps_migration_target_options options = {
        .node = c->node,
        .migration = {.move = {.id = f->id}, .peer = f->peer, .role = PS_MIGRATION_TARGET},
        .follows = true,
        .partitions = f->partitions,
        .bytes_per_s_max = c->node->config->cluster_move_mib_s * MR_MIB,
        .silence_us = SILENCE_US};
    ps_node_each_core(c->node, copies_follow, &order);
    const enum mr_status status = ps_migration_target_start(&options, &f->target, text);
    if (status != MR_OK) {
        follower_fail(c, f, status, text);
        return;
    }
    f->state = PS_FOLLOWER_COPIES;
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"copy", .number = f->id}, {"owner", .text = f->peer.name}),
                "copy_begins", "cluster %s: this node is the backup of %u partition%s of node %.63s",
                c->options.cluster, partition_count(&f->partitions),
                mr_plural(partition_count(&f->partitions)), f->peer.name);
}

/* True: it is to be looked at again soon. */
static bool follower_work(struct ps_node_cluster *c, struct ps_copies_follower *f,
                          const struct copies_assignment *a)
{
    struct ps_migration_target_progress p;
    if (f->ends)
        return false;
    if (f->state == PS_FOLLOWER_CLEANS && a->is_in_sync && f->retry.failures > 0) {
        follower_give_up(c, f);
        return false;
    }
    if (f->state == PS_FOLLOWER_CLEANS) {
        const bool cleans = ps_cleanup_has_anywhere(c->node, &f->partitions);
        if (!cleans && mr_clock_us() >= f->retry.at_us)
            follower_start(c, f);
        return cleans;
    }
    ps_migration_target_progress(f->target, &p);
    if (p.state == PS_MIGRATION_FAILED) {
        follower_fail(c, f, p.status, p.text);
        return true;
    }
    if (f->state == PS_FOLLOWER_FOLLOWS)
        ps_copies_retry_well(&f->retry, mr_clock_us());
    if (p.state == PS_MIGRATION_FOLLOWING && f->state == PS_FOLLOWER_COPIES) {
        f->state = PS_FOLLOWER_FOLLOWS;
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"copy", .number = f->id}, {"owner", .text = f->peer.name},
                                  {"rows", .number = p.rows}, {"bytes", .number = p.bytes}),
                    "copy_follows",
                    "cluster %s: the copy of %u partition%s of node %.63s is here, and follows: %" PRIu64
                    " MiB in %.2f s",
                    c->options.cluster, partition_count(&f->partitions),
                    mr_plural(partition_count(&f->partitions)), f->peer.name, p.bytes / MR_MIB,
                    (double)(mr_clock_us() - p.started_us) / 1e6);
    }
    return false;
}

static struct ps_copies_follower *follower_find(struct ps_node_copies *n, uint64_t id)
{
    for (uint32_t i = 0; i < n->follower_count; i++)
        if (n->followers[i].id == id)
            return &n->followers[i];
    return NULL;
}

static bool work_followers(struct ps_node_cluster *c, struct copies_wanted *wanted,
                           const struct ps_cluster_node *peers)
{
    struct ps_node_copies *n = &c->copies;
    bool waits = false;
    for (uint32_t i = n->follower_count; i-- > 0;) {
        struct ps_copies_follower *f = &n->followers[i];
        const struct copies_assignment *a = wanted_find(wanted, f->id);
        const struct ps_partition_set kept = a != NULL ? a->partitions : (struct ps_partition_set){{0}},
                                      left = ps_partitions_without(&f->partitions, &kept);
        if (a == NULL) {
            follower_stop(c, f);
            *f = n->followers[--n->follower_count];
        } else if (!ps_partitions_empty(&left)) {
            clean_partitions(c, &left);
            f->partitions = kept;
        }
    }
    for (uint32_t i = 0; i < wanted->count; i++) {
        const struct copies_assignment *a = &wanted->items[i];
        struct ps_copies_follower *f = follower_find(n, a->id);
        if (f == NULL) {
            if (n->follower_count == PS_NODE_COPIES_MAX)
                continue;
            f = &n->followers[n->follower_count++];
            *f = (struct ps_copies_follower){.id = a->id, .partitions = a->partitions, .peer = peers[i]};
            clean_partitions(c, &f->partitions);
        }
        waits |= follower_work(c, f, a);
        if (f->target != NULL)
            ps_migration_target_hurry(f->target, wanted->answers_wait);
    }
    return waits;
}

bool ps_node_cluster_copies_keep(const struct ps_node_cluster *c, const struct ps_partition_set *partitions)
{
    for (uint32_t i = 0; i < c->copies.follower_count; i++) {
        const struct ps_partition_set both =
            ps_partitions_and(&c->copies.followers[i].partitions, partitions);
        if (!ps_partitions_empty(&both))
            return true;
    }
    return false;
}

/* ---- promotion ---- */

/* Of the partitions that it keeps, those that are this node's now, by the number of the assignment. Caller
 * holds c->lock. */
static struct ps_partition_set promoted_of(const struct ps_member *m, const struct ps_copies_follower *f)
{
    struct ps_partition_set set = {{0}};
    for (uint32_t slot = 0; slot < m->map.partition_count; slot++)
        if (m->loading[slot] == f->id && ps_partitions_has(&f->partitions, ps_cluster_slot(slot)))
            ps_partitions_add(&set, ps_cluster_slot(slot));
    return set;
}

static void copies_promote(struct ps_node_cluster *c, struct ps_copies_follower *f,
                           const struct ps_partition_set *promoted)
{
    char text[PS_MOVE_TEXT_BYTES] = "the copy was not begun";
    struct copies_order order = {.partitions = *promoted};
    const struct ps_partition_set left = ps_partitions_without(&f->partitions, promoted);
    const uint64_t begun_us = mr_clock_us();
    const uint32_t count = partition_count(promoted);
    const enum mr_status status =
        f->target != NULL ? ps_migration_target_promote(f->target, promoted, text) : MR_INVALID_ARGUMENT;
    ps_migration_target_stop(f->target);
    f->target = NULL;
    clean_partitions(c, &left);
    if (status != MR_OK) {
        mr_log_with(
            MR_LOG_ERROR, MR_LOG_FIELDS({"copy", .number = f->id}, {"owner", .text = f->peer.name}),
            "promotion_failed",
            "cluster %s: the copy of %u partition%s of node %.63s is not whole, so they are loaded from "
            "the newest checkpoint: %s",
            c->options.cluster, count, mr_plural(count), f->peer.name, text);
        clean_partitions(c, promoted); /* cluster_take_over.c finds what is still to be loaded */
        return;
    }
    ps_node_each_core(c->node, copies_adopt, &order);
    pthread_mutex_lock(&c->lock);
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++)
        if (ps_partitions_has(promoted, ps_cluster_slot(slot)))
            ps_member_loaded(&c->member, slot, f->id);
    pthread_mutex_unlock(&c->lock);
    mr_log_with(MR_LOG_WARNING,
                MR_LOG_FIELDS({"partitions", .number = count}, {"owner", .text = f->peer.name}), "promoted",
                "cluster %s: %u partition%s of node %.63s, which is away, go on here from the copy, after "
                "%.1f ms",
                c->options.cluster, count, mr_plural(count), f->peer.name,
                (double)(mr_clock_us() - begun_us) / 1e3);
}

void ps_node_cluster_promote_copies(struct ps_node_cluster *c)
{
    struct ps_node_copies *n = &c->copies;
    for (uint32_t i = n->follower_count; i-- > 0;) {
        struct ps_copies_follower *f = &n->followers[i];
        pthread_mutex_lock(&c->lock);
        const struct ps_partition_set promoted = promoted_of(&c->member, f);
        pthread_mutex_unlock(&c->lock);
        if (ps_partitions_empty(&promoted))
            continue;
        copies_promote(c, f, &promoted);
        *f = n->followers[--n->follower_count];
    }
}

/* ---- the control thread ---- */

/* How far the backups of this node are behind. */
static void count_lag(struct ps_node_cluster *c)
{
    struct ps_cluster_counters *counters = &c->node->cluster_counters;
    uint64_t bytes = 0, us = 0;
    for (uint32_t i = 0; i < c->copies.feed_count; i++) {
        bytes += c->copies.feeds[i].lag.bytes;
        us = mr_max_u64(us, c->copies.feeds[i].lag.us);
    }
    ps_counter_set(&counters->copies_lag_bytes, bytes);
    ps_counter_set(&counters->copies_lag_us, us);
}

void ps_node_cluster_poll_copies(struct ps_node_cluster *c)
{
    struct copies_wanted feeds, followers;
    struct ps_cluster_node *peers = NULL;
    c->copies.waits = false;
    pthread_mutex_lock(&c->lock);
    const bool is_ready =
        !c->is_changed && c->features_session != 0 && c->node->control->gate == PS_GATE_OPEN;
    if (is_ready) {
        wanted_find_all(&c->member, &feeds, &followers);
        wanted_add_wishes(&feeds, &c->copies);
        peers = malloc((followers.count + 1) * sizeof(*peers));
        for (uint32_t i = 0; peers != NULL && i < followers.count; i++)
            peers[i] = c->member.map.nodes[followers.items[i].peer];
    }
    pthread_mutex_unlock(&c->lock);
    if (peers == NULL)
        return;
    c->copies.waits = work_feeds(c, &feeds);
    c->copies.waits |= work_followers(c, &followers, peers);
    free(peers);
    count_lag(c);
    end_refusal(c);
}

void ps_node_cluster_end_copies(struct ps_node_cluster *c)
{
    struct ps_node_copies *n = &c->copies;
    for (uint32_t i = 0; i < n->feed_count; i++) {
        feed_stop(c, &n->feeds[i]);
        free(n->feeds[i].status);
    }
    for (uint32_t i = 0; i < n->follower_count; i++)
        ps_migration_target_stop(n->followers[i].target);
    n->feed_count = n->follower_count = 0;
}
