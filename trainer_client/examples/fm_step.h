/* One batch on its way through a trainer: lookups, gradients, push, all as futures. */
#ifndef EXAMPLES_FM_STEP_H
#define EXAMPLES_FM_STEP_H

#include "trainer_client/examples/fm_client.h"

struct fm_step {
    struct mr_batch batch;
    struct mr_future *lookup, *bias, *dense, *push;
    bool applied; /* the push's answer */
    /* arrays that grow as needed and are used again */
    float *gradient, *dense_gradient, *ledger_gradient;
    uint64_t gradient_floats;
};

void fm_step_free(struct fm_step *s);
/* Ask for the parameters of s->batch. On failure nothing is in flight. */
enum mr_status fm_step_begin(struct fm_step *s, struct fm_client *c);
/* Wait for them. `*pooled` [samples, slots, 1 + factors], `*bias` and `*dense` [dense] (NULL when there are
 * none) own the views and are set on success only. */
enum mr_status fm_step_parameters(struct fm_step *s, struct mr_reply **pooled, struct mr_reply **bias,
                                  struct mr_reply **dense);
/* Wait for the parameters, compute, and begin the push of the gradients. `*loss` is the sum over the
 * samples. */
enum mr_status fm_step_push(struct fm_step *s, struct fm_client *c, uint64_t step, double *loss);
/* Wait for the push. */
enum mr_status fm_step_end(struct fm_step *s);
/* Drop whatever is in flight, and the batch. */
void fm_step_drop(struct fm_step *s);

#endif
