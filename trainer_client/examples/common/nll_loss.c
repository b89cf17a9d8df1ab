#include "trainer_client/examples/common/nll_loss.h"

#include <stdlib.h>
#include <string.h>

/* What the backward needs. */
struct saved {
    uint32_t batch, classes;
    uint32_t labels[];
};

static enum mr_status nll_loss_save(struct mr_rpc_call *call, const struct mr_tensor *rows,
                                    const uint32_t *labels)
{
    struct saved *saved = malloc(sizeof(*saved) + rows->dims[0] * sizeof(saved->labels[0]));
    if (saved == NULL)
        return MR_NO_MEMORY;
    saved->batch = rows->dims[0];
    saved->classes = rows->dims[1];
    memcpy(saved->labels, labels, rows->dims[0] * sizeof(saved->labels[0]));
    enum mr_status status = mr_rpc_save(call, saved, free);
    if (status != MR_OK)
        free(saved);
    return status;
}

static enum mr_status nll_loss_run(struct mr_rpc_call *call, const struct mr_value *arguments,
                                   uint32_t argument_count)
{
    const struct mr_tensor *rows = &arguments[0].tensor;
    const float *values = rows->data;
    const uint32_t *labels = arguments[1].tensor.data;
    void *loss;
    double sum = 0;
    (void)argument_count;
    if (rows->dims[0] == 0 || rows->dims[0] != arguments[1].tensor.dims[0])
        return mr_rpc_fail(call, "%u samples and %u labels", rows->dims[0], arguments[1].tensor.dims[0]);
    for (uint32_t i = 0; i < rows->dims[0]; i++) {
        if (labels[i] >= rows->dims[1])
            return mr_rpc_fail(call, "label %u of %u classes", labels[i], rows->dims[1]);
        sum -= (double)values[(size_t)i * rows->dims[1] + labels[i]];
    }
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, 0, NULL, &loss);
    if (status != MR_OK)
        return status;
    *(float *)loss = (float)(sum / rows->dims[0]);
    return nll_loss_save(call, rows, labels);
}

static enum mr_status back(struct mr_rpc_call *call, void *p, const struct mr_tensor *gradients,
                           uint32_t gradient_count)
{
    const struct saved *saved = p;
    const uint32_t dims[] = {saved->batch, saved->classes};
    void *room;
    (void)gradient_count;
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, 2, dims, &room);
    if (status != MR_OK)
        return status;
    float *rows = memset(room, 0, (size_t)saved->batch * saved->classes * sizeof(float));
    for (uint32_t i = 0; i < saved->batch; i++)
        rows[(size_t)i * saved->classes + saved->labels[i]] =
            -((const float *)gradients[0].data)[0] / (float)saved->batch;
    return mr_rpc_return(call, mr_value_none()); /* labels have none */
}

const struct mr_rpc_function example_nll_loss = {.name = "nll_loss",
                                                 .arguments = "f32[?,?], u32[?]",
                                                 .results = "f32[]",
                                                 .run = nll_loss_run,
                                                 .backward = back};
