/* Cooperative tasks: calls that take longer than a slice of about 5 us are done in slices, one in each poll,
 * so that others need not wait for them. Each poll receives and answers small calls first. While no small
 * calls come, slices are longer: a poll costs a system call on sockets, and each slice fills and drains the
 * pipeline of prefetches again.
 *
 * A handler says what its call costs. A long one waits, as its request, in the order of arrival; then the
 * handler is called again, checks everything as if the call had just come, and does it in steps. At most one
 * task runs on a core, so long calls see each other whole or not at all. Small calls come in between: they
 * see each row whole. (Shinjuku, NSDI '19, bounds the same head-of-line blocking by preemption.)
 *
 * Tasks of the control thread see a core between calls: the one that runs is brought to its end first.
 * Belongs to the core's thread; memory is taken at create only.
 */
#ifndef PS_COOP_TASK_H
#define PS_COOP_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"

/* Of memory touched by a slice, as ps/table/table.h counts it: 4 to 5 us for rows of 64 bytes. */
#define PS_SLICE_BYTES       ((uint64_t)32 << 10)
#define PS_SLICE_ALONE_BYTES ((uint64_t)320 << 10) /* once PS_SLICES_ALONE have passed without a small call */
#define PS_SLICES_ALONE      32u
#define PS_COOP_STATE_BYTES  8192u

struct ps_core;

/* A request as its handler sees it. */
struct ps_op {
    struct ps_core *core;
    struct mr_endpoint *ep;
    const struct mr_request *request;
    const struct mr_tensor *tensors;
    uint32_t tensor_count;
    uint64_t now_us;
};
struct ps_op ps_op_of(void *core_app, struct mr_endpoint *ep, const struct mr_request *request);

/* How a handler does a call in steps. */
struct ps_coop_task {
    /* Does some of it; true once the call is answered and nothing is left of it. With UINT64_MAX it is called
     * until then. The reply may be begun in one step and ended in another. */
    bool (*step)(const struct ps_op *op, void *state, uint64_t budget_bytes);
    /* The session is gone: gives back what the call holds, or returns false when it must be brought to its
     * end nevertheless. NULL: it holds nothing. */
    bool (*drop)(const struct ps_op *op, void *state);
    size_t state_bytes; /* at most PS_COOP_STATE_BYTES */
};

struct ps_coop_tasks {
    const struct mr_request **waiting; /* ring */
    uint32_t waiting_max, first, count;
    const struct mr_request *starting; /* whose handler is being called */
    uint64_t now_us;
    uint64_t calls_long;   /* that were deferred or refused for their length */
    uint64_t calls_small;  /* others, as of the last slice */
    uint32_t slices_alone; /* since the last of them; at most PS_SLICES_ALONE */
    /* the task in flight; NULL: none */
    const struct mr_request *running;
    const struct ps_coop_task *job;
    struct { /* of the node's trace: what runs, and since when */
        const char *name;
        uint64_t begin_ns, batch;
    } span;
    _Alignas(64) uint8_t state[PS_COOP_STATE_BYTES];
};

/* False when memory is short. */
bool ps_coop_tasks_init(struct ps_coop_tasks *l, uint32_t waiting_max);
/* What waits is forgotten: its requests are freed with their endpoint. */
void ps_coop_tasks_free(struct ps_coop_tasks *l);

/* Whether the request has waited for its turn, or its call is done in slices: it is the endpoint's until
 * it is answered. */
bool ps_is_deferred(const struct ps_core *core, const struct mr_request *request);
/* Counts the call, and asks the client to try again a little later. */
void ps_hold_back(const struct ps_op *op, uint64_t *counter);
/* For handlers. True: the call is long and waits now, or is answered BUSY; the handler returns. False:
 * it is small, or its turn has come. */
bool ps_defer(const struct ps_op *op, uint64_t cost_bytes);
/* Does the call: at once, or from now on in slices if its turn has come. `state` is copied. */
void ps_run(const struct ps_op *op, const struct ps_coop_task *job, void *state);
/* Everything of the reply before `end` is final: a call in slices lets it be sent already. */
void ps_reply_advance(const struct ps_op *op, const void *end);

/* One slice; true when there is more to do. */
bool ps_coop_tasks_step(struct ps_core *core, uint64_t now_us);
/* Brings the running call to its end, if there is one. */
void ps_coop_tasks_settle(struct ps_core *core);

#endif
