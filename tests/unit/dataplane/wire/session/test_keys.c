#include <stdio.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

static uint8_t keys[3][MR_PSK_BYTES]; /* old, new, another */
enum { OLD, NEW, OTHER };

static int setup(void **state)
{
    pair_init(&p);
    for (int i = 0; i < 3; i++)
        memset(keys[i], 0x5a + i, MR_PSK_BYTES); /* the pair begins with the first */
    pair_start(&p);
    pair_open(&p);
    return 0;
}

static void set_keys(enum pair_side side, int first, int second)
{
    uint8_t psks[2][MR_PSK_BYTES];
    memcpy(psks[0], keys[first], MR_PSK_BYTES);
    if (second >= 0)
        memcpy(psks[1], keys[second], MR_PSK_BYTES);
    mr_endpoint_set_keys(p.ends[side].ep, psks, second >= 0 ? 2 : 1, p.now_us);
}

/* ---- packets of unknown sessions ---- */

static uint8_t packet[MR_HEADER_BYTES + 100];

static void make_packet(uint8_t type, uint64_t session_id, uint32_t incarnation, const uint8_t *psk)
{
    struct mr_packet_header h = {.magic = MR_MAGIC,
                                 .version = MR_PROTOCOL_VERSION,
                                 .type = type,
                                 .payload_bytes = type == MR_PACKET_DATA ? 100 : 0,
                                 .session_id = session_id,
                                 .call_id = 1,
                                 .message_bytes = type == MR_PACKET_DATA ? 100 : 0,
                                 .incarnation = incarnation,
                                 .number = p.session->peer.sent_number + (type != MR_PACKET_RESET)};
    struct mr_auth auth;
    struct mr_tag_key key;
    mr_auth_init(&auth, psk);
    mr_session_key(&auth, session_id, incarnation, &key);
    memset(packet, 0, sizeof(packet));
    memcpy(packet, &h, sizeof(h));
    mr_tag_write(&key, packet, MR_HEADER_BYTES + h.payload_bytes);
}

TEST(only_whoever_has_a_key_gets_a_reset, setup, pair_ended)
{
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    make_packet(MR_PACKET_DATA, 0x123400, 3, keys[OTHER]);
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    make_packet(MR_PACKET_DATA, 0x123400, 3, keys[OLD]);
    packet[MR_HEADER_BYTES + 99] ^= 1;
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    assert_int_equal(served()->resets_unproven, 2);
    packet[MR_HEADER_BYTES + 99] ^= 1;
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 1);
    assert_int_equal(served()->resets_sent, 1);
    set_keys(PAIR_SERVER, NEW, OLD); /* the second key is as good */
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(served()->resets_sent, 2);
    make_packet(MR_PACKET_DATA, 0x123401, 3, keys[OLD]); /* of another core: not even looked at */
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    make_packet(MR_PACKET_BYE, 0x123400, 3, keys[OLD]);
    pair_inject(&p, PAIR_SERVER, packet, MR_HEADER_BYTES);
    assert_int_equal(served()->resets_sent, 2);
    assert_int_equal(served()->resets_unproven, 2);
    assert_int_equal(served()->drop_session, 6);
}

TEST(forged_ones_cost_a_bounded_number_of_looks, setup, pair_ended)
{
    make_packet(MR_PACKET_DATA, 0x123400, 3, keys[OTHER]);
    for (int i = 0; i < 1000; i++)
        pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(served()->resets_unproven, MR_VERIFIES_PER_INTERVAL);
    assert_int_equal(served()->resets_skipped, 1000 - MR_VERIFIES_PER_INTERVAL);
    p.now_us += MR_BUDGET_INTERVAL_US;
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(served()->resets_unproven, MR_VERIFIES_PER_INTERVAL + 1);
}

/* As many in each interval. */
TEST(resets_are_bounded, setup, pair_ended)
{
    make_packet(MR_PACKET_DATA, 0x123400, 3, keys[OLD]);
    for (uint32_t interval = 1; interval <= 3; interval++) {
        for (uint32_t i = 0; i < 1000; i++)
            pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
        assert_int_equal(served()->resets_sent, interval * MR_RESETS_PER_INTERVAL);
        p.now_us += MR_BUDGET_INTERVAL_US;
    }
}

TEST(a_client_believes_a_reset_under_its_sessions_key_only, setup, pair_ended)
{
    struct mr_auth auth;
    mr_auth_init(&auth, keys[OLD]);
    uint64_t id = p.session->peer.session_id;
    make_packet(MR_PACKET_RESET, id, 7, keys[OTHER]);
    pair_inject(&p, PAIR_CLIENT, packet, MR_HEADER_BYTES);
    mr_tag_write(&auth.hello_key, packet, MR_HEADER_BYTES);
    pair_inject(&p, PAIR_CLIENT, packet, MR_HEADER_BYTES);
    assert_int_equal(mr_endpoint_counters(client())->drop_tag, 2);
    assert_int_equal(mr_endpoint_counters(client())->resets_received, 0);
    make_packet(MR_PACKET_RESET, id, 7, keys[OLD]);
    pair_inject(&p, PAIR_CLIENT, packet, MR_HEADER_BYTES);
    assert_int_equal(mr_endpoint_counters(client())->resets_received, 1);
    pair_inject(&p, PAIR_CLIENT, packet, MR_HEADER_BYTES); /* the same one again says nothing new */
    assert_int_equal(mr_endpoint_counters(client())->resets_received, 1);
    assert_int_equal(mr_endpoint_counters(client())->drop_repeated, 1);
}

/* ---- rotation ---- */

static void call_is_answered(void)
{
    struct pair_call c = {0};
    uint32_t executed = p.executed;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 500000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, executed + 1);
}

static void nothing_was_lost(uint64_t session_id)
{
    assert_true(p.session->peer.session_id == session_id);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    assert_int_equal(served()->sessions_accepted, 1);
    assert_int_equal(session_count(server()), 1);
}

/* Both, then the clients, then the new one alone: a call that runs all the while gets its answer, and so do
 * new ones. */
TEST(keys_are_rotated_under_a_session, setup, pair_ended)
{
    struct pair_call save = {0};
    uint64_t id = p.session->peer.session_id;
    pair_call(&p, &save, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    set_keys(PAIR_SERVER, OLD, NEW);
    call_is_answered();
    set_keys(PAIR_CLIENT, NEW, -1);
    call_is_answered();
    set_keys(PAIR_SERVER, NEW, -1);
    call_is_answered();
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_run(&p, 100000);
    assert_int_equal(save.ended, 1);
    assert_int_equal(save.status, MR_OK);
    nothing_was_lost(id);
}

/* The same at every point of a transfer each way. */
TEST(keys_are_rotated_under_large_messages, setup, pair_ended)
{
    static uint8_t data[200000];
    for (uint64_t at_us = 0; at_us < 400; at_us += 7) {
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
        struct pair_call echo = {0};
        pair_stop(&p);
        (void)setup(state);
        uint64_t id = p.session->peer.session_id;
        pair_call(&p, &echo, MR_OP_ECHO, &tensor, 1, UINT64_MAX);
        pair_run(&p, at_us);
        set_keys(PAIR_SERVER, OLD, NEW);
        pair_run(&p, 5);
        set_keys(PAIR_CLIENT, NEW, OLD);
        pair_run(&p, 1000000);
        assert_int_equal(echo.ended, 1);
        assert_int_equal(echo.status, MR_OK);
        assert_int_equal(p.executed, 1);
        assert_int_equal(p.session->confirmed, true);
        set_keys(PAIR_SERVER, NEW, -1);
        call_is_answered();
        nothing_was_lost(id);
    }
}

/* The order was wrong: its calls wait until the server knows the key. */
/* What strangers send for sessions that are not there must not keep a client from going over. */
TEST(keys_are_rotated_under_a_flood_of_forged_packets, setup, pair_ended)
{
    struct pair_call c = {0};
    set_keys(PAIR_SERVER, OLD, NEW);
    for (uint32_t i = 0; i < 2 * MR_VERIFIES_PER_INTERVAL; i++) {
        make_packet(MR_PACKET_DATA, 0x1234500 + ((uint64_t)i << 32), 7, keys[OTHER]);
        pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    }
    set_keys(PAIR_CLIENT, NEW, OLD);
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(served()->drop_tag, 0);
}

TEST(a_client_may_be_too_early, setup, pair_ended)
{
    struct pair_call c = {0};
    uint64_t id = p.session->peer.session_id;
    set_keys(PAIR_CLIENT, NEW, -1);
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 3000000);
    assert_int_equal(c.ended, 0);
    assert_int_equal(p.events[MR_SESSION_AWAY], 1);
    set_keys(PAIR_SERVER, OLD, NEW);
    pair_run(&p, 1000000);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, 1);
    nothing_was_lost(id);
}

/* It has nothing that the server takes, and hears nothing more; with the new key it goes on where it was. */
TEST(a_client_may_be_too_late, setup, pair_ended)
{
    struct pair_call c = {0};
    uint64_t id = p.session->peer.session_id;
    set_keys(PAIR_SERVER, NEW, -1);
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 3000000);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    assert_int_equal(p.executed, 0);
    assert_true(served()->drop_proof > 0); /* its HELLOs under a key id that nobody has */
    set_keys(PAIR_CLIENT, NEW, -1);
    pair_run(&p, 1000000);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, 1);
    nothing_was_lost(id);
}

TEST(what_is_under_way_under_the_old_key_is_taken_while_it_is_a_key, setup, pair_ended)
{
    struct pair_call save[2] = {{0}, {0}};
    uint64_t dropped = mr_endpoint_counters(client())->drop_tag;
    pair_call(&p, &save[0], MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_call(&p, &save[1], MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    mr_reply_status(server(), p.later[0], MR_OK);
    mr_endpoint_flush(server(), p.now_us);
    set_keys(PAIR_CLIENT, NEW, OLD);
    pair_run(&p, 2 * PAIR_DELAY_US);
    assert_int_equal(save[0].ended, 1);
    assert_int_equal(mr_endpoint_counters(client())->drop_tag, dropped);
    mr_reply_status(server(), p.later[1], MR_OK);
    mr_endpoint_flush(server(), p.now_us);
    set_keys(PAIR_CLIENT, NEW, -1);
    set_keys(PAIR_CLIENT, OTHER, -1);
    pair_run(&p, 2 * PAIR_DELAY_US);
    assert_int_equal(save[1].ended, 0);
    assert_true(mr_endpoint_counters(client())->drop_tag > dropped);
}

static enum pair_verdict pass_handshakes(struct pair *pair, enum pair_side from, uint32_t n,
                                         struct pair_packet *sent)
{
    struct mr_packet_header header;
    memcpy(&header, sent->data, sizeof(header));
    bool passes = from == PAIR_CLIENT || header.type == MR_PACKET_ACCEPT || header.type == MR_PACKET_RETRY;
    return passes ? PAIR_PASS : PAIR_DROP;
}

/* The key that was left is good for the session that it was of, and not for the next one. */
TEST(the_old_key_does_not_outlive_its_session, setup, pair_ended)
{
    const uint64_t id = p.session->peer.session_id;
    const struct mr_tag_key old = p.session->peer.key;
    struct pair_call c = {0};
    set_keys(PAIR_SERVER, OLD, NEW);
    set_keys(PAIR_CLIENT, NEW, OLD);
    p.filter = pass_handshakes;
    pair_restart_server(&p);
    set_keys(PAIR_SERVER, NEW, -1);
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 10000);
    assert_true(p.session->established && p.session->peer.session_id != id);
    uint64_t dropped = mr_endpoint_counters(client())->drop_tag;
    make_packet(MR_PACKET_RESET, p.session->peer.session_id, p.session->peer.incarnation, keys[NEW]);
    mr_tag_write(&old, packet, MR_HEADER_BYTES);
    pair_inject(&p, PAIR_CLIENT, packet, MR_HEADER_BYTES);
    assert_int_equal(mr_endpoint_counters(client())->drop_tag, dropped + 1);
    p.filter = NULL;
    pair_run(&p, 1000000);
    assert_int_equal(c.ended, 1);
}

TEST(a_key_that_is_gone_opens_nothing, setup, pair_ended)
{
    set_keys(PAIR_SERVER, NEW, -1);
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    make_packet(MR_PACKET_DATA, p.session->peer.session_id, 7, keys[OLD]);
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(served()->drop_tag, 1);
    make_packet(MR_PACKET_DATA, 0x123400, 7, keys[OLD]);
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    pair_restart_client(&p);
    pair_open(&p);
    pair_run(&p, 1000000);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    assert_int_equal(p.executed, 0);
}

TEST(no_keys_at_all_is_no_key, setup, pair_ended)
{
    uint64_t id = p.session->peer.session_id;
    mr_endpoint_set_keys(server(), NULL, 0, p.now_us);
    mr_endpoint_set_keys(client(), NULL, 0, p.now_us);
    call_is_answered();
    nothing_was_lost(id);
    set_keys(PAIR_SERVER, NEW, -1);
    set_keys(PAIR_CLIENT, NEW, -1);
    call_is_answered();
    nothing_was_lost(id);
}

/* ---- roles ---- */

static void set_roles(enum mr_role first, enum mr_role second)
{
    uint8_t psks[2][MR_PSK_BYTES], roles[2] = {(uint8_t)first, (uint8_t)second};
    memcpy(psks[0], keys[OLD], MR_PSK_BYTES);
    memcpy(psks[1], keys[NEW], MR_PSK_BYTES);
    mr_endpoint_set_role_keys(server(), psks, roles, 2, p.now_us);
}

static int setup_roles(void **state)
{
    pair_init(&p);
    for (int i = 0; i < 3; i++)
        memset(keys[i], 0x5a + i, MR_PSK_BYTES);
    struct mr_endpoint_config *c = &p.config[PAIR_SERVER];
    c->psk_count = 2;
    memcpy(c->psk[1], keys[NEW], MR_PSK_BYTES);
    c->psk_roles[0] = MR_ROLE_READ_ONLY;
    c->psk_roles[1] = MR_ROLE_OPERATOR;
    c->sessions_per_address = 4;
    pair_start(&p);
    pair_open(&p);
    return 0;
}

static enum mr_status answer_to(uint8_t op)
{
    struct pair_call c = {0};
    pair_call(&p, &c, op, NULL, 0, UINT64_MAX);
    pair_run(&p, 500000);
    assert_int_equal(c.ended, 1);
    return c.status;
}

static char refusal[256];

static void keep_text(struct pair *pair, struct pair_call *call)
{
    snprintf(refusal, sizeof(refusal), "%.*s", (int)call->tensors[0].dims[0],
             (const char *)call->tensors[0].data);
}

TEST(a_role_may_call_some_operations, setup_roles, pair_ended)
{
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
    assert_int_equal(answer_to(99), MR_UNKNOWN_OP);
    p.on_ended = keep_text;
    assert_int_equal(answer_to(MR_OP_PUSH_GRAD), MR_UNAUTHORIZED);
    assert_string_equal(refusal,
                        "push_grad needs a key of the role trainer, and the caller's has the role read_only");
    assert_int_equal(answer_to(MR_OP_RESTORE), MR_UNAUTHORIZED);
    assert_string_equal(refusal,
                        "restore needs a key of the role operator, and the caller's has the role read_only");
    p.on_ended = NULL;
    assert_int_equal(p.executed, 2);
    assert_int_equal(served()->calls_not_allowed, 2);
    assert_int_equal(served()->drop_message, 0);
    set_keys(PAIR_CLIENT, NEW, -1); /* the operator's: a session of its own */
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
    assert_int_equal(answer_to(MR_OP_PUSH_GRAD), MR_OK);
    assert_int_equal(served()->sessions_accepted, 2);
}

/* A request that came in under fewer rights must not be carried out with more, whoever sends the rest of
 * it. */
TEST(a_session_goes_over_to_keys_of_its_role_only, setup_roles, pair_ended)
{
    uint64_t id = p.session->peer.session_id;
    make_packet(MR_PACKET_DATA, id, 7, keys[NEW]);
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    assert_int_equal(served()->drop_tag, 1);
    assert_int_equal(answer_to(MR_OP_PUSH_GRAD), MR_UNAUTHORIZED);
    set_roles(MR_ROLE_READ_ONLY, MR_ROLE_READ_ONLY);
    set_keys(PAIR_CLIENT, NEW, OLD);
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
    nothing_was_lost(id);
    assert_int_equal(answer_to(MR_OP_PUSH_GRAD), MR_UNAUTHORIZED);
}

/* The same key with more rights counts for sessions that are made from then on; without one of its role a
 * session is over. */
TEST(a_session_keeps_its_role, setup_roles, pair_ended)
{
    set_roles(MR_ROLE_OPERATOR, MR_ROLE_READ_ONLY);
    assert_int_equal(session_count(server()), 1);
    set_roles(MR_ROLE_OPERATOR, MR_ROLE_TRAINER);
    assert_int_equal(session_count(server()), 0);
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);      /* it is made again, */
    assert_int_equal(answer_to(MR_OP_PUSH_GRAD), MR_OK); /* under what the key may now */
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
}

/* ---- what a key of a lower role leaves to the others ---- */

/* Somebody with the key of another role claims the client's uuid, after a restart as it seems. */
static struct mr_server_session *claim_uuid(int key, uint64_t number)
{
    struct mr_auth auth;
    mr_auth_init(&auth, keys[key]);
    const struct mr_server_session *held = &server()->server_sessions[0];
    struct mr_hello h = {.boot_nonce = held->boot_nonce + 1,
                         .client_nonce = 99,
                         .key_id = auth.key_id,
                         .udp_bytes_max = MR_UDP_BYTES_MIN,
                         .receive_buffer_bytes = 1 << 18,
                         .window = 4};
    memcpy(h.client_uuid, held->client_uuid, MR_UUID_BYTES);
    const struct mr_address *from = &p.ends[PAIR_CLIENT].address;
    mr_cookie_make(server()->cookie_secret, from->ip, from->port, &h, server()->now_us, h.cookie);
    mr_hello_prove(&auth, &h);
    struct mr_packet_header header = {.magic = MR_MAGIC,
                                      .version = MR_PROTOCOL_VERSION,
                                      .type = MR_PACKET_HELLO,
                                      .payload_bytes = sizeof(h),
                                      .call_id = h.client_nonce,
                                      .number = number};
    uint8_t datagram[MR_HEADER_BYTES + sizeof(h)];
    memcpy(datagram, &header, sizeof(header));
    memcpy(datagram + MR_HEADER_BYTES, &h, sizeof(h));
    mr_tag_write(&auth.hello_key, datagram, sizeof(datagram));
    const uint64_t accepted = served()->sessions_accepted;
    pair_inject(&p, PAIR_SERVER, datagram, sizeof(datagram));
    assert_int_equal(served()->sessions_accepted, accepted + 1);
    for (uint32_t i = 0; i < server()->config.sessions_max; i++)
        if (server()->server_sessions[i].used && server()->server_sessions[i].client_nonce == 99)
            return &server()->server_sessions[i];
    fail_msg("no session");
    return NULL;
}

TEST(no_key_ends_sessions_of_a_higher_role, setup_roles, pair_ended)
{
    set_roles(MR_ROLE_TRAINER, MR_ROLE_OPERATOR); /* the session is over, and made again as a trainer's */
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
    set_roles(MR_ROLE_TRAINER, MR_ROLE_READ_ONLY);
    mr_server_session_confirm(server(), claim_uuid(NEW, 1));
    assert_int_equal(session_count(server()), 2);
    const uint64_t restarts = p.events[MR_SESSION_RESTARTED];
    assert_int_equal(answer_to(MR_OP_PUSH_GRAD), MR_OK);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], restarts);
}

TEST(a_client_that_restarts_ends_its_sessions_of_lower_roles, setup_roles, pair_ended)
{
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK); /* read_only */
    mr_server_session_confirm(server(), claim_uuid(NEW, 1));
    assert_int_equal(session_count(server()), 1);
}

static uint64_t last_step(void *app, const uint8_t *uuid)
{
    return 1234;
}

TEST(only_who_may_push_learns_the_last_push, setup_roles, pair_ended)
{
    struct mr_client_session_info info;
    server()->last_step_hook = last_step;
    set_keys(PAIR_CLIENT, NEW, -1);
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
    mr_client_session_info(p.session, &info);
    assert_int_equal(p.session->last_push_step, 1234);
    set_keys(PAIR_CLIENT, OLD, -1); /* read_only */
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
    assert_int_equal(p.session->last_push_step, 0);
}

TEST(shares_are_kept_for_higher_roles, setup_roles, pair_ended)
{
    assert_int_equal(mr_role_share(server(), MR_ROLE_OPERATOR, 1600), 1600);
    assert_int_equal(mr_role_share(server(), MR_ROLE_TRAINER, 1600), 1500);
    assert_int_equal(mr_role_share(server(), MR_ROLE_READ_ONLY, 1600), 1500); /* there is no trainers' key */
    set_roles(MR_ROLE_READ_ONLY, MR_ROLE_TRAINER);
    assert_int_equal(mr_role_share(server(), MR_ROLE_READ_ONLY, 1600), 1200);
    assert_int_equal(mr_role_share(server(), MR_ROLE_TRAINER, 1600), 1600);
    set_roles(MR_ROLE_READ_ONLY, MR_ROLE_READ_ONLY);
    assert_int_equal(mr_role_share(server(), MR_ROLE_READ_ONLY, 1600), 1600);
}

/* Read-only sessions take `places` and no more, and a trainer's comes in; the client asks from so many
 * addresses. */
static void check_places(uint32_t places, uint32_t address_count, const uint64_t *refused)
{
    struct mr_client_session *session;
    const uint32_t first = p.ends[PAIR_CLIENT].address.ip[15];
    assert_int_in_range(places, 1, server()->config.sessions_max - 1);
    for (uint32_t i = 1; i <= places; i++) {
        p.ends[PAIR_CLIENT].address.ip[15] = (uint8_t)(first + i % address_count);
        assert_int_equal(
            mr_client_session_open(p.ends[PAIR_CLIENT].ep, &p.ends[PAIR_SERVER].address, 0, NULL, &session),
            MR_OK);
        pair_run(&p, 1000);
    }
    assert_int_equal(session_count(server()), places);
    assert_true(*refused > 0);
    set_keys(PAIR_CLIENT, NEW, -1); /* the trainer's: the session that was refused kept asking */
    pair_run(&p, 1000000);
    assert_true(session_count(server()) > places);
}

TEST(sessions_of_a_role_leave_places, setup_roles, pair_ended)
{
    set_roles(MR_ROLE_READ_ONLY, MR_ROLE_TRAINER);
    check_places((uint32_t)mr_role_share(server(), MR_ROLE_READ_ONLY, server()->config.sessions_max), 200,
                 &served()->sessions_refused);
}

TEST(sessions_of_a_role_leave_places_of_their_address, setup_roles, pair_ended)
{
    set_roles(MR_ROLE_READ_ONLY, MR_ROLE_TRAINER);
    check_places(
        (uint32_t)mr_role_share(server(), MR_ROLE_READ_ONLY, mr_address_sessions_max(server()->limits)), 1,
        &served()->sessions_refused_address);
}

TEST(forged_packets_under_many_keys_cost_no_more, setup, pair_ended)
{
    uint8_t psks[MR_PSK_MAX][MR_PSK_BYTES];
    for (uint32_t i = 0; i < MR_PSK_MAX; i++)
        memset(psks[i], 0x5a + (int)i, MR_PSK_BYTES);
    mr_endpoint_set_keys(server(), psks, MR_PSK_MAX, p.now_us);
    for (uint32_t i = 0; i < 1000; i++) {
        make_packet(MR_PACKET_DATA, 0x1234500 + ((uint64_t)i << 32), 7, keys[OTHER]);
        packet[MR_HEADER_BYTES] ^= 1;
        pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    }
    assert_int_equal(served()->resets_unproven, MR_VERIFIES_PER_INTERVAL / (MR_PSK_MAX / 2));
    assert_int_equal(answer_to(MR_OP_ECHO), MR_OK);
}
