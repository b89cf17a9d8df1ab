/* Records of numbered pushes by client and push stream: what is reported of a push, what a checkpoint
 * makes durable, who is forgotten. */
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/mr_feature.h"
#include "ps/exactly_once/pushes.h"
#include "tests/test.h"

#define STREAM 0x0100 /* the only core's */

static struct ps_arena *arena;

static int pushes_make(void **state)
{
    arena = ps_arena_create(16 * MR_MIB);
    *state = ps_pushes_create(arena, NULL);
    return *state == NULL;
}

static int pushes_destroy(void **state)
{
    ps_pushes_destroy(*state);
    assert_int_equal(ps_arena_allocated_bytes(arena), 0);
    ps_arena_destroy(arena);
    return 0;
}

static const uint8_t a[MR_UUID_BYTES] = {1}, b[MR_UUID_BYTES] = {2};

static void uuid_of(uint64_t number, uint8_t uuid[MR_UUID_BYTES])
{
    uint64_t halves[2] = {number * UINT64_C(0x9E3779B97F4A7C15), ~number * UINT64_C(0xC2B2AE3D27D4EB4F)};
    memcpy(uuid, halves, MR_UUID_BYTES);
}

static enum ps_push_state look_up(struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id,
                                  uint64_t number)
{
    return ps_pushes_look_up(p, &(struct ps_push_id){uuid, stream_id, number, 0});
}

/* From its start to its end; how many others were given up. */
static uint64_t pushes_push(struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id, uint64_t number)
{
    const struct ps_push_id id = {uuid, stream_id, number, 0};
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
    ps_pushes_start(p, &id);
    return ps_pushes_finish(p, &id);
}

TEST(each_client_and_stream_has_its_own, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_push(p, a, STREAM, 1);
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
    assert_int_equal(look_up(p, a, STREAM, 2), PS_PUSH_NEW);
    assert_int_equal(look_up(p, a, STREAM + 0x100, 1), PS_PUSH_NEW);
    assert_int_equal(look_up(p, b, STREAM, 1), PS_PUSH_NEW);
    assert_int_equal(pushes_push(p, a, STREAM, 5000), 5000 - MR_PUSH_WINDOW - 1);
    ps_pushes_clear(p);
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_NEW);
}

TEST(a_push_under_way_is_not_begun_again, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id first = {a, STREAM, 1, 0}, second = {a, STREAM, 2, 0};
    assert_int_equal(ps_pushes_look_up(p, &first), PS_PUSH_NEW);
    ps_pushes_start(p, &first);
    assert_int_equal(ps_pushes_look_up(p, &first), PS_PUSH_WAITS);
    assert_int_equal(look_up(p, b, STREAM, 1), PS_PUSH_NEW);
    assert_int_equal(ps_pushes_look_up(p, &second), PS_PUSH_NEW);
    ps_pushes_start(p, &second);
    assert_int_equal(look_up(p, a, STREAM, MR_PUSH_WINDOW), PS_PUSH_NEW);
    assert_int_equal(look_up(p, a, STREAM, MR_PUSH_WINDOW + 1),
                     PS_PUSH_WAITS); /* it would give up the first */
    ps_pushes_finish(p, &first);
    assert_int_equal(ps_pushes_look_up(p, &first), PS_PUSH_APPLIED);
    assert_int_equal(ps_pushes_look_up(p, &second), PS_PUSH_WAITS);
    ps_pushes_finish(p, &second);
    assert_int_equal(look_up(p, a, STREAM, MR_PUSH_WINDOW + 1), PS_PUSH_NEW);
}

TEST(as_many_run_as_there_is_room_for, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    for (uint64_t n = 1; n <= PS_PUSH_RUNNING_MAX; n++) {
        assert_int_equal(look_up(p, a, STREAM, n), PS_PUSH_NEW);
        ps_pushes_start(p, &(struct ps_push_id){a, STREAM, n, 0});
    }
    assert_int_equal(look_up(p, b, STREAM, 1), PS_PUSH_WAITS);
    for (uint64_t n = PS_PUSH_RUNNING_MAX; n >= 1; n--)
        ps_pushes_finish(p, &(struct ps_push_id){a, STREAM, n, 0});
    assert_int_equal(look_up(p, b, STREAM, 1), PS_PUSH_NEW);
    assert_int_equal(look_up(p, a, STREAM, PS_PUSH_RUNNING_MAX), PS_PUSH_APPLIED);
}

TEST(what_was_cleared_under_way_is_not_marked, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id id = {a, STREAM, 1, 0};
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
    ps_pushes_start(p, &id);
    ps_pushes_clear(p);
    assert_int_equal(ps_pushes_finish(p, &id), 0);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
    assert_int_equal(ps_pushes_finish(p, &id), 0); /* it was not begun since */
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
}

TEST(only_a_published_cut_is_durable, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_push(p, a, STREAM, 1);
    pushes_push(p, a, STREAM, 2);
    pushes_push(p, a, STREAM, 4);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 0);
    ps_pushes_cut(p);
    pushes_push(p, a, STREAM, 3);
    pushes_push(p, b, STREAM, 1);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 0);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 2);
    assert_int_equal(ps_pushes_durable(p, b, STREAM), 0); /* came behind the cut */
    ps_pushes_cut(p);                                     /* this one fails, the next does not */
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 2);
    pushes_push(p, a, STREAM, 5);
    ps_pushes_cut(p);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 5);
    assert_int_equal(ps_pushes_durable(p, b, STREAM), 1);
}

TEST(a_cut_advances_from_floor_to_floor, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_push(p, a, STREAM, 1);
    ps_pushes_cut(p);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DISK);
    ps_pushes_advance(p, PS_FLOOR_DISK, PS_FLOOR_COPYING);
    pushes_push(p, a, STREAM, 2);
    ps_pushes_cut(p);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DISK);
    pushes_push(p, a, STREAM, 3);
    ps_pushes_cut(p);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 0);
    ps_pushes_advance(p, PS_FLOOR_COPYING, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 1);
    ps_pushes_advance(p, PS_FLOOR_DISK, PS_FLOOR_COPYING);
    ps_pushes_advance(p, PS_FLOOR_COPYING, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 2);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 3);
}

TEST(lists_what_is_worth_keeping, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    uint32_t count = 0;
    pushes_push(p, a, STREAM, 1);
    pushes_push(p, b, STREAM, 2); /* a floor of 0, and a bit */
    look_up(p, a, STREAM + 0x100, 1);
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        const struct ps_push_stream *stream = ps_pushes_at(p, i);
        count += stream != NULL;
        assert_true(stream == NULL || stream->stream_id == STREAM);
    }
    assert_int_equal(count, 2);
}

static void pushes_load(struct ps_pushes *p, uint32_t partition, uint32_t partition_end, uint64_t floor,
                        uint64_t bits)
{
    const struct ps_partition_set partitions = ps_partitions_range(partition, partition_end);
    struct ps_push_load piece = {.uuid = a, .stream_id = STREAM, .is_cut = true};
    ps_push_window_load(&piece.window, floor, &bits, 1);
    assert_int_equal(ps_pushes_load(p, &piece, &partitions), MR_OK);
}

TEST(a_loaded_stream_goes_on_where_it_was, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_load(p, 0, MR_PARTITION_COUNT, 10, 2);
    assert_int_equal(look_up(p, a, STREAM, 10), PS_PUSH_APPLIED);
    assert_int_equal(look_up(p, a, STREAM, 11), PS_PUSH_NEW);
    assert_int_equal(look_up(p, a, STREAM, 12), PS_PUSH_APPLIED);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 0);
    pushes_push(p, a, STREAM, 11);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 10);
}

TEST(pieces_of_a_stream_are_told_apart, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id id = {a, STREAM, 12, 0};
    pushes_load(p, 0, 100, 10, 2);
    pushes_load(p, 100, MR_PARTITION_COUNT, 9, 0);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 9);
    assert_int_equal(look_up(p, a, STREAM, 9), PS_PUSH_APPLIED);
    assert_int_equal(look_up(p, a, STREAM, 11), PS_PUSH_NEW);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_PARTLY);
    assert_true(ps_pushes_has(p, &id, 0));
    assert_true(ps_pushes_has(p, &id, 99));
    assert_false(ps_pushes_has(p, &id, 100));
    assert_false(ps_pushes_has(p, &id, MR_PARTITION_COUNT - 1));
    const struct ps_partition_set applied = ps_pushes_partitions(p, &id);
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        assert_int_equal(ps_partitions_has(&applied, i), ps_pushes_has(p, &id, i));
    ps_pushes_start(p, &id);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_WAITS);
    assert_int_equal(look_up(p, a, STREAM, 12 + MR_PUSH_WINDOW), PS_PUSH_WAITS);
    assert_int_equal(ps_pushes_finish(p, &id), 0);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_APPLIED);
    assert_int_equal(pushes_push(p, a, STREAM, 11 + MR_PUSH_WINDOW), 2); /* 10 and 11 of the second piece */
}

/* Where nothing was recorded a push is new, and is recorded only for the partitions that it has keys of:
 * numbers without keys there are not waited for. */
TEST(unknown_partitions_become_known_by_their_keys, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id id = {a, STREAM, 12, 0};
    const struct ps_partition_set touched = ps_partitions_range(2000, 2001);
    pushes_load(p, 0, 1000, 12, 0);
    assert_true(ps_pushes_has_unknown(p, &id));
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 12);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_PARTLY);
    assert_false(ps_pushes_has(p, &id, 2000));
    assert_int_equal(ps_pushes_cover(p, &id, &touched), MR_OK);
    ps_pushes_start(p, &id);
    assert_int_equal(ps_pushes_finish(p, &id), 0);
    assert_true(ps_pushes_has(p, &id, 2000));
    assert_false(ps_pushes_has(p, &id, 2001));
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 0);
    assert_int_equal(pushes_push(p, a, STREAM, 13), 0); /* without keys of the others */
    assert_false(ps_pushes_has(p, &(struct ps_push_id){a, STREAM, 13, 0}, 2001));
}

/* Its earlier numbers that can still come are those that the client may have in flight. */
TEST(a_partition_that_becomes_known_late_gives_nothing_up, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id id = {a, STREAM, 5000, 0};
    const struct ps_partition_set touched = ps_partitions_range(2000, 2001);
    pushes_load(p, 0, 1000, 4999, 0);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
    assert_int_equal(ps_pushes_cover(p, &id, &touched), MR_OK);
    ps_pushes_start(p, &id);
    assert_int_equal(ps_pushes_finish(p, &id), 0);
    assert_false(ps_pushes_has(p, &(struct ps_push_id){a, STREAM, 4999, 0}, 2000));
}

TEST(what_is_forgotten_of_some_partitions_is_unknown, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id id = {a, STREAM, 1, 0};
    const struct ps_partition_set some = ps_partitions_range(7, 9), all = ps_partitions_all();
    pushes_push(p, a, STREAM, 1);
    pushes_push(p, b, STREAM, 1);
    assert_int_equal(ps_pushes_forget(p, &some), MR_OK);
    assert_true(ps_pushes_has(p, &id, 6));
    assert_false(ps_pushes_has(p, &id, 7));
    assert_false(ps_pushes_has(p, &id, 8));
    assert_true(ps_pushes_has(p, &id, 9));
    assert_int_equal(ps_pushes_forget(p, &all), MR_OK);
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_NEW);
}

TEST(numbers_that_do_not_come_are_skipped, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id last = {a, STREAM, 5000, 0}, running = {a, STREAM, 5003, 0};
    assert_int_equal(ps_pushes_look_up(p, &last), PS_PUSH_NEW);
    assert_true(ps_pushes_skip(p, &last, 1));
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
    assert_int_equal(look_up(p, a, STREAM, 5001), PS_PUSH_NEW);
    assert_int_equal(ps_pushes_look_up(p, &running), PS_PUSH_NEW);
    ps_pushes_start(p, &running);
    assert_false(ps_pushes_skip(p, &(struct ps_push_id){a, STREAM, 5004, 0}, 5002));
    assert_true(ps_pushes_skip(p, &(struct ps_push_id){a, STREAM, 5005, 0}, 5004));
    assert_int_equal(ps_pushes_finish(p, &running), 0);
    assert_true(ps_pushes_skip(p, &(struct ps_push_id){a, STREAM, 5002, 0}, 5001));
    ps_pushes_cut(p);
    ps_pushes_advance(p, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(p, a, STREAM), 5005);
}

TEST(pieces_that_become_alike_are_joined, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_load(p, 0, 100, 10, 0);
    pushes_load(p, 100, MR_PARTITION_COUNT, 9, 0);
    pushes_push(p, a, STREAM, 11);
    assert_true(ps_pushes_skip(p, &(struct ps_push_id){a, STREAM, 10, 0}, 10));
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++)
        assert_true(ps_pushes_at(p, i) == NULL || ps_pushes_at(p, i)->rest.next == NULL);
    assert_int_equal(look_up(p, a, STREAM, 11), PS_PUSH_APPLIED);
}

TEST(forgets_the_silent_first, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    uint8_t uuid[MR_UUID_BYTES];
    uint64_t number = 0;
    pushes_push(p, b, STREAM, 1);
    assert_int_equal(ps_pushes_forgotten(p), 0);
    for (uint64_t i = 1; i <= 20 * PS_PUSH_STREAMS_MAX; i++) {
        uuid_of(i, uuid);
        pushes_push(p, uuid, STREAM, 1);
        if (i % 16 == 0)
            pushes_push(p, a, STREAM, ++number);
    }
    assert_int_equal(look_up(p, a, STREAM, number), PS_PUSH_APPLIED);
    assert_int_equal(look_up(p, uuid, STREAM, 1), PS_PUSH_APPLIED);
    assert_int_equal(look_up(p, b, STREAM, 1), PS_PUSH_NEW);
    assert_int_in_range(ps_pushes_forgotten(p), 19 * PS_PUSH_STREAMS_MAX, 20 * PS_PUSH_STREAMS_MAX);
}

/* ---- what a client with bad intentions can do to others ---- */

static uint32_t now_s;
static const uint8_t *live; /* has a session */

static bool has_session(void *arg, const uint8_t *uuid)
{
    return live != NULL && memcmp(uuid, live, MR_UUID_BYTES) == 0;
}

static uint32_t clock_of_test(void *arg)
{
    return now_s;
}

static uint32_t network_share(void *arg, uint32_t places)
{
    return places / 4;
}

static int make_guarded(void **state)
{
    const struct ps_push_guard guard = {
        .secret = 7, .has_session = has_session, .network_share = network_share, .now_s = clock_of_test};
    now_s = 1000;
    live = NULL;
    arena = ps_arena_create(64 * MR_MIB);
    *state = ps_pushes_create(arena, &guard);
    return *state == NULL;
}

/* Pushes under ever new uuids, many times what there is room for. Returns how many had to wait. */
static uint32_t flood(struct ps_pushes *p)
{
    static uint64_t number;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t waited = 0;
    for (uint64_t i = 0; i < 4 * PS_PUSH_STREAMS_MAX; i++) {
        uuid_of(++number, uuid);
        if (look_up(p, uuid, STREAM, 1) == PS_PUSH_WAITS)
            waited++;
    }
    return waited;
}

TEST(a_flood_of_clients_forgets_nobody_who_may_come_back, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_push(p, a, STREAM, 1);
    assert_true(flood(p) > 2 * PS_PUSH_STREAMS_MAX);
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
    assert_int_equal(ps_pushes_forgotten(p), 0);
}

TEST(a_client_with_a_session_is_never_forgotten, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_push(p, a, STREAM, 1);
    pushes_push(p, b, STREAM, 1);
    live = a;
    for (uint32_t i = 0; i < 4; i++) {
        now_s += PS_PUSH_STREAM_KEPT_S;
        flood(p);
    }
    assert_true(ps_pushes_forgotten(p) > PS_PUSH_STREAMS_MAX);
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
    assert_int_not_equal(look_up(p, b, STREAM, 1), PS_PUSH_APPLIED);
}

/* Push streams of one client make room for each other, and leave room for others. */
TEST(a_client_has_its_share_of_streams, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    pushes_push(p, a, STREAM, 1);
    for (uint32_t stream_id = 1; stream_id <= 4 * PS_PUSH_STREAMS_MAX; stream_id++)
        (void)look_up(p, b, STREAM + stream_id, 1);
    uint32_t streams = 0;
    uint8_t uuid[MR_UUID_BYTES];
    for (uint64_t i = 1; i <= 100; i++) {
        uuid_of(i, uuid);
        pushes_push(p, uuid, STREAM, 1);
        streams += look_up(p, uuid, STREAM, 1) == PS_PUSH_APPLIED;
    }
    assert_int_equal(streams, 100);
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
}

/* Pushes under ever new uuids from one network, as many as there are places. Returns how many had to
 * wait. */
static uint32_t flood_from(struct ps_pushes *p, uint64_t network)
{
    static uint64_t number = UINT64_C(3) << 40;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t waited = 0;
    for (uint64_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        uuid_of(++number, uuid);
        const struct ps_push_id id = {uuid, STREAM, 1, network};
        waited += ps_pushes_look_up(p, &id) == PS_PUSH_WAITS;
    }
    return waited;
}

/* Three networks that take what they can, under however many uuids, leave room for the trainers of a
 * fourth. */
TEST(a_network_has_its_share_of_streams, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const uint32_t trainers = 1024;
    uint8_t uuid[MR_UUID_BYTES];
    pushes_push(p, a, STREAM, 1);
    for (uint64_t network = 1; network <= 3; network++)
        assert_true(flood_from(p, network) >= 3 * PS_PUSH_STREAMS_MAX / 4);
    for (uint64_t i = 1; i <= trainers; i++) {
        uuid_of(i, uuid);
        const struct ps_push_id id = {uuid, STREAM, 1, 4};
        assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
    }
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
    assert_int_equal(ps_pushes_forgotten(p), 0);
}

/* A network whose trainers were started anew many times is not held up by those that have ended. */
TEST(a_network_forgets_streams_of_its_own, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    const struct ps_push_id other = {b, STREAM, 1, 2};
    assert_int_equal(ps_pushes_look_up(p, &other), PS_PUSH_NEW);
    ps_pushes_start(p, &other);
    (void)ps_pushes_finish(p, &other);
    flood_from(p, 1);
    now_s += PS_PUSH_STREAM_KEPT_S;
    const uint64_t forgotten = ps_pushes_forgotten(p);
    for (uint64_t i = 1; i <= PS_PUSH_STREAMS_MAX / 8; i++) {
        uint8_t uuid[MR_UUID_BYTES];
        uuid_of(i, uuid);
        const struct ps_push_id id = {uuid, STREAM, 1, 1};
        enum ps_push_state state_of_push = ps_pushes_look_up(p, &id);
        for (uint32_t again = 0; state_of_push == PS_PUSH_WAITS && again < 4; again++)
            state_of_push = ps_pushes_look_up(p, &id);
        assert_int_equal(state_of_push, PS_PUSH_NEW);
    }
    assert_true(ps_pushes_forgotten(p) > forgotten);
    assert_int_equal(ps_pushes_look_up(p, &other), PS_PUSH_APPLIED); /* which others' pushes leave alone */
}

/* A push stream that a restore brought counts for its network from its next push on, and for the next one
 * when its client has moved. */
TEST(a_stream_counts_for_the_network_of_its_client, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    uint8_t uuid[MR_UUID_BYTES];
    struct ps_push_load stream = {.uuid = uuid, .stream_id = STREAM};
    ps_push_window_add(&stream.window, 1);
    for (uint64_t i = 1; i <= PS_PUSH_STREAMS_MAX / 4; i++) {
        uuid_of(i, uuid);
        assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK);
        const struct ps_push_id id = {uuid, STREAM, 2, 1};
        (void)ps_pushes_look_up(p, &id);
    }
    const struct ps_push_id more = {a, STREAM, 1, 1};
    assert_int_equal(ps_pushes_look_up(p, &more), PS_PUSH_WAITS);
    uuid_of(1, uuid);
    const struct ps_push_id moved = {uuid, STREAM, 2, 2};
    (void)ps_pushes_look_up(p, &moved);
    assert_int_equal(ps_pushes_look_up(p, &more), PS_PUSH_NEW);
}

/* Also of those that a checkpoint brought back, whatever the order of its records. */
TEST(forgets_the_silent_first_after_a_restore, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    uint8_t uuid[MR_UUID_BYTES];
    struct ps_push_load stream = {.uuid = a, .stream_id = STREAM};
    ps_push_window_add(&stream.window, 1);
    stream.used = 1000 * PS_PUSH_STREAMS_MAX;
    assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK);
    stream.uuid = uuid;
    for (uint64_t i = 1; i <= 20 * PS_PUSH_STREAMS_MAX; i++) { /* they fill all sets */
        uuid_of(i, uuid);
        stream.used = i;
        assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK);
    }
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_APPLIED);
    pushes_push(p, b, STREAM, 1); /* newer than all */
    for (uint64_t i = 1; i <= PS_PUSH_STREAMS_MAX; i++) {
        uuid_of(i, uuid);
        stream.used = 1000 * PS_PUSH_STREAMS_MAX;
        assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK);
    }
    assert_int_equal(look_up(p, b, STREAM, 1), PS_PUSH_APPLIED);
    uint64_t forgotten = ps_pushes_forgotten(p);
    uuid_of(21 * PS_PUSH_STREAMS_MAX, uuid);
    stream.used = 0;
    assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK); /* older than all */
    assert_int_equal(ps_pushes_forgotten(p), forgotten + 1);
    assert_int_equal(look_up(p, uuid, STREAM, 1), PS_PUSH_NEW);
}

/* Push streams that come with partitions make room among those that nobody will ask for, while there are
 * some. */
TEST(streams_that_come_take_the_place_of_the_silent_first, make_guarded, pushes_destroy)
{
    struct ps_pushes *p = *state;
    uint8_t uuid[MR_UUID_BYTES];
    struct ps_push_load stream = {.uuid = uuid, .stream_id = STREAM};
    ps_push_window_add(&stream.window, 1);
    flood(p); /* of clients that are silent by the time that the others come */
    now_s += PS_PUSH_STREAM_KEPT_S;
    stream.used = 1; /* older than what they pushed */
    for (uint64_t i = 1; i <= PS_PUSH_STREAMS_MAX / 4; i++) {
        uuid_of(UINT64_C(1) << 40 | i, uuid);
        assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK);
    }
    assert_true(ps_pushes_forgotten(p) > PS_PUSH_STREAMS_MAX / 8);
    const uint64_t lost = ps_pushes_lost(p);
    assert_true(lost < PS_PUSH_STREAMS_MAX / 400); /* sets into which more than eight of them have come */
    for (uint64_t i = 1; i <= 2 * PS_PUSH_STREAMS_MAX; i++) {
        uuid_of(UINT64_C(2) << 40 | i, uuid);
        assert_int_equal(ps_pushes_load(p, &stream, NULL), MR_OK);
    }
    assert_true(ps_pushes_lost(p) > PS_PUSH_STREAMS_MAX); /* now there are none left */
}

/* What is in flight keeps its record, however many others come. */
TEST(forgets_nobody_who_is_under_way, pushes_make, pushes_destroy)
{
    struct ps_pushes *p = *state;
    uint8_t uuid[MR_UUID_BYTES];
    const struct ps_push_id id = {a, STREAM, 1, 0};
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_NEW);
    ps_pushes_start(p, &id);
    for (uint64_t i = 1; i <= 20 * PS_PUSH_STREAMS_MAX; i++) {
        uuid_of(i, uuid);
        pushes_push(p, uuid, STREAM, 1);
    }
    ps_pushes_finish(p, &id);
    assert_int_equal(ps_pushes_look_up(p, &id), PS_PUSH_APPLIED);
}

static int destroy_full(void **state)
{
    ps_pushes_destroy(*state);
    ps_arena_destroy(arena);
    return 0;
}

TEST(says_when_memory_is_short, pushes_make, destroy_full)
{
    struct ps_pushes *p = *state;
    while (ps_arena_alloc(arena, sizeof(struct ps_push_stream), 8) != NULL) {
    }
    assert_int_equal(look_up(p, a, STREAM, 1), PS_PUSH_NO_MEMORY);
    assert_int_equal(ps_pushes_load(p, &(struct ps_push_load){.uuid = a, .stream_id = STREAM}, NULL),
                     MR_OUT_OF_MEMORY);
}
