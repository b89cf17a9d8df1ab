/* Alter: options of a table or variable change while it serves. */
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/log.h"
#include "ps/cluster/feature_rules.h"
#include "ps/control/control_internal.h"
#include "ps/core/alter.h"
#include "ps/core/push_log.h"

struct alteration {
    uint32_t at; /* in the catalog */
    uint32_t id;
    struct mr_feature is, after;
};

/* Between two calls of the core. */
static void alter_on_core(struct ps_core *core, void *arg)
{
    const struct alteration *a = arg;
    ps_feature_alter(ps_core_feature(core, a->id), &a->after);
    ps_push_log_feature(core, PS_LOG_ALTER, a->id, &a->after);
}

static enum mr_status plan(const struct ps_control *c, const struct ps_command *command, struct alteration *a,
                           char *text)
{
    const struct mr_feature *before = &command->features[0], *after = &command->features[1];
    a->at = ps_catalog_find(&c->catalog, before->name);
    if (a->at == c->catalog.count) {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "there is no table or variable named %.63s; millrace ctl list shows what there is",
                 before->name);
        return MR_UNKNOWN_TABLE;
    }
    a->id = c->catalog.ids[a->at];
    a->is = c->catalog.features[a->at];
    return ps_rules_alter(&a->is, before, after, ps_alter_check, &a->after, text);
}

/* Is on disk when it returns, before any call meets it. */
static enum mr_status note_altered(struct ps_control *c, const struct alteration *a, char *text)
{
    char error[PS_CONTROL_TEXT_BYTES];
    struct ps_history *after = malloc(sizeof(*after));
    if (after == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_OUT_OF_MEMORY;
    }
    *after = c->history;
    ps_history_altered(after, a->id, &a->after);
    const enum mr_status status = ps_control_write_history(c, after, error);
    if (status == MR_OK)
        c->history = *after;
    else
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%.300s; nothing was altered", error);
    free(after);
    return status;
}

static void log_altered(const struct alteration *a, const char *field)
{
    char text[MR_FEATURE_TEXT_BYTES];
    mr_feature_explain_diff(&a->is, &a->after, field, text, sizeof(text));
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"feature", .text = a->is.name}), "feature_altered",
                "altered %.63s: %s; millrace ctl list shows all options", a->is.name, text);
}

void ps_control_alter_to(struct ps_control *c, uint32_t at, const struct mr_feature *after)
{
    struct alteration a = {
        .at = at, .id = c->catalog.ids[at], .is = c->catalog.features[at], .after = *after};
    const char *field = mr_feature_diff(&a.is, &a.after);
    ps_node_each_core_at_once(c->node, alter_on_core, &a);
    c->catalog.features[at] = a.after;
    c->saves.changes_saved = UINT64_MAX; /* the next save by time is made even if nobody pushes */
    if (field != NULL)
        log_altered(&a, field);
}

void ps_control_alter(struct ps_control *c, struct ps_command *command)
{
    struct alteration a;
    command->status = ps_control_check_whole(c, command->text);
    if (command->status == MR_OK)
        command->status = ps_control_log_check(c, command->text);
    if (command->status == MR_OK)
        command->status = plan(c, command, &a, command->text);
    if (command->status != MR_OK)
        return;
    if (mr_feature_diff(&a.is, &a.after) != NULL) { /* otherwise the call came again */
        command->status = note_altered(c, &a, command->text);
        if (command->status != MR_OK)
            return;
        ps_control_alter_to(c, a.at, &a.after);
        command->status = ps_control_log_wait(c, command->text);
        if (command->status != MR_OK)
            return;
    }
    ps_command_answer(command, mr_tensor_1d(MR_U8, sizeof(a.after), NULL), &a.after);
}
