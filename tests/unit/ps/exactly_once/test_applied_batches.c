/* Applied batches: any order within the window, and back from a stored state. */
#include <stdlib.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/op.h"
#include "ps/exactly_once/applied_batches.h"
#include "tests/test.h"

static struct ps_arena *arena;

static int applied_batches_make(void **state)
{
    arena = ps_arena_create(256 * MR_MIB);
    *state = ps_applied_batches_create(arena, NULL);
    return *state == NULL;
}

static int applied_batches_destroy(void **state)
{
    ps_applied_batches_destroy(*state);
    size_t left = ps_arena_allocated_bytes(arena);
    ps_arena_destroy(arena);
    return left != 0;
}

static uint64_t id(uint32_t stream, uint64_t sequence)
{
    return (uint64_t)stream << MR_BATCH_SEQUENCE_BITS | sequence;
}

static void applied_batches_apply(struct ps_applied_batches *l, uint32_t stream, uint64_t sequence)
{
    assert_int_equal(ps_applied_batches_reserve(l, id(stream, sequence), NULL), MR_OK);
    ps_applied_batches_add(l, id(stream, sequence));
}

TEST(moves_the_watermark_over_gaps_once_they_close, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    assert_false(ps_applied_batches_has(l, id(4, 0)));
    applied_batches_apply(l, 4, 1);
    applied_batches_apply(l, 4, 2);
    applied_batches_apply(l, 4, 5);
    assert_int_equal(ps_applied_batches_watermark(l, 4), 0);
    assert_true(ps_applied_batches_has(l, id(4, 2)));
    assert_false(ps_applied_batches_has(l, id(4, 0)));
    assert_false(ps_applied_batches_has(l, id(5, 2)));
    applied_batches_apply(l, 4, 0);
    assert_int_equal(ps_applied_batches_watermark(l, 4), 3);
    applied_batches_apply(l, 4, 4);
    applied_batches_apply(l, 4, 3);
    assert_int_equal(ps_applied_batches_watermark(l, 4), 6);
    assert_int_equal(ps_applied_batches_bitmap_words(l, 4), 0);
    assert_true(ps_applied_batches_has(l, id(4, 0)));
    assert_false(ps_applied_batches_has(l, id(4, 6)));
}

TEST(counts_what_is_added_twice, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    applied_batches_apply(l, 1, 0);
    applied_batches_apply(l, 1, 2);
    assert_int_equal(ps_applied_batches_added(l, 1), 2);
    applied_batches_apply(l, 1, 2);
    applied_batches_apply(l, 1, 0);
    assert_int_equal(ps_applied_batches_added(l, 1), 4); /* of two batches: the record shows the fault */
    assert_int_equal(ps_applied_batches_watermark(l, 1), 1);
}

/* Against an array of flags, with a window that has to grow several times and to wrap around. */
TEST(agrees_with_flags_in_random_order, applied_batches_make, applied_batches_destroy)
{
    enum { COUNT = 60000, SPREAD = 7000 };
    struct ps_applied_batches *l = *state;
    static bool flags[COUNT];
    uint64_t watermark = 0, added = 0;
    uint32_t random = 99;
    for (; watermark < COUNT; added++) {
        random = random * 1664525 + 1013904223;
        uint64_t sequence = watermark + (random >> 8) % ((random >> 28) == 0 ? SPREAD : 10);
        if (sequence >= COUNT)
            sequence = watermark;
        assert_int_equal(ps_applied_batches_has(l, id(9, sequence)), flags[sequence]);
        applied_batches_apply(l, 9, sequence);
        flags[sequence] = true;
        while (watermark < COUNT && flags[watermark])
            watermark++;
        assert_int_equal(ps_applied_batches_watermark(l, 9), watermark);
        assert_true(ps_applied_batches_has(l, id(9, sequence)));
    }
    assert_false(ps_applied_batches_has(l, id(9, COUNT)));
    assert_int_equal(ps_applied_batches_added(l, 9), added);
}

TEST(comes_back_from_its_stored_state, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    for (uint64_t s = 0; s < 500; s++)
        if (s < 100 || s % 3 == 0)
            applied_batches_apply(l, 2, s);
    uint64_t watermark = ps_applied_batches_watermark(l, 2), added = ps_applied_batches_added(l, 2);
    uint32_t words = ps_applied_batches_bitmap_words(l, 2);
    uint64_t *bitmap = malloc(words * sizeof(*bitmap));
    ps_applied_batches_bitmap(l, 2, bitmap);
    ps_applied_batches_clear(l);
    assert_int_equal(ps_applied_batches_next_stream(l, 0), PS_STREAMS_MAX);
    applied_batches_apply(l, 2, 0); /* is forgotten */
    assert_int_equal(ps_applied_batches_load(l, 2, watermark, bitmap, words, added), MR_OK);
    for (uint64_t s = 0; s < 600; s++)
        assert_int_equal(ps_applied_batches_has(l, id(2, s)), s < 100 || (s < 500 && s % 3 == 0));
    assert_int_equal(ps_applied_batches_added(l, 2), added);
    assert_int_equal(ps_applied_batches_watermark(l, 2), watermark);
    assert_int_equal(ps_applied_batches_next_stream(l, 0), 2);
    assert_int_equal(ps_applied_batches_next_stream(l, 3), PS_STREAMS_MAX);
    free(bitmap);
}

TEST(a_full_bitmap_moves_the_watermark, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    uint64_t words[3] = {UINT64_MAX, UINT64_MAX, 0};
    assert_int_equal(ps_applied_batches_load(l, 65535, 1000, words, 3, 1128), MR_OK);
    assert_int_equal(ps_applied_batches_watermark(l, 65535), 1128);
    assert_int_equal(ps_applied_batches_bitmap_words(l, 65535), 0);
}

TEST(refuses_what_is_too_far_ahead, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    assert_int_equal(ps_applied_batches_reserve(l, id(1, PS_APPLIED_BATCHES_WINDOW), NULL),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(ps_applied_batches_reserve(l, id(1, UINT64_C(0xFFFFFFFFFFFF)), NULL),
                     MR_INVALID_ARGUMENT);
    applied_batches_apply(l, 1, PS_APPLIED_BATCHES_WINDOW - 1);
    applied_batches_apply(l, 1, 0);
    applied_batches_apply(l, 1, PS_APPLIED_BATCHES_WINDOW);
    assert_int_equal(ps_applied_batches_reserve(l, id(1, PS_APPLIED_BATCHES_WINDOW + 1), NULL),
                     MR_INVALID_ARGUMENT);
    assert_true(ps_applied_batches_has(l, id(1, PS_APPLIED_BATCHES_WINDOW)));
    assert_false(ps_applied_batches_has(l, id(1, 1)));
}

TEST(want_of_memory_changes_nothing, applied_batches_make, applied_batches_destroy)
{
    struct ps_arena *small = ps_arena_create(16 * MR_MIB);
    struct ps_applied_batches *l = ps_applied_batches_create(small, NULL);
    uint32_t stream = 0;
    assert_non_null(l);
    while (stream < PS_STREAMS_MAX &&
           ps_applied_batches_reserve(l, id(stream, PS_APPLIED_BATCHES_WINDOW - 1), NULL) == MR_OK)
        stream++;
    assert_int_in_range(stream, 1, 200);
    assert_int_equal(ps_applied_batches_reserve(l, id(stream, PS_APPLIED_BATCHES_WINDOW - 1), NULL),
                     MR_OUT_OF_MEMORY);
    applied_batches_apply(l, 0, 5);
    assert_true(ps_applied_batches_has(l, id(0, 5)));
    ps_applied_batches_destroy(l);
    ps_arena_destroy(small);
}

TEST(a_stream_is_of_one_plan, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct mr_plan mine = {{1, 2}, 3}, none = {{0, 0}, 0};
    const struct mr_plan others[] = {{{9, 2}, 3}, {{1, 9}, 3}, {{1, 2}, 9}, none};
    assert_null(ps_applied_batches_plan(l, 4));
    assert_int_equal(ps_applied_batches_claim(l, 4, &mine, NULL), MR_OK);
    applied_batches_apply(l, 4, 0);
    assert_int_equal(ps_applied_batches_claim(l, 4, &mine, NULL), MR_OK);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_int_equal(ps_applied_batches_claim(l, 4, &others[i], NULL), MR_ALREADY_STARTED);
    assert_true(mr_plan_same(ps_applied_batches_plan(l, 4), &mine));
    assert_true(ps_applied_batches_has(l, id(4, 0)));
    /* One that nobody claimed is of no plan: a number that a caller chose. */
    applied_batches_apply(l, 5, 0);
    assert_int_equal(ps_applied_batches_claim(l, 5, &none, NULL), MR_OK);
    assert_int_equal(ps_applied_batches_claim(l, 5, &mine, NULL), MR_ALREADY_STARTED);
    ps_applied_batches_forget(l, 4);
    assert_null(ps_applied_batches_plan(l, 4));
    assert_false(ps_applied_batches_has(l, id(4, 0)));
    assert_int_equal(ps_applied_batches_claim(l, 4, &others[0], NULL), MR_OK);
    assert_int_equal(ps_applied_batches_count(l, 4), 0);
    assert_int_equal(ps_applied_batches_streams(l), 2);
}

/* Versions before plans wrote records without one: the first plan that asks for such a stream goes on with
 * it. */
TEST(a_stored_stream_without_a_plan_is_adopted_once, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct mr_plan mine = {{1, 2}, 3}, other = {{4, 5}, 6};
    assert_int_equal(ps_applied_batches_load(l, 7, 10, NULL, 0, 10), MR_OK);
    assert_true(mr_plan_same(ps_applied_batches_plan(l, 7), &MR_PLAN_UNKNOWN));
    assert_int_equal(ps_applied_batches_claim(l, 7, &mine, NULL), MR_OK);
    assert_int_equal(ps_applied_batches_watermark(l, 7), 10);
    assert_int_equal(ps_applied_batches_claim(l, 7, &other, NULL), MR_ALREADY_STARTED);
    ps_applied_batches_load_plan(l, 7, &other, 50);
    assert_int_equal(ps_applied_batches_used(l, 7), 50);
    assert_int_equal(ps_applied_batches_claim(l, 7, &mine, NULL), MR_ALREADY_STARTED);
    assert_int_equal(ps_applied_batches_claim(l, 7, &other, NULL), MR_OK);
    assert_int_equal(ps_applied_batches_used(l, 7), 51); /* later than whatever was loaded */
    ps_applied_batches_load_plan(l, 8, &other, 60);      /* there is no such stream */
    assert_null(ps_applied_batches_plan(l, 8));
}

TEST(the_stream_not_used_for_longest_makes_room, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct mr_plan plan = {{1, 2}, 3};
    for (uint32_t s = 0; s < PS_STREAMS_KEPT; s++)
        applied_batches_apply(l, s, 0);
    assert_int_equal(ps_applied_batches_streams(l), PS_STREAMS_KEPT);
    applied_batches_apply(
        l, 0, 1); /* the second oldest is 1 now, and the oldest, but a push may be about to add to it */
    assert_int_equal(ps_applied_batches_reserve(l, id(1, 1), NULL), MR_OK);
    assert_int_equal(ps_applied_batches_claim(l, PS_STREAMS_KEPT, &plan, NULL), MR_OK);
    assert_int_equal(ps_applied_batches_streams(l), PS_STREAMS_KEPT);
    assert_int_equal(ps_applied_batches_dropped(l), 1);
    assert_non_null(ps_applied_batches_plan(l, 0));
    assert_non_null(ps_applied_batches_plan(l, 1));
    assert_null(ps_applied_batches_plan(l, 2));
    ps_applied_batches_add(l, id(1, 1));
    assert_int_equal(ps_applied_batches_count(l, 1), 2);
    ps_applied_batches_clear(l);
    assert_int_equal(ps_applied_batches_streams(l), 0);
}

/* Neighbours, the later number the older one. */
TEST(the_least_used_goes_whatever_its_number, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct mr_plan plan = {{1, 2}, 3};
    assert_int_equal(ps_applied_batches_claim(l, 5, &plan, NULL), MR_OK);
    assert_int_equal(ps_applied_batches_claim(l, 4, &plan, NULL), MR_OK);
    for (uint32_t s = 0; s < PS_STREAMS_KEPT - 2; s++)
        applied_batches_apply(l, 10 + s, 0);
    for (uint32_t gone = 5; gone >= 4; gone--) {
        assert_non_null(ps_applied_batches_plan(l, gone));
        assert_int_equal(ps_applied_batches_claim(l, PS_STREAMS_KEPT + 20 + gone, &plan, NULL), MR_OK);
        assert_null(ps_applied_batches_plan(l, gone));
    }
    assert_int_equal(ps_applied_batches_dropped(l), 2);
}

/* By a claim, that is; what it learns is as of the last one of all. */
TEST(a_stream_used_again_stays_for_longer, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct mr_plan plan = {{1, 2}, 3};
    enum { FIRST = 10, LAST = FIRST + PS_STREAMS_KEPT - 1 };
    for (uint32_t s = FIRST; s <= LAST; s++)
        assert_int_equal(ps_applied_batches_claim(l, s, &plan, NULL), MR_OK);
    applied_batches_apply(l, LAST, 0);
    assert_int_equal(ps_applied_batches_claim(l, LAST - 1, &plan, NULL), MR_OK);
    for (uint32_t s = FIRST; s < LAST - 1; s++)
        assert_int_equal(ps_applied_batches_claim(l, s, &plan, NULL), MR_OK);
    applied_batches_apply(l, LAST - 2, 0); /* a push in progress keeps the stream that it is of */
    const uint32_t gone[] = {LAST, LAST - 1, FIRST, FIRST + 1};
    for (uint32_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        assert_non_null(ps_applied_batches_plan(l, gone[i]));
        assert_int_equal(ps_applied_batches_claim(l, LAST + 1 + i, &plan, NULL), MR_OK);
        assert_null(ps_applied_batches_plan(l, gone[i]));
    }
}

TEST(the_window_grows_when_it_must, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    applied_batches_apply(l, 2, 0);
    const size_t bytes = ps_arena_allocated_bytes(arena);
    applied_batches_apply(l, 2, 1024);
    assert_int_equal(ps_arena_allocated_bytes(arena), bytes);
    applied_batches_apply(l, 2, 1025);
    assert_true(ps_arena_allocated_bytes(arena) > bytes);
    assert_int_equal(ps_applied_batches_count(l, 2), 3);
}

TEST(a_stored_state_may_fill_the_window, applied_batches_make, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    enum { WORDS = PS_APPLIED_BATCHES_WINDOW / 64 };
    uint64_t *words = calloc(WORDS, sizeof(*words));
    words[WORDS - 1] = UINT64_C(1) << 63;
    assert_int_equal(ps_applied_batches_load(l, 2, 10, words, WORDS, 11), MR_OK);
    assert_true(ps_applied_batches_has(l, id(2, 10 + PS_APPLIED_BATCHES_WINDOW - 1)));
    assert_int_equal(ps_applied_batches_count(l, 2), 11);
    free(words);
}

/* ---- who makes room for whom ---- */

static uint32_t now_s;
static bool is_connected; /* the pipeline, whose uuid begins with 1 */

static bool has_session(void *arg, const uint8_t *uuid)
{
    return is_connected && uuid[0] == 1;
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
    is_connected = true;
    arena = ps_arena_create(256 * MR_MIB);
    *state = ps_applied_batches_create(arena, &guard);
    return *state == NULL;
}

static const struct mr_plan guarded_plan = {{1, 2}, 3};

static enum mr_status claim_from(struct ps_applied_batches *l, uint32_t stream, uint8_t client,
                                 uint64_t network)
{
    const uint8_t uuid[MR_UUID_BYTES] = {client};
    const struct ps_stream_user user = {uuid, network};
    return ps_applied_batches_claim(l, stream, &guarded_plan, &user);
}

static enum mr_status applied_batches_claim(struct ps_applied_batches *l, uint32_t stream, uint8_t client)
{
    return claim_from(l, stream, client, 0);
}

/* Streams of so many clients, as many as each may make, from number 10 on. Returns the number after them. */
static uint32_t flood(struct ps_applied_batches *l, uint8_t clients)
{
    uint32_t stream = 10;
    for (uint8_t client = 2; client < 2 + clients; client++)
        for (uint32_t i = 0; i < PS_STREAMS_PER_CLIENT && ps_applied_batches_streams(l) < PS_STREAMS_KEPT;
             i++)
            assert_int_equal(applied_batches_claim(l, stream++, client), MR_OK);
    return stream;
}

/* Neither with many new streams, nor under many uuids. */
TEST(nobody_makes_another_forget_its_stream, make_guarded, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct ps_stream_user pipeline = {(const uint8_t[MR_UUID_BYTES]){1}, 0};
    assert_int_equal(applied_batches_claim(l, 1, 1), MR_OK);
    assert_int_equal(ps_applied_batches_reserve(l, id(1, 0), &pipeline), MR_OK);
    ps_applied_batches_add(l, id(1, 0));
    uint32_t next = flood(l, 1);
    assert_int_equal(applied_batches_claim(l, next, 2), MR_OK); /* in the place of its own oldest */
    assert_null(ps_applied_batches_plan(l, 10));
    assert_int_equal(ps_applied_batches_streams(l), 1 + PS_STREAMS_PER_CLIENT);
    ps_applied_batches_forget(l, next);
    assert_int_equal(applied_batches_claim(l, 10, 2), MR_OK); /* that has left room for another of its own */
    next = 1000;
    for (uint8_t client = 3; ps_applied_batches_streams(l) < PS_STREAMS_KEPT; client++)
        for (uint32_t i = 0; i < PS_STREAMS_PER_CLIENT && ps_applied_batches_streams(l) < PS_STREAMS_KEPT;
             i++)
            assert_int_equal(applied_batches_claim(l, 2000 + next++, client), MR_OK);
    assert_int_equal(applied_batches_claim(l, 60000, 200), MR_BUSY);
    const struct ps_stream_user other = {(const uint8_t[MR_UUID_BYTES]){200}, 0};
    assert_int_equal(ps_applied_batches_reserve(l, id(60000, 0), &other), MR_BUSY);
    assert_true(ps_applied_batches_has(l, id(1, 0)));
    now_s += PS_PUSH_STREAM_KEPT_S;
    assert_int_equal(applied_batches_claim(l, 60000, 200), MR_OK); /* those that are not used make room */
    assert_true(ps_applied_batches_has(l, id(1, 0)));
    assert_int_equal(ps_applied_batches_streams(l), PS_STREAMS_KEPT);
}

/* However many uuids it claims, a network makes a quarter of all streams; then those of its own make room
 * that nobody uses, and others' do not. */
TEST(a_network_has_its_share_of_streams, make_guarded, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const uint64_t attackers = 66, trainers = 77;
    uint32_t made = 0;
    assert_int_equal(claim_from(l, 1, 1, trainers), MR_OK);
    is_connected = false;
    for (uint32_t i = 0; i < PS_STREAMS_KEPT; i++)
        made += claim_from(l, 10 + i, (uint8_t)(2 + i % 200), attackers) == MR_OK;
    assert_int_equal(made, PS_STREAMS_KEPT);
    assert_int_equal(ps_applied_batches_streams(l), 1 + PS_STREAMS_KEPT / 4); /* in the place of their own */
    assert_int_equal(claim_from(l, 60000, 250, attackers), MR_BUSY); /* a new uuid has none of its own */
    assert_int_equal(claim_from(l, 60000, 250, trainers), MR_OK);
    now_s += PS_PUSH_STREAM_KEPT_S;
    assert_int_equal(claim_from(l, 60001, 251, attackers), MR_OK);
    assert_non_null(ps_applied_batches_plan(l, 1));
    assert_int_equal(ps_applied_batches_streams(l), 2 + PS_STREAMS_KEPT / 4);
}

/* Without its session a stream stays for some time, which a push of anybody begins anew. */
TEST(a_stream_that_is_not_used_makes_room, make_guarded, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const struct ps_stream_user pipeline = {(const uint8_t[MR_UUID_BYTES]){1}, 0};
    assert_int_equal(applied_batches_claim(l, 1, 1), MR_OK);
    is_connected = false;
    (void)flood(l, 8);
    now_s += PS_PUSH_STREAM_KEPT_S - 1;
    assert_int_equal(applied_batches_claim(l, 60000, 200), MR_BUSY);
    assert_int_equal(ps_applied_batches_reserve(l, id(1, 0), &pipeline), MR_OK);
    ps_applied_batches_add(l, id(1, 0));
    now_s++;
    assert_int_equal(applied_batches_claim(l, 60000, 200), MR_OK);
    assert_true(ps_applied_batches_has(l, id(1, 0)));
}

/* What a checkpoint brings is kept as if it had just been used, and needs no room of anybody. */
TEST(what_is_loaded_stays_for_some_time, make_guarded, applied_batches_destroy)
{
    struct ps_applied_batches *l = *state;
    const uint64_t word = 1;
    for (uint32_t stream = 0; stream < PS_STREAMS_KEPT + 1; stream++)
        assert_int_equal(ps_applied_batches_load(l, stream, 5, &word, 1, 6), MR_OK);
    assert_int_equal(ps_applied_batches_streams(l), PS_STREAMS_KEPT);
    assert_int_equal(applied_batches_claim(l, 60000, 200), MR_BUSY);
    now_s += PS_PUSH_STREAM_KEPT_S;
    assert_int_equal(applied_batches_claim(l, 60000, 200), MR_OK);
}
