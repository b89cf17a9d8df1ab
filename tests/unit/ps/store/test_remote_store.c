/* What both stores of other machines do alike: the life of a checkpoint's files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/state_file.h"
#include "remote_fixture.h"
#include "tests/test.h"

enum { FILE_BYTES = 300000 };

static uint8_t content[FILE_BYTES];

static int set_up(void **state)
{
    static struct remote_fixture x;
    remote_fixture_start(&x, *(const enum ps_store_kind *)*state, 2);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)(i * i >> 7);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    return remote_fixture_stop(*state);
}

/* A path below the directory, in one of a few static buffers. */
static const char *path_of(const struct remote_fixture *x, const char *name)
{
    static char paths[4][PS_PATH_BYTES];
    static uint32_t next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, PS_PATH_BYTES, "%s/%s", x->remote->directory, name);
    return path;
}

static void remote_store_save(struct remote_fixture *x, uint32_t id)
{
    const struct ps_store *s = &x->remote->store;
    char from[64], to[64], name[96];
    (void)snprintf(from, sizeof(from), ".tmp-ckpt-%u", id);
    (void)snprintf(to, sizeof(to), "ckpt-%u", id);
    assert_int_equal(s->make_directory(s->self, path_of(x, from)), 0);
    (void)snprintf(name, sizeof(name), "%s/core-000.mrc", from);
    assert_int_equal(remote_fixture_write(s, path_of(x, name), content, FILE_BYTES), 0);
    (void)snprintf(name, sizeof(name), "%s/core-001.mrc", from);
    assert_int_equal(remote_fixture_write(s, path_of(x, name), content, 0), 0);
    (void)snprintf(name, sizeof(name), "%s/MANIFEST", from);
    assert_int_equal(remote_fixture_write(s, path_of(x, name), "{}", 2), 0);
    assert_int_equal(s->rename(s->self, path_of(x, from), path_of(x, to)), 0);
}

TEST(a_checkpoint_is_there_once_it_is_published, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    struct ps_store_file *file;
    uint64_t bytes;
    assert_int_equal(s->make_directory(s->self, x->remote->directory), 0);
    assert_int_equal(s->make_directory(s->self, path_of(x, ".tmp-ckpt-7")), 0);
    assert_int_equal(remote_fixture_write(s, path_of(x, ".tmp-ckpt-7/core-000.mrc"), content, FILE_BYTES), 0);
    assert_int_equal(remote_fixture_write(s, path_of(x, ".tmp-ckpt-7/MANIFEST"), "{}", 2), 0);
    assert_string_equal(remote_fixture_names(s, x->remote->directory), ".tmp-ckpt-7 ");
    assert_int_equal(s->open(s->self, path_of(x, "ckpt-7/MANIFEST"), &file, &bytes), -ENOENT);
    assert_int_equal(s->rename(s->self, path_of(x, ".tmp-ckpt-7"), path_of(x, "ckpt-7")), 0);
    assert_string_equal(remote_fixture_names(s, x->remote->directory), "ckpt-7 ");
    assert_string_equal(remote_fixture_names(s, path_of(x, "ckpt-7")), "MANIFEST core-000.mrc ");
    assert_int_equal(s->make_directory(s->self, path_of(x, "ckpt-7")), -EEXIST);
    assert_int_equal(ps_store_look(s, path_of(x, "ckpt-7")), 0);
    assert_int_equal(ps_store_look(s, path_of(x, "ckpt-8")), -ENOENT);
}
TEST_AGAIN(a_checkpoint_is_there_once_it_is_published, set_up, tear_down, &remote_s3)

TEST(ranges_are_read, set_up, tear_down, &remote_hdfs)
{
    static uint8_t got[FILE_BYTES];
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    struct ps_store_file *file;
    uint64_t bytes;
    int64_t written_s;
    remote_store_save(x, 3);
    assert_int_equal(s->facts(s->self, path_of(x, "ckpt-3/core-000.mrc"), &bytes, &written_s), 0);
    assert_int_equal(bytes, FILE_BYTES);
    assert_int_equal(written_s, 100);
    assert_int_equal(s->open(s->self, path_of(x, "ckpt-3/core-000.mrc"), &file, &bytes), 0);
    assert_int_equal(bytes, FILE_BYTES);
    assert_int_equal(ps_store_read_all(s, file, got, 1000, 4096), 0);
    assert_memory_equal(got, content + 4096, 1000);
    assert_int_equal(ps_store_read_all(s, file, got, FILE_BYTES, 0), 0);
    assert_memory_equal(got, content, FILE_BYTES);
    assert_int_equal(s->close(file), 0);
    assert_int_equal(s->open(s->self, path_of(x, "ckpt-3/core-001.mrc"), &file, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(s->close(file), 0);
}
TEST_AGAIN(ranges_are_read, set_up, tear_down, &remote_s3)

/* More checkpoints than a page of a listing has. */
TEST(all_checkpoints_are_listed_and_removed, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    for (uint32_t id = 1; id <= 5; id++)
        remote_store_save(x, id);
    assert_string_equal(remote_fixture_names(s, x->remote->directory), "ckpt-1 ckpt-2 ckpt-3 ckpt-4 ckpt-5 ");
    assert_int_equal(s->rename(s->self, path_of(x, "ckpt-2"), path_of(x, ".tmp-ckpt-2")), 0);
    assert_string_equal(remote_fixture_names(s, x->remote->directory),
                        ".tmp-ckpt-2 ckpt-1 ckpt-3 ckpt-4 ckpt-5 ");
    (void)ps_store_remove_tree(s, path_of(x, ".tmp-ckpt-2"), PS_MANIFEST_NAME);
    assert_string_equal(remote_fixture_names(s, x->remote->directory), "ckpt-1 ckpt-3 ckpt-4 ckpt-5 ");
}
TEST_AGAIN(all_checkpoints_are_listed_and_removed, set_up, tear_down, &remote_s3)

/* In S3 both names have the same keys. */
TEST(a_published_one_is_not_removed_by_its_temporary_name, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    remote_store_save(x, 4);
    assert_int_not_equal(ps_store_remove_tree(s, path_of(x, ".tmp-ckpt-4"), PS_MANIFEST_NAME), 0);
    assert_string_equal(remote_fixture_names(s, path_of(x, "ckpt-4")), "MANIFEST core-000.mrc core-001.mrc ");
}
TEST_AGAIN(a_published_one_is_not_removed_by_its_temporary_name, set_up, tear_down, &remote_s3)

/* A file that must be new, as CLUSTER: the first writer's stays. */
TEST(a_new_file_is_not_replaced, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    char path[PS_PATH_BYTES], other[PS_PATH_BYTES], bytes[8] = "";
    struct ps_store_file *file;
    uint64_t file_bytes;
    assert_int_equal(x->remote->store.make_directory(x->remote->store.self, x->remote->directory), 0);
    for (uint32_t knows_none = 0; knows_none < 2; knows_none++) {
        const struct ps_store *s = &x->remote->store;
        x->s3.knows_no_conditions = knows_none;
        assert_true(ps_path_join(x->remote->directory, knows_none ? "two" : "one", path));
        assert_true(ps_path_join(x->remote->directory, knows_none ? "two.next" : "one.next", other));
        assert_int_equal(ps_store_write_new(s, other, "half", 4), 0); /* another writer is at work */
        assert_int_equal(ps_store_put_new(s, path, "first", 5), 0);
        assert_int_equal(ps_store_put_new(s, path, "other", 5), -EEXIST);
        assert_int_equal(s->open(s->self, path, &file, &file_bytes), 0);
        assert_int_equal(file_bytes, 5);
        assert_int_equal(ps_store_read_all(s, file, bytes, 5, 0), 0);
        assert_string_equal(bytes, "first");
        (void)s->close(file);
    }
    assert_string_equal(remote_fixture_names(&x->remote->store, x->remote->directory),
                        "one one.next two two.next ");
}
TEST_AGAIN(a_new_file_is_not_replaced, set_up, tear_down, &remote_s3)

TEST(a_published_one_is_not_replaced, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    struct ps_store_file *file;
    uint64_t bytes;
    char got[3] = "";
    remote_store_save(x, 5);
    remote_fixture_reopen(x, 2);
    const struct ps_store *s = &x->remote->store;

    if (x->kind == PS_STORE_S3)
        assert_int_equal(s->make_directory(s->self, path_of(x, ".tmp-ckpt-5")), -EEXIST);
    else
        assert_int_equal(s->make_directory(s->self, path_of(x, ".tmp-ckpt-5")), 0);
    assert_int_equal(remote_fixture_write(s, path_of(x, ".tmp-ckpt-5/MANIFEST"), "[]", 2), 0);
    assert_int_equal(s->rename(s->self, path_of(x, ".tmp-ckpt-5"), path_of(x, "ckpt-5")), -EEXIST);
    assert_int_equal(s->open(s->self, path_of(x, "ckpt-5/MANIFEST"), &file, &bytes), 0);
    assert_int_equal(ps_store_read_all(s, file, got, 2, 0), 0);
    assert_string_equal(got, "{}");
    assert_int_equal(s->close(file), 0);
}
TEST_AGAIN(a_published_one_is_not_replaced, set_up, tear_down, &remote_s3)

/* A rename whose answer is lost has been done: the next try finds it so. */
TEST(publishing_is_done_once, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    const uint32_t publishing =
        x->kind == PS_STORE_S3 ? 1 : 2; /* HDFS looks first whether the name is taken */
    assert_int_equal(s->make_directory(s->self, path_of(x, ".tmp-ckpt-6")), 0);
    assert_int_equal(remote_fixture_write(s, path_of(x, ".tmp-ckpt-6/core-000.mrc"), content, 10), 0);
    assert_int_equal(remote_fixture_write(s, path_of(x, ".tmp-ckpt-6/MANIFEST"), "{}", 2), 0);
    http_server_fail(x->server, HTTP_FAULT_CUT_ANSWER, publishing, publishing);
    assert_int_equal(s->rename(s->self, path_of(x, ".tmp-ckpt-6"), path_of(x, "ckpt-6")), 0);
    assert_string_equal(remote_fixture_names(s, x->remote->directory), "ckpt-6 ");
}
TEST_AGAIN(publishing_is_done_once, set_up, tear_down, &remote_s3)

TEST(a_file_that_is_not_synced_is_not_there, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    struct ps_store_file *file;
    uint64_t bytes;
    assert_int_equal(s->make_directory(s->self, path_of(x, ".tmp-ckpt-8")), 0);
    assert_int_equal(s->create(s->self, path_of(x, ".tmp-ckpt-8/core-000.mrc"), false, &file), 0);
    assert_int_equal(ps_store_write_all(s, file, content, FILE_BYTES, 0), 0);
    assert_int_equal(s->write(file, content, 1, 5), -ESPIPE);
    (void)s->close(file);
    assert_int_equal(s->open(s->self, path_of(x, ".tmp-ckpt-8/core-000.mrc"), &file, &bytes), -ENOENT);
}
TEST_AGAIN(a_file_that_is_not_synced_is_not_there, set_up, tear_down, &remote_s3)

TEST(a_wrong_url_is_refused, set_up, tear_down, &remote_hdfs)
{
    const struct ps_remote_options options = {0};
    struct remote_fixture *x = *state;
    struct ps_remote *remote = NULL;
    char text[PS_TEXT_BYTES];
    assert_int_equal(ps_remote_open("ftp://x", &options, &remote, text), MR_INVALID_ARGUMENT);
    assert_int_equal(ps_remote_open("/data/ckpt", &options, &remote, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "/data/ckpt"));
    (void)setenv("AWS_SECRET_ACCESS_KEY", "", 1);
    if (x->kind == PS_STORE_S3) {
        assert_int_equal(ps_remote_open(x->url, &options, &remote, text), MR_INVALID_ARGUMENT);
        assert_non_null(strstr(text, "there are no credentials"));
    }
    assert_null(remote);
}
TEST_AGAIN(a_wrong_url_is_refused, set_up, tear_down, &remote_s3)

static void check_state(const struct remote_fixture *x, const char *expected)
{
    char text[64], error[PS_TEXT_BYTES] = "";
    bool is_there;
    if (ps_state_file_read(&x->remote->store, x->remote->directory, "history", text, sizeof(text), &is_there,
                           error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    assert_true(is_there == (expected != NULL));
    if (expected)
        assert_string_equal(text, expected);
}

/* Cut at each of its requests, a file that replaces another one leaves the one or the other. */
TEST(a_state_file_is_the_old_one_or_the_new_one, set_up, tear_down, &remote_hdfs)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    char error[PS_TEXT_BYTES] = "", text[64], long_text[256];
    bool is_there = true;
    enum mr_status status = MR_IO_ERROR;
    check_state(x, NULL);
    assert_int_equal(ps_state_directory(s, x->remote->directory, error, sizeof(error)), MR_OK);
    assert_int_equal(ps_state_file_write(s, x->remote->directory, "history", "one\n", error, sizeof(error)),
                     MR_OK);
    check_state(x, "one\n");
    uint32_t cut = 1;
    for (; status != MR_OK; cut++) {
        http_server_fail(x->server, HTTP_FAULT_CUT_BEFORE, cut, UINT32_MAX);
        status = ps_state_file_write(s, x->remote->directory, "history", "two\n", error, sizeof(error));
        http_server_fail(x->server, HTTP_FAULT_503, 0, 0);
        assert_int_equal(ps_state_file_read(s, x->remote->directory, "history", text, sizeof(text), &is_there,
                                            error, sizeof(error)),
                         MR_OK);
        assert_true(is_there && (strcmp(text, "one\n") == 0 || strcmp(text, "two\n") == 0));
    }
    assert_true(cut > 2);
    check_state(x, "two\n");
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    assert_int_equal(ps_state_file_write(s, x->remote->directory, "history", long_text, error, sizeof(error)),
                     MR_OK);
    assert_int_equal(ps_state_file_read(s, x->remote->directory, "history", text, sizeof(text), &is_there,
                                        error, sizeof(error)),
                     MR_IO_ERROR);
    assert_non_null(strstr(error, "longer than such a file can be"));
}
TEST_AGAIN(a_state_file_is_the_old_one_or_the_new_one, set_up, tear_down, &remote_s3)
