/* A whole node with a store: its machine is gone, and another one goes on from what is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/format/push_number.h"
#include "ps/server/checkpoint_sync.h"
#include "tests/test.h"
#include "tests/unit/ps/restore_fixture.h"
#include "tests/unit/ps/store/remote_fixture.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

struct fixture {
    struct remote_fixture remote;
    struct node_fixture *node;
};

static void set_remote(struct fixture *x, const char *url)
{
    (void)snprintf(x->node->config.checkpoint_remote, sizeof(x->node->config.checkpoint_remote), "%s", url);
}

static int set_up(void **state)
{
    static struct fixture x;
    void *node;
    remote_fixture_start(&x.remote, *(const enum ps_store_kind *)*state, 1);
    if (node_setup(&node) != 0)
        return -1;
    x.node = node;
    node_stop(x.node);
    set_remote(&x, x.remote.url);
    x.node->config.checkpoint_store_pause_ms = 1; /* between tries of a request */
    node_start(x.node, 1);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    void *node = x->node;
    const int result = node_teardown(&node);
    return result + remote_fixture_stop(&x->remote);
}

/* The disk is gone: an empty one takes its place. */
static void lose_the_disk(struct fixture *x)
{
    struct node_fixture *n = x->node;
    assert_int_equal(temporary_directory_remove(n->directory), 0);
    n->directory = temporary_directory_make();
    (void)snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s/ckpt",
                   n->directory);
}

/* Two batches, and a checkpoint after each. Returns the table, once the store has both. */
static uint32_t save_twice_and_stop(struct node_fixture *n)
{
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    assert_int_equal(node_save(n), 1);
    assert_int_equal(learn(n, table, BATCH(2)), 1);
    assert_int_equal(node_save(n), 2);
    node_stop(n); /* waits until what it has saved is in the store */
    return table;
}

TEST(another_machine_goes_on_from_the_store, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    const uint32_t table = save_twice_and_stop(n);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-1 ckpt-2 history ");
    lose_the_disk(x);
    node_start(n, 3);
    assert_int_equal(make_table(n), table);
    check_values(n, table, 98);
    assert_int_equal(learn(n, table, BATCH(0)), 0); /* it knows what was applied */
    assert_int_equal(learn(n, table, BATCH(1)), 3); /* on each core */
    assert_int_equal(node_save(n), 3);              /* the numbers go on */
    node_stop(n);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-1 ckpt-2 ckpt-3 history ");
    node_start(n, 1);
}
TEST_AGAIN(another_machine_goes_on_from_the_store, set_up, tear_down, &remote_s3)

static void wait_for_copy(struct node_fixture *n, uint64_t number, uint64_t out[MR_SAVE_ROW_WORDS])
{
    WAIT_UNTIL(node_save_row(n, number, out), out[MR_SAVE_ROW_REMOTE] == PS_COPIED_THERE);
}

/* When it was there on the disk, and when in the store; of partial ones, too. */
TEST(both_instants_are_told, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    uint64_t save[MR_SAVE_ROW_WORDS], words[MR_SAVE_ASK_WORDS] = {0};
    const char name[MR_NAME_BYTES] = "emb";
    const struct mr_tensor partial[3] = {mr_tensor_1d(MR_U8, 0, NULL),
                                         mr_body_tensor(MR_BODY_SAVE_ASK, words),
                                         mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, name)};
    (void)make_table(n);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 1, UINT32_MAX);
    assert_int_equal(node_save(n), 1);
    node_save_row(n, 1, save);
    assert_int_equal(save[MR_SAVE_ROW_REMOTE], PS_COPIED_NOT_YET);
    assert_int_not_equal(save[MR_SAVE_ROW_COMMITTED_MS], 0);
    assert_int_equal(save[MR_SAVE_ROW_REMOTE_MS], 0);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    wait_for_copy(n, 1, save);
    assert_int_not_equal(save[MR_SAVE_ROW_REMOTE_MS], 0);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, partial, 3), MR_OK, NULL);
    wait_for_copy(n, 2, save);
    assert_int_not_equal(save[MR_SAVE_ROW_REMOTE_MS], 0);
}
TEST_AGAIN(both_instants_are_told, set_up, tear_down, &remote_s3)

TEST(a_number_is_taken_from_the_store, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    (void)save_twice_and_stop(n);
    lose_the_disk(x);
    (void)snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "1");
    node_start(n, 1);
    check_values(n, make_table(n), 99);
}

/* A file of a checkpoint in the store is gone, or there again. */
static void take_away(struct fixture *x, const char *path, uint8_t **data, uint64_t *bytes)
{
    const struct ps_store *store = &x->remote.remote->store;
    struct ps_store_file *file;
    assert_int_equal(store->open(store->self, path, &file, bytes), 0);
    *data = malloc(*bytes);
    assert_int_equal(ps_store_read_all(store, file, *data, *bytes, 0), 0);
    assert_int_equal(store->close(file), 0);
    assert_int_equal(store->remove(store->self, path), 0);
}

static void put_back(struct fixture *x, const char *path, uint8_t *data, uint64_t bytes)
{
    assert_int_equal(remote_fixture_write(&x->remote.remote->store, path, data, bytes), 0);
    free(data);
}

/* What a fetch that failed has brought is not what the node goes on from. */
TEST(a_fetch_that_failed_goes_on, set_up, tear_down, &remote_hdfs)
{
    char path[PS_PATH_BYTES], name[PS_FILE_NAME_BYTES], error[DP_ERROR_BYTES];
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    uint8_t *data;
    uint64_t bytes, id;
    node_stop(n);
    n->config.checkpoint_deltas = 2;
    node_start(n, 1);
    const uint32_t table = save_twice_and_stop(n);
    ps_file_name(0, name);
    (void)snprintf(path, sizeof(path), "%s/ckpt-2/%s", x->remote.remote->directory, name);
    take_away(x, path, &data, &bytes);
    lose_the_disk(x);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_not_equal(ps_server_start(&n->config, &n->server, error), MR_OK);
        assert_non_null(strstr(error, "checkpoint.remote: "));
    }
    assert_int_equal(ps_checkpoint_list(NULL, n->config.checkpoint_directory, &id, 1), 1);
    assert_int_equal(id, 1); /* the delta's base */
    set_remote(x, "");
    assert_int_equal(ps_server_start(&n->config, &n->server, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "set checkpoint.remote again"));
    set_remote(x, x->remote.url);
    put_back(x, path, data, bytes);
    node_start(n, 2);
    check_values(n, table, 98);
    assert_int_equal(node_save(n), 3);
    node_stop(n);
    set_remote(x, "");
    node_start(n, 1); /* the disk has all of it */
    check_values(n, table, 98);
}
TEST_AGAIN(a_fetch_that_failed_goes_on, set_up, tear_down, &remote_s3)

/* Who names a checkpoint, or none, takes what the disk has of such a fetch. */
TEST(a_fetch_that_failed_is_given_up_by_name, set_up, tear_down, &remote_hdfs)
{
    static const char *const names[] = {"1", "none"};
    char path[PS_PATH_BYTES], name[PS_FILE_NAME_BYTES], error[DP_ERROR_BYTES];
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    uint8_t *data;
    uint64_t bytes;
    node_stop(n);
    n->config.checkpoint_deltas = 2;
    n->config.checkpoint_save_on_stop = false;
    node_start(n, 1);
    const uint32_t table = save_twice_and_stop(n);
    ps_file_name(0, name);
    (void)snprintf(path, sizeof(path), "%s/ckpt-2/%s", x->remote.remote->directory, name);
    take_away(x, path, &data, &bytes);
    free(data);
    for (uint32_t i = 0; i < 2; i++) {
        lose_the_disk(x);
        assert_int_not_equal(ps_server_start(&n->config, &n->server, error), MR_OK);
        (void)snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "%s", names[i]);
        n->config.checkpoint_remote_stop_s = 0;
        node_start(n, 1);
        node_stop(n);
        (void)snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "latest");
        node_start(n, 1);
        check_values(n, table, 99);
        node_stop(n);
    }
    node_start(n, 1);
}

/* What was dropped, and the numbers that were given, are known on another machine. */
TEST(what_was_dropped_stays_away_there_too, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    n->config.checkpoint_save_on_stop = false;
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    assert_int_equal(node_save(n), 1);
    node_drop(n, "emb");
    node_stop(n);
    lose_the_disk(x);
    node_start(n, 2);
    assert_int_equal(make_table(n), table + 1);
    check_values(n, table + 1, 100);
}
TEST_AGAIN(what_was_dropped_stays_away_there_too, set_up, tear_down, &remote_s3)

/* A restore by call is undone by no loss of the disk, and numbers go on above all that are in the store. */
TEST(a_restore_by_call_holds_there_too, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    n->config.checkpoint_save_on_stop = false;
    uint32_t table = save_twice_and_stop(n);
    node_start(n, 1);
    node_check(node_restore(n, 1), MR_OK, NULL);
    check_values(n, table, 99);
    node_stop(n);
    lose_the_disk(x);
    node_start(n, 2);
    check_values(n, table, 99);
    assert_int_equal(node_save(n), 3);
    node_stop(n);
    lose_the_disk(x);
    node_start(n, 1);
    check_values(n, table, 99);
    assert_int_equal(node_save(n), 4);
}

/* Number `number` of the push stream is in the record: a push without tensors asks what is durable of it. */
static const struct node_reply *ask_durable(struct node_fixture *n, uint64_t number)
{
    const struct node_reply *reply;
    n->sequence = mr_push_sequence(0, number);
    reply = node_call(n, 0, MR_OP_PUSH_GRAD, 0, NULL, 0);
    n->sequence = 0;
    node_check(reply, MR_OK, NULL);
    return reply;
}

static void check_durable(struct node_fixture *n, uint64_t pushed, uint64_t number, uint64_t checkpoint)
{
    const struct node_reply *reply = ask_durable(n, pushed);
    assert_int_equal(mr_push_number(reply->sequence), number);
    assert_int_equal(reply->checkpoint, checkpoint);
}

static void wait_for_durable(struct node_fixture *n, uint64_t number, uint64_t checkpoint)
{
    WAIT_UNTIL(mr_push_number(ask_durable(n, number)->sequence) == number);
    check_durable(n, number, number, checkpoint);
}

static void wait_for_a_failed_copy(struct node_fixture *n)
{
    WAIT_UNTIL(node_counter(n, 0, "remote.copies_failed") > 0);
}

/* What the disk has is not safe from the end of the machine. */
TEST(pushes_are_durable_once_their_copy_is_there, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    node_stop(n);
    n->config.checkpoint_durable = PS_DURABLE_REMOTE;
    node_start(n, 1);
    uint32_t table = make_table(n);
    push_all(n, table, 1, 1);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 1, UINT32_MAX);
    assert_int_equal(node_save(n), 1);
    wait_for_a_failed_copy(n);
    push_all(n, table, 1, 2);
    assert_int_equal(node_save(n), 2);
    check_durable(n, 2, 0, 0);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    wait_for_durable(n, 2, 2);

    push_all(n, table, 1, 3);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 1, UINT32_MAX);
    assert_int_equal(node_save(n), 3);
    n->config.checkpoint_remote_stop_s = 0; /* which only the stop reads */
    node_restart(n, 1);                     /* it has the third checkpoint, and the store has not */
    wait_for_a_failed_copy(n);
    check_durable(n, 3, 0, 0);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    wait_for_durable(n, 3, 3);
}

/* It does not begin without what it has learnt because nobody answers. */
TEST(a_node_without_disk_and_store_does_not_start, set_up, tear_down, &remote_hdfs)
{
    char error[DP_ERROR_BYTES];
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    node_stop(n);
    lose_the_disk(x);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 1, UINT32_MAX);
    n->config.cores_count = 1;
    assert_int_equal(ps_server_start(&n->config, &n->server, error), MR_IO_ERROR);
    assert_non_null(strstr(error, "checkpoint.remote: "));
    assert_non_null(strstr(error, "503"));
    (void)snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "none");
    n->config.checkpoint_remote_stop_s = 0;
    node_start(n, 1); /* the way out that the line names */
}

TEST(a_wrong_url_is_found_without_the_store, set_up, tear_down, &remote_hdfs)
{
    char error[DP_ERROR_BYTES] = "";
    struct fixture *x = *state;
    struct ps_config *config = &x->node->config;
    assert_true(ps_checkpoint_sync_check(config, error));
    set_remote(x, "hdfs://namenode/ads");
    assert_false(ps_checkpoint_sync_check(config, error));
    assert_non_null(strstr(error, "checkpoint.remote: hdfs://namenode/ads: name the port"));
    set_remote(x, "");
    assert_true(ps_checkpoint_sync_check(config, error));
}
