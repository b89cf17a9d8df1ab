/* Rows as they are stored, whatever the optimizer: set with their state, and read with it. */
#include <string.h>
#include "ps/table/table_internal.h"

uint32_t ps_table_state_floats(const struct ps_table *t)
{
    return (t->layout.bytes - t->layout.state_offset) / (uint32_t)sizeof(float);
}

/* ---- set ---- */

static void set_row(struct ps_table *t, float *row, float *state, const float *from, bool has_state)
{
    if (t->half != NULL)
        ps_table_half_set(t, row, from);
    else
        memcpy(row, from, t->dim * sizeof(*from));
    if (has_state)
        memcpy(state, from + t->dim, ps_table_state_floats(t) * sizeof(*from));
    else
        mr_rule_state_init(&t->optimizer, ps_table_row_values(t, row), state, t->dim);
}

uint32_t ps_table_set_rows(struct ps_table *t, const struct ps_row_turn *r, bool has_state, uint64_t step)
{
    const uint32_t floats = t->dim + (has_state ? ps_table_state_floats(t) : 0);
    uint32_t set = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!t->kernels->all_finite(r->gradients[i], floats))
            continue;
        set_row(t, r->values[i], r->states[i], r->gradients[i], has_state);
        if (t->dense != NULL && !has_state && step > 0)
            mr_rule_went_through(&t->optimizer, step - 1, r->states[i], t->dim);
        set++;
    }
    return set;
}

/* ---- read ---- */

static size_t record_floats(const struct ps_table *t, bool has_state)
{
    return t->dim + (has_state ? ps_table_state_floats(t) : 0) + 1;
}

static uint64_t read_cost_bytes(const struct ps_table *t)
{
    return PS_KEY_COST_BYTES + t->layout.bytes + record_floats(t, true) * sizeof(float) +
           ps_table_missed_cost_bytes(t);
}

uint64_t ps_table_read_cost_bytes(const struct ps_table *t, uint32_t key_count)
{
    return key_count * read_cost_bytes(t);
}

/* row NULL: what a new one would be. */
static void read_row(struct ps_table *t, const struct ps_table_read *r, void *row, uint64_t key, float *out)
{
    const bool is_stored = row != NULL;
    const uint32_t state_floats = r->has_state ? ps_table_state_floats(t) : 0;
    if (!is_stored) {
        row = t->initial_rows;
        ps_table_initial_values(t, key, row);
        t->counters.keys_missing++;
    }
    if (t->dense != NULL) {
        const void *const stored = row;
        memcpy(out, ps_table_rows_before(t, r->step, &stored, 1)[0], (t->dim + state_floats) * sizeof(*out));
        out[t->dim + state_floats] = is_stored ? 1.0f : 0.0f;
        return;
    }
    memcpy(out, ps_table_row_values(t, row), t->dim * sizeof(*out));
    if (state_floats > 0 && is_stored)
        memcpy(out + t->dim, ps_table_row_state(t, row), state_floats * sizeof(*out));
    else if (state_floats > 0)
        mr_rule_state_init(&t->optimizer, out, out + t->dim, t->dim);
    out[t->dim + state_floats] = is_stored ? 1.0f : 0.0f;
}

static void read_group(struct ps_table *t, const struct ps_table_read *r, uint32_t count)
{
    const uint64_t *keys = r->keys + r->keys_done;
    const size_t floats = record_floats(t, r->has_state);
    float *out = r->out + r->keys_done * floats;
    struct ps_group g;
    ps_group_hash(t, g.hashes, keys, count);
    ps_group_seek(t, &g, count);
    ps_group_find(t, &g, count, t->layout.bytes);
    for (uint32_t late = g.late; late != 0; late &= late - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(late);
        const struct ps_place place = ps_group_find_late(t, &g, i);
        g.rows[i] = place.bucket == NULL ? NULL : ps_table_row(t, place);
    }
    for (uint32_t i = 0; i < count; i++)
        read_row(t, r, g.rows[i], keys[i], out + i * floats);
    t->counters.keys_looked_up += count;
}

bool ps_table_read_step(struct ps_table *t, struct ps_table_read *r, uint64_t *budget_bytes)
{
    do {
        const uint32_t left = r->key_count - r->keys_done,
                       end = r->keys_done + ps_budget_take_rows(t, budget_bytes, read_cost_bytes(t), left);
        while (r->keys_done < end) {
            const uint32_t count = ps_group_size(end, r->keys_done);
            read_group(t, r, count);
            r->keys_done += count;
        }
    } while (r->keys_done < r->key_count && ps_budget_goes_on(t, *budget_bytes, read_cost_bytes(t)));
    return r->keys_done == r->key_count;
}
