/* Calls that concern all cores: checked and copied here, done by the control thread. To core 0. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/list.h"
#include "ps/control/control.h"
#include "ps/ops/ops.h"

static bool check_core_0(const struct ps_op *op)
{
    return op->core->index == 0 || ps_refuse(op, MR_INVALID_ARGUMENT, "%s is served by core 0 only",
                                             mr_op_name(op->request->message->preamble.op));
}

/* ---- what is asked ---- */

static bool copy_features(const struct ps_op *op, struct ps_command *command)
{
    const struct mr_tensor *t = &op->tensors[0];
    command->features = malloc(t->bytes + 1);
    if (command->features == NULL)
        return ps_refuse(op, MR_OUT_OF_MEMORY, "no memory left");
    memcpy(command->features, t->data, t->bytes);
    command->feature_count = t->dims[0];
    return true;
}

static bool read_create(const struct ps_op *op, struct ps_command *command)
{
    if (!ps_check_tensor(op, 0, MR_U8, 2, "features"))
        return false;
    const struct mr_tensor *t = &op->tensors[0];
    if (t->dims[1] != sizeof(struct mr_feature) || t->dims[0] > MR_FEATURE_MAX) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "features are u8[%u, %u]; expected at most %u descriptors of %zu bytes", t->dims[0],
                         t->dims[1], MR_FEATURE_MAX, sizeof(struct mr_feature));
    }
    return copy_features(op, command);
}

static bool read_freeze(const struct ps_op *op, struct ps_command *command)
{
    if (!ps_check_vector(op, 0, MR_U32, 1, "level"))
        return false;
    command->freeze = ps_tensor_u32(&op->tensors[0], 0);
    if (command->freeze > MR_FREEZE_ALL)
        return ps_refuse(op, MR_INVALID_ARGUMENT, "freeze level %u: 0 off, 1 admit, 2 all", command->freeze);
    return command->freeze == MR_FREEZE_ALL || ps_check_writable(op);
}

static bool read_directory(const struct ps_op *op, struct ps_command *command)
{
    if (!ps_check_tensor(op, 0, MR_U8, 1, "directory"))
        return false;
    const struct mr_tensor *t = &op->tensors[0];
    if (t->bytes >= PS_DIRECTORY_BYTES || memchr(t->data, '\0', t->bytes) != NULL) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "directory: up to %u bytes, none of them NUL",
                         PS_DIRECTORY_BYTES - 1);
    }
    memcpy(command->directory, t->data, t->bytes);
    return true;
}

/* The number of a save that waits or is being written, and no save. */
static bool read_cancel(const struct ps_op *op, const uint64_t *words, struct ps_command *command)
{
    bool is_alone = op->tensors[0].bytes == 0;
    for (uint32_t i = 0; i < MR_SAVE_ASK_WORDS; i++)
        is_alone = is_alone && (i == MR_SAVE_ASK_CANCEL || words[i] == 0);
    if (words[MR_SAVE_ASK_CANCEL] != 0 && !is_alone)
        return ps_refuse(op, MR_INVALID_ARGUMENT, "a save is cancelled by its number, with nothing else");
    command->cancel_number = words[MR_SAVE_ASK_CANCEL];
    return true;
}

/* Tensor `index` as a list of names of features. */
static bool read_feature_names(const struct ps_op *op, uint32_t index, char **names, uint32_t *count)
{
    if (!ps_check_tensor(op, index, MR_U8, 2, "names"))
        return false;
    const struct mr_tensor *t = &op->tensors[index];
    if (t->dims[1] != MR_NAME_BYTES || t->dims[0] == 0 || t->dims[0] > MR_FEATURE_MAX) {
        return ps_refuse(op, MR_WRONG_SHAPE, "names are u8[%u, %u]; expected 1 to %u names of %d bytes",
                         t->dims[0], t->dims[1], MR_FEATURE_MAX, MR_NAME_BYTES);
    }
    const char *all = t->data;
    for (uint32_t i = 0; i < t->dims[0]; i++)
        if (memchr(all + (size_t)i * MR_NAME_BYTES, '\0', MR_NAME_BYTES) == NULL)
            return ps_refuse(op, MR_INVALID_ARGUMENT, "name %u is longer than %d bytes", i,
                             MR_NAME_BYTES - 1);
    *names = malloc(t->bytes);
    if (*names == NULL)
        return ps_refuse(op, MR_OUT_OF_MEMORY, "no memory left");
    memcpy(*names, all, t->bytes);
    *count = t->dims[0];
    return true;
}

static bool read_save(const struct ps_op *op, struct ps_command *command)
{
    struct ps_save_request *save = &command->save;
    save->is_by_trainer = op->request->role != MR_ROLE_OPERATOR;
    if (!read_directory(op, command))
        return false;
    memcpy(save->directory, command->directory, sizeof(save->directory));
    if (op->tensor_count == 1)
        return true;
    uint64_t words[MR_SAVE_ASK_WORDS];
    if (!ps_check_body(op, 1, MR_BODY_SAVE_ASK, words) || !read_cancel(op, words, command))
        return false;
    if (words[MR_SAVE_ASK_KIND] > PS_ASKED_DELTA || words[MR_SAVE_ASK_TRAINERS] > PS_STEP_CLIENTS_MAX ||
        words[MR_SAVE_ASK_QUEUE] > 1) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "kind %" PRIu64 ", trainers %" PRIu64 ", queue %" PRIu64
                         ": kind is 0 as configured, 1 full, 2 delta; trainers up to %u; queue 0 or 1",
                         words[MR_SAVE_ASK_KIND], words[MR_SAVE_ASK_TRAINERS], words[MR_SAVE_ASK_QUEUE],
                         PS_STEP_CLIENTS_MAX);
    }
    save->kind = (enum ps_save_asked)words[MR_SAVE_ASK_KIND];
    save->step = words[MR_SAVE_ASK_STEP];
    save->trainers = (uint32_t)words[MR_SAVE_ASK_TRAINERS];
    save->queue = words[MR_SAVE_ASK_QUEUE] == 1;
    if (op->tensor_count == 2)
        return true;
    if (command->cancel_number != 0 || save->kind == PS_ASKED_DELTA)
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         command->cancel_number != 0
                             ? "a save is cancelled by its number, with nothing else"
                             : "a checkpoint of single tables is never a delta: leave out kind or names");
    return ps_check_tensor_count(op, 3) &&
           read_feature_names(op, 2, &command->name_list, &command->name_list_count);
}

/* Which features of the checkpoint, and under which names. */
static bool read_names(const struct ps_op *op, struct ps_command *command)
{
    if (!ps_check_tensor_count(op, 4) || !ps_check_tensor(op, 2, MR_U8, 2, "names") ||
        !ps_check_vector(op, 3, MR_U32, 1, "flags"))
        return false;
    const struct mr_tensor *t = &op->tensors[2];
    uint32_t flags = ps_tensor_u32(&op->tensors[3], 0);
    if (t->dims[1] != sizeof(struct mr_restore_pair) || t->dims[0] == 0 || t->dims[0] > MR_FEATURE_MAX) {
        return ps_refuse(op, MR_WRONG_SHAPE, "names are u8[%u, %u]; expected 1 to %u pairs of %zu bytes",
                         t->dims[0], t->dims[1], MR_FEATURE_MAX, sizeof(struct mr_restore_pair));
    }
    if ((flags & ~MR_RESTORE_REPLACE) != 0)
        return ps_refuse(op, MR_INVALID_ARGUMENT, "flags 0x%x: 1 replaces, others have no meaning", flags);
    command->names = malloc(t->bytes);
    if (command->names == NULL)
        return ps_refuse(op, MR_OUT_OF_MEMORY, "no memory left");
    memcpy(command->names, t->data, t->bytes);
    command->name_count = t->dims[0];
    command->replace = flags != 0;
    return true;
}

static bool read_restore(const struct ps_op *op, struct ps_command *command)
{
    if (!read_directory(op, command) || !ps_check_vector(op, 1, MR_U64, 1, "checkpoint id"))
        return false;
    command->checkpoint_id = ps_tensor_u64(&op->tensors[1], 0);
    return op->tensor_count <= 2 || read_names(op, command);
}

static bool read_drop(const struct ps_op *op, struct ps_command *command)
{
    return ps_check_writable(op) && ps_check_tensor_count(op, 1) &&
           read_feature_names(op, 0, &command->name_list, &command->name_list_count);
}

static bool read_alter(const struct ps_op *op, struct ps_command *command)
{
    if (!ps_check_writable(op) || !ps_check_tensor_count(op, 1) ||
        !ps_check_tensor(op, 0, MR_U8, 2, "features"))
        return false;
    const struct mr_tensor *t = &op->tensors[0];
    if (t->dims[0] != 2 || t->dims[1] != sizeof(struct mr_feature)) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "features are u8[%u, %u]; expected the descriptor before and after, of %zu bytes",
                         t->dims[0], t->dims[1], sizeof(struct mr_feature));
    }
    return copy_features(op, command);
}

static bool read_node_name(const struct ps_op *op, uint32_t index, char out[PS_CLUSTER_NAME_BYTES])
{
    const char *name = (const char *)op->tensors[1].data + (size_t)index * PS_CLUSTER_NAME_BYTES;
    memcpy(out, name, PS_CLUSTER_NAME_BYTES);
    return memchr(out, '\0', PS_CLUSTER_NAME_BYTES) != NULL ||
           ps_refuse(op, MR_INVALID_ARGUMENT, "a node's name is longer than %u bytes",
                     PS_CLUSTER_NAME_BYTES - 1);
}

static bool read_move(const struct ps_op *op, struct ps_command *command)
{
    struct ps_migration_request *w = &command->move;
    uint64_t words[MR_MOVE_REQUEST_WORDS];
    if (!ps_check_body(op, 0, MR_BODY_MOVE_REQUEST, words) || !ps_check_tensor(op, 1, MR_U8, 2, "nodes") ||
        !ps_check_tensor_count(op, 2))
        return false;
    if (op->tensors[1].dims[0] != 2 || op->tensors[1].dims[1] != PS_CLUSTER_NAME_BYTES)
        return ps_refuse(op, MR_WRONG_SHAPE, "nodes are u8[%u, %u], not two names of %u bytes",
                         op->tensors[1].dims[0], op->tensors[1].dims[1], PS_CLUSTER_NAME_BYTES);
    if (words[MR_MOVE_REQUEST_KIND] < MR_MOVE_PARTITIONS || words[MR_MOVE_REQUEST_KIND] > MR_MOVE_TAKE_OVER ||
        words[MR_MOVE_REQUEST_COUNT] > MR_PARTITION_COUNT || words[MR_MOVE_REQUEST_MIB_S] > UINT32_MAX ||
        (words[MR_MOVE_REQUEST_FIRST] != MR_MOVE_ANY && words[MR_MOVE_REQUEST_FIRST] >= MR_PARTITION_COUNT))
        return ps_refuse(op, MR_INVALID_ARGUMENT, "unknown kind of move, or invalid partitions or rate");
    w->kind = (enum mr_move_kind)words[MR_MOVE_REQUEST_KIND];
    w->has_first = words[MR_MOVE_REQUEST_FIRST] != MR_MOVE_ANY;
    w->first = w->has_first ? (uint32_t)words[MR_MOVE_REQUEST_FIRST] : 0;
    w->count = (uint32_t)words[MR_MOVE_REQUEST_COUNT];
    w->mib_s = (uint32_t)words[MR_MOVE_REQUEST_MIB_S];
    w->id = words[MR_MOVE_REQUEST_ID];
    return read_node_name(op, 0, w->from) && read_node_name(op, 1, w->to);
}

static bool read_command(const struct ps_op *op, struct ps_command *command)
{
    uint32_t state = atomic_load(&op->core->node->state);
    switch (command->op) {
    case MR_OP_CREATE:
        return read_create(op, command);
    case MR_OP_FREEZE:
        return read_freeze(op, command);
    case MR_OP_ALTER:
        return read_alter(op, command);
    case MR_OP_DROP:
        return read_drop(op, command);
    case MR_OP_MOVE:
    case MR_OP_MOVES:
        if (!op->core->node->is_member)
            return ps_refuse(op, MR_INVALID_ARGUMENT, "this node is in no cluster");
        return command->op == MR_OP_MOVES || read_move(op, command);
    case MR_OP_SAVE:
    case MR_OP_RESTORE:
        if (!ps_check_writable(op))
            return false;
        if (state == MR_NODE_RESTORING && op->core->gate != PS_GATE_BROKEN)
            return ps_refuse(op, MR_CHECKPOINT_RUNNING, "a restore is running");
        return command->op == MR_OP_SAVE ? read_save(op, command) : read_restore(op, command);
    default:
        return true;
    }
}

/* ---- the answer ---- */

static bool ops_control_answer(struct ps_core *core, struct ps_command *command)
{
    if (!mr_call_ref_alive(core->ep, command->ref)) {
        mr_reply_busy(core->ep, command->ref); /* gives back what the call held */
        return true;
    }
    if (command->status != MR_OK) {
        core->counters.requests_refused++;
        mr_reply_error(core->ep, command->ref, command->status, "%s", command->text);
        return true;
    }
    if (!mr_reply_begin(core->ep, command->ref, MR_OK, command->tensors, command->tensor_count))
        return false;
    mr_reply_end(core->ep, command->ref);
    return true;
}

/* Runs on core 0. An answer that finds no memory waits for it: what was done cannot be taken back. */
static void come_back(struct dp_task *task, void *core_app, struct dp_core *dp_core)
{
    struct ps_command *command = MR_CONTAINER(task, struct ps_command, task);
    struct ps_core *core = core_app;
    (void)dp_core;
    command->next = core->answers;
    core->answers = command;
    ps_answer_commands(core);
}

bool ps_answer_commands(struct ps_core *core)
{
    for (struct ps_command **at = &core->answers; *at != NULL;) {
        struct ps_command *command = *at;
        struct mr_tensor tensors[PS_REPLY_TENSORS_MAX];
        memcpy(tensors, command->tensors, sizeof(tensors));
        if (!ops_control_answer(core, command)) {
            memcpy(command->tensors, tensors, sizeof(tensors));
            at = &command->next;
            continue;
        }
        memcpy(command->tensors, tensors, sizeof(tensors)); /* they point into the answer now */
        *at = command->next;
        ps_command_free(command);
    }
    return core->answers != NULL;
}

void ps_drop_answers(struct ps_core *core)
{
    while (core->answers != NULL) {
        struct ps_command *command = core->answers;
        core->answers = command->next;
        ps_command_free(command);
    }
}

void ps_op_control(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    if (!check_core_0(&op))
        return;
    struct ps_command *command = calloc(1, sizeof(*command));
    if (command == NULL) {
        ps_refuse(&op, MR_OUT_OF_MEMORY, "no memory left");
        return;
    }
    command->task.run = come_back;
    command->ref = request->ref;
    command->op = request->message->preamble.op;
    command->role = request->role;
    if (!read_command(&op, command)) {
        ps_command_free(command);
        return;
    }
    if (mr_reply_later(ep, request) == NULL) {
        ps_command_free(command);
        mr_reply_busy(ep, request->ref);
        return;
    }
    if (!ps_control_submit(op.core->node->control, command)) {
        ps_command_free(command);
        mr_reply_busy(ep, request->ref);
    }
}

void ps_op_checkpoint_status(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_checkpoint_report report;
    uint64_t number = 0;
    if (!check_core_0(&op))
        return;
    if (op.tensor_count > 0) {
        if (!ps_check_vector(&op, 0, MR_U64, 1, "number of the save"))
            return;
        number = ps_tensor_u64(&op.tensors[0], 0);
    }
    if (!ps_control_report(op.core->node->control, number, &report)) {
        ps_refuse(&op, MR_CHECKPOINT_NOT_FOUND, "save %" PRIu64 " is not known: only the last %u are", number,
                  PS_SAVE_LOG_MAX);
        return;
    }
    struct mr_tensor tensors[5] = {
        mr_body_tensor(MR_BODY_PROGRESS, report.progress),
        mr_tensor_1d(MR_U8, (uint32_t)strlen(report.text), report.text),
        mr_body_tensor(MR_BODY_DETAIL, report.details),
        mr_body_rows(MR_BODY_SAVE_ROW, report.save_count, report.saves),
        mr_tensor_1d(MR_U8, (uint32_t)strlen(report.lines), report.lines),
    };
    ps_reply(ep, request, tensors, 5);
}
