/* Sockets on loopback: what is sent in a batch arrives as the same datagrams, with and without offload. */
#include <errno.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"
#include "dataplane/udp/udp_socket.h"
#include "dataplane/wire/format/packet.h"
#include "tests/test.h"

/* What the kernel is made to say. */
static struct {
    bool has_no_ipv6;
    uint32_t sent_bytes; /* of 1000, that wait in the send buffer; 0: as they do */
} kernel;

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (host == NULL || strcmp(host, "both.test") != 0)
        return __real_getaddrinfo(host, port, hints, out);
    const int failed = __real_getaddrinfo("::1", port, hints, out);
    return failed != 0 ? failed : __real_getaddrinfo("127.0.0.1", port, hints, &(*out)->ai_next);
}

int __wrap_socket(int domain, int type, int protocol)
{
    if (domain != AF_INET6 || !kernel.has_no_ipv6)
        return __real_socket(domain, type, protocol);
    errno = EAFNOSUPPORT;
    return -1;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
    const uint32_t memory[SK_MEMINFO_VARS] = {
        [SK_MEMINFO_WMEM_ALLOC] = kernel.sent_bytes, [SK_MEMINFO_SNDBUF] = 1000};
    if (level != SOL_SOCKET || name != SO_MEMINFO || kernel.sent_bytes == 0)
        return __real_getsockopt(fd, level, name, value, bytes);
    memcpy(value, memory, *bytes < sizeof(memory) ? *bytes : sizeof(memory));
    return 0;
}

struct pair {
    struct mr_udp_socket server, client;
    struct mr_udp_receiver *server_in, *client_in;
    struct mr_udp_sender *server_out, *client_out;
    struct mr_address to;
};

static void open_pair(struct pair *p, const char *listen, const char *connect, bool offload)
{
    struct mr_udp_options options = {0};
    struct mr_address local;
    char error[256];
    assert_int_equal(mr_address_resolve(listen, true, &local, error, sizeof(error)), MR_OK);
    assert_int_equal(mr_udp_bind(&local, &options, &p->server, error, sizeof(error)), MR_OK);
    mr_udp_local(&p->server, &local);
    assert_true(local.port != 0);
    assert_int_equal(mr_address_resolve(connect, false, &p->to, error, sizeof(error)), MR_OK);
    p->to.port = local.port;
    assert_int_equal(mr_udp_connect(&p->to, &options, &p->client, error, sizeof(error)), MR_OK);
    p->server_in = mr_udp_receiver_create(&p->server);
    p->client_in = mr_udp_receiver_create(&p->client);
    p->server_out = mr_udp_sender_create(&p->server, offload);
    p->client_out = mr_udp_sender_create(&p->client, offload);
    assert_true(p->server_in != NULL && p->client_in != NULL && p->server_out != NULL &&
                p->client_out != NULL);
}

static void close_pair(struct pair *p)
{
    mr_udp_sender_destroy(p->server_out);
    mr_udp_sender_destroy(p->client_out);
    mr_udp_receiver_destroy(p->server_in);
    mr_udp_receiver_destroy(p->client_in);
    mr_udp_close(&p->server);
    mr_udp_close(&p->client);
}

static void send_one(struct mr_udp_sender *out, const struct mr_address *to, uint32_t bytes, uint8_t fill)
{
    uint8_t *datagram = mr_udp_send_begin(out, to, bytes);
    assert_non_null(datagram);
    assert_int_equal((uintptr_t)datagram % 8, 0);
    memset(datagram, fill, bytes);
    mr_udp_send_end(out, bytes);
}

static void receive_one(const struct mr_udp_socket *s, struct mr_udp_receiver *in, struct mr_address *from,
                        uint32_t bytes, uint8_t fill)
{
    const uint8_t *datagram;
    size_t got;
    while (!mr_udp_receive_next(in, from, &datagram, &got)) {
        struct pollfd pollfd = {.fd = s->fd, .events = POLLIN};
        assert_int_equal(poll(&pollfd, 1, 60000), 1);
        mr_udp_receive(in);
    }
    assert_int_equal(got, bytes);
    for (size_t i = 0; i < got; i++)
        assert_int_equal(datagram[i], fill);
}

/* Runs of equal length with a shorter one behind, longer ones, single ones, and lengths that are no multiple
 * of 8. */
static const uint32_t lengths[] = {1400, 1400, 1400, 200,  1400, 8,    8,    8, 8,
                                   9,    9,    1,    4000, 1400, 1400, 1401, 7};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void check_both_ways(const char *listen, const char *connect, bool offload)
{
    struct pair p;
    struct mr_address from = {.port = 0}, none;
    open_pair(&p, listen, connect, offload);
    for (uint32_t i = 0; i < LENGTHS; i++)
        send_one(p.client_out, &p.to, lengths[i], (uint8_t)i);
    /* One that is given back leaves no trace. */
    assert_non_null(mr_udp_send_begin(p.client_out, &p.to, 1000));
    mr_udp_send_end(p.client_out, 0);
    assert_true(mr_udp_send_flush(p.client_out));
    for (uint32_t i = 0; i < LENGTHS; i++)
        receive_one(&p.server, p.server_in, &from, lengths[i], (uint8_t)i);
    assert_true(offload == (mr_udp_send_offloaded(p.client_out) > 0));
    for (uint32_t i = 0; i < LENGTHS; i++)
        send_one(p.server_out, &from, lengths[i], (uint8_t)i);
    assert_true(mr_udp_send_flush(p.server_out));
    for (uint32_t i = 0; i < LENGTHS; i++)
        receive_one(&p.client, p.client_in, &none, lengths[i], (uint8_t)i);
    close_pair(&p);
}

TEST(test_both_ways)
{
    check_both_ways("127.0.0.1:0", "127.0.0.1", true);
    check_both_ways("127.0.0.1:0", "127.0.0.1", false);
    /* On a wildcard socket the answer comes from the address that was asked, or the connected peer would not
     * take it. */
    check_both_ways("0.0.0.0:0", "127.0.0.2", true);
    check_both_ways("[::]:0", "127.0.0.3", true);
    check_both_ways("[::1]:0", "::1", true);
    check_both_ways("[::]:0", "::1", false);
}

/* One more than a run has leaves by itself. */
/* It is received as what it is, and neither hides nor repeats the others. */
TEST(test_an_empty_datagram)
{
    struct pair p;
    struct mr_address from = {.port = 0};
    open_pair(&p, "127.0.0.1", "127.0.0.1", true);
    for (uint8_t i = 0; i < 3; i++) {
        send_one(p.client_out, &p.to, 100, i);
        assert_true(mr_udp_send_flush(p.client_out));
        assert_int_equal(send(p.client.fd, "", 0, 0), 0);
    }
    for (uint8_t i = 0; i < 3; i++) {
        receive_one(&p.server, p.server_in, &from, 100, i);
        receive_one(&p.server, p.server_in, &from, 0, 0);
    }
    close_pair(&p);
}

TEST(test_runs)
{
    static const uint32_t bytes_of[] = {64, 1448, 3480, 8968};
    struct pair p;
    struct mr_address from;
    open_pair(&p, "127.0.0.1:0", "127.0.0.1", true);
    for (uint32_t l = 0; l < sizeof(bytes_of) / sizeof(bytes_of[0]); l++) {
        uint32_t bytes = bytes_of[l], run = mr_udp_run_datagrams(bytes);
        uint64_t before = mr_udp_send_offloaded(p.client_out);
        assert_true(run > 1);
        for (uint32_t i = 0; i <= run; i++)
            send_one(p.client_out, &p.to, bytes, (uint8_t)i);
        assert_true(mr_udp_send_flush(p.client_out));
        assert_int_equal(mr_udp_send_offloaded(p.client_out) - before, run);
        for (uint32_t i = 0; i <= run; i++)
            receive_one(&p.server, p.server_in, &from, bytes, (uint8_t)i);
    }
    close_pair(&p);
}

/* More than a batch holds: what is full is handed over by itself. */
TEST(test_many)
{
    enum { ROUNDS = 40, BATCH = 100 };
    struct pair p;
    struct mr_address from;

    open_pair(&p, "127.0.0.1:0", "127.0.0.1", true);
    for (uint32_t n = 0; n < ROUNDS; n++) {
        for (uint32_t i = 0; i < BATCH; i++)
            send_one(p.client_out, &p.to, 1000, (uint8_t)(n + i));
        assert_true(mr_udp_send_flush(p.client_out));
        for (uint32_t i = 0; i < BATCH; i++)
            receive_one(&p.server, p.server_in, &from, 1000, (uint8_t)(n + i));
    }
    for (uint32_t i = 0; i < 300; i++) {
        send_one(p.client_out, &p.to, 8, (uint8_t)i);
        if (i >= 256)
            receive_one(&p.server, p.server_in, &from, 8, (uint8_t)(i - 256));
    }
    close_pair(&p);
}

/* False, and says so: emulation of single programs does not know the path's MTU. */
static bool mtu_there(const struct mr_udp_socket *s)
{
    int mtu;
    socklen_t bytes = sizeof(mtu);
    if (getsockopt(s->fd, IPPROTO_IP, IP_MTU, &mtu, &bytes) == 0 || errno != ENOPROTOOPT)
        return true;
    printf("skipped: the kernel, or what emulates it, does not tell the path's MTU\n");
    return false;
}

TEST(test_measures)
{
    struct mr_udp_options options = {.buffer_bytes = 64 << 10, .udp_bytes_max = 1301};
    struct mr_udp_socket small, whole;
    struct mr_address to;
    char error[256];
    assert_int_equal(mr_address_resolve("127.0.0.1:9", false, &to, error, sizeof(error)), MR_OK);
    assert_int_equal(mr_udp_connect(&to, &options, &small, error, sizeof(error)), MR_OK);
    assert_int_equal(small.udp_bytes_max, 1296);
    assert_true(small.receive_window_bytes <= small.receive_buffer_bytes / 2);
    assert_true(small.receive_buffer_bytes < 128 << 10);
    mr_udp_close(&small);
    options = (struct mr_udp_options){0};
    assert_int_equal(mr_udp_connect(&to, &options, &whole, error, sizeof(error)), MR_OK);
    if (mtu_there(&whole))
        assert_int_equal(whole.udp_bytes_max,
                         MR_UDP_BYTES_MAX); /* loopback's MTU is larger than any packet */
    mr_udp_close(&whole);
}

TEST(test_refused)
{
    struct mr_udp_options options = {0};
    struct mr_udp_socket first, second;
    struct mr_address local;
    char error[256] = "";
    assert_int_equal(mr_address_resolve("127.0.0.1:0", true, &local, error, sizeof(error)), MR_OK);
    assert_int_equal(mr_udp_bind(&local, &options, &first, error, sizeof(error)), MR_OK);
    mr_udp_local(&first, &local);
    assert_int_equal(mr_udp_bind(&local, &options, &second, error, sizeof(error)), MR_BUSY);
    assert_non_null(strstr(error, "in use"));
    mr_udp_close(&first);
}

static void send_many(struct pair *p, uint32_t count, uint32_t bytes)
{
    for (uint32_t i = 0; i < count; i++)
        send_one(p->client_out, &p->to, bytes, 7);
}

/* Loopback delivers before the system call returns, so what is not there was not sent. */
static void expect_just(struct pair *p, uint32_t count, uint32_t bytes)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t got;
    for (uint32_t i = 0; i < count; i++)
        receive_one(&p->server, p->server_in, &from, bytes, 7);
    assert_false(mr_udp_receive_next(p->server_in, &from, &datagram, &got));
    assert_false(mr_udp_receive(p->server_in));
}

TEST(a_kernel_without_ipv6_has_a_wildcard)
{
    struct pair p;
    struct mr_address from;
    char error[256];
    kernel.has_no_ipv6 = true;
    open_pair(&p, ":0", "127.0.0.1:0", true);
    assert_int_equal(p.server.family, AF_INET);
    send_one(p.client_out, &p.to, 40, 7);
    assert_true(mr_udp_send_flush(p.client_out));
    receive_one(&p.server, p.server_in, &from, 40, 7);
    assert_int_equal(from.path[3], 0x0100007f); /* it came in on 127.0.0.1, and is answered from there */
    send_one(p.server_out, &from, 48, 8);
    assert_true(mr_udp_send_flush(p.server_out));
    receive_one(&p.client, p.client_in, &from, 48, 8);
    close_pair(&p);
    open_pair(&p, "both.test:0", "127.0.0.1:0", true); /* ::1, and 127.0.0.1 */
    assert_int_equal(p.server.family, AF_INET);
    close_pair(&p);
    /* What was named is not replaced by another address. */
    const struct mr_udp_options options = {0};
    const struct mr_address named = {.ip = {[15] = 1}, .port = 0};
    assert_int_not_equal(mr_udp_bind(&named, &options, &p.server, error, sizeof(error)), MR_OK);
    kernel.has_no_ipv6 = false;
}

/* Datagrams of a type, by the first bytes of every packet. */
static void answer_many(struct pair *p, const struct mr_address *to, uint8_t type, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *datagram = mr_udp_send_begin(p->server_out, to, 64);
        assert_non_null(datagram);
        memset(datagram, type, 64);
        mr_udp_send_end(p->server_out, 64);
    }
    assert_true(mr_udp_send_flush(p->server_out));
}

static void expect_answers(struct pair *p, uint8_t type, uint32_t count)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t got;
    for (uint32_t i = 0; i < count; i++)
        receive_one(&p->client, p->client_in, &from, 64, type);
    (void)mr_udp_receive(p->client_in);
    assert_false(mr_udp_receive_next(p->client_in, &from, &datagram, &got));
}

/* Answers to who has no session wait for its ARP, and leave half of the buffer to the others. */
TEST(strangers_leave_room_for_the_others)
{
    static const uint8_t to_strangers[] = {MR_PACKET_RETRY, MR_PACKET_RESET, MR_PACKET_VERSION};
    struct pair p;
    struct mr_address client;
    open_pair(&p, "127.0.0.1:0", "127.0.0.1:0", false);
    mr_udp_local(&p.client, &client);
    for (uint32_t i = 0; i < sizeof(to_strangers); i++) {
        const uint64_t before = mr_udp_send_strangers_dropped(p.server_out);
        kernel.sent_bytes = 499;
        answer_many(&p, &client, to_strangers[i], 40);
        expect_answers(&p, to_strangers[i], 40);
        kernel.sent_bytes = 501;
        answer_many(&p, &client, to_strangers[i], 16); /* the kernel is asked for some of them only */
        expect_answers(&p, to_strangers[i],
                       16 - (uint32_t)(mr_udp_send_strangers_dropped(p.server_out) - before));
        answer_many(&p, &client, to_strangers[i], 100);
        expect_answers(&p, to_strangers[i], 0);
        assert_true(mr_udp_send_strangers_dropped(p.server_out) - before > 100);
        answer_many(&p, &client, MR_PACKET_DATA, 20);
        expect_answers(&p, MR_PACKET_DATA, 20);
        kernel.sent_bytes = 1; /* until it is asked again */
        const uint64_t dropped = mr_udp_send_strangers_dropped(p.server_out);
        answer_many(&p, &client, to_strangers[i], 32);
        expect_answers(&p, to_strangers[i],
                       32 - (uint32_t)(mr_udp_send_strangers_dropped(p.server_out) - dropped));
        assert_int_in_range(mr_udp_send_strangers_dropped(p.server_out) - dropped, 0, 16);
    }
    kernel.sent_bytes = 0;
    close_pair(&p);
}

TEST(less_than_half_a_run_waits_for_more)
{
    struct pair p;
    const uint32_t run = mr_udp_run_datagrams(1400);
    open_pair(&p, "127.0.0.1:0", "127.0.0.1:0", true);
    send_many(&p, run + 4, 1400);
    assert_true(mr_udp_send_flush_runs(p.client_out));
    expect_just(&p, run, 1400);
    send_many(&p, run / 2 - 4, 1400);
    assert_true(mr_udp_send_flush_runs(p.client_out));
    expect_just(&p, run / 2, 1400);
    send_many(&p, run / 2 - 1, 1400);
    assert_true(mr_udp_send_flush_runs(p.client_out));
    expect_just(&p, 0, 0);
    assert_true(mr_udp_send_flush(p.client_out));
    expect_just(&p, run / 2 - 1, 1400);
    close_pair(&p);
}

TEST(a_run_that_has_its_shorter_end_does_not_wait)
{
    struct pair p;
    struct mr_address from;
    open_pair(&p, "127.0.0.1:0", "127.0.0.1:0", true);
    send_many(&p, 1, 1400);
    send_many(&p, 1, 200);
    assert_true(mr_udp_send_flush_runs(p.client_out));
    receive_one(&p.server, p.server_in, &from, 1400, 7);
    expect_just(&p, 1, 200);
    close_pair(&p);
}

TEST(without_offload_nothing_waits)
{
    struct pair p;
    open_pair(&p, "127.0.0.1:0", "127.0.0.1:0", false);
    send_many(&p, 3, 1400);
    assert_true(mr_udp_send_flush_runs(p.client_out));
    expect_just(&p, 3, 1400);
    close_pair(&p);
}
