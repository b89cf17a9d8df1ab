/* How close sampled LRU and LFU come to exact ones, on keys drawn by Zipf's law; and that they depend on the
 * calls alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

enum { UNIVERSE = 20000, CAPACITY = 2000, TRACE = 200000, CALL = 16 };

/* What docs/tables.md states. */
#define HITS_BELOW_EXACT_MAX 0.01

static double cumulative[UNIVERSE];
static uint32_t trace[TRACE];

static uint32_t draw(uint64_t *rng)
{
    double x = (double)(random_next(rng) >> 11) * 0x1p-53 * cumulative[UNIVERSE - 1];
    uint32_t low = 0, high = UNIVERSE - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (cumulative[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* shift: which keys are frequent changes every TRACE / 4 draws. */
static void draw_trace(uint64_t *rng, double exponent, bool shift)
{
    double sum = 0;
    for (uint32_t i = 0; i < UNIVERSE; i++)
        cumulative[i] = sum += pow(i + 1.0, -exponent);
    for (uint32_t i = 0; i < TRACE; i++)
        trace[i] = (draw(rng) + (shift ? i / (TRACE / 4) * 1500 : 0)) % UNIVERSE;
}

/* The row with the fewest uses (LFU; as long as it is held), of those the one unused for longest, goes. */
static double exact_hits(enum mr_eviction eviction)
{
    static uint32_t last[UNIVERSE], uses[UNIVERSE], held[CAPACITY], count;
    uint64_t hits = 0;
    memset(last, 0, sizeof(last));
    count = 0;
    for (uint32_t i = 0; i < TRACE; i++) {
        uint32_t key = trace[i];
        if (last[key] != 0) {
            hits++;
            uses[key]++;
        } else {
            uint32_t at = count;
            if (count == CAPACITY) {
                at = 0;
                for (uint32_t j = 1; j < CAPACITY; j++) {
                    uint32_t a = held[j], b = held[at];
                    bool rarer = eviction == MR_EVICT_LFU && uses[a] != uses[b] ? uses[a] < uses[b]
                                                                                : last[a] < last[b];
                    at = rarer ? j : at;
                }
                last[held[at]] = 0;
            } else {
                count++;
            }
            held[at] = key;
            uses[key] = 1;
        }
        last[key] = i + 1;
    }
    return (double)hits / TRACE;
}

static struct ps_table *table_of(enum mr_eviction eviction, struct ps_arena *arena)
{
    struct mr_feature f = mr_feature_table("t", 1);
    f.eviction = (uint32_t)eviction;
    f.capacity_rows = CAPACITY;
    return fixture_table(&f, arena);
}

static double table_hits(struct ps_table *t)
{
    uint64_t keys[CALL];
    float out[CALL];
    for (uint32_t i = 0; i < TRACE; i += CALL) {
        for (uint32_t j = 0; j < CALL; j++)
            keys[j] = trace[i + j];
        table_lookup(t, keys, CALL, true, out);
    }
    return 1.0 - (double)ps_table_counters(t)->keys_missing / TRACE;
}

TEST(hits_come_close_to_those_of_the_exact_policy)
{
    static const double exponents[] = {0.7, 1.05, 1.3};
    uint64_t rng = fixture_seed("hits");
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    for (uint32_t i = 0; i < 6; i++) {
        draw_trace(&rng, exponents[i / 2], i % 2 != 0);
        for (uint32_t e = MR_EVICT_LRU; e <= MR_EVICT_LFU; e++) {
            struct ps_table *t = table_of((enum mr_eviction)e, arena);
            double exact = exact_hits((enum mr_eviction)e), sampled = table_hits(t);
            printf("zipf %.2f%s, %s: hits %.4f, exact %.4f\n", exponents[i / 2],
                   i % 2 != 0 ? " that changes" : "", e == MR_EVICT_LRU ? "lru" : "lfu", sampled, exact);
            assert_true(sampled > exact - HITS_BELOW_EXACT_MAX);
            assert_int_equal(ps_table_rows(t), CAPACITY);
            ps_table_destroy(t);
        }
    }
    ps_arena_destroy(arena);
}

TEST(the_same_calls_keep_the_same_rows)
{
    uint64_t rng = fixture_seed("the same calls");
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    draw_trace(&rng, 0.9, true);
    for (uint32_t e = MR_EVICT_LRU; e <= MR_EVICT_LFU; e++) {
        struct ps_table *a = table_of((enum mr_eviction)e, arena), *b = table_of((enum mr_eviction)e, arena);
        ps_table_set_now(b, 77777, 5); /* time does not matter */
        assert_true(table_hits(a) == table_hits(b));
        for (uint64_t key = 0; key < UNIVERSE; key++)
            assert_int_equal(fixture_has_row(a, key), fixture_has_row(b, key));
        ps_table_destroy(a);
        ps_table_destroy(b);
    }
    ps_arena_destroy(arena);
}
