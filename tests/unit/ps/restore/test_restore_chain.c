/* Chains through a whole node: a full and a delta on it restore what a full of the same moment would, onto
 * any number of cores. The delta is made of two fulls: rows that differ, and one key that is gone. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint_fixture.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "restore_fixture.h"
#include "tests/command.h"
#include "tests/test.h"
#include "tests/unit/ps/reader_each.h"

#define GONE_KEY 1005u /* keys[5] */

/* What the first of two fulls has of each key. */
struct old_rows {
    uint32_t row_bytes;
    uint8_t rows[KEYS][64];
};

struct delta {
    struct ps_writer *writer;
    const struct old_rows *old;
    uint32_t changed;
};

static enum mr_status note_rows(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct old_rows *old = arg;
    if (record->kind != PS_RECORD_ROWS)
        return MR_OK;
    const uint64_t *row_keys = (const uint64_t *)(const void *)bytes;
    old->row_bytes = record->row_bytes;
    assert_true(record->row_bytes <= sizeof(old->rows[0]));
    for (uint32_t i = 0; i < record->count; i++) {
        memcpy(old->rows[row_keys[i] - 1000], bytes + 8ull * record->count + (size_t)i * record->row_bytes,
               record->row_bytes);
    }
    return MR_OK;
}

/* One row of a record, unless the delta need not have it. */
static void add_row(struct delta *d, const struct ps_record *record, uint64_t key, const uint8_t *row)
{
    if (key == GONE_KEY || memcmp(row, d->old->rows[key - 1000], record->row_bytes) == 0)
        return;
    struct ps_record one = *record;
    one.count = 1;
    one.bytes = 8 + record->row_bytes;
    uint8_t *to = ps_writer_append(d->writer, 0, &one);
    assert_non_null(to);
    memcpy(to, &key, 8);
    memcpy(to + 8, row, record->row_bytes);
    d->changed++;
}

static enum mr_status add_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct delta *d = arg;
    if (record->kind == PS_RECORD_ROWS) {
        const uint64_t *row_keys = (const uint64_t *)(const void *)bytes;
        for (uint32_t i = 0; i < record->count; i++)
            add_row(d, record, row_keys[i], bytes + 8ull * record->count + (size_t)i * record->row_bytes);
        return MR_OK;
    }
    uint8_t *to = ps_writer_append(d->writer, 0, record);
    assert_non_null(to);
    memcpy(to, bytes, record->bytes);
    return MR_OK;
}

static struct ps_writer *start_delta(const struct node_fixture *n, const struct ps_reader *r, uint64_t id,
                                     uint64_t parent)
{
    struct ps_writer *writer;
    char text[256];
    const struct ps_manifest *m = ps_reader_manifest(r);
    const struct ps_writer_options options = {.directory = n->config.checkpoint_directory,
                                              .id = id,
                                              .parent_id = parent,
                                              .features = m->features,
                                              .feature_ids = m->feature_ids,
                                              .feature_count = m->feature_count,
                                              .core_count = m->file_count,
                                              .incarnation = m->incarnation,
                                              .buffers_per_core = 2};
    if (ps_writer_start(NULL, &options, &writer, text) != MR_OK)
        fail_msg("%s", text);
    return writer;
}

static void add_gone(struct ps_writer *writer, uint32_t table, uint64_t key)
{
    const struct ps_record gone = {.kind = PS_RECORD_GONE, .feature = table, .count = 1, .bytes = 8};
    uint8_t *to = ps_writer_append(writer, 0, &gone);
    assert_non_null(to);
    memcpy(to, &key, 8);
}

/* Checkpoint 3: what has changed from 1 to 2, as a delta on 1; 2 goes. */
static void make_delta(struct node_fixture *n, uint32_t table, uint32_t changed)
{
    static struct old_rows old;
    struct ps_reader *r;
    char text[256];
    memset(&old, 0, sizeof(old));
    assert_int_equal(ps_reader_open(NULL, n->config.checkpoint_directory, 1, &r, text), MR_OK);
    assert_int_equal(reader_each(r, note_rows, &old, text), MR_OK);
    ps_reader_close(r);
    assert_int_equal(ps_reader_open(NULL, n->config.checkpoint_directory, 2, &r, text), MR_OK);
    struct delta d = {.old = &old, .writer = start_delta(n, r, 3, 1)};
    assert_int_equal(reader_each(r, add_record, &d, text), MR_OK);
    add_gone(d.writer, table, GONE_KEY);
    fixture_publish(d.writer, ps_reader_manifest(r)->file_count);
    assert_int_equal(d.changed, changed);
    ps_reader_close(r);
    assert_int_equal(command_run("rm -r %.200s/ckpt-2", n->config.checkpoint_directory), 0);
}

/* All keys applied batch 0; then keys 0 to 7 applied batch 1, and a numbered push of all keys came on
 * `cores`. Every key is 99 but the first eight, which are 98, and less the push. */
static uint32_t make_chain(struct node_fixture *n, uint32_t cores)
{
    node_restart(n, cores);
    uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), cores);
    assert_int_equal(node_save(n), 1);
    node_feed(n, BATCH(1), table, keys, 8);
    for (uint32_t core = 0; core < cores; core++)
        node_push_batch(n, core, BATCH(1), table, 8, 1);
    assert_int_equal(node_save(n), 2);
    make_delta(n, table, 7); /* the eighth is gone */
    return table;
}

static void check_chain(struct node_fixture *n, uint32_t table)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        float expected = keys[i] == GONE_KEY ? 100 : i < 8 ? 98 : 99;
        assert_float_equal(node_value(n, table, keys[i]), expected, 0);
    }
}

static void check_restored_onto(struct node_fixture *n, uint32_t from, uint32_t to)
{
    uint32_t table = make_chain(n, from);
    node_restart(n, to);
    assert_int_equal(make_table(n), table);
    check_chain(n, table);
    uint64_t rows = 0;
    for (uint32_t core = 0; core < to; core++)
        rows += node_counter(n, core, "table.rows");
    assert_int_equal(rows, KEYS - 1);
    /* The batches applied are those of the delta, not of the full. */
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    node_feed(n, BATCH(1), table, keys, 8);
    for (uint32_t core = 0; core < to; core++)
        assert_int_equal(node_push_batch(n, core, BATCH(1), table, 8, 1), 0);
    check_chain(n, table);
    assert_int_equal(learn(n, table, BATCH(2)), to);
}

TEST(restores_on_as_many_cores, node_setup, node_teardown)
{
    check_restored_onto(*state, 2, 2);
}

TEST(restores_on_more_cores, node_setup, node_teardown)
{
    check_restored_onto(*state, 1, 3);
}

TEST(restores_on_fewer_cores, node_setup, node_teardown)
{
    check_restored_onto(*state, 3, 1);
}

TEST(a_link_may_be_of_another_number_of_cores, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct ps_reader *r;
    char text[256];
    uint32_t table = make_chain(n, 2);
    node_restart(n, 3);
    make_table(n);
    assert_int_equal(node_save(n), 4); /* of three cores */
    assert_int_equal(ps_reader_open(NULL, n->config.checkpoint_directory, 4, &r, text), MR_OK);
    static struct old_rows nothing;
    memset(&nothing, 0, sizeof(nothing));
    struct delta d = {.old = &nothing, .writer = start_delta(n, r, 5, 3)};
    assert_int_equal(reader_each(r, add_record, &d, text), MR_OK);
    fixture_publish(d.writer, 3);
    ps_reader_close(r);
    node_check(node_restore(n, 5), MR_OK, NULL);
    check_chain(n, table);
    assert_int_equal(learn(n, table, BATCH(0)), 0);
}

static void remove_checkpoint(const struct node_fixture *n, uint64_t id)
{
    assert_int_equal(command_run("rm -r %.200s/ckpt-%u", n->config.checkpoint_directory, (unsigned)id), 0);
}

TEST(an_empty_node_takes_the_newest_that_has_its_parents, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_chain(n, 1);
    struct ps_reader *r;
    char text[256];
    assert_int_equal(ps_reader_open(NULL, n->config.checkpoint_directory, 3, &r, text), MR_OK);
    fixture_publish(start_delta(n, r, 4, 3), 1);
    fixture_publish(start_delta(n, r, 5, 4), 1);
    ps_reader_close(r);
    remove_checkpoint(n, 4);
    node_restart(n, 1);
    assert_int_equal(make_table(n), table);
    check_chain(n, table); /* 3's: 5 lacks its parent */
}

/* What serves stays as it is, and the reason is reported. */
TEST(a_broken_chain_changes_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char path[300];
    uint32_t table = make_chain(n, 2);
    learn(n, table, BATCH(3));
    float before = node_value(n, table, keys[9]);
    snprintf(path, sizeof(path), "%.200s/ckpt-1/core-001.mrc", n->config.checkpoint_directory);
    assert_int_equal(truncate(path, 1000), 0);
    node_check(node_restore(n, 3), MR_CHECKPOINT_CORRUPT, "checkpoint 3 is based on 1: ");
    assert_float_equal(node_value(n, table, keys[9]), before, 0);
    remove_checkpoint(n, 1);
    node_check(node_restore(n, 3), MR_CHECKPOINT_CORRUPT, "checkpoint 3 is a delta on 1, which is missing");
    assert_float_equal(node_value(n, table, keys[9]), before, 0);
    node_check(node_restore(n, 0), MR_CHECKPOINT_CORRUPT, "checkpoint 3 is a delta on 1, which is missing");
    assert_float_equal(node_value(n, table, keys[9]), before, 0);
    assert_int_equal(learn(n, table, BATCH(3)), 0); /* it is still known */
}

/* The node has gone on since; half of its partitions go back to the chain's end. */
TEST(is_taken_over_beside_what_serves, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct ps_partition_set set = {{0}};
    char text[PS_MOVE_TEXT_BYTES];
    uint32_t table = make_chain(n, 2);
    assert_int_equal(learn(n, table, BATCH(3)), 2);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p += 2)
        ps_partitions_add(&set, p);
    ps_partitions_add(&set, mr_partition_of(mr_key_hash(GONE_KEY, 0)));
    if (take_over(n->config.checkpoint_directory, 3, &set, text) != PS_TAKE_OVER_LOADED)
        fail_msg("%s", text);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < KEYS; i++) {
            const bool is_taken = ps_partitions_has(&set, mr_partition_of(mr_key_hash(keys[i], 0)));
            const float chain = keys[i] == GONE_KEY ? 100 : i < 8 ? 98 : 99;
            assert_float_equal(node_value(n, table, keys[i]), is_taken ? chain : chain - 1, 0);
        }
        assert_int_equal(node_save(n), 4 + round);
        node_restart(n, 2);
    }
}
