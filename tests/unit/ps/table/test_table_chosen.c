/* Keys whose public hashes were chosen to be alike: a table treats them as any others. */
#include <stdlib.h>
#include "ps/index/index_internal.h"
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define KEYS      60000u
#define CALL_KEYS 6000u
#define DIM       2u

static uint64_t placements; /* entries put into a bucket, or tried to be */

bool __real_ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                           uint32_t state);
bool __wrap_ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                           uint32_t state);
bool __wrap_ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                           uint32_t state)
{
    placements++;
    return __real_ps_entry_place(ix, to, hash, row, state);
}

enum choice {
    ANY,       /* of one partition, as all are */
    HOME_BITS, /* the next bits are the same */
    LOW_BITS,  /* all but the next bits are */
    IN_A_ROW,  /* the hashes follow each other */
    CHOICES,
};

static uint64_t chosen_hash(enum choice choice, uint64_t *rng, uint32_t i)
{
    const uint64_t partition = UINT64_C(5) << 52, random = random_next(rng);
    switch (choice) {
    case HOME_BITS:
        return partition | random >> 24;
    case LOW_BITS:
        return partition | (uint64_t)i << 36 | 0x12345;
    case IN_A_ROW:
        return partition | i;
    default:
        return partition | random >> 12;
    }
}

static void table_chosen_choose(enum choice choice, uint64_t *rng, uint64_t seed, uint64_t *keys)
{
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = ps_key_of_hash(chosen_hash(choice, rng, i), seed);
}

static void look_up_all(struct ps_table *t, const uint64_t *keys, bool insert)
{
    static float out[CALL_KEYS * DIM];
    for (uint32_t i = 0; i < KEYS; i += CALL_KEYS)
        table_lookup(t, keys + i, CALL_KEYS, insert, out);
}

TEST(test_rows_of_chosen_keys_take_the_work_of_any, fixture_arena_create, fixture_arena_destroy)
{
    static uint64_t keys[KEYS];
    uint64_t rng = fixture_seed("chosen keys"), of_any = 0;
    for (enum choice choice = ANY; choice < CHOICES; choice++) {
        const struct mr_feature f = fixture_adagrad(DIM);
        struct ps_table *t = fixture_table(&f, fixture_arena);
        table_chosen_choose(choice, &rng, f.seed, keys);
        placements = 0;
        look_up_all(t, keys, true);
        assert_int_equal(ps_table_rows(t), KEYS);
        assert_int_equal(ps_table_counters(t)->rows_refused, 0);
        of_any = choice == ANY ? placements : of_any;
        assert_int_in_range(placements, KEYS, of_any + of_any / 10);
        look_up_all(t, keys, false);
        assert_int_equal(ps_table_counters(t)->keys_missing, KEYS);
        ps_table_destroy(t);
    }
}

/* How many slots a push looks at for its keys. */
static uint64_t probes_of_push(const struct ps_table *t, const uint64_t *keys)
{
    const uint32_t slots = ps_push_slots(KEYS);
    bool *taken = calloc(slots, sizeof(*taken));
    uint64_t probes = 0;
    assert_non_null(taken);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t at = ps_push_slot(ps_index_hash(&t->index, keys[i]), slots - 1);
        for (probes++; taken[at]; probes++)
            at = (at + 1) & (slots - 1);
        taken[at] = true;
    }
    free(taken);
    return probes;
}

TEST(test_pushes_of_chosen_keys_take_the_work_of_any, fixture_arena_create, fixture_arena_destroy)
{
    static uint64_t keys[KEYS];
    uint64_t rng = fixture_seed("chosen keys of a push"), of_any = 0;
    const struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (enum choice choice = ANY; choice < CHOICES; choice++) {
        table_chosen_choose(choice, &rng, f.seed, keys);
        const uint64_t probes = probes_of_push(t, keys);
        of_any = choice == ANY ? probes : of_any;
        assert_int_in_range(probes, KEYS, of_any + of_any / 10);
    }
    ps_table_destroy(t);
}

/* What goes into checkpoints, and what a client sees, is the same whatever the secret is. */
TEST(test_rows_do_not_depend_on_the_secret, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 3000 };
    static const struct ps_key_secret secrets[] = {{{1, 2}}, {{UINT64_C(0x9e3779b97f4a7c15), 77}}};
    static float rows[2][ROWS * DIM];
    float gradients[ROWS * DIM];
    uint64_t keys[ROWS], rng = fixture_seed("two secrets");
    struct mr_feature f = fixture_adagrad(DIM);
    f.dtype = MR_BF16;
    f.admission = MR_ADMIT_PROBABILITY;
    f.admission_arg = 0.5f;
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = random_below(&rng, ROWS);
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        gradients[i] = random_float(&rng);
    uint64_t counts[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct ps_table *t;
        const char *what;
        assert_int_equal(ps_table_create(&f, fixture_arena, &secrets[i], &t, &what), MR_OK);
        table_lookup(t, keys, ROWS, true, rows[i]);
        table_push(t, keys, ROWS, gradients);
        table_lookup(t, keys, ROWS, false, rows[i]);
        counts[i] = ps_table_rows(t);
        ps_table_destroy(t);
    }
    assert_int_equal(counts[0], counts[1]);
    assert_true(counts[0] > 0 && counts[0] < ROWS);
    assert_memory_equal(rows[0], rows[1], sizeof(rows[0]));
}
