/* Pushes whose keys were brought together while they arrived: the same bits as without, and what does not
 * fit a push is of no effect on it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

enum { KEYS = 3000, UNIVERSE = 1500, DIM = 7 };

struct push {
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM];
};

static struct push *make_push(uint64_t *rng)
{
    struct push *p = malloc(sizeof(*p));
    assert_non_null(p);
    for (uint32_t i = 0; i < KEYS; i++)
        p->keys[i] = random_below(rng, UNIVERSE);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        p->gradients[i] = i % 1009 == 5 ? NAN : random_float(rng);
    return p;
}

static struct mr_feature feature_of(uint32_t optimizer)
{
    struct mr_feature f = fixture_adagrad(DIM);
    mr_feature_set_optimizer(&f, optimizer);
    return f;
}

static void check_rows(struct ps_table *t, struct ps_table *model, const struct push *p)
{
    float *out = malloc(2 * sizeof(p->gradients));
    assert_non_null(out);
    table_lookup(t, p->keys, KEYS, false, out);
    table_lookup(model, p->keys, KEYS, false, out + KEYS * DIM);
    assert_memory_equal(out, out + KEYS * DIM, sizeof(p->gradients));
    assert_int_equal(ps_table_counters(t)->gradients_skipped, ps_table_counters(model)->gradients_skipped);
    assert_int_equal(ps_table_counters(t)->gradients_without_row,
                     ps_table_counters(model)->gradients_without_row);
    assert_int_equal(ps_table_counters(t)->updates, ps_table_counters(model)->updates);
    free(out);
}

/* Keys that have not arrived are not looked at: they are set only afterwards. */
static void arrive(struct ps_early_keys *e, const struct ps_table *t, const struct push *p, uint64_t *keys,
                   uint32_t until, uint64_t *rng)
{
    uint32_t arrived = 0;
    bool whole = false;
    while (arrived < until) {
        uint32_t more = (uint32_t)random_below(rng, 700);
        more = more < until - arrived ? more : until - arrived;
        memcpy(keys + arrived, p->keys + arrived, more * sizeof(*keys));
        arrived += more;
        whole = ps_early_keys_step(e, t, arrived, 16 + (uint32_t)random_below(rng, 300));
        assert_true(e->numbered <= arrived);
        assert_true(!whole || arrived == KEYS);
    }
    memcpy(keys, p->keys, sizeof(p->keys));
}

/* With other calls on the table in between, which make rows and make it grow. */
static void push_in_steps(struct ps_table *t, struct ps_table_push *p, uint64_t *rng)
{
    for (bool whole = false; !whole;) {
        uint64_t budget = 1 + random_below(rng, 40000), others[20];
        float row[20 * DIM], gradient[20 * DIM];
        whole = ps_table_push_step(t, p, &budget);
        for (uint32_t i = 0; i < 20; i++)
            others[i] = UNIVERSE + random_below(rng, 4000);
        for (uint32_t i = 0; i < 20 * DIM; i++)
            gradient[i] = random_float(rng);
        table_lookup(t, others, 20, true, row);
        table_push(t, others, 20, gradient);
    }
}

static void early_keys_check(uint32_t optimizer, uint32_t until, bool at_once, uint64_t rng)
{
    struct mr_feature f = feature_of(optimizer);
    struct ps_table *t = fixture_table(&f, fixture_arena), *model = fixture_table(&f, fixture_arena);
    struct push *p = make_push(&rng);
    uint64_t keys[KEYS] = {0};
    float *out = malloc(sizeof(p->gradients));
    struct ps_early_keys e;
    table_lookup(t, p->keys, KEYS / 2, true, out);
    table_lookup(model, p->keys, KEYS / 2, true, out);
    free(out);
    assert_true(ps_early_keys_begin(&e, t, keys, KEYS, p->gradients));
    arrive(&e, t, p, keys, until, &rng);
    struct ps_table_push push = {
        .in = {.keys = keys, .key_count = KEYS}, .gradients = p->gradients, .at_once = at_once, .early = &e};
    uint64_t all = UINT64_MAX;
    if (at_once)
        assert_true(ps_table_push_step(t, &push, &all));
    else
        push_in_steps(t, &push, &rng);
    assert_int_equal(e.numbered, KEYS); /* it was of use */
    table_push(model, p->keys, KEYS, p->gradients);
    if (at_once)
        check_rows(t, model, p);
    else { /* others were pushed to, too: the rows alone */
        float *a = malloc(sizeof(p->gradients)), *b = malloc(sizeof(p->gradients));
        table_lookup(t, p->keys, KEYS, false, a);
        table_lookup(model, p->keys, KEYS, false, b);
        assert_memory_equal(a, b, sizeof(p->gradients));
        free(a);
        free(b);
    }
    ps_table_destroy(t);
    ps_table_destroy(model);
    free(p);
}

TEST(pushes_give_the_same_wherever_they_were_when_they_were_whole, fixture_arena_create,
     fixture_arena_destroy)
{
    uint64_t rng = fixture_seed("early pushes");
    static const uint32_t optimizers[] = {MR_OPT_SGD, MR_OPT_ADAGRAD, MR_OPT_ASSIGN};
    for (uint32_t i = 0; i < 3; i++) {
        early_keys_check(optimizers[i], 0, true, rng++);
        early_keys_check(optimizers[i], KEYS / 3, true, rng++);
        early_keys_check(optimizers[i], KEYS, true, rng++);
        early_keys_check(optimizers[i], KEYS / 2, false, rng++);
        early_keys_check(optimizers[i], KEYS, false, rng++);
    }
}

/* The table was dropped and made again, or a restore put another in its place, or it is another push. */
TEST(what_is_of_another_table_or_push_is_not_used, fixture_arena_create, fixture_arena_destroy)
{
    uint64_t rng = fixture_seed("another");
    struct mr_feature f = feature_of(MR_OPT_ADAGRAD), other = f;
    other.seed = f.seed + 1;
    for (uint32_t kind = 0; kind < 4; kind++) {
        struct ps_table *t = fixture_table(&f, fixture_arena), *model = fixture_table(&f, fixture_arena),
                        *former = fixture_table(&other, fixture_arena);
        struct push *p = make_push(&rng), *another = make_push(&rng);
        float *out = malloc(sizeof(p->gradients));
        struct ps_early_keys e;
        table_lookup(t, p->keys, KEYS / 2, true, out);
        table_lookup(model, p->keys, KEYS / 2, true, out);
        free(out);
        assert_true(ps_early_keys_begin(&e, kind == 0 ? former : t, kind == 1 ? another->keys : p->keys,
                                        kind == 2 ? KEYS / 2 : KEYS,
                                        kind == 3 ? another->gradients : p->gradients));
        (void)ps_early_keys_step(&e, kind == 0 ? former : t, KEYS / 2, KEYS);
        (void)ps_early_keys_step(&e, kind == 0 ? former : t, KEYS / 2, KEYS);
        struct ps_table_push push = {
            .in = {.keys = p->keys, .key_count = KEYS}, .gradients = p->gradients, .early = &e};
        uint64_t all = UINT64_MAX;
        assert_true(ps_table_push_step(t, &push, &all));
        table_push(model, p->keys, KEYS, p->gradients);
        check_rows(t, model, p);
        ps_table_destroy(t);
        ps_table_destroy(model);
        ps_table_destroy(former);
        free(p);
        free(another);
    }
}

/* Of a push that never became whole nothing remains, not even memory. */
TEST(one_that_never_becomes_whole_has_no_effect, fixture_arena_create, fixture_arena_destroy)
{
    uint64_t rng = fixture_seed("never");
    struct mr_feature f = feature_of(MR_OPT_ADAGRAD);
    struct ps_table *t = fixture_table(&f, fixture_arena), *model = fixture_table(&f, fixture_arena);
    struct push *lost = make_push(&rng), *p = make_push(&rng);
    struct ps_early_keys e;
    size_t scratch_bytes = 0;
    for (uint32_t i = 0; i < 50; i++) {
        assert_true(ps_early_keys_begin(&e, t, lost->keys, KEYS, lost->gradients));
        while (!ps_early_keys_step(&e, t, KEYS, 500)) {
        }
        assert_true(i == 0 || ps_arena_scratch_bytes(fixture_arena) == scratch_bytes);
        scratch_bytes = ps_arena_scratch_bytes(fixture_arena);
    }
    assert_int_equal(ps_table_counters(t)->rows, 0);
    assert_int_equal(ps_table_counters(t)->keys_pushed, 0);
    table_push(t, p->keys, KEYS, p->gradients);
    table_push(model, p->keys, KEYS, p->gradients);
    check_rows(t, model, p);
    ps_table_destroy(t);
    ps_table_destroy(model);
    free(lost);
    free(p);
}
