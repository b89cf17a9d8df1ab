/* The loops of ps/modules/layers/sparse_conv.c for planes of one block: included once for each, with BLOCK,
 * NAMED(name), and the vectors floats and ints of BLOCK elements. No include guard. */

#define FLOATS_AT(where)       (*(floats *)(void *)(where))
#define CONST_FLOATS_AT(where) (*(const floats *)(const void *)(where))

INLINE void NAMED(maximum)(const struct ps_pool *p, const float *plane, uint32_t o, floats *most, ints *place)
{
    const uint32_t y = o / p->out_width * p->stride[0], x = o % p->out_width * p->stride[1];
    *most = CONST_FLOATS_AT(plane + ((size_t)y * p->width + x) * BLOCK);
    *place = (ints){0} + (int32_t)(y * p->pitch + x);
    for (uint32_t ky = 0; ky < p->kernel[0]; ky++)
        for (uint32_t kx = 0; kx < p->kernel[1]; kx++) {
            const floats v = CONST_FLOATS_AT(plane + ((size_t)(y + ky) * p->width + x + kx) * BLOCK);
            const ints here = (ints){0} + (int32_t)((y + ky) * p->pitch + x + kx), above = v > *most;
            *most = (floats)((above & (ints)v) | (~above & (ints)*most));
            *place = (above & here) | (~above & *place);
        }
}

/* As many outputs at a time as there are channels: rows of one become columns of the other. */
INLINE void NAMED(pool_body)(const struct ps_pool *p, const float *plane, float *out, uint16_t *places)
{
    const uint32_t count = p->out_height * p->out_width;
    for (uint32_t first = 0; first < count; first += BLOCK) {
        const uint32_t here = count - first < BLOCK ? count - first : BLOCK;
        floats most[BLOCK];
        ints place[BLOCK];
        for (uint32_t i = 0; i < here; i++)
            NAMED(maximum)(p, plane, first + i, &most[i], &place[i]);
        for (uint32_t c = 0; c < BLOCK; c++)
            for (uint32_t i = 0; i < here; i++) {
                out[(size_t)c * count + first + i] = most[i][c];
                places[(size_t)c * count + first + i] = (uint16_t)place[i][c];
            }
    }
}

INLINE void NAMED(weights_body)(const struct ps_sparse *s, const float *plane, uint32_t row, float *weights)
{
    floats sum[PS_SPARSE_WINDOW];
    for (uint32_t k = 0; k < PS_SPARSE_WINDOW; k++)
        sum[k] = CONST_FLOATS_AT(weights + (size_t)k * BLOCK);
    for (uint32_t i = 0; i < s->count; i++) {
        const float *window = plane + s->at[i], value = s->values[i];
#pragma GCC unroll 9
        for (uint32_t k = 0; k < PS_SPARSE_WINDOW; k++)
            sum[k] += value * CONST_FLOATS_AT(window + (size_t)(k / 3) * row + (size_t)(k % 3) * BLOCK);
    }
    for (uint32_t k = 0; k < PS_SPARSE_WINDOW; k++)
        FLOATS_AT(weights + (size_t)k * BLOCK) = sum[k];
}

INLINE void NAMED(data_body)(const struct ps_sparse *s, float *plane, uint32_t row, const float *weights)
{
    floats weight[PS_SPARSE_WINDOW];
    for (uint32_t k = 0; k < PS_SPARSE_WINDOW; k++)
        weight[k] = CONST_FLOATS_AT(weights + (size_t)k * BLOCK);
    for (uint32_t i = 0; i < s->count; i++) {
        float *window = plane + s->at[i];
        const float value = s->values[i];
#pragma GCC unroll 9
        for (uint32_t k = 0; k < PS_SPARSE_WINDOW; k++)
            FLOATS_AT(window + (size_t)(k / 3) * row + (size_t)(k % 3) * BLOCK) += value * weight[k];
    }
}

#undef FLOATS_AT
#undef CONST_FLOATS_AT
#undef BLOCK
#undef NAMED
#undef floats
#undef ints
