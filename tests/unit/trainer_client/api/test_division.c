/* Parts of random rows, put together again: they are what was divided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/division.h"

enum { KEYS = 600, DISTINCT = 50, BAGS = 150, DIM = 3, ROUNDS = 60 };

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

struct round {
    struct mrc_rows_request of;
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1];
    float weights[KEYS], gradients[KEYS * DIM];
};

static void make_round(struct round *r, bool is_push)
{
    const bool has_bags = next_random() % 2 == 0;
    uint32_t count = 0;
    memset(r, 0, sizeof(*r));
    for (uint32_t b = 0; b < BAGS; b++) {
        count += (uint32_t)(next_random() % 5); /* some are empty */
        r->offsets[b + 1] = count < KEYS ? count : KEYS;
    }
    r->of = (struct mrc_rows_request){.keys = r->keys,
                                      .key_count = has_bags ? r->offsets[BAGS] : KEYS,
                                      .dim = is_push ? DIM : 0,
                                      .gradients = is_push ? r->gradients : NULL,
                                      .dtype = next_random() % 4 == 0 ? MR_I8 : MR_F32,
                                      .pooling = (uint32_t)(next_random() % 3)};
    if (has_bags) {
        r->of.offsets = r->offsets;
        r->of.bag_count = BAGS;
        r->of.weights = next_random() % 2 == 0 ? r->weights : NULL;
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        r->keys[i] = next_random() % DISTINCT; /* repeats, in a bag, too */
        r->weights[i] = (float)(next_random() % 9);
    }
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        r->gradients[i] = (float)(next_random() % 1000);
}

/* A part in memory of exactly its room. */
static void *take_part(const struct mrc_division *d, uint32_t i, struct mrc_rows_request *part)
{
    const size_t bytes = mrc_division_room_bytes(d, i);
    assert_int_equal(bytes % 8, 0);
    void *room = malloc(bytes + 8); /* not NULL */
    assert_non_null(room);
    memset((uint8_t *)room + bytes, 0x5a, 8);
    mrc_division_part(d, i, room, part);
    for (uint32_t b = 0; b < 8; b++)
        assert_int_equal(((uint8_t *)room)[bytes + b], 0x5a);
    return room;
}

static void check_sizes(const struct mrc_division *d, uint64_t part_bytes)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < d->part_count; i++) {
        const uint64_t bytes = mrc_division_part_bytes(d, i);
        largest = bytes > largest ? bytes : largest;
    }
    assert_int_equal(d->largest_bytes, largest);
    assert_true(largest <= part_bytes);
    assert_true(d->part_count >= mrc_division_bytes(d->of, DIM) / part_bytes);
}

static void test_lookups_follow_each_other(void **state)
{
    static struct round r;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        const uint64_t part_bytes = 200 + next_random() % 4000;
        struct mrc_division d;
        uint32_t rows = 0, keys = 0;
        make_round(&r, false);
        assert_true(mrc_divide(&d, &r.of, DIM, part_bytes));
        check_sizes(&d, part_bytes);
        for (uint32_t i = 0; i < d.part_count; i++) {
            struct mrc_rows_request part;
            void *room = take_part(&d, i, &part);
            assert_int_equal(d.first[i], rows);
            assert_memory_equal(part.keys, r.keys + keys, part.key_count * sizeof(*part.keys));
            assert_int_equal(part.weights != NULL, r.of.weights != NULL);
            if (part.weights != NULL)
                assert_memory_equal(part.weights, r.weights + keys, part.key_count * sizeof(*part.weights));
            for (uint32_t b = 0; part.offsets != NULL && b <= part.bag_count; b++)
                assert_int_equal(part.offsets[b] + keys, r.offsets[rows + b]);
            rows += mrc_request_rows(&part);
            keys += part.key_count;
            free(room);
        }
        assert_int_equal(rows, mrc_request_rows(&r.of));
        assert_int_equal(keys, r.of.key_count);
        free(d.memory);
    }
}

/* What each key learns, in its order: a hash of gradients, divisors and weights. */
struct learnt {
    uint64_t of_key[DISTINCT];
};

static void add(uint64_t *hash, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    *hash = (*hash ^ bits) * UINT64_C(0x100000001b3) + 1;
}

static void add_row(struct learnt *l, const struct mrc_rows_request *r, uint32_t row, uint32_t key,
                    float divisor)
{
    uint64_t *hash = &l->of_key[r->keys[key]];
    for (uint32_t d = 0; d < DIM; d++)
        add(hash, r->gradients[row * DIM + d]);
    add(hash, divisor);
    add(hash, r->weights == NULL ? 1.0f : r->weights[key]);
}

static void learn(struct learnt *l, const struct mrc_rows_request *r)
{
    for (uint32_t row = 0; row < mrc_request_rows(r); row++) {
        if (r->offsets == NULL) {
            add_row(l, r, row, row, 1.0f);
            continue;
        }
        const uint32_t first = r->offsets[row], count = r->offsets[row + 1] - first;
        const float divisor =
            r->divisors != NULL
                ? r->divisors[row]
                : mr_bag_divisor(r->pooling, r->weights == NULL ? NULL : r->weights + first, count);
        for (uint32_t k = first; k < first + count; k++)
            add_row(l, r, row, k, divisor);
    }
}

static void test_pushes_have_each_key_in_one_part(void **state)
{
    static struct round r;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        const uint64_t part_bytes = 1500 + next_random() % 4000;
        struct mrc_division d;
        struct learnt whole = {0}, together = {0};
        uint32_t part_of[DISTINCT] = {0};
        make_round(&r, true);
        assert_true(mrc_divide(&d, &r.of, DIM, part_bytes));
        check_sizes(&d, part_bytes);
        learn(&whole, &r.of);
        for (uint32_t i = 0; i < d.part_count; i++) {
            struct mrc_rows_request part;
            void *room = take_part(&d, i, &part);
            assert_true(part.key_count > 0);
            for (uint32_t k = 0; k < part.key_count; k++) {
                assert_true(part_of[part.keys[k]] == 0 || part_of[part.keys[k]] == i + 1);
                part_of[part.keys[k]] = i + 1;
            }
            for (uint32_t b = 0; part.offsets != NULL && d.part_count > 1 && b < part.bag_count; b++)
                assert_true(part.offsets[b + 1] > part.offsets[b]); /* empty ones teach nobody anything */
            learn(&together, &part);
            free(room);
        }
        assert_memory_equal(&together, &whole, sizeof(whole));
        free(d.memory);
    }
}

/* Bags of many keys, whose gradients are the most of it: parts have few gradients twice. */
static void test_gradients_of_long_bags_are_not_repeated_for_each_key(void **state)
{
    enum { LONG = 100, COUNT = 40, WIDE = 64 };
    static uint64_t keys[COUNT * LONG];
    static uint32_t offsets[COUNT + 1];
    static float gradients[COUNT * WIDE];
    struct mrc_rows_request r = {.keys = keys,
                                 .key_count = COUNT * LONG,
                                 .offsets = offsets,
                                 .bag_count = COUNT,
                                 .dim = WIDE,
                                 .gradients = gradients,
                                 .dtype = MR_F32};
    struct mrc_division d;
    for (uint32_t i = 0; i < COUNT * LONG; i++)
        keys[i] = i * 7919u;
    for (uint32_t b = 0; b < COUNT; b++)
        offsets[b + 1] = (b + 1) * LONG;
    const uint64_t whole = mrc_division_bytes(&r, WIDE);
    assert_true(mrc_divide(&d, &r, WIDE, whole / 2));
    assert_true(d.largest_bytes <= whole / 2);
    assert_int_in_range(d.part_count, 3, 8);
    free(d.memory);
}

/* One that is too large for a part is a part, and is said to be so. */
static void test_what_cannot_be_divided(void **state)
{
    static uint64_t keys[KEYS]; /* one key */
    static float gradients[KEYS * DIM];
    uint32_t offsets[4] = {0, 1, 1 + 300, KEYS};
    struct mrc_rows_request r = {
        .keys = keys, .key_count = KEYS, .dim = DIM, .gradients = gradients, .dtype = MR_F32};
    struct mrc_division d;
    assert_true(mrc_divide(&d, &r, DIM, 1000));
    assert_int_equal(d.part_count, 1);
    assert_int_equal(d.largest_bytes, mrc_division_bytes(&r, DIM));
    free(d.memory);
    r = (struct mrc_rows_request){
        .keys = keys, .key_count = KEYS, .offsets = offsets, .bag_count = 3, .dtype = MR_F32};
    assert_true(mrc_divide(&d, &r, DIM, 1000));
    assert_int_equal(d.part_count, 3);
    assert_true(d.largest_bytes > 300 * sizeof(*keys));
    free(d.memory);
    r.key_count = r.bag_count = 0;
    assert_true(mrc_divide(&d, &r, DIM, 1000));
    assert_int_equal(d.part_count, 1);
    assert_int_equal(d.first[1], 0);
    free(d.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookups_follow_each_other),
        cmocka_unit_test(test_pushes_have_each_key_in_one_part),
        cmocka_unit_test(test_gradients_of_long_bags_are_not_repeated_for_each_key),
        cmocka_unit_test(test_what_cannot_be_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
