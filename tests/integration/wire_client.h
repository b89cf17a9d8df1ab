/* The calling side over one UDP socket, for tests of the data plane alone: one call at a time or a few at
 * once. */
#ifndef TESTS_WIRE_CLIENT_H
#define TESTS_WIRE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"

struct wire_client;

/* `ip` as text, either version ("fe80::...%client0" for a link-local one). Aborts the test when there is no
 * socket. */
struct wire_client *wire_client_create(const char *ip, uint16_t port, uint16_t core);
/* The same under a uuid (MR_UUID_BYTES), so that several are one client to the server. */
struct wire_client *wire_client_create_as(const char *ip, uint16_t port, uint16_t core, const uint8_t *uuid);
void wire_client_destroy(struct wire_client *client);

/* Sends `calls` ECHO calls of `bytes` bytes each at once and waits for all the answers. MR_OK when every one
 * holds the bytes that it was sent, MR_INTERNAL when one does not; otherwise the first error. */
enum mr_status wire_client_echo(struct wire_client *client, uint32_t bytes, uint32_t calls,
                                uint32_t timeout_ms);
/* Begins such calls and waits for nothing: the client goes on with wire_client_turn(). Their answers are not
 * looked at. */
void wire_client_begin(struct wire_client *client, uint32_t bytes, uint32_t calls, uint32_t timeout_ms);
/* Sends what is due and takes in what has come by then; never waits. */
void wire_client_turn(struct wire_client *client);
/* From now on only the first segment of each request leaves. */
void wire_client_send_first_segments(struct wire_client *client);
/* One call of any op without tensors. */
enum mr_status wire_client_call(struct wire_client *client, enum mr_op op, uint32_t timeout_ms);
/* One call as it stands, right or wrong; the bytes are copied from tensors[i].data. `text` gets what an error
 * says. */
struct wire_client_request {
    enum mr_op op;
    uint16_t table;
    const struct mr_tensor *tensors;
    uint32_t tensor_count; /* at most 16 */
    uint64_t sequence;     /* of a numbered push; 0 = none */
    uint16_t epoch;        /* to a member of a cluster */
    /* is shown an answer without an error; NULL: nobody looks */
    void (*show)(void *context, const struct mr_message *answer);
    void *context;
};
#define WIRE_CLIENT_TEXT_BYTES 512
enum mr_status wire_client_ask(struct wire_client *client, const struct wire_client_request *request,
                               uint32_t timeout_ms, char text[WIRE_CLIENT_TEXT_BYTES]);
/* Use this key: at once, or in the middle of the next calls, after `turns` of waiting for datagrams. */
void wire_client_set_key(struct wire_client *client, const uint8_t key[MR_PSK_BYTES]);
void wire_client_set_key_at(struct wire_client *client, const uint8_t key[MR_PSK_BYTES], uint32_t turns);
/* Times that the session was made again, as the server no longer knew it. */
uint64_t wire_client_restarts(const struct wire_client *client);
/* Datagrams that were sent. */
uint64_t wire_client_sent(const struct wire_client *client);
/* Requests that the server had no room for, each time. */
uint64_t wire_client_refused(const struct wire_client *client);
/* What the answer to the last of these said in `sequence`. */
uint64_t wire_client_durable(const struct wire_client *client);
void wire_client_info(const struct wire_client *client, struct mr_client_session_info *out);

#endif
