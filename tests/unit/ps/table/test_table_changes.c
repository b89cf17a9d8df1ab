/* What a copy of a table's rows lives on: the keys that change, and rows that are kept for another node. */
#include <stdlib.h>
#include <string.h>
#include "ps/table/table_changes.h"
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM  3u
#define OWN  100u /* partitions */
#define KEPT 200u
#define EACH 300u

static struct ps_partition_set followed;

static struct ps_table *changes_table(const struct mr_feature *feature)
{
    struct ps_table *t = fixture_table(feature, fixture_arena);
    followed = ps_partitions_range(KEPT, KEPT + 1);
    ps_table_follow(t, &followed);
    return t;
}

/* Rows of the other node, as they come. */
static void load_kept(struct ps_table *t, uint32_t count)
{
    uint8_t row[256] = {0};
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(ps_table_load(t, fixture_key_of(t, KEPT, i), row), MR_OK);
}

static bool has_kept(const struct ps_table *t, uint32_t count)
{
    uint64_t key;
    for (uint32_t i = 0; i < count; i++)
        if (ps_table_row_of(t, ps_index_hash(&t->index, fixture_key_of(t, KEPT, i)), &key) == NULL)
            return false;
    return true;
}

TEST(changes_are_collected, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature feature = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&feature, fixture_arena);
    struct ps_table_changes changes = {0};
    const uint64_t key = 5, other = 6;
    const float gradient[DIM] = {1, 1, 1};
    float row[DIM];
    fixture_insert(t, other);
    ps_table_collect(t, &changes);
    table_lookup(t, &key, 1, true, row);
    assert_int_equal(changes.count, 1);
    table_lookup(t, &key, 1, true, row); /* is no change */
    assert_int_equal(changes.count, 1);
    table_push(t, &other, 1, gradient);
    assert_int_equal(changes.count, 2);
    assert_int_equal(changes.hashes[1], ps_index_hash(&t->index, other));
    ps_table_load_tombstone(t, key);
    assert_int_equal(changes.count, 3);
    ps_table_changes_clear(&changes);
    ps_table_collect(t, NULL);
    table_push(t, &other, 1, gradient);
    assert_int_equal(changes.count, 0);
    ps_table_changes_free(&changes);
    ps_table_destroy(t);
}

static uint32_t emitted[2]; /* of the node's own partitions, and of the other's */

static void changes_emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                         uint32_t count)
{
    (void)self;
    (void)rows;
    for (uint32_t i = 0; i < count; i++)
        emitted[mr_partition_of(ps_index_hash(&t->index, keys[i])) == KEPT]++;
}

static bool changes_has_room(void *self, const struct ps_table *t, uint32_t rows)
{
    (void)self;
    (void)t;
    (void)rows;
    return true;
}

/* Neither the cursor nor a row that comes meanwhile gives any of them out. */
TEST(rows_of_another_node_are_in_no_snapshot, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature feature = fixture_adagrad(DIM);
    struct ps_table *t = changes_table(&feature);
    const struct ps_cut cut = {.emit = changes_emit, .has_room = changes_has_room};
    for (uint32_t i = 0; i < EACH; i++)
        fixture_insert(t, fixture_key_of(t, OWN, i));
    load_kept(t, EACH);
    emitted[0] = emitted[1] = 0;
    (void)ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    load_kept(t, EACH / 2);
    ps_table_load_tombstone(t, fixture_key_of(t, KEPT, 1));
    while (!ps_table_cut_step(t, 4)) {
    }
    assert_int_equal(emitted[0], EACH);
    assert_int_equal(emitted[1], 0);
    ps_table_destroy(t);
}

/* At the table's limit its own rows make room for its own. */
TEST(rows_of_another_node_do_not_count_and_stay, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature feature = fixture_adagrad(DIM);
    feature.eviction = MR_EVICT_LRU;
    feature.capacity_rows = EACH;
    struct ps_table *t = changes_table(&feature);
    load_kept(t, EACH);
    for (uint32_t i = 0; i < 3 * EACH; i++)
        fixture_insert(t, fixture_key_of(t, OWN, i));
    assert_int_equal(ps_table_rows(t), 2 * EACH);
    assert_int_equal(ps_table_rows_owned(t), EACH);
    assert_int_equal(ps_table_counters(t)->rows_copied, EACH);
    assert_true(has_kept(t, EACH));
    assert_int_equal(ps_table_counters(t)->rows_evicted_capacity, 2 * EACH);
    /* now they are the node's: there are more rows than it may have */
    ps_table_follow(t, NULL);
    while (ps_table_evict(t, UINT64_MAX)) {
    }
    assert_int_equal(ps_table_rows(t), EACH);
    assert_int_equal(ps_table_rows_owned(t), EACH);
    ps_table_destroy(t);
}

TEST(rows_that_are_old_are_left_to_their_owner, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature feature = fixture_adagrad(DIM);
    feature.eviction = MR_EVICT_AGE;
    feature.eviction_arg = 10;
    struct ps_table *t = changes_table(&feature);
    ps_table_set_now(t, 100, 0);
    load_kept(t, EACH);
    for (uint32_t i = 0; i < EACH; i++)
        fixture_insert(t, fixture_key_of(t, OWN, i));
    for (uint32_t now_s = 101; now_s < 200; now_s++) {
        ps_table_set_now(t, now_s, 0);
        while (ps_table_evict(t, UINT64_MAX)) {
        }
    }
    assert_int_equal(ps_table_rows(t), EACH);
    assert_true(has_kept(t, EACH));
    ps_table_destroy(t);
}
