/* A capture on some cores at once: started, read and ended by calls. */
#ifndef CAPTURE_CORES_H
#define CAPTURE_CORES_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace.h"
#include "millrace_observe.h"

struct capture_cores;

struct capture_core {
    struct capture_cores *all;
    uint32_t index;  /* in the list */
    uint32_t number; /* the client's */
    struct mr_core_place place;
    struct mr_capture_state start, now; /* as of the start, and as of the last read */
    struct mr_future *future;           /* of the read in flight */
};

struct capture_cores {
    struct mr_client *client;
    uint64_t id;
    uint32_t count;
    struct capture_core *list; /* [count] */
    uint64_t start_ns, end_ns; /* since 1970, by this machine's clock */
    /* Called for each packet that was read, in the order of its core. */
    void (*visit)(void *arg, const struct capture_core *core, const struct mr_captured *packet);
    void *arg;
    bool (*is_stopped)(void); /* whether the user wants an end */
};

/* Starts it on core `only` of the client, or with UINT32_MAX on all. `request` has what to capture. On
 * failure mr_last_error() says why, and nothing is captured. */
enum mr_status capture_cores_start(struct capture_cores *cores, struct mr_client *client, uint32_t only,
                                   const struct mr_capture_request *request);
/* Reads from all of them once. `*left_bytes`: the most that any of them still has. MR_CANCELLED: the server
 * is silent, and the user does not want to wait. */
enum mr_status capture_cores_read(struct capture_cores *cores, bool is_last, uint64_t *left_bytes);
/* Ends it where it can; its numbers stay. */
void capture_cores_end(struct capture_cores *cores);
void capture_cores_free(struct capture_cores *cores);

#endif
