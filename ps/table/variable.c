#include "ps/table/variable.h"

#include <assert.h>
#include <string.h>
#include "ps/row/initializer.h"
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/format/ranges.h"

#define VARIABLE_ALIGN 64u

struct ps_variable {
    struct mr_feature feature;
    struct ps_arena *arena;
    struct mr_rule optimizer;
    uint64_t elements;
    uint64_t stored_bytes;
    size_t values_bytes; /* of the arena's */
    float *values;       /* then the optimizer's state */
};

/* A large one has huge pages of its own, so that it can be freed huge page by huge page. */
static size_t bytes_taken(uint64_t stored_bytes)
{
    size_t huge_page = PS_ARENA_HUGE_PAGE_BYTES;
    return stored_bytes > huge_page ? (stored_bytes + huge_page - 1) / huge_page * huge_page : stored_bytes;
}

enum mr_status ps_variable_create(const struct mr_feature *feature, uint32_t range, struct ps_arena *arena,
                                  struct ps_variable **out, const char **what)
{
    if (feature->dtype != MR_F32) {
        *what = "dtype other than f32";
        return MR_UNSUPPORTED;
    }
    struct ps_initializer initializer;
    struct mr_rule optimizer;
    enum mr_status status = ps_initializer_init(feature, &initializer, what);
    if (status == MR_OK)
        status = mr_rule_init(feature, &optimizer, what);
    if (status != MR_OK)
        return status;
    struct ps_variable *v = ps_arena_alloc(arena, sizeof(*v), VARIABLE_ALIGN);
    if (v == NULL)
        return MR_OUT_OF_MEMORY;
    v->feature = *feature;
    v->arena = arena;
    v->optimizer = optimizer;
    const uint64_t first = range * mr_range_elements(feature);
    v->elements = mr_run_of(feature, first, mr_variable_elements(feature) - first).count;
    v->stored_bytes = (v->elements + mr_rule_state_floats(&optimizer, v->elements)) * (uint64_t)sizeof(float);
    v->values_bytes = bytes_taken(v->stored_bytes);
    v->values = ps_arena_alloc(arena, v->values_bytes, VARIABLE_ALIGN);
    if (v->values == NULL) {
        ps_arena_free(arena, v, sizeof(*v), VARIABLE_ALIGN);
        return MR_OUT_OF_MEMORY;
    }
    ps_initializer_fill_from(&initializer, 0, first, v->values, v->elements); /* it is the row of key 0 */
    mr_rule_state_init(&optimizer, v->values, v->values + v->elements, v->elements);
    *out = v;
    return MR_OK;
}

void ps_variable_alter(struct ps_variable *v, const struct mr_feature *feature)
{
    const char *what;
    const enum mr_status status = mr_rule_init(feature, &v->optimizer, &what);
    assert(status == MR_OK); /* of the kind that it has */
    (void)status;
    v->feature = *feature;
}

void ps_variable_destroy(struct ps_variable *v)
{
    if (v == NULL)
        return;
    ps_arena_free(v->arena, v->values, v->values_bytes, VARIABLE_ALIGN);
    ps_arena_free(v->arena, v, sizeof(*v), VARIABLE_ALIGN);
}

bool ps_variable_destroy_some(struct ps_variable *v)
{
    if (v->values_bytes <= PS_ARENA_HUGE_PAGE_BYTES)
        return false;
    v->values_bytes -= PS_ARENA_HUGE_PAGE_BYTES;
    ps_arena_free(v->arena, (uint8_t *)v->values + v->values_bytes, PS_ARENA_HUGE_PAGE_BYTES, VARIABLE_ALIGN);
    return true;
}

uint64_t ps_variable_elements(const struct ps_variable *v)
{
    return v->elements;
}

const float *ps_variable_values(const struct ps_variable *v)
{
    return v->values;
}

enum mr_status ps_variable_set(struct ps_variable *v, uint64_t first, const float *values, uint64_t count)
{
    if (first > v->elements || count > v->elements - first)
        return MR_WRONG_SHAPE;
    if (count > 0) {
        memcpy(v->values + first, values, count * sizeof(float));
        mr_rule_values_set(&v->optimizer, v->values, v->values + v->elements, v->elements, first, count);
    }
    return MR_OK;
}

bool ps_variable_push(struct ps_variable *v, uint64_t step, const float *learning_rate, const float *gradient)
{
    float *state = v->values + v->elements;
    const struct mr_rule_push push = {
        .learning_rate = mr_rule_learning_rate(&v->optimizer, step, learning_rate), .step = step};
    return mr_rule_apply(&v->optimizer, &push, &v->values, &state, &gradient, 1, v->elements) == 1;
}

uint64_t ps_variable_stored_bytes(const struct ps_variable *v)
{
    return v->stored_bytes;
}

void ps_variable_store(const struct ps_variable *v, uint64_t first_byte, uint64_t bytes, uint8_t *out)
{
    memcpy(out, (const uint8_t *)v->values + first_byte, bytes);
}

void ps_variable_load(struct ps_variable *v, const uint8_t *stored)
{
    memcpy(v->values, stored, v->stored_bytes);
}
