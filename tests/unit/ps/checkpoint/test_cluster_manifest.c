/* The file CLUSTER: what is written comes back, and nothing else is taken for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "checkpoint_fixture.h"
#include "cluster_fixture.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "tests/command.h"
#include "tests/test.h"

static struct ps_cluster_manifest example(void)
{
    struct ps_cluster_manifest m = {.version = PS_CLUSTER_FORMAT_VERSION,
                                    .id = 12,
                                    .step = UINT64_MAX,
                                    .is_at_step = true,
                                    .time_s = 1790000000,
                                    .needs = MR_CAN(DENSE),
                                    .written_by = "0.9.1+0badcafe",
                                    .part_count = 3,
                                    .parts = {{.name = "n-1", .core_count = 1},
                                              {.name = "host.example_2", .core_count = 64},
                                              {.name = "c", .core_count = 2}}};
    m.parts[1].manifest_hash = (struct ps_hash){.low = 1, .high = UINT64_MAX};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        m.owner[p] = (uint8_t)(p * 7 % 3);
    return m;
}

TEST(comes_back_as_it_was)
{
    struct ps_cluster_manifest m = example(), back;
    char text[PS_TEXT_BYTES] = "";
    char *json = ps_cluster_manifest_seal(&m);
    assert_non_null(json);
    assert_true(ps_cluster_manifest_parse(json, strlen(json), &back, text));
    assert_memory_equal(&back, &m, sizeof(m));
    assert_int_equal(ps_cluster_manifest_find(&back, "c"), 2);
    assert_int_equal(ps_cluster_manifest_find(&back, "d"), 3);
    free(json);
}

TEST(has_a_part_of_each_of_many_nodes)
{
    struct ps_cluster_manifest m = example(), back;
    char text[PS_TEXT_BYTES] = "";
    m.part_count = PS_CLUSTER_PARTS_MAX;
    for (uint32_t i = 0; i < PS_CLUSTER_PARTS_MAX; i++) {
        m.parts[i] = m.parts[0];
        (void)snprintf(m.parts[i].name, sizeof(m.parts[i].name), "n-%u", i);
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        m.owner[p] = (uint8_t)(p % PS_CLUSTER_PARTS_MAX);
    char *json = ps_cluster_manifest_seal(&m);
    assert_non_null(json);
    assert_true(ps_cluster_manifest_parse(json, strlen(json), &back, text));
    assert_memory_equal(&back, &m, sizeof(m));
    free(json);
}

/* Whatever byte is changed, and wherever the text ends too early. */
TEST(any_change_is_noticed)
{
    struct ps_cluster_manifest m = example(), back;
    char text[PS_TEXT_BYTES];
    char *json = ps_cluster_manifest_seal(&m);
    const size_t bytes = strlen(json);
    for (size_t i = 0; i < bytes; i += i < 400 || i > bytes - 1200 ? 1 : 61) {
        const char was = json[i];
        json[i] = was == '1' ? '2' : '1';
        assert_false(ps_cluster_manifest_parse(json, bytes, &back, text));
        json[i] = was;
        assert_false(ps_cluster_manifest_parse(json, i, &back, text));
    }
    assert_true(ps_cluster_manifest_parse(json, bytes, &back, text));
    free(json);
}

/* With the right hash, but a content that no cluster can have. */
static void refuse(struct ps_cluster_manifest m, const char *why)
{
    struct ps_cluster_manifest back;
    char text[PS_TEXT_BYTES] = "";
    char *json = ps_cluster_manifest_seal(&m);
    assert_non_null(json);
    assert_false(ps_cluster_manifest_parse(json, strlen(json), &back, text));
    assert_says(text, why);
    free(json);
}

TEST(wrong_contents_are_refused)
{
    static const char *const names[] = {"",    ".",      "..",        ".hidden",       "a/b",
                                        "c d", "ckpt-7", "CLUSTER-7", "host.example_2"};
    struct ps_cluster_manifest m;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        m = example();
        (void)snprintf(m.parts[2].name, sizeof(m.parts[2].name), "%s", names[i]);
        refuse(m, "no name of a node, or comes twice");
    }
    m = example();
    m.owner[4095] = 3;
    refuse(m, "partition 4095");
    m = example();
    m.part_count = 0;
    refuse(m, "\"nodes\" must be a list of 1 to 256");
    m = example();
    m.parts[0].core_count = 65;
    refuse(m, "\"cores\" must be");
    m = example();
    m.id = 0;
    refuse(m, "\"id\" must be");
}

/* What needs nothing new is as versions before 0.3.0 read it. */
TEST(version_1_needs_nothing, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_cluster_manifest m = example(), back;
    char text[PS_TEXT_BYTES], path[PS_PATH_BYTES];
    m.needs = 0;
    memset(m.written_by, 0, sizeof(m.written_by));
    assert_int_equal(ps_cluster_manifest_write(ps_store_local(), directory, &m, text), MR_OK);
    assert_int_equal(m.version, PS_CLUSTER_FORMAT_1);
    assert_int_equal(ps_cluster_manifest_read(ps_store_local(), directory, 12, &back, text), MR_OK);
    assert_int_equal(back.needs, 0);
    assert_true(ps_path_cluster(directory, 12, path));
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(json_object_get(root, "owners"));
    assert_null(json_object_get(root, "needs"));
    assert_null(json_object_get(root, "written_by"));
    json_decref(root);
}

/* A right hash says that it is as some version wrote it. */
TEST(what_is_not_known_is_no_damage, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_cluster_manifest m = example(), back;
    char text[PS_TEXT_BYTES], path[PS_PATH_BYTES];
    assert_int_equal(ps_cluster_manifest_write(ps_store_local(), directory, &m, text), MR_OK);
    assert_string_equal(m.written_by, "0.9.1+0badcafe"); /* a copy keeps it */
    assert_true(ps_path_cluster(directory, 12, path));
    fixture_rewrite(path, "", "mood", json_string("good"));
    assert_int_equal(ps_cluster_manifest_read(ps_store_local(), directory, 12, &back, text),
                     MR_CHECKPOINT_NEWER);
    fixture_rewrite(path, "", "mood", NULL);
    fixture_rewrite(path, "", "needs", json_pack("[s]", "telepathy"));
    assert_int_equal(ps_cluster_manifest_read(ps_store_local(), directory, 12, &back, text),
                     MR_CHECKPOINT_NEWER);
    assert_non_null(strstr(text, "it needs \"telepathy\", and was written by version 0.9.1+0badcafe"));
}

TEST(lies_beside_the_nodes_folders, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_cluster_manifest m = example(), back;
    char text[PS_TEXT_BYTES] = "", path[PS_PATH_BYTES];
    const struct ps_store *store = ps_store_local();
    uint64_t ids[2];
    assert_int_equal(ps_cluster_manifest_read(store, directory, 12, &back, text), MR_CHECKPOINT_NOT_FOUND);
    assert_false(ps_checkpoint_is_there(NULL, directory, 12));
    assert_int_equal(ps_cluster_manifest_write(store, directory, &m, text), MR_OK);
    assert_int_equal(ps_cluster_manifest_read(store, directory, 12, &back, text), MR_OK);
    assert_memory_equal(&back, &m, sizeof(m));
    assert_true(ps_checkpoint_is_there(NULL, directory, 12));
    assert_int_equal(ps_checkpoint_list(NULL, directory, ids, 2), 1);
    assert_int_equal(ids[0], 12);
    m.time_s++; /* another leader, later */
    assert_int_equal(ps_cluster_manifest_write(store, directory, &m, text), MR_OK);
    m.parts[2].manifest_hash.high ^= 1;
    assert_int_equal(ps_cluster_manifest_write(store, directory, &m, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "give each cluster its own directory"));
    assert_int_equal(ps_cluster_manifest_read(store, directory, 12, &back, text), MR_OK);
    m = example();
    m.version = back.version;
    m.hash = back.hash;
    assert_memory_equal(&back, &m, sizeof(m)); /* the first one stays */
    assert_true(ps_path_cluster(directory, 13, path));
    m.version = 9;
    char *json = ps_cluster_manifest_seal(&m);
    assert_int_equal(store->replace(store->self, path, json, strlen(json)), 0);
    free(json);
    assert_int_equal(ps_cluster_manifest_read(store, directory, 13, &back, text), MR_CHECKPOINT_NEWER);
    assert_int_equal(store->replace(store->self, path, "{}", 2), 0);
    assert_int_equal(ps_cluster_manifest_read(store, directory, 13, &back, text), MR_CHECKPOINT_CORRUPT);
}

TEST(names_have_one_spelling)
{
    assert_int_equal(ps_name_cluster("CLUSTER-7"), 7);
    assert_int_equal(ps_name_cluster("CLUSTER-07"), 0);
    assert_int_equal(ps_name_cluster("CLUSTER-7.next"), 0);
    assert_int_equal(ps_name_cluster("ckpt-7"), 0);
}

/* ---- the chain of all nodes ---- */

static const char *const nodes[] = {"a", "b", "c"};

static void save_parts(const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(ps_path_join(directory, nodes[i], path));
        (void)fixture_save(NULL, path, id, 100);
    }
}

static enum mr_status open_chain(const char *directory, uint64_t id, char *text)
{
    struct ps_chain chain;
    const enum mr_status status = ps_chain_open(ps_store_local(), directory, id, &chain, text);
    if (status != MR_OK)
        return status;
    assert_non_null(chain.cluster);
    assert_int_equal(chain.part_count, 3);
    assert_int_equal(ps_chain_manifest(&chain)->id, id);
    assert_int_equal(ps_chain_manifest(&chain)->feature_count, 2);
    ps_chain_close(&chain);
    return MR_OK;
}

static void refuse_chain(const char *directory, uint64_t id, const char *why)
{
    char text[PS_TEXT_BYTES] = "";
    assert_int_equal(open_chain(directory, id, text), MR_CHECKPOINT_CORRUPT);
    assert_says(text, why);
}

TEST(parts_must_be_those_that_were_committed, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char path[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    save_parts(directory, 5);
    assert_int_equal(open_chain(directory, 5, text), MR_CHECKPOINT_NOT_FOUND); /* parts alone are none */
    cluster_commit(directory, 5, nodes, 3);
    assert_int_equal(open_chain(directory, 5, text), MR_OK);
    struct ps_cluster_manifest m = cluster_describe(directory, 5, nodes, 3);
    m.parts[1].manifest_hash.low ^= 1;
    assert_true(ps_path_cluster(directory, 5, path));
    assert_int_equal(remove(path), 0);
    assert_int_equal(ps_cluster_manifest_write(ps_store_local(), directory, &m, text), MR_OK);
    refuse_chain(directory, 5, "b/ckpt-5: it is not the part");
    assert_int_equal(remove(path), 0);
    cluster_commit(directory, 5, nodes, 3);
    assert_true(ps_path_join(directory, "c", path));
    assert_int_equal(command_run("rm -r %s/ckpt-5", path), 0);
    refuse_chain(directory, 5, "c/ckpt-5: there is no such checkpoint");
}
