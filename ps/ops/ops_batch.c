/* Batches by id: feed, lookup, forget. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "dataplane/wire/format/rows.h"
#include "dataplane/wire/base/plural.h"
#include "ps/ops/ops.h"

#define TABLES_MAX (MR_TENSORS_MAX / 3) /* of a feed: head, keys, offsets at least */
#define COPIES     4u

/* ---- feeding ---- */

struct feed {
    uint64_t batch_id;
    struct mr_plan plan;
    uint32_t table_count;
    bool read_only;
    bool insert;
    struct ps_batch *batch; /* NULL: the keys are still being checked */
    uint32_t at;            /* the table whose keys are checked or looked up */
    struct ps_copy copies[COPIES];
    struct ps_table_lookup rows;
    struct feed_table { /* last: only as many as there are are set */
        uint32_t samples, slots;
        struct ps_key_list list;
    } tables[TABLES_MAX];
};

static struct ps_batch_part shape_of(const struct feed *feed, uint32_t index)
{
    const struct feed_table *table = &feed->tables[index];
    const struct ps_key_list *list = &table->list;
    return (struct ps_batch_part){.feature = list->table->id,
                                  .samples = table->samples,
                                  .slots = table->slots,
                                  .dim = list->table->feature.dims[0],
                                  .key_count = list->in.key_count,
                                  .has_weights = list->in.weights != NULL,
                                  .has_divisors = list->in.divisors != NULL,
                                  .is_single = list->in.is_single};
}

/* Each core reduces what it has of a bag: where there are several, of this node or of its cluster, an average
 * takes divisors. */
static bool check_divisors(const struct ps_op *op, const struct ps_key_list *list)
{
    const struct ps_node *node = op->core->node;
    return (node->core_count == 1 && !node->is_member) || list->in.divisors != NULL ||
           !mr_pooling_averages(list->table->feature.pooling) ||
           ps_refuse(op, MR_INVALID_ARGUMENT, "table %s averages, and this node %s: its bags need divisors",
                     list->table->feature.name, node->is_member ? "is in a cluster" : "has several cores");
}

/* The shape of a table's bags, from its head and the number of offsets. */
static bool check_feed_shape(const struct ps_op *op, struct feed_table *table, uint32_t offsets_at)
{
    const struct mr_feature *f = &table->list.table->feature;
    uint32_t offset_count = op->tensors[offsets_at].dims[0];
    uint64_t bag_count = (uint64_t)table->samples * table->slots;
    if (offset_count == 0 || offset_count - 1 != bag_count) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "table %s: %u sample%s of %u slot%s need %" PRIu64 " offset%s, not %u", f->name,
                         table->samples, mr_plural(table->samples), table->slots, mr_plural(table->slots),
                         bag_count + 1, mr_plural(bag_count + 1), offset_count);
    }
    struct mr_tensor answer = mr_tensor_3d(MR_F32, table->samples, table->slots, f->dims[0], NULL);
    return ps_check_reply_bytes(op, &answer, 1);
}

static bool check_feed_table(const struct ps_op *op, struct feed *feed, uint32_t index, uint32_t *at)
{
    uint32_t head_at = *at, keys_at = *at + 1, offsets_at = *at + 2;
    struct feed_table *table = &feed->tables[index];
    struct ps_feature *f;
    if (!ps_check_vector(op, head_at, MR_U32, 4, "table, samples, slots, flags") ||
        (f = ps_check_table(op, ps_tensor_u32(&op->tensors[head_at], 0))) == NULL ||
        !ps_check_tensor(op, keys_at, MR_U64, 1, "keys") ||
        !ps_check_tensor(op, offsets_at, MR_U32, 1, "offsets"))
        return false;
    for (uint32_t i = 0; i < index; i++)
        if (feed->tables[i].list.table == f)
            return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s is named twice", f->feature.name);
    uint32_t flags = ps_tensor_u32(&op->tensors[head_at], 3);
    *table = (struct feed_table){.samples = ps_tensor_u32(&op->tensors[head_at], 1),
                                 .slots = ps_tensor_u32(&op->tensors[head_at], 2),
                                 .list.table = f};
    feed->read_only |= (flags & MR_FEED_READ_ONLY) != 0;
    *at = offsets_at + 1;
    return ps_check_flags(op, flags, MR_FEED_READ_ONLY | MR_BAG_WEIGHTS | MR_BAG_DIVISORS) &&
           check_feed_shape(op, table, offsets_at) &&
           ps_check_key_tensors(op, keys_at, offsets_at, &table->list) &&
           ps_check_bag_tensors(op, flags & ~(uint32_t)MR_FEED_READ_ONLY, at, &table->list) &&
           check_divisors(op, &table->list);
}

static bool check_feed(const struct ps_op *op, struct feed *feed)
{
    if (!ps_check_plan(op, "batch id", &feed->plan))
        return false;
    feed->batch_id = ps_tensor_u64(&op->tensors[0], 0);
    uint32_t at = 1;
    do {
        if (feed->table_count == TABLES_MAX)
            return ps_refuse(op, MR_TOO_LARGE, "a feed of more than %u tables", TABLES_MAX);
        if (!check_feed_table(op, feed, feed->table_count, &at))
            return false;
        feed->table_count++;
    } while (at < op->tensor_count);
    if (!feed->read_only && !ps_check_writable(op))
        return false;
    feed->insert = op->core->freeze == MR_FREEZE_OFF && !feed->read_only;
    return true;
}

static uint64_t feed_cost_bytes(const struct ps_op *op, const struct feed *feed)
{
    uint64_t cost_bytes = 0;
    for (uint32_t i = 0; i < feed->table_count; i++) {
        const struct ps_key_list *list = &feed->tables[i].list;
        cost_bytes += ps_table_lookup_cost_bytes(list->table->table, list->in.key_count, list->in.bag_count);
    }
    for (uint32_t i = 1; i < op->tensor_count; i++)
        cost_bytes += op->tensors[i].bytes; /* copied */
    return cost_bytes;
}

static void refuse_feed(const struct ps_op *op, uint64_t batch_id, enum mr_status status)
{
    const struct ps_config *config = op->core->node->config;
    switch (status) {
    case MR_BATCH_CACHE_FULL:
        op->core->counters.feeds_refused_full++;
        ps_refuse(op, status, "batch %" PRIu64 ": there is no room beside those that are kept, %u", batch_id,
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

static struct ps_copy copy_of(void *to, const void *from, uint64_t bytes)
{
    return (struct ps_copy){from, to, from == NULL ? 0 : bytes};
}

/* Table `at` of the batch: its keys and offsets are to be copied, its rows to be looked up. */
static void begin_part(const struct ps_op *op, struct feed *feed)
{
    struct ps_batch_part *part = &feed->batch->parts[feed->at];
    const struct ps_key_list *list = &feed->tables[feed->at].list;
    ps_set_now(op, list->table->table);
    uint64_t offsets_bytes = ((uint64_t)list->in.bag_count + 1) * sizeof(uint32_t);
    feed->copies[0] = copy_of(part->keys, list->in.keys, list->in.key_count * sizeof(uint64_t));
    feed->copies[1] = copy_of(part->offsets, list->in.offsets, offsets_bytes);
    feed->copies[2] = copy_of(part->weights, list->in.weights, list->in.key_count * sizeof(float));
    feed->copies[3] = copy_of(part->divisors, list->in.divisors, list->in.bag_count * sizeof(float));
    feed->rows = (struct ps_table_lookup){.in = list->in,
                                          .insert = feed->insert,
                                          .step = op->request->message->preamble.step,
                                          .out = part->values};
}

/* The keys are good: room for the batch, which nobody sees yet. */
static bool begin_batch(const struct ps_op *op, struct feed *feed)
{
    struct ps_batch_part shapes[TABLES_MAX];
    for (uint32_t i = 0; i < feed->table_count; i++)
        shapes[i] = shape_of(feed, i);
    enum mr_status status = ps_batch_prepare(op->core->batches, feed->batch_id, feed->read_only, shapes,
                                             feed->table_count, &feed->batch);
    if (status != MR_OK) {
        refuse_feed(op, feed->batch_id, status);
        return false;
    }
    feed->batch->epoch = ps_epoch_of(op);
    feed->at = 0;
    begin_part(op, feed);
    return true;
}

static enum ps_check check_feed_keys(const struct ps_op *op, struct feed *feed, uint64_t *budget_bytes)
{
    for (; feed->at < feed->table_count; feed->at++) {
        enum ps_check check = ps_check_key_list(op, &feed->tables[feed->at].list, budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check;
    }
    return begin_batch(op, feed) ? PS_CHECK_GOOD : PS_CHECK_REFUSED;
}

static bool gather(const struct ps_op *op, struct feed *feed, uint64_t *budget_bytes)
{
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_gather);
    struct ps_table *table = feed->tables[feed->at].list.table->table;
    const bool is_done = ps_table_lookup_step(table, &feed->rows, budget_bytes);
    dp_phase_leave(op->core->phases, before);
    return is_done;
}

static bool feed_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct feed *feed = state;
    if (feed->batch == NULL) {
        enum ps_check check = check_feed_keys(op, feed, &budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check == PS_CHECK_REFUSED;
    }
    while (budget_bytes > 0) {
        for (uint32_t i = 0; i < COPIES; i++)
            if (!ps_copy_step(&feed->copies[i], &budget_bytes))
                return false;
        if (!gather(op, feed, &budget_bytes))
            return false;
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
    if (feed->batch != NULL)
        ps_batch_remove(op->core->batches, feed->batch);
    return true;
}

static const struct ps_coop_task feed_job = {
    .step = feed_step, .drop = drop_feed, .state_bytes = sizeof(struct feed)};

void ps_op_feed_sample(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct feed feed;
    memset(&feed, 0, offsetof(struct feed, tables));
    if (ps_check_open(&op) && check_feed(&op, &feed) && ps_check_step(&op, !feed.read_only) &&
        ps_claim_stream(&op, mr_batch_stream(feed.batch_id), &feed.plan) &&
        !ps_defer(&op, feed_cost_bytes(&op, &feed)))
        ps_run(&op, &feed_job, &feed);
}

/* ---- looking up ---- */

static bool is_looked_up(const struct ps_batch *batch)
{
    for (uint32_t i = 0; i < batch->part_count; i++)
        if (!batch->parts[i].looked_up)
            return false;
    return true;
}

struct batch_lookup {
    struct ps_batch *batch;
    struct ps_batch_part *part;
    enum mr_dtype dtype; /* of the answer */
    uint8_t *out;
    float *scales; /* of i8 */
    uint32_t rows, rows_done;
};

static void end_lookup(const struct ps_op *op, struct batch_lookup *call)
{
    struct ps_core *core = op->core;
    struct ps_batch *batch = call->batch;
    call->part->looked_up = true;
    core->counters.batches_looked_up++;
    if (batch->read_only && is_looked_up(batch))
        ps_batch_remove(core->batches, batch);
    else if (batch->is_listed)
        ps_batch_touch(core->batches, batch, op->now_us);
    ps_batch_unpin(core->batches, batch);
}

static bool lookup_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct batch_lookup *call = state;
    uint32_t dim = call->part->dim, left = call->rows - call->rows_done;
    size_t out_bytes = (size_t)dim * mr_dtype_bytes(call->dtype);
    uint64_t bytes = budget_bytes < PS_COPY_BYTES_MAX ? budget_bytes : PS_COPY_BYTES_MAX;
    uint64_t room = bytes / (dim * sizeof(float)) + 1;
    uint32_t rows = left < room ? left : (uint32_t)room;
    mr_convert_from_f32(call->dtype, call->out + call->rows_done * out_bytes,
                        call->scales == NULL ? NULL : call->scales + call->rows_done,
                        call->part->values + (size_t)call->rows_done * dim, rows, dim);
    call->rows_done += rows;
    if (call->rows_done < call->rows) {
        ps_reply_advance(op, call->out + call->rows_done * out_bytes);
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

static const struct ps_coop_task lookup_job = {
    .step = lookup_step, .drop = drop_lookup, .state_bytes = sizeof(struct batch_lookup)};

static bool check_batch_lookup(const struct ps_op *op, struct batch_lookup *call)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    uint32_t flags = preamble->flags & ((1u << MR_LOOKUP_DTYPE_SHIFT) - 1);
    struct ps_feature *f;
    if (!ps_check_vector(op, 0, MR_U64, 1, "batch id") || (f = ps_check_table(op, preamble->table)) == NULL ||
        !ps_check_flags(op, flags, 0) || !ps_check_reply_dtype(op, &call->dtype) ||
        !ps_check_tensor_count(op, 1) ||
        (call->batch = ps_check_batch(op, ps_tensor_u64(&op->tensors[0], 0))) == NULL)
        return false;
    call->part = ps_batch_part_of(call->batch, f->id);
    return call->part != NULL ||
           ps_refuse(op, MR_UNKNOWN_TABLE, "batch %" PRIu64 " was fed without keys of table %s",
                     call->batch->id, f->feature.name);
}

void ps_op_lookup_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct batch_lookup call = {0};
    if (!ps_check_open(&op) || !check_batch_lookup(&op, &call))
        return;
    struct mr_tensor reply[MR_ROWS_TENSORS_MAX],
        shape = mr_tensor_3d(MR_F32, call.part->samples, call.part->slots, call.part->dim, NULL);
    uint32_t tensor_count = mr_rows_tensors(shape, call.dtype, reply);
    if (!ps_check_reply_bytes(&op, reply, tensor_count) || ps_defer(&op, shape.bytes) ||
        !ps_reply_begin(ep, request, reply, tensor_count))
        return;
    call.out = reply[0].data;
    call.scales = call.dtype == MR_I8 ? reply[1].data : NULL;
    call.rows = call.part->samples * call.part->slots;
    ps_batch_pin(call.batch);
    ps_run(&op, &lookup_job, &call);
}

/* ---- forgetting ---- */

void ps_op_forget_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    if (!ps_check_open(&op) || !ps_check_tensor(&op, 0, MR_U64, 1, "batch ids"))
        return;
    for (uint32_t i = 0; i < op.tensors[0].dims[0]; i++) {
        struct ps_batch *batch = ps_batch_find(op.core->batches, ps_tensor_u64(&op.tensors[0], i));
        if (batch != NULL) {
            ps_batch_remove(op.core->batches, batch);
            op.core->counters.batches_forgotten++;
        }
    }
    mr_reply_status(ep, request->ref, MR_OK);
}
