#include "ps/core/push_log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "ps/core/core.h"

#define EVICTED_MAX 120u /* keys in a record */
#define PUSH_PARTS  (MR_TENSORS_MAX / 2)

struct ps_push_log {
    struct ps_log_writer *writer;
    uint64_t *left_out; /* of the push that is applied */
    uint64_t left_out_max;
    uint32_t left_out_count;
    uint32_t part_left_out[PUSH_PARTS];
    struct {
        uint32_t feature, count;
        uint64_t keys[EVICTED_MAX];
    } evicted; /* not appended yet */
};

/* ---- records ---- */

static struct ps_log_record record_of(const struct ps_core *core, enum ps_log_kind kind, uint64_t bytes)
{
    return (struct ps_log_record){.kind = kind,
                                  .bytes = bytes,
                                  .clock_us = (uint64_t)core->now_s * 1000000,
                                  .step = core->step_clock.step};
}

static void evicted_append(struct ps_core *core)
{
    struct ps_push_log *log = core->log;
    if (log->evicted.count == 0)
        return;
    struct ps_log_record record =
        record_of(core, PS_LOG_EVICTED, log->evicted.count * sizeof(log->evicted.keys[0]));
    record.feature = log->evicted.feature;
    memcpy(ps_log_writer_append(log->writer, &record), log->evicted.keys, record.bytes);
    log->evicted.count = 0;
}

static void feature_evicted(void *self, uint64_t key)
{
    const struct ps_feature *f = self;
    struct ps_push_log *log = f->core->log;
    if (log == NULL)
        return;
    if (log->evicted.feature != f->id || log->evicted.count == EVICTED_MAX)
        evicted_append(f->core);
    log->evicted.feature = f->id;
    log->evicted.keys[log->evicted.count++] = key;
}

static bool feature_may_evict(void *self)
{
    const struct ps_feature *f = self;
    const struct ps_push_log *log = f->core->log;
    return log == NULL || ps_log_writer_has_room(log->writer, sizeof(log->evicted.keys));
}

void ps_push_log_watch(struct ps_feature *f)
{
    const struct ps_eviction_watch watch = {feature_may_evict, feature_evicted, f};
    ps_table_watch_evictions(f->table, &watch);
}

/* A record of these bytes, behind the evictions that precede it. */
static uint8_t *log_append(struct ps_core *core, const struct ps_log_record *record)
{
    evicted_append(core);
    return ps_log_writer_append(core->log->writer, record);
}

static void append_bytes(struct ps_core *core, const struct ps_log_record *record, const void *bytes)
{
    uint8_t *to = log_append(core, record);
    if (record->bytes > 0)
        memcpy(to, bytes, record->bytes);
}

/* ---- pushes ---- */

static struct ps_log_batch_part part_of(const struct ps_batch_part *part)
{
    return (struct ps_log_batch_part){.feature = part->feature,
                                      .samples = part->samples,
                                      .slots = part->slots,
                                      .key_count = part->key_count,
                                      .has_weights = part->weights != NULL,
                                      .has_divisors = part->divisors != NULL,
                                      .is_single = part->is_single};
}

static uint64_t batch_bytes(const struct ps_batch *batch)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; batch != NULL && i < batch->part_count; i++) {
        const struct ps_log_batch_part part = part_of(&batch->parts[i]);
        bytes += ps_log_batch_part_space(&part);
    }
    return bytes;
}

static uint64_t message_bytes(const struct ps_op *op)
{
    return mr_message_bytes(op->tensors, op->tensor_count);
}

static uint64_t push_bytes(uint64_t message, uint64_t batch, uint64_t keys, uint32_t parts)
{
    return ps_log_padded(message, PS_LOG_RECORD_ALIGN) + batch +
           (keys > 0 ? keys * sizeof(uint64_t) + ps_log_padded(parts * sizeof(uint32_t), 8) : 0);
}

static uint8_t *record_put(uint8_t *to, const void *from, uint64_t bytes)
{
    const uint64_t padded = ps_log_padded(bytes, 8);
    if (bytes > 0)
        memcpy(to, from, bytes);
    memset(to + bytes, 0, padded - bytes);
    return to + padded;
}

static uint8_t *record_put_batch(uint8_t *to, const struct ps_batch *batch)
{
    for (uint32_t i = 0; batch != NULL && i < batch->part_count; i++) {
        const struct ps_batch_part *p = &batch->parts[i];
        const struct ps_log_batch_part part = part_of(p);
        const uint64_t bags = (uint64_t)p->samples * p->slots;
        to = record_put(to, &part, sizeof(part));
        to = record_put(to, p->keys, p->key_count * sizeof(*p->keys));
        to = record_put(to, p->offsets, (bags + 1) * sizeof(*p->offsets));
        to = record_put(to, p->weights, part.has_weights ? p->key_count * sizeof(*p->weights) : 0);
        to = record_put(to, p->divisors, part.has_divisors ? bags * sizeof(*p->divisors) : 0);
    }
    return to;
}

static void record_put_message(uint8_t *to, const struct ps_op *op, uint64_t bytes)
{
    struct mr_tensor tensors[MR_TENSORS_MAX];
    memcpy(tensors, op->tensors, op->tensor_count * sizeof(*tensors));
    mr_message_layout(to, &op->request->message->preamble, tensors, op->tensor_count);
    memset(to + bytes, 0, ps_log_padded(bytes, PS_LOG_RECORD_ALIGN) - bytes);
}

void ps_push_log_push(const struct ps_op *op, const struct ps_batch *batch, uint32_t part_count)
{
    struct ps_push_log *log = op->core->log;
    if (log == NULL)
        return;
    const uint64_t message = message_bytes(op);
    struct ps_log_record record = record_of(
        op->core, PS_LOG_PUSH, push_bytes(message, batch_bytes(batch), log->left_out_count, part_count));
    memcpy(record.uuid, op->request->client_uuid, sizeof(record.uuid));
    record.message_bytes = message;
    record.left_out_count = log->left_out_count;
    record.part_count = (uint16_t)part_count;
    record.batch_parts = (uint16_t)(batch != NULL ? batch->part_count : 0);
    uint8_t *to = log_append(op->core, &record);
    record_put_message(to, op, message);
    to += ps_log_padded(message, PS_LOG_RECORD_ALIGN);
    if (log->left_out_count > 0) {
        to = record_put(to, log->left_out, log->left_out_count * sizeof(*log->left_out));
        to = record_put(to, log->part_left_out, part_count * sizeof(*log->part_left_out));
    }
    record_put_batch(to, batch);
}

uint64_t *ps_push_log_left_out(struct ps_core *core)
{
    return core->log != NULL ? core->log->left_out + core->log->left_out_count : NULL;
}

void ps_push_log_leave_out(struct ps_core *core, uint32_t part, uint32_t count)
{
    if (core->log == NULL)
        return;
    core->log->part_left_out[part] = count;
    core->log->left_out_count += count;
}

/* ---- other records ---- */

void ps_push_log_numbers(const struct ps_op *op, uint64_t from)
{
    const uint64_t words[2] = {op->request->message->preamble.sequence, from};
    if (op->core->log == NULL || words[0] == 0)
        return;
    struct ps_log_record record = record_of(op->core, PS_LOG_NUMBERS, sizeof(words));
    memcpy(record.uuid, op->request->client_uuid, sizeof(record.uuid));
    append_bytes(op->core, &record, words);
}

void ps_push_log_plan(struct ps_core *core, uint32_t stream, const struct mr_plan *plan)
{
    uint64_t words[1 + MR_PLAN_WORDS] = {stream};
    if (core->log == NULL)
        return;
    memcpy(words + 1, plan, sizeof(*plan));
    const struct ps_log_record record = record_of(core, PS_LOG_PLAN, sizeof(words));
    append_bytes(core, &record, words);
}

void ps_push_log_forget(struct ps_core *core, const uint64_t *streams, uint32_t count)
{
    if (core->log == NULL || count == 0)
        return;
    const struct ps_log_record record = record_of(core, PS_LOG_FORGET, count * sizeof(*streams));
    append_bytes(core, &record, streams);
}

void ps_push_log_feature(struct ps_core *core, enum ps_log_kind kind, uint32_t id,
                         const struct mr_feature *feature)
{
    if (core->log == NULL)
        return;
    struct ps_log_record record = record_of(core, kind, feature != NULL ? sizeof(*feature) : 0);
    record.feature = id;
    append_bytes(core, &record, feature);
}

/* ---- before it ---- */

static bool is_push(uint32_t op)
{
    return op == MR_OP_PUSH_GRAD || op == MR_OP_PUSH_GRAD_BATCH || op == MR_OP_VARIABLE_PUSH;
}

bool ps_push_log_defers(const struct ps_op *op)
{
    const struct ps_coop_tasks *tasks = &op->core->coop_tasks;
    return op->core->log != NULL && !ps_is_deferred(op->core, op->request) && tasks->running != NULL &&
           is_push(tasks->running->message->preamble.op) && ps_defer(op, UINT64_MAX);
}

static bool hold_back(const struct ps_op *op)
{
    ps_hold_back(op, &op->core->log_counters.pushes_held_back);
    return false;
}

bool ps_push_log_has_room(const struct ps_core *core, uint64_t content_bytes)
{
    return core->log == NULL ||
           (ps_push_log_error(core) == 0 && ps_log_writer_has_room(core->log->writer, content_bytes));
}

bool ps_push_log_keep(const struct ps_op *op, uint64_t content_bytes)
{
    return ps_push_log_has_room(op->core, content_bytes) ? ps_push_answer_keep(op) : hold_back(op);
}

bool ps_push_log_promise(const struct ps_op *op, const struct ps_batch *batch, uint64_t keys)
{
    struct ps_push_log *log = op->core->log;
    if (log == NULL)
        return ps_push_answer_keep(op);
    log->left_out_count = 0;
    memset(log->part_left_out, 0, sizeof(log->part_left_out));
    if (keys > log->left_out_max) {
        uint64_t *grown = realloc(log->left_out, keys * sizeof(*grown));
        if (grown == NULL)
            return hold_back(op);
        log->left_out = grown;
        log->left_out_max = keys;
    }
    if (!ps_log_writer_promise(log->writer,
                               push_bytes(message_bytes(op), batch_bytes(batch), keys, PUSH_PARTS)))
        return hold_back(op);
    return ps_push_answer_keep(op);
}

/* ---- answers ---- */

/* Up to which number all pushes of the stream will be durable when the answer goes. */
static void answer_set_durable(const struct ps_op *op)
{
    const uint64_t sequence = op->request->message->preamble.sequence;
    if (sequence == 0)
        return;
    const uint32_t stream = mr_push_stream_id(sequence);
    const uint32_t used =
        stream != 0 ? stream : mr_push_stream_of_core(op->core->node->core_count, op->core->index);
    const uint64_t floor = ps_pushes_floor(op->core->pushes, op->request->client_uuid, used);
    mr_reply_set_sequence(op->ep, op->request->ref, mr_push_sequence(stream, floor));
}

uint64_t ps_push_log_answers(const struct ps_op *op)
{
    answer_set_durable(op);
    return ps_push_log_position(op->core);
}

uint64_t ps_push_log_poll(struct ps_core *core, uint64_t now_us)
{
    struct ps_push_log *log = core->log;
    evicted_append(core);
    const int error = ps_push_log_error(core);
    const uint64_t due_us = ps_log_writer_poll(log->writer, now_us);
    if (ps_push_log_error(core) != error)
        ps_node_wake_control(core->node); /* which says so */
    ps_push_answers_send(core);
    return due_us;
}

uint64_t ps_push_log_position(struct ps_core *core)
{
    evicted_append(core);
    return ps_log_writer_position(core->log->writer);
}

bool ps_push_log_is_durable(const struct ps_core *core, uint64_t position)
{
    return ps_log_writer_durable(core->log->writer) >= position;
}

int ps_push_log_error(const struct ps_core *core)
{
    return ps_log_writer_error(core->log->writer);
}

/* ---- life ---- */

enum mr_status ps_push_log_begin(struct ps_core *core, struct ps_log_writer *writer,
                                 const struct ps_log_file *file)
{
    struct ps_push_log *log = calloc(1, sizeof(*log));
    if (log == NULL || ps_push_answers_make(core) != MR_OK) {
        free(log);
        return MR_NO_MEMORY;
    }
    log->writer = writer;
    ps_log_writer_switch(writer, file);
    ps_log_writer_notify(writer, dp_core_bell(core->dp_core));
    core->log = log;
    return MR_OK;
}

void ps_push_log_switch(struct ps_core *core, const struct ps_log_file *file)
{
    evicted_append(core);
    ps_log_writer_switch(core->log->writer, file);
}

void ps_push_log_covered(const struct ps_core *core)
{
    ps_log_writer_covered(core->log->writer);
}

bool ps_push_log_can_switch(const struct ps_core *core)
{
    return ps_log_writer_can_switch(core->log->writer);
}

void ps_push_log_end(struct ps_core *core)
{
    struct ps_push_log *log = core->log;
    if (log == NULL)
        return;
    evicted_append(core);
    ps_log_writer_destroy(log->writer);
    free(log->left_out);
    free(log);
    core->log = NULL;
}
