/* What systemd is told of a node, and when a thread is taken to hang. */
#include <stdio.h>
#include <string.h>
#include "ps/server/watch.h"
#include "tests/test.h"

static struct ps_node node;
static struct ps_checkpoint_view view;

static int set_up(void **state)
{
    memset(&node, 0, sizeof(node));
    memset(&view, 0, sizeof(view));
    atomic_store(&node.state, MR_NODE_SERVING);
    return 0;
}

static void says(enum ps_watch_phase phase, const char *text)
{
    char out[PS_WATCH_STATUS_BYTES];
    ps_watch_describe(phase, &node, &view, out);
    assert_string_equal(out, text);
}

TEST(a_node_says_what_it_does, set_up)
{
    says(PS_WATCH_STARTING, "starting");
    says(PS_WATCH_READY, "serving");
    says(PS_WATCH_STOPPING, "stopping");
    view = (struct ps_checkpoint_view){.state = PS_VIEW_SAVING, .id = 7};
    says(PS_WATCH_READY, "serving, saving checkpoint 7");
    view.bytes_total = 1000;
    view.bytes_done = 409;
    says(PS_WATCH_READY, "serving, saving checkpoint 7: 40 %");
    says(PS_WATCH_STOPPING, "stopping, saving checkpoint 7: 40 %");
    view.bytes_done = UINT64_MAX; /* more than it was thought to be */
    view.state = PS_VIEW_LOADING;
    says(PS_WATCH_STARTING, "starting, restoring checkpoint 7: 100 %");
}

TEST(nodes_that_do_not_train_say_so, set_up)
{
    node.is_read_only = true;
    snprintf(node.serves, sizeof(node.serves), "checkpoint 3 of /a");
    says(PS_WATCH_READY, "serving read only: checkpoint 3 of /a");
    node.is_read_only = false;
    atomic_store(&node.state, MR_NODE_RESTORING);
    says(PS_WATCH_READY, "not serving");
    node.is_member = true;
    says(PS_WATCH_READY, "waiting for the cluster");
    ps_node_fail(&node, "its part is missing");
    says(PS_WATCH_READY, "serving nothing: its part is missing");
}

TEST(a_thread_that_turns_is_alive)
{
    struct ps_watched t = {0};
    assert_true(ps_watched_moved(&t, 0, 1000)); /* seen for the first time */
    assert_false(ps_watched_moved(&t, 0, 2000));
    assert_true(ps_watched_moved(&t, 1, 3000));
    assert_true(ps_watched_moved(&t, 5, 4000));
    assert_false(ps_watched_moved(&t, 5, 5000));
}

/* Once, until it goes on and hangs again. */
TEST(a_thread_that_hangs_is_told_once)
{
    struct ps_watched t = {0};
    (void)ps_watched_moved(&t, 9, 1000);
    assert_false(ps_watched_hangs(&t, 1499, 500));
    assert_true(ps_watched_hangs(&t, 1500, 500));
    assert_false(ps_watched_hangs(&t, 9000, 500));
    assert_true(ps_watched_moved(&t, 10, 9000));
    assert_false(ps_watched_hangs(&t, 9400, 500));
    assert_true(ps_watched_hangs(&t, 9500, 500));
}
