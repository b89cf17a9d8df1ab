/* Histograms of how long calls take: the server's, and the client's own. */
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/api/calls.h"

struct latency_context {
    void (*visit)(void *arg, const char *op, const char *phase, const struct mr_histogram *histogram);
    void *arg;
};

static const char *const phase_names[MR_LATENCY_PHASES] = {
    [MR_LATENCY_WAIT] = "wait", [MR_LATENCY_WORK] = "work", [MR_LATENCY_SEND] = "send"};

struct latency_answer {
    const uint32_t *whose;  /* [count, 2] operation, phase */
    const uint64_t *totals; /* [count, 2] sum, longest */
    const uint32_t *begins; /* [count + 1] */
    const uint16_t *buckets;
    const uint64_t *counts;
};

/* Unknown operations and phases, of a newer server, are left out. */
static bool visit_one(const struct latency_context *context, const struct latency_answer *a, uint64_t i)
{
    struct mr_histogram h = {.sum_ns = a->totals[2 * i], .max_ns = a->totals[2 * i + 1]};
    for (uint32_t at = a->begins[i]; at < a->begins[i + 1]; at++) {
        if (a->buckets[at] >= MR_HISTOGRAM_BUCKETS)
            return false;
        h.buckets[a->buckets[at]] = a->counts[at];
        h.count += a->counts[at];
    }
    if (a->whose[2 * i] < MR_OP_COUNT && a->whose[2 * i + 1] < MR_LATENCY_PHASES)
        context->visit(context->arg, mr_op_name(a->whose[2 * i]), phase_names[a->whose[2 * i + 1]], &h);
    return true;
}

static bool is_in_order(const uint32_t *begins, uint64_t count, uint64_t buckets)
{
    for (uint64_t i = 0; i < count; i++)
        if (begins[i] > begins[i + 1])
            return false;
    return begins[0] == 0 && begins[count] == buckets;
}

static enum mr_status finish_latencies(struct mr_future *f, struct mr_reply **reply)
{
    const struct mr_tensor *whose = mrc_part_tensor(f, 0, 0, MR_U32, 2);
    const struct mr_tensor *totals = mrc_part_tensor(f, 0, 1, MR_U64, 2);
    const struct mr_tensor *begins = mrc_part_tensor(f, 0, 2, MR_U32, 1);
    const struct mr_tensor *buckets = mrc_part_tensor(f, 0, 3, MR_U16, 1);
    const struct mr_tensor *counts = mrc_part_tensor(f, 0, 4, MR_U64, 1);
    if (whose == NULL || totals == NULL || begins == NULL || buckets == NULL || counts == NULL ||
        whose->dims[1] != 2 || totals->dims[1] != 2 || totals->dims[0] != whose->dims[0] ||
        begins->dims[0] != whose->dims[0] + 1 || buckets->dims[0] != counts->dims[0] ||
        !is_in_order(begins->data, whose->dims[0], buckets->dims[0]))
        return mrc_part_garbled(f, 0);
    const struct latency_answer a = {whose->data, totals->data, begins->data, buckets->data, counts->data};
    for (uint64_t i = 0; i < whose->dims[0]; i++)
        if (!visit_one(f->context, &a, i))
            return mrc_part_garbled(f, 0);
    return MR_OK;
}

enum mr_status mr_latencies(struct mr_client *client, const struct mr_options *options, uint32_t core,
                            void (*visit)(void *arg, const char *op, const char *phase,
                                          const struct mr_histogram *histogram),
                            void *arg)
{
    struct mr_future *f;
    uint32_t map_changes = 0;
    enum mr_status status = mrc_check_core("mr_latencies", client, core, &map_changes);
    if (status != MR_OK)
        return status;
    if (visit == NULL)
        return mrc_bad_argument("mr_latencies", "visit is NULL");
    status = mrc_future_new(client, options, MR_OP_LATENCY, 0, 1, 0, sizeof(struct latency_context), &f);
    if (status != MR_OK)
        return status;
    *(struct latency_context *)f->context = (struct latency_context){.visit = visit, .arg = arg};
    f->parts[0].owner = (uint16_t)core;
    f->finish = finish_latencies;
    return mrc_run_by_map(f, map_changes, options, NULL);
}

enum mr_status
mr_client_latencies(struct mr_client *client,
                    void (*visit)(void *arg, const char *op, const struct mr_histogram *histogram), void *arg)
{
    if (client == NULL || visit == NULL)
        return mrc_bad_argument("mr_client_latencies", client == NULL ? "client is NULL" : "visit is NULL");
    if (mrc_is_inherited(client))
        return mrc_check_process(client, "mr_client_latencies");
    for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
        struct mr_histogram copy;
        pthread_mutex_lock(&client->lock);
        const bool has = client->latencies[op] != NULL;
        if (has)
            mr_histogram_read(client->latencies[op], &copy);
        pthread_mutex_unlock(&client->lock);
        if (has)
            visit(arg, mr_op_name(op), &copy);
    }
    return MR_OK;
}
