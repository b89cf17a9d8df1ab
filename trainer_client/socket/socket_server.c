#include "trainer_client/socket/socket_server.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/session/key_file.h"
#include "dataplane/udp/address.h"
#include "trainer_client/socket/environment.h"
#include "dataplane/udp/udp_endpoint.h"

#define SESSIONS_MAX   1024u
#define SEGMENT_BUDGET 128u
#define BURSTS_MAX     16u /* per run: the owner has other things to do, too */

struct mrc_socket_server {
    struct mr_udp_endpoint udp;
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
    if (options->says_no_version)
        config.version = (struct mr_peer_version){0};
    if (options->memory_bytes != 0)
        config.memory_bytes = options->memory_bytes;

    const enum mr_status status = mr_udp_endpoint_create(&s->udp, &config);
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
    /* The peers are sockets: a machine that receives large sends uncut has a kernel that cuts them up. */
    status = mr_udp_endpoint_open(&s->udp, &local, &socket_options, !mrc_env_is_off(MRC_ENV_GSO), error,
                                  error_bytes);
    if (status == MR_OK) {
        s->udp.arrived_at = options->arrived_at;
        s->udp.app = options->app;
        status = create_endpoint(s, options, error, error_bytes);
    }
    if (status != MR_OK) {
        mrc_socket_server_destroy(s);
        return status;
    }
    *out = s;
    return MR_OK;
}

void mrc_socket_server_destroy(struct mrc_socket_server *s)
{
    if (s == NULL)
        return;
    mr_udp_endpoint_close(&s->udp);
    free(s);
}

static void wait_for_packets(const struct mr_udp_endpoint *udp, int timeout_ms)
{
    struct pollfd pollfd = {.fd = udp->socket.fd, .events = udp->is_blocked ? POLLIN | POLLOUT : POLLIN};
    uint64_t now_us = mr_clock_us(), left_us = (uint64_t)timeout_ms * 1000u;
    if (udp->next_us <= now_us)
        return;
    if (udp->next_us - now_us < left_us)
        left_us = udp->next_us - now_us;

    struct timespec left = mr_span_us(left_us);

    (void)ppoll(&pollfd, 1, &left, NULL);
}

uint32_t mrc_socket_server_run(struct mrc_socket_server *s, int timeout_ms)
{
    /* This also sends replies that were given between runs. */
    (void)mr_udp_endpoint_send(&s->udp, mr_clock_us(), SEGMENT_BUDGET);
    uint32_t packets = mr_udp_endpoint_receive(&s->udp, BURSTS_MAX);

    if (packets == 0 && timeout_ms > 0) {
        wait_for_packets(&s->udp, timeout_ms);
        packets = mr_udp_endpoint_receive(&s->udp, BURSTS_MAX);
    }
    (void)mr_udp_endpoint_send(&s->udp, mr_clock_us(), SEGMENT_BUDGET);
    return packets;
}

struct mr_endpoint *mrc_socket_server_endpoint(struct mrc_socket_server *s)
{
    return s->udp.ep;
}

uint16_t mrc_socket_server_port(const struct mrc_socket_server *s)
{
    struct mr_address local;
    mr_udp_local(&s->udp.socket, &local);
    return local.port;
}
