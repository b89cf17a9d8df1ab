/* Numbered pushes: each is applied once, however often it is sent. docs/protocol.md, section 9, numbered
 * pushes. */
#include <string.h>
#include "ps/ops/ops.h"

static uint64_t sequence_of(const struct ps_op *op)
{
    return op->request->message->preamble.sequence;
}

static struct ps_push_id id_of(const struct ps_op *op)
{
    uint16_t lane = mr_push_lane(sequence_of(op));
    return (struct ps_push_id){
        .uuid = op->request->client_uuid,
        .lane = lane != 0 ? lane : mr_push_lane_of(op->core->node->core_count, op->core->index),
        .number = mr_push_number(sequence_of(op))};
}

/* A lane of this map is its core's alone; lanes of other maps are everybody's. */
static bool check_number(const struct ps_op *op, const struct ps_push_id *id)
{
    uint32_t cores = mr_push_lane_cores(id->lane), core = mr_push_lane_core(id->lane);
    if (id->number == 0) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "push number 0: a client's pushes are numbered from 1");
    }
    if (!mr_push_lane_is_valid(id->lane)) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "lane of core %u of %u: there is no such core", core,
                         cores);
    }
    if (cores == op->core->node->core_count && core != op->core->index) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "lane of core %u of %u: this is core %u", core, cores,
                         op->core->index);
    }
    return true;
}

/* What is known of a push that has a number. PS_PUSH_WAITS: it has been answered. */
static enum ps_push_state look_up(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    struct ps_push_id id = id_of(op);
    if (!check_number(op, &id)) {
        return PS_PUSH_WAITS;
    }
    enum ps_push_state state = ps_pushes_look_up(core->pushes, &id);
    if (state == PS_PUSH_NO_MEMORY) {
        ps_refuse(op, MR_OUT_OF_MEMORY, "no memory for the record of pushes: raise batches.memory_mib");
        return PS_PUSH_WAITS;
    }
    uint64_t durable = ps_pushes_durable(core->pushes, id.uuid, id.lane);
    mr_reply_set_sequence(op->ep, op->request->ref, mr_push_sequence(mr_push_lane(sequence_of(op)), durable));
    if (state == PS_PUSH_WAITS) {
        ps_hold_back(op, &core->counters.pushes_waiting);
    }
    return state;
}

/* Its client has not heard of a restore that may have taken it back. Not the transport's BUSY, which would
 * send the same bytes again. */
static bool is_outdated(const struct ps_op *op)
{
    const uint32_t flags = op->request->message->preamble.flags;
    const uint32_t now = atomic_load_explicit(&op->core->node->restores, memory_order_relaxed);
    if ((flags & MR_PUSH_AGAIN) == 0 || (uint8_t)(flags >> MR_PUSH_RESTORES_SHIFT) == (uint8_t)now) {
        return false;
    }
    op->core->counters.requests_held_back++;
    mr_reply_status(op->ep, op->request->ref, MR_BUSY);
    return true;
}

bool ps_check_push(const struct ps_op *op, bool *partly)
{
    *partly = false;
    if (sequence_of(op) == 0) {
        return true;
    }
    if (is_outdated(op)) {
        return false;
    }
    enum ps_push_state state = look_up(op);
    if (state == PS_PUSH_APPLIED) {
        op->core->counters.pushes_repeated++;
        mr_reply_status(op->ep, op->request->ref, MR_OK);
        return false;
    }
    *partly = state == PS_PUSH_PARTLY;
    return state != PS_PUSH_WAITS;
}

bool ps_check_push_of_batch(const struct ps_op *op)
{
    return sequence_of(op) == 0 || (!is_outdated(op) && look_up(op) != PS_PUSH_WAITS);
}

void ps_push_begin(const struct ps_op *op)
{
    struct ps_push_id id = id_of(op);
    if (sequence_of(op) != 0) {
        ps_pushes_start(op->core->pushes, &id);
    }
}

void ps_push_end(const struct ps_op *op)
{
    struct ps_push_id id = id_of(op);
    if (sequence_of(op) != 0) {
        op->core->counters.pushes_skipped += ps_pushes_finish(op->core->pushes, &id);
    }
}

/* ---- partly applied ---- */

bool ps_push_has(const struct ps_op *op, uint32_t partition)
{
    struct ps_push_id id = id_of(op);
    return ps_pushes_has(op->core->pushes, &id, partition);
}

void ps_push_partitions(const struct ps_op *op, uint64_t bits[MR_PARTITION_COUNT / 64])
{
    struct ps_push_id id = id_of(op);
    ps_pushes_partitions(op->core->pushes, &id, bits);
}
