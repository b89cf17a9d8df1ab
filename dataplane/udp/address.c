#include "dataplane/udp/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANDIDATES_MAX 16u

static const uint8_t ipv4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool mr_address_is_ipv4(const struct mr_address *a)
{
    return memcmp(a->ip, ipv4_prefix, sizeof(ipv4_prefix)) == 0;
}

void mr_address_from_ipv4(const uint8_t ipv4[4], struct mr_address *out)
{
    *out = (struct mr_address){.port = 0};
    memcpy(out->ip, ipv4_prefix, sizeof(ipv4_prefix));
    memcpy(out->ip + sizeof(ipv4_prefix), ipv4, 4);
}

bool mr_address_is_loopback(const struct mr_address *a)
{
    static const uint8_t ipv6[16] = {[15] = 1};
    return mr_address_is_ipv4(a) ? a->ip[12] == 127 : memcmp(a->ip, ipv6, sizeof(ipv6)) == 0;
}

bool mr_address_is_any(const struct mr_address *a)
{
    static const uint8_t zero[16];
    if (mr_address_is_ipv4(a))
        return memcmp(a->ip + 12, zero, 4) == 0;
    return memcmp(a->ip, zero, 16) == 0;
}

bool mr_address_is_same(const struct mr_address *a, const struct mr_address *b)
{
    return a->port == b->port && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

bool mr_address_is_among(const struct mr_address *list, uint32_t count, const struct mr_address *address)
{
    for (uint32_t i = 0; i < count; i++)
        if (mr_address_is_same(&list[i], address))
            return true;
    return false;
}

int mr_address_open_socket(const struct mr_address *address, int type, int *family)
{
    *family = mr_address_is_ipv4(address) ? AF_INET : AF_INET6;
    int fd = socket(*family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && errno == EAFNOSUPPORT && mr_address_is_any(address)) {
        *family = AF_INET;
        fd = socket(*family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    return fd;
}

socklen_t mr_address_to_sockaddr(const struct mr_address *a, int family, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (family == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(a->port)};
        memcpy(&in.sin_addr, a->ip + 12, 4);
        memcpy(out, &in, sizeof(in));
        return sizeof(in);
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};

    memcpy(&in6.sin6_addr, a->ip, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
        in6.sin6_scope_id = a->path[4];
    memcpy(out, &in6, sizeof(in6));
    return sizeof(in6);
}

void mr_address_from_sockaddr(const struct sockaddr *sa, struct mr_address *out)
{
    memset(out, 0, sizeof(*out));
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof(in));
        mr_address_from_ipv4((const uint8_t *)&in.sin_addr, out);
        out->port = ntohs(in.sin_port);
        return;
    }
    struct sockaddr_in6 in6;

    memcpy(&in6, sa, sizeof(in6));
    memcpy(out->ip, &in6.sin6_addr, 16);
    out->port = ntohs(in6.sin6_port);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
        out->path[4] = in6.sin6_scope_id;
}

void mr_address_text(const struct mr_address *a, char text[MR_ADDRESS_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (mr_address_is_ipv4(a)) {
        inet_ntop(AF_INET, a->ip + 12, ip, sizeof(ip));
        snprintf(text, MR_ADDRESS_TEXT_BYTES, "%s:%u", ip, a->port);
    } else {
        inet_ntop(AF_INET6, a->ip, ip, sizeof(ip));
        snprintf(text, MR_ADDRESS_TEXT_BYTES, "[%s]:%u", ip, a->port);
    }
}

static bool port_parse(const char *text, char *port, size_t port_bytes)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value == 0 || value > 65535)
        return text[0] == '0' && text[1] == '\0' && snprintf(port, port_bytes, "0") > 0;
    snprintf(port, port_bytes, "%lu", value);
    return true;
}

/* Splits into host and port; false when the text is none of the forms in the header. */
static bool address_split(const char *text, char host[MR_HOST_BYTES], char port[8])
{
    const char *host_begin = text, *host_end, *port_text = NULL;
    if (text[0] == '[') {
        host_begin = text + 1;
        host_end = strchr(text, ']');
        if (host_end == NULL || (host_end[1] != '\0' && host_end[1] != ':'))
            return false;
        if (host_end[1] == ':')
            port_text = host_end + 2;
    } else {
        const char *colon = strchr(text, ':');
        host_end = text + strlen(text);
        if (colon != NULL && strchr(colon + 1, ':') == NULL) {
            host_end = colon;
            port_text = colon + 1;
        }
    }
    size_t host_bytes = (size_t)(host_end - host_begin);

    if (host_bytes >= MR_HOST_BYTES)
        return false;
    memcpy(host, host_begin, host_bytes);
    host[host_bytes] = '\0';
    if (port_text != NULL)
        return port_parse(port_text, port, 8);
    snprintf(port, 8, "%u", MR_PORT_DEFAULT);
    return true;
}

bool mr_address_has_route(const struct mr_address *to)
{
    struct sockaddr_storage sa;
    int family = mr_address_is_ipv4(to) ? AF_INET : AF_INET6;
    socklen_t bytes = mr_address_to_sockaddr(to, family, &sa);
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, (const struct sockaddr *)&sa, bytes) == 0;
    int reason = errno;
    if (fd >= 0)
        close(fd);
    errno = reason;
    return ok;
}

/* What the resolver's own words leave out: whether it is for good, and where to look. */
static const char *why_unresolved(int failed)
{
    switch (failed) {
    case EAI_NONAME:
        return "no such host: look for a typing error, or use its address";
    case EAI_AGAIN:
        return "the name server does not answer now: try again, look at /etc/resolv.conf, or use its address";
    case EAI_SYSTEM:
        return strerror(errno);
    default:
        return gai_strerror(failed);
    }
}

bool mr_address_is_name(const char *text)
{
    char host[MR_HOST_BYTES], port[8];
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    if (!address_split(text, host, port) || host[0] == '\0')
        return false;
    const bool is_address = getaddrinfo(host, port, &hints, &list) == 0;
    if (is_address)
        freeaddrinfo(list);
    return !is_address;
}

static enum mr_status look_up(const char *text, bool listening, struct addrinfo **list, char *error,
                              size_t error_bytes)
{
    char host[MR_HOST_BYTES], port[8];
    if (!address_split(text, host, port) || (host[0] == '\0' && !listening)) {
        snprintf(error, error_bytes,
                 "\"%.100s\" is no address: write host:port, for example 10.0.0.1:%u or "
                 "[fd00::1]:%u",
                 text, MR_PORT_DEFAULT, MR_PORT_DEFAULT);
        return MR_INVALID_ARGUMENT;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = listening ? AI_PASSIVE : 0};
    int failed = getaddrinfo(host[0] == '\0' ? NULL : host, port, &hints, list);

    if (failed != 0) {
        snprintf(error, error_bytes, "%s: the name does not resolve: %s", host, why_unresolved(failed));
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

enum mr_status mr_address_resolve_all(const char *text, struct mr_address *out, uint32_t max, uint32_t *count,
                                      char *error, size_t error_bytes)
{
    struct addrinfo *list = NULL;
    enum mr_status status = look_up(text, false, &list, error, error_bytes);
    *count = 0;
    if (status != MR_OK)
        return status;
    for (const struct addrinfo *ai = list; ai != NULL && *count < max; ai = ai->ai_next)
        mr_address_from_sockaddr(ai->ai_addr, &out[(*count)++]);
    freeaddrinfo(list);
    return MR_OK;
}

enum mr_status mr_address_resolve_candidates(const char *text, struct mr_address *out, uint32_t max,
                                             uint32_t *count, char *error, size_t error_bytes)
{
    uint32_t all = 0;
    const enum mr_status status = mr_address_resolve_all(text, out, max, &all, error, error_bytes);
    *count = 0;
    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < all; i++)
        if (!mr_address_is_among(out, *count, &out[i]) && mr_address_has_route(&out[i]))
            out[(*count)++] = out[i];
    *count = *count == 0 ? all : *count; /* nothing was overwritten then */
    return MR_OK;
}

/* A kernel may have no IPv6, and /etc/hosts know ::1 for "localhost" all the same. */
static bool family_is_there(int family)
{
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno != EAFNOSUPPORT;
    close(fd);
    return true;
}

enum mr_status mr_address_resolve(const char *text, bool listening, struct mr_address *out, char *error,
                                  size_t error_bytes)
{
    struct mr_address candidates[CANDIDATES_MAX];
    struct addrinfo *list = NULL;
    enum mr_status status;
    uint32_t count;
    if (!listening) {
        status = mr_address_resolve_candidates(text, candidates, CANDIDATES_MAX, &count, error, error_bytes);
        if (status == MR_OK)
            *out = candidates[0];
        return status;
    }
    status = look_up(text, true, &list, error, error_bytes);
    if (status != MR_OK)
        return status;
    const struct addrinfo *ai = list;
    while (ai->ai_next != NULL && !family_is_there(ai->ai_family))
        ai = ai->ai_next;
    mr_address_from_sockaddr(ai->ai_addr, out);
    freeaddrinfo(list);
    return MR_OK;
}
