/* Running a function: around it autograd's records, after it the check of its results. */
#include <stdio.h>
#include "dataplane/rpc/autograd/autograd.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/wire/base/clock.h"

/* A quarter of the way towards each new time: short ones stay short, one long run shows at once. */
static void note_time(struct mr_function *function, uint64_t ns)
{
    uint32_t before = atomic_load_explicit(&function->run_ns, memory_order_relaxed);
    int64_t taken = ns > UINT32_MAX ? UINT32_MAX : (int64_t)ns;
    int64_t after = before == 0 ? taken : before + (taken - (int64_t)before) / 4;

    atomic_store_explicit(&function->run_ns, after == 0 ? 1 : (uint32_t)after, memory_order_relaxed);
}

static void check_results(struct mr_rpc_call *call)
{
    char text[192];

    if (mr_signature_matches(&call->function->results, call->results, call->result_count))
        return;
    mr_signature_describe(call->results, call->result_count, text, sizeof(text));
    (void)mr_rpc_fail(call, "it returned (%s), and its signature says (%s)", text,
                      call->function->results_text);
    call->status = MR_WRONG_SIGNATURE;
}

void mr_executing_run(struct mr_rpc_call *call)
{
    bool in_context = call->head.context != 0;
    uint64_t start_ns = mr_clock_ns();

    atomic_fetch_add_explicit(&call->agent->activity, 1, memory_order_relaxed);
    if (in_context)
        call->status = mr_autograd_run_begins(call);
    if (call->status == MR_OK)
        call->status = call->function->run(call, call->arguments, call->argument_count);
    if (call->status == MR_OK)
        check_results(call);
    if (in_context)
        call->status = mr_autograd_run_ended(call, call->status);
    if (call->saved != NULL && call->context == NULL && call->saved_destroy != NULL)
        call->saved_destroy(call->saved);
    if (call->status != MR_OK && call->error[0] == 0)
        snprintf(call->error, sizeof(call->error), "%s", mr_status_text(call->status));
    note_time(call->function, mr_clock_ns() - start_ns);
    if (call->status != MR_OK) /* now: what destroys an object may block, which nobody inside may */
        mr_executing_drop_results(call);
}
