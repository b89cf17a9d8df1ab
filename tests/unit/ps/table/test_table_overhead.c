/* What a table takes over its rows' own bytes: index, room not used, padding. */
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

struct overhead {
    double mean, worst; /* share of the rows' own bytes */
};

/* Of a table with rows of `dim` floats while it grows from `first` to `last` rows. */
static struct overhead overhead_of(uint32_t dim, uint32_t first, uint32_t last)
{
    enum { CALL = 100 };
    static float out[CALL * 256];
    struct ps_arena *arena = ps_arena_create((size_t)512 << 20);
    struct mr_feature f = mr_feature_table("t", dim);
    f.optimizer = MR_OPT_SGD;
    struct ps_table *t = fixture_table(&f, arena);
    struct overhead o = {0};
    uint32_t samples = 0;
    for (uint32_t rows = 0; rows < last; rows += CALL) {
        uint64_t keys[CALL];
        for (uint32_t i = 0; i < CALL; i++)
            keys[i] = rows + i;
        table_lookup(t, keys, CALL, true, out);
        if (rows < first)
            continue;
        double raw = (double)ps_table_rows(t) * dim * sizeof(float);
        double share = (double)(ps_table_index_bytes(t) + ps_table_row_bytes_total(t)) / raw - 1;
        o.mean += share;
        o.worst = share > o.worst ? share : o.worst;
        samples++;
    }
    o.mean /= samples;
    print_message("rows of %u bytes, %u to %u of them: %.1f %% on average, %.1f %% at worst\n", dim * 4,
                  first, last, 100 * o.mean, 100 * o.worst);
    ps_table_destroy(t);
    ps_arena_destroy(arena);
    return o;
}

/* A key and a row number take 12 bytes, in buckets of which 13/16 of the places are used: 15.8 bytes a
 * row. */
TEST(test_large_tables)
{
    assert_true(overhead_of(256, 100000, 200000).mean < 0.05);
    assert_true(overhead_of(64, 300000, 600000).mean < 0.09);
    struct overhead o = overhead_of(32, 500000, 1000000);
    assert_true(o.mean < 0.15 && o.worst < 0.16);
    assert_true(overhead_of(16, 500000, 1000000).mean < 0.28);
}

TEST(test_a_table_of_some_thousand_rows_loses_little_to_slabs)
{
    struct overhead o = overhead_of(256, 8000, 32000);
    assert_true(o.mean < 0.12 && o.worst < 0.18);
}
