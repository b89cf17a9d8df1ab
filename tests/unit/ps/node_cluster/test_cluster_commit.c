/* The thread that commits checkpoints of a cluster: CLUSTER is written only when every part is the one
 * that its node has reported. */
#include <semaphore.h>
#include <string.h>
#include <stdio.h>
#include "checkpoint_fixture.h"
#include "cluster_fixture.h"
#include "ps/node_cluster/cluster_commit.h"
#include "tests/test.h"
#include "tests/wait.h"

static const char *const nodes[] = {"a", "b"};
static sem_t ended;

static void note_ended(void *context)
{
    (void)sem_post(context);
}

static struct ps_cluster_commit *cluster_commit_start(const char *directory)
{
    const struct ps_cluster_commit_options options = {.directory = directory,
                                                      .credentials = "",
                                                      .retention = {.keep = 1},
                                                      .ended = note_ended,
                                                      .context = &ended};
    assert_int_equal(sem_init(&ended, 0, 0), 0);
    struct ps_cluster_commit *c = ps_cluster_commit_start(&options);
    assert_non_null(c);
    return c;
}

static enum ps_commit_state wait_for(struct ps_cluster_commit *c, uint64_t id, char *text)
{
    enum ps_commit_state state;
    WAIT_UNTIL((state = ps_cluster_commit_state(c, id, text)) != PS_COMMIT_BUSY);
    return state;
}

static void save_parts(const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(ps_path_join(directory, nodes[i], path));
        assert_int_equal(fixture_save(NULL, path, id, 50).status, MR_OK);
    }
}

static uint64_t newest_in(const char *directory)
{
    char text[PS_TEXT_BYTES] = "";
    uint64_t id = 99;
    const struct ps_cluster_commit_options options = {.directory = directory, .credentials = ""};
    assert_int_equal(ps_cluster_commit_newest(&options, &id, text), MR_OK);
    return id;
}

TEST(the_newest_is_found, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES] = "", path[PS_PATH_BYTES];
    uint64_t id;
    assert_int_equal(newest_in(directory), 0);
    for (uint64_t n = 9; n <= 10; n++) {
        assert_true(ps_path_cluster(directory, n, path));
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
    }
    assert_int_equal(newest_in(directory), 10); /* whole or not */
    const struct ps_cluster_commit_options nowhere = {.directory = "hdfs://", .credentials = ""};
    assert_int_not_equal(ps_cluster_commit_newest(&nowhere, &id, text), MR_OK);
    assert_true(text[0] != '\0');
}

TEST(commits_what_was_reported, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES];
    struct ps_cluster_commit *c = cluster_commit_start(directory);
    save_parts(directory, 3);
    struct ps_cluster_manifest m = cluster_describe(directory, 3, nodes, 2);
    assert_int_equal(ps_cluster_commit_state(c, 3, text), PS_COMMIT_UNKNOWN);
    ps_cluster_commit_look(c, 3);
    assert_int_equal(wait_for(c, 3, text), PS_COMMIT_ABSENT);
    assert_int_equal(sem_wait(&ended), 0); /* the leader is told */

    m.parts[1].manifest_hash.high ^= 1;
    ps_cluster_commit_write(c, &m);
    assert_int_equal(wait_for(c, 3, text), PS_COMMIT_FAILED);
    assert_non_null(strstr(text, "b: its part is not the one that the node reported"));
    assert_false(ps_cluster_manifest_is_there(ps_store_local(), directory, 3));

    m.parts[1].manifest_hash.high ^= 1;
    ps_cluster_commit_write(c, &m);
    assert_int_equal(wait_for(c, 3, text), PS_COMMIT_THERE);
    assert_int_equal(sem_wait(&ended), 0);
    assert_true(ps_cluster_manifest_is_there(ps_store_local(), directory, 3));
    ps_cluster_commit_stop(c);

    c = cluster_commit_start(directory); /* the next leader finds it */
    ps_cluster_commit_look(c, 3);
    assert_int_equal(wait_for(c, 3, text), PS_COMMIT_THERE);
    ps_cluster_commit_stop(c);
}

TEST(a_part_that_is_missing_is_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES];
    struct ps_cluster_commit *c = cluster_commit_start(directory);
    save_parts(directory, 3);
    struct ps_cluster_manifest m = cluster_describe(directory, 3, nodes, 2);
    m.id = 4;
    ps_cluster_commit_write(c, &m);
    assert_int_equal(wait_for(c, 4, text), PS_COMMIT_FAILED);
    assert_non_null(strstr(text, "a/ckpt-4"));
    assert_int_equal(ps_cluster_commit_state(c, 3, text), PS_COMMIT_UNKNOWN);
    ps_cluster_commit_stop(c);
}

TEST(older_ones_go, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES];
    struct ps_cluster_commit *c = cluster_commit_start(directory);
    for (uint64_t id = 3; id <= 5; id++) {
        save_parts(directory, id);
        cluster_commit(directory, id, nodes, 2);
    }
    ps_cluster_commit_retain(c, 5);
    assert_int_equal(wait_for(c, 5, text), PS_COMMIT_THERE);
    assert_int_equal(ps_checkpoint_list(NULL, directory, NULL, 0), 1);
    ps_cluster_commit_stop(c);
    ps_cluster_commit_stop(NULL);
}
