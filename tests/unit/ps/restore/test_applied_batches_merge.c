/* From many cores' records to others': who holds what afterwards, and records that are out of range. */
#include <string.h>
#include "core_fixture.h"
#include "ps/restore/applied_batches_merge.h"
#include "ps/restore/restore.h"
#include "ps/server/poll.h"
#include "tests/test.h"

static struct core_fixture fixture;
static char text[PS_RESTORE_TEXT_BYTES];

/* Core `index` of `count`. */
static struct ps_core *make_core(uint32_t index, uint32_t count)
{
    core_fixture_init(&fixture, count, 64 * count);
    core_fixture_make(&fixture, index);
    return fixture.core;
}

static struct ps_saved_writers *writers;

static struct ps_applied_batches_merge *make_merge(uint32_t saved_cores, uint32_t cores)
{
    writers = ps_saved_writers_of_node(saved_cores, cores);
    assert_non_null(writers);
    return ps_applied_batches_merge_create(writers);
}

static void end_merge(struct ps_applied_batches_merge *m)
{
    ps_applied_batches_merge_destroy(m);
    ps_saved_writers_free(writers);
}

static uint64_t id(uint64_t stream, uint64_t sequence)
{
    return stream << MR_BATCH_SEQUENCE_BITS | sequence;
}

static enum mr_status add_stream(struct ps_applied_batches_merge *m, uint32_t core, uint32_t cores,
                                 uint64_t stream, uint64_t watermark, uint64_t bits)
{
    uint64_t words[3] = {stream, watermark, bits};
    struct ps_record record = {.kind = PS_RECORD_STREAM,
                               .feature = core,
                               .count = cores,
                               .offset = watermark + (uint64_t)__builtin_popcountll(bits),
                               .bytes = sizeof(words)};
    return ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text);
}

static void add_client(struct ps_applied_batches_merge *m, uint32_t core, uint8_t name, uint64_t step)
{
    uint8_t bytes[MR_UUID_BYTES + sizeof(step)] = {name};
    struct ps_record record = {.kind = PS_RECORD_CLIENT, .feature = core, .count = 2, .bytes = sizeof(bytes)};
    memcpy(bytes + MR_UUID_BYTES, &step, sizeof(step));
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, bytes, text), MR_OK);
}

TEST(the_same_number_of_cores_takes_its_own)
{
    struct ps_applied_batches_merge *m = make_merge(2, 2);
    struct ps_core *core = make_core(1, 2);
    assert_int_equal(add_stream(m, 0, 2, 5, 10, 0), MR_OK);
    assert_int_equal(add_stream(m, 1, 2, 5, 8, 2), MR_OK);
    add_client(m, 0, 'a', 7);
    add_client(m, 1, 'a', 6);
    assert_int_equal(ps_applied_batches_merge_finish(m, text), MR_OK);
    assert_int_equal(ps_applied_batches_merge_load(m, core, text), MR_OK);
    assert_true(ps_applied_batches_has(core->applied, id(5, 9)));
    assert_false(ps_applied_batches_has(core->applied, id(5, 8)));
    assert_int_equal(core->counters.batches_applied, 9);
    const uint8_t a[MR_UUID_BYTES] = {'a'};
    assert_int_equal(ps_clients_last_step(core->clients, a), 6);
    assert_int_equal(core->partials.count, 0);
    ps_core_destroy(core);
    end_merge(m);
}

static bool partial_has(const struct ps_partial *p, uint32_t partition)
{
    return ps_partitions_has(&p->partitions, partition);
}

TEST(another_number_holds_what_all_had_and_the_rest_in_part)
{
    struct ps_applied_batches_merge *m = make_merge(2, 1);
    struct ps_core *core = make_core(0, 1);
    assert_int_equal(add_stream(m, 0, 2, 5, 10, 4), MR_OK); /* 0..9, 12 */
    assert_int_equal(add_stream(m, 1, 2, 5, 8, 22), MR_OK); /* 0..7, 9, 10, 12 */
    assert_int_equal(add_stream(m, 1, 2, 6, 1, 0), MR_OK);  /* a stream that core 0 never saw */
    add_client(m, 0, 'a', 7);
    add_client(m, 1, 'a', 6);
    add_client(m, 1, 'b', 9);
    assert_int_equal(ps_applied_batches_merge_finish(m, text), MR_OK);
    assert_int_equal(ps_applied_batches_merge_load(m, core, text), MR_OK);
    for (uint64_t s = 0; s < 16; s++)
        assert_int_equal(ps_applied_batches_has(core->applied, id(5, s)), s < 8 || s == 9 || s == 12);
    assert_false(ps_applied_batches_has(core->applied, id(6, 0)));
    assert_int_equal(core->counters.batches_applied, 10);
    assert_int_equal(core->partials.count, 3);
    const struct ps_partial *p = ps_partials_find(&core->partials, id(5, 8));
    assert_non_null(p); /* core 0 had it: the lower half of the partitions */
    assert_true(partial_has(p, 0));
    assert_true(partial_has(p, MR_PARTITION_COUNT / 2 - 1));
    assert_false(partial_has(p, MR_PARTITION_COUNT / 2));
    p = ps_partials_find(&core->partials, id(5, 10));
    assert_non_null(p);
    assert_false(partial_has(p, MR_PARTITION_COUNT / 2 - 1));
    assert_true(partial_has(p, MR_PARTITION_COUNT / 2));
    assert_non_null(ps_partials_find(&core->partials, id(6, 0)));
    const uint8_t a[MR_UUID_BYTES] = {'a'}, b[MR_UUID_BYTES] = {'b'};
    assert_int_equal(ps_clients_last_step(core->clients, a), 6); /* what every core that knows it has */
    assert_int_equal(ps_clients_last_step(core->clients, b), 9);
    ps_core_destroy(core);
    end_merge(m);
}

static void add_plan(struct ps_applied_batches_merge *m, uint32_t core, uint64_t stream, uint64_t name,
                     uint64_t use)
{
    uint64_t words[PS_STREAM_PLAN_WORDS] = {stream, name, name + 1, name + 2, use};
    struct ps_record record = {.kind = PS_RECORD_STREAM,
                               .feature = core,
                               .count = 2,
                               .row_bytes = PS_STREAM_PLAN,
                               .bytes = sizeof(words)};
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text), MR_OK);
}

/* Records come in no order, and from version 3 without plans. */
TEST(streams_keep_their_plans)
{
    const struct mr_plan five = {{50, 51}, 52}, other = {{1, 1}, 1};
    for (uint32_t cores = 1; cores <= 2; cores++) {
        struct ps_applied_batches_merge *m = make_merge(2, cores);
        struct ps_core *core = make_core(cores - 1, cores);
        for (uint32_t c = 0; c < 2; c++) {
            add_plan(m, c, 5, 50, 9);
            assert_int_equal(add_stream(m, c, 2, 5, 10, 0), MR_OK);
            assert_int_equal(add_stream(m, c, 2, 6, 3, 0), MR_OK);
        }
        assert_int_equal(ps_applied_batches_merge_finish(m, text), MR_OK);
        assert_int_equal(ps_applied_batches_merge_load(m, core, text), MR_OK);
        assert_int_equal(ps_applied_batches_claim(core->applied, 5, &other, NULL), MR_ALREADY_STARTED);
        assert_int_equal(ps_applied_batches_used(core->applied, 5), 9);
        assert_int_equal(ps_applied_batches_claim(core->applied, 5, &five, NULL), MR_OK);
        assert_true(mr_plan_same(ps_applied_batches_plan(core->applied, 6), &MR_PLAN_UNKNOWN));
        assert_int_equal(ps_applied_batches_watermark(core->applied, 6), 3);
        assert_int_equal(core->partials.count, 0);
        ps_core_destroy(core);
        end_merge(m);
    }
}

TEST(records_out_of_range_are_refused)
{
    struct ps_applied_batches_merge *m = make_merge(2, 1);
    assert_int_equal(add_stream(m, 2, 2, 5, 10, 0), MR_CHECKPOINT_CORRUPT); /* no such core */
    assert_int_equal(add_stream(m, 0, 3, 5, 10, 0), MR_CHECKPOINT_CORRUPT); /* of another number of cores */
    assert_int_equal(add_stream(m, 0, 2, PS_STREAMS_MAX, 10, 0), MR_CHECKPOINT_CORRUPT);
    static uint64_t words[3 + PS_APPLIED_BATCHES_WINDOW / 64];
    struct ps_record record = {.kind = PS_RECORD_STREAM, .feature = 0, .count = 2, .bytes = sizeof(words)};
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text),
                     MR_CHECKPOINT_CORRUPT);
    record.row_bytes = PS_STREAM_PARTIAL;
    record.bytes = sizeof(struct ps_partition_set);
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text),
                     MR_CHECKPOINT_CORRUPT);
    record.row_bytes = PS_STREAM_PLAN;
    record.bytes = 16;
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text),
                     MR_CHECKPOINT_CORRUPT);
    words[0] = PS_STREAMS_MAX;
    record.bytes = PS_STREAM_PLAN_WORDS * 8;
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text),
                     MR_CHECKPOINT_CORRUPT);
    words[0] = 5; /* a range that ends before it begins, and one of two streams */
    record.row_bytes = PS_STREAM_PARTIALS;
    record.bytes = sizeof(struct ps_partial);
    for (words[1] = 4; words[1] <= id(1, 4); words[1] += id(1, 0))
        assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text),
                         MR_CHECKPOINT_CORRUPT);
    words[0] = words[1] = 0;
    record.row_bytes = PS_STREAM_PARTIALS + 1;
    record.bytes = 16;
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text),
                     MR_CHECKPOINT_CORRUPT);
    end_merge(m);
}

/* A core that is far ahead of another differs from it in one range, also where no bitmap reaches. */
TEST(cores_may_be_far_apart)
{
    const uint64_t far[] = {60000, 3 * (uint64_t)PS_APPLIED_BATCHES_WINDOW};
    for (uint32_t i = 0; i < 2; i++) {
        struct ps_applied_batches_merge *m = make_merge(2, 1);
        struct ps_core *core = make_core(0, 1);
        assert_int_equal(add_stream(m, 0, 2, 5, 100 + far[i], 2), MR_OK); /* 0..99 + far, 101 + far */
        assert_int_equal(add_stream(m, 1, 2, 5, 100, 2), MR_OK);          /* 0..99, 101 */
        assert_int_equal(ps_applied_batches_merge_finish(m, text), MR_OK);
        assert_int_equal(ps_applied_batches_merge_load(m, core, text), MR_OK);
        assert_int_equal(ps_applied_batches_watermark(core->applied, 5), 100);
        assert_true(ps_applied_batches_has(core->applied, id(5, 101)));
        assert_int_equal(core->partials.count, 3); /* 100, 102..99 + far, 101 + far */
        for (uint64_t s = 98; s < far[i] + 110; s += s < 110 || s >= far[i] + 90 ? 1 : far[i] - 20) {
            const struct ps_partial *p = ps_partials_find(&core->partials, id(5, s));
            const bool first_has = s < 100 + far[i] || s == 101 + far[i], second_has = s < 100 || s == 101;
            assert_int_equal(p != NULL, first_has && !second_has);
            if (p == NULL)
                continue;
            assert_true(partial_has(p, 0));
            assert_false(partial_has(p, MR_PARTITION_COUNT / 2));
        }
        ps_core_destroy(core);
        end_merge(m);
    }
}

/* As many ranges as no cut leaves behind. */
TEST(cores_that_differ_in_too_many_ranges_are_refused)
{
    enum { WORDS = PS_PARTIALS_MAX / 32 + 1 };
    struct ps_applied_batches_merge *m = make_merge(2, 1);
    static uint64_t words[2 + WORDS];
    struct ps_record record = {
        .kind = PS_RECORD_STREAM, .feature = 0, .count = 2, .offset = 32 * WORDS, .bytes = sizeof(words)};
    words[0] = 5;
    for (uint32_t i = 0; i < WORDS; i++)
        words[2 + i] = UINT64_C(0xaaaaaaaaaaaaaaaa);
    assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)words, text), MR_OK);
    assert_int_equal(ps_applied_batches_merge_finish(m, text), MR_UNSUPPORTED);
    assert_non_null(strstr(text, "its 2 cores differ in too many ranges of batches"));
    end_merge(m);
}

/* What a core holds in part is so for the cores that take its place, ranges as well as single batches. */
TEST(what_is_partly_applied_stays_so)
{
    for (uint32_t cores = 1; cores <= 2; cores++) {
        struct ps_applied_batches_merge *m = make_merge(2, cores);
        struct ps_core *core = make_core(0, cores);
        const struct ps_partial ranges[2] = {{id(5, 30), id(5, 39), ps_partitions_range(7, 8)},
                                             {id(5, 20), id(5, 20), ps_partitions_range(7, 9)}};
        uint64_t single[1 + PS_PARTITION_WORDS] = {ranges[1].first};
        struct ps_record record = {.kind = PS_RECORD_STREAM,
                                   .count = 2,
                                   .row_bytes = PS_STREAM_PARTIALS,
                                   .bytes = sizeof(ranges[0])};
        for (uint32_t c = 0; c < 2; c++)
            assert_int_equal(add_stream(m, c, 2, 5, 10, 0), MR_OK);
        assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)&ranges[0], text),
                         MR_OK);
        memcpy(single + 1, &ranges[1].partitions, sizeof(ranges[1].partitions));
        record.row_bytes = PS_STREAM_PARTIAL;
        record.bytes = sizeof(single);
        assert_int_equal(ps_applied_batches_merge_add(m, 0, &record, (const uint8_t *)single, text), MR_OK);
        assert_int_equal(ps_applied_batches_merge_finish(m, text), MR_OK);
        assert_int_equal(ps_applied_batches_merge_load(m, core, text), MR_OK);
        assert_int_equal(core->partials.count, 2);
        for (uint32_t i = 0; i < 2; i++)
            assert_memory_equal(&core->partials.entries[i], &ranges[1 - i], sizeof(ranges[0]));
        ps_core_destroy(core);
        end_merge(m);
    }
}
