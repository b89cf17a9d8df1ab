#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "ps/ops.h"

#define TENSORS_PER_TABLE 3u /* of a feed: head, keys, offsets */
#define TABLES_MAX        (MR_TENSORS_MAX / TENSORS_PER_TABLE)

/* ---- feeding ---- */

struct feed {
    uint64_t batch_id;
    uint32_t table_count;
    bool read_only;
    bool insert;
    struct ps_batch *batch; /* NULL: the keys are still being checked */
    uint32_t at;            /* the table whose keys are checked or looked up */
    struct ps_copy copies[2];
    struct ps_table_lookup rows;
    struct ps_key_list lists[TABLES_MAX]; /* last: only as many as there are are set */
};

static struct ps_batch_part shape_of(const struct ps_op *op, const struct feed *feed, uint32_t index)
{
    const struct mr_tensor *head = &op->tensors[1 + index * TENSORS_PER_TABLE];
    const struct ps_feature *table = feed->lists[index].table;
    return (struct ps_batch_part){.feature = table->id,
                                  .samples = ps_tensor_u32(head, 1),
                                  .slots = ps_tensor_u32(head, 2),
                                  .dim = table->feature.dims[0],
                                  .key_count = feed->lists[index].key_count};
}

static bool check_feed_table(const struct ps_op *op, struct feed *feed, uint32_t index)
{
    uint32_t at = 1 + index * TENSORS_PER_TABLE;
    struct ps_key_list *list = &feed->lists[index];
    struct ps_feature *f;
    if (!ps_check_vector(op, at, MR_U32, 4, "table, samples, slots, flags") ||
        (f = ps_check_table(op, ps_tensor_u32(&op->tensors[at], 0))) == NULL ||
        !ps_check_tensor(op, at + 1, MR_U64, 1, "keys") ||
        !ps_check_tensor(op, at + 2, MR_U32, 1, "offsets")) {
        return false;
    }
    uint32_t samples = ps_tensor_u32(&op->tensors[at], 1), slots = ps_tensor_u32(&op->tensors[at], 2);
    uint32_t offset_count = op->tensors[at + 2].dims[0];
    uint64_t bag_count = (uint64_t)samples * slots;
    if (offset_count == 0 || offset_count - 1 != bag_count) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "table %s: %u samples of %u slots need %" PRIu64 " offsets, not %u", f->feature.name,
                         samples, slots, bag_count + 1, offset_count);
    }
    for (uint32_t i = 0; i < index; i++) {
        if (feed->lists[i].table == f) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s is named twice", f->feature.name);
        }
    }
    struct mr_tensor answer = mr_tensor_3d(MR_F32, samples, slots, f->feature.dims[0], NULL);
    *list = (struct ps_key_list){.table = f};
    feed->read_only |= (ps_tensor_u32(&op->tensors[at], 3) & MR_FEED_READ_ONLY) != 0;
    return ps_check_key_tensors(op, at + 1, at + 2, list) && ps_check_reply_bytes(op, &answer, 1);
}

static bool check_feed(const struct ps_op *op, struct feed *feed)
{
    if (!ps_check_vector(op, 0, MR_U64, 1, "batch id")) {
        return false;
    }
    feed->batch_id = ps_tensor_u64(&op->tensors[0], 0);
    if (op->tensor_count < 1 + TENSORS_PER_TABLE || (op->tensor_count - 1) % TENSORS_PER_TABLE != 0) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "a feed has a batch id and three tensors per table, not %u tensors",
                         op->tensor_count);
    }
    feed->table_count = (op->tensor_count - 1) / TENSORS_PER_TABLE;
    for (uint32_t i = 0; i < feed->table_count; i++) {
        if (!check_feed_table(op, feed, i)) {
            return false;
        }
    }
    feed->insert = op->core->freeze == MR_FREEZE_OFF && !feed->read_only;
    return true;
}

static uint64_t feed_cost_bytes(const struct ps_op *op, const struct feed *feed)
{
    uint64_t cost_bytes = 0;
    for (uint32_t i = 0; i < feed->table_count; i++) {
        const struct ps_key_list *list = &feed->lists[i];
        uint32_t at = 1 + i * TENSORS_PER_TABLE;
        cost_bytes += ps_table_lookup_cost_bytes(list->table->table, list->key_count, list->bag_count) +
                      op->tensors[at + 1].bytes + op->tensors[at + 2].bytes;
    }
    return cost_bytes;
}

static void refuse_feed(const struct ps_op *op, uint64_t batch_id, enum mr_status status)
{
    const struct ps_config *config = op->core->node->config;
    switch (status) {
    case MR_BATCH_CACHE_FULL:
        op->core->counters.feeds_refused_full++;
        ps_refuse(op, status, "batch %" PRIu64 ": %u batches are kept already", batch_id,
                  ps_batch_cache_count(op->core->batches));
        return;
    case MR_TOO_LARGE:
        ps_refuse(op, status,
                  "batch %" PRIu64
                  " is larger than all memory for batches: raise batches.memory_mib (%" PRIu64 ")",
                  batch_id, config->batches_memory_mib);
        return;
    default:
        ps_refuse(op, status, "batch %" PRIu64 ": no memory for it: raise batches.memory_mib (%" PRIu64 ")",
                  batch_id, config->batches_memory_mib);
        return;
    }
}

/* Table `at` of the batch: its keys and offsets are to be copied, its rows to be looked up. */
static void begin_part(const struct ps_op *op, struct feed *feed)
{
    struct ps_batch_part *part = &feed->batch->parts[feed->at];
    const struct mr_tensor *keys = &op->tensors[1 + feed->at * TENSORS_PER_TABLE + 1], *offsets = keys + 1;
    feed->copies[0] = (struct ps_copy){keys->data, (uint8_t *)part->keys, keys->bytes};
    feed->copies[1] = (struct ps_copy){offsets->data, (uint8_t *)part->offsets, offsets->bytes};
    feed->rows = (struct ps_table_lookup){.keys = keys->data,
                                          .key_count = part->key_count,
                                          .offsets = offsets->data,
                                          .bag_count = part->samples * part->slots,
                                          .insert = feed->insert,
                                          .out = part->values};
}

/* The keys are good: room for the batch, which nobody sees yet. */
static bool begin_batch(const struct ps_op *op, struct feed *feed)
{
    struct ps_batch_part shapes[TABLES_MAX];
    for (uint32_t i = 0; i < feed->table_count; i++) {
        shapes[i] = shape_of(op, feed, i);
    }
    enum mr_status status = ps_batch_prepare(op->core->batches, feed->batch_id, feed->read_only, shapes,
                                             feed->table_count, &feed->batch);
    if (status != MR_OK) {
        refuse_feed(op, feed->batch_id, status);
        return false;
    }
    feed->at = 0;
    begin_part(op, feed);
    return true;
}

static enum ps_check check_feed_keys(const struct ps_op *op, struct feed *feed, uint64_t *budget_bytes)
{
    for (; feed->at < feed->table_count; feed->at++) {
        enum ps_check check = ps_check_key_list(op, &feed->lists[feed->at], budget_bytes);
        if (check != PS_CHECK_GOOD) {
            return check;
        }
    }
    return begin_batch(op, feed) ? PS_CHECK_GOOD : PS_CHECK_REFUSED;
}

static bool feed_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct feed *feed = state;
    if (feed->batch == NULL) {
        enum ps_check check = check_feed_keys(op, feed, &budget_bytes);
        if (check != PS_CHECK_GOOD) {
            return check == PS_CHECK_REFUSED;
        }
    }
    while (budget_bytes > 0) {
        if (!ps_copy_step(&feed->copies[0], &budget_bytes) ||
            !ps_copy_step(&feed->copies[1], &budget_bytes) ||
            !ps_table_lookup_step(feed->lists[feed->at].table->table, &feed->rows, &budget_bytes)) {
            return false;
        }
        if (++feed->at == feed->table_count) {
            ps_batch_publish(op->core->batches, feed->batch, op->now_us);
            op->core->counters.batches_fed++;
            mr_reply_status(op->ep, op->request->ref, MR_OK);
            return true;
        }
        begin_part(op, feed);
    }
    return false;
}

static bool drop_feed(const struct ps_op *op, void *state)
{
    struct feed *feed = state;
    if (feed->batch != NULL) {
        ps_batch_remove(op->core->batches, feed->batch);
    }
    return true;
}

static const struct ps_job feed_job = {
    .step = feed_step, .drop = drop_feed, .state_bytes = sizeof(struct feed)};

void ps_op_feed_sample(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct feed feed;
    memset(&feed, 0, offsetof(struct feed, lists));
    if (ps_check_open(&op) && check_feed(&op, &feed) && !ps_defer(&op, feed_cost_bytes(&op, &feed))) {
        ps_run(&op, &feed_job, &feed);
    }
}

/* ---- looking up ---- */

static bool is_looked_up(const struct ps_batch *batch)
{
    for (uint32_t i = 0; i < batch->part_count; i++) {
        if (!batch->parts[i].looked_up) {
            return false;
        }
    }
    return true;
}

struct batch_lookup {
    struct ps_batch *batch;
    struct ps_batch_part *part;
    struct ps_copy copy;
};

static void end_lookup(const struct ps_op *op, struct batch_lookup *call)
{
    struct ps_core *core = op->core;
    struct ps_batch *batch = call->batch;
    call->part->looked_up = true;
    core->counters.batches_looked_up++;
    if (batch->read_only && is_looked_up(batch)) {
        ps_batch_remove(core->batches, batch);
    } else if (batch->is_listed) {
        ps_batch_touch(core->batches, batch, op->now_us);
    }
    ps_batch_unpin(core->batches, batch);
}

static bool lookup_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct batch_lookup *call = state;
    if (!ps_copy_step(&call->copy, &budget_bytes)) {
        ps_reply_advance(op, call->copy.to);
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    end_lookup(op, call);
    return true;
}

static bool drop_lookup(const struct ps_op *op, void *state)
{
    struct batch_lookup *call = state;
    ps_batch_unpin(op->core->batches, call->batch);
    return true;
}

static const struct ps_job lookup_job = {
    .step = lookup_step, .drop = drop_lookup, .state_bytes = sizeof(struct batch_lookup)};

void ps_op_lookup_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct batch_lookup call;
    struct ps_feature *f;
    if (!ps_check_open(&op) || !ps_check_vector(&op, 0, MR_U64, 1, "batch id") ||
        (f = ps_check_table(&op, request->message->preamble.table)) == NULL ||
        (call.batch = ps_check_batch(&op, ps_tensor_u64(&op.tensors[0], 0))) == NULL) {
        return;
    }
    call.part = ps_batch_part_of(call.batch, f->id);
    if (call.part == NULL) {
        ps_refuse(&op, MR_UNKNOWN_TABLE, "batch %" PRIu64 " was fed without keys of table %s", call.batch->id,
                  f->feature.name);
        return;
    }
    struct mr_tensor reply = mr_tensor_3d(MR_F32, call.part->samples, call.part->slots, call.part->dim, NULL);
    if (ps_defer(&op, reply.bytes)) {
        return;
    }
    if (!mr_reply_begin(ep, request->ref, MR_OK, &reply, 1)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    call.copy = (struct ps_copy){(const uint8_t *)call.part->values, reply.data, reply.bytes};
    ps_batch_pin(call.batch);
    ps_run(&op, &lookup_job, &call);
}

/* ---- the record ---- */

void ps_op_batch_state(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    const struct ps_learnt *learnt = op.core->learnt;
    struct ps_node *node = op.core->node;
    if (!ps_check_open(&op) || !ps_check_vector(&op, 0, MR_U64, 1, "stream")) {
        return;
    }
    uint64_t stream = ps_tensor_u64(&op.tensors[0], 0);
    if (stream >= PS_STREAMS_MAX) {
        ps_refuse(&op, MR_INVALID_ARGUMENT, "stream %" PRIu64 ": a stream's number has 16 bits", stream);
        return;
    }
    /* A restore by call takes learnt batches back as a restart does; the upper half tells such times apart. */
    uint64_t incarnation =
        (uint64_t)atomic_load_explicit(&node->restores, memory_order_relaxed) << 32 | node->incarnation;
    uint64_t state[2] = {ps_learnt_watermark(learnt, (uint32_t)stream), incarnation};
    struct mr_tensor tensors[2] = {
        mr_tensor_1d(MR_U64, 2, state),
        mr_tensor_1d(MR_U64, ps_learnt_bitmap_words(learnt, (uint32_t)stream), NULL)};
    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 2)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    ps_learnt_bitmap(learnt, (uint32_t)stream, tensors[1].data);
    mr_reply_end(ep, request->ref);
}

void ps_op_forget_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    if (!ps_check_open(&op) || !ps_check_tensor(&op, 0, MR_U64, 1, "batch ids")) {
        return;
    }
    for (uint32_t i = 0; i < op.tensors[0].dims[0]; i++) {
        struct ps_batch *batch = ps_batch_find(op.core->batches, ps_tensor_u64(&op.tensors[0], i));
        if (batch != NULL) {
            ps_batch_remove(op.core->batches, batch);
            op.core->counters.batches_forgotten++;
        }
    }
    mr_reply_status(ep, request->ref, MR_OK);
}
