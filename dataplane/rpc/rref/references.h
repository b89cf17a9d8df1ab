/* References: who holds which value, over all workers. A pure state machine: no network, no clock, no thread.
 *
 * It follows PyTorch's remote reference protocol. A value lives with its owner. Another worker's hold of it,
 * a *fork*, has a number of its own, and is unknown to the owner, then known, then deleted. The value is
 * freed when the owner itself has no handle of it and no fork is left. A fork comes to be
 *   - at the owner, which passes the value to another worker: known from the start;
 *   - at a user (the *parent*), who passes it to another one (the *child*): the child notifies the owner
 *     (FORK), the owner confirms (CONFIRMED), the child notifies its parent (ACCEPTED);
 *   - at a user who has the owner make the value (mr_remote): the owner confirms when the call arrives.
 * What a user passes to the owner has a number, too, and is accepted as soon as it arrives.
 *
 * Two rules keep a value from being freed too early: a user deletes its fork (DELETED) when it is confirmed
 * and everything passed on from it is accepted, not before; and the forks of a worker that died stay until
 * the owner knows all that this worker passed on. For the second, which PyTorch does not have, the owner asks
 * all living workers (SETTLE). Each takes that worker for dead from then on, and answers (SETTLED) once none
 * of its forks from there waits for this owner's confirmation. If others die meanwhile, the forks of all of
 * them stay until all have been asked about each. And whoever passed something to a worker that died before
 * it accepted notifies the owner of that fork (FORK, in the dead worker's name) and takes the owner's
 * confirmation for the acceptance.
 *
 * What the owner of this state machine provides
 *   - Messages arrive once, or often, in any order, or either side takes the other for dead. Values that hold
 *     references arrive at most once, and once unless one side dies, or the sender knows that they never left
 *     (mr_references_unpass).
 *   - The references of a message are taken (mr_references_take) when it arrives, before anything that
 *     arrived later is handed in, also when the call is then refused. What does not want them releases them.
 *   - A worker that died is dead for everybody in the end, and stays so. What comes from it after
 *     mr_references_died() is dropped; messages, passes and takes are refused here, too.
 *
 * Everything belongs to one thread. `send` must not call back; `free_value` and waiters may: they run at the
 * end of the function that made them due.
 */
#ifndef MR_REFERENCES_H
#define MR_REFERENCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/rpc/base/id_map.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/format/mr_status.h"

#define MR_REFERENCE_RANK_SHIFT                                                                              \
    48 /* ids of references and forks are (rank that made them << 48) | counter from 1 */

enum mr_reference_kind {
    MR_REFERENCE_FORK = 1,      /* to the owner: `rank` holds this fork, or held it when it died */
    MR_REFERENCE_CONFIRMED = 2, /* the owner's answer */
    MR_REFERENCE_ACCEPTED = 3,  /* to the parent */
    MR_REFERENCE_DELETED = 4,   /* to the owner */
    MR_REFERENCE_SETTLE = 5,    /* `rank` is dead */
    MR_REFERENCE_SETTLED = 6,   /* the answer */
    MR_REFERENCE_KIND_COUNT
};

struct mr_reference_message {
    uint32_t kind; /* enum mr_reference_kind */
    uint32_t rank; /* FORK, SETTLE, SETTLED; else 0 */
    uint64_t reference, fork;
};

#define MR_REFERENCE_MESSAGE_WORDS 3u
/* kind | rank << 32, reference, fork. */
void mr_reference_message_pack(const struct mr_reference_message *message, uint64_t *words);
/* False: malformed. Whether ranks exist is for mr_references_receive(). */
bool mr_reference_message_unpack(const uint64_t *words, struct mr_reference_message *message);

/* A reference on its way, within a value. */
struct mr_reference_ticket {
    uint32_t owner;
    uint64_t reference, fork;
};

/* Runs once, when what it waits for is there or will never be: MR_OK, MR_WORKER_DIED, MR_CANCELLED (freed
 * meanwhile), MR_SHUTTING_DOWN (mr_references_destroy). `value` is the owner's, valid while somebody holds
 * it; NULL for confirmations. */
struct mr_reference_waiter {
    struct mr_link link; /* the state machine's from the call on that it is given to until it runs */
    void (*run)(struct mr_reference_waiter *waiter, enum mr_status status, void *value);
    enum mr_status status;
    void *value;
};

/* A hold of this worker's. Read only. */
struct mr_reference {
    struct mr_id_node by_fork; /* of users; the owner's one handle has fork 0 */
    uint64_t id;
    uint32_t owner;
    uint32_t parent;   /* rank that gave it to us; our own where we made it */
    uint32_t count;    /* of holders on this worker */
    uint32_t children; /* passed on and not accepted yet */
    bool confirmed;
    /* MR_OK, or why it is of no use: MR_WORKER_DIED, what mr_references_remote_failed() was given */
    enum mr_status status;
    struct mr_link waiters; /* for the confirmation */
    struct mr_owned *owned; /* of the owner's handle */
};

struct mr_references_config {
    uint32_t rank, world_size;
    void *self;
    void (*send)(void *self, uint32_t rank, const struct mr_reference_message *message);
    void (*free_value)(void *self, void *value);
};

struct mr_references;
/* MR_INVALID_ARGUMENT (rank, world size of 0 or beyond 65535), MR_NO_MEMORY. */
enum mr_status mr_references_create(const struct mr_references_config *config, struct mr_references **out);
/* Whoever waits gets MR_SHUTTING_DOWN. */
void mr_references_stop(struct mr_references *refs);
/* The same, and frees the values; sends nothing. Handles are gone with it. NULL is fine. */
void mr_references_destroy(struct mr_references *refs);

/* ---- making ---- */

/* A number for a reference or a fork of ours. Any thread. */
uint64_t mr_references_new_id(struct mr_references *refs);
/* A value of ours under such a number, held once. `value` NULL: it comes with mr_references_fulfil(). NULL:
 * no memory; `value` stays the caller's. */
struct mr_reference *mr_references_own(struct mr_references *refs, uint64_t reference, void *value);
/* One that ticket->owner, not us, is to make, under numbers of ours; the ticket is to go with the call.
 * MR_WORKER_DIED, MR_NO_MEMORY. */
enum mr_status mr_references_remote(struct mr_references *refs, const struct mr_reference_ticket *ticket,
                                    struct mr_reference **out);
/* That call will never leave: whoever uses the handle gets `status`. Whom it was passed to waits for a value
 * that does not come. */
void mr_references_remote_failed(struct mr_references *refs, struct mr_reference *handle,
                                 enum mr_status status);
/* From now on `count` calls of mr_references_take(), _remote_arrived() and _fetch(), together, do not fail
 * with MR_NO_MEMORY. False: no memory. */
bool mr_references_reserve(struct mr_references *refs, uint32_t count);
/* On the owner: the call arrived from `from`. *run: it is to be run, and to end with mr_references_fulfil(),
 * for errors, too. MR_WORKER_DIED (drop it), MR_NO_MEMORY (nothing is changed; it may be handed in again),
 * MR_BAD_MESSAGE. */
enum mr_status mr_references_remote_arrived(struct mr_references *refs, uint32_t from,
                                            const struct mr_reference_ticket *ticket, bool *run);
/* False: nobody holds it any more, and `value` (not NULL) stays the caller's. */
bool mr_references_fulfil(struct mr_references *refs, uint64_t reference, void *value);

/* ---- holding, passing ---- */

/* The handle is not to be used any more. */
void mr_references_release(struct mr_references *refs, struct mr_reference *handle);
/* Makes out a ticket for `to` (also ourselves). The handle may be released at once. MR_WORKER_DIED (`to` or
 * the owner), MR_NO_MEMORY, or the handle's status. */
enum mr_status mr_references_pass(struct mr_references *refs, struct mr_reference *handle, uint32_t to,
                                  struct mr_reference_ticket *ticket);
/* The ticket never left and never will. */
void mr_references_unpass(struct mr_references *refs, const struct mr_reference_ticket *ticket);
/* A ticket arrived: *out is held once more by the caller; its status says when the owner is dead.
 * MR_WORKER_DIED (`from` is dead: drop the message), MR_NO_MEMORY (nothing is changed), MR_BAD_MESSAGE. */
enum mr_status mr_references_take(struct mr_references *refs, uint32_t from,
                                  const struct mr_reference_ticket *ticket, struct mr_reference **out);

/* ---- waiting ---- */

/* The owner's handle: the value, if it is there, else NULL. */
void *mr_references_value(const struct mr_reference *handle);

/* Until the owner knows the hold. */
void mr_references_wait_confirmed(struct mr_references *refs, struct mr_reference *handle,
                                  struct mr_reference_waiter *waiter);
/* The owner's handle: until the value is there. */
void mr_references_wait_value(struct mr_references *refs, struct mr_reference *handle,
                              struct mr_reference_waiter *waiter);
/* On the owner: user `from` with this ticket (owner, reference, and its fork) asks for the value. May come
 * before anything else reports the fork, and counts as that. The waiter runs unless this fails:
 * MR_WORKER_DIED (`from`), MR_NO_MEMORY, MR_BAD_MESSAGE. */
enum mr_status mr_references_fetch(struct mr_references *refs, uint32_t from,
                                   const struct mr_reference_ticket *ticket,
                                   struct mr_reference_waiter *waiter);
/* The waiter, given to one of these, shall not run. False: it ran already. */
bool mr_references_unwait(struct mr_reference_waiter *waiter);

/* ---- messages, deaths ---- */

/* MR_OK; MR_NO_MEMORY: nothing is changed, hand it in again; MR_BAD_MESSAGE: malformed, dropped. From the
 * dead: dropped, MR_OK. */
enum mr_status mr_references_receive(struct mr_references *refs, uint32_t from,
                                     const struct mr_reference_message *message);
/* The worker is dead, or left: it held nothing then, and all that it had passed on is accepted. Again does
 * nothing. */
void mr_references_died(struct mr_references *refs, uint32_t rank);

/* ---- what is there ---- */

struct mr_references_counts {
    uint32_t values;   /* of ours that somebody holds */
    uint32_t forks;    /* of these, by others; of tickets to them also before they arrive */
    uint32_t holds;    /* of others' values, by us */
    uint32_t children; /* passed on and not accepted */
    uint32_t settling; /* dead workers whose forks may not go yet */
};
void mr_references_counts(const struct mr_references *refs, struct mr_references_counts *counts);
/* How many forks of our values `rank` holds. */
uint32_t mr_references_held_by(const struct mr_references *refs, uint32_t rank);
/* How many holds of `rank`'s values we have. */
uint32_t mr_references_holds_of(const struct mr_references *refs, uint32_t rank);
/* Nobody else holds or is about to get what is ours, and we hold nothing of others': this worker may
 * leave. */
bool mr_references_may_leave(const struct mr_references *refs);

#endif
