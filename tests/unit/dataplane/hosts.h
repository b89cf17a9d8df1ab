/* Two hosts for the data plane's tests: a server, and a client that makes frames with the same code. */
#ifndef TESTS_HOSTS_H
#define TESTS_HOSTS_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/net/frame.h"

#define FRAME_BYTES_MAX 2048u
#define SERVER_PORT     7700u
#define CLIENT_PORT     40000u

static inline struct dp_net host_make(uint8_t number, uint16_t vlan)
{
    struct dp_net net = {.has_ipv4 = true,
                         .has_ipv6 = true,
                         .ipv4 = {10, 0, 0, number},
                         .ipv6 = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, number},
                         .vlan = vlan,
                         .mtu = 1500,
                         .udp_port = SERVER_PORT,
                         .core_count = 3};
    dp_net_set_mac(&net, (const uint8_t[6]){0x02, 0, 0, 0, 0, number});
    return net;
}

static inline struct dp_net server_make(void)
{
    return host_make(1, 0);
}

/* The client's way to the server's address `local`, UDP port `port`. */
static inline struct mr_address way_to(const struct dp_net *server, enum dp_local local, uint16_t port)
{
    struct dp_path path = {.tci = server->vlan, .local_port = CLIENT_PORT, .local = (uint8_t)local};
    struct mr_address to = {.port = port};
    memcpy(path.peer_mac, server->mac, 6);
    if (local == DP_LOCAL_IPV4) {
        to.ip[10] = to.ip[11] = 0xff;
        memcpy(to.ip + 12, server->ipv4, 4);
    } else {
        memcpy(to.ip, dp_net_address(server, local), 16);
    }
    dp_path_set(&to, &path);
    return to;
}

/* A datagram from client 2 to the server; returns the frame's length. */
static inline size_t datagram_make(uint8_t *frame, const struct dp_net *server, enum dp_local local,
                                   uint16_t port, const void *payload, uint32_t payload_bytes)
{
    struct dp_net client = host_make(2, server->vlan);
    struct mr_address to = way_to(server, local, port);
    uint32_t header_bytes = dp_frame_header_bytes(&to);
    memcpy(frame + header_bytes, payload, payload_bytes);
    dp_frame_build(&client, &to, frame, payload_bytes, DP_CHECKSUMS_HERE);
    return header_bytes + payload_bytes;
}

static inline enum dp_verdict hosts_parse(const struct dp_net *server, const uint8_t *frame, size_t bytes,
                                          struct dp_frame *out)
{
    return dp_frame_parse(server, frame, bytes, (struct dp_checked){0}, out);
}

/* The verdict over a copy of exactly the frame's length, so that AddressSanitizer sees every byte read beyond
 * it. */
static inline enum dp_verdict verdict_of(const struct dp_net *server, const uint8_t *frame, size_t bytes)
{
    uint8_t *copy = malloc(bytes + (bytes == 0));
    struct dp_frame out;
    assert(copy != NULL);
    memcpy(copy, frame, bytes);
    enum dp_verdict verdict = hosts_parse(server, copy, bytes, &out);
    free(copy);
    return verdict;
}

#endif
