/* One non-blocking UDP socket, set up for the transport: large buffers, receive offload, and no
 * fragmentation. The transport itself finds out how much a path carries (IP_PMTUDISC_PROBE), and the kernel
 * reports what routers say as EMSGSIZE. The buffer's real capacity is measured here, so that nobody is
 * granted more than the kernel has room for. */
#ifndef MR_UDP_SOCKET_H
#define MR_UDP_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_status.h"

#define MR_UDP_BUFFER_BYTES       (4u << 20)
#define MR_UDP_DATAGRAM_BYTES_MAX 65535u

struct mr_udp_options {
    uint32_t buffer_bytes;  /* asked for, each way; 0 = MR_UDP_BUFFER_BYTES */
    uint32_t udp_bytes_max; /* 0 = from the route's MTU; the transport finds out when a path carries less */
};

struct mr_udp_socket {
    int fd;
    int family; /* AF_INET or AF_INET6 */
    bool connected;
    bool tells_local;              /* each datagram comes with the address that it was sent to */
    uint32_t udp_bytes_max;        /* 8-byte multiple within MR_UDP_BYTES_MIN..MR_UDP_BYTES_MAX */
    uint32_t receive_buffer_bytes; /* of payload, with the worst packing into the kernel's buffers */
    uint32_t receive_window_bytes; /* below half of that: what may be in flight */
};

/* Opens a socket connected to one peer: it gets that peer's datagrams only. MR_UNREACHABLE (no route),
 * MR_NO_MEMORY. */
enum mr_status mr_udp_connect(const struct mr_address *peer, const struct mr_udp_options *options,
                              struct mr_udp_socket *out, char *error, size_t error_bytes);
/* Opens a socket bound to a local address, for any number of peers; port 0 = any free one.
 * MR_BUSY (in use), MR_INVALID_ARGUMENT (not an address of this machine), MR_NO_MEMORY. */
enum mr_status mr_udp_bind(const struct mr_address *local, const struct mr_udp_options *options,
                           struct mr_udp_socket *out, char *error, size_t error_bytes);
/* Return the MTU of the path to a connected socket's peer, as far as this machine knows it from its routes
 * and from routers' reports, and the largest UDP payload that fits. 0: unknown. */
uint32_t mr_udp_path_mtu(const struct mr_udp_socket *s);
uint32_t mr_udp_path_bytes(const struct mr_udp_socket *s);
/* The address it is bound to. */
void mr_udp_local(const struct mr_udp_socket *s, struct mr_address *out);
void mr_udp_close(struct mr_udp_socket *s);

#endif
