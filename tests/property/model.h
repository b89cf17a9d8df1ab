/* What a table is, in the plainest code that says it: rows in chains, one float at a time. Shared with ps/
 * are what other tests hold to references of their own: initializers (test_initializer.c), schedules
 * (test_rates.c), conversions of what travels (test_convert.c), and, but for SGD and Adagrad, the optimizers'
 * formulas (test_rule_torch.c, test_rule_double.c), in their plain version and called for one row. */
#ifndef PROPERTY_MODEL_H
#define PROPERTY_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "ps/row/initializer.h"
#include "dataplane/optimizer/rule.h"

#define MODEL_CHAINS 1024u

struct model_row {
    struct model_row *next;
    uint64_t key;
    bool emitted;     /* of a snapshot: the cut has given it out */
    uint32_t updates; /* of rows of 16 bits: times it was changed */
    uint32_t seen;    /* tables with eviction by age, steps or norm: second or step of the last use */
    uint64_t clock;   /* by LRU or LFU: keys the table had used before the call that used it last */
    float floats[];   /* values, then the optimizer's state */
};

struct model {
    struct mr_feature feature;
    struct ps_initializer initializer;
    struct mr_rule optimizer;
    uint32_t dim, state_floats;
    uint64_t row_count;
    struct model_row *chains[MODEL_CHAINS];
};

/* Whether the model knows what such a table does. */
bool model_knows(const struct mr_feature *feature);
void model_init(struct model *m, const struct mr_feature *feature);
void model_clear(struct model *m); /* drops all rows */
/* `to` has no rows. No row of the copy is emitted. */
void model_copy(struct model *to, const struct model *from);
struct model_row *model_find(const struct model *m, uint64_t key); /* NULL: no row */
/* The first values of a key's row. */
void model_initial(const struct model *m, uint64_t key, float *values);
/* With its first values and state; the key has no row yet. */
struct model_row *model_add(struct model *m, uint64_t key);
void model_put(struct model *m,
               const struct model_row *row);      /* a copy takes the place of the key's row, if it has one */
void model_remove(struct model *m, uint64_t key); /* the key has a row */
uint32_t model_stored_bytes(const struct model *m);
uint32_t model_use_offset(const struct model *m); /* in a stored row: where it is kept when it was used ... */
uint32_t model_use_bytes(const struct model *m);  /* ... and how often; 0: neither is */
bool model_evicts_by_limit(const struct model *m); /* LRU, LFU */
bool model_makes_room(const struct model *m);      /* also AGE, STEPS: at a limit a row goes for a new one */
/* The row as a checkpoint holds it, and back. Stored are `seen`, and no uses. */
void model_store(const struct model *m, const struct model_row *row, uint8_t *stored);
void model_restore(const struct model *m, struct model_row *row, const uint8_t *stored);
bool model_is_half(const struct model *m); /* rows of f16 or bf16 */

/* A call's keys and, if there are any, their bags. */
struct model_keys {
    const uint64_t *keys;
    uint32_t count;
    const uint32_t *offsets;  /* NULL: no bags */
    const float *weights;     /* NULL: 1 */
    const float *divisors;    /* of bags; NULL: as their keys and weights make them */
    const uint64_t *excluded; /* partitions whose keys a push does not have, a bit each; NULL: none */
    bool sets;                /* gradients are rows to be set */
};
bool model_is_excluded(const struct model *m, const struct model_keys *k, uint64_t key);
/* By what a bag is divided; 0: it is all zeros. */
float model_divisor(const struct model *m, const struct model_keys *k, uint32_t bag);

/* What a push does to one of its keys. */
struct model_gradient {
    uint64_t key;
    uint32_t bad; /* gradients left out because they hold NaN or Inf */
    bool any;     /* some were not */
    float *sum;   /* of those, in the order of appearance */
};
/* The push's distinct keys in the order of appearance; returns how many. `out` and `sums` have room for
 * all. */
uint32_t model_gather(const struct model *m, const struct model_keys *k, const float *gradients,
                      struct model_gradient *out, float *sums);
bool model_all_finite(const float *x, uint32_t count);
/* One step of the optimizer; false when the gradient holds NaN or Inf, or the row would, or a number beyond
 * its type's: values and state stay then. */
bool model_step(const struct model *m, struct model_row *row, const float *gradient,
                const struct mr_rule_push *push);

/* Sets the row to these values, and its state to that of a new row. */
void model_set_row(const struct model *m, struct model_row *row, const float *values);

/* model_optimizer.c */
void model_optimizer_init(struct model *m); /* m->feature is set */
void model_state_init(const struct model *m, struct model_row *row);

/* model_half.c */
/* After a step, the values as a row of 16 bits holds them: rounded up or down by the row's random bits. */
void model_round(const struct model *m, struct model_row *row);
/* Of a row of 16-bit values that were set: to nearest. */
void model_set(const struct model *m, struct model_row *row);
/* None of these is beyond the largest number of the type. */
bool model_holds(const struct model *m, const float *values);
/* First values: the nearest numbers that there are. */
void model_nearest(const struct model *m, float *values);

#endif
