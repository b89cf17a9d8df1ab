/* The state behind rref_count.h: for rref_count.c, and for tests and the simulator, which look into it. */
#ifndef MR_RREF_COUNT_INTERNAL_H
#define MR_RREF_COUNT_INTERNAL_H

#include <stdatomic.h>

#include "dataplane/rpc/rref/rref_count.h"

enum mr_owned_state {
    MR_OWNED_EXPECTED, /* known, but the call that makes it has not arrived */
    MR_OWNED_RUNNING,  /* that call has arrived */
    MR_OWNED_READY,
    MR_OWNED_LOST, /* that call will never arrive */
};

/* A value of this worker, or one that it will make. */
struct mr_owned {
    struct mr_id_node by_id;
    enum mr_owned_state state;
    void *value;
    struct mr_reference handle; /* `count` may be 0 */
    struct mr_link forks;
    struct mr_link waiters; /* for the value */
    struct mr_owned *next_freed;
};

/* Another worker's hold of a value of this worker. */
struct mr_fork {
    struct mr_id_node by_fork;
    struct mr_owned *owned;
    struct mr_link of_owned;
    uint32_t holder;
};

/* A fork that this worker, a user, passed on, and that has not been accepted. */
struct mr_child {
    struct mr_id_node by_fork;
    struct mr_reference *parent;
    uint32_t to;
};

/* What happens to the forks that a dead worker held of this worker's values. */
enum mr_settle_state {
    MR_SETTLE_NONE, /* it had none, so nobody was asked */
    MR_SETTLE_RUNNING,
    MR_SETTLE_DONE, /* everything that it had passed on is known, and its own forks are deleted */
};

struct mr_peer {
    bool dead;
    bool absent; /* it has not joined yet */
    enum mr_settle_state settle;
    uint32_t settle_missing; /* answers that have not come */
};

struct mr_references {
    struct mr_references_config config;
    _Atomic uint64_t counter;
    struct mr_id_map owned, forks; /* struct mr_owned, struct mr_fork */
    struct mr_id_map holds;        /* struct mr_reference, of living owners */
    struct mr_id_map lost;         /* struct mr_reference, of no use any more */
    struct mr_id_map children;     /* struct mr_child */
    struct mr_peer *peers;
    uint32_t settling;       /* peers in MR_SETTLE_RUNNING */
    uint8_t *answered;       /* bit [dead][living]: it has answered our SETTLE, or need not */
    uint8_t *asked;          /* bit [dead][owner]: it wants an answer once no fork from there waits for it */
    struct mr_link due;      /* waiters to run */
    struct mr_owned *freed;  /* to be freed at the end of the function */
    struct mr_spare *spares; /* for when there is no other memory */
    uint32_t spare_count;
    bool running; /* in run_due() */
    bool destroying;
};

/* A block that is large enough for each of the kinds above. */
struct mr_spare {
    struct mr_spare *next;
};

#endif
