#include "tests/integration/wire_client.h"
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DATAGRAM_BYTES 9000
#define SEGMENT_BUDGET 64

struct wire_client {
    int fd;
    struct mr_endpoint *endpoint;
    struct mr_client_session *session;
    struct mr_address server;
    uint8_t out[DATAGRAM_BYTES];
    uint32_t expected_bytes;
    char *text; /* of an error, for who asks for it; NULL: the reply is an echo */
    const struct wire_client_request *asked; /* while `text` is set */
    uint32_t pending;
    uint64_t sequence;       /* of the last reply */
    enum mr_status status;   /* the first that is not MR_OK */
    bool is_stalling;        /* sends no segment but the first of each request */
    const uint8_t *next_key; /* to be used after so many turns of the next calls; NULL: none */
    uint32_t next_key_turns;
    uint64_t sent; /* datagrams */
};

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct wire_client *client = self;
    return bytes_max <= sizeof(client->out) ? client->out : NULL;
}

/* A lost datagram is the transport's business. */
static void tx_end(void *self, uint32_t bytes)
{
    struct wire_client *client = self;
    struct mr_packet_header h;
    memcpy(&h, client->out, sizeof(h));
    if (client->is_stalling && h.type == MR_PACKET_DATA && h.segment_number > 0)
        return;
    client->sent += bytes > 0;
    if (bytes > 0)
        (void)!send(client->fd, client->out, bytes, 0);
}

static void fill_random(void *self, void *out, size_t bytes)
{
    if (getrandom(out, bytes, 0) != (ssize_t)bytes)
        abort();
}

static uint8_t pattern(uint32_t i)
{
    return (uint8_t)(i * 131 + (i >> 8));
}

static bool is_intact(const struct mr_message *reply, uint32_t bytes)
{
    if (reply->preamble.tensor_count != 1 || reply->tensors[0].bytes != bytes)
        return false;
    const uint8_t *data = reply->tensors[0].data;
    for (uint32_t i = 0; i < bytes; i++)
        if (data[i] != pattern(i))
            return false;
    return true;
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct wire_client *client = app;
    assert(status != MR_OK || reply != NULL);
    client->sequence = reply != NULL ? reply->preamble.sequence : 0;
    if (status == MR_OK && reply->preamble.status != MR_OK)
        status = (enum mr_status)reply->preamble.status;
    if (client->text != NULL && status != MR_OK && reply != NULL && reply->preamble.tensor_count == 1)
        snprintf(client->text, WIRE_CLIENT_TEXT_BYTES, "%.*s", (int)reply->tensors[0].bytes,
                 (const char *)reply->tensors[0].data);
    if (client->text == NULL && status == MR_OK && !is_intact(reply, client->expected_bytes))
        status = MR_INTERNAL;
    if (client->text != NULL && status == MR_OK && client->asked->show != NULL)
        client->asked->show(client->asked->context, reply);
    if (client->status == MR_OK)
        client->status = status;
    client->pending--;
    mr_call_free(client->endpoint, call);
}

static int open_socket(const char *ip, uint16_t port)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM}, *found;
    int buffer_bytes = 4 << 20;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(ip, service, &hints, &found) != 0)
        return -1;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes));
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

struct wire_client *wire_client_create(const char *ip, uint16_t port, uint16_t core)
{
    uint8_t uuid[MR_UUID_BYTES];
    fill_random(NULL, uuid, sizeof(uuid));
    return wire_client_create_as(ip, port, core, uuid);
}

struct wire_client *wire_client_create_as(const char *ip, uint16_t port, uint16_t core, const uint8_t *uuid)
{
    struct wire_client *client = calloc(1, sizeof(*client));
    struct mr_endpoint_config config;
    if (client == NULL || (client->fd = open_socket(ip, port)) < 0) {
        fprintf(stderr, "wire_client: no socket to %s: %s\n", ip, strerror(errno));
        exit(1);
    }
    /* The socket is connected: the address only has to be the same each time. */
    client->server.port = port;
    mr_endpoint_config_default(&config);
    config.io = (struct mr_endpoint_io){
        .self = client, .tx_begin = tx_begin, .tx_end = tx_end, .random = fill_random};
    config.app = client;
    config.on_reply = on_reply;
    config.udp_bytes_max = MR_UDP_BYTES_MAX;
    config.receive_window_bytes = 1u << 20;
    memcpy(config.client_uuid, uuid, sizeof(config.client_uuid));
    if (mr_endpoint_create(&config, &client->endpoint) != MR_OK ||
        mr_client_session_open(client->endpoint, &client->server, core, NULL, &client->session) != MR_OK) {
        fprintf(stderr, "wire_client: the endpoint does not start\n");
        exit(1);
    }
    return client;
}

void wire_client_destroy(struct wire_client *client)
{
    mr_client_session_close(client->endpoint, client->session, now_us());
    mr_endpoint_destroy(client->endpoint);
    close(client->fd);
    free(client);
}

static void receive_all(struct wire_client *client)
{
    uint8_t in[DATAGRAM_BYTES];
    for (int i = 0; i < SEGMENT_BUDGET; i++) {
        ssize_t bytes = recv(client->fd, in, sizeof(in), MSG_DONTWAIT);
        if (bytes < 0)
            break;
        mr_endpoint_receive(client->endpoint, now_us(), &client->server, in, (size_t)bytes);
    }
    mr_endpoint_flush(client->endpoint, now_us());
}

static void use_next_key(struct wire_client *client)
{
    if (client->next_key == NULL || (client->pending > 0 && client->next_key_turns-- > 0))
        return;
    wire_client_set_key(client, client->next_key);
    client->next_key = NULL;
}

static enum mr_status run_until_answered(struct wire_client *client)
{
    while (client->pending > 0) {
        uint64_t now = now_us(), due = mr_endpoint_poll(client->endpoint, now, SEGMENT_BUDGET);
        struct pollfd readable = {.fd = client->fd, .events = POLLIN};
        uint64_t wait_us = due > now ? due - now : 0;
        struct timespec wait = {.tv_nsec = (long)(wait_us < 10000 ? wait_us : 10000) * 1000};
        (void)ppoll(&readable, 1, &wait, NULL);
        receive_all(client);
        use_next_key(client);
    }
    return client->status;
}

static void begin_wire(struct wire_client *client, enum mr_op op, uint32_t bytes, uint32_t timeout_ms)
{
    uint64_t now = now_us();
    struct mr_call_options options = {.op = (uint8_t)op, .deadline_us = now + timeout_ms * UINT64_C(1000)};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, NULL);
    struct mr_call *call;
    enum mr_status status =
        mr_call_begin(client->endpoint, client->session, &options, &tensor, op == MR_OP_ECHO ? 1 : 0, &call);
    if (status != MR_OK) {
        client->status = status;
        return;
    }
    for (uint32_t i = 0; op == MR_OP_ECHO && i < bytes; i++)
        ((uint8_t *)tensor.data)[i] = pattern(i);
    client->pending++;
    mr_call_send(client->endpoint, call, now);
}

enum mr_status wire_client_echo(struct wire_client *client, uint32_t bytes, uint32_t calls,
                                uint32_t timeout_ms)
{
    client->status = MR_OK;
    client->expected_bytes = bytes;
    for (uint32_t i = 0; i < calls; i++)
        begin_wire(client, MR_OP_ECHO, bytes, timeout_ms);
    return run_until_answered(client);
}

void wire_client_begin(struct wire_client *client, uint32_t bytes, uint32_t calls, uint32_t timeout_ms)
{
    client->status = MR_OK;
    client->expected_bytes = bytes;
    for (uint32_t i = 0; i < calls; i++)
        begin_wire(client, MR_OP_ECHO, bytes, timeout_ms);
}

void wire_client_turn(struct wire_client *client)
{
    (void)mr_endpoint_poll(client->endpoint, now_us(), SEGMENT_BUDGET);
    receive_all(client);
}

void wire_client_send_first_segments(struct wire_client *client)
{
    client->is_stalling = true;
}

enum mr_status wire_client_call(struct wire_client *client, enum mr_op op, uint32_t timeout_ms)
{
    client->status = MR_OK;
    begin_wire(client, op, 0, timeout_ms);
    return run_until_answered(client);
}

enum mr_status wire_client_ask(struct wire_client *client, const struct wire_client_request *request,
                               uint32_t timeout_ms, char text[WIRE_CLIENT_TEXT_BYTES])
{
    uint64_t now = now_us();
    struct mr_call_options options = {.op = (uint8_t)request->op,
                                      .table = request->table,
                                      .epoch = request->epoch,
                                      .sequence = request->sequence,
                                      .deadline_us = now + timeout_ms * UINT64_C(1000)};
    struct mr_tensor tensors[MR_TENSORS_MAX];
    struct mr_call *call;
    assert(request->tensor_count <= MR_TENSORS_MAX);
    for (uint32_t i = 0; i < request->tensor_count; i++)
        tensors[i] = request->tensors[i];
    client->status =
        mr_call_begin(client->endpoint, client->session, &options, tensors, request->tensor_count, &call);
    if (client->status != MR_OK)
        return client->status;
    for (uint32_t i = 0; i < request->tensor_count; i++)
        if (tensors[i].bytes > 0)
            memcpy(tensors[i].data, request->tensors[i].data, tensors[i].bytes);
    text[0] = '\0';
    client->text = text;
    client->asked = request;
    client->pending++;
    mr_call_send(client->endpoint, call, now);

    enum mr_status status = run_until_answered(client);

    client->text = NULL;
    return status;
}

void wire_client_set_key(struct wire_client *client, const uint8_t key[MR_PSK_BYTES])
{
    uint8_t keys[1][MR_PSK_BYTES];
    memcpy(keys[0], key, MR_PSK_BYTES);
    mr_endpoint_set_keys(client->endpoint, keys, 1, now_us());
}

void wire_client_set_key_at(struct wire_client *client, const uint8_t key[MR_PSK_BYTES], uint32_t turns)
{
    client->next_key = key;
    client->next_key_turns = turns;
}

uint64_t wire_client_restarts(const struct wire_client *client)
{
    return mr_endpoint_counters(client->endpoint)->sessions_restarted;
}

uint64_t wire_client_sent(const struct wire_client *client)
{
    return client->sent;
}

uint64_t wire_client_refused(const struct wire_client *client)
{
    return mr_endpoint_counters(client->endpoint)->busy_received;
}

uint64_t wire_client_durable(const struct wire_client *client)
{
    return client->sequence;
}

void wire_client_info(const struct wire_client *client, struct mr_client_session_info *out)
{
    mr_client_session_info(client->session, out);
}
