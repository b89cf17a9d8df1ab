/* The parameters of a node that have names, and the state that optimizers with names keep beside them: what a
 * checkpoint saves of remote calls. They outlive the references to them, and the world that made them: who
 * asks for a name again gets what was learnt.
 *
 * A state belongs to a parameter and an optimizer, by their names. A step changes both under the lock, so
 * that whoever holds it sees all parameters as they are between two steps.
 *
 * Any thread.
 */
#ifndef MR_NAMED_PARAMETERS_H
#define MR_NAMED_PARAMETERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/optimizer/versions.h"

#define MR_NAMED_MAX        65536u /* parameters and states */
#define MR_NAMED_TEXT_BYTES 256u

struct mr_named_parameters;
struct mr_named_optimizer; /* valid as long as the parameters */

/* NULL: no memory. */
struct mr_named_parameters *mr_named_create(void);
void mr_named_destroy(struct mr_named_parameters *all); /* NULL is fine */

/* Whether it is 1 to 63 of the characters that names of tables have. */
bool mr_named_is_name(const char *name);
/* The lock of steps: held by whoever changes a parameter or a state, one step at a time. */
pthread_mutex_t *mr_named_lock(struct mr_named_parameters *all);
/* Rises with each step, new name and drop. */
uint64_t mr_named_changes(const struct mr_named_parameters *all);

/* ---- with the lock ---- */

/* Returns the parameter of that name in *out, retained; without one it is created from `initial`.
 * MR_WRONG_SHAPE: it has another shape; MR_NO_MEMORY, MR_TOO_LARGE: `text` (MR_NAMED_TEXT_BYTES) is a
 * line. */
enum mr_status mr_named_open(struct mr_named_parameters *all, const char *name,
                             const struct mr_tensor *initial, struct mr_versions **out, char *text);
/* The optimizer of that name; it counts steps. NULL: no memory. */
struct mr_named_optimizer *mr_named_optimizer(struct mr_named_parameters *all, const char *name);
void mr_named_stepped(struct mr_named_parameters *all, struct mr_named_optimizer *optimizer);
uint64_t mr_named_steps(const struct mr_named_optimizer *optimizer);
/* Returns the optimizer's state of a parameter in *out, retained; if there is none, `initial`, an f32 tensor
 * of one dimension, becomes it. MR_INVALID_ARGUMENT: the parameter has no name, or the state is another
 * rule's; MR_NO_MEMORY, MR_TOO_LARGE: `text` is a line. */
enum mr_status mr_named_state(struct mr_named_parameters *all, struct mr_named_optimizer *optimizer,
                              const struct mr_versions *parameter, uint32_t rule,
                              const struct mr_tensor *initial, struct mr_versions **out, char *text);
/* Forgets a parameter with all states beside it. Whoever uses it may go on, but it is not saved any more.
 * False: there is none of that name. */
bool mr_named_drop(struct mr_named_parameters *all, const char *name);
bool mr_named_is_there(const struct mr_named_parameters *all, const char *name);

/* ---- all of them: for checkpoints ---- */

/* The values of a parameter, or an optimizer's state beside it. */
struct mr_named_item {
    char name[MR_NAME_BYTES];
    char optimizer[MR_NAME_BYTES];        /* "": the values */
    uint32_t rule;                        /* of that optimizer: enum mr_optimizer; 0: the values */
    uint64_t step;                        /* the values' version, or the optimizer's steps */
    struct mr_tensor shape;               /* without data */
    struct mr_versions *versions;         /* in mr_named_replace() */
    struct mr_parameter_version *version; /* in a cut: held */
};

struct mr_named_cut {
    uint32_t count;
    struct mr_named_item items[]; /* a parameter's states follow its values */
};

/* With the lock: returns everything as it is now, or, if `names` is not NULL, the parameters of these
 * names with their states. Nothing is copied: a step that comes later leaves the versions that the cut
 * holds as they are. NULL: no memory. */
struct mr_named_cut *mr_named_cut(struct mr_named_parameters *all, const char (*names)[MR_NAME_BYTES],
                                  uint32_t name_count);
void mr_named_cut_free(struct mr_named_cut *cut); /* NULL is fine */
/* Returns NULL, or the first item whose parameter has another shape here, or whose optimizer's state does.
 * With the lock. */
const struct mr_named_item *mr_named_misfit(const struct mr_named_parameters *all,
                                            const struct mr_named_item *items, uint32_t count);
/* Takes the items, whose `versions` become the newest of parameters and states of these names, which are made
 * if they are missing; others stay. Nothing misfits. With the lock. MR_NO_MEMORY: nothing has changed. The
 * versions of all items are the caller's no more if it succeeds. */
enum mr_status mr_named_replace(struct mr_named_parameters *all, struct mr_named_item *items, uint32_t count);

#endif
