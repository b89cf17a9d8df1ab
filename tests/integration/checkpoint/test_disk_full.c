/* The file system of the checkpoints is full: a save fails with a line that says so, training goes on, the
 * older checkpoint stays whole, and once there is room the next save succeeds. In a mount namespace of the
 * test's own. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { DIM = 32, FEW_KEYS = 100, MANY_KEYS = 100000, CHUNK = 10000 }; /* 13 MB and their state */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table;
};

static void expect_ok(enum mr_status status)
{
    if (status != MR_OK)
        fail_msg("%s: %s", mr_status_name(status), mr_last_error());
}

static void look_up(struct fixture *x, uint64_t first, uint64_t end)
{
    static uint64_t keys[CHUNK];
    while (first < end) {
        uint32_t count = 0;
        while (count < CHUNK && first < end)
            keys[count++] = ++first;
        expect_ok(mr_lookup(x->client, NULL, x->table, keys, count, NULL));
    }
}

/* To row 1; its first value then. */
static float disk_full_push(struct fixture *x)
{
    static const float gradient[DIM] = {-1};
    const uint64_t key = 1;
    struct mr_reply *reply;
    expect_ok(mr_push_gradients(x->client, NULL, x->table, &key, 1, DIM, gradient));
    expect_ok(mr_lookup(x->client, NULL, x->table, &key, 1, &reply));
    const float value = *(const float *)mr_reply_tensor(reply, 0)->data;
    mr_reply_free(reply);
    return value;
}

static void disk_full_save(struct fixture *x, struct mr_checkpoint_info *status)
{
    uint64_t id;
    *status = (struct mr_checkpoint_info){.bytes = sizeof(*status)};
    status->last_status = save_into(x->client, NULL, NULL, &id);
    if (status->last_status != MR_OK) { /* no room even to begin */
        snprintf(status->last_error, sizeof(status->last_error), "%s", mr_last_error());
        return;
    }
    WAIT_UNTIL(expect_ok(mr_checkpoint_info(x->client, NULL, 0, status, NULL, NULL)),
               status->state == MR_CHECKPOINT_IDLE);
}

static void mount_small(const struct fixture *x, const char *options, unsigned long flags)
{
    if (mount("none", x->node.checkpoints, "tmpfs", flags, options) != 0)
        fail_msg("mount: %m");
}

TEST(test_full)
{
    static struct fixture x;
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    struct mr_feature feature = mr_feature_table("rows", DIM);
    uint64_t id;
    node_fixture_start(&x.node, 2, NULL);
    assert_true(mkdir(x.node.checkpoints, 0755) == 0 || errno == EEXIST);
    mount_small(&x, "size=6m", 0);
    x.client = node_fixture_connect(&x.node);
    feature.learning_rate = 1;
    expect_ok(mr_create(x.client, NULL, &feature, 1, &x.table));
    look_up(&x, 0, FEW_KEYS);
    assert_true(disk_full_push(&x) == 1);
    disk_full_save(&x, &status);
    assert_int_equal(status.last_status, MR_OK);

    look_up(&x, FEW_KEYS, MANY_KEYS);
    assert_true(disk_full_push(&x) == 2);
    for (uint32_t i = 0; i < 3; i++) {
        disk_full_save(&x, &status);
        assert_int_equal(status.last_status, MR_IO_ERROR);
        if (strstr(status.last_error, "No space left on device") == NULL)
            fail_msg("\"%s\" does not say what is wrong", status.last_error);
        assert_true(disk_full_push(&x) == 3 + (float)i);
    }
    mount_small(&x, "size=200m", MS_REMOUNT);
    disk_full_save(&x, &status);
    assert_int_equal(status.last_status, MR_OK);
    assert_int_equal(status.last_good_id, 2);

    expect_ok(restore_from(x.client, NULL, NULL, 1, &id));
    assert_true(disk_full_push(&x) == 2);
    expect_ok(restore_from(x.client, NULL, NULL, 2, &id));
    assert_true(disk_full_push(&x) == 6);
    mr_client_destroy(x.client);
    assert_int_equal(umount2(x.node.checkpoints, MNT_DETACH), 0);
    node_fixture_stop(&x.node);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fputs("usage: test_disk_full MILLRACED\n", stderr);
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        perror("a mount namespace");
        return NETNS_SKIP;
    }
    return tests_run(NULL, NULL);
}
