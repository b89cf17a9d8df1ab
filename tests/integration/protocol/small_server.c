/* A server of two calls on an ordinary socket, for a client that shares no code with it. It ends when its
 * input does. usage: small_server ADDRESS:PORT [KEY_FILE] */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
#include "dataplane/wire/format/mr_feature.h"
#include "trainer_client/socket/socket_server.h"

#define TURN_MS     20
#define INCARNATION 3u
#define LINEAGE     5u

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    static uint16_t partitions[MR_PARTITION_COUNT];
    static const uint32_t info[4] = {1, 1, 7700, MR_MESSAGE_BYTES_MAX};
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        partitions[i] = (uint16_t)i;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U32, 4, info),
                                   mr_tensor_1d(MR_U16, MR_PARTITION_COUNT, partitions)};
    switch (request->message->preamble.op) {
    case MR_OP_NODE_INFO: /* an answer of several segments */
        if (mr_reply_begin(ep, request->ref, MR_OK, tensors, 2))
            mr_reply_end(ep, request->ref);
        else
            mr_reply_busy(ep, request->ref);
        break;
    case MR_OP_HEARTBEAT:
        mr_reply_status(ep, request->ref, MR_OK);
        break;
    default:
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP, "not served here");
    }
}

int main(int argc, char **argv)
{
    char error[256];
    struct mrc_socket_server *server;
    if (argc < 2)
        return 2;
    struct mrc_socket_server_options options = {.listen = argv[1],
                                                .key_file = argc > 2 ? argv[2] : NULL,
                                                .incarnation = INCARNATION,
                                                .lineage = LINEAGE,
                                                .on_request = on_request};
    if (mrc_socket_server_create(&options, &server, error, sizeof(error)) != MR_OK) {
        fprintf(stderr, "small_server: %s\n", error);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&input, 1, 0) == 0)
        (void)mrc_socket_server_run(server, TURN_MS);
    mrc_socket_server_destroy(server);
    return 0;
}
