/* A node with a log whose power fails: at changes of its disk while it is pushed to, saves, rotates its
 * log, creates and drops tables and starts again. What the next start finds must have each push that was
 * acknowledged by then, once and in order, and none that had not begun; and so must the starts after that,
 * when more was pushed and saved.
 *
 * MILLRACE_POWER_SEEDS: stories (2 unless set). MILLRACE_SWEEP=all: each is judged after every change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "node_fixture.h"
#include "power_store.h"
#include "tests/test.h"
#include "tests/wait.h"

#define STORIES_DEFAULT 2u
#define JUDGED          8u /* moments of a story */

enum { PUSHES_MAX = 64, KEYS = 7, TURNS = 40, MORE = 3 };

static struct power_store *disk; /* NULL: the machine's own */
static uint32_t ready;           /* changes of it after which the directory is there for good */

const struct ps_store *__real_ps_store_local(void);
const struct ps_store *__wrap_ps_store_local(void);
const struct ps_store *__wrap_ps_store_local(void)
{
    return disk != NULL ? power_store_calls(disk) : __real_ps_store_local();
}

struct story {
    struct node_fixture *n;
    uint64_t random;
    uint32_t table, created; /* changes of the disk by then */
    uint32_t push_count;
    struct {
        uint64_t key;
        float value;
        uint32_t begun, acknowledged; /* likewise */
    } pushes[PUSHES_MAX];
};

static uint64_t power_stories(void)
{
    const char *given = getenv("MILLRACE_POWER_SEEDS");
    return given != NULL ? strtoull(given, NULL, 10) : STORIES_DEFAULT;
}

static uint32_t draw(struct story *s, uint32_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(s->random >> 33) % below;
}

/* The directories of the node's path, durable. */
static void make_path(const struct ps_store *store, const char *path)
{
    char at[PS_PATH_BYTES], above[PS_PATH_BYTES] = "/";
    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        const size_t bytes = slash != NULL ? (size_t)(slash - path) : strlen(path);
        snprintf(at, sizeof(at), "%.*s", (int)bytes, path);
        assert_int_equal(store->make_directory(store->self, at), 0);
        assert_int_equal(store->sync_directory(store->self, above), 0);
        memcpy(above, at, sizeof(above));
        if (slash == NULL)
            return;
    }
}

static int power_setup(void **state)
{
    assert_int_equal(node_setup(state), 0);
    struct node_fixture *n = *state;
    n->config.checkpoint_durability = PS_DURABILITY_LOG;
    n->config.checkpoint_keep = 2;
    node_stop(n);
    return 0;
}

static int power_teardown(void **state)
{
    const int status = node_teardown(state);
    if (disk != NULL)
        power_store_destroy(disk);
    disk = NULL;
    return status;
}

/* ---- the story ---- */

static void push_one(struct node_fixture *n, uint32_t table, uint64_t key, float value)
{
    const float gradient[NODE_DIM] = {value, 1, 1, 1};
    const uint32_t head[4] = {table, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    const struct mr_tensor look = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &look, 1), MR_OK, NULL);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
}

static void tell_push(struct story *s)
{
    const uint32_t i = s->push_count++;
    assert_true(i < PUSHES_MAX);
    s->pushes[i].key = 1 + draw(s, KEYS);
    s->pushes[i].value = (float)(1 + draw(s, 1000)); /* sums of them are exact */
    s->pushes[i].begun = power_store_changes(disk);
    push_one(s->n, s->table, s->pushes[i].key, s->pushes[i].value);
    s->pushes[i].acknowledged = power_store_changes(disk);
}

static void tell_short_table(struct story *s)
{
    const struct mr_feature f = node_table("short", 9);
    push_one(s->n, node_create(s->n, &f), 1, 1);
    node_drop(s->n, "short");
}

static void story_tell(struct story *s)
{
    const struct mr_feature f = node_table("rows", 0);
    s->table = node_create(s->n, &f);
    s->created = power_store_changes(disk);
    for (uint32_t i = 0; i < TURNS; i++) {
        const uint32_t what = draw(s, 20);
        if (what == 0)
            tell_short_table(s);
        else if (what < 4)
            (void)node_save(s->n);
        else if (what == 4)
            node_restart(s->n, 1);
        else
            tell_push(s);
    }
}

/* ---- what a start finds ---- */

static void expected_values(const struct story *s, uint32_t pushes, float out[KEYS])
{
    memset(out, 0, KEYS * sizeof(*out));
    for (uint32_t i = 0; i < pushes; i++)
        out[s->pushes[i].key - 1] -= s->pushes[i].value;
}

static bool are_values(const float values[KEYS], const float expected[KEYS])
{
    for (uint32_t i = 0; i < KEYS; i++)
        if (values[i] != expected[i])
            return false;
    return true;
}

/* How many of the first pushes the node has. */
static uint32_t pushes_found(const struct story *s, const char *after)
{
    float values[KEYS], expected[KEYS];
    for (uint64_t key = 1; key <= KEYS; key++)
        values[key - 1] = node_value(s->n, s->table, key);
    for (uint32_t pushes = 0; pushes <= s->push_count; pushes++) {
        expected_values(s, pushes, expected);
        if (are_values(values, expected))
            return pushes;
    }
    fail_msg("after %s: rows that no number of pushes makes", after);
    return 0;
}

static void judge_content(struct story *s, uint32_t at, const char *after)
{
    uint32_t acknowledged = 0, begun = 0;
    for (uint32_t i = 0; i < s->push_count; i++) {
        acknowledged += s->pushes[i].acknowledged <= at;
        begun += s->pushes[i].begun < at;
    }
    const uint32_t found = pushes_found(s, after);
    if (found < acknowledged || found > begun)
        fail_msg("after %s: %u pushes are there, %u were acknowledged, %u had begun", after, (unsigned)found,
                 (unsigned)acknowledged, (unsigned)begun);
    float before = node_value(s->n, s->table, 1);
    for (uint32_t i = 0; i < MORE; i++) { /* what comes now survives, too */
        push_one(s->n, s->table, 1, 5);
        if (i == 1)
            (void)node_save(s->n);
        before -= 5;
        node_restart(s->n, 1);
        assert_float_equal(node_value(s->n, s->table, 1), before, 0);
    }
}

static void judge(struct story *s, uint32_t at, uint64_t fate)
{
    struct power_store *told = disk;
    char after[256];
    snprintf(after, sizeof(after), "%u changes, the last \"%s\", fate %u", (unsigned)at,
             at > 0 ? power_store_change(told, at - 1) : "none", (unsigned)fate);
    disk = power_store_after_failure(told, at, fate);
    node_start(s->n, 1);
    if (at >= s->created)
        judge_content(s, at, after);
    node_stop(s->n);
    power_store_destroy(disk);
    disk = told;
}

static void judge_story(struct story *s)
{
    const char *sweep = getenv("MILLRACE_SWEEP");
    const bool all = sweep != NULL && strcmp(sweep, "all") == 0;
    const uint32_t last = power_store_changes(disk);
    const uint32_t moments = last - ready + 1;
    for (uint32_t i = 0; i < (all ? moments : JUDGED); i++)
        judge(s, ready + (all ? i : draw(s, moments)), draw(s, 2 * (uint32_t)POWER_DRAWN));
}

static void power_begin(struct node_fixture *n)
{
    disk = power_store_create();
    make_path(power_store_calls(disk), n->config.checkpoint_directory);
    ready = power_store_changes(disk);
    node_start(n, 1);
}

static void power_end(void)
{
    power_store_destroy(disk);
    disk = NULL;
}

/* A log that was never used is none. */
TEST(a_first_start_may_fail_at_any_change, power_setup, power_teardown)
{
    struct story s = {.n = *state, .created = UINT32_MAX};
    power_begin(s.n);
    node_stop(s.n);
    for (uint32_t at = ready; at <= power_store_changes(disk); at++)
        for (uint64_t fate = 0; fate < POWER_DRAWN; fate++)
            judge(&s, at, fate);
    power_end();
}

TEST(what_was_acknowledged_survives_a_power_failure, power_setup, power_teardown)
{
    struct node_fixture *n = *state;
    for (uint64_t seed = 1; seed <= power_stories(); seed++) {
        static struct story s;
        memset(&s, 0, sizeof(s));
        s.n = n;
        s.random = seed;
        power_begin(n);
        story_tell(&s);
        node_stop(n);
        judge_story(&s);
        power_end();
    }
}
