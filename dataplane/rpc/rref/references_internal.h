/* What the sources of references.h share. */
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

/* references.c */
/* Zeroed, for free(). NULL: no memory, and nothing is reserved. */
void *mr_references_alloc(struct mr_references *refs, size_t bytes);
void mr_references_send(struct mr_references *refs, uint32_t to, uint32_t kind, uint32_t rank,
                        uint64_t reference, uint64_t fork);
/* All of the list run with the outcome, at the end of the function. */
void mr_references_wake(struct mr_references *refs, struct mr_link *waiters, enum mr_status status,
                        void *value);
void mr_references_wait(struct mr_link *waiters, struct mr_reference_waiter *waiter);
/* What every public function does last. */
void mr_references_run_due(struct mr_references *refs);
static inline bool mr_references_bit(const struct mr_references *refs, const uint8_t *bits, uint32_t row,
                                     uint32_t column)
{
    size_t at = (size_t)row * refs->config.world_size + column;
    return (bits[at / 8] >> (at % 8) & 1) != 0;
}
static inline void mr_references_set_bit(struct mr_references *refs, uint8_t *bits, uint32_t row,
                                         uint32_t column, bool value)
{
    size_t at = (size_t)row * refs->config.world_size + column;
    uint8_t mask = (uint8_t)(1u << (at % 8));
    bits[at / 8] = value ? (uint8_t)(bits[at / 8] | mask) : (uint8_t)(bits[at / 8] & ~mask);
}

/* references_owner.c */
/* The value's, or one that is EXPECTED or LOST from now on. NULL: no memory. */
struct mr_owned *mr_owned_find_or_expect(struct mr_references *refs, uint64_t reference);
enum mr_status mr_owned_on_fork(struct mr_references *refs, uint32_t from,
                                const struct mr_reference_message *message);
void mr_owned_on_deleted(struct mr_references *refs, uint32_t from, uint64_t id);
/* NULL: no memory. */
struct mr_fork *mr_fork_add(struct mr_references *refs, struct mr_owned *owned, uint64_t id, uint32_t holder);
void mr_fork_remove(struct mr_references *refs, struct mr_fork *fork);
void mr_owned_handle_released(struct mr_references *refs, struct mr_owned *owned);
/* What `rank` was to make will not come. */
void mr_owned_creator_died(struct mr_references *refs, uint32_t rank);
void mr_owned_stop_all(struct mr_references *refs); /* waiters end */
void mr_owned_free_values(struct mr_references *refs);

/* references_user.c */
void mr_hold_on_confirmed(struct mr_references *refs, uint32_t from, uint64_t reference, uint64_t fork);
void mr_hold_on_accepted(struct mr_references *refs, uint64_t fork);
void mr_hold_owner_died(struct mr_references *refs, uint32_t rank);
/* What was passed to `rank`: its owner is to know. */
void mr_hold_child_died(struct mr_references *refs, uint32_t rank);
void mr_hold_stop_all(struct mr_references *refs);

/* references_death.c */
/* A fork of a worker that is dead and not settled has been added. */
void mr_settle_begin(struct mr_references *refs);
void mr_settle_on_ask(struct mr_references *refs, uint32_t from, uint32_t rank);
void mr_settle_on_answer(struct mr_references *refs, uint32_t from, uint32_t rank);
/* A fork of `owner`'s that came from `parent` is confirmed. */
void mr_settle_confirmed(struct mr_references *refs, uint32_t owner, uint32_t parent);

#endif
