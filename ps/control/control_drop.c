/* Drop: features go, with all that they have learnt, and stay away. So do parameters of remote calls. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/control/control_internal.h"
#include "ps/core/push_log.h"

struct drop {
    uint16_t ids[MR_FEATURE_MAX];
    uint32_t count;
};

/* Batches that were fed may have keys of them. */
static void drop_on_core(struct ps_core *core, void *arg)
{
    const struct drop *drop = arg;
    for (uint32_t i = 0; i < drop->count; i++) {
        ps_push_log_feature(core, PS_LOG_DROP, drop->ids[i], NULL);
        ps_core_remove_feature(core, drop->ids[i]);
    }
    ps_batch_cache_clear(core->batches);
}

/* Is on disk when it returns, before anything is removed: a node that dies in between goes on without
 * them. */
static enum mr_status note_dropped(struct ps_control *c, const struct drop *drop, char *text)
{
    char error[PS_CONTROL_TEXT_BYTES];
    struct ps_history *after = malloc(sizeof(*after));
    if (after == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_OUT_OF_MEMORY;
    }
    *after = c->history;
    for (uint32_t i = 0; i < drop->count; i++)
        ps_history_dropped(after, drop->ids[i]);
    enum mr_status status = ps_control_write_history(c, after, error);
    if (status == MR_OK)
        c->history = *after;
    else
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%.300s; nothing was dropped", error);
    free(after);
    return status;
}

/* Data calls are answered BUSY for a moment, so that none is in flight in slices. */
void ps_control_drop_ids(struct ps_control *c, const uint16_t *ids, uint32_t count)
{
    const enum ps_gate gate = c->gate;
    struct drop drop = {.count = count};
    memcpy(drop.ids, ids, count * sizeof(*ids));
    if (gate == PS_GATE_OPEN)
        ps_control_gate(c, PS_GATE_BUSY);
    ps_node_each_core(c->node, drop_on_core, &drop);
    for (uint32_t i = 0; i < count; i++)
        ps_catalog_remove(&c->catalog, ids[i]);
    if (gate == PS_GATE_OPEN)
        ps_control_gate(c, PS_GATE_OPEN);
    c->saves.changes_saved = UINT64_MAX; /* the next save by time is made even if nobody pushes */
}

static void control_drop_answer(struct ps_command *command, const struct drop *drop)
{
    uint32_t ids[MR_FEATURE_MAX];
    for (uint32_t i = 0; i < drop->count; i++)
        ids[i] = drop->ids[i];
    ps_command_answer(command, mr_tensor_1d(MR_U32, drop->count, NULL), ids);
}

void ps_control_drop(struct ps_control *c, struct ps_command *command)
{
    struct drop drop = {.count = 0};
    uint32_t features = command->name_list_count;
    command->status = ps_control_check_whole(c, command->text);
    if (command->status == MR_OK)
        command->status = ps_control_check_idle(c, command->text);
    if (command->status == MR_OK)
        command->status = ps_control_log_check(c, command->text);
    if (command->status == MR_OK)
        features = ps_control_sort_names(c, command->name_list, command->name_list_count);
    if (command->status == MR_OK)
        command->status =
            ps_control_find_features(c, command->name_list, features, drop.ids, &drop.count, command->text);
    if (command->status == MR_OK && features > 0)
        command->status = note_dropped(c, &drop, command->text);
    if (command->status != MR_OK)
        return;
    if (features < command->name_list_count)
        ps_control_drop_parameters(c, command->name_list + (size_t)features * MR_NAME_BYTES,
                                   command->name_list_count - features);
    if (features > 0) {
        ps_control_drop_ids(c, drop.ids, drop.count);
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = drop.count}), "features_dropped",
                    "dropped %u feature%s, first %.63s; there are %u", drop.count, mr_plural(drop.count),
                    command->name_list, c->catalog.count);
    }
    command->status = ps_control_log_wait(c, command->text);
    if (command->status == MR_OK)
        control_drop_answer(command, &drop);
    ps_pending_free_wait(
        c->node); /* calls are served meanwhile, and the memory is free for the next command */
}
