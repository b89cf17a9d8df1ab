#include "ps/restore/restore_plan.h"

#include <stdio.h>
#include <string.h>
#include "ps/checkpoint/checkpoint_manifest.h"

enum mr_status ps_restore_read_catalog(const struct ps_reader *reader, struct ps_catalog *catalog, char *text)
{
    const struct ps_manifest *m = ps_reader_manifest(reader);
    catalog->count = 0;
    for (uint32_t i = 0; i < m->feature_count; i++) {
        const uint32_t id = m->feature_ids[i];
        const struct mr_feature *f = &m->features[i];
        const char *field = mr_feature_check(f);
        bool is_good = field == NULL && id >= 1 && id <= MR_FEATURE_ID_MAX &&
                       catalog->count < MR_FEATURE_MAX && ps_catalog_find_id(catalog, id) == catalog->count &&
                       ps_catalog_find(catalog, f->name) == catalog->count;
        if (!is_good) {
            snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES, "feature %u (%.63s): %s", id, f->name,
                     field != NULL ? field : "its number or name is used twice, or out of range");
            return MR_CHECKPOINT_CORRUPT;
        }
        ps_catalog_add(catalog, id, f);
    }
    return MR_OK;
}

static bool is_ended(const char *name)
{
    return memchr(name, '\0', MR_NAME_BYTES) != NULL;
}

/* Checks that a pair of names is well-formed and not given twice. */
static enum mr_status check_names(const struct mr_restore_pair *names, uint32_t index, char *text)
{
    const struct mr_restore_pair *pair = &names[index];
    if (!is_ended(pair->name) || !is_ended(pair->new_name) || pair->name[0] == '\0') {
        snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES,
                 "entry %u of the names to restore is not two names of up to %d bytes", index,
                 MR_NAME_BYTES - 1);
        return MR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(names[i].name, pair->name) == 0) {
            snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES, "%s is asked for twice", pair->name);
            return MR_INVALID_ARGUMENT;
        }
    }
    return MR_OK;
}

static uint32_t find_in_plan(const struct ps_restore_plan *plan, const char *name)
{
    uint32_t i = 0;
    while (i < plan->count && strncmp(plan->entries[i].feature.name, name, MR_NAME_BYTES) != 0)
        i++;
    return i;
}

/* How many entries of the plan are new to the node. */
static uint32_t new_count(const struct ps_restore_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        count += plan->entries[i].replaced_id == 0;
    return count;
}

/* Finds the feature, and gives it the name that it is to have. */
static enum mr_status name_entry(const struct ps_catalog *held, const struct mr_restore_pair *pair,
                                 struct ps_restore_entry *out, char *text)
{
    uint32_t at = ps_catalog_find(held, pair->name);
    if (at == held->count) {
        snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES,
                 "the checkpoint holds no table, variable or parameter named %s (it has %u tables and "
                 "variables; the first is %s)",
                 pair->name, held->count, held->count > 0 ? held->features[0].name : "none");
        return MR_UNKNOWN_TABLE;
    }
    *out = (struct ps_restore_entry){.checkpoint_id = held->ids[at], .feature = held->features[at]};
    if (pair->new_name[0] != '\0') {
        memset(out->feature.name, 0, sizeof(out->feature.name));
        memcpy(out->feature.name, pair->new_name, strlen(pair->new_name));
        if (mr_feature_check(&out->feature) != NULL) {
            snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES,
                     "%s cannot be named %s: names have 1 to %d of the characters A-Z a-z 0-9 _ . / : -",
                     pair->name, pair->new_name, MR_NAME_BYTES - 1);
            return MR_INVALID_ARGUMENT;
        }
    }
    return MR_OK;
}

/* Chooses its number on the node, and what it replaces there. Numbers from *next_id on are free. */
static enum mr_status place_entry(const struct ps_restore_plan *plan, const struct ps_catalog *node,
                                  bool replace, uint32_t *next_id, struct ps_restore_entry *entry, char *text)
{
    const char *name = entry->feature.name;
    uint32_t at = ps_catalog_find(node, name);
    if (find_in_plan(plan, name) < plan->count) {
        snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES, "two of the names to restore would be %s", name);
        return MR_INVALID_ARGUMENT;
    }
    if (at < node->count && !replace) {
        snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES,
                 "%s is there already: restore it under another name (NAME=NEW), or replace it (--replace)",
                 name);
        return MR_INVALID_ARGUMENT;
    }
    if (at < node->count && node->features[at].kind != entry->feature.kind) {
        snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES,
                 "%s is a table in one of checkpoint and node and a variable in the other: restore it under "
                 "another name (NAME=NEW)",
                 name);
        return MR_INVALID_ARGUMENT;
    }
    entry->replaced_id = at < node->count ? node->ids[at] : 0;
    if (entry->replaced_id != 0) {
        entry->id = entry->replaced_id;
        return MR_OK;
    }
    if (node->count + new_count(plan) == MR_FEATURE_MAX || *next_id > MR_FEATURE_ID_MAX) {
        snprintf(text, PS_RESTORE_PLAN_TEXT_BYTES, "%s: a node has at most %d features%s", name,
                 MR_FEATURE_MAX, *next_id > MR_FEATURE_ID_MAX ? PS_NUMBERS_GONE : "");
        return MR_INVALID_ARGUMENT;
    }
    entry->id = (*next_id)++;
    return MR_OK;
}

static void plan_whole(const struct ps_catalog *held, struct ps_restore_plan *out)
{
    out->whole = true;
    out->count = held->count;
    for (uint32_t i = 0; i < held->count; i++) {
        out->entries[i] = (struct ps_restore_entry){
            .checkpoint_id = held->ids[i], .id = held->ids[i], .feature = held->features[i]};
    }
}

enum mr_status ps_restore_plan_make(const struct ps_catalog *held, const struct ps_catalog *node,
                                    const struct mr_restore_pair *names, uint32_t name_count, bool replace,
                                    uint32_t next_id, struct ps_restore_plan *out, char *text)
{
    out->whole = false;
    out->count = 0;
    if (name_count == 0) {
        plan_whole(held, out);
        return MR_OK;
    }
    for (uint32_t i = 0; i < name_count; i++) {
        struct ps_restore_entry entry;
        enum mr_status status = check_names(names, i, text);
        if (status == MR_OK)
            status = name_entry(held, &names[i], &entry, text);
        if (status == MR_OK)
            status = place_entry(out, node, replace, &next_id, &entry, text);
        if (status != MR_OK)
            return status;
        out->entries[out->count++] = entry;
    }
    return MR_OK;
}

void ps_restore_plan_apply(const struct ps_restore_plan *plan, struct ps_catalog *node)
{
    if (plan->whole)
        node->count = 0;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->entries[i].replaced_id != 0)
            ps_catalog_remove(node, plan->entries[i].replaced_id);
    for (uint32_t i = 0; i < plan->count; i++)
        ps_catalog_add(node, plan->entries[i].id, &plan->entries[i].feature);
}
