#include <assert.h>
#include <inttypes.h>
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
    struct ps_feature *tables[TABLES_MAX];
    struct ps_batch_part shapes[TABLES_MAX];
};

static bool check_feed_table(const struct ps_op *op, struct feed *feed, uint32_t index)
{
    uint32_t at = 1 + index * TENSORS_PER_TABLE;
    struct ps_feature *f;
    if (!ps_check_vector(op, at, MR_U32, 4, "table, samples, slots, flags") ||
        (f = ps_check_table(op, ps_tensor_u32(&op->tensors[at], 0))) == NULL ||
        !ps_check_tensor(op, at + 1, MR_U64, 1, "keys") ||
        !ps_check_tensor(op, at + 2, MR_U32, 1, "offsets")) {
        return false;
    }
    uint32_t samples = ps_tensor_u32(&op->tensors[at], 1), slots = ps_tensor_u32(&op->tensors[at], 2);
    uint32_t key_count = op->tensors[at + 1].dims[0], offset_count = op->tensors[at + 2].dims[0];
    uint64_t bag_count = (uint64_t)samples * slots;
    if (offset_count == 0 || offset_count - 1 != bag_count) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "table %s: %u samples of %u slots need %" PRIu64 " offsets, not %u", f->feature.name,
                         samples, slots, bag_count + 1, offset_count);
    }
    for (uint32_t i = 0; i < index; i++) {
        if (feed->tables[i] == f) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s is named twice", f->feature.name);
        }
    }
    struct mr_tensor answer = mr_tensor_3d(MR_F32, samples, slots, f->feature.dims[0], NULL);
    if (!ps_check_offsets(op, op->tensors[at + 2].data, bag_count, key_count) ||
        !ps_check_reply_bytes(op, &answer, 1) || !ps_check_keys(op, f, op->tensors[at + 1].data, key_count)) {
        return false;
    }
    feed->tables[index] = f;
    feed->shapes[index] = (struct ps_batch_part){.feature = f->id,
                                                 .samples = samples,
                                                 .slots = slots,
                                                 .dim = f->feature.dims[0],
                                                 .key_count = key_count};
    feed->read_only |= (ps_tensor_u32(&op->tensors[at], 3) & MR_FEED_READ_ONLY) != 0;
    return true;
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

void ps_op_feed_sample(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct feed feed = {0};
    struct ps_batch *batch;
    if (!ps_check_open(&op) || !check_feed(&op, &feed)) {
        return;
    }
    enum mr_status status = ps_batch_add(op.core->batches, feed.batch_id, feed.read_only, feed.shapes,
                                         feed.table_count, request->now_us, &batch);
    if (status != MR_OK) {
        refuse_feed(&op, feed.batch_id, status);
        return;
    }
    for (uint32_t i = 0; i < feed.table_count; i++) {
        struct ps_batch_part *part = &batch->parts[i];
        const struct mr_tensor *keys = &op.tensors[1 + i * TENSORS_PER_TABLE + 1];
        const struct mr_tensor *offsets = &op.tensors[1 + i * TENSORS_PER_TABLE + 2];
        assert(feed.tables[i] != NULL);
        memcpy(part->keys, keys->data, keys->bytes);
        memcpy(part->offsets, offsets->data, offsets->bytes);
        ps_table_lookup_bags(feed.tables[i]->table, part->keys, part->offsets, part->samples * part->slots,
                             feed.insert, part->values);
    }
    op.core->counters.batches_fed++;
    mr_reply_status(ep, request->ref, MR_OK);
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

void ps_op_lookup_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_core *core = op.core;
    struct ps_batch *batch;
    struct ps_feature *f;
    if (!ps_check_open(&op) || !ps_check_vector(&op, 0, MR_U64, 1, "batch id") ||
        (f = ps_check_table(&op, request->message->preamble.table)) == NULL ||
        (batch = ps_check_batch(&op, ps_tensor_u64(&op.tensors[0], 0))) == NULL) {
        return;
    }
    struct ps_batch_part *part = ps_batch_part_of(batch, f->id);
    if (part == NULL) {
        ps_refuse(&op, MR_UNKNOWN_TABLE, "batch %" PRIu64 " was fed without keys of table %s", batch->id,
                  f->feature.name);
        return;
    }
    struct mr_tensor reply = mr_tensor_3d(MR_F32, part->samples, part->slots, part->dim, part->values);
    if (!mr_reply_begin(ep, request->ref, MR_OK, &reply, 1)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    mr_reply_end(ep, request->ref);
    part->looked_up = true;
    core->counters.batches_looked_up++;
    if (batch->read_only && is_looked_up(batch)) {
        ps_batch_remove(core->batches, batch);
    } else {
        ps_batch_touch(core->batches, batch, request->now_us);
    }
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
