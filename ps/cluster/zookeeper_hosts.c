#include "ps/cluster/zookeeper_hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SERVER_BYTES 300u

/* As the library asks; a family that no interface has is left out, or the whole name is refused. */
static int hosts_resolve(const char *host, const char *port, int flags, struct addrinfo **found)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP, .ai_flags = flags};
    return getaddrinfo(host, port, &hints, found);
}

/* One server, HOST:PORT. */
static bool hosts_one(const char *server, char *out, size_t out_bytes, char *why, size_t why_bytes)
{
    char host[SERVER_BYTES], ipv4[INET_ADDRSTRLEN];
    struct addrinfo *found;
    (void)snprintf(out, out_bytes, "%s", server);
    (void)snprintf(host, sizeof(host), "%s", server);
    char *port = strrchr(host, ':'), *name = host;
    if (port == NULL)
        return true; /* the configuration's rules refuse it */
    *port++ = '\0';
    if (host[0] == '[' && port[-2] == ']') {
        port[-2] = '\0';
        name++;
    }
    if (hosts_resolve(name, port, AI_ADDRCONFIG, &found) == 0) {
        freeaddrinfo(found);
        return true;
    }
    const int error = hosts_resolve(name, port, 0, &found);
    if (error != 0) {
        (void)snprintf(why, why_bytes, "%s: %s", name, gai_strerror(error));
        return false;
    }
    const struct addrinfo *at = found;
    while (at != NULL && at->ai_family != AF_INET)
        at = at->ai_next;
    if (at != NULL) {
        const struct sockaddr_in *address = (const void *)at->ai_addr;
        (void)inet_ntop(AF_INET, &address->sin_addr, ipv4, sizeof(ipv4));
        (void)snprintf(out, out_bytes, "::ffff:%s:%s", ipv4, port);
    } else {
        (void)snprintf(
            why, why_bytes,
            "%s has an IPv6 address only, and no interface of this machine has one, which ZooKeeper's "
            "library demands: give one to an interface, or name an IPv4 address",
            name);
    }
    freeaddrinfo(found);
    return at != NULL;
}

bool ps_zookeeper_hosts(const char *servers, char *out, size_t out_bytes, char *why, size_t why_bytes)
{
    size_t used = 0;
    bool are_known = true;
    out[0] = why[0] = '\0';
    for (const char *at = servers; *at != '\0' && used < out_bytes;) {
        char server[SERVER_BYTES], resolved[SERVER_BYTES], what[SERVER_BYTES * 2];
        const size_t bytes = strcspn(at, ",");
        (void)snprintf(server, sizeof(server), "%.*s", (int)bytes, at);
        at += bytes + (at[bytes] == ',');
        const bool is_known = hosts_one(server, resolved, sizeof(resolved), what, sizeof(what));
        if (!is_known && are_known)
            (void)snprintf(why, why_bytes, "%s", what);
        are_known &= is_known;
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? "," : "", resolved);
    }
    return are_known;
}
