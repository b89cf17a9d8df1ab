/* Receives datagrams in bursts, with one system call for many buffers, each of which may hold a run of
 * datagrams that the kernel joined (UDP_GRO). Belongs to one thread at a time. */
#ifndef MR_UDP_RECEIVE_H
#define MR_UDP_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/udp/udp_socket.h"

struct mr_udp_receiver;

/* NULL when memory is short. The socket must outlive it. */
struct mr_udp_receiver *mr_udp_receiver_create(const struct mr_udp_socket *socket);
void mr_udp_receiver_destroy(struct mr_udp_receiver *r);

/* Takes a burst from the socket without waiting; drops what is left of the one before. Returns whether there
 * is anything. */
bool mr_udp_receive(struct mr_udp_receiver *r);
/* Returns the burst's next datagram; false at its end. Valid until the next mr_udp_receive(). */
bool mr_udp_receive_next(struct mr_udp_receiver *r, struct mr_address *from, const uint8_t **datagram,
                         size_t *datagram_bytes);
/* Returns whether, since the last call, the peer's machine reported that nobody listens there. */
bool mr_udp_receive_refused(struct mr_udp_receiver *r);
/* Returns likewise whether a router reported a datagram as too long for the path. */
bool mr_udp_receive_too_long(struct mr_udp_receiver *r);

#endif
