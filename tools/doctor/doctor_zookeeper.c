#include "tools/doctor/doctor_zookeeper.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "ps/cluster/zookeeper_hosts.h"

#define WAIT_S       2
#define ANSWER_BYTES 2048

/* The word after `field`, up to a comma, a dash or the line's end; "" if there is none. */
static void word_after(const char *text, const char *field, char *out, size_t out_bytes)
{
    const char *at = strstr(text, field);
    out[0] = '\0';
    if (at == NULL)
        return;
    at += strlen(field);
    at += strspn(at, " ");
    const size_t bytes = strcspn(at, ",-\r\n");
    (void)snprintf(out, out_bytes, "%.*s", (int)(bytes < out_bytes ? bytes : out_bytes - 1), at);
}

void doctor_read_srvr(const char *answer, struct doctor_zookeeper_server *out)
{
    if (answer[0] == '\0')
        (void)snprintf(out->why, sizeof(out->why), "it closes the connection");
    else if (strstr(answer, "not in the whitelist") != NULL)
        (void)snprintf(out->why, sizeof(out->why), "it answers no srvr: add it to 4lw.commands.whitelist");
    word_after(answer, "ookeeper version:", out->version, sizeof(out->version));
    word_after(answer, "Mode:", out->mode, sizeof(out->mode));
}

static int connect_to(const struct addrinfo *to)
{
    const struct timeval wait = {.tv_sec = WAIT_S};
    const int s = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -1;
    (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    (void)setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)); /* connect() waits as long */
    if (connect(s, to->ai_addr, to->ai_addrlen) == 0)
        return s;
    const int error = errno == EINPROGRESS ? ETIMEDOUT : errno;
    (void)close(s);
    errno = error;
    return -1;
}

static void doctor_zookeeper_ask(const char *host, const char *port, struct doctor_zookeeper_server *out)
{
    static const char word[] = "srvr";
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char answer[ANSWER_BYTES];
    size_t bytes = 0;
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        (void)snprintf(out->why, sizeof(out->why), "%s", gai_strerror(error));
        return;
    }
    const int s = connect_to(found);
    freeaddrinfo(found);
    if (s < 0 || send(s, word, sizeof(word) - 1, MSG_NOSIGNAL) != sizeof(word) - 1) {
        (void)snprintf(out->why, sizeof(out->why), "%s", strerror(errno));
    } else {
        for (ssize_t got = 1; got > 0 && bytes + 1 < sizeof(answer); bytes += got > 0 ? (size_t)got : 0)
            got = recv(s, answer + bytes, sizeof(answer) - 1 - bytes, 0);
        answer[bytes] = '\0';
        doctor_read_srvr(answer, out);
    }
    if (s >= 0)
        (void)close(s);
}

void doctor_ask_zookeeper(const char *servers, struct doctor_zookeeper *out)
{
    *out = (struct doctor_zookeeper){.count = 0};
    for (const char *at = servers; *at != '\0' && out->count < DOCTOR_ZOOKEEPER_MAX;) {
        struct doctor_zookeeper_server *server = &out->servers[out->count++];
        char host[64], resolved[128];
        const size_t bytes = strcspn(at, ",");
        (void)snprintf(server->address, sizeof(server->address), "%.*s", (int)bytes, at);
        at += bytes + (at[bytes] == ',');
        char *port = strrchr(server->address, ':');
        if (port == NULL || port == server->address) {
            (void)snprintf(server->why, sizeof(server->why), "it is not HOST:PORT");
            continue;
        }
        const bool is_bracketed = server->address[0] == '[' && port[-1] == ']';
        const size_t host_bytes = (size_t)(port - server->address) - (is_bracketed ? 2 : 0);
        (void)snprintf(host, sizeof(host), "%.*s", (int)host_bytes, server->address + is_bracketed);
        if (ps_zookeeper_hosts(server->address, resolved, sizeof(resolved), server->why, sizeof(server->why)))
            doctor_zookeeper_ask(host, port + 1, server); /* otherwise the node would not find it, either */
    }
}
