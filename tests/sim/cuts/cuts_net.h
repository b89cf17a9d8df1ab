/* The network between the server's cores and the clients' sockets: what is lost, comes twice, late, or after
 * what was sent after it. Clients are the trainers' library as it is, down to its sockets, which cuts_net.c
 * stands in for. */
#ifndef SIM_CUTS_NET_H
#define SIM_CUTS_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"

#define NET_SERVER      "10.0.0.1:7700"
#define NET_SERVER_PORT 7700
#define NET_UDP_BYTES   1472u
#define NET_SOCKETS_MAX 1024u

struct net_faults {
    uint32_t lose_ppm, repeat_ppm, late_ppm;
    uint32_t delay_ns, late_ns; /* at most */
};

struct net_packet {
    struct net_packet *next;
    struct mr_address from;
    uint32_t core; /* of the server that it goes to; or else */
    uint32_t socket;
    bool to_server;
    uint32_t bytes;
    uint8_t data[];
};

/* The server's side, in cuts_dp.c: takes the packet over. */
void net_to_core(struct net_packet *packet);

void net_begin(const struct net_faults *faults);
/* Without faults from now on. */
void net_calm(void);
/* The server's machine is off: nothing comes from it or gets to it. */
void net_server_off(bool off);
/* From core `core` of the server. */
void net_from_core(uint32_t core, const struct mr_address *to, const uint8_t *data, uint32_t bytes);

#endif
