/* A core sends partitions block by block, while it serves them. */
#include <stdlib.h>
#include <string.h>
#include "core_fixture.h"
#include "dataplane/wire/format/move.h"
#include "ps/core/core.h"
#include "ps/move/cleanup.h"
#include "ps/move/migration_source.h"
#include "ps/server/poll.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define ROWS        6000u
#define DIM         16u
#define MOVE        7u
#define BLOCKS_MAX  1000u
#define SMALL_STEPS 4000u /* of budget: a block takes many of them */

struct fixture {
    struct core_fixture alone;
    struct ps_core *core;
    struct ps_table *table;
    struct ps_partition_set set;
    uint64_t position;
    uint32_t seen[ROWS]; /* how often a key has been sent */
    uint64_t gone;
};

static int migration_source_make(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char text[PS_CORE_TEXT_BYTES];
    assert_non_null(f);
    core_fixture_init(&f->alone, 1, 256);
    core_fixture_make(&f->alone, 0);
    f->core = f->alone.core;
    struct mr_feature feature = mr_feature_table("t", DIM);
    feature.learning_rate = 1;
    assert_int_equal(ps_core_add_feature(f->core, 1, &feature, text), MR_OK);
    f->table = f->core->features[1]->table;
    for (uint64_t key = 0; key < ROWS; key++) {
        float row[DIM];
        table_lookup(f->table, &key, 1, true, row);
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p += 2)
        ps_partitions_add(&f->set, p);
    *state = f;
    return 0;
}

static int migration_source_destroy(void **state)
{
    struct fixture *f = *state;
    ps_core_destroy(f->core);
    free(f);
    return 0;
}

static bool is_moved(uint64_t key)
{
    return mr_partition_of(mr_key_hash(key, 0)) % 2 == 0;
}

static void migration_source_push(struct fixture *f, uint64_t key)
{
    const float gradient[DIM] = {1};
    table_push(f->table, &key, 1, gradient);
}

static struct ps_migration_block migration_source_next(struct fixture *f, uint64_t budget_bytes)
{
    struct ps_migration_block block;
    f->position++;
    while (!ps_migration_source_read(f->core, MOVE, f->position, budget_bytes, &block)) {
    }
    return block;
}

/* Notes which keys a block has. */
static void migration_source_note(struct fixture *f, const struct ps_migration_block *block)
{
    for (uint32_t at = 0; at < block->byte_count;) {
        struct ps_record record;
        memcpy(&record, block->bytes + at, sizeof(record));
        const uint64_t *keys = (const uint64_t *)(const void *)(block->bytes + at + sizeof(record));
        for (uint32_t i = 0; i < record.count && record.kind == PS_RECORD_ROWS; i++) {
            assert_true(keys[i] < ROWS && is_moved(keys[i]));
            f->seen[keys[i]]++;
        }
        f->gone += record.kind == PS_RECORD_GONE ? record.count : 0;
        at += (uint32_t)(sizeof(record) + ((record.bytes + 7) & ~UINT64_C(7)));
    }
}

/* Takes blocks until one is empty, or the last. */
static struct ps_migration_block read_all(struct fixture *f, uint64_t budget_bytes)
{
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
        const struct ps_migration_block block = migration_source_next(f, budget_bytes);
        assert_true(block.byte_count <= MR_MOVE_BLOCK_BYTES);
        migration_source_note(f, &block);
        if (block.byte_count == 0 || block.state != MR_MOVE_MORE)
            return block;
    }
    fail_msg("blocks without end");
    return (struct ps_migration_block){0};
}

TEST(test_rows_come_and_come_again_when_they_change, migration_source_make, migration_source_destroy)
{
    struct fixture *f = *state;
    assert_int_equal(ps_migration_source_begin(f->core, MOVE, &f->set), MR_OK);
    struct ps_migration_block block = read_all(f, SMALL_STEPS);
    assert_int_equal(block.state, MR_MOVE_MORE);
    assert_int_equal(block.left_bytes, 0);
    for (uint64_t key = 0; key < ROWS; key++)
        assert_int_equal(f->seen[key], is_moved(key));
    for (uint64_t key = 0; key < 100; key++)
        migration_source_push(f, key);
    (void)read_all(f, UINT64_MAX);
    for (uint64_t key = 0; key < ROWS; key++)
        assert_int_equal(f->seen[key], is_moved(key) ? 1 + (key < 100) : 0);
    migration_source_push(f, 1);
    migration_source_push(f, 2);
    ps_migration_source_fence(f->core, MOVE);
    block = read_all(f, SMALL_STEPS);
    assert_int_equal(block.state, MR_MOVE_ALL);
    assert_int_equal(f->seen[1] + f->seen[2], (is_moved(1) ? 3 : 0) + (is_moved(2) ? 3 : 0));
    ps_migration_source_end(f->core, MOVE);
    assert_null(f->core->migration_source);
    assert_false(ps_save_delta_possible(f->core));
}

TEST(test_a_block_that_is_asked_for_again_is_the_same, migration_source_make, migration_source_destroy)
{
    struct fixture *f = *state;
    assert_int_equal(ps_migration_source_begin(f->core, MOVE, &f->set), MR_OK);
    const struct ps_migration_block first = migration_source_next(f, UINT64_MAX);
    uint8_t *copy = malloc(first.byte_count);
    assert_non_null(copy);
    memcpy(copy, first.bytes, first.byte_count);
    for (uint64_t key = 0; key < ROWS; key++)
        migration_source_push(f, key);
    struct ps_migration_block again;
    assert_true(ps_migration_source_read(f->core, MOVE, 1, UINT64_MAX, &again));
    assert_int_equal(again.byte_count, first.byte_count);
    assert_memory_equal(again.bytes, copy, first.byte_count);
    free(copy);
}

static void add_variable(struct fixture *f, uint32_t id, const char *name, uint32_t elements)
{
    char text[PS_CORE_TEXT_BYTES];
    const struct mr_feature feature = mr_feature_variable(name, 1, &elements);
    assert_int_equal(ps_core_add_feature(f->core, id, &feature, text), MR_OK);
    ps_partitions_add(&f->set, mr_variable_partition(name));
}

/* How many bytes of a variable are in the block. */
static uint64_t bytes_of_variable(const struct ps_migration_block *block, uint32_t id)
{
    uint64_t bytes = 0;
    struct ps_record record;
    for (uint32_t at = 0; at < block->byte_count;
         at += (uint32_t)(sizeof(record) + ((record.bytes + 7) & ~UINT64_C(7)))) {
        memcpy(&record, block->bytes + at, sizeof(record));
        bytes += record.kind == PS_RECORD_VARIABLE && record.feature == id ? record.bytes : 0;
    }
    return bytes;
}

/* It takes several blocks, and is dropped between two of them. */
TEST(test_a_variable_that_is_dropped_leaves_the_next_one_whole, migration_source_make,
     migration_source_destroy)
{
    struct fixture *f = *state;
    struct ps_migration_block block;
    uint64_t bytes = 0;
    add_variable(f, 2, "large", 4 * MR_MOVE_BLOCK_BYTES / sizeof(float));
    add_variable(f, 3, "small", 5);
    assert_int_equal(ps_migration_source_begin(f->core, MOVE, &f->set), MR_OK);
    ps_migration_source_fence(f->core, MOVE);
    do
        block = migration_source_next(f, UINT64_MAX);
    while (bytes_of_variable(&block, 2) == 0);
    ps_core_remove_feature(f->core, 2);
    while (block.state == MR_MOVE_MORE) {
        block = migration_source_next(f, UINT64_MAX);
        bytes += bytes_of_variable(&block, 3);
    }
    assert_int_equal(block.state, MR_MOVE_ALL);
    assert_int_equal(bytes, ps_variable_stored_bytes(f->core->features[3]->ranges[0].variable));
}

/* Its session ends in the middle of a block; another one asks for the same block. */
TEST(test_a_block_that_was_begun_is_completed, migration_source_make, migration_source_destroy)
{
    struct fixture *f = *state;
    struct ps_migration_block block;
    assert_int_equal(ps_migration_source_begin(f->core, MOVE, &f->set), MR_OK);
    assert_false(ps_migration_source_read(f->core, MOVE, 1, SMALL_STEPS, &block));
    (void)read_all(f, UINT64_MAX); /* from position 1 on */
    for (uint64_t key = 0; key < ROWS; key++)
        assert_int_equal(f->seen[key], is_moved(key));
}

TEST(test_what_is_not_given_is_not_ready, migration_source_make, migration_source_destroy)
{
    struct fixture *f = *state;
    struct ps_migration_block block;
    assert_true(ps_migration_source_read(f->core, MOVE, 1, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_NOT_READY);
    assert_int_equal(ps_migration_source_begin(f->core, MOVE, &f->set), MR_OK);
    assert_true(ps_migration_source_read(f->core, MOVE + 1, 1, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_NOT_READY);
    ps_migration_source_end(f->core, MOVE + 1); /* another one */
    assert_true(ps_migration_source_read(f->core, MOVE, 1, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_MORE);
    assert_true(ps_migration_source_read(f->core, MOVE, 3, UINT64_MAX,
                                         &block)); /* what was in block 2 would be missing */
    assert_int_equal(block.state, MR_MOVE_LOST);
}

/* What the core serves stays; what it does not is freed, a little at a time. */
TEST(test_only_what_is_not_served_is_dropped, migration_source_make, migration_source_destroy)
{
    struct fixture *f = *state;
    const uint64_t before = ps_table_rows(f->table);
    ps_cleanup_add(f->core, &f->set);
    while (ps_cleanup_step(f->core)) {
    }
    assert_int_equal(ps_table_rows(f->table), before);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p += 2)
        f->core->owns.since[p] = PS_NOT_OWNED;
    ps_cleanup_add(f->core, &f->set);
    assert_true(ps_cleanup_has(f->core, &f->set));
    uint32_t steps = 0;
    while (ps_cleanup_step(f->core))
        steps++;
    assert_true(steps > 1);
    assert_false(ps_cleanup_has(f->core, &f->set));
    uint64_t left = 0;
    for (uint64_t key = 0; key < ROWS; key++)
        left += !is_moved(key);
    assert_int_equal(ps_table_rows(f->table), left);
}
