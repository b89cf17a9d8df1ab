/* Copies of checkpoints to stores of other machines and back: what arrives is what was sent, and whatever
 * fails, what is published there is whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "ps/store/copy.h"
#include "remote_fixture.h"
#include "tests/unit/ps/chain_fixture.h"

enum { LAST = 2 }; /* a full and a delta */

struct fixture {
    struct remote_fixture remote;
    char text[PS_TEXT_BYTES];
    uint64_t copied;
};

static void count(void *arg, uint64_t bytes)
{
    ((struct fixture *)arg)->copied += bytes;
}

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    remote_fixture_start(&x.remote, *(const enum ps_store_kind *)*state, 1);
    remote_fixture_make_directories(&x.remote);
    chain_save_key(x.remote.here, 1, 0, 1, 10);
    chain_save_key(x.remote.here, 2, 1, 2, 20);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    return remote_fixture_stop(&x->remote);
}

static enum mr_status push(struct fixture *x, uint64_t id)
{
    const struct ps_copy copy = {.from = ps_store_local(),
                                 .to = &x->remote.remote->store,
                                 .from_directory = x->remote.here,
                                 .to_directory = x->remote.remote->directory,
                                 .progress = count,
                                 .arg = x};
    x->copied = 0;
    x->text[0] = '\0';
    return ps_copy_chain(&copy, id, x->text);
}

static enum mr_status pull(struct fixture *x, uint64_t id)
{
    const struct ps_copy copy = {.from = &x->remote.remote->store,
                                 .to = ps_store_local(),
                                 .from_directory = x->remote.remote->directory,
                                 .to_directory = x->remote.back};
    return ps_copy_chain(&copy, id, x->text);
}

static void clear_back(struct fixture *x)
{
    for (uint64_t id = 1; id <= LAST; id++)
        (void)ps_store_remove_tree(ps_store_local(), fixture_path(x->remote.back, id, ""), PS_MANIFEST_NAME);
}

/* What `id` says of the keys, read from the directory that was pulled to. */
static void check_back(struct fixture *x, uint64_t id)
{
    uint8_t full[CHAIN_KEYS] = {[1] = 10}, delta[CHAIN_KEYS] = {[2] = 20};
    const uint8_t *const changes[] = {full, delta};
    if (pull(x, id) != MR_OK)
        fail_msg("%s", x->text);
    chain_check(x->remote.back, id, id, (uint32_t)id, changes);
    clear_back(x);
}

static void a_chain_comes_back_as_it_went(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(push(x, LAST), MR_OK);
    assert_true(x->copied >= 4 << 20);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-1 ckpt-2 ");
    check_back(x, LAST);
    check_back(x, 1);
    assert_int_equal(push(x, LAST), MR_OK); /* all of it is there */
    assert_int_equal(x->copied, 0);
}

/* The newest checkpoint of the store, 0: there is none. Each that is there must be whole. */
static uint64_t check_whole(struct fixture *x)
{
    uint64_t ids[4];
    uint32_t count_there = 0;
    assert_int_equal(
        ps_checkpoint_list_all(&x->remote.remote->store, x->remote.remote->directory, ids, 4, &count_there),
        0);
    assert_true(count_there <= LAST);
    if (count_there > 0)
        check_back(x, ids[0]);
    return count_there > 0 ? ids[0] : 0;
}

/* The store goes away at request `at`, and comes back. False: the copy ended before. */
static bool fail_at(struct fixture *x, enum http_server_fault fault, uint32_t at, uint64_t last)
{
    remote_fixture_clear(&x->remote);
    remote_fixture_reopen(&x->remote, 1); /* another process: it has no MANIFEST that was held back */
    http_server_fail(x->remote.server, fault, at, UINT32_MAX);
    const enum mr_status status = push(x, last);
    const bool is_reached = http_server_count(x->remote.server) >= at;

    http_server_fail(x->remote.server, fault, 0, 0);
    if (is_reached && status == MR_OK)
        fail_msg("fault %d at request %u: the copy says that it succeeded", (int)fault, at);
    assert_true(status == MR_OK || x->text[0] != '\0');
    const uint64_t there = check_whole(x);

    assert_true(is_reached || there == last);
    if (is_reached && push(x, last) != MR_OK)
        fail_msg("fault %d at request %u: the next copy fails: %s", (int)fault, at, x->text);
    assert_int_equal(check_whole(x), last);
    if (x->remote.kind == PS_STORE_S3)
        assert_int_equal(fake_s3_upload_count(&x->remote.s3), 0);
    return is_reached;
}

static void the_store_goes_away_at_each_request(struct fixture *x, enum http_server_fault fault,
                                                uint64_t last)
{
    uint32_t at = 1;
    while (fail_at(x, fault, at, last))
        at++;
    assert_in_range(at, 6 * last, 60); /* there were as many requests as that many checkpoints need */
}

static void it_answers_503_from_any_request_on(void **state)
{
    the_store_goes_away_at_each_request(*state, HTTP_FAULT_503, LAST);
}

static void it_cuts_all_answers_from_any_request_on(void **state)
{
    the_store_goes_away_at_each_request(*state, HTTP_FAULT_CUT_AFTER, 1);
}

static void damage_is_found_on_the_way_there(void **state)
{
    struct fixture *x = *state;
    fixture_flip(fixture_path(x->remote.here, 2, "core-001.mrc"), 70000, 1);
    assert_int_equal(push(x, LAST), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(x->text, "core-001.mrc"));
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-1 ");
}

static void flip_there(struct fixture *x)
{
    uint8_t *data;
    if (x->remote.kind == PS_STORE_S3)
        data = fake_s3_object(&x->remote.s3, "ads/ckpt-1/core-000.mrc")->data;
    else
        data = x->remote.hdfs.entries[fake_hdfs_find(&x->remote.hdfs, "/ads/ckpt-1/core-000.mrc")].data;
    data[70000] ^= 1;
}

static void damage_is_found_on_the_way_back(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(push(x, LAST), MR_OK);
    flip_there(x);
    assert_int_equal(pull(x, LAST), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(x->text, "core-000.mrc"));
    assert_int_equal(fixture_count(x->remote.back, "ckpt-"), 0);
    assert_int_equal(fixture_count(x->remote.back, ".tmp-"), 0);
}

static void a_copy_that_has_lost_a_file_is_no_copy(void **state)
{
    struct fixture *x = *state;
    const struct ps_store *s = &x->remote.remote->store;
    char path[PS_PATH_BYTES];
    assert_int_equal(push(x, LAST), MR_OK);
    (void)snprintf(path, sizeof(path), "%s/ckpt-2/core-001.mrc", x->remote.remote->directory);
    assert_int_equal(s->remove(s->self, path), 0);
    assert_int_equal(push(x, LAST), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(x->text, "missing"));
}

static void another_checkpoint_of_that_number_is_kept(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(push(x, LAST), MR_OK);
    chain_save_key(x->remote.back, 1, 0, 1, 99);
    const struct ps_copy copy = {.from = ps_store_local(),
                                 .to = &x->remote.remote->store,
                                 .from_directory = x->remote.back,
                                 .to_directory = x->remote.remote->directory};

    assert_int_equal(ps_copy_chain(&copy, 1, x->text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(x->text, "a directory of its own"));
    clear_back(x);
    check_back(x, LAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON_BOTH(a_chain_comes_back_as_it_went),
        TEST_ON_BOTH(it_answers_503_from_any_request_on),
        TEST_ON_BOTH(it_cuts_all_answers_from_any_request_on),
        TEST_ON_BOTH(damage_is_found_on_the_way_there),
        TEST_ON_BOTH(damage_is_found_on_the_way_back),
        TEST_ON_BOTH(a_copy_that_has_lost_a_file_is_no_copy),
        TEST_ON_BOTH(another_checkpoint_of_that_number_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
