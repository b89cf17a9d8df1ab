/* The commands of `millrace ckpt` on a checkpoint of a cluster. Both nodes hold the same rows, so that the
 * whole is what each of them has: what the other node owns counts once. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "tests/command.h"
#include "tests/test.h"
#include "tests/unit/ps/checkpoint_fixture.h"
#include "tests/unit/ps/cluster_fixture.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"
#include "tests/unit/tools/ckpt_program.h"

enum { LINKS = 3, LAST = CHAIN_FIRST + LINKS - 1 };

static const char *const nodes[] = {"a", "b"};

static void ckpt_cluster_make(const char *directory)
{
    char path[PS_PATH_BYTES];
    assert_true(ps_path_join(directory, "a", path));
    chain_write(path, LINKS);
    assert_int_equal(command_run("cp -r %s %s/b", path, directory), 0);
    cluster_commit(directory, LAST, nodes, 2);
}

TEST(is_listed_and_verified, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char path[PS_PATH_BYTES];
    ckpt_cluster_make(directory);
    assert_int_equal(ckpt_run("list %s --json --verify", directory), 0);
    json_t *list = ckpt_json();
    assert_int_equal(json_array_size(list), 1);
    const json_t *one = json_array_get(list, 0);
    assert_int_equal(ckpt_number(one, "id"), LAST);
    assert_string_equal(ckpt_word(one, "kind"), "cluster");
    assert_int_equal(ckpt_number(one, "nodes"), 2);
    assert_int_equal(ckpt_number(one, "links"), LINKS);
    json_decref(list);
    assert_int_equal(ckpt_run("list %s", directory), 0);
    ckpt_expect("cluster");
    assert_int_equal(ckpt_run("verify %s", directory), 0);
    ckpt_expect("CLUSTER-13: ok, ");
    ckpt_expect("6 checkpoints of 2 nodes");
    assert_true(ps_path_join(directory, "b", path));
    fixture_flip(fixture_path(path, CHAIN_FIRST, "core-001.mrc"), 70000, 1);
    assert_int_equal(ckpt_run("verify %s/CLUSTER-%d", directory, LAST), 1);
    ckpt_expect("CLUSTER-13: DAMAGED: ");
    ckpt_expect("b/ckpt-11/core-001.mrc: block 0");
}

static uint64_t rows_of(const json_t *info, size_t feature)
{
    return (uint64_t)ckpt_number(json_array_get(json_object_get(info, "features"), feature), "rows");
}

TEST(info_counts_each_row_once, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    ckpt_cluster_make(directory);
    assert_int_equal(ckpt_run("info %s/CLUSTER-%d --json", directory, LAST), 0);
    json_t *info = ckpt_json();
    assert_int_equal(rows_of(info, 0), chain_rows(LINKS, 1));
    assert_int_equal(rows_of(info, 1), chain_rows(LINKS, 2));
    const json_t *parts = json_object_get(info, "nodes");
    assert_int_equal(json_array_size(parts), 2);
    assert_string_equal(ckpt_word(json_array_get(parts, 1), "name"), "b");
    assert_int_equal(ckpt_number(json_array_get(parts, 1), "partitions"), 2048);
    json_decref(info);
    assert_int_equal(ckpt_run("info %s", directory), 0);
    ckpt_expect("node         a: 2 cores, 2048 of 4096 partitions");
}

TEST(content_is_that_of_its_parts, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    ckpt_cluster_make(directory);
    assert_int_equal(ckpt_run("diff %s/CLUSTER-%d %s/a/ckpt-%d", directory, LAST, directory, LAST), 0);
    assert_int_equal(ckpt_run("diff %s/CLUSTER-%d %s/a/ckpt-%d", directory, LAST, directory, CHAIN_FIRST), 3);
    assert_int_equal(ckpt_run("export %s --table a --out %s/whole.npy", directory, directory), 0);
    assert_int_equal(ckpt_run("export %s/b --table a --out %s/part.npy", directory, directory), 0);
    uint64_t whole, part;
    int64_t ignored;
    char path[PS_PATH_BYTES];
    const struct ps_store *store = ps_store_local();
    assert_true(ps_path_join(directory, "whole.npy", path));
    assert_int_equal(store->facts(store->self, path, &whole, &ignored), 0);
    assert_true(ps_path_join(directory, "part.npy", path));
    assert_int_equal(store->facts(store->self, path, &part, &ignored), 0);
    assert_int_equal(whole, part);
    assert_int_equal(ckpt_run("compact %s/CLUSTER-%d", directory, LAST), 1);
    ckpt_expect("it is a cluster's");
}

TEST(is_copied_whole, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    ckpt_cluster_make(directory);
    assert_int_equal(ckpt_run("pull %s %s/copy", directory, directory), 0);
    ckpt_expect("copy/CLUSTER-13: ");
    assert_int_equal(ckpt_run("verify %s/copy", directory), 0);
    ckpt_expect("CLUSTER-13: ok, ");
    assert_int_equal(ckpt_run("diff %s/copy %s", directory, directory), 0);
}

int main(int argc, char **argv)
{
    ckpt_program = argv[argc - 1];
    return tests_run(NULL, NULL);
}
