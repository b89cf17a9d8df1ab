/* A node among workers, for cmocka tests: with the module of rpc_module.c, or as a place to meet. */
#ifndef TESTS_RPC_NODE_FIXTURE_H
#define TESTS_RPC_NODE_FIXTURE_H

#include "tests/integration/node_fixture.h"
#include "tests/integration/rpc/rpc_workers.h"

#define RPC_NODE_RANK 0u /* where it is a worker */

struct rpc_node {
    struct node_fixture node;
    struct rpc_workers workers;
    char gate[NODE_PATH_BYTES + 16]; /* file for which held functions wait */
};

/* From the test's arguments: MILLRACED MODULE NO_MODULE MILLRACE CORES. */
extern const char *rpc_node_module, *rpc_node_no_module, *rpc_node_millrace;
extern uint32_t rpc_node_cores;
/* False: they are not those; a line says so. Ends the process where no namespaces may be made. */
bool rpc_node_arguments(int argc, char **argv);

int rpc_node_set_up(void **state);
/* Lets held functions go first: a node ends none that runs. Nothing for a test that was skipped before its
 * start. */
int rpc_node_tear_down(void **state);
#define rpc_node_test(name) cmocka_unit_test_setup_teardown(name, rpc_node_set_up, rpc_node_tear_down)

/* Settings as in node_fixture.h. */
void rpc_node_start(struct rpc_node *x, const char *const *settings, uint32_t world_size);
/* The node is rank 0 of that many workers ("rpc.world_size=3"), and has the module, which scales by 2.5.
 * `more`: one more setting, or NULL. */
void rpc_node_start_worker(struct rpc_node *x, const char *world_size, const char *more);

/* Calls "hold" so often, from the first worker; returns when all of them run. */
void rpc_node_hold(struct rpc_node *x, uint32_t count, struct mr_rpc_future **futures);
void rpc_node_open_gate(const struct rpc_node *x);
/* They end well. After the gate was opened. */
void rpc_node_let_go(uint32_t count, struct mr_rpc_future **futures);
/* Calls "scale" with so many elements, and checks what comes back. */
void rpc_node_scale(struct mr_rpc *rpc, uint32_t elements);

#endif
