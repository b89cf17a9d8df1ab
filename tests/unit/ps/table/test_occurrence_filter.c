#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/base/key_hash.h"
#include "ps/table/occurrence_filter.h"
#include "table_fixture.h"
#include "tests/test.h"

TEST(a_key_is_wanted_with_its_nth_observation, fixture_arena_create, fixture_arena_destroy)
{
    for (uint32_t wanted = 1; wanted <= MR_OBSERVATIONS_MAX; wanted += wanted < 8 ? 1 : 61) {
        struct ps_occurrence_filter s;
        assert_true(ps_occurrence_init(&s, fixture_arena, 1 << 20, wanted));
        for (uint64_t key = 0; key < 50; key++) {
            uint64_t hash = ps_key_hash(key, 3);
            for (uint32_t i = 1; i < wanted; i++) {
                assert_int_equal(ps_occurrence_count(&s, hash), i - 1);
                assert_int_equal(ps_occurrence_add(&s, hash), PS_OCCURRENCE_COUNTED);
            }
            assert_int_equal(ps_occurrence_add(&s, hash), PS_OCCURRENCE_WANTED);
            assert_int_equal(ps_occurrence_add(&s, hash), PS_OCCURRENCE_WANTED); /* and stays so */
            assert_int_equal(ps_occurrence_count(&s, hash), wanted);
        }
        ps_occurrence_fini(&s);
    }
}

/* Random observations of few keys per line: the count is never below the true one. */
TEST(a_count_is_never_too_small_while_nothing_fades, fixture_arena_create, fixture_arena_destroy)
{
    enum { KEYS = 16384, WANTED = 200 };
    uint64_t rng = fixture_seed("observations against exact counts");
    static uint32_t exact[KEYS];
    struct ps_occurrence_filter s;
    memset(exact, 0, sizeof(exact));
    assert_true(ps_occurrence_init(&s, fixture_arena, 4 << 20, WANTED)); /* 65536 lines */
    for (uint32_t i = 0; i < 20 * KEYS; i++) {
        uint32_t key = random_below(&rng, 1 + random_below(&rng, KEYS));
        exact[key]++;
        ps_occurrence_add(&s, ps_key_hash(key, 1));
    }
    uint32_t more = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t count = ps_occurrence_count(&s, ps_key_hash(key, 1)),
                 least = exact[key] < WANTED ? exact[key] : WANTED;
        assert_true(count >= least);
        more += count > least;
    }
    assert_int_equal(s.fadings, 0);
    assert_true(more <= KEYS / 1000);
    ps_occurrence_fini(&s);
}

/* A key not seen before is taken for one that was, when `keys` different ones were counted in a filter of
 * that many lines: with this probability at most. */
static double error_of(uint64_t keys, uint64_t lines)
{
    /* Keys on a line: Poisson. Binomial expansion of (1 - q^d)^4 under it, q = 15/16: E[q^(i d)] = e^(-m (1 -
     * q^i)). */
    static const double binomial[] = {1, -4, 6, -4, 1};
    double mean = (double)keys / (double)lines, error = 0;
    for (uint32_t i = 0; i <= PS_OCCURRENCE_HASHES; i++)
        error += binomial[i] *
                 exp(-mean * (1 - pow(1 - (double)PS_OCCURRENCE_HASHES / PS_OCCURRENCE_LINE_BYTES, i)));
    return error;
}

/* Other keys are taken for known ones as often as the formula says. */
TEST(the_error_is_what_the_formula_says, fixture_arena_create, fixture_arena_destroy)
{
    enum { LINES = 16384, PROBES = 200000 };
    uint64_t rng = fixture_seed("error of observations");
    for (uint32_t per_line = 1; per_line <= 4; per_line++) {
        struct ps_occurrence_filter s;
        uint64_t keys = (uint64_t)per_line * LINES, wrong = 0;
        assert_true(ps_occurrence_init(&s, fixture_arena, LINES * PS_OCCURRENCE_LINE_BYTES, 2));
        for (uint64_t i = 0; i < keys; i++)
            ps_occurrence_add(&s, random_next(&rng));
        for (uint32_t i = 0; i < PROBES; i++)
            wrong += ps_occurrence_count(&s, random_next(&rng)) > 0;
        double error = error_of(keys, LINES), seen = (double)wrong / PROBES;
        double deviation = sqrt(error * (1 - error) / PROBES) + sqrt(error / (double)LINES);
        printf("%u keys per line: error %.5f, formula %.5f\n", per_line, seen, error);
        assert_true(seen > error - 6 * deviation && seen < error + 6 * deviation);
        ps_occurrence_fini(&s);
    }
    assert_true(error_of(0, 10) < 1e-12);
    assert_true(error_of(2621440, 262144) < 0.07); /* as full as lines get, 16 MiB */
}

/* A stream of ever new keys: few pass for known ones, and a key that comes often enough is still found. */
TEST(an_endless_stream_does_not_fill_the_filter, fixture_arena_create, fixture_arena_destroy)
{
    enum { LINES = 4096, STREAM = 40 * LINES, EVERY = 2 * LINES };
    uint64_t rng = fixture_seed("fading"), wrong = 0, frequent = random_next(&rng);
    struct ps_occurrence_filter s;
    bool admitted = false;
    assert_true(ps_occurrence_init(&s, fixture_arena, LINES * PS_OCCURRENCE_LINE_BYTES, 2));
    for (uint32_t i = 0; i < STREAM; i++) {
        if (i % EVERY == 0)
            admitted |= ps_occurrence_add(&s, frequent) == PS_OCCURRENCE_WANTED;
        wrong += ps_occurrence_add(&s, random_next(&rng)) == PS_OCCURRENCE_WANTED;
    }
    assert_true(s.fadings > 0);
    printf("fadings %" PRIu64 ", admitted at once %.4f\n", s.fadings, (double)wrong / STREAM);
    assert_true(wrong <= STREAM / 16);
    assert_true(admitted);
    ps_occurrence_fini(&s);
}

/* Cores own partitions: each counts its own, and together they count what one core would. */
TEST(counts_do_not_depend_on_the_number_of_cores, fixture_arena_create, fixture_arena_destroy)
{
    enum { CORES = 3, OBSERVATIONS = 60000 };
    uint64_t rng = fixture_seed("observations of several cores");
    struct ps_occurrence_filter one, some[CORES];
    assert_true(ps_occurrence_init(&one, fixture_arena, 0, 3));
    for (uint32_t i = 0; i < CORES; i++)
        assert_true(ps_occurrence_init(&some[i], fixture_arena, 0, 3));
    for (uint32_t i = 0; i < OBSERVATIONS; i++) {
        uint64_t hash = ps_key_hash(random_below(&rng, 20000), 0);
        assert_int_equal(ps_occurrence_add(&one, hash),
                         ps_occurrence_add(&some[mr_partition_of(hash) % CORES], hash));
    }
    assert_true(one.fadings > 0);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const uint8_t *a = one.counters[p], *b = some[p % CORES].counters[p];
        assert_int_equal(a == NULL, b == NULL);
        if (a != NULL)
            assert_memory_equal(a, b, ps_occurrence_partition_bytes(&one));
    }
    ps_occurrence_fini(&one);
    for (uint32_t i = 0; i < CORES; i++)
        ps_occurrence_fini(&some[i]);
}

TEST(counters_are_read_and_put_back, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_occurrence_filter from, to;
    assert_true(ps_occurrence_init(&from, fixture_arena, 1 << 20, 5));
    assert_true(ps_occurrence_init(&to, fixture_arena, 1 << 20, 5));
    for (uint64_t key = 0; key < 3000; key++)
        for (uint64_t i = 0; i < key % 5; i++)
            ps_occurrence_add(&from, ps_key_hash(key, 9));
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (from.counters[p] != NULL)
            assert_true(ps_occurrence_load(&to, &(struct ps_occurrence_part){p, 0, from.line_count},
                                           from.counters[p]));
    for (uint64_t key = 0; key < 4000; key++)
        assert_int_equal(ps_occurrence_count(&to, ps_key_hash(key, 9)),
                         ps_occurrence_count(&from, ps_key_hash(key, 9)));
    assert_int_equal(to.bytes, from.bytes);
    ps_occurrence_clear(&to);
    assert_int_equal(ps_occurrence_count(&to, ps_key_hash(4, 9)), 0);
    ps_occurrence_fini(&from);
    ps_occurrence_fini(&to);
}

/* ---- cuts ---- */

#define PIECE_BYTES (PS_OCCURRENCE_PART_LINES * PS_OCCURRENCE_LINE_BYTES)

/* All of a filter's counters; what is not there is zero. */
static uint8_t *copy_of(const struct ps_occurrence_filter *s)
{
    size_t bytes = ps_occurrence_partition_bytes(s);
    uint8_t *copy = calloc(MR_PARTITION_COUNT, bytes);
    assert_non_null(copy);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (s->counters[p] != NULL)
            memcpy(copy + p * bytes, s->counters[p], bytes);
    return copy;
}

static void some_observations(struct ps_occurrence_filter *s, uint64_t *rng, uint32_t count, uint32_t keys)
{
    for (uint32_t i = 0; i < count; i++)
        (void)ps_occurrence_add(s, ps_key_hash(random_below(rng, keys), 0));
}

/* Takes up to `most` pieces into the image; false when there are none left. */
static bool take_some(struct ps_occurrence_filter *s, uint8_t *image, uint32_t most)
{
    struct ps_occurrence_part piece, again;
    for (; most > 0; most--) {
        if (!ps_occurrence_cut_next(s, &piece))
            return false;
        assert_true(ps_occurrence_cut_next(s, &again));
        assert_memory_equal(&piece, &again, sizeof(piece));
        assert_int_in_range(piece.line_count, 1, PS_OCCURRENCE_PART_LINES);
        assert_true(piece.first_line + piece.line_count <= s->line_count);
        ps_occurrence_cut_take(s, &piece,
                               image + ((size_t)piece.partition * s->line_count + piece.first_line) *
                                           PS_OCCURRENCE_LINE_BYTES);
    }
    return true;
}

/* Cuts while observations go on: what they gave out together is the filter as it was when the last began.
 * `lines` per partition. */
static void check_cuts(uint32_t lines, uint32_t keys)
{
    struct ps_occurrence_filter s;
    uint64_t rng = fixture_seed("cuts of observations");
    assert_true(ps_occurrence_init(&s, fixture_arena,
                                   (uint64_t)lines * MR_PARTITION_COUNT * PS_OCCURRENCE_LINE_BYTES, 200));
    assert_int_equal(s.line_count, lines);
    assert_true(ps_occurrence_keep_marks(&s));
    uint8_t *image = calloc(MR_PARTITION_COUNT, ps_occurrence_partition_bytes(&s));
    assert_non_null(image);
    for (uint32_t cut = 0; cut < 12; cut++) {
        some_observations(&s, &rng, random_below(&rng, 5000), keys);
        uint8_t *at_cut = copy_of(&s);
        bool full = cut == 0 || random_below(&rng, 4) == 0;
        assert_true(ps_occurrence_cut_begin(&s, !full));
        if (full)
            memset(image, 0, MR_PARTITION_COUNT * ps_occurrence_partition_bytes(&s));
        uint64_t left = ps_occurrence_cut_lines(&s);
        do
            some_observations(&s, &rng, random_below(&rng, 100), keys);
        while (take_some(&s, image, random_below(&rng, 200)));
        assert_null(s.cut);
        assert_true(left > 0 || !full);
        assert_memory_equal(image, at_cut, MR_PARTITION_COUNT * ps_occurrence_partition_bytes(&s));
        free(at_cut);
    }
    assert_true(s.fadings > 0 || lines > 1);
    free(image);
    ps_occurrence_fini(&s);
}

TEST(a_cut_is_the_filter_as_it_was, fixture_arena_create, fixture_arena_destroy)
{
    check_cuts(1, 300000);
    check_cuts(64, 2000000);
    check_cuts(150, 60000); /* pieces of 64, 64 and 22 lines */
}

/* A cut of what changed has the pieces that changed and no others. */
TEST(a_cut_has_what_changed, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_occurrence_filter s;
    struct ps_occurrence_part piece;
    uint8_t counters[PIECE_BYTES];
    uint32_t line;
    assert_true(ps_occurrence_init(&s, fixture_arena, PS_OCCURRENCE_BYTES_DEFAULT, 2));
    assert_true(ps_occurrence_keep_marks(&s));
    ps_occurrence_add(&s, UINT64_C(5) << 52);
    ps_occurrence_add(&s, UINT64_C(9) << 52);
    assert_true(ps_occurrence_cut_begin(&s, false));
    ps_occurrence_add(&s, UINT64_C(5) << 52); /* of the next */
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(ps_occurrence_cut_next(&s, &piece));
        assert_int_equal(piece.partition, i == 0 ? 5 : 9);
        ps_occurrence_cut_take(&s, &piece, counters);
        uint8_t most = 0;
        for (line = 0; line < sizeof(counters); line++)
            most = counters[line] > most ? counters[line] : most;
        assert_int_equal(most, 1);
    }
    assert_false(ps_occurrence_cut_next(&s, &piece));
    ps_occurrence_add(&s, UINT64_C(9) << 52);
    assert_int_equal(ps_occurrence_add(&s, UINT64_C(9) << 52), PS_OCCURRENCE_WANTED); /* changes nothing */
    assert_true(ps_occurrence_cut_begin(&s, true));
    assert_int_equal(ps_occurrence_cut_lines(&s), 2 * 64);
    ps_occurrence_cut_end(&s);
    ps_occurrence_cut_end(&s);
    assert_true(ps_occurrence_cut_begin(&s, true));
    assert_false(ps_occurrence_cut_next(&s, &piece));
    assert_int_equal(ps_occurrence_add(&s, UINT64_C(9) << 52), PS_OCCURRENCE_WANTED);
    assert_true(ps_occurrence_cut_begin(&s, true));
    assert_false(ps_occurrence_cut_next(&s, &piece));
    ps_occurrence_fini(&s);
}

/* No room to keep more lines aside: observations are lost, the cut is as it was, and after it they count
 * again. */
TEST(lines_kept_aside_are_bounded, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_occurrence_filter s;
    uint64_t rng = 3;
    uint32_t lost = 0;
    assert_true(ps_occurrence_init(&s, fixture_arena, PS_OCCURRENCE_BYTES_DEFAULT, 9));
    some_observations(&s, &rng, 200000, 200000);
    uint8_t *at_cut = copy_of(&s), *image = calloc(MR_PARTITION_COUNT, ps_occurrence_partition_bytes(&s));
    assert_non_null(image);
    assert_true(ps_occurrence_cut_begin(&s, false));
    for (uint64_t key = 0; key < 100000; key++)
        lost += ps_occurrence_add(&s, ps_key_hash(key, 0)) == PS_OCCURRENCE_LOST;
    assert_int_in_range(lost, 1, 100000 - PS_OCCURRENCE_ASIDE_MAX);
    while (take_some(&s, image, 1000)) {
    }
    assert_memory_equal(image, at_cut, MR_PARTITION_COUNT * ps_occurrence_partition_bytes(&s));
    for (uint64_t key = 0; key < 1000; key++)
        assert_int_not_equal(ps_occurrence_add(&s, ps_key_hash(key, 0)), PS_OCCURRENCE_LOST);
    free(image);
    free(at_cut);
    ps_occurrence_fini(&s);
}

/* Filters are in checkpoints: a later version looks for a key's counters where this one put them. */
TEST(counters_stay_where_checkpoints_have_them, fixture_arena_create, fixture_arena_destroy)
{
    static const struct {
        uint64_t key;
        uint32_t at[PS_OCCURRENCE_HASHES]; /* within a partition's 16 lines */
    } known[] = {{0, {0, 16, 33, 52}}, {1, {129, 145, 164, 187}}, {UINT64_MAX, {525, 537, 553, 570}}};
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
        struct ps_occurrence_filter s;
        const uint64_t hash = ps_key_hash(known[k].key, 9);
        uint32_t found = 0;
        assert_true(ps_occurrence_init(&s, fixture_arena, 4 << 20, 2));
        ps_occurrence_add(&s, hash);
        const uint8_t *counters = s.counters[mr_partition_of(hash)];
        for (uint32_t i = 0; i < PS_OCCURRENCE_HASHES; i++)
            assert_int_equal(counters[known[k].at[i]], 1);
        for (uint32_t i = 0; i < ps_occurrence_partition_bytes(&s); i++)
            found += counters[i];
        assert_int_equal(found, PS_OCCURRENCE_HASHES);
        ps_occurrence_fini(&s);
    }
}

/* A few partitions at a time. */
TEST(clearing_goes_in_slices, fixture_arena_create, fixture_arena_destroy)
{
    enum { PARTITIONS = 10, AT_A_TIME = 3 };
    struct ps_occurrence_filter s;
    uint32_t slices = 0;
    assert_true(ps_occurrence_init(&s, fixture_arena, 1 << 20, 2));
    for (uint64_t partition = 0; partition < PARTITIONS; partition++)
        ps_occurrence_add(&s, partition << 52);
    for (bool more = true; more;) {
        struct ps_arena_slice slice = ps_arena_slice_begin(fixture_arena, AT_A_TIME);
        uint32_t left = 0;
        more = ps_occurrence_clear_some(&s, &slice);
        slices++;
        for (uint32_t i = 0; i < PARTITIONS; i++)
            left += s.counters[i] != NULL;
        assert_int_equal(left, more ? PARTITIONS - slices * AT_A_TIME : 0);
    }
    assert_int_equal(slices, (PARTITIONS + AT_A_TIME - 1) / AT_A_TIME);
    ps_occurrence_fini(&s);
}

TEST(memory_is_taken_by_partition_and_may_run_out, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_arena *small = ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN);
    struct ps_occurrence_filter s;
    uint32_t lost = 0;
    assert_true(ps_occurrence_init(&s, small, MR_PARTITION_COUNT * UINT64_C(8192), 2));
    size_t before = s.bytes;
    assert_true(ps_occurrence_takes_memory(&s, 0));
    assert_int_equal(ps_occurrence_add(&s, 0), PS_OCCURRENCE_COUNTED);
    assert_false(ps_occurrence_takes_memory(&s, 0));
    assert_int_equal(s.bytes, before + 8192);
    assert_int_equal(ps_occurrence_partition_bytes(&s), 8192);
    for (uint64_t partition = 1; partition < MR_PARTITION_COUNT; partition++)
        lost += ps_occurrence_add(&s, partition << 52) == PS_OCCURRENCE_LOST;
    assert_true(lost > 0 && lost < MR_PARTITION_COUNT);
    assert_int_equal(ps_occurrence_add(&s, 0), PS_OCCURRENCE_WANTED); /* what is counted goes on */
    ps_occurrence_fini(&s);
    assert_int_equal(ps_arena_allocated_bytes(small), 0);
    ps_arena_destroy(small);
}
