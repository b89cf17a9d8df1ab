/* What the leader makes of what the nodes say of their parts of a checkpoint of the cluster. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint_fixture.h"
#include "cluster_fixture.h"
#include "ps/node_cluster/cluster_save.h"
#include "tests/test.h"
#include "tests/wait.h"

#define CUT        3u
#define SESSION    500u
#define NODES      3u
#define NOW_US     1000000u
#define PARTITIONS MR_PARTITION_COUNT

static const char *const names[NODES] = {"a", "b", "c"};

/* Three nodes, of which b owns nothing: it was drained. */
struct fixture {
    struct ps_cluster_save save;
    struct ps_cluster_map map;
    struct ps_cluster_node registered[NODES];
    struct ps_cluster_report reports[NODES];
    uint64_t absent_us[NODES];
    uint64_t now_us;
    struct ps_zookeeper_view view;
    struct ps_cluster_commit_options options;
};

static void note_ended(void *context)
{
    (void)context;
}

static int cluster_save_make(void **state)
{
    static struct fixture f;
    static char *directory;
    if (temporary_directory_setup((void **)&directory) != 0)
        return -1;
    f = (struct fixture){.now_us = NOW_US,
                         .options = {.directory = directory, .credentials = "", .retention = {.keep = 1}}};
    f.options.ended = note_ended;
    f.save.commit = ps_cluster_commit_start(&f.options);
    assert_non_null(f.save.commit);
    ps_cluster_map_init(&f.map, PARTITIONS);
    f.map.node_count = NODES;
    f.map.epoch = 7;
    f.map.cut = CUT;
    for (uint32_t i = 0; i < NODES; i++) {
        struct ps_cluster_node *node = &f.map.nodes[i];
        *node = (struct ps_cluster_node){.core_count = 1, .start_id = 70 + i, .session = SESSION + i};
        (void)snprintf(node->name, sizeof(node->name), "%s", names[i]);
    }
    for (uint32_t slot = 0; slot < PARTITIONS; slot++)
        f.map.owner[slot] = ps_cluster_slot(slot) % 2 == 0 ? 0 : 2;
    f.view = (struct ps_zookeeper_view){
        .map = &f.map, .registered = f.registered, .reports = f.reports, .leads = true};
    *state = &f;
    return 0;
}

static int cluster_save_destroy(void **state)
{
    struct fixture *f = *state;
    char *directory = (char *)f->options.directory;
    ps_cluster_commit_stop(f->save.commit);
    return temporary_directory_teardown((void **)&directory);
}

/* The node has a session, and has written its part. */
static void report(struct fixture *f, uint32_t node)
{
    char path[PS_PATH_BYTES];
    const uint32_t at = f->view.registered_count++;
    assert_true(ps_path_join(f->options.directory, names[node], path));
    assert_int_equal(fixture_save(NULL, path, CUT, 50).status, MR_OK);
    const struct ps_cluster_manifest m = cluster_describe(f->options.directory, CUT, &names[node], 1);
    f->map.nodes[node].core_count = m.parts[0].core_count;
    f->registered[at] = f->map.nodes[node];
    f->reports[at].cut = (struct ps_cluster_cut_report){.id = CUT,
                                                        .status = MR_OK,
                                                        .step = m.step,
                                                        .hash_low = m.parts[0].manifest_hash.low,
                                                        .hash_high = m.parts[0].manifest_hash.high};
}

static struct ps_leader_view look_once(struct fixture *f)
{
    struct ps_leader_view out = {.map = &f->map, .absent_us = f->absent_us};
    ps_cluster_save_look(&f->save, &f->view, f->now_us, &out);
    return out;
}

/* What the leader is to know, once the store has answered. */
static struct ps_leader_view cluster_save_look(struct fixture *f)
{
    struct ps_leader_view out;
    WAIT_UNTIL(out = look_once(f), !out.cut_is_unknown);
    return out;
}

static struct ps_cluster_manifest commit(struct fixture *f)
{
    char text[PS_TEXT_BYTES];
    struct ps_cluster_manifest m;
    ps_cluster_save_commit(&f->save, &f->view);
    assert_true(cluster_save_look(f).cut_is_committed);
    if (ps_cluster_manifest_read(ps_store_local(), f->options.directory, CUT, &m, text) != MR_OK)
        fail_msg("%s", text);
    return m;
}

/* The leader has given up the cut before this node, which was asked for it, has read why. */
TEST(why_it_was_given_up_is_known_before_its_end, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    report(f, 0);
    report(f, 2);
    f->save.asked = CUT;
    ps_cluster_save_see(&f->save, &f->view);
    assert_int_equal(f->save.seen_cut, CUT);
    assert_int_equal(f->save.failed_cut, 0);
    f->map.cut = 0;
    f->reports[1].cut = (struct ps_cluster_cut_report){.id = CUT, .status = MR_IO_ERROR};
    (void)snprintf(f->reports[1].cut.text, sizeof(f->reports[1].cut.text), "no room");
    ps_cluster_save_see(&f->save, &f->view);
    assert_int_equal(f->save.seen_cut, 0); /* so that it ends with the reason */
    assert_int_equal(f->save.failed_cut, CUT);
    assert_non_null(strstr(f->save.failed_why, ": no room"));
}

TEST(every_part_is_waited_for, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    report(f, 0);
    report(f, 2);
    f->registered[f->view.registered_count++] = f->map.nodes[1]; /* it is there, and not yet done */
    struct ps_leader_view out = cluster_save_look(f);
    assert_false(out.parts_are_written);
    assert_false(out.cut_is_late);
    f->view.registered_count--;
    report(f, 1);
    assert_true(cluster_save_look(f).parts_are_written);
    assert_int_equal(commit(f).part_count, NODES);
}

/* It has nothing to write, and may never come back. */
TEST(a_drained_node_may_be_away, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    report(f, 0);
    report(f, 2);
    f->absent_us[1] = 5;
    const struct ps_leader_view out = cluster_save_look(f);
    assert_true(out.parts_are_written);
    assert_false(out.cut_is_late);
    const struct ps_cluster_manifest m = commit(f);
    assert_int_equal(m.part_count, 2);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        assert_string_equal(m.parts[m.owner[p]].name, names[p % 2 == 0 ? 0 : 2]);
}

TEST(a_cut_without_an_owners_part_is_given_up, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    report(f, 0);
    f->absent_us[2] = 5;
    const struct ps_leader_view out = cluster_save_look(f);
    assert_false(out.parts_are_written);
    assert_true(out.cut_is_late);
}

/* b is there, and never says anything: its store hangs, or it cannot load what it owns. */
TEST(a_part_that_does_not_come_further_ends_the_cut, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    report(f, 0);
    report(f, 2);
    const uint32_t b = f->view.registered_count++;
    f->registered[b] = f->map.nodes[1];
    assert_false(cluster_save_look(f).cut_is_late);
    f->now_us += PS_CLUSTER_STALL_US - 1;
    assert_false(cluster_save_look(f).cut_is_late);
    f->reports[b].part = (struct ps_cluster_part_progress){.id = CUT, .bytes = 1};
    f->now_us += 1;
    assert_false(cluster_save_look(f).cut_is_late); /* it writes */
    f->now_us += PS_CLUSTER_STALL_US;
    assert_true(cluster_save_look(f).cut_is_late);
    f->map.cut++; /* the next one has time of its own */
    f->reports[0].cut.id = f->reports[2].cut.id = f->map.cut;
    assert_false(cluster_save_look(f).cut_is_late);
}

TEST(a_part_may_wait_for_its_step, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    report(f, 0);
    report(f, 2);
    const uint32_t b = f->view.registered_count++;
    f->registered[b] = f->map.nodes[1];
    f->reports[b].part = (struct ps_cluster_part_progress){.id = CUT, .waits = true};
    assert_false(cluster_save_look(f).cut_is_late);
    f->now_us += 100 * PS_CLUSTER_STALL_US;
    assert_false(cluster_save_look(f).cut_is_late);
    f->reports[b].part.waits = false;
    f->now_us += PS_CLUSTER_STALL_US - 1;
    assert_false(cluster_save_look(f).cut_is_late);
    f->now_us += 1;
    assert_true(cluster_save_look(f).cut_is_late);
}

/* A trainer asked for a cut at a step that does not come: it neither keeps the cluster's own checkpoints from
 * being made, nor what an operator asks for. */
TEST(a_trainers_cut_at_a_far_step_is_in_nobodys_way, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    struct ps_cluster_map next;
    report(f, 0);
    report(f, 2);
    f->map.cut_step = 1000000;
    f->view.is_whole = true;
    f->save.every_us = 50 * UINT64_C(1000000);
    f->reports[0].cut.id = 0;
    f->reports[0].part = (struct ps_cluster_part_progress){.id = CUT, .waits = true};
    assert_false(cluster_save_look(f).cut_is_late);
    f->now_us += f->save.every_us;
    assert_false(cluster_save_look(f).cut_is_late); /* an operator asked for it */
    f->reports[1].trainer_cut = CUT;
    assert_true(cluster_save_look(f).cut_is_late);
    f->now_us -= 1;
    assert_false(cluster_save_look(f).cut_is_late); /* the cluster's own is not due */

    f->save.is_wanted = f->save.is_by_trainer = true;
    ps_cluster_save_see(&f->save, &f->view);
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next)); /* another trainer waits */
    f->save.is_by_trainer = false;
    assert_true(ps_cluster_save_propose(&f->save, &f->map, &next));
    assert_int_equal(next.cut, 0);
    assert_true(f->save.is_wanted);
    f->reports[0].part.waits = false; /* it has come, and ends soon */
    ps_cluster_save_see(&f->save, &f->view);
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next));
    f->reports[1].trainer_cut = 0;
    f->reports[0].part.waits = true; /* an operator's is not given up for another's */
    ps_cluster_save_see(&f->save, &f->view);
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next));
}

/* Trainers' checkpoints are removed as such: what an operator asks for is none of them. */
TEST(a_cut_is_shared_with_equals, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    struct ps_cluster_map next;
    report(f, 0);
    f->reports[0].trainer_cut = CUT;
    f->save.is_wanted = true;
    ps_cluster_save_see(&f->save, &f->view);
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next));
    assert_true(f->save.is_wanted && f->save.asked == 0); /* whose it is this view may not know */
    f->view.is_whole = true;
    ps_cluster_save_see(&f->save, &f->view);
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next));
    assert_true(f->save.is_wanted && f->save.asked == 0);
    f->save.is_by_trainer = true;
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next));
    assert_int_equal(f->save.asked, CUT);
    f->save.asked = 0;
    f->save.is_by_trainer = false;
    f->save.is_wanted = true;
    f->reports[0].trainer_cut = 0;
    ps_cluster_save_see(&f->save, &f->view);
    assert_false(ps_cluster_save_propose(&f->save, &f->map, &next));
    assert_int_equal(f->save.asked, CUT);
}

/* Where the file would be is something that cannot be read: nobody knows whether it is there. */
TEST(a_store_that_does_not_answer_ends_the_cut, cluster_save_make, cluster_save_destroy)
{
    struct fixture *f = *state;
    char path[PS_PATH_BYTES];
    assert_true(ps_path_cluster(f->options.directory, CUT, path));
    assert_int_equal(mkdir(path, 0700), 0);
    for (uint32_t i = 0; i < NODES; i++)
        report(f, i);
    struct ps_leader_view out = look_once(f);
    assert_true(out.cut_is_unknown && !out.cut_is_late);
    f->now_us += PS_CLUSTER_STALL_US - 1;
    out = look_once(f);
    assert_true(out.cut_is_unknown && !out.cut_is_late);
    f->now_us += 1;
    out = look_once(f);
    assert_true(!out.cut_is_unknown && out.cut_is_late && !out.parts_are_written);
    assert_int_equal(rmdir(path), 0);
}
