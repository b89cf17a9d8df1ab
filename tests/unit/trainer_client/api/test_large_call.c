/* Calls that are larger than a message, beside the same in one message: by a client with little memory for
 * messages, or to a node that takes short ones. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/list.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/api/short_memory.h"
#include "tests/unit/trainer_client/live_node.h"
#include "tests/unit/trainer_client/future_notice.h"
#include "tests/wait.h"
#include "trainer_client/api/large_call.h"
#include "trainer_client/millrace.h"

enum { TABLES = 3, KEYS = 60000, DISTINCT = 300, BAGS = 36000, DIM = 3, MEMORY_BYTES = 1 << 20 };

/* What calls are about; the same for all of them. */
static uint64_t keys[KEYS], all_keys[DISTINCT];
static uint32_t offsets[BAGS + 1];
static float weights[KEYS], gradients[KEYS * (DIM + TABLES)];

struct fixture {
    struct live_node *node;
    struct mr_client *client;
    uint32_t tables[TABLES]; /* pooled by sum, mean, sqrtn */
};

static void draw(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = (uint64_t)(i * 2654435761u) % DISTINCT * 7919u;
        weights[i] = (float)(i % 5) + 0.25f;
    }
    for (uint32_t i = 0; i < DISTINCT; i++)
        all_keys[i] = i * 7919u;
    for (uint32_t b = 0; b < BAGS; b++) {
        count += b * 7 % 4;
        offsets[b + 1] = count < KEYS ? count : KEYS;
    }
    for (uint32_t i = 0; i < KEYS * (DIM + TABLES); i++)
        gradients[i] = (float)(i % 13) / 7 - 0.9f;
}

static struct mr_client *connect_with(const struct live_node *node, struct mr_client_options options)
{
    struct mr_client *client = NULL;
    char error[512] = "";
    options.server = live_node_address(node);
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static void set_up(struct fixture *x, uint32_t core_count, struct mr_client_options options)
{
    static const char *const names[TABLES] = {"sum", "mean", "sqrtn"};
    struct mr_feature features[TABLES];
    memset(x, 0, sizeof(*x));
    x->node = live_node_start_new(core_count);
    x->client = connect_with(x->node, options);
    for (uint32_t i = 0; i < TABLES; i++) {
        features[i] = mr_feature_table(names[i], DIM + i);
        features[i].pooling = i;
        features[i].seed = 1000 + i;
    }
    assert_int_equal(mr_create(x->client, NULL, features, TABLES, x->tables), MR_OK);
    for (uint32_t i = 0; i < TABLES; i++)
        live_node_fill(x->node, x->tables[i], DIM + i, all_keys, DISTINCT);
}

static void tear_down(struct fixture *x)
{
    mr_client_destroy(x->client);
    live_node_destroy(x->node);
}

static const struct mr_client_options little = {.memory_bytes = MEMORY_BYTES};
static const struct mr_client_options plenty = {.memory_bytes = 0};

/* Rows, bags and weighted bags: of call i. */
static struct mr_table_keys keys_of(const struct fixture *x, uint32_t i)
{
    struct mr_table_keys k = {.table = x->tables[i % TABLES], .keys = keys, .key_count = KEYS};
    if (i % 3 == 0)
        return k;
    k.offsets = offsets;
    k.bag_count = BAGS;
    k.weights = i % 3 == 2 ? weights : NULL;
    return k;
}

static enum mr_status look_up(const struct fixture *x, const struct mr_options *options, uint32_t i,
                              struct mr_reply **reply)
{
    const struct mr_table_keys k = keys_of(x, i);
    return k.offsets == NULL ? mr_lookup(x->client, options, k.table, k.keys, k.key_count, reply)
                             : mr_lookup_bags(x->client, options, k.table, k.keys, k.weights, k.offsets,
                                              k.bag_count, reply);
}

static enum mr_status large_call_push(const struct fixture *x, const struct mr_options *options, uint32_t i)
{
    const struct mr_table_keys k = keys_of(x, i);
    return k.offsets == NULL ? mr_push_gradients(x->client, options, k.table, k.keys, k.key_count,
                                                 DIM + i % TABLES, gradients)
                             : mr_push_gradients_bags(x->client, options, k.table, k.keys, k.weights,
                                                      k.offsets, k.bag_count, DIM + i % TABLES, gradients);
}

static void assert_same(struct mr_reply *got, struct mr_reply *expected)
{
    assert_int_equal(mr_reply_tensor_count(got), mr_reply_tensor_count(expected));
    for (uint32_t t = 0; t < mr_reply_tensor_count(got); t++) {
        const struct mr_tensor *g = mr_reply_tensor(got, t), *e = mr_reply_tensor(expected, t);
        assert_int_equal(g->dtype, MR_F32);
        assert_int_equal(g->rank, 2);
        assert_memory_equal(g->dims, e->dims, sizeof(g->dims));
        assert_int_equal(g->bytes, e->bytes);
        assert_memory_equal(g->data, e->data, e->bytes);
    }
    mr_reply_free(got);
    mr_reply_free(expected);
}

/* All rows of a table, by a call that one message holds. */
static struct mr_reply *rows_of(const struct fixture *x, uint32_t table)
{
    struct mr_reply *reply = NULL;
    const struct mr_options options = {.read_only = true};
    assert_int_equal(mr_lookup(x->client, &options, x->tables[table], all_keys, DISTINCT, &reply), MR_OK);
    return reply;
}

static void refused(enum mr_status status, enum mr_status expected, const char *part)
{
    assert_int_equal(status, expected);
    assert_says(mr_last_error(), part);
}

/* ---- in one message and in several ---- */

TEST(test_lookups)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_I8};
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        struct fixture x, y;
        set_up(&x, cores, little);
        set_up(&y, cores, plenty);
        for (uint32_t i = 0; i < 9; i++) {
            struct mr_options options = {.wire_dtype = dtypes[i / 3]};
            struct mr_reply *ours = NULL, *theirs = NULL;
            const uint64_t before = live_node_requests(x.node);
            assert_int_equal(look_up(&x, &options, i, &ours), MR_OK);
            assert_true(live_node_requests(x.node) - before >= 2 * cores);
            assert_int_equal(look_up(&y, &options, i, &theirs), MR_OK);
            assert_same(ours, theirs);
        }
        assert_int_equal(look_up(&x, NULL, 0, NULL), MR_OK); /* nobody wants the rows */
        tear_down(&x);
        tear_down(&y);
    }
}

TEST(test_rows_as_they_are_stored)
{
    struct fixture x, y;
    struct mr_reply *ours = NULL, *theirs = NULL;
    set_up(&x, 2, little);
    set_up(&y, 2, plenty);
    assert_int_equal(mr_set_rows(x.client, NULL, x.tables[0], keys, KEYS, DIM, false, gradients), MR_OK);
    assert_int_equal(mr_set_rows(y.client, NULL, y.tables[0], keys, KEYS, DIM, false, gradients), MR_OK);
    assert_int_equal(mr_get_rows(x.client, NULL, x.tables[0], keys, KEYS, true, &ours), MR_OK);
    assert_int_equal(mr_get_rows(y.client, NULL, y.tables[0], keys, KEYS, true, &theirs), MR_OK);
    assert_same(ours, theirs);
    tear_down(&x);
    tear_down(&y);
}

static void check_pushes(uint32_t cores, bool replay)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F32, MR_F32, MR_F16, MR_I8, MR_I8};
    struct mr_client_options with_replay = little;
    struct fixture x, y;
    with_replay.replay = replay;
    set_up(&x, cores, with_replay);
    set_up(&y, cores, plenty);
    for (uint32_t i = 0; i < 6; i++) {
        struct mr_pushed pushed = {.sent = 77};
        struct mr_options options = {.wire_dtype = dtypes[i], .pushed = &pushed};
        const uint64_t before = live_node_applied(x.node);
        assert_int_equal(large_call_push(&x, &options, i), MR_OK);
        assert_true(live_node_applied(x.node) - before >= 2 * cores);
        assert_true(pushed.is_known);
        assert_int_equal(pushed.sent, DISTINCT);
        options.pushed = NULL;
        assert_int_equal(large_call_push(&y, &options, i), MR_OK);
        assert_same(rows_of(&x, i % TABLES), rows_of(&y, i % TABLES));
    }
    tear_down(&x);
    tear_down(&y);
}

TEST(test_pushes)
{
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        check_pushes(cores, false);
        check_pushes(cores, true);
    }
}

/* Several tables, of which some go whole. */
TEST(test_tables)
{
    struct fixture x, y;
    for (uint32_t replay = 0; replay < 2; replay++) {
        struct mr_client_options with_replay = little;
        with_replay.replay = replay != 0;
        set_up(&x, 2, with_replay);
        set_up(&y, 2, plenty);
        struct mr_table_keys looked_up[2][5];
        struct mr_table_gradients pushed[2][TABLES];
        struct mr_reply *replies[2] = {NULL, NULL};
        for (uint32_t c = 0; c < 2; c++) {
            const struct fixture *f = c == 0 ? &x : &y;
            for (uint32_t i = 0; i < 5; i++) { /* the first tables twice */
                looked_up[c][i] = keys_of(f, i);
                if (i == 3)
                    looked_up[c][i].key_count = 10;
            }
            for (uint32_t i = 0; i < TABLES; i++)
                pushed[c][i] = (struct mr_table_gradients){keys_of(f, i), DIM + i, gradients};
            assert_int_equal(mr_push_gradients_tables(f->client, NULL, pushed[c], TABLES), MR_OK);
            assert_int_equal(mr_lookup_tables(f->client, NULL, looked_up[c], 5, &replies[c]), MR_OK);
        }
        assert_same(replies[0], replies[1]);
        for (uint32_t t = 0; t < TABLES; t++)
            assert_same(rows_of(&x, t), rows_of(&y, t));
        tear_down(&x);
        tear_down(&y);
    }
}

/* What the node tells counts, not the client's memory alone. */
TEST(test_a_node_of_short_messages)
{
    enum { MANY = 70000, BYTES = MANY * (8 + 4 * DIM) };
    struct fixture x;
    uint64_t *many = calloc(MANY, sizeof(*many));
    assert_non_null(many);
    set_up(&x, 1, plenty);
    uint64_t before = live_node_requests(x.node);
    assert_int_equal(mr_lookup(x.client, NULL, x.tables[0], many, MANY, NULL), MR_OK);
    assert_int_equal(live_node_requests(x.node) - before, 1);
    live_node_save(x.node);
    live_node_kill(x.node);
    x.node->config.transport_message_mib_max = 1;
    live_node_restart(x.node);
    while (mr_lookup(x.client, NULL, x.tables[0], many, 1, NULL) != MR_OK) {
    }
    struct mr_client *other = connect_with(x.node, plenty);

    before = live_node_requests(x.node);
    assert_int_equal(mr_lookup(other, NULL, x.tables[0], many, MANY, NULL), MR_OK);
    assert_int_in_range(live_node_requests(x.node) - before, 2, 3); /* and LIST, to know the table */
    const uint32_t one_bag[2] = {0, 1 << 18};
    uint64_t *same = calloc(9 << 20, sizeof(*same)); /* more than any message holds */
    assert_non_null(same);
    refused(mr_lookup_bags(other, NULL, x.tables[0], same, NULL, one_bag, 1, NULL), MR_TOO_LARGE,
            ": raise transport.message_mib_max there to at least 3, or ask for less at once");
    refused(mr_lookup_bags(other, NULL, x.tables[0], same, NULL, (uint32_t[]){0, 9 << 20}, 1, NULL),
            MR_TOO_LARGE, " bytes: ask for less at once");
    mr_client_destroy(other);
    tear_down(&x);
    free(same);
    free(many);
}

/* ---- futures ---- */

TEST(test_futures)
{
    struct fixture x, y;
    set_up(&x, 2, little);
    set_up(&y, 2, plenty);
    for (uint32_t way = 0; way < 4; way++) {
        struct mr_future *future = NULL;
        struct mr_options options = {.future = &future};
        struct mr_reply *ours = NULL, *theirs = NULL;
        assert_int_equal(look_up(&x, &options, 2, NULL), MR_OK);
        assert_non_null(future);
        if (way == 1)
            future_wait_by_notice(x.client, future);
        while (way == 2 && !mr_future_done(future)) {
        }
        if (way == 3)
            assert_true(mr_future_wait_for(future, 20000));
        assert_int_equal(mr_future_wait(future, &ours), MR_OK);
        assert_int_equal(mr_future_wait(future, &ours), MR_INVALID_ARGUMENT); /* once */
        mr_future_destroy(future);
        assert_int_equal(look_up(&y, NULL, 2, &theirs), MR_OK);
        assert_same(ours, theirs);
    }
    tear_down(&x);
    tear_down(&y);
}

/* Whoever lets go of the future of a push has it applied all the same. */
TEST(test_a_future_that_is_dropped)
{
    struct fixture x, y;
    struct mr_future *future = NULL;
    const struct mr_options options = {.future = &future};
    set_up(&x, 1, little);
    set_up(&y, 1, plenty);
    assert_int_equal(large_call_push(&x, &options, 0), MR_OK);
    mr_future_destroy(future);
    assert_int_equal(large_call_push(&y, NULL, 0), MR_OK);
    assert_same(rows_of(&x, 0), rows_of(&y, 0));
    assert_int_equal(look_up(&x, &options, 0, NULL), MR_OK);
    mr_future_destroy(future);
    tear_down(&x);
    tear_down(&y);
}

/* ---- failures ---- */

TEST(test_refusals)
{
    struct fixture x;
    struct mr_future *future = NULL;
    struct mr_pushed pushed = {.sent = 77};
    const struct mr_options options = {.future = &future, .pushed = &pushed};
    uint32_t one_bag[2] = {0, KEYS};
    static uint64_t same[KEYS];
    set_up(&x, 2, little);
    const uint64_t applied = live_node_applied(x.node);

    /* All parts are refused alike: nothing was applied. */
    refused(mr_push_gradients(x.client, NULL, x.tables[0], keys, KEYS, DIM + 1, gradients), MR_WRONG_DIM,
            "rows have 4");
    assert_null(strstr(mr_last_error(), "parts"));
    assert_int_equal(mr_push_gradients(x.client, &options, x.tables[0], keys, KEYS, DIM + 1, gradients),
                     MR_OK);
    refused(mr_future_wait(future, NULL), MR_WRONG_DIM, "rows have 4");
    mr_future_destroy(future);
    refused(mr_lookup(x.client, NULL, 77, keys, KEYS, NULL), MR_UNKNOWN_TABLE, "77");
    /* What is not to be divided is not begun. */
    const uint64_t before = live_node_requests(x.node);

    for (uint32_t i = 0; i < KEYS; i++)
        same[i] = 5;
    refused(mr_lookup_bags(x.client, NULL, x.tables[0], same, NULL, one_bag, 1, NULL), MR_TOO_LARGE,
            "a bag of");
    refused(mr_push_gradients(x.client, NULL, x.tables[0], same, KEYS, DIM, gradients), MR_TOO_LARGE,
            "a few keys of");
    refused(
        MR_TOO_LARGE, MR_TOO_LARGE,
        ": raise memory_bytes = 1048576 of this client to at least 4931072, or push less to a key at once");
    assert_int_equal(live_node_requests(x.node), before);
    assert_int_equal(live_node_applied(x.node), applied);
    assert_int_equal(pushed.sent, 77);
    tear_down(&x);
}

/* A node that applies and does not answer: some parts are in flight, and the rest is not sent. */
TEST(test_nobody_answers_a_push)
{
    struct fixture x;
    struct mr_future *future = NULL;
    struct mr_options options = {.deadline_ms = 1000, .step = 9, .future = &future};
    set_up(&x, 1, little);
    atomic_store(&x.node->dumb, true);
    for (uint32_t with_future = 0; with_future < 2; with_future++) {
        options.future = with_future != 0 ? &future : NULL;
        const uint64_t before = live_node_applied(x.node);
        enum mr_status status = large_call_push(&x, &options, 1);
        if (with_future != 0) {
            assert_int_equal(status, MR_OK);
            status = mr_future_wait(future, NULL);
            mr_future_destroy(future);
        }
        refused(status, MR_UNKNOWN_OUTCOME, "parts: 0 were applied, 0 are kept to be sent again, ");
        assert_non_null(strstr(mr_last_error(), "of step 9"));
        assert_null(strstr(mr_last_error(), " 0 were not sent"));
        WAIT_UNTIL(live_node_applied(x.node) > before);
        assert_int_in_range(live_node_applied(x.node) - before, 1, 4); /* those in flight */
    }
    tear_down(&x);
}

/* A node that is killed in the middle of a push with `replay`: all parts are kept and applied once. */
TEST(test_a_push_is_replayed)
{
    struct mr_client_options with_replay = little;
    struct mr_options options = {.deadline_ms = 400};
    struct fixture x, y;
    with_replay.replay = true;
    set_up(&x, 2, with_replay);
    set_up(&y, 2, plenty);
    live_node_save(x.node);
    live_node_pause(x.node);
    refused(large_call_push(&x, &options, 0), MR_UNKNOWN_OUTCOME, "it must not be pushed again");
    if (strstr(mr_last_error(), "parts") != NULL)
        fail_msg("%s", mr_last_error());
    live_node_go_on(x.node);
    live_node_kill(x.node);
    live_node_restart(x.node);
    assert_int_equal(large_call_push(&y, NULL, 0), MR_OK);
    struct mr_reply *rows = NULL;
    const struct mr_options patient = {.deadline_ms = 60000};

    assert_int_equal(mr_lookup(x.client, &patient, x.tables[0], all_keys, DISTINCT, &rows), MR_OK);
    assert_same(rows, rows_of(&y, 0));
    tear_down(&x);
    tear_down(&y);
}

/* A push of whose calls the first is made late. */
struct late_push {
    struct mrc_rows_request request;
    struct mrc_rows_call call;
};

static enum mr_status (*make_in_time)(struct mrc_retry *r, struct mr_reply **reply);
static uint64_t late_us; /* the deadline of all calls */
static uint32_t late_made;

static void wait_for_deadline(void)
{
    WAIT_UNTIL(mr_clock_us() >= late_us);
}

static enum mr_status make_late(struct mrc_retry *r, struct mr_reply **reply)
{
    const enum mr_status status = make_in_time(r, reply);
    assert_int_equal(MR_CONTAINER(r, struct mrc_rows_call, retry)->table_count, 1);
    if (late_made++ == 0)
        wait_for_deadline();
    return status;
}

static void begin_late(const struct fixture *x, const struct mr_options *options, struct late_push *late)
{
    bool is_large = false;
    *late = (struct late_push){.request = {.table = x->tables[0],
                                           .keys = keys,
                                           .key_count = KEYS,
                                           .dim = DIM,
                                           .gradients = mrc_rows_f32(gradients),
                                           .dtype = MR_F32},
                               .call = {.retry = mrc_rows_retry(x->client, options, MR_OP_PUSH_GRAD),
                                        .requests = &late->request,
                                        .table_count = 1,
                                        .dtype = MR_F32}};
    make_in_time = late->call.retry.make;
    late->call.retry.make = make_late;
    late_made = 0;
    assert_int_equal(mrc_large_check(&late->call, &is_large), MR_OK);
    assert_true(is_large);
    late_us = late->call.retry.deadline_us;
}

/* The deadline comes while the first part is in flight: it is kept, and so are the others. */
TEST(test_a_late_push_is_kept)
{
    struct mr_client_options with_replay = little;
    const struct mr_options options = {.deadline_ms = 500};
    struct late_push late;
    struct fixture x;
    with_replay.replay = true;
    set_up(&x, 1, with_replay);
    live_node_pause(x.node);
    begin_late(&x, &options, &late);
    refused(mrc_large_run(&late.call, NULL), MR_UNKNOWN_OUTCOME, "it must not be pushed again");
    assert_null(strstr(mr_last_error(), "parts"));
    assert_int_in_range(late_made, 20, 60);
    live_node_go_on(x.node);
    tear_down(&x);
}

/* What replay_bytes has no room for is not sent; what is kept is applied once there is a server. */
TEST(test_a_push_is_kept_in_part)
{
    static const uint32_t replay_bytes[] = {100000, 250000}; /* less than goes at a time, and more */
    for (uint32_t i = 0; i < 2; i++) {
        struct mr_client_options with_replay = little;
        struct mr_replay_info info;
        struct fixture x;
        with_replay.replay = true;
        with_replay.replay_bytes = replay_bytes[i];
        set_up(&x, 1, with_replay);
        const uint64_t applied = live_node_applied(x.node);

        live_node_pause(x.node);
        const struct mr_options options = {.deadline_ms = 800, .step = 9};
        refused(large_call_push(&x, &options, 0), MR_UNKNOWN_OUTCOME, "fill replay_bytes = ");
        assert_non_null(strstr(mr_last_error(), ": raise it; the call of step 9 was made in "));
        assert_non_null(strstr(mr_last_error(), "parts: 0 were applied, "));
        assert_null(strstr(mr_last_error(), " 0 are kept"));
        assert_null(strstr(mr_last_error(), " 0 were not sent"));
        mr_client_replay_info(x.client, &info);
        assert_int_in_range(info.kept, i == 0 ? 2 : 5, 10);
        const uint64_t kept = info.kept;

        /* Nothing of it is in flight, so what comes next waits for room, too, and is not applied. */
        refused(mr_push_gradients(x.client, &options, x.tables[0], keys, 3000, DIM, gradients), MR_NO_MEMORY,
                "fill replay_bytes = ");
        live_node_go_on(x.node);
        while (info.replaying || info.replayed < kept) {
            assert_int_equal(look_up(&x, NULL, 0, NULL), MR_OK);
            mr_client_replay_info(x.client, &info);
        }
        assert_int_equal(live_node_applied(x.node) - applied, kept);
        tear_down(&x);
    }
}

/* The deadline is that of all parts together. */
TEST(test_a_deadline_for_all)
{
    struct fixture x;
    const struct mr_options options = {.deadline_ms = 300};
    struct timespec begin, end;
    set_up(&x, 1, little);
    live_node_pause(x.node);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &begin), 0);
    assert_int_not_equal(look_up(&x, &options, 0, NULL), MR_OK);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &end), 0);
    assert_int_in_range((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000, 290,
                        20000);
    live_node_go_on(x.node);
    assert_int_equal(look_up(&x, NULL, 0, NULL), MR_OK);
    tear_down(&x);
}

/* And it begins before the node is asked for the table. */
TEST(test_a_deadline_from_the_beginning)
{
    const struct mr_options options = {.deadline_ms = 1};
    struct late_push late;
    struct fixture x;
    set_up(&x, 1, little);
    begin_late(&x, &options, &late);
    wait_for_deadline();
    refused(mrc_large_run(&late.call, NULL), MR_DEADLINE_EXCEEDED, "before all of its ");
    assert_int_equal(late_made, 0);
    tear_down(&x);
}

/* Wherever memory runs out, the call says so, and the next one is as ever. */
TEST(test_without_memory)
{
    struct fixture x;
    struct mr_reply *reply = NULL;
    set_up(&x, 2, little);
    for (uint32_t is_push = 0; is_push < 2; is_push++) {
        enum mr_status status = MR_NO_MEMORY;
        int failures = -1;
        for (; status != MR_OK; failures++) {
            assert_true(failures < 400);
            allocations_left = failures + 1;
            status = is_push != 0 ? large_call_push(&x, NULL, 1) : look_up(&x, NULL, 1, &reply);
            allocations_left = -1;
            if (status != MR_OK && status != MR_NO_MEMORY)
                assert_true(is_push != 0 && status == MR_UNKNOWN_OUTCOME);
            if (status != MR_OK)
                assert_non_null(strstr(mr_last_error(), "no memory"));
        }
        assert_true(failures >= 5);
    }
    mr_reply_free(reply);
    assert_int_equal(look_up(&x, NULL, 1, NULL), MR_OK);
    tear_down(&x);
}

int main(void)
{
    draw();
    return tests_run(NULL, NULL);
}
