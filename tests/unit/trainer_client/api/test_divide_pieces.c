/* Pieces of a variable, split by owners and put together again, against a plain loop over elements. */
#include <stdlib.h>
#include <string.h>
#include "trainer_client/api/divide.h"
#include "tests/test.h"

enum { ELEMENTS = 1000, OWNERS = 5, ROUNDS = 300 };

static uint32_t random_below(uint64_t *state, uint32_t end)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % end;
}

/* Pieces that rise, some of them right behind one another. Returns the number of words. */
static uint32_t draw_pieces(uint64_t *random, uint64_t words[])
{
    uint32_t count = 0;
    for (uint64_t at = random_below(random, 50); at < ELEMENTS && count < 40;) {
        const uint64_t left = ELEMENTS - at, wanted = 1 + random_below(random, 200);
        words[count++] = at;
        words[count++] = wanted < left ? wanted : left;
        at += words[count - 1] + (random_below(random, 2) == 0 ? 0 : random_below(random, 30));
    }
    return count;
}

static void check_shares(const struct mrc_pieces *p, const uint16_t owners[], const bool is_in[])
{
    uint32_t found = 0, expected = 0;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        expected += is_in[i];
    for (uint32_t s = 0; s < p->share_count; s++) {
        uint64_t end = UINT64_MAX, elements = 0;
        assert_true(p->shares[s].word_count > 0 && (s == 0 || p->shares[s].owner > p->shares[s - 1].owner));
        for (uint32_t w = 0; w < p->shares[s].word_count; w += MR_PIECE_WORDS) {
            const uint64_t first = p->shares[s].words[w], count = p->shares[s].words[w + 1];
            assert_true(count > 0 && first != end && (w == 0 || first > end)); /* what adjoins is one piece */
            end = first + count;
            elements += count;
            for (uint64_t i = first; i < end; i++) {
                const uint32_t range = mr_run_of(&p->variable, i, 1).range;
                assert_true(is_in[i]);
                assert_int_equal(owners[mr_range_partition(p->variable.name, range)], p->shares[s].owner);
            }
        }
        assert_int_equal(elements, p->shares[s].elements);
        found += (uint32_t)elements;
    }
    assert_int_equal(found, expected);
}

static void check_values(struct mrc_pieces *p)
{
    float values[ELEMENTS], shares[ELEMENTS], back[ELEMENTS] = {0};
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->elements; i++)
        values[i] = (float)i;
    for (uint32_t s = 0; s < p->share_count; at += p->shares[s++].elements)
        p->shares[s].values = shares + at;
    mrc_pieces_fill(p, values);
    mrc_pieces_join(p, back);
    assert_memory_equal(values, back, p->elements * sizeof(float));
    for (uint32_t s = 0; s < p->share_count; s++) /* in the order of the elements */
        for (uint64_t i = 1; i < p->shares[s].elements; i++)
            assert_true(p->shares[s].values[i] > p->shares[s].values[i - 1]);
}

TEST(pieces_go_to_their_owners_and_come_back)
{
    static uint16_t owners[MR_PARTITION_COUNT];
    const uint32_t dims[1] = {ELEMENTS};
    uint64_t random = 3;
    uint32_t several = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct mr_feature v = mr_feature_variable("wide", 1, dims);
        uint64_t words[80];
        bool is_in[ELEMENTS] = {false};
        struct mrc_pieces p;
        v.range_values = round % 3 == 0 ? 0 : 1 + random_below(&random, 300);
        for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
            owners[i] = (uint16_t)random_below(&random, OWNERS);
        const uint32_t word_count = draw_pieces(&random, words);
        for (uint32_t w = 0; w < word_count; w += MR_PIECE_WORDS)
            memset(is_in + words[w], true, words[w + 1]);
        assert_true(mrc_divide_pieces(&p, &v, owners, OWNERS, words, word_count));
        check_shares(&p, owners, is_in);
        check_values(&p);
        several += p.share_count > 1;
        assert_true(v.range_values != 0 || p.share_count == 1);
        free(p.memory);
    }
    assert_true(several > ROUNDS / 3);
}
