/* A copy of a push's request, as replay buffers keep it, and its splitting when partitions have other owners.
 * Pure. */
#ifndef MRC_PUSH_H
#define MRC_PUSH_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_tensor.h"
#include "dataplane/wire/format/packet.h"

/* Tensors of a push of rows: head, keys, offsets (none for single keys), gradients, and what comes with
 * these and with the bags. A variable's has head and gradient, with MR_PUSH_PIECES pieces between them;
 * values that are set come after their pieces alone. */
#define MRC_ROWS_TENSORS     4u
#define MRC_ROWS_TENSORS_MAX 7u

#define MRC_PUSH_UNANSWERED UINT32_MAX
#define MRC_LOOKED_UP_LOST  UINT64_MAX       /* looked_up_in: whoever has had the lookup has forgotten it */
#define MRC_PUSH_ELSEWHERE  (UINT32_MAX - 1) /* by a node whose restores have nothing to do with this one's */

enum mrc_push_state {
    MRC_PUSH_NEW,   /* in no buffer */
    MRC_PUSH_ASKED, /* its caller waits for the answer */
    MRC_PUSH_DONE,  /* answered; kept until it is on disk */
    MRC_PUSH_DUE,   /* to be sent again */
    MRC_PUSH_AGAIN, /* sent again, not answered yet */
    MRC_PUSH_LATER, /* the server does not know its batch (yet): to be tried again at retry_us */
};

/* A request, as it was sent. */
struct mrc_push {
    uint8_t op, priority;
    uint16_t table;
    uint64_t step;
    /* the start of the server that has had the lookup of its keys; 0: no matter which */
    uint64_t looked_up_in;
    uint32_t era;      /* of its first map: pushes of an earlier one come before it. 0: a mark */
    uint32_t restores; /* of the server, by call, when it answered this; MRC_PUSH_UNANSWERED: it has not */
    uint32_t tensor_count;
    struct mr_tensor *tensors; /* `data` is inside this push's memory */
    uint64_t bytes;            /* all of it */
    uint64_t call_bytes;       /* of the pushes of the same call that were added before it */
    /* the buffer's own */
    uint64_t number;
    uint64_t first; /* of a mark: it is one for all numbers from this one on; 0: for its own */
    uint64_t after; /* what had been answered when this one was handed over has numbers up to this */
    enum mrc_push_state state;
    uint32_t tries;
    uint64_t retry_us;
    void *asker;          /* ASKED: whoever waits; the owner's business */
    struct mr_link kept;  /* by number */
    struct mr_link queue; /* by number, among those of its state */
};

/* A push with room for these tensors: `data` of those that have some is copied. NULL when memory is short. */
struct mrc_push *mrc_push_new(uint8_t op, uint16_t table, uint8_t priority, uint64_t step,
                              const struct mr_tensor *tensors, uint32_t tensor_count);
/* The number of the one feature that it is for; 0: it is for none, or for several. */
uint32_t mrc_push_feature(const struct mrc_push *push);
/* Of one that is in no buffer; NULL is fine. */
void mrc_push_free(struct mrc_push *push);

/* The owner of all keys of a push of rows; UINT32_MAX: there are several. */
uint32_t mrc_push_only_owner(const struct mrc_push *push, const uint16_t owners[MR_PARTITION_COUNT],
                             const struct mr_feature *table);
/* The shares of a push of rows for each owner, [owner_count]; NULL for one that owns none of its keys. False
 * when memory is short: there are none then. */
bool mrc_push_split(const struct mrc_push *push, const uint16_t owners[MR_PARTITION_COUNT],
                    uint32_t owner_count, const struct mr_feature *table, struct mrc_push *shares[]);
/* One push of rows out of several of the same table. NULL when memory is short. */
struct mrc_push *mrc_push_join(struct mrc_push *const shares[], uint32_t count);

/* The same of a push of a variable (variable_push.c): of its gradient, or of values that are set. */
bool mrc_variable_push_split(const struct mrc_push *push, const uint16_t owners[MR_PARTITION_COUNT],
                             uint32_t owner_count, const struct mr_feature *variable,
                             struct mrc_push *shares[]);
struct mrc_push *mrc_variable_push_join(struct mrc_push *const shares[], uint32_t count);
/* Whether it is one. */
bool mrc_push_is_of_variable(const struct mrc_push *push);

#endif
