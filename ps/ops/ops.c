/* Which handler serves which operation, and what handlers check before they change anything: the node, the
 * step, tensors, keys, bags and rows. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/bag.h"
#include "dataplane/wire/format/rows.h"
#include "ps/core/push_log.h"
#include "ps/ops/ops.h"

#define REFUSAL_BYTES 400

#define HANDLER_CORE(name)    ps_op_##name
#define HANDLER_CORE_0(name)  ps_op_##name
#define HANDLER_CONTROL(name) ps_op_control
#define HANDLER_HUB(name)     ps_op_for_hub
#define HANDLER_WORKER(name)  ps_op_rpc

const dp_handler ps_dispatch[MR_OP_COUNT] = {
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply)                                   \
    [MR_OP_##NAME] = HANDLER_##served(name),
#include "dataplane/wire/format/ops.def"
};

/* ---- answers ---- */

bool ps_refuse(const struct ps_op *op, enum mr_status status, const char *format, ...)
{
    char text[REFUSAL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (op->core->replay != NULL)
        snprintf(op->core->replay->why, sizeof(op->core->replay->why), "%s", text);
    op->core->counters.requests_refused++;
    mr_reply_error(op->ep, op->request->ref, status, "%s", text);
    return false;
}

/* By the clock as it is now, after the request has come: nobody else takes over what this node owns until its
 * lease has been over for as long as it lasts, and by then the client believes no answer to the request. */
static bool has_lease(const struct ps_node *node)
{
    return mr_clock_boot_us() < atomic_load_explicit(&node->lease_end_us, memory_order_acquire);
}

bool ps_check_open(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    if (core->gate == PS_GATE_OPEN && (!core->node->is_member || has_lease(core->node)))
        return true;
    if (core->replay != NULL)
        return true;
    if (core->gate == PS_GATE_BROKEN)
        return ps_refuse(op, core->gate_status, "the node serves nothing: %s", core->gate_text);
    ps_hold_back(op, core->gate == PS_GATE_OPEN ? &core->counters.calls_without_lease
                                                : &core->counters.requests_held_back);
    return false;
}

/* ---- which node and core own what a call is about ---- */

uint32_t ps_epoch_of(const struct ps_op *op)
{
    return ps_ownership_epoch(&op->core->owns, op->request->message->preamble.epoch);
}

/* Clients that know the map ask the right core: another core of this node has read the map of another
 * start. */
__attribute__((cold)) static bool refuse_owner(const struct ps_op *op, uint32_t partition, const char *what)
{
    const struct ps_core *core = op->core;
    const uint32_t owner = core->node->partition_core[partition];
    if (owner != core->index)
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "%s belongs to core %u, not to core %u: read the map (node_info) again", what, owner,
                         core->index);
    if (core->owns.since[partition] == PS_FENCED || core->owns.since[partition] == PS_LOADING) {
        ps_hold_back(op, &op->core->counters.requests_held_back);
        return false;
    }
    op->core->counters.calls_of_others++;
    return ps_refuse(op, MR_WRONG_OWNER,
                     core->owns.since[partition] == PS_NOT_OWNED
                         ? "%s belongs to another node by epoch %u of the cluster's map: read the map "
                           "(node_info) again"
                         : "%s: the call goes by a map of the cluster that is too old, and this node has "
                           "epoch %u: read the map (node_info) again",
                     what, core->owns.epoch);
}

/* ---- the step that a call carries ---- */

static void hold(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    if (ps_step_barrier_note(core->step_barrier, op->request->client_uuid, op->now_us)) {
        atomic_store_explicit(&core->clients_held, core->step_barrier->count, memory_order_release);
        ps_node_wake_control(core->node);
    }
    ps_hold_back(op, &core->counters.calls_held_at_step);
}

bool ps_check_step(const struct ps_op *op, bool changes)
{
    struct ps_core *core = op->core;
    uint64_t step = op->request->message->preamble.step;
    if (!changes || core->replay != NULL)
        return true;
    if (core->step_barrier != NULL && ps_step_barrier_holds(core->step_barrier, step)) {
        hold(op);
        return false;
    }
    if (core->step_barrier != NULL && core->step_barrier->count > 0)
        ps_step_clock_hold(&core->step_clock, core->step_barrier->step);
    ps_step_clock_see(&core->step_clock, step, op->request->ref.session_id, op->request->ref.call_id);
    if (core->step_clock.step != atomic_load_explicit(&core->step, memory_order_relaxed)) {
        atomic_store_explicit(&core->step, core->step_clock.step, memory_order_relaxed);
        core->counters.step = core->step_clock.step;
    }
    return true;
}

/* ---- tensors ---- */

bool ps_copy_step(struct ps_copy *copy, uint64_t *budget_bytes)
{
    uint64_t bytes = *budget_bytes < PS_COPY_BYTES_MAX ? *budget_bytes : PS_COPY_BYTES_MAX;
    bytes = copy->bytes < bytes ? copy->bytes : bytes;
    if (bytes > 0)
        memcpy(copy->to, copy->from, bytes);
    copy->from += bytes;
    copy->to += bytes;
    copy->bytes -= bytes;
    *budget_bytes -= bytes;
    return copy->bytes == 0;
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
        return ps_refuse(op, MR_WRONG_SHAPE, "%s is missing: the call has %u tensor%s", name,
                         op->tensor_count, mr_plural(op->tensor_count));
    }
    const struct mr_tensor *t = &op->tensors[index];
    if (t->dtype != dtype) {
        return ps_refuse(op, MR_WRONG_DTYPE, "%s is %s, not %s", name, mr_dtype_name(t->dtype),
                         mr_dtype_name(dtype));
    }
    if (t->rank != rank) {
        return ps_refuse(op, MR_WRONG_SHAPE, "%s has %u dimension%s, not %u", name, t->rank,
                         mr_plural(t->rank), rank);
    }
    return true;
}

bool ps_check_vector(const struct ps_op *op, uint32_t index, enum mr_dtype dtype, uint32_t elements,
                     const char *name)
{
    if (!ps_check_tensor(op, index, dtype, 1, name))
        return false;
    if (op->tensors[index].dims[0] != elements) {
        return ps_refuse(op, MR_WRONG_SHAPE, "%s has %u element%s, not %u", name, op->tensors[index].dims[0],
                         mr_plural(op->tensors[index].dims[0]), elements);
    }
    return true;
}

bool ps_check_body(const struct ps_op *op, uint32_t index, enum mr_body body, uint64_t *words)
{
    const struct mr_body_form *form = &mr_body_forms[body];
    if (!ps_check_tensor(op, index, form->dtype, 1, form->name))
        return false;
    const struct mr_tensor *t = &op->tensors[index];
    if (t->dims[0] > form->words || !mr_body_read(body, t, words))
        return ps_refuse(op, MR_WRONG_SHAPE, "%s has %u element%s, not %u", form->name, t->dims[0],
                         mr_plural(t->dims[0]), t->dims[0] > form->words ? form->words : form->least);
    return true;
}

bool ps_check_tensor_count(const struct ps_op *op, uint32_t count)
{
    return op->tensor_count <= count ||
           ps_refuse(op, MR_WRONG_SHAPE, "the call has %u tensor%s, not %u: flags tell what comes with bags",
                     op->tensor_count, mr_plural(op->tensor_count), count);
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
    return f;
}

struct ps_feature *ps_check_feature(const struct ps_op *op, uint32_t id)
{
    const struct ps_feature *f = ps_core_feature(op->core, id);
    return f != NULL && f->table == NULL ? ps_check_variable(op, id) : ps_check_table(op, id);
}

/* ---- pieces of variables ---- */

static void piece_at(const struct ps_pieces *p, uint32_t i, uint64_t *first, uint64_t *count)
{
    *first = p->words == NULL ? p->first : p->words[MR_PIECE_WORDS * (size_t)i];
    *count = p->words == NULL ? p->elements : p->words[MR_PIECE_WORDS * (size_t)i + 1];
}

bool ps_pieces_next(const struct ps_pieces *pieces, struct ps_piece_walk *walk, struct mr_run *run)
{
    uint64_t first, count;
    for (; walk->piece < pieces->count; walk->piece++, walk->in_piece = 0) {
        piece_at(pieces, walk->piece, &first, &count);
        if (walk->in_piece == count)
            continue;
        *run = mr_run_of(&pieces->variable->feature, first + walk->in_piece, count - walk->in_piece);
        walk->in_piece += run->count;
        walk->before = walk->given;
        walk->given += run->count;
        return true;
    }
    return false;
}

static bool check_owned(const struct ps_op *op, const struct ps_pieces *pieces)
{
    const struct ps_feature *f = pieces->variable;
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    while (ps_pieces_next(pieces, &walk, &run)) {
        const struct ps_range *r = &f->ranges[run.range];
        if (r->variable != NULL && op->core->owns.since[r->partition] <= ps_epoch_of(op))
            continue;
        char what[MR_NAME_BYTES + 48];
        if (f->range_count == 1)
            snprintf(what, sizeof(what), "variable %s", f->feature.name);
        else
            snprintf(what, sizeof(what), "range %u of variable %s", run.range, f->feature.name);
        return refuse_owner(op, r->partition, what);
    }
    return true;
}

bool ps_check_pieces(const struct ps_op *op, struct ps_feature *variable, const uint64_t *words,
                     uint32_t count, uint64_t first, uint64_t elements, struct ps_pieces *out)
{
    const uint64_t total = mr_variable_elements(&variable->feature);
    const char *name = variable->feature.name;
    uint64_t end = 0, sum = 0;
    *out = (struct ps_pieces){variable, words, count, first, elements};
    for (uint32_t i = 0; i < count; i++) {
        piece_at(out, i, &first, &elements);
        if (first > total || elements > total - first)
            return ps_refuse(op, MR_WRONG_SHAPE,
                             "variable %s has %" PRIu64 " element%s; %" PRIu64 " from %" PRIu64
                             " on would go beyond its end",
                             name, total, mr_plural(total), elements, first);
        if (words != NULL && (elements == 0 || first < end))
            return ps_refuse(op, MR_INVALID_ARGUMENT,
                             "variable %s: piece %u, %" PRIu64 " from %" PRIu64
                             " on, is empty, or begins before the end of the one before it",
                             name, i, elements, first);
        end = first + elements;
        sum += elements;
    }
    out->elements = sum;
    return check_owned(op, out);
}

bool ps_check_piece_tensor(const struct ps_op *op, uint32_t index, struct ps_feature *variable,
                           struct ps_pieces *out)
{
    if (!ps_check_tensor(op, index, MR_U64, 1, "pieces"))
        return false;
    const struct mr_tensor *t = &op->tensors[index];
    if (t->dims[0] == 0 || t->dims[0] % MR_PIECE_WORDS != 0)
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "pieces are u64[%u]; expected a first element and a count for each", t->dims[0]);
    return ps_check_pieces(op, variable, t->data, t->dims[0] / MR_PIECE_WORDS, 0, 0, out);
}

uint64_t ps_pieces_cost_bytes(const struct ps_pieces *pieces)
{
    uint64_t bytes = 0;
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    while (ps_pieces_next(pieces, &walk, &run))
        bytes += ps_variable_stored_bytes(pieces->variable->ranges[run.range].variable);
    return bytes;
}

/* ---- keys and their bags ---- */

bool ps_check_key_tensors(const struct ps_op *op, uint32_t keys_at, uint32_t offsets_at,
                          struct ps_key_list *out)
{
    if (!ps_check_tensor(op, keys_at, MR_U64, 1, "keys"))
        return false;
    out->in.keys = op->tensors[keys_at].data;
    out->in.key_count = op->tensors[keys_at].dims[0];
    if (op->core->coop_tasks.starting != op->request) /* otherwise it was noted when the call came */
        mr_call_add_keys(op->ep, op->request->ref, out->in.key_count);
    if (offsets_at == 0)
        return true;
    if (!ps_check_tensor(op, offsets_at, MR_U32, 1, "offsets"))
        return false;
    const struct mr_tensor *offsets = &op->tensors[offsets_at];
    if (offsets->dims[0] == 0)
        return ps_refuse(op, MR_WRONG_SHAPE, "offsets are empty: one more than there are bags");
    out->in.offsets = offsets->data;
    out->in.bag_count = offsets->dims[0] - 1;
    return true;
}

static bool check_keys(const struct ps_op *op, const struct ps_key_list *list, uint32_t end)
{
    const uint32_t *since = op->core->owns.since;
    const uint32_t epoch = ps_epoch_of(op);
    for (uint32_t i = list->keys_checked; i < end; i++) {
        uint32_t partition = mr_partition_of(mr_key_hash(list->in.keys[i], list->table->feature.seed));
        if (since[partition] > epoch) {
            char what[MR_NAME_BYTES + 48];
            snprintf(what, sizeof(what), "table %s: key %" PRIu64, list->table->feature.name,
                     list->in.keys[i]);
            return refuse_owner(op, partition, what);
        }
    }
    return true;
}

static bool check_offsets(const struct ps_op *op, struct ps_key_list *list, uint32_t end)
{
    const uint32_t *offsets = list->in.offsets;
    if (offsets[0] != 0 || offsets[list->in.bag_count] != list->in.key_count) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "offsets go from %u to %u, not from 0 to the %u key%s",
                         offsets[0], offsets[list->in.bag_count], list->in.key_count,
                         mr_plural(list->in.key_count));
    }
    uint32_t falls = 0, others = 0; /* without a branch: by vectors */
    for (uint32_t i = list->bags_checked; i < end; i++) {
        falls |= offsets[i] > offsets[i + 1];
        others |= offsets[i] ^ i;
    }
    list->has_others |= others != 0;
    if (falls == 0)
        return true;
    uint32_t bag = list->bags_checked;
    while (offsets[bag] <= offsets[bag + 1])
        bag++;
    return ps_refuse(op, MR_INVALID_ARGUMENT, "offsets fall from %u to %u after bag %u", offsets[bag],
                     offsets[bag + 1], bag);
}

/* Of a budget: a hash of a key. */
#define KEY_CHECK_COST_BYTES 16u

/* How many of `left` the budget has room for. */
static uint32_t take_from(uint64_t *budget_bytes, uint64_t cost_bytes, uint32_t left)
{
    uint64_t count = *budget_bytes / cost_bytes;
    uint32_t taken = count < left ? (uint32_t)count : left;
    *budget_bytes -= taken * cost_bytes;
    return taken;
}

enum ps_check ps_check_key_list(const struct ps_op *op, struct ps_key_list *list, uint64_t *budget_bytes)
{
    uint32_t bags_left = list->in.offsets != NULL ? list->in.bag_count - list->bags_checked : 0;
    const bool has_all = op->core->owns.all_since <= ps_epoch_of(op); /* whatever the keys are */
    uint32_t keys_left = has_all ? 0 : list->in.key_count - list->keys_checked;
    uint32_t bags = take_from(budget_bytes, PS_OFFSET_COST_BYTES, bags_left);
    if (list->in.offsets != NULL && !check_offsets(op, list, list->bags_checked + bags))
        return PS_CHECK_REFUSED;
    list->bags_checked += bags;
    uint32_t keys = take_from(budget_bytes, KEY_CHECK_COST_BYTES, keys_left);
    if (!check_keys(op, list, list->keys_checked + keys))
        return PS_CHECK_REFUSED;
    list->keys_checked += keys;
    list->in.is_single = list->bags_checked == list->in.key_count && !list->has_others;
    return bags < bags_left || keys < keys_left ? PS_CHECK_MORE : PS_CHECK_GOOD;
}

/* ---- rows, bags and flags ---- */

bool ps_check_bag_tensors(const struct ps_op *op, uint32_t flags, uint32_t *at, struct ps_key_list *list)
{
    const char *name = list->table->feature.name;
    if (list->in.offsets != NULL && list->table->feature.pooling == MR_POOL_NONE) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "table %s has no pooling: ask for its rows by key, without offsets", name);
    }
    if (flags != 0 && list->in.offsets == NULL) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s: weights and divisors are of bags: give offsets",
                         name);
    }
    if ((flags & MR_BAG_WEIGHTS) != 0) {
        if (!ps_check_vector(op, *at, MR_F32, list->in.key_count, "weights"))
            return false;
        list->in.weights = op->tensors[(*at)++].data;
    }
    if ((flags & MR_BAG_DIVISORS) != 0) {
        if (!mr_pooling_averages(list->table->feature.pooling))
            return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s pools by sum: it takes no divisors", name);
        if (!ps_check_vector(op, *at, MR_F32, list->in.bag_count, "divisors"))
            return false;
        list->in.divisors = op->tensors[(*at)++].data;
    }
    return true;
}

bool ps_check_rows(const struct ps_op *op, uint32_t *at, uint32_t rank, const char *name, struct ps_rows *out)
{
    enum mr_dtype dtype = *at < op->tensor_count ? op->tensors[*at].dtype : MR_F32;
    if (!mr_convert_knows(dtype)) {
        return ps_refuse(op, MR_WRONG_DTYPE, "%s is %s, not f32, f16, bf16 or i8", name,
                         mr_dtype_name(dtype));
    }
    if (!ps_check_tensor(op, *at, dtype, rank, name))
        return false;
    const struct mr_tensor *rows = &op->tensors[*at];
    *out = (struct ps_rows){.dtype = dtype, .at = (*at)++, .values = rows->data};
    if (dtype != MR_I8)
        return true;
    uint64_t count = 1;
    for (uint32_t i = 0; i + 1 < rank; i++)
        count *= rows->dims[i];
    if (!ps_check_vector(op, *at, MR_F32, (uint32_t)count, "scales"))
        return false;
    out->scales = op->tensors[(*at)++].data;
    return true;
}

bool ps_check_reply_dtype(const struct ps_op *op, enum mr_dtype *out)
{
    uint32_t wanted = op->request->message->preamble.flags >> MR_LOOKUP_DTYPE_SHIFT;
    *out = wanted == MR_DTYPE_NONE ? MR_F32 : (enum mr_dtype)wanted;
    return mr_convert_knows(*out) ||
           ps_refuse(op, MR_WRONG_DTYPE, "rows as %s (%u): they come as f32, f16, bf16 or i8",
                     mr_dtype_name(*out), wanted);
}

bool ps_check_flags(const struct ps_op *op, uint32_t flags, uint32_t known)
{
    return (flags & ~known) == 0 ||
           ps_refuse(op, MR_INVALID_ARGUMENT, "flags 0x%x: this server does not know 0x%x", flags,
                     flags & ~known);
}

bool ps_check_reply_bytes(const struct ps_op *op, const struct mr_tensor *tensors, uint32_t tensor_count)
{
    uint32_t bytes = mr_message_bytes(tensors, tensor_count);
    return (bytes > 0 && bytes <= op->core->node->message_bytes_max) ||
           ps_refuse(op, MR_TOO_LARGE,
                     "the answer would be larger than the %u bytes a message may have: ask for less",
                     op->core->node->message_bytes_max);
}

/* ---- what the node allows ---- */

static bool refuse_map(const struct ps_op *op, const char *what, uint64_t number)
{
    op->core->counters.calls_of_others++;
    return ps_refuse(op, MR_WRONG_OWNER,
                     "%s %" PRIu64
                     ": the call goes by a map of the cluster that is too old, and this node has "
                     "epoch %u: read the map (node_info) again",
                     what, number, op->core->owns.epoch);
}

bool ps_check_all_partitions(const struct ps_op *op, const char *what, uint64_t number)
{
    if (op->core->owns.newest == PS_FENCED || op->core->owns.has_arriving) {
        ps_hold_back(op, &op->core->counters.requests_held_back);
        return false;
    }
    return op->core->owns.newest <= ps_epoch_of(op) || refuse_map(op, what, number);
}

bool ps_check_loaded(const struct ps_op *op)
{
    const bool goes_by_later =
        op->request->message->preamble.epoch != 0 && ps_epoch_of(op) > op->core->owns.epoch;
    if (!op->core->owns.has_loading && !goes_by_later)
        return true;
    ps_hold_back(op, &op->core->counters.requests_held_back);
    return false;
}

struct ps_batch *ps_check_batch(const struct ps_op *op, uint64_t id)
{
    struct ps_batch *batch = ps_batch_find(op->core->batches, id);
    if (batch == NULL && ps_epoch_of(op) < op->core->owns.epoch) {
        (void)refuse_map(op, "batch", id); /* it may have been fed to others by now */
    } else if (batch == NULL && ps_batch_expired(op->core->batches, id)) {
        ps_refuse(op, MR_BATCH_EXPIRED, "batch %" PRIu64 " (number %" PRIu64 " of stream %u) expired", id,
                  mr_batch_sequence(id), mr_batch_stream(id));
    } else if (batch == NULL) {
        ps_refuse(op, MR_UNKNOWN_BATCH, "batch %" PRIu64 " (number %" PRIu64 " of stream %u) is not here", id,
                  mr_batch_sequence(id), mr_batch_stream(id));
    } else if (batch->epoch > ps_epoch_of(op)) {
        (void)refuse_map(op, "batch", id); /* the caller may not know all that have shares of it */
        return NULL;
    } else if (!ps_check_all_partitions(op, "batch", id)) { /* it may be about any of them */
        return NULL;
    }
    return batch;
}

bool ps_check_save_room(const struct ps_op *op, uint64_t need_bytes)
{
    if (ps_save_has_room(op->core, need_bytes, op->now_us))
        return true;
    ps_hold_back(op, &op->core->counters.pushes_held_back);
    return false;
}

bool ps_check_pieces_ready(const struct ps_op *op, const struct ps_pieces *pieces)
{
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    while (ps_pieces_next(pieces, &walk, &run)) {
        if (ps_save_range_ready(op->core, &pieces->variable->ranges[run.range]))
            continue;
        ps_hold_back(op, &op->core->counters.pushes_held_back);
        return false;
    }
    return true;
}

bool ps_check_writable(const struct ps_op *op)
{
    const struct ps_node *node = op->core->node;
    return !node->is_read_only ||
           ps_refuse(op, MR_FROZEN, "the node serves %s read only (checkpoint.serve)", node->serves);
}

uint32_t ps_freeze_of(const struct ps_op *op)
{
    const struct ps_core *core = op->core;
    const struct mr_preamble *preamble = &op->request->message->preamble;
    const bool is_again = preamble->sequence != 0 && (preamble->flags & MR_PUSH_AGAIN) != 0;
    return core->replay != NULL || (core->freeze_is_old && is_again) ? MR_FREEZE_OFF : core->freeze;
}

bool ps_check_not_frozen(const struct ps_op *op)
{
    return ps_freeze_of(op) != MR_FREEZE_ALL ||
           (ps_check_writable(op) && ps_refuse(op, MR_FROZEN, "the node is frozen (level all)"));
}

void ps_set_now(const struct ps_op *op, struct ps_table *table)
{
    ps_table_set_now(table, op->core->now_s, op->core->step_clock.step);
}

void ps_note_push(const struct ps_op *op)
{
    struct ps_core_counters *counters = &op->core->counters;
    uint64_t step = op->request->message->preamble.step;
    counters->pushes_applied++;
    counters->last_step = step > counters->last_step ? step : counters->last_step;
    ps_clients_note(op->core->clients, op->request->client_uuid, step);
}
