#include "trainer_client/socket/socket_server.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/session/key_file.h"
#include "dataplane/udp/address.h"
#include "trainer_client/socket/environment.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"
#include "dataplane/udp/udp_socket.h"

#define SESSIONS_MAX   1024u
#define SEGMENT_BUDGET 128u
#define BURSTS_MAX     16u   /* per run: the owner has other things to do, too */
#define SEND_RETRY_US  1000u /* when the socket's buffer was full, and no event says that it has room */

struct mrc_socket_server {
    struct mr_udp_socket socket;
    struct mr_udp_receiver *receiver;
    struct mr_udp_sender *sender;
    struct mr_endpoint *ep;
    uint64_t next_us; /* when the endpoint must be polled */
    bool send_blocked;
    uint16_t (*arrived_at)(void *app, const struct mr_address *from);
    void *app;
};

static enum mr_status create_endpoint(struct mrc_socket_server *s,
                                      const struct mrc_socket_server_options *options, char *error,
                                      size_t error_bytes)
{
    struct mr_endpoint_config config;
    mr_endpoint_config_default(&config);
    if (options->key_file != NULL) {
        enum mr_status status = mr_key_file_read(options->key_file, config.psk[0], error, error_bytes);
        if (status != MR_OK)
            return status;
        config.psk_count = 1;
    }
    config.io = mr_udp_io(s->sender);
    config.app = options->app;
    config.on_request = options->on_request;
    config.incarnation = options->incarnation;
    config.start_id = options->start_id;
    config.lineage = options->lineage;
    config.restores = options->restores;
    config.core = options->core;
    config.core_count = options->core_count == 0 ? 1 : options->core_count;
    config.map_version = 1;
    config.takes_epochs = options->takes_epochs;
    config.sessions_max = SESSIONS_MAX;
    config.udp_bytes_max = s->socket.udp_bytes_max;
    config.receive_window_bytes = s->socket.receive_window_bytes;
    if (options->says_no_version)
        config.version = (struct mr_peer_version){0};
    if (options->memory_bytes != 0)
        config.memory_bytes = options->memory_bytes;

    enum mr_status status = mr_endpoint_create(&config, &s->ep);
    explicit_bzero(config.psk, sizeof(config.psk));

    if (status != MR_OK)
        snprintf(error, error_bytes, "%s: %s", options->listen, mr_status_text(status));
    return status;
}

enum mr_status mrc_socket_server_create(const struct mrc_socket_server_options *options,
                                        struct mrc_socket_server **out, char *error, size_t error_bytes)
{
    struct mr_udp_options socket_options = {.buffer_bytes = 0};
    struct mr_address local;
    enum mr_status status = mr_address_resolve(options->listen, true, &local, error, error_bytes);
    if (status != MR_OK)
        return status;
    struct mrc_socket_server *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        snprintf(error, error_bytes, "%s: no memory", options->listen);
        return MR_NO_MEMORY;
    }
    s->socket.fd = -1;
    s->arrived_at = options->arrived_at;
    s->app = options->app;
    status = mr_udp_bind(&local, &socket_options, &s->socket, error, error_bytes);
    if (status != MR_OK)
        goto failed;
    s->receiver = mr_udp_receiver_create(&s->socket);
    /* The peers are sockets: a machine that receives large sends uncut has a kernel that cuts them up. */
    s->sender = mr_udp_sender_create(&s->socket, !mrc_env_is_off(MRC_ENV_GSO));
    if (s->receiver == NULL || s->sender == NULL) {
        snprintf(error, error_bytes, "%s: no memory", options->listen);
        status = MR_NO_MEMORY;
        goto failed;
    }
    status = create_endpoint(s, options, error, error_bytes);
    if (status != MR_OK)
        goto failed;
    *out = s;
    return MR_OK;
failed:
    mrc_socket_server_destroy(s);
    return status;
}

void mrc_socket_server_destroy(struct mrc_socket_server *s)
{
    if (s == NULL)
        return;
    mr_endpoint_destroy(s->ep);
    mr_udp_sender_destroy(s->sender);
    mr_udp_receiver_destroy(s->receiver);
    mr_udp_close(&s->socket);
    free(s);
}

static uint32_t receive(struct mrc_socket_server *s)
{
    uint32_t packets = 0;
    struct mr_address from;
    const uint8_t *datagram;
    size_t bytes;
    for (uint32_t i = 0; i < BURSTS_MAX && mr_udp_receive(s->receiver); i++) {
        uint64_t now_us = mr_clock_us();
        while (mr_udp_receive_next(s->receiver, &from, &datagram, &bytes)) {
            if (s->arrived_at != NULL)
                mr_endpoint_arrived_at(s->ep, s->arrived_at(s->app, &from));
            mr_endpoint_receive(s->ep, now_us, &from, datagram, bytes);
            packets++;
        }
        mr_endpoint_flush(s->ep, mr_clock_us());
    }
    return packets;
}

static void send_what_waits(struct mrc_socket_server *s)
{
    uint64_t now_us = mr_clock_us();
    s->next_us = mr_endpoint_poll(s->ep, now_us, SEGMENT_BUDGET);
    s->send_blocked = !mr_udp_send_flush(s->sender);
    if (s->send_blocked)
        s->next_us = now_us + SEND_RETRY_US;
}

static void wait_for_packets(const struct mrc_socket_server *s, int timeout_ms)
{
    struct pollfd pollfd = {.fd = s->socket.fd, .events = s->send_blocked ? POLLIN | POLLOUT : POLLIN};
    uint64_t now_us = mr_clock_us(), left_us = (uint64_t)timeout_ms * 1000u;
    if (s->next_us <= now_us)
        return;
    if (s->next_us - now_us < left_us)
        left_us = s->next_us - now_us;

    struct timespec left = mr_span_us(left_us);

    (void)ppoll(&pollfd, 1, &left, NULL);
}

uint32_t mrc_socket_server_run(struct mrc_socket_server *s, int timeout_ms)
{
    /* This also sends replies that were given between runs. */
    send_what_waits(s);
    uint32_t packets = receive(s);

    if (packets == 0 && timeout_ms > 0) {
        wait_for_packets(s, timeout_ms);
        packets = receive(s);
    }
    send_what_waits(s);
    return packets;
}

struct mr_endpoint *mrc_socket_server_endpoint(struct mrc_socket_server *s)
{
    return s->ep;
}

uint16_t mrc_socket_server_port(const struct mrc_socket_server *s)
{
    struct mr_address local;
    mr_udp_local(&s->socket, &local);
    return local.port;
}
