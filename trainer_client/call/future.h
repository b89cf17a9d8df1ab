/* A call of the public API: one message to each core concerned, and one outcome.
 *
 * The way of a call: mrc_future_new() -> describe each part's tensors -> mrc_future_run(). Where the tensors'
 * contents have to be put together (sharding), mrc_future_begin() comes between: it makes `data` of all
 * tensors that had none point to room in the request. `finish` turns the parts' replies into the caller's
 * outputs, on the thread that waits, without the lock.
 */
#ifndef MRC_FUTURE_H
#define MRC_FUTURE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/call/client.h"
#include "trainer_client/millrace.h"

#define MRC_FEW_ANSWERS 4u

struct mrc_part {
    struct mr_future *future;
    struct mrc_link *link; /* NULL until begun */
    uint16_t core;
    uint16_t tensor_count;
    struct mr_tensor *tensors; /* of the request: `data` is copied, NULL = room to be filled in */
    const void **sources;      /* where they are copied from */
    struct mr_call *call;      /* NULL once freed or handed to a reply */
    struct mrc_push *push;     /* of a numbered call, until it ends */
    uint32_t request_bytes;
    uint32_t unread_bytes; /* of a reply for which there was no room; 0: there was */
    bool replied;          /* by the server; otherwise the call ended here */
    uint64_t moved;        /* not 0: it was split again, under this sequence, when the node's cores changed */
    struct mr_link mover;  /* of mrc_remap.movers, while `moved` */
    enum mr_status moved_status; /* why a piece of it will not be applied; MR_OK: none is known */
    bool withdrawn;              /* the node's cores changed before it was sent: its number counts no more */
    bool kept;                   /* nobody answered, and it will be sent again */
    bool is_void;                /* it named a number that was found to be something else */
    uint64_t start_id;           /* of the server that replied */
    struct mr_link in_flight;    /* of mrc_link.parts */
    uint64_t sequence;           /* of the reply */
    uint32_t restores;           /* of the reply */
    uint64_t checkpoint;         /* of the reply, see struct mr_preamble */
    enum mr_status status;       /* once ended */
    struct mr_tensor *answers;   /* of the reply: views that are valid as long as `call`, or into `copy` */
    void *copy;
    uint32_t answer_count;
    struct mr_tensor few[MRC_FEW_ANSWERS]; /* where `answers` points when they are few */
};

/* Checks the replies and writes the caller's outputs. `reply` is not NULL when the caller wants the tensors;
 * `*reply` is set then, or left alone when there are none to give (mr_future_wait() hands out NULL). On
 * failure it says why through mrc_error(). */
typedef enum mr_status (*mrc_finish)(struct mr_future *f, struct mr_reply **reply);

/* What a call with a future can be made again from; first in memory that is freed with the future. */
struct mrc_again {
    /* As an asynchronous call, to end within so long. Not under the lock. */
    enum mr_status (*make)(const struct mrc_again *again, uint32_t deadline_ms, struct mr_future **out);
};

struct mr_future {
    struct mr_client *client;
    struct mr_call_options options;
    mrc_finish finish;                   /* NULL: the first part's tensors as they are */
    void (*on_end)(struct mr_future *f); /* of calls of the library itself: under the lock; frees `f` */
    void *context;                       /* context_bytes, zeroed; goes with the future */
    void *memory;                        /* freed with the future; for whoever made it */
    struct mrc_again *again;             /* for when the node's cores change under it; NULL: it ends then */
    struct mr_future *successor;         /* it was made again: this one's outcome counts */
    struct mr_pushed *pushed;            /* the caller's; NULL: nobody asks what became of the push */
    uint32_t part_count, parts_pending;
    int notify_fd; /* eventfd of mr_future_notify(); -1 = none */
    uint64_t sent_us;
    uint32_t map_changes; /* of the map that the parts were split by; UINT32_MAX = whatever it is */
    bool begun, sent, ended, abandoned, waited, more;
    struct mrc_part parts[];
};

/* `tensors_max`: per part. Part i goes to core i unless changed. MR_INVALID_ARGUMENT (options), MR_NO_MEMORY,
 * MR_UNKNOWN_TABLE (no feature has such a number); mrc_error() says which. */
enum mr_status mrc_future_new(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                              uint32_t feature, uint32_t part_count, uint32_t tensors_max,
                              size_t context_bytes, struct mr_future **out);
/* Append a tensor to part i's request. */
void mrc_part_add(struct mr_future *f, uint32_t i, struct mr_tensor tensor);

/* Make room for all requests, waiting for it while other calls are in flight. On failure nothing is begun. */
enum mr_status mrc_future_begin(struct mr_future *f);
/* Send (begin first where that has not happened) and then, as the options say, hand the future out, or wait,
 * write `*reply` (NULL: not wanted) and free it. Frees it on failure, too. */
enum mr_status mrc_future_run(struct mr_future *f, const struct mr_options *options, struct mr_reply **reply);
/* For calls of the library itself, under the lock: begin and send, no waiting. */
enum mr_status mrc_future_send_locked(struct mr_future *f);
/* Free it; one that was sent must have ended. Not under the lock. */
void mrc_future_free(struct mr_future *f);
/* The same under the lock, for calls of the library itself. */
void mrc_future_free_locked(struct mr_future *f);

/* The call was split by a map that the node has no more. Under the lock. */
bool mrc_map_has_changed(const struct mr_future *f);
/* What mrc_future_begin() and mrc_future_run() return then: nothing was sent, and the call is to be made
 * again. */
#define MRC_STALE_MAP ((enum mr_status)MR_STATUS_COUNT)

/* The endpoint ended a part's call. Under the lock. */
void mrc_part_ended(struct mrc_part *part, struct mr_call *call, enum mr_status status,
                    const struct mr_message *reply);

/* Tensor t of part i's reply when it has that dtype and rank, else NULL. */
const struct mr_tensor *mrc_part_tensor(const struct mr_future *f, uint32_t i, uint32_t t,
                                        enum mr_dtype dtype, uint32_t rank);
/* MR_BAD_MESSAGE: part i's reply is not what the op answers with. */
enum mr_status mrc_part_garbled(const struct mr_future *f, uint32_t i);
/* When a call with these options has to end. */
uint64_t mrc_deadline_us(const struct mr_client *client, const struct mr_options *options, uint64_t now_us);

#endif
