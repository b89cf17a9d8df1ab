/* Pushes sent again after a restart: each is applied once, onto however many cores, also where a checkpoint
 * was made in the middle of it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/wire/format/push_number.h"
#include "fake_dp.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/core.h"
#include "restore_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

/* Pushes 1 to 4, a checkpoint that has 1, 2 and 4, then 3 and 5; all of them again on another number of
 * cores. */
static void are_applied_once(struct node_fixture *n, uint32_t from, uint32_t to)
{
    node_restart(n, from);
    uint32_t table = make_table(n);
    push_all(n, table, from, 1);
    push_all(n, table, from, 2);
    push_all(n, table, from, 4);
    node_save(n);
    push_all(n, table, from, 3);
    push_all(n, table, from, 5);
    check_values(n, table, 95);
    node_restart(n, to);
    check_values(n, table, 97);
    for (uint32_t again = 0; again < 2; again++) {
        for (uint64_t number = 1; number <= 5; number++)
            push_all(n, table, from, number);
        check_values(n, table, 95);
    }
    push_all(n, table, from, 6);
    check_values(n, table, 94);
}

TEST(on_1_core, node_setup, node_teardown)
{
    are_applied_once(*state, 1, 1);
}

TEST(on_3_cores, node_setup, node_teardown)
{
    are_applied_once(*state, 3, 3);
}

TEST(from_1_core_to_3, node_setup, node_teardown)
{
    are_applied_once(*state, 1, 3);
}

TEST(from_3_cores_to_2, node_setup, node_teardown)
{
    are_applied_once(*state, 3, 2);
}

TEST(from_2_cores_to_5, node_setup, node_teardown)
{
    are_applied_once(*state, 2, 5);
}

/* The second checkpoint finds an old push stream's push on the last of the cores only, and one on the
 * first only. */
static void a_checkpoint_in_the_middle(struct node_fixture *n, uint32_t from, uint32_t through, uint32_t to)
{
    node_restart(n, from);
    uint32_t table = make_table(n), last = through - 1;
    push_all(n, table, from, 1);
    node_save(n);
    node_restart(n, through);
    for (uint32_t old = 0; old < from; old++) {
        if (meets(n, from, old, last))
            push_to(n, table, from, old, 2, last);
        if (meets(n, from, old, 0))
            push_to(n, table, from, old, 3, 0);
    }
    node_save(n);
    for (uint64_t number = 2; number <= 3; number++)
        push_all(n, table, from, number);
    check_values(n, table, 97);
    node_restart(n, to);
    node_save(n); /* and once more in pieces */
    node_restart(n, to);
    for (uint64_t number = 1; number <= 4; number++) {
        push_all(n, table, from, number);
        push_all(n, table, from, number);
    }
    check_values(n, table, 96);
}

TEST(in_the_middle_from_1_through_3_to_2, node_setup, node_teardown)
{
    a_checkpoint_in_the_middle(*state, 1, 3, 2);
}

TEST(in_the_middle_from_2_through_3_to_2, node_setup, node_teardown)
{
    a_checkpoint_in_the_middle(*state, 2, 3, 2);
}

TEST(in_the_middle_from_3_through_5_to_1, node_setup, node_teardown)
{
    a_checkpoint_in_the_middle(*state, 3, 5, 1);
}

/* A variable and a key that some partitions' pieces have, in one push. */
TEST(parts_of_a_push_are_left_out, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature v = node_variable("bias", 1);
    uint32_t table = make_table(n), variable = node_create(n, &v);
    uint32_t heads[2][4] = {{table, 0}, {variable, 0}};
    float one = 1, ones[NODE_DIM] = {1, 1, 1, 1};
    uint64_t range[2] = {0, 0}, key = keys[0];
    node_save(n);
    node_restart(n, 3);
    n->sequence = mr_push_sequence(mr_push_stream_of_core(1, 0), 1);
    struct mr_tensor t[2] = {mr_tensor_1d(MR_U32, 4, heads[1]), mr_tensor_1d(MR_F32, 1, &one)};
    node_check(node_call(n, node_core_of_variable(n, "bias"), MR_OP_PUSH_GRAD, 0, t, 2), MR_OK, NULL);
    n->sequence = 0;
    while (node_core_of_key(n, key, 0) == node_core_of_variable(n, "bias"))
        key++;
    node_save(n);
    node_restart(n, 1);
    struct mr_tensor tensors[6] = {mr_tensor_1d(MR_U32, 4, heads[0]), mr_tensor_1d(MR_U64, 1, &key),
                                   mr_tensor_1d(MR_U32, 0, NULL),     mr_tensor_2d(MR_F32, 1, NODE_DIM, ones),
                                   mr_tensor_1d(MR_U32, 4, heads[1]), mr_tensor_1d(MR_F32, 1, &one)};
    n->sequence = 1;
    const struct node_reply *reply = node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 1, MR_PUSH_COUNTS, tensors, 6);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 0); /* the whole of it was never counted in one place */
    n->sequence = 0;
    assert_float_equal(node_value(n, table, key), 99, 0);
    struct mr_tensor all = mr_tensor_1d(MR_U64, 2, range);
    reply = node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable, &all, 1);
    node_check(reply, MR_OK, NULL);
    assert_float_equal(*(const float *)reply->tensors[0].data, -1, 0);
}

/* Set under a number, which some partitions' pieces have, and set to something else after that: sent again,
 * it changes nothing. */
TEST(a_variable_that_was_set_is_left_out, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature v = node_variable("bias", 1);
    uint32_t variable = node_create(n, &v);
    uint64_t first = 0, range[2] = {0, 0};
    float value = 10;
    struct mr_tensor set[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 1, &value)};
    node_save(n);
    node_restart(n, 3);
    const uint32_t core = node_core_of_variable(n, "bias");
    n->sequence = mr_push_sequence(mr_push_stream_of_core(1, 0), 1);
    node_check(node_call(n, core, MR_OP_VARIABLE_PUSH, (uint16_t)variable, set, 2), MR_OK, NULL);
    n->sequence = 0;
    value = 20;
    node_check(node_call(n, core, MR_OP_VARIABLE_PUSH, (uint16_t)variable, set, 2), MR_OK, NULL);
    node_save(n);
    node_restart(n, 1);
    value = 10;
    n->sequence = 1;
    node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, set, 2), MR_OK, NULL);
    n->sequence = 0;
    struct mr_tensor all = mr_tensor_1d(MR_U64, 2, range);
    const struct node_reply *reply = node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable, &all, 1);
    node_check(reply, MR_OK, NULL);
    assert_float_equal(*(const float *)reply->tensors[0].data, 20, 0);
}

/* ---- what is durable ---- */

static uint64_t durable_on(struct node_fixture *n, uint32_t core, uint64_t number)
{
    n->sequence = number;
    const struct node_reply *reply = node_call(n, core, MR_OP_PUSH_GRAD, 0, NULL, 0);
    n->sequence = 0;
    node_check(reply, MR_OK, NULL);
    return reply->sequence;
}

static uint64_t durable(struct node_fixture *n, uint64_t number)
{
    return durable_on(n, 0, number);
}

TEST(a_start_knows_what_is_durable, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    push_all(n, table, 1, 1);
    push_all(n, table, 1, 2);
    node_save(n);
    push_all(n, table, 1, 3);
    node_restart(n, 1);
    assert_int_equal(durable(n, 2), 2);
    push_all(n, table, 1, 3);
    node_check(node_restore(n, 1), MR_OK, NULL); /* by call: everything is taken back */
    check_values(n, table, 98);
    assert_int_equal(durable(n, 2), 0);
    push_all(n, table, 1, 3);
    check_values(n, table, 97);
    node_save(n);
    assert_int_equal(durable(n, 3), 3);
}

/* It cannot be published under a name that is taken. */
TEST(a_save_that_fails_makes_nothing_durable, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    char path[300];
    struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    push_all(n, table, 3, 1);
    node_save(n);
    push_all(n, table, 3, 2);
    fake_dp_hold(2);
    fake_dp_wait_held(2);
    node_begin(n, 0, MR_OP_SAVE, 0, &t, 1);
    fake_dp_wait_posted(2, 1); /* the cut */
    fake_dp_hold(2);           /* right after it: core 2 writes nothing, so the save cannot end */
    fake_dp_release(2);
    node_check(node_end(n), MR_OK, NULL);
    assert_int_equal(durable(n, 2), 1);
    snprintf(path, sizeof(path), "%s/ckpt-2", n->config.checkpoint_directory);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/ckpt-2/file", n->config.checkpoint_directory);
    int fd = creat(path, 0600);
    assert_true(fd >= 0);
    close(fd);
    fake_dp_release(2);
    assert_int_equal(node_wait_saved(n)[MR_PROGRESS_STATUS], MR_IO_ERROR);
    for (uint32_t core = 0; core < 3; core++)
        assert_int_equal(durable_on(n, core, 2), 1);
}

/* The push stream that pushed last is the last to be forgotten after a start, too. */
TEST(a_start_knows_who_pushed_when, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    for (uint64_t number = 1; number <= 3; number++)
        push_all(n, table, 1, number);
    node_save(n);
    node_restart(n, 1);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    const struct ps_core *core = fake_dp_app(0);
    uint64_t used = 0;
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        const struct ps_push_stream *stream = ps_pushes_at(core->pushes, i);
        used += stream != NULL ? stream->used : 0;
    }
    fake_dp_release(0);
    assert_int_equal(used, 3);
}

/* About as many clients as there are places for, each with a push that was applied. */
static void push_of_many(uint32_t cores, uint32_t index)
{
    fake_dp_hold(index);
    fake_dp_wait_held(index);
    const struct ps_core *core = fake_dp_app(index);
    for (uint64_t i = 1; i <= PS_PUSH_STREAMS_MAX; i++) {
        uint64_t uuid[2] = {i, index + 1};
        struct ps_push_id id = {(const uint8_t *)uuid, mr_push_stream_of_core(cores, index), 1, 0};
        if (ps_pushes_look_up(core->pushes, &id) != PS_PUSH_NEW) /* its set is full */
            continue;
        ps_pushes_start(core->pushes, &id);
        (void)ps_pushes_finish(core->pushes, &id);
    }
    fake_dp_release(index);
}

/* The node starts, and its log says what may go wrong, then or soon after. */
static void read_log(int file, char *log, size_t capacity)
{
    const ssize_t bytes = pread(file, log, capacity - 1, 0);
    log[bytes > 0 ? bytes : 0] = '\0';
}

TEST(a_start_tells_of_records_without_room, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char path[200], log[16384] = "";
    node_restart(n, 2);
    make_table(n);
    push_of_many(2, 0);
    push_of_many(2, 1);
    node_save(n);
    node_stop(n);
    snprintf(path, sizeof(path), "%s/log", n->directory);
    int own = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(own >= 0 && file >= 0);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    node_start(n, 1);
    const uint64_t forgotten = node_counter(n, 0, "ps.push_streams_forgotten");
    const uint64_t lost = node_counter(n, 0, "ps.push_streams_lost");
    WAIT_UNTIL(read_log(file, log, sizeof(log)),
               strstr(log, "may send their pushes again: these may be applied twice") != NULL);
    assert_int_equal(dup2(own, STDERR_FILENO), STDERR_FILENO);
    close(own);
    close(file);
    unlink(path);
    assert_true(forgotten > 1000);
    assert_int_equal(lost, forgotten);
}

/* What LIST says of the node's starts: from which checkpoint each went on, the newest first, and the second
 * is `older`. Returns the newest. */
static uint64_t check_starts(struct node_fixture *n, const uint64_t *from, uint32_t count, uint64_t older)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 5);
    assert_int_equal(reply->tensors[4].dims[0], count);
    const uint64_t(*starts)[MR_LIST_START_WORDS] = reply->tensors[4].data;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_not_equal(starts[i][MR_LIST_START_ID], 0);
        assert_int_equal(starts[i][MR_LIST_START_FROM], from[i]);
    }
    if (count > 1)
        assert_int_equal(starts[1][MR_LIST_START_ID], older);
    return starts[0][MR_LIST_START_ID];
}

TEST(a_node_says_where_its_state_comes_from, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    make_table(n);
    uint64_t first = check_starts(n, (const uint64_t[]){0}, 1, 0);
    assert_int_equal(node_durable_in(n, 1), 0);
    node_save(n);
    assert_int_equal(node_durable_in(n, 2), 1);
    node_save(n);
    node_restart(n, 1);
    uint64_t second = check_starts(n, (const uint64_t[]){2, 0}, 2, first);
    assert_int_equal(node_durable_in(n, 3), 2);
    node_save(n);
    assert_int_equal(node_durable_in(n, 4), 3);
    node_restart(n, 3);
    (void)check_starts(n, (const uint64_t[]){3, 2, 0}, 3, second);
    node_check(node_restore(n, 1), MR_OK, NULL);
    (void)check_starts(n, (const uint64_t[]){1, 0}, 2, first);
    assert_int_equal(node_durable_in(n, 1), 0);
    node_save(n);
    assert_int_equal(node_durable_in(n, 2), 4);
}
