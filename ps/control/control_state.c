/* What the other files share: answers of commands, the gate of data calls, the view of saves, counters. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/log.h"
#include "ps/control/control_internal.h"

void ps_command_free(struct ps_command *command)
{
    for (uint32_t i = 0; i < command->tensor_count; i++)
        free(command->tensors[i].data);
    free(command->features);
    free(command->names);
    free(command->name_list);
    free(command);
}

void ps_command_fail(struct ps_command *command, enum mr_status status, const char *format, ...)
{
    command->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command->text, sizeof(command->text), format, arguments);
    va_end(arguments);
}

void ps_command_answer(struct ps_command *command, struct mr_tensor tensor, const void *data)
{
    assert(command->tensor_count < PS_REPLY_TENSORS_MAX);
    tensor.data = malloc(tensor.bytes + 1);
    if (tensor.data == NULL) {
        ps_command_fail(command, MR_OUT_OF_MEMORY, "no memory for the answer");
        return;
    }
    memcpy(tensor.data, data, tensor.bytes);
    command->tensors[command->tensor_count++] = tensor;
}

enum mr_status ps_control_check_whole(const struct ps_control *c, char *text)
{
    if (c->gate != PS_GATE_BROKEN)
        return MR_OK;
    char why[PS_WHY_BYTES];
    (void)ps_node_state(c->node, why);
    snprintf(text, PS_CONTROL_TEXT_BYTES, "the node serves nothing: %s", why);
    return c->broken_status;
}

void ps_command_send_back(struct ps_control *c, struct ps_command *command)
{
    mr_log_debug("command", "%s: %s%s%s", mr_op_name(command->op), mr_status_text(command->status),
                 command->status != MR_OK ? ": " : "", command->status != MR_OK ? command->text : "");
    while (!dp_post(c->node->dp, 0, &command->task))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- gate and view ---- */

struct gate_order {
    enum ps_gate gate;
    enum mr_status status;
    const char *text;
};

static void set_gate(struct ps_core *core, void *arg)
{
    const struct gate_order *order = arg;
    core->gate = order->gate;
    core->gate_status = order->status;
    snprintf(core->gate_text, sizeof(core->gate_text), "%s", order->text);
}

void ps_control_gate(struct ps_control *c, enum ps_gate gate)
{
    struct gate_order order = {.gate = gate, .status = MR_OK, .text = ""};
    ps_node_each_core(c->node, set_gate, &order);
    c->gate = gate;
    if (gate == PS_GATE_OPEN)
        ps_node_set_state(c->node, c->node->is_read_only ? MR_NODE_READ_ONLY : MR_NODE_SERVING);
}

void ps_control_gate_broken(struct ps_control *c, enum mr_status status, const char *text)
{
    struct gate_order order = {.gate = PS_GATE_BROKEN, .status = status, .text = text};
    ps_node_each_core(c->node, set_gate, &order);
    c->gate = PS_GATE_BROKEN;
    c->broken_status = status;
    ps_node_fail(c->node, text);
}

void ps_control_set_view(struct ps_control *c, const struct ps_checkpoint_view *view)
{
    pthread_mutex_lock(&c->view_lock);
    c->view = *view;
    pthread_mutex_unlock(&c->view_lock);
}

void ps_control_view(struct ps_control *c, struct ps_checkpoint_view *out)
{
    pthread_mutex_lock(&c->view_lock);
    *out = c->view;
    pthread_mutex_unlock(&c->view_lock);
    if (out->state == 2)
        out->bytes_done = atomic_load_explicit(&c->load_progress, memory_order_relaxed);
}
