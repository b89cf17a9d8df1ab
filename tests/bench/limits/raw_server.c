/* The limit that the port sets: a UDP server straight on the DPDK port, without the transport.
 *
 *   raw_server echo   [options]   every datagram goes back as it came
 *   raw_server blast  [options]   a datagram holding u32 {packets, payload bytes} is answered with so many
 *                                 datagrams
 *
 * Options as server_options.h has them. Prints "ready driver=..." once it serves; ends on SIGTERM. */
#include <rte_ethdev.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/port.h"
#include "dataplane/net/arp.h"
#include "dataplane/net/frame.h"
#include "dataplane/net/nd.h"
#include "tests/integration/dataplane/server_options.h"

#define BURST             32u
#define TX_BATCH          64u
#define BLAST_PACKETS_MAX 65536u

struct server {
    struct dp_net net;
    struct dp_port port;
    struct rte_mbuf *tx[TX_BATCH];
    uint16_t tx_count;
    bool blast;
};

static volatile sig_atomic_t stop_requested;

static void on_signal(int signal)
{
    stop_requested = signal;
}

static void flush(struct server *server)
{
    uint16_t sent = 0;
    while (sent < server->tx_count && !stop_requested)
        sent = (uint16_t)(sent + rte_eth_tx_burst(server->port.id, 0, server->tx + sent,
                                                  (uint16_t)(server->tx_count - sent)));
    rte_pktmbuf_free_bulk(server->tx + sent, (unsigned)(server->tx_count - sent));
    server->tx_count = 0;
}

static void queue(struct server *server, struct rte_mbuf *packet, uint32_t bytes)
{
    packet->data_len = (uint16_t)bytes;
    packet->pkt_len = bytes;
    server->tx[server->tx_count++] = packet;
    if (server->tx_count == TX_BATCH)
        flush(server);
}

static struct rte_mbuf *new_packet(struct server *server)
{
    struct rte_mbuf *packet = rte_pktmbuf_alloc(server->port.pools[0]);
    while (packet == NULL && !stop_requested) {
        flush(server);
        packet = rte_pktmbuf_alloc(server->port.pools[0]);
    }
    return packet;
}

/* One datagram of the fill bytes, or of `copy`. */
static void send_datagram(struct server *server, const struct mr_address *to, const uint8_t *copy,
                          uint32_t bytes)
{
    struct rte_mbuf *packet = new_packet(server);
    uint32_t header_bytes = dp_frame_header_bytes(to);
    if (packet == NULL)
        return;
    uint8_t *frame = rte_pktmbuf_mtod(packet, uint8_t *);
    if (copy != NULL)
        memcpy(frame + header_bytes, copy, bytes);
    else
        memset(frame + header_bytes, 0x5a, bytes);
    dp_frame_build(&server->net, to, frame, bytes, server->port.checksums);
    queue(server, packet, header_bytes + bytes);
}

static void serve_datagram(struct server *server, const struct dp_frame *frame)
{
    struct mr_address to;
    uint32_t order[2] = {0, 0};
    dp_frame_sender(frame, &to);
    if (!server->blast) {
        send_datagram(server, &to, frame->payload, frame->payload_bytes);
        return;
    }
    if (frame->payload_bytes >= sizeof(order))
        memcpy(order, frame->payload, sizeof(order));
    if (order[0] > BLAST_PACKETS_MAX || order[1] > dp_net_udp_bytes_max(&server->net))
        return;
    for (uint32_t i = 0; i < order[0] && !stop_requested; i++)
        send_datagram(server, &to, NULL, order[1]);
}

static void serve(struct server *server, const struct rte_mbuf *packet)
{
    const struct dp_checked unchecked = {0};
    enum dp_verdict why;
    struct dp_frame frame;
    uint32_t bytes = 0;
    enum dp_verdict verdict = dp_frame_parse(&server->net, rte_pktmbuf_mtod(packet, const uint8_t *),
                                             packet->data_len, unchecked, &frame);
    if (verdict == DP_FRAME_UDP) {
        serve_datagram(server, &frame);
        return;
    }
    if (verdict != DP_FRAME_ARP && !(verdict == DP_FRAME_ICMPV6 && dp_nd_is_solicitation(&frame)))
        return;
    struct rte_mbuf *answer = new_packet(server);
    if (answer == NULL)
        return;
    uint8_t *out = rte_pktmbuf_mtod(answer, uint8_t *);
    bytes = verdict == DP_FRAME_ARP ? dp_arp_answer(&server->net, &frame, out, &why)
                                    : dp_nd_answer(&server->net, &frame, out, &why);
    if (bytes > 0)
        queue(server, answer, bytes);
    else
        rte_pktmbuf_free(answer);
}

static void loop(struct server *server)
{
    struct rte_mbuf *packets[BURST];
    while (!stop_requested) {
        uint16_t count = rte_eth_rx_burst(server->port.id, 0, packets, BURST);
        for (uint16_t i = 0; i < count; i++)
            serve(server, packets[i]);
        rte_pktmbuf_free_bulk(packets, count);
        flush(server);
        if (count == 0 && server->port.kernel_driven)
            (void)sched_yield();
    }
}

int main(int argc, char **argv)
{
    static struct server server;
    char error[DP_ERROR_BYTES];
    struct dp_config config;
    bool hugepages;
    if (argc < 2 || (strcmp(argv[1], "echo") != 0 && strcmp(argv[1], "blast") != 0)) {
        fprintf(stderr, "usage: raw_server echo|blast [--driver af_xdp] [--device server0] ...\n");
        return 2;
    }
    server.blast = strcmp(argv[1], "blast") == 0;
    if (server_options_parse(argc - 1, argv + 1, &config) != argc - 1) {
        fprintf(stderr, "unknown option; see server_options.h\n");
        return 2;
    }
    if (!dp_net_from_config(&server.net, &config, error) || !dp_eal_start(&config, &hugepages, error) ||
        !dp_port_open(&server.port, &config, &server.net, error)) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    printf("ready driver=%s mtu=%u\n", dp_port_driver_text(server.port.driver), server.net.mtu);
    fflush(stdout);
    loop(&server);
    dp_port_close(&server.port);
    dp_eal_stop();
    return 0;
}
