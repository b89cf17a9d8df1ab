/* Makes the calls of one client. Nothing is allocated for a call; what it sends is drawn or was made
 * beforehand. The client's thread. */
#ifndef TOOL_CALLER_H
#define TOOL_CALLER_H

#include "millrace.h"
#include "tools/bench/plan.h"

struct tool_caller {
    const struct tool_bench_plan *plan;
    struct mr_client *client;
    struct tool_key_source source;
    uint64_t random;
    uint32_t core; /* of the next echo */
    uint64_t *keys;
    uint32_t *offsets;
    float *gradients;
    uint8_t *echo;
};

/* number: of this client. False: there is no memory. */
bool tool_caller_init(struct tool_caller *c, const struct tool_bench_plan *plan, struct mr_client *client,
                      uint32_t number);
void tool_caller_fini(struct tool_caller *c);

/* The next call of the mix, and its number of keys. */
enum tool_op tool_caller_draw(struct tool_caller *c, uint32_t *keys);
/* more: another call follows at once. */
enum mr_status tool_caller_send(struct tool_caller *c, enum tool_op op, uint32_t keys, bool more,
                                struct mr_future **future);

/* Whether the reply is as long as the call asks for. */
bool tool_call_is_answered(const struct tool_bench_plan *plan, enum tool_op op, uint32_t keys,
                           const struct mr_reply *reply);
/* What a call and its answer carry: keys, offsets, rows, gradients. Without headers. */
uint64_t tool_call_bytes(const struct tool_bench_plan *plan, enum tool_op op, uint32_t keys);

#endif
