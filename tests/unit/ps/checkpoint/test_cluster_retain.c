/* Which checkpoints of a cluster go: CLUSTER files first, and of the parts what none of the others needs. */
#include <stdio.h>
#include <unistd.h>
#include "chain_fixture.h"
#include "cluster_fixture.h"
#include "ps/checkpoint/cluster_retain.h"
#include "tests/test.h"

static const char *const nodes[] = {"a", "b"};

/* Checkpoints 2, 4, 6, 8, 10 of two nodes; those of a are full, of b 2 and 8 with deltas on them. */
static void cluster_retain_make(const char *directory)
{
    static const uint64_t parents[] = {0, 2, 4, 0, 8};
    char a[PS_PATH_BYTES], b[PS_PATH_BYTES];
    assert_true(ps_path_join(directory, "a", a) && ps_path_join(directory, "b", b));
    for (uint64_t i = 0; i < 5; i++) {
        chain_save_key(a, 2 * i + 2, 0, 1, (uint8_t)(i + 1));
        chain_save_key(b, 2 * i + 2, parents[i], 2, (uint8_t)(i + 1));
        cluster_commit(directory, 2 * i + 2, nodes, 2);
    }
}

static void expect(const char *directory, const char *folder, const char *ids)
{
    uint64_t found[16];
    char path[PS_PATH_BYTES], text[64] = "";
    (void)snprintf(path, sizeof(path), "%s/%s", directory, folder);
    const uint32_t count = ps_checkpoint_list(NULL, path, found, 16);
    int at = 0;
    for (uint32_t i = count; i > 0; i--)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%u ", (unsigned)found[i - 1]);
    assert_string_equal(text, ids);
}

static void retain(const char *directory, uint64_t committed, uint32_t keep)
{
    char path[PS_PATH_BYTES];
    ps_cluster_retain(ps_store_local(), directory, committed, &(struct ps_retention){.keep = keep});
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(ps_path_join(directory, nodes[i], path));
        ps_cluster_retain_parts(ps_store_local(), directory, path, committed);
    }
}

TEST(parts_stay_as_long_as_they_are_needed, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    cluster_retain_make(directory);
    retain(directory, 10, 5);
    expect(directory, ".", "2 4 6 8 10 ");
    retain(directory, 10, 3);
    expect(directory, ".", "6 8 10 ");
    expect(directory, "a", "6 8 10 ");
    expect(directory, "b", "2 4 6 8 10 "); /* 6 builds on 2 and 4 */
    retain(directory, 10, 2);
    expect(directory, "a", "8 10 ");
    expect(directory, "b", "8 10 ");
    retain(directory, 10, 0);
    expect(directory, ".", "10 ");
    expect(directory, "a", "10 ");
    expect(directory, "b", "8 10 ");
}

/* The node that a trainer asked has marked its part. */
TEST(what_trainers_ask_for_displaces_nothing_else, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    const struct ps_retention retention = {.keep = 2, .keep_trainers = 1};
    char b[PS_PATH_BYTES];
    cluster_retain_make(directory);
    assert_true(ps_path_join(directory, "b", b));
    for (uint64_t id = 6; id <= 10; id += 2) {
        FILE *file = fopen(fixture_path(b, id, PS_BY_TRAINER_NAME), "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
    ps_cluster_retain(ps_store_local(), directory, 10, &retention);
    expect(directory, ".", "2 4 10 ");
}

/* They are younger than that. */
TEST(a_burst_does_not_displace_what_was_before_it, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    const struct ps_retention retention = {.keep = 3, .least_age_s = UINT32_MAX};
    cluster_retain_make(directory);
    ps_cluster_retain(ps_store_local(), directory, 10, &retention);
    expect(directory, ".", "2 4 10 ");
}

/* Parts after the committed one may be those of the next; one that nobody committed goes with the next. */
TEST(what_comes_after_stays, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char a[PS_PATH_BYTES];
    cluster_retain_make(directory);
    assert_true(ps_path_join(directory, "a", a));
    chain_save_key(a, 9, 0, 1, 1); /* given up */
    chain_save_key(a, 12, 0, 1, 1);
    retain(directory, 8, 1);
    expect(directory, ".", "8 10 ");
    expect(directory, "a", "8 9 10 12 ");
    retain(directory, 10, 1);
    expect(directory, "a", "10 12 ");
}

/* A leader lost its session while its file was on its way: the cut was given up, and its parts went. It
 * stands for no checkpoint, and takes no other's place. */
TEST(a_file_that_came_too_late_goes, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char a[PS_PATH_BYTES], late[PS_PATH_BYTES], kept[PS_PATH_BYTES + 8];
    cluster_retain_make(directory);
    assert_true(ps_path_join(directory, "a", a) && ps_path_cluster(directory, 9, late));
    chain_save_key(a, 9, 0, 1, 1);
    cluster_commit(directory, 9, nodes, 1);
    (void)snprintf(kept, sizeof(kept), "%s.kept", late);
    assert_int_equal(rename(late, kept), 0);
    retain(directory, 10, 2);
    expect(directory, "a", "8 10 ");
    assert_int_equal(rename(kept, late), 0);
    expect(directory, ".", "8 9 10 ");
    retain(directory, 10, 2);
    expect(directory, ".", "8 10 ");
}

static void make_file(const char *directory, const char *name)
{
    char path[PS_PATH_BYTES];
    assert_true(ps_path_join(directory, name, path));
    assert_int_equal(ps_store_write_new(ps_store_local(), path, "x", 1), 0);
}

static bool is_there(const char *directory, const char *name)
{
    char path[PS_PATH_BYTES];
    assert_true(ps_path_join(directory, name, path));
    return access(path, F_OK) == 0;
}

TEST(what_a_dead_writer_left_goes, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    cluster_retain_make(directory);
    make_file(directory, "CLUSTER-9.0123456789abcdef00000001.new");
    make_file(directory, "CLUSTER-11.0123456789abcdef00000001.next"); /* its writer may be at work */
    make_file(directory, "CLUSTER-9.bak");                            /* somebody's own */
    retain(directory, 10, 5);
    assert_false(is_there(directory, "CLUSTER-9.0123456789abcdef00000001.new"));
    assert_true(is_there(directory, "CLUSTER-11.0123456789abcdef00000001.next"));
    assert_true(is_there(directory, "CLUSTER-9.bak"));
    expect(directory, ".", "2 4 6 8 10 ");
}

/* A node of an older version leads for a while. */
TEST(what_a_later_version_wrote_stays, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char path[PS_PATH_BYTES];
    cluster_retain_make(directory);
    assert_true(ps_path_cluster(directory, 4, path));
    fixture_rewrite(path, "", "version", json_integer(PS_CLUSTER_FORMAT_VERSION));
    fixture_rewrite(path, "", "written_by", json_string("0.9.1"));
    fixture_rewrite(path, "", "needs", json_pack("[s]", "telepathy"));
    retain(directory, 10, 1);
    expect(directory, ".", "4 10 ");
    expect(directory, "a", "4 10 ");
    expect(directory, "b", "2 4 6 8 10 ");
}

/* Without the file that is said to be committed nothing is known. */
TEST(nothing_goes_in_doubt, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char path[PS_PATH_BYTES];
    cluster_retain_make(directory);
    assert_true(ps_path_cluster(directory, 10, path));
    assert_int_equal(remove(path), 0);
    assert_true(ps_path_join(directory, "a", path));
    ps_cluster_retain_parts(ps_store_local(), directory, path, 10);
    expect(directory, "a", "2 4 6 8 10 ");
}
