/* A hub on loopback sockets between a node and trainers that use the public header. Nothing here
 * waits for a time to pass, only for things to happen. Tests run with make_formats() and free_formats(). */
#ifndef TESTS_SERVE_FIXTURE_H
#define TESTS_SERVE_FIXTURE_H

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/unit/trainer_client/live_node.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/temp_file.h"
#include "tests/wait.h"
#include "trainer_client/hub/hub.h"
#include "trainer_client/millrace.h"

#define SAMPLES       400u
#define BATCH_SAMPLES 10u
#define TABLE         "fm"

struct bench {
    struct live_node *node;
    struct temp_file file;
    struct hub hub;
    struct hub_config config;
    pthread_t thread;
    struct mr_client *server; /* all trainers push through this one */
    uint32_t table;
    uint64_t scored; /* the batch that score() has yet to tell the hub about */
    uint32_t scored_count;
    uint32_t applied[SAMPLES]; /* how often each sample was pushed and applied; its label says which it is */
};

static char node_address[64], hub_address[64];

static inline void *run_hub(void *arg)
{
    char error[HUB_ERROR_BYTES];
    assert(hub_serve(arg, error) == MR_OK);
    return NULL;
}

static inline void start_hub(struct bench *b)
{
    assert_true(hub_init(&b->hub, &b->config));
    assert_int_equal(pthread_create(&b->thread, NULL, run_hub, &b->hub), 0);
    WAIT_UNTIL(atomic_load(&b->hub.port) != 0);
    snprintf(hub_address, sizeof(hub_address), "127.0.0.1:%u", atomic_load(&b->hub.port));
}

static inline void stop_hub(struct bench *b)
{
    atomic_store(&b->hub.stop, true);
    pthread_join(b->thread, NULL);
    hub_free(&b->hub);
}

static inline struct mr_client *connect_to(const char *address)
{
    struct mr_client *client = NULL;
    char error[400];
    const struct mr_client_options options = {.server = address, .memory_bytes = 4u << 20};
    assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_OK);
    return client;
}

/* Criteo lines whose first integer is n, so that a batch's dense values name its samples. */
static inline struct temp_file make_samples(void)
{
    char *text = malloc(SAMPLES * 100);
    size_t bytes = 0;
    assert_non_null(text);
    for (uint32_t n = 0; n < SAMPLES; n++) {
        bytes += (size_t)sprintf(text + bytes, "%u\t%u", n % 2, n);
        memset(text + bytes, '\t', 38);
        bytes += 38;
        bytes += (size_t)sprintf(text + bytes, "%x\n", n % 7);
    }
    struct temp_file file = temp_file_make(text, bytes);
    free(text);
    return file;
}

static inline int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->node = live_node_start_new(2);
    b->file = make_samples();
    snprintf(node_address, sizeof(node_address), "%s", live_node_address(b->node));
    b->config = (struct hub_config){.listen = "127.0.0.1:0",
                                    .server = node_address,
                                    .metrics = "127.0.0.1:0",
                                    .formats = formats,
                                    .prefetch = 3,
                                    .trainer_timeout_us = 3600 * UINT64_C(1000000)};
    start_hub(b);
    b->server = connect_to(node_address);
    const struct mr_feature table = mr_feature_table(TABLE, 4);
    assert_int_equal(mr_create(b->server, NULL, &table, 1, &b->table), MR_OK);
    live_node_save(b->node); /* so that it comes back with the table */
    *state = b;
    return 0;
}

static inline int take_down(void **state)
{
    struct bench *b = *state;
    stop_hub(b);
    mr_client_destroy(b->server);
    live_node_destroy(b->node);
    close(b->file.fd);
    free(b);
    return 0;
}

static inline struct mr_sample_plan plan_of(const struct bench *b)
{
    return (struct mr_sample_plan){.path = b->file.path,
                                   .format = "criteo",
                                   .batch_samples = BATCH_SAMPLES,
                                   .epochs = 1,
                                   .shuffle_seed = 1,
                                   .table = TABLE};
}

static inline void start_plan(struct mr_client *trainer, const struct mr_sample_plan *plan)
{
    struct mr_sample_info info;
    assert_int_equal(mr_start_sample(trainer, NULL, plan, &info), MR_OK);
    assert_int_equal(info.slots, 26);
    assert_int_equal(info.dense, 13);
}

/* Asks until there is something else than NOT_READY. */
static inline enum mr_status read_batch(struct mr_client *trainer, const uint64_t *done, uint32_t done_count,
                                        struct mr_batch *batch)
{
    enum mr_status status = mr_read_sample(trainer, NULL, done, done_count, batch);
    if (status == MR_NOT_READY)
        WAIT_UNTIL((status = mr_read_sample(trainer, NULL, done, 0, batch)) != MR_NOT_READY);
    return status;
}

/* Looks up, pushes, and forgets a batch, as far as the server has it: where only one core has it, as another
 * hub fed it in between, it must not stay there. */
static inline void learn(struct bench *b, const struct mr_batch *batch)
{
    struct mr_reply *reply;
    bool applied = false;
    enum mr_status status = mr_lookup_batch(b->server, NULL, batch->id, b->table, &reply);
    if (status == MR_OK) {
        const struct mr_batch_gradient gradient = {b->table, *mr_reply_tensor(reply, 0)};
        status = mr_push_gradients_batch(b->server, NULL, batch->id, &gradient, 1, &applied);
        mr_reply_free(reply);
    }
    mr_forget_batches(b->server, NULL, &batch->id, 1);
    for (uint32_t i = 0; status == MR_OK && applied && i < batch->samples; i++) {
        uint32_t n = (uint32_t)(__builtin_expm1((double)batch->dense[i * 13]) + 0.5);
        assert_true(n < SAMPLES);
        assert_int_equal((uint32_t)batch->labels[i], n % 2);
        b->applied[n]++;
    }
}

/* Trains until the end, or on `batches_max` batches. Returns how many it was given. */
static inline uint32_t train(struct bench *b, struct mr_client *trainer, uint32_t batches_max)
{
    uint32_t batches = 0, done_count = 0;
    uint64_t done = 0;
    while (batches < batches_max) {
        struct mr_batch batch;
        enum mr_status status = read_batch(trainer, &done, done_count, &batch);
        if (status == MR_END_OF_DATA)
            break;
        assert_int_equal(status, MR_OK);
        batches++;
        learn(b, &batch);
        done = batch.id;
        done_count = 1;
        mr_reply_free(batch.reply);
    }
    return batches;
}

/* Looks up without changing anything, until the end or for `batches_max` batches: samples without labels.
 * Which they are is told by the first of two dense values, or by exp(it) - 1 of the only one (is_log).
 * Returns how many batches it was given. */
static inline uint32_t score(struct bench *b, struct mr_client *trainer, uint32_t batches_max, bool is_log)
{
    uint32_t batches = 0;
    struct mr_batch batch;
    enum mr_status status = MR_OK;
    while (batches < batches_max &&
           (status = read_batch(trainer, &b->scored, b->scored_count, &batch)) == MR_OK) {
        struct mr_reply *reply;
        b->scored_count = 0;
        if (mr_lookup_batch(b->server, NULL, batch.id, b->table, &reply) == MR_OK) { /* or it comes again */
            batches++;
            mr_reply_free(reply);
            b->scored = batch.id;
            b->scored_count = 1;
            assert_int_equal(mr_forget_batches(b->server, NULL, &b->scored, 1), MR_OK);
            for (uint32_t i = 0; i < batch.samples; i++) {
                const double x = (double)batch.dense[is_log ? i : 2 * i];
                const uint32_t n = (uint32_t)((is_log ? __builtin_expm1(x) : x) + 0.5);
                assert_true(n < SAMPLES && __builtin_isnan(batch.labels[i]));
                b->applied[n]++;
            }
        }
        mr_reply_free(batch.reply);
    }
    assert_true(batches == batches_max || status == MR_END_OF_DATA);
    return batches;
}

static inline void assert_applied(const struct bench *b, uint32_t times)
{
    for (uint32_t n = 0; n < SAMPLES; n++)
        assert_int_equal(b->applied[n], times);
}

/* All batches, though the server comes back without anything applied in between. */
static inline void train_although_the_server_forgets(struct bench *b, struct mr_client *trainer)
{
    train(b, trainer, 20);
    live_node_kill(b->node);
    memset(b->applied, 0, sizeof(b->applied));
    live_node_restart(b->node);
    train(b, trainer, UINT32_MAX);
    assert_applied(b, 1);
}

/* What the hub answers over HTTP, until it ends the connection. */
static inline const char *ask_over_http(const struct bench *b, const char *path)
{
    static char answer[65536];
    const struct sockaddr_in place = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)atomic_load(&b->hub.metrics_port)),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t bytes = 0;
    assert_int_equal(connect(fd, (const struct sockaddr *)&place, sizeof(place)), 0);
    assert_true(dprintf(fd, "GET %s HTTP/1.1\r\nHost: hub\r\n\r\n", path) > 0);
    for (ssize_t got = 1; got > 0; bytes += got > 0 ? (size_t)got : 0)
        got = read(fd, answer + bytes, sizeof(answer) - 1 - bytes);
    answer[bytes] = '\0';
    close(fd);
    return answer;
}

static inline struct mr_sample_plan live_plan(const char *path)
{
    return (struct mr_sample_plan){
        .path = path, .format = "criteo", .batch_samples = BATCH_SAMPLES, .epochs = 1, .table = TABLE};
}

/* The hub ends by itself, as after SIGTERM; another one is started. */
static inline void wait_for_end(struct bench *b)
{
    pthread_join(b->thread, NULL);
    hub_free(&b->hub);
    start_hub(b);
}

#endif
