/* Gradients, by keys or by batch id: a push's parts are read first and all checked, and only then is anything
 * changed. A push that has a number is applied once, however often it is sent (docs/protocol.md, section 9),
 * and so is a push of a batch. */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "ps/core/push_log.h"
#include "ps/move/copy_source.h"
#include "ps/ops/ops.h"

#define PS_PUSH_PARTS_MAX (MR_TENSORS_MAX / 2)

/* One feature's gradient in a push. */
struct ps_push_part {
    struct ps_feature *feature;
    struct ps_rows gradient;
    bool sets, has_state;   /* rows, with their state: see MR_PUSH_SET */
    bool has_learning_rate; /* of this push alone */
    float learning_rate;
    union {
        struct ps_key_list list; /* of tables */
        struct ps_pieces pieces; /* of variables: whole ranges */
    };
};

struct ps_push {
    uint32_t part_count;
    bool is_begun;       /* from then on it has its whole effect */
    bool partly;         /* some partitions have it already, under its number */
    uint32_t at;         /* the part whose keys are checked or applied */
    bool in_part;        /* `rows` is about it */
    uint64_t room_bytes; /* of a checkpoint's buffers */
    struct ps_table_push rows;
    struct ps_table_replay replay; /* of a push of the log: of the part */
    struct ps_piece_walk walk;     /* of a variable's pieces */
    struct ps_batch *batch;        /* pinned; NULL: by keys */
    bool excludes;                 /* partitions that have it already */
    uint32_t *reported; /* enum mr_pushed_word, in the reply; NULL: nobody asks, or it cannot be known */
    struct ps_push_counts counts;                 /* of the parts before `at` */
    struct ps_push_part parts[PS_PUSH_PARTS_MAX]; /* only as many as there are are set */
    uint64_t excluded[MR_PARTITION_COUNT / 64];   /* set if excludes */
};

/* ---- numbered pushes ---- */

static uint64_t sequence_of(const struct ps_op *op)
{
    return op->request->message->preamble.sequence;
}

static struct ps_push_id id_of(const struct ps_op *op)
{
    uint32_t stream_id = mr_push_stream_id(sequence_of(op));
    return (struct ps_push_id){
        .uuid = op->request->client_uuid,
        .stream_id =
            stream_id != 0 ? stream_id : mr_push_stream_of_core(op->core->node->core_count, op->core->index),
        .number = mr_push_number(sequence_of(op))};
}

/* A core's push stream of this map is its core's alone; push streams of other maps are everybody's. Other
 * nodes of a cluster have cores of the same numbers, and partitions move between them. */
static bool check_number(const struct ps_op *op, const struct ps_push_id *id)
{
    uint32_t cores = mr_push_stream_cores(id->stream_id), core = mr_push_stream_core(id->stream_id);
    if (id->number == 0)
        return ps_refuse(op, MR_INVALID_ARGUMENT, "push number 0: a client's pushes are numbered from 1");
    if (mr_push_stream_is_chosen(id->stream_id))
        return true;
    if (op->core->node->is_member)
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "a core's push stream: a member of a cluster takes pushes in push streams that the "
                         "client chooses");
    if (!mr_push_stream_is_valid(id->stream_id)) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "push stream of core %u of %u: there is no such core", core,
                         cores);
    }
    if (cores == op->core->node->core_count && core != op->core->index) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "push stream of core %u of %u: this is core %u", core,
                         cores, op->core->index);
    }
    return true;
}

/* What is known of a push that has a number. PS_PUSH_WAITS: it has been answered. */
static enum ps_push_state look_up(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    struct ps_push_id id = id_of(op);
    const bool is_mark = op->tensor_count <= 1; /* without keys: it is about all partitions */
    if (!check_number(op, &id) || (is_mark && !ps_check_loaded(op)) ||
        !ps_check_all_partitions(op, "push", id.number))
        return PS_PUSH_WAITS;
    id.network = mr_call_ref_network(op->ep, op->request->ref);
    enum ps_push_state state = ps_pushes_look_up(core->pushes, &id);
    if (state == PS_PUSH_NO_MEMORY) {
        ps_refuse(op, MR_OUT_OF_MEMORY, "no memory for the record of pushes: raise batches.memory_mib");
        return PS_PUSH_WAITS;
    }
    uint64_t durable = ps_pushes_durable(core->pushes, id.uuid, id.stream_id);
    mr_reply_set_sequence(op->ep, op->request->ref,
                          mr_push_sequence(mr_push_stream_id(sequence_of(op)), durable));
    if (state == PS_PUSH_WAITS)
        ps_hold_back(op, &core->counters.pushes_waiting);
    return state;
}

/* Its client has not heard of a restore that may have taken it back. Not the transport's BUSY, which would
 * send the same bytes again. */
static bool is_outdated(const struct ps_op *op)
{
    const uint32_t flags = op->request->message->preamble.flags;
    const uint32_t now = atomic_load_explicit(&op->core->node->restores, memory_order_relaxed);
    if ((flags & MR_PUSH_AGAIN) == 0 || (uint8_t)(flags >> MR_PUSH_RESTORES_SHIFT) == (uint8_t)now ||
        op->core->replay != NULL)
        return false;
    op->core->counters.requests_held_back++;
    mr_reply_status(op->ep, op->request->ref, MR_BUSY);
    return true;
}

/* The push was applied before: so says the answer, once that is durable. */
static void answer_repeated(const struct ps_op *op)
{
    op->core->counters.pushes_repeated++;
    if (ps_push_log_keep(op, 0) && ps_push_answer_begin(op, NULL, 0))
        ps_push_answer_end(op);
}

bool ps_check_push(const struct ps_op *op, bool *partly)
{
    *partly = false;
    if (sequence_of(op) == 0)
        return true;
    if (is_outdated(op))
        return false;
    enum ps_push_state state = look_up(op);
    if (state == PS_PUSH_APPLIED) {
        answer_repeated(op);
        return false;
    }
    *partly = state == PS_PUSH_PARTLY;
    return state != PS_PUSH_WAITS;
}

/* As ps_check_push(), for pushes whose batch says whether they were applied: those are not answered. */
static bool check_push_of_batch(const struct ps_op *op)
{
    return sequence_of(op) == 0 || (!is_outdated(op) && look_up(op) != PS_PUSH_WAITS);
}

/* The push is about keys of these partitions. False: it was answered. */
static bool cover(const struct ps_op *op, const struct ps_partition_set *touched)
{
    struct ps_push_id id = id_of(op);
    return ps_pushes_cover(op->core->pushes, &id, touched) == MR_OK ||
           ps_refuse(op, MR_OUT_OF_MEMORY, "no memory for the record of pushes: raise batches.memory_mib");
}

static void add_partitions(struct ps_partition_set *set, const struct ps_pieces *pieces)
{
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    while (ps_pieces_next(pieces, &walk, &run))
        ps_partitions_add(set, pieces->variable->ranges[run.range].partition);
}

bool ps_push_touch(const struct ps_op *op, const struct ps_pieces *pieces)
{
    struct ps_partition_set touched = {{0}};
    add_partitions(&touched, pieces);
    return sequence_of(op) == 0 || cover(op, &touched);
}

void ps_push_begin(const struct ps_op *op)
{
    struct ps_push_id id = id_of(op);
    if (sequence_of(op) != 0)
        ps_pushes_start(op->core->pushes, &id);
}

void ps_push_end(const struct ps_op *op)
{
    struct ps_push_id id = id_of(op);
    if (sequence_of(op) != 0)
        op->core->counters.pushes_skipped += ps_pushes_finish(op->core->pushes, &id);
}

__attribute__((cold, noinline)) void ps_push_copy(const struct ps_op *op)
{
    const struct ps_push_id id = id_of(op);
    if (sequence_of(op) != 0)
        ps_copies_note_push(op->core, id.uuid, id.stream_id);
    ps_copies_note_client(op->core, op->request->client_uuid);
    ps_copies_record(op->core);
}

void ps_push_copy_pieces(const struct ps_op *op, const struct ps_pieces *pieces)
{
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    while (ps_pieces_next(pieces, &walk, &run))
        ps_copies_note_range(op->core, pieces->variable->id, run.range);
}

bool ps_push_has(const struct ps_op *op, uint32_t partition)
{
    struct ps_push_id id = id_of(op);
    return ps_pushes_has(op->core->pushes, &id, partition);
}

/* The client has no pushes for this core from a number up to the push's own. */
static void skip_numbers(const struct ps_op *op)
{
    struct ps_push_id id = id_of(op);
    if (sequence_of(op) == 0) {
        ps_refuse(op, MR_INVALID_ARGUMENT, "a push without a head needs a number");
        return;
    }
    if (is_outdated(op) || !ps_check_vector(op, 0, MR_U64, 1, "first number"))
        return;
    const uint64_t from = ps_tensor_u64(&op->tensors[0], 0);
    if (from == 0 || from > id.number) {
        ps_refuse(op, MR_INVALID_ARGUMENT, "numbers from %" PRIu64 " to %" PRIu64 ": there are none", from,
                  id.number);
        return;
    }
    enum ps_push_state state = look_up(op);
    if (state == PS_PUSH_WAITS || !ps_push_log_keep(op, PS_LOG_NUMBERS_BYTES))
        return;
    if (!ps_pushes_skip(op->core->pushes, &id, from)) {
        ps_hold_back(op, &op->core->counters.pushes_waiting);
        return;
    }
    if (op->core->copies != NULL)
        ps_push_copy(op);
    ps_push_log_numbers(op, from);
    if (ps_push_answer_begin(op, NULL, 0))
        ps_push_answer_end(op);
}

/* ---- parts ---- */

static void push_init(struct ps_push *push)
{
    memset(push, 0, offsetof(struct ps_push, parts));
}

static bool check_named_once(const struct ps_op *op, const struct ps_push *push, const struct ps_feature *f)
{
    for (uint32_t i = 0; i < push->part_count; i++)
        if (push->parts[i].feature == f)
            return ps_refuse(op, MR_INVALID_ARGUMENT, "%s is named twice", f->feature.name);
    return true;
}

static bool check_head_words(const struct ps_op *op, const struct ps_feature *f,
                             const struct mr_push_head *head, uint32_t known_flags)
{
    const char *name = f->feature.name;
    uint32_t unknown =
        head->flags & ~(MR_PUSH_LEARNING_RATE | (f->table != NULL ? known_flags : MR_PUSH_PIECES));
    if (unknown != 0 || head->zero != 0) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "%s: flags 0x%x or last word 0x%x of the push's head have no meaning here", name,
                         unknown, head->zero);
    }
    bool has_rate = (head->flags & MR_PUSH_LEARNING_RATE) != 0;
    if (!(head->learning_rate >= 0 && head->learning_rate <= FLT_MAX) ||
        (!has_rate && head->learning_rate > 0)) {
        return ps_refuse(
            op, MR_INVALID_ARGUMENT,
            "%s: learning rate %g of the push %s flag 0x%x: with it, it is from 0 to %g; without it, 0", name,
            (double)head->learning_rate, has_rate ? "with" : "without", MR_PUSH_LEARNING_RATE,
            (double)FLT_MAX);
    }
    return true;
}

/* Tensor *at is the head of a part: it names a feature that is not in the push yet, and its
 * flags are among `known_flags` (of variables: MR_PUSH_PIECES). Moves *at past it. */
static bool check_head(const struct ps_op *op, const struct ps_push *push, uint32_t *at, uint32_t known_flags,
                       struct ps_push_part *out, uint32_t *flags)
{
    struct mr_push_head head;
    struct ps_feature *f;
    if (!ps_check_vector(op, *at, MR_U32, MR_PUSH_HEAD_WORDS, "head of the push"))
        return false;
    memcpy(&head, op->tensors[(*at)++].data, sizeof(head));
    f = ps_check_feature(op, head.feature);
    if (f == NULL || !check_head_words(op, f, &head, known_flags) || !check_named_once(op, push, f))
        return false;
    *out = (struct ps_push_part){.feature = f,
                                 .has_learning_rate = (head.flags & MR_PUSH_LEARNING_RATE) != 0,
                                 .learning_rate = head.learning_rate};
    *flags = head.flags & ~MR_PUSH_LEARNING_RATE;
    return true;
}

/* Tensor *at has the variable's shape. */
static bool check_whole_gradient(const struct ps_op *op, struct ps_push_part *part, uint32_t at)
{
    const struct mr_feature *f = &part->feature->feature;
    const struct mr_tensor *gradient = &op->tensors[at];
    if (!ps_check_tensor(op, at, MR_F32, f->rank, f->name))
        return false;
    for (uint32_t i = 0; i < f->rank; i++) {
        if (gradient->dims[i] != f->dims[i]) {
            return ps_refuse(op, MR_WRONG_SHAPE, "variable %s: dimension %u of the gradient is %u, not %u",
                             f->name, i, gradient->dims[i], f->dims[i]);
        }
    }
    return ps_check_pieces(op, part->feature, NULL, 1, 0, mr_variable_elements(f), &part->pieces);
}

/* Tensor *at has pieces, each of whole ranges, and the next one their gradient. */
static bool check_gradient_of_pieces(const struct ps_op *op, struct ps_push_part *part, uint32_t at)
{
    const struct mr_feature *f = &part->feature->feature;
    const uint64_t each = mr_range_elements(f), all = mr_variable_elements(f);
    if (!ps_check_piece_tensor(op, at, part->feature, &part->pieces) ||
        !ps_check_tensor(op, at + 1, MR_F32, 1, f->name))
        return false;
    for (uint32_t i = 0; i < part->pieces.count; i++) {
        const uint64_t first = part->pieces.words[MR_PIECE_WORDS * i];
        const uint64_t end = first + part->pieces.words[MR_PIECE_WORDS * i + 1];
        if (first % each != 0 || (end % each != 0 && end != all))
            return ps_refuse(op, MR_WRONG_SHAPE,
                             "variable %s: a gradient is of whole ranges of %" PRIu64
                             " elements, not of [%" PRIu64 ", %" PRIu64 ")",
                             f->name, each, first, end);
    }
    const uint32_t count = op->tensors[at + 1].dims[0];
    return count == part->pieces.elements ||
           ps_refuse(op, MR_WRONG_SHAPE, "variable %s: %u gradients for pieces of %" PRIu64, f->name, count,
                     part->pieces.elements);
}

/* What follows a variable's head, all of it f32: variables are few. */
static bool check_variable_gradient(const struct ps_op *op, struct ps_push_part *part, uint32_t flags,
                                    uint32_t *at)
{
    const bool has_pieces = (flags & MR_PUSH_PIECES) != 0;
    if (has_pieces ? !check_gradient_of_pieces(op, part, *at) : !check_whole_gradient(op, part, *at))
        return false;
    *at += has_pieces;
    part->gradient = (struct ps_rows){.dtype = MR_F32, .values = op->tensors[(*at)++].data};
    return true;
}

/* Of all parts, as ps/core/coop_task.h counts. */
static uint64_t push_cost_bytes(const struct ps_push *push)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        const struct ps_push_part *part = &push->parts[i];
        bytes += part->feature->table != NULL
                     ? ps_table_push_cost_bytes(part->feature->table, part->list.in.key_count) +
                           (uint64_t)part->list.in.bag_count * PS_OFFSET_COST_BYTES
                     : ps_pieces_cost_bytes(&part->pieces);
    }
    return bytes;
}

static bool is_in_slices(const struct ps_op *op)
{
    return op->core->coop_tasks.running == op->request;
}

/* A checkpoint that is being written has room for the rows that this push will make it write. */
static bool check_room(const struct ps_op *op, struct ps_push *push)
{
    push->room_bytes = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct ps_feature *f = push->parts[i].feature;
        if (f->table != NULL)
            push->room_bytes += ps_save_need_bytes(op->core, f, push->parts[i].list.in.key_count);
        else if (!ps_check_pieces_ready(op, &push->parts[i].pieces))
            return false;
    }
    return ps_check_save_room(op, push->room_bytes);
}

/* What was applied before was counted then, for whoever asked, and nobody can say any more what became of the
 * whole. */
static bool reports_counts(const struct ps_op *op, const struct ps_push *push)
{
    return (op->request->message->preamble.flags & MR_PUSH_COUNTS) != 0 && !push->excludes;
}

/* Begins the answer: this tensor, and what became of the push if that is asked for and will be known. `first`
 * NULL: none. False: the call was answered BUSY. */
static bool begin_answer(const struct ps_op *op, struct ps_push *push, const struct mr_tensor *first)
{
    struct mr_tensor tensors[2];
    uint32_t count = 0;
    bool reports = reports_counts(op, push);
    if (first != NULL)
        tensors[count++] = *first;
    if (reports)
        tensors[count++] = mr_tensor_1d(MR_U32, MR_PUSHED_WORDS, NULL);
    for (uint32_t i = 0; i < count && op->core->replay != NULL; i++)
        tensors[i].data = NULL;
    if (!ps_push_answer_begin(op, count > 0 ? tensors : NULL, count)) {
        mr_reply_busy(op->ep, op->request->ref);
        return false;
    }
    push->reported = reports ? tensors[count - 1].data : NULL;
    return true;
}

static void report_counts(const struct ps_op *op, const struct ps_push *push)
{
    const struct ps_push_counts *c = &push->counts;
    const uint32_t words[MR_PUSHED_WORDS] = {[MR_PUSHED_SENT] =
                                                 c->applied + c->refused + c->without_row + c->not_finite,
                                             [MR_PUSHED_APPLIED] = c->applied,
                                             [MR_PUSHED_REFUSED] = c->refused,
                                             [MR_PUSHED_WITHOUT_ROW] = c->without_row,
                                             [MR_PUSHED_NOT_FINITE] = c->not_finite};
    if (push->reported != NULL && mr_call_ref_alive(op->ep, op->request->ref))
        memcpy(push->reported, words, sizeof(words));
}

/* Nothing can refuse the push any more: it keeps its room, and is in flight until push_apply() is through. */
static void push_start(const struct ps_op *op, struct ps_push *push)
{
    if (is_in_slices(op)) {
        op->core->save.reserved_bytes = push->room_bytes;
        op->core->push_is_open = true;
    }
    ps_push_begin(op);
    push->is_begun = true;
}

/* NULL: as the feature's schedule has it. */
static const float *rate_of(const struct ps_push_part *part)
{
    return part->has_learning_rate ? &part->learning_rate : NULL;
}

static bool is_excluded(const struct ps_push *push, uint32_t partition)
{
    return push->excludes && (push->excluded[partition / 64] >> (partition % 64) & 1) != 0;
}

static void apply_range(const struct ps_op *op, struct ps_push *push, struct ps_range *range)
{
    const struct ps_push_part *part = &push->parts[push->at];
    const float *gradient = (const float *)part->gradient.values + push->walk.before;
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_optimizer);
    bool applied =
        ps_variable_push(range->variable, op->request->message->preamble.step, rate_of(part), gradient);
    dp_phase_leave(op->core->phases, before);
    push->counts.applied += applied;
    push->counts.not_finite += !applied;
    part->feature->gradients_skipped += !applied;
    op->core->counters.variable_gradients_skipped += !applied;
}

/* A range's gradient is applied at once: it is one row, and its norm may matter. True when all are
 * applied. */
static bool apply_variable(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    const struct ps_push_part *part = &push->parts[push->at];
    struct mr_run run;
    if (!push->in_part)
        push->walk = (struct ps_piece_walk){0};
    push->in_part = true;
    while (*budget_bytes > 0) {
        if (!ps_pieces_next(&part->pieces, &push->walk, &run)) {
            push->in_part = false;
            return true;
        }
        struct ps_range *range = &part->feature->ranges[run.range];
        if (is_excluded(push, range->partition))
            continue;
        apply_range(op, push, range);
        uint64_t bytes = ps_variable_stored_bytes(range->variable);
        *budget_bytes -= bytes < *budget_bytes ? bytes : *budget_bytes;
    }
    return false;
}

/* Of a numbered push by keys: rows that were looked up before a restart, and are in no checkpoint, are as
 * they were then, since a row's first values follow from its key. */
static bool is_numbered(const struct ps_op *op)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    return preamble->sequence != 0 && preamble->op == MR_OP_PUSH_GRAD;
}

/* And of any push of rows that are set: nobody has to look them up first. */
static bool makes_rows(const struct ps_op *op, const struct ps_push_part *part)
{
    return (is_numbered(op) || part->sets || part->feature->feature.optimizer == MR_OPT_ASSIGN) &&
           ps_freeze_of(op) == MR_FREEZE_OFF;
}

/* The lookup that came before such a push was answered by another start of the server. */
static bool is_unseen(const struct ps_op *op)
{
    return is_numbered(op) && (op->request->message->preamble.flags & MR_PUSH_UNSEEN) != 0;
}

/* What was done of the push while it arrived: of its first part. */
static struct ps_early_keys *early_of(const struct ps_op *op, const struct ps_push *push)
{
    return push->at == 0 && push->batch == NULL ? ps_early_push_take(op->core, op->request->ref) : NULL;
}

/* NULL: the push comes from a client. */
static const struct ps_table_replay *replay_of(const struct ps_op *op, struct ps_push *push)
{
    const struct ps_replay *r = op->core->replay;
    if (r == NULL)
        return NULL;
    push->replay = (struct ps_table_replay){.left_out = r->left_out};
    for (uint32_t i = 0; i < push->at && r->part_left_out != NULL; i++)
        push->replay.left_out += r->part_left_out[i];
    push->replay.left_out_count = r->part_left_out != NULL ? r->part_left_out[push->at] : 0;
    return &push->replay;
}

static bool apply_table(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    const struct ps_push_part *part = &push->parts[push->at];
    if (!push->in_part) {
        ps_set_now(op, part->feature->table);
        push->rows = (struct ps_table_push){.in = part->list.in,
                                            .gradients_dtype = part->gradient.dtype,
                                            .gradients = part->gradient.values,
                                            .gradient_scales = part->gradient.scales,
                                            .excluded = push->excludes ? push->excluded : NULL,
                                            .at_once = !is_in_slices(op),
                                            .sets = part->sets,
                                            .has_state = part->has_state,
                                            .insert = makes_rows(op, part) || op->core->replay != NULL,
                                            .sees = is_unseen(op) && op->core->replay == NULL,
                                            .left_out = ps_push_log_left_out(op->core),
                                            .replay = replay_of(op, push),
                                            .step = op->request->message->preamble.step,
                                            .learning_rate = rate_of(part),
                                            .early = early_of(op, push)};
    }
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_optimizer);
    push->in_part = !ps_table_push_step(part->feature->table, &push->rows, budget_bytes);
    dp_phase_leave(op->core->phases, before);
    if (push->in_part)
        return false;
    if (push->rows.early != NULL)
        ps_early_push_end(op->core);
    ps_push_log_leave_out(op->core, push->at, push->rows.left_out_count);
    if (op->core->replay != NULL && push->rows.counts.refused > 0)
        op->core->replay->lacks_memory = true;
    const struct ps_push_counts *c = &push->rows.counts;
    push->counts.applied += c->applied;
    push->counts.refused += c->refused;
    push->counts.without_row += c->without_row;
    push->counts.not_finite += c->not_finite;
    return true;
}

/* The node's backups are told of a push that was applied. */
static __attribute__((cold, noinline)) void push_copy(const struct ps_op *op, const struct ps_push *push)
{
    for (uint32_t i = 0; i < push->part_count; i++)
        if (push->parts[i].feature->table == NULL)
            ps_push_copy_pieces(op, &push->parts[i].pieces);
    if (push->batch != NULL)
        ps_copies_note_batches(op->core, mr_batch_stream(push->batch->id));
    ps_push_copy(op);
}

/* The push was applied: what backups and the log are told of it, and the answer. */
static void push_end(const struct ps_op *op, const struct ps_push *push)
{
    if (__builtin_expect(op->core->copies != NULL, 0))
        push_copy(op, push);
    ps_push_log_push(op, push->batch, push->part_count);
    ps_push_answer_end(op);
}

/* Makes room in the log for the push, if there is one. False: the call was answered BUSY. */
static bool check_log(const struct ps_op *op, const struct ps_push *push)
{
    uint64_t keys = 0;
    for (uint32_t i = 0; i < push->part_count; i++)
        keys += push->parts[i].feature->table != NULL ? push->parts[i].list.in.key_count : 0;
    return ps_push_log_promise(op, push->batch, keys);
}

/* Applies part after part, within the budget; true when all are applied. */
static bool push_apply_parts(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    for (; push->at < push->part_count; push->at++) {
        const struct ps_push_part *part = &push->parts[push->at];
        if (*budget_bytes == 0)
            return false;
        if (!(part->feature->table != NULL ? apply_table : apply_variable)(op, push, budget_bytes))
            return false;
    }
    return true;
}

/* True when all is applied, the push is marked, and its answer is complete. */
static bool push_apply(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    if (!push_apply_parts(op, push, budget_bytes)) {
        if (__builtin_expect(op->core->copies != NULL, 0))
            ps_copies_record_more(op->core);
        return false;
    }
    if (is_in_slices(op)) {
        op->core->save.reserved_bytes = 0;
        op->core->push_is_open = false;
    }
    ps_note_push(op);
    ps_push_end(op);
    report_counts(op, push);
    return true;
}

/* Leaves out what lives in these partitions. */
static void leave_out(struct ps_push *push, const uint64_t partitions[MR_PARTITION_COUNT / 64])
{
    push->excludes = true;
    memcpy(push->excluded, partitions, sizeof(push->excluded));
}

/* ps_coop_task.drop: what was begun is brought to its end, whether somebody waits for the answer or not. */
static bool push_drop(const struct ps_op *op, void *state)
{
    const struct ps_push *push = state;
    (void)op;
    return !push->is_begun;
}

/* ---- by keys ---- */

/* Rows to be set come as they are stored: no bags, no other type, no step of an optimizer. */
static bool check_set(const struct ps_op *op, struct ps_push_part *part, uint32_t flags, bool has_bags)
{
    const struct mr_feature *table = &part->feature->feature;
    part->sets = (flags & MR_PUSH_SET) != 0;
    part->has_state = (flags & MR_PUSH_STATE) != 0;
    const bool is_plain = (flags & (MR_BAG_WEIGHTS | MR_BAG_DIVISORS)) == 0 && !has_bags &&
                          !part->has_learning_rate && part->gradient.dtype == MR_F32;
    if (!part->sets ? part->has_state : !is_plain)
        return ps_refuse(
            op, MR_INVALID_ARGUMENT,
            "table %s: rows are set by f32 rows, one for each key, without bags or a learning rate",
            table->name);
    return true;
}

/* Keys, offsets, gradient and what else there is, from tensor *at on. */
static bool check_table_gradient(const struct ps_op *op, struct ps_push_part *part, uint32_t flags,
                                 uint32_t *at)
{
    const struct mr_feature *table = &part->feature->feature;
    uint32_t keys_at = *at, gradient_at = *at + 2;
    *at = gradient_at;
    if (!ps_check_tensor(op, keys_at, MR_U64, 1, "keys") ||
        !ps_check_tensor(op, keys_at + 1, MR_U32, 1, "offsets") ||
        !ps_check_rows(op, at, 2, "gradient", &part->gradient))
        return false;
    const struct mr_tensor *gradient = &op->tensors[gradient_at];
    bool has_bags = op->tensors[keys_at + 1].dims[0] > 0;
    part->list.table = part->feature;
    if (!ps_check_key_tensors(op, keys_at, has_bags ? keys_at + 1 : 0, &part->list) ||
        !check_set(op, part, flags, has_bags) ||
        !ps_check_bag_tensors(op, flags & ~(MR_PUSH_SET | MR_PUSH_STATE), at, &part->list))
        return false;
    uint32_t rows = has_bags ? part->list.in.bag_count : part->list.in.key_count;
    uint32_t state_floats = part->has_state ? ps_table_state_floats(part->feature->table) : 0;
    if (gradient->dims[1] != table->dims[0] + state_floats) {
        const char *pushed = part->sets ? "pushed" : "gradient's";
        return part->has_state
                   ? ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u and %u of state; the %s rows have %u",
                               table->name, table->dims[0], state_floats, pushed, gradient->dims[1])
                   : ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u; the %s rows have %u", table->name,
                               table->dims[0], pushed, gradient->dims[1]);
    }
    if (gradient->dims[0] != rows) {
        return ps_refuse(op, MR_WRONG_SHAPE, "table %s: %u gradient%s for %u %s%s", table->name,
                         gradient->dims[0], mr_plural(gradient->dims[0]), rows, has_bags ? "bag" : "key",
                         mr_plural(rows));
    }
    return true;
}

static bool check_push(const struct ps_op *op, struct ps_push *push)
{
    for (uint32_t at = 0; at < op->tensor_count;) {
        struct ps_push_part part;
        uint32_t flags;
        if (!check_head(op, push, &at, MR_BAG_WEIGHTS | MR_BAG_DIVISORS | MR_PUSH_SET | MR_PUSH_STATE, &part,
                        &flags) ||
            !(part.feature->table != NULL ? check_table_gradient : check_variable_gradient)(op, &part, flags,
                                                                                            &at))
            return false;
        push->parts[push->part_count++] = part;
    }
    return true;
}

static struct ps_partition_set partitions_of(const struct ps_push *push)
{
    struct ps_partition_set touched = {{0}};
    for (uint32_t i = 0; i < push->part_count; i++) {
        const struct ps_push_part *part = &push->parts[i];
        const struct mr_feature *f = &part->feature->feature;
        if (part->feature->table == NULL)
            add_partitions(&touched, &part->pieces);
        for (uint32_t k = 0; part->feature->table != NULL && k < part->list.in.key_count; k++)
            ps_partitions_add(&touched, mr_partition_of(mr_key_hash(part->list.in.keys[k], f->seed)));
    }
    return touched;
}

/* The parts' keys, and then that the push can be done and answered. */
static enum ps_check begin_push(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    for (; push->at < push->part_count; push->at++) {
        struct ps_push_part *part = &push->parts[push->at];
        enum ps_check check =
            part->feature->table != NULL ? ps_check_key_list(op, &part->list, budget_bytes) : PS_CHECK_GOOD;
        if (check != PS_CHECK_GOOD)
            return check;
    }
    /* Small calls may have come in between. */
    if ((is_in_slices(op) && !ps_check_push(op, &push->partly)) || !check_room(op, push))
        return PS_CHECK_REFUSED;
    struct ps_push_id id = id_of(op);
    if (sequence_of(op) != 0 && ps_pushes_has_unknown(op->core->pushes, &id)) {
        const struct ps_partition_set touched = partitions_of(push);
        if (!cover(op, &touched))
            return PS_CHECK_REFUSED;
    }
    if (push->partly) {
        const struct ps_partition_set applied = ps_pushes_partitions(op->core->pushes, &id);
        leave_out(push, applied.words);
    }
    if (!check_log(op, push) || !begin_answer(op, push, NULL))
        return PS_CHECK_REFUSED;
    push_start(op, push);
    push->at = 0;
    return PS_CHECK_GOOD;
}

static bool step_push(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct ps_push *push = state;
    if (!push->is_begun) {
        enum ps_check check = begin_push(op, push, &budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check == PS_CHECK_REFUSED;
    }
    if (!push_apply(op, push, &budget_bytes))
        return false;
    push_end(op, push);
    return true;
}

static const struct ps_coop_task push_job = {
    .step = step_push, .drop = push_drop, .state_bytes = sizeof(struct ps_push)};
static_assert(sizeof(struct ps_push) <= PS_COOP_STATE_BYTES, "a push waits in place");

void ps_op_push_grad(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_push push;
    push_init(&push);
    if (op.tensor_count == 1) { /* not even a head and a gradient */
        if (ps_check_open(&op))
            skip_numbers(&op);
        return;
    }
    if (ps_check_open(&op) && ps_check_push(&op, &push.partly) && ps_check_step(&op, true) &&
        ps_check_not_frozen(&op) && check_push(&op, &push) && !ps_push_log_defers(&op) &&
        !ps_defer(&op, push_cost_bytes(&push)))
        ps_run(&op, &push_job, &push);
}

/* ---- by batch id ---- */

/* Features and shapes that do not depend on the batch's being here. */
static bool check_batch_heads(const struct ps_op *op, struct ps_push *push)
{
    if (!ps_check_vector(op, 0, MR_U64, 1, "batch id"))
        return false;
    for (uint32_t at = 1; at < op->tensor_count;) {
        struct ps_push_part part;
        uint32_t flags;
        if (!check_head(op, push, &at, 0, &part, &flags))
            return false;
        const struct mr_feature *f = &part.feature->feature;
        const struct mr_tensor *gradient = &op->tensors[at];
        if (part.feature->table == NULL ? !check_variable_gradient(op, &part, flags, &at)
                                        : !ps_check_rows(op, &at, 3, f->name, &part.gradient))
            return false;
        if (part.feature->table != NULL && gradient->dims[2] != f->dims[0]) {
            return ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u; the gradient's rows have %u", f->name,
                             f->dims[0], gradient->dims[2]);
        }
        push->parts[push->part_count++] = part;
    }
    return true;
}

/* The batch was fed with these tables, and their gradients have its shape. Takes its keys. */
static bool check_batch_parts(const struct ps_op *op, struct ps_push *push, const struct ps_batch *batch)
{
    if (batch->read_only) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "batch %" PRIu64 " was fed read only: it takes no gradients", batch->id);
    }
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct ps_push_part *part = &push->parts[i];
        const struct mr_tensor *gradient = &op->tensors[part->gradient.at];
        if (part->feature->table == NULL)
            continue;
        const struct ps_batch_part *fed = ps_batch_part_of(batch, part->feature->id);
        if (fed == NULL) {
            return ps_refuse(op, MR_UNKNOWN_TABLE, "batch %" PRIu64 " was fed without keys of table %s",
                             batch->id, part->feature->feature.name);
        }
        if (gradient->dims[0] != fed->samples || gradient->dims[1] != fed->slots) {
            return ps_refuse(op, MR_WRONG_SHAPE,
                             "table %s: the gradient is of %u sample%s and %u slot%s, the batch of %u and %u",
                             part->feature->feature.name, gradient->dims[0], mr_plural(gradient->dims[0]),
                             gradient->dims[1], mr_plural(gradient->dims[1]), fed->samples, fed->slots);
        }
        part->list.in = (struct ps_bags){.keys = fed->keys,
                                         .key_count = fed->key_count,
                                         .offsets = fed->offsets,
                                         .bag_count = fed->samples * fed->slots,
                                         .is_single = fed->is_single,
                                         .weights = fed->weights,
                                         .divisors = fed->divisors};
    }
    return true;
}

static bool check_record(const struct ps_op *op, uint64_t batch_id)
{
    const struct ps_stream_user user = {op->request->client_uuid,
                                        mr_call_ref_network(op->ep, op->request->ref)};
    ps_begin_stream(op->core, mr_batch_stream(batch_id));
    enum mr_status status = ps_applied_batches_reserve(op->core->applied, batch_id, &user);
    if (status == MR_BUSY) {
        ps_hold_back(op, &op->core->counters.pushes_waiting);
        return false;
    }
    if (status == MR_OUT_OF_MEMORY)
        return ps_refuse(op, status, "no memory for the record of applied batches: raise batches.memory_mib");
    if (status != MR_OK) {
        return ps_refuse(op, status,
                         "batch number %" PRIu64 " of stream %u is more than %u ahead of %" PRIu64
                         ", the oldest not applied: number batches from 0 on",
                         mr_batch_sequence(batch_id), mr_batch_stream(batch_id), PS_APPLIED_BATCHES_WINDOW,
                         ps_applied_batches_watermark(op->core->applied, mr_batch_stream(batch_id)));
    }
    return true;
}

/* From here on nobody finds the batch any more. */
static bool begin_batch(const struct ps_op *op, struct ps_push *push)
{
    struct ps_core *core = op->core;
    uint64_t batch_id = push->batch->id;
    const uint32_t applied = 1;
    const struct mr_tensor answer = mr_tensor_1d(MR_U32, 1, &applied);
    if (!check_record(op, batch_id) || !check_room(op, push))
        return false;
    const struct ps_partial *partial = ps_partials_find(&core->partials, batch_id);
    if (partial != NULL)
        leave_out(push, partial->partitions.words);
    if (!check_log(op, push) || !begin_answer(op, push, &answer))
        return false;
    ps_batch_pin(push->batch);
    ps_batch_remove(core->batches, push->batch);
    push_start(op, push);
    return true;
}

static bool step_batch(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct ps_push *push = state;
    struct ps_core *core = op->core;
    if (!push->is_begun && !begin_batch(op, push))
        return true;
    if (!push_apply(op, push, &budget_bytes))
        return false;
    ps_applied_batches_add(core->applied, push->batch->id);
    ps_partials_remove(&core->partials, push->batch->id); /* not before: its record may move meanwhile */
    core->counters.batches_applied++;
    push_end(op, push);
    ps_batch_unpin(core->batches, push->batch);
    return true;
}

static const struct ps_coop_task batch_job = {
    .step = step_batch, .drop = push_drop, .state_bytes = sizeof(struct ps_push)};

/* The push in flight is of this batch. */
static bool is_being_applied(const struct ps_core *core, uint64_t batch_id)
{
    const struct ps_coop_tasks *l = &core->coop_tasks;
    return l->running != NULL && l->job == &batch_job &&
           ps_tensor_u64(l->running->message->tensors, 0) == batch_id;
}

bool ps_push_applies_stream(const struct ps_core *core, uint32_t stream)
{
    const struct ps_coop_tasks *l = &core->coop_tasks;
    return l->running != NULL && l->job == &batch_job &&
           mr_batch_stream(ps_tensor_u64(l->running->message->tensors, 0)) == stream;
}

static void answer_applied(const struct ps_op *op, uint64_t batch_id)
{
    const uint32_t applied = 0;
    struct mr_tensor answer = mr_tensor_1d(MR_U32, 1, &applied);
    if (!ps_push_log_keep(op, PS_LOG_NUMBERS_BYTES))
        return;
    if (!ps_push_answer_begin(op, &answer, 1)) {
        mr_reply_busy(op->ep, op->request->ref);
        return;
    }
    op->core->counters.pushes_refused_applied++;
    struct ps_batch *again = ps_batch_find(op->core->batches, batch_id);
    if (again != NULL)
        ps_batch_remove(op->core->batches, again);
    ps_push_begin(op);
    ps_push_end(op);
    if (op->core->copies != NULL)
        ps_push_copy(op);
    ps_push_log_numbers(op, id_of(op).number);
    ps_push_answer_end(op);
}

void ps_op_push_grad_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_core *core = op.core;
    struct ps_push push;
    push_init(&push);
    if (!ps_check_open(&op) || !check_push_of_batch(&op) || !check_batch_heads(&op, &push))
        return;
    uint64_t batch_id = ps_tensor_u64(&op.tensors[0], 0);
    if (is_being_applied(core, batch_id)) {
        (void)ps_defer(&op, UINT64_MAX); /* it will have been applied then */
        return;
    }
    if (ps_applied_batches_has(core->applied, batch_id)) {
        answer_applied(&op, batch_id);
        return;
    }
    if (ps_check_step(&op, true) && ps_check_not_frozen(&op) &&
        (push.batch = ps_check_batch(&op, batch_id)) != NULL && check_batch_parts(&op, &push, push.batch) &&
        !ps_push_log_defers(&op) && !ps_defer(&op, push_cost_bytes(&push)))
        ps_run(&op, &batch_job, &push);
}
