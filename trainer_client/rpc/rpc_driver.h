/* A worker's socket, and the threads that move its packets.
 *
 * A thread that waits also receives: one thread at a time has that role, spins for busy_poll_us, and then
 * sleeps until a packet comes. The others sleep on what they wait for, and one of them is woken when the role
 * becomes free. When no thread of the program waits, the worker's own thread takes the role, so that calls
 * are served while the program computes. It keeps out of the way for a while after each wait, because a
 * program that waits often receives faster itself.
 *
 * One lock, which is held for microseconds, guards the agent, its endpoint and sending. A thread that finds
 * it taken leaves its work in the agent's list, where the holder looks before and after it unlocks. So no
 * thread is woken for work that another can do.
 */
#ifndef MRC_RPC_DRIVER_H
#define MRC_RPC_DRIVER_H

#include "dataplane/rpc/agent.h"
#include "dataplane/udp/udp_socket.h"

struct mrc_rpc_driver;

struct mrc_rpc_driver_options {
    struct mr_address local; /* port 0: any */
    uint32_t udp_bytes_max;  /* 0: the transport's limit */
    uint8_t psk[MR_PSK_BYTES];
    bool has_psk;
    uint32_t busy_poll_us;
    uint32_t world_size;
    size_t memory_bytes;
};

/* Opens the socket. MR_INVALID_ARGUMENT (the address), MR_NO_MEMORY, with one line in `error`. */
enum mr_status mrc_rpc_driver_create(const struct mrc_rpc_driver_options *options,
                                     struct mrc_rpc_driver **out, char *error, size_t error_bytes);
/* Fills in the driver's part of the agent's configuration: driver, endpoint, uuid, incarnation. */
void mrc_rpc_driver_configure(struct mrc_rpc_driver *d, struct mr_agent_config *config);
/* Starts the thread, and takes over the agent. MR_NO_MEMORY: it does not. */
enum mr_status mrc_rpc_driver_start(struct mrc_rpc_driver *d, struct mr_rpc *agent);
/* Ends the threads, once what runs on them has ended, and closes the socket. Memory of results stays. Does
 * nothing the second time. */
void mrc_rpc_driver_close(struct mrc_rpc_driver *d);
/* Closes the driver, and destroys it and its agent, if there is one. Memory stays until all handles of the
 * agent have been released. NULL is allowed. */
void mrc_rpc_driver_destroy(struct mrc_rpc_driver *d);

#endif
