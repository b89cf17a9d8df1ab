/* Receiving datagrams in bursts: one system call for many, each of which may be a run of datagrams that the
 * kernel put together (UDP_GRO). Belongs to one thread at a time. */
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

/* Take a burst from the socket without waiting; drops what is left of the one before. Returns whether there
 * is anything. */
bool mr_udp_receive(struct mr_udp_receiver *r);
/* The burst's next datagram; false at its end. Valid until the next mr_udp_receive(). */
bool mr_udp_receive_next(struct mr_udp_receiver *r, struct mr_address *from, const uint8_t **datagram,
                         size_t *datagram_bytes);
/* The peer's machine said that nobody listens there, since the last time it was asked. */
bool mr_udp_receive_refused(struct mr_udp_receiver *r);
/* A router said that something sent was too long for the path, likewise. */
bool mr_udp_receive_too_long(struct mr_udp_receiver *r);

#endif
