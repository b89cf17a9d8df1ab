/* The directory of DPDK's telemetry sockets, BASE/dpdk/NAME. DPDK takes BASE from $RUNTIME_DIRECTORY, else
 * /var/run of root, $XDG_RUNTIME_DIR, or /tmp, and does not check who owns what is there. Main thread. */
#ifndef DP_RUNTIME_DIRECTORY_H
#define DP_RUNTIME_DIRECTORY_H

#include <limits.h>
#include <stdbool.h>
#include "dataplane/dataplane.h"

struct dp_runtime_directory {
    char base[PATH_MAX];
    char name[64];
    int parent; /* BASE/dpdk */
    int own;    /* BASE/dpdk/NAME */
    bool is_fallback;
};

/* Creates and opens the directory of the node `name` for DPDK. Each directory of the path belongs to this
 * user or to root, and no other user can write to it; links are not followed. If what DPDK would choose is
 * not so, the base is SHARED/millrace-UID or SHARED/millrace-RANDOM; `shared` has the sticky bit, as /tmp
 * has. Sets $RUNTIME_DIRECTORY for DPDK then. False, with one line in `error`, if there is none. */
bool dp_runtime_directory_open(struct dp_runtime_directory *d, const char *name, const char *shared,
                               char error[DP_ERROR_BYTES]);

/* Removes DPDK's telemetry sockets that no other process serves, and then the directories that are empty and
 * were made by dp_runtime_directory_open(). Other files stay. Closes `d`. */
void dp_runtime_directory_remove(struct dp_runtime_directory *d);

#endif
