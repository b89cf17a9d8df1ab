/* One batch: rows, forward, gradients, push. */
#include "trainer_client/examples/fm.h"

#include <stdlib.h>
#include "trainer_client/examples/common/fm_model.h"

#define SEQUENCE_BITS 48 /* of a batch id: the batch's number in its stream */

static void drop_future(struct mr_future **f)
{
    mr_future_destroy(*f);
    *f = NULL;
}

void fm_step_drop(struct fm_step *s)
{
    drop_future(&s->lookup);
    drop_future(&s->bias);
    drop_future(&s->dense);
    drop_future(&s->push);
    mr_reply_free(s->batch.reply);
    s->batch.reply = NULL;
}

void fm_step_free(struct fm_step *s)
{
    fm_step_drop(s);
    free(s->gradient);
    free(s->dense_gradient);
    free(s->ledger_gradient);
}

enum mr_status fm_step_begin(struct fm_step *s, struct fm_client *c)
{
    struct mr_options options = {.future = &s->lookup, .more = true, .wire_dtype = c->options->wire_dtype};
    enum mr_status status = mr_lookup_batch(c->server, &options, s->batch.id, c->features.table, NULL);
    if (status == MR_OK && c->features.dense != 0) {
        options.future = &s->dense;
        status = mr_variable_pull(c->server, &options, c->features.dense, 0, 0, NULL);
    }
    if (status == MR_OK) {
        options.future = &s->bias;
        options.more = false;
        status = mr_variable_pull(c->server, &options, c->features.bias, 0, 0, NULL);
    }
    if (status != MR_OK) {
        drop_future(&s->lookup);
        drop_future(&s->dense);
        drop_future(&s->bias);
    }
    return status;
}

static enum mr_status await(struct mr_future **future, struct mr_reply **reply)
{
    if (*future == NULL)
        return MR_OK;
    enum mr_status status = mr_future_wait(*future, reply);
    drop_future(future);
    return status;
}

enum mr_status fm_step_parameters(struct fm_step *s, struct mr_reply **pooled, struct mr_reply **bias,
                                  struct mr_reply **dense)
{
    struct mr_reply *replies[3] = {NULL, NULL, NULL};
    enum mr_status status = await(&s->lookup, &replies[0]);
    enum mr_status bias_status = await(&s->bias, &replies[1]);
    enum mr_status dense_status = await(&s->dense, &replies[2]);
    status = status != MR_OK ? status : bias_status != MR_OK ? bias_status : dense_status;
    if (status != MR_OK) {
        for (int i = 0; i < 3; i++)
            mr_reply_free(replies[i]);
        return status;
    }
    *pooled = replies[0];
    *bias = replies[1];
    *dense = replies[2];
    return MR_OK;
}

static const float *floats_of(const struct mr_reply *reply)
{
    return reply != NULL ? mr_reply_tensor(reply, 0)->data : NULL;
}

static bool make_room(struct fm_step *s, const struct fm_client *c, uint64_t floats)
{
    if (s->gradient_floats < floats) {
        float *grown = realloc(s->gradient, floats * sizeof(*grown));
        if (grown == NULL)
            return false;
        s->gradient = grown;
        s->gradient_floats = floats;
    }
    if (s->dense_gradient == NULL)
        s->dense_gradient = calloc(c->info.dense + 1, sizeof(float));
    if (s->ledger_gradient == NULL)
        s->ledger_gradient = calloc(c->features.ledger_elements + 1, sizeof(float));
    return s->dense_gradient != NULL && s->ledger_gradient != NULL;
}

/* Table, variables and ledger go in one call, so that they are applied together or not at all. */
static enum mr_status begin_push(struct fm_step *s, struct fm_client *c, const struct fm_shape *shape,
                                 const float *bias_gradient, uint64_t step)
{
    struct mr_batch_gradient g[4];
    uint32_t count = 0, elements = c->features.ledger_elements;
    g[count++] =
        (struct mr_batch_gradient){c->features.table, mr_tensor_3d(MR_F32, shape->samples, shape->slots,
                                                                   1 + shape->factors, s->gradient)};
    g[count++] = (struct mr_batch_gradient){c->features.bias, mr_tensor_1d(MR_F32, 1, bias_gradient)};
    if (c->features.dense != 0) {
        g[count++] = (struct mr_batch_gradient){c->features.dense,
                                                mr_tensor_1d(MR_F32, shape->dense, s->dense_gradient)};
    }
    uint64_t sequence = s->batch.id & ((UINT64_C(1) << SEQUENCE_BITS) - 1);
    if (c->features.ledger != 0) {
        s->ledger_gradient[sequence % elements] = -1;
        g[count++] = (struct mr_batch_gradient){c->features.ledger,
                                                mr_tensor_1d(MR_F32, elements, s->ledger_gradient)};
    }
    const struct mr_options options = {
        .future = &s->push, .step = step, .wire_dtype = c->options->wire_dtype};
    enum mr_status status = mr_push_gradients_batch(c->server, &options, s->batch.id, g, count, &s->applied);
    if (c->features.ledger != 0)
        s->ledger_gradient[sequence % elements] = 0;
    return status;
}

enum mr_status fm_step_push(struct fm_step *s, struct fm_client *c, uint64_t step, double *loss)
{
    struct mr_reply *pooled, *bias, *dense;
    uint64_t begin_ns = mr_trace_begin(c->trace);
    enum mr_status status = fm_step_parameters(s, &pooled, &bias, &dense);
    mr_trace_span(c->trace, 0, "wait for rows", begin_ns, s->batch.id);
    if (status != MR_OK)
        return status;
    const struct fm_shape shape = {s->batch.samples, c->info.slots, c->options->factors, c->info.dense};
    uint64_t floats = (uint64_t)shape.samples * shape.slots * (1 + shape.factors);
    if (mr_reply_tensor(pooled, 0)->bytes != floats * sizeof(float)) {
        status = MR_WRONG_SHAPE; /* another model's table */
    } else if (!make_room(s, c, floats)) {
        status = MR_NO_MEMORY;
    } else {
        const struct fm_parameters parameters = {*floats_of(bias), floats_of(dense)};
        struct fm_gradients gradients = {.pooled = s->gradient, .dense_weights = s->dense_gradient};
        begin_ns = mr_trace_begin(c->trace);
        *loss =
            fm_backward(&shape, &parameters, floats_of(pooled), s->batch.dense, s->batch.labels, &gradients);
        mr_trace_span(c->trace, 0, "compute", begin_ns, s->batch.id);
        begin_ns = mr_trace_begin(c->trace);
        status = begin_push(s, c, &shape, &gradients.bias, step);
        mr_trace_span(c->trace, 0, "send push", begin_ns, s->batch.id);
    }
    mr_reply_free(pooled);
    mr_reply_free(bias);
    mr_reply_free(dense);
    return status;
}

enum mr_status fm_step_end(struct fm_step *s)
{
    return await(&s->push, NULL);
}
