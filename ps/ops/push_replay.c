#include "ps/ops/push_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/format/capability.h"
#include "ps/core/push_log.h"
#include "ps/ops/ops.h"

#define REPLAY_PARTS_MAX 128u /* tables of a batch */

static enum mr_status replay_refuse(char *text, const char *why)
{
    snprintf(text, PS_CORE_TEXT_BYTES, "%.250s", why);
    return MR_CHECKPOINT_CORRUPT;
}

/* A request as its handler sees it, from nobody. */
static struct mr_request request_of(const struct ps_log_record *record, const struct mr_message *message)
{
    return (struct mr_request){.ref = {.session_index = UINT32_MAX},
                               .message = message,
                               .client_uuid = record->uuid,
                               .role = MR_ROLE_TRAINER,
                               .capabilities = MR_CAPABILITIES,
                               .now_us = dp_now_us(),
                               .deadline_us = UINT64_MAX};
}

/* Returns where the arrays of the batch begin; NULL: the counts are not those of the keys. */
static const uint8_t *read_left_out(const struct ps_log_record *record, uint8_t *at, struct ps_replay *replay)
{
    uint64_t *keys = (uint64_t *)(void *)at, sum = 0;
    if (record->left_out_count == 0)
        return at;
    replay->left_out = keys;
    replay->part_left_out = (const uint32_t *)(const void *)(keys + record->left_out_count);
    for (uint32_t i = 0; i < record->part_count; i++) {
        if (replay->part_left_out[i] > record->left_out_count - sum)
            return NULL;
        qsort(keys + sum, replay->part_left_out[i], sizeof(*keys), mr_compare_u64);
        sum += replay->part_left_out[i];
    }
    return sum == record->left_out_count ? (const uint8_t *)(replay->part_left_out) +
                                               ps_log_padded(record->part_count * sizeof(uint32_t), 8)
                                         : NULL;
}

/* ---- batches: they are fed once more, without their rows ---- */

static const uint8_t *batch_take(void *to, const uint8_t *at, uint64_t bytes)
{
    if (bytes > 0)
        memcpy(to, at, bytes);
    return at + ps_log_padded(bytes, 8);
}

static bool read_shapes(struct ps_core *core, const struct ps_log_record *record, const uint8_t *at,
                        struct ps_batch_part *shapes)
{
    for (uint32_t i = 0; i < record->batch_parts; i++) {
        struct ps_log_batch_part part;
        memcpy(&part, at, sizeof(part));
        const struct ps_feature *f = ps_core_feature(core, part.feature);
        if (f == NULL || f->table == NULL)
            return false;
        shapes[i] = (struct ps_batch_part){.feature = part.feature,
                                           .samples = part.samples,
                                           .slots = part.slots,
                                           .dim = f->feature.dims[0],
                                           .key_count = part.key_count,
                                           .has_weights = part.has_weights,
                                           .has_divisors = part.has_divisors,
                                           .is_single = part.is_single};
        at += ps_log_batch_part_space(&part);
    }
    return true;
}

/* Offsets rise from 0 to the number of keys: nobody checks them again. */
static bool offsets_are_good(const struct ps_batch_part *part)
{
    const uint32_t bags = part->samples * part->slots;
    if (part->offsets[0] != 0 || part->offsets[bags] != part->key_count ||
        (part->is_single && bags != part->key_count))
        return false;
    for (uint32_t i = 0; i < bags; i++)
        if (part->offsets[i] > part->offsets[i + 1])
            return false;
    return true;
}

static bool fill_batch(struct ps_batch *batch, const uint8_t *at)
{
    for (uint32_t i = 0; i < batch->part_count; i++) {
        struct ps_batch_part *p = &batch->parts[i];
        const uint64_t bags = (uint64_t)p->samples * p->slots;
        at += sizeof(struct ps_log_batch_part);
        at = batch_take(p->keys, at, p->key_count * sizeof(*p->keys));
        at = batch_take(p->offsets, at, (bags + 1) * sizeof(*p->offsets));
        at = batch_take(p->weights, at, p->has_weights ? p->key_count * sizeof(*p->weights) : 0);
        at = batch_take(p->divisors, at, p->has_divisors ? bags * sizeof(*p->divisors) : 0);
        if (!offsets_are_good(p))
            return false;
    }
    return true;
}

static enum mr_status feed_again(struct ps_core *core, const struct ps_log_record *record, const uint8_t *at,
                                 const struct mr_message *message, char *text)
{
    struct ps_batch_part shapes[REPLAY_PARTS_MAX];
    struct ps_batch *batch;
    const struct mr_tensor *id = &message->tensors[0];
    if (message->preamble.tensor_count == 0 || id->dtype != MR_U64 || id->rank != 1 || id->dims[0] != 1 ||
        record->batch_parts > REPLAY_PARTS_MAX || !read_shapes(core, record, at, shapes))
        return replay_refuse(text, "a batch of the log has tables that are not there");
    const enum mr_status status = ps_batch_prepare(core->batches, *(const uint64_t *)id->data, false, shapes,
                                                   record->batch_parts, &batch);
    if (status != MR_OK) {
        snprintf(text, PS_CORE_TEXT_BYTES, "a batch of the log does not fit: raise batches.memory_mib");
        return MR_OUT_OF_MEMORY;
    }
    if (!fill_batch(batch, at)) {
        ps_batch_remove(core->batches, batch);
        return replay_refuse(text, "a batch of the log has offsets that no node lets pass");
    }
    ps_batch_publish(core->batches, batch, dp_now_us());
    return MR_OK;
}

/* ---- records ---- */

static ps_op_handler *handler_of(uint32_t op)
{
    switch (op) {
    case MR_OP_PUSH_GRAD:
        return ps_op_push_grad;
    case MR_OP_PUSH_GRAD_BATCH:
        return ps_op_push_grad_batch;
    case MR_OP_VARIABLE_PUSH:
        return ps_op_variable_push;
    default:
        return NULL;
    }
}

static enum mr_status run_push(struct ps_core *core, const struct mr_request *request,
                               struct ps_replay *replay, char *text)
{
    core->replay = replay;
    handler_of(request->message->preamble.op)(core, core->ep, request);
    core->replay = NULL;
    if (replay->lacks_memory) {
        snprintf(text, PS_CORE_TEXT_BYTES,
                 "no memory for rows of the log, which were there before: raise memory.limit_mib");
        return MR_OUT_OF_MEMORY;
    }
    if (replay->is_done)
        return MR_OK;
    return replay_refuse(text, replay->why[0] != '\0' ? replay->why : "there is no room for its record");
}

static enum mr_status replay_push(struct ps_core *core, const struct ps_log_record *record, uint8_t *content,
                                  char *text)
{
    struct mr_message message;
    struct ps_replay replay = {.is_done = false};
    if (record->message_bytes > UINT32_MAX ||
        !mr_message_parse(content, (uint32_t)record->message_bytes, content, &message) ||
        handler_of(message.preamble.op) == NULL)
        return replay_refuse(text, "a push of the log is no push");
    const uint8_t *batch =
        read_left_out(record, content + ps_log_padded(record->message_bytes, PS_LOG_RECORD_ALIGN), &replay);
    if (batch == NULL)
        return replay_refuse(text, "a push of the log leaves out more keys than it names");
    if (message.preamble.op == MR_OP_PUSH_GRAD_BATCH) {
        const enum mr_status status = feed_again(core, record, batch, &message, text);
        if (status != MR_OK)
            return status;
    }
    const struct mr_request request = request_of(record, &message);
    return run_push(core, &request, &replay, text);
}

/* As a push without keys, of which the client says that it has none under these numbers. */
static enum mr_status replay_numbers(struct ps_core *core, const struct ps_log_record *record,
                                     const uint8_t *content, char *text)
{
    uint64_t words[2];
    struct ps_replay replay = {.is_done = false};
    memcpy(words, content, sizeof(words));
    struct mr_message message = {.preamble = {.op = MR_OP_PUSH_GRAD, .tensor_count = 1, .sequence = words[0]},
                                 .tensors = {mr_tensor_1d(MR_U64, 1, &words[1])}};
    const struct mr_request request = request_of(record, &message);
    return run_push(core, &request, &replay, text);
}

static enum mr_status replay_evicted(struct ps_core *core, const struct ps_log_record *record,
                                     const uint8_t *content, char *text)
{
    const struct ps_feature *f = ps_core_feature(core, record->feature);
    if (f == NULL || f->table == NULL)
        return replay_refuse(text, "rows of the log were evicted from a table that is not there");
    for (uint64_t i = 0; i < record->bytes / sizeof(uint64_t); i++) {
        uint64_t key;
        memcpy(&key, content + i * sizeof(key), sizeof(key));
        ps_table_replay_eviction(f->table, key);
    }
    return MR_OK;
}

static enum mr_status replay_plan(struct ps_core *core, const struct ps_log_record *record,
                                  const uint8_t *content, char *text)
{
    struct {
        uint64_t stream;
        struct mr_plan plan;
    } words;
    const struct ps_stream_user user = {record->uuid, 0};
    static_assert(sizeof(words) == sizeof(uint64_t) + sizeof(struct mr_plan), "as it is logged");
    memcpy(&words, content, sizeof(words));
    if (words.stream >= PS_STREAMS_MAX)
        return replay_refuse(text, "a plan of the log is of no stream");
    ps_begin_stream(core, (uint32_t)words.stream);
    if (ps_applied_batches_claim(core->applied, (uint32_t)words.stream, &words.plan, &user) == MR_OK)
        return MR_OK;
    return replay_refuse(text, "a stream of the log has the batches of another plan");
}

static enum mr_status replay_forget(struct ps_core *core, const struct ps_log_record *record,
                                    const uint8_t *content)
{
    for (uint64_t i = 0; i < record->bytes / sizeof(uint64_t); i++) {
        uint64_t stream;
        memcpy(&stream, content + i * sizeof(stream), sizeof(stream));
        if (stream >= PS_STREAMS_MAX)
            continue;
        ps_applied_batches_forget(core->applied, (uint32_t)stream);
        ps_partials_forget(&core->partials, (uint32_t)stream);
    }
    return MR_OK;
}

static enum mr_status replay_feature(struct ps_core *core, const struct ps_log_record *record,
                                     const uint8_t *content, char *text)
{
    struct mr_feature feature;
    struct ps_feature *f = ps_core_feature(core, record->feature);
    if (record->feature == 0 || record->feature > MR_FEATURE_ID_MAX)
        return replay_refuse(text, "a table of the log has no number");
    if (record->kind == PS_LOG_DROP) {
        ps_core_remove_feature(core, record->feature);
        return MR_OK;
    }
    memcpy(&feature, content, sizeof(feature));
    if (mr_feature_check(&feature) != NULL)
        return replay_refuse(text, "a table of the log has options that no node takes");
    if (record->kind == PS_LOG_CREATE)
        return f != NULL ? MR_OK : ps_core_add_feature(core, record->feature, &feature, text);
    if (f == NULL || f->feature.kind != feature.kind)
        return replay_refuse(text, "a table of the log was altered that is not there");
    ps_feature_alter(f, &feature);
    return MR_OK;
}

enum mr_status ps_replay_record(struct ps_core *core, const struct ps_log_record *record, uint8_t *content,
                                char *text)
{
    core->now_s = (uint32_t)(record->clock_us / 1000000);
    if (record->step != core->step_clock.step)
        ps_core_set_step(core, record->step);
    core->log_counters.records_replayed++;
    switch (record->kind) {
    case PS_LOG_PUSH:
        return replay_push(core, record, content, text);
    case PS_LOG_NUMBERS:
        return replay_numbers(core, record, content, text);
    case PS_LOG_EVICTED:
        return replay_evicted(core, record, content, text);
    case PS_LOG_PLAN:
        return replay_plan(core, record, content, text);
    case PS_LOG_FORGET:
        return replay_forget(core, record, content);
    default:
        return replay_feature(core, record, content, text);
    }
}
