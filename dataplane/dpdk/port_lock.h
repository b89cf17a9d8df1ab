/* One data plane for each device: the lock on a port, and who holds it.
 *
 * Two servers on one device take each other's packets away: the second one's XDP program replaces the first
 * one's, and on af_packet both answer. The lock is an abstract Unix socket. Its name is the device's, so it
 * is as wide as the network namespace that the device is in, leaves no file, and ends with the process
 * however that ends.
 */
#ifndef DP_PORT_LOCK_H
#define DP_PORT_LOCK_H

#include <stdbool.h>
#include "dataplane/dataplane.h"

struct dp_port_lock {
    int device, label; /* sockets; -1: none */
};

/* Takes the lock on config->device before anything of the device is touched. False, with a line that names
 * the holder in `error`, when another process has it. A memif client connects to what somebody else holds,
 * and takes none. */
bool dp_port_lock(struct dp_port_lock *lock, const struct dp_config *config, char error[DP_ERROR_BYTES]);
void dp_port_unlock(struct dp_port_lock *lock);

#endif
