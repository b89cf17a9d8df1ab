/* What the files backward*.c share. "Under the lock" is the context's. */
#ifndef MR_RPC_BACKWARD_INTERNAL_H
#define MR_RPC_BACKWARD_INTERNAL_H

#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"

/* ---- messages (backward_message.c) ---- */

enum mr_backward_kind {
    MR_BACKWARD_REACH_RESULTS = 1,   /* of the receiver's answer to the sender's invocation */
    MR_BACKWARD_REACH_ARGUMENTS = 2, /* of the receiver's own invocation */
    MR_BACKWARD_RESULTS = 3,         /* gradients of what the receiver returned, */
    MR_BACKWARD_ARGUMENTS = 4,       /* of what it passed */
    MR_BACKWARD_DONE = 5             /* what engaged the sender is done; its status, and a text */
};

/* The first tensor, u8: this, and for RESULTS and ARGUMENTS a byte for each value, 1: a gradient of it
 * follows as a tensor. After DONE with an error follows the text, u8[n]. */
struct mr_backward_wire {
    uint64_t context, pass, invocation;
    uint32_t kind;
    uint16_t retain, status; /* REACH; DONE */
};
static_assert(sizeof(struct mr_backward_wire) == 32, "backward head size");

struct mr_backward_message {
    struct mr_backward_message *next; /* in an outbox */
    struct mr_work work;
    struct mr_agent_call call;
    struct mr_autograd *context; /* held */
    char function[MR_RPC_NAME_BYTES];
    uint32_t count; /* of values */
    struct mr_backward_wire *first;
    struct mr_tensor tensors[]; /* of values: NULL data where there is none; malloc()ed, the message's */
};

/* Messages of a pass that were counted and not sent yet. */
struct mr_pass_outbox {
    struct mr_backward_message *first;
};

/* NULL: no memory. */
struct mr_backward_message *mr_backward_message_new(struct mr_autograd *context, uint32_t to,
                                                    enum mr_backward_kind kind, uint64_t invocation,
                                                    const char *function, uint32_t count);
/* Of a message of one value: this text instead, if there is any, and memory for it. */
void mr_backward_message_text(struct mr_backward_message *message, const char *text);
/* Any thread: hands it in for sending; the outcome is settled. */
void mr_backward_post(struct mr_backward_message *message);
void mr_backward_post_all(struct mr_pass_outbox *outbox);

/* A received one. gradients[i].data NULL: none. False: malformed. */
struct mr_backward_in {
    struct mr_backward_wire head;
    uint32_t count;
    struct mr_tensor gradients[MR_RPC_ARGUMENTS_MAX];
    const char *text;
    uint32_t text_bytes;
};
bool mr_backward_read(const struct mr_message *message, struct mr_backward_in *in);

/* ---- the pass (backward.c); under the lock ---- */

/* A new one. MR_NO_MEMORY. */
enum mr_status mr_pass_begin(struct mr_autograd *context, uint64_t id, bool retain);
bool mr_pass_at_rest(const struct mr_pass *pass);
/* The first error counts. */
void mr_pass_fail(struct mr_pass *pass, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* One more message, to be posted. */
void mr_pass_count(struct mr_autograd *context, struct mr_backward_message *message,
                   struct mr_pass_outbox *outbox);
/* One that was sent to `to` is done. */
void mr_pass_settle(struct mr_autograd *context, uint64_t id, uint32_t to, enum mr_status status,
                    const char *error);
/* If it came to rest here, notifies whoever engaged it. */
void mr_pass_rest(struct mr_autograd *context);
/* Reaches `node`; messages to others are put into the outbox. */
enum mr_status mr_pass_reach(struct mr_autograd *context, uint32_t node, struct mr_pass_outbox *outbox);

/* ---- gradients (backward_run.c); not under the lock ---- */

/* One contribution to a value; `sum` is taken, NULL: none. */
void mr_backward_give(struct mr_autograd *context, uint64_t pass, uint32_t value, float *sum);
/* A copy of a gradient, malloc()ed. NULL: no memory. */
float *mr_backward_copy(const struct mr_tensor *gradient);
bool mr_backward_same_shape(const struct mr_tensor *a, const struct mr_tensor *b);
/* Runs nodes as long as any are ready. */
void mr_backward_drain(struct mr_autograd *context, uint64_t pass);

#endif
