/* The state behind references.h: for references.c, and for tests and the simulator, which look into it. */
#ifndef MR_REFERENCES_INTERNAL_H
#define MR_REFERENCES_INTERNAL_H

#include <stdatomic.h>

#include "dataplane/rpc/rref/references.h"

enum mr_owned_state {
    MR_OWNED_EXPECTED, /* heard of; the call that makes it has not arrived */
    MR_OWNED_RUNNING,  /* it arrived */
    MR_OWNED_READY,
    MR_OWNED_LOST, /* it will never arrive */
};

/* A value of ours, or one that is to become ours. */
struct mr_owned {
    struct mr_id_node by_id;
    enum mr_owned_state state;
    void *value;
    struct mr_reference handle; /* `count` may be 0 */
    struct mr_link forks;
    struct mr_link waiters; /* for the value */
    struct mr_owned *next_freed;
};

/* A hold of somebody else's, of a value of ours. */
struct mr_fork {
    struct mr_id_node by_fork;
    struct mr_owned *owned;
    struct mr_link of_owned;
    uint32_t holder;
};

/* What a user passed on, and is not accepted. */
struct mr_child {
    struct mr_id_node by_fork;
    struct mr_reference *parent;
    uint32_t to;
};

/* Of the forks that a dead worker held of our values. */
enum mr_settle_state {
    MR_SETTLE_NONE, /* it had none, so nobody was asked */
    MR_SETTLE_RUNNING,
    MR_SETTLE_DONE, /* all that it had passed on is known; its own forks are gone */
};

struct mr_peer {
    bool dead;
    enum mr_settle_state settle;
    uint32_t settle_missing; /* answers */
};

struct mr_references {
    struct mr_references_config config;
    _Atomic uint64_t counter;
    struct mr_id_map owned, forks; /* struct mr_owned, struct mr_fork */
    struct mr_id_map holds;        /* struct mr_reference, of living owners */
    struct mr_id_map lost;         /* and those of no use */
    struct mr_id_map children;     /* struct mr_child */
    struct mr_peer *peers;
    uint32_t settling;       /* peers in MR_SETTLE_RUNNING */
    uint8_t *answered;       /* bit [dead][living]: has answered our SETTLE, or need not */
    uint8_t *asked;          /* bit [dead][owner]: wants an answer when no fork from there waits for it */
    struct mr_link due;      /* waiters */
    struct mr_owned *freed;  /* to be given back at the end of the function */
    struct mr_spare *spares; /* for when there is no other memory */
    uint32_t spare_count;
    bool running; /* what is due */
    bool destroying;
};

/* One block of any of the kinds above. */
struct mr_spare {
    struct mr_spare *next;
};

#endif
