/* Serves the wire protocol from an ordinary UDP socket; the hub is called through this. One thread drives
 * it. */
#ifndef MRC_SOCKET_SERVER_H
#define MRC_SOCKET_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/base/clock.h"

struct mrc_socket_server;

struct mrc_socket_server_options {
    const char *listen;   /* "0.0.0.0:7800", "[::]:7800" */
    const char *key_file; /* NULL: no key */
    uint32_t incarnation;
    uint64_t start_id;          /* random at every start; 0: the incarnation stands for it */
    uint32_t lineage, restores; /* as in struct mr_accept; of stand-ins for nodes */
    mr_on_request on_request;
    void *app;
    /* For stand-ins of servers with several queues: the core whose queue received a datagram. NULL: its
     * own. */
    uint16_t (*arrived_at)(void *app, const struct mr_address *from);
    uint16_t core, core_count; /* which core of how many it stands for; 0, 0 = the only one */
    bool takes_epochs;         /* stands for a member of a cluster */
    size_t memory_bytes;       /* for messages; 0 = the transport's default */
    bool says_no_version;      /* stands for a version before 0.3.0 */
};
enum mr_status mrc_socket_server_create(const struct mrc_socket_server_options *options,
                                        struct mrc_socket_server **out, char *error, size_t error_bytes);
void mrc_socket_server_destroy(struct mrc_socket_server *s);
/* Receives, answers and runs timers; waits at most timeout_ms for something to do (0 = not at all). Returns
 * the number of packets handled. */
uint32_t mrc_socket_server_run(struct mrc_socket_server *s, int timeout_ms);
struct mr_endpoint *mrc_socket_server_endpoint(struct mrc_socket_server *s);
/* Returns the UDP port that it listens on; useful when it was asked for port 0. */
uint16_t mrc_socket_server_port(const struct mrc_socket_server *s);

#endif
