/* Shuffle and split: bijections, deterministic, different from epoch to epoch, and disjoint parts. */
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/samples/permutation.h"
#include "tests/test.h"

TEST(every_place_is_met_once)
{
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4096, 4097, 100003};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        bool *met = calloc(counts[c], sizeof(*met));
        assert_non_null(met);
        struct hub_permutation p = hub_permutation_make(counts[c], 7, 1);
        for (uint64_t i = 0; i < counts[c]; i++) {
            uint64_t at = hub_permutation_at(&p, i);
            assert_true(at < counts[c]);
            assert_false(met[at]);
            met[at] = true;
        }
        free(met);
    }
}

static uint64_t places_kept(struct hub_permutation a, struct hub_permutation b)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < a.count; i++)
        kept += hub_permutation_at(&a, i) == hub_permutation_at(&b, i);
    return kept;
}

TEST(seed_and_epoch_name_the_order)
{
    struct hub_permutation p = hub_permutation_make(10000, 1, 0);
    assert_int_equal(places_kept(p, hub_permutation_make(10000, 1, 0)), 10000);
    /* Two random orders agree in one place on average. */
    assert_true(places_kept(p, hub_permutation_make(10000, 1, 1)) < 20);
    assert_true(places_kept(p, hub_permutation_make(10000, 2, 0)) < 20);
    assert_true(places_kept(p, hub_permutation_make(10000, 0, 0)) < 20);
}

TEST(seed_zero_is_file_order)
{
    struct hub_permutation p = hub_permutation_make(1000, 0, 3);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(hub_permutation_at(&p, i), i);
}

TEST(a_huge_count_works)
{
    struct hub_permutation p = hub_permutation_make(UINT64_C(1) << 62, 5, 0);
    assert_true(hub_permutation_at(&p, (UINT64_C(1) << 62) - 1) < UINT64_C(1) << 62);
    assert_int_not_equal(hub_permutation_at(&p, 1), hub_permutation_at(&p, 2));
}

TEST(the_order_spreads)
{
    /* The mean of the first tenth is near the middle: a shuffle that keeps regions together would miss it. */
    struct hub_permutation p = hub_permutation_make(100000, 1, 0);
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++)
        sum += (double)hub_permutation_at(&p, i);
    assert_true(sum / 10000 > 48500 && sum / 10000 < 51500); /* 5 standard errors are 1443 */
}

TEST(the_split_has_its_share)
{
    static const double shares[] = {0, 0.1, 0.2, 0.9};
    for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]); s++) {
        double held_out = 0;
        for (uint64_t line = 1; line <= 100000; line++)
            held_out += hub_is_held_out(line, 1, shares[s]);
        assert_true(held_out >= 100000 * shares[s] - 800 && held_out <= 100000 * shares[s] + 800);
    }
    uint32_t same = 0;
    for (uint64_t line = 1; line <= 10000; line++)
        same += hub_is_held_out(line, 1, 0.5) == hub_is_held_out(line, 2, 0.5);
    assert_true(same > 4700 && same < 5300); /* another seed, another split */
}
