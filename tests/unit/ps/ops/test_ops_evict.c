/* Admission, eviction and limits through a node: the time and steps of calls, freezing, several cores,
 * checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include "node_fixture.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/core/step_clock.h"
#include "tests/test.h"
#include "tests/wait.h"

static void look_up(struct node_fixture *n, uint32_t table, uint64_t key, uint64_t step)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call_step(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, step, 0, &t, 1),
               MR_OK, NULL);
}

static void ops_evict_push(struct node_fixture *n, uint32_t table, uint64_t key, uint64_t step,
                           uint64_t sequence)
{
    static const float ones[NODE_DIM] = {1, 1, 1, 1};
    uint32_t head[4] = {table, 0};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 1, NODE_DIM, ones)};
    n->sequence = sequence;
    node_check(node_call_step(n, node_core_of_key(n, key, 0), MR_OP_PUSH_GRAD, 0, step, 0, tensors, 4), MR_OK,
               NULL);
    n->sequence = 0;
}

static uint64_t sum(struct node_fixture *n, const char *counter)
{
    uint64_t all = 0;
    for (uint32_t core = 0; core < n->core_count; core++)
        all += node_counter(n, core, counter);
    return all;
}

/* Turns of the poll loop go by. */
static void wait_for(struct node_fixture *n, const char *counter, uint64_t value)
{
    WAIT_UNTIL(sum(n, counter) == value);
}

static void freeze(struct node_fixture *n, uint32_t level)
{
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
}

static uint32_t make_table(struct node_fixture *n, enum mr_eviction eviction, float arg)
{
    struct mr_feature f = node_table("emb", 100);
    f.eviction = (uint32_t)eviction;
    f.eviction_arg = arg;
    return node_create(n, &f);
}

TEST(steps_are_those_of_the_calls, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, MR_EVICT_STEPS, 5);
    look_up(n, table, 1, 10);
    look_up(n, table, 2, 10);
    ops_evict_push(n, table, 2, 15, 0);
    assert_int_equal(node_counter(n, 0, "table.rows_evicted_steps"), 0);
    for (uint64_t step = 16; step < 19; step++)
        look_up(n, table, 2, step);
    wait_for(n, "table.rows_evicted_steps", 1);
    assert_float_equal(node_value(n, table, 2), 99, 0);
    ops_evict_push(n, table, 1, 19, 0); /* evicted: left out */
    assert_float_equal(node_value(n, table, 1), 100, 0);
    assert_int_equal(node_counter(n, 0, "table.gradients_without_row"), 1);
}

TEST(a_wild_step_evicts_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, MR_EVICT_STEPS, 5);
    look_up(n, table, 1, 10);
    for (uint32_t i = 0; i < 2 * PS_STEPS_AHEAD; i++) {
        look_up(n, table, 2, UINT64_C(1) << 40);
        look_up(n, table, 2, 11);
        assert_int_equal(node_counter(n, 0, "table.rows"), 2);
    }
    assert_int_equal(node_counter(n, 0, "ps.step"), 11);
    const struct node_reply *reply = node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(((const uint64_t *)reply->tensors[0].data)[MR_HEARTBEAT_STEPS_IGNORED],
                     2 * PS_STEPS_AHEAD);
    assert_int_equal(node_counter(n, 0, "ps.steps_ignored"), 2 * PS_STEPS_AHEAD);
    for (uint32_t i = 0; i < PS_STEPS_AHEAD; i++)
        look_up(n, table, 2, 5000 + i); /* all that come say so */
    assert_int_equal(node_counter(n, 0, "ps.step"), 5000);
    assert_int_equal(node_counter(n, 0, "ps.steps_ignored"), 2 * PS_STEPS_AHEAD); /* these counted */
    wait_for(n, "table.rows_evicted_steps", 1);
}

TEST(seconds_go_by_without_calls_for_the_table, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, MR_EVICT_AGE, 1);
    look_up(n, table, 1, 0);
    look_up(n, table, 2, 0);
    wait_for(n, "table.rows_evicted_age", 2);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
}

/* The checkpoint's clock reads otherwise: so long have its rows been served. */
static void set_clock(const struct node_fixture *n, uint64_t id, uint32_t clock_s)
{
    struct ps_manifest m;
    char path[400], text[256];
    assert_int_equal(ps_manifest_read(ps_store_local(), n->config.checkpoint_directory, id, &m, text), MR_OK);
    assert_int_in_range(m.clock_s, 0, clock_s);
    m.clock_s = clock_s;
    char *json = ps_manifest_print(&m);
    snprintf(path, sizeof(path), "%s/ckpt-%llu/MANIFEST", n->config.checkpoint_directory,
             (unsigned long long)id);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fputs(json, f) >= 0, true);
    assert_int_equal(fclose(f), 0);
    free(json);
    ps_manifest_clear(&m);
}

static uint32_t clock_of(const struct node_fixture *n, uint64_t id)
{
    struct ps_manifest m;
    char text[256];
    assert_int_equal(ps_manifest_read(ps_store_local(), n->config.checkpoint_directory, id, &m, text), MR_OK);
    const uint32_t clock_s = m.clock_s;
    ps_manifest_clear(&m);
    return clock_s;
}

/* The node's clock goes on where the checkpoint's stood, whatever the time of day is and was. */
TEST(rows_age_while_they_are_served, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, MR_EVICT_AGE, 1000000);
    for (uint64_t key = 1; key <= 8; key++)
        look_up(n, table, key, 0);
    assert_int_equal(node_save(n), 1);
    assert_int_in_range(clock_of(n, 1), 0, 1000); /* so long the test has run, at most */
    set_clock(n, 1, 900000);
    node_restart(n, n->core_count);
    look_up(n, table, 1, 0);
    assert_int_equal(node_save(n), 2);
    assert_int_in_range(clock_of(n, 2), 900000, 901000);
    assert_int_equal(sum(n, "table.rows"), 8);
    set_clock(n, 2, 1100000);
    node_restart(n, n->core_count);
    wait_for(n, "table.rows_evicted_age", 7);
    assert_float_equal(node_value(n, table, 1), 100, 0);
    assert_int_equal(sum(n, "table.rows"), 1);
    node_check(node_restore(n, 1), MR_OK, NULL); /* the clock goes back with the rows */
    assert_int_equal(node_save(n), 3);
    assert_int_in_range(clock_of(n, 3), 900000, 901000);
    assert_int_equal(sum(n, "table.rows"), 8);
}

/* A single table brings its rows' ages along into a node that has been there for less time. */
TEST(rows_of_a_table_that_is_restored_keep_their_age, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, MR_EVICT_AGE, 1000000), flags = 0;
    uint64_t id = 1;
    struct mr_restore_pair pair = {.name = "emb", .new_name = "old"};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U8, 0, NULL), mr_tensor_1d(MR_U64, 1, &id),
                                   mr_tensor_2d(MR_U8, 1, sizeof(pair), &pair),
                                   mr_tensor_1d(MR_U32, 1, &flags)};
    look_up(n, table, 1, 0);
    look_up(n, table, 2, 0);
    assert_int_equal(node_save(n), 1);
    set_clock(n, 1, 1100000);
    node_check(node_call(n, 0, MR_OP_RESTORE, 0, tensors, 4), MR_OK, NULL);
    wait_for(n, "table.rows_evicted_age", 2);
    assert_int_equal(sum(n, "table.rows"), 2);
}

TEST(a_frozen_node_evicts_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, MR_EVICT_STEPS, 5);
    look_up(n, table, 1, 10);
    for (uint32_t level = MR_FREEZE_ADMIT; level <= MR_FREEZE_ALL; level++) {
        freeze(n, level);
        look_up(n, table, 2, 100 * level); /* the time goes on; no row is made */
        for (uint32_t i = 0; i < 200; i++)
            assert_int_equal(node_counter(n, 0, "table.rows"), 1);
    }
    freeze(n, MR_FREEZE_OFF);
    wait_for(n, "table.rows_evicted_steps", 1);
}

TEST(capacity_is_the_nodes, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 100), g = node_table("closed", 1);
    f.eviction = MR_EVICT_LRU;
    f.capacity_rows = g.capacity_rows = 200;
    uint32_t table = node_create(n, &f), closed = node_create(n, &g);
    for (uint64_t key = 0; key < 1000; key++)
        look_up(n, table, key, 0);
    assert_int_equal(sum(n, "table.rows"), 200);
    assert_int_equal(sum(n, "table.rows_evicted_capacity"), 1000 - 200 - sum(n, "table.rows_refused"));
    assert_true(sum(n, "table.rows_refused") < 20);
    uint64_t refused = sum(n, "table.rows_refused");
    for (uint64_t key = 0; key < 1000; key++)
        look_up(n, closed, key, 0);
    assert_int_equal(sum(n, "table.rows"), 400);
    assert_int_equal(sum(n, "table.rows_refused") - refused, 800);
}

/* Row by row in a table of one core, and of three: the same keys are admitted, with the same observation. */
TEST(admission_does_not_depend_on_cores, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature p = node_table("share", 100), s = node_table("seen", 100);
    p.admission = MR_ADMIT_PROBABILITY;
    p.admission_arg = 0.5f;
    s.admission = MR_ADMIT_OBSERVATIONS;
    s.admission_arg = 2;
    s.filter_bytes = 1 << 18; /* crowded enough for errors, and they must be the same */
    uint64_t rows[2][2];
    for (uint32_t run = 0; run < 2; run++) {
        uint32_t share = node_create(n, &p), seen = node_create(n, &s);
        uint64_t key = 0;
        for (; key < 300; key++)
            look_up(n, share, key, 0);
        rows[run][0] = sum(n, "table.rows");
        assert_int_equal(sum(n, "table.keys_not_admitted_probability"), 300 - rows[run][0]);
        for (key = 0; key < 1000; key++)
            look_up(n, seen, key % 700, 0);
        rows[run][1] = sum(n, "table.rows") - rows[run][0];
        assert_true(rows[run][1] >= 300);
        assert_int_equal(sum(n, "table.keys_not_admitted_observations") + rows[run][1], 1000);
        if (run == 0)
            node_restart(n, 3);
    }
    assert_int_in_range(rows[0][0], 100, 200);
    assert_int_equal(rows[0][0], rows[1][0]);
    assert_int_equal(rows[0][1], rows[1][1]);
}

/* A numbered push makes the rows of keys that may have had one, and no others. */
TEST(numbered_pushes_admit_no_key, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature p = node_table("share", 100), s = node_table("seen", 100);
    p.admission = MR_ADMIT_PROBABILITY;
    p.admission_arg = 0.5f;
    s.admission = MR_ADMIT_OBSERVATIONS;
    s.admission_arg = 2;
    uint32_t share = node_create(n, &p), seen = node_create(n, &s);
    uint64_t made = 0, key, sequence = 1;
    for (key = 0; key < 50; key++) {
        ops_evict_push(n, share, key, 0, sequence++);
        made += node_value(n, share, key) < 100;
    }
    assert_int_in_range(made, 5, 45);
    assert_int_equal(node_counter(n, 0, "table.rows"), made);
    for (key = 0; key < 50; key++)
        look_up(n, share, key, 0);
    assert_int_equal(node_counter(n, 0, "table.rows"), made); /* those are the admitted ones */
    look_up(n, seen, 7, 0);
    ops_evict_push(n, seen, 7, 0, sequence++);
    ops_evict_push(n, seen, 7, 0, sequence++);
    assert_float_equal(node_value(n, seen, 7), 100, 0);
    look_up(n, seen, 7, 0);
    ops_evict_push(n, seen, 7, 0, sequence++);
    assert_float_equal(node_value(n, seen, 7), 99, 0);
}

/* Ever new keys while a checkpoint is written, and what it holds fits onto more cores again. */
TEST(a_full_table_is_saved_and_restored, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 100);
    f.eviction = MR_EVICT_LFU;
    f.capacity_rows = 500;
    uint32_t table = node_create(n, &f);
    uint64_t key = 0;
    for (; key < 1000; key++)
        look_up(n, table, key, 0);
    ops_evict_push(n, table, key - 1, 0, 0);
    node_save(n);
    node_restart(n, 3);
    for (uint32_t core = 0; core < 3; core++) {
        while (node_counter(n, core, "table.rows") > 500u / 3 + (core < 500u % 3)) {
        }
    }
    assert_true(sum(n, "table.rows") > 400); /* not all had their share of keys */
    assert_int_equal(sum(n, "table.rows") + sum(n, "table.rows_evicted_capacity"), 500);
    assert_float_equal(node_value(n, table, key - 1), 99, 0);
    for (key = 2000; key < 3000; key++)
        look_up(n, table, key, 0);
    wait_for(n, "table.rows", 500);
}
