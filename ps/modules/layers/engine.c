#include "ps/modules/layers/engine.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;

static void make_engine(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

dnnl_engine_t ps_layers_engine(void)
{
    pthread_once(&once, make_engine);
    return engine;
}

enum mr_status ps_layers_status(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success:
        return MR_OK;
    case dnnl_out_of_memory:
        return MR_NO_MEMORY;
    case dnnl_unimplemented:
        return MR_UNSUPPORTED;
    default:
        return MR_INTERNAL;
    }
}

static const dnnl_format_tag_t plain_tags[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};

static ps_format format_of(uint32_t rank, const dnnl_dims_t dims, bool any)
{
    ps_format format = {0};
    dnnl_memory_desc_init_by_tag(&format, (int)rank, dims, dnnl_f32,
                                 any ? dnnl_format_tag_any : plain_tags[rank]);
    return format;
}

static ps_format format_of_batch(uint32_t batch, const struct ps_shape *sample, bool any)
{
    dnnl_dims_t dims = {batch};
    for (uint32_t i = 0; i < sample->rank; i++)
        dims[1 + i] = sample->dims[i];
    return format_of(1 + sample->rank, dims, any);
}

ps_format ps_format_plain(uint32_t batch, const struct ps_shape *sample)
{
    return format_of_batch(batch, sample, false);
}

ps_format ps_format_any(uint32_t batch, const struct ps_shape *sample)
{
    return format_of_batch(batch, sample, true);
}

ps_format ps_format_of_parameter(const struct ps_layer_parameter *p)
{
    dnnl_dims_t dims = {0};
    for (uint32_t i = 0; i < p->rank; i++)
        dims[i] = p->dims[i];
    return format_of(p->rank, dims, false);
}

ps_format ps_format_any_of(ps_format format)
{
    return format_of((uint32_t)format.ndims, format.dims, true);
}

static enum mr_status create(dnnl_primitive_desc_t desc, struct ps_primitive *out)
{
    const char *code = "";
    out->scratch = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    if (dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&code) == dnnl_success)
        out->is_slow = strncmp(code, "ref", 3) == 0;
    return ps_layers_status(dnnl_primitive_create(&out->handle, desc));
}

enum mr_status ps_primitive_create(const void *desc, dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint, struct ps_primitive *out,
                                   dnnl_primitive_desc_t *out_desc)
{
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t status = attr == NULL ? dnnl_primitive_attr_create(&attr) : dnnl_success;
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&made, desc, attr, ps_layers_engine(), hint);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    if (status != dnnl_success)
        return ps_layers_status(status);
    enum mr_status result = create(made, out);
    if (result == MR_OK && out_desc != NULL)
        *out_desc = made;
    else
        dnnl_primitive_desc_destroy(made);
    return result;
}

enum mr_status ps_primitive_reorder(const ps_format *from, const ps_format *to, struct ps_primitive *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_engine_t cpu = ps_layers_engine();
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(&desc, from, cpu, to, cpu, attr);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    if (status != dnnl_success)
        return ps_layers_status(status);
    enum mr_status result = create(desc, out);
    dnnl_primitive_desc_destroy(desc);
    return result;
}

void ps_primitive_destroy(struct ps_primitive *p)
{
    if (p->handle != NULL)
        dnnl_primitive_destroy(p->handle);
    *p = (struct ps_primitive){0};
}

enum mr_status ps_primitive_run(const struct ps_primitive *p, dnnl_stream_t stream, void *scratch,
                                const struct ps_argument *arguments, uint32_t count)
{
    dnnl_exec_arg_t args[PS_ARGUMENTS_MAX + 1] = {0};
    uint32_t made = 0;
    dnnl_status_t status = dnnl_success;
    const struct ps_argument scratchpad = {DNNL_ARG_SCRATCHPAD, &p->scratch, NULL, scratch};
    for (; made < count + 1 && status == dnnl_success; made++) {
        const struct ps_argument *from = made < count ? &arguments[made] : &scratchpad;
        args[made] = (dnnl_exec_arg_t){.arg = from->what};
        void *data = from->in != NULL ? (void *)(uintptr_t)from->in : from->out;
        status = dnnl_memory_create(&args[made].memory, from->format, ps_layers_engine(), data);
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(p->handle, stream, (int)made, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(stream);
    for (uint32_t i = 0; i < made; i++)
        if (args[i].memory != NULL)
            dnnl_memory_destroy(args[i].memory);
    return ps_layers_status(status);
}

int ps_layers_threads_take(uint32_t threads)
{
    int before = omp_get_max_threads();
    if (before != (int)threads)
        omp_set_num_threads((int)threads);
    return before;
}

void ps_layers_threads_give_back(int before)
{
    if (omp_get_max_threads() != before)
        omp_set_num_threads(before);
}
