#include "dataplane/loop/socket_port.h"
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "dataplane/dpdk/netdev.h"
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"
#include "dataplane/udp/udp_socket.h"
#include "dataplane/wire/endpoint.h"

#define BUFFER_BYTES  (16u << 20) /* of a socket, each way */
#define CALLS_AT_ONCE 4u          /* large ones whose packets all fit in the buffer */

struct dp_socket_port {
    struct mr_udp_socket socket;
    struct mr_udp_receiver *receiver;
    struct mr_udp_sender *shorts; /* whole messages and reports, which never wait */
    /* Segments of long messages, which wait for each other while more of them come: a run of 60 KB costs
     * little more than a run of a few. */
    struct mr_udp_sender *segments;
    struct mr_udp_sender *open; /* the one that has the open datagram */
    struct mr_address open_to;
    uint8_t *open_bytes;
    uint32_t written;          /* datagrams since the last flush */
    uint32_t segments_written; /* among them */
    uint32_t segment_bytes;    /* of the last one that did not end its message */
    bool message_ended;        /* by one of them */
    bool full;
    uint32_t dropped; /* as the kernel counts: it wraps */
    struct dp_socket_counters counters;
    struct dp_capture *capture;   /* NULL: nothing is captured */
    struct mr_address ipv4, ipv6; /* local addresses in its records */
};

static const struct mr_counter counters[] = {DP_SOCKET_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set dp_socket_counter_set = {
    .name = "socket", .help = "a core's socket, with driver = socket", MR_COUNTERS(counters)};

/* ---- open and close ---- */

/* Whether the kernel has that address on an interface; "" stands for any. */
static bool is_ours(const struct mr_address *address, const char *interface)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return interface[0] == '\0'; /* bind() says so if not */
    for (const struct ifaddrs *i = all; i != NULL && !found; i = i->ifa_next) {
        struct mr_address has;
        if (i->ifa_addr == NULL || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        if (interface[0] != '\0' && strcmp(i->ifa_name, interface) != 0)
            continue;
        mr_address_from_sockaddr(i->ifa_addr, &has);
        found = memcmp(has.ip, address->ip, sizeof(has.ip)) == 0;
    }
    freeifaddrs(all);
    return found;
}

static bool check_address(const struct mr_address *address, const char *text, char error[DP_ERROR_BYTES])
{
    if (is_ours(address, ""))
        return true;
    snprintf(
        error, DP_ERROR_BYTES,
        "port: %.*s is not an address of this machine, as driver = socket needs; give it to an interface "
        "(ip address add), or name another",
        (int)strcspn(text, "/"), text);
    return false;
}

/* Without a device any MTU may be on the way: what each path carries is found out by its session. */
static bool choose_mtu(const struct dp_config *config, struct dp_net *net, char error[DP_ERROR_BYTES])
{
    if (net->mtu != 0)
        return true;
    net->mtu = DP_MTU_MAX;
    if (config->device[0] == '\0')
        return true;
    int result = dp_netdev_get_mtu(config->device, &net->mtu);
    if (result != 0) {
        snprintf(error, DP_ERROR_BYTES, "port: no network interface \"%s\": %s", config->device,
                 strerror(-result));
        return false;
    }
    if (net->mtu > DP_MTU_MAX)
        net->mtu = DP_MTU_MAX;
    return true;
}

/* The address of the sockets: the only one configured, or any. */
static void choose_address(const struct dp_net *net, struct mr_address *out)
{
    *out = (struct mr_address){.port = 0};
    if (net->has_ipv4 && !net->has_ipv6)
        mr_address_from_ipv4(net->ipv4, out);
    else if (net->has_ipv6 && !net->has_ipv4)
        memcpy(out->ip, net->ipv6, sizeof(net->ipv6));
}

static void configured_addresses(const struct dp_net *net, struct mr_address *ipv4, struct mr_address *ipv6)
{
    *ipv6 = (struct mr_address){.port = 0};
    mr_address_from_ipv4(net->ipv4, ipv4);
    memcpy(ipv6->ip, net->ipv6, sizeof(net->ipv6));
}

bool dp_socket_port_suits(const struct dp_config *config, const struct dp_net *net)
{
    struct mr_address ipv4, ipv6;
    if (config->device[0] == '\0' || (!net->has_ipv4 && !net->has_ipv6) || config->mac[0] != '\0' ||
        config->vlan != 0 || config->fault.direction != DP_FAULT_OFF)
        return false;
    configured_addresses(net, &ipv4, &ipv6);
    return (!net->has_ipv4 || is_ours(&ipv4, config->device)) &&
           (!net->has_ipv6 || is_ours(&ipv6, config->device));
}

bool dp_socket_port_settle(const struct dp_config *config, struct dp_net *net, char error[DP_ERROR_BYTES])
{
    struct mr_address ipv4, ipv6;
    configured_addresses(net, &ipv4, &ipv6);
    return choose_mtu(config, net, error) && (!net->has_ipv4 || check_address(&ipv4, config->ipv4, error)) &&
           (!net->has_ipv6 || check_address(&ipv6, config->ipv6, error));
}

static bool open_socket(struct dp_socket_port *port, const struct dp_config *config, const struct dp_net *net,
                        uint32_t index, char error[DP_ERROR_BYTES])
{
    const struct mr_udp_options options = {.buffer_bytes = BUFFER_BYTES,
                                           .udp_bytes_max = dp_net_udp_bytes_max(net)};
    struct mr_address local;
    char why[DP_ERROR_BYTES / 2];
    choose_address(net, &local);
    local.port = (uint16_t)(net->udp_port + index);
    configured_addresses(net, &port->ipv4, &port->ipv6);
    port->ipv4.port = port->ipv6.port = local.port;
    if (mr_udp_bind(&local, &options, &port->socket, why, sizeof(why)) != MR_OK) {
        port->socket.fd = -1;
        snprintf(error, DP_ERROR_BYTES, "port: %s; choose another port.udp_port, or end who has it", why);
        return false;
    }
    if (config->device[0] != '\0' && setsockopt(port->socket.fd, SOL_SOCKET, SO_BINDTODEVICE, config->device,
                                                (socklen_t)strlen(config->device)) != 0) {
        snprintf(error, DP_ERROR_BYTES, "port: the socket cannot be bound to device \"%s\": %s",
                 config->device, strerror(errno));
        return false;
    }
    port->segment_bytes = port->socket.udp_bytes_max;
    port->receiver = mr_udp_receiver_create(&port->socket);
    port->shorts = mr_udp_sender_create(&port->socket, true);
    port->segments = mr_udp_sender_create(&port->socket, true);
    if (port->receiver == NULL || port->shorts == NULL || port->segments == NULL) {
        snprintf(error, DP_ERROR_BYTES, "memory: none left for the buffers of a socket");
        return false;
    }
    return true;
}

struct dp_socket_port *dp_socket_port_open(const struct dp_config *config, const struct dp_net *net,
                                           uint32_t index, char error[DP_ERROR_BYTES])
{
    struct dp_socket_port *port = calloc(1, sizeof(*port));
    if (port == NULL) {
        snprintf(error, DP_ERROR_BYTES, "memory: none left for a socket");
        return NULL;
    }
    port->socket.fd = -1;
    if (!open_socket(port, config, net, index, error)) {
        dp_socket_port_close(port);
        return NULL;
    }
    return port;
}

void dp_socket_port_close(struct dp_socket_port *port)
{
    if (port == NULL)
        return;
    mr_udp_sender_destroy(port->shorts);
    mr_udp_sender_destroy(port->segments);
    mr_udp_receiver_destroy(port->receiver);
    mr_udp_close(&port->socket);
    free(port);
}

int dp_socket_port_fd(const struct dp_socket_port *port)
{
    return port->socket.fd;
}

bool dp_socket_port_has(const struct dp_net *net, const struct mr_address *address)
{
    struct mr_address local;
    choose_address(net, &local);
    return mr_address_is_any(&local) ? is_ours(address, "") : memcmp(local.ip, address->ip, 16) == 0;
}

bool dp_socket_port_can_reach(const struct dp_net *net, const struct mr_address *to, char why[DP_ERROR_BYTES])
{
    struct mr_address local;
    bool is_ipv4 = mr_address_is_ipv4(to);
    choose_address(net, &local);
    if (!mr_address_is_any(&local) && mr_address_is_ipv4(&local) != is_ipv4) {
        snprintf(why, DP_ERROR_BYTES, "this node has no %s address: set port.%s", is_ipv4 ? "IPv4" : "IPv6",
                 is_ipv4 ? "ipv4" : "ipv6");
        return false;
    }
    if (mr_address_has_route(to))
        return true;
    snprintf(why, DP_ERROR_BYTES, "this machine has no route there: %s; see ip route get", strerror(errno));
    return false;
}

/* ---- counters ---- */

const struct dp_socket_counters *dp_socket_port_counters(const struct dp_socket_port *port)
{
    return &port->counters;
}

void dp_socket_port_refresh(struct dp_socket_port *port)
{
    uint32_t memory[SK_MEMINFO_VARS] = {0};
    socklen_t bytes = sizeof(memory);
    if (getsockopt(port->socket.fd, SOL_SOCKET, SO_MEMINFO, memory, &bytes) != 0)
        return;
    const uint32_t dropped = memory[SK_MEMINFO_DROPS] - port->dropped;
    port->dropped = memory[SK_MEMINFO_DROPS];
    /* of whole messages alone: no answer to a stranger is longer than one */
    __atomic_store_n(&port->counters.strangers_dropped, mr_udp_send_strangers_dropped(port->shorts),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&port->counters.rx_waiting_bytes, memory[SK_MEMINFO_RMEM_ALLOC], __ATOMIC_RELAXED);
    __atomic_store_n(&port->counters.rx_dropped, port->counters.rx_dropped + dropped, __ATOMIC_RELAXED);
}

/* ---- capture ---- */

void dp_socket_port_set_capture(struct dp_socket_port *port, struct dp_capture *capture)
{
    port->capture = capture;
}

static bool is_loopback(const struct mr_address *address)
{
    return mr_address_is_ipv4(address) ? address->ip[12] == IN_LOOPBACKNET
                                       : memcmp(address->ip, &in6addr_loopback, sizeof(address->ip)) == 0;
}

__attribute__((cold)) static void record(const struct dp_socket_port *port, bool is_sent,
                                         const struct mr_address *peer, const uint8_t *datagram, size_t bytes)
{
    const bool is_ipv4 = mr_address_is_ipv4(peer);
    struct mr_address local = is_ipv4 ? port->ipv4 : port->ipv6;
    struct mr_address any = {.port = 0};
    if (is_ipv4)
        mr_address_from_ipv4((const uint8_t[4]){0}, &any);
    if (memcmp(local.ip, any.ip, sizeof(any.ip)) == 0 && is_loopback(peer))
        memcpy(local.ip, peer->ip, sizeof(local.ip));
    dp_capture_datagram(port->capture, dp_capture_time_ns(), is_sent, &local, peer, datagram,
                        (uint32_t)bytes);
}

/* ---- the endpoint's side ---- */

static uint8_t *socket_port_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct dp_socket_port *port = self;
    port->open = bytes_max < MR_UDP_BYTES_MIN ? port->shorts : port->segments;
    port->open_to = *to;
    port->open_bytes = mr_udp_send_begin(port->open, to, bytes_max);
    port->full |= port->open_bytes == NULL;
    return port->open_bytes;
}

static bool is_segment(const struct mr_packet_header *header)
{
    return header->type == MR_PACKET_DATA && header->segment_bytes != 0;
}

static bool ends_message(const struct mr_packet_header *header)
{
    uint32_t offset = (uint32_t)header->segment_number * header->segment_bytes;
    return offset + header->payload_bytes >= header->message_bytes;
}

/* Moves the open datagram, whose length was no sign of what it is: a bundle, or the end of a long message.
 * Where there is no room it goes out with the others. */
static struct mr_udp_sender *move_to(struct dp_socket_port *port, struct mr_udp_sender *to, uint32_t bytes)
{
    uint8_t *room = mr_udp_send_begin(to, &port->open_to, bytes);
    if (room == NULL)
        return port->open;
    memcpy(room, port->open_bytes, bytes);
    mr_udp_send_end(port->open, 0);
    return to;
}

static void socket_port_end(void *self, uint32_t bytes)
{
    struct dp_socket_port *port = self;
    struct mr_packet_header header;
    if (bytes == 0)
        return;
    assert(bytes >= sizeof(header));
    memcpy(&header, port->open_bytes, sizeof(header));
    struct mr_udp_sender *sender = is_segment(&header) ? port->segments : port->shorts;

    if (__builtin_expect(port->capture != NULL, 0))
        record(port, true, &port->open_to, port->open_bytes, bytes);
    if (sender != port->open)
        sender = move_to(port, sender, bytes);
    mr_udp_send_end(sender, bytes);
    port->written++;
    if (!is_segment(&header))
        return;
    port->segments_written++;
    if (ends_message(&header))
        port->message_ended = true;
    else
        port->segment_bytes = bytes;
}

void dp_socket_port_configure(struct dp_socket_port *port, struct mr_endpoint_config *config)
{
    config->io.self = port;
    config->io.tx_begin = socket_port_begin;
    config->io.tx_end = socket_port_end;
    config->udp_bytes_max = port->socket.udp_bytes_max;
    config->receive_window_bytes = port->socket.receive_buffer_bytes / CALLS_AT_ONCE;
}

/* ---- datagrams in and out ---- */

/* A request among them may end the capture. */
__attribute__((cold)) static uint32_t receive_captured(struct dp_socket_port *port,
                                                       struct mr_endpoint *endpoint, uint64_t now_us)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t bytes;
    uint32_t count = 0;
    while (mr_udp_receive_next(port->receiver, &from, &datagram, &bytes)) {
        if (port->capture != NULL)
            record(port, false, &from, datagram, bytes);
        mr_endpoint_receive(endpoint, now_us, &from, datagram, bytes);
        count++;
    }
    return count;
}

uint32_t dp_socket_port_receive(struct dp_socket_port *port, struct mr_endpoint *endpoint,
                                struct dp_phases *phases, uint64_t now_us)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t bytes;
    uint32_t count = 0;
    enum dp_phase before = dp_phase_enter(phases, DP_PHASE_receive);
    bool is_any = mr_udp_receive(port->receiver);
    (void)dp_phase_enter(phases, DP_PHASE_check);
    if (is_any && __builtin_expect(port->capture != NULL, 0)) {
        count = receive_captured(port, endpoint, now_us);
        is_any = false;
    }
    while (is_any && mr_udp_receive_next(port->receiver, &from, &datagram, &bytes)) {
        mr_endpoint_receive(endpoint, now_us, &from, datagram, bytes);
        count++;
    }
    dp_phase_leave(phases, before);
    return count;
}

static bool flush_segments(struct dp_socket_port *port)
{
    bool more = port->segments_written > 0 && !port->message_ended;
    port->segments_written = 0;
    port->message_ended = false;
    return more ? mr_udp_send_flush_runs(port->segments) : mr_udp_send_flush(port->segments);
}

uint32_t dp_socket_port_flush(struct dp_socket_port *port)
{
    uint32_t written = port->written;
    port->written = 0;
    port->full = !mr_udp_send_flush(port->shorts) || !flush_segments(port);
    return written;
}

uint32_t dp_socket_port_run_datagrams(const struct dp_socket_port *port)
{
    return mr_udp_run_datagrams(port->segment_bytes);
}

bool dp_socket_port_is_full(const struct dp_socket_port *port)
{
    return port->full;
}
