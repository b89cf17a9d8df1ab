/* Converts addresses between text, struct mr_address and sockaddr.
 *
 * In the library mr_address.path means: [0..3] the local address that a packet came in on (as ip[]; all zero
 * = not known), [4] the interface, for link-local peers and for the way back.
 */
#ifndef MR_ADDRESS_H
#define MR_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_status.h"

#define MR_PORT_DEFAULT       7700u
#define MR_ADDRESS_TEXT_BYTES 64u /* "[ipv6]:port" */
#define MR_HOST_BYTES         256u

/* "10.0.0.1:7700", "[fd00::1]:7700", "fd00::1", "name:7700", "name". An empty host is the wildcard address
 * and allowed for listening only. Names are resolved; of several addresses the first is taken that the
 * machine has a route to. MR_INVALID_ARGUMENT, with one line in `error`. */
enum mr_status mr_address_resolve(const char *text, bool listening, struct mr_address *out, char *error,
                                  size_t error_bytes);

/* The same for all addresses of a name, in the resolver's order: up to `max`, whether there is a route or
 * not. */
enum mr_status mr_address_resolve_all(const char *text, struct mr_address *out, uint32_t max, uint32_t *count,
                                      char *error, size_t error_bytes);
/* Resolves the candidates of a connection, without repetitions: the addresses that the machine has a route
 * to, or all if it has a route to none. Try them in turn: a route does not mean that a server answers. */
enum mr_status mr_address_resolve_candidates(const char *text, struct mr_address *out, uint32_t max,
                                             uint32_t *count, char *error, size_t error_bytes);
/* Whether the host of such a text has to be looked up, which may wait for a name server. */
bool mr_address_is_name(const char *text);
/* Whether the machine has a route there; otherwise errno says why. Nothing is sent. */
bool mr_address_has_route(const struct mr_address *to);

bool mr_address_is_ipv4(const struct mr_address *a);
/* That IPv4 address as ip[]; everything else is zero. */
void mr_address_from_ipv4(const uint8_t ipv4[4], struct mr_address *out);
bool mr_address_is_any(const struct mr_address *a);
/* The same ip and port, by whatever path. */
bool mr_address_is_same(const struct mr_address *a, const struct mr_address *b);
bool mr_address_is_among(const struct mr_address *list, uint32_t count, const struct mr_address *address);
/* Opens a socket of SOCK_DGRAM or SOCK_STREAM in the address's family, which it sets; the wildcard's is IPv4
 * where the kernel has no IPv6. Non-blocking, closed by exec. Returns -1 with errno. */
int mr_address_open_socket(const struct mr_address *address, int type, int *family);
/* 127.0.0.0/8 or ::1: nobody else reaches it. */
bool mr_address_is_loopback(const struct mr_address *a);
/* family: the socket's; an AF_INET6 socket takes IPv4 peers as mapped addresses. Returns the length. */
socklen_t mr_address_to_sockaddr(const struct mr_address *a, int family, struct sockaddr_storage *out);
/* path is zero, apart from the interface of a link-local address. */
void mr_address_from_sockaddr(const struct sockaddr *sa, struct mr_address *out);
void mr_address_text(const struct mr_address *a, char text[MR_ADDRESS_TEXT_BYTES]);

#endif
