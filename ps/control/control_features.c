/* Create and Freeze; features by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/cluster/feature_rules.h"
#include "ps/control/control_internal.h"
#include "ps/core/push_log.h"

/* ---- Create ---- */

struct create_order {
    uint32_t id;
    const struct mr_feature *feature;
    enum mr_status status[DP_CORES_MAX];
    char text[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static void create_on_core(struct ps_core *core, void *arg)
{
    struct create_order *order = arg;
    order->status[core->index] =
        ps_core_add_feature(core, order->id, order->feature, order->text[core->index]);
    if (order->status[core->index] == MR_OK)
        ps_push_log_feature(core, PS_LOG_CREATE, order->id, order->feature);
}

static void remove_on_core(struct ps_core *core, void *arg)
{
    const uint32_t id = *(const uint32_t *)arg;
    if (ps_core_feature(core, id) != NULL)
        ps_push_log_feature(core, PS_LOG_DROP, id, NULL);
    ps_core_remove_feature(core, id);
}

enum mr_status ps_control_create_everywhere(struct ps_control *c, const struct mr_feature *feature,
                                            uint32_t id, char *text)
{
    struct create_order order = {.id = id, .feature = feature};
    ps_node_each_core(c->node, create_on_core, &order);
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        if (order.status[i] != MR_OK) {
            ps_node_each_core(c->node, remove_on_core, &id);
            snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", order.text[i]);
            return order.status[i];
        }
    }
    ps_catalog_add(&c->catalog, id, feature);
    return MR_OK;
}

static bool check_feature(const struct ps_control *c, struct ps_command *command, uint32_t index)
{
    const uint32_t known = ps_catalog_find(&c->catalog, command->features[index].name);
    command->status =
        ps_rules_create(command->features, index,
                        known < c->catalog.count ? &c->catalog.features[known] : NULL, command->text);
    return command->status == MR_OK;
}

uint32_t ps_control_features_max(const struct ps_control *c, const struct ps_command *command)
{
    return command->role == MR_ROLE_OPERATOR ? MR_FEATURE_MAX
                                             : (uint32_t)c->node->config->memory_trainer_tables;
}

/* Reserves numbers for new features, which are never used again, whatever happens to this node. Returns the
 * first; 0: the command has failed. */
static uint32_t reserve_numbers(struct ps_control *c, struct ps_command *command, uint32_t count)
{
    char error[PS_CONTROL_TEXT_BYTES];
    struct ps_history *h = &c->history;
    const uint32_t allowed = ps_control_features_max(c, command);
    if (c->catalog.count + count > allowed && allowed < MR_FEATURE_MAX) {
        ps_command_fail(command, MR_UNAUTHORIZED, PS_RULES_TRAINER_TABLES, allowed, c->catalog.count);
        return 0;
    }
    if (c->catalog.count + count > MR_FEATURE_MAX || h->last_feature + count > MR_FEATURE_ID_MAX) {
        ps_command_fail(command, MR_INVALID_ARGUMENT, "a node has at most %u features%s", MR_FEATURE_MAX,
                        c->catalog.count + count > MR_FEATURE_MAX ? "" : PS_NUMBERS_GONE);
        return 0;
    }
    h->last_feature += count;
    if (ps_control_write_history(c, h, error) != MR_OK) {
        ps_command_fail(command, MR_IO_ERROR, "%s; no feature was created", error);
        return 0;
    }
    return h->last_feature - count + 1;
}

/* Counts the command's features that the node does not have, each name once. */
static uint32_t count_new(const struct ps_control *c, const struct ps_command *command)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < command->feature_count; i++) {
        const char *name = command->features[i].name;
        bool is_new = ps_catalog_find(&c->catalog, name) == c->catalog.count;
        for (uint32_t j = 0; j < i && is_new; j++)
            is_new = strncmp(command->features[j].name, name, MR_NAME_BYTES) != 0;
        count += is_new;
    }
    return count;
}

/* Creates the features that the node does not have, all or none, and writes the numbers of all to `ids`. */
static bool create_all(struct ps_control *c, struct ps_command *command, uint32_t *ids)
{
    uint32_t count_before = c->catalog.count, new_count = count_new(c, command), next_id = 0;
    for (uint32_t i = 0; i < command->feature_count; i++) {
        uint32_t known = ps_catalog_find(&c->catalog, command->features[i].name);
        if (known < c->catalog.count) {
            ids[i] = c->catalog.ids[known];
            continue;
        }
        if (c->node->is_read_only) {
            ps_command_fail(command, MR_FROZEN, "the node serves %s read only, which holds no %.63s",
                            c->node->serves, command->features[i].name);
            return false;
        }
        if (next_id == 0)
            next_id = reserve_numbers(c, command, new_count);
        ids[i] = next_id == 0 ? 0 : next_id++;
        if (ids[i] != 0)
            command->status = ps_control_create_everywhere(c, &command->features[i], ids[i], command->text);
        if (command->status != MR_OK) {
            while (c->catalog.count > count_before) {
                ps_node_each_core(c->node, remove_on_core, &c->catalog.ids[c->catalog.count - 1]);
                ps_catalog_pop(&c->catalog);
            }
            return false;
        }
    }
    return true;
}

void ps_control_answer_created(const struct ps_control *c, struct ps_command *command, const uint32_t *ids)
{
    const uint32_t count = command->feature_count;
    uint32_t *range_values = calloc(count + 1, sizeof(*range_values));
    if (range_values == NULL) {
        ps_command_fail(command, MR_OUT_OF_MEMORY, "no memory left");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = ps_catalog_find(&c->catalog, command->features[i].name);
        range_values[i] =
            (at < c->catalog.count ? &c->catalog.features[at] : &command->features[i])->range_values;
    }
    ps_command_answer(command, mr_tensor_1d(MR_U32, count, NULL), ids);
    ps_command_answer(command, mr_tensor_1d(MR_U32, count, NULL), range_values);
    free(range_values);
}

void ps_control_create_features(struct ps_control *c, struct ps_command *command)
{
    command->status = ps_control_check_whole(c, command->text);
    if (command->status != MR_OK)
        return;
    for (uint32_t i = 0; i < command->feature_count; i++)
        if (!check_feature(c, command, i))
            return;
    uint32_t *ids = calloc(command->feature_count + 1, sizeof(*ids));
    if (ids == NULL) {
        ps_command_fail(command, MR_OUT_OF_MEMORY, "no memory left");
        return;
    }
    uint32_t count_before = c->catalog.count;
    command->status = ps_control_log_check(c, command->text);
    if (command->status == MR_OK && create_all(c, command, ids)) {
        command->status = ps_control_log_wait(c, command->text);
        if (command->status == MR_OK)
            ps_control_answer_created(c, command, ids);
        if (c->catalog.count > count_before) {
            uint32_t made = c->catalog.count - count_before;
            mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = made}), "features_created",
                        "created %u feature%s, first %s; there are %u", made, mr_plural(made),
                        c->catalog.features[count_before].name, c->catalog.count);
        }
    }
    free(ids);
}

/* ---- Freeze ---- */

static const char *const freeze_levels[] = {"off", "admit", "all"};

struct freeze_order {
    uint32_t level;
    bool is_old;
};

static void freeze_core(struct ps_core *core, void *arg)
{
    const struct freeze_order *order = arg;
    core->freeze = order->level;
    core->freeze_is_old = order->is_old;
    core->counters.freeze = order->level;
}

void ps_control_freeze_to(struct ps_control *c, uint32_t level, bool is_old)
{
    struct freeze_order order = {.level = level, .is_old = is_old};
    c->history.freeze = level;
    ps_node_each_core(c->node, freeze_core, &order);
    if (!is_old)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"what", .text = freeze_levels[level]}), "frozen",
                    "freeze: %s", freeze_levels[level]);
    else if (level != MR_FREEZE_OFF)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"what", .text = freeze_levels[level]}), "frozen",
                    "freeze: %s, as before this start; millrace ctl freeze off lifts it",
                    freeze_levels[level]);
}

/* The level is on disk before any call meets it. */
void ps_control_freeze(struct ps_control *c, struct ps_command *command)
{
    char error[PS_CONTROL_TEXT_BYTES];
    const uint32_t before = c->history.freeze;
    c->history.freeze = command->freeze;
    if (command->freeze != before && ps_control_write_history(c, &c->history, error) != MR_OK) {
        c->history.freeze = before;
        ps_command_fail(command, MR_IO_ERROR, "%.300s; the freeze level is still %s", error,
                        freeze_levels[before]);
        return;
    }
    ps_control_freeze_to(c, command->freeze, false);
}

void ps_control_freeze_as_before(struct ps_control *c)
{
    if (c->history.freeze != MR_FREEZE_OFF)
        ps_control_freeze_to(c, c->history.freeze, true);
}

/* ---- features by name ---- */

static int compare_ids(const void *a, const void *b)
{
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

enum mr_status ps_control_find_features(const struct ps_control *c, const char *names, uint32_t name_count,
                                        uint16_t *ids, uint32_t *id_count, char *text)
{
    bool is_found[MR_FEATURE_MAX] = {false};
    uint32_t count = 0;
    for (uint32_t i = 0; i < name_count; i++) {
        const char *name = names + (size_t)i * MR_NAME_BYTES;
        const uint32_t at = ps_catalog_find(&c->catalog, name);
        if (at == c->catalog.count) {
            snprintf(text, PS_CONTROL_TEXT_BYTES,
                     "there is no table, variable or parameter named %.63s; millrace ctl list shows the "
                     "tables and variables",
                     name);
            return MR_UNKNOWN_TABLE;
        }
        if (!is_found[at])
            ids[count++] = (uint16_t)c->catalog.ids[at];
        is_found[at] = true;
    }
    qsort(ids, count, sizeof(*ids), compare_ids);
    *id_count = count;
    return MR_OK;
}
