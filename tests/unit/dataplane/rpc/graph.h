/* A graph as a program builds it, for tests: results are kept until its end, errors fail the test. */
#ifndef TEST_RPC_GRAPH_H
#define TEST_RPC_GRAPH_H

#include <string.h>
#include "dataplane/rpc/agent.h"

#define GRAPH_DEPTH 150

struct graph {
    struct mr_rpc *rpc;
    struct mr_autograd *context;
    struct mr_rpc_result *results[4 * GRAPH_DEPTH];
    uint32_t count;
};

struct graph *graph_new(struct mr_rpc *rpc);
/* Ends its context, too. */
void graph_end(struct graph *g);
struct mr_value graph_leaf(struct graph *g, const float *data, uint32_t count);
/* That result of a call in the context. */
struct mr_value graph_call_n(struct graph *g, uint32_t to, const char *name, const struct mr_value *arguments,
                             uint32_t count, uint32_t result);
struct mr_value graph_call1(struct graph *g, uint32_t to, const char *name, struct mr_value a);
struct mr_value graph_call2(struct graph *g, uint32_t to, const char *name, struct mr_value a,
                            struct mr_value b);
void graph_backward(struct graph *g, struct mr_value loss);
const float *graph_gradient_of(struct graph *g, struct mr_value v);
void graph_expect(struct graph *g, struct mr_value v, const float *expected, uint32_t count);

#endif
