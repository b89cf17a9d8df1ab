/* An endpoint on a socket: calls between two of them, what is wrong from the start, and a socket without
 * room. */
#include <poll.h>
#include <string.h>
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_endpoint.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/op.h"
#include "tests/test.h"

#define SEGMENTS 64u
#define BURSTS   4u
#define LIMIT_US 60000000u

bool __real_mr_udp_send_flush(struct mr_udp_sender *s);
bool __wrap_mr_udp_send_flush(struct mr_udp_sender *s);

static bool is_full;

bool __wrap_mr_udp_send_flush(struct mr_udp_sender *s)
{
    return !is_full && __real_mr_udp_send_flush(s);
}

struct both {
    struct mr_udp_endpoint server, client;
    struct mr_client_session *session;
    uint32_t requests, replies;
    uint32_t arrived; /* datagrams at the server */
};

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    ((struct both *)app)->requests++;
    mr_reply_status(ep, request->ref, MR_OK);
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct both *x = app;
    assert_int_equal(status, MR_OK);
    x->replies++;
    mr_call_free(x->client.ep, call);
}

static uint16_t at_core_0(void *app, const struct mr_address *from)
{
    struct mr_address client;
    mr_udp_local(&((struct both *)app)->client.socket, &client);
    assert_int_equal(from->port, client.port);
    ((struct both *)app)->arrived++;
    return 0;
}

static enum mr_status open_at(struct mr_udp_endpoint *e, const char *where, char *error, size_t error_bytes)
{
    const struct mr_udp_options options = {0};
    struct mr_address local;
    assert_int_equal(mr_address_resolve(where, true, &local, error, error_bytes), MR_OK);
    return mr_udp_endpoint_open(e, &local, &options, true, error, error_bytes);
}

static void open_both(struct both *x)
{
    struct mr_endpoint_config config;
    struct mr_address server;
    char error[256];
    *x = (struct both){.requests = 0};
    assert_int_equal(open_at(&x->server, "127.0.0.1:0", error, sizeof(error)), MR_OK);
    assert_int_equal(open_at(&x->client, "127.0.0.1:0", error, sizeof(error)), MR_OK);
    mr_endpoint_config_default(&config);
    config.app = x;
    config.on_request = on_request;
    memset(config.psk[0], 7, sizeof(config.psk[0]));
    config.psk_count = 1;
    assert_int_equal(mr_udp_endpoint_create(&x->server, &config), MR_OK);
    assert_int_equal(config.psk[0][0], 0); /* keys stay in one place */
    x->server.arrived_at = at_core_0;
    x->server.app = x;
    mr_endpoint_config_default(&config);
    config.app = x;
    config.on_reply = on_reply;
    memset(config.psk[0], 7, sizeof(config.psk[0]));
    config.psk_count = 1;
    config.client_uuid[0] = 1;
    assert_int_equal(mr_udp_endpoint_create(&x->client, &config), MR_OK);
    mr_udp_local(&x->server.socket, &server);
    assert_int_equal(mr_client_session_open(x->client.ep, &server, 0, NULL, &x->session), MR_OK);
}

static void make_call(struct both *x)
{
    const struct mr_call_options options = {.op = MR_OP_ECHO, .deadline_us = UINT64_MAX};
    struct mr_call *call;
    assert_int_equal(mr_call_begin(x->client.ep, x->session, &options, NULL, 0, &call), MR_OK);
    mr_call_send(x->client.ep, call, mr_clock_us());
}

static void run_until_replies(struct both *x, uint32_t replies)
{
    const uint64_t end_us = mr_clock_us() + LIMIT_US;
    while (x->replies < replies) {
        assert_true(mr_clock_us() < end_us);
        (void)mr_udp_endpoint_receive(&x->server, BURSTS);
        (void)mr_udp_endpoint_send(&x->server, mr_clock_us(), SEGMENTS);
        (void)mr_udp_endpoint_receive(&x->client, BURSTS);
        (void)mr_udp_endpoint_send(&x->client, mr_clock_us(), SEGMENTS);
    }
}

static void close_both(struct both *x)
{
    mr_udp_endpoint_close(&x->client);
    mr_udp_endpoint_close(&x->client);
    mr_udp_endpoint_close(&x->server);
}

TEST(calls_are_answered)
{
    struct both x;
    open_both(&x);
    for (uint32_t i = 0; i < 100; i++)
        make_call(&x);
    run_until_replies(&x, 100);
    assert_int_equal(x.requests, 100);
    assert_true(x.arrived > 0);
    close_both(&x);
}

TEST(a_burst_may_be_received_and_given_later)
{
    struct both x;
    open_both(&x);
    make_call(&x);
    (void)mr_udp_endpoint_send(&x.client, mr_clock_us(), SEGMENTS);
    struct pollfd wait = {.fd = x.server.socket.fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, LIMIT_US / 1000), 1);
    assert_true(mr_udp_receive(x.server.receiver));
    assert_int_equal(mr_udp_endpoint_take(&x.server), 1);
    assert_int_equal(mr_udp_endpoint_take(&x.server), 0);
    assert_int_equal(mr_udp_endpoint_receive(&x.server, BURSTS), 0);
    run_until_replies(&x, 1);
    close_both(&x);
}

/* What the socket has no room for is sent later, and it is known when. */
TEST(a_full_socket_is_tried_again)
{
    struct both x;
    open_both(&x);
    make_call(&x);
    is_full = true;
    const uint64_t now_us = mr_clock_us();
    assert_false(mr_udp_endpoint_send(&x.client, now_us, SEGMENTS));
    assert_true(x.client.is_blocked);
    assert_int_in_range(x.client.next_us, now_us + 1, now_us + 1000000);
    is_full = false;
    assert_true(mr_udp_endpoint_send(&x.client, mr_clock_us(), SEGMENTS));
    assert_false(x.client.is_blocked);
    run_until_replies(&x, 1);
    close_both(&x);
}

TEST(an_address_of_another_machine_is_refused)
{
    struct mr_udp_endpoint e;
    char error[256] = "";
    assert_int_not_equal(open_at(&e, "192.0.2.1:0", error, sizeof(error)), MR_OK);
    assert_non_null(strstr(error, "192.0.2.1"));
    assert_int_equal(e.socket.fd, -1);
    mr_udp_endpoint_close(&e);
}
