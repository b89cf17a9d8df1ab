/* A tape: what was computed in one autograd context on one worker, and the gradients on their way back
 * through it.
 *
 * A *node* is one event that takes values and gives values: a run of a differentiable function, a call that
 * left or came, an answer. A *value* has a number, unique on this worker: one that another context's tape
 * gave is a constant here. Nodes are in the order in which they came to be, so that a node depends on earlier
 * ones only.
 *
 * Backward, a *pass*: mr_tape_reach() walks from where gradients will come in to all that they depend on, and
 * counts for each node how many contributions it will get. Then contributions are put into values
 * (mr_tape_put, mr_tape_arrived); a node that has all of its own is ready, and mr_tape_next() gives it out,
 * the latest first. What a node does with its gradients is its owner's.
 *
 * Pure: no lock, no network. All of a tape belongs to whoever has its owner's lock; what takes time (sums of
 * large gradients) is done outside of it. Gradients are f32, and malloc()ed.
 */
#ifndef MR_RPC_TAPE_H
#define MR_RPC_TAPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/rpc/millrace_rpc.h"

#define MR_TAPE_NONE UINT32_MAX /* instead of an index: no value, no node */

struct mr_tape_value {
    uint32_t number;
    uint32_t node;          /* that gave it */
    struct mr_tensor shape; /* f32; its data is NULL */
    float *gradient;        /* the sum so far; NULL: nothing */
};

struct mr_tape_node {
    uint32_t kind; /* the owner's, as `of` */
    void *of;
    uint32_t first_link, input_count, output_count; /* in links: inputs, then outputs */
    uint32_t pass, pending;                         /* reached in that pass, contributions to come */
    bool is_leaf;                                   /* keeps its gradient from pass to pass */
    bool is_gone;                                   /* gone through, and not to be again */
};

struct mr_tape {
    _Atomic uint32_t *numbers; /* the worker's last number */
    struct mr_tape_value *values;
    struct mr_tape_node *nodes;
    uint32_t *links; /* indices of values, MR_TAPE_NONE for constants */
    uint32_t value_count, value_room, node_count, node_room, link_count, link_room;
    /* The pass. */
    uint32_t *ready, *stack; /* indices of nodes: a heap, the latest on top; to be reached */
    uint32_t ready_count, work_room;
    uint32_t pass; /* its number; 0: none yet */
    bool retain;
};

struct mr_tape_entry {
    uint32_t kind;
    void *of;
    const struct mr_value *inputs; /* by their `gradient`; what this tape does not know is a constant */
    uint32_t input_count;
    struct mr_value *outputs; /* f32 tensors get their number here, all others 0 */
    uint32_t output_count;
    bool only_numbered; /* only outputs that come with a number, another worker's, get one */
    bool is_leaf;
};

/* `numbers` is shared by all tapes of a worker. */
void mr_tape_init(struct mr_tape *tape, _Atomic uint32_t *numbers);
/* What nodes are `of` is their owner's. */
void mr_tape_fini(struct mr_tape *tape);

/* One more node. MR_NO_MEMORY: nothing was changed. */
enum mr_status mr_tape_add(struct mr_tape *tape, const struct mr_tape_entry *entry, uint32_t *node);
/* The value's index. MR_TAPE_NONE: not of this tape. */
uint32_t mr_tape_find(const struct mr_tape *tape, uint32_t number);
/* Indices of a node's values. */
const uint32_t *mr_tape_inputs(const struct mr_tape *tape, uint32_t node);
const uint32_t *mr_tape_outputs(const struct mr_tape *tape, uint32_t node);

/* ---- a pass ---- */

/* A new pass; gradients that another one left within it are dropped, but for those of leaves. */
void mr_tape_begin_pass(struct mr_tape *tape, bool retain);
/* One contribution will come into this node. It and all that it depends on, where not reached yet in this
 * pass: reached(self, node), once each, which must not change the tape. MR_INVALID_ARGUMENT: *gone was gone
 * through in an earlier pass. MR_NO_MEMORY. After a failure the pass is not to be gone on with. */
enum mr_status mr_tape_reach(struct mr_tape *tape, uint32_t node, void (*reached)(void *self, uint32_t node),
                             void *self, uint32_t *gone);
/* A node without outputs gets what it waited for: its inputs are to be given theirs. False: it did not
 * wait. */
bool mr_tape_enter(struct mr_tape *tape, uint32_t node);
/* The sum is the tape's. Returns NULL, or, where there is one already, that: add it to yours, free it, and
 * put again. */
float *mr_tape_put(struct mr_tape *tape, uint32_t value, float *sum);
/* One contribution (or none at all, instead of it) is in the value's sum. */
void mr_tape_arrived(struct mr_tape *tape, uint32_t value);
/* The latest node that has all its contributions, once; MR_TAPE_NONE: there is none now. Never a leaf. */
uint32_t mr_tape_next(struct mr_tape *tape);
/* The sum of a value, the caller's from now on; NULL: nothing. */
float *mr_tape_take(struct mr_tape *tape, uint32_t value);

/* ---- gradients ---- */

/* Returns a copy of a gradient, malloc()ed. NULL: no memory. */
float *mr_gradient_copy(const struct mr_tensor *gradient);
bool mr_gradient_same_shape(const struct mr_tensor *a, const struct mr_tensor *b);

#endif
