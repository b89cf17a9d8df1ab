/* Copies of checkpoints to stores of other machines and back: what arrives is what was sent, and whatever
 * fails, what is published there is whole. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/store/copy.h"
#include "ps/store/copy_record.h"
#include "remote_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/chain_fixture.h"

enum { LAST = 2 };                 /* a full and a delta */
enum { LARGE = 3, ROWS = 500000 }; /* a checkpoint of files of more than a part */

#define PART_BYTES  ((uint64_t)8 << 20)
#define LARGE_BYTES ((uint64_t)FIXTURE_CORES * 10 << 20) /* of LARGE, without its MANIFEST */

struct fixture {
    struct remote_fixture remote;
    char text[PS_TEXT_BYTES];
    uint64_t copied, kept, again;
};

static void copy_count(void *arg, uint64_t bytes)
{
    ((struct fixture *)arg)->copied += bytes;
}

static void count_kept(void *arg, uint64_t bytes)
{
    ((struct fixture *)arg)->kept += bytes;
}

static void count_again(void *arg, uint64_t bytes)
{
    ((struct fixture *)arg)->again += bytes;
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

static struct ps_copy copy_there(struct fixture *x, bool keeps_record)
{
    return (struct ps_copy){.from = ps_store_local(),
                            .to = &x->remote.remote->store,
                            .from_directory = x->remote.here,
                            .to_directory = x->remote.remote->directory,
                            .keeps_record = keeps_record,
                            .progress = copy_count,
                            .kept = count_kept,
                            .again = count_again,
                            .arg = x};
}

static enum mr_status push_with(struct fixture *x, uint64_t id, bool keeps_record)
{
    const struct ps_copy copy = copy_there(x, keeps_record);
    x->copied = x->kept = x->again = 0;
    x->text[0] = '\0';
    return ps_copy_chain(&copy, id, x->text);
}

static enum mr_status copy_push(struct fixture *x, uint64_t id)
{
    return push_with(x, id, false);
}

static enum mr_status copy_pull(struct fixture *x, uint64_t id)
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
    if (copy_pull(x, id) != MR_OK)
        fail_msg("%s", x->text);
    chain_check(x->remote.back, id, id, (uint32_t)id, changes);
    clear_back(x);
}

TEST(a_chain_comes_back_as_it_went, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    assert_int_equal(copy_push(x, LAST), MR_OK);
    assert_true(x->copied >= 4 << 20);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-1 ckpt-2 ");
    check_back(x, LAST);
    check_back(x, 1);
    assert_int_equal(copy_push(x, LAST), MR_OK); /* all of it is there */
    assert_int_equal(x->copied, 0);
}
TEST_AGAIN(a_chain_comes_back_as_it_went, set_up, tear_down, &remote_s3)

TEST(who_asked_for_it_goes_along, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    const struct ps_store *store = &x->remote.remote->store;
    const char *there = x->remote.remote->directory;
    bool is_by_trainer;
    assert_int_equal(ps_store_write_new(ps_store_local(), fixture_path(x->remote.here, 2, PS_BY_TRAINER_NAME),
                                        PS_BY_TRAINER_TEXT, strlen(PS_BY_TRAINER_TEXT)),
                     0);
    assert_int_equal(copy_push(x, LAST), MR_OK);
    assert_int_equal(ps_checkpoint_is_by_trainer(store, there, 2, &is_by_trainer), 0);
    assert_true(is_by_trainer);
    assert_int_equal(ps_checkpoint_is_by_trainer(store, there, 1, &is_by_trainer), 0);
    assert_false(is_by_trainer);
    check_back(x, LAST);
    assert_int_equal(copy_push(x, LAST), MR_OK);
    ps_checkpoint_retain(store, there, &(struct ps_retention){.keep = 1});
    assert_string_equal(remote_fixture_names(store, there), "ckpt-1 ckpt-2 ");
}
TEST_AGAIN(who_asked_for_it_goes_along, set_up, tear_down, &remote_s3)

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
    const enum mr_status status = copy_push(x, last);
    const bool is_reached = http_server_count(x->remote.server) >= at;

    http_server_fail(x->remote.server, fault, 0, 0);
    if (is_reached && status == MR_OK)
        fail_msg("fault %d at request %u: the copy says that it succeeded", (int)fault, at);
    assert_true(status == MR_OK || x->text[0] != '\0');
    const uint64_t there = check_whole(x);

    assert_true(is_reached || there == last);
    if (is_reached && copy_push(x, last) != MR_OK)
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
    assert_int_in_range(at, 6 * last, 60); /* there were as many requests as that many checkpoints need */
}

TEST(it_answers_503_from_any_request_on, set_up, tear_down, &remote_hdfs)
{
    the_store_goes_away_at_each_request(*state, HTTP_FAULT_503, LAST);
}
TEST_AGAIN(it_answers_503_from_any_request_on, set_up, tear_down, &remote_s3)

TEST(it_cuts_all_answers_from_any_request_on, set_up, tear_down, &remote_hdfs)
{
    the_store_goes_away_at_each_request(*state, HTTP_FAULT_CUT_AFTER, 1);
}
TEST_AGAIN(it_cuts_all_answers_from_any_request_on, set_up, tear_down, &remote_s3)

TEST(damage_is_found_on_the_way_there, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    fixture_flip(fixture_path(x->remote.here, 2, "core-001.mrc"), 70000, 1);
    assert_int_equal(copy_push(x, LAST), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(x->text, "core-001.mrc"));
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-1 ");
}
TEST_AGAIN(damage_is_found_on_the_way_there, set_up, tear_down, &remote_s3)

static void flip_there(struct fixture *x)
{
    uint8_t *data;
    if (x->remote.kind == PS_STORE_S3)
        data = fake_s3_object(&x->remote.s3, "ads/ckpt-1/core-000.mrc")->data;
    else
        data = x->remote.hdfs.entries[fake_hdfs_find(&x->remote.hdfs, "/ads/ckpt-1/core-000.mrc")].data;
    data[70000] ^= 1;
}

TEST(damage_is_found_on_the_way_back, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    assert_int_equal(copy_push(x, LAST), MR_OK);
    flip_there(x);
    assert_int_equal(copy_pull(x, LAST), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(x->text, "core-000.mrc"));
    assert_int_equal(fixture_count(x->remote.back, "ckpt-"), 0);
    assert_int_equal(fixture_count(x->remote.back, ".tmp-"), 0);
}
TEST_AGAIN(damage_is_found_on_the_way_back, set_up, tear_down, &remote_s3)

TEST(a_copy_that_has_lost_a_file_is_no_copy, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    const struct ps_store *s = &x->remote.remote->store;
    char path[PS_PATH_BYTES];
    assert_int_equal(copy_push(x, LAST), MR_OK);
    (void)snprintf(path, sizeof(path), "%s/ckpt-2/core-001.mrc", x->remote.remote->directory);
    assert_int_equal(s->remove(s->self, path), 0);
    assert_int_equal(copy_push(x, LAST), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(x->text, "missing"));
}
TEST_AGAIN(a_copy_that_has_lost_a_file_is_no_copy, set_up, tear_down, &remote_s3)

TEST(another_checkpoint_of_that_number_is_kept, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    assert_int_equal(copy_push(x, LAST), MR_OK);
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
TEST_AGAIN(another_checkpoint_of_that_number_is_kept, set_up, tear_down, &remote_s3)

/* ---- retention there ---- */

/* All that is listed can be restored. Returns how many those are. */
static uint32_t check_all_whole(struct fixture *x)
{
    const struct ps_store *store = &x->remote.remote->store;
    struct ps_reader *reader;
    uint64_t ids[4];
    uint32_t count = 0;
    assert_int_equal(ps_checkpoint_list_all(store, x->remote.remote->directory, ids, 4, &count), 0);
    for (uint32_t i = 0; i < count; i++) {
        if (ps_reader_open(store, x->remote.remote->directory, ids[i], &reader, x->text) != MR_OK)
            fail_msg("checkpoint %u: %s", (unsigned)ids[i], x->text);
        ps_reader_close(reader);
    }
    return count;
}

static void *copied(const void *data, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    return copy;
}

/* All that is stored, without uploads; `to` has had nothing. */
static void copy_contents(struct remote_fixture *to, const struct remote_fixture *from)
{
    assert_int_equal(fake_s3_upload_count(&from->s3), 0);
    to->s3 = from->s3;
    for (uint32_t i = 0; i < from->s3.object_count; i++) {
        const struct fake_s3_bytes *content = &from->s3.objects[i].content;
        to->s3.objects[i].content.data = copied(content->data, content->bytes);
    }
    to->hdfs = from->hdfs;
    for (uint32_t i = 0; i < FAKE_HDFS_ENTRIES_MAX; i++)
        if (from->hdfs.entries[i].data != NULL)
            to->hdfs.entries[i].data = copied(from->hdfs.entries[i].data, from->hdfs.entries[i].bytes);
}

/* A full and its delta go; the store goes away at each of the requests, which are done or not. */
TEST(no_delta_lacks_its_base_wherever_retention_stops, set_up, tear_down, &remote_hdfs)
{
    static struct remote_fixture pushed; /* the contents only */
    struct fixture *x = *state;
    const struct ps_store *store;
    bool is_reached = true;
    chain_save_key(x->remote.here, LARGE, 0, 1, 30);
    assert_int_equal(copy_push(x, LAST), MR_OK);
    assert_int_equal(copy_push(x, LARGE), MR_OK);
    copy_contents(&pushed, &x->remote);
    for (uint32_t i = 0; is_reached; i++) {
        const enum http_server_fault fault = i % 2 == 0 ? HTTP_FAULT_CUT_BEFORE : HTTP_FAULT_CUT_ANSWER;
        remote_fixture_clear(&x->remote);
        copy_contents(&x->remote, &pushed);
        remote_fixture_reopen(&x->remote, 1);
        store = &x->remote.remote->store;
        http_server_fail(x->remote.server, fault, i / 2 + 1, UINT32_MAX);
        ps_checkpoint_retain(store, x->remote.remote->directory, &(struct ps_retention){.keep = 1});
        is_reached = http_server_count(x->remote.server) >= i / 2 + 1;
        http_server_fail(x->remote.server, fault, 0, 0);
        assert_true(check_all_whole(x) >= 1);
        ps_checkpoint_retain(store, x->remote.remote->directory, &(struct ps_retention){.keep = 1});
        assert_string_equal(remote_fixture_names(store, x->remote.remote->directory), "ckpt-3 ");
        assert_int_equal(check_all_whole(x), 1);
    }
    remote_fixture_clear(&pushed);
}
TEST_AGAIN(no_delta_lacks_its_base_wherever_retention_stops, set_up, tear_down, &remote_s3)

/* ---- ranges that come in any order ---- */

enum { MANY_ROWS = 3 * ROWS }; /* four ranges in each file */

/* A store on this machine, in which a read of a file's beginning waits until all others are done. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t missing, late;
    bool is_broken; /* the last range is not what was written */
} held = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int64_t read_late(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    const bool is_range = bytes >= PS_BLOCK_BYTES;
    const int64_t done = ps_store_local()->read(file, data, bytes, offset);
    pthread_mutex_lock(&held.lock);
    held.missing -= is_range && offset > 0;
    held.late += is_range && offset == 0 && held.missing > 0;
    if (held.is_broken && offset > 0 && held.missing == 0)
        ((uint8_t *)data)[100] ^= 1;
    pthread_cond_broadcast(&held.changed);
    while (is_range && offset == 0 && held.missing > 0)
        pthread_cond_wait(&held.changed, &held.lock);
    pthread_mutex_unlock(&held.lock);
    return done;
}

static enum mr_status pull_late(struct fixture *x, bool is_broken)
{
    struct ps_store late = *ps_store_local();
    late.read = read_late;
    const struct ps_copy copy = {.from = &late,
                                 .to = ps_store_local(),
                                 .from_directory = x->remote.here,
                                 .to_directory = x->remote.back};
    held.missing = FIXTURE_CORES * 3;
    held.late = 0;
    held.is_broken = is_broken;
    return ps_copy_chain(&copy, LARGE, x->text);
}

TEST(a_range_that_is_late_holds_up_no_other, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    struct ps_reader *reader;
    assert_int_equal(fixture_save(NULL, x->remote.here, LARGE, MANY_ROWS).status, MR_OK);
    assert_int_equal(pull_late(x, true), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(ps_checkpoint_list(NULL, x->remote.back, NULL, 0), 0);
    if (pull_late(x, false) != MR_OK)
        fail_msg("%s", x->text);
    assert_true(held.late > 0);
    assert_int_equal(ps_reader_open(NULL, x->remote.back, LARGE, &reader, x->text), MR_OK);
    fixture_check(reader, LARGE, MANY_ROWS);
    ps_reader_close(reader);
    (void)ps_store_remove_tree(ps_store_local(), fixture_path(x->remote.back, LARGE, ""), PS_MANIFEST_NAME);
}

/* ---- copies that go on ---- */

static void check_equal(struct fixture *x, uint64_t id, const char *name)
{
    char key[128];
    const char *path = fixture_path(x->remote.here, id, name);
    const uint8_t *there = NULL;
    uint64_t bytes = 0, there_bytes = 0;
    struct ps_store_file *file;
    assert_int_equal(ps_store_local()->open(NULL, path, &file, &bytes), 0);
    uint8_t *here = malloc(bytes);
    assert_non_null(here);
    assert_int_equal(ps_store_read_all(ps_store_local(), file, here, bytes, 0), 0);
    (void)ps_store_local()->close(file);
    (void)snprintf(key, sizeof(key), "%sads/ckpt-%u/%s", x->remote.kind == PS_STORE_S3 ? "" : "/",
                   (unsigned)id, name);
    if (x->remote.kind == PS_STORE_S3) {
        const struct fake_s3_bytes *object = fake_s3_object(&x->remote.s3, key);

        assert_non_null(object);
        there = object->data;
        there_bytes = object->bytes;
    } else {
        const uint32_t i = fake_hdfs_find(&x->remote.hdfs, key);

        assert_true(i < FAKE_HDFS_ENTRIES_MAX);
        there = x->remote.hdfs.entries[i].data;
        there_bytes = x->remote.hdfs.entries[i].bytes;
    }
    assert_int_equal(there_bytes, bytes);
    assert_memory_equal(there, here, bytes);
    free(here);
}

/* LARGE is there, bit by bit, and nothing beside it is left, nor is the record. */
static void check_large(struct fixture *x)
{
    struct ps_copy_record record;
    check_equal(x, LARGE, "core-000.mrc");
    check_equal(x, LARGE, "core-001.mrc");
    check_equal(x, LARGE, PS_MANIFEST_NAME);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-3 ");
    assert_int_equal(fake_s3_upload_count(&x->remote.s3), 0);
    assert_false(ps_copy_record_read(x->remote.here, &record));
}

/* Whole parts of uploads that are not ended. */
static uint64_t bytes_in_parts(const struct fixture *x)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < FAKE_S3_UPLOADS_MAX; i++)
        for (uint32_t p = 0; p < FAKE_S3_PARTS_MAX; p++)
            bytes += x->remote.s3.uploads[i].parts[p].bytes == PART_BYTES ? PART_BYTES : 0;
    return bytes;
}

/* Those, and files of cores. */
static uint64_t bytes_there(const struct fixture *x)
{
    uint64_t bytes = bytes_in_parts(x);
    for (uint32_t i = 0; i < x->remote.s3.object_count; i++)
        bytes += strstr(x->remote.s3.objects[i].key, "core-") ? x->remote.s3.objects[i].content.bytes : 0;
    for (uint32_t i = 0; i < FAKE_HDFS_ENTRIES_MAX; i++)
        bytes += strstr(x->remote.hdfs.entries[i].path, "core-") ? x->remote.hdfs.entries[i].bytes : 0;
    return bytes;
}

static void make_large(struct fixture *x)
{
    for (uint64_t id = 1; id <= LAST; id++)
        (void)ps_store_remove_tree(ps_store_local(), fixture_path(x->remote.here, id, ""), PS_MANIFEST_NAME);
    assert_int_equal(fixture_save(NULL, x->remote.here, LARGE, ROWS).status, MR_OK);
}

/* The store goes away at request `at`, for this process and the next one. */
static enum mr_status interrupt_at(struct fixture *x, enum http_server_fault fault, uint32_t at)
{
    http_server_fail(x->remote.server, fault, at, UINT32_MAX);
    const enum mr_status status = push_with(x, LARGE, true);
    http_server_fail(x->remote.server, fault, 0, 0);
    remote_fixture_reopen(&x->remote, 1);
    return status;
}

/* Nothing is sent again that the store is known to have. Returns false when the copy ended before. */
static bool goes_on_at(struct fixture *x, enum http_server_fault fault, uint32_t at, uint64_t *kept_most)
{
    remote_fixture_clear(&x->remote);
    if (interrupt_at(x, fault, at) == MR_OK)
        return false;
    const uint64_t before = x->copied, there = bytes_there(x), in_parts = bytes_in_parts(x);
    if (push_with(x, LARGE, true) != MR_OK)
        fail_msg("fault %d at request %u: it does not go on: %s", (int)fault, at, x->text);
    const struct ps_copy copy = copy_there(x, true);
    ps_copy_abandon(&copy); /* where the answer to the last request was lost, there is still a record */
    check_large(x);
    if (x->kept + x->copied == 0)
        return true;
    assert_int_equal(x->kept + x->copied, LARGE_BYTES);
    assert_true(x->kept <= there && x->again <= before);
    if (fault == HTTP_FAULT_503) /* all parts that are there were answered */
        assert_true(x->kept >= in_parts);
    *kept_most = x->kept > *kept_most ? x->kept : *kept_most;
    return true;
}

TEST(a_copy_goes_on_at_each_request, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    uint64_t kept_most = 0;
    uint32_t at = 1;
    make_large(x);
    while (goes_on_at(x, HTTP_FAULT_503, at, &kept_most))
        at++;
    assert_int_in_range(at, 8, 60);
    assert_int_equal(kept_most, LARGE_BYTES); /* all but the MANIFEST was there */
    if (x->remote.kind == PS_STORE_S3)        /* uploads that were begun, and nobody knows their names */
        for (at = 3; at <= 6; at++)
            assert_true(goes_on_at(x, HTTP_FAULT_CUT_AFTER, at, &kept_most));
}
TEST_AGAIN(a_copy_goes_on_at_each_request, set_up, tear_down, &remote_s3)

/* A copy whose store went away in the middle: S3 has a part of each file, HDFS may have one file. */
static void interrupt(struct fixture *x)
{
    uint32_t at = 8;
    make_large(x);
    do {
        remote_fixture_clear(&x->remote);
        assert_int_equal(interrupt_at(x, HTTP_FAULT_503, at++), MR_IO_ERROR);
    } while (bytes_there(x) == 0 || (x->remote.kind == PS_STORE_S3 && bytes_in_parts(x) == 0));
}

/* What the store has is not what was sent. */
TEST(what_was_changed_there_is_sent_again, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    interrupt(x);
    for (uint32_t i = 0; i < FAKE_S3_UPLOADS_MAX; i++)
        if (x->remote.s3.uploads[i].parts[0].bytes > 0)
            x->remote.s3.uploads[i].parts[0].data[70000] ^= 1;
    for (uint32_t i = 0; i < x->remote.s3.object_count; i++)
        x->remote.s3.objects[i].content.data[70000] ^= 1;
    for (uint32_t i = 0; i < FAKE_HDFS_ENTRIES_MAX; i++) {
        x->remote.hdfs.entries[i].written += 100;
        if (x->remote.hdfs.entries[i].bytes > 0)
            x->remote.hdfs.entries[i].data[70000] ^= 1;
    }
    if (push_with(x, LARGE, true) != MR_OK)
        fail_msg("%s", x->text);
    assert_int_equal(x->kept, 0);
    assert_true(x->again >= PART_BYTES);
    check_large(x);
}
TEST_AGAIN(what_was_changed_there_is_sent_again, set_up, tear_down, &remote_s3)

/* The blocks that were sent are not those that are read now, though each of them is good. */
TEST(what_was_read_otherwise_is_sent_again, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct ps_copy_record record;
    interrupt(x);
    assert_true(ps_copy_record_read(x->remote.here, &record));
    for (uint32_t core = 0; core < record.file_count; core++)
        record.files[core].hash.low ^= 1;
    ps_copy_record_write(x->remote.here, &record);
    ps_copy_record_clear(&record);
    if (push_with(x, LARGE, true) != MR_OK)
        fail_msg("%s", x->text);
    assert_int_equal(x->copied, LARGE_BYTES);
    check_large(x);
}
TEST_AGAIN(what_was_read_otherwise_is_sent_again, set_up, tear_down, &remote_s3)

/* Without its record a copy starts over, and leaves nothing of the one before. */
TEST(a_copy_without_its_record_begins_anew, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    interrupt(x);
    ps_copy_record_remove(x->remote.here);
    if (push_with(x, LARGE, true) != MR_OK)
        fail_msg("%s", x->text);
    assert_int_equal(x->kept, 0);
    check_large(x);
}
TEST_AGAIN(a_copy_without_its_record_begins_anew, set_up, tear_down, &remote_s3)

static void assert_nothing_there(struct fixture *x)
{
    assert_int_equal(bytes_there(x), 0);
    assert_int_equal(fake_s3_upload_count(&x->remote.s3), 0);
}

TEST(what_nobody_goes_on_with_is_removed, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct ps_copy_record record;
    interrupt(x);
    const struct ps_copy copy = copy_there(x, true);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 1, UINT32_MAX);
    ps_copy_abandon(&copy); /* it cannot be removed, and is not forgotten */
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    assert_true(bytes_there(x) > 0);
    ps_copy_abandon(&copy);
    assert_nothing_there(x);
    assert_false(ps_copy_record_read(x->remote.here, &record));
}
TEST_AGAIN(what_nobody_goes_on_with_is_removed, set_up, tear_down, &remote_s3)

TEST(another_copy_removes_what_is_left_of_one_before, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    interrupt(x);
    (void)ps_store_remove_tree(ps_store_local(), fixture_path(x->remote.here, LARGE, ""), PS_MANIFEST_NAME);
    chain_save_key(x->remote.here, LARGE + 1, 0, 1, 10);
    if (push_with(x, LARGE + 1, true) != MR_OK)
        fail_msg("%s", x->text);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory),
                        "ckpt-4 ");
    assert_int_equal(fake_s3_upload_count(&x->remote.s3), 0);
}
TEST_AGAIN(another_copy_removes_what_is_left_of_one_before, set_up, tear_down, &remote_s3)
