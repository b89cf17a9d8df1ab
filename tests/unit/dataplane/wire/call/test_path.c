/* How large datagrams may be: the search by itself, and between two endpoints over a path that drops what is
 * too long. */
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

#define STEP_US  1000u
#define MOST     8952u
#define SMALL_US 300000u /* in which all must have ended */

/* ---- the search ---- */

static struct mr_path path;
static uint64_t now_us;

/* Goes on until nothing is asked any more, over a path that carries so much. Returns the questions. */
static uint32_t search(uint32_t carries)
{
    uint32_t questions = 0;
    while (path.asked_bytes != 0 && questions < 1000) {
        now_us = path.at_us > now_us ? path.at_us : now_us;
        (void)mr_path_due(&path, now_us, now_us);
        if (path.asked_bytes == 0 || path.at_us > now_us)
            continue;
        uint32_t bytes = path.asked_bytes;
        uint64_t number = mr_path_sent(&path, now_us, STEP_US);
        questions++;
        now_us += STEP_US / 2;
        if (bytes <= carries)
            (void)mr_path_answered(&path, number, bytes, now_us);
    }
    return questions;
}

static int path_begun(void **state)
{
    now_us = 5000000;
    mr_path_begin(&path, MOST, now_us);
    return 0;
}

TEST(the_most_is_asked_first, path_begun)
{
    assert_int_equal(path.bytes, MR_UDP_BYTES_MIN);
    assert_int_equal(search(MOST), 1);
    assert_int_equal(path.bytes, MOST);
    assert_true(path.confirmed);
    assert_true(path.at_us == 0);
}

TEST(every_size_is_found, path_begun)
{
    for (uint32_t carries = MR_UDP_BYTES_MIN; carries < MOST; carries += 37) {
        path_begun(NULL);
        assert_int_in_range(search(carries), 2, 12 * MR_PATH_TRIES);
        assert_int_equal(path.bytes, carries & ~7u);
        assert_true(path.confirmed && !path.narrow);
        assert_true(path.at_us == now_us + MR_PATH_RAISE_US || path.at_us <= now_us + MR_PATH_RAISE_US);
    }
}

TEST(a_wider_path_is_found_after_a_while, path_begun)
{
    (void)search(1400);
    assert_int_equal(path.bytes, 1400);
    now_us = path.at_us;
    (void)mr_path_due(&path, now_us, now_us);
    assert_int_equal(path.asked_bytes, MOST);
    (void)search(MOST);
    assert_int_equal(path.bytes, MOST);
}

TEST(silence_says_nothing_of_a_size, path_begun)
{
    for (uint32_t i = 0; i < 100; i++) {
        (void)mr_path_due(&path, 1000, now_us); /* heard before the question */
        (void)mr_path_sent(&path, now_us, STEP_US);
        now_us += STEP_US;
    }
    assert_int_equal(path.asked_bytes, MOST);
    assert_false(path.narrow);
}

TEST(doubt_finds_the_least_and_searches_again, path_begun)
{
    (void)search(MOST);
    now_us += MR_PATH_DOUBT_US;
    assert_true(mr_path_doubt(&path, now_us));
    assert_false(mr_path_doubt(&path, now_us)); /* asked already */
    assert_int_equal(path.asked_bytes, MOST);
    (void)search(1390);
    assert_int_equal(path.bytes, 1384);
}

TEST(doubt_of_a_good_path_costs_a_question, path_begun)
{
    (void)search(MOST);
    now_us += MR_PATH_DOUBT_US;
    assert_true(mr_path_doubt(&path, now_us));
    assert_int_equal(search(MOST), 1);
    assert_int_equal(path.bytes, MOST);
    assert_false(mr_path_doubt(&path, now_us)); /* it was just asked */
}

TEST(a_path_below_the_least_is_narrow_until_it_is_not, path_begun)
{
    for (uint32_t i = 0; i < 50 && !path.narrow; i++) {
        now_us = path.at_us > now_us ? path.at_us : now_us;
        (void)mr_path_due(&path, now_us, now_us);
        if (path.at_us <= now_us)
            (void)mr_path_sent(&path, now_us, STEP_US);
    }
    assert_true(path.narrow && !path.confirmed);
    assert_int_equal(path.bytes, MR_UDP_BYTES_MIN);
    assert_true(path.at_us == now_us + MR_PATH_NARROW_US);
    (void)search(MOST);
    assert_false(path.narrow);
    assert_true(path.confirmed && path.bytes > MR_UDP_BYTES_MIN);
}

TEST(a_hint_leads_the_search, path_begun)
{
    mr_path_hint(&path, 1452, now_us);
    assert_int_equal(path.asked_bytes, 1448);
    (void)search(1452);
    assert_int_equal(path.bytes, 1448);
}

TEST(a_forged_hint_costs_questions_and_changes_nothing, path_begun)
{
    (void)search(MOST);
    mr_path_hint(&path, 68, now_us);
    assert_int_equal(path.bytes, MOST);
    assert_int_equal(path.asked_bytes, MOST);
    assert_int_equal(search(MOST), 1);
    mr_path_hint(&path, 1300, now_us);
    assert_int_equal(search(MOST), 1);
    assert_int_equal(path.bytes, MOST);
    path_begun(NULL);
    mr_path_hint(&path, 1300, now_us);
    (void)search(MOST);
    assert_int_equal(path.bytes, MOST);
}

TEST(an_answer_to_no_open_question_is_not_believed, path_begun)
{
    uint64_t number = mr_path_sent(&path, now_us, STEP_US);
    assert_int_equal(mr_path_answered(&path, number + 1, MOST, now_us), MR_PATH_SAME);
    assert_int_equal(mr_path_answered(&path, number, 4000, now_us), MR_PATH_SAME);
    assert_int_equal(path.bytes, MR_UDP_BYTES_MIN);
    assert_int_equal(mr_path_answered(&path, number, MOST, now_us), MR_PATH_CHANGED);
    now_us += MR_PATH_DOUBT_US;
    (void)mr_path_doubt(&path, now_us);
    (void)mr_path_sent(&path, now_us, STEP_US);
    assert_int_equal(mr_path_answered(&path, number, MOST, now_us), MR_PATH_SAME); /* played again */
    assert_false(path.confirmed);
}

/* ---- two endpoints ---- */

static uint32_t carries[2]; /* from client, from server */

static enum pair_verdict drop_long(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    return packet->bytes > carries[from] ? PAIR_DROP : PAIR_PASS;
}

static void set_path(uint32_t up_bytes, uint32_t down_bytes)
{
    carries[PAIR_CLIENT] = up_bytes;
    carries[PAIR_SERVER] = down_bytes;
    p.filter = drop_long;
}

static int wide_pair(void **state)
{
    pair_init(&p);
    p.config[PAIR_CLIENT].udp_bytes_max = p.config[PAIR_SERVER].udp_bytes_max = MOST;
    set_path(MOST, MOST);
    pair_start(&p);
    return 0;
}

static struct mr_client_session_info info(void)
{
    struct mr_client_session_info i;
    mr_client_session_info(p.session, &i);
    return i;
}

static void open_and_search(void)
{
    pair_open(&p);
    pair_run(&p, SMALL_US);
}

static uint8_t data[300000];

static void call_of(uint32_t request_bytes, uint32_t reply_bytes)
{
    struct pair_call c = {0};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, request_bytes, data);
    p.reply_bytes = reply_bytes;
    pair_call(&p, &c, MR_OP_LOOKUP, &tensor, 1, UINT64_MAX);
    pair_run(&p, SMALL_US);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
}

static const uint32_t lengths[] = {10, 1100, 1300, 1500, 4000, 9000, 200000};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void every_length_gets_through(void)
{
    uint32_t executed = p.executed;
    for (size_t i = 0; i < LENGTHS; i++) {
        call_of(lengths[i], 10);
        call_of(10, lengths[i]);
    }
    assert_int_equal(p.executed, executed + 2 * LENGTHS);
}

TEST(a_wide_path_is_used_at_once, wide_pair, pair_ended)
{
    pair_open(&p);
    pair_run(&p, 100);
    assert_int_equal(info().segment_bytes, MOST - MR_HEADER_BYTES);
    assert_true(info().path_known);
    every_length_gets_through();
    assert_int_equal(mr_endpoint_counters(client())->segments_resent, 0);
    assert_int_equal(served()->segments_resent, 0);
    uint64_t before = served()->tx_packets; /* the server knows it */
    call_of(10, 200000);
    assert_int_in_range(served()->tx_packets - before, 23, 30);
}

/* It learns the length at once, and not with the calls that come to an end. */
TEST(the_first_reply_uses_a_wide_path, wide_pair, pair_ended)
{
    pair_open(&p);
    pair_run(&p, 100);
    uint64_t before = served()->tx_packets;
    call_of(10, 200000);
    assert_int_in_range(served()->tx_packets - before, 23, 30);
}

TEST(what_both_ways_carry_is_found, wide_pair, pair_ended)
{
    set_path(1400, 1390);
    open_and_search();
    assert_int_equal(info().segment_bytes, 1384 - MR_HEADER_BYTES);
    every_length_gets_through();
    assert_int_equal(mr_endpoint_counters(client())->segments_resent, 0);
    assert_int_equal(served()->segments_resent, 0); /* the server knows, too */
}

/* Each length is on its way, or waits in a bundle, when the path becomes narrower. */
TEST(a_path_that_becomes_narrower_is_noticed, NULL, pair_ended)
{
    for (uint32_t way = 0; way < 6; way++) {
        for (size_t i = 0; i < LENGTHS; i++) {
            (void)wide_pair(NULL);
            open_and_search();
            call_of(200000, 200000);
            set_path(way == 1 ? MOST : 1300, way == 2 ? MOST : 1300);
            uint32_t request_bytes = way % 2 == 0 ? 10 : lengths[i], reply_bytes = way < 3 ? lengths[i] : 10;
            struct pair_call c[3] = {{0}};
            struct mr_tensor tensor = mr_tensor_1d(MR_U8, request_bytes, data);
            p.reply_bytes = reply_bytes;
            for (uint32_t k = 0; k < 3; k++)
                pair_call(&p, &c[k], MR_OP_LOOKUP, &tensor, 1, UINT64_MAX);
            pair_run(&p, 2 * SMALL_US);
            for (uint32_t k = 0; k < 3; k++) {
                assert_int_equal(c[k].ended, 1);
                assert_int_equal(c[k].status, MR_OK);
            }
            assert_int_equal(p.executed, 4);
            call_of(300000 - 1000, 290000);
            assert_int_equal(mr_endpoint_memory_used(client()), 0);
            pair_stop(&p);
        }
    }
}

/* In the middle of a message, each way. */
TEST(what_has_arrived_is_not_sent_again, NULL, pair_ended)
{
    for (uint32_t way = 0; way < 2; way++) {
        (void)wide_pair(NULL);
        p.config[PAIR_CLIENT].receive_window_bytes = 40000;
        pair_stop(&p);
        p.config[PAIR_SERVER].receive_window_bytes = 40000;
        pair_start(&p);
        open_and_search();
        struct pair_call c = {0};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, way == 0 ? 200000 : 10, data);
        p.reply_bytes = way == 0 ? 10 : 200000;
        uint64_t before = mr_endpoint_counters(client())->tx_bytes + served()->tx_bytes;
        pair_call(&p, &c, MR_OP_LOOKUP, &tensor, 1, UINT64_MAX);
        pair_run(&p, 70); /* some round trips */
        set_path(1300, 1300);
        pair_run(&p, 2 * SMALL_US);
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_OK);
        uint64_t sent = mr_endpoint_counters(client())->tx_bytes + served()->tx_bytes - before;
        assert_int_in_range(sent, 200000, 400000);
        pair_stop(&p);
    }
}

TEST(a_router_is_heard, wide_pair, pair_ended)
{
    open_and_search();
    set_path(1400, 1400);
    mr_client_session_path_hint(client(), p.session, 1400, p.now_us);
    pair_run(&p, 50000); /* with no call that would have noticed */
    assert_int_equal(info().segment_bytes, 1400 - MR_HEADER_BYTES);
}

/* ---- what routers tell the server ---- */

/* What the path's router dropped last of the server's. */
static uint8_t dropped[500];
static bool has_dropped;

static enum pair_verdict keep_long(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    if (packet->bytes <= carries[from])
        return PAIR_PASS;
    if (from == PAIR_SERVER) {
        memcpy(dropped, packet->data, sizeof(dropped));
        has_dropped = true;
    }
    return PAIR_DROP;
}

static const struct mr_server_session *the_served(void)
{
    uint32_t index = (uint32_t)(p.session->peer.session_id >> MR_CORE_BITS) & (MR_SESSIONS_LIMIT - 1);
    return &server()->server_sessions[index];
}

/* A reply is on its way when the server's way becomes narrower: with the router's word it is there sooner,
 * and the client goes by it, too. */
TEST(a_router_is_heard_by_the_server, NULL, pair_ended)
{
    uint64_t took_us[2];
    for (uint32_t i = 0; i < 2; i++) {
        (void)wide_pair(NULL);
        open_and_search();
        call_of(10, 200000);
        set_path(MOST, 1400);
        p.filter = keep_long;
        has_dropped = false;
        struct pair_call c = {0};
        p.reply_bytes = 200000;
        pair_call(&p, &c, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
        uint64_t begin_us = p.now_us;
        while (c.ended == 0 && p.now_us < begin_us + SMALL_US) {
            pair_run(&p, 50);
            if (has_dropped && i == 1)
                mr_endpoint_too_long(server(), p.now_us, &p.ends[PAIR_CLIENT].address, dropped,
                                     sizeof(dropped), carries[PAIR_SERVER]);
            has_dropped = false;
        }
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_OK);
        took_us[i] = p.now_us - begin_us;
        assert_int_equal(served()->path_hints > 0, i == 1);
        assert_int_equal(served()->path_shrank > 0, i == 1);
        assert_int_equal(mr_endpoint_counters(client())->path_hints > 0, i == 1);
        pair_run(&p, SMALL_US);
        assert_int_equal(info().segment_bytes, 1400 - MR_HEADER_BYTES);
        every_length_gets_through();
        pair_run(&p, 2 * MR_PATH_RAISE_US); /* and when it is wide again, that is found */
        p.filter = NULL;
        pair_run(&p, 2 * MR_PATH_RAISE_US);
        assert_int_equal(info().segment_bytes, MOST - MR_HEADER_BYTES);
        every_length_gets_through();
        pair_stop(&p);
    }
    assert_true(took_us[1] < took_us[0]);
}

static struct mr_packet_header quoted_of(uint16_t payload_bytes)
{
    return (struct mr_packet_header){.magic = MR_MAGIC,
                                     .version = MR_PROTOCOL_VERSION,
                                     .type = MR_PACKET_DATA,
                                     .payload_bytes = payload_bytes,
                                     .session_id = p.session->peer.session_id,
                                     .incarnation = p.session->peer.incarnation,
                                     .number = the_served()->peer.sent_number};
}

static void report(const struct mr_packet_header *h, size_t bytes, uint32_t udp_bytes)
{
    mr_endpoint_too_long(server(), p.now_us, &p.ends[PAIR_CLIENT].address, (const uint8_t *)h, bytes,
                         udp_bytes);
}

static void expect_unheard(const struct mr_packet_header *h, size_t bytes, uint32_t udp_bytes)
{
    uint64_t before = served()->path_hints_dropped;
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    p.now_us += MR_BUDGET_INTERVAL_US;
    report(h, bytes, udp_bytes);
    assert_int_equal(served()->path_hints_dropped, before + 1);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    assert_int_equal(the_served()->peer.segment_bytes, MOST - MR_HEADER_BYTES);
}

/* Whoever has not seen a packet of the session lately cannot make one up. */
TEST(a_forged_report_changes_nothing, wide_pair, pair_ended)
{
    open_and_search();
    call_of(10, 200000);
    const struct mr_packet_header good = quoted_of(8000);
    struct mr_packet_header h = good;
    for (size_t bytes = 0; bytes < offsetof(struct mr_packet_header, tag); bytes++)
        expect_unheard(&good, bytes, 1400);
    h.magic ^= 1;
    expect_unheard(&h, sizeof(h), 1400);
    h = good, h.version++;
    expect_unheard(&h, sizeof(h), 1400);
    h = good, h.session_id = 0;
    expect_unheard(&h, sizeof(h), 1400);
    for (uint32_t bit = 0; bit < 64; bit++) {
        h = good, h.session_id ^= UINT64_C(1) << bit;
        expect_unheard(&h, sizeof(h), 1400);
    }
    h = good, h.incarnation++;
    expect_unheard(&h, sizeof(h), 1400);
    h = good, h.number++; /* not sent yet */
    expect_unheard(&h, sizeof(h), 1400);
    h = good, h.number -= MR_REPORTED_NUMBERS; /* long ago, or never */
    expect_unheard(&h, sizeof(h), 1400);
    expect_unheard(&good, sizeof(good), 8000 + MR_HEADER_BYTES); /* that is not too long */
    struct mr_address other = p.ends[PAIR_CLIENT].address;
    other.ip[15]++;
    mr_endpoint_too_long(server(), p.now_us, &other, (const uint8_t *)&good, sizeof(good), 1400);
    other = p.ends[PAIR_CLIENT].address;
    other.port++;
    mr_endpoint_too_long(server(), p.now_us, &other, (const uint8_t *)&good, sizeof(good), 1400);
    assert_int_equal(served()->path_hints, 0);
    assert_int_equal(the_served()->peer.segment_bytes, MOST - MR_HEADER_BYTES);
    report(&good, sizeof(good), 1400);
    assert_int_equal(served()->path_hints, 1);
    assert_int_equal(the_served()->peer.segment_bytes, 1400 - MR_HEADER_BYTES);
    call_of(10, 200000);
    assert_int_equal(session_count(server()), 1);
}

/* A true quotation with a lie costs a moment of shorter datagrams, never below the least, and some
 * questions. */
TEST(a_lie_lasts_for_a_moment, NULL, pair_ended)
{
    static const uint32_t lies[] = {0, 1, 68, 576, MR_UDP_BYTES_MIN - 1, MR_UDP_BYTES_MIN};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        (void)wide_pair(NULL);
        open_and_search();
        call_of(10, 200000);
        struct mr_packet_header h = quoted_of(8000);
        report(&h, sizeof(h), lies[i]);
        assert_int_equal(the_served()->peer.segment_bytes, MR_SEGMENT_BYTES_MIN);
        call_of(10, 200000);
        pair_run(&p, 2 * MR_NARROW_US);
        call_of(10, 200000);
        pair_run(&p, 2 * MR_NARROW_US);
        assert_int_equal(the_served()->peer.segment_bytes, MOST - MR_HEADER_BYTES);
        pair_stop(&p);
    }
}

TEST(only_so_many_reports_are_looked_at, wide_pair, pair_ended)
{
    open_and_search();
    call_of(10, 200000);
    p.now_us += MR_BUDGET_INTERVAL_US - p.now_us % MR_BUDGET_INTERVAL_US;
    struct mr_packet_header h = quoted_of(8000);
    for (uint32_t i = 0; i < 1000; i++)
        report(&h, sizeof(h), 8000 - 8 * (i % 2));
    assert_int_in_range(served()->path_hints, 2, MR_HINTS_PER_INTERVAL);
    assert_int_equal(served()->path_hints_dropped, 1000 - MR_HINTS_PER_INTERVAL);
}

TEST(a_path_that_carries_too_little_is_told, wide_pair, pair_ended)
{
    set_path(1000, 1000);
    open_and_search();
    assert_true(info().up && info().path_narrow && !info().path_known);
    call_of(100, 100);
    struct pair_call c = {0};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, 5000, data);
    pair_call(&p, &c, MR_OP_LOOKUP, &tensor, 1, p.now_us + SMALL_US);
    pair_run(&p, 2 * SMALL_US);
    assert_int_equal(c.status, MR_UNREACHABLE);
    set_path(MOST, MOST);
    pair_run(&p, 2 * MR_PATH_NARROW_US);
    assert_false(info().path_narrow);
    every_length_gets_through();
}

TEST(no_answer_is_longer_than_its_question, wide_pair, pair_ended)
{
    pair_open(&p);
    static uint8_t packet[MR_UDP_BYTES_MAX];
    struct mr_packet_header h = {.magic = MR_MAGIC,
                                 .version = MR_PROTOCOL_VERSION,
                                 .type = MR_PACKET_PATH,
                                 .payload_bytes = 2000,
                                 .session_id = p.session->peer.session_id,
                                 .call_id = 77,
                                 .incarnation = p.session->peer.incarnation,
                                 .number = next_number(PAIR_CLIENT)};
    memcpy(packet, &h, sizeof(h));
    mr_tag_write(&p.session->peer.key, packet, sizeof(h) + 2000);
    uint64_t before = served()->tx_bytes;
    pair_inject(&p, PAIR_SERVER, packet, (uint32_t)sizeof(h) + 2000);
    assert_int_equal(served()->tx_bytes - before, sizeof(h) + 2000);
}
