/* Parameters of remote calls that have names: those that a call means, those in the cut of a save, and those
 * that are dropped. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/control/control_internal.h"

uint32_t ps_control_sort_names(struct ps_control *c, char *names, uint32_t count)
{
    uint32_t features = 0;
    if (c->node->parameters == NULL)
        return count;
    pthread_mutex_lock(mr_named_lock(c->node->parameters));
    for (uint32_t i = 0; i < count; i++) {
        char *name = names + (size_t)i * MR_NAME_BYTES, *first = names + (size_t)features * MR_NAME_BYTES;
        char other[MR_NAME_BYTES];
        const bool is_feature = ps_catalog_find(&c->catalog, name) < c->catalog.count;
        const bool is_ended = memchr(name, '\0', MR_NAME_BYTES) != NULL;
        if (!is_feature && is_ended && mr_named_is_there(c->node->parameters, name))
            continue;
        memcpy(other, first, MR_NAME_BYTES);
        memmove(first, name, MR_NAME_BYTES);
        memcpy(name, other, MR_NAME_BYTES);
        features++;
    }
    pthread_mutex_unlock(mr_named_lock(c->node->parameters));
    return features;
}

/* ---- to save ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

enum mr_status ps_control_pick_parameters(struct ps_save_request *request, char *names, uint32_t count,
                                          char *text)
{
    request->parameter_count = 0;
    qsort(names, count, MR_NAME_BYTES, compare_names);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = names + (size_t)i * MR_NAME_BYTES;
        if (i > 0 && strcmp(name, name - MR_NAME_BYTES) == 0)
            continue;
        if (request->parameter_count == PS_SAVE_PARAMETERS_MAX) {
            snprintf(text, PS_CONTROL_TEXT_BYTES,
                     "a save names at most %u parameters: save the others by another one, or save everything",
                     PS_SAVE_PARAMETERS_MAX);
            return MR_INVALID_ARGUMENT;
        }
        snprintf(request->parameters[request->parameter_count++], MR_NAME_BYTES, "%s", name);
    }
    return MR_OK;
}

static void describe(const struct mr_named_item *item, struct ps_saved_parameter *out)
{
    *out = (struct ps_saved_parameter){.rule = item->rule, .rank = item->shape.rank, .step = item->step};
    memcpy(out->name, item->name, sizeof(out->name));
    memcpy(out->optimizer, item->optimizer, sizeof(out->optimizer));
    memcpy(out->dims, item->shape.dims, item->shape.rank * sizeof(out->dims[0]));
}

static enum mr_status list_cut(const struct mr_named_cut *cut, struct ps_writer *writer)
{
    struct ps_saved_parameter *list = malloc((cut->count + 1u) * sizeof(*list));
    if (list == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < cut->count; i++)
        describe(&cut->items[i], &list[i]);
    enum mr_status status = ps_writer_set_parameters(writer, list, cut->count);
    free(list);
    return status;
}

enum mr_status ps_control_cut_parameters(struct ps_control *c, const struct ps_save_request *request,
                                         struct ps_writer *writer, char *text)
{
    struct mr_named_parameters *all = c->node->parameters;
    for (uint32_t i = 0; i < request->parameter_count; i++) {
        if (!mr_named_is_there(all, request->parameters[i])) {
            snprintf(text, PS_CONTROL_TEXT_BYTES, "parameter %s, which was to be saved, is gone",
                     request->parameters[i]);
            return MR_UNKNOWN_TABLE;
        }
    }
    c->parameters =
        mr_named_cut(all, ps_save_is_partial(request) ? request->parameters : NULL, request->parameter_count);
    if (c->parameters != NULL && list_cut(c->parameters, writer) == MR_OK)
        return MR_OK;
    snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory for a list of the parameters");
    return MR_NO_MEMORY;
}

/* ---- to drop ---- */

void ps_control_drop_parameters(struct ps_control *c, const char *names, uint32_t count)
{
    pthread_mutex_lock(mr_named_lock(c->node->parameters));
    for (uint32_t i = 0; i < count; i++)
        (void)mr_named_drop(c->node->parameters, names + (size_t)i * MR_NAME_BYTES);
    pthread_mutex_unlock(mr_named_lock(c->node->parameters));
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = count}), "parameters_dropped",
                "dropped %u parameter%s, first %.63s", count, mr_plural(count), names);
}
