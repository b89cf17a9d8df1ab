#include "dataplane/rpc/call/executing.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"

struct mr_rpc_call *mr_executing_new(struct mr_rpc *agent, struct mr_function *function,
                                     uint32_t argument_count)
{
    struct mr_rpc_call *call = mr_pool_take(&agent->executing);
    if (call == NULL)
        return NULL;
    memset(call, 0, offsetof(struct mr_rpc_call, arguments_inline));
    call->error[0] = 0;
    call->agent = agent;
    call->function = function;
    call->arguments = call->arguments_inline;
    call->results = call->results_inline;
    if (argument_count > MR_EXECUTING_VALUES_INLINE) {
        call->arguments = malloc(argument_count * sizeof(*call->arguments));
        if (call->arguments == NULL) {
            mr_pool_give(&agent->executing, call);
            return NULL;
        }
    }
    return call;
}

enum mr_status mr_executing_own(struct mr_rpc *agent, const char *caller, const char *name,
                                const struct mr_value *arguments, uint32_t count, struct mr_rpc_call **out)
{
    struct mr_function *function = name == NULL ? NULL : mr_functions_find(&agent->functions, name);
    char text[192];
    if (function == NULL)
        return mr_rpc_error(MR_UNKNOWN_FUNCTION, "%s: %s: this worker has no function of that name", caller,
                            name == NULL ? "(NULL)" : name);
    if (count > MR_RPC_ARGUMENTS_MAX || (arguments == NULL && count != 0))
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: %s: there may be %u arguments, not %u", caller, name,
                            MR_RPC_ARGUMENTS_MAX, count);
    if (!mr_signature_matches(&function->arguments, arguments, count)) {
        mr_signature_describe(arguments, count, text, sizeof(text));
        return mr_rpc_error(MR_WRONG_SIGNATURE, "%s: %s: it was called with (%s), and takes (%s)", caller,
                            name, text, function->arguments_text);
    }
    *out = mr_executing_new(agent, function, count);
    if (*out == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the call", caller, name);
    (*out)->caller = agent->config.rank;
    return MR_OK;
}

void mr_executing_drop_results(struct mr_rpc_call *call)
{
    mr_rrefs_release(call->results, call->result_count);
    for (uint32_t i = 0; i < call->result_count; i++)
        if (call->results[i].kind == MR_VALUE_OBJECT && call->destroy != NULL)
            call->destroy(call->results[i].object);
    call->result_count = 0;
}

void mr_executing_free(struct mr_rpc_call *call)
{
    struct mr_rpc *agent = call->agent;
    mr_rrefs_release(call->arguments, call->argument_count);
    mr_executing_drop_results(call);
    while (call->blocks != NULL) {
        struct mr_executing_block *block = call->blocks;
        call->blocks = block->next;
        free(block);
    }
    if (call->arguments != call->arguments_inline)
        free(call->arguments);
    if (call->results != call->results_inline)
        free(call->results);
    free(call->copied);
    mr_long_release(call->in);
    mr_pool_give(&agent->executing, call);
}

/* Returns memory for results, 64-byte aligned, that lasts as long as the call. */
static void *result_alloc(struct mr_rpc_call *call, size_t bytes)
{
    uint32_t used = (call->bytes_used + 63u) & ~63u;
    if (used + bytes <= sizeof(call->bytes_inline)) {
        call->bytes_used = used + (uint32_t)bytes;
        return call->bytes_inline + used;
    }
    size_t block_bytes = (sizeof(struct mr_executing_block) + bytes + 63) / 64 * 64;
    struct mr_executing_block *block = aligned_alloc(64, block_bytes);

    if (block == NULL)
        return NULL;
    block->next = call->blocks;
    call->blocks = block;
    return block->bytes;
}

/* ---- what a function says ---- */

void *mr_rpc_user(const struct mr_rpc_call *call)
{
    return call->function->user;
}

struct mr_rpc *mr_rpc_of(const struct mr_rpc_call *call)
{
    return call->agent;
}

uint64_t mr_rpc_pass(const struct mr_rpc_call *call)
{
    return call->pass;
}

uint32_t mr_rpc_caller(const struct mr_rpc_call *call)
{
    return call->caller;
}

uint64_t mr_rpc_time_left_us(const struct mr_rpc_call *call)
{
    uint64_t now_us = mr_agent_now(call->agent);
    if (call->deadline_us == UINT64_MAX)
        return UINT64_MAX;
    return call->deadline_us > now_us ? call->deadline_us - now_us : 0;
}

/* Makes room for one more result. */
static enum mr_status next_result(struct mr_rpc_call *call, struct mr_value **out)
{
    if (call->result_count == MR_RPC_ARGUMENTS_MAX)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: a function has at most %u results",
                            call->function->name, MR_RPC_ARGUMENTS_MAX);
    if (call->result_count == MR_EXECUTING_VALUES_INLINE) {
        struct mr_value *more = malloc(MR_RPC_ARGUMENTS_MAX * sizeof(*more));
        if (more == NULL)
            return mr_rpc_error(MR_NO_MEMORY, "%s: no memory for the results", call->function->name);
        memcpy(more, call->results, call->result_count * sizeof(*more));
        call->results = more;
    }
    *out = &call->results[call->result_count];
    return MR_OK;
}

static enum mr_status no_memory(const struct mr_rpc_call *call)
{
    return mr_rpc_error(MR_NO_MEMORY, "%s: no memory for a result", call->function->name);
}

enum mr_status mr_rpc_return(struct mr_rpc_call *call, struct mr_value value)
{
    struct mr_value *result;
    enum mr_status status = next_result(call, &result);
    if (status != MR_OK)
        return status;
    if (value.kind == MR_VALUE_OBJECT || mr_values_head_bytes(NULL, &value, 1) == 0)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: result %u has no value that could be returned",
                            call->function->name, call->result_count);
    size_t bytes = mr_values_copy_bytes(&value, 1);
    uint8_t *room = bytes == 0 ? NULL : result_alloc(call, bytes);

    if (bytes != 0 && room == NULL)
        return no_memory(call);
    if (value.kind == MR_VALUE_RREF) {
        const char *why = mr_rref_check(call->agent, value.rref);
        if (why != NULL)
            return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: result %u %s", call->function->name,
                                call->result_count, why);
        mr_rref_retain(value.rref);
    }
    mr_values_copy(&value, 1, result, room);
    call->result_count++;
    return MR_OK;
}

enum mr_status mr_rpc_return_values(struct mr_rpc_call *call, const struct mr_value *values, uint32_t count)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < count && status == MR_OK; i++)
        status = mr_rpc_return(call, values[i]);
    return status;
}

enum mr_status mr_rpc_return_tensor(struct mr_rpc_call *call, enum mr_dtype dtype, uint32_t rank,
                                    const uint32_t *dims, void **data)
{
    struct mr_tensor tensor = {.dtype = dtype, .rank = rank, .bytes = mr_dtype_bytes(dtype)};
    struct mr_value *result;
    enum mr_status status = next_result(call, &result);
    if (status != MR_OK)
        return status;
    if (tensor.bytes == 0 || rank > MR_RANK_MAX)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: result %u is no tensor: its dtype is %d, its rank %u",
                            call->function->name, call->result_count, (int)dtype, rank);
    for (uint32_t i = 0; i < rank; i++) {
        tensor.dims[i] = dims[i];
        if (__builtin_mul_overflow(tensor.bytes, (uint64_t)dims[i], &tensor.bytes))
            tensor.bytes = UINT64_MAX;
    }
    if (tensor.bytes > call->agent->config.long_bytes_max)
        return mr_rpc_error(
            MR_TOO_LARGE,
            "%s: result %u takes %llu MiB, and a message at most %zu MiB: see message_bytes, or a "
            "node's " MR_LONG_KEY,
            call->function->name, call->result_count, (unsigned long long)(tensor.bytes >> 20),
            call->agent->config.long_bytes_max >> 20);
    tensor.data = result_alloc(call, tensor.bytes);
    if (tensor.data == NULL)
        return no_memory(call);
    *result = mr_value_tensor(tensor);
    call->result_count++;
    *data = tensor.data;
    return MR_OK;
}

enum mr_status mr_rpc_return_object(struct mr_rpc_call *call, void *object, void (*destroy)(void *))
{
    struct mr_value *result;
    enum mr_status status = next_result(call, &result);
    if (status == MR_OK && ((call->head.flags & MR_RPC_REMOTE) == 0 || call->destroy != NULL))
        status = mr_rpc_error(
            MR_INVALID_ARGUMENT,
            "%s: an object stays with its owner: it can only be called by mr_remote(), and return one",
            call->function->name);
    if (status != MR_OK) {
        if (destroy != NULL)
            destroy(object);
        return status;
    }
    *result = (struct mr_value){.kind = MR_VALUE_OBJECT, .object = object};
    call->destroy = destroy;
    call->result_count++;
    return MR_OK;
}

enum mr_status mr_rpc_fail(struct mr_rpc_call *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(call->error, sizeof(call->error), format, args);
    va_end(args);
    return MR_FUNCTION_FAILED;
}
