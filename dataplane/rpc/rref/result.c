#include "dataplane/rpc/rref/result.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"

static struct mr_rpc_result *result_new(struct mr_rpc *agent, uint32_t count, size_t bytes)
{
    struct mr_rpc_result *r = mr_pool_take(&agent->results);
    bool values_fit = count <= MR_RESULT_VALUES_INLINE, bytes_fit = bytes <= MR_RESULT_BYTES_INLINE;
    size_t values_bytes = values_fit ? 0 : (count * sizeof(struct mr_value) + 63) / 64 * 64;
    if (r == NULL)
        return NULL;
    memset(r, 0, offsetof(struct mr_rpc_result, values_inline));
    r->agent = agent;
    r->count = count;
    r->values = r->values_inline;
    mr_agent_hold(agent);
    if (values_fit && bytes_fit)
        return r;
    /* The bytes follow the values; see bytes_of(). */
    r->block = aligned_alloc(64, values_bytes + (bytes_fit ? 0 : (bytes + 63) / 64 * 64));
    if (r->block == NULL) {
        mr_pool_give(&agent->results, r);
        mr_agent_put(agent);
        return NULL;
    }
    if (!values_fit)
        r->values = r->block;
    return r;
}

static uint8_t *bytes_of(struct mr_rpc_result *r, size_t bytes)
{
    if (bytes <= MR_RESULT_BYTES_INLINE)
        return r->bytes_inline;
    return (uint8_t *)r->block +
           (r->values == r->values_inline ? 0 : (r->count * sizeof(struct mr_value) + 63) / 64 * 64);
}

struct mr_rpc_result *mr_result_copy(struct mr_rpc *agent, const struct mr_value *values, uint32_t count)
{
    size_t bytes = mr_values_copy_bytes(values, count);
    struct mr_rpc_result *r = result_new(agent, count, bytes);
    if (r != NULL)
        mr_values_copy(values, count, r->values, bytes_of(r, bytes));
    return r;
}

static struct mr_rpc_result *result_view(struct mr_rpc *agent, const struct mr_agent_call *call,
                                         const struct mr_value *values, uint32_t count)
{
    struct mr_rpc_result *r = result_new(agent, count, 0);
    if (r == NULL)
        return NULL;
    memcpy(r->values, values, count * sizeof(*values));
    r->kept = call->wire;
    r->kept_in = call->in;
    return r;
}

struct mr_rpc_result *mr_result_of_reply(struct mr_rpc *agent, const struct mr_agent_call *call,
                                         const struct mr_message *reply, bool *keep, enum mr_status *status)
{
    uint32_t from = call->to;
    struct mr_value values[MR_RPC_ARGUMENTS_MAX];
    struct mr_rpc_head head;
    const char *name;
    uint32_t count;
    *keep = false;
    *status = MR_BAD_MESSAGE;
    /* References that could not be taken in would stay in flight for ever. */
    if (!mr_rrefs_reserve(agent->rrefs)) {
        *status = MR_NO_MEMORY;
        mr_member_died(agent, &agent->members[from]);
        return NULL;
    }
    if (!mr_values_decode(reply, &head, &name, values, &count, &agent->hooks, from)) {
        mr_rrefs_release(values, count);
        return NULL;
    }
    *status = MR_OK;
    if (count == 0)
        return NULL;
    *keep = mr_values_copy_bytes(values, count) > MR_RESULT_BYTES_COPIED;
    struct mr_rpc_result *r =
        *keep ? result_view(agent, call, values, count) : mr_result_copy(agent, values, count);

    if (r == NULL) {
        mr_rrefs_release(values, count);
        *status = MR_NO_MEMORY;
        *keep = false;
    }
    return r;
}

uint32_t mr_rpc_result_count(const struct mr_rpc_result *r)
{
    return r == NULL ? 0 : r->count;
}

const struct mr_value *mr_rpc_result_value(const struct mr_rpc_result *r, uint32_t i)
{
    return i < mr_rpc_result_count(r) ? &r->values[i] : NULL;
}

static void result_free(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_result *r = MR_CONTAINER(work, struct mr_rpc_result, freeing);
    /* A node's endpoint outlives the agent and belongs to core 0: this thread must not free its messages. */
    bool stays = agent->config.is_node && atomic_load(&agent->over);

    mr_agent_free(agent, stays ? NULL : r->kept, r->kept_in);
    free(r->block);
    mr_pool_give(&agent->results, r);
    mr_agent_put(agent);
}

void mr_rpc_result_free(struct mr_rpc_result *r)
{
    if (r == NULL)
        return;
    struct mr_rpc *agent = r->agent;

    mr_rrefs_release(r->values, r->count);
    if (r->kept == NULL && r->kept_in == NULL) {
        result_free(agent, &r->freeing);
        return;
    }
    /* The endpoint's memory is returned inside. */
    r->freeing.run = result_free;
    mr_agent_submit(agent, &r->freeing);
}
