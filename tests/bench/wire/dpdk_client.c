#include "tests/bench/wire/dpdk_client.h"
#include <arpa/inet.h>
#include <rte_ethdev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/port.h"
#include "dataplane/net/arp.h"
#include "dataplane/net/bytes.h"
#include "dataplane/net/frame.h"

#define BURST          8u /* answers lead to new calls at once, so that the two sides do not work by turns */
#define TX_BATCH       64u
#define SEGMENT_BUDGET 64u
#define ARP_EVERY_US   100000u
#define ARP_TRIES      100u

struct dpdk_client {
    struct dp_net net;
    struct dp_port port;
    struct mr_endpoint *endpoint;
    struct mr_address server;
    struct rte_mbuf *tx[TX_BATCH];
    uint32_t tx_count;
    struct rte_mbuf *open;
    struct mr_address open_to;
    bool server_known;
    uint64_t received;
    dpdk_client_seen seen;
    void *seen_arg;
};

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "dpdk_client: %s\n", what);
    exit(1);
}

static bool flush(struct dpdk_client *client)
{
    uint32_t sent = 0;
    if (client->tx_count > 0)
        sent = rte_eth_tx_burst(client->port.id, 0, client->tx, (uint16_t)client->tx_count);
    client->tx_count -= sent;
    memmove((void *)client->tx, (void *)(client->tx + sent), client->tx_count * sizeof(void *));
    return client->tx_count < TX_BATCH;
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct dpdk_client *client = self;
    if (client->tx_count == TX_BATCH && !flush(client))
        return NULL;
    if (client->open == NULL)
        client->open = rte_pktmbuf_alloc(client->port.pools[0]);
    if (client->open == NULL)
        return NULL;
    client->open_to = *to;
    return rte_pktmbuf_mtod_offset(client->open, uint8_t *, dp_frame_header_bytes(to));
}

static void send_open(struct dpdk_client *client, uint32_t bytes)
{
    client->open->data_len = (uint16_t)bytes;
    client->open->pkt_len = bytes;
    client->tx[client->tx_count++] = client->open;
    client->open = NULL;
}

static void tx_end(void *self, uint32_t bytes)
{
    struct dpdk_client *client = self;
    if (bytes == 0)
        return;
    uint8_t *frame = rte_pktmbuf_mtod(client->open, uint8_t *);
    if (client->seen != NULL)
        client->seen(client->seen_arg, frame + dp_frame_header_bytes(&client->open_to), bytes);
    dp_frame_build(&client->net, &client->open_to, frame, bytes, client->port.checksums);
    send_open(client, dp_frame_header_bytes(&client->open_to) + bytes);
}

static void fill_random(void *self, void *out, size_t bytes)
{
    if (getrandom(out, bytes, 0) != (ssize_t)bytes)
        abort();
}

/* ---- who has the server's address ---- */

static void send_arp_request(struct dpdk_client *client)
{
    static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    if (tx_begin(client, &client->server, 0) == NULL)
        return;
    uint8_t *frame = rte_pktmbuf_mtod(client->open, uint8_t *);
    uint8_t *arp = frame + dp_frame_put_ether(&client->net, frame, broadcast, 0, DP_ETHERTYPE_ARP);
    memset(arp, 0, DP_ARP_BYTES);
    memcpy(arp, (const uint8_t[8]){0, 1, 8, 0, 6, 4, 0, 1}, 8);
    memcpy(arp + 8, client->net.mac, 6);
    memcpy(arp + 14, client->net.ipv4, 4);
    memcpy(arp + 24, client->server.ip + 12, 4);
    send_open(client, (uint32_t)(arp - frame) + DP_ARP_BYTES);
}

static void take_arp(struct dpdk_client *client, const struct dp_frame *frame)
{
    const uint8_t *arp = frame->payload;
    struct dp_path path = {.local_port = client->net.udp_port, .local = DP_LOCAL_IPV4};
    if (frame->payload_bytes < DP_ARP_BYTES || dp_get16(arp + 6) != 2 ||
        memcmp(arp + 14, client->server.ip + 12, 4) != 0)
        return;
    memcpy(path.peer_mac, arp + 8, 6);
    dp_path_set(&client->server, &path);
    client->server_known = true;
}

/* ---- the loop ---- */

static void receive(struct dpdk_client *client, const struct rte_mbuf *packet, uint64_t now_us)
{
    struct dp_frame frame = {0};
    struct mr_address from;
    enum dp_verdict verdict = dp_frame_parse(&client->net, rte_pktmbuf_mtod(packet, const uint8_t *),
                                             packet->data_len, (struct dp_checked){0}, &frame);
    if (verdict == DP_FRAME_UDP && client->endpoint != NULL) {
        dp_frame_sender(&frame, &from);
        mr_endpoint_receive(client->endpoint, now_us, &from, frame.payload, frame.payload_bytes);
    } else if (verdict == DP_FRAME_ARP) {
        take_arp(client, &frame);
    }
}

void dpdk_client_turn(struct dpdk_client *client)
{
    struct rte_mbuf *packets[BURST];
    uint64_t now_us = dp_now_us();
    uint16_t count = rte_eth_rx_burst(client->port.id, 0, packets, BURST);
    client->received += count;
    for (uint16_t i = 0; i < count; i++)
        receive(client, packets[i], now_us);
    rte_pktmbuf_free_bulk(packets, count);
    if (client->endpoint != NULL)
        (void)mr_endpoint_poll(client->endpoint, now_us, SEGMENT_BUDGET);
    (void)flush(client);
}

static void find_server(struct dpdk_client *client)
{
    for (uint32_t i = 0; i < ARP_TRIES && !client->server_known; i++) {
        uint64_t start_us = dp_now_us();
        send_arp_request(client);
        while (!client->server_known && dp_now_us() - start_us < ARP_EVERY_US)
            dpdk_client_turn(client);
    }
    if (!client->server_known)
        give_up("nobody answers for the server's address");
}

struct dpdk_client *dpdk_client_create(const struct dp_config *config,
                                       const struct mr_endpoint_config *endpoint, const char *server_ipv4,
                                       uint16_t server_port)
{
    struct dpdk_client *client = calloc(1, sizeof(*client));
    struct mr_endpoint_config wire = *endpoint;
    char error[DP_ERROR_BYTES];
    bool hugepages;
    if (client == NULL)
        give_up("no memory");
    client->server.port = server_port;
    client->server.ip[10] = client->server.ip[11] = 0xff;
    if (inet_pton(AF_INET, server_ipv4, client->server.ip + 12) != 1)
        give_up("the server's address is none of IPv4");
    if (!dp_net_from_config(&client->net, config, error) || !dp_eal_start(config, &hugepages, error) ||
        !dp_port_open(&client->port, config, &client->net, error))
        give_up(error);
    find_server(client);
    wire.io = (struct mr_endpoint_io){
        .self = client, .tx_begin = tx_begin, .tx_end = tx_end, .random = fill_random};
    wire.udp_bytes_max = dp_net_udp_bytes_max(&client->net);
    fill_random(NULL, wire.client_uuid, sizeof(wire.client_uuid));
    if (mr_endpoint_create(&wire, &client->endpoint) != MR_OK)
        give_up("the endpoint does not start");
    return client;
}

void dpdk_client_destroy(struct dpdk_client *client)
{
    mr_endpoint_destroy(client->endpoint);
    rte_pktmbuf_free_bulk(client->tx, client->tx_count);
    rte_pktmbuf_free(client->open);
    dp_port_close(&client->port);
    dp_eal_stop();
    free(client);
}

struct mr_endpoint *dpdk_client_endpoint(struct dpdk_client *client)
{
    return client->endpoint;
}

const struct mr_address *dpdk_client_server(const struct dpdk_client *client)
{
    return &client->server;
}

uint64_t dpdk_client_received(const struct dpdk_client *client)
{
    return client->received;
}

void dpdk_client_watch(struct dpdk_client *client, dpdk_client_seen seen, void *arg)
{
    client->seen = seen;
    client->seen_arg = arg;
}

bool dpdk_client_inject(struct dpdk_client *client, uint16_t core, const struct dp_net *as,
                        uint16_t source_port, const uint8_t *datagram, uint32_t bytes)
{
    struct mr_address to = client->server;
    to.port = (uint16_t)(to.port + core);
    uint32_t header_bytes = dp_frame_header_bytes(&to);
    struct dp_path path;
    if (tx_begin(client, &to, bytes) == NULL)
        return false;
    uint8_t *frame = rte_pktmbuf_mtod(client->open, uint8_t *);
    if (source_port != 0) {
        dp_path_get(&to, &path);
        path.local_port = source_port;
        dp_path_set(&to, &path);
    }
    memcpy(frame + header_bytes, datagram, bytes);
    dp_frame_build(as != NULL ? as : &client->net, &to, frame, bytes, client->port.checksums);
    send_open(client, header_bytes + bytes);
    return true;
}
