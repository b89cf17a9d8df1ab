/* Tables with a dense optimizer (dataplane/optimizer/missed_steps.h): lookups see rows as the training step
 * that they name sees them, which are copies; pushes bring rows there before they change them. */
#include <string.h>
#include "ps/table/table_internal.h"

/* A row's values and state, which may be copies, go through the steps before that one. */
static void catch_up(struct ps_table *t, uint64_t step, float *values, float *state)
{
    struct ps_dense *d = t->dense;
    d->passes_of_late -= d->passes_of_late / PS_ROWS_OF_LATE;
    if (step > 0)
        d->passes_of_late += mr_rule_catch_up(&t->optimizer, &d->rates, step - 1, values, state, t->dim);
}

/* Not first values, worked out for a key that has no row. */
static bool is_stored(const struct ps_table *t, const void *row)
{
    const float *first = t->initial_rows, *end = first + (size_t)PS_INITIAL_ROWS_COUNT * t->dim;
    return (uintptr_t)row < (uintptr_t)first || (uintptr_t)row >= (uintptr_t)end;
}

const void *const *ps_table_rows_before(struct ps_table *t, uint64_t step, const void *const *rows,
                                        uint32_t count)
{
    const uint32_t state_floats = ps_table_state_floats(t);
    for (uint32_t i = 0; i < count; i++) {
        float *values = t->dense->copies + (size_t)i * (t->dim + state_floats), *state = values + t->dim;
        const float *row = rows[i];
        memcpy(values, row, t->dim * sizeof(*values));
        if (is_stored(t, row))
            memcpy(state, (const uint8_t *)row + t->layout.state_offset, state_floats * sizeof(*state));
        else
            mr_rule_state_init(&t->optimizer, values, state, t->dim);
        catch_up(t, step, values, state);
        t->dense->rows[i] = values;
    }
    return t->dense->rows;
}

uint32_t ps_table_dense_apply(struct ps_table *t, const struct mr_rule_push *push,
                              const struct ps_row_turn *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        catch_up(t, push->step, r->values[i], r->states[i]);
    const uint32_t changed =
        mr_rule_apply(&t->optimizer, push, r->values, r->states, r->gradients, r->count, t->dim);
    for (uint32_t left = changed; left != 0; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);
        mr_rule_went_through(&t->optimizer, push->step, r->states[i], t->dim);
    }
    return (uint32_t)__builtin_popcount(changed);
}
