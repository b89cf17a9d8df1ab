#include "ps/restore/parameter_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loading {
    uint8_t *values; /* of the item's versions */
    uint64_t bytes, loaded_bytes;
};

struct ps_parameter_load {
    uint32_t count;
    struct mr_named_item *items; /* [count], as is the next */
    struct loading *loading;
};

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
    memcpy(item->name, saved->name, sizeof(item->name));
    memcpy(item->optimizer, saved->optimizer, sizeof(item->optimizer));
    memcpy(item->shape.dims, saved->dims, saved->rank * sizeof(saved->dims[0]));
    enum mr_status status = mr_versions_create_from(&item->shape, saved->step, &item->versions, &values);
    if (status == MR_OK)
        *loading = (struct loading){.values = (uint8_t *)values, .bytes = item->shape.bytes};
    return status;
}

enum mr_status ps_parameter_load_create(const struct ps_manifest *manifest, struct ps_parameter_load **out,
                                        char *text)
{
    const uint32_t count = manifest->parameter_count;
    struct ps_parameter_load *load = calloc(1, sizeof(*load));
    if (load == NULL)
        return no_memory(text);
    load->items = calloc(count + 1u, sizeof(*load->items));
    load->loading = calloc(count + 1u, sizeof(*load->loading));
    bool is_good = load->items != NULL && load->loading != NULL;
    for (; is_good && load->count < count; load->count += is_good)
        is_good = begin_item(&manifest->parameters[load->count], &load->items[load->count],
                             &load->loading[load->count]) == MR_OK;
    if (!is_good) {
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
    free(load);
}

static enum mr_status corrupt(const struct mr_named_item *item, const char *what, char *text)
{
    snprintf(text, PS_PARAMETER_TEXT_BYTES, "parameter %s%s%s: %s", item->name,
             item->optimizer[0] != '\0' ? ", state of " : "", item->optimizer, what);
    return MR_CHECKPOINT_CORRUPT;
}

enum mr_status ps_parameter_load_add(struct ps_parameter_load *load, const struct ps_record *record,
                                     const uint8_t *bytes, char *text)
{
    if (record->feature >= load->count) {
        snprintf(text, PS_PARAMETER_TEXT_BYTES,
                 "a record belongs to parameter %u, which is not in the manifest", record->feature);
        return MR_CHECKPOINT_CORRUPT;
    }
    struct loading *l = &load->loading[record->feature];
    if (record->bytes > l->bytes - l->loaded_bytes || record->offset > l->bytes - record->bytes)
        return corrupt(&load->items[record->feature], "a piece reaches beyond its end, or comes twice", text);
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

/* With the node's lock. */
static enum mr_status check_fit(const struct ps_parameter_load *load, const struct mr_named_parameters *node,
                                char *text)
{
    const struct mr_named_item *item = mr_named_misfit(node, load->items, load->count);
    if (item == NULL)
        return MR_OK;
    snprintf(text, PS_PARAMETER_TEXT_BYTES,
             "parameter %s of the node has another %s than the checkpoint's: drop it (millrace ctl drop), or "
             "start the "
             "node from this checkpoint",
             item->name, item->optimizer[0] == '\0' ? "shape" : "optimizer's state");
    return MR_WRONG_SHAPE;
}

enum mr_status ps_parameter_load_fits(const struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      char *text)
{
    pthread_mutex_lock(mr_named_lock(node));
    enum mr_status status = check_fit(load, node, text);
    pthread_mutex_unlock(mr_named_lock(node));
    return status;
}

enum mr_status ps_parameter_load_give(struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      char *text)
{
    pthread_mutex_lock(mr_named_lock(node));
    enum mr_status status = check_fit(load, node, text);
    if (status == MR_OK && mr_named_replace(node, load->items, load->count) != MR_OK)
        status = no_memory(text);
    pthread_mutex_unlock(mr_named_lock(node));
    return status;
}
