/* Requests that ZooKeeper's library answers, at once or late, refuses, or forgets. */
#include <string.h>
#include "ps/cluster/zookeeper_calls.h"
#include "tests/test.h"

#define SHORT_US 1000u

static int taken;      /* what the library says when it is to send a request */
static bool is_silent; /* it forgets it */
static int answer;     /* or answers it with this */
static stat_completion_t forgotten;
static const void *forgotten_data;
static struct ps_zookeeper_link zk_link;
static struct Stat one_stat = {.version = 7};
static struct ps_zookeeper_new folder_and_entry[2];

int __wrap_zoo_amulti(zhandle_t *h, int count, const zoo_op_t *ops, zoo_op_result_t *results,
                      void_completion_t completion, const void *data);
int __wrap_zoo_aset(zhandle_t *h, const char *path, const char *value, int bytes, int version,
                    stat_completion_t completion, const void *data);
int __wrap_zoo_awget(zhandle_t *h, const char *path, watcher_fn watch, void *context,
                     data_completion_t completion, const void *data);
int __wrap_zoo_awexists(zhandle_t *h, const char *path, watcher_fn watch, void *context,
                        stat_completion_t completion, const void *data);
int __wrap_zoo_awget_children(zhandle_t *h, const char *path, watcher_fn watch, void *context,
                              strings_completion_t completion, const void *data);

int __wrap_zoo_amulti(zhandle_t *h, int count, const zoo_op_t *ops, zoo_op_result_t *results,
                      void_completion_t completion, const void *data)
{
    assert_int_equal(count, 2);
    assert_string_equal(ops[0].create_op.path, "/f");
    assert_string_equal(ops[1].create_op.path, "/f/e");
    assert_string_equal(ops[1].create_op.data, "v");
    assert_int_equal(ops[1].create_op.datalen, 1);
    assert_int_equal(ops[1].create_op.flags, ZOO_EPHEMERAL);
    memset(results, 0, (size_t)count * sizeof(*results));
    if (taken == ZOK)
        completion(answer, data);
    return taken;
}

int __wrap_zoo_aset(zhandle_t *h, const char *path, const char *value, int bytes, int version,
                    stat_completion_t completion, const void *data)
{
    assert_int_equal(bytes, (int)strlen(value));
    if (taken == ZOK && !is_silent)
        completion(answer, &one_stat, data);
    forgotten = completion;
    forgotten_data = data;
    return taken;
}

int __wrap_zoo_awget(zhandle_t *h, const char *path, watcher_fn watch, void *context,
                     data_completion_t completion, const void *data)
{
    if (taken == ZOK)
        completion(answer, "value", 5, &one_stat, data);
    return taken;
}

int __wrap_zoo_awexists(zhandle_t *h, const char *path, watcher_fn watch, void *context,
                        stat_completion_t completion, const void *data)
{
    if (taken == ZOK)
        completion(answer, &one_stat, data);
    return taken;
}

int __wrap_zoo_awget_children(zhandle_t *h, const char *path, watcher_fn watch, void *context,
                              strings_completion_t completion, const void *data)
{
    char a[] = "a", b[] = "b";
    char *both[] = {a, b};
    const struct String_vector names = {.count = 2, .data = both};
    if (taken == ZOK)
        completion(answer, answer == ZOK ? &names : NULL, data);
    return taken;
}

static int link_begin(void **state)
{
    taken = answer = ZOK;
    is_silent = false;
    zk_link = (struct ps_zookeeper_link){.limit_us = SHORT_US};
    folder_and_entry[0] = (struct ps_zookeeper_new){"/f", "", &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT};
    folder_and_entry[1] = (struct ps_zookeeper_new){"/f/e", "v", &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL};
    return 0;
}

TEST(answers_are_passed_on, link_begin)
{
    char buffer[3] = "";
    int bytes = sizeof(buffer);
    struct Stat stat = {0};
    struct String_vector names;
    zk_link.limit_us = UINT64_C(60000000);
    assert_int_equal(ps_zookeeper_create(&zk_link, folder_and_entry, 2), ZOK);
    assert_int_equal(ps_zookeeper_set(&zk_link, "/p", "v", -1), ZOK);
    assert_int_equal(ps_zookeeper_get(&zk_link, "/p", NULL, NULL, buffer, &bytes, &stat), ZOK);
    assert_int_equal(bytes, 3); /* what the buffer holds */
    assert_memory_equal(buffer, "val", 3);
    assert_int_equal(stat.version, 7);
    stat.version = 0;
    assert_int_equal(ps_zookeeper_exists(&zk_link, "/p", NULL, NULL, &stat), ZOK);
    assert_int_equal(stat.version, 7);
    assert_int_equal(ps_zookeeper_children(&zk_link, "/p", NULL, NULL, &names), ZOK);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.data[1], "b");
    (void)deallocate_String_vector(&names);
}

TEST(errors_are_passed_on, link_begin)
{
    char buffer[3];
    int bytes = sizeof(buffer);
    struct Stat stat;
    struct String_vector names;
    zk_link.limit_us = UINT64_C(60000000);
    answer = ZNONODE;
    for (int refused = 0; refused < 2; refused++) { /* by the server, and by the library */
        assert_int_equal(ps_zookeeper_create(&zk_link, folder_and_entry, 2), ZNONODE);
        assert_int_equal(ps_zookeeper_set(&zk_link, "/p", "v", -1), ZNONODE);
        assert_int_equal(ps_zookeeper_get(&zk_link, "/p", NULL, NULL, buffer, &bytes, &stat), ZNONODE);
        assert_int_equal(ps_zookeeper_exists(&zk_link, "/p", NULL, NULL, &stat), ZNONODE);
        assert_int_equal(ps_zookeeper_children(&zk_link, "/p", NULL, NULL, &names), ZNONODE);
        taken = ZNONODE;
    }
    assert_false(zk_link.hangs);
}

/* The session ended between the library's look at it and the queue. */
TEST(a_request_that_is_forgotten_ends, link_begin)
{
    struct Stat stat;
    is_silent = true;
    assert_int_equal(ps_zookeeper_set(&zk_link, "/p", "v", -1), PS_ZOOKEEPER_HANGS);
    assert_true(zk_link.hangs);
    assert_int_equal(ps_zookeeper_exists(&zk_link, "/p", NULL, NULL, &stat),
                     PS_ZOOKEEPER_HANGS);      /* at once */
    forgotten(ZCLOSING, NULL, forgotten_data); /* as the handle is closed; frees the request */
}
