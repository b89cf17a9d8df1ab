/* A hub that reads a topic, between a mock of a Kafka cluster, a node and a trainer: each message
 * is applied once, whichever of them is lost in between. */
#include <limits.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/block_bytes.h"
#include "tests/unit/trainer_client/hub/kafka/kafka_mock.h"
#include "tests/unit/trainer_client/hub/serve_fixture.h"
#include "tests/wait.h"

static struct kafka_mock kafka;

static int set_up_kafka(void **state)
{
    if (set_up(state) != 0)
        return -1;
    struct bench *b = *state;
    stop_hub(b);
    b->config.kafka_brokers = kafka.brokers;
    b->config.kafka_config = kafka.config;
    start_hub(b);
    return 0;
}

static void put_samples(const char *topic, int32_t partition, uint32_t first, uint32_t count)
{
    for (uint32_t n = first; n < first + count; n++) {
        char line[100];
        size_t bytes = (size_t)sprintf(line, "%u\t%u", n % 2, n);
        memset(line + bytes, '\t', 38);
        bytes += 38;
        bytes += (size_t)sprintf(line + bytes, "%x", n % 7);
        kafka_mock_put(&kafka, topic, partition, line, bytes);
    }
    kafka_mock_flush(&kafka);
}

static void restart_hub(struct bench *b)
{
    stop_hub(b);
    start_hub(b);
}

static uint32_t applied_samples(const struct bench *b)
{
    uint32_t samples = 0;
    for (uint32_t n = 0; n < SAMPLES; n++)
        samples += b->applied[n];
    return samples;
}

/* Of three partitions, of which one joins in later. */
TEST(a_topic_goes_on_where_it_was, set_up_kafka, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("kafka:clicks");
    uint32_t batches = 0;
    kafka_mock_topic(&kafka, "clicks", 3);
    put_samples("clicks", 0, 0, 200);
    put_samples("clicks", 1, 200, 100);
    for (int start = 0; start < 3; start++) {
        struct mr_client *trainer = connect_to(hub_address);
        start_plan(trainer, &plan);
        if (start == 1)
            put_samples("clicks", 2, 300, 100);
        static const uint32_t batches_of[] = {13, 10, 17};
        batches += train(b, trainer, batches_of[start]);
        if (start == 2) {
            assert_int_equal(batches, SAMPLES / BATCH_SAMPLES);
            atomic_store(&b->hub.ending, true);
            assert_int_equal(train(b, trainer, UINT32_MAX), 0);
            wait_for_end(b);
        } else {
            restart_hub(b);
        }
        mr_client_destroy(trainer);
    }
    assert_applied(b, 1);
}

/* One of the trainers, and the batch that it had last, of which its hub is told: where the server that was
 * killed did not apply it, it comes again. */
struct in_turn {
    struct mr_client *trainer;
    uint64_t done;
    uint32_t done_count;
};

/* Trains on a batch, if there is one. */
static void train_one(struct bench *b, struct in_turn *t)
{
    struct mr_batch batch;
    const enum mr_status status = mr_read_sample(t->trainer, NULL, &t->done, t->done_count, &batch);
    t->done_count = 0;
    if (status == MR_NOT_READY)
        return;
    assert_int_equal(status, MR_OK);
    learn(b, &batch);
    t->done = batch.id;
    t->done_count = 1;
    mr_reply_free(batch.reply);
}

/* By two hubs in turn, until so many samples are applied. */
static void train_in_turn(struct bench *b, struct mr_client *const trainers[2], uint32_t samples)
{
    struct in_turn turns[2] = {{.trainer = trainers[0]}, {.trainer = trainers[1]}};
    uint32_t i = 0;
    WAIT_UNTIL(applied_samples(b) >= samples || (train_one(b, &turns[i++ % 2]), false));
    assert_int_equal(applied_samples(b), samples);
}

/* Of two hubs with the same plan, one of which is started again, and of a server that forgets. */
TEST(a_partition_that_is_added_joins_the_plan_that_is_running, set_up_kafka, take_down)
{
    struct bench *b = *state;
    static struct bench other;
    const struct mr_sample_plan plan = live_plan("kafka:added");
    kafka_mock_topic(&kafka, "added", 4);
    put_samples("added", 0, 0, 100);
    put_samples("added", 1, 100, 50);
    put_samples("added", 2, 200, 50); /* before any hub knows of the partition */
    atomic_store(&kafka_mock_shown_partitions, 2);
    struct mr_client *trainers[2] = {connect_to(hub_address)};
    other.config = b->config;
    start_hub(&other);
    trainers[1] = connect_to(hub_address);
    for (int i = 0; i < 2; i++)
        start_plan(trainers[i], &plan);
    train_in_turn(b, trainers, 150);
    for (uint32_t n = 0; n < SAMPLES; n++)
        assert_int_equal(b->applied[n], n < 150);
    atomic_store(&kafka_mock_shown_partitions, INT_MAX);
    train_in_turn(b, trainers, 160); /* whichever hub finds it first */
    mr_client_destroy(trainers[1]);
    stop_hub(&other);
    start_hub(&other);
    trainers[1] = connect_to(hub_address);
    start_plan(trainers[1], &plan);
    put_samples("added", 2, 250, 50);
    put_samples("added", 3, 300, 100);
    put_samples("added", 0, 150, 50);
    train_in_turn(b, trainers, SAMPLES);
    assert_applied(b, 1);
    live_node_kill(b->node);
    memset(b->applied, 0, sizeof(b->applied));
    live_node_restart(b->node);
    train_in_turn(b, trainers, SAMPLES);
    assert_applied(b, 1);
    for (int i = 0; i < 2; i++)
        mr_client_destroy(trainers[i]);
    stop_hub(&other);
}

/* All messages are in partitions that the plan does not know when it begins. */
TEST(a_plan_without_messages_waits_for_partitions_too, set_up_kafka, take_down)
{
    struct mr_sample_plan plan = live_plan("kafka:late");
    struct mr_sample_info info;
    struct mr_batch batch;
    struct mr_future *started = NULL;
    static struct block_bytes bytes;
    plan.format = HUB_BLOCK_FORMAT;
    block_put_samples(&bytes, 0, 3, false);
    kafka_mock_topic(&kafka, "late", 2);
    for (uint32_t i = 0; i < BATCH_SAMPLES; i++)
        kafka_mock_put(&kafka, "late", 1, bytes.bytes, bytes.used);
    kafka_mock_flush(&kafka);
    atomic_store(&kafka_mock_shown_partitions, 1);
    struct mr_client *trainer = connect_to(hub_address);
    const uint32_t answers = atomic_load(&kafka_mock_answers);
    assert_int_equal(mr_start_sample(trainer, &(struct mr_options){.future = &started}, &plan, &info), MR_OK);
    WAIT_UNTIL(atomic_load(&kafka_mock_answers) >= answers + 3); /* the topic is open, without messages */
    atomic_store(&kafka_mock_shown_partitions, INT_MAX);
    assert_int_equal(mr_future_wait(started, NULL), MR_OK);
    mr_future_destroy(started);
    assert_int_equal(info.slots, 2);
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_OK);
    assert_int_equal(batch.samples, 3 * BATCH_SAMPLES);
    mr_reply_free(batch.reply);
    mr_client_destroy(trainer);
}

TEST(metrics_say_how_far_the_partitions_are, set_up_kafka, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("kafka:lags");
    kafka_mock_topic(&kafka, "lags", 2);
    put_samples("lags", 0, 0, 24);
    put_samples("lags", 1, 100, 10);
    struct mr_client *trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, 3), 3);
    const char *text;
    do { /* what is applied is asked for now and then */
        text = ask_over_http(b, "/metrics");
    } while (strstr(text, "\nmillrace_hub_kafka_lag{partition=\"0\"} 4\n") == NULL ||
             strstr(text, "\nmillrace_hub_kafka_lag{partition=\"1\"} 0\n") == NULL);
    assert_non_null(strstr(text, "\nmillrace_hub_plan_applied 3\n"));
    mr_client_destroy(trainer);
}

TEST(batches_come_again_to_a_server_that_forgot, set_up_kafka, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("kafka:forgotten");
    kafka_mock_topic(&kafka, "forgotten", 2);
    put_samples("forgotten", 0, 0, SAMPLES / 2);
    put_samples("forgotten", 1, SAMPLES / 2, SAMPLES / 2);
    struct mr_client *trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    train(b, trainer, 20);
    live_node_kill(b->node);
    memset(b->applied, 0, sizeof(b->applied));
    live_node_restart(b->node);
    while (applied_samples(b) < SAMPLES)
        train(b, trainer, 1);
    assert_applied(b, 1);
    mr_client_destroy(trainer);
}

/* Trainers do not get them, and they hold nobody up. */
TEST(batches_without_samples_are_applied_by_the_hub, set_up_kafka, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("kafka:tombstones");
    kafka_mock_topic(&kafka, "tombstones", 1);
    put_samples("tombstones", 0, 0, 15);
    for (uint32_t n = 0; n < 45; n++)
        kafka_mock_put(&kafka, "tombstones", 0, NULL, 0);
    put_samples("tombstones", 0, 15, 10);
    struct mr_client *trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, 3), 3);
    for (uint32_t n = 0; n < SAMPLES; n++)
        assert_int_equal(b->applied[n], n < 25);
    struct mr_hub_status s;
    do {
        assert_int_equal(mr_hub_status(trainer, NULL, &s), MR_OK);
    } while (s.batches_applied < 7);
    assert_int_equal(s.batches_handed_out, 3);
    mr_client_destroy(trainer);
}

TEST(what_retention_deleted_ends_the_plan, set_up_kafka, take_down)
{
    struct bench *b = *state;
    static char large[900000];
    struct mr_sample_plan plan = live_plan("kafka:retention");
    struct mr_batch batch;
    kafka_mock_topic(&kafka, "retention", 1);
    put_samples("retention", 0, 0, 30);
    struct mr_client *trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    train(b, trainer, 1);
    mr_client_destroy(trainer);
    stop_hub(b);
    for (int i = 0; i < 9; i++) /* the mock keeps 5 MiB */
        kafka_mock_put(&kafka, "retention", 0, large, sizeof(large));
    put_samples("retention", 0, 100, 25);
    start_hub(b);
    trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_IO_ERROR);
    assert_non_null(strstr(mr_last_error(), "kafka:retention[0]: retention has deleted offsets 10 to "));
    assert_non_null(strstr(ask_over_http(b, "/healthz"), "the plan has failed"));
    struct mr_sample_info info; /* the same plan again: it fails again, at once or when a batch is read */
    enum mr_status status = mr_start_sample(trainer, NULL, &plan, &info);
    assert_int_equal(status == MR_OK ? read_batch(trainer, NULL, 0, &batch) : status, MR_IO_ERROR);
    assert_non_null(strstr(mr_last_error(), "kafka:retention[0]: retention has deleted offsets 10 to "));
    plan.run = 1;
    start_plan(trainer, &plan); /* what is there: some of the large ones, and samples */
    for (uint32_t n = 100; n < 110; n++)
        while (b->applied[n] == 0)
            train(b, trainer, 1);
    mr_client_destroy(trainer);
}

/* Answers of the broker to fetches that will be refusals. */
static size_t refusals_left(int32_t broker)
{
    size_t count = 0;
    assert_int_equal(rd_kafka_mock_broker_error_stack_cnt(kafka.cluster, broker, KAFKA_FETCH, &count),
                     RD_KAFKA_RESP_ERR_NO_ERROR);
    return count;
}

/* A request that waits for messages may leave its refusal out. */
static void refuse_one(int32_t broker)
{
    if (refusals_left(broker) == 0)
        rd_kafka_mock_broker_push_request_error_rtts(kafka.cluster, broker, KAFKA_FETCH, 1,
                                                     RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 0);
}

/* One that has had no message yet, while the other one is trained on. */
TEST(a_partition_that_cannot_be_read_ends_the_plan, set_up_kafka, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("kafka:revoked");
    struct mr_batch batch;
    enum mr_status status;
    kafka_mock_topic(&kafka, "revoked", 2);
    for (int32_t i = 0; i < 2; i++) /* each broker leads one */
        assert_int_equal(rd_kafka_mock_partition_set_leader(kafka.cluster, "revoked", i, i + 1),
                         RD_KAFKA_RESP_ERR_NO_ERROR);
    put_samples("revoked", 0, 0, 30);
    struct mr_client *trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    assert_int_equal(train(b, trainer, 3), 3);
    WAIT_UNTIL(refuse_one(2), (status = mr_read_sample(trainer, NULL, NULL, 0, &batch)) != MR_NOT_READY);
    assert_int_equal(status, MR_IO_ERROR);
    assert_non_null(strstr(mr_last_error(), "kafka:revoked[1] cannot be read from offset "));
    WAIT_UNTIL(refusals_left(2) == 0);
    start_plan(trainer, &plan); /* once it may be read */
    put_samples("revoked", 1, 30, 10);
    assert_int_equal(train(b, trainer, 1), 1);
    for (uint32_t n = 0; n < SAMPLES; n++)
        assert_int_equal(b->applied[n], n < 40);
    mr_client_destroy(trainer);
}

/* All messages of all partitions, whenever the plan is started; offsets without samples end no plan. */
TEST(messages_without_labels_are_scored, set_up_kafka, take_down)
{
    struct bench *b = *state;
    static struct block_bytes blocks;
    struct mr_sample_plan plan = live_plan("kafka:unlabelled?messages=2");
    struct mr_sample_info info;
    struct mr_stream *streams;
    uint32_t count;
    plan.format = "batches";
    kafka_mock_topic(&kafka, "unlabelled", 3);
    for (uint32_t i = 0; i < 12; i++) { /* a batch of each partition has no messages with a value */
        blocks.used = 0;
        block_put_flagged(&blocks, 2 * i, 2, HUB_BLOCK_NO_LABELS);
        const bool is_empty = i / 3 == 2 || i / 3 == 3;
        kafka_mock_put(&kafka, "unlabelled", (int32_t)(i % 3), is_empty ? NULL : blocks.bytes,
                       is_empty ? 0 : blocks.used);
    }
    for (uint32_t i = 12; i < 18; i++) {
        blocks.used = 0;
        block_put_flagged(&blocks, 2 * i, 2, HUB_BLOCK_NO_LABELS);
        kafka_mock_put(&kafka, "unlabelled", (int32_t)(i % 3), blocks.bytes, blocks.used);
    }
    kafka_mock_flush(&kafka);
    struct mr_client *trainer = connect_to(hub_address);
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_BAD_MESSAGE);
    assert_non_null(strstr(mr_last_error(), "it has no labels to train on"));
    plan.part = MR_PART_HELD_OUT;
    for (uint32_t start = 1; start <= 2; start++) {
        assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_OK);
        assert_int_equal(score(b, trainer, 6, false), 6);
        for (uint32_t n = 0; n < 36; n++)
            assert_int_equal(b->applied[n], n < 12 || n >= 24 ? start : 0);
        atomic_store(&b->hub.ending, true);
        assert_int_equal(score(b, trainer, UINT32_MAX, false), 0);
        wait_for_end(b);
        assert_int_equal(mr_streams(b->server, NULL, &streams, &count), MR_OK);
        assert_int_equal(count, 0); /* of three partitions */
        free(streams);
        mr_client_destroy(trainer);
        trainer = connect_to(hub_address);
    }
    mr_client_destroy(trainer);
}

static const char first_description[] =
    "[format]\nname = own\nlabel = y\nheader = none\n[columns]\ny = flag\n"
    "n = text\n[slots]\nn = n\n",
                  second_description[] =
                      "[format]\nname = own\nlabel = y\nheader = none\n[columns]\ny = flag\n"
                      "n = number\n[slots]\nn = range(n)\n";

TEST(another_description_is_another_plan, set_up_kafka, take_down)
{
    struct bench *b = *state;
    char why[HUB_FORMAT_ERROR_BYTES];
    struct mr_sample_plan plan = live_plan("kafka:own?messages=2");
    struct mr_sample_info info;
    struct mr_batch batch;
    plan.format = "own";
    kafka_mock_topic(&kafka, "own", 1);
    for (int i = 0; i < 4; i++)
        kafka_mock_put(&kafka, "own", 0, "1,7", 3);
    kafka_mock_flush(&kafka);
    for (int start = 0; start < 2; start++) {
        struct hub_format *format = read_format(start == 0 ? first_description : second_description, why);
        struct hub_formats own = {.all = {format}, .count = 1};
        stop_hub(b);
        b->config.formats = &own;
        start_hub(b);
        struct mr_client *trainer = connect_to(hub_address);
        assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info),
                         start == 0 ? MR_OK : MR_ALREADY_STARTED);
        if (start == 0) {
            assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_OK);
            assert_int_equal(batch.samples, 2);
            const float zeros[8] = {0};
            const struct mr_batch_gradient gradient = {b->table, mr_tensor_3d(MR_F32, 2, 1, 4, zeros)};
            assert_int_equal(mr_push_gradients_batch(b->server, NULL, batch.id, &gradient, 1, NULL), MR_OK);
            mr_reply_free(batch.reply);
        } else {
            assert_non_null(strstr(mr_last_error(), "holds other samples than when this plan began"));
        }
        mr_client_destroy(trainer);
        stop_hub(b);
        b->config.formats = formats;
        start_hub(b);
        hub_format_free(format);
    }
}

TEST(mistakes_are_told, set_up_kafka, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = live_plan("kafka://broker/topic");
    struct mr_sample_info info;
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "a path is kafka:TOPIC or kafka:TOPIC?messages=N"));
    plan.path = "kafka:clicks";
    plan.epochs = 2;
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "is read once, in its order"));
    mr_client_destroy(trainer);
    stop_hub(b);
    b->config.kafka_brokers = b->config.kafka_config = NULL;
    start_hub(b);
    trainer = connect_to(hub_address);
    plan.epochs = 1;
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "--kafka HOST:PORT,..."));
    mr_client_destroy(trainer);
}

static int serve_kafka_start(void **state)
{
    kafka_mock_start(&kafka, 2);
    return make_formats(state);
}

static int serve_kafka_end(void **state)
{
    kafka_mock_stop(&kafka);
    return free_formats(state);
}

int main(void)
{
    return tests_run(serve_kafka_start, serve_kafka_end);
}
