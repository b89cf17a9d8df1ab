#include "dataplane/udp/udp_endpoint.h"

#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"

#define BLOCKED_US 1000u /* until it is tried again, where no event says that the socket has room */

enum mr_status mr_udp_endpoint_open(struct mr_udp_endpoint *e, const struct mr_address *local,
                                    const struct mr_udp_options *options, bool offload, char *error,
                                    size_t error_bytes)
{
    *e = (struct mr_udp_endpoint){.socket.fd = -1};
    const enum mr_status status = mr_udp_bind(local, options, &e->socket, error, error_bytes);
    if (status != MR_OK) {
        e->socket.fd = -1;
        return status;
    }
    e->receiver = mr_udp_receiver_create(&e->socket);
    e->sender = mr_udp_sender_create(&e->socket, offload);
    if (e->receiver != NULL && e->sender != NULL)
        return MR_OK;
    (void)snprintf(error, error_bytes, "no memory for a socket's datagrams");
    mr_udp_endpoint_close(e);
    return MR_NO_MEMORY;
}

enum mr_status mr_udp_endpoint_create(struct mr_udp_endpoint *e, struct mr_endpoint_config *config)
{
    config->io = mr_udp_io(e->sender);
    config->udp_bytes_max = e->socket.udp_bytes_max;
    config->receive_window_bytes = e->socket.receive_window_bytes;
    const enum mr_status status = mr_endpoint_create(config, &e->ep);
    explicit_bzero(config->psk, sizeof(config->psk));
    return status;
}

void mr_udp_endpoint_close(struct mr_udp_endpoint *e)
{
    mr_endpoint_destroy(e->ep);
    mr_udp_sender_destroy(e->sender);
    mr_udp_receiver_destroy(e->receiver);
    mr_udp_close(&e->socket);
    *e = (struct mr_udp_endpoint){.socket.fd = -1};
}

uint32_t mr_udp_endpoint_take(struct mr_udp_endpoint *e)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t bytes;
    uint32_t count = 0;
    const uint64_t now_us = mr_clock_us();
    while (mr_udp_receive_next(e->receiver, &from, &datagram, &bytes)) {
        if (e->arrived_at != NULL)
            mr_endpoint_arrived_at(e->ep, e->arrived_at(e->app, &from));
        mr_endpoint_receive(e->ep, now_us, &from, datagram, bytes);
        count++;
    }
    return count;
}

uint32_t mr_udp_endpoint_receive(struct mr_udp_endpoint *e, uint32_t bursts_max)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < bursts_max && mr_udp_receive(e->receiver); i++) {
        count += mr_udp_endpoint_take(e);
        mr_endpoint_flush(e->ep, mr_clock_us());
    }
    return count;
}

bool mr_udp_endpoint_send(struct mr_udp_endpoint *e, uint64_t now_us, uint32_t segments)
{
    e->next_us = mr_endpoint_poll(e->ep, now_us, segments);
    e->is_blocked = !mr_udp_send_flush(e->sender);
    if (e->is_blocked)
        e->next_us = now_us + BLOCKED_US;
    return !e->is_blocked;
}
