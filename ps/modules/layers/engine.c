#include "ps/modules/layers/engine.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;
static dnnl_primitive_attr_t attributes[2]; /* without and with a relu */

static dnnl_status_t append_relu(dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&after);
    if (status == dnnl_success)
        status = dnnl_post_ops_append_eltwise(after, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attr, after);
    if (after != NULL)
        dnnl_post_ops_destroy(after);
    return status;
}

static void make_engine(void)
{
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < 2 && status == dnnl_success; i++) {
        status = dnnl_primitive_attr_create(&attributes[i]);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_scratchpad_mode(attributes[i], dnnl_scratchpad_mode_user);
    }
    if (status == dnnl_success)
        status = append_relu(attributes[1]);
    if (status != dnnl_success || dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
}

dnnl_engine_t ps_layers_engine(void)
{
    pthread_once(&once, make_engine);
    return engine;
}

const_dnnl_primitive_attr_t ps_layers_attributes(bool relu)
{
    pthread_once(&once, make_engine);
    return attributes[relu];
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

/* ---- formats ---- */

void ps_formats_destroy(struct ps_formats *formats)
{
    for (uint32_t i = 0; i < formats->count; i++)
        dnnl_memory_desc_destroy(formats->made[i]);
    free(formats->made);
    *formats = (struct ps_formats){0};
}

/* Takes `made` over, if `status` says that it was made. */
static ps_format keep_format(struct ps_formats *formats, dnnl_status_t status, dnnl_memory_desc_t made)
{
    if (status == dnnl_success && formats->count == formats->room) {
        uint32_t room = 2 * formats->room + 8;
        dnnl_memory_desc_t *larger = realloc(formats->made, room * sizeof(dnnl_memory_desc_t));
        if (larger != NULL) {
            formats->made = larger;
            formats->room = room;
        } else {
            dnnl_memory_desc_destroy(made);
            status = dnnl_out_of_memory;
        }
    }
    if (status != dnnl_success) {
        formats->is_short = true;
        return NULL;
    }
    formats->made[formats->count++] = made;
    return made;
}

static ps_format make_format(struct ps_formats *formats, uint32_t rank, const dnnl_dims_t dims,
                             dnnl_format_tag_t tag)
{
    static const dnnl_format_tag_t plain[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
    dnnl_memory_desc_t made = NULL;
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&made, (int)rank, dims, dnnl_f32,
                                                            tag == dnnl_format_tag_undef ? plain[rank] : tag);
    return keep_format(formats, status, made);
}

ps_format ps_format_tagged(struct ps_formats *formats, uint32_t batch, const struct ps_shape *sample,
                           dnnl_format_tag_t tag)
{
    dnnl_dims_t dims = {batch};
    for (uint32_t i = 0; i < sample->rank; i++)
        dims[1 + i] = sample->dims[i];
    return make_format(formats, 1 + sample->rank, dims, tag);
}

ps_format ps_format_plain(struct ps_formats *formats, uint32_t batch, const struct ps_shape *sample)
{
    return ps_format_tagged(formats, batch, sample, dnnl_format_tag_undef);
}

ps_format ps_format_any(struct ps_formats *formats, uint32_t batch, const struct ps_shape *sample)
{
    return ps_format_tagged(formats, batch, sample, dnnl_format_tag_any);
}

ps_format ps_format_of_parameter(struct ps_formats *formats, const struct ps_layer_parameter *p,
                                 dnnl_format_tag_t tag)
{
    dnnl_dims_t dims = {0};
    for (uint32_t i = 0; i < p->rank; i++)
        dims[i] = p->dims[i];
    return make_format(formats, p->rank, dims, tag);
}

ps_format ps_format_copy(struct ps_formats *formats, ps_format format)
{
    dnnl_memory_desc_t made = NULL;
    dnnl_status_t status = dnnl_memory_desc_clone(&made, format);
    return keep_format(formats, status, made);
}

/* ---- primitives ---- */

enum mr_status ps_primitive_create(dnnl_status_t made, dnnl_primitive_desc_t desc, struct ps_primitive *out)
{
    const char *code = "";
    if (made != dnnl_success)
        return ps_layers_status(made);
    dnnl_status_t status = dnnl_primitive_create(&out->handle, desc);
    dnnl_primitive_desc_destroy(desc);
    if (status == dnnl_success)
        status = dnnl_primitive_get_primitive_desc(out->handle, &out->desc);
    if (status != dnnl_success)
        return ps_layers_status(status);
    out->scratch = ps_primitive_format(out, dnnl_query_scratchpad_md);
    if (dnnl_primitive_desc_query(out->desc, dnnl_query_impl_info_str, 0, (void *)&code) == dnnl_success)
        out->is_slow = strncmp(code, "ref", 3) == 0;
    return MR_OK;
}

enum mr_status ps_primitive_reorder(ps_format from, ps_format to, struct ps_primitive *out)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_engine_t cpu = ps_layers_engine();
    dnnl_status_t made =
        dnnl_reorder_primitive_desc_create(&desc, from, cpu, to, cpu, ps_layers_attributes(false));
    return ps_primitive_create(made, desc, out);
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
    const struct ps_argument scratchpad = {DNNL_ARG_SCRATCHPAD, p->scratch, NULL, scratch};
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
