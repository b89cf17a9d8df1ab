/* What all of the module needs of oneDNN: the engine, formats in memory, running a primitive, and how many
 * threads of OpenMP do so. Inside ps/modules/layers/ only. Any thread.
 *
 * Primitives are made with scratch memory of the caller's, so that one primitive may run in several threads
 * at once.
 */
#ifndef PS_LAYERS_ENGINE_H
#define PS_LAYERS_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/modules/layers/dnnl_compat.h"
#include "ps/modules/layers/layer.h"

/* 64-byte lines: what buffers are aligned to, and rounded up to. */
#define PS_LAYERS_ALIGN 64u
static inline size_t ps_layers_round(size_t bytes)
{
    return (bytes + PS_LAYERS_ALIGN - 1) / PS_LAYERS_ALIGN * PS_LAYERS_ALIGN;
}

/* The process's; NULL when there is no memory for one. */
dnnl_engine_t ps_layers_engine(void);
/* What primitives are made with: scratch memory of the caller's, and if `relu`, a relu after it. The
 * process's. */
const_dnnl_primitive_attr_t ps_layers_attributes(bool relu);
enum mr_status ps_layers_status(dnnl_status_t status);

/* How a tensor lies in memory. It belongs to what it was made in (struct ps_formats, struct ps_primitive). */
typedef const_dnnl_memory_desc_t ps_format;

/* Formats that are destroyed together. All zero: none. One thread at a time. */
struct ps_formats {
    dnnl_memory_desc_t *made;
    uint32_t count, room;
    bool is_short; /* of memory: a format is NULL */
};
void ps_formats_destroy(struct ps_formats *formats);

/* These return NULL when there is no memory left. `batch` samples, row-major; `any`: whatever oneDNN likes
 * best. */
ps_format ps_format_plain(struct ps_formats *formats, uint32_t batch, const struct ps_shape *sample);
ps_format ps_format_any(struct ps_formats *formats, uint32_t batch, const struct ps_shape *sample);
ps_format ps_format_tagged(struct ps_formats *formats, uint32_t batch, const struct ps_shape *sample,
                           dnnl_format_tag_t tag);
/* Of a weight or bias. `tag`: dnnl_format_tag_undef for row-major. */
ps_format ps_format_of_parameter(struct ps_formats *formats, const struct ps_layer_parameter *p,
                                 dnnl_format_tag_t tag);
ps_format ps_format_copy(struct ps_formats *formats, ps_format format);
static inline bool ps_format_is(ps_format a, ps_format b)
{
    return dnnl_memory_desc_equal(a, b) != 0;
}
static inline size_t ps_format_bytes(ps_format format)
{
    return format == NULL ? 0 : dnnl_memory_desc_get_size(format);
}

/* A primitive and what it wants besides its arguments. All zero: none. */
struct ps_primitive {
    dnnl_primitive_t handle;
    const_dnnl_primitive_desc_t desc; /* the primitive's: the hint for its backward */
    ps_format scratch;
    bool is_slow; /* oneDNN has only its reference code for it */
};
/* Takes `desc` over, which a call of oneDNN returned together with `made`. */
enum mr_status ps_primitive_create(dnnl_status_t made, dnnl_primitive_desc_t desc, struct ps_primitive *out);
enum mr_status ps_primitive_reorder(ps_format from, ps_format to, struct ps_primitive *out);
/* The format of an argument; the primitive's. */
static inline ps_format ps_primitive_format(const struct ps_primitive *p, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(p->desc, what, 0);
}
void ps_primitive_destroy(struct ps_primitive *p);

/* One argument of a primitive: `in` is read, else `out` may be written. */
struct ps_argument {
    int what; /* DNNL_ARG_* */
    ps_format format;
    const void *in;
    void *out;
};
#define PS_ARGUMENTS_MAX 8u
/* `scratch` has p->scratch's bytes. */
enum mr_status ps_primitive_run(const struct ps_primitive *p, dnnl_stream_t stream, void *scratch,
                                const struct ps_argument *arguments, uint32_t count);

/* The calling thread's regions run with `threads` threads until it is given back. Returns what to give
 * back. */
int ps_layers_threads_take(uint32_t threads);
void ps_layers_threads_give_back(int before);

#endif
