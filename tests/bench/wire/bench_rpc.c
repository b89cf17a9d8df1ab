/* Measures remote calls between two workers, one JSON object per line, like bench_calls:
 *   bench_rpc --rank 0 --rendezvous 10.0.0.1:7700        calls, and prints
 *   bench_rpc --rank 1 --rendezvous 10.0.0.1:7700        serves
 *   bench_rpc                                            both, in two processes over loopback
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "millrace_rpc.h"
#include "tests/bench/common/bench_util.h"

#define OUTSTANDING 64u
#define WARM        2000u

static enum mr_status empty(struct mr_rpc_call *call, const struct mr_value *arguments,
                            uint32_t argument_count)
{
    return MR_OK;
}

static enum mr_status sum(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t argument_count)
{
    const struct mr_tensor *t = &arguments[0].tensor;
    const float *in = t->data;
    void *out;
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, 1, t->dims, &out);
    for (uint32_t i = 0; status == MR_OK && i < t->dims[0]; i++)
        ((float *)out)[i] = in[i] + 1.0f;
    return status;
}

static void rpc_check(enum mr_status status, const char *what)
{
    if (status == MR_OK)
        return;
    fprintf(stderr, "bench_rpc: %s: %s\n", what, mr_rpc_last_error());
    exit(1);
}

static void bench_sync(struct mr_rpc *rpc, const char *name, const char *function,
                       const struct mr_value *arguments, uint32_t argument_count, uint32_t runs)
{
    double *us = calloc(runs, sizeof(*us));
    for (uint32_t i = 0; i < runs + WARM; i++) {
        double t0 = bench_now_us();
        rpc_check(mr_rpc_sync(rpc, 1, function, arguments, argument_count, NULL, NULL), name);
        if (i >= WARM)
            us[i - WARM] = bench_now_us() - t0;
    }
    bench_print_latency(name, us, runs);
    free(us);
}

static void bench_async(struct mr_rpc *rpc, const char *name, const char *function, double seconds)
{
    struct mr_rpc_future *futures[OUTSTANDING] = {0};
    uint64_t calls = 0;
    double t0 = bench_now_us(), t1 = t0;
    for (uint32_t i = 0; t1 - t0 < seconds * 1e6; i = (i + 1) % OUTSTANDING) {
        if (futures[i] != NULL) {
            rpc_check(mr_rpc_wait(futures[i], NULL), name);
            mr_rpc_future_destroy(futures[i]);
            calls++;
        }
        rpc_check(mr_rpc_async(rpc, 1, function, NULL, 0, NULL, &futures[i]), name);
        if (i == 0)
            t1 = bench_now_us();
    }
    bench_print_rate(name, (double)calls / (t1 - t0) * 1e6, "calls/s", calls);
    for (uint32_t i = 0; i < OUTSTANDING; i++) {
        if (futures[i] == NULL)
            continue;
        rpc_check(mr_rpc_wait(futures[i], NULL), name);
        mr_rpc_future_destroy(futures[i]);
    }
}

static void measure(struct mr_rpc *rpc, uint32_t runs, double seconds)
{
    static float floats[1 << 18];
    struct mr_value megabyte = mr_value_tensor(mr_tensor_1d(MR_F32, 1 << 18, floats));
    bench_sync(rpc, "rpc_sync_empty", "empty", NULL, 0, runs);
    bench_sync(rpc, "rpc_sync_empty_inline", "empty_inline", NULL, 0, runs);
    bench_async(rpc, "rpc_async_64", "empty", seconds);
    bench_async(rpc, "rpc_async_64_inline", "empty_inline", seconds);
    bench_sync(rpc, "rpc_sync_1mb_both_ways", "sum", &megabyte, 1, runs / 20 + 1);
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"rank", required_argument, NULL, 'r'},
                                          {"rendezvous", required_argument, NULL, 'a'},
                                          {"runs", required_argument, NULL, 'n'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    static const struct mr_rpc_function functions[] = {
        {.name = "empty", .run = empty},
        {.name = "empty_inline", .run = empty, .flags = MR_RPC_INLINE},
        {.name = "sum", .arguments = "f32[?]", .results = "f32[?]", .run = sum}};
    struct mr_rpc_options options = {
        .rendezvous = "127.0.0.1:17790", .functions = functions, .function_count = 3};
    uint32_t rank = UINT32_MAX, runs = 20000;
    double seconds = 2.0;
    struct mr_rpc *rpc;
    char error[512];
    pid_t child = -1;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        if (c == 'r')
            rank = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 'a')
            options.rendezvous = optarg;
        else if (c == 'n')
            runs = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 's')
            seconds = strtod(optarg, NULL);
        else
            return 2;
    if (rank == 1) { /* for who starts the caller next */
        printf("ready\n");
        (void)fflush(stdout);
    }
    if (rank == UINT32_MAX) {
        child = fork();
        rank = child == 0 ? 1 : 0;
    }
    if (mr_rpc_init(rank == 0 ? "caller" : "callee", rank, 2, &options, &rpc, error, sizeof(error)) !=
        MR_OK) {
        fprintf(stderr, "bench_rpc: %s\n", error);
        return 1;
    }
    if (rank == 0)
        measure(rpc, runs, seconds);
    rpc_check(mr_rpc_shutdown(rpc, 0), "shutdown");
    mr_rpc_destroy(rpc);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    return 0;
}
