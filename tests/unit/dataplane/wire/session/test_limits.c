/* What strangers, and one address alone, can get out of a server. */
#include <malloc.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

static void open_session(struct mr_client_session **out)
{
    assert_int_equal(
        mr_client_session_open(p.ends[PAIR_CLIENT].ep, &p.ends[PAIR_SERVER].address, 0, NULL, out), MR_OK);
}

static bool is_up(const struct mr_client_session *session)
{
    struct mr_client_session_info info;
    mr_client_session_info(session, &info);
    return info.up;
}

TEST(one_address_has_so_many_sessions, pair_configured, pair_ended)
{
    struct mr_client_session *sessions[4];
    p.config[PAIR_SERVER].sessions_per_address = 3;
    pair_start(&p);
    for (int i = 0; i < 4; i++) {
        open_session(&sessions[i]);
        pair_run(&p, 1000);
        assert_int_equal(is_up(sessions[i]), i < 3);
    }
    assert_true(served()->sessions_refused_address > 0);
    assert_int_equal(session_count(server()), 3);
    mr_client_session_close(p.ends[PAIR_CLIENT].ep, sessions[0], p.now_us);
    pair_run(&p, 300000);
    assert_true(is_up(sessions[3]));      /* it kept asking */
    p.ends[PAIR_CLIENT].address.ip[15]++; /* another machine */
    open_session(&sessions[0]);
    pair_run(&p, 300000);
    assert_true(is_up(sessions[0]));
}

TEST(a_session_that_moves_counts_where_it_is, pair_configured, pair_ended)
{
    struct mr_client_session *sessions[3];
    p.config[PAIR_SERVER].sessions_per_address = 1;
    p.config[PAIR_SERVER].session_idle_us = 600000000;
    pair_start(&p);
    open_session(&sessions[0]);
    pair_run(&p, 1000);
    p.ends[PAIR_CLIENT].address.ip[15]++;
    open_session(&sessions[1]);
    pair_run(&p, 1000);
    assert_true(is_up(sessions[0]) && is_up(sessions[1]));
    struct pair_call c = {0};
    p.session = sessions[0];
    pair_call(&p, &c, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 5000000);
    assert_int_equal(c.ended, 0); /* the new address has its session already */
    assert_true(served()->sessions_refused_address > 0);
    mr_client_session_close(p.ends[PAIR_CLIENT].ep, sessions[1], p.now_us);
    pair_run(&p, 1000000);
    assert_int_equal(c.ended, 1);
    p.ends[PAIR_CLIENT].address.ip[15]--; /* where it came from there is room again */
    open_session(&sessions[2]);
    pair_run(&p, 300000);
    assert_true(is_up(sessions[2]));
}

static uint8_t hello[MR_UDP_BYTES_MAX];
static uint32_t hello_bytes;

static enum pair_verdict keep_hello(struct pair *pair, enum pair_side from, uint32_t n,
                                    struct pair_packet *sent)
{
    if (from == PAIR_CLIENT && n == 1) {
        memcpy(hello, sent->data, sent->bytes);
        hello_bytes = sent->bytes;
    }
    return PAIR_PASS;
}

TEST(hellos_of_one_address_are_limited, pair_configured, pair_ended)
{
    struct mr_auth auth;
    mr_auth_init(&auth, p.config[PAIR_SERVER].psk[0]);
    p.config[PAIR_SERVER].hellos_per_address = 50;
    p.filter = keep_hello;
    pair_start(&p);
    pair_open(&p);
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    for (int i = 0; i < 1000; i++) /* played again, they are not even counted */
        pair_inject(&p, PAIR_SERVER, hello, hello_bytes);
    assert_int_equal(served()->drop_stale, 1000);
    for (uint64_t number = 100; number < 1100; number++) {
        memcpy(hello + offsetof(struct mr_packet_header, number), &number, sizeof(number));
        mr_tag_write(&auth.hello_key, hello, hello_bytes);
        pair_inject(&p, PAIR_SERVER, hello, hello_bytes);
    }
    assert_int_equal(p.ends[PAIR_SERVER].sent - sent, 49); /* and the one that opened the session */
    assert_int_equal(served()->drop_rate, 951);
    assert_true(is_up(p.session));
}

/* ---- nothing larger than what came ---- */

static uint32_t answer_bytes; /* of one packet in */
static uint32_t answers, resets, retries;

static enum pair_verdict measure(struct pair *pair, enum pair_side from, uint32_t n, struct pair_packet *sent)
{
    if (from == PAIR_SERVER) {
        answer_bytes += sent->bytes;
        answers++;
        resets += sent->data[3] == MR_PACKET_RESET;
        retries += sent->data[3] == MR_PACKET_RETRY;
        return PAIR_DROP;
    }
    return PAIR_PASS;
}

static void make_payload(uint8_t type, uint32_t i, uint8_t *payload, const struct mr_auth *auth)
{
    struct mr_hello h = {.client_nonce = i,
                         .key_id = auth->key_id,
                         .udp_bytes_max = MR_UDP_BYTES_MAX,
                         .receive_buffer_bytes = UINT32_MAX,
                         .window = MR_WINDOW_MAX};
    memset(payload, (int)i, 200);
    if (type != MR_PACKET_HELLO)
        return;
    if ((i & 1) != 0)
        memset(h.cookie, 0x77, sizeof(h.cookie)); /* one that it never got */
    mr_hello_prove(auth, &h);
    memcpy(payload, &h, sizeof(h));
}

/* Each type with each flag, for a session that is there and one that is not, under the right key for it: all
 * that somebody with the key may send from an address that is not his. */
TEST(an_unproven_address_gets_no_more_than_it_sent, pair_configured, pair_ended)
{
    static const uint16_t payload_bytes[] = {0, 1, 16, 40, 80, 128, 200};
    uint8_t packet[MR_HEADER_BYTES + 200];
    struct mr_auth auth;
    pair_start(&p);
    pair_open(&p);
    mr_auth_init(&auth, p.config[PAIR_SERVER].psk[0]);
    struct mr_address elsewhere = p.ends[PAIR_CLIENT].address;
    elsewhere.ip[15] ^= 0xff;
    p.filter = measure;
    answers = resets = retries = 0;
    for (uint32_t i = 0; i < 10 * 8 * 7 * 2; i++) {
        uint8_t type = (uint8_t)(1 + i % 10);
        uint16_t flags = (uint16_t)(i / 10 % 8);
        bool bundle = (flags & MR_FLAG_BUNDLE) != 0;
        struct mr_packet_header h = {.magic = MR_MAGIC,
                                     .version = MR_PROTOCOL_VERSION,
                                     .type = type,
                                     .flags = flags,
                                     .payload_bytes = payload_bytes[i / 80 % 7],
                                     .session_id = i / 560 == 0 ? p.session->peer.session_id
                                                                : p.session->peer.session_id ^ 1u << 30,
                                     .call_id = bundle ? 0 : 1,
                                     .message_bytes = type == MR_PACKET_DATA && !bundle ? 200 : 0,
                                     .incarnation = p.config[PAIR_SERVER].incarnation};
        struct mr_tag_key key = auth.hello_key;
        if (type != MR_PACKET_HELLO)
            mr_session_key(&auth, h.session_id, h.incarnation, &key);
        memcpy(packet, &h, sizeof(h));
        make_payload(type, i, packet + sizeof(h), &auth);
        uint32_t bytes = (uint32_t)sizeof(h) + h.payload_bytes;
        mr_tag_write(&key, packet, bytes);
        answer_bytes = 0;
        p.now_us += MR_BUDGET_INTERVAL_US;
        mr_endpoint_receive(server(), p.now_us, &elsewhere, packet, bytes);
        mr_endpoint_flush(server(), p.now_us);
        assert_true(answer_bytes <= bytes);
    }
    assert_true(resets > 0 && retries > 0);
    assert_int_equal(answers, resets + retries);
    assert_int_equal(session_count(server()), 1);
}

/* ---- memory of an idle session ---- */

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static size_t endpoint_bytes(uint32_t sessions_max)
{
    struct mr_endpoint_config config = p.config[PAIR_SERVER];
    struct mr_endpoint *ep;
    size_t before = allocated();
    config.sessions_max = sessions_max;
    assert_int_equal(mr_endpoint_create(&config, &ep), MR_OK);
    size_t bytes = allocated() - before;
    mr_endpoint_destroy(ep);
    return bytes;
}

TEST(an_idle_session_costs_less_than_5_5_kib, pair_configured, pair_ended)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer's allocator does not tell mallinfo2() */
#endif
    pair_start(&p);
    for (uint32_t sessions = 1024; sessions <= 16384; sessions *= 2) {
        size_t one = endpoint_bytes(sessions), two = endpoint_bytes(2 * sessions);
        assert_true(two > one);
        assert_true((two - one) / sessions < 5632);
    }
    /* And nothing of the memory for messages. */
    p.session = NULL;
    pair_open(&p);
    pair_run(&p, 20000000);
    assert_true(is_up(p.session));
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}
