/* oneDNN 3's calls for oneDNN 2.6 and 2.7: the sources are written for version 3. All of it can go when
 * Debian 12 does, whose oneDNN is the last one of version 2. Inside ps/modules/layers/ only.
 *
 * Version 2 has descriptions of operations from which descriptors of primitives are made, and formats as
 * structs, of which version 3 has pointers. Dilations are ignored: the layers have none.
 */
#ifndef PS_LAYERS_DNNL_COMPAT_H
#define PS_LAYERS_DNNL_COMPAT_H

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR < 3
#include <stdlib.h>

typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t;
typedef dnnl_memory_desc_t *ps_dnnl_memory_desc_2;
#define dnnl_memory_desc_t ps_dnnl_memory_desc_2

static inline dnnl_status_t dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *out, int rank,
                                                             const dnnl_dims_t dims, dnnl_data_type_t type,
                                                             dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t made = calloc(1, sizeof(*made));
    if (made == NULL)
        return dnnl_out_of_memory;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(made, rank, dims, type, tag);
    if (status == dnnl_success)
        *out = made;
    else
        free(made);
    return status;
}

static inline dnnl_status_t dnnl_memory_desc_clone(dnnl_memory_desc_t *out, const_dnnl_memory_desc_t desc)
{
    *out = malloc(sizeof(**out));
    if (*out == NULL)
        return dnnl_out_of_memory;
    **out = *desc;
    return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t desc)
{
    free(desc);
    return dnnl_success;
}

/* With the scale that version 3 does not have. */
#define dnnl_post_ops_append_eltwise(ops, kind, alpha, beta)                                                 \
    (dnnl_post_ops_append_eltwise)(ops, 1.0f, kind, alpha, beta)

/* Of what the call `init` has written into `operation`. */
#define PS_DNNL_DESC_CREATE_2(init)                                                                          \
    dnnl_status_t status = init;                                                                             \
    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &operation, attr, engine, hint)

static inline dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t dilates,
    const dnnl_dims_t before, const dnnl_dims_t after, const_dnnl_primitive_attr_t attr)
{
    const_dnnl_primitive_desc_t hint = NULL;
    dnnl_convolution_desc_t operation;
    PS_DNNL_DESC_CREATE_2(dnnl_convolution_forward_desc_init(&operation, prop, kind, src, weights, bias, dst,
                                                             strides, before, after));
}

static inline dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_alg_kind_t kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilates, const dnnl_dims_t before, const dnnl_dims_t after,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t operation;
    PS_DNNL_DESC_CREATE_2(dnnl_convolution_backward_data_desc_init(&operation, kind, src, weights, dst,
                                                                   strides, before, after));
}

static inline dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_alg_kind_t kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
    const dnnl_dims_t strides, const dnnl_dims_t dilates, const dnnl_dims_t before, const dnnl_dims_t after,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t operation;
    PS_DNNL_DESC_CREATE_2(dnnl_convolution_backward_weights_desc_init(&operation, kind, src, weights, bias,
                                                                      dst, strides, before, after));
}

static inline dnnl_status_t dnnl_inner_product_forward_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_prop_kind_t prop, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
    const_dnnl_primitive_attr_t attr)
{
    const_dnnl_primitive_desc_t hint = NULL;
    dnnl_inner_product_desc_t operation;
    PS_DNNL_DESC_CREATE_2(dnnl_inner_product_forward_desc_init(&operation, prop, src, weights, bias, dst));
}

static inline dnnl_status_t dnnl_inner_product_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t dst, const_dnnl_primitive_desc_t hint,
    const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t operation;
    PS_DNNL_DESC_CREATE_2(dnnl_inner_product_backward_data_desc_init(&operation, src, weights, dst));
}

static inline dnnl_status_t dnnl_inner_product_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t operation;
    PS_DNNL_DESC_CREATE_2(dnnl_inner_product_backward_weights_desc_init(&operation, src, weights, bias, dst));
}

static inline dnnl_status_t dnnl_pooling_forward_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_prop_kind_t prop, dnnl_alg_kind_t kind,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst, const dnnl_dims_t strides,
    const dnnl_dims_t kernel, const dnnl_dims_t dilates, const dnnl_dims_t before, const dnnl_dims_t after,
    const_dnnl_primitive_attr_t attr)
{
    const_dnnl_primitive_desc_t hint = NULL;
    dnnl_pooling_desc_t operation;
    PS_DNNL_DESC_CREATE_2(
        dnnl_pooling_forward_desc_init(&operation, prop, kind, src, dst, strides, kernel, before, after));
}

static inline dnnl_status_t dnnl_pooling_backward_primitive_desc_create(
    dnnl_primitive_desc_t *out, dnnl_engine_t engine, dnnl_alg_kind_t kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t kernel,
    const dnnl_dims_t dilates, const dnnl_dims_t before, const dnnl_dims_t after,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_pooling_desc_t operation;
    PS_DNNL_DESC_CREATE_2(
        dnnl_pooling_backward_desc_init(&operation, kind, src, dst, strides, kernel, before, after));
}

#undef PS_DNNL_DESC_CREATE_2
#endif

#endif
