/* Two workers: "caller" has "adder" add two tensors, with a result, with a future, and with an error. See
 * docs/remote-add.md.
 *
 *   remote_add --rank 0 --rendezvous 10.0.0.1:7700 &       # caller, who is met there
 *   remote_add --rank 1 --rendezvous 10.0.0.1:7700         # adder
 */
#include <stdio.h>
#include <string.h>
#include <millrace_rpc.h>
#include "dataplane/wire/base/cli.h"

#define COUNT 4u

static enum mr_status remote_add_add(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t argument_count)
{
    const struct mr_tensor *a = &arguments[0].tensor, *b = &arguments[1].tensor;
    void *sum;
    (void)argument_count;
    if (a->dims[0] != b->dims[0])
        return mr_rpc_fail(call, "the tensors have %u and %u elements", a->dims[0], b->dims[0]);
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, 1, a->dims, &sum);

    for (uint32_t i = 0; status == MR_OK && i < a->dims[0]; i++)
        ((float *)sum)[i] = ((const float *)a->data)[i] + ((const float *)b->data)[i];
    return status;
}

static int failed(const char *what)
{
    return cli_fail("remote_add", "%s: %s", what, mr_rpc_last_error());
}

static int print_sum(struct mr_rpc_result *result)
{
    const struct mr_tensor *sum = &mr_rpc_result_value(result, 0)->tensor;
    printf("remote_add: sum");
    for (uint32_t i = 0; i < sum->dims[0]; i++)
        printf(" %g", (double)((const float *)sum->data)[i]);
    printf("\n");
    mr_rpc_result_free(result);
    return 0;
}

static int call_adder(struct mr_rpc *rpc)
{
    static const float a[COUNT] = {1, 2, 3, 4}, b[COUNT] = {10, 20, 30, 40};
    struct mr_value arguments[2] = {mr_value_tensor(mr_tensor_1d(MR_F32, COUNT, a)),
                                    mr_value_tensor(mr_tensor_1d(MR_F32, COUNT, b))};
    struct mr_rpc_worker adder;
    struct mr_rpc_result *result;
    struct mr_rpc_future *future;
    if (mr_worker_by_name(rpc, "adder", &adder) != MR_OK)
        return failed("mr_worker_by_name");

    /* Call and wait. */
    if (mr_rpc_sync(rpc, adder.rank, "add", arguments, 2, NULL, &result) != MR_OK)
        return failed("mr_rpc_sync");
    print_sum(result);

    /* Call, do something else, wait. */
    if (mr_rpc_async(rpc, adder.rank, "add", arguments, 2, NULL, &future) != MR_OK)
        return failed("mr_rpc_async");
    enum mr_status status = mr_rpc_wait(future, &result);

    mr_rpc_future_destroy(future);
    if (status != MR_OK)
        return failed("mr_rpc_wait");
    print_sum(result);

    /* What a function says when it fails comes back. */
    arguments[1].tensor = mr_tensor_1d(MR_F32, COUNT - 1, b);
    if (mr_rpc_sync(rpc, adder.rank, "add", arguments, 2, NULL, NULL) != MR_FUNCTION_FAILED)
        return failed("a call that should have failed");
    printf("remote_add: %s\n", mr_rpc_last_error());
    return 0;
}

int main(int argc, char **argv)
{
    struct mr_rpc_options options = {.rendezvous = "127.0.0.1:7700"};
    uint32_t rank = UINT32_MAX;
    const struct cli_option command_line[] = {
        {"rank", CLI_U32_IN(0, 1), &rank, "0|1", "0: the caller, 1: the adder"},
        {"rendezvous", CLI_STRING, &options.rendezvous, "HOST:PORT",
         "where they meet; default 127.0.0.1:7700"},
        {"key-file", CLI_STRING, &options.key_file, "FILE", "pre-shared key, as in docs/security.md"}};
    const struct cli_usage usage = {.program = "remote_add",
                                    .synopsis = "--rank 0|1 [options]",
                                    .summary = "Two workers: one has the other add two tensors.",
                                    CLI_OPTIONS(command_line)};
    (void)cli_parse(&usage, argc, argv, NULL);
    if (rank == UINT32_MAX)
        cli_refuse(usage.program, "--rank is missing");

    const struct mr_rpc_function function = {
        .name = "add", .arguments = "f32[?], f32[?]", .results = "f32[?]", .run = remote_add_add};
    struct mr_rpc *rpc;
    char error[512];

    options.functions = &function;
    options.function_count = rank == 1 ? 1 : 0;
    if (mr_rpc_init(rank == 0 ? "caller" : "adder", rank, 2, &options, &rpc, error, sizeof(error)) != MR_OK)
        return cli_fail(usage.program, "%s", error);
    int exit_code = rank == 0 ? call_adder(rpc) : 0;

    /* The adder serves calls until all have called this. */
    if (exit_code == 0 && mr_rpc_shutdown(rpc, 0) != MR_OK)
        exit_code = failed("mr_rpc_shutdown");
    mr_rpc_destroy(rpc);
    if (exit_code == 0)
        printf("remote_add: ok\n");
    return exit_code;
}
