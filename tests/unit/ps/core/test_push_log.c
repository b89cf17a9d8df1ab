/* A node with a log: what its start applies again is what was there, bit for bit: rows with their state,
 * variables, records of pushes and batches, tables, evictions; whatever is pushed, and however. And answers,
 * that wait for the log. */
#include <dirent.h>
#include <signal.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "coop_task_fixture.h"
#include "fake_dp.h"
#include "dataplane/wire/format/push_number.h"
#include "ps/core/push_log.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { KEYS = 40, TABLES = 5, STATE_MAX = 16, BATCH_KEYS = 6 };

/* ---- set-up ---- */

static int log_setup_cores(void **state, uint32_t cores)
{
    assert_int_equal(node_setup(state), 0);
    struct node_fixture *n = *state;
    n->config.checkpoint_durability = PS_DURABILITY_LOG;
    node_restart(n, cores);
    return 0;
}

static int log_setup(void **state)
{
    return log_setup_cores(state, 1);
}

static int log_setup_3_cores(void **state)
{
    return log_setup_cores(state, 3);
}

static const struct node_reply *log_push(struct node_fixture *n, uint32_t table, uint64_t key, float value,
                                         uint64_t step, uint64_t sequence)
{
    const float gradient[NODE_DIM] = {value, 2 * value, -value, 1};
    const uint32_t head[4] = {table, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    n->sequence = sequence;
    const struct node_reply *reply =
        node_call_step(n, node_core_of_key(n, key, 0), MR_OP_PUSH_GRAD, 0, step, 0, tensors, 4);
    n->sequence = 0;
    return reply;
}

static void look_up(struct node_fixture *n, uint32_t table, uint64_t key, uint64_t step)
{
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call_step(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, step, 0, &t, 1),
               MR_OK, NULL);
}

/* ---- all that a node has, in words ---- */

struct content {
    uint32_t count;
    struct {
        uint32_t table, floats;
        uint64_t key;
        float row[NODE_DIM + STATE_MAX + 1]; /* the last: whether it is there */
    } rows[TABLES * KEYS];
    float variable[64];
    uint64_t watermark;
};

static void read_row(struct node_fixture *n, struct content *c, uint32_t table, uint64_t key)
{
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    const struct node_reply *reply =
        node_call_step(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, 0,
                       MR_LOOKUP_STORED | MR_LOOKUP_STATE, &t, 1);
    if (reply->status != MR_OK) /* dropped */
        return;
    c->rows[c->count].table = table;
    c->rows[c->count].key = key;
    c->rows[c->count].floats = reply->tensors[0].dims[1];
    memcpy(c->rows[c->count].row, reply->tensors[0].data, reply->tensors[0].dims[1] * sizeof(float));
    c->count++;
}

static void read_content(struct node_fixture *n, uint32_t tables, uint32_t variable, struct content *c)
{
    memset(c, 0, sizeof(*c));
    for (uint32_t table = 1; table <= tables; table++)
        for (uint64_t key = 1; key <= KEYS && table != variable; key++)
            read_row(n, c, table, key);
    const uint64_t all[2] = {0, 0};
    const struct mr_tensor range = mr_tensor_1d(MR_U64, 2, all);
    const struct node_reply *reply =
        node_call(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PULL, (uint16_t)variable, &range, 1);
    node_check(reply, MR_OK, NULL);
    memcpy(c->variable, reply->tensors[0].data, sizeof(c->variable));
    const uint64_t stream = 5;
    const struct mr_tensor of = mr_tensor_1d(MR_U64, 1, &stream);
    reply = node_call(n, 0, MR_OP_BATCH_STATE, 0, &of, 1);
    node_check(reply, MR_OK, NULL);
    c->watermark = *(const uint64_t *)reply->tensors[0].data;
}

/* Rows that were looked up and never pushed may be missing: they are as they would be made again. */
static void compare_content(const struct content *was, const struct content *is)
{
    assert_int_equal(was->count, is->count);
    for (uint32_t i = 0; i < was->count; i++) {
        const uint32_t floats = was->rows[i].floats;
        const bool is_there = is->rows[i].row[floats - 1] != 0, was_there = was->rows[i].row[floats - 1] != 0;
        if (memcmp(was->rows[i].row, is->rows[i].row, (floats - 1) * sizeof(float)) != 0 ||
            (is_there && !was_there))
            fail_msg("table %u, key %u: %g, %g was %g, %g", (unsigned)was->rows[i].table,
                     (unsigned)was->rows[i].key, (double)is->rows[i].row[0],
                     (double)is->rows[i].row[NODE_DIM], (double)was->rows[i].row[0],
                     (double)was->rows[i].row[NODE_DIM]);
    }
    assert_memory_equal(was->variable, is->variable, sizeof(was->variable));
    assert_int_equal(was->watermark, is->watermark);
}

/* ---- random calls ---- */

struct story {
    uint64_t random;
    uint64_t numbers[DP_CORES_MAX]; /* of the pushes to each core */
    uint64_t batch;
    uint32_t tables, variable;
};

static uint32_t draw(struct story *s, uint32_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(s->random >> 33) % below;
}

static void make_features(struct node_fixture *n, struct story *s)
{
    struct mr_feature f = node_table("plain", 3);
    assert_int_equal(node_create(n, &f), 1);
    f = node_table("adam", 1);
    mr_feature_set_optimizer(&f, MR_OPT_ADAM);
    f.learning_rate = 0.05f;
    assert_int_equal(node_create(n, &f), 2);
    f = node_table("lru", 5); /* smaller than what is pushed to it */
    f.eviction = MR_EVICT_LRU;
    f.capacity_rows = 3 * KEYS / 4;
    mr_feature_set_optimizer(&f, MR_OPT_ADAGRAD);
    f.learning_rate = 0.5f;
    assert_int_equal(node_create(n, &f), 3);
    f = node_table("seen", 2);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 2;
    f.eviction = MR_EVICT_STEPS;
    f.eviction_arg = 20;
    assert_int_equal(node_create(n, &f), 4);
    f = node_variable("bias", 64);
    mr_feature_set_optimizer(&f, MR_OPT_ADAM);
    f.learning_rate = 0.1f;
    s->variable = 5;
    assert_int_equal(node_create(n, &f), s->variable);
    s->tables = 5;
}

static void push_some(struct node_fixture *n, struct story *s, uint64_t step)
{
    const uint32_t table = 1 + draw(s, 4);
    const uint64_t key = 1 + draw(s, KEYS);
    const uint32_t core = node_core_of_key(n, key, 0);
    const bool is_numbered = draw(s, 3) != 0;
    const uint64_t sequence =
        is_numbered ? mr_push_sequence(mr_push_stream_of_core(n->core_count, core), ++s->numbers[core]) : 0;
    const float value = (float)draw(s, 1000) * 0.37f - 150;
    if (draw(s, 2) == 0)
        look_up(n, table, key, step);
    node_check(log_push(n, table, key, value, step, sequence), MR_OK, NULL);
    if (is_numbered && draw(s, 8) == 0) /* sent again: nothing happens */
        node_check(log_push(n, table, key, value, step, sequence), MR_OK, NULL);
}

static void push_variable(struct node_fixture *n, struct story *s, uint64_t step)
{
    float values[64];
    for (uint32_t i = 0; i < 64; i++)
        values[i] = (float)draw(s, 100) * 0.11f;
    const uint32_t head[4] = {s->variable, 0}, core = node_core_of_variable(n, "bias");
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_F32, 64, values)};
    node_check(node_call_step(n, core, MR_OP_PUSH_GRAD, 0, step, 0, tensors, 2), MR_OK, NULL);
    const uint64_t first = draw(s, 60);
    const struct mr_tensor set[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 2, values)};
    if (draw(s, 3) == 0)
        node_check(node_call(n, core, MR_OP_VARIABLE_PUSH, (uint16_t)s->variable, set, 2), MR_OK, NULL);
}

static void push_batch(struct node_fixture *n, struct story *s)
{
    uint64_t keys[BATCH_KEYS];
    const uint64_t id = (UINT64_C(5) << MR_BATCH_SEQUENCE_BITS) | s->batch++;
    for (uint32_t i = 0; i < BATCH_KEYS; i++)
        keys[i] = 1 + draw(s, KEYS);
    node_feed(n, id, 1, keys, BATCH_KEYS);
    for (uint32_t core = 0; core < n->core_count; core++)
        assert_int_equal(node_push_batch(n, core, id, 1, BATCH_KEYS, (float)draw(s, 9)), 1);
    assert_int_equal(node_push_batch(n, 0, id, 1, BATCH_KEYS, 1), 0);
}

static void alter(struct node_fixture *n, struct story *s)
{
    struct mr_feature features[2] = {node_table("plain", 3), node_table("plain", 3)};
    features[0].learning_rate = 1;
    features[1].learning_rate = 0.25f * (float)(1 + draw(s, 4));
    features[0].learning_rate = features[1].learning_rate + 1;
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 2, sizeof(features[0]), features);
    node_check(node_call(n, 0, MR_OP_ALTER, 0, &t, 1), MR_OK, NULL);
}

static void make_and_drop(struct node_fixture *n, struct story *s)
{
    const struct mr_feature f = node_table("short", 9);
    const uint32_t table = node_create(n, &f);
    node_check(log_push(n, table, 1 + draw(s, KEYS), 4, 0, 0), MR_OK, NULL);
    if (draw(s, 2) == 0)
        node_drop(n, "short");
    s->tables = table;
}

static void story_tell(struct node_fixture *n, struct story *s, uint32_t calls)
{
    for (uint32_t i = 0; i < calls; i++) {
        const uint32_t what = draw(s, 40);
        if (what < 30)
            push_some(n, s, i / 4 + 1);
        else if (what < 35)
            push_variable(n, s, i / 4 + 1);
        else if (what < 38)
            push_batch(n, s);
        else
            alter(n, s);
    }
}

/* Told, read, started again, read. A save now and then: the log goes on from its cut. */
static void check_story(struct node_fixture *n, uint64_t seed)
{
    static struct content was, is;
    struct story s = {.random = seed};
    make_features(n, &s);
    for (uint32_t round = 0; round < 4; round++) {
        story_tell(n, &s, 120);
        if (round == 1)
            (void)node_save(n);
        if (round == 2)
            make_and_drop(n, &s);
        story_tell(n, &s, 30);
        read_content(n, s.tables, s.variable, &was);
        node_restart(n, n->core_count);
        read_content(n, s.tables, s.variable, &is);
        compare_content(&was, &is);
        if (round < 3)
            assert_true(node_counter(n, 0, "log.records_replayed") > 0);
    }
}

TEST(a_start_has_what_was_there, log_setup, node_teardown)
{
    check_story(*state, 1);
}

TEST(a_start_has_what_was_there_on_each_core, log_setup_3_cores, node_teardown)
{
    check_story(*state, 2);
}

TEST(a_delta_on_what_was_replayed_has_it, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static struct content was, is;
    struct story s = {.random = 3};
    n->config.checkpoint_deltas = 4;
    node_restart(n, 1);
    make_features(n, &s);
    story_tell(n, &s, 60);
    (void)node_save(n);
    story_tell(n, &s, 60);
    node_restart(n, 1);
    story_tell(n, &s, 20);
    read_content(n, s.tables, s.variable, &was);
    (void)node_save(n); /* on the one before */
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "log.records_replayed"), 0);
    read_content(n, s.tables, s.variable, &is);
    compare_content(&was, &is);
}

/* ---- pushes in slices ---- */

static void post_small_push(struct node_fixture *n, struct node_call *call, uint32_t table, uint64_t key)
{
    const float gradient[NODE_DIM] = {0.3f, -7, 11.1f, 1};
    const uint32_t head[4] = {table, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    const struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .deadline_us = NEVER_US};
    node_post(n, 0, call, &options, tensors, 4);
}

/* Adagrad's bits depend on the order. The table has half the rows, so that lookups in between evict some. */
TEST(pushes_between_slices_wait_and_are_logged_in_their_order, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static float was[LONG_KEYS];
    struct node_call calls[8] = {{.is_answered = false}};
    struct mr_feature f = node_table("half", 1);
    (void)long_make_table(n); /* fills in long_keys */
    f.eviction = MR_EVICT_LRU;
    f.capacity_rows = LONG_KEYS / 2;
    mr_feature_set_optimizer(&f, MR_OPT_ADAGRAD);
    f.learning_rate = 0.3f;
    const uint32_t table = node_create(n, &f);
    long_make_rows(n, table);
    long_hold();
    long_post_push(n, &calls[0], table, LONG_KEYS, NEVER_US);
    long_slices(1);
    for (uint32_t i = 1; i < 6; i += 2) {
        post_small_push(n, &calls[i], table, 700 * i); /* of keys that the long one has, too */
        long_post_lookup(n, &calls[i + 1], table, 30);
        long_slices(1);
    }
    fake_dp_release(0);
    for (uint32_t i = 0; i < 7; i++)
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"),
                     4); /* the small pushes have waited for their turn */
    WAIT_UNTIL(node_counter(n, 0, "table.rows_evicted_capacity") > 0);
    for (uint32_t key = 0; key < LONG_KEYS; key++)
        was[key] = node_value(n, table, key);
    long_end_all(calls, 7);
    node_restart(n, 1);
    for (uint32_t key = 0; key < LONG_KEYS; key++)
        if (node_value(n, table, key) != was[key])
            fail_msg("key %u: %.9g, was %.9g", (unsigned)key, (double)node_value(n, table, key),
                     (double)was[key]);
}

/* ---- numbers ---- */

TEST(numbers_are_known_again_and_durable_at_once, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    const uint32_t stream = mr_push_stream_of_core(1, 0);
    for (uint64_t number = 1; number <= 3; number++) {
        const struct node_reply *reply = log_push(n, table, 7, 1, 0, mr_push_sequence(stream, number));
        node_check(reply, MR_OK, NULL);
        assert_int_equal(mr_push_number(reply->sequence), number); /* the client need not keep it */
    }
    node_restart(n, 1);
    assert_int_equal(mr_push_number(log_push(n, table, 7, 1, 0, mr_push_sequence(stream, 3))->sequence), 3);
    assert_float_equal(node_value(n, table, 7), -3, 0);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(stream, 4)), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 7), -4, 0);
}

/* ---- answers ---- */

TEST(an_answer_waits_until_its_record_is_durable, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 4096; /* no segment can grow: as on a full disk */
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    const float gradient[NODE_DIM] = {1, 1, 1, 1};
    const uint64_t key = 7;
    const uint32_t head[4] = {table, MR_PUSH_SET};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    const struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .deadline_us = UINT64_MAX};
    struct node_call calls[2] = {{.is_answered = false}};
    node_post(n, 0, &calls[0], &options, tensors, 4);
    WAIT_UNTIL(node_counter(n, 0, "log.stalled") == 1);
    assert_float_equal(node_value(n, table, key), 1, 0); /* applied, and seen by lookups */
    node_post(n, 0, &calls[1], &options, tensors, 4);
    WAIT_UNTIL(node_counter(n, 0, "log.pushes_held_back") > 0);
    const struct mr_feature other = node_table("other", 0);
    const struct mr_tensor create = mr_tensor_2d(MR_U8, 1, sizeof(other), &other);
    node_check(node_call(n, 0, MR_OP_CREATE, 0, &create, 1), MR_IO_ERROR, "cannot write the log");
    node_look(n);
    assert_false(calls[0].is_answered || calls[1].is_answered);
    assert_int_equal(node_counter(n, 0, "log.answers_waiting"), 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_call_end(&calls[0]);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    node_call_end(&calls[1]);
    assert_int_equal(node_counter(n, 0, "log.stalled"), 0);
}

/* ---- restores, and what is refused ---- */

TEST(a_restore_by_call_begins_the_log_anew, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 1)), MR_OK, NULL);
    const uint64_t id = node_save(n);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 2)), MR_OK, NULL);
    node_check(node_restore(n, id), MR_OK, NULL);
    node_check(log_push(n, table, 8, 5, 0, mr_push_sequence(0, 3)), MR_OK, NULL);
    node_restart(n, 1);
    assert_float_equal(node_value(n, table, 7), -1, 0);
    assert_float_equal(node_value(n, table, 8), -5, 0);
}

TEST(a_node_without_a_log_applies_the_one_it_finds, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 1)), MR_OK, NULL);
    n->config.checkpoint_durability = PS_DURABILITY_CHECKPOINT;
    node_restart(n, 1);
    assert_float_equal(node_value(n, table, 7), -1, 0);
    (void)node_save(n); /* which has it, so that the log goes */
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "log.records_replayed"), 0);
    assert_float_equal(node_value(n, table, 7), -1, 0);
}

static void expect_start_refused(struct node_fixture *n, uint32_t cores, const char *says)
{
    char error[DP_ERROR_BYTES];
    struct ps_server *server;
    n->config.cores_count = cores;
    assert_int_not_equal(ps_server_start(&n->config, &server, error), MR_OK);
    assert_says(error, says);
}

TEST(a_log_that_does_not_fit_is_refused, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char path[1024];
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 1)), MR_OK, NULL);
    (void)node_save(n);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 2)), MR_OK, NULL);
    node_stop(n);
    expect_start_refused(n, 2, "a node of 1 cores wrote it");
    snprintf(path, sizeof(path), "mv %s/ckpt-1 %s/away", n->config.checkpoint_directory,
             n->config.checkpoint_directory);
    assert_int_equal(system(path), 0);
    expect_start_refused(n, 1, "does not follow checkpoint none");
    snprintf(path, sizeof(path), "mv %s/away %s/ckpt-1", n->config.checkpoint_directory,
             n->config.checkpoint_directory);
    assert_int_equal(system(path), 0);
    node_start(n, 1);
    assert_float_equal(node_value(n, table, 7), -2, 0);
}

/* ---- what the counters say ---- */

TEST(what_no_checkpoint_has_is_counted, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    assert_int_equal(node_counter(n, 0, "log.is_kept"), 1);
    assert_true(node_counter(n, 0, "checkpoint.log_disk_free_bytes") > 0);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 1)), MR_OK, NULL);
    const uint64_t kept = node_counter(n, 0, "log.kept_bytes");
    assert_true(kept >= 2 * PS_LOG_ALIGN && kept == node_counter(n, 0, "log.bytes"));
    assert_true(node_counter(n, 0, "log.flush_last_us") <= node_counter(n, 0, "log.flush_max_us"));
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "log.kept_bytes"),
                     kept); /* applied again, and still in no checkpoint */
    (void)node_save(n);
    WAIT_UNTIL(node_counter(n, 0, "log.kept_bytes") < kept);
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, 2)), MR_OK, NULL);
    assert_true(node_counter(n, 0, "log.kept_bytes") >= PS_LOG_ALIGN);
}

/* ---- checkpoint.restore = ID or none, which stays in a configuration ---- */

static void push_once(struct node_fixture *n, uint32_t table, uint64_t *number)
{
    node_check(log_push(n, table, 7, 1, 0, mr_push_sequence(0, ++*number)), MR_OK, NULL);
}

static void restart_with(struct node_fixture *n, const char *restore)
{
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "%s", restore);
    node_restart(n, 1);
}

TEST(a_checkpoint_by_number_is_begun_from_once, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    const uint32_t table = node_create(n, &f);
    uint64_t number = 0;
    push_once(n, table, &number);
    (void)node_save(n);
    push_once(n, table, &number);
    (void)node_save(n);
    push_once(n, table, &number);
    restart_with(n, "1"); /* gives up two pushes */
    assert_float_equal(node_value(n, table, 7), -1, 0);
    number = 10;
    push_once(n, table, &number);
    for (uint32_t i = 0; i < 2; i++) { /* as a service manager starts a node again that has died */
        restart_with(n, "1");
        assert_float_equal(node_value(n, table, 7), -2 - (float)i, 0);
        push_once(n, table, &number);
    }
    (void)node_save(n);
    push_once(n, table, &number);
    restart_with(n, "1");
    assert_float_equal(node_value(n, table, 7), -5, 0);
    restart_with(n, "latest");
    assert_float_equal(node_value(n, table, 7), -5, 0);
    restart_with(n, "1"); /* once more, as it is no longer the same */
    assert_float_equal(node_value(n, table, 7), -1, 0);
}

TEST(an_empty_start_is_made_once, log_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("plain", 0);
    uint32_t table = node_create(n, &f);
    uint64_t number = 0;
    push_once(n, table, &number);
    (void)node_save(n);
    push_once(n, table, &number);
    restart_with(n, "none");
    table = node_create(n, &f);
    number = 10;
    for (uint32_t i = 0; i < 3; i++) {
        push_once(n, table, &number);
        restart_with(n, i < 2 ? "none" : "latest"); /* the checkpoint is of before */
        assert_float_equal(node_value(n, table, 7), -1 - (float)i, 0);
    }
    (void)node_save(n);
    push_once(n, table, &number);
    restart_with(n, "latest");
    assert_float_equal(node_value(n, table, 7), -4, 0);
}
