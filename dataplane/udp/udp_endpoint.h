/* A transport endpoint on a UDP socket: made and ended together, fed with what comes, and sending what it
 * has. Its owner waits for the socket (poll, epoll) until next_us. Belongs to one thread at a time. */
#ifndef MR_UDP_ENDPOINT_H
#define MR_UDP_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"
#include "dataplane/udp/udp_socket.h"
#include "dataplane/wire/endpoint.h"

struct mr_udp_endpoint {
    struct mr_udp_socket socket;
    struct mr_udp_receiver *receiver;
    struct mr_udp_sender *sender;
    struct mr_endpoint *ep;
    uint64_t next_us; /* by mr_clock_us(): mr_udp_endpoint_send() is due */
    bool is_blocked;  /* the socket's buffer was full: to be sent when it has room (POLLOUT), or at next_us */
    /* NULL, or the core at which a datagram has arrived, for a server whose clients take it for several */
    uint16_t (*arrived_at)(void *app, const struct mr_address *from);
    void *app;
};

/* Binds the socket; there is no endpoint yet. offload: runs of datagrams leave by UDP_SEGMENT. On failure
 * there is nothing to close, and `error` has a line. MR_NO_MEMORY, and the statuses of mr_udp_bind(). */
enum mr_status mr_udp_endpoint_open(struct mr_udp_endpoint *e, const struct mr_address *local,
                                    const struct mr_udp_options *options, bool offload, char *error,
                                    size_t error_bytes);
/* Creates the endpoint: of the configuration this sets what follows from the socket, and wipes its keys. The
 * statuses of mr_endpoint_create(). */
enum mr_status mr_udp_endpoint_create(struct mr_udp_endpoint *e, struct mr_endpoint_config *config);
/* Ends both; may be repeated. */
void mr_udp_endpoint_close(struct mr_udp_endpoint *e);

/* Gives the endpoint the datagrams of the burst that was received last. Returns how many. */
uint32_t mr_udp_endpoint_take(struct mr_udp_endpoint *e);
/* The same for up to so many bursts, as long as there is one; answers leave after each. Does not wait. */
uint32_t mr_udp_endpoint_receive(struct mr_udp_endpoint *e, uint32_t bursts_max);
/* Runs timers, and sends, up to so many segments of bulk data. Sets next_us. False: is_blocked. */
bool mr_udp_endpoint_send(struct mr_udp_endpoint *e, uint64_t now_us, uint32_t segments);

#endif
