#include "trainer_client/rpc/rpc_reach.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "trainer_client/socket/address.h"
#include "trainer_client/socket/udp_socket.h"

#define ANSWER_MS 250

enum reach {
    SOMEBODY_LISTENS, /* it is this machine, and nothing says otherwise */
    NOTHING_LISTENS,
    NO_WAY,
    SILENCE,
};

/* A byte is no packet of ours, so that only the host itself answers it: when nothing listens there. */
static enum reach ask(const struct mrc_udp_socket *s, const struct mr_address *to)
{
    struct pollfd wait = {.fd = s->fd, .events = POLLIN};
    struct mr_address own;
    char byte = 0;

    if (send(s->fd, &byte, 1, MSG_NOSIGNAL) < 0 && errno != ECONNREFUSED)
        return NO_WAY;
    (void)poll(&wait, 1, ANSWER_MS);
    int failed = 0;
    socklen_t bytes = sizeof(failed);

    (void)getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
    if (failed == ECONNREFUSED)
        return NOTHING_LISTENS;
    if (failed != 0)
        return NO_WAY;
    mrc_udp_local(s, &own);
    return memcmp(own.ip, to->ip, sizeof(own.ip)) == 0 ? SOMEBODY_LISTENS : SILENCE;
}

static enum reach find_out(const struct mr_address *to)
{
    struct mrc_udp_options options = {.buffer_bytes = 0};
    struct mrc_udp_socket s;
    char error[256];

    if (mrc_udp_connect(to, &options, &s, error, sizeof(error)) != MR_OK)
        return NO_WAY;
    enum reach reach = ask(&s, to);

    mrc_udp_close(&s);
    return reach;
}

void mrc_rpc_explain_silence(const struct mr_address *rendezvous, bool has_key, char *error,
                             size_t error_bytes)
{
    const char *own_key = has_key ? "see key_file" : "this worker has none (key_file)";
    size_t used = strlen(error);
    char text[MRC_ADDRESS_TEXT_BYTES];

    mrc_address_text(rendezvous, text);
    used += (size_t)snprintf(error + used, error_bytes - used, ", %s: ", text);
    if (used >= error_bytes)
        return;
    switch (find_out(rendezvous)) {
    case NOTHING_LISTENS:
        snprintf(error + used, error_bytes - used, "the host is there, and nothing listens at that port");
        break;
    case SOMEBODY_LISTENS:
        snprintf(error + used, error_bytes - used,
                 "a program listens there, and probably has another key: %s", own_key);
        break;
    case NO_WAY:
        snprintf(error + used, error_bytes - used, "the host cannot be reached");
        break;
    default:
        snprintf(error + used, error_bytes - used,
                 "either it has another key: %s, or the host is down, or packets are dropped on the way",
                 own_key);
    }
}
