#include "dataplane/udp/udp_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dataplane/udp/address.h"

#define IPV4_UDP_HEADER_BYTES 28u
#define IPV6_UDP_HEADER_BYTES 48u
/* The kernel charges a datagram for its sk_buff and for the power of two that its data was allocated in. */
#define SKB_FIXED_BYTES 1024u

static void set_int(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

static uint32_t get_int(int fd, int level, int option)
{
    int value = 0;
    socklen_t bytes = sizeof(value);
    return getsockopt(fd, level, option, &value, &bytes) == 0 && value > 0 ? (uint32_t)value : 0;
}

/* The FORCE options pass the system's limit and need CAP_NET_ADMIN; without it the plain ones are cut to the
 * limit. */
static void set_buffers(int fd, uint32_t bytes)
{
    int value = bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)bytes;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &value, sizeof(value)) != 0)
        set_int(fd, SOL_SOCKET, SO_RCVBUF, value);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &value, sizeof(value)) != 0)
        set_int(fd, SOL_SOCKET, SO_SNDBUF, value);
}

static void set_options(struct mr_udp_socket *s, const struct mr_udp_options *options)
{
    set_buffers(s->fd, options->buffer_bytes == 0 ? MR_UDP_BUFFER_BYTES : options->buffer_bytes);
    set_int(s->fd, IPPROTO_UDP, UDP_GRO, 1);
    if (s->family == AF_INET6) {
        set_int(s->fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        set_int(s->fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    }
    set_int(s->fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
}

uint32_t mr_udp_path_mtu(const struct mr_udp_socket *s)
{
    return s->family == AF_INET ? get_int(s->fd, IPPROTO_IP, IP_MTU) : get_int(s->fd, IPPROTO_IPV6, IPV6_MTU);
}

uint32_t mr_udp_path_bytes(const struct mr_udp_socket *s)
{
    uint32_t mtu = mr_udp_path_mtu(s);
    uint32_t headers = s->family == AF_INET ? IPV4_UDP_HEADER_BYTES : IPV6_UDP_HEADER_BYTES;
    return mtu > headers ? mtu - headers : 0;
}

static uint32_t clamp_udp_bytes(uint32_t bytes)
{
    if (bytes > MR_UDP_BYTES_MAX)
        return MR_UDP_BYTES_MAX;
    return bytes < MR_UDP_BYTES_MIN ? MR_UDP_BYTES_MIN : bytes & ~7u;
}

static void measure(struct mr_udp_socket *s, const struct mr_udp_options *options)
{
    uint64_t kernel_bytes = get_int(s->fd, SOL_SOCKET, SO_RCVBUF);
    uint32_t route_bytes = s->connected ? mr_udp_path_bytes(s) : MR_UDP_BYTES_MAX;
    s->udp_bytes_max = clamp_udp_bytes(options->udp_bytes_max != 0 ? options->udp_bytes_max : route_bytes);
    uint64_t payload = s->udp_bytes_max;
    uint64_t charged = 2 * payload + SKB_FIXED_BYTES;
    uint64_t room = kernel_bytes * payload / charged;

    if (room > UINT32_MAX)
        room = UINT32_MAX;
    s->receive_buffer_bytes = (uint32_t)room;
    s->receive_window_bytes = (uint32_t)(room / 2 > 2 * payload ? room / 2 : 2 * payload);
}

/* What ties a socket to an address: connect() or bind(). */
struct tie {
    int (*call)(int fd, const struct sockaddr *address, socklen_t bytes);
    enum mr_status refused;
    const char *what; /* it means when it fails */
};

static enum mr_status open_socket(const struct tie *tie, const struct mr_address *address,
                                  const struct mr_udp_options *options, struct mr_udp_socket *s, char *error,
                                  size_t error_bytes)
{
    struct sockaddr_storage sa;
    char text[MR_ADDRESS_TEXT_BYTES];
    *s = (struct mr_udp_socket){.fd = -1};
    s->fd = mr_address_open_socket(address, SOCK_DGRAM, &s->family);
    if (s->fd < 0) {
        snprintf(error, error_bytes, "cannot open a UDP socket: %s", strerror(errno));
        return MR_NO_MEMORY;
    }
    set_options(s, options);
    socklen_t sa_bytes = mr_address_to_sockaddr(address, s->family, &sa);

    if (tie->call(s->fd, (const struct sockaddr *)&sa, sa_bytes) == 0)
        return MR_OK;
    int reason = errno;

    mr_address_text(address, text);
    snprintf(error, error_bytes, "%s: %s: %s", text, tie->what, strerror(reason));
    close(s->fd);
    return reason == EADDRINUSE ? MR_BUSY : tie->refused;
}

enum mr_status mr_udp_connect(const struct mr_address *peer, const struct mr_udp_options *options,
                              struct mr_udp_socket *out, char *error, size_t error_bytes)
{
    const struct tie tie = {connect, MR_UNREACHABLE, "no way there from this machine"};
    struct mr_udp_socket s;
    enum mr_status status = open_socket(&tie, peer, options, &s, error, error_bytes);
    if (status != MR_OK)
        return status;
    s.connected = true;
    measure(&s, options);
    *out = s;
    return MR_OK;
}

enum mr_status mr_udp_bind(const struct mr_address *local, const struct mr_udp_options *options,
                           struct mr_udp_socket *out, char *error, size_t error_bytes)
{
    const struct tie tie = {bind, MR_INVALID_ARGUMENT, "cannot listen there"};
    struct mr_udp_socket s;
    enum mr_status status = open_socket(&tie, local, options, &s, error, error_bytes);
    if (status != MR_OK)
        return status;
    if (mr_address_is_any(local)) {
        s.tells_local = true;
        set_int(s.fd, IPPROTO_IP, IP_PKTINFO, 1);
        if (s.family == AF_INET6)
            set_int(s.fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    }
    measure(&s, options);
    *out = s;
    return MR_OK;
}

void mr_udp_local(const struct mr_udp_socket *s, struct mr_address *out)
{
    struct sockaddr_storage sa;
    socklen_t bytes = sizeof(sa);
    memset(&sa, 0, sizeof(sa));
    (void)getsockname(s->fd, (struct sockaddr *)&sa, &bytes);
    mr_address_from_sockaddr((const struct sockaddr *)&sa, out);
}

void mr_udp_close(struct mr_udp_socket *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}
