#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "world.h"

_Noreturn void world_fail(const struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "table_property: seed %" PRIu64 " failed at operation %" PRIu64 " (%s): ", w->seed,
            w->operation, w->doing);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (table_property --first %" PRIu64 " --worlds 1 --verbose)\n", w->seed);
    va_end(args);
    _Exit(WORLD_FAILED);
}

bool world_has_row(const struct subject *s, uint64_t key)
{
    const struct ps_index *ix = &s->table->index;
    return ps_index_find(ix, ps_index_hash(ix, key)).bucket != NULL;
}

/* Rows were refused: then the capacity is used up, or so is the arena, up to less than a unit. */
static void check_refused(struct world *w, struct subject *s, uint64_t refused)
{
    const struct mr_feature *f = &s->model.feature;
    bool full = (f->capacity_rows != 0 && s->model.row_count >= f->capacity_rows) ||
                (f->memory_bytes != 0 &&
                 ps_table_memory_bytes(s->table) + 2 * PS_ARENA_HUGE_PAGE_BYTES > f->memory_bytes);
    bool no_memory =
        ps_arena_mapped_bytes(w->arena) + PS_ARENA_HUGE_PAGE_BYTES > ps_arena_limit_bytes(w->arena);
    WORLD_CHECK(w, refused == 0 || full || no_memory,
                "%" PRIu64 " rows were refused with %" PRIu64 " of %" PRIu64 " rows and %zu bytes in use",
                refused, s->model.row_count, f->capacity_rows, ps_arena_mapped_bytes(w->arena));
}

/* Keys that got no row, and rows that went, are counted once, and where that may be; `expected` has them
 * then. */
static void check_limits(struct world *w, struct subject *s)
{
    const struct ps_table_counters *got = ps_table_counters(s->table);
    struct ps_table_counters *expected = &s->expected;
    uint32_t admission = s->model.feature.admission, eviction = s->model.feature.eviction;
    uint64_t not_admitted = admission == MR_ADMIT_PROBABILITY    ? got->keys_not_admitted_probability
                            : admission == MR_ADMIT_OBSERVATIONS ? got->keys_not_admitted_observations
                                                                 : 0;
    uint64_t not_made = got->rows_refused + not_admitted;
    /* A push counts no keys that are not admitted. */
    WORLD_CHECK(w, not_made <= s->not_made + s->ambiguous && not_made + s->not_admitted_pushed >= s->not_made,
                "%" PRIu64 " keys got no row, expected %" PRIu64 " less %" PRIu64, not_made, s->not_made,
                s->not_admitted_pushed);
    s->not_made = not_made;
    s->not_admitted_pushed = 0;
    uint64_t evicted = got->rows_evicted_age + got->rows_evicted_steps + got->rows_evicted_norm +
                       got->rows_evicted_capacity + got->rows_evicted_memory;
    WORLD_CHECK(w, evicted == s->evicted, "%" PRIu64 " rows were evicted, expected %" PRIu64, evicted,
                s->evicted);
    WORLD_CHECK(w, got->observations_not_counted <= got->keys_not_admitted_observations,
                "observations not counted");
    expected->rows_refused = got->rows_refused;
    if (admission == MR_ADMIT_PROBABILITY)
        expected->keys_not_admitted_probability = not_admitted;
    if (admission == MR_ADMIT_OBSERVATIONS) {
        expected->keys_not_admitted_observations = not_admitted;
        expected->observations_not_counted = got->observations_not_counted;
    }
#define EVICTED(name, is) expected->name = (is) ? got->name : 0
    EVICTED(rows_evicted_age, eviction == MR_EVICT_AGE);
    EVICTED(rows_evicted_steps, eviction == MR_EVICT_STEPS);
    EVICTED(rows_evicted_norm, eviction == MR_EVICT_NORM);
    EVICTED(rows_evicted_capacity, model_makes_room(&s->model));
    EVICTED(rows_evicted_memory, model_makes_room(&s->model));
#undef EVICTED
}

void world_check_call(struct world *w, struct subject *s)
{
    const struct ps_table_counters *got = ps_table_counters(s->table);
    struct ps_table_counters *expected = &s->expected;
    check_refused(w, s, got->rows_refused - s->refused);
    s->refused = got->rows_refused;
    uint64_t capacity = s->model.feature.capacity_rows;
    WORLD_CHECK(w, capacity == 0 || got->rows <= capacity || got->rows <= s->rows_allowed,
                "%" PRIu64 " rows, and the capacity is %" PRIu64, got->rows, capacity);
    s->rows_allowed = got->rows;
    expected->rows = s->model.row_count;
    /* Which counter takes a key that has no row and no gradient worth adding depends on what is found out
     * first. */
    uint64_t excluded = got->gradients_skipped + got->gradients_without_row;
    WORLD_CHECK(w, excluded == expected->gradients_skipped + expected->gradients_without_row,
                "%" PRIu64 " gradients were left out, expected %" PRIu64, excluded,
                expected->gradients_skipped + expected->gradients_without_row);
    uint64_t skipped = got->gradients_skipped, wanted = expected->gradients_skipped;
    WORLD_CHECK(w, skipped <= wanted && wanted - skipped <= s->ambiguous,
                "gradients_skipped is %" PRIu64 ", expected %" PRIu64, skipped, wanted);
    expected->gradients_skipped = skipped;
    expected->gradients_without_row = got->gradients_without_row;
    check_limits(w, s);
#define CHECK_COUNTER(name, kind, unit, help)                                                                \
    WORLD_CHECK(w, got->name == expected->name, #name " is %" PRIu64 ", expected %" PRIu64, got->name,       \
                expected->name);
    PS_TABLE_COUNTER_LIST(CHECK_COUNTER)
#undef CHECK_COUNTER
    s->ambiguous = 0;
    WORLD_CHECK(w, ps_table_rows(s->table) == s->model.row_count, "%" PRIu64 " rows, expected %" PRIu64,
                ps_table_rows(s->table), s->model.row_count);
    WORLD_CHECK(w, s->table->slabs.rows == s->model.row_count,
                "%" PRIu64 " places are taken by %" PRIu64 " rows", s->table->slabs.rows, s->model.row_count);
    uint64_t memory = s->model.feature.memory_bytes;
    WORLD_CHECK(w, memory == 0 || ps_table_memory_bytes(s->table) <= memory || s->loaded,
                "%zu bytes of %" PRIu64, ps_table_memory_bytes(s->table), memory);
    WORLD_CHECK(w, ps_arena_mapped_bytes(w->arena) <= ps_arena_limit_bytes(w->arena), "the limit is passed");
}

void world_check_floats(struct world *w, const float *got, const float *expected, size_t count,
                        const char *what)
{
    /* 0 is as good as -0: an empty bag may be divided by a negative number. */
    if (memcmp(got, expected, count * sizeof(float)) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        uint32_t got_bits, expected_bits;
        memcpy(&got_bits, &got[i], sizeof(got_bits));
        memcpy(&expected_bits, &expected[i], sizeof(expected_bits));
        bool same = got_bits == expected_bits || (isnan(got[i]) && isnan(expected[i])) ||
                    (fpclassify(got[i]) == FP_ZERO && fpclassify(expected[i]) == FP_ZERO);
        WORLD_CHECK(w, same, "%s: float %zu of %zu is %.9g, expected %.9g", what, i, count, (double)got[i],
                    (double)expected[i]);
    }
}

void world_check_stored(struct world *w, const struct model *m, const struct model_row *row,
                        const uint8_t *got, bool of_cut)
{
    uint8_t expected[WORLD_STORED_BYTES];
    model_store(m, row, expected);
    if (of_cut || model_evicts_by_limit(m))
        memcpy(expected + model_use_offset(m), got + model_use_offset(m), model_use_bytes(m));
    world_check_floats(w, (const float *)(const void *)got, (const float *)(const void *)expected,
                       model_stored_bytes(m) / sizeof(float), of_cut ? "row of a cut" : "stored row");
}

void world_check_rows(struct world *w, struct subject *s)
{
    for (uint32_t i = 0; i < MODEL_CHAINS; i++)
        for (const struct model_row *row = s->model.chains[i]; row != NULL; row = row->next) {
            const struct ps_index *ix = &s->table->index;
            struct ps_place place = ps_index_find(ix, ps_index_hash(ix, row->key));
            WORLD_CHECK(w, place.bucket != NULL, "key %#" PRIx64 " has no row", row->key);
            world_check_stored(w, &s->model, row, ps_table_row(s->table, place), false);
        }
}
