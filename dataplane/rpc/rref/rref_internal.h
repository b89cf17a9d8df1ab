/* What the sources of rref.h share with each other and with calls. Functions are called inside, unless their
 * comment says otherwise. */
#ifndef MR_RPC_RREF_INTERNAL_H
#define MR_RPC_RREF_INTERNAL_H

#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref_count.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"

#define MR_RREF_RELEASED_KEPT 1024u /* handles that are kept after their release */

/* A value of this worker to which others may refer, or why there is none. It never changes. */
struct mr_kept {
    struct mr_rrefs *all;
    struct mr_rpc_result *result; /* NULL unless status is MR_OK */
    enum mr_status status;
    const char *error; /* in this block of memory */
    void (*destroy)(void *object);
    struct mr_job job;    /* destroys the value */
    struct mr_kept *next; /* in mr_rrefs.aborted */
    uint32_t holds;       /* inside: answers in parts that read it */
    bool is_free;         /* it is freed when they have ended */
};

struct mr_rref {
    struct mr_rrefs *all;
    _Atomic uint64_t holders; /* 0: freed. Low half: the program's holds, 0: released; high half: pins */
    uint32_t owner;
    uint64_t id, fork;            /* fork: if another worker is to make the value; else 0 */
    struct mr_kept *_Atomic kept; /* the owner's value, once this handle has seen it */
    /* Inside. */
    struct mr_reference *handle; /* NULL: not made yet */
    enum mr_status status;       /* why it cannot be made; MR_OK */
    bool has_kept;               /* `kept` belongs to this handle: the state machine does not have it yet */
    struct mr_work releasing;
    struct mr_rref *next_spare;
};

/* Messages to one worker; see rref_messages.c. */
struct mr_outbox {
    uint64_t *words; /* malloc()ed */
    uint32_t count, room;
    uint32_t rank;
    bool in_flight, lost;
    struct mr_rrefs *all;
    struct mr_agent_call call;
    uint32_t sent; /* of `count`, those in the call */
};

/* The reference to a parameter with a name: one in a world, so that its gradients add up. */
struct mr_named_rref {
    const struct mr_versions *versions;
    struct mr_rref *rref; /* held */
};

struct mr_rrefs {
    struct mr_rpc *agent;
    struct mr_references *refs;
    _Atomic uint32_t alive;
    _Atomic bool ending; /* the agent is being destroyed: nobody is inside */
    struct mr_kept no_memory;
    struct mr_named_rref *named; /* under agent->stepping, as the next */
    uint32_t named_count;

    /* Inside. */
    struct mr_rref *spares;
    uint32_t spare_count;
    struct mr_rref *released[MR_RREF_RELEASED_KEPT];
    uint32_t released_at;
    struct mr_outbox *outboxes; /* [world_size] */
    struct mr_work flushing;
    bool flush_submitted;
    bool retries; /* there was no memory for an outbox */
    uint64_t retry_us;
    struct mr_kept *aborted; /* values released for the last time when the executor was gone */
};

/* ---- rref.c ---- */

/* Any thread: makes a handle, held once. NULL: no memory. */
struct mr_rref *mr_rref_new(struct mr_rrefs *all, uint32_t owner, uint64_t id, uint64_t fork);
/* Any thread: keeps the handle until it is unpinned, for the library's own use. False: it was released
 * before, or is NULL; sets the error line. */
bool mr_rref_pin(struct mr_rref *rref, const char *caller);
void mr_rref_unpin(struct mr_rref *rref);
/* Returns whether its worker has been destroyed; sets the error line then. */
bool mr_rref_is_over(const struct mr_rref *rref, const char *caller);
/* Makes the handle known to the state machine. The status says why that failed; sets the error line then. */
enum mr_status mr_rref_make(struct mr_rref *rref);

/* ---- rref_value.c ---- */

void mr_kept_free(struct mr_kept *kept);
void mr_kept_end_aborted(struct mr_rrefs *all);
/* Returns whether the value is an object that does not travel: not a parameter. */
bool mr_kept_is_object(const struct mr_kept *kept);
/* Not inside. On the owner: waits for the value. If it fails, sets the error line; MR_OK: *out has a
 * value. */
enum mr_status mr_rref_wait_kept(struct mr_rref *rref, const char *caller, uint32_t timeout_ms,
                                 struct mr_kept **out);
/* What a copy is made from: the value, or the newest version of a parameter, held until mr_kept_unread(). */
struct mr_kept_read {
    const struct mr_value *values;
    uint32_t count;
    struct mr_value tensor;
    struct mr_parameter_version *version; /* or NULL */
};
/* Any thread: begins to read. False: the parameter is being changed, and `waits` is not set. */
bool mr_kept_read(const struct mr_kept *kept, bool waits, struct mr_kept_read *out);
void mr_kept_unread(struct mr_kept_read *read);
/* Inside: keeps the value until mr_kept_unhold(). */
void mr_kept_hold(struct mr_kept *kept);
void mr_kept_unhold(struct mr_kept *kept);
/* Any thread, but for a parameter not inside. Returns a copy with holds of its own. NULL: no memory. */
struct mr_rpc_result *mr_kept_copy(struct mr_kept *kept);

/* ---- rref_messages.c ---- */

void mr_outbox_send(void *self, uint32_t rank, const struct mr_reference_message *message);
void mr_outbox_flush(struct mr_rrefs *all);
void mr_outbox_drop(struct mr_rrefs *all, uint32_t rank);

#endif
