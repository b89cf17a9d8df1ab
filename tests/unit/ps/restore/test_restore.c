/* Checkpoints through a whole node: what comes back, and onto how many cores. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint_fixture.h"
#include "fake_dp.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/core.h"
#include "restore_fixture.h"
#include "tests/test.h"

static void set_variable(struct node_fixture *n, uint32_t variable, uint32_t count, const float *values)
{
    uint64_t first = 0;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, count, values)};
    node_check(node_call_step(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PUSH, (uint16_t)variable, 7,
                              0, tensors, 2),
               MR_OK, NULL);
}

static const float *pull_variable(struct node_fixture *n, uint32_t variable)
{
    uint64_t range[2] = {0, 0};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    const struct node_reply *reply =
        node_call(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PULL, (uint16_t)variable, &t, 1);
    node_check(reply, MR_OK, NULL);
    return reply->tensors[0].data;
}

TEST(comes_back_whole, node_setup, node_teardown)
{
    static float values[40000]; /* more than one piece of a record */
    struct node_fixture *n = *state;
    struct mr_feature v = node_variable("bias", 40000);
    uint32_t table = make_table(n), variable = node_create(n, &v);
    for (uint32_t i = 0; i < 40000; i++)
        values[i] = (float)i;
    set_variable(n, variable, 40000, values);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    assert_int_equal(learn(n, table, BATCH(2)), 1);
    assert_int_equal(node_save(n), 1);
    node_restart(n, 1);
    assert_int_equal(make_table(n), table); /* the same feature under the same number */
    check_values(n, table, 98);
    assert_memory_equal(pull_variable(n, variable), values, sizeof(values));
    struct mr_client_session_info info;
    mr_client_session_info(n->sessions[0], &info);
    assert_int_equal(info.last_push_step, BATCH(2) + 1);
    assert_int_equal(info.incarnation, 2);
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    assert_int_equal(learn(n, table, BATCH(1)), 1);
    assert_int_equal(learn(n, table, BATCH(2)), 0);
    check_values(n, table, 97);
    assert_int_equal(node_counter(n, 0, "ps.batches_applied"), 3);
}

TEST(holds_what_was_before_the_cut_and_nothing_after, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_OK, NULL);
    assert_int_equal(learn(n, table, BATCH(1)), 1); /* the cut was made when Save returned */
    check_values(n, table, 98);
    node_wait_saved(n);
    node_restart(n, 1);
    check_values(n, table, 99);
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    assert_int_equal(learn(n, table, BATCH(1)), 1);
    check_values(n, table, 98);
}

/* A batch that the cut found on some cores only is applied to the others' keys, and to no key twice. */
static void goes_onto_any_number_of_cores(struct node_fixture *n, uint32_t from, uint32_t to)
{
    node_restart(n, from);
    uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), from);
    node_feed(n, BATCH(1), table, keys, KEYS);
    assert_int_equal(node_push_batch(n, from - 1, BATCH(1), table, KEYS, 1), 1);
    node_save(n);
    node_restart(n, to);
    if (to != from) { /* partly applied, through another checkpoint */
        node_save(n);
        node_restart(n, to);
    }
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    uint32_t applied = learn(n, table, BATCH(1));
    assert_int_equal(applied, to == from ? from - 1 : from == 1 ? 0 : to);
    check_values(n, table, 98);
    assert_int_equal(learn(n, table, BATCH(1)), 0);
    assert_int_equal(learn(n, table, BATCH(2)), to);
    check_values(n, table, 97);
}

TEST(from_1_core_to_3, node_setup, node_teardown)
{
    goes_onto_any_number_of_cores(*state, 1, 3);
}

TEST(from_3_cores_to_1, node_setup, node_teardown)
{
    goes_onto_any_number_of_cores(*state, 3, 1);
}

TEST(from_3_cores_to_2, node_setup, node_teardown)
{
    goes_onto_any_number_of_cores(*state, 3, 2);
}

TEST(from_2_cores_to_5, node_setup, node_teardown)
{
    goes_onto_any_number_of_cores(*state, 2, 5);
}

TEST(from_3_cores_to_3, node_setup, node_teardown)
{
    goes_onto_any_number_of_cores(*state, 3, 3);
}

static uint64_t last_push_step(struct node_fixture *n)
{
    struct mr_client_session_info info;
    node_leave(n, 0);
    node_join(n, 0);
    (void)node_call(n, 0, MR_OP_STATS, 0, NULL, 0); /* it comes with the session */
    mr_client_session_info(n->sessions[0], &info);
    return info.last_push_step;
}

TEST(by_call_takes_the_state_back, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    uint64_t stream = 3;
    const uint64_t of_later_stream = (uint64_t)4 << MR_BATCH_SEQUENCE_BITS;
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &stream);
    learn(n, table, BATCH(0));
    uint64_t id = node_save(n);
    learn(n, table, BATCH(1));
    assert_int_equal(learn(n, table, of_later_stream), 1);
    assert_int_equal(last_push_step(n), of_later_stream + 1);
    node_feed(n, BATCH(2), table, keys, KEYS);
    const struct node_reply *reply = node_call(n, 0, MR_OP_BATCH_STATE, 0, &t, 1);
    assert_int_equal(((const uint64_t *)reply->tensors[0].data)[0], 2);
    uint64_t incarnation = ((const uint64_t *)reply->tensors[0].data)[1];
    reply = node_restore(n, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint64_t *)reply->tensors[0].data, id);
    check_values(n, table, 99);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
    reply = node_call(n, 0, MR_OP_BATCH_STATE, 0, &t, 1);
    assert_int_equal(((const uint64_t *)reply->tensors[0].data)[0], 1);
    assert_int_not_equal(((const uint64_t *)reply->tensors[0].data)[1], incarnation);
    node_check(node_restore(n, 99), MR_CHECKPOINT_NOT_FOUND, "99");
    check_values(n, table, 99);
    assert_int_equal(last_push_step(n), BATCH(0) + 1);
    assert_int_equal(learn(n, table, of_later_stream), 1); /* begun after the save: unknown again */
    check_values(n, table, 98);
}

#define WIDE_ROWS 4000u
#define WIDE_CALL 100u

/* Rows of 4 KiB each: some 16 MiB. */
static uint32_t make_wide_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("wide", 1);
    uint64_t wide_keys[WIDE_CALL];
    struct mr_tensor t = mr_tensor_1d(MR_U64, WIDE_CALL, wide_keys);
    f.dims[0] = MR_DIM_MAX;
    uint32_t table = node_create(n, &f);
    for (uint32_t i = 0; i < WIDE_ROWS; i += WIDE_CALL) {
        for (uint32_t j = 0; j < WIDE_CALL; j++)
            wide_keys[j] = i + j;
        node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    }
    return table;
}

/* Turn by turn: no turn gives back more than a task's slice and its own, and a lookup is answered before all
 * is back. */
TEST(what_a_restore_took_away_goes_back_between_calls, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    learn(n, table, BATCH(0));
    (void)make_wide_table(n);
    uint64_t id = node_save(n), given = 0, longest = 0, turns = 0;
    struct node_call restore = {0}, lookup = {0};
    struct mr_tensor which[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_tensor_1d(MR_U64, 1, &id)};
    struct mr_tensor asked = mr_tensor_1d(MR_U64, KEYS, keys);
    const struct mr_call_options restore_options = {.op = MR_OP_RESTORE, .deadline_us = UINT64_MAX};
    const struct mr_call_options lookup_options = {
        .op = MR_OP_LOOKUP, .table = (uint16_t)table, .deadline_us = UINT64_MAX};
    bool was_answered_meanwhile = false;
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    node_post(n, 0, &restore, &restore_options, which, 2);
    while (!restore.is_answered) {
        const struct ps_core *core = fake_dp_app(0);
        bool is_leaving = core->pending_free != NULL, is_open = core->gate == PS_GATE_OPEN;
        if (is_leaving && turns++ == 0)
            node_post(n, 0, &lookup, &lookup_options, &asked, 1);
        given = ps_arena_huge_pages_given(core->arena);
        fake_dp_turn(0);
        node_look(n);
        was_answered_meanwhile |= lookup.is_answered && is_open && core->pending_free != NULL;
        if (is_leaving && ps_arena_huge_pages_given(core->arena) - given > longest)
            longest = ps_arena_huge_pages_given(core->arena) - given;
    }
    fake_dp_release(0);
    node_check(node_wait(n, &restore), MR_OK, NULL);
    node_check(node_wait(n, &lookup), MR_OK, NULL);
    assert_int_in_range(longest, 1, 2);
    assert_true(turns >= WIDE_ROWS * MR_DIM_MAX * sizeof(float) / PS_ARENA_HUGE_PAGE_BYTES / 2);
    assert_true(was_answered_meanwhile);
    check_values(n, table, 99);
    node_call_end(&restore);
    node_call_end(&lookup);
}

/* Until it has saved again, a start goes on from there as well, though there are newer checkpoints. */
TEST(a_start_goes_on_from_what_was_restored_by_call, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    learn(n, table, BATCH(0));
    uint64_t id = node_save(n);
    learn(n, table, BATCH(1));
    uint64_t newest = node_save(n);
    check_values(n, table, 98);
    node_check(node_restore(n, id), MR_OK, NULL);
    node_restart(n, 2);
    check_values(n, table, 99);
    assert_int_equal(node_counter(n, 0, "checkpoint.restored_id"), id);
    learn(n, table, BATCH(2));
    check_values(n, table, 98);
    assert_int_equal(node_save(n), newest + 1);
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "checkpoint.restored_id"), newest + 1);
    check_values(n, table, 98);
}

static uint32_t count_checkpoints(const struct node_fixture *n)
{
    uint32_t count = 0;
    DIR *directory = opendir(n->config.checkpoint_directory);
    assert_non_null(directory);
    for (struct dirent *e = readdir(directory); e != NULL; e = readdir(directory))
        count += strncmp(e->d_name, "ckpt-", 5) == 0;
    closedir(directory);
    return count;
}

TEST(keeps_as_many_as_configured, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    make_table(n);
    for (uint64_t id = 1; id <= 5; id++)
        assert_int_equal(node_save(n), id);
    assert_int_equal(count_checkpoints(n), n->config.checkpoint_keep);
}

TEST(a_second_save_waits_for_the_first, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    make_table(n);
    fake_dp_hold(2);
    fake_dp_wait_held(2);
    node_begin(n, 0, MR_OP_SAVE, 0, &t, 1);
    fake_dp_wait_posted(2, 1); /* the cut */
    fake_dp_hold(2);           /* right after it: core 2 writes nothing, so the save cannot end */
    fake_dp_release(2);
    node_check(node_end(n), MR_OK, NULL);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_CHECKPOINT_RUNNING, "1");
    node_check(node_restore(n, 0), MR_CHECKPOINT_RUNNING, "1");
    const uint64_t *view = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, NULL, 0)->tensors[0].data;
    assert_int_equal(view[MR_PROGRESS_STATE], 1);
    assert_int_equal(view[MR_PROGRESS_ID], 1);
    fake_dp_release(2);
    node_wait_saved(n);
    assert_int_equal(node_save(n), 2);
}

TEST(a_directory_that_cannot_be_written_is_named, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const char *directory = "/proc/nowhere";
    struct mr_tensor t = mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory);
    uint32_t table = make_table(n);
    snprintf(n->config.checkpoint_allow.values[0], PS_CONFIG_VALUE_MAX, "/proc");
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_IO_ERROR, "/proc/nowhere");
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    n->config.checkpoint_directory[0] = '\0';
    t = mr_tensor_1d(MR_U8, 0, NULL);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_INVALID_ARGUMENT, "checkpoint.directory");
}

TEST(saves_on_stop_when_configured, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    n->config.checkpoint_save_on_stop = true;
    learn(n, table, BATCH(0));
    node_restart(n, 1);
    check_values(n, table, 99);
}

/* Every block verifies, but the variable that the manifest names is in none of them. */
TEST(a_variable_that_is_missing_is_found_out, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_variable("v", 3);
    const uint32_t id = 1;
    char text[256];
    struct ps_writer *writer;
    const struct ps_writer_options options = {.directory = n->config.checkpoint_directory,
                                              .id = 1,
                                              .features = &f,
                                              .feature_ids = &id,
                                              .feature_count = 1,
                                              .core_count = 1,
                                              .incarnation = 1,
                                              .buffers_per_core = 2};
    assert_int_equal(ps_writer_start(NULL, &options, &writer, text), MR_OK);
    fixture_publish(writer, 1);
    node_check(node_restore(n, 1), MR_CHECKPOINT_CORRUPT, "variable v is not whole");
}
