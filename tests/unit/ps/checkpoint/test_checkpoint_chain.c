/* Chains: links in order, what counts of each, and every way in which a parent is not the one it should
 * be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chain_fixture.h"
#include "cluster_fixture.h"
#include "ps/checkpoint/block_stream.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "tests/test.h"

/* Keys 0..9 change in every way that there is. */
static const uint8_t full[CHAIN_KEYS] = {1, 1, 1, 1, 1, 1, [20] = 1, [21] = 1, [62] = 1, [63] = 1};
static const uint8_t delta_2[CHAIN_KEYS] = {
    2, CHAIN_GONE, 2, CHAIN_GONE, [6] = 2, [7] = 2, [20] = CHAIN_GONE};
static const uint8_t delta_3[CHAIN_KEYS] = {3, 3, CHAIN_GONE, [6] = CHAIN_GONE, [9] = CHAIN_GONE, [63] = 3};
static const uint8_t *const links[] = {full, delta_2, delta_3};

/* 1, 2 and 3 are a chain. */
static void save_chain(const char *directory)
{
    chain_save(NULL, directory, 1, 0, full);
    chain_save(NULL, directory, 2, 1, delta_2);
    chain_save(NULL, directory, 3, 2, delta_3);
}

static void check_refused(const char *directory, uint64_t id, const char *expected)
{
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES] = "";
    assert_int_equal(ps_reader_open(NULL, directory, id, &r, text), MR_CHECKPOINT_CORRUPT);
    assert_null(r);
    assert_says(text, expected);
}

static void rename_checkpoint(const char *directory, uint64_t id, const char *name)
{
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
    assert_true(ps_path_published(directory, id, from) && ps_path_join(directory, name, to));
    assert_int_equal(rename(from, to), 0);
}

TEST(test_links_are_applied_in_order, temporary_directory_setup, temporary_directory_teardown)
{
    save_chain(*state);
    chain_check(*state, 0, 3, 3, links);
    chain_check(*state, 3, 3, 3, links);
    chain_check(*state, 2, 2, 2, links);
    chain_check(*state, 1, 1, 1, links);
}

TEST(test_a_chain_may_leave_checkpoints_out, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory);
    /* As after a restore of 2: 4 is based on it, not on 3. */
    const uint8_t delta_4[CHAIN_KEYS] = {[2] = 4, [30] = 4};
    const uint8_t *const others[] = {full, delta_2, delta_4};
    chain_save(NULL, directory, 4, 2, delta_4);
    chain_check(directory, 0, 4, 3, others);
    chain_check(directory, 3, 3, 3, links);
}

TEST(test_bytes_and_manifests_are_those_of_all_links, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    uint64_t bytes = 0;
    save_chain(*state);
    assert_int_equal(ps_reader_open_unread(NULL, *state, 3, &r, text), MR_OK);
    assert_string_equal(text, "");
    assert_int_equal(ps_reader_chain(r)->count, 3);
    for (uint32_t link = 0; link < 3; link++) {
        const struct ps_manifest *m = &ps_reader_chain(r)->links[link]->manifest;
        assert_int_equal(m->id, link + 1);
        assert_int_equal(m->parent, link);
        for (uint32_t core = 0; core < FIXTURE_CORES; core++)
            bytes += m->files[core].payload_bytes;
    }
    assert_int_equal(ps_chain_bytes(ps_reader_chain(r)), bytes);
    ps_reader_close(r);
}

struct looked {
    uint32_t link, blocks[3];
};

static enum mr_status checkpoint_chain_look(void *arg, uint32_t link, const uint8_t *const *blocks,
                                            uint32_t count)
{
    struct looked *looked = arg;
    assert_true(link == looked->link || link == looked->link + 1);
    looked->link = link;
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_block_header *header = (const struct ps_block_header *)(const void *)blocks[i];
        assert_int_equal(header->checkpoint_id, link + 1);
        looked->blocks[link]++;
    }
    return MR_OK;
}

TEST(test_blocks_come_link_by_link_whatever_the_batch, temporary_directory_setup,
     temporary_directory_teardown)
{
    static const uint32_t batches[] = {1, 2, 3, PS_STREAM_BATCH_MAX};
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    save_chain(*state);
    assert_int_equal(ps_reader_open_unread(NULL, *state, 3, &r, text), MR_OK);
    for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
        struct looked looked = {0};
        assert_int_equal(ps_reader_blocks(r, batches[i], 1, checkpoint_chain_look, &looked, text), MR_OK);
        for (uint32_t link = 0; link < 3; link++)
            assert_int_equal(looked.blocks[link], FIXTURE_CORES);
    }
    ps_reader_close(r);
}

TEST(test_a_missing_parent_is_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    const uint8_t *const first[] = {full};
    save_chain(directory);
    rename_checkpoint(directory, 2, "away");
    check_refused(directory, 3, "checkpoint 3 is a delta on 2, which is missing");
    chain_check(directory, 0, 1, 1, first); /* the newest that has all its parents */
    rename_checkpoint(directory, 1, "away-too");
    check_refused(directory, 0, "checkpoint 3 is a delta on 2, which is missing");
}

TEST(test_a_missing_full_is_named, temporary_directory_setup, temporary_directory_teardown)
{
    save_chain(*state);
    rename_checkpoint(*state, 1, "away");
    check_refused(*state, 3, "checkpoint 2 is a delta on 1, which is missing");
    check_refused(*state, 2, "checkpoint 2 is a delta on 1, which is missing");
}

TEST(test_another_parent_is_refused, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    const uint8_t *const first[] = {full};
    save_chain(directory);
    rename_checkpoint(directory, 2, "away");
    chain_save_key(directory, 2, 1, 5, 77); /* a whole checkpoint, under the number of the other */
    check_refused(directory, 3, "checkpoint 3 is a delta on 2, which is not the one that it was written on");
    rename_checkpoint(directory, 2, "away-too");
    chain_check(directory, 0, 1, 1, first);
}

/* By all of its hash: each half is compared. */
TEST(test_a_parent_of_half_the_hash_is_refused, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_manifest m;
    char text[PS_TEXT_BYTES];
    for (uint32_t half = 0; half < 2; half++) {
        const uint64_t id = 2 + half;
        chain_save(NULL, *state, 1 + half, half, half == 0 ? full : delta_2);
        chain_save(NULL, *state, id, id - 1, delta_2);
        assert_int_equal(ps_manifest_read(ps_store_local(), *state, id, &m, text), MR_OK);
        *(half == 0 ? &m.parent_hash.low : &m.parent_hash.high) ^= 1;
        char *json = ps_manifest_seal(&m);
        FILE *out = fopen(fixture_path(*state, id, PS_MANIFEST_NAME), "w");
        assert_true(json && out && fputs(json, out) >= 0);
        fclose(out);
        free(json);
        ps_manifest_clear(&m);
        check_refused(*state, id, "which is not the one that it was written on");
        rename_checkpoint(*state, id, half == 0 ? "away" : "away-too");
    }
}

TEST(test_a_bad_block_of_a_parent_is_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    const uint8_t *const first[] = {full};
    save_chain(directory);
    fixture_flip(fixture_path(directory, 2, "core-001.mrc"), 300, 0x40);
    check_refused(directory, 3, "checkpoint 3 is based on 2: ");
    check_refused(directory, 3, "core-001.mrc: block 0: its hash");
    chain_check(directory, 0, 1, 1, first);
    fixture_flip(fixture_path(directory, 2, "core-001.mrc"), 300, 0x40);
    chain_check(directory, 0, 3, 3, links);
}

TEST(test_a_bad_manifest_of_a_parent_is_named, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory);
    fixture_flip(fixture_path(directory, 1, PS_MANIFEST_NAME), 50, 0x40);
    check_refused(directory, 3, "checkpoint 2 is a delta on 1: ");
    check_refused(directory, 3, "MANIFEST: ");
    assert_int_equal(unlink(fixture_path(directory, 1, PS_MANIFEST_NAME)), 0);
    check_refused(directory, 3, "ckpt-1/MANIFEST: it is missing");
}

TEST(test_damage_shows_while_an_unread_chain_is_read, temporary_directory_setup, temporary_directory_teardown)
{
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    save_chain(*state);
    assert_int_equal(ps_reader_open_unread(NULL, *state, 3, &r, text), MR_OK);
    fixture_flip(fixture_path(*state, 2, "core-000.mrc"), 300, 0x40);
    struct looked looked = {0};
    assert_int_equal(ps_reader_blocks(r, 1, 1, checkpoint_chain_look, &looked, text), MR_CHECKPOINT_CORRUPT);
    assert_true(ps_reader_is_damaged(r));
    assert_int_equal(looked.blocks[0], FIXTURE_CORES); /* what came before it was whole */
    assert_int_equal(looked.blocks[2], 0);
    ps_reader_close(r);
}

/* A delta must have all features of its parent, as they were, but for options that can be altered and
 * features that it says were dropped. */
TEST(test_features_of_a_parent_stay)
{
    struct mr_feature was[2], is[2];
    uint32_t ids[2], other_ids[2] = {FIXTURE_TABLE, FIXTURE_VARIABLE + 1};
    char wrong[PS_TEXT_BYTES];
    fixture_features(was, ids);
    fixture_features(is, ids);
    struct ps_manifest parent = {.feature_count = 1, .features = was, .feature_ids = ids};
    struct ps_manifest delta = {.feature_count = 2, .features = is, .feature_ids = ids};
    assert_true(ps_manifest_follows(&parent, &delta, wrong)); /* one more */
    parent.feature_count = 2;
    assert_true(ps_manifest_follows(&parent, &delta, wrong));
    delta.feature_ids = other_ids;
    assert_false(ps_manifest_follows(&parent, &delta, wrong));
    assert_string_equal(wrong, "where it lacks bias");
    assert_true(ps_manifest_note_dropped(&delta, &parent));
    assert_int_equal(delta.dropped_count, 1);
    assert_int_equal(delta.dropped[0], FIXTURE_VARIABLE);
    assert_true(ps_manifest_follows(&parent, &delta, wrong));
    free(delta.dropped);
    delta.dropped_count = 0;
    delta.feature_ids = ids;
    is[0].learning_rate++;
    is[0].altered = 1;
    assert_true(ps_manifest_follows(&parent, &delta, wrong));
    is[0].dims[0]++;
    assert_false(ps_manifest_follows(&parent, &delta, wrong));
    assert_string_equal(wrong, "where embedding has another dim");
}

TEST(test_a_delta_of_other_features_is_not_begun, temporary_directory_setup, temporary_directory_teardown)
{
    struct mr_feature features[2];
    uint32_t ids[2];
    char text[PS_TEXT_BYTES];
    struct ps_writer *w = NULL;
    chain_save(NULL, *state, 1, 0, full);
    fixture_features(features, ids);
    features[0].optimizer = MR_OPT_SGD;
    struct ps_writer_options options = fixture_options(*state, 2);
    options.parent_id = 1;
    options.features = features;
    options.core_count = 1;
    assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_INVALID_ARGUMENT);
    assert_string_equal(text, "a delta on checkpoint 1: where embedding has another optimizer: save a full");
    assert_null(w);
    assert_int_equal(fixture_count(*state, ""), 1);
}

static void check_not_begun(const char *directory, const char *expected)
{
    char text[PS_TEXT_BYTES];
    struct ps_writer *w = NULL;
    struct ps_writer_options options = fixture_options(directory, 4);
    options.parent_id = 3;
    options.core_count = 1;
    assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_CHECKPOINT_CORRUPT);
    if (!strstr(text, expected))
        fail_msg("\"%s\" does not say: %s", text, expected);
    assert_null(w);
    assert_int_equal(fixture_count(directory, ".tmp-"), 0);
}

/* A delta is worth nothing without all that it is based on, not its parent alone. */
TEST(test_a_delta_on_a_broken_chain_is_not_begun, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory);
    assert_int_equal(truncate(fixture_path(directory, 1, "core-001.mrc"), PS_BLOCK_BYTES / 2), 0);
    check_not_begun(directory, "core-001.mrc: its length is not the one that the MANIFEST gives");
    assert_int_equal(unlink(fixture_path(directory, 1, "core-001.mrc")), 0);
    check_not_begun(directory, "core-001.mrc: it is missing");
    rename_checkpoint(directory, 1, "away");
    check_not_begun(directory, "checkpoint 2 is a delta on 1, which is missing");
}

TEST(test_a_base_that_goes_while_its_delta_is_written, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES];
    struct ps_writer *w = NULL;
    save_chain(directory);
    struct ps_writer_options options = fixture_options(directory, 4);
    options.parent_id = 3;
    options.core_count = 1;
    assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_OK);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    chain_save_key(directory, 5, 0, 1, 1);
    ps_checkpoint_retain(NULL, directory,
                         &(struct ps_retention){.keep = 1}); /* who writes the delta holds the chain */
    assert_int_equal(fixture_count(directory, "ckpt-"), 4);
    rename_checkpoint(directory, 1, "away");
    ps_writer_core_done(w, 0);
    const struct ps_writer_status ended = fixture_finish(w);
    assert_int_equal(ended.status, MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(ended.text, "a delta on checkpoint 3: "));
    assert_non_null(strstr(ended.text, "checkpoint 2 is a delta on 1, which is missing"));
    assert_int_equal(fixture_count(directory, "ckpt-"), 3);
    assert_int_equal(fixture_count(directory, ".tmp-"), 0);
}

static void copy_file(const char *from, const char *to, size_t bytes_min)
{
    static uint8_t bytes[PS_BLOCK_BYTES];
    memset(bytes, 0, sizeof(bytes));
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    size_t n = fread(bytes, 1, sizeof(bytes), in);
    n = n > bytes_min ? n : bytes_min;
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
}

/* The first delta after a server was brought up to date. */
TEST(test_a_delta_on_a_full_of_version_2, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_manifest old;
    struct ps_reader *r;
    struct ps_writer *w;
    char text[PS_TEXT_BYTES], path[PS_PATH_BYTES];
    assert_true(ps_path_published(directory, 1, path));
    assert_int_equal(mkdir(path, 0755), 0);
    copy_file(CHECKPOINT_V2 "/MANIFEST", fixture_path(directory, 1, PS_MANIFEST_NAME), 0);
    copy_file(CHECKPOINT_V2 "/core-000.mrc", fixture_path(directory, 1, "core-000.mrc"), PS_BLOCK_BYTES);
    copy_file(CHECKPOINT_V2 "/core-001.mrc", fixture_path(directory, 1, "core-001.mrc"), PS_BLOCK_BYTES);
    assert_int_equal(ps_manifest_read(ps_store_local(), directory, 1, &old, text), MR_OK);
    const struct ps_writer_options options = {.directory = directory,
                                              .id = 2,
                                              .parent_id = 1,
                                              .features = old.features,
                                              .feature_ids = old.feature_ids,
                                              .feature_count = old.feature_count,
                                              .core_count = 1,
                                              .buffers_per_core = 2};
    assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_OK);
    ps_manifest_clear(&old);
    fixture_publish(w, 1);
    assert_int_equal(ps_reader_open(NULL, directory, 2, &r, text), MR_OK);
    assert_int_equal(ps_reader_chain(r)->count, 2);
    assert_int_equal(ps_reader_chain(r)->links[0]->manifest.version, PS_FORMAT_VERSION_2);
    assert_int_equal(ps_reader_chain(r)->links[1]->manifest.version, PS_FORMAT_VERSION_6);
    ps_reader_close(r);
}

/* Tables that older versions would misread make it a checkpoint that those do not take for damaged. */
TEST(test_what_tables_need_is_written, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_writer *w;
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    for (uint64_t id = 1; id <= 2; id++) {
        struct ps_writer_options options = fixture_options(directory, id);
        struct mr_feature features[2] = {options.features[0], options.features[1]};
        features[0].optimizer_args[MR_OPTIMIZER_ARG_DENSE] = id == 2 ? 1 : 0;
        options.features = features;
        assert_int_equal(ps_writer_start(NULL, &options, &w, text), MR_OK);
        for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
            assert_true(fixture_fill(w, id, core, 10));
            ps_writer_core_done(w, core);
        }
        assert_int_equal(fixture_finish(w).status, MR_OK);
        assert_int_equal(ps_reader_open(NULL, directory, id, &r, text), MR_OK);
        const struct ps_manifest *m = ps_reader_manifest(r);
        assert_int_equal(m->version, id == 2 ? PS_FORMAT_VERSION : PS_FORMAT_VERSION_6);
        assert_int_equal(m->needs, id == 2 ? MR_CAN(DENSE) : 0);
        assert_string_equal(m->written_by, id == 2 ? mr_version_text() : "");
        ps_reader_close(r);
    }
}

/* A node by itself has saved where a cluster keeps its checkpoints, which goes on afterwards. */
TEST(of_one_number_the_clusters_is_meant, temporary_directory_setup, temporary_directory_teardown)
{
    static const char *const nodes[] = {"a"};
    const char *directory = *state;
    struct ps_chain chain;
    char path[PS_PATH_BYTES], text[PS_TEXT_BYTES];
    assert_true(ps_path_join(directory, "a", path));
    chain_save_key(directory, 4, 0, 1, 1);
    chain_save_key(path, 4, 0, 2, 2);
    assert_int_equal(ps_chain_open(ps_store_local(), directory, 4, &chain, text), MR_OK);
    assert_null(chain.cluster);
    ps_chain_close(&chain);
    cluster_commit(directory, 4, nodes, 1);
    assert_int_equal(ps_chain_open(ps_store_local(), directory, 4, &chain, text), MR_OK);
    assert_non_null(chain.cluster);
    ps_chain_close(&chain);
}
