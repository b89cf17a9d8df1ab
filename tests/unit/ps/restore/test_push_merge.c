/* Numbered pushes from many cores' records to others': who holds what afterwards, and records that are out of
 * range. */
#include <string.h>
#include "core_fixture.h"
#include "ps/restore/push_merge.h"
#include "ps/restore/restore.h"
#include "ps/server/poll.h"
#include "tests/test.h"

struct fixture {
    struct core_fixture alone;
    struct ps_core *core;
    struct ps_saved_writers *writers;
    struct ps_push_merge *merge;
    uint32_t saved_cores;
};

static char text[PS_RESTORE_TEXT_BYTES];
static const uint8_t uuid[MR_UUID_BYTES] = {'a'};

/* What `saved_cores` cores wrote is to go to core `core` of `cores`. */
static void push_merge_begin(struct fixture *f, uint32_t saved_cores, uint32_t cores, uint32_t core)
{
    memset(f, 0, sizeof(*f));
    core_fixture_init(&f->alone, cores, 64 * cores);
    core_fixture_make(&f->alone, core);
    f->core = f->alone.core;
    f->saved_cores = saved_cores;
    f->writers = ps_saved_writers_of_node(saved_cores, cores);
    assert_non_null(f->writers);
    f->merge = ps_push_merge_create(f->writers, NULL);
    assert_non_null(f->merge);
}

static void push_merge_end(struct fixture *f)
{
    ps_push_merge_destroy(f->merge);
    ps_saved_writers_free(f->writers);
    ps_core_destroy(f->core);
}

struct stored {
    struct ps_stored_pushes head;
    uint64_t word;
};

static enum mr_status push_merge_add(struct fixture *f, uint32_t core, uint32_t words,
                                     struct ps_stored_pushes head, uint64_t word)
{
    struct stored stored = {.head = head, .word = word};
    struct ps_record record = {.kind = PS_RECORD_PUSHES,
                               .feature = core,
                               .count = f->saved_cores,
                               .bytes = sizeof(head) + words * sizeof(word)};
    memcpy(stored.head.uuid, uuid, MR_UUID_BYTES);
    return ps_push_merge_add(f->merge, 0, &record, (const uint8_t *)&stored, text);
}

/* Core `core` has applied all up to `floor`, and floor + 1 + i where bit i is set. */
static void add_whole(struct fixture *f, uint32_t core, uint32_t stream_id, uint64_t floor, uint64_t bits)
{
    struct ps_stored_pushes head = {
        .stream_id = (uint16_t)stream_id, .partition_end = MR_PARTITION_COUNT, .floor = floor};
    assert_int_equal(push_merge_add(f, core, bits != 0, head, bits), MR_OK);
}

static void push_merge_load(struct fixture *f)
{
    assert_int_equal(ps_push_merge_finish(f->merge, text), MR_OK);
    assert_int_equal(ps_push_merge_load(f->merge, f->core, text), MR_OK);
}

static enum ps_push_state state_of(struct fixture *f, uint32_t stream_id, uint64_t number)
{
    return ps_pushes_look_up(f->core->pushes, &(struct ps_push_id){uuid, stream_id, number, 0});
}

static bool has(struct fixture *f, uint32_t stream_id, uint64_t number, uint32_t partition)
{
    return ps_pushes_has(f->core->pushes, &(struct ps_push_id){uuid, stream_id, number, 0}, partition);
}

static uint32_t stream_of(uint32_t cores, uint32_t core)
{
    return mr_push_stream_of_core(cores, core);
}

TEST(the_same_number_of_cores_takes_its_own)
{
    struct fixture f;
    push_merge_begin(&f, 2, 2, 1);
    add_whole(&f, 0, stream_of(2, 0), 7, 0);
    add_whole(&f, 1, stream_of(2, 1), 5, 2);
    add_whole(&f, 1, stream_of(3, 2), 9, 0);
    push_merge_load(&f);
    assert_int_equal(state_of(&f, stream_of(2, 0), 1), PS_PUSH_NEW);
    assert_int_equal(state_of(&f, stream_of(2, 1), 5), PS_PUSH_APPLIED);
    assert_int_equal(state_of(&f, stream_of(2, 1), 6), PS_PUSH_NEW);
    assert_int_equal(state_of(&f, stream_of(2, 1), 7), PS_PUSH_APPLIED);
    assert_int_equal(state_of(&f, stream_of(3, 2), 9), PS_PUSH_APPLIED);
    ps_pushes_advance(f.core->pushes, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(f.core->pushes, uuid, stream_of(2, 1)), 5);
    push_merge_end(&f);
}

/* Two cores become three: core 1 of three has partitions of both. */
TEST(another_number_gets_the_streams_whose_keys_it_may_have)
{
    struct fixture f;
    for (uint32_t core = 0; core < 3; core++) {
        push_merge_begin(&f, 2, 3, core);
        add_whole(&f, 0, stream_of(2, 0), 7, 4);
        add_whole(&f, 1, stream_of(2, 1), 5, 0);
        push_merge_load(&f);
        assert_int_equal(state_of(&f, stream_of(2, 0), 10), core < 2 ? PS_PUSH_APPLIED : PS_PUSH_NEW);
        assert_int_equal(state_of(&f, stream_of(2, 0), 8), PS_PUSH_NEW);
        assert_int_equal(state_of(&f, stream_of(2, 1), 5), core > 0 ? PS_PUSH_APPLIED : PS_PUSH_NEW);
        push_merge_end(&f);
    }
}

/* Of the only core's push stream, the first of three cores has applied 8 and the second has not; the third
 * never saw it. */
TEST(what_some_have_applied_comes_in_pieces)
{
    struct fixture f;
    uint32_t stream_id = stream_of(1, 0);
    push_merge_begin(&f, 3, 1, 0);
    add_whole(&f, 0, stream_id, 8, 0);
    add_whole(&f, 1, stream_id, 7, 2);
    push_merge_load(&f);
    assert_int_equal(state_of(&f, stream_id, 7), PS_PUSH_PARTLY);
    assert_int_equal(state_of(&f, stream_id, 8), PS_PUSH_PARTLY);
    assert_int_equal(state_of(&f, stream_id, 9), PS_PUSH_PARTLY);
    assert_int_equal(state_of(&f, stream_id, 10), PS_PUSH_NEW);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        uint32_t core = p * 3 / MR_PARTITION_COUNT;
        assert_int_equal(has(&f, stream_id, 7, p), core < 2);
        assert_int_equal(has(&f, stream_id, 8, p), core == 0);
        assert_int_equal(has(&f, stream_id, 9, p), core == 1);
    }
    ps_pushes_advance(f.core->pushes, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(f.core->pushes, uuid, stream_id), 0);
    push_merge_end(&f);
}

/* Nor does it pass on what a core that never saw the push stream has of the next one. */
TEST(streams_are_kept_apart)
{
    struct fixture f;
    const uint32_t stream_id = stream_of(1, 0), next = stream_of(2, 1);
    push_merge_begin(&f, 2, 1, 0);
    add_whole(&f, 0, stream_id, 8, 0);
    add_whole(&f, 1, next, 3, 0);
    push_merge_load(&f);
    assert_true(has(&f, stream_id, 3, 0));
    assert_false(has(&f, stream_id, 3, MR_PARTITION_COUNT - 1));
    assert_true(has(&f, next, 3, MR_PARTITION_COUNT - 1));
    push_merge_end(&f);
}

TEST(equal_pieces_are_joined)
{
    struct fixture f;
    uint32_t stream_id = stream_of(1, 0);
    uint32_t pieces = 0;
    push_merge_begin(&f, 3, 2, 0);
    add_whole(&f, 0, stream_id, 8, 2);
    add_whole(&f, 1, stream_id, 8, 2);
    add_whole(&f, 2, stream_id, 3, 0); /* core 0 of two has none of its partitions */
    push_merge_load(&f);
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        const struct ps_push_stream *at = ps_pushes_at(f.core->pushes, i);
        if (at == NULL)
            continue;
        pieces++;
        assert_null(at->rest.next);
        assert_int_equal(at->rest.window.floor, 8);
    }
    assert_int_equal(pieces, 1);
    push_merge_end(&f);
}

/* Pieces that were saved, in whatever order, are cut at the new cores' borders. */
TEST(pieces_go_on_in_pieces)
{
    struct fixture f;
    uint32_t stream_id = stream_of(1, 0);
    push_merge_begin(&f, 2, 3, 0); /* partitions 0..1365 */
    add_whole(&f, 1, stream_id, 3, 0);
    struct ps_stored_pushes head = {
        .stream_id = (uint16_t)stream_id, .partition = 1000, .partition_end = MR_PARTITION_COUNT, .floor = 4};
    assert_int_equal(push_merge_add(&f, 0, 0, head, 0), MR_OK);
    head = (struct ps_stored_pushes){.stream_id = (uint16_t)stream_id, .partition_end = 1000, .floor = 5};
    assert_int_equal(push_merge_add(&f, 0, 0, head, 0), MR_OK);
    push_merge_load(&f);
    assert_int_equal(state_of(&f, stream_id, 4), PS_PUSH_APPLIED);
    assert_int_equal(state_of(&f, stream_id, 5), PS_PUSH_PARTLY);
    assert_true(has(&f, stream_id, 5, 999));
    assert_false(has(&f, stream_id, 5, 1000));
    push_merge_end(&f);
}

static void add_used(struct fixture *f, uint32_t core, uint32_t stream_id, uint64_t used)
{
    struct ps_stored_pushes head = {
        .stream_id = (uint16_t)stream_id, .partition_end = MR_PARTITION_COUNT, .floor = 1};
    struct ps_record record = {.kind = PS_RECORD_PUSHES,
                               .feature = core,
                               .count = f->saved_cores,
                               .offset = used,
                               .bytes = sizeof(head)};
    assert_int_equal(ps_push_merge_add(f->merge, 0, &record, (const uint8_t *)&head, text), MR_OK);
}

static uint64_t used_of(struct fixture *f, uint32_t stream_id)
{
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        const struct ps_push_stream *at = ps_pushes_at(f->core->pushes, i);
        if (at != NULL && at->stream_id == stream_id)
            return at->used;
    }
    return UINT64_MAX;
}

/* Who pushed last is known as before, whatever the number of cores. */
TEST(it_is_known_when_a_stream_pushed)
{
    for (uint32_t cores = 1; cores <= 2; cores++) {
        struct fixture f;
        push_merge_begin(&f, 2, cores, 0);
        add_used(&f, 0, stream_of(1, 0), 70);
        add_used(&f, 1, stream_of(1, 0), 71);
        add_used(&f, 0, stream_of(2, 0), 90);
        push_merge_load(&f);
        assert_int_equal(used_of(&f, stream_of(1, 0)), cores == 1 ? 71 : 70);
        assert_int_equal(used_of(&f, stream_of(2, 0)), 90);
        push_merge_end(&f);
    }
}

TEST(records_out_of_range_are_refused)
{
    const struct ps_stored_pushes good = {.stream_id = (uint16_t)stream_of(1, 0),
                                          .partition_end = MR_PARTITION_COUNT};
    struct ps_stored_pushes bad[6] = {good, good, good, good, good, good};
    struct fixture f;
    bad[0].stream_id = 0;
    bad[1].stream_id = (MR_CORE_MAX + 1) << 8;
    bad[2].partition = MR_PARTITION_COUNT;
    bad[3].partition_end = MR_PARTITION_COUNT + 1;
    bad[4].reserved = 1;
    bad[5].floor = MR_PUSH_NUMBER_MAX + 1;
    push_merge_begin(&f, 2, 1, 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(push_merge_add(&f, 0, 0, bad[i], 0), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(push_merge_add(&f, 2, 0, good, 0), MR_CHECKPOINT_CORRUPT); /* no such core */
    assert_int_equal(push_merge_add(&f, 0, 0, good, 0), MR_OK);
    assert_int_equal(ps_push_merge_finish(f.merge, text), MR_OK);
    assert_int_equal(push_merge_add(&f, 0, 0, good, 0), MR_OK); /* the same once more */
    assert_int_equal(ps_push_merge_finish(f.merge, text), MR_CHECKPOINT_CORRUPT);
    push_merge_end(&f);
    push_merge_begin(&f, 2, 1, 0);
    bad[0] = good;
    bad[0].partition_end--; /* a partition is missing */
    assert_int_equal(push_merge_add(&f, 0, 0, bad[0], 0), MR_OK);
    assert_int_equal(ps_push_merge_finish(f.merge, text), MR_CHECKPOINT_CORRUPT);
    push_merge_end(&f);
}
