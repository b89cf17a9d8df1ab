#include "tools/bench/caller.h"

#include <stdlib.h>
#include "millrace_observe.h"
#include "tools/bench/random.h"

#define GRADIENT 1e-4f /* small enough for rows to stay finite for days */

static uint32_t dim_of(const struct tool_bench_plan *plan)
{
    return plan->feature.dims[0];
}

static uint32_t bags_of(const struct tool_bench_plan *plan, uint32_t keys)
{
    return (keys + plan->bag_keys - 1) / plan->bag_keys;
}

static bool makes(const struct tool_bench_plan *plan, enum tool_op op)
{
    return plan->mix.weights[op] > 0;
}

/* As many as any call takes. */
static size_t gradient_count(const struct tool_bench_plan *plan)
{
    const size_t rows = makes(plan, TOOL_PUSH) ? (size_t)plan->keys_per_call.max * dim_of(plan) : 0;
    const size_t values = makes(plan, TOOL_VARIABLE_PUSH) ? plan->variable_values : 0;
    return rows > values ? rows : values;
}

bool tool_caller_init(struct tool_caller *c, const struct tool_bench_plan *plan, struct mr_client *client,
                      uint32_t number)
{
    const size_t keys = plan->keys_per_call.max, gradients = gradient_count(plan);
    uint64_t own = plan->seed + number + TOOL_CLIENTS_MAX; /* other numbers than those of its keys */
    *c = (struct tool_caller){
        .plan = plan,
        .client = client,
        .random = tool_random_next(&own),
        .core = number,
        .keys = calloc(keys, sizeof(*c->keys)),
        .offsets = calloc(keys + 1, sizeof(*c->offsets)),
        .gradients = calloc(gradients + 1, sizeof(*c->gradients)),
        .echo = calloc(plan->echo_bytes + 1, 1),
    };
    tool_key_source_init(&c->source, &plan->keys, plan->seed, number, plan->clients);
    if (c->keys == NULL || c->offsets == NULL || c->gradients == NULL || c->echo == NULL)
        return false;
    for (size_t i = 0; i < gradients; i++)
        c->gradients[i] = i % 2 == 0 ? GRADIENT : -GRADIENT;
    return true;
}

void tool_caller_fini(struct tool_caller *c)
{
    free(c->keys);
    free(c->offsets);
    free(c->gradients);
    free(c->echo);
}

enum tool_op tool_caller_draw(struct tool_caller *c, uint32_t *keys)
{
    const enum tool_op op = tool_mix_draw(&c->plan->mix, &c->random);
    *keys = tool_op_has_keys(op) ? tool_range_draw(&c->plan->keys_per_call, &c->random) : 0;
    return op;
}

static enum mr_status send_bags(const struct tool_caller *c, const struct mr_options *options, uint32_t keys)
{
    const uint32_t bags = bags_of(c->plan, keys);
    for (uint32_t b = 0; b < bags; b++)
        c->offsets[b] = b * c->plan->bag_keys;
    c->offsets[bags] = keys;
    return mr_lookup_bags(c->client, options, c->plan->table, c->keys, NULL, c->offsets, bags, NULL);
}

static enum mr_status send_echo(struct tool_caller *c, const struct mr_options *options)
{
    const struct mr_tensor tensor = mr_tensor_1d(MR_U8, c->plan->echo_bytes, c->echo);
    const uint32_t core = c->core++ % mr_client_core_count(c->client);
    return mr_echo(c->client, options, core, &tensor, c->plan->echo_bytes > 0 ? 1 : 0, NULL);
}

enum mr_status tool_caller_send(struct tool_caller *c, enum tool_op op, uint32_t keys, bool more,
                                struct mr_future **future)
{
    const struct tool_bench_plan *plan = c->plan;
    struct mr_options options = {.future = future, .more = more, .wire_dtype = plan->wire_dtype};
    tool_key_source_draw(&c->source, c->keys, keys);
    switch (op) {
    case TOOL_LOOKUP:
        options.read_only = plan->is_read_only;
        return mr_lookup(c->client, &options, plan->table, c->keys, keys, NULL);
    case TOOL_BAGS:
        options.read_only = plan->is_read_only;
        return send_bags(c, &options, keys);
    case TOOL_PUSH:
        return mr_push_gradients(c->client, &options, plan->table, c->keys, keys, dim_of(plan), c->gradients);
    case TOOL_VARIABLE:
        return mr_variable_pull(c->client, &options, plan->variable, 0, 0, NULL);
    case TOOL_VARIABLE_PUSH:
        return mr_variable_push_gradient(c->client, &options, plan->variable, plan->variable_values,
                                         c->gradients);
    case TOOL_ECHO:
        return send_echo(c, &options);
    }
    return MR_INTERNAL;
}

/* Bytes of the first tensor of the answer; 0: there is none. */
static uint64_t answer_bytes(const struct tool_bench_plan *plan, enum tool_op op, uint32_t keys)
{
    switch (op) {
    case TOOL_LOOKUP:
        return (uint64_t)keys * dim_of(plan) * sizeof(float);
    case TOOL_BAGS:
        return (uint64_t)bags_of(plan, keys) * dim_of(plan) * sizeof(float);
    case TOOL_VARIABLE:
        return (uint64_t)plan->variable_values * sizeof(float);
    case TOOL_ECHO:
        return plan->echo_bytes;
    case TOOL_PUSH:
    case TOOL_VARIABLE_PUSH:
        return 0;
    }
    return 0;
}

bool tool_call_is_answered(const struct tool_bench_plan *plan, enum tool_op op, uint32_t keys,
                           const struct mr_reply *reply)
{
    const uint64_t bytes = answer_bytes(plan, op, keys);
    const struct mr_tensor *tensor = reply != NULL ? mr_reply_tensor(reply, 0) : NULL;
    return bytes == 0 || (tensor != NULL && tensor->bytes == bytes);
}

/* On the wire: rows of i8 have a scale each. */
static uint64_t row_bytes(const struct tool_bench_plan *plan)
{
    const uint64_t values = (uint64_t)dim_of(plan) * mr_dtype_bytes(plan->wire_dtype);
    return plan->wire_dtype == MR_I8 ? values + sizeof(float) : values;
}

uint64_t tool_call_bytes(const struct tool_bench_plan *plan, enum tool_op op, uint32_t keys)
{
    const uint64_t key_bytes = keys * sizeof(uint64_t), bags = bags_of(plan, keys);
    switch (op) {
    case TOOL_LOOKUP:
    case TOOL_PUSH:
        return key_bytes + keys * row_bytes(plan);
    case TOOL_BAGS:
        return key_bytes + (bags + 1) * sizeof(uint32_t) + bags * row_bytes(plan);
    case TOOL_VARIABLE:
    case TOOL_VARIABLE_PUSH:
        return plan->variable_values * sizeof(float);
    case TOOL_ECHO:
        return UINT64_C(2) * plan->echo_bytes;
    }
    return 0;
}
