#include "trainer_client/examples/common/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ADDRESS_BYTES 300u

float example_draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (float)(1 << 24);
}

double example_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct mr_rpc *example_join(const struct example_worker *worker, const char *name,
                            struct mr_rpc_options *options)
{
    struct mr_rpc *rpc;
    char address[ADDRESS_BYTES], error[512];
    if (worker->rank == EXAMPLE_NOT_GIVEN)
        cli_refuse(worker->program, "--rank is missing");
    if (worker->rank >= worker->world_size)
        cli_refuse(worker->program, "--rank %u is not below --world-size %u", worker->rank,
                   worker->world_size);
    snprintf(address, sizeof(address), "%s:%u", worker->master_addr, worker->master_port);
    options->rendezvous = address;
    options->key_file = worker->key_file;
    if (mr_rpc_init(name, worker->rank, worker->world_size, options, &rpc, error, sizeof(error)) != MR_OK)
        exit(cli_fail(worker->program, "%s", error));
    return rpc;
}

int example_failed(const struct example_worker *worker, const char *what)
{
    return cli_fail(worker->program, "rank %u: %s: %s", worker->rank, what, mr_rpc_last_error());
}

int example_leave(const struct example_worker *worker, struct mr_rpc *rpc, uint32_t timeout_ms, int exit_code)
{
    if (exit_code == 0 && mr_rpc_shutdown(rpc, timeout_ms) != MR_OK)
        exit_code = example_failed(worker, "shutdown");
    mr_rpc_destroy(rpc);
    return exit_code;
}
