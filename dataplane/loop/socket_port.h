/* The socket port: each core serves from a UDP socket of its own instead of a queue of a DPDK port.
 *
 * It needs neither root nor an interface of its own, and it bypasses nothing: the kernel receives and sends,
 * and answers ARP and ICMP. In return the kernel moves runs of datagrams as one (UDP_SEGMENT, UDP_GRO), which
 * on virtual links is faster than a frame at a time. Everything belongs to the core's thread but opening and
 * closing.
 */
#ifndef DP_SOCKET_PORT_H
#define DP_SOCKET_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/capture/capture.h"
#include "dataplane/dataplane.h"
#include "dataplane/loop/phases.h"
#include "dataplane/net/net.h"

struct dp_socket_port;

/* Whether AUTO should serve from sockets: the kernel has every configured address on that very interface, and
 * nothing is configured that only DPDK's ports can do. A DPDK port beside it would answer for the same
 * addresses. */
bool dp_socket_port_suits(const struct dp_config *config, const struct dp_net *net);
/* Checks that the machine has the configured addresses, and fills in net->mtu where the configuration leaves
 * it open; once, before the sockets. False, with one line in `error`. */
bool dp_socket_port_settle(const struct dp_config *config, struct dp_net *net, char error[DP_ERROR_BYTES]);
/* Binds core `index`'s socket to its UDP port of the configured address: `ipv4` or `ipv6` where one of them
 * is set, all addresses of the machine where both or neither are; with `device`, on that interface only.
 * NULL, with one line in `error`, on failure. */
struct dp_socket_port *dp_socket_port_open(const struct dp_config *config, const struct dp_net *net,
                                           uint32_t index, char error[DP_ERROR_BYTES]);
void dp_socket_port_close(struct dp_socket_port *port);

/* Whether the kernel has a way from the sockets' address to a host; otherwise one line in `why`. Any
 * thread. */
bool dp_socket_port_can_reach(const struct dp_net *net, const struct mr_address *to,
                              char why[DP_ERROR_BYTES]);
/* Whether the sockets listen at that address of this machine. Any thread. */
bool dp_socket_port_has(const struct dp_net *net, const struct mr_address *address);

/* Readable when datagrams have come. */
int dp_socket_port_fd(const struct dp_socket_port *port);
/* Sets what an endpoint must know of it: how to send, and how much the socket takes. */
void dp_socket_port_configure(struct dp_socket_port *port, struct mr_endpoint_config *config);

/* What the kernel tells of a socket. X(name, kind, unit, help) */
#define DP_SOCKET_COUNTER_LIST(X)                                                                            \
    X(rx_waiting_bytes, GAUGE, BYTES, "bytes that the kernel holds for datagrams not yet received")          \
    X(rx_dropped, COUNTER, NONE, "datagrams that the kernel dropped because the socket's buffer was full")   \
    X(strangers_dropped, COUNTER, NONE,                                                                      \
      "answers to peers without a session that were dropped because half of the socket's buffer was full, "  \
      "as "                                                                                                  \
      "when somebody asks from addresses that nobody has")

struct dp_socket_counters {
    DP_SOCKET_COUNTER_LIST(MR_COUNTER_FIELD)
};
extern const struct mr_counter_set dp_socket_counter_set;
const struct dp_socket_counters *dp_socket_port_counters(const struct dp_socket_port *port);
/* Asks the kernel again; one thread, which need not be the core's. */
void dp_socket_port_refresh(struct dp_socket_port *port);

/* Hands a burst of datagrams to the endpoint. Returns how many. `phases` may be NULL. */
uint32_t dp_socket_port_receive(struct dp_socket_port *port, struct mr_endpoint *endpoint,
                                struct dp_phases *phases, uint64_t now_us);
/* Sends what the endpoint has written since the last call, and returns how many datagrams that was. Segments
 * of long answers that make less than half a run stay while each call finds more of them; what the socket's
 * buffer has no room for stays as well: see dp_socket_port_is_full(). */
uint32_t dp_socket_port_flush(struct dp_socket_port *port);
/* Returns how many datagrams of a long answer make a full run. */
uint32_t dp_socket_port_run_datagrams(const struct dp_socket_port *port);
bool dp_socket_port_is_full(const struct dp_socket_port *port);

/* Records the datagrams from now on; NULL: no more. Where the socket listens on all addresses of the machine
 * and none is configured, the records' local address is 0, or that of a peer on the loopback. */
void dp_socket_port_set_capture(struct dp_socket_port *port, struct dp_capture *capture);

#endif
