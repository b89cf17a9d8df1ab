/* The calling side of the transport on a DPDK port of its own, one thread: load without the kernel's
 * network. */
#ifndef BENCH_DPDK_CLIENT_H
#define BENCH_DPDK_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/net/net.h"

struct dpdk_client;

/* Opens the configured port and finds the server's MAC address. Ends the process with a line on failure.
 * `on_reply`, `app` and the sizes in `endpoint` are the caller's. */
struct dpdk_client *dpdk_client_create(const struct dp_config *config,
                                       const struct mr_endpoint_config *endpoint, const char *server_ipv4,
                                       uint16_t server_port);
void dpdk_client_destroy(struct dpdk_client *client);

struct mr_endpoint *dpdk_client_endpoint(struct dpdk_client *client);
const struct mr_address *dpdk_client_server(const struct dpdk_client *client);
/* One turn: receive, timers, send. */
void dpdk_client_turn(struct dpdk_client *client);
/* Frames received so far, of all kinds. */
uint64_t dpdk_client_received(const struct dpdk_client *client);

/* ---- what no client does ---- */

/* Sees each datagram that the endpoint sends. */
typedef void (*dpdk_client_seen)(void *arg, const uint8_t *datagram, uint32_t bytes);
void dpdk_client_watch(struct dpdk_client *client, dpdk_client_seen seen, void *arg);
/* Sends any datagram to a core of the server, as if it came from the host `as` (NULL: this one) and its port
 * `source_port` (0: this one's). False when there is no room now. */
bool dpdk_client_inject(struct dpdk_client *client, uint16_t core, const struct dp_net *as,
                        uint16_t source_port, const uint8_t *datagram, uint32_t bytes);

#endif
