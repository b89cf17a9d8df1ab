/* Partitions that the map has given to this node beside what it serves: it loads them from the newest
 * checkpoint of the cluster (ps/move/take_over.h), one set after the other. Control thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/move/cleanup.h"
#include "ps/node_cluster/node_cluster_internal.h"

#define RETRY_US   UINT64_C(10000000) /* after a failure, if nobody else has taken them meanwhile */
#define ROOM_US    UINT64_C(10000000) /* between two looks at the memory that is free */
#define ROOM_SHARE 16u                /* of the limit: a change that is reported */

/* ---- on the cores ---- */

/* Rows that were loaded have no marks: the next part is a full one. */
static void take_over_end(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_save_marks_lost(core);
}

/* ---- what is to be loaded ---- */

static struct ps_partition_set take_over_partitions(const struct ps_node_take_over *o)
{
    struct ps_partition_set set = {{0}};
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++)
        if (o->grants[slot] != 0)
            ps_partitions_add(&set, ps_cluster_slot(slot));
    return set;
}

/* How many of the slots are still to be loaded for this grant. Caller holds c->lock. */
static uint32_t take_over_wanted(const struct ps_node_cluster *c)
{
    const struct ps_node_take_over *o = &c->take_over;
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++)
        count += o->grants[slot] != 0 && c->member.loading[slot] == o->grants[slot];
    return count;
}

/* Chooses all that is to be loaded now. False: nothing is, or not yet: the cores must know the map, the node
 * must have the tables that rows may be of, and neither a snapshot nor another restore be in progress. */
static bool take_over_choose(struct ps_node_cluster *c)
{
    struct ps_node_take_over *o = &c->take_over;
    char ignored[PS_CONTROL_TEXT_BYTES];
    o->count = 0;
    if (c->node->control->gate == PS_GATE_BROKEN || c->load.waits || !ps_node_cluster_loads_beside(c) ||
        mr_clock_us() < o->retry_us || ps_control_check_idle(c->node->control, ignored) != MR_OK)
        return false;
    pthread_mutex_lock(&c->lock);
    if (!c->is_changed && !c->migrations.has_cleanup && c->features_session != 0) {
        o->checkpoint = c->member.map.committed;
        memcpy(o->grants, c->member.loading, sizeof(o->grants));
        o->count = take_over_wanted(c);
    }
    pthread_mutex_unlock(&c->lock);
    return o->count > 0;
}

/* ---- the work ---- */

/* Where they are loaded from: as a start does, the cluster's newest checkpoint or what it began with. */
static enum mr_status take_over_place(struct ps_node_cluster *c, struct ps_take_over_options *options,
                                      char *text)
{
    const char *directory = c->load.commit.directory;
    options->checkpoint = c->take_over.checkpoint;
    options->is_cluster = options->checkpoint != 0;
    if (options->checkpoint == 0) {
        directory = c->load.init.directory;
        options->checkpoint = directory[0] != '\0' ? c->load.init.id : 0;
    } else if (directory[0] == '\0') {
        (void)snprintf(text, PS_MOVE_TEXT_BYTES, "this node has no checkpoint.directory: set it");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    if (options->checkpoint == 0)
        return MR_OK;
    return ps_stores_place(c->node->control->stores, directory, PS_PLACE_READ, &options->place, text);
}

static void take_over_fail(struct ps_node_cluster *c, const char *text)
{
    struct ps_node_take_over *o = &c->take_over;
    const struct ps_partition_set partitions = take_over_partitions(o);
    mr_log_with(MR_LOG_ERROR,
                MR_LOG_FIELDS({"partitions", .number = o->count}, {"checkpoint", .number = o->checkpoint}),
                "take_over_failed",
                "cluster %s: %u partition%s that the map gives to this node cannot be loaded from checkpoint "
                "%" PRIu64 ": %s",
                c->options.cluster, o->count, mr_plural(o->count), o->checkpoint, text);
    ps_counter_add(&c->node->cluster_counters.take_overs_failed, 1);
    ps_cleanup_add_everywhere(c->node, &partitions);
    o->retry_us = mr_clock_us() + RETRY_US;
    o->state = PS_NODE_TAKES_NOTHING;
    pthread_mutex_lock(&c->lock); /* others may be able to */
    o->has_failed = true;
    memcpy(o->failed, o->grants, sizeof(o->failed));
    c->report.room.failed = o->checkpoint;
    (void)snprintf(c->report.room.failed_text, sizeof(c->report.room.failed_text), "%s", text);
    ps_node_cluster_report(c);
    pthread_mutex_unlock(&c->lock);
    ps_node_cluster_wake(c);
}

static void take_over_start(struct ps_node_cluster *c)
{
    struct ps_node_take_over *o = &c->take_over;
    char text[PS_MOVE_TEXT_BYTES] = "";
    struct ps_take_over_options options = {.node = c->node, .partitions = take_over_partitions(o)};
    enum mr_status status = take_over_place(c, &options, text);
    if (status == MR_OK)
        status = ps_take_over_start(&options, &o->load, text);
    if (status != MR_OK) {
        take_over_fail(c, text);
        return;
    }
    o->stop = options.checkpoint != 0 ? options.place.stop : NULL;
    o->state = PS_NODE_TAKES_LOADS;
}

/* Those that the map still gives to this node are served from now on; of others nothing stays. */
static void take_over_finish(struct ps_node_cluster *c, const struct ps_take_over_progress *p)
{
    struct ps_node_take_over *o = &c->take_over;
    struct ps_partition_set left = {{0}};
    uint32_t count = 0;
    ps_node_each_core(c->node, take_over_end, NULL);
    pthread_mutex_lock(&c->lock);
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        if (o->grants[slot] == 0)
            continue;
        if (p->state != PS_TAKE_OVER_LOADED || c->member.loading[slot] != o->grants[slot]) {
            ps_partitions_add(&left, ps_cluster_slot(slot));
            continue;
        }
        ps_member_loaded(&c->member, slot, o->grants[slot]);
        count++;
    }
    if (count > 0) {
        o->has_failed = false;
        c->report.room.failed = 0;
        ps_node_cluster_report(c);
    }
    ps_node_cluster_note_change(c);
    pthread_mutex_unlock(&c->lock);
    ps_cleanup_add_everywhere(c->node, &left);
    o->state = PS_NODE_TAKES_NOTHING;
    if (count == 0)
        return;
    ps_counter_add(&c->node->cluster_counters.partitions_taken_over, count);
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"partitions", .number = count}, {"checkpoint", .number = o->checkpoint},
                              {"rows", .number = p->rows}, {"bytes", .number = p->bytes}),
                "taken_over",
                "cluster %s: %u partition%s go on here from checkpoint %" PRIu64 ": read %" PRIu64
                " MiB in %.2f s",
                c->options.cluster, count, mr_plural(count), o->checkpoint, p->bytes / MR_MIB,
                (double)(mr_clock_us() - p->started_us) / 1e6);
}

static void take_over_follow(struct ps_node_cluster *c)
{
    struct ps_node_take_over *o = &c->take_over;
    struct ps_take_over_progress p;
    pthread_mutex_lock(&c->lock);
    const bool is_wanted = take_over_wanted(c) > 0;
    pthread_mutex_unlock(&c->lock);
    if (!is_wanted)
        ps_take_over_cancel(o->load);
    ps_take_over_progress(o->load, &p);
    if (p.state == PS_TAKE_OVER_LOADING)
        return;
    ps_take_over_stop(o->load);
    o->load = NULL;
    if (p.state == PS_TAKE_OVER_LOADED || !is_wanted)
        take_over_finish(c, &p);
    else
        take_over_fail(c, p.text);
}

/* ---- what the node's entry says ---- */

struct room_order {
    uint64_t limit_bytes[DP_CORES_MAX], mapped_bytes[DP_CORES_MAX];
};

static void room_on_core(struct ps_core *core, void *arg)
{
    struct room_order *order = arg;
    order->limit_bytes[core->index] = ps_arena_limit_bytes(core->arena);
    order->mapped_bytes[core->index] = ps_arena_mapped_bytes(core->arena);
}

/* How much memory is free, now and then, and if that has changed. */
static void report_room(struct ps_node_cluster *c)
{
    struct ps_node_take_over *o = &c->take_over;
    struct room_order order;
    uint64_t limit = 0, used = 0;
    const uint64_t now_us = mr_clock_us();
    if (o->reported_us != 0 && now_us - o->reported_us < ROOM_US)
        return;
    o->reported_us = now_us;
    ps_node_each_core(c->node, room_on_core, &order);
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        limit += order.limit_bytes[i];
        used += order.mapped_bytes[i] < order.limit_bytes[i] ? order.mapped_bytes[i] : order.limit_bytes[i];
    }
    pthread_mutex_lock(&c->lock);
    struct ps_cluster_room_report *room = &c->report.room;
    const uint64_t used_mib = (used + MR_MIB - 1) / MR_MIB, limit_mib = limit / MR_MIB;
    const uint64_t differs =
        used_mib > room->used_mib ? used_mib - room->used_mib : room->used_mib - used_mib;
    if (!room->is_known || differs * ROOM_SHARE > limit_mib) {
        room->is_known = true;
        room->used_mib = used_mib;
        room->free_mib = limit_mib > used_mib ? limit_mib - used_mib : 0;
        ps_node_cluster_report(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void ps_node_cluster_poll_take_over(struct ps_node_cluster *c)
{
    struct ps_node_take_over *o = &c->take_over;
    struct ps_partition_set partitions;
    report_room(c);
    if (o->state == PS_NODE_TAKES_NOTHING && take_over_choose(c)) {
        partitions = take_over_partitions(o);
        mr_log_with(
            MR_LOG_INFO,
            MR_LOG_FIELDS({"partitions", .number = o->count}, {"checkpoint", .number = o->checkpoint}),
            "takes_over",
            "cluster %s: the map gives %u partition%s of another node to this one: they are loaded "
            "from checkpoint %" PRIu64,
            c->options.cluster, o->count, mr_plural(o->count), o->checkpoint);
        ps_cleanup_add_everywhere(c->node, &partitions); /* what an earlier owner's time has left here */
        o->state = PS_NODE_TAKES_CLEANS;
    }
    if (o->state == PS_NODE_TAKES_CLEANS) {
        partitions = take_over_partitions(o);
        if (!ps_node_cluster_copies_keep(c, &partitions) && !ps_cleanup_has_anywhere(c->node, &partitions))
            take_over_start(c);
    }
    if (o->state == PS_NODE_TAKES_LOADS)
        take_over_follow(c);
}

bool ps_node_cluster_is_taking_over(struct ps_node_cluster *c)
{
    bool waits = false;
    if (c->take_over.state != PS_NODE_TAKES_NOTHING)
        return true;
    if (c->node->control->gate == PS_GATE_BROKEN || !ps_node_cluster_loads_beside(c))
        return false;
    pthread_mutex_lock(&c->lock);
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT && !waits; slot++)
        waits = c->member.loading[slot] != 0;
    pthread_mutex_unlock(&c->lock);
    return waits;
}

void ps_node_cluster_end_take_over(struct ps_node_cluster *c)
{
    struct ps_node_take_over *o = &c->take_over;
    if (o->load != NULL && o->stop != NULL)
        atomic_store(o->stop, true); /* a store that hangs */
    ps_take_over_stop(o->load);
    o->load = NULL;
}
