/* A call: one request to each core concerned, and one outcome.
 *
 * The course of a call: mrc_future_new(), a description of each request's tensors, mrc_future_run()
 * (future.h). If the contents of tensors must be assembled (sharding), mrc_future_begin() comes before
 * mrc_future_run(): it points `data` of all tensors that had none to room in the request. `finish` turns
 * the requests' replies into the caller's outputs, on the thread that waits, without the lock.
 */
#ifndef MRC_CALL_H
#define MRC_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/call/client.h"
#include "trainer_client/millrace.h"

#define MRC_FEW_ANSWERS 4u

struct mrc_push;

/* A push that was split again when the shard map changed under it. Its caller waits until all shares are
 * answered (reshard.h). */
struct mrc_resharded {
    uint64_t sequence;      /* of all shares; 0: it was not split again */
    struct mr_link waiting; /* of mrc_reshard.waiting */
    enum mr_status status;  /* why a share will not be applied; MR_OK: none is known */
};

/* A request to one core. */
struct mrc_shard_request {
    struct mr_future *future;
    struct mrc_link *link; /* NULL until begun */
    struct mrc_link *to;   /* where it goes whatever the owners are; NULL: to this owner (shard_map.h) */
    uint16_t owner;
    uint16_t table; /* in the preamble, with these flags, in place of the future's; 0: the future's */
    uint16_t flags;
    bool is_control; /* goes to the first node that answers (mrc_shard_map_control()) */
    uint16_t tensor_count;
    struct mr_tensor *tensors; /* of the request: `data` is copied; NULL = room to be filled in */
    const void **sources;      /* where they are copied from */
    struct mr_call *call;      /* NULL once freed or handed to a reply */
    struct mrc_push *push;     /* of a numbered call, until it ends */
    uint32_t bytes;            /* of the request */
    uint32_t unread_bytes;     /* of a reply for which there was no room; 0: there was room */
    bool replied;              /* the server replied; otherwise the call ended here */
    struct mrc_resharded resharded;
    bool cancelled;            /* the shard map changed before it was sent: its number is void */
    bool is_late;              /* the answer came too late to be believed (cluster.h) */
    bool kept;                 /* nobody answered the push, and it will be sent again */
    bool is_void;              /* it named a number that now belongs to another feature */
    uint64_t start_id;         /* of the server that replied */
    struct mr_link in_flight;  /* of mrc_link.requests */
    uint64_t sequence;         /* of the reply */
    uint32_t restores;         /* of the reply */
    uint64_t checkpoint;       /* of the reply, see struct mr_preamble */
    enum mr_status status;     /* once ended */
    struct mr_tensor *answers; /* of the reply: views that are valid as long as `call` is, or into `copy` */
    void *copy;
    uint32_t answer_count;
    struct mr_tensor few[MRC_FEW_ANSWERS]; /* where `answers` points when they are few */
};

/* Checks the replies and writes the caller's outputs. `reply` is not NULL when the caller wants the tensors;
 * `*reply` is then set, or left alone when there are none (mr_future_wait() then returns NULL). A failure is
 * reported by mrc_error(). */
typedef enum mr_status (*mrc_finish)(struct mr_future *f, struct mr_reply **reply);

struct mrc_series;
struct mrc_retry;

struct mr_future {
    struct mr_client *client;
    struct mr_call_options options;
    mrc_finish finish; /* NULL: the first request's tensors, unchanged */
    void (*on_end)(
        struct mr_future *f);  /* for calls of the library itself: called under the lock; frees `f` */
    void *context;             /* context_bytes, zeroed; goes with the future */
    void *memory;              /* freed with the future; for the code that made it */
    struct mrc_retry *retry;   /* of the caller's; freed with the future. NULL: it is not made again */
    struct mrc_series *series; /* the calls that it stands for, and it has no requests; NULL: it is a call */
    struct mr_pushed *pushed;  /* the caller's; NULL: the caller does not ask what became of the push */
    uint32_t request_count, requests_pending;
    int notify_fd; /* eventfd of mr_future_notify(); -1 = none */
    struct mr_link
        pending_notify; /* of mr_client.pending_notify, while the caller waits for another notice */
    uint64_t room_made; /* mr_client.room_made when there was no room for a retry */
    uint64_t began_ns;  /* by mr_tick_ns(); of a retry, that of the first try */
    uint64_t sent_us;
    uint64_t wait_until_us;  /* the thread that begins it waits for room until then, if before the deadline */
    uint32_t map_generation; /* of the shard map by which the requests were split; UINT32_MAX = any */
    bool begun, sent, ended, abandoned, waited, more;
    bool awaited;        /* a thread waits for its end, and counts how long it took */
    bool is_replay_full; /* why there is no room: pushes that nobody has answered fill the replay buffer */
    bool is_behind;      /* why there is no room: a core first has to get pushes that it lacks */
    bool takes_some;     /* `finish` is called even if requests have failed; the outcome is that failure */
    struct mrc_shard_request requests[];
};

/* Makes a call of `request_count` requests with at most `tensors_max` tensors each. Request i goes to shard
 * i unless changed. MR_INVALID_ARGUMENT (options), MR_NO_MEMORY, MR_UNKNOWN_TABLE (no feature has such a
 * number), reported by mrc_error(). */
enum mr_status mrc_future_new(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                              uint32_t feature, uint32_t request_count, uint32_t tensors_max,
                              size_t context_bytes, struct mr_future **out);
/* Appends a tensor to request i. */
void mrc_request_add(struct mr_future *f, uint32_t i, struct mr_tensor tensor);

/* Makes room for all requests; waits for it while other calls are in flight. On failure nothing is begun.
 * May also return MRC_STALE_MAP and MRC_NO_ROOM_YET (retry.h). */
enum mr_status mrc_future_begin(struct mr_future *f);
/* Begins the call unless that has been done, and sends it. `waits`: the caller waits until it ends. Not under
 * the lock; on success it is held. May return what mrc_future_begin() does. */
enum mr_status mrc_future_send(struct mr_future *f, bool waits);
/* Begins and sends a call of the library itself, under the lock and without waiting. */
enum mr_status mrc_future_send_locked(struct mr_future *f);
/* Frees a future; one that was sent must have ended. Not under the lock. */
void mrc_future_free(struct mr_future *f);
/* Does the same under the lock, for calls of the library itself. */
void mrc_future_free_locked(struct mr_future *f);

/* Returns whether the call was split by a shard map that the client no longer has. Under the lock. */
bool mrc_map_has_changed(const struct mr_future *f);
/* Handles the end of a request's call. Under the lock. */
void mrc_request_ended(struct mrc_shard_request *request, struct mr_call *call, enum mr_status status,
                       const struct mr_message *reply);

/* Returns tensor t of request i's reply if it has that dtype and rank, otherwise NULL. */
const struct mr_tensor *mrc_answer_tensor(const struct mr_future *f, uint32_t i, uint32_t t,
                                          enum mr_dtype dtype, uint32_t rank);
/* Copies the words of tensor t of request i's reply (mr_body_read). False: it is not that body. */
bool mrc_answer_body(const struct mr_future *f, uint32_t i, uint32_t t, enum mr_body body, void *words);
/* Returns tensor t of request i's reply if it is rows of that body (mr_body_read_row), otherwise NULL. */
const struct mr_tensor *mrc_answer_body_rows(const struct mr_future *f, uint32_t i, uint32_t t,
                                             enum mr_body body);
/* Returns MR_BAD_MESSAGE, reported by mrc_error(), because request i's reply is not of the operation's
 * form. */
enum mr_status mrc_answer_garbled(const struct mr_future *f, uint32_t i);
/* Returns when a call with these options has to end. */
uint64_t mrc_deadline_us(const struct mr_client *client, const struct mr_options *options, uint64_t now_us);

#endif
