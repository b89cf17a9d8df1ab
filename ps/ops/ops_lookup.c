/* Rows by key, of one table or of several: raw ones, or bags. */
#include <assert.h>
#include <string.h>
#include "dataplane/wire/format/rows.h"
#include "ps/ops/ops.h"

/* What is looked up in one table, and where the answer has it. */
struct lookup_part {
    struct ps_key_list list;
    void *out;
    float *scales; /* of i8 */
};

struct lookup {
    enum mr_dtype dtype; /* of the answer */
    uint32_t part_count;
    uint32_t at; /* the part whose keys are checked or looked up */
    struct ps_table_lookup rows;
    bool is_begun;
    struct lookup_part parts[MR_LOOKUP_TABLES_MAX]; /* only as many as there are are set */
    float sum[MR_DIM_MAX];                          /* used for bags of other types than f32 only */
};
static_assert(sizeof(struct lookup) <= PS_COOP_STATE_BYTES, "a lookup waits in place");
static_assert(MR_LOOKUP_TABLES_MAX * MR_ROWS_TENSORS_MAX <= MR_TENSORS_MAX, "an answer is one message");

/* By its flag, or because the caller may change nothing. */
static bool is_read_only(const struct mr_request *request)
{
    return (request->message->preamble.flags & MR_FEED_READ_ONLY) != 0 || request->role == MR_ROLE_READ_ONLY;
}

/* Describes the answer; returns its number of tensors. */
static uint32_t reply_of(const struct lookup *call,
                         struct mr_tensor out[MR_LOOKUP_TABLES_MAX * MR_ROWS_TENSORS_MAX])
{
    uint32_t tensors = 0;
    for (uint32_t i = 0; i < call->part_count; i++) {
        const struct ps_key_list *list = &call->parts[i].list;
        uint32_t count = list->in.offsets != NULL ? list->in.bag_count : list->in.key_count;
        tensors += mr_rows_tensors(mr_tensor_2d(MR_F32, count, list->table->feature.dims[0], NULL),
                                   call->dtype, out + tensors);
    }
    return tensors;
}

static void begin_part(const struct ps_op *op, struct lookup *call)
{
    const struct lookup_part *part = &call->parts[call->at];
    call->rows =
        (struct ps_table_lookup){.in = part->list.in,
                                 .insert = op->core->freeze == MR_FREEZE_OFF && !is_read_only(op->request),
                                 .step = op->request->message->preamble.step,
                                 .out_dtype = call->dtype,
                                 .out = part->out,
                                 .scales = part->scales,
                                 .sum = call->sum};
    ps_set_now(op, part->list.table->table);
}

static enum ps_check ops_lookup_begin(const struct ps_op *op, struct lookup *call, uint64_t *budget_bytes)
{
    struct mr_tensor reply[MR_LOOKUP_TABLES_MAX * MR_ROWS_TENSORS_MAX];
    for (; call->at < call->part_count; call->at++) {
        enum ps_check check = ps_check_key_list(op, &call->parts[call->at].list, budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check;
    }
    if (!ps_reply_begin(op->ep, op->request, reply, reply_of(call, reply)))
        return PS_CHECK_REFUSED;
    for (uint32_t i = 0, t = 0; i < call->part_count; i++) {
        call->parts[i].out = reply[t++].data;
        call->parts[i].scales = call->dtype == MR_I8 ? reply[t++].data : NULL;
    }
    call->at = 0;
    call->is_begun = true;
    begin_part(op, call);
    return PS_CHECK_GOOD;
}

/* Looks up more rows of the part; true when it is complete. */
static bool gather(const struct ps_op *op, struct lookup *call, uint64_t *budget_bytes)
{
    struct ps_table *table = call->parts[call->at].list.table->table;
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_gather);
    const bool is_done = ps_table_lookup_step(table, &call->rows, budget_bytes);
    dp_phase_leave(op->core->phases, before);
    return is_done;
}

static void advance(const struct ps_op *op, const struct lookup *call)
{
    const struct mr_feature *table = &call->parts[call->at].list.table->feature;
    size_t row_bytes = (size_t)table->dims[0] * mr_dtype_bytes(call->dtype);
    ps_reply_advance(op, (uint8_t *)call->rows.out + call->rows.rows_done * row_bytes);
}

static bool ops_lookup_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct lookup *call = state;
    if (!call->is_begun) {
        enum ps_check check = ops_lookup_begin(op, call, &budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check == PS_CHECK_REFUSED;
    }
    while (gather(op, call, &budget_bytes)) {
        if (++call->at == call->part_count) {
            mr_reply_end(op->ep, op->request->ref);
            return true;
        }
        begin_part(op, call);
        if (budget_bytes == 0)
            break;
    }
    advance(op, call);
    return false;
}

/* As much as a lookup of one table needs that is not of narrow bags. */
static const struct ps_coop_task one_job = {.step = ops_lookup_step,
                                            .state_bytes = offsetof(struct lookup, parts[1])};
static const struct ps_coop_task job = {.step = ops_lookup_step, .state_bytes = sizeof(struct lookup)};

static void ops_lookup_init(struct lookup *call)
{
    memset(call, 0, offsetof(struct lookup, parts[1]));
}

/* Flags that are about the whole call, and the type of the rows in the answer; the others are in *flags. */
static bool check_call_flags(const struct ps_op *op, struct lookup *call, uint32_t known, uint32_t *flags)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    uint32_t low = preamble->flags & ((1u << MR_LOOKUP_DTYPE_SHIFT) - 1);
    *flags = low & ~(uint32_t)MR_FEED_READ_ONLY;
    return ps_check_flags(op, low, MR_FEED_READ_ONLY | known) && ps_check_reply_dtype(op, &call->dtype);
}

static uint64_t cost_bytes(const struct lookup *call)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < call->part_count; i++) {
        const struct ps_key_list *list = &call->parts[i].list;
        bytes += ps_table_lookup_cost_bytes(list->table->table, list->in.key_count, list->in.bag_count);
    }
    return bytes;
}

/* Does a call that was found to be well formed. */
static void ops_lookup_run(const struct ps_op *op, struct lookup *call, const struct ps_coop_task *task)
{
    struct mr_tensor reply[MR_LOOKUP_TABLES_MAX * MR_ROWS_TENSORS_MAX];
    if (ps_check_reply_bytes(op, reply, reply_of(call, reply)) && !ps_defer(op, cost_bytes(call)))
        ps_run(op, task, call);
}

/* ---- one table ---- */

static bool check_lookup(const struct ps_op *op, struct lookup *call)
{
    struct ps_key_list *list = &call->parts[0].list;
    bool has_bags = op->tensor_count > 1;
    uint32_t at = has_bags ? 2 : 1, flags;
    call->part_count = 1;
    return (list->table = ps_check_table(op, op->request->message->preamble.table)) != NULL &&
           check_call_flags(op, call, MR_BAG_WEIGHTS | MR_BAG_DIVISORS, &flags) &&
           ps_check_key_tensors(op, 0, has_bags ? 1 : 0, list) &&
           ps_check_bag_tensors(op, flags, &at, list) && ps_check_tensor_count(op, at);
}

/* Keys given with offsets are bags. */
void ps_op_lookup(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct lookup call;
    const bool is_stored = (request->message->preamble.flags & MR_LOOKUP_STORED) != 0;
    if (!ps_check_open(&op) || !ps_check_step(&op, !is_stored && !is_read_only(request)))
        return;
    ops_lookup_init(&call);
    if (is_stored)
        ps_op_lookup_stored(&op);
    else if (check_lookup(&op, &call))
        ops_lookup_run(&op, &call,
                       call.parts[0].list.in.offsets != NULL && call.dtype != MR_F32 ? &job : &one_job);
}

/* ---- several tables ---- */

/* Tensor *at is the head of a part, and what it announces follows; moves *at past these. */
static bool check_part(const struct ps_op *op, uint32_t *at, struct lookup_part *part)
{
    const uint32_t keys_at = *at + 1;
    struct mr_table_head head;
    if (!ps_check_vector(op, *at, MR_U32, MR_TABLE_HEAD_WORDS, "head of the table"))
        return false;
    memcpy(&head, op->tensors[*at].data, sizeof(head));
    *part = (struct lookup_part){.list.table = ps_check_table(op, head.table)};
    if (part->list.table == NULL)
        return false;
    if (head.zero[0] != 0 || head.zero[1] != 0)
        return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s: last words 0x%x and 0x%x of its head are not 0",
                         part->list.table->feature.name, head.zero[0], head.zero[1]);
    if (!ps_check_flags(op, head.flags, MR_BAG_WEIGHTS | MR_BAG_DIVISORS) ||
        !ps_check_tensor(op, keys_at + 1, MR_U32, 1, "offsets"))
        return false;
    *at = keys_at + 2;
    const bool has_bags = op->tensors[keys_at + 1].dims[0] > 0;
    return ps_check_key_tensors(op, keys_at, has_bags ? keys_at + 1 : 0, &part->list) &&
           ps_check_bag_tensors(op, head.flags, at, &part->list);
}

static bool check_parts(const struct ps_op *op, struct lookup *call)
{
    uint32_t flags;
    if (!check_call_flags(op, call, 0, &flags))
        return false;
    if (op->tensor_count == 0)
        return ps_refuse(op, MR_WRONG_SHAPE, "a lookup of no tables");
    for (uint32_t at = 0; at < op->tensor_count; call->part_count++) {
        if (call->part_count == MR_LOOKUP_TABLES_MAX)
            return ps_refuse(op, MR_INVALID_ARGUMENT, "a lookup of more than %u tables: make several calls",
                             MR_LOOKUP_TABLES_MAX);
        if (!check_part(op, &at, &call->parts[call->part_count]))
            return false;
    }
    return true;
}

void ps_op_lookup_tables(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct lookup call;
    ops_lookup_init(&call);
    if (ps_check_open(&op) && ps_check_step(&op, !is_read_only(request)) && check_parts(&op, &call))
        ops_lookup_run(&op, &call, &job);
}
