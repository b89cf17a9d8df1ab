#include <string.h>

#include "dataplane/wire/session/auth.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

/* The n-th packet of a side, kept to be played again. */
static uint8_t kept[8][MR_UDP_BYTES_MAX];
static uint32_t kept_bytes[8];

static enum pair_verdict keep_clients(struct pair *pair, enum pair_side from, uint32_t n,
                                      struct pair_packet *packet)
{
    if (from == PAIR_CLIENT && n < 8) {
        memcpy(kept[n], packet->data, packet->bytes);
        kept_bytes[n] = packet->bytes;
    }
    return PAIR_PASS;
}

TEST(hello_retry_hello_accept, pair_configured, pair_ended)
{
    pair_start(&p);
    pair_open(&p);
    struct mr_client_session_info info;
    mr_client_session_info(p.session, &info);
    assert_true(info.up);
    assert_int_equal(info.incarnation, 7);
    assert_int_equal(info.segment_bytes, MR_UDP_BYTES_MIN - MR_HEADER_BYTES);
    assert_int_equal(p.events[MR_SESSION_UP], 1);
    assert_int_equal(served()->sessions_accepted, 1);
    assert_int_equal(info.rtt_us, 2 * PAIR_DELAY_US);
}

static uint64_t step_of(void *app, const uint8_t *client_uuid)
{
    return client_uuid[0] == 0xc1 ? 4711 : 0;
}

TEST(accept_tells_core_map_and_last_step, pair_configured, pair_ended)
{
    p.config[PAIR_SERVER].core = 2;
    p.config[PAIR_SERVER].core_count = 3;
    p.config[PAIR_SERVER].map_version = 9;
    p.config[PAIR_SERVER].start_id = UINT64_C(0x123456789a);
    p.config[PAIR_SERVER].lineage = 8;
    p.config[PAIR_SERVER].restores = 2;
    p.config[PAIR_SERVER].udp_bytes_max = 4003;
    p.config[PAIR_CLIENT].udp_bytes_max = 8952;
    pair_start(&p);
    mr_endpoint_set_last_step_hook(server(), step_of);
    pair_open(&p);
    struct mr_client_session_info info;
    mr_client_session_info(p.session, &info);
    assert_int_equal(info.core, 2);
    assert_int_equal(info.core_count, 3);
    assert_int_equal(info.map_version, 9);
    assert_int_equal(info.last_push_step, 4711);
    assert_true(info.start_id == UINT64_C(0x123456789a));
    assert_int_equal(info.lineage, 8);
    assert_int_equal(info.restores, 2);
    assert_int_equal(info.segment_bytes, 4000 - MR_HEADER_BYTES);
}

/* A NIC that spreads packets by their ports may bring it to another core, which hands it on. */
TEST(accept_tells_whose_queue_the_hello_came_in_on, pair_configured, pair_ended)
{
    struct mr_client_session_info info;
    p.config[PAIR_SERVER].core = 2;
    p.config[PAIR_SERVER].core_count = 3;
    pair_start(&p);
    pair_open(&p);
    mr_client_session_info(p.session, &info);
    assert_int_equal(info.arrived_core, 2);

    mr_client_session_close(p.ends[PAIR_CLIENT].ep, p.session, p.now_us);
    assert_int_equal(
        mr_client_session_open(p.ends[PAIR_CLIENT].ep, &p.ends[PAIR_SERVER].address, 2, &p, &p.session),
        MR_OK);
    for (int turns = 0; turns < 200; turns++) {
        mr_endpoint_arrived_at(server(), 1);
        pair_run(&p, 1);
    }
    mr_client_session_info(p.session, &info);
    assert_true(info.up);
    assert_int_equal(info.arrived_core, 1);
}

/* ---- ACCEPTs that cannot be: of a server that is wrong, for they are proven ---- */

enum {
    WRONG_SESSION,
    WRONG_SHORT,
    WRONG_LONG,
    WRONG_UNEVEN,
    WRONG_NO_SLOT,
    WRONG_SLOTS,
    WRONG_CORE,
    WRONG_QUEUE,
    WRONGS
};

static void make_wrong(uint32_t how, struct mr_accept *accept)
{
    const struct mr_endpoint_config *config = &p.config[PAIR_CLIENT];
    accept->session_id = how == WRONG_SESSION ? 0 : accept->session_id;
    accept->udp_bytes_max = how == WRONG_SHORT    ? MR_UDP_BYTES_MIN - 8
                            : how == WRONG_LONG   ? (uint16_t)(config->udp_bytes_max + 8)
                            : how == WRONG_UNEVEN ? MR_UDP_BYTES_MIN + 4
                                                  : accept->udp_bytes_max;
    accept->window = how == WRONG_NO_SLOT ? 0
                     : how == WRONG_SLOTS ? (uint16_t)(config->window + 1)
                                          : accept->window;
    accept->core = how == WRONG_CORE ? 1 : accept->core;
    accept->arrived_core = how == WRONG_QUEUE ? MR_CORE_MAX : accept->arrived_core;
}

static uint32_t wrong_how;

static enum pair_verdict change_accept(struct pair *pair, enum pair_side from, uint32_t n,
                                       struct pair_packet *packet)
{
    struct mr_packet_header header;
    struct mr_hello hello;
    struct mr_accept_long answer;
    struct mr_auth auth;
    (void)keep_clients(pair, from, n, packet);
    memcpy(&header, packet->data, sizeof(header));
    if (from != PAIR_SERVER || header.type != MR_PACKET_ACCEPT)
        return PAIR_PASS;
    memcpy(&hello, kept[1] + MR_HEADER_BYTES, sizeof(hello));
    memcpy(&answer, packet->data + MR_HEADER_BYTES, sizeof(answer));
    make_wrong(wrong_how, &answer.accept);
    mr_auth_init(&auth, p.config[PAIR_SERVER].psk[0]);
    mr_accept_prove(&auth, hello.client_uuid, hello.boot_nonce, &answer.accept, &answer.version);
    memcpy(packet->data + MR_HEADER_BYTES, &answer, sizeof(answer));
    mr_tag_write(&auth.hello_key, packet->data, packet->bytes);
    return PAIR_PASS;
}

TEST(an_accept_out_of_range_opens_nothing, pair_configured, pair_ended)
{
    for (wrong_how = 0; wrong_how <= WRONGS; wrong_how++) {
        pair_init(&p);
        p.config[PAIR_CLIENT].udp_bytes_max = p.config[PAIR_SERVER].udp_bytes_max = 4000;
        p.filter = change_accept;
        pair_start(&p);
        pair_open(&p);
        const struct mr_wire_counters *c = mr_endpoint_counters(client());
        assert_int_equal(c->drop_proof + c->drop_tag, 0);
        assert_int_equal(c->drop_range > 0, wrong_how < WRONGS);
        assert_int_equal(p.events[MR_SESSION_UP], wrong_how == WRONGS); /* proven again, and as it was */
        pair_stop(&p);
    }
    (void)pair_configured(state);
}

TEST(without_the_key_nothing_comes_back, pair_configured, pair_ended)
{
    memset(p.config[PAIR_CLIENT].psk[0], 0x11, MR_PSK_BYTES);
    pair_start(&p);
    pair_open(&p);
    pair_run(&p, 1000000);
    assert_int_equal(p.ends[PAIR_SERVER].sent, 0);
    assert_true(served()->drop_proof > 2);
    assert_int_equal(session_count(server()), 0);
    assert_int_equal(p.events[MR_SESSION_UP], 0);
}

TEST(no_key_here_and_one_there_is_the_same, pair_configured, pair_ended)
{
    p.config[PAIR_CLIENT].psk_count = 0;
    pair_start(&p);
    pair_open(&p);
    assert_int_equal(p.ends[PAIR_SERVER].sent, 0);
}

TEST(the_second_key_is_good_too, pair_configured, pair_ended)
{
    memcpy(p.config[PAIR_SERVER].psk[1], p.config[PAIR_SERVER].psk[0], MR_PSK_BYTES);
    memset(p.config[PAIR_SERVER].psk[0], 0x77, MR_PSK_BYTES);
    p.config[PAIR_SERVER].psk_count = 2;
    pair_start(&p);
    pair_open(&p);
    assert_int_equal(p.events[MR_SESSION_UP], 1);
}

TEST(no_state_and_no_gain_before_the_cookie, pair_configured, pair_ended)
{
    p.filter = keep_clients;
    pair_start(&p);
    pair_open(&p);
    uint32_t sessions = session_count(server());
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    for (int i = 0; i < 100; i++)
        pair_inject(&p, PAIR_SERVER, kept[0], kept_bytes[0]);
    assert_int_equal(session_count(server()), sessions);
    assert_int_equal(p.ends[PAIR_SERVER].sent - sent, 100); /* one RETRY each */
    assert_true(kept_bytes[0] > MR_HEADER_BYTES + sizeof(struct mr_accept));
}

TEST(a_cookie_is_for_one_address_and_for_a_while, pair_configured, pair_ended)
{
    p.filter = keep_clients;
    pair_start(&p);
    pair_open(&p);
    struct mr_address elsewhere = p.ends[PAIR_CLIENT].address;
    elsewhere.port++;
    mr_endpoint_receive(server(), p.now_us, &elsewhere, kept[1], kept_bytes[1]);
    assert_int_equal(served()->drop_cookie, 1);
    pair_run(&p, 30000000);
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    pair_inject(&p, PAIR_SERVER, kept[1], kept_bytes[1]);
    assert_int_equal(served()->drop_cookie, 2);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
}

/* Not even under a tag that is right: its key is good for nothing more. */
TEST(a_changed_hello_is_not_proven, pair_configured, pair_ended)
{
    struct mr_auth auth;
    mr_auth_init(&auth, p.config[PAIR_SERVER].psk[0]);
    p.filter = keep_clients;
    pair_start(&p);
    pair_open(&p);
    kept[1][offsetof(struct mr_packet_header, number)]++;
    kept[1][MR_HEADER_BYTES + offsetof(struct mr_hello, receive_buffer_bytes)] ^= 1;
    pair_inject(&p, PAIR_SERVER, kept[1], kept_bytes[1]);
    assert_int_equal(served()->drop_tag, 1);
    mr_tag_write(&auth.hello_key, kept[1], kept_bytes[1]);
    pair_inject(&p, PAIR_SERVER, kept[1], kept_bytes[1]);
    assert_int_equal(served()->drop_proof, 1);
    assert_int_equal(session_count(server()), 1);
}

/* As the client sends it when the answer was lost: under the next number. The very same packet gets none. */
TEST(the_same_hello_again_gets_the_same_session, pair_configured, pair_ended)
{
    struct mr_auth auth;
    mr_auth_init(&auth, p.config[PAIR_SERVER].psk[0]);
    p.filter = keep_clients;
    pair_start(&p);
    pair_open(&p);
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    pair_inject(&p, PAIR_SERVER, kept[1], kept_bytes[1]);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    assert_int_equal(served()->drop_stale, 1);
    kept[1][offsetof(struct mr_packet_header, number)]++;
    mr_tag_write(&auth.hello_key, kept[1], kept_bytes[1]);
    pair_inject(&p, PAIR_SERVER, kept[1], kept_bytes[1]);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 1);
    assert_int_equal(served()->sessions_accepted, 1);
    assert_int_equal(session_count(server()), 1);
}

TEST(a_hello_for_another_core_is_not_ours, pair_configured, pair_ended)
{
    p.config[PAIR_SERVER].core = 1;
    pair_start(&p);
    assert_int_equal(
        mr_client_session_open(p.ends[PAIR_CLIENT].ep, &p.ends[PAIR_SERVER].address, 0, NULL, &p.session),
        MR_OK);
    pair_run(&p, 100000);
    assert_int_equal(p.ends[PAIR_SERVER].sent, 0);
    assert_true(served()->drop_range > 0);
}

TEST(a_full_table_refuses, pair_configured, pair_ended)
{
    p.config[PAIR_SERVER].sessions_max = 1;
    pair_start(&p);
    pair_open(&p);
    struct mr_client_session *second;
    assert_int_equal(
        mr_client_session_open(p.ends[PAIR_CLIENT].ep, &p.ends[PAIR_SERVER].address, 0, NULL, &second),
        MR_OK);
    pair_run(&p, 200000);
    assert_true(served()->sessions_refused > 0);
    struct mr_client_session_info info;
    mr_client_session_info(second, &info);
    assert_false(info.up);
    mr_client_session_close(p.ends[PAIR_CLIENT].ep, p.session, p.now_us);
    pair_run(&p, 500000);
    mr_client_session_info(second, &info);
    assert_true(info.up);
}

static enum pair_verdict only_hellos(struct pair *pair, enum pair_side from, uint32_t n,
                                     struct pair_packet *packet)
{
    return from == PAIR_CLIENT && packet->data[3] != MR_PACKET_HELLO ? PAIR_DROP : PAIR_PASS;
}

TEST(a_session_nobody_uses_is_forgotten_soon, pair_configured, pair_ended)
{
    p.filter = only_hellos; /* as a replayed HELLO looks */
    pair_start(&p);
    pair_open(&p);
    assert_int_equal(session_count(server()), 1);
    pair_run(&p, 6000000);
    assert_int_equal(session_count(server()), 0);
    assert_int_equal(served()->sessions_expired, 1);
}

TEST(a_silent_session_is_forgotten_and_an_idle_one_is_not, pair_configured, pair_ended)
{
    pair_start(&p);
    pair_open(&p);
    pair_run(&p, 200000000);
    assert_int_equal(session_count(server()), 1);
    p.filter = only_hellos;
    pair_run(&p, 61000000);
    assert_int_equal(session_count(server()), 0);
}

TEST(a_restarted_client_ends_its_old_sessions, pair_configured, pair_ended)
{
    p.filter = keep_clients;
    pair_start(&p);
    pair_open(&p);
    pair_restart_client(&p);
    p.ends[PAIR_CLIENT].random_state = 999; /* another boot */
    pair_open(&p);
    assert_int_equal(served()->sessions_accepted, 2);
    assert_int_equal(session_count(server()), 1);
    /* The old one's HELLO, played again, makes a session that ends nothing and that nobody uses. */
    pair_inject(&p, PAIR_SERVER, kept[1], kept_bytes[1]);
    struct pair_call call = {0};
    pair_call(&p, &call, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(call.status, MR_OK);
    assert_int_equal(call.ended, 1);
}

TEST(resets_are_short_and_limited, pair_configured, pair_ended)
{
    pair_start(&p);
    pair_open(&p);
    pair_restart_server(&p);
    uint8_t packet[MR_HEADER_BYTES + 1000] = {0};
    struct mr_packet_header h = {.magic = MR_MAGIC,
                                 .version = MR_PROTOCOL_VERSION,
                                 .type = MR_PACKET_DATA,
                                 .payload_bytes = 1000,
                                 .session_id = 0x123400,
                                 .call_id = 1,
                                 .incarnation = 6};
    struct mr_auth auth;
    struct mr_tag_key key;
    mr_auth_init(&auth, p.config[PAIR_SERVER].psk[0]);
    mr_session_key(&auth, h.session_id, h.incarnation, &key);
    memcpy(packet, &h, sizeof(h));
    mr_tag_write(&key, packet, sizeof(packet));
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    for (int i = 0; i < 1000; i++)
        pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(p.ends[PAIR_SERVER].sent - sent, 64);
    assert_int_equal(served()->resets_sent, 64);
    assert_int_equal(served()->resets_skipped, 1000 - 64);
    h.type = MR_PACKET_BYE;
    h.payload_bytes = 0;
    memcpy(packet, &h, sizeof(h));
    mr_tag_write(&key, packet, MR_HEADER_BYTES);
    p.now_us += 100000;
    pair_inject(&p, PAIR_SERVER, packet, MR_HEADER_BYTES);
    assert_int_equal(served()->resets_sent, 64);
}

TEST(packets_from_elsewhere_or_with_a_wrong_tag_are_dropped, pair_configured, pair_ended)
{
    struct pair_call call = {0};
    pair_start(&p);
    pair_open(&p);
    p.ends[PAIR_CLIENT].sent = 0;
    p.filter = keep_clients;
    pair_call(&p, &call, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(p.executed, 1);
    kept[0][offsetof(struct mr_packet_header, number)] ^= 64; /* one that has not come */
    pair_inject(&p, PAIR_SERVER, kept[0], kept_bytes[0]);
    assert_int_equal(served()->drop_tag, 1);
    kept[0][offsetof(struct mr_packet_header, number)] ^= 64;
    struct mr_address elsewhere = p.ends[PAIR_CLIENT].address;
    elsewhere.ip[15]++;
    mr_endpoint_receive(server(), p.now_us, &elsewhere, kept[0], kept_bytes[0]);
    assert_int_equal(served()->drop_session, 1);
    assert_int_equal(p.executed, 1);
}
