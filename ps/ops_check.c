#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include "ps/ops.h"

#define REFUSAL_BYTES 400

struct ps_op ps_op_of(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    return (struct ps_op){.core = core_app,
                          .ep = ep,
                          .request = request,
                          .tensors = request->message->tensors,
                          .tensor_count = request->message->preamble.tensor_count};
}

bool ps_refuse(const struct ps_op *op, enum mr_status status, const char *format, ...)
{
    char text[REFUSAL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    op->core->counters.requests_refused++;
    mr_reply_error(op->ep, op->request->ref, status, "%s", text);
    return false;
}

void ps_hold_back(const struct ps_op *op, uint64_t *counter)
{
    ++*counter;
    mr_reply_busy(op->ep, op->request->ref);
}

bool ps_check_open(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    if (core->gate == PS_GATE_OPEN) {
        return true;
    }
    if (core->gate == PS_GATE_BROKEN) {
        return ps_refuse(op, core->gate_status, "%s", core->gate_text);
    }
    ps_hold_back(op, &core->counters.requests_held_back);
    return false;
}

uint64_t ps_tensor_u64(const struct mr_tensor *t, uint32_t index)
{
    return ((const uint64_t *)t->data)[index];
}

uint32_t ps_tensor_u32(const struct mr_tensor *t, uint32_t index)
{
    return ((const uint32_t *)t->data)[index];
}

bool ps_check_tensor(const struct ps_op *op, uint32_t index, enum mr_dtype dtype, uint32_t rank,
                     const char *name)
{
    if (index >= op->tensor_count) {
        return ps_refuse(op, MR_WRONG_SHAPE, "%s is missing: the call has %u tensors", name,
                         op->tensor_count);
    }
    const struct mr_tensor *t = &op->tensors[index];
    if (t->dtype != dtype) {
        return ps_refuse(op, MR_WRONG_DTYPE, "%s is %s, not %s", name, mr_dtype_name(t->dtype),
                         mr_dtype_name(dtype));
    }
    if (t->rank != rank) {
        return ps_refuse(op, MR_WRONG_SHAPE, "%s has %u dimensions, not %u", name, t->rank, rank);
    }
    return true;
}

bool ps_check_vector(const struct ps_op *op, uint32_t index, enum mr_dtype dtype, uint32_t elements,
                     const char *name)
{
    if (!ps_check_tensor(op, index, dtype, 1, name)) {
        return false;
    }
    if (op->tensors[index].dims[0] != elements) {
        return ps_refuse(op, MR_WRONG_SHAPE, "%s has %u elements, not %u", name, op->tensors[index].dims[0],
                         elements);
    }
    return true;
}

struct ps_feature *ps_check_table(const struct ps_op *op, uint32_t id)
{
    struct ps_feature *f = ps_core_feature(op->core, id);
    if (f == NULL || f->table == NULL) {
        ps_refuse(op, MR_UNKNOWN_TABLE,
                  f == NULL ? "no table has number %u" : "number %u is a variable, not a table", id);
        return NULL;
    }
    return f;
}

struct ps_feature *ps_check_variable(const struct ps_op *op, uint32_t id)
{
    struct ps_feature *f = ps_core_feature(op->core, id);
    if (f == NULL || f->table != NULL) {
        ps_refuse(op, MR_UNKNOWN_VARIABLE,
                  f == NULL ? "no variable has number %u" : "number %u is a table, not a variable", id);
        return NULL;
    }
    if (f->variable == NULL) {
        ps_refuse(op, MR_INVALID_ARGUMENT, "variable %s lives on core %u, not on core %u", f->feature.name,
                  f->owner_core, op->core->index);
        return NULL;
    }
    return f;
}

struct ps_feature *ps_check_feature(const struct ps_op *op, uint32_t id)
{
    const struct ps_feature *f = ps_core_feature(op->core, id);
    return f != NULL && f->table == NULL ? ps_check_variable(op, id) : ps_check_table(op, id);
}

bool ps_check_keys(const struct ps_op *op, const struct ps_feature *table, const uint64_t *keys,
                   uint32_t key_count)
{
    const struct ps_node *node = op->core->node;
    if (node->core_count == 1) {
        return true;
    }
    for (uint32_t i = 0; i < key_count; i++) {
        uint32_t partition = mr_partition_of(mr_key_hash(keys[i], table->feature.seed));
        if (node->partition_core[partition] != op->core->index) {
            return ps_refuse(op, MR_INVALID_ARGUMENT,
                             "table %s: key %" PRIu64
                             " belongs to core %u, not to core %u: read the map (node_info) again",
                             table->feature.name, keys[i], node->partition_core[partition], op->core->index);
        }
    }
    return true;
}

bool ps_check_offsets(const struct ps_op *op, const uint32_t *offsets, uint64_t bag_count, uint32_t key_count)
{
    if (offsets[0] != 0 || offsets[bag_count] != key_count) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "offsets go from %u to %u, not from 0 to the %u keys",
                         offsets[0], offsets[bag_count], key_count);
    }
    for (uint64_t i = 0; i < bag_count; i++) {
        if (offsets[i] > offsets[i + 1]) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "offsets fall from %u to %u behind bag %" PRIu64,
                             offsets[i], offsets[i + 1], i);
        }
    }
    return true;
}

bool ps_check_reply_bytes(const struct ps_op *op, const struct mr_tensor *tensors, uint32_t tensor_count)
{
    uint32_t bytes = mr_message_bytes(tensors, tensor_count);
    return (bytes > 0 && bytes <= op->core->node->message_bytes_max) ||
           ps_refuse(op, MR_TOO_LARGE,
                     "the answer would be larger than the %u bytes a message may have: ask for less",
                     op->core->node->message_bytes_max);
}

struct ps_batch *ps_check_batch(const struct ps_op *op, uint64_t id)
{
    struct ps_batch *batch = ps_batch_find(op->core->batches, id);
    if (batch == NULL && ps_batch_expired(op->core->batches, id)) {
        ps_refuse(op, MR_BATCH_EXPIRED, "batch %" PRIu64 " (number %" PRIu64 " of stream %u) expired", id,
                  mr_batch_sequence(id), mr_batch_stream(id));
    } else if (batch == NULL) {
        ps_refuse(op, MR_UNKNOWN_BATCH, "batch %" PRIu64 " (number %" PRIu64 " of stream %u) is not here", id,
                  mr_batch_sequence(id), mr_batch_stream(id));
    }
    return batch;
}

bool ps_check_save_room(const struct ps_op *op, uint64_t need_bytes)
{
    if (ps_save_has_room(op->core, need_bytes, op->request->now_us)) {
        return true;
    }
    ps_hold_back(op, &op->core->counters.pushes_held_back);
    return false;
}

bool ps_check_not_frozen(const struct ps_op *op)
{
    return op->core->freeze != MR_FREEZE_ALL || ps_refuse(op, MR_FROZEN, "the node is frozen (level all)");
}

void ps_note_push(const struct ps_op *op)
{
    struct ps_core_counters *counters = &op->core->counters;
    uint64_t step = op->request->message->preamble.step;
    counters->pushes_applied++;
    counters->last_step = step > counters->last_step ? step : counters->last_step;
    ps_clients_note(op->core->clients, op->request->client_uuid, step);
}
