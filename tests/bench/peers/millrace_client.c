/* Millrace, for tests/bench/peers/peers.py: through the public header, with the library's defaults. */
#include <stdio.h>
#include "millrace.h"
#include "millrace_observe.h"
#include "tests/bench/common/bench_print.h"
#include "tests/bench/common/bench_util.h"
#include "tests/bench/peers/peer_bench.h"

#define STREAM 77u /* of the batches fed here */

struct millrace {
    struct mr_client *client;
    uint32_t rows, learning; /* tables: looked up and set; pushed to */
    struct mr_reply *reply;
    uint64_t batch;
};

static const float *millrace_client_take(struct millrace *m, struct mr_reply *reply)
{
    mr_reply_free(m->reply);
    m->reply = reply;
    return mr_reply_tensor(reply, 0)->data;
}

static void empty(void *state)
{
    struct millrace *m = state;
    bench_check(mr_echo(m->client, NULL, 0, NULL, 0, NULL), "echo");
}

static void end_call(struct mr_future **future)
{
    bench_check(mr_future_wait(*future, NULL), "echo");
    mr_future_destroy(*future);
    *future = NULL;
}

static uint64_t empty_many(void *state, double until_us)
{
    struct millrace *m = state;
    struct mr_future *futures[WORK_OUTSTANDING] = {0};
    struct mr_options options = {.more = true};
    uint64_t calls = 0;
    for (uint32_t i = 0; i != 0 || bench_now_us() < until_us; i = (i + 1) % WORK_OUTSTANDING) {
        if (futures[i] != NULL) {
            end_call(&futures[i]);
            calls++;
        }
        options.future = &futures[i];
        bench_check(mr_echo(m->client, &options, 0, NULL, 0, NULL), "echo");
    }
    for (uint32_t i = 0; i < WORK_OUTSTANDING; i++)
        if (futures[i] != NULL)
            end_call(&futures[i]);
    return calls;
}

static const float *pull_from(struct millrace *m, uint32_t table, const struct workload *w)
{
    struct mr_reply *reply;
    bench_check(mr_lookup(m->client, NULL, table, w->keys, WORK_ROWS, &reply), "lookup");
    return millrace_client_take(m, reply);
}

static const float *millrace_client_pull(void *state, const struct workload *w)
{
    return pull_from(state, ((struct millrace *)state)->rows, w);
}

static const float *pushed(void *state, const struct workload *w)
{
    return pull_from(state, ((struct millrace *)state)->learning, w);
}

static const float *lookup(void *state, const struct workload *w)
{
    struct millrace *m = state;
    struct mr_reply *reply;
    bench_check(mr_lookup_bags(m->client, NULL, m->rows, w->keys, NULL, w->offsets, WORK_BAGS, &reply),
                "lookup of bags");
    return millrace_client_take(m, reply);
}

static void feed(void *state, const struct workload *w)
{
    struct millrace *m = state;
    uint64_t before = m->batch++;
    struct mr_batch_keys keys = {
        .table = m->rows, .samples = WORK_BAGS, .slots = 1, .keys = w->keys, .offsets = w->offsets};
    bench_check(mr_forget_batches(m->client, NULL, &before, 1), "forget_batches");
    bench_check(mr_feed_sample(m->client, NULL, m->batch, &keys, 1, false), "feed_sample");
}

static const float *lookup_fed(void *state, const struct workload *w)
{
    struct millrace *m = state;
    struct mr_reply *reply;
    (void)w;
    bench_check(mr_lookup_batch(m->client, NULL, m->batch, m->rows, &reply), "lookup_batch");
    return millrace_client_take(m, reply);
}

static void millrace_client_push(void *state, const struct workload *w)
{
    struct millrace *m = state;
    bench_check(mr_push_gradients(m->client, NULL, m->learning, w->keys, WORK_ROWS, WORK_DIM, w->gradients),
                "push");
}

static void millrace_client_set(void *state, const struct workload *w)
{
    struct millrace *m = state;
    bench_check(mr_push_gradients(m->client, NULL, m->rows, w->keys, WORK_ROWS, WORK_DIM, w->rows), "set");
}

static uint32_t millrace_client_create(struct millrace *m, const char *name, enum mr_optimizer optimizer)
{
    struct mr_feature table = mr_feature_table(name, WORK_DIM);
    uint32_t id;
    mr_feature_set_optimizer(&table, optimizer);
    table.learning_rate = WORK_RATE;
    bench_check(mr_create(m->client, NULL, &table, 1, &id), name);
    return id;
}

/* Every row exists before anything is measured: a lookup makes those of Adagrad's table. */
static void millrace_client_fill(struct millrace *m)
{
    static float rows[WORK_ROWS * WORK_DIM];
    static uint64_t keys[WORK_ROWS];
    for (uint32_t first = 0; first < WORK_KEYS; first += WORK_ROWS) {
        uint32_t count = WORK_KEYS - first < WORK_ROWS ? WORK_KEYS - first : WORK_ROWS;
        struct mr_reply *reply;
        for (uint32_t i = 0; i < count; i++) {
            keys[i] = first + i;
            work_row(keys[i], &rows[(size_t)i * WORK_DIM]);
        }
        bench_check(mr_push_gradients(m->client, NULL, m->rows, keys, count, WORK_DIM, rows), "fill");
        bench_check(mr_lookup(m->client, NULL, m->learning, keys, count, &reply), "fill");
        mr_reply_free(reply);
    }
}

int main(int argc, char **argv)
{
    struct peer_options options = peer_options_read("millrace_client", argc, argv);
    struct millrace m = {.batch = (uint64_t)STREAM << 48};
    char server[128], error[256];
    struct mr_client_options client = {.server = server};
    (void)snprintf(server, sizeof(server), "%s:%u", options.address, options.port);
    if (mr_client_create(&client, &m.client, error, sizeof(error)) != MR_OK)
        peer_give_up("millrace_client", "%s", error);
    m.rows = millrace_client_create(&m, "rows", MR_OPT_ASSIGN);
    m.learning = millrace_client_create(&m, "learning", MR_OPT_ADAGRAD);
    millrace_client_fill(&m);
    const struct peer peer = {.program = "millrace_client",
                              .state = &m,
                              .update = WORK_ADAGRAD,
                              .push_from_zero = true,
                              .empty = empty,
                              .empty_many = empty_many,
                              .pull = millrace_client_pull,
                              .pushed = pushed,
                              .lookup = lookup,
                              .push = millrace_client_push,
                              .set = millrace_client_set,
                              .feed = feed,
                              .lookup_fed = lookup_fed};
    peer_bench(&peer, &options);
    mr_reply_free(m.reply);
    mr_client_destroy(m.client);
    return 0;
}
