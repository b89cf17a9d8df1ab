/* What all of the module needs of oneDNN: the engine, formats in memory, running a primitive, and how many
 * threads of OpenMP do so. Inside ps/modules/layers/ only. Any thread.
 *
 * Primitives are made with scratch memory of the caller's, so that one primitive may run in several threads
 * at once.
 */
#ifndef PS_LAYERS_ENGINE_H
#define PS_LAYERS_ENGINE_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/modules/layers/layer.h"

/* 64-byte lines: what buffers are aligned to, and rounded up to. */
#define PS_LAYERS_ALIGN 64u
static inline size_t ps_layers_round(size_t bytes)
{
    return (bytes + PS_LAYERS_ALIGN - 1) / PS_LAYERS_ALIGN * PS_LAYERS_ALIGN;
}

typedef dnnl_memory_desc_t ps_format;

/* The process's; NULL when there is no memory for one. */
dnnl_engine_t ps_layers_engine(void);
enum mr_status ps_layers_status(dnnl_status_t status);

/* `batch` samples, row-major; `any`: whatever oneDNN likes best. */
ps_format ps_format_plain(uint32_t batch, const struct ps_shape *sample);
ps_format ps_format_any(uint32_t batch, const struct ps_shape *sample);
/* Of a weight or bias, row-major. */
ps_format ps_format_of_parameter(const struct ps_layer_parameter *p);
ps_format ps_format_any_of(ps_format format);
static inline bool ps_format_is(const ps_format *a, const ps_format *b)
{
    return dnnl_memory_desc_equal(a, b) != 0;
}
static inline size_t ps_format_bytes(const ps_format *format)
{
    return dnnl_memory_desc_get_size(format);
}

/* A primitive and what it wants besides its arguments. All zero: none. */
struct ps_primitive {
    dnnl_primitive_t handle;
    ps_format scratch;
    bool is_slow; /* oneDNN has only its reference code for it */
};
/* Takes `attr` over (may be NULL: none). With `hint` (may be NULL) of the forward. *out_desc, if not NULL, is
 * to be destroyed by the caller. */
enum mr_status ps_primitive_create(const void *desc, dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint, struct ps_primitive *out,
                                   dnnl_primitive_desc_t *out_desc);
enum mr_status ps_primitive_reorder(const ps_format *from, const ps_format *to, struct ps_primitive *out);
void ps_primitive_destroy(struct ps_primitive *p);

/* One argument of a primitive: `in` is read, else `out` may be written. */
struct ps_argument {
    int what; /* DNNL_ARG_* */
    const ps_format *format;
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
