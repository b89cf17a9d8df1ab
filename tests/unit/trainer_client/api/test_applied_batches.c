#include <stdlib.h>
#include "trainer_client/api/applied_batches.h"
#include "tests/test.h"

static bool has(const struct mrc_applied_batches *set, uint64_t sequence)
{
    if (sequence < set->watermark)
        return true;
    uint64_t bit = sequence - set->watermark;

    return bit < (uint64_t)set->words * 64 && (set->bitmap[bit / 64] >> (bit % 64) & 1) != 0;
}

TEST(test_one)
{
    uint64_t bits[2] = {0x5, 0};
    struct mrc_applied_batches set = {.watermark = 10, .bitmap = bits, .words = 2}, all;
    assert_true(mrc_applied_by_all(&set, 1, &all));
    assert_int_equal(all.watermark, 11); /* 10 is in: the watermark rises over it */
    assert_int_equal(all.words, 1);
    assert_int_equal(all.bitmap[0], 0x2); /* 12 */
    free(all.bitmap);
}

TEST(test_empty)
{
    struct mrc_applied_batches sets[2] = {{.watermark = 0}, {.watermark = 1000}}, all;
    assert_true(mrc_applied_by_all(sets, 2, &all));
    assert_int_equal(all.watermark, 0);
    assert_int_equal(all.words, 0);
    free(all.bitmap);
}

TEST(test_random_sets)
{
    enum { SETS = 3, WORDS = 3, ROUNDS = 200 };
    uint64_t random = 12345;

    for (uint32_t n = 0; n < ROUNDS; n++) {
        uint64_t bits[SETS][WORDS];
        struct mrc_applied_batches sets[SETS], all;
        for (uint32_t s = 0; s < SETS; s++) {
            for (uint32_t w = 0; w < WORDS; w++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                bits[s][w] = random | random >> 7 | (n % 3 == 0 ? ~UINT64_C(0) << (random >> 59) : 0);
            }
            random = random * 6364136223846793005u + 1442695040888963407u;
            sets[s] = (struct mrc_applied_batches){
                .watermark = random >> 57, .bitmap = bits[s], .words = (uint32_t)(random >> 40 & 3)};
        }
        assert_true(mrc_applied_by_all(sets, SETS, &all));
        for (uint64_t sequence = 0; sequence < 400; sequence++) {
            bool in_all = has(&sets[0], sequence) && has(&sets[1], sequence) && has(&sets[2], sequence);
            assert_int_equal(has(&all, sequence), in_all);
        }
        assert_false(has(&all, all.watermark));
        assert_true(all.words == 0 || all.bitmap[all.words - 1] != 0);
        free(all.bitmap);
    }
}
