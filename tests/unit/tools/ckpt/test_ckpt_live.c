/* Live rows of chains, against a model of what each link wrote. */
#include <stdio.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/ps/checkpoint_fixture.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"
#include "tools/ckpt/ckpt_chain.h"

enum { LINKS = 4 };

struct found {
    uint32_t link[CHAIN_TABLES + 1][CHAIN_KEYS];
    uint64_t rows, variables, observations;
    float variable;
    uint64_t piece[2];
};

static enum mr_status see_rows(void *arg, const struct ckpt_rows *rows)
{
    struct found *found = arg;
    assert_true(rows->count > 0 && rows->row_bytes == chain_row_floats(rows->feature) * 4);
    for (uint32_t i = 0; i < rows->count; i++) {
        float value[6];
        memcpy(value, rows->rows + (size_t)i * rows->row_bytes, rows->row_bytes);
        const uint32_t key = (uint32_t)value[0] % 10000, link = (uint32_t)value[0] / 10000;
        assert_true(key < CHAIN_KEYS && rows->keys[i] == chain_key(key));
        for (uint32_t f = 1; f < chain_row_floats(rows->feature); f++)
            assert_true(value[f] == value[0]);
        assert_int_equal(found->link[rows->feature][key], 0); /* each once */
        found->link[rows->feature][key] = link;
        found->rows++;
    }
    return MR_OK;
}

static enum mr_status see_small(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct found *found = arg;
    if (record->kind == PS_RECORD_OBSERVATIONS) {
        assert_int_equal(record->offset, 7);
        memcpy(&found->piece[record->row_bytes / 64], bytes, 8);
        found->observations++;
        return MR_OK;
    }
    assert_int_equal(record->kind, PS_RECORD_VARIABLE);
    memcpy(&found->variable, bytes, 4);
    found->variables++;
    return MR_OK;
}

static void ckpt_live_check(const char *directory, uint32_t links, uint32_t feature, uint64_t memory_bytes,
                            bool many_passes)
{
    static struct found found;
    struct ckpt_chain chain;
    struct ckpt_live live;
    struct ckpt_range range = {0, CKPT_PLACES};
    char text[PS_TEXT_BYTES] = "";
    memset(&found, 0, sizeof(found));
    if (ckpt_chain_open(directory, 0, &chain, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(chain.files.count, links);
    assert_int_equal(ps_chain_manifest(&chain.files)->step, 10 * (10 + links));
    assert_int_equal(ckpt_live_open(&live, &chain, feature, memory_bytes, NULL, text), MR_OK);
    assert_int_equal(ckpt_live_index(&live, &range, text), MR_OK);
    assert_true((range.end < CKPT_PLACES) == many_passes);
    assert_int_equal(ckpt_live_all(&live, see_rows, see_small, &found, text), MR_OK);
    for (uint32_t table = 1; table <= CHAIN_TABLES; table++)
        for (uint32_t i = 0; i < CHAIN_KEYS; i++)
            assert_int_equal(found.link[table][i],
                             feature == 0 || feature == table ? chain_model[links][table][i] : 0);
    assert_true(found.rows > 3000);
    assert_int_equal(found.variables, 1);
    assert_true(found.variable == (float)links);
    const bool has_filter = feature != 2; /* table 1 has one */
    assert_int_equal(found.observations, has_filter ? 2 : 0);
    assert_int_equal(found.piece[0], has_filter ? links : 0);
    assert_int_equal(found.piece[1], !has_filter ? 0 : links < 2 ? links : 2);
    ckpt_live_close(&live);
    ckpt_chain_close(&chain);
}

TEST(test_a_full, temporary_directory_setup, temporary_directory_teardown)
{
    chain_write(*state, 1);
    ckpt_live_check(*state, 1, 0, 0, false);
    ckpt_live_check(*state, 1, 2, 0, false);
}

TEST(test_a_chain, temporary_directory_setup, temporary_directory_teardown)
{
    chain_write(*state, LINKS);
    ckpt_live_check(*state, LINKS, 0, 16 << 20, false);
    ckpt_live_check(*state, LINKS, 1, 16 << 20, false);
    ckpt_live_check(*state, LINKS, 2, 16 << 20, false);
}

TEST(test_a_chain_in_little_memory, temporary_directory_setup, temporary_directory_teardown)
{
    chain_write(*state, LINKS);
    ckpt_live_check(*state, LINKS, 0, 0, true);
    ckpt_live_check(*state, LINKS, 1, 0, true);
}

static void expect_refused(const char *directory, uint64_t id, enum mr_status expected, const char *says)
{
    struct ckpt_chain chain = {0};
    char text[PS_TEXT_BYTES] = "";
    assert_int_equal(ckpt_chain_open(directory, id, &chain, text), expected);
    assert_says(text, says);
    assert_null(chain.files.links);
}

TEST(test_broken_chains_are_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char from[512], to[512];
    struct mr_feature features[3];
    struct ckpt_fixture_writer w;
    chain_write(directory, 3);
    expect_refused(directory, 99, MR_CHECKPOINT_NOT_FOUND, "no ckpt-99");
    (void)snprintf(from, sizeof(from), "%s/ckpt-12", directory);
    (void)snprintf(to, sizeof(to), "%s/aside", directory);
    assert_int_equal(rename(from, to), 0);
    expect_refused(directory, 13, MR_CHECKPOINT_CORRUPT, "checkpoint 13 is a delta on 12, which is missing");
    /* Another one in its place. */
    chain_features(features);
    ckpt_fixture_start(&w, directory, 12, 11, features, 3, 2);
    chain_write_small(&w, 2);
    ckpt_fixture_publish(&w, 2);
    expect_refused(directory, 13, MR_CHECKPOINT_CORRUPT,
                   "is a delta on 12, which is not the one that it was written on");
    fixture_flip(fixture_path(directory, 12, "MANIFEST"), 40, 1);
    expect_refused(directory, 13, MR_CHECKPOINT_CORRUPT, "checkpoint 13 is a delta on 12: ");
}

TEST(test_damaged_blocks_are_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ckpt_chain chain;
    char text[PS_TEXT_BYTES] = "";
    chain_write(directory, 2);
    fixture_flip(fixture_path(directory, 11, "core-001.mrc"), 777, 1);
    assert_int_equal(ckpt_chain_open(directory, 12, &chain, text), MR_OK);
    assert_int_equal(ckpt_link_each(chain.files.links[1], NULL, NULL, NULL, text), MR_OK);
    assert_int_equal(ckpt_link_each(chain.files.links[0], NULL, NULL, NULL, text), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(text, "ckpt-11/core-001.mrc: block 0"));
    ckpt_chain_close(&chain);
}

TEST(test_paths)
{
    static const struct {
        const char *path, *directory;
        uint64_t id;
    } cases[] = {
        {"/a/b/ckpt-7", "/a/b", 7},    {"/a/b/ckpt-7//", "/a/b", 7}, {"ckpt-7", ".", 7},
        {"/ckpt-7", "/", 7},           {"/a/b/", "/a/b", 0},         {"/", "/", 0},
        {"a/ckpt-07", "a/ckpt-07", 0}, {"ckpt-", "ckpt-", 0},
    };
    char directory[PS_PATH_BYTES];
    uint64_t id;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_true(ckpt_path_split(cases[i].path, directory, &id));
        assert_string_equal(directory, cases[i].directory);
        assert_int_equal(id, cases[i].id);
    }
    assert_false(ckpt_path_split("", directory, &id));
}
