/* A tape: records what was computed in one autograd context on one worker, and holds the gradients on their
 * way back through it.
 *
 * A *node* is an event that takes values and gives values: a run of a differentiable function, a call that
 * left or arrived, an answer. A *value* has a number that is unique on this worker; a number from another
 * context's tape is a constant here. Nodes stand in the order in which they were recorded, so a node depends
 * on earlier ones only.
 *
 * A backward *pass* has two steps. mr_tape_reach() walks from where gradients will enter to everything that
 * they depend on, and counts how many contributions each node will get. Then contributions are put into
 * values (mr_tape_put, mr_tape_arrived). A node that has all of its contributions is ready, and
 * mr_tape_next() returns the ready nodes, the latest first. What to do with a node's gradients is up to the
 * tape's owner.
 *
 * Pure: no locks, no network. Whoever holds the owner's lock may use the tape; sums of large gradients, which
 * take time, are computed outside of the lock. Gradients are f32 or f64, as the values are, and malloc()ed.
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
    uint32_t node;          /* which gave it */
    struct mr_tensor shape; /* f32 or f64; its data is NULL */
    void *gradient;         /* the sum so far; NULL: none */
};

struct mr_tape_node {
    uint32_t kind; /* the owner's, like `of` */
    void *of;
    uint32_t first_link, input_count, output_count; /* in links: inputs, then outputs */
    uint32_t pass, pending;                         /* the pass that reached it; contributions to come */
    bool is_leaf;                                   /* keeps its gradient from pass to pass */
    bool is_retained;                               /* by each pass */
    bool is_gone;                                   /* used by a pass that did not retain it */
};

struct mr_tape {
    _Atomic uint32_t *numbers; /* the worker's last number */
    struct mr_tape_value *values;
    struct mr_tape_node *nodes;
    uint32_t *links; /* indices of values, MR_TAPE_NONE for constants */
    uint32_t value_count, value_room, node_count, node_room, link_count, link_room;
    /* The pass. */
    uint32_t *ready, *stack; /* indices of nodes: a heap with the latest on top; those to be reached */
    uint32_t ready_count, work_room;
    uint32_t pass; /* its number; 0: none yet */
    bool retain;
};

struct mr_tape_entry {
    uint32_t kind;
    void *of;
    const struct mr_value *inputs; /* found by their `gradient`; constants if this tape does not know them */
    uint32_t input_count;
    struct mr_value *outputs; /* f32 and f64 tensors get their numbers here, all others 0 */
    uint32_t output_count;
    bool only_numbered; /* only outputs that came with another worker's number get one */
    bool is_leaf;
    bool is_retained; /* any number of passes use it */
};

/* Initialises a tape; all tapes of a worker share `numbers`. */
void mr_tape_init(struct mr_tape *tape, _Atomic uint32_t *numbers);
/* Frees the tape's memory, but not what nodes are `of`. */
void mr_tape_fini(struct mr_tape *tape);

/* Adds a node. MR_NO_MEMORY: nothing has changed. */
enum mr_status mr_tape_add(struct mr_tape *tape, const struct mr_tape_entry *entry, uint32_t *node);
/* Returns the index of the value with that number. MR_TAPE_NONE: it is not of this tape. */
uint32_t mr_tape_find(const struct mr_tape *tape, uint32_t number);
/* Return the indices of a node's values. */
const uint32_t *mr_tape_inputs(const struct mr_tape *tape, uint32_t node);
const uint32_t *mr_tape_outputs(const struct mr_tape *tape, uint32_t node);

/* ---- a pass ---- */

/* Begins a pass; gradients that an earlier one left behind are dropped, except those of leaves. */
void mr_tape_begin_pass(struct mr_tape *tape, bool retain);
/* Announces one contribution to this node. Calls reached(self, node), which must not change the tape, once
 * for it and for each node that it depends on, unless this pass has reached them before. MR_INVALID_ARGUMENT:
 * an earlier pass used node *gone. MR_NO_MEMORY. After a failure the pass must not go on. */
enum mr_status mr_tape_reach(struct mr_tape *tape, uint32_t node, void (*reached)(void *self, uint32_t node),
                             void *self, uint32_t *gone);
/* Gives a node without outputs the contribution that it waits for; the caller gives its inputs theirs. False:
 * it does not wait. */
bool mr_tape_enter(struct mr_tape *tape, uint32_t node);
/* Stores a sum, which becomes the tape's, and returns NULL. If the value has a sum already, takes it out and
 * returns it instead: add it to yours, free it, and put again. */
void *mr_tape_put(struct mr_tape *tape, uint32_t value, void *sum);
/* Notes that one contribution is in the value's sum, or that it turned out to be none. */
void mr_tape_arrived(struct mr_tape *tape, uint32_t value);
/* Returns the latest node that has all its contributions, once; never a leaf. MR_TAPE_NONE: there is none
 * now. */
uint32_t mr_tape_next(struct mr_tape *tape);
/* Takes out the sum of a value, which becomes the caller's. NULL: there is none. */
void *mr_tape_take(struct mr_tape *tape, uint32_t value);

/* ---- gradients ---- */

/* Returns whether tensors of that type have gradients. */
static inline bool mr_gradient_is_of(uint8_t dtype)
{
    return dtype == MR_F32 || dtype == MR_F64;
}
/* Returns a copy of a gradient, malloc()ed. NULL: no memory. */
void *mr_gradient_copy(const struct mr_tensor *gradient);
/* Adds another sum of that type and shape to `sum`. */
void mr_gradient_add(const struct mr_tensor *shape, void *sum, const void *other);
bool mr_gradient_same_shape(const struct mr_tensor *a, const struct mr_tensor *b);

#endif
