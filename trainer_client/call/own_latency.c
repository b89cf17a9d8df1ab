#include "trainer_client/call/own_latency.h"

#include <stdlib.h>
#include "dataplane/wire/base/tick_clock.h"

static bool is_answered(const struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++)
        if (!f->requests[i].replied)
            return false;
    return true;
}

void mrc_own_latency_ended(const struct mr_future *f)
{
    struct mr_histogram **of_op = &f->client->latencies[f->options.op];
    if (!is_answered(f))
        return;
    if (*of_op == NULL)
        *of_op = calloc(1, sizeof(**of_op));
    if (*of_op != NULL)
        mr_histogram_add(*of_op, mr_tick_ns() - f->began_ns, 1);
}

void mrc_own_latency_destroy(struct mr_client *client)
{
    for (uint32_t op = 0; op < MR_OP_COUNT; op++)
        free(client->latencies[op]);
}
