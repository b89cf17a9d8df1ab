/* The window over numbers of pushes: next to a plain set, at its edges, and through its stored form. */
#include <stdlib.h>
#include <string.h>
#include "ps/exactly_once/push_window.h"
#include "tests/test.h"

TEST(in_order_the_floor_follows)
{
    struct ps_push_window w = {0};
    for (uint64_t n = 1; n <= 3 * MR_PUSH_WINDOW; n++) {
        assert_false(ps_push_window_has(&w, n));
        assert_int_equal(ps_push_window_add(&w, n), 0);
        assert_true(ps_push_window_has(&w, n));
        assert_int_equal(w.floor, n);
    }
    for (uint32_t i = 0; i < PS_PUSH_WINDOW_WORDS; i++)
        assert_int_equal(w.bits[i], 0);
}

TEST(a_gap_holds_the_floor_until_it_is_filled)
{
    struct ps_push_window w = {0};
    for (uint64_t n = 2; n <= MR_PUSH_WINDOW; n++)
        assert_int_equal(ps_push_window_add(&w, n), 0);
    assert_int_equal(w.floor, 0);
    assert_false(ps_push_window_has(&w, 1));
    assert_int_equal(ps_push_window_gives_up(&w, MR_PUSH_WINDOW), 0);
    assert_int_equal(ps_push_window_add(&w, 1), 0);
    assert_int_equal(w.floor, MR_PUSH_WINDOW);
}

TEST(a_number_beyond_the_window_gives_up_what_is_missing)
{
    struct ps_push_window w = {0};
    for (uint64_t n = 3; n <= MR_PUSH_WINDOW; n++)
        ps_push_window_add(&w, n);
    assert_int_equal(ps_push_window_gives_up(&w, MR_PUSH_WINDOW + 1), 1);
    assert_int_equal(ps_push_window_add(&w, MR_PUSH_WINDOW + 1), 1);
    assert_int_equal(w.floor, 1);
    assert_true(ps_push_window_has(&w, 1)); /* it came too late */
    assert_false(ps_push_window_has(&w, 2));
    assert_int_equal(ps_push_window_add(&w, 2), 0);
    assert_int_equal(w.floor, MR_PUSH_WINDOW + 1);
}

TEST(a_number_far_ahead_gives_up_all_before)
{
    struct ps_push_window w = {0};
    ps_push_window_add(&w, 1);
    ps_push_window_add(&w, 7);
    assert_int_equal(ps_push_window_add(&w, MR_PUSH_NUMBER_MAX), MR_PUSH_NUMBER_MAX - MR_PUSH_WINDOW - 2);
    assert_int_equal(w.floor, MR_PUSH_NUMBER_MAX - MR_PUSH_WINDOW);
    assert_false(ps_push_window_has(&w, w.floor + 7)); /* no bit of the old window is left */
    for (uint64_t n = w.floor + 1; n <= MR_PUSH_NUMBER_MAX; n++)
        assert_int_equal(ps_push_window_add(&w, n), 0);
    assert_int_equal(w.floor, MR_PUSH_NUMBER_MAX);
}

/* ---- next to a plain set ---- */

#define NUMBERS 20000u

struct model {
    bool applied[NUMBERS + 1];
    uint64_t lost; /* all up to it count as done */
};

static bool model_has(const struct model *m, uint64_t number)
{
    return number <= m->lost || m->applied[number];
}

static uint64_t model_floor(const struct model *m)
{
    uint64_t floor = m->lost;
    while (floor < NUMBERS && m->applied[floor + 1])
        floor++;
    return floor;
}

static uint64_t model_add(struct model *m, uint64_t number)
{
    uint64_t given_up = 0, floor = model_floor(m);
    if (model_has(m, number))
        return 0;
    if (number > floor + MR_PUSH_WINDOW) {
        for (uint64_t n = floor + 1; n <= number - MR_PUSH_WINDOW; n++)
            given_up += !m->applied[n];
        m->lost = number - MR_PUSH_WINDOW;
    }
    m->applied[number] = true;
    return given_up;
}

static void check_same(const struct ps_push_window *w, const struct model *m)
{
    assert_int_equal(w->floor, model_floor(m));
    for (uint64_t n = 1; n <= NUMBERS; n++)
        if (ps_push_window_has(w, n) != model_has(m, n))
            fail_msg("number %u above floor %u", (unsigned)n, (unsigned)w->floor);
}

static uint32_t random_below(uint64_t *random, uint32_t bound)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*random >> 33) % bound;
}

/* Numbers mostly near the newest, some repeated, some far behind, some dropped, a jump now and then. */
TEST(agrees_with_a_plain_set)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static struct model model;
        struct ps_push_window w = {0};
        uint64_t random = seed, newest = 0;
        memset(&model, 0, sizeof(model));
        for (uint32_t i = 1; newest < NUMBERS - 3 * MR_PUSH_WINDOW; i++) {
            uint32_t kind = random_below(&random, 1000), spread = seed % 2 == 0 ? 40 : 2 * MR_PUSH_WINDOW;
            uint64_t number = newest + 1 + random_below(&random, 1 + (uint32_t)seed % 3);
            if (kind < 400 && newest > 0)
                number = newest - random_below(&random, newest < spread ? (uint32_t)newest : spread);
            else if (kind == 999)
                number = newest + 1 + random_below(&random, 3 * MR_PUSH_WINDOW);
            newest = number > newest ? number : newest;
            assert_int_equal(ps_push_window_has(&w, number), model_has(&model, number));
            assert_int_equal(ps_push_window_add(&w, number), model_add(&model, number));
            if (i % 512 == 0) {
                uint64_t words[PS_PUSH_WINDOW_WORDS];
                uint32_t count = ps_push_window_store(&w, words);
                check_same(&w, &model);
                ps_push_window_load(&w, w.floor, words, count);
            }
        }
        check_same(&w, &model);
    }
}

TEST(is_stored_from_the_floor_on)
{
    struct ps_push_window w = {0}, back;
    uint64_t words[PS_PUSH_WINDOW_WORDS];
    for (uint64_t n = 1; n <= 100; n++)
        ps_push_window_add(&w, n);
    assert_int_equal(ps_push_window_store(&w, words), 0);
    ps_push_window_add(&w, 102);
    ps_push_window_add(&w, 100 + 65);
    assert_int_equal(ps_push_window_store(&w, words), 2);
    assert_int_equal(words[0], 2);
    assert_int_equal(words[1], 1);
    ps_push_window_load(&back, w.floor, words, 2);
    assert_memory_equal(&back, &w, sizeof(w));
    ps_push_window_load(&back, 99, (const uint64_t[]){7}, 1); /* a floor that could be higher */
    assert_int_equal(back.floor, 102);
}
