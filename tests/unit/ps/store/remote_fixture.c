#include "remote_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

enum ps_store_kind remote_hdfs = PS_STORE_HDFS, remote_s3 = PS_STORE_S3;

static void open_remote(struct remote_fixture *x, uint32_t tries)
{
    const struct ps_remote_options options = {.tries = tries, .pause_ms_max = 1};
    char text[PS_TEXT_BYTES] = "";
    if (ps_remote_open(x->url, &options, &x->remote, text) != MR_OK)
        fail_msg("%s", text);
}

void remote_fixture_start(struct remote_fixture *x, enum ps_store_kind kind, uint32_t tries)
{
    memset(x, 0, sizeof(*x));
    x->kind = kind;
    (void)setenv("AWS_ACCESS_KEY_ID", FAKE_S3_ACCESS_KEY, 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", FAKE_S3_SECRET_KEY, 1);
    (void)unsetenv("AWS_SESSION_TOKEN");
    (void)unsetenv("MILLRACE_HDFS_TOKEN");
    (void)unsetenv("http_proxy");
    if (kind == PS_STORE_S3)
        x->server = http_server_start(fake_s3_handle, &x->s3);
    else
        x->server = http_server_start(fake_hdfs_handle, &x->hdfs);
    x->hdfs.port = http_server_port(x->server);
    if (kind == PS_STORE_S3)
        (void)snprintf(x->url, sizeof(x->url),
                       "s3://" FAKE_S3_BUCKET "/ads?endpoint=http://127.0.0.1:%u&region=eu-west-1",
                       http_server_port(x->server));
    else
        (void)snprintf(x->url, sizeof(x->url), "hdfs://127.0.0.1:%u/ads?user.name=me",
                       http_server_port(x->server));
    open_remote(x, tries);
}

void remote_fixture_reopen(struct remote_fixture *x, uint32_t tries)
{
    ps_remote_close(x->remote);
    open_remote(x, tries);
}

void remote_fixture_clear(struct remote_fixture *x)
{
    fake_s3_clear(&x->s3);
    fake_hdfs_clear(&x->hdfs);
}

void remote_fixture_make_directories(struct remote_fixture *x)
{
    x->here = temporary_directory_make();
    x->back = temporary_directory_make();
}

int remote_fixture_stop(struct remote_fixture *x)
{
    ps_remote_close(x->remote);
    http_server_stop(x->server);
    remote_fixture_clear(x);
    return x->here == NULL ? 0 : temporary_directory_remove(x->here) + temporary_directory_remove(x->back);
}

int remote_fixture_write(const struct ps_store *store, const char *path, const void *data, size_t bytes)
{
    struct ps_store_file *file;
    int error = store->create(store->self, path, false, &file);
    if (error != 0)
        return error;
    error = ps_store_write_all(store, file, data, bytes, 0);
    if (error == 0)
        error = store->sync(file);
    (void)store->close(file);
    return error;
}

struct names {
    char names[32][64];
    uint32_t count;
};

static void take_name(void *arg, const char *name)
{
    struct names *n = arg;
    assert_true(n->count < 32);
    (void)snprintf(n->names[n->count++], sizeof(n->names[0]), "%s", name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

const char *remote_fixture_names(const struct ps_store *store, const char *directory)
{
    static char all[2048];
    struct names n = {0};
    assert_int_equal(store->list(store->self, directory, take_name, &n), 0);
    qsort(n.names, n.count, sizeof(n.names[0]), compare_names);
    all[0] = '\0';
    for (uint32_t i = 0; i < n.count; i++) {
        const size_t at = strlen(all);
        (void)snprintf(all + at, sizeof(all) - at, "%s ", n.names[i]);
    }
    return all;
}
