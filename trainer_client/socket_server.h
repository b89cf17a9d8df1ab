/* Serving the wire protocol from an ordinary UDP socket: the hub, and later workers, are called through this.
 * One thread drives it. */
#ifndef MRC_SOCKET_SERVER_H
#define MRC_SOCKET_SERVER_H

#include <stdint.h>
#include "dataplane/wire/endpoint.h"

struct mrc_socket_server;

struct mrc_socket_server_options {
    const char *listen;   /* "0.0.0.0:7800", "[::]:7800" */
    const char *key_file; /* NULL: no key */
    uint32_t incarnation;
    mr_on_request on_request;
    void *app;
};
enum mr_status mrc_socket_server_create(const struct mrc_socket_server_options *options,
                                        struct mrc_socket_server **out, char *error, size_t error_bytes);
void mrc_socket_server_destroy(struct mrc_socket_server *s);
/* Receive, answer, run timers; waits at most timeout_ms for something to do (0 = not at all). Returns the packets handled. */
uint32_t mrc_socket_server_run(struct mrc_socket_server *s, int timeout_ms);
struct mr_endpoint *mrc_socket_server_endpoint(struct mrc_socket_server *s);
uint64_t mrc_now_us(void);

#endif
