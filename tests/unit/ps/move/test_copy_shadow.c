/* A backup's shadow of what a core has recorded is, after any course of pushes and batches, what the core
 * itself would have exported. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "ps/exactly_once/records.h"
#include "ps/move/copy_shadow.h"
#include "tests/test.h"

#define CLIENTS 5u
#define NUMBERS 40u
#define STREAMS 3u
#define BATCHES 70u

struct side {
    struct ps_arena *arena;
    struct ps_partials partials;
    struct ps_records records;
};

static uint64_t random_below(uint64_t *state, uint64_t bound)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 33) % bound;
}

static void side_make(struct side *s)
{
    *s = (struct side){.arena = ps_arena_create(16 * MR_MIB)};
    s->records = (struct ps_records){.applied = ps_applied_batches_create(s->arena, NULL),
                                     .clients = ps_clients_create(s->arena, 1),
                                     .pushes = ps_pushes_create(s->arena, NULL),
                                     .partials = &s->partials};
    assert_non_null(s->records.pushes);
}

static void side_destroy(struct side *s)
{
    ps_applied_batches_destroy(s->records.applied);
    ps_clients_destroy(s->records.clients);
    ps_pushes_destroy(s->records.pushes);
    ps_partials_clear(&s->partials);
    ps_arena_destroy(s->arena);
}

static void uuid_of(uint32_t client, uint8_t *out)
{
    memset(out, 0, MR_UUID_BYTES);
    out[3] = (uint8_t)(client + 1);
}

static uint64_t batch_of(uint32_t stream, uint64_t sequence)
{
    return (uint64_t)stream << MR_BATCH_SEQUENCE_BITS | sequence;
}

/* Has the shadow take records that were exported. */
static void shadow_take(struct ps_copy_shadow *shadow, uint64_t number, const uint8_t *bytes, size_t size)
{
    struct ps_record record;
    for (size_t at = 0; at < size; at += sizeof(record) + mr_padded(record.bytes)) {
        memcpy(&record, bytes + at, sizeof(record));
        assert_true(ps_copy_shadow_take(shadow, number, &record, bytes + at + sizeof(record)));
    }
}

static void shadow_import(const struct ps_copy_shadow *shadow, struct side *to,
                          const struct ps_partition_set *set)
{
    const struct ps_partition_set none = {{0}};
    struct ps_move_collected all;
    assert_true(ps_copy_shadow_collect(shadow, &all));
    assert_int_equal(ps_records_import(&to->records, set, &none, all.bytes, all.byte_count), MR_OK);
    free(all.bytes);
}

static void check_same(struct side *a, struct side *b, const struct ps_partition_set *set)
{
    uint8_t uuid[MR_UUID_BYTES];
    for (uint32_t c = 0; c < CLIENTS; c++) {
        uuid_of(c, uuid);
        assert_int_equal(ps_clients_last_step(a->records.clients, uuid),
                         ps_clients_last_step(b->records.clients, uuid));
        for (uint64_t n = 1; n <= NUMBERS; n++) {
            const struct ps_push_id id = {.uuid = uuid, .stream_id = MR_PUSH_CHOSEN + c, .number = n};
            for (uint32_t p = 0; p < MR_PARTITION_COUNT; p += 7)
                if (ps_partitions_has(set, p))
                    assert_int_equal(ps_pushes_has(a->records.pushes, &id, p),
                                     ps_pushes_has(b->records.pushes, &id, p));
        }
    }
    for (uint32_t s = 0; s < STREAMS; s++) {
        assert_int_equal(ps_applied_batches_added(a->records.applied, s),
                         ps_applied_batches_added(b->records.applied, s));
        for (uint64_t n = 0; n < BATCHES; n++)
            assert_int_equal(ps_applied_batches_has(a->records.applied, batch_of(s, n)),
                             ps_applied_batches_has(b->records.applied, batch_of(s, n)));
    }
}

TEST(the_shadow_is_what_the_core_has)
{
    const struct ps_partition_set set = ps_partitions_range(100, 300);
    struct side core, exported, kept;
    struct ps_copy_shadow *shadow = ps_copy_shadow_create();
    uint8_t uuid[MR_UUID_BYTES];
    uint8_t *bytes = malloc(MR_MIB);
    uint64_t random = 5;
    side_make(&core);
    assert_non_null(shadow);
    assert_non_null(bytes);
    for (uint64_t number = 1; number < 400; number++) {
        size_t size;
        if (random_below(&random, 2) == 0) {
            const uint32_t client = (uint32_t)random_below(&random, CLIENTS);
            uuid_of(client, uuid);
            const struct ps_push_id id = {.uuid = uuid,
                                          .stream_id = MR_PUSH_CHOSEN + client,
                                          .number = 1 + random_below(&random, NUMBERS)};
            if (ps_pushes_look_up(core.records.pushes, &id) != PS_PUSH_NEW)
                continue;
            ps_pushes_start(core.records.pushes, &id);
            (void)ps_pushes_finish(core.records.pushes, &id);
            ps_clients_note(core.records.clients, uuid, number);
            size = ps_records_export_client(&core.records, uuid, bytes);
            size += ps_records_export_pushes(&core.records, &set, uuid, id.stream_id, bytes + size);
        } else {
            const uint32_t stream = (uint32_t)random_below(&random, STREAMS);
            const uint64_t batch = batch_of(stream, random_below(&random, BATCHES));
            const bool forgets = random_below(&random, 20) == 0;
            if (forgets)
                ps_applied_batches_forget(core.records.applied, stream);
            if (ps_applied_batches_has(core.records.applied, batch))
                continue;
            if (!forgets) {
                assert_int_equal(ps_applied_batches_reserve(core.records.applied, batch, NULL), MR_OK);
                ps_applied_batches_add(core.records.applied, batch);
            }
            size = ps_records_export_batches(&core.records, stream, bytes);
        }
        shadow_take(shadow, number, bytes, size);
    }
    side_make(&kept);
    shadow_import(shadow, &kept, &set);
    check_same(&core, &kept, &set);
    /* and once more by the export as a whole, which replaces all */
    shadow_take(shadow, 1000, bytes, ps_records_export(&core.records, &set, bytes));
    side_make(&exported);
    shadow_import(shadow, &exported, &set);
    check_same(&core, &exported, &set);
    side_destroy(&exported);
    side_destroy(&kept);
    side_destroy(&core);
    ps_copy_shadow_destroy(shadow);
    free(bytes);
}

/* Ranges of batches of which some partitions have some are about one stream, and hold together. */
TEST(ranges_of_one_record_hold_together)
{
    const struct ps_partition_set set = ps_partitions_range(0, 50), part = ps_partitions_range(0, 10);
    struct ps_copy_shadow *shadow = ps_copy_shadow_create();
    struct side core, kept;
    uint8_t bytes[8192];
    side_make(&core);
    side_make(&kept);
    assert_int_equal(ps_applied_batches_reserve(core.records.applied, batch_of(1, 0), NULL), MR_OK);
    ps_applied_batches_add(core.records.applied, batch_of(1, 0));
    for (uint64_t first = 10; first < 50; first += 20) {
        const struct ps_partial range = {batch_of(1, first), batch_of(1, first + 3), part};
        assert_int_equal(ps_partials_add(&core.partials, &range), MR_OK);
    }
    for (uint64_t number = 1; number < 4; number++)
        shadow_take(shadow, number, bytes, ps_records_export_batches(&core.records, 1, bytes));
    shadow_import(shadow, &kept, &set);
    assert_int_equal(kept.partials.count, 2);
    assert_non_null(ps_partials_find(&kept.partials, batch_of(1, 33)));
    assert_true(ps_applied_batches_has(kept.records.applied, batch_of(1, 0)));
    side_destroy(&kept);
    side_destroy(&core);
    ps_copy_shadow_destroy(shadow);
}

TEST(a_damaged_record_is_refused)
{
    struct ps_copy_shadow *shadow = ps_copy_shadow_create();
    const uint64_t words[2] = {PS_STREAMS_MAX, 0};
    const struct ps_record bad = {
        .kind = PS_RECORD_STREAM, .row_bytes = PS_STREAM_APPLIED, .bytes = sizeof(words)};
    const struct ps_record none = {.kind = PS_RECORD_ROWS, .bytes = 8};
    assert_false(ps_copy_shadow_take(shadow, 1, &bad, (const uint8_t *)words));
    assert_false(ps_copy_shadow_take(shadow, 1, &none, (const uint8_t *)words));
    assert_int_equal(ps_copy_shadow_count(shadow), 0);
    ps_copy_shadow_destroy(shadow);
}
