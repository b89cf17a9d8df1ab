#include "ps/modules/layers/memory_layouts.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* A parameter in a format of a primitive's. What it is follows from where it lies and how: any network may
 * share it. */
struct layout {
    struct layout *next;
    uint64_t first; /* float of the version */
    ps_format plain, format;
    bool is_current; /* else it holds values of an earlier version */
    float *values;
};

/* Those of a version. */
struct layouts {
    struct mr_version_extra extra;
    pthread_mutex_t lock; /* of what is below */
    struct layout *first;
    struct ps_formats formats; /* of the layouts */
};

static struct layouts *layouts_of(struct mr_version_extra *extra)
{
    return (struct layouts *)extra;
}

static struct mr_version_extra *forms_create(void)
{
    struct layouts *layouts = calloc(1, sizeof(*layouts));
    if (layouts == NULL)
        return NULL;
    pthread_mutex_init(&layouts->lock, NULL);
    return &layouts->extra;
}

static void forms_outdate(struct mr_version_extra *extra)
{
    for (struct layout *f = layouts_of(extra)->first; f != NULL; f = f->next)
        f->is_current = false;
}

static void forms_destroy(struct mr_version_extra *extra)
{
    struct layouts *layouts = layouts_of(extra);
    for (struct layout *f = layouts->first, *next; f != NULL; f = next) {
        next = f->next;
        free(f->values);
        free(f);
    }
    ps_formats_destroy(&layouts->formats);
    pthread_mutex_destroy(&layouts->lock);
    free(layouts);
}

static const struct mr_version_extra_kind forms_kind = {forms_create, forms_outdate, forms_destroy};

static void *take_floats(size_t count)
{
    return aligned_alloc(PS_LAYERS_ALIGN, ps_layers_round(count * sizeof(float) + 1));
}

static struct layout *find_layout(struct layouts *layouts, uint64_t first, ps_format plain, ps_format format)
{
    for (struct layout *f = layouts->first; f != NULL; f = f->next)
        if (f->first == first && ps_format_is(f->format, format) && ps_format_is(f->plain, plain))
            return f;
    struct layout *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->values = take_floats(ps_format_bytes(format) / sizeof(float));
    made->plain = ps_format_copy(&layouts->formats, plain);
    made->format = ps_format_copy(&layouts->formats, format);
    if (made->values == NULL || made->plain == NULL || made->format == NULL) {
        free(made->values);
        free(made);
        return NULL;
    }
    made->first = first;
    made->next = layouts->first;
    layouts->first = made;
    return made;
}

static enum mr_status reorder(ps_format from, const float *values, ps_format to, float *out,
                              dnnl_stream_t stream)
{
    struct ps_primitive p = {0};
    enum mr_status status = ps_primitive_reorder(from, to, &p);
    if (status != MR_OK)
        return status;
    void *scratch = take_floats(ps_format_bytes(p.scratch) / sizeof(float) + 1);
    const struct ps_argument arguments[2] = {{DNNL_ARG_FROM, from, values, NULL},
                                             {DNNL_ARG_TO, to, NULL, out}};
    status = scratch == NULL ? MR_NO_MEMORY : ps_primitive_run(&p, stream, scratch, arguments, 2);
    free(scratch);
    ps_primitive_destroy(&p);
    return status;
}

const float *ps_layout_plain(const struct mr_parameter_version *version, const struct ps_layer_list *list,
                             uint32_t index)
{
    return mr_version_values(version) + ps_layer_list_parameter(list, index)->first;
}

enum mr_status ps_layout_as(struct mr_parameter_version *version, const struct ps_layer_list *list,
                            uint32_t index, ps_format plain, ps_format format, dnnl_stream_t stream,
                            const float **out)
{
    const struct ps_parameter_info *info = ps_layer_list_parameter(list, index);
    const float *plain_values = mr_version_values(version) + info->first;
    if (ps_format_is(plain, format)) {
        *out = plain_values;
        return MR_OK;
    }
    struct mr_version_extra *extra = mr_version_extra(version, &forms_kind);
    if (extra == NULL)
        return MR_NO_MEMORY;
    struct layouts *layouts = layouts_of(extra);
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&layouts->lock);
    struct layout *f = find_layout(layouts, info->first, plain, format);
    if (f == NULL)
        status = MR_NO_MEMORY;
    else if (!f->is_current)
        status = reorder(plain, plain_values, format, f->values, stream);
    if (status == MR_OK) {
        f->is_current = true;
        *out = f->values;
    }
    pthread_mutex_unlock(&layouts->lock);
    return status;
}
