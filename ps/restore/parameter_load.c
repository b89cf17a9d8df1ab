#include "ps/restore/parameter_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loading {
    uint8_t *values; /* of the item's versions */
    uint64_t bytes, loaded_bytes;
};

struct ps_parameter_load {
    uint32_t count, listed;
    struct mr_named_item *items; /* [count], as is the next */
    struct loading *loading;
    uint32_t *place_of; /* [listed]: by place in the MANIFEST; NOT_WANTED */
};

#define NOT_WANTED UINT32_MAX

bool ps_parameter_is_listed(const struct ps_manifest *manifest, const char *name)
{
    for (uint32_t i = 0; i < manifest->parameter_count; i++)
        if (strcmp(manifest->parameters[i].name, name) == 0)
            return true;
    return false;
}

uint32_t ps_parameters_listed(const struct ps_manifest *manifest)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < manifest->parameter_count; i++)
        count += manifest->parameters[i].optimizer[0] == '\0';
    return count;
}

uint32_t ps_parameter_load_count(const struct ps_parameter_load *load)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < load->count; i++)
        count += load->items[i].optimizer[0] == '\0';
    return count;
}

static enum mr_status no_memory(char *text)
{
    snprintf(text, PS_PARAMETER_TEXT_BYTES, "no memory left for the checkpoint's parameters");
    return MR_NO_MEMORY;
}

static enum mr_status begin_item(const struct ps_saved_parameter *saved, struct mr_named_item *item,
                                 struct loading *loading)
{
    float *values;
    *item = (struct mr_named_item){
        .rule = saved->rule,
        .step = saved->step,
        .shape = {.dtype = MR_F32, .rank = saved->rank, .bytes = ps_saved_parameter_bytes(saved)}};
    memcpy(item->optimizer, saved->optimizer, sizeof(item->optimizer));
    memcpy(item->shape.dims, saved->dims, saved->rank * sizeof(saved->dims[0]));
    enum mr_status status = mr_versions_create_from(&item->shape, saved->step, &item->versions, &values);
    if (status == MR_OK)
        *loading = (struct loading){.values = (uint8_t *)values, .bytes = item->shape.bytes};
    return status;
}

/* ---- which are wanted ---- */

static const char *name_after(const struct mr_restore_pair *pair)
{
    return pair->new_name[0] != '\0' ? pair->new_name : pair->name;
}

static enum mr_status check_names(const struct mr_restore_pair *names, uint32_t count, char *text)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *after = name_after(&names[i]);
        if (!mr_named_is_name(after)) {
            snprintf(
                text, PS_PARAMETER_TEXT_BYTES,
                "%.63s cannot be named %.63s: names have 1 to %d of the characters A-Z a-z 0-9 _ . / : -",
                names[i].name, after, MR_NAME_BYTES - 1);
            return MR_INVALID_ARGUMENT;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(names[k].name, names[i].name) == 0 || strcmp(name_after(&names[k]), after) == 0) {
                snprintf(text, PS_PARAMETER_TEXT_BYTES, "two of the names to restore are, or would be, %.63s",
                         after);
                return MR_INVALID_ARGUMENT;
            }
        }
    }
    return MR_OK;
}

/* Returns the name that it gets on the node; NULL: nobody asked for it. */
static const char *wanted_as(const struct ps_saved_parameter *saved, const struct mr_restore_pair *names,
                             uint32_t count)
{
    if (names == NULL)
        return saved->name;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_renamed = strcmp(name_after(&names[i]), names[i].name) != 0;
        if (strcmp(names[i].name, saved->name) == 0)
            return is_renamed && saved->optimizer[0] != '\0' ? NULL : name_after(&names[i]);
    }
    return NULL;
}

static bool begin_all(struct ps_parameter_load *load, const struct ps_manifest *manifest,
                      const struct mr_restore_pair *names, uint32_t name_count)
{
    const struct ps_saved_parameter *saved = manifest->parameters;
    for (uint32_t i = 0; saved != NULL && i < load->listed; i++) {
        const char *name = wanted_as(&saved[i], names, name_count);
        struct mr_named_item *item = &load->items[load->count];
        load->place_of[i] = NOT_WANTED;
        if (name == NULL)
            continue;
        if (begin_item(&saved[i], item, &load->loading[load->count]) != MR_OK)
            return false;
        snprintf(item->name, sizeof(item->name), "%s", name);
        load->place_of[i] = load->count++;
    }
    return true;
}

enum mr_status ps_parameter_load_create(const struct ps_manifest *manifest,
                                        const struct mr_restore_pair *names, uint32_t name_count,
                                        struct ps_parameter_load **out, char *text)
{
    const uint32_t count = manifest->parameter_count;
    enum mr_status status = check_names(names, name_count, text);
    if (status != MR_OK)
        return status;
    struct ps_parameter_load *load = calloc(1, sizeof(*load));
    if (load == NULL)
        return no_memory(text);
    load->listed = count;
    load->items = calloc(count + 1u, sizeof(*load->items));
    load->loading = calloc(count + 1u, sizeof(*load->loading));
    load->place_of = calloc(count + 1u, sizeof(*load->place_of));
    if (load->items == NULL || load->loading == NULL || load->place_of == NULL ||
        !begin_all(load, manifest, names, name_count)) {
        ps_parameter_load_destroy(load);
        return no_memory(text);
    }
    *out = load;
    return MR_OK;
}

void ps_parameter_load_destroy(struct ps_parameter_load *load)
{
    if (load == NULL)
        return;
    for (uint32_t i = 0; i < load->count; i++)
        mr_versions_release(load->items[i].versions);
    free(load->items);
    free(load->loading);
    free(load->place_of);
    free(load);
}

/* ---- their values ---- */

static enum mr_status corrupt(const struct mr_named_item *item, const char *what, char *text)
{
    snprintf(text, PS_PARAMETER_TEXT_BYTES, "parameter %s%s%s: %s", item->name,
             item->optimizer[0] != '\0' ? ", state of " : "", item->optimizer, what);
    return MR_CHECKPOINT_CORRUPT;
}

enum mr_status ps_parameter_load_add(struct ps_parameter_load *load, const struct ps_record *record,
                                     const uint8_t *bytes, char *text)
{
    if (record->feature >= load->listed) {
        snprintf(text, PS_PARAMETER_TEXT_BYTES,
                 "a record belongs to parameter %u, which is not in the manifest", record->feature);
        return MR_CHECKPOINT_CORRUPT;
    }
    const uint32_t place = load->place_of[record->feature];
    if (place == NOT_WANTED)
        return MR_OK;
    struct loading *l = &load->loading[place];
    if (record->bytes > l->bytes - l->loaded_bytes || record->offset > l->bytes - record->bytes)
        return corrupt(&load->items[place], "a piece reaches beyond its end, or comes twice", text);
    memcpy(l->values + record->offset, bytes, record->bytes);
    l->loaded_bytes += record->bytes;
    return MR_OK;
}

enum mr_status ps_parameter_load_check(const struct ps_parameter_load *load, char *text)
{
    for (uint32_t i = 0; i < load->count; i++)
        if (load->loading[i].loaded_bytes != load->loading[i].bytes)
            return corrupt(&load->items[i], "it is not whole", text);
    return MR_OK;
}

/* ---- the node's ---- */

/* With the node's lock. */
static enum mr_status check_fit(const struct ps_parameter_load *load, const struct mr_named_parameters *node,
                                bool replaces, char *text)
{
    for (uint32_t i = 0; !replaces && i < load->count; i++) {
        if (mr_named_is_there(node, load->items[i].name)) {
            snprintf(text, PS_PARAMETER_TEXT_BYTES,
                     "parameter %s is there already: restore it under another name (NAME=NEW), or replace it "
                     "(--replace)",
                     load->items[i].name);
            return MR_INVALID_ARGUMENT;
        }
    }
    const struct mr_named_item *item = mr_named_misfit(node, load->items, load->count);
    if (item == NULL)
        return MR_OK;
    snprintf(text, PS_PARAMETER_TEXT_BYTES,
             "parameter %s of the node has another %s than the checkpoint's: drop it (millrace ctl drop), or "
             "start the node from this checkpoint",
             item->name, item->optimizer[0] == '\0' ? "shape" : "optimizer's state");
    return MR_WRONG_SHAPE;
}

enum mr_status ps_parameter_load_fits(const struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      bool replaces, char *text)
{
    pthread_mutex_lock(mr_named_lock(node));
    enum mr_status status = check_fit(load, node, replaces, text);
    pthread_mutex_unlock(mr_named_lock(node));
    return status;
}

enum mr_status ps_parameter_load_give(struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      bool replaces, char *text)
{
    pthread_mutex_lock(mr_named_lock(node));
    enum mr_status status = check_fit(load, node, replaces, text);
    if (status == MR_OK && mr_named_replace(node, load->items, load->count) != MR_OK)
        status = no_memory(text);
    pthread_mutex_unlock(mr_named_lock(node));
    return status;
}
