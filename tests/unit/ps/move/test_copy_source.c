/* A core tells its backup of what it has, and of what it applies meanwhile and afterwards: the backup, which
 * is here a second core, ends with the same rows and variables, bit for bit, and knows the same pushes. */
#include <stdlib.h>
#include <string.h>
#include "core_fixture.h"
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/move.h"
#include "ps/core/core.h"
#include "ps/move/copy_shadow.h"
#include "ps/move/copy_source.h"
#include "ps/server/poll.h"
#include "ps/table/table_internal.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define ROWS        6000u
#define DIM         16u
#define COPY        7u
#define SMALL_STEPS 4000u /* of budget */
#define RING        (1u << 20)

static const uint8_t uuid[MR_UUID_BYTES] = {1};

struct side {
    struct core_fixture alone;
    struct ps_core *core;
    struct ps_table *table;
};

struct fixture {
    struct side primary, backup;
    struct ps_partition_set set;
    struct ps_copy_status status;
    struct ps_copy_shadow *shadow;
    uint64_t position, numbers, step, records;
    bool is_whole;
    uint8_t *stream; /* what has come and is not applied */
    size_t bytes;
};

static void side_make(struct side *s)
{
    char text[PS_CORE_TEXT_BYTES];
    core_fixture_init(&s->alone, 1, 256);
    core_fixture_make(&s->alone, 0);
    s->core = s->alone.core;
    struct mr_feature feature = mr_feature_table("t", DIM);
    feature.learning_rate = 1;
    mr_feature_set_optimizer(&feature, MR_OPT_ADAM);
    assert_int_equal(ps_core_add_feature(s->core, 1, &feature, text), MR_OK);
    s->table = s->core->features[1]->table;
}

static int copy_source_make(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    side_make(&f->primary);
    side_make(&f->backup);
    for (uint64_t key = 0; key < ROWS; key++) {
        float row[DIM];
        table_lookup(f->primary.table, &key, 1, true, row);
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p += 2)
        ps_partitions_add(&f->set, p);
    f->position = 1;
    f->stream = malloc(4 * RING);
    f->shadow = ps_copy_shadow_create();
    assert_non_null(f->stream);
    *state = f;
    return 0;
}

static int copy_source_destroy(void **state)
{
    struct fixture *f = *state;
    ps_core_destroy(f->primary.core);
    ps_core_destroy(f->backup.core);
    ps_copy_shadow_destroy(f->shadow);
    free(f->stream);
    free(f);
    return 0;
}

static bool is_copied(uint64_t key)
{
    return mr_partition_of(mr_key_hash(key, 0)) % 2 == 0;
}

/* Applies one push of some keys, as the handler does. */
static void copy_source_push(struct fixture *f, const uint64_t *keys, uint32_t count)
{
    static float gradients[ROWS * DIM];
    const struct ps_push_id id = {.uuid = uuid, .stream_id = MR_PUSH_CHOSEN, .number = ++f->numbers};
    struct ps_core *core = f->primary.core;
    for (uint32_t i = 0; i < count * DIM; i++)
        gradients[i] = 1.0f / (float)(f->numbers + i);
    assert_int_equal(ps_pushes_look_up(core->pushes, &id), PS_PUSH_NEW);
    ps_pushes_start(core->pushes, &id);
    table_push(f->primary.table, keys, count, gradients);
    (void)ps_pushes_finish(core->pushes, &id);
    ps_clients_note(core->clients, uuid, ++f->step);
    if (core->copies == NULL)
        return;
    ps_copies_note_push(core, uuid, MR_PUSH_CHOSEN);
    ps_copies_note_client(core, uuid);
    ps_copies_record(core);
}

static void copy_source_take(struct fixture *f, uint64_t number, const struct ps_record *record,
                             const uint8_t *bytes)
{
    struct ps_core *core = f->backup.core;
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    struct ps_feature *feature = core->features[record->feature];
    char text[PS_CORE_TEXT_BYTES];
    switch (record->kind) {
    case PS_RECORD_ROWS:
        for (uint32_t i = 0; i < record->count; i++) {
            assert_true(ps_partitions_has(&f->set, mr_partition_of(mr_key_hash(keys[i], 0))));
            assert_int_equal(ps_table_load(feature->table, keys[i],
                                           bytes + record->count * sizeof(*keys) + i * record->row_bytes),
                             MR_OK);
        }
        return;
    case PS_RECORD_GONE:
        for (uint32_t i = 0; i < record->count; i++)
            ps_table_load_tombstone(feature->table, keys[i]);
        return;
    case PS_RECORD_VARIABLE: {
        const uint64_t each = mr_rule_range_bytes(&feature->feature);
        const uint32_t range = (uint32_t)(record->offset / each);
        assert_int_equal(ps_feature_make_range(feature, range, text), MR_OK);
        if (record->offset % each == 0)
            ps_feature_reload_range(feature, range);
        assert_int_equal(
            ps_feature_load_range(feature, range, record->offset % each, bytes, record->bytes, text), MR_OK);
        return;
    }
    case PS_COPY_WHOLE:
        f->is_whole = true;
        return;
    default:
        assert_true(ps_copy_shadow_take(f->shadow, number, record, bytes));
    }
}

/* Applies all complete records that have come. */
static void copy_source_apply(struct fixture *f)
{
    struct ps_record record;
    size_t first = 0;
    for (size_t at = 0; at < f->bytes; at += sizeof(record) + mr_padded(record.bytes)) {
        memcpy(&record, f->stream + at, sizeof(record));
        if (at + sizeof(record) + mr_padded(record.bytes) > f->bytes)
            break;
        if (record.kind != PS_COPY_END)
            continue;
        const uint64_t number = record.offset;
        assert_int_equal(number, ++f->records);
        for (; first < at; first += sizeof(record) + mr_padded(record.bytes)) {
            memcpy(&record, f->stream + first, sizeof(record));
            copy_source_take(f, number, &record, f->stream + first + sizeof(record));
        }
        memcpy(&record, f->stream + at, sizeof(record));
        first = at + sizeof(record);
    }
    f->bytes -= first;
    memmove(f->stream, f->stream + first, f->bytes);
}

static struct ps_migration_block copy_source_ask(struct fixture *f, uint64_t budget_bytes)
{
    struct ps_migration_block block;
    while (!ps_copy_source_read(f->primary.core, COPY, f->position, budget_bytes, &block)) {
    }
    assert_true(block.byte_count <= MR_MOVE_BLOCK_BYTES);
    memcpy(f->stream + f->bytes, block.bytes, block.byte_count);
    f->bytes += block.byte_count;
    f->position += block.byte_count;
    copy_source_apply(f);
    return block;
}

/* Takes what there is. */
static void copy_source_follow(struct fixture *f, uint64_t budget_bytes)
{
    while (copy_source_ask(f, budget_bytes).byte_count > 0) {
    }
}

static uint32_t state_of(const struct fixture *f)
{
    return atomic_load(&f->status.state);
}

static void copy_source_begin(struct fixture *f, size_t ring_bytes)
{
    assert_int_equal(ps_copy_source_begin(f->primary.core, COPY, &f->set, ring_bytes, &f->status), MR_OK);
    assert_int_equal(state_of(f), PS_COPY_FORMS);
}

static const uint8_t *copy_source_row(const struct ps_table *t, uint64_t key)
{
    uint64_t same;
    const uint8_t *row = ps_table_row_of(t, ps_index_hash(&t->index, key), &same);
    assert_int_equal(same, key);
    return row;
}

/* The backup has the rows of the copied partitions, with their state, and no others; and the same pushes. */
static void check_same(struct fixture *f)
{
    const uint32_t bytes = ps_table_stored_row_bytes(f->primary.table);
    const struct ps_partition_set none = {{0}};
    struct ps_records records = ps_core_records(f->backup.core);
    struct ps_move_collected all;
    uint64_t copied = 0;
    for (uint64_t key = 0; key < ROWS; key++) {
        const uint8_t *row = copy_source_row(f->primary.table, key),
                      *copy = copy_source_row(f->backup.table, key);
        assert_int_equal(copy != NULL, row != NULL && is_copied(key));
        if (copy != NULL)
            assert_memory_equal(row, copy, bytes);
        copied += copy != NULL;
    }
    assert_int_equal(ps_table_rows(f->backup.table), copied);
    assert_true(ps_copy_shadow_collect(f->shadow, &all));
    assert_int_equal(ps_records_import(&records, &f->set, &none, all.bytes, all.byte_count), MR_OK);
    free(all.bytes);
    for (uint64_t n = 1; n <= f->numbers + 1; n++) {
        const struct ps_push_id id = {.uuid = uuid, .stream_id = MR_PUSH_CHOSEN, .number = n};
        assert_int_equal(ps_pushes_has(f->backup.core->pushes, &id, 2), n <= f->numbers);
    }
    assert_int_equal(ps_clients_last_step(f->backup.core->clients, uuid), f->step);
}

TEST(a_backup_follows_pushes_during_and_after_the_copy, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    uint64_t keys[100];
    for (uint32_t i = 0; i < 100; i++)
        keys[i] = i * 37;
    copy_source_push(f, keys, 100);
    copy_source_begin(f, RING);
    for (uint32_t turn = 0; !f->is_whole; turn++) {
        for (uint32_t i = 0; i < 100; i++)
            keys[i] = (keys[i] + 911) % (ROWS + 200); /* some are new: they get rows by a numbered push */
        (void)copy_source_ask(f, SMALL_STEPS);
        if (turn % 3 == 0)
            copy_source_push(f, keys, 100);
    }
    assert_int_equal(state_of(f), PS_COPY_FORMS); /* it has not said that it has applied it */
    (void)copy_source_ask(f, SMALL_STEPS);
    assert_int_equal(state_of(f), PS_COPY_FOLLOWS);
    copy_source_push(f, keys, 100);
    assert_true(atomic_load(&f->status.applied) < atomic_load(&f->status.end));
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(atomic_load(&f->status.applied), atomic_load(&f->status.end));
    check_same(f);
}

/* Rows that lookups make, and those that are removed, come with the next record. */
TEST(rows_come_and_go, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    float row[DIM];
    copy_source_begin(f, RING);
    copy_source_follow(f, UINT64_MAX);
    assert_true(f->is_whole);
    for (uint64_t key = 0; key < 50; key++)
        ps_table_load_tombstone(f->primary.table, key);
    for (uint64_t key = 0; key < 10; key++)
        table_lookup(f->primary.table, &key, 1, true, row);
    copy_source_follow(f, UINT64_MAX);
    check_same(f);
}

/* A push in slices is in one record with all that came between its slices, once it is whole. */
TEST(a_push_that_is_applied_in_part_is_not_told, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    const uint64_t keys[2] = {2, 4};
    copy_source_begin(f, RING);
    copy_source_follow(f, UINT64_MAX);
    const uint64_t records = f->records;
    f->primary.core->push_is_open = true;
    copy_source_push(f, keys, 2);
    copy_source_push(f, keys, 2);
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(f->records, records);
    f->primary.core->push_is_open = false;
    copy_source_push(f, keys, 2);
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(f->records, records + 1);
    check_same(f);
}

static void check_range(const struct ps_feature *v, const struct ps_feature *copy, uint32_t range)
{
    static uint8_t a[4u << 20], b[4u << 20];
    const uint64_t bytes = ps_variable_stored_bytes(v->ranges[range].variable);
    assert_in_range(bytes, 1, sizeof(a));
    ps_variable_store(v->ranges[range].variable, 0, bytes, a);
    ps_variable_store(copy->ranges[range].variable, 0, bytes, b);
    assert_memory_equal(a, b, bytes);
}

/* With the optimizer's state; and a range that a push has changed comes again. Here everything is copied. */
TEST(variables_are_copied_as_ranges, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    static float gradient[200000];
    char text[PS_CORE_TEXT_BYTES];
    struct mr_feature feature = mr_feature_variable("v", 1, (uint32_t[]){200000});
    feature.range_values = 100000;
    mr_feature_set_optimizer(&feature, MR_OPT_ADAM);
    for (uint32_t i = 0; i < 200000; i++)
        gradient[i] = 1.0f / (float)(i + 1);
    ps_core_add_feature(f->primary.core, 2, &feature, text);
    ps_core_add_feature(f->backup.core, 2, &feature, text);
    f->set = ps_partitions_all();
    struct ps_feature *v = f->primary.core->features[2], *copy = f->backup.core->features[2];
    assert_int_equal(v->range_count, 2);
    assert_true(ps_variable_push(v->ranges[0].variable, 1, NULL, gradient));
    for (uint32_t i = 0; i < 2; i++) { /* as on a node that does not own them */
        ps_variable_destroy(copy->ranges[i].variable);
        copy->ranges[i].variable = NULL;
    }
    assert_int_equal(ps_copy_source_begin(f->primary.core, COPY, &f->set, 16u << 20, &f->status), MR_OK);
    copy_source_follow(f, SMALL_STEPS);
    assert_true(f->is_whole);
    check_range(v, copy, 0);
    check_range(v, copy, 1);
    assert_true(ps_variable_push(v->ranges[1].variable, 2, NULL, gradient));
    ps_copies_note_range(f->primary.core, 2, 1);
    ps_copies_record(f->primary.core);
    copy_source_follow(f, SMALL_STEPS);
    check_range(v, copy, 1);
}

/* So that the end of a long push has little left to do. What changes again is told again. */
TEST(a_push_in_slices_is_told_in_slices, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    struct ps_core *core = f->primary.core;
    uint64_t keys[1000];
    for (uint32_t i = 0; i < 1000; i++)
        keys[i] = i;
    copy_source_begin(f, RING);
    copy_source_follow(f, UINT64_MAX);
    const uint64_t records = f->records, end = atomic_load(&f->status.end);
    core->push_is_open = true;
    for (uint32_t i = 0; i < 2; i++) {
        copy_source_push(f, keys, 1000);
        assert_true(core->changes[1].count >= 1000);
        ps_copies_record_more(core);
        assert_int_equal(core->changes[1].count, 0);
        copy_source_follow(f, UINT64_MAX);
    }
    assert_int_equal(f->records, records);
    assert_int_equal(atomic_load(&f->status.end), end);
    core->push_is_open = false;
    ps_copies_record_more(core); /* none is open */
    ps_copies_record(core);
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(f->records, records + 1);
    check_same(f);
}

/* Answers wait for the records that the backup has not said yet that it has applied. */
TEST(answers_wait_for_what_the_backup_lacks, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    struct ps_push_answers *answers = &f->primary.core->push_answers;
    uint64_t even = 0, odd = 0;
    while (!is_copied(even))
        even++;
    while (is_copied(odd))
        odd++;
    copy_source_begin(f, RING);
    copy_source_follow(f, UINT64_MAX);
    copy_source_push(f, &even, 1);
    assert_false(answers->waits_for_backups);
    assert_int_equal(ps_copy_source_wait(f->primary.core, COPY, true), MR_OK);
    assert_true(answers->waits_for_backups);
    assert_int_equal(answers->passed, answers->record); /* what was answered alone before */
    for (uint32_t i = 0; i < 100; i++)
        copy_source_push(f, &even, 1);
    assert_int_equal(answers->passed, answers->record - 100);
    (void)copy_source_ask(f, UINT64_MAX); /* it comes to the backup, */
    assert_int_equal(answers->passed, answers->record - 100);
    ps_copy_source_applied(f->primary.core, COPY, f->position); /* which has applied it */
    assert_int_equal(answers->passed, answers->record);
    copy_source_push(f, &odd, 1); /* of a partition that it does not keep: the numbers concern it */
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(answers->passed, answers->record);
    copy_source_push(f, &even, 1);
    assert_int_equal(ps_copy_source_wait(f->primary.core, COPY, false), MR_OK);
    assert_false(answers->waits_for_backups);
    copy_source_follow(f, UINT64_MAX);
    check_same(f);
}

/* A record that the backup will never get: answers wait until they need not wait for it. */
TEST(answers_wait_for_a_lost_backup, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    struct ps_push_answers *answers = &f->primary.core->push_answers;
    uint64_t keys[100];
    for (uint32_t i = 0; i < 100; i++)
        keys[i] = i;
    copy_source_begin(f, 300000);
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(ps_copy_source_wait(f->primary.core, COPY, true), MR_OK);
    while (state_of(f) == PS_COPY_FOLLOWS)
        copy_source_push(f, keys, 100);
    copy_source_push(f, keys, 100);
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(answers->passed,
                     answers->record - 2); /* all but the one that did not fit, and what follows */
    assert_int_equal(ps_copy_source_wait(f->primary.core, COPY, false), MR_OK);
    assert_false(answers->waits_for_backups);
}

/* A backup that does not read: pushes go on, and the source is lost. What it has can be read to its last
 * whole record; it begins again once the map says that the backup has nothing. */
TEST(a_full_ring_ends_the_copy_and_no_push, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    uint64_t keys[100];
    for (uint32_t i = 0; i < 100; i++)
        keys[i] = i;
    copy_source_begin(f, 300000);
    copy_source_follow(f, UINT64_MAX);
    assert_int_equal(state_of(f), PS_COPY_FOLLOWS);
    while (state_of(f) == PS_COPY_FOLLOWS)
        copy_source_push(f, keys, 100);
    assert_int_equal(state_of(f), PS_COPY_LOST);
    copy_source_push(f, keys, 100);
    struct ps_migration_block block;
    const uint64_t records = f->records;
    copy_source_follow(f, UINT64_MAX);
    assert_true(f->records > records);
    assert_int_equal(f->bytes, 0);
    assert_int_equal(state_of(f), PS_COPY_LOST);
    assert_true(ps_copy_source_read(f->primary.core, COPY, f->position + 8, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_LOST);
    assert_true(ps_copy_source_read(f->primary.core, COPY, 1, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_NOT_READY);
    ps_copy_source_end(f->primary.core, COPY);
    assert_null(f->primary.core->copies);
    copy_source_push(f, keys, 100);
    copy_source_begin(f, RING);
    f->position = 1;
    f->records = f->bytes = 0;
    f->is_whole = false;
    copy_source_follow(f, UINT64_MAX);
    assert_true(f->is_whole);
    check_same(f);
}

/* Another process at the backup asks for everything: until the source has begun again there is nothing for
 * it. */
TEST(a_backup_that_begins_again_waits, copy_source_make, copy_source_destroy)
{
    struct fixture *f = *state;
    struct ps_migration_block block;
    copy_source_begin(f, RING);
    (void)copy_source_ask(f, UINT64_MAX);
    assert_true(ps_copy_source_read(f->primary.core, COPY, 1, UINT64_MAX, &block)); /* the answer was lost */
    assert_int_equal(block.state, MR_MOVE_MORE);
    (void)copy_source_ask(f, UINT64_MAX);
    assert_true(ps_copy_source_read(f->primary.core, COPY, 1, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_NOT_READY);
    assert_int_equal(state_of(f), PS_COPY_REPEATS);
    assert_true(ps_copy_source_read(f->primary.core, COPY + 1, 1, UINT64_MAX, &block));
    assert_int_equal(block.state, MR_MOVE_NOT_READY);
}
