#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dataplane/wire/call/segment.h"
#include "tests/test.h"

#define SEGMENT 1000u
#define MESSAGE 20500u /* 21 segments, the last of 500 */
#define WINDOW  8000u

static uint8_t from[600 * SEGMENT], to[600 * SEGMENT];
static struct mr_incoming in;
static struct mr_outgoing out;

static int setup(void **state)
{
    for (uint32_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(i * 31 + i / 256);
    memset(to, 0, sizeof(to));
    mr_incoming_init(&in, to, MESSAGE, SEGMENT, WINDOW);
    mr_outgoing_init(&out, from, MESSAGE, SEGMENT, WINDOW);
    return 0;
}

static enum mr_segment_result segment_put(uint32_t n)
{
    uint32_t bytes = n == MESSAGE / SEGMENT ? MESSAGE % SEGMENT : SEGMENT;
    return mr_incoming_put(&in, SEGMENT, n * SEGMENT, from + (size_t)n * SEGMENT, bytes);
}

TEST(window_is_whole_segments_within_bounds, setup)
{
    assert_int_equal(mr_window_clamp(8500, SEGMENT), 8000);
    assert_int_equal(mr_window_clamp(1, SEGMENT), MR_WINDOW_SEGMENTS_MIN * SEGMENT);
    assert_int_equal(mr_window_clamp(UINT32_MAX, SEGMENT), MR_SACK_SEGMENTS * SEGMENT);
}

TEST(takes_segments_in_order, setup)
{
    for (uint32_t n = 0; n <= 20; n++) {
        assert_false(mr_incoming_whole(&in));
        assert_int_equal(segment_put(n), MR_SEGMENT_NEW);
    }
    assert_true(mr_incoming_whole(&in));
    assert_memory_equal(to, from, MESSAGE);
}

TEST(takes_segments_in_any_order, setup)
{
    assert_int_equal(segment_put(2), MR_SEGMENT_NEW);
    assert_int_equal(segment_put(1), MR_SEGMENT_NEW);
    assert_int_equal(in.received_bytes, 0);
    assert_int_equal(in.sack[0], 3);
    assert_int_equal(segment_put(0), MR_SEGMENT_NEW);
    assert_int_equal(in.received_bytes, 3 * SEGMENT);
    assert_int_equal(in.sack[0], 0);
    for (uint32_t n = 20; n > 2; n--)
        assert_int_equal(segment_put(n), MR_SEGMENT_NEW);
    assert_true(mr_incoming_whole(&in));
    assert_memory_equal(to, from, MESSAGE);
}

TEST(knows_repeated_ones, setup)
{
    segment_put(0);
    segment_put(3);
    assert_int_equal(segment_put(0), MR_SEGMENT_REPEATED);
    assert_int_equal(segment_put(3), MR_SEGMENT_REPEATED);
    assert_int_equal(in.gap_segments, 1);
}

TEST(refuses_what_does_not_fit, setup)
{
    assert_int_equal(mr_incoming_put(&in, SEGMENT, 1, from, SEGMENT), MR_SEGMENT_RANGE);
    assert_int_equal(mr_incoming_put(&in, SEGMENT, 0, from, SEGMENT - 1), MR_SEGMENT_RANGE);
    assert_int_equal(mr_incoming_put(&in, SEGMENT, 20 * SEGMENT, from, SEGMENT), MR_SEGMENT_RANGE);
    assert_int_equal(mr_incoming_put(&in, SEGMENT, 21 * SEGMENT, from, SEGMENT), MR_SEGMENT_RANGE);
    assert_int_equal(mr_incoming_put(&in, SEGMENT, UINT32_MAX, from, SEGMENT), MR_SEGMENT_RANGE);
    assert_int_equal(in.received_bytes, 0);
}

TEST(refuses_what_the_bitmap_cannot_tell, setup)
{
    mr_incoming_init(&in, to, 600 * SEGMENT, SEGMENT, UINT32_MAX);
    assert_int_equal(segment_put(257), MR_SEGMENT_RANGE);
    assert_int_equal(segment_put(256), MR_SEGMENT_NEW);
    assert_int_equal(in.sack[3] >> 63, 1);
    assert_int_equal(segment_put(0), MR_SEGMENT_NEW);
    assert_int_equal(segment_put(257), MR_SEGMENT_NEW);
}

TEST(reports_by_quarter_windows, setup)
{
    struct mr_ack ack;
    assert_int_equal(in.grant_bytes, WINDOW);
    segment_put(0);
    assert_false(mr_incoming_report_due(&in, 1));
    segment_put(1);
    assert_true(mr_incoming_report_due(&in, 1));
    mr_incoming_report(&in, &ack);
    assert_int_equal(ack.received_bytes, 2 * SEGMENT);
    assert_int_equal(ack.grant_bytes, 2 * SEGMENT + WINDOW);
    assert_false(mr_incoming_report_due(&in, 1));
    for (uint32_t n = 2; n < 15; n++)
        segment_put(n);
    mr_incoming_report(&in, &ack);
    assert_int_equal(ack.grant_bytes, MESSAGE);
}

TEST(messages_that_share_a_window_report_more_often, setup)
{
    assert_false(mr_incoming_report_due(&in, 2));
    segment_put(0);
    assert_true(mr_incoming_report_due(&in, 2));
    assert_true(mr_incoming_report_due(&in, 1000)); /* not more often than each segment */
    struct mr_ack ack;
    mr_incoming_report(&in, &ack);
    assert_false(mr_incoming_report_due(&in, 1000));
}

TEST(a_gap_is_certain_with_three_behind_it, setup)
{
    segment_put(1);
    segment_put(2);
    assert_false(mr_incoming_gap_certain(&in));
    segment_put(3);
    assert_true(mr_incoming_gap_certain(&in));
    segment_put(0);
    assert_false(mr_incoming_gap_certain(&in));
}

TEST(what_arrives_behind_a_gap_is_reported_too, setup)
{
    struct mr_ack ack;
    segment_put(1);
    assert_false(mr_incoming_report_due(&in, 1));
    segment_put(2); /* a quarter of the window */
    assert_true(mr_incoming_report_due(&in, 1));
    mr_incoming_report(&in, &ack);
    assert_int_equal(ack.received_bytes, 0);
    assert_int_equal(ack.sack[0], 3);
    assert_false(mr_incoming_report_due(&in, 1));
    assert_int_equal(segment_put(2), MR_SEGMENT_REPEATED);
    segment_put(3);
    assert_false(mr_incoming_report_due(&in, 1));
    segment_put(4);
    assert_true(mr_incoming_report_due(&in, 1));
}

/* ---- sender ---- */

static uint32_t segment_next(bool again)
{
    struct mr_segment s;
    assert_true(mr_outgoing_next(&out, UINT32_MAX, &s));
    assert_int_equal(s.again, again);
    assert_int_equal(s.offset % SEGMENT, 0);
    return s.offset / SEGMENT;
}

TEST(sends_up_to_the_grant, setup)
{
    struct mr_segment s;
    for (uint32_t n = 0; n < WINDOW / SEGMENT; n++)
        assert_int_equal(segment_next(false), n);
    assert_false(mr_outgoing_ready(&out, UINT32_MAX));
    assert_false(mr_outgoing_next(&out, UINT32_MAX, &s));
    assert_int_equal(mr_outgoing_flight_bytes(&out), WINDOW);
    struct mr_ack ack = {
        .segment_bytes = SEGMENT, .received_bytes = 4 * SEGMENT, .grant_bytes = 12 * SEGMENT};
    assert_true(mr_outgoing_report(&out, &ack, 3));
    assert_int_equal(mr_outgoing_flight_bytes(&out), 4 * SEGMENT);
    for (uint32_t n = 8; n < 12; n++)
        assert_int_equal(segment_next(false), n);
    assert_false(mr_outgoing_ready(&out, UINT32_MAX));
}

/* Of a message of which a part is elsewhere, each segment is as of the whole message. */
static void check_borrowed(uint32_t begin, uint32_t end)
{
    static uint8_t rest[MESSAGE], elsewhere[1 + MESSAGE];
    uint8_t copied[SEGMENT + 1];
    memset(rest, 0xee, sizeof(rest));
    memset(elsewhere, 0xee, sizeof(elsewhere));
    memcpy(rest, from, begin);
    memcpy(rest + end, from + end, MESSAGE - end);
    memcpy(elsewhere + 1, from + begin, end - begin);
    mr_outgoing_init(&out, rest, MESSAGE, SEGMENT, WINDOW);
    out.borrowed = (struct mr_borrowed){.bytes = elsewhere + 1, .begin = begin, .end = end};
    for (uint32_t at = 0; at < MESSAGE; at += SEGMENT) {
        const struct mr_segment s = {.offset = at, .bytes = MESSAGE - at < SEGMENT ? MESSAGE - at : SEGMENT};
        memset(copied, 0xaa, sizeof(copied));
        assert_int_equal(mr_outgoing_copy(&out, &s, copied), XXH3_64bits(from + at, s.bytes));
        assert_memory_equal(copied, from + at, s.bytes);
        assert_int_equal(copied[s.bytes], 0xaa);
    }
}

TEST(copies_what_is_elsewhere, setup)
{
    static const uint32_t edges[] = {0,    1,    SEGMENT - 1,  SEGMENT,     SEGMENT + 1,
                                     1500, 1501, 20 * SEGMENT, MESSAGE - 1, MESSAGE};
    const size_t count = sizeof(edges) / sizeof(*edges);
    for (size_t b = 0; b < count; b++)
        for (size_t e = b + 1; e < count; e++)
            check_borrowed(edges[b], edges[e]);
}

TEST(respects_the_room_in_flight, setup)
{
    assert_true(mr_outgoing_ready(&out, SEGMENT));
    assert_false(mr_outgoing_ready(&out, SEGMENT - 1));
    struct mr_segment s;
    assert_false(mr_outgoing_next(&out, SEGMENT - 1, &s));
}

TEST(an_untaken_segment_goes_back, setup)
{
    struct mr_segment s;
    assert_true(mr_outgoing_next(&out, UINT32_MAX, &s));
    mr_outgoing_undo(&out, &s);
    assert_int_equal(out.sent_bytes, 0);
    segment_next(false);
    mr_outgoing_probe(&out);
    assert_true(mr_outgoing_next(&out, UINT32_MAX, &s));
    assert_true(s.again);
    assert_false(mr_outgoing_resends(&out));
    mr_outgoing_undo(&out, &s);
    assert_true(mr_outgoing_resends(&out));
}

static void send_window(void)
{
    for (uint32_t n = 0; n < WINDOW / SEGMENT; n++)
        segment_next(false);
}

TEST(resends_gaps_with_enough_behind_them, setup)
{
    send_window();
    /* has 0, 3, 5, 6: missing 1, 2 (three behind) and 4 (two behind) */
    struct mr_ack ack = {.segment_bytes = SEGMENT,
                         .received_bytes = SEGMENT,
                         .grant_bytes = WINDOW,
                         .sack = {1u << 1 | 1u << 3 | 1u << 4}};
    assert_true(mr_outgoing_report(&out, &ack, 0));
    assert_false(mr_outgoing_resends(&out));
    assert_true(mr_outgoing_report(&out, &ack, 3));
    assert_int_equal(segment_next(true), 1);
    assert_int_equal(segment_next(true), 2);
    assert_false(mr_outgoing_resends(&out));
    assert_true(mr_outgoing_report(&out, &ack, 1));
    assert_int_equal(segment_next(true), 4);
    assert_false(mr_outgoing_resends(&out));
    mr_outgoing_forget_resent(&out);
    assert_true(mr_outgoing_report(&out, &ack, 1));
    assert_int_equal(segment_next(true), 1);
    assert_int_equal(segment_next(true), 2);
    assert_int_equal(segment_next(true), 4);
    assert_false(mr_outgoing_resends(&out));
}

TEST(a_resent_gap_waits_while_others_are_resent, setup)
{
    struct mr_segment s;
    send_window();
    struct mr_ack ack = {
        .segment_bytes = SEGMENT, .grant_bytes = WINDOW, .sack = {7}}; /* 0 is missing, 1 to 3 are there */
    assert_true(mr_outgoing_report(&out, &ack, 3));
    assert_int_equal(segment_next(true), 0);
    ack.sack[0] = 7 | 0x70; /* 4 is missing too */
    assert_true(mr_outgoing_report(&out, &ack, 3));
    assert_int_equal(segment_next(true), 4);
    assert_false(mr_outgoing_next(&out, UINT32_MAX, &s));
    ack = (struct mr_ack){
        .segment_bytes = SEGMENT, .received_bytes = 4 * SEGMENT, .grant_bytes = WINDOW, .sack = {7}};
    assert_true(mr_outgoing_report(&out, &ack, 3)); /* 0 has arrived, 4 is on its way */
    assert_int_equal(mr_outgoing_resends(&out), 0);
    mr_outgoing_forget_resent(&out); /* 4 should have arrived by now */
    assert_true(mr_outgoing_report(&out, &ack, 3));
    assert_true(mr_outgoing_next(&out, UINT32_MAX, &s));
    assert_int_equal(s.offset, 4 * SEGMENT);
    mr_outgoing_undo(&out, &s); /* not sent after all: still to be sent */
    assert_int_equal(segment_next(true), 4);
}

TEST(arrived_ones_are_not_resent, setup)
{
    send_window();
    struct mr_ack ack = {
        .segment_bytes = SEGMENT, .received_bytes = 0, .grant_bytes = WINDOW, .sack = {1u << 3}};
    assert_true(mr_outgoing_report(&out, &ack, 1)); /* 0..3 are marked */
    ack.sack[0] |= 1u << 1;
    assert_true(mr_outgoing_report(&out, &ack, 1)); /* 2 has come after all */
    assert_int_equal(segment_next(true), 0);
    ack = (struct mr_ack){
        .segment_bytes = SEGMENT, .received_bytes = 3 * SEGMENT, .grant_bytes = WINDOW, .sack = {1}};
    assert_true(mr_outgoing_report(&out, &ack, 0)); /* and 0, 1: only 3 is missing */
    assert_int_equal(segment_next(true), 3);
    assert_false(mr_outgoing_resends(&out));
}

TEST(probes_with_first_gap_and_last_sent, setup)
{
    mr_outgoing_probe(&out);
    assert_false(mr_outgoing_resends(&out));
    send_window();
    mr_outgoing_probe(&out);
    assert_int_equal(segment_next(true), 0);
    assert_int_equal(segment_next(true), 7);
    assert_false(mr_outgoing_resends(&out));
    struct mr_ack ack = {.segment_bytes = SEGMENT, .received_bytes = WINDOW, .grant_bytes = WINDOW};
    assert_true(mr_outgoing_report(&out, &ack, 1));
    mr_outgoing_probe(&out);
    assert_false(mr_outgoing_resends(&out));
}

TEST(overtaken_reports_do_no_harm, setup)
{
    send_window();
    struct mr_ack new = {
        .segment_bytes = SEGMENT, .received_bytes = 5 * SEGMENT, .grant_bytes = 13 * SEGMENT};
    struct mr_ack old = {
        .segment_bytes = SEGMENT, .received_bytes = SEGMENT, .grant_bytes = 9 * SEGMENT, .sack = {2}};
    assert_true(mr_outgoing_report(&out, &new, 1));
    assert_true(mr_outgoing_report(&out, &old, 1));
    assert_int_equal(out.acked_bytes, 5 * SEGMENT);
    assert_int_equal(out.grant_bytes, 13 * SEGMENT);
    assert_false(mr_outgoing_resends(&out));
}

TEST(refuses_impossible_reports, setup)
{
    struct mr_ack ack = {.segment_bytes = SEGMENT, .received_bytes = MESSAGE + 1};
    assert_false(mr_outgoing_report(&out, &ack, 1));
    ack.received_bytes = 17;
    assert_false(mr_outgoing_report(&out, &ack, 1));
    ack.received_bytes = MESSAGE;
    assert_true(mr_outgoing_report(&out, &ack, 1));
    assert_int_equal(mr_outgoing_flight_bytes(&out), 0);
    assert_false(mr_outgoing_ready(&out, UINT32_MAX));
}

TEST(a_boundless_grant_is_bounded, setup)
{
    mr_outgoing_init(&out, from, 600 * SEGMENT, SEGMENT, WINDOW);
    struct mr_ack ack = {
        .segment_bytes = SEGMENT, .received_bytes = SEGMENT, .grant_bytes = UINT32_MAX, .sack = {UINT64_MAX}};
    assert_true(mr_outgoing_report(&out, &ack, 1));
    assert_int_equal(out.grant_bytes, (1 + MR_SACK_SEGMENTS) * SEGMENT);
}

/* Sender and receiver over a channel that loses, repeats and reorders, with nothing but reports between
 * them. */
/* With shorter segments the bitmap reaches less far. */
TEST(a_grant_shrinks_with_the_segments, setup)
{
    struct mr_segment s;
    uint32_t sent = 0;
    mr_outgoing_init(&out, from, sizeof(from), SEGMENT, MR_SACK_SEGMENTS * SEGMENT);
    mr_outgoing_resize(&out, SEGMENT / 2);
    while (mr_outgoing_next(&out, UINT32_MAX, &s))
        sent++;
    assert_int_equal(sent, MR_SACK_SEGMENTS);
    mr_outgoing_init(&out, from, sizeof(from), SEGMENT, WINDOW);
    mr_outgoing_resize(&out, SEGMENT / 2);
    for (sent = 0; mr_outgoing_next(&out, UINT32_MAX, &s); sent++) {
    }
    assert_int_equal(sent, 2 * WINDOW / SEGMENT);
}

TEST(gets_through_any_channel, setup)
{
    for (uint32_t seed = 1; seed <= 50; seed++) {
        srand(seed);
        uint32_t bytes = 1 + (uint32_t)rand() % sizeof(from);
        mr_incoming_init(&in, to, bytes, SEGMENT, (uint32_t)rand() % 300000);
        mr_outgoing_init(&out, from, bytes, SEGMENT, in.window_bytes);
        memset(to, 0, sizeof(to));
        uint32_t turns = 0;
        struct mr_segment held = {0};
        while (out.acked_bytes < bytes) {
            assert_true(++turns < 100000);
            struct mr_segment s;
            if (!mr_outgoing_next(&out, UINT32_MAX, &s)) {
                mr_outgoing_probe(&out);
                if (!mr_outgoing_next(&out, UINT32_MAX, &s))
                    s = held;
            }
            if (rand() % 10 == 0) {
                held = s;
                continue;
            }
            if (s.bytes > 0)
                assert_int_not_equal(mr_incoming_put(&in, SEGMENT, s.offset, from + s.offset, s.bytes),
                                     MR_SEGMENT_RANGE);
            if (held.bytes > 0 && rand() % 4 == 0)
                mr_incoming_put(&in, SEGMENT, held.offset, from + held.offset, held.bytes);
            struct mr_ack ack;
            if (rand() % 3 == 0) {
                mr_incoming_report(&in, &ack);
                if (rand() % 5 != 0)
                    assert_true(mr_outgoing_report(&out, &ack, 1));
            }
        }
        assert_memory_equal(to, from, bytes);
    }
}
