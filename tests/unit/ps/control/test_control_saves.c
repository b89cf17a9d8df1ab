/* When saves happen: at a step, one after the other, and by themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "node_fixture.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/step_clock.h"
#include "ps/save/save_policy.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { ENDED = 0, WRITING = 1, WAITS_FOR_STEP = 3, QUEUED = 4 };

struct asked {
    uint64_t id, number;
};

static const struct node_reply *control_saves_ask(struct node_fixture *n, uint64_t step, uint64_t trainers,
                                                  uint64_t queue)
{
    uint64_t words[MR_SAVE_ASK_WORDS] = {
        [MR_SAVE_ASK_STEP] = step, [MR_SAVE_ASK_TRAINERS] = trainers, [MR_SAVE_ASK_QUEUE] = queue};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    return node_call(n, 0, MR_OP_SAVE, 0, tensors, 2);
}

static const struct node_reply *save_to(struct node_fixture *n, const char *directory)
{
    uint64_t words[MR_SAVE_ASK_WORDS] = {0};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory),
                                   mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    return node_call(n, 0, MR_OP_SAVE, 0, tensors, 2);
}

static struct asked control_saves_save(struct node_fixture *n, uint64_t step, uint64_t trainers,
                                       uint64_t queue)
{
    const struct node_reply *reply = control_saves_ask(n, step, trainers, queue);
    node_check(reply, MR_OK, NULL);
    return (struct asked){*(const uint64_t *)reply->tensors[0].data,
                          *(const uint64_t *)reply->tensors[1].data};
}

static void wait_for_end(struct node_fixture *n, uint64_t number, uint64_t out[MR_SAVE_ROW_WORDS])
{
    WAIT_UNTIL(node_save_row(n, number, out), out[MR_SAVE_ROW_STATE] == ENDED);
}

static void post_push(struct node_fixture *n, struct node_call *call, uint32_t table, uint64_t key,
                      uint64_t step)
{
    static const float ones[NODE_DIM] = {1, 1, 1, 1};
    uint32_t head[4] = {table, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, ones)};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .step = step, .deadline_us = UINT64_MAX};
    node_post(n, node_core_of_key(n, key, 0), call, &options, tensors, 4);
}

static void control_saves_push(struct node_fixture *n, uint32_t table, uint64_t key, uint64_t step)
{
    struct node_call call = {0};
    post_push(n, &call, table, key, step);
    node_check(node_wait(n, &call), MR_OK, NULL);
    node_call_end(&call);
}

static void look_up(struct node_fixture *n, uint32_t table, uint64_t key, uint64_t step)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call_step(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, step, 0, &t, 1),
               MR_OK, NULL);
}

static uint32_t make_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("emb", 0);
    uint32_t table = node_create(n, &f);
    for (uint64_t key = 0; key < 64; key++)
        look_up(n, table, key, 0);
    return table;
}

static float restored_value(struct node_fixture *n, uint64_t id, uint32_t table, uint64_t key)
{
    while (node_restore(n, id)->status == MR_CHECKPOINT_RUNNING) {
    }
    return node_value(n, table, key);
}

TEST(a_cut_at_a_step_has_all_of_it_and_nothing_behind, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call behind = {0};
    uint64_t entry[MR_SAVE_ROW_WORDS];
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 1);
    struct asked asked = control_saves_save(n, 3, 1, 0);
    assert_int_equal(asked.id, 0);
    node_save_row(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], WAITS_FOR_STEP);
    assert_int_equal(entry[MR_SAVE_ROW_STEP], 3);
    control_saves_push(n, table, 1, 2);
    control_saves_push(n, table, 1, 3);
    node_save_row(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], WAITS_FOR_STEP); /* it may push again at step 3 */
    control_saves_push(n, table, 2, 3);
    post_push(n, &behind, table, 1, 4);
    node_check(node_wait(n, &behind), MR_OK, NULL); /* held, and let go */
    node_call_end(&behind);
    wait_for_end(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_OK);
    assert_int_equal(entry[MR_SAVE_ROW_IS_AT_STEP], 1);
    assert_int_equal(entry[MR_SAVE_ROW_STEP], 3);
    assert_int_equal(entry[MR_SAVE_ROW_KIND], 1);
    assert_float_equal(node_value(n, table, 1), -4, 0);
    assert_float_equal(restored_value(n, entry[MR_SAVE_ROW_ID], table, 1), -3, 0);
    assert_float_equal(node_value(n, table, 2), -1, 0);
    assert_int_equal(node_counter(n, 0, "checkpoint.restored_step"), 3);
    assert_int_equal(node_counter(n, 0, "checkpoint.restored_at_step"), 1);
    assert_int_equal(node_counter(n, 0, "ps.step"), 3);
}
TEST_AGAIN(a_cut_at_a_step_has_all_of_it_and_nothing_behind, node_setup_3_cores, node_teardown)

/* Lookups that make rows wait as well; others, and calls without a step or with a wild one, go on. */
TEST(who_is_held_and_who_is_not, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call held = {0};
    uint64_t entry[MR_SAVE_ROW_WORDS], key = 77, no_key = 78;
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 3);
    struct asked asked = control_saves_save(n, 3, 2, 0); /* the second trainer never comes */
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    struct mr_call_options options = {
        .op = MR_OP_LOOKUP, .table = (uint16_t)table, .step = 4, .deadline_us = UINT64_MAX};
    node_post(n, node_core_of_key(n, key, 0), &held, &options, &t, 1);
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.trainers_held") > 0);
    assert_false(held.is_answered);
    control_saves_push(n, table, 1, 3);
    control_saves_push(n, table, 1, 0);
    control_saves_push(n, table, 1, UINT64_MAX);
    t = mr_tensor_1d(MR_U64, 1, &no_key);
    node_check(node_call_step(n, node_core_of_key(n, no_key, 0), MR_OP_LOOKUP, (uint16_t)table, 4,
                              MR_FEED_READ_ONLY, &t, 1),
               MR_OK, NULL);
    node_save_row(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], WAITS_FOR_STEP);
    assert_false(held.is_answered);
    assert_int_equal(node_counter(n, 0, "checkpoint.trainers_awaited"), 2);
    /* A save at once does not disturb it. */
    wait_for_end(n, control_saves_save(n, 0, 0, 0).number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_OK);
    assert_int_equal(entry[MR_SAVE_ROW_IS_AT_STEP], 0);
    node_save_row(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], WAITS_FOR_STEP);
    node_check(node_restore(n, 0), MR_OK, NULL); /* this ends it */
    node_check(node_wait(n, &held), MR_OK, NULL);
    node_call_end(&held);
    wait_for_end(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_CANCELLED);
}

static void start_with(struct node_fixture *n, uint64_t every_steps, uint64_t trainers)
{
    node_stop(n);
    n->config.checkpoint_every_steps = every_steps;
    n->config.checkpoint_trainers = trainers;
    node_start(n, n->core_count);
}

static const struct node_reply *cancel(struct node_fixture *n, uint64_t number)
{
    uint64_t words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_CANCEL] = number};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    return node_call(n, 0, MR_OP_SAVE, 0, tensors, 2);
}

static void check_cancelled(struct node_fixture *n, uint64_t number)
{
    uint64_t entry[MR_SAVE_ROW_WORDS];
    node_check(cancel(n, number), MR_OK, NULL);
    node_save_row(n, number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], ENDED);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_CANCELLED);
    node_check(cancel(n, number), MR_INVALID_ARGUMENT, "has ended already, without a checkpoint");
}

/* Whom it held goes on, what was queued after it takes its place. */
TEST(one_that_waits_can_be_cancelled, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call held = {0};
    uint64_t entry[MR_SAVE_ROW_WORDS];
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 3);
    uint64_t first = control_saves_save(n, 3, 2, 0).number, second = control_saves_save(n, 9, 2, 1).number,
             third = control_saves_save(n, 10, 2, 1).number;
    post_push(n, &held, table, 1, 4);
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.trainers_held") > 0);
    assert_false(held.is_answered);
    check_cancelled(n, third);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_queued"), 1);
    assert_false(held.is_answered);
    check_cancelled(n, first);
    node_check(node_wait(n, &held), MR_OK, NULL);
    node_call_end(&held);
    WAIT_UNTIL(node_save_row(n, second, entry), entry[MR_SAVE_ROW_STATE] != QUEUED);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], WAITS_FOR_STEP);
    assert_int_equal(node_counter(n, 0, "checkpoint.waiting_step"), 9);
    check_cancelled(n, second);
    assert_int_equal(node_counter(n, 0, "checkpoint.waiting_step"), 0);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_cancelled"), 3);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_failed"), 0);
    control_saves_push(n, table, 1, 20);
    node_check(cancel(n, 77), MR_CHECKPOINT_NOT_FOUND, "save 77 is not known");
}
TEST_AGAIN(one_that_waits_can_be_cancelled, node_setup_3_cores, node_teardown)

/* Whom an automatic cut holds is not let go. */
TEST(an_automatic_cut_is_not_cancelled_with_it, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call held = {0};
    uint32_t core = node_core_of_key(n, 1, 0);
    start_with(n, 10, 2);
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 3);
    uint64_t number = control_saves_save(n, 5, 2, 0).number;
    assert_int_equal(node_counter(n, 0, "checkpoint.waiting_step"), 5); /* before the automatic one */
    check_cancelled(n, number);
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.waiting_step") == 10);
    number = control_saves_save(n, 30, 2, 0).number;
    post_push(n, &held, table, 1, 11);
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.trainers_held") > 0);
    assert_false(held.is_answered);
    check_cancelled(n, number);
    assert_int_equal(node_counter(n, 0, "checkpoint.waiting_step"), 10);
    assert_false(held.is_answered);
    node_leave(n, core);
    node_call_end(&held);
    node_join(n, core);
}

/* At 1 MiB a second it takes long enough. */
TEST(one_being_written_can_be_cancelled, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t entry[MR_SAVE_ROW_WORDS];
    node_stop(n);
    n->config.checkpoint_rate_mib_s = 1;
    n->config.checkpoint_deltas = 3;
    node_start(n, n->core_count);
    struct mr_feature f = node_variable("big", 16u << 20);
    node_create(n, &f);
    struct asked asked = control_saves_save(n, 0, 0, 0);
    assert_int_equal(asked.id, 1);
    assert_true(node_counter(n, 0, "checkpoint.running_bytes_total") >= UINT64_C(64) << 20);
    do { /* the list tells how far it is */
        node_save_row(n, asked.number, entry);
        assert_int_equal(entry[MR_SAVE_ROW_STATE], WRITING);
    } while (entry[MR_SAVE_ROW_BYTES] == 0);
    assert_int_not_equal(entry[MR_SAVE_ROW_DURATION_US], 0);
    node_check(control_saves_ask(n, 0, 0, 0), MR_CHECKPOINT_RUNNING, "cancel it (ctl save --cancel 1)");
    node_check(node_restore(n, 0), MR_CHECKPOINT_RUNNING, "cancel it (ctl save --cancel 1)");
    check_cancelled(n, asked.number);
    assert_int_equal(node_counter(n, 0, "checkpoint.running_id"), 0);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_failed"), 0);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_cancelled"), 1);
    node_check(node_restore(n, 0), MR_CHECKPOINT_NOT_FOUND, NULL);
    node_save_row(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_ID], 1);
    uint64_t words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_KIND] = PS_ASKED_DELTA};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    node_check(node_call(n, 0, MR_OP_SAVE, 0, tensors, 2), MR_INVALID_ARGUMENT,
               "the last save was cancelled");
}

static void wait_for_automatic(struct node_fixture *n, uint64_t count)
{
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.saves_automatic") >= count);
}

/* What a save had that came to nothing is in no checkpoint: the next by time comes, though nothing has
 * changed since. */
TEST(one_that_came_to_nothing_is_made_up_for, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    node_stop(n);
    n->config.checkpoint_rate_mib_s = 1;
    n->config.checkpoint_every_s = 1;
    node_start(n, n->core_count);
    struct mr_feature f = node_variable("big", 16u << 20);
    node_create(n, &f);
    wait_for_automatic(n, 1);
    check_cancelled(n, 1);
    wait_for_automatic(n, 2);
}

TEST(one_that_has_ended_cannot_be_cancelled, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t entry[MR_SAVE_ROW_WORDS],
        words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_KIND] = PS_ASKED_FULL, [MR_SAVE_ASK_CANCEL] = 1};
    make_table(n);
    struct asked asked = control_saves_save(n, 0, 0, 0);
    wait_for_end(n, asked.number, entry);
    node_check(cancel(n, asked.number), MR_INVALID_ARGUMENT, "has ended already: it is checkpoint 1");
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    node_check(node_call(n, 0, MR_OP_SAVE, 0, tensors, 2), MR_INVALID_ARGUMENT, "with nothing else");
    node_check(cancel(n, 0), MR_OK, NULL); /* no number: a save */
}

/* Whoever asks how the last one ended gets that answer. */
TEST(one_that_failed_before_its_cut_is_told, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char nowhere[400];
    snprintf(nowhere, sizeof(nowhere), "%s/incarnation", n->config.checkpoint_directory); /* a file */
    node_check(save_to(n, nowhere), MR_IO_ERROR, "name a directory");
    const struct node_reply *reply = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_not_equal(((const uint64_t *)reply->tensors[0].data)[MR_PROGRESS_STATUS], MR_OK);
    assert_non_null(memmem(reply->tensors[1].data, reply->tensors[1].bytes, nowhere, strlen(nowhere)));
}

static const struct node_reply *restore_from(struct node_fixture *n, const char *directory)
{
    uint64_t id = 0;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory),
                                   mr_tensor_1d(MR_U64, 1, &id)};
    return node_call(n, 0, MR_OP_RESTORE, 0, tensors, 2);
}

static void check_not_allowed(struct node_fixture *n, const char *path)
{
    node_check(save_to(n, path), MR_INVALID_ARGUMENT, "checkpoint.allow");
    node_check(restore_from(n, path), MR_INVALID_ARGUMENT, "checkpoint.allow");
}

static void save_and_restore(struct node_fixture *n, const char *directory)
{
    uint64_t saved[MR_SAVE_ROW_WORDS];
    const struct node_reply *reply = save_to(n, directory);
    node_check(reply, MR_OK, NULL);
    wait_for_end(n, *(const uint64_t *)reply->tensors[1].data, saved);
    assert_int_equal(saved[MR_SAVE_ROW_STATUS], MR_OK);
    node_check(restore_from(n, directory), MR_OK, NULL);
}

/* Whoever holds the key names no other directories of the machine than those that the configuration does. */
TEST(only_directories_that_are_listed_may_be_named, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char path[512], away[] = "/tmp/millrace-away-XXXXXX";
    assert_non_null(mkdtemp(away));
    snprintf(path, sizeof(path), "%s/below", n->directory);
    save_and_restore(n, path);
    snprintf(path, sizeof(path), "%s/./ckpt/", n->directory); /* the configured one, spelled otherwise */
    save_and_restore(n, path);
    check_not_allowed(n, away);
    check_not_allowed(n, "/");
    snprintf(path, sizeof(path), "%s-other", n->directory); /* begins as an allowed one does */
    check_not_allowed(n, path);
    snprintf(path, sizeof(path), "%s/below/..", n->directory);
    check_not_allowed(n, path);
    snprintf(path, sizeof(path), "%s/none/../../etc", n->directory);
    check_not_allowed(n, path);
    snprintf(path, sizeof(path), "%s/link", n->directory);
    assert_int_equal(symlink(away, path), 0);
    check_not_allowed(n, path);
    snprintf(path, sizeof(path), "%s/link/new", n->directory);
    check_not_allowed(n, path);
    snprintf(path, sizeof(path), "%s/no/such/place", n->directory);
    check_not_allowed(n, path);
    assert_int_equal(rmdir(away), 0); /* it is as empty as it was */
    node_stop(n);
    n->config.checkpoint_allow.count = 0;
    node_start(n, n->core_count);
    snprintf(path, sizeof(path), "%s/below", n->directory);
    check_not_allowed(n, path);
    save_and_restore(n, n->config.checkpoint_directory);
}

/* Lines of the log and of `history` have such names, and a node must be able to read its own. */
TEST(names_with_control_characters_are_refused, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char path[512], link[512];
    snprintf(path, sizeof(path), "%s/be\nlow", n->directory);
    node_check(save_to(n, path), MR_INVALID_ARGUMENT, "control character");
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(link, sizeof(link), "%s/link", n->directory);
    assert_int_equal(symlink(path, link), 0);
    node_check(save_to(n, link), MR_INVALID_ARGUMENT, "control character");
    node_check(restore_from(n, link), MR_INVALID_ARGUMENT, "control character");
    node_restart(n, n->core_count);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(path), 0);
}

/* A node copies to one store, which its operator has named. */
TEST(of_urls_only_the_store_may_be_named, node_setup, node_teardown)
{
    static const char *const others[] = {"s3://other/ads",      "s3://models/ads/..",
                                         "s3://models/ads2",    "s3://models/ads/below",
                                         "s3://models",         "s3://models/ads?endpoint=http://127.0.0.1:1",
                                         "hdfs://models:1/ads", "://",
                                         "file:///etc"};
    struct node_fixture *n = *state;
    struct ps_config *config = &n->config;
    node_check(save_to(n, "s3://models/ads"), MR_INVALID_ARGUMENT, "is not checkpoint.directory");
    /* Set behind the node's back: nothing is to be copied in this test. */
    snprintf(config->checkpoint_remote, sizeof(config->checkpoint_remote), "s3://models/ads?region=here");
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        node_check(save_to(n, others[i]), MR_INVALID_ARGUMENT, "is not checkpoint.directory");
        node_check(restore_from(n, others[i]), MR_INVALID_ARGUMENT, "is not checkpoint.directory");
    }
    uint64_t saved[MR_SAVE_ROW_WORDS];
    for (uint64_t id = 1; id <= 3; id++) {
        const char *same[] = {"s3://models/ads", "s3://models/ads/", config->checkpoint_remote};
        const struct node_reply *reply = save_to(n, same[id - 1]);
        node_check(reply, MR_OK, NULL);
        wait_for_end(n, *(const uint64_t *)reply->tensors[1].data, saved);
        assert_int_equal(saved[MR_SAVE_ROW_ID], id);
    }
    node_check(restore_from(n, ""), MR_OK, NULL);
    config->checkpoint_remote[0] = '\0';
}

/* Two nodes on a directory would remove each other's checkpoints and load each other's tables. */
TEST(a_directory_that_another_process_writes_to_is_refused, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t saved[MR_SAVE_ROW_WORDS];
    char other[96], text[256], error[DP_ERROR_BYTES];
    struct ps_server *server;
    int lock;
    snprintf(other, sizeof(other), "%s/other", n->directory);
    assert_int_equal(ps_checkpoint_lock(n->config.checkpoint_directory, "x", &lock, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "in use by millraced millrace on host "));
    assert_int_equal(ps_checkpoint_lock(other, "millraced b", &lock, text), MR_OK);
    node_check(save_to(n, other), MR_IO_ERROR, "other: in use by millraced b on host ");
    ps_checkpoint_unlock(lock);
    const struct node_reply *reply = save_to(n, other);
    node_check(reply, MR_OK, NULL);
    wait_for_end(n, *(const uint64_t *)reply->tensors[1].data, saved);
    assert_int_equal(saved[MR_SAVE_ROW_STATUS], MR_OK);
    assert_int_equal(ps_checkpoint_lock(other, "millraced b", &lock, text), MR_OK); /* it was given back */
    ps_checkpoint_unlock(lock);
    node_stop(n);
    assert_int_equal(ps_checkpoint_lock(n->config.checkpoint_directory, "millraced b", &lock, text), MR_OK);
    assert_int_equal(ps_server_start(&n->config, &server, error), MR_IO_ERROR);
    assert_non_null(strstr(error, "in use by millraced b on host "));
    ps_checkpoint_unlock(lock);
    node_start(n, n->core_count);
}

TEST(trainers_that_do_not_come_are_not_waited_for_long, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t entry[MR_SAVE_ROW_WORDS], number;
    node_stop(n);
    n->config.checkpoint_step_wait_ms = 50;
    node_start(n, n->core_count);
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 5);
    number = control_saves_save(n, 5, 2, 0).number;
    control_saves_push(n, table, 1, 6); /* held until then */
    node_save_row(n, number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], ENDED);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_DEADLINE_EXCEEDED);
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &number);
    const struct node_reply *reply = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, &t, 1);
    const char says[] = "step 5: 1 of 2 trainers came";
    assert_memory_equal(reply->tensors[1].data, says, sizeof(says) - 1);
    node_check(control_saves_ask(n, 5, 2, 0), MR_INVALID_ARGUMENT,
               "step 5 has passed: training is at step 6");
}

TEST(what_is_asked_is_checked, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t words[MR_SAVE_ASK_WORDS + 1] = {[MR_SAVE_ASK_KIND] = 3};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    node_check(control_saves_ask(n, 9, 0, 0), MR_INVALID_ARGUMENT, "how many trainers");
    node_check(node_call(n, 0, MR_OP_SAVE, 0, tensors, 2), MR_INVALID_ARGUMENT, "kind 3");
    tensors[1] = mr_tensor_1d(MR_U64, 3, words);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, tensors, 2), MR_WRONG_SHAPE, "save_ask has 3 elements, not 4");
    tensors[1] = mr_tensor_1d(MR_U64, MR_SAVE_ASK_WORDS + 1, words);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, tensors, 2), MR_WRONG_SHAPE, "save_ask has 6 elements, not 5");
    tensors[1] = mr_tensor_1d(MR_U64, MR_SAVE_ASK_CANCEL, words); /* of a client that cannot cancel */
    node_check(node_call(n, 0, MR_OP_SAVE, 0, tensors, 2), MR_INVALID_ARGUMENT, "kind 3");
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &words[0]);
    node_check(node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, &t, 1), MR_CHECKPOINT_NOT_FOUND,
               "save 3 is not known");
}

TEST(a_second_save_is_refused_or_waits, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t entry[MR_SAVE_ROW_WORDS];
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 5);
    struct asked first = control_saves_save(n, 7, 1, 0);
    node_check(control_saves_ask(n, 7, 1, 0), MR_CHECKPOINT_RUNNING, "waits for a step already");
    struct asked second = control_saves_save(n, 8, 1, 1);
    assert_int_equal(second.number, first.number + 1);
    assert_int_equal(control_saves_save(n, 8, 1, 1).number, second.number); /* the same again is the same */
    node_save_row(n, second.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATE], QUEUED);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_queued"), 1);
    for (uint64_t step = 6; step <= 9; step++) {
        control_saves_push(n, table, 1, step);
        if (step == 8) /* the second one is armed by now, or finds out that it is late: not so fast */
            WAIT_UNTIL(node_save_row(n, second.number, entry), entry[MR_SAVE_ROW_STATE] != QUEUED);
    }
    wait_for_end(n, first.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_OK);
    assert_int_equal(entry[MR_SAVE_ROW_STEP], 7);
    uint64_t first_id = entry[MR_SAVE_ROW_ID];
    wait_for_end(n, second.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_OK);
    assert_int_equal(entry[MR_SAVE_ROW_STEP], 8);
    assert_int_equal(entry[MR_SAVE_ROW_ID], first_id + 1);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_good"), 2);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_at_step"), 2);
}

static void wait_for_saves(struct node_fixture *n, uint64_t count)
{
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.saves_good") >= count);
}

TEST(every_so_many_steps_by_itself, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 10, 0);
    uint32_t table = make_table(n);
    for (uint64_t step = 1; step < 10; step++)
        control_saves_push(n, table, 1, step);
    control_saves_push(n, table, 1, UINT64_C(1) << 50); /* a wild step is none */
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_automatic"), 0);
    control_saves_push(n, table, 1, 10);
    wait_for_saves(n, 1);
    assert_int_equal(node_counter(n, 0, "checkpoint.last_good_step"), 10);
    control_saves_push(n, table, 1, 34); /* two were passed: one is made */
    wait_for_saves(n, 2);
    control_saves_push(n, table, 1, 40);
    wait_for_saves(n, 3);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_automatic"), 3);
    assert_int_equal(node_counter(n, 0, "checkpoint.last_good_id"), 3);
}

TEST(by_itself_at_the_step_with_trainers, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 10, 1);
    uint32_t table = make_table(n);
    for (uint64_t step = 1; step <= 25; step++) {
        control_saves_push(n, table, 1, step);
        if (step == 12 || step == 22) {
            wait_for_saves(n, step / 10);
            /* The next one is waited for before training gets there. */
            while (node_counter(n, 0, "checkpoint.waiting_step") != step / 10 * 10 + 10) {
            }
        }
        if (step == 3) {
            while (node_counter(n, 0, "checkpoint.waiting_step") != 10) {
            }
        }
    }
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_at_step"), 2);
    assert_int_equal(node_counter(n, 0, "checkpoint.last_good_step"), 20);
    assert_float_equal(restored_value(n, 1, table, 1), -10, 0);
    assert_float_equal(restored_value(n, 2, table, 1), -20, 0);
    /* Training goes on from there, and so do the saves. */
    control_saves_push(n, table, 1, 21);
    while (node_counter(n, 0, "checkpoint.waiting_step") != 30) {
    }
    for (uint64_t step = 22; step <= 31; step++)
        control_saves_push(n, table, 1, step);
    wait_for_saves(n, 3);
    assert_int_equal(node_counter(n, 0, "checkpoint.last_good_step"), 30);
    assert_float_equal(restored_value(n, 3, table, 1), -30, 0);
}

/* A trainer waits at the step for another that is far behind: calls of that one do not take the step back, or
 * the checkpoint would hold later pushes of the first than its step says. */
TEST(stragglers_do_not_take_the_step_back, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call held = {0};
    uint32_t core = node_core_of_key(n, 1, 0);
    start_with(n, 10, 2);
    uint32_t table = make_table(n);
    for (uint32_t i = 0; i < PS_STEPS_AHEAD; i++)
        control_saves_push(n, table, 1, 5000);
    while (node_counter(n, 0, "checkpoint.waiting_step") != 5010) {
    }
    post_push(n, &held, table, 1, 5011);
    while (node_counter(n, 0, "checkpoint.trainers_held") == 0) {
    }
    for (uint64_t i = 0; i < 2 * PS_STEPS_BEHIND; i++)
        control_saves_push(n, table, 1, 1 + i % 100);
    assert_int_equal(node_counter(n, 0, "ps.step"), 5000);
    assert_int_equal(node_counter(n, 0, "checkpoint.waiting_step"), 5010);
    assert_false(held.is_answered);
    node_leave(n, core);
    node_call_end(&held);
    node_join(n, core);
}

/* One that is asked for at the very step of the next automatic one comes in its place. */
TEST(one_asked_for_at_a_step_of_its_own, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t entry[MR_SAVE_ROW_WORDS];
    start_with(n, 10, 1);
    uint32_t table = make_table(n);
    control_saves_push(n, table, 1, 9);
    WAIT_UNTIL(node_counter(n, 0, "checkpoint.waiting_step") == 10);
    struct asked asked = control_saves_save(n, 10, 1, 0);
    control_saves_push(n, table, 1, 10);
    control_saves_push(n, table, 1, 11);
    wait_for_end(n, asked.number, entry);
    assert_int_equal(entry[MR_SAVE_ROW_STATUS], MR_OK);
    assert_int_equal(entry[MR_SAVE_ROW_IS_AT_STEP], 1);
    assert_int_equal(entry[MR_SAVE_ROW_STEP], 10);
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_automatic"), 0);
    assert_float_equal(restored_value(n, entry[MR_SAVE_ROW_ID], table, 1), -2, 0);
}

TEST(a_client_of_wild_steps_saves_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 10, 1);
    uint32_t table = make_table(n);
    for (uint64_t i = 1; i < 200; i++) {
        control_saves_push(n, table, 1, 5);
        control_saves_push(n, table, 1, i << 40);
    }
    assert_int_equal(node_counter(n, 0, "checkpoint.saves_automatic"), 0);
    assert_int_equal(node_counter(n, 0, "ps.step"), 5);
    assert_int_equal(node_counter(n, 0, "ps.calls_held_at_step"), 0);
}
