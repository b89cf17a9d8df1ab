/* Tables with each optimizer, next to rows kept by hand: learning rates by schedule and by push, repeated
 * keys, and rows that go through a checkpoint with the optimizer's state. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM    5u
#define KEYS   40u
#define CALL   24u
#define PUSHES 30u
#define FLOATS (DIM + 2 * DIM + 1)

struct world {
    struct mr_feature feature;
    struct ps_arena *arena;
    struct ps_table *table;
    struct mr_rule optimizer;
    float rows[KEYS][FLOATS]; /* by hand: values, then state */
    uint64_t rng;
};

static uint64_t key_of(uint32_t i)
{
    return i == 0 ? 0 : i == 1 ? UINT64_MAX : i * UINT64_C(0x123456789abcdef1);
}

static void world_begin(struct world *w, uint32_t kind)
{
    const char *what;
    uint64_t keys[KEYS];
    float values[KEYS * DIM];
    struct mr_feature f = fixture_adagrad(DIM);
    mr_feature_set_optimizer(&f, (enum mr_optimizer)kind);
    if (kind == MR_OPT_MOMENTUM)
        f.optimizer_args[1] = 0.25f; /* dampening, which needs to know first updates */
    if (kind == MR_OPT_ADAM || kind == MR_OPT_ADAMW)
        f.optimizer_args[3] = (float)(kind == MR_OPT_ADAM); /* its t is the push's step */
    if (kind == MR_OPT_GROUP_FTRL)
        f.optimizer_args[4] = 0.05f;
    if (kind != MR_OPT_ASSIGN) {
        f.weight_decay = 0.01f;
        f.schedule = MR_SCHEDULE_LINEAR;
        f.schedule_warmup_steps = 3;
        f.schedule_steps = PUSHES;
        f.learning_rate_end = 0.01f;
    }
    w->feature = f;
    w->arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    assert_non_null(w->arena);
    w->table = fixture_table(&f, w->arena);
    assert_int_equal(mr_rule_init(&f, &w->optimizer, &what), MR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    table_lookup(w->table, keys, KEYS, true, values);
    for (uint32_t i = 0; i < KEYS; i++) {
        memset(w->rows[i], 0, sizeof(w->rows[i]));
        memcpy(w->rows[i], values + i * DIM, DIM * sizeof(float));
        mr_rule_state_init(&w->optimizer, w->rows[i], w->rows[i] + DIM, DIM);
    }
}

static void world_end(struct world *w)
{
    ps_table_destroy(w->table);
    ps_arena_destroy(w->arena);
}

/* Repeated keys are summed, but where rows are set: there the last one counts. */
static void push_by_hand(struct world *w, const uint32_t *which, const float *gradients,
                         const struct mr_rule_push *push)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        float sum[DIM], *values = w->rows[key], *state = w->rows[key] + DIM;
        const float *gradient = sum;
        bool any = false, adds = w->feature.optimizer != MR_OPT_ASSIGN;
        for (uint32_t i = 0; i < CALL; i++) {
            for (uint32_t d = 0; d < DIM && which[i] == key; d++)
                sum[d] = any && adds ? sum[d] + gradients[i * DIM + d] : gradients[i * DIM + d];
            any |= which[i] == key;
        }
        if (any)
            assert_int_equal(mr_rule_apply(&w->optimizer, push, &values, &state, &gradient, 1, DIM), 1);
    }
}

static void table_optimizers_push(struct world *w, struct ps_table *other, uint64_t step)
{
    uint64_t keys[CALL];
    uint32_t which[CALL];
    float gradients[CALL * DIM];
    for (uint32_t i = 0; i < CALL; i++) {
        which[i] = random_below(&w->rng, KEYS);
        keys[i] = key_of(which[i]);
    }
    for (uint32_t i = 0; i < CALL * DIM; i++)
        gradients[i] = random_float(&w->rng);
    bool pushes = step % 4 == 0;
    float pushed = step % 8 == 0 ? 0 : 0.03f;
    const struct mr_rule_push by_hand = {
        .learning_rate = pushes ? pushed : mr_rates_at(&w->optimizer.schedule, step), .step = step};
    push_by_hand(w, which, gradients, &by_hand);
    for (uint32_t t = 0; t < 2; t++) {
        struct ps_table *table = t == 0 ? w->table : other;
        struct ps_table_push p = {.in.keys = keys,
                                  .in.key_count = CALL,
                                  .gradients = gradients,
                                  .at_once = true,
                                  .step = step,
                                  .learning_rate = pushes ? &pushed : NULL};
        uint64_t budget_bytes = UINT64_MAX;
        if (table != NULL)
            assert_true(ps_table_push_step(table, &p, &budget_bytes));
    }
}

static void table_optimizers_check(const struct world *w, struct ps_table *t)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t key = key_of(i);
        float values[DIM];
        table_lookup(t, &key, 1, false, values);
        assert_memory_equal(values, w->rows[i], sizeof(values));
    }
}

/* Stored rows are values and state as they are by hand; they go into `to` like those of a checkpoint. */
struct copy {
    const struct world *world;
    struct ps_table *to;
    uint32_t count;
};

static void copy_rows(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                      uint32_t count)
{
    struct copy *copy = self;
    size_t bytes = (DIM + mr_rule_state_floats(&copy->world->optimizer, DIM)) * sizeof(float);
    assert_int_equal(ps_table_stored_row_bytes(t), bytes);
    for (uint32_t i = 0; i < count; i++, copy->count++) {
        uint32_t which = 0;
        while (key_of(which) != keys[i])
            which++;
        assert_memory_equal(rows[i], copy->world->rows[which], bytes);
        assert_int_equal(ps_table_load(copy->to, keys[i], rows[i]), MR_OK);
    }
}

TEST(test_rows_go_as_by_hand_also_through_a_checkpoint)
{
    uint64_t seed = fixture_seed("optimizers of tables");
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_LAST; kind++) {
        struct world w = {.rng = seed};
        world_begin(&w, kind);
        for (uint64_t step = 0; step < PUSHES / 2; step++)
            table_optimizers_push(&w, NULL, step);
        table_optimizers_check(&w, w.table);
        struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
        assert_non_null(arena);
        struct ps_table *restored = fixture_table(&w.feature, arena);
        struct copy copy = {.world = &w, .to = restored};
        struct ps_cut cut = {.self = &copy, .emit = copy_rows};
        ps_table_cut_begin(w.table, &cut, PS_SAVE_FULL);
        while (!ps_table_cut_step(w.table, 64)) {
        }
        assert_int_equal(copy.count, KEYS);
        for (uint64_t step = PUSHES / 2; step < PUSHES; step++)
            table_optimizers_push(&w, restored, step);
        table_optimizers_check(&w, w.table);
        table_optimizers_check(&w, restored);
        ps_table_destroy(restored);
        ps_arena_destroy(arena);
        world_end(&w);
    }
}
