#include "trainer_client/api/calls.h"

#include <math.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"

enum mr_status mrc_future_for_cores(struct mrc_retry *r, uint32_t feature, const struct mr_tensor *tensor,
                                    size_t context_bytes, size_t core_bytes, struct mr_future **out)
{
    const uint32_t cores = mrc_shard_map_count(r->client, &r->map_generation);
    const enum mr_status status = mrc_future_new(r->client, r->options, r->op, feature, cores, tensor != NULL,
                                                 context_bytes + cores * core_bytes, out);
    if (status != MR_OK)
        return status;
    mrc_retry_future(r, *out);
    for (uint32_t i = 0; i < cores && tensor != NULL; i++)
        mrc_request_add(*out, i, *tensor);
    return MR_OK;
}

enum mr_status mrc_find_any_feature(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                    uint32_t id, struct mr_feature *out)
{
    for (bool has_asked = false;; has_asked = true) {
        const struct mr_feature *known = NULL;
        if (!mrc_is_inherited(client)) {
            pthread_mutex_lock(&client->lock);
            known = mrc_features_get(&client->features, id);
            if (known != NULL)
                *out = *known;
            pthread_mutex_unlock(&client->lock);
        }
        if (known != NULL)
            return MR_OK;
        if (has_asked)
            return mrc_error(MR_UNKNOWN_TABLE, "%s: %s: no table or variable has the number %u",
                             client->server, mr_op_name(op), id);
        const struct mr_options now = {.deadline_ms = options == NULL ? 0 : options->deadline_ms};
        const enum mr_status status = mr_list(client, &now, NULL, NULL);
        if (status != MR_OK)
            return status;
    }
}

enum mr_status mrc_find_feature(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                uint32_t id, enum mr_feature_kind kind, struct mr_feature *out)
{
    struct mr_feature found;
    enum mr_status unknown = kind == MR_TABLE ? MR_UNKNOWN_TABLE : MR_UNKNOWN_VARIABLE;
    const char *wanted = kind == MR_TABLE ? "table" : "variable";
    enum mr_status status = mrc_find_any_feature(client, options, op, id, &found);
    if (status == MR_UNKNOWN_TABLE)
        return mrc_error(unknown, "%s: %s: no %s has the number %u", client->server, mr_op_name(op), wanted,
                         id);
    if (status != MR_OK)
        return status;
    if (found.kind != (uint32_t)kind)
        return mrc_error(unknown, "%s: %s: number %u is \"%s\", which is no %s", client->server,
                         mr_op_name(op), id, found.name, wanted);
    *out = found;
    return MR_OK;
}

enum mr_status mrc_check_offsets(const char *call, const uint32_t *offsets, uint64_t bag_count)
{
    if (offsets == NULL)
        return mrc_bad_argument(call, "offsets is NULL");
    if (offsets[0] != 0)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: offsets[0] is %u; it must be 0", call, offsets[0]);
    for (uint64_t b = 0; b < bag_count; b++) {
        if (offsets[b + 1] < offsets[b])
            return mrc_error(MR_INVALID_ARGUMENT, "%s: offsets[%llu] = %u is below offsets[%llu] = %u", call,
                             (unsigned long long)b + 1, offsets[b + 1], (unsigned long long)b, offsets[b]);
    }
    return MR_OK;
}

enum mr_status mrc_check_weights(const char *call, const float *weights, uint64_t count)
{
    for (uint64_t i = 0; i < count && weights != NULL; i++) {
        if (!isfinite(weights[i]))
            return mrc_error(MR_INVALID_ARGUMENT, "%s: weights[%llu] is %g; weights are finite", call,
                             (unsigned long long)i, (double)weights[i]);
    }
    return MR_OK;
}

enum mr_status mrc_wire_dtype(const char *call, const struct mr_options *options, enum mr_dtype *out)
{
    enum mr_dtype dtype = options == NULL ? MR_DTYPE_NONE : options->wire_dtype;
    *out = dtype == MR_DTYPE_NONE ? MR_F32 : dtype;
    if (mr_convert_knows(*out))
        return MR_OK;
    return mrc_error(MR_WRONG_DTYPE, "%s: options.wire_dtype is %s (%u); rows travel as f32, f16, bf16 or i8",
                     call, mr_dtype_name(dtype), (unsigned)dtype);
}

/* ---- calls to core 0 of a node ---- */

struct core0_call {
    struct mrc_retry retry;
    const struct mr_tensor *tensors;
    uint32_t tensor_count;
    mrc_finish finish;
    const void *context;
    size_t context_bytes;
};

static enum mr_status core0_make(struct mrc_retry *r, struct mr_reply **reply)
{
    const struct core0_call *c = MR_CONTAINER(r, struct core0_call, retry);
    struct mr_future *f;
    enum mr_status status =
        mrc_future_new(r->client, r->options, r->op, 0, 1, c->tensor_count, c->context_bytes, &f);
    if (status != MR_OK)
        return status;
    (void)mrc_shard_map_count(r->client, &r->map_generation);
    mrc_retry_future(r, f);
    f->map_generation = UINT32_MAX; /* whichever node answers by then */
    for (uint32_t t = 0; t < c->tensor_count; t++)
        mrc_request_add(f, 0, c->tensors[t]);
    f->finish = c->finish;
    f->requests[0].is_control = true;
    if (c->context_bytes > 0)
        memcpy(f->context, c->context, c->context_bytes);
    return mrc_future_run(f, r->options, reply);
}

static enum mrc_retry_due core0_is_due(struct mrc_retry *r, enum mr_status status)
{
    if (status == MR_CANCELLED) /* the node has left the cluster */
        return mrc_retry_by_map(r, status);
    return r->op == MR_OP_MOVES ? mrc_retry_shown(r, status) : MRC_RETRY_NO;
}

enum mr_status mrc_run_core0(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                             const struct mr_tensor *tensors, uint32_t tensor_count, mrc_finish finish,
                             const void *context, size_t context_bytes)
{
    struct core0_call c = {
        .retry = {.client = client, .options = options, .op = op, .make = core0_make, .is_due = core0_is_due},
        .tensors = tensors,
        .tensor_count = tensor_count,
        .finish = finish,
        .context = context,
        .context_bytes = context_bytes};
    return mrc_retry_run(&c.retry, NULL);
}

enum mr_status mrc_check_epoch(const struct mr_future *f, uint64_t epoch)
{
    pthread_mutex_lock(&f->client->lock);
    const uint64_t moved_epoch = f->client->cluster.moved_epoch;
    pthread_mutex_unlock(&f->client->lock);
    if (epoch >= moved_epoch)
        return MR_OK;
    return mrc_error(MR_BUSY,
                     "the node that answered has the cluster's map of epoch %llu, and this client's last "
                     "change is in epoch %llu: ask again",
                     (unsigned long long)epoch, (unsigned long long)moved_epoch);
}

/* ---- calls to a core that the caller names ---- */

/* MR_INVALID_ARGUMENT unless there is such a core in the map whose number of changes it sets. */
static enum mr_status check_core(const char *call, struct mr_client *client, uint32_t core,
                                 uint32_t *map_generation)
{
    if (client == NULL)
        return mrc_bad_argument(call, "client is NULL");
    if (mrc_is_inherited(client))
        return mrc_check_process(client, call);
    const uint32_t core_count = mrc_shard_map_count(client, map_generation);
    if (core >= core_count)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: core is %u; the node has %u", call, core, core_count);
    return MR_OK;
}

enum mr_status mrc_run_on_core(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               const struct mrc_core_call *call, struct mr_reply **reply)
{
    struct mr_future *f;
    uint32_t map_generation = 0;
    enum mr_status status = check_core(call->name, client, core, &map_generation);
    if (status == MR_OK)
        status = mrc_future_new(client, options, call->op, 0, 1, call->tensor_count, call->context_bytes, &f);
    if (status != MR_OK)
        return status;
    for (uint32_t t = 0; t < call->tensor_count; t++)
        mrc_request_add(f, 0, call->tensors[t]);
    if (call->context_bytes > 0)
        memcpy(f->context, call->context, call->context_bytes);
    f->requests[0].owner = (uint16_t)core;
    f->finish = call->finish;
    return mrc_run_by_map(f, map_generation, options, reply);
}
