/* Garbage, cut, changed and repeated datagrams: each counted under its reason, none answered (but a HELLO of
 * another version), nothing done twice, and the server goes on serving. Sent by a stranger's socket, or as
 * frames put on the cable as they were seen there. */
#include <errno.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dataplane/wire/format/packet.h"
#include "dataplane/wire/session/auth.h"
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { PORT = 7700, DIM = 4, REPEATS = 8, FRAMES_MAX = 64, FRAME_BYTES = 2048, KEYS = 50, NOISE = 500 };

#define HEADERS_BYTES (sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr))

struct frame {
    uint8_t bytes[FRAME_BYTES];
    size_t size;
};

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    int stranger; /* a UDP socket of nobody's session */
    int cable;    /* AF_PACKET on the client's end */
    struct frame frames[FRAMES_MAX];
    uint32_t frame_count;
};

static int open_stranger(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(inet_pton(AF_INET, NETNS_SERVER_IPV4, &to.sin_addr), 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static int open_cable(void)
{
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(NETNS_CLIENT_IF)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static int set_up(void **state)
{
    static struct fixture x;
    struct mr_feature table = mr_feature_table("rows", DIM);
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, 1, NULL);
    x.client = node_fixture_connect(&x.node);
    table.learning_rate = 1;
    assert_int_equal(mr_create(x.client, NULL, &table, 1, &x.table), MR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        x.keys[i] = i;
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, KEYS, NULL), MR_OK);
    x.stranger = open_stranger();
    x.cable = open_cable();
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    close(x->stranger);
    close(x->cable);
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

/* Every row, and so the whole table, has learnt `pushes` times. */
static void check_pushed(struct fixture *x, uint32_t pushes)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[i] == -(float)pushes);
    mr_reply_free(reply);
}

static void garbage_push(struct fixture *x)
{
    float gradients[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = 1;
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, x->keys, KEYS, DIM, gradients), MR_OK);
}

/* The server has counted all of them. Its replies come after what it would have sent before. */
static void wait_counted(struct fixture *x, const char *counter, uint64_t target)
{
    (void)WAIT_WITHIN(WAIT_LIMIT_S, node_fixture_counter(x->client, 0, counter) >= target);
    assert_int_equal(node_fixture_counter(x->client, 0, counter), target);
}

static void assert_no_answer(const struct fixture *x)
{
    uint8_t byte;
    assert_int_equal(recv(x->stranger, &byte, sizeof(byte), MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN); /* not ECONNREFUSED either: no ICMP error came */
}

/* Sent REPEATS times, it is counted as often under that reason and under no other. */
static void expect_dropped(struct fixture *x, const void *datagram, size_t bytes, const char *counter)
{
    uint64_t before = node_fixture_counter(x->client, 0, counter);
    for (uint32_t i = 0; i < REPEATS; i++)
        assert_int_equal(send(x->stranger, datagram, bytes, 0), bytes);
    wait_counted(x, counter, before + REPEATS);
    assert_no_answer(x);
    check_pushed(x, 0);
}

/* ---- datagrams made here ---- */

static struct mr_packet_header header_of(enum mr_packet_type type, uint16_t payload_bytes)
{
    return (struct mr_packet_header){.magic = MR_MAGIC,
                                     .version = MR_PROTOCOL_VERSION,
                                     .type = (uint8_t)type,
                                     .payload_bytes = payload_bytes};
}

TEST(test_no_packets, set_up, tear_down)
{
    struct fixture *x = *state;
    uint8_t noise[1400];
    struct mr_packet_header h = header_of(MR_PACKET_PING, 0);
    for (uint32_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 151 + 3);
    expect_dropped(x, noise, 0, "wire.drop_short");
    expect_dropped(x, noise, 1, "wire.drop_short");
    expect_dropped(x, &h, sizeof(h) - 1, "wire.drop_short");
    expect_dropped(x, noise, sizeof(noise), "wire.drop_magic");
    h.version = MR_PROTOCOL_VERSION + 1;
    expect_dropped(x, &h, sizeof(h), "wire.drop_version");
    h = header_of(MR_PACKET_TYPE_END, 0);
    expect_dropped(x, &h, sizeof(h), "wire.drop_type");
    h = header_of(MR_PACKET_PING, 0);
    h.flags = MR_FLAG_BUNDLE;
    expect_dropped(x, &h, sizeof(h), "wire.drop_type");
    h = header_of(MR_PACKET_DATA, 100); /* longer than the datagram */
    expect_dropped(x, &h, sizeof(h), "wire.drop_short");
    h = header_of(MR_PACKET_RETRY, 0); /* without what it must carry */
    expect_dropped(x, &h, sizeof(h), "wire.drop_range");
}

/* What clients of other versions send at first is answered with the version that is spoken here. */
TEST(test_other_versions, set_up, tear_down)
{
    struct fixture *x = *state;
    uint8_t hello[48 + 128]; /* version 3's length */
    uint64_t before = node_fixture_counter(x->client, 0, "wire.hellos_other_version");
    struct pollfd wait = {.fd = x->stranger, .events = POLLIN};
    for (uint32_t i = 0; i < sizeof(hello); i++)
        hello[i] = (uint8_t)(i * 151 + 3);
    for (uint32_t n = 0; n < REPEATS; n++) {
        const struct mr_packet_header h = header_of(MR_PACKET_HELLO, sizeof(hello) - 48);
        struct mr_version_answer answer;
        memcpy(hello, &h, 8);
        hello[2] = (uint8_t)(n % 2 == 0 ? 3 : MR_PROTOCOL_VERSION + 1);
        assert_int_equal(send(x->stranger, hello, sizeof(hello), 0), sizeof(hello));
        assert_int_equal(poll(&wait, 1, NODE_READY_MS), 1);
        assert_int_equal(recv(x->stranger, &answer, sizeof(answer), MSG_TRUNC), sizeof(answer));
        assert_int_equal(answer.magic, MR_MAGIC);
        assert_int_equal(answer.version, MR_PROTOCOL_VERSION);
        assert_int_equal(answer.type, MR_PACKET_VERSION);
        assert_int_equal(answer.asked, hello[2]);
        assert_memory_equal(answer.echo, hello + 8, sizeof(answer.echo));
    }
    wait_counted(x, "wire.hellos_other_version", before + REPEATS);
    hello[3] = MR_PACKET_VERSION; /* an answer gets none */
    expect_dropped(x, hello, sizeof(hello), "wire.drop_version");
}

struct hello_packet {
    struct mr_packet_header header;
    struct mr_hello hello;
};

/* As it would be with the tag that it should have. */
static struct hello_packet tagged(struct hello_packet p, const struct mr_auth *auth)
{
    mr_tag_write(&auth->hello_key, (uint8_t *)&p, sizeof(p));
    return p;
}

static struct hello_packet good_hello(const struct mr_auth *auth)
{
    struct hello_packet p = {.header = header_of(MR_PACKET_HELLO, sizeof(p.hello)),
                             .hello = {.client_uuid = {9, 8, 7},
                                       .boot_nonce = 1,
                                       .client_nonce = 2,
                                       .key_id = auth->key_id,
                                       .receive_buffer_bytes = 1 << 20,
                                       .udp_bytes_max = MR_UDP_BYTES_MIN,
                                       .window = 8}};
    p.header.call_id = p.hello.client_nonce;
    return tagged(p, auth);
}

TEST(test_hellos, set_up, tear_down)
{
    struct fixture *x = *state;
    uint8_t other_key[MR_PSK_BYTES] = {1, 2, 3};
    struct mr_auth none, other;
    struct hello_packet p;
    mr_auth_init(&none, NULL);
    mr_auth_init(&other, other_key);
    p = good_hello(&other); /* a key that the server does not have */
    expect_dropped(x, &p, sizeof(p), "wire.drop_proof");
    p = good_hello(&none);
    p.header.tag ^= 1;
    expect_dropped(x, &p, sizeof(p), "wire.drop_tag");
    p = good_hello(&none);
    p.hello.window++; /* after it was tagged */
    expect_dropped(x, &p, sizeof(p), "wire.drop_tag");
    p.hello.window = MR_WINDOW_MAX + 1;
    p = tagged(p, &none);
    expect_dropped(x, &p, sizeof(p), "wire.drop_range");
    p = good_hello(&none);
    p.hello.cookie[0] = 1; /* of nobody's making */
    p = tagged(p, &none);
    expect_dropped(x, &p, sizeof(p), "wire.drop_cookie");
    expect_dropped(x, &p, sizeof(p) - 8, "wire.drop_short");
}

/* The same is answered when it is good, and with no more than was sent: the checks above check something. */
TEST(test_a_good_hello, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_auth none;
    uint8_t answer[MR_UDP_BYTES_MAX];
    struct hello_packet p;
    ssize_t bytes;
    mr_auth_init(&none, NULL);
    p = good_hello(&none);
    assert_int_equal(send(x->stranger, &p, sizeof(p), 0), sizeof(p));
    bytes = recv(x->stranger, answer, sizeof(answer), 0);
    assert_int_in_range(bytes, MR_HEADER_BYTES, sizeof(p));
    assert_int_equal(answer[3], MR_PACKET_RETRY);
}

/* ---- what was seen on the cable ---- */

static bool is_to_server(const struct frame *f)
{
    struct iphdr ip;
    struct udphdr udp;
    if (f->size < HEADERS_BYTES + MR_HEADER_BYTES)
        return false;
    memcpy(&ip, f->bytes + sizeof(struct ethhdr), sizeof(ip));
    memcpy(&udp, f->bytes + sizeof(struct ethhdr) + sizeof(ip), sizeof(udp));
    return f->bytes[12] == 0x08 && f->bytes[13] == 0 && ip.protocol == IPPROTO_UDP && ntohs(udp.dest) == PORT;
}

static void forget_frames(struct fixture *x)
{
    uint8_t byte;
    while (recv(x->cable, &byte, sizeof(byte), MSG_DONTWAIT) >= 0) {
    }
    x->frame_count = 0;
}

static void take_frames(struct fixture *x)
{
    for (;;) {
        struct frame *f = &x->frames[x->frame_count];
        ssize_t bytes = recv(x->cable, f->bytes, sizeof(f->bytes), MSG_DONTWAIT);
        if (bytes < 0)
            return;
        f->size = (size_t)bytes;
        if (is_to_server(f) && x->frame_count + 1 < FRAMES_MAX)
            x->frame_count++;
    }
}

static uint32_t count_of_type(const struct fixture *x, enum mr_packet_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < x->frame_count; i++)
        count += x->frames[i].bytes[HEADERS_BYTES + 3] == type;
    return count;
}

static void replay(struct fixture *x)
{
    for (uint32_t i = 0; i < x->frame_count; i++)
        assert_int_equal(send(x->cable, x->frames[i].bytes, x->frames[i].size, 0), x->frames[i].size);
}

/* Frame by frame, as their sender sent them: nobody can tell, and a push is applied once all the same. */
TEST(test_repeated_frames, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t served;
    forget_frames(x);
    garbage_push(x);
    take_frames(x);
    assert_true(count_of_type(x, MR_PACKET_DATA) > 0);
    served = node_fixture_counter(x->client, 0, "ps.pushes_applied");
    for (uint32_t i = 0; i < REPEATS; i++) {
        replay(x);
        check_pushed(x, 1); /* a call of the client's own, behind them */
    }
    assert_int_equal(node_fixture_counter(x->client, 0, "ps.pushes_applied"), served);
    garbage_push(x);
    check_pushed(x, 2);
    replay(x); /* the slot has another call now */
    check_pushed(x, 2);
    assert_int_equal(node_fixture_counter(x->client, 0, "wire.drop_repeated"),
                     (REPEATS + 1) * x->frame_count);
}

/* The same datagrams from another address are nobody's. */
TEST(test_stolen_datagrams, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t before;
    uint32_t count;
    forget_frames(x);
    garbage_push(x);
    take_frames(x);
    count = x->frame_count;
    assert_true(count > 0);
    before = node_fixture_counter(x->client, 0, "wire.drop_session");
    for (uint32_t i = 0; i < count; i++)
        assert_true(
            send(x->stranger, x->frames[i].bytes + HEADERS_BYTES, x->frames[i].size - HEADERS_BYTES, 0) > 0);
    wait_counted(x, "wire.drop_session", before + count);
    assert_no_answer(x);
    check_pushed(x, 1);
}

static uint16_t folded(uint32_t sum)
{
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Gives the packet a number that has not come yet: else that would tell, before all the rest. */
static void renumber(struct frame *f)
{
    f->bytes[HEADERS_BYTES + offsetof(struct mr_packet_header, number) + 4] ^= 1;
}

/* Cuts the last `bytes` off a frame's payload and fixes lengths and checksums, so that only what is inside is
 * wrong. */
static void cut(struct frame *f, uint16_t bytes)
{
    struct iphdr ip;
    struct udphdr udp;
    uint16_t words[sizeof(ip) / 2];
    uint32_t sum = 0;
    memcpy(&ip, f->bytes + sizeof(struct ethhdr), sizeof(ip));
    memcpy(&udp, f->bytes + sizeof(struct ethhdr) + sizeof(ip), sizeof(udp));
    f->size -= bytes;
    ip.tot_len = htons((uint16_t)(ntohs(ip.tot_len) - bytes));
    udp.len = htons((uint16_t)(ntohs(udp.len) - bytes));
    udp.check = 0; /* none */
    ip.check = 0;
    memcpy(words, &ip, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        sum += words[i];
    ip.check = (uint16_t)~folded(sum);
    memcpy(f->bytes + sizeof(struct ethhdr), &ip, sizeof(ip));
    memcpy(f->bytes + sizeof(struct ethhdr) + sizeof(ip), &udp, sizeof(udp));
}

/* In the session's own name, but cut: the length in the header shows it, and where that is fixed, the tag
 * does. */
TEST(test_cut_datagrams, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t before_short = node_fixture_counter(x->client, 0, "wire.drop_short");
    uint64_t before_tag = node_fixture_counter(x->client, 0, "wire.drop_tag");
    uint32_t count;
    forget_frames(x);
    garbage_push(x);
    take_frames(x);
    count = 0;
    for (uint32_t i = 0; i < x->frame_count; i++) {
        struct frame *f = &x->frames[i];
        uint16_t payload_bytes;
        memcpy(&payload_bytes, f->bytes + HEADERS_BYTES + 6, sizeof(payload_bytes));
        if (f->bytes[HEADERS_BYTES + 3] != MR_PACKET_DATA || payload_bytes <= 8)
            continue;
        cut(f, 8);
        renumber(f);
        assert_int_equal(send(x->cable, f->bytes, f->size, 0), f->size);
        payload_bytes = (uint16_t)(payload_bytes - 8);
        memcpy(f->bytes + HEADERS_BYTES + 6, &payload_bytes, sizeof(payload_bytes));
        assert_int_equal(send(x->cable, f->bytes, f->size, 0), f->size);
        count++;
    }
    assert_true(count > 0);
    wait_counted(x, "wire.drop_short", before_short + count);
    wait_counted(x, "wire.drop_tag", before_tag + count);
    check_pushed(x, 1);
}

/* A guess has the right session and the right address, and not the key: the tag tells. A wrong session is
 * told before. */
TEST(test_forged_datagrams, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t before_tag = node_fixture_counter(x->client, 0, "wire.drop_tag");
    uint64_t before_session, resets = node_fixture_counter(x->client, 0, "wire.resets_sent");
    uint32_t count;
    forget_frames(x);
    garbage_push(x);
    take_frames(x);
    count = x->frame_count;
    assert_true(count > 0);
    before_session = node_fixture_counter(x->client, 0, "wire.drop_session");
    for (uint32_t i = 0; i < count; i++) {
        struct frame *f = &x->frames[i];
        cut(f, 0); /* no checksum: it would tell first */
        renumber(f);
        f->bytes[HEADERS_BYTES + MR_HEADER_BYTES - 1 - i % 8] ^= 1;
        assert_int_equal(send(x->cable, f->bytes, f->size, 0), f->size);
        f->bytes[HEADERS_BYTES + offsetof(struct mr_packet_header, session_id) + 2 + i % 6] ^= 0x40;
        assert_int_equal(send(x->cable, f->bytes, f->size, 0), f->size);
    }
    wait_counted(x, "wire.drop_tag", before_tag + count);
    wait_counted(x, "wire.drop_session", before_session + count);
    assert_int_equal(node_fixture_counter(x->client, 0, "wire.resets_sent"), resets);
    check_pushed(x, 1);
}

static void assert_serving(struct fixture *x)
{
    uint8_t data[64] = {1, 2, 3};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct mr_reply *reply;
    assert_int_equal(mr_echo(x->client, NULL, 0, &tensor, 1, &reply), MR_OK);
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, data, sizeof(data));
    mr_reply_free(reply);
}

/* One byte of each frame of a push changed, place after place; then frames of nothing but noise. */
TEST(test_noise, set_up, tear_down)
{
    struct fixture *x = *state;
    uint8_t noise[1500];
    uint64_t random = 12345;
    forget_frames(x);
    garbage_push(x);
    take_frames(x);
    for (uint32_t n = 0; n < NOISE && x->frame_count > 0; n++) {
        struct frame f = x->frames[n % x->frame_count];
        size_t place = sizeof(struct ethhdr) + n % (HEADERS_BYTES + MR_HEADER_BYTES - sizeof(struct ethhdr));
        f.bytes[place] = (uint8_t)(f.bytes[place] + 1 + n / 100);
        assert_int_equal(send(x->cable, f.bytes, f.size, 0), f.size);
    }
    assert_serving(x);
    for (uint32_t n = 0; n < NOISE; n++) {
        size_t bytes = sizeof(struct ethhdr) + n * 2 % (sizeof(noise) - sizeof(struct ethhdr));
        for (size_t i = 0; i < bytes; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            noise[i] = (uint8_t)(random >> 56);
        }
        memcpy(noise, x->frames[0].bytes,
               n % (HEADERS_BYTES + MR_HEADER_BYTES)); /* more and more of it right */
        assert_true(send(x->cable, noise, bytes, 0) > 0);
    }
    assert_serving(x);
    check_pushed(x, 1);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_garbage MILLRACED\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
