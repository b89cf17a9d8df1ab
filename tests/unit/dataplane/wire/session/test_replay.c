/* Packets played again: whoever sits on the path has all of them, of every type, and sends them once more at
 * a time that suits him. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

/* ---- numbers of packets ---- */

TEST(each_number_is_new_once)
{
    struct mr_numbers n = {0};
    assert_false(mr_numbers_is_new(&n, 0)); /* no packet has it */
    for (uint64_t i = 1; i < 5000; i += 1 + i % 3) {
        assert_true(mr_numbers_is_new(&n, i));
        assert_true(mr_numbers_take(&n, i));
        assert_false(mr_numbers_is_new(&n, i));
    }
}

TEST(numbers_may_come_in_any_order_within_reach)
{
    struct mr_numbers n = {0};
    uint64_t top = 1000000;
    assert_true(mr_numbers_take(&n, top));
    for (uint64_t back = 1; back < MR_NUMBERS_REACH; back++) {
        assert_true(mr_numbers_is_new(&n, top - back));
        assert_false(mr_numbers_take(&n, top - back));
        assert_false(mr_numbers_is_new(&n, top - back));
    }
    assert_false(mr_numbers_is_new(&n, top - MR_NUMBERS_REACH)); /* perhaps it is, and nobody knows */
    assert_false(mr_numbers_is_new(&n, 1));
}

/* A jump of any length leaves nothing behind of what the words of the ring held before. */
TEST(numbers_may_be_left_out)
{
    for (uint64_t jump = 1; jump < 3 * 64 * MR_NUMBERS_WORDS; jump++) {
        struct mr_numbers n = {0};
        uint64_t top = 777;
        for (uint64_t i = top - MR_NUMBERS_REACH + 1; i <= top; i++)
            mr_numbers_take(&n, i);
        assert_true(mr_numbers_take(&n, top + jump));
        for (uint64_t back = 1; back < MR_NUMBERS_REACH; back++)
            assert_int_equal(mr_numbers_is_new(&n, top + jump - back), back < jump);
    }
}

/* ---- a recorder on the path ---- */

#define TAPE_MAX 4096u

static struct {
    enum pair_side to;
    uint32_t bytes;
    uint8_t *data;
} tape[TAPE_MAX];
static uint32_t taped;
static pair_filter losses; /* what else becomes of them */

static enum pair_verdict record(struct pair *pair, enum pair_side from, uint32_t n,
                                struct pair_packet *packet)
{
    enum pair_verdict verdict = losses != NULL ? losses(pair, from, n, packet) : PAIR_PASS;
    if (verdict == PAIR_DROP)
        return verdict;
    assert_true(taped < TAPE_MAX);
    tape[taped].to = from == PAIR_CLIENT ? PAIR_SERVER : PAIR_CLIENT;
    tape[taped].bytes = packet->bytes;
    tape[taped].data = malloc(packet->bytes);
    assert_non_null(tape[taped].data);
    memcpy(tape[taped++].data, packet->data, packet->bytes);
    return verdict;
}

static void play(uint32_t i)
{
    pair_inject(&p, tape[i].to, tape[i].data, tape[i].bytes);
}

static bool taped_type(uint8_t type)
{
    for (uint32_t i = 0; i < taped; i++)
        if (tape[i].data[3] == type)
            return true;
    return false;
}

static void erase(void)
{
    while (taped > 0)
        free(tape[--taped].data);
}

static int setup(void **state)
{
    losses = NULL;
    pair_init(&p);
    p.config[PAIR_SERVER].session_memory_bytes =
        1; /* one call at a time may hold memory: the others are BUSY */
    p.filter = record;
    pair_start(&p);
    pair_open(&p);
    return 0;
}

static int teardown(void **state)
{
    erase();
    return pair_ended(state);
}

static enum pair_verdict lose_some(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    return packet->data[3] == MR_PACKET_DATA && n % 11 == 5 ? PAIR_DROP : PAIR_PASS;
}

/* Calls that make packets of every kind but RESET and BYE. Ends with one that the server is still at. */
static void work(struct pair_call *at_work)
{
    static uint8_t data[60000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call calls[6] = {0};
    losses = lose_some;
    p.reply_bytes = 90000;
    for (uint32_t i = 0; i < 6; i++)
        pair_call(&p, &calls[i], i % 2 == 0 ? MR_OP_LOOKUP : MR_OP_ECHO, i % 2 == 0 ? NULL : &tensor, i % 2,
                  UINT64_MAX);
    pair_run(&p, 2000000);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(calls[i].ended, 1);
    losses = NULL;
    pair_call(&p, at_work, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 500000);
    assert_int_equal(p.later_count, 1);
}

/* ---- nothing changes ---- */

static struct {
    struct mr_server_session served[2];
    struct mr_client_session session;
    struct mr_wire_counters counters[2];
    uint32_t sessions, sent[2];
    size_t memory[2];
} before;

static void replay_look(void)
{
    memcpy(before.served, server()->server_sessions, sizeof(before.served));
    memcpy(&before.session, p.session, sizeof(before.session));
    before.sessions = session_count(server());
    for (int i = 0; i < 2; i++) {
        before.counters[i] = *mr_endpoint_counters(p.ends[i].ep);
        before.sent[i] = p.ends[i].sent;
        before.memory[i] = mr_endpoint_memory_used(p.ends[i].ep);
    }
}

static void nothing_changed(void)
{
    assert_memory_equal(before.served, server()->server_sessions, sizeof(before.served));
    assert_memory_equal(&before.session, p.session, sizeof(before.session));
    assert_int_equal(session_count(server()), before.sessions);
    for (int i = 0; i < 2; i++) {
        const struct mr_wire_counters *now = mr_endpoint_counters(p.ends[i].ep);
        assert_int_equal(mr_endpoint_memory_used(p.ends[i].ep), before.memory[i]);
        assert_int_equal(now->rx_packets, before.counters[i].rx_packets);
    }
}

static bool is_first_hello(const uint8_t *packet)
{
    static const uint8_t none[MR_COOKIE_BYTES];
    return packet[3] == MR_PACKET_HELLO &&
           memcmp(packet + MR_HEADER_BYTES + offsetof(struct mr_hello, cookie), none, sizeof(none)) == 0;
}

/* The first HELLO alone is answered, with a RETRY that nobody asked for. */
static void play_all(void)
{
    for (uint32_t i = 0, end = taped; i < end; i++) {
        replay_look();
        play(i);
        uint32_t answers = is_first_hello(tape[i].data);
        assert_int_equal(p.ends[PAIR_SERVER].sent + p.ends[PAIR_CLIENT].sent,
                         before.sent[PAIR_SERVER] + before.sent[PAIR_CLIENT] + answers);
        nothing_changed();
        pair_run(&p, 2 * PAIR_DELAY_US);
    }
}

TEST(a_packet_of_any_type_played_again_changes_nothing, setup, teardown)
{
    struct pair_call c = {0}, next = {0};
    work(&c);
    const uint8_t types[] = {MR_PACKET_HELLO, MR_PACKET_RETRY,  MR_PACKET_ACCEPT, MR_PACKET_DATA,
                             MR_PACKET_ACK,   MR_PACKET_RESEND, MR_PACKET_BUSY,   MR_PACKET_PING};
    for (uint32_t i = 0; i < sizeof(types); i++)
        assert_true(taped_type(types[i]));
    uint32_t executed = p.executed;
    play_all();
    assert_int_equal(p.executed, executed);
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_call(&p, &next, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(c.ended + next.ended, 2);
    assert_int_equal(p.executed, executed + 1);
    assert_int_equal(p.events[MR_SESSION_UP], 1);
    assert_int_equal(p.events[MR_SESSION_RESTARTED] + p.events[MR_SESSION_AWAY], 0);
}

/* The server is lost, and the client's packets to it were answered with RESETs; then the session is closed,
 * with a BYE. */
TEST(nor_does_one_of_an_earlier_session, setup, teardown)
{
    struct pair_call c = {0}, next = {0};
    struct mr_client_session *other;
    work(&c);
    pair_restart_server(&p);
    for (int turns = 0; turns < 1000 && p.events[MR_SESSION_RESTARTED] == 0; turns++)
        pair_run(&p, 10000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    pair_run(&p, 100000);
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &other), MR_OK);
    pair_run(&p, 1000);
    mr_client_session_close(client(), other, p.now_us);
    pair_run(&p, 1000);
    assert_true(taped_type(MR_PACKET_RESET) && taped_type(MR_PACKET_BYE));
    uint64_t id = p.session->peer.session_id;
    uint32_t executed = p.executed;
    for (uint32_t i = 0, end = taped; i < end; i++)
        play(i);
    pair_run(&p, 6000000); /* a session that came of it is gone by then */
    assert_int_equal(session_count(server()), 1);
    assert_true(p.session->peer.session_id == id);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    assert_int_equal(p.executed, executed);
    pair_call(&p, &next, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(next.ended, 1);
}

/* ---- sessions are not lost ---- */

static enum pair_verdict no_accept(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    (void)record(pair, from, n, packet);
    return packet->data[3] == MR_PACKET_ACCEPT ? PAIR_DROP : PAIR_PASS;
}

/* The answer to a HELLO of long ago names a session that the server has forgotten. It comes while the client
 * shakes hands for another reason: to believe it would be to leave a session that is alive. */
TEST(a_stale_accept_does_not_bury_the_session, setup, teardown)
{
    struct pair_call c = {0};
    mr_client_session_close(client(), p.session, p.now_us);
    erase();
    p.filter = no_accept;
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &p.session),
                     MR_OK);
    while (!taped_type(MR_PACKET_ACCEPT))
        pair_run(&p, 100);
    uint32_t stale = taped - 1;
    p.filter = drop_all;
    pair_run(&p, MR_UNCONFIRMED_US + 1000000);
    p.filter = NULL;
    pair_run(&p, 1000000);
    assert_true(up());
    uint64_t id = p.session->peer.session_id;
    for (int i = 0; i < 10; i++) {
        mr_client_session_moved(client(), p.session, p.now_us);
        play(stale);
        pair_run(&p, 1000000);
        assert_true(p.session->peer.session_id == id);
    }
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    pair_call(&p, &c, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
}

/* Two servers at one address, as behind a switch in mid-change: each knows a session that the client has left
 * meanwhile. */
TEST(a_session_that_was_left_is_not_taken_up_again, setup, teardown)
{
    struct pair_end *end = &p.ends[PAIR_SERVER];
    struct mr_endpoint *first = end->ep, *second;
    assert_int_equal(mr_endpoint_create(&p.config[PAIR_SERVER], &second), MR_OK);
    for (uint32_t i = 1; i <= 6; i++) {
        struct pair_call before_it = {0}, after = {0};
        pair_call(&p, &before_it, MR_OP_ECHO, NULL, 0, UINT64_MAX);
        pair_run(&p, 1000);
        assert_int_equal(before_it.ended, 1);
        end->ep = i % 2 != 0 ? second : first;
        pair_call(&p, &after, MR_OP_ECHO, NULL, 0, UINT64_MAX);
        pair_run(&p, 500000);
        assert_int_equal(after.ended, 1);
        assert_int_equal(p.events[MR_SESSION_RESTARTED], i);
    }
    mr_endpoint_destroy(second);
    end->ep = first;
}

TEST(a_hello_from_where_the_client_was_does_not_move_it_back, setup, teardown)
{
    struct pair_call c = {0};
    struct mr_address was = p.ends[PAIR_CLIENT].address;
    p.ends[PAIR_CLIENT].address.port++;
    mr_client_session_moved(client(), p.session, p.now_us);
    pair_run(&p, 1000);
    for (uint32_t i = 0, end = taped; i < end; i++)
        if (tape[i].to == PAIR_SERVER)
            mr_endpoint_receive(server(), p.now_us, &was, tape[i].data, tape[i].bytes);
    pair_call(&p, &c, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(mr_endpoint_counters(client())->probes, 0);
}

/* ---- nothing is kept alive ---- */

TEST(a_dead_client_is_forgotten_whatever_is_played, setup, teardown)
{
    struct pair_call c = {0};
    work(&c);
    assert_true(mr_endpoint_memory_used(server()) > 0);
    p.ends[PAIR_CLIENT].stands_still = true;
    mr_reply_status(server(), p.later[0], MR_OK);
    uint32_t end = taped;
    for (uint32_t second = 0; second < 70; second++) {
        for (uint32_t i = 0; i < end; i++)
            if (tape[i].to == PAIR_SERVER && !is_first_hello(tape[i].data))
                play(i);
        pair_run(&p, 1000000);
    }
    assert_int_equal(session_count(server()), 0);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}

TEST(a_dead_server_is_noticed_whatever_is_played, setup, teardown)
{
    struct pair_call c = {0};
    work(&c);
    p.filter = drop_all;
    for (uint32_t i = 0; i < 40; i++) {
        for (uint32_t j = 0; j < taped; j++)
            if (tape[j].to == PAIR_CLIENT)
                play(j);
        pair_run(&p, 50000);
    }
    assert_int_equal(p.events[MR_SESSION_AWAY], 1);
    assert_false(up());
}
