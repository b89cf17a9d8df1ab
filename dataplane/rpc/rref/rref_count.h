/* References: tracks who holds which value, over all workers. A pure state machine without network, clock or
 * threads.
 *
 * It follows PyTorch's remote reference protocol. A value lives on its owner. Another worker's hold of it, a
 * *fork*, has a number of its own; to the owner it is first unknown, then known, and finally deleted. The
 * value is freed when the owner has no handle to it and no fork is left. A fork is created
 *   - by the owner, which passes the value to another worker: known from the start;
 *   - by a user (the *parent*) that passes it to another worker (the *child*): the child notifies the owner
 *     (FORK), the owner confirms (CONFIRMED), and the child notifies its parent (ACCEPTED);
 *   - by a user that has the owner make the value (mr_remote): the owner confirms when the call arrives.
 * What a user passes to the owner has a number, too, and is accepted as soon as it arrives.
 *
 * Two rules keep a value from being freed too early. A user deletes its fork (DELETED) only when it is
 * confirmed and everything passed on from it has been accepted. And the forks of a worker that died stay
 * until the owner knows everything that this worker passed on. For the second rule, which PyTorch does not
 * have, the owner asks all living workers (SETTLE). Each regards that worker as dead from then on, and
 * answers (SETTLED) once none of its forks from there waits for this owner's confirmation. If more workers
 * die in the meantime, the forks of all of them stay until everybody has been asked about each. And a worker
 * that passed something to one that died before accepting it reports that fork to the owner (FORK, in the
 * dead worker's name), and regards the owner's confirmation as the acceptance.
 *
 * The user of this state machine guarantees that
 *   - messages arrive once or several times and in any order, unless one side regards the other as dead.
 *     Values with references arrive at most once, and exactly once unless one side dies or the sender knows
 *     that they never left (mr_references_unpass);
 *   - the references of a message are taken (mr_references_take) when it arrives, before anything that
 *     arrived later is handed in, even if the call is then refused: in that case they are released;
 *   - a worker that died is eventually dead for everybody, and stays dead. Anything that comes from it after
 *     mr_references_died() is dropped; the functions here refuse it, too.
 *
 * All of this belongs to one thread. `send` must not call back. `free_value` and waiters may: they run at the
 * end of the function that made them due.
 */
#ifndef MR_RREF_COUNT_H
#define MR_RREF_COUNT_H

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
/* Writes {kind | rank << 32, reference, fork}. */
void mr_reference_message_pack(const struct mr_reference_message *message, uint64_t *words);
/* Reads them back. False: malformed. mr_references_receive() checks that ranks exist. */
bool mr_reference_message_unpack(const uint64_t *words, struct mr_reference_message *message);

/* A reference in flight, within a value. */
struct mr_reference_ticket {
    uint32_t owner;
    uint64_t reference, fork;
};

/* Runs once, when what it waits for exists or can no longer come: MR_OK, MR_WORKER_DIED, MR_CANCELLED (the
 * value was freed), MR_SHUTTING_DOWN (mr_references_stop). `value` belongs to the owner and is valid while
 * somebody holds it; it is NULL for confirmations. */
struct mr_reference_waiter {
    struct mr_link link; /* owned by the state machine from the call that is given the waiter until it runs */
    void (*run)(struct mr_reference_waiter *waiter, enum mr_status status, void *value);
    enum mr_status status;
    void *value;
};

/* A hold of this worker. Read only. */
struct mr_reference {
    struct mr_id_node by_fork; /* of users; the owner's one handle has fork 0 */
    uint64_t id;
    uint32_t owner;
    uint32_t parent;   /* rank that passed it to us; our own if we created it */
    uint32_t count;    /* holders on this worker */
    uint32_t children; /* forks passed on and not accepted yet */
    bool confirmed;
    /* MR_OK, or why it is useless: MR_WORKER_DIED, or what mr_references_remote_failed() was given */
    enum mr_status status;
    struct mr_link waiters; /* for the confirmation */
    struct mr_owned *owned; /* the owner's handle: its value; else NULL */
};

struct mr_references_config {
    uint32_t rank, world_size;
    bool is_open; /* the others are absent until mr_references_joined() */
    void *self;
    void (*send)(void *self, uint32_t rank, const struct mr_reference_message *message);
    void (*free_value)(void *self, void *value);
};

struct mr_references;
/* MR_INVALID_ARGUMENT (rank, world size of 0 or beyond 65535), MR_NO_MEMORY. */
enum mr_status mr_references_create(const struct mr_references_config *config, struct mr_references **out);
/* Ends all waiters with MR_SHUTTING_DOWN. */
void mr_references_stop(struct mr_references *refs);
/* Stops it, and frees the values and the handles; sends nothing. NULL is allowed. */
void mr_references_destroy(struct mr_references *refs);

/* ---- making ---- */

/* Returns a number for a reference or a fork of this worker. Any thread. */
uint64_t mr_references_new_id(struct mr_references *refs);
/* Adds a value of this worker under such a number, held once. If `value` is NULL, it comes with
 * mr_references_fulfil(). NULL: no memory; `value` stays the caller's. */
struct mr_reference *mr_references_own(struct mr_references *refs, uint64_t reference, void *value);
/* Adds a hold of a value that ticket->owner, another worker, will make, under numbers of this worker. The
 * ticket travels with the call. MR_WORKER_DIED, MR_NO_MEMORY. */
enum mr_status mr_references_remote(struct mr_references *refs, const struct mr_reference_ticket *ticket,
                                    struct mr_reference **out);
/* That call will never leave: using the handle gives `status` from now on. A worker to which it was passed
 * waits for a value that does not come. */
void mr_references_remote_failed(struct mr_references *refs, struct mr_reference *handle,
                                 enum mr_status status);
/* Reserves memory for `count` calls of mr_references_take(), _remote_arrived() and _fetch() together, which
 * do not fail with MR_NO_MEMORY then. False: no memory. */
bool mr_references_reserve(struct mr_references *refs, uint32_t count);
/* On the owner: notes that the call arrived from `from`. *run says whether it is to be run; then it ends with
 * mr_references_fulfil(), even on errors. MR_WORKER_DIED (drop it), MR_NO_MEMORY (nothing has changed; it may
 * be handed in again), MR_BAD_MESSAGE. */
enum mr_status mr_references_remote_arrived(struct mr_references *refs, uint32_t from,
                                            const struct mr_reference_ticket *ticket, bool *run);
/* Sets the value, which is not NULL. False: nobody holds it any more, and `value` stays the caller's. */
bool mr_references_fulfil(struct mr_references *refs, uint64_t reference, void *value);

/* ---- holding, passing ---- */

/* Releases one hold of the handle, which the caller must not use after this. */
void mr_references_release(struct mr_references *refs, struct mr_reference *handle);
/* Issues a ticket for `to`, which may be this worker. The handle may be released at once. MR_WORKER_DIED
 * (`to` or the owner), MR_NO_MEMORY, or the handle's status. */
enum mr_status mr_references_pass(struct mr_references *refs, struct mr_reference *handle, uint32_t to,
                                  struct mr_reference_ticket *ticket);
/* Takes back a ticket that never left and never will. */
void mr_references_unpass(struct mr_references *refs, const struct mr_reference_ticket *ticket);
/* Takes a ticket that arrived: the caller holds *out once more. Its status says whether the owner is dead.
 * MR_WORKER_DIED (`from` is dead: drop the message), MR_NO_MEMORY (nothing has changed), MR_BAD_MESSAGE. */
enum mr_status mr_references_take(struct mr_references *refs, uint32_t from,
                                  const struct mr_reference_ticket *ticket, struct mr_reference **out);

/* ---- waiting ---- */

/* Returns the value of the owner's handle; NULL: it does not exist yet, or this is a user's handle. */
void *mr_references_value(const struct mr_reference *handle);

/* Waits until the owner knows the hold. */
void mr_references_wait_confirmed(struct mr_references *refs, struct mr_reference *handle,
                                  struct mr_reference_waiter *waiter);
/* On the owner: waits until the value exists. */
void mr_references_wait_value(struct mr_references *refs, struct mr_reference *handle,
                              struct mr_reference_waiter *waiter);
/* On the owner: user `from` with this ticket (owner, reference, and its fork) asks for the value. This may be
 * the first that is heard of the fork, and counts as its report. The waiter runs unless this fails:
 * MR_WORKER_DIED (`from`), MR_NO_MEMORY, MR_BAD_MESSAGE. */
enum mr_status mr_references_fetch(struct mr_references *refs, uint32_t from,
                                   const struct mr_reference_ticket *ticket,
                                   struct mr_reference_waiter *waiter);
/* Keeps a waiter that was given to one of these from running. False: it has run. */
bool mr_references_unwait(struct mr_reference_waiter *waiter);

/* ---- messages, deaths ---- */

/* Handles a message. MR_NO_MEMORY: nothing has changed, hand it in again; MR_BAD_MESSAGE: malformed, dropped.
 * Messages of the dead are dropped with MR_OK. */
enum mr_status mr_references_receive(struct mr_references *refs, uint32_t from,
                                     const struct mr_reference_message *message);
/* In an open world: the worker takes part from now on. Nobody has passed anything to or from it before. Does
 * nothing if it is not absent. */
void mr_references_joined(struct mr_references *refs, uint32_t joining);
/* The worker is dead; or it left, and then it held nothing and all that it had passed on is accepted. Does
 * nothing the second time. */
void mr_references_died(struct mr_references *refs, uint32_t rank);

/* ---- what is there ---- */

struct mr_references_counts {
    uint32_t values;   /* of this worker that somebody holds */
    uint32_t forks;    /* other workers' holds of these, including tickets in flight */
    uint32_t holds;    /* this worker's holds of others' values */
    uint32_t children; /* forks passed on and not accepted */
    uint32_t settling; /* dead workers whose forks must stay for now */
};
void mr_references_counts(const struct mr_references *refs, struct mr_references_counts *counts);
/* Returns how many forks of this worker's values `rank` holds. */
uint32_t mr_references_held_by(const struct mr_references *refs, uint32_t rank);
/* Returns how many values of `rank` this worker holds. */
uint32_t mr_references_holds_of(const struct mr_references *refs, uint32_t rank);
/* Returns whether this worker may leave: no other worker holds or is about to get a value of it, and it holds
 * none of others. */
bool mr_references_may_leave(const struct mr_references *refs);

#endif
