/* The thread that copies a node's checkpoints to a store: all of them arrive, whatever the store does
 * meanwhile. */
#include <stdio.h>
#include <string.h>

#include "ps/base/counter.h"
#include "ps/store/copier.h"
#include "ps/store/copy.h"
#include "ps/store/copy_record.h"
#include "remote_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/chain_fixture.h"
#include "tests/wait.h"

enum { STOP_S = 60 };

struct fixture {
    struct remote_fixture remote;
    struct ps_copier_counters counters;
    struct ps_copier_options options;
    struct ps_copier *copier;
    char text[PS_TEXT_BYTES];
};

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    remote_fixture_start(&x.remote, PS_STORE_HDFS, 1);
    remote_fixture_make_directories(&x.remote);
    x.options = (struct ps_copier_options){.directory = x.remote.here,
                                           .url = x.remote.url,
                                           .credentials = "",
                                           .retention = {.keep = 3},
                                           .counters = &x.counters};
    chain_save_key(x.remote.here, 1, 0, 1, 10);
    chain_save_key(x.remote.here, 2, 1, 2, 20);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    ps_copier_stop(x->copier, 0);
    return remote_fixture_stop(&x->remote);
}

static void copier_start(struct fixture *x)
{
    if (ps_copier_start(&x->options, &x->copier, x->text) != MR_OK)
        fail_msg("%s", x->text);
}

static void fixture_stop(struct fixture *x)
{
    ps_copier_stop(x->copier, STOP_S);
    x->copier = NULL;
}

static void wait_for(const struct fixture *x, const uint64_t *counter, uint64_t value, const char *what)
{
    if (!WAIT_WITHIN(WAIT_LIMIT_S, ps_counter_read(counter) == value))
        fail_msg("%s is %llu and not %llu; state %llu, last status %llu", what,
                 (unsigned long long)ps_counter_read(counter), (unsigned long long)value,
                 (unsigned long long)ps_counter_read(&x->counters.state),
                 (unsigned long long)ps_counter_read(&x->counters.last_status));
}
#define WAIT_FOR(counter, value) wait_for(x, &x->counters.counter, (value), #counter)

static const char *names_there(struct fixture *x)
{
    return remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory);
}

TEST(what_is_there_and_what_comes_is_copied, set_up, tear_down)
{
    struct fixture *x = *state;
    copier_start(x);
    WAIT_FOR(last_id, 2);
    WAIT_FOR(state, PS_COPIER_IDLE);
    assert_int_equal(ps_counter_read(&x->counters.behind), 0);
    chain_save_key(x->remote.here, 3, 2, 3, 30);
    ps_copier_wake(x->copier);
    WAIT_FOR(last_id, 3);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 ckpt-3 ");
    assert_int_equal(x->counters.copies_good, 3);
    assert_int_equal(x->counters.copies_failed, 0);
}

/* A save just before the end is copied before it. */
TEST(the_end_waits_for_what_is_left, set_up, tear_down)
{
    struct fixture *x = *state;
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_IDLE);
    chain_save_key(x->remote.here, 3, 2, 3, 30);
    ps_copier_wake(x->copier);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 ckpt-3 ");
}

TEST(a_store_that_fails_is_tried_until_it_does_not, set_up, tear_down)
{
    struct fixture *x = *state;
    http_server_fail(x->remote.server, HTTP_FAULT_CUT_BEFORE, 1, UINT32_MAX);
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_FAILING);
    assert_int_equal(ps_counter_read(&x->counters.last_status), MR_IO_ERROR);
    assert_true(ps_counter_read(&x->counters.copies_failed) > 0);
    assert_int_equal(ps_counter_read(&x->counters.behind), 2); /* it cannot be asked what is there */
    http_server_fail(x->remote.server, HTTP_FAULT_CUT_BEFORE, 0, 0);
    WAIT_FOR(last_id, 2);
    WAIT_FOR(last_status, MR_OK);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 ");
}

/* A stop in the middle of a copy: the next start goes on from what is there. */
TEST(a_node_that_was_stopped_goes_on, set_up, tear_down)
{
    struct fixture *x = *state;
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 12, UINT32_MAX);
    copier_start(x);
    WAIT_UNTIL(http_server_count(x->remote.server) >= 12);
    ps_copier_stop(x->copier, 0);
    x->copier = NULL;
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 0, 0);
    copier_start(x);
    WAIT_FOR(last_id, 2);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 ");
}

/* Stops the node at that request of its copies. */
static void interrupt_at(struct fixture *x, uint32_t at)
{
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, at, UINT32_MAX);
    copier_start(x);
    WAIT_UNTIL(http_server_count(x->remote.server) >= at);
    ps_copier_stop(x->copier, 0);
    x->copier = NULL;
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 0, 0);
}

/* The first request at which a file is known to be whole, and its checkpoint is not there yet. */
TEST(what_was_copied_before_a_stop_is_not_sent_again, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_copy_record record;
    uint32_t at = 12;
    uint64_t kept = 0;
    for (; kept == 0 && at < 40; at++) {
        remote_fixture_clear(&x->remote);
        ps_copy_record_remove(x->remote.here);
        interrupt_at(x, at);
        (void)ps_copy_record_read(x->remote.here, &record);
        for (uint32_t i = 0; i < record.file_count; i++)
            kept += record.files[i].is_whole ? record.files[i].mark.bytes : 0;
        ps_copy_record_clear(&record);
    }
    assert_true(kept > 0);
    memset(&x->counters, 0, sizeof(x->counters));
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_IDLE);
    fixture_stop(x);
    assert_int_equal(x->counters.bytes_kept, kept);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 ");
    assert_false(ps_copy_record_read(x->remote.here, &record));
}

/* The disk loses a checkpoint whose copy was interrupted: what the store has of it goes, too. */
TEST(what_is_not_copied_any_more_is_removed_there, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_copy_record record;
    interrupt_at(x, 12);
    assert_true(ps_copy_record_read(x->remote.here, &record));
    ps_copy_record_clear(&record);
    assert_non_null(strstr(names_there(x), ".tmp-ckpt-"));
    for (uint64_t id = 2; id > 0; id--)
        (void)ps_store_remove_tree(ps_store_local(), fixture_path(x->remote.here, id, ""), PS_MANIFEST_NAME);
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_IDLE);
    fixture_stop(x);
    assert_null(strstr(names_there(x), ".tmp-ckpt-"));
    assert_false(ps_copy_record_read(x->remote.here, &record));
}

TEST(old_chains_go_there_too, set_up, tear_down)
{
    struct fixture *x = *state;
    x->options.retention.keep = 1;
    copier_start(x);
    WAIT_FOR(last_id, 2);
    chain_save_key(x->remote.here, 3, 0, 1, 30);
    ps_copier_wake(x->copier);
    WAIT_FOR(last_id, 3);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-3 ");
}

/* One that is damaged holds up no newer one; as long as there is none, the copies fail. */
TEST(a_damaged_one_is_passed_over, set_up, tear_down)
{
    struct fixture *x = *state;
    fixture_flip(fixture_path(x->remote.here, 2, "core-000.mrc"), 70000, 1);
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_FAILING);
    assert_int_equal(ps_counter_read(&x->counters.last_status), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(ps_counter_read(&x->counters.last_id), 1);
    assert_int_equal(ps_counter_read(&x->counters.behind), 1);
    chain_save_key(x->remote.here, 3, 2, 4, 40); /* with a base that is damaged */
    chain_save_key(x->remote.here, 4, 0, 3, 30);
    ps_copier_wake(x->copier);
    WAIT_FOR(last_id, 4);
    WAIT_FOR(state, PS_COPIER_IDLE);
    assert_int_equal(ps_counter_read(&x->counters.behind), 0);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-4 ");
}

/* An older version goes on in a directory of a later one: what it saves is copied. */
TEST(one_of_a_later_version_is_passed_over, set_up, tear_down)
{
    struct fixture *x = *state;
    fixture_rewrite(fixture_path(x->remote.here, 2, PS_MANIFEST_NAME), "features", "optimizer",
                    json_integer(17));
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_FAILING);
    assert_int_equal(ps_counter_read(&x->counters.last_status), MR_CHECKPOINT_NEWER);
    chain_save_key(x->remote.here, 3, 0, 3, 30);
    ps_copier_wake(x->copier);
    WAIT_FOR(last_id, 3);
    WAIT_FOR(state, PS_COPIER_IDLE);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-3 ");
}

TEST(another_nodes_checkpoints_stay, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct ps_copy other = {.from = ps_store_local(),
                                  .to = &x->remote.remote->store,
                                  .from_directory = x->remote.back,
                                  .to_directory = x->remote.remote->directory};
    chain_save_key(x->remote.back, 2, 0, 1, 99);
    assert_int_equal(ps_copy_chain(&other, 2, x->text), MR_OK);
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_FAILING);
    assert_int_equal(ps_counter_read(&x->counters.last_status), MR_INVALID_ARGUMENT);
    ps_copier_stop(x->copier, 0);
    x->copier = NULL;
    assert_string_equal(names_there(x), "ckpt-2 ");
}

TEST(what_the_disk_lacks_is_fetched, set_up, tear_down)
{
    const uint8_t full[CHAIN_KEYS] = {[1] = 10}, delta[CHAIN_KEYS] = {[2] = 20};
    const uint8_t *const changes[] = {full, delta};
    struct fixture *x = *state;
    uint64_t id = 0;
    x->options.directory = x->remote.back;
    assert_int_equal(ps_copier_fetch(&x->options, &id, x->text), MR_OK);
    assert_int_equal(id, 0); /* there is nothing */
    x->options.directory = x->remote.here;
    copier_start(x);
    WAIT_FOR(last_id, 2);
    fixture_stop(x);
    x->options.directory = x->remote.back;
    assert_int_equal(ps_copier_fetch(&x->options, &id, x->text), MR_OK);
    assert_int_equal(id, 2);
    chain_check(x->remote.back, 2, 2, 2, changes);
    id = 7;
    assert_int_equal(ps_copier_fetch(&x->options, &id, x->text), MR_CHECKPOINT_NOT_FOUND);
}

static void check_look(struct fixture *x, bool is_partial, uint64_t id, enum ps_copied expected)
{
    uint64_t at_ms;
    assert_int_equal(ps_copier_look(x->copier, is_partial, id, &at_ms), expected);
    assert_int_equal(at_ms != 0, expected == PS_COPIED_THERE);
}

/* The copier says of each checkpoint what became of it; and partial ones go to a folder of their own. */
TEST(it_is_known_what_is_there, set_up, tear_down)
{
    char here[PS_PATH_BYTES], there[PS_PATH_BYTES], back[PS_PATH_BYTES];
    struct fixture *x = *state;
    uint64_t id = 0;
    assert_true(ps_path_join(x->remote.here, PS_PARTIAL_NAME, here));
    assert_true(ps_path_join(x->remote.remote->directory, PS_PARTIAL_NAME, there));
    assert_true(ps_path_join(x->remote.back, PS_PARTIAL_NAME, back));
    http_server_fail(x->remote.server, HTTP_FAULT_503, 1, UINT32_MAX);
    copier_start(x);
    WAIT_FOR(state, PS_COPIER_FAILING);
    check_look(x, false, 2, PS_COPIED_NOT_YET);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    WAIT_FOR(last_id, 2);
    check_look(x, false, 2, PS_COPIED_THERE);
    check_look(x, true, 2, PS_COPIED_NOT_YET);
    chain_save_key(here, 4, 0, 1, 30);
    ps_copier_wake(x->copier);
    WAIT_FOR(copies_good, 3);
    WAIT_FOR(state, PS_COPIER_IDLE);
    check_look(x, true, 4, PS_COPIED_THERE);
    check_look(x, true, 3, PS_COPIED_NEVER);
    check_look(x, false, 4, PS_COPIED_NOT_YET);
    assert_int_equal(ps_counter_read(&x->counters.last_id), 2);
    fixture_stop(x);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 partial ");
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, there), "ckpt-4 ");
    x->options.directory = x->remote.back;
    assert_int_equal(ps_copier_fetch(&x->options, &id, x->text), MR_OK);
    assert_int_equal(id, 2);
    assert_int_equal(ps_checkpoint_list(NULL, back, &id, 1), 1);
    assert_int_equal(id, 4);
}

TEST(a_wrong_url_ends_the_start, set_up, tear_down)
{
    struct fixture *x = *state;
    x->options.url = "hdfs://namenode/ads";
    assert_int_equal(ps_copier_start(&x->options, &x->copier, x->text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(x->text, "name the port"));
    assert_null(x->copier);
}
