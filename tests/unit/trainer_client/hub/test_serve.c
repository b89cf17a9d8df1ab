/* Plans of a hub from their start to their end, with restarts of each side in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/packet.h"
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/serve_fixture.h"
#include "tests/wait.h"

TEST(each_sample_is_applied_once, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, UINT32_MAX), SAMPLES / BATCH_SAMPLES);
    assert_applied(b, 1);
    struct mr_hub_status s;
    assert_int_equal(mr_hub_status(trainer, NULL, &s), MR_OK);
    assert_true(s.at_end);
    assert_int_equal(s.batches_applied, SAMPLES / BATCH_SAMPLES);
    assert_int_equal(s.batches_handed_out, SAMPLES / BATCH_SAMPLES);
    assert_int_equal(s.batches_handed_again, 0);
    assert_int_equal(s.trainers, 1);
    mr_client_destroy(trainer);
}

TEST(metrics_say_how_the_plan_goes_on, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    assert_non_null(strstr(ask_over_http(b, "/metrics"), "\nmillrace_hub_stage{stage=\"idle\"} 1\n"));
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, UINT32_MAX), SAMPLES / BATCH_SAMPLES);
    const char *text;
    do { /* what the endpoint counts is taken in after each of its polls */
        text = ask_over_http(b, "/metrics");
    } while (strstr(text, "\nmillrace_hub_wire_sessions_accepted_total 1\n") == NULL);
    static const char *const lines[] = {"HTTP/1.1 200 OK\r\n",
                                        "\nmillrace_hub_stage{stage=\"running\"} 1\n",
                                        "\nmillrace_hub_plan_batches 40\n",
                                        "\nmillrace_hub_plan_applied 40\n",
                                        "\nmillrace_hub_batches_handed_out_total 40\n",
                                        "\nmillrace_hub_trainers 1\n",
                                        "\nmillrace_hub_wire_sessions_accepted_total 1\n",
                                        "\nprocess_start_time_seconds "};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("there is no %s in %s", lines[i], text);
    assert_non_null(strstr(ask_over_http(b, "/healthz"), "\r\n\r\nok\n"));
    mr_client_destroy(trainer);
}

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[512]; /* about peers of other versions */

static void hear_log(void *arg, const char *event, const char *message)
{
    (void)arg;
    pthread_mutex_lock(&said_lock);
    if (strcmp(event, "other_version") == 0)
        (void)snprintf(said, sizeof(said), "%s", message);
    pthread_mutex_unlock(&said_lock);
}

static bool is_said(const char *text)
{
    pthread_mutex_lock(&said_lock);
    const bool is_there = strstr(said, text) != NULL;
    pthread_mutex_unlock(&said_lock);
    return is_there;
}

TEST(a_trainer_of_another_version_is_named, set_up, take_down)
{
    const struct bench *b = *state;
    uint8_t hello[MR_VERSION_HELLO_BYTES] = {0};
    const struct mr_packet_header header = {
        .magic = MR_MAGIC, .version = MR_PROTOCOL_VERSION - 1, .type = MR_PACKET_HELLO};
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)atomic_load(&b->hub.port))};
    const int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char says[160];
    memcpy(hello, &header, 4);
    mr_log_listen(hear_log, NULL);
    (void)snprintf(
        says, sizeof(says),
        "speaks version %u of the protocol, and this hub (version %s) version %u: upgrade the peer",
        MR_PROTOCOL_VERSION - 1, mr_version_text(), MR_PROTOCOL_VERSION);
    WAIT_UNTIL((void)sendto(s, hello, sizeof(hello), 0, (const struct sockaddr *)&to, sizeof(to)),
               is_said(says));
    mr_log_listen(NULL, NULL);
    close(s);
    assert_true(is_said(says));
    assert_true(is_said("127.0.0.1:"));
}

TEST(trainers_share_the_batches, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *one = connect_to(hub_address), *two = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    plan.epochs = 3;
    start_plan(one, &plan);
    start_plan(two, &plan);
    uint32_t batches = 0;
    for (uint32_t turn = 0; turn < 20; turn++)
        batches += train(b, turn % 2 == 0 ? one : two, 4);
    batches += train(b, one, UINT32_MAX);
    assert_int_equal(batches, 3 * SAMPLES / BATCH_SAMPLES);
    assert_int_equal(train(b, two, UINT32_MAX), 0);
    assert_applied(b, 3);
    mr_client_destroy(one);
    mr_client_destroy(two);
}

TEST(another_plan_waits_for_the_end, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *one = connect_to(hub_address), *two = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b), other = plan;
    struct mr_sample_info info;
    other.part = MR_PART_HELD_OUT;
    other.held_out_share = 0.5;
    start_plan(one, &plan);
    assert_int_equal(mr_start_sample(two, NULL, &other, &info), MR_ALREADY_STARTED);
    assert_non_null(strstr(mr_last_error(), "part training, not held-out"));
    assert_non_null(strstr(mr_last_error(), "another plan may start when all are"));
    assert_non_null(strstr(mr_last_error(), b->file.path));
    train(b, one, UINT32_MAX);
    start_plan(two, &other);
    struct mr_batch batch;
    assert_int_equal(mr_read_sample(one, NULL, NULL, 0, &batch), MR_END_OF_DATA); /* of its own plan */
    mr_client_destroy(one);
    mr_client_destroy(two);
}

TEST(held_out_batches_end_by_the_trainers_word, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    plan.part = MR_PART_HELD_OUT;
    plan.held_out_share = 0.5;
    for (int reading = 0; reading < 2; reading++) { /* the same plan again is another reading */
        start_plan(trainer, &plan);
        uint64_t done = 0, samples = 0;
        uint32_t done_count = 0;
        struct mr_batch batch;
        while (read_batch(trainer, &done, done_count, &batch) == MR_OK) {
            done = batch.id;
            done_count = 1;
            samples += batch.samples;
            assert_int_equal(mr_forget_batches(b->server, NULL, &done, 1), MR_OK);
            mr_reply_free(batch.reply);
        }
        assert_true(samples > SAMPLES / 3 && samples < SAMPLES * 2 / 3);
    }
    mr_client_destroy(trainer);
}

static bool is_ready(struct bench *b, uint64_t sequence)
{
    pthread_mutex_lock(&b->hub.lock);
    const bool is = hub_plan_state(&b->hub.parts.all[0].plan, sequence) == HUB_BATCH_READY;
    pthread_mutex_unlock(&b->hub.lock);
    return is;
}

static void wait_until_ready(struct bench *b, uint64_t sequence)
{
    WAIT_UNTIL(is_ready(b, sequence));
}

/* With room for one feed: it must not stay taken by a batch that turns out to be over. */
TEST(a_late_word_about_a_batch_fed_again_makes_room, set_up, take_down)
{
    struct bench *b = *state;
    stop_hub(b);
    b->config.prefetch = 1;
    start_hub(b);
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    plan.part = MR_PART_HELD_OUT;
    plan.held_out_share = 0.5;
    start_plan(trainer, &plan);
    struct mr_batch batch;
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_OK);
    uint64_t late = batch.id;
    mr_reply_free(batch.reply);
    wait_until_ready(b, 1);
    pthread_mutex_lock(&b->hub.lock);
    hub_plan_expire(&b->hub.parts.all[0].plan, UINT64_MAX);
    pthread_mutex_unlock(&b->hub.lock);
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_OK);
    uint64_t done = batch.id;
    mr_reply_free(batch.reply);
    wait_until_ready(b, 0);
    assert_int_equal(read_batch(trainer, &late, 1, &batch), MR_OK);
    assert_int_not_equal(batch.id, late);
    assert_int_not_equal(batch.id, done);
    mr_reply_free(batch.reply);
    mr_client_destroy(trainer);
}

TEST(a_dropped_batch_comes_again, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    struct mr_batch batch;
    start_plan(trainer, &plan);
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_OK);
    mr_reply_free(batch.reply);
    uint64_t dropped = batch.id;
    /* Named done without having been pushed: the server's record does not hold it. */
    assert_int_equal(read_batch(trainer, &dropped, 1, &batch), MR_OK);
    learn(b, &batch);
    uint64_t done = batch.id;
    mr_reply_free(batch.reply);
    assert_int_equal(read_batch(trainer, &done, 1, &batch), MR_OK);
    learn(b, &batch);
    mr_reply_free(batch.reply);
    done = batch.id;
    assert_int_equal(read_batch(trainer, &done, 1, &batch), MR_OK);
    learn(b, &batch);
    mr_reply_free(batch.reply);
    train(b, trainer, UINT32_MAX);
    assert_applied(b, 1);
    struct mr_hub_status s;
    assert_int_equal(mr_hub_status(trainer, NULL, &s), MR_OK);
    assert_true(s.batches_handed_again >= 1);
    mr_client_destroy(trainer);
}

TEST(a_server_that_forgot_is_taught_again, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    start_plan(trainer, &plan);
    train_although_the_server_forgets(b, trainer);
    mr_client_destroy(trainer);
}

TEST(a_hub_that_restarts_goes_on, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    start_plan(trainer, &plan);
    uint32_t batches = train(b, trainer, 17);
    mr_client_destroy(trainer);
    stop_hub(b);
    start_hub(b);
    trainer = connect_to(hub_address);
    struct mr_batch batch;
    assert_int_equal(mr_read_sample(trainer, NULL, NULL, 0, &batch), MR_NOT_STARTED);
    start_plan(trainer, &plan);
    batches += train(b, trainer, UINT32_MAX);
    assert_int_equal(batches, SAMPLES / BATCH_SAMPLES);
    assert_applied(b, 1);
    mr_client_destroy(trainer);
}

TEST(a_silent_trainer_loses_its_batches, set_up, take_down)
{
    struct bench *b = *state;
    stop_hub(b);
    b->config.trainer_timeout_us = 50000;
    start_hub(b);
    struct mr_client *silent = connect_to(hub_address), *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    struct mr_batch batches[2];
    start_plan(silent, &plan);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_batch(silent, NULL, 0, &batches[i]), MR_OK);
        mr_reply_free(batches[i].reply);
    }
    mr_client_destroy(silent);
    start_plan(trainer, &plan);
    train(b, trainer, UINT32_MAX);
    assert_applied(b, 1);
    struct mr_hub_status s;
    assert_int_equal(mr_hub_status(trainer, NULL, &s), MR_OK);
    assert_true(s.batches_expired >= 2);
    assert_true(s.batches_handed_again >= 2);
    mr_client_destroy(trainer);
}

/* ---- mistakes ---- */

TEST(mistakes_are_told, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    struct mr_sample_info info;
    struct mr_batch batch;
    assert_int_equal(mr_read_sample(trainer, NULL, NULL, 0, &batch), MR_NOT_STARTED);
    plan.format = "parquet";
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "libsvm, criteo, flights"));
    plan.format = "criteo";
    plan.path = "/proc/self/nothing";
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), plan.path));
    plan = plan_of(b);
    plan.format = "libsvm";
    plan.strict = true;
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_BAD_MESSAGE);
    assert_non_null(strstr(mr_last_error(), ":1: broken line"));
    plan.strict = false; /* a few broken lines are counted; a file of another format is none */
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_BAD_MESSAGE);
    assert_non_null(strstr(mr_last_error(), "400 of 400 lines are broken, the first is line 1: "));
    assert_non_null(strstr(mr_last_error(), "it is a line of criteo"));
    uint64_t id;
    assert_int_equal(save_into(trainer, NULL, NULL, &id), MR_UNKNOWN_OP);
    assert_non_null(strstr(mr_last_error(), "a hub does not serve save: name the parameter server"));
    mr_client_destroy(trainer);
}

/* The first sample gets another category, or its own back. */
static void change_samples(const struct bench *b)
{
    char line[256];
    assert_int_equal(pread(b->file.fd, line, sizeof(line), 0), sizeof(line));
    const char *end = memchr(line, '\n', sizeof(line));
    assert_non_null(end);
    const char category = end[-1] == '0' ? '8' : '0';
    assert_int_equal(pwrite(b->file.fd, &category, 1, end - 1 - line), 1);
}

static uint32_t streams_of(struct bench *b)
{
    struct mr_stream *streams;
    uint32_t count;
    assert_int_equal(mr_streams(b->server, NULL, &streams, &count), MR_OK);
    free(streams);
    return count;
}

/* The number that the hub would take for this plan, if nobody had it. */
static uint32_t number_of(const struct bench *b, uint32_t run)
{
    struct hub_request r = {.batch_samples = BATCH_SAMPLES, .epochs = 1, .shuffle_seed = 1, .run = run};
    snprintf(r.path, sizeof(r.path), "%s", b->file.path);
    snprintf(r.format, sizeof(r.format), "criteo");
    snprintf(r.table, sizeof(r.table), TABLE);
    return hub_request_stream(&r, 0);
}

/* As hourly plans do, which differ by their run: 16 bits of a hash bring two together within some hundred. */
TEST(plans_that_want_one_stream_are_both_applied, set_up, take_down)
{
    struct bench *b = *state;
    static uint32_t run_of[65536];
    struct mr_sample_plan plan = plan_of(b);
    uint32_t run = 1, number;
    memset(run_of, 0, sizeof(run_of));
    for (; run_of[number = number_of(b, run)] == 0; run++)
        run_of[number] = run;
    const uint32_t runs[3] = {run_of[number], run, run_of[number]};
    for (uint32_t i = 0; i < 3; i++) {
        struct mr_client *trainer = connect_to(hub_address);
        plan.run = runs[i];
        start_plan(trainer, &plan);
        assert_int_equal(train(b, trainer, UINT32_MAX), i < 2 ? SAMPLES / BATCH_SAMPLES : 0);
        mr_client_destroy(trainer);
    }
    assert_applied(b, 2);
    assert_int_equal(streams_of(b), 2);
}

TEST(samples_that_change_end_their_plan, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    struct mr_sample_info info;
    struct mr_batch batch;
    enum mr_status status = MR_OK;
    start_plan(trainer, &plan);
    train(b, trainer, 5);
    change_samples(b);
    while ((status = read_batch(trainer, NULL, 0, &batch)) == MR_OK) /* those fed before */
        mr_reply_free(batch.reply);
    assert_int_equal(status, MR_IO_ERROR);
    assert_non_null(strstr(mr_last_error(), "has changed since its plan began: it was written to"));
    /* Not as this plan, of which batches of the other samples were applied; also after a restart of the
     * hub. */
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_ALREADY_STARTED);
    assert_non_null(strstr(mr_last_error(), "other samples than when this plan began"));
    mr_client_destroy(trainer);
    stop_hub(b);
    start_hub(b);
    trainer = connect_to(hub_address);
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_ALREADY_STARTED);
    assert_non_null(strstr(mr_last_error(), "another `run`"));
    change_samples(b); /* they are back */
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, 3), 3);
    mr_client_destroy(trainer);
}

/* A job that writes its samples to the same place each time, and forgot to count its runs. */
TEST(other_samples_are_no_plan_that_is_at_its_end, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address), *late = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    struct mr_sample_info info;
    struct mr_batch batch;
    start_plan(trainer, &plan);
    train(b, trainer, UINT32_MAX);
    start_plan(late, &plan); /* unchanged: at its end */
    assert_int_equal(read_batch(late, NULL, 0, &batch), MR_END_OF_DATA);
    change_samples(b);
    assert_int_equal(mr_start_sample(late, NULL, &plan, &info), MR_ALREADY_STARTED);
    assert_non_null(strstr(mr_last_error(), "batches applied of these: 40"));
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_END_OF_DATA);
    plan.run = 1;
    start_plan(late, &plan);
    assert_int_equal(train(b, late, UINT32_MAX), SAMPLES / BATCH_SAMPLES);
    mr_client_destroy(trainer);
    mr_client_destroy(late);
}

TEST(held_out_samples_leave_no_stream, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    start_plan(trainer, &plan);
    train(b, trainer, UINT32_MAX);
    for (uint32_t reading = 0; reading < 3; reading++) {
        plan.part = MR_PART_HELD_OUT;
        plan.held_out_share = 0.1;
        start_plan(trainer, &plan);
        assert_int_equal(streams_of(b), 2); /* the training's, and this reading's */
        uint64_t done = 0;
        uint32_t done_count = 0;
        struct mr_batch batch;
        while (read_batch(trainer, &done, done_count, &batch) == MR_OK) {
            done = batch.id;
            done_count = 1;
            mr_reply_free(batch.reply);
            assert_int_equal(mr_forget_batches(b->server, NULL, &done, 1), MR_OK);
        }
    }
    mr_client_destroy(trainer);
}

TEST(a_table_that_is_not_there_is_named, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address), *other = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    struct mr_batch batch;
    plan.table = "fn";
    start_plan(trainer, &plan);
    enum mr_status status;
    WAIT_UNTIL((status = mr_read_sample(trainer, NULL, NULL, 0, &batch)) != MR_NOT_READY ||
               strstr(mr_last_error(), "has no table 'fn'") != NULL);
    assert_int_equal(status, MR_NOT_READY);
    const struct mr_feature table = mr_feature_table("fn", 4);
    assert_int_equal(mr_create(b->server, NULL, &table, 1, &b->table), MR_OK);
    assert_int_equal(train(b, trainer, UINT32_MAX), SAMPLES / BATCH_SAMPLES);
    mr_client_destroy(trainer);
    mr_client_destroy(other);
}

/* Trainers are told the reason instead of a batch. Returns the status once it is another than NOT_READY. */
static enum mr_status wait_for_reason(struct mr_client *trainer, const char *reason)
{
    struct mr_batch batch;
    enum mr_status status;
    WAIT_UNTIL((status = mr_read_sample(trainer, NULL, NULL, 0, &batch)) != MR_NOT_READY ||
               strstr(mr_last_error(), reason) != NULL);
    if (strstr(mr_last_error(), reason) == NULL)
        fail_msg("no reason \"%s\": %s", reason, mr_last_error());
    return status;
}

TEST(a_batch_that_the_server_refuses_fails_the_plan, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    plan.shuffle_seed = 0;
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, 4), 4);
    live_node_refuse(b->node, MR_OP_FEED_SAMPLE, MR_INVALID_ARGUMENT, LIVE_ALL_CORES);
    struct mr_batch batch;
    enum mr_status status;
    do { /* those that were fed before */
        status = read_batch(trainer, NULL, 0, &batch);
        if (status == MR_OK)
            mr_reply_free(batch.reply);
    } while (status == MR_OK);
    assert_int_equal(status, MR_INVALID_ARGUMENT);
    /* Which one it is depends on how far the hub was. */
    const char *says = strstr(mr_last_error(), "the parameter server refuses batch ");
    unsigned int number, first, last;
    assert_non_null(says);
    assert_int_equal(
        sscanf(says, "%*s %*s %*s %*s batch %u of %*s (samples %u to %u): ", &number, &first, &last), 3);
    assert_true(number >= 4 && first == number * BATCH_SAMPLES && last == first + BATCH_SAMPLES - 1);
    mr_client_destroy(trainer);
}

TEST(a_refusal_that_passes_is_told_until_then, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = plan_of(b);
    live_node_refuse(b->node, MR_OP_FEED_SAMPLE, MR_OUT_OF_MEMORY, LIVE_ALL_CORES);
    start_plan(trainer, &plan);
    assert_int_equal(wait_for_reason(trainer, "the parameter server refuses batch 0 of "), MR_NOT_READY);
    assert_non_null(strstr(mr_last_error(), "memory limit"));
    live_node_refuse(b->node, MR_OP_FEED_SAMPLE, MR_OK, LIVE_ALL_CORES);
    assert_int_equal(train(b, trainer, UINT32_MAX), SAMPLES / BATCH_SAMPLES);
    assert_applied(b, 1);
    mr_client_destroy(trainer);
}

/* A plan of no samples is at its end at once, whether the server has its table or not: it keeps nobody
 * out. */
TEST(a_plan_of_no_batches_is_over, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address), *other = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    struct mr_batch batch;
    struct temp_file empty = temp_file_text("\n");
    plan.path = empty.path;
    plan.table = "nothing";
    start_plan(trainer, &plan);
    assert_int_equal(mr_read_sample(trainer, NULL, NULL, 0, &batch), MR_END_OF_DATA);
    plan = plan_of(b);
    start_plan(other, &plan);
    assert_int_equal(train(b, other, UINT32_MAX), SAMPLES / BATCH_SAMPLES);
    mr_client_destroy(trainer);
    mr_client_destroy(other);
    close(empty.fd);
}

TEST(it_is_a_node_of_one_core, set_up, take_down)
{
    struct mr_client *client = connect_to(hub_address);
    struct mr_core_state core;
    struct mr_reply *reply;
    uint64_t numbers[3] = {1, 2, 3};
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 3, numbers);
    assert_int_equal(mr_client_core_count(client), 1);
    assert_int_equal(mr_heartbeat(client, NULL, &core), MR_OK);
    assert_int_equal(core.state, 1);
    assert_true(core.incarnation > 0);
    assert_int_equal(mr_echo(client, NULL, 0, &tensor, 1, &reply), MR_OK);
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, numbers, sizeof(numbers));
    mr_reply_free(reply);
    mr_client_destroy(client);
}

TEST(a_wrong_address_ends_it)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    char error[HUB_ERROR_BYTES];
    const struct hub_config config = {
        .listen = "127.0.0.1:0", .server = "127.0.0.1:port", .prefetch = 1, .trainer_timeout_us = 1};
    assert_non_null(hub);
    assert_true(hub_init(hub, &config));
    assert_int_equal(hub_serve(hub, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "127.0.0.1:port"));
    hub_free(hub);
    free(hub);
}

TEST(other_machines_need_a_key_or_an_option)
{
    static const char *const others[] = {"0.0.0.0:0", ":0", "[::]:0"};
    char error[HUB_ERROR_BYTES];
    for (uint32_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        struct hub *hub = calloc(1, sizeof(*hub));
        struct hub_config config = {
            .listen = others[i], .server = "127.0.0.1:port", .prefetch = 1, .trainer_timeout_us = 1};
        assert_non_null(hub);
        assert_true(hub_init(hub, &config));
        assert_int_equal(hub_serve(hub, error), MR_INVALID_ARGUMENT);
        assert_non_null(strstr(error, "needs a key"));
        hub->config.without_key = true;
        assert_int_equal(hub_serve(hub, error), MR_INVALID_ARGUMENT);
        assert_non_null(strstr(error, "127.0.0.1:port")); /* it listens, and fails later */
        hub_free(hub);
        free(hub);
    }
}

TEST(files_elsewhere_are_refused, set_up, take_down)
{
    struct bench *b = *state;
    char error[HUB_ERROR_BYTES];
    const char *directory = "/usr";
    struct mr_sample_info info;
    stop_hub(b);
    struct hub_allowed *allowed = hub_allowed_create(&directory, 1, error);
    assert_non_null(allowed);
    b->config.allowed = allowed;
    start_hub(b);
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = plan_of(b);
    plan.path = "/etc/shadow";
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_UNAUTHORIZED);
    assert_non_null(strstr(mr_last_error(), "/etc/shadow: this hub reads files for trainers only below"));
    mr_client_destroy(trainer);
    stop_hub(b);
    hub_allowed_destroy(allowed);
    b->config.allowed = NULL;
    start_hub(b);
}

int main(void)
{
    return tests_run(make_formats, free_formats);
}
