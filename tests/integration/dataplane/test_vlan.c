/* Tagged frames over a packet socket: not every kernel has VLAN interfaces. */
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dataplane/net/arp.h"
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"
#include "tests/integration/dataplane/echo_fixture.h"
#include "tests/test.h"

#define VLAN        42
#define FRAME_BYTES 2048
#define ANSWER_MS   60000

static const uint8_t server_ipv4[4] = {10, 99, 0, 1};
static const struct dp_net client = {
    .mac = {0x02, 0, 0, 0, 0, 0x22}, .has_ipv4 = true, .ipv4 = {10, 99, 0, 22}};

static int packet_socket(void)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = 0x0300 /* ETH_P_ALL in network order */,
                                  .sll_ifindex = (int)if_nametoindex(NETNS_CLIENT_IF)};
    struct packet_mreq everything = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), on = 1;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)), 0);
    assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof(everything)), 0);
    return fd;
}

/* The kernel has taken the tag out of the frame and tells it beside; -1 = none. */
static int tag_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        struct tpacket_auxdata aux;
        if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA)
            continue;
        memcpy(&aux, CMSG_DATA(c), sizeof(aux));
        if ((aux.tp_status & TP_STATUS_VLAN_VALID) != 0)
            return aux.tp_vlan_tci;
    }
    return -1;
}

/* Waits for a frame to the client's MAC address of that EtherType; returns its tag, -1 when it has none. */
static int receive(int fd, uint16_t ether_type, uint8_t *frame)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    for (;;) {
        char control[256];
        struct iovec iov = {.iov_base = frame, .iov_len = FRAME_BYTES};
        struct msghdr message = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        assert_int_equal(poll(&readable, 1, ANSWER_MS), 1);
        assert_true(recvmsg(fd, &message, 0) > 0);
        if (memcmp(frame, client.mac, 6) == 0 && dp_get16(frame + 12) == ether_type)
            return tag_of(&message);
    }
}

static void ask_arp(int fd, uint16_t tci)
{
    static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    uint8_t frame[DP_ARP_ANSWER_BYTES_MAX] = {0};
    uint8_t *arp = frame + dp_frame_put_ether(&client, frame, broadcast, tci, DP_ETHERTYPE_ARP);
    memcpy(arp, (const uint8_t[8]){0, 1, 8, 0, 6, 4, 0, 1}, 8);
    memcpy(arp + 8, client.mac, 6);
    memcpy(arp + 14, client.ipv4, 4);
    memcpy(arp + 24, server_ipv4, 4);
    size_t bytes = (size_t)(arp - frame) + DP_ARP_BYTES;
    assert_int_equal(send(fd, frame, bytes, 0), bytes);
}

static void ask_ping(int fd, const uint8_t *server_mac, uint16_t tci)
{
    uint8_t frame[FRAME_BYTES] = {0};
    uint8_t *at = frame + dp_frame_put_ether(&client, frame, server_mac, tci, DP_ETHERTYPE_IPV4);
    at += dp_frame_put_ipv4(at, client.ipv4, server_ipv4, DP_PROTOCOL_ICMP, 16);
    at[0] = 8;
    dp_checksum_store(at + 2, dp_checksum_add(0, at, 16), 0);
    size_t bytes = (size_t)(at - frame) + 16;
    assert_int_equal(send(fd, frame, bytes, 0), bytes);
}

static void answers_carry_the_tag(const char *arguments)
{
    uint8_t frame[FRAME_BYTES] = {0};
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, arguments);
    netns_enter(&f.net, NETNS_CLIENT);
    int fd = packet_socket();
    ask_arp(fd, 0);
    ask_arp(fd, VLAN + 1);
    ask_arp(fd, VLAN);
    /* The first answer to come is the tagged one: the others were not for this VLAN. */
    assert_int_equal(receive(fd, DP_ETHERTYPE_ARP, frame), VLAN);
    uint8_t server_mac[6];
    memcpy(server_mac, frame + 6, 6);
    ask_ping(fd, server_mac, VLAN);
    assert_int_equal(receive(fd, DP_ETHERTYPE_IPV4, frame), VLAN);
    assert_int_equal(frame[DP_ETHER_BYTES + DP_IPV4_BYTES], 0);
    close(fd);
    echo_fixture_stop(&f, 1);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.rx_arp"), 1);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.rx_icmp"), 1);
    assert_true(echo_fixture_counter(&f, 0, "port.rx_not_mine") >= 2);
}

TEST(answers_carry_the_tag_over_af_packet)
{
    answers_carry_the_tag("--driver af_packet --vlan 42");
}

TEST(answers_carry_the_tag_over_af_xdp)
{
    answers_carry_the_tag("--driver af_xdp --vlan 42");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_vlan <path of echo_server>\n");
        return 2;
    }
    echo_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
