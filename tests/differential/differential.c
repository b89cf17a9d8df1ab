/* A real node under random faults beside the plain model of tests/property.
 *
 * Some workers, each a thread with a client of its own that replays, train tables and a variable of their
 * own: they look rows up, compare every bit with the model, and push gradients. Meanwhile the main thread
 * does to the node what happens to nodes: SIGKILL, also while it starts; a stop and a start with another
 * number of cores; a pause by SIGSTOP; a lossy network; saves, full and deltas. Now and then it has all
 * workers wait, keeps a copy of their models with a checkpoint, or restores such a one by hand, and the
 * models go back with it. At the end, and after one more restart, each row and variable is what the model
 * says.
 *
 * The seed decides what is drawn; threads and processes make each run another one all the same. */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/format/convert.h"
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/property/model.h"
#include "tests/property/random.h"
#include "tests/test.h"
#include "tests/wait.h"

#define WORKERS_MAX   8u
#define TABLES        2u
#define TABLE_KEYS    300u
#define CALL_KEYS_MAX 60u
#define DIM_MAX       24u
#define ELEMENTS      64u
#define CORES_MAX     3u
#define CALL_MS       300000 /* longer than any series of restarts */
#define SETTING_BYTES 64
#define QUIET_ONE_IN  12u /* actions */
#define SAVES_ON_DISK "checkpoint.keep=1024"

struct table {
    struct model model, kept; /* now, and at the checkpoint that may be restored */
    uint32_t id;
    uint64_t keys[TABLE_KEYS];
};

struct worker {
    pthread_t thread;
    struct mr_client *client;
    uint64_t rng, step, kept_step;
    struct table tables[TABLES];
    uint32_t variable;
    float elements[ELEMENTS], kept_elements[ELEMENTS];
    uint64_t lookups, pushes;
};

static struct {
    struct node_fixture node;
    struct worker workers[WORKERS_MAX];
    uint32_t worker_count;
    uint64_t rng, seed, kept_id; /* of the checkpoint that the kept models are of; 0: none */
    uint32_t cores;
    atomic_bool is_over;
    pthread_rwlock_t quiet; /* workers hold it for reading while a call is in flight */
    char settings[5][SETTING_BYTES];
    struct mr_client *watcher;
    uint64_t kills, stops, pauses, saves, restores, actions;
} x;

#define FAIL(...)                                                                                            \
    do {                                                                                                     \
        fprintf(stderr, "differential: seed %" PRIu64 ": ", x.seed);                                         \
        fprintf(stderr, __VA_ARGS__);                                                                        \
        fputc('\n', stderr);                                                                                 \
        abort();                                                                                             \
    } while (0)

static void expect_ok(enum mr_status status, const char *what)
{
    if (status != MR_OK)
        FAIL("%s: %s: %s", what, mr_status_name(status), mr_last_error());
}

static void wait_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- the workers ---- */

static struct mr_feature draw_table(struct worker *w, const char *name)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F32, MR_F16, MR_BF16};
    struct mr_feature f = mr_feature_table(name, 1 + random_below(&w->rng, DIM_MAX));
    mr_feature_set_optimizer(&f, MR_OPT_SGD + random_below(&w->rng, MR_OPT_GROUP_FTRL));
    f.learning_rate = 0.05f;
    f.dtype = dtypes[random_below(&w->rng, 4)];
    f.seed = random_next(&w->rng);
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -0.1f;
    f.init_b = 0.1f;
    if (random_one_in(&w->rng, 3)) {
        f.schedule = MR_SCHEDULE_LINEAR;
        f.schedule_steps = 1000;
        f.learning_rate_end = 0.01f;
    }
    return f;
}

static void differential_create(struct worker *w, uint32_t number)
{
    char name[MR_NAME_BYTES];
    uint32_t dims[] = {ELEMENTS};
    for (uint32_t i = 0; i < TABLES; i++) {
        struct table *t = &w->tables[i];
        snprintf(name, sizeof(name), "worker%u.table%u", (unsigned)number, (unsigned)i);
        struct mr_feature f = draw_table(w, name);
        expect_ok(mr_create(w->client, NULL, &f, 1, &t->id), "create");
        model_init(&t->model, &f);
        model_init(&t->kept, &f);
        for (uint32_t k = 0; k < TABLE_KEYS; k++)
            t->keys[k] = random_next(&w->rng);
    }
    snprintf(name, sizeof(name), "worker%u.variable", (unsigned)number);
    struct mr_feature f = mr_feature_variable(name, 1, dims);
    f.learning_rate = 0.125f;
    expect_ok(mr_create(w->client, NULL, &f, 1, &w->variable), "create");
}

static uint32_t draw_keys(struct worker *w, const struct table *t, uint64_t *keys)
{
    uint32_t count = 1 + random_below(&w->rng, CALL_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = t->keys[random_below(&w->rng, TABLE_KEYS)];
    return count;
}

static void compare_rows(const struct worker *w, struct table *t, const uint64_t *keys, uint32_t count,
                         const float *values, bool makes_rows)
{
    float initial[DIM_MAX];
    for (uint32_t i = 0; i < count; i++) {
        const struct model_row *row = model_find(&t->model, keys[i]);
        const float *got = values + (size_t)i * t->model.dim, *expected = initial;
        if (row == NULL && makes_rows)
            row = model_add(&t->model, keys[i]);
        if (row != NULL)
            expected = row->floats;
        else
            model_initial(&t->model, keys[i], initial);
        for (uint32_t k = 0; k < t->model.dim; k++)
            if (mr_f32_bits(got[k]) != mr_f32_bits(expected[k]))
                FAIL("step %" PRIu64 ", %s (%s), key %#" PRIx64 ", value %u of %u: %.9g, not %.9g", w->step,
                     t->model.feature.name, mr_optimizer_name(t->model.feature.optimizer), keys[i],
                     (unsigned)k, (unsigned)t->model.dim, (double)got[k], (double)expected[k]);
    }
}

static void look_up(struct worker *w, struct table *t, const uint64_t *keys, uint32_t count, bool read_only)
{
    struct mr_options options = {.step = w->step, .read_only = read_only};
    struct mr_reply *reply;
    expect_ok(mr_lookup(w->client, &options, t->id, keys, count, &reply), "lookup");
    compare_rows(w, t, keys, count, mr_reply_tensor(reply, 0)->data, !read_only);
    mr_reply_free(reply);
    w->lookups++;
}

/* Keys without a row are looked up first: a push makes none. */
static void differential_push(struct worker *w, struct table *t, struct mr_future **future)
{
    static _Thread_local float gradients[TABLES][CALL_KEYS_MAX * DIM_MAX], sums[CALL_KEYS_MAX * DIM_MAX];
    static _Thread_local uint64_t keys[TABLES][CALL_KEYS_MAX];
    struct model_gradient gathered[CALL_KEYS_MAX];
    uint32_t which = t == &w->tables[0] ? 0 : 1, count = draw_keys(w, t, keys[which]);
    struct model_keys k = {.keys = keys[which], .count = count};
    struct mr_options options = {.step = w->step, .future = future};
    look_up(w, t, keys[which], count, false);
    for (uint32_t i = 0; i < count * t->model.dim; i++)
        gradients[which][i] = random_float(&w->rng);
    expect_ok(
        mr_push_gradients(w->client, &options, t->id, keys[which], count, t->model.dim, gradients[which]),
        "push");
    uint32_t distinct = model_gather(&t->model, &k, gradients[which], gathered, sums);
    const struct mr_rule_push by_hand = {
        .learning_rate = mr_rule_learning_rate(&t->model.optimizer, w->step, 0), .step = w->step};
    for (uint32_t i = 0; i < distinct; i++)
        (void)model_step(&t->model, model_find(&t->model, gathered[i].key), gathered[i].sum, &by_hand);
    w->pushes++;
}

static void push_both(struct worker *w)
{
    struct mr_future *futures[TABLES];
    for (uint32_t i = 0; i < TABLES; i++)
        differential_push(w, &w->tables[i], &futures[i]);
    for (uint32_t i = 0; i < TABLES; i++) {
        expect_ok(mr_future_wait(futures[i], NULL), "push");
        mr_future_destroy(futures[i]);
    }
}

/* Steps of SGD by powers of two, which both sides round alike. */
static void push_variable(struct worker *w)
{
    float gradient[ELEMENTS];
    struct mr_options options = {.step = w->step};
    for (uint32_t i = 0; i < ELEMENTS; i++)
        gradient[i] = (float)random_below(&w->rng, 16) - 8.0f;
    expect_ok(mr_variable_push_gradient(w->client, &options, w->variable, ELEMENTS, gradient),
              "variable push");
    for (uint32_t i = 0; i < ELEMENTS; i++)
        w->elements[i] -= 0.125f * gradient[i];
    w->pushes++;
}

static void pull_variable(struct worker *w)
{
    struct mr_reply *reply;
    expect_ok(mr_variable_pull(w->client, NULL, w->variable, 0, 0, &reply), "variable pull");
    const float *got = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        if (got[i] < w->elements[i] || got[i] > w->elements[i])
            FAIL("step %" PRIu64 ", variable %u, element %u: %.9g, not %.9g", w->step, (unsigned)w->variable,
                 (unsigned)i, (double)got[i], (double)w->elements[i]);
    mr_reply_free(reply);
}

static void work(struct worker *w)
{
    struct table *t = &w->tables[random_below(&w->rng, TABLES)];
    uint64_t keys[CALL_KEYS_MAX];
    w->step++;
    switch (random_below(&w->rng, 6)) {
    case 0:
        look_up(w, t, keys, draw_keys(w, t, keys), random_one_in(&w->rng, 2));
        break;
    case 1:
        push_variable(w);
        break;
    case 2:
        pull_variable(w);
        break;
    case 3:
        push_both(w);
        break;
    default:
        differential_push(w, t, NULL);
        break;
    }
}

static void *work_on(void *arg)
{
    struct worker *w = arg;
    while (!atomic_load(&x.is_over)) {
        pthread_rwlock_rdlock(&x.quiet);
        work(w);
        pthread_rwlock_unlock(&x.quiet);
        if (random_one_in(&w->rng, 64))
            wait_ms(random_below(&w->rng, 30));
    }
    return NULL;
}

/* ---- what happens to the node ---- */

static struct mr_client *connect_client(bool replay)
{
    struct mr_client_options options = {
        .server = x.node.address, .connect_ms = CALL_MS, .deadline_ms = CALL_MS, .replay = replay};
    struct mr_client *client;
    char error[512];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        FAIL("%s", error);
    return client;
}

/* For the next start. */
static void draw_settings(void)
{
    snprintf(x.settings[0], SETTING_BYTES, "checkpoint.deltas=%u", (unsigned)(4 * random_below(&x.rng, 2)));
    snprintf(x.settings[1], SETTING_BYTES, "fault.direction=%s", random_one_in(&x.rng, 3) ? "both" : "off");
    snprintf(x.settings[2], SETTING_BYTES, "fault.loss_ppm=%u", (unsigned)random_below(&x.rng, 20000));
    snprintf(x.settings[3], SETTING_BYTES, "fault.seed=%u", (unsigned)random_below(&x.rng, UINT32_MAX));
    snprintf(x.settings[4], SETTING_BYTES, "%s", SAVES_ON_DISK);
}

static void restart(void)
{
    draw_settings();
    if (random_one_in(&x.rng, 2))
        x.cores = 1 + random_below(&x.rng, CORES_MAX);
    while (random_one_in(&x.rng, 3)) { /* killed again while it starts and restores */
        node_fixture_launch(&x.node);
        wait_ms(random_below(&x.rng, 400));
        node_fixture_kill(&x.node);
        x.kills++;
    }
    node_fixture_restart_with(&x.node, x.cores);
}

static void kill_it(void)
{
    node_fixture_kill(&x.node);
    x.kills++;
    restart();
}

static void stop_it(void)
{
    int code = netns_end(&x.node.server, SIGTERM);
    if (code != 0)
        FAIL("the server ended with %d after SIGTERM", code);
    x.stops++;
    restart();
}

static void pause_it(void)
{
    netns_suspend(x.node.server.pid);
    wait_ms(random_below(&x.rng, 1500));
    netns_resume(x.node.server.pid);
    x.pauses++;
}

/* The watcher's client finds a server that was restarted: a Save or Restore sent to the one before would end
 * unknown. */
static void find_server(void)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    expect_ok(mr_checkpoint_info(x.watcher, NULL, 0, &status, NULL, NULL), "status");
}

static void save_it(void)
{
    struct mr_options options = {.deadline_ms = 30000};
    uint64_t id;
    find_server();
    enum mr_status status = save_into(x.watcher, &options, NULL, &id);

    if (status != MR_OK && status != MR_CHECKPOINT_RUNNING)
        FAIL("save: %s: %s", mr_status_name(status), mr_last_error());
    x.saves += status == MR_OK;
}

static uint64_t save_whole(void)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    uint64_t id;
    enum mr_status outcome;
    find_server();
    while ((outcome = save_into(x.watcher, NULL, NULL, &id)) == MR_CHECKPOINT_RUNNING)
        wait_pause();
    expect_ok(outcome, "save");
    do {
        wait_pause();
        expect_ok(mr_checkpoint_info(x.watcher, NULL, 0, &status, NULL, NULL), "status");
    } while (status.state != MR_CHECKPOINT_IDLE);
    if (status.last_good_id != id)
        FAIL("save %" PRIu64 " failed: %s", id, status.last_error);
    return id;
}

static void table_copy(struct model *to, const struct model *from)
{
    model_clear(to);
    model_copy(to, from);
}

static void keep_models(void)
{
    x.kept_id = save_whole();
    for (uint32_t i = 0; i < x.worker_count; i++) {
        struct worker *w = &x.workers[i];
        for (uint32_t t = 0; t < TABLES; t++)
            table_copy(&w->tables[t].kept, &w->tables[t].model);
        memcpy(w->kept_elements, w->elements, sizeof(w->elements));
    }
    x.saves++;
}

static void restore_by_hand(void)
{
    uint64_t id;
    enum mr_status status;
    find_server();
    while ((status = restore_from(x.watcher, NULL, NULL, x.kept_id, &id)) == MR_CHECKPOINT_RUNNING)
        wait_pause();
    expect_ok(status, "restore");
    for (uint32_t i = 0; i < x.worker_count; i++) {
        struct worker *w = &x.workers[i];
        for (uint32_t t = 0; t < TABLES; t++)
            table_copy(&w->tables[t].model, &w->tables[t].kept);
        memcpy(w->elements, w->kept_elements, sizeof(w->elements));
    }
    x.restores++;
}

/* All rows and variables, while the workers wait. */
static void compare_all(void)
{
    for (uint32_t i = 0; i < x.worker_count; i++) {
        struct worker *w = &x.workers[i];
        for (uint32_t t = 0; t < TABLES; t++)
            look_up(w, &w->tables[t], w->tables[t].keys, TABLE_KEYS, true);
        pull_variable(w);
    }
}

static void in_quiet(void)
{
    pthread_rwlock_wrlock(&x.quiet);
    /* Clients send again what a restart took only while they are called. A checkpoint cut before that lacks
     * it, and so would a node that is restored from it by hand. */
    compare_all();
    if (x.kept_id != 0 && random_one_in(&x.rng, 2))
        restore_by_hand();
    else
        keep_models();
    compare_all();
    pthread_rwlock_unlock(&x.quiet);
}

static void act(void)
{
    wait_ms(random_below(&x.rng, 400));
    x.actions++;
    if (random_one_in(&x.rng, QUIET_ONE_IN)) {
        in_quiet();
        return;
    }
    switch (random_below(&x.rng, 8)) {
    case 0:
        kill_it();
        break;
    case 1:
        stop_it();
        break;
    case 2:
        pause_it();
        break;
    default:
        save_it();
        break;
    }
}

/* ---- */

static void differential_start(void)
{
    const char *settings[6] = {NULL};
    x.rng = x.seed;
    x.cores = 1 + random_below(&x.rng, CORES_MAX);
    draw_settings();
    for (uint32_t i = 0; i < 5; i++)
        settings[i] = x.settings[i];
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&x.quiet, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    node_fixture_start(&x.node, x.cores, settings);
    x.watcher = connect_client(false);
    for (uint32_t i = 0; i < x.worker_count; i++) {
        struct worker *w = &x.workers[i];
        w->rng = x.seed ^ (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        w->client = connect_client(true);
        differential_create(w, i);
    }
    save_whole(); /* with all features: what is not in a checkpoint a crash takes */
}

static void workers_stop(void)
{
    for (uint32_t i = 0; i < x.worker_count; i++) {
        struct worker *w = &x.workers[i];
        mr_client_destroy(w->client);
        for (uint32_t t = 0; t < TABLES; t++) {
            model_clear(&w->tables[t].model);
            model_clear(&w->tables[t].kept);
        }
    }
    mr_client_destroy(x.watcher);
    node_fixture_stop(&x.node);
}

static void print_progress(const char *end)
{
    uint64_t lookups = 0, pushes = 0;
    for (uint32_t i = 0; i < x.worker_count; i++) {
        lookups += x.workers[i].lookups;
        pushes += x.workers[i].pushes;
    }
    printf("differential: seed %" PRIu64 ": %" PRIu64 " lookups, %" PRIu64 " pushes, %" PRIu64
           " kills, %" PRIu64 " stops, %" PRIu64 " pauses, %" PRIu64 " saves, %" PRIu64 " restores%s",
           x.seed, lookups, pushes, x.kills, x.stops, x.pauses, x.saves, x.restores, end);
    fflush(stdout);
}

static void differential_run(uint32_t seconds)
{
    time_t end = time(NULL) + seconds;
    differential_start();
    for (uint32_t i = 0; i < x.worker_count; i++)
        if (pthread_create(&x.workers[i].thread, NULL, work_on, &x.workers[i]) != 0)
            FAIL("no thread");
    while (time(NULL) < end) {
        act();
        if (isatty(STDOUT_FILENO) && x.actions % 8 == 0)
            print_progress("\r");
    }
    atomic_store(&x.is_over, true);
    for (uint32_t i = 0; i < x.worker_count; i++)
        pthread_join(x.workers[i].thread, NULL);
    compare_all();
    kill_it();
    compare_all();
    print_progress(": no difference\n");
    workers_stop();
}

static uint64_t number_of(const char *text, const char *option)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "differential: %s needs a whole number, not '%s'\n", option, text);
        exit(2);
    }
    return number;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seconds", required_argument, NULL, 's'},
                                            {"seed", required_argument, NULL, 'r'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint32_t seconds = 10;
    x.seed = (uint64_t)time(NULL);
    x.worker_count = 3;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's') {
            seconds = (uint32_t)number_of(optarg, "--seconds");
        } else if (c == 'r') {
            x.seed = number_of(optarg, "--seed");
        } else if (c == 'w') {
            x.worker_count = (uint32_t)number_of(optarg, "--workers");
        } else {
            printf("usage: differential [--seconds N] [--seed N] [--workers N] MILLRACED\n");
            return c == 'h' ? 0 : 2;
        }
    }
    if (optind + 1 != argc || x.worker_count == 0 || x.worker_count > WORKERS_MAX) {
        fprintf(stderr, "differential: give the path of millraced, and 1 to %u workers; see --help\n",
                WORKERS_MAX);
        return 2;
    }
    netns_require_root();
    node_fixture_server = argv[optind];
    differential_run(seconds);
    return 0;
}
