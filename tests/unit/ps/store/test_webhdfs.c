/* What only HDFS has: redirects to DataNodes, tokens, and errors in JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/state_file.h"
#include "remote_fixture.h"
#include "tests/test.h"

static int set_up(void **state)
{
    static struct remote_fixture x;
    remote_fixture_start(&x, PS_STORE_HDFS, 2);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    return remote_fixture_stop(*state);
}

static const char *file_of(const struct remote_fixture *x)
{
    static char path[PS_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/file", x->remote->directory);
    return path;
}

TEST(requests_name_the_user_or_have_a_token, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    assert_int_equal(x->remote->store.make_directory(x->remote->store.self, x->remote->directory), 0);
    assert_non_null(strstr(x->hdfs.last_query, "&user.name=me"));
    (void)setenv("MILLRACE_HDFS_TOKEN", "se/cret", 1);
    remote_fixture_reopen(x, 2);
    (void)ps_store_look(&x->remote->store, x->remote->directory);
    assert_non_null(strstr(x->hdfs.last_query, "&delegation=se%2Fcret"));
    assert_null(strstr(x->hdfs.last_query, "user.name"));
}

/* HDFS closes a file whose writer is gone with what has come: it must not be taken for the whole. */
TEST(a_file_that_lost_bytes_is_an_error, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    x->hdfs.lost = 1;
    assert_int_equal(remote_fixture_write(&x->remote->store, file_of(x), "0123456789", 10), -EIO);
    assert_non_null(strstr(ps_store_explanation(EIO), "9 of its 10 bytes"));
}

/* At each request, in each way: a stream is never sent again, so the write may fail; written again it is
 * right. */
TEST(a_write_fails_or_is_whole, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    uint32_t failed = 0;
    for (uint32_t fault = HTTP_FAULT_503; fault <= HTTP_FAULT_CUT_ANSWER; fault++) {
        for (uint32_t at = 1; at <= 3; at++) { /* where to, the bytes, how many there are */
            http_server_fail(x->server, fault, at, at);
            if (remote_fixture_write(s, file_of(x), "0123456789", 10) != 0) {
                failed++;
                assert_int_equal(remote_fixture_write(s, file_of(x), "0123456789", 10), 0);
            }
            const uint32_t i = fake_hdfs_find(&x->hdfs, "/ads/file");

            assert_true(i < FAKE_HDFS_ENTRIES_MAX);
            assert_int_equal(x->hdfs.entries[i].bytes, 10);
            assert_memory_equal(x->hdfs.entries[i].data, "0123456789", 10);
        }
    }
    assert_int_equal(failed, 4); /* each fault of a stream */
}

/* The NameNode does not know it yet, and is asked again; by a reader, too. */
/* An outage in which one replacement ends before its rename, and the next one in the middle of its write. */
TEST(a_file_is_replaced_in_two_broken_tries, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    char error[PS_TEXT_BYTES] = "", text[64];
    const char *directory = x->remote->directory;
    bool is_there = false;
    assert_int_equal(ps_state_file_write(s, directory, "history", "one\n", error, sizeof(error)), MR_OK);
    for (uint32_t cut = 1; fake_hdfs_find(&x->hdfs, "/ads/history") != FAKE_HDFS_ENTRIES_MAX; cut++) {
        http_server_fail(x->server, HTTP_FAULT_CUT_BEFORE, cut, UINT32_MAX);
        assert_int_equal(ps_state_file_write(s, directory, "history", "two\n", error, sizeof(error)),
                         MR_IO_ERROR);
    }
    http_server_fail(x->server, HTTP_FAULT_503, 0, 0);
    x->hdfs.lost = 2;
    assert_int_equal(ps_state_file_write(s, directory, "history", "three\n", error, sizeof(error)),
                     MR_IO_ERROR);
    assert_int_equal(
        ps_state_file_read(s, directory, "history", text, sizeof(text), &is_there, error, sizeof(error)),
        MR_OK);
    assert_true(is_there);
    assert_string_equal(text, "two\n");
}

TEST(another_datanode_is_asked_when_one_is_dead, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    struct ps_store_file *file;
    uint64_t bytes;
    char got[11] = "";
    assert_int_equal(remote_fixture_write(s, file_of(x), "0123456789", 10), 0);
    assert_int_equal(s->open(s->self, file_of(x), &file, &bytes), 0);
    x->hdfs.dead = 1;
    assert_int_equal(ps_store_read_all(s, file, got, 10, 0), 0);
    assert_string_equal(got, "0123456789");
    x->hdfs.dead = 5; /* it is known by now, and is not tried: two tries would be in vain */
    assert_int_equal(ps_store_read_all(s, file, got, 5, 5), 0);
    assert_memory_equal(got, "56789", 5);
    assert_int_equal(x->hdfs.dead, 0);
    assert_int_equal(s->close(file), 0);
    remote_fixture_reopen(x, 2);
    s = &x->remote->store;
    x->hdfs.dead = 1;
    assert_int_equal(remote_fixture_write(s, file_of(x), "0123456789", 10), 0);
    x->hdfs.dead = UINT32_MAX;
    assert_int_equal(remote_fixture_write(s, file_of(x), "x", 1), -ECONNREFUSED);
    const char *text = ps_store_explanation(ECONNREFUSED);
    assert_non_null(text);
    assert_non_null(strstr(text, "DataNode http://127.0.0.1:1: "));
    x->hdfs.dead = 0;
    assert_int_equal(remote_fixture_write(s, file_of(x), "x", 1), 0);
}

/* DataNodes often are called by names of their own network. */
TEST(a_datanode_without_an_address_is_named, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    const struct ps_store *s = &x->remote->store;
    struct ps_store_file *file;
    char place[64], byte;
    uint64_t bytes;
    (void)snprintf(place, sizeof(place), "http://dn1.invalid:%u,", x->hdfs.port);
    assert_int_equal(remote_fixture_write(s, file_of(x), "x", 1), 0);
    x->hdfs.datanode = "dn1.invalid";
    for (uint32_t i = 0; i < 2; i++) {
        if (i == 0)
            assert_int_equal(remote_fixture_write(s, file_of(x), "x", 1), -EHOSTUNREACH);
        else
            assert_int_equal(ps_store_read_all(s, file, &byte, 1, 0), -EHOSTUNREACH);
        const char *text = ps_store_explanation(EHOSTUNREACH);
        assert_non_null(text);
        if (!strstr(text, place) || !strstr(text, "/etc/hosts") || !strstr(text, "HttpFS"))
            fail_msg("%s", text);
        if (i == 0) /* for the second time around */
            assert_int_equal(s->open(s->self, file_of(x), &file, &bytes), 0);
    }
    assert_int_equal(s->close(file), 0);
}

TEST(errors_say_what_to_do, set_up, tear_down)
{
    static const struct {
        const char *exception, *says;
        int status, error;
    } errors[] = {
        {"SafeModeException", "hdfs dfsadmin -safemode get", 403, EROFS},
        {"StandbyException", "name the active one", 403, EHOSTDOWN},
        {"AccessControlException", "the right to write", 403, EACCES},
        {"SecurityException", "auth=negotiate", 401, EACCES},
        {"InvalidToken", "has expired", 403, EACCES},
        {"DSQuotaExceededException", "space quota", 403, EDQUOT},
        {"FileNotFoundException", "no such file", 404, ENOENT},
        {"UnheardException", "UnheardException: no", 400, EIO},
    };
    struct remote_fixture *x = *state;
    struct ps_store_file *file;
    uint64_t bytes;

    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        x->hdfs.exception = errors[i].exception;
        x->hdfs.exception_status = errors[i].status;
        assert_int_equal(x->remote->store.open(x->remote->store.self, file_of(x), &file, &bytes),
                         -errors[i].error);
        const char *text = ps_store_explanation(errors[i].error);

        if (!text || !strstr(text, errors[i].says) || strchr(text, '\n'))
            fail_msg("%s: \"%s\"", errors[i].exception, text ? text : "");
    }
}

static void answer_with_nothing(void *arg, const struct http_server_request *r, struct http_server_answer *a)
{
    (void)arg, (void)r;
    http_server_say(a, 200, "{}");
}

/* A node that took it for an empty directory would start without what it has learnt. */
TEST(an_answer_that_says_nothing_is_an_error, set_up, tear_down)
{
    struct remote_fixture *x = *state;
    struct http_server *server = http_server_start(answer_with_nothing, NULL);
    const struct ps_remote_options options = {.tries = 1};
    struct ps_remote *remote;
    uint64_t ids[1];
    uint32_t count;
    char url[64], text[PS_TEXT_BYTES];
    (void)snprintf(url, sizeof(url), "hdfs://127.0.0.1:%u/ads", http_server_port(server));
    assert_int_equal(ps_remote_open(url, &options, &remote, text), MR_OK);
    assert_int_equal(ps_checkpoint_list_all(&remote->store, remote->directory, ids, 1, &count), -EPROTO);
    assert_int_equal(ps_store_look(&remote->store, remote->directory), -EPROTO);
    ps_remote_close(remote);
    http_server_stop(server);
    assert_non_null(x->remote);
}

static void answer_with_html(void *arg, const struct http_server_request *r, struct http_server_answer *a)
{
    (void)r;
    http_server_say(a, *(const int *)arg, "<html>Welcome</html>");
}

TEST(what_is_not_webhdfs_is_recognised, set_up, tear_down)
{
    static int statuses[] = {200, 404};
    struct remote_fixture *x = *state;
    const struct ps_remote_options options = {.tries = 1};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
        struct http_server *server = http_server_start(answer_with_html, &statuses[i]);
        struct ps_remote *remote;
        struct ps_store_file *file;
        char url[64], text[PS_TEXT_BYTES];
        uint64_t bytes;
        (void)snprintf(url, sizeof(url), "hdfs://127.0.0.1:%u/ads", http_server_port(server));
        assert_int_equal(ps_remote_open(url, &options, &remote, text), MR_OK);
        assert_int_equal(remote->store.open(remote->store.self, url, &file, &bytes), -EPROTO);
        assert_non_null(strstr(ps_store_explanation(EPROTO), "WebHDFS"));
        ps_remote_close(remote);
        http_server_stop(server);
    }
    assert_non_null(x->remote);
}
