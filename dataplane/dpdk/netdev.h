/* What the kernel knows of a network interface: existence, MTU, MAC, number of queues. */
#ifndef DP_NETDEV_H
#define DP_NETDEV_H

#include <stdbool.h>
#include <stdint.h>

bool dp_netdev_exists(const char *name);
/* Each returns 0, or -errno. */
int dp_netdev_get_mtu(const char *name, uint16_t *mtu);
int dp_netdev_set_mtu(const char *name, uint16_t mtu);
/* Whether no device is behind it: veth, bridge, tap, loopback. False when the kernel does not report it. */
bool dp_netdev_is_virtual(const char *name);
/* An interface that is down sends and receives nothing. */
int dp_netdev_set_up(const char *name);
/* State of a link, by the interface's number. */
struct dp_netdev_link {
    uint32_t xdp_program; /* its number, 0: none is attached */
    bool running;         /* up, and with a carrier */
};
/* 0, -ENODEV when this namespace has no such interface, or another -errno. */
int dp_netdev_get_link(uint32_t index, struct dp_netdev_link *out);
/* The name that an XDP program's author gave it, up to 15 characters; "" when the kernel does not report
 * it. */
void dp_netdev_xdp_name(uint32_t program, char name[16]);
/* Receive queues in use; 1 when the driver does not report them. `*combined`: they transmit as well. */
uint16_t dp_netdev_queue_count(const char *name, bool *combined);

/* Open sockets of this process of one address family, ascending; returns how many (at most fds_max). Tells
 * which socket a driver has just opened, so that a core can sleep on it. */
uint32_t dp_netdev_sockets(int family, int *fds, uint32_t fds_max);

#endif
