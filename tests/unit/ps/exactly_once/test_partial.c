/* Partly applied batches are remembered until they are applied, as ranges; beside a plain model that has a
 * set of partitions for each batch. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/op.h"
#include "ps/exactly_once/partial.h"
#include "tests/test.h"

TEST(are_found_until_they_are_applied)
{
    const struct ps_partial entries[3] = {{5, 7, ps_partitions_range(1, 2)},
                                          {8, 8, ps_partitions_range(1, 3)},
                                          {10, 10, ps_partitions_range(1, 3)}};
    struct ps_partials p = {0};
    assert_null(ps_partials_find(&p, 5));
    assert_true(ps_partials_set(&p, entries, 3));
    ps_partials_remove(&p, 6);
    ps_partials_remove(&p, 9);
    ps_partials_remove(&p, 10);
    for (uint64_t id = 4; id <= 11; id++)
        assert_int_equal(ps_partials_find(&p, id) != NULL, id == 5 || id == 7 || id == 8);
    assert_int_equal(p.count, 3);
    assert_true(ps_partials_set(&p, entries, 1));
    assert_int_equal(p.count, 1);
    ps_partials_clear(&p);
    assert_null(ps_partials_find(&p, 5));
}

TEST(ranges_that_meet_are_one)
{
    const struct ps_partition_set all = ps_partitions_all(), some = ps_partitions_range(3, 9);
    struct ps_partials p = {0};
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){10, 19, some}), MR_OK);
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){30, 39, some}), MR_OK);
    assert_int_equal(p.count, 2);
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){20, 29, some}), MR_OK);
    assert_int_equal(p.count, 1);
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){15, 34, all}), MR_OK);
    assert_int_equal(p.count, 3);
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){0, 99, all}), MR_OK);
    assert_int_equal(p.count, 1);
    /* Two streams' batches are not neighbours. */
    const uint64_t end = UINT64_C(1) << MR_BATCH_SEQUENCE_BITS;
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){end - 1, end - 1, some}), MR_OK);
    assert_int_equal(ps_partials_add(&p, &(struct ps_partial){end, end, some}), MR_OK);
    assert_int_equal(p.count, 3);
    ps_partials_forget(&p, 0);
    assert_int_equal(p.count, 1);
    assert_non_null(ps_partials_find(&p, end));
    ps_partials_clear(&p);
}

TEST(too_many_ranges_are_refused)
{
    struct ps_partials p = {0};
    struct ps_partial *entries = calloc(PS_PARTIALS_MAX, sizeof(*entries));
    assert_non_null(entries);
    for (uint64_t i = 0; i < PS_PARTIALS_MAX; i++)
        entries[i] = (struct ps_partial){2 * i, 2 * i, ps_partitions_range(0, 1)};
    assert_true(ps_partials_set(&p, entries, PS_PARTIALS_MAX));
    const struct ps_partial more = {2 * PS_PARTIALS_MAX, 2 * PS_PARTIALS_MAX, ps_partitions_range(0, 1)};
    assert_int_equal(ps_partials_add(&p, &more), MR_UNSUPPORTED);
    ps_partials_clear(&p);
    free(entries);
}

/* ---- beside a model ---- */

#define STREAMS    3u
#define BATCHES    160u
#define PARTITIONS 6u
#define STEPS      500u

struct model {
    uint8_t applied[STREAMS][BATCHES]; /* a bit for each partition */
};

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static uint64_t id_of(uint32_t stream, uint32_t batch)
{
    return (uint64_t)stream << MR_BATCH_SEQUENCE_BITS | batch;
}

/* The model's partitions are spread over all words of a set. */
static uint32_t place_of(uint32_t partition)
{
    return partition * 801;
}

static struct ps_partition_set set_of(uint32_t bits)
{
    struct ps_partition_set set = {{0}};
    for (uint32_t i = 0; i < PARTITIONS; i++)
        if ((bits >> i & 1) != 0)
            ps_partitions_add(&set, place_of(i));
    return set;
}

/* The ranges say what the model does, and there are as few as there can be. */
static void partial_check(const struct ps_partials *p, const struct model *m)
{
    uint32_t ranges = 0;
    for (uint32_t s = 0; s < STREAMS; s++) {
        for (uint32_t b = 0; b < BATCHES; b++) {
            const struct ps_partial *found = ps_partials_find(p, id_of(s, b));
            const struct ps_partition_set expected = set_of(m->applied[s][b]);
            assert_int_equal(found != NULL, m->applied[s][b] != 0);
            if (found != NULL)
                assert_memory_equal(&found->partitions, &expected, sizeof(expected));
            ranges += m->applied[s][b] != 0 && (b == 0 || m->applied[s][b] != m->applied[s][b - 1]);
        }
    }
    assert_int_equal(p->count, ranges);
}

static void random_steps(uint64_t seed)
{
    struct model m = {{{0}}};
    struct ps_partials p = {0};
    random_state = seed;
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t stream = draw(STREAMS), first = draw(BATCHES), last = first + draw(BATCHES - first);
        const uint32_t bits = 1 + draw((1u << PARTITIONS) - 1);
        switch (draw(40)) {
        case 0:
            ps_partials_forget(&p, stream);
            memset(m.applied[stream], 0, sizeof(m.applied[stream]));
            break;
        case 1:
            assert_true(ps_partials_set(&p, p.entries, p.count));
            break;
        case 2 ... 9:
            assert_int_equal(ps_partials_add(&p, &(struct ps_partial){id_of(stream, first),
                                                                      id_of(stream, last), set_of(bits)}),
                             MR_OK);
            for (uint32_t b = first; b <= last; b++)
                m.applied[stream][b] |= (uint8_t)bits;
            break;
        default:
            ps_partials_remove(&p, id_of(stream, first));
            m.applied[stream][first] = 0;
        }
        partial_check(&p, &m);
    }
    ps_partials_clear(&p);
}

TEST(says_what_a_model_says)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        random_steps(seed);
}
