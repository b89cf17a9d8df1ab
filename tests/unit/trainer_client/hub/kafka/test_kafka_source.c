/* Batches of a topic's partitions, from a mock of a Kafka cluster: cut at offsets, the same at each start. */
#include <limits.h>
#include <math.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/block_bytes.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/kafka/kafka_mock.h"
#include "trainer_client/hub/kafka/kafka_config.h"
#include "trainer_client/hub/kafka/kafka_source.h"
#include "trainer_client/hub/kafka/kafka_topic.h"
#include "trainer_client/hub/plan/parts.h"
#include "trainer_client/hub/plan/plan.h"

#define LIMIT_S 60

static char error_text[HUB_ERROR_BYTES];
static struct kafka_mock kafka;
static sem_t come; /* posted when something may have come */
static uint32_t broken_shown;

static void on_batch(void *arg)
{
    sem_post(&come);
}

static void on_broken_line(void *arg, const char *path, uint64_t offset, const char *reason)
{
    assert_non_null(strstr(path, "kafka:"));
    broken_shown++;
}

/* Between two looks at what has come; errors of a broker come without a message. */
static void wait_a_little(void)
{
    struct timespec until;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_nsec += 5000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)sem_timedwait(&come, &until);
}

static struct hub_request request_of(const char *path)
{
    struct hub_request r = {.format = "criteo", .batch_samples = 4, .epochs = 1};
    snprintf(r.path, sizeof(r.path), "%s", path);
    return r;
}

static enum mr_status open_request(const struct hub_request *request, struct hub_batch_source **s)
{
    const struct hub_batch_source_options options = {.request = request,
                                                     .formats = formats,
                                                     .kafka_brokers = kafka.brokers,
                                                     .kafka_config = kafka.config,
                                                     .on_broken_line = on_broken_line,
                                                     .on_batch = on_batch};
    return hub_kafka_source_open(&options, s, error_text);
}

static struct hub_batch_source *open_source(const char *path)
{
    struct hub_batch_source *s = NULL;
    const struct hub_request request = request_of(path);
    if (open_request(&request, &s) != MR_OK)
        fail_msg("%s", error_text);
    return s;
}

static time_t limit(void)
{
    return time(NULL) + LIMIT_S;
}

static enum mr_status kafka_source_begin(struct hub_batch_source *s, uint32_t partition,
                                         const uint64_t *known, uint64_t *data)
{
    enum mr_status status = MR_NOT_READY;
    for (time_t until = limit(); status == MR_NOT_READY && time(NULL) < until;) {
        status = hub_batch_source_begin(s, partition, known, data, error_text);
        if (status == MR_NOT_READY)
            wait_a_little();
    }
    return status;
}

static enum mr_status build(struct hub_batch_source *s, uint32_t partition, uint64_t sequence,
                            struct hub_batch *b)
{
    enum mr_status status = MR_NOT_READY;
    for (time_t until = limit(); status == MR_NOT_READY && time(NULL) < until;) {
        status = hub_batch_source_build(s, partition, sequence, b, error_text);
        if (status == MR_NOT_READY)
            wait_a_little();
    }
    return status;
}

static const char *criteo_line(uint32_t n)
{
    static char line[128];
    size_t bytes = (size_t)sprintf(line, "%u\t%u", n % 2, n);
    memset(line + bytes, '\t', 38);
    (void)sprintf(line + bytes + 38, "%x", n);
    return line;
}

static void put_text(const char *topic, int32_t partition, const char *text)
{
    kafka_mock_put(&kafka, topic, partition, text, strlen(text));
}

/* One sample in each message. */
static void put_lines(const char *topic, int32_t partition, uint32_t first, uint32_t count)
{
    for (uint32_t n = first; n < first + count; n++)
        put_text(topic, partition, criteo_line(n));
    kafka_mock_flush(&kafka);
}

/* The batch's samples are first, first + 1, ... */
static void check_lines(const struct hub_batch *b, uint32_t first, uint32_t samples)
{
    assert_int_equal(b->samples, samples);
    assert_int_equal(b->key_count, samples);
    if (b->dense == NULL) {
        fail_msg("a batch without dense values");
        return;
    }
    for (uint32_t i = 0; i < samples; i++) {
        assert_int_equal((uint32_t)lrint(expm1((double)b->dense[i * b->dense_count])), first + i);
        assert_int_equal((uint32_t)lrintf(b->labels[i]), (first + i) % 2);
    }
}

/* The next answers to fetches; a request that waits for messages may leave its one out. */
static void refuse_fetches(rd_kafka_resp_err_t code)
{
    rd_kafka_resp_err_t refused[20];
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        refused[i] = code;
    rd_kafka_mock_push_request_errors_array(kafka.cluster, KAFKA_FETCH, sizeof(refused) / sizeof(refused[0]),
                                            refused);
}

TEST(each_partition_has_batches_of_its_own)
{
    struct hub_batch b = {0};
    uint64_t data[3];
    kafka_mock_topic(&kafka, "parts", 3);
    put_lines("parts", 0, 0, 10);
    put_lines("parts", 2, 1000, 8);
    struct hub_batch_source *s = open_source("kafka:parts");
    assert_int_equal(hub_batch_source_parts(s), 3);
    while (hub_batch_source_ready(s, error_text) ==
           MR_NOT_READY) /* until each has told whether it has messages */
        wait_a_little();
    assert_int_equal(hub_batch_source_ready(s, error_text), MR_OK);
    assert_int_equal(hub_batch_source_look(s, 0, error_text), MR_OK);
    assert_int_equal(hub_batch_source_look(s, 2, error_text), MR_OK);
    assert_int_not_equal(hub_batch_source_salt(s, 0), hub_batch_source_salt(s, 2));
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data[0]), MR_OK);
    assert_int_equal(kafka_source_begin(s, 2, NULL, &data[2]), MR_OK);
    assert_int_equal(build(s, 2, 0, &b), MR_OK);
    check_lines(&b, 1000, 4);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    check_lines(&b, 0, 4);
    assert_int_equal(build(s, 2, 1, &b), MR_OK);
    check_lines(&b, 1004, 4);
    assert_int_equal(b.sequence, 1);
    assert_int_equal(build(s, 0, 1, &b), MR_OK);
    check_lines(&b, 4, 4);
    assert_int_equal(hub_batch_source_build(s, 0, 2, &b, error_text), MR_NOT_READY); /* two of four */
    assert_int_equal(hub_batch_source_lag(s, 0, 1), 6);
    put_lines("parts", 0, 10, 2);
    assert_int_equal(build(s, 0, 2, &b), MR_OK);
    check_lines(&b, 8, 4);
    assert_int_equal(hub_batch_source_begin(s, 1, NULL, &data[1], error_text), MR_NOT_READY);
    assert_int_equal(hub_batch_source_look(s, 1, error_text), MR_NOT_READY);
    put_lines("parts", 1, 7, 4); /* it joins in with its first message */
    assert_int_equal(kafka_source_begin(s, 1, NULL, &data[1]), MR_OK);
    assert_int_equal(build(s, 1, 0, &b), MR_OK);
    check_lines(&b, 7, 4);
    assert_int_equal(hub_batch_source_batches(s, 1), HUB_BATCHES_UNKNOWN);
    hub_batch_source_finish(s);
    assert_int_equal(hub_batch_source_batches(s, 0), 3);
    assert_int_equal(hub_batch_source_batches(s, 1), 1);
    assert_int_equal(hub_batch_source_build(s, 0, 3, &b, error_text), MR_NOT_READY);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

static void wait_for_partitions(struct hub_batch_source *s, uint32_t partitions)
{
    for (time_t until = limit(); hub_batch_source_parts(s) < partitions && time(NULL) < until;)
        wait_a_little();
    assert_int_equal(hub_batch_source_parts(s), partitions);
}

TEST(a_partition_that_is_added_is_found)
{
    struct hub_batch b = {0};
    uint64_t data[3], again;
    kafka_mock_topic(&kafka, "grows", 3);
    put_lines("grows", 0, 0, 8);
    put_lines("grows", 2, 100, 8);
    atomic_store(&kafka_mock_shown_partitions, 1);
    struct hub_batch_source *s = open_source("kafka:grows");
    assert_int_equal(hub_batch_source_parts(s), 1);
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data[0]), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    atomic_store(&kafka_mock_shown_partitions, INT_MAX);
    wait_for_partitions(s, 3);
    assert_int_equal(kafka_source_begin(s, 2, NULL, &data[2]), MR_OK);
    assert_int_equal(build(s, 2, 0, &b), MR_OK);
    check_lines(&b, 100, 4); /* also what came before it was found */
    assert_int_equal(hub_batch_source_begin(s, 1, NULL, &data[1], error_text), MR_NOT_READY);
    assert_int_equal(build(s, 0, 1, &b), MR_OK);
    check_lines(&b, 4, 4);
    atomic_store(&kafka_mock_shown_partitions, 1); /* as a recreated topic may have */
    for (uint32_t answers = atomic_load(&kafka_mock_answers); atomic_load(&kafka_mock_answers) < answers + 2;
         wait_a_little())
        assert_int_equal(hub_batch_source_parts(s), 3);
    put_lines("grows", 1, 50, 4);
    assert_int_equal(kafka_source_begin(s, 1, NULL, &data[1]), MR_OK);
    hub_batch_source_close(s);
    atomic_store(&kafka_mock_shown_partitions, INT_MAX);
    s = open_source(
        "kafka:grows"); /* it is the same partition for a start that knows it from the beginning */
    assert_int_equal(kafka_source_begin(s, 2, &data[2], &again), MR_OK);
    assert_int_equal(again, data[2]);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(a_plan_reads_no_more_partitions_than_it_has_parts)
{
    struct hub_batch_source *s;
    kafka_mock_topic(&kafka, "large", HUB_PARTS_MAX + 1);
    const struct hub_request request = request_of("kafka:large");
    assert_int_equal(open_request(&request, &s), MR_INVALID_ARGUMENT);
    assert_string_equal(error_text, "kafka:large has 1025 partitions; a plan reads 1 to 1024");
    atomic_store(&kafka_mock_shown_partitions, 1);
    s = open_source("kafka:large");
    atomic_store(&kafka_mock_shown_partitions, INT_MAX);
    wait_for_partitions(s, HUB_PARTS_MAX);
    hub_batch_source_close(s);
}

TEST(batches_are_the_same_again)
{
    struct hub_batch b = {0};
    uint64_t data, again;
    kafka_mock_topic(&kafka, "again", 1);
    put_lines("again", 0, 0, 40);
    struct hub_batch_source *s = open_source("kafka:again");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    for (uint32_t n = 0; n < 10; n++) {
        assert_int_equal(build(s, 0, n, &b), MR_OK);
        check_lines(&b, 4 * n, 4);
    }
    for (uint32_t n = 3; n < 10; n += 3) { /* a server that went back */
        assert_int_equal(build(s, 0, n, &b), MR_OK);
        check_lines(&b, 4 * n, 4);
    }
    hub_batch_source_close(s);
    s = open_source("kafka:again"); /* a start that goes on at batch 7 */
    assert_int_equal(kafka_source_begin(s, 0, &data, &again), MR_OK);
    assert_int_equal(again, data);
    assert_int_equal(build(s, 0, 7, &b), MR_OK);
    check_lines(&b, 28, 4);
    assert_int_equal(build(s, 0, 8, &b), MR_OK);
    check_lines(&b, 32, 4);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(messages_of_all_sorts_are_counted_by_offset)
{
    struct hub_batch b = {0};
    uint64_t data;
    char two[256];
    kafka_mock_topic(&kafka, "sorts", 1);
    const int first = snprintf(two, sizeof(two), "%s\r\n", criteo_line(1));
    snprintf(two + first, sizeof(two) - (size_t)first, "%s", criteo_line(2));
    put_text("sorts", 0, criteo_line(0));
    put_text("sorts", 0, two);
    kafka_mock_put(&kafka, "sorts", 0, NULL, 0);
    put_text("sorts", 0, "no sample\n");
    for (int i = 0; i < 4; i++)
        put_text("sorts", 0, i % 2 == 0 ? "" : "neither");
    put_lines("sorts", 0, 3, 4);
    broken_shown = 0;
    struct hub_batch_source *s = open_source("kafka:sorts");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    for (int turn = 0; turn < 2; turn++) { /* counted once, however often they are read */
        assert_int_equal(build(s, 0, 0, &b), MR_OK);
        check_lines(&b, 0, 3);
        assert_int_equal(build(s, 0, 1, &b), MR_OK);
        assert_int_equal(b.samples, 0);
        assert_int_equal(b.slots, 26);
        assert_int_equal(build(s, 0, 2, &b), MR_OK);
        check_lines(&b, 3, 4);
        assert_int_equal(hub_batch_source_info(s)->broken_lines, 3);
        assert_int_equal(broken_shown, 3);
    }
    hub_batch_source_close(s);
    struct hub_request strict = request_of("kafka:sorts?messages=2");
    strict.strict = true;
    assert_int_equal(open_request(&strict, &s), MR_OK);
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    check_lines(&b, 0, 3);
    for (int turn = 0; turn < 2; turn++) { /* a failed plan that is started again fails again */
        error_text[0] = '\0';
        assert_int_equal(build(s, 0, 1, &b), MR_BAD_MESSAGE);
        assert_non_null(strstr(error_text, "kafka:sorts[0]: offset 3: broken line:"));
    }
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(messages_of_another_format_are_refused)
{
    struct hub_batch b = {0};
    uint64_t data;
    kafka_mock_topic(&kafka, "other", 1);
    for (int i = 0; i < 40; i++)
        put_text("other", 0, "1 2:3");
    kafka_mock_flush(&kafka);
    struct hub_request request = request_of("kafka:other?messages=20");
    struct hub_batch_source *s = open_source(request.path);
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_BAD_MESSAGE);
    assert_non_null(
        strstr(error_text, "is not in the format criteo: 16 of 16 lines are broken, such as at offset 15"));
    hub_batch_source_close(s);
    snprintf(request.format, sizeof(request.format), "%s", HUB_BLOCK_FORMAT);
    assert_int_equal(open_request(&request, &s), MR_OK);
    enum mr_status status;
    while ((status = hub_batch_source_ready(s, error_text)) == MR_NOT_READY)
        wait_a_little();
    assert_int_equal(status, MR_BAD_MESSAGE);
    assert_non_null(strstr(error_text, "kafka:other[0]: the message at offset 0"));
    hub_batch_source_close(s);
    snprintf(request.format, sizeof(request.format), "%s", "parquet");
    assert_int_equal(open_request(&request, &s), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "unknown format 'parquet'"));
    struct hub_format *named =
        read_format("[format]\nname = named\nlabel = y\n[columns]\ny = flag\n[slots]\ny = y\n", error_text);
    struct hub_formats own = {.all = {named}, .count = 1}, *const built_in = formats;
    snprintf(request.format, sizeof(request.format), "%s", "named");
    formats = &own;
    assert_int_equal(open_request(&request, &s), MR_INVALID_ARGUMENT);
    formats = built_in;
    assert_non_null(strstr(error_text, "header = none"));
    hub_format_free(named);
    hub_batch_free(&b);
}

TEST(blocks_of_a_message_go_into_one_batch)
{
    struct hub_batch b = {0};
    uint64_t data;
    static struct block_bytes bytes;
    struct hub_batch_source *s;
    kafka_mock_topic(&kafka, "blocks", 2);
    struct hub_request request = request_of("kafka:blocks?messages=2");
    snprintf(request.format, sizeof(request.format), "%s", HUB_BLOCK_FORMAT);
    assert_int_equal(open_request(&request, &s), MR_OK);
    assert_int_equal(hub_batch_source_ready(s, error_text), MR_NOT_READY);
    block_put_samples(&bytes, 0, 3, true);
    block_put_samples(&bytes, 3, 1, true);
    kafka_mock_put(&kafka, "blocks", 1, bytes.bytes, bytes.used);
    kafka_mock_put(&kafka, "blocks", 1, bytes.bytes, bytes.used - 1); /* the second one is cut off */
    kafka_mock_flush(&kafka);
    while (hub_batch_source_ready(s, error_text) == MR_NOT_READY)
        wait_a_little();
    assert_int_equal(hub_batch_source_info(s)->format->slots, 2);
    assert_int_equal(kafka_source_begin(s, 1, NULL, &data), MR_OK);
    assert_int_equal(build(s, 1, 0, &b), MR_OK);
    assert_true(b.samples == 7 && b.slots == 2 && b.dense_count == 2 && b.has_weights);
    for (uint32_t i = 0; i < 7; i++) {
        const uint32_t n = i % 4;
        assert_true(b.labels[i] == (float)(n % 2) && b.dense[2 * i] == (float)n);
        assert_true(b.keys[3 * i] == n && b.keys[3 * i + 2] == n + 2000);
        assert_true(b.offsets[2 * i + 1] == 3 * i + 1 && b.weights[3 * i] == (float)n / 2);
    }
    assert_int_equal(hub_batch_source_info(s)->broken_lines, 1);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(any_partition_gives_the_shape_of_blocks)
{
    struct hub_batch b = {0};
    uint64_t data;
    static struct block_bytes bytes;
    struct hub_batch_source *s;
    enum mr_status status;
    kafka_mock_topic(&kafka, "shape", 3);
    struct hub_request request = request_of("kafka:shape?messages=2");
    snprintf(request.format, sizeof(request.format), "%s", HUB_BLOCK_FORMAT);
    block_put_samples(&bytes, 0, 3, true);
    for (int32_t i = 0; i < 2; i++) {
        kafka_mock_put(&kafka, "shape", i, bytes.bytes, bytes.used - 1); /* it is cut off */
        kafka_mock_put(&kafka, "shape", i, bytes.bytes, bytes.used);
    }
    kafka_mock_flush(&kafka);
    assert_int_equal(open_request(&request, &s), MR_OK);
    while ((status = hub_batch_source_ready(s, error_text)) == MR_NOT_READY)
        wait_a_little();
    assert_int_equal(status, MR_BAD_MESSAGE);
    assert_non_null(strstr(error_text, ", from which the shape of samples is taken, cannot be used: "));
    kafka_mock_put(&kafka, "shape", 2, bytes.bytes, bytes.used);
    kafka_mock_flush(&kafka);
    for (time_t until = limit(); status != MR_OK && time(NULL) < until; wait_a_little())
        status = hub_batch_source_ready(s, error_text); /* as when the plan is started again */
    assert_int_equal(status, MR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kafka_source_begin(s, i, NULL, &data), MR_OK);
        assert_int_equal(build(s, i, 0, &b), MR_OK);
        assert_int_equal(b.samples, 3);
    }
    assert_int_equal(hub_batch_source_info(s)->broken_lines, 2);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(the_shape_is_that_of_the_first_message_with_a_value)
{
    struct hub_batch b = {0};
    uint64_t data, again;
    static struct block_bytes bytes;
    struct hub_batch_source *s;
    enum mr_status status;
    kafka_mock_topic(&kafka, "nulls", 2);
    struct hub_request request = request_of("kafka:nulls?messages=2");
    snprintf(request.format, sizeof(request.format), "%s", HUB_BLOCK_FORMAT);
    for (int32_t i = 0; i < 5; i++)
        kafka_mock_put(&kafka, "nulls", i % 2, NULL, 0); /* three, and two */
    kafka_mock_flush(&kafka);
    assert_int_equal(open_request(&request, &s), MR_OK);
    for (uint32_t i = 0; i < 2; i++) /* there are messages, and none of them tells */
        assert_int_equal(kafka_source_begin(s, i, NULL, &data), MR_OK);
    for (uint32_t i = 0; i < 10; i++, wait_a_little())
        assert_int_equal(hub_batch_source_ready(s, error_text), MR_NOT_READY);
    refuse_fetches(RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE);
    while ((status = hub_batch_source_ready(s, error_text)) == MR_NOT_READY)
        wait_a_little();
    assert_int_equal(status, MR_IO_ERROR);
    rd_kafka_mock_clear_request_errors(kafka.cluster, KAFKA_FETCH);
    block_put_samples(&bytes, 0, 3, true);
    kafka_mock_put(&kafka, "nulls", 0, bytes.bytes, bytes.used);
    kafka_mock_put(&kafka, "nulls", 0, NULL, 0);
    kafka_mock_put(&kafka, "nulls", 0, bytes.bytes, bytes.used);
    kafka_mock_flush(&kafka);
    for (int start = 0; start < 2; start++) { /* also when they are there from the beginning */
        status = MR_NOT_READY;
        for (time_t until = limit(); status != MR_OK && time(NULL) < until; wait_a_little())
            status = hub_batch_source_ready(s, error_text); /* as when the plan is started again */
        assert_int_equal(status, MR_OK);
        assert_int_equal(kafka_source_begin(s, 0, start == 0 ? NULL : &data, &again), MR_OK);
        assert_int_equal(again >> 20, 0); /* batches are cut from the first message on, though it is empty */
        data = again;
        static const uint32_t samples[] = {0, 3, 3};
        for (uint32_t n = 0; n < 3; n++) {
            assert_int_equal(build(s, 0, n, &b), MR_OK);
            assert_int_equal(b.samples, samples[n]);
            assert_int_equal(b.slots, 2);
        }
        assert_int_equal(kafka_source_begin(s, 1, NULL, &again), MR_OK);
        assert_int_equal(build(s, 1, 0, &b), MR_OK);
        assert_int_equal(b.samples, 0);
        assert_int_equal(hub_batch_source_info(s)->broken_lines, 0);
        hub_batch_source_close(s);
        if (start == 0)
            assert_int_equal(open_request(&request, &s), MR_OK);
    }
    hub_batch_free(&b);
}

/* The mock keeps 5 MiB of a partition. */
static void put_until_the_first_are_deleted(const char *topic)
{
    static char large[900000];
    memset(large, 'x', sizeof(large));
    for (int i = 0; i < 9; i++)
        kafka_mock_put(&kafka, topic, 0, large, sizeof(large));
    kafka_mock_flush(&kafka);
}

TEST(what_retention_deleted_is_an_error)
{
    struct hub_batch b = {0};
    uint64_t data, again;
    kafka_mock_topic(&kafka, "gone", 1);
    put_lines("gone", 0, 0, 12);
    struct hub_batch_source *s = open_source("kafka:gone");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    put_until_the_first_are_deleted("gone");
    hub_batch_source_close(s);
    s = open_source("kafka:gone");
    assert_int_equal(kafka_source_begin(s, 0, &data, &again),
                     MR_OK); /* the first message is not there to compare */
    assert_int_equal(again, data);
    assert_int_equal(build(s, 0, 1, &b), MR_IO_ERROR);
    assert_non_null(strstr(error_text, "kafka:gone[0]: retention has deleted offsets 4 to "));
    assert_non_null(strstr(error_text, "auto.offset.reset=earliest in the file of --kafka-config"));
    assert_non_null(strstr(error_text, "another `run`"));
    hub_batch_source_close(s);
    s = open_source("kafka:gone"); /* a plan that begins here begins after them */
    assert_int_equal(kafka_source_begin(s, 0, NULL, &again), MR_OK);
    assert_true(again >> 20 >= 12);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

/* Adds a line to the file of properties; returns its length before, for truncate(). */
static long add_property(const char *line)
{
    FILE *config = fopen(kafka.config, "a");
    assert_non_null(config);
    assert_int_equal(fseek(config, 0, SEEK_END), 0);
    const long end = ftell(config);
    (void)fprintf(config, "%s\n", line);
    (void)fclose(config);
    return end;
}

/* With auto.offset.reset=earliest: the place at which the plan continues was the end of a transaction. */
TEST(what_retention_deleted_is_passed_over_where_asked)
{
    struct hub_batch b = {0};
    uint64_t data, again;
    const long end = add_property("auto.offset.reset = earliest");
    kafka_mock_topic(&kafka, "passed", 1);
    put_lines("passed", 0, 0, 4);
    kafka_mock_put_marker(&kafka, "passed", 0);
    struct hub_batch_source *s = open_source("kafka:passed");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    hub_batch_source_close(s);
    put_until_the_first_are_deleted("passed"); /* offsets 5 to 13 */
    put_lines("passed", 0, 14, 2);
    s = open_source("kafka:passed");
    assert_int_equal(kafka_source_begin(s, 0, &data, &again), MR_OK);
    assert_int_equal(again, data);
    for (uint64_t sequence = 1; sequence < 4; sequence++)
        assert_int_equal(build(s, 0, sequence, &b), MR_OK);
    check_lines(&b, 14, 2); /* of batch 3: offsets 12 to 15, of which the first two are no lines */
    hub_batch_source_close(s);
    /* A topic that ends before that place was recreated: nothing is passed over. */
    kafka_mock_topic(&kafka, "shorter", 1);
    put_lines("shorter", 0, 0, 1);
    s = open_source("kafka:shorter");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 2, &b), MR_IO_ERROR);
    assert_non_null(strstr(error_text, "kafka:shorter[0] ends at offset 1, before offset 8"));
    hub_batch_source_close(s);
    hub_batch_free(&b);
    assert_int_equal(truncate(kafka.config, end), 0);
}

/* Waits until the lag behind batch `oldest`, which is tried, is this. */
static void wait_for_lag(struct hub_batch_source *s, uint64_t oldest, uint64_t lag, struct hub_batch *b)
{
    for (time_t until = limit(); hub_batch_source_lag(s, 0, oldest) != lag && time(NULL) < until;) {
        assert_int_equal(hub_batch_source_build(s, 0, oldest, b, error_text), MR_NOT_READY);
        wait_a_little();
    }
    assert_int_equal(hub_batch_source_lag(s, 0, oldest), lag);
}

TEST(ends_of_transactions_are_no_lag)
{
    struct hub_batch b = {0};
    uint64_t data;
    kafka_mock_topic(&kafka, "ends", 1);
    put_lines("ends", 0, 0, 4);
    kafka_mock_put_marker(&kafka, "ends", 0);
    kafka_mock_flush(&kafka);
    struct hub_batch_source *s = open_source("kafka:ends");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    wait_for_lag(s, 1, 0, &b); /* the marker is at offset 4, the first of batch 1 */
    put_lines("ends", 0, 4, 2);
    kafka_mock_put_marker(&kafka, "ends", 0);
    kafka_mock_flush(&kafka);
    assert_int_equal(build(s, 0, 1, &b), MR_OK);
    check_lines(&b, 4, 2);
    assert_int_equal(hub_batch_source_lag(s, 0, 1), 4); /* on its way */
    wait_for_lag(s, 2, 0, &b);
    put_lines("ends", 0, 6, 1);
    kafka_mock_put_marker(&kafka, "ends", 0);
    kafka_mock_flush(&kafka);
    wait_for_lag(s, 2, 1, &b); /* a message that waits for its batch */
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

static void put_markers(const char *topic, int count)
{
    for (int i = 0; i < count; i++)
        kafka_mock_put_marker(&kafka, topic, 0);
    kafka_mock_flush(&kafka);
}

/* A plan reads the topic, and rests where batch `oldest` would come next, of which it has seen `lag` messages
 * behind the end of a transaction. */
static void rest_at(const char *path, uint64_t oldest, uint64_t lag, uint64_t *data)
{
    struct hub_batch b = {0};
    struct hub_batch_source *s = open_source(path);
    assert_int_equal(kafka_source_begin(s, 0, NULL, data), MR_OK);
    for (uint64_t sequence = 0; sequence < oldest; sequence++)
        assert_int_equal(build(s, 0, sequence, &b), MR_OK);
    wait_for_lag(s, oldest, lag, &b);
    hub_batch_source_release(s, 0, oldest);
    hub_batch_source_close(s);
    hub_batch_free(&b);
}

/* Another start, which continues at batch `oldest`. */
static struct hub_batch_source *continue_at(const char *path, uint64_t oldest, const uint64_t *data,
                                            enum mr_status wanted, struct hub_batch *b)
{
    uint64_t again;
    struct hub_batch_source *s = open_source(path);
    assert_int_equal(kafka_source_begin(s, 0, data, &again), MR_OK);
    assert_int_equal(again, *data);
    assert_int_equal(build(s, 0, oldest, b), wanted);
    return s;
}

TEST(a_deleted_end_of_a_transaction_is_no_loss)
{
    struct hub_batch b = {0};
    uint64_t data;
    kafka_mock_topic(&kafka, "rests", 1);
    put_lines("rests", 0, 0, 4);
    put_markers("rests", 1);
    rest_at("kafka:rests", 1, 0, &data);
    put_markers("rests", KAFKA_MARKERS_KEPT); /* offsets 5 to 9 are there */
    put_lines("rests", 0, 10, 2);
    struct hub_batch_source *s = continue_at("kafka:rests", 1, &data, MR_OK, &b);
    assert_int_equal(b.samples, 0);
    assert_int_equal(build(s, 0, 2, &b), MR_OK);
    check_lines(&b, 10, 2);
    assert_int_equal(build(s, 0, 0, &b), MR_IO_ERROR); /* a server that went back: they were messages */
    assert_non_null(strstr(error_text, "kafka:rests[0]: retention has deleted offsets 0 to 4, "));
    hub_batch_source_close(s);
    /* In front of a message that waits for its batch. */
    kafka_mock_topic(&kafka, "waits", 1);
    put_lines("waits", 0, 0, 4);
    put_markers("waits", 1);
    put_lines("waits", 0, 5, 1);
    rest_at("kafka:waits", 1, 1, &data);
    put_markers("waits", KAFKA_MARKERS_KEPT);
    s = continue_at("kafka:waits", 1, &data, MR_OK, &b);
    check_lines(&b, 5, 1);
    hub_batch_source_close(s);
    hub_batch_free(&b);
}

TEST(a_message_behind_a_deleted_end_is_missed)
{
    struct hub_batch b = {0};
    uint64_t data;
    kafka_mock_topic(&kafka, "missed", 1);
    put_lines("missed", 0, 0, 4);
    put_markers("missed", 1);
    rest_at("kafka:missed", 1, 0, &data);
    put_lines("missed", 0, 5, 1);
    put_markers("missed", KAFKA_MARKERS_KEPT + 1); /* from offset 7 on it is there */
    put_lines("missed", 0, 12, 1);
    struct hub_batch_source *s = continue_at("kafka:missed", 1, &data, MR_IO_ERROR, &b);
    assert_non_null(strstr(error_text, "kafka:missed[0]: retention has deleted offsets 5 to 6, "));
    hub_batch_source_close(s);
    rd_kafka_mock_push_request_errors(kafka.cluster, KAFKA_OFFSET_FETCH, 1,
                                      RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
    s = continue_at("kafka:missed", 1, &data, MR_IO_ERROR, &b);
    assert_non_null(strstr(error_text, "kafka:missed[0]: retention has deleted offsets 4 to 6, "));
    assert_non_null(strstr(error_text, " (the consumer group millrace-hub-"));
    assert_non_null(strstr(error_text, ", does not answer: Broker: Group authorization failed)"));
    hub_batch_source_close(s);
    hub_batch_free(&b);
}

/* What a plan passed over because it was told to is not taken for a gap by one that is not. */
TEST(messages_that_were_passed_over_are_no_gap)
{
    struct hub_batch b = {0};
    uint64_t data;
    static const char path[] = "kafka:skips?messages=16";
    kafka_mock_topic(&kafka, "skips", 1);
    put_lines("skips", 0, 0, 16);
    rest_at(path, 1, 0, &data);
    put_lines("skips", 0, 16, 1);
    put_markers("skips", KAFKA_MARKERS_KEPT + 1); /* from offset 18 on it is there */
    put_lines("skips", 0, 23, 1);
    const long end = add_property("auto.offset.reset = earliest\ngroup.id = own");
    struct hub_batch_source *s = continue_at(path, 0, &data, MR_OK, &b);
    wait_for_lag(s, 1, 1, &b);
    hub_batch_source_release(s, 0, 1);
    hub_batch_source_close(s);
    assert_int_equal(truncate(kafka.config, end), 0);
    (void)add_property("group.id = own");
    s = continue_at(path, 1, &data, MR_IO_ERROR, &b);
    assert_non_null(strstr(error_text, "kafka:skips[0]: retention has deleted offsets 16 to 17, "));
    hub_batch_source_close(s);
    assert_int_equal(truncate(kafka.config, end), 0);
    hub_batch_free(&b);
}

TEST(an_offset_that_is_refused_though_it_is_there)
{
    struct hub_batch b = {0};
    uint64_t data;
    kafka_mock_topic(&kafka, "refused", 1);
    put_lines("refused", 0, 0, 6);
    struct hub_batch_source *s = open_source("kafka:refused");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    refuse_fetches(RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE);
    assert_int_equal(build(s, 0, 1, &b), MR_IO_ERROR);
    rd_kafka_mock_clear_request_errors(kafka.cluster, KAFKA_FETCH);
    assert_non_null(strstr(error_text, "kafka:refused[0] cannot be read from offset 6 on: "));
    put_lines("refused", 0, 6, 2);
    assert_int_equal(build(s, 0, 1, &b), MR_OK); /* read anew, as when the plan is started again */
    check_lines(&b, 4, 4);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(a_topic_that_was_made_anew_is_noticed)
{
    struct hub_batch b = {0};
    uint64_t data[2], again;
    kafka_mock_topic(&kafka, "one", 1);
    kafka_mock_topic(&kafka, "two", 1);
    put_lines("one", 0, 0, 8);
    put_lines("two", 0, 100, 8);
    for (int i = 0; i < 2; i++) {
        struct hub_batch_source *s = open_source(i == 0 ? "kafka:one" : "kafka:two");
        assert_int_equal(kafka_source_begin(s, 0, NULL, &data[i]), MR_OK);
        hub_batch_source_close(s);
    }
    assert_int_not_equal(data[0], data[1]); /* though both begin at offset 0 */
    struct hub_batch_source *s = open_source("kafka:two");
    assert_int_equal(kafka_source_begin(s, 0, &data[0], &again), MR_OK);
    assert_int_equal(again, data[1]); /* the record is not this topic's */
    const uint64_t later = data[1] + (UINT64_C(5) << 20);
    assert_int_equal(hub_batch_source_begin(s, 0, &later, &again, error_text), MR_OK);
    assert_int_equal(again, data[1]); /* no message is from before the first one */
    assert_int_equal(hub_batch_source_begin(s, 0, &data[1], &again, error_text), MR_OK);
    assert_int_equal(build(s, 0, 9, &b), MR_IO_ERROR);
    assert_non_null(strstr(error_text, "kafka:two[0] ends at offset 8, before offset 36"));
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(a_broker_goes_and_comes)
{
    struct hub_batch b = {0};
    uint64_t data;
    kafka_mock_topic(&kafka, "away", 1);
    put_lines("away", 0, 0, 6);
    struct hub_batch_source *s = open_source("kafka:away");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(build(s, 0, 0, &b), MR_OK);
    assert_int_equal(rd_kafka_mock_broker_set_down(kafka.cluster, -1), RD_KAFKA_RESP_ERR_NO_ERROR);
    while (hub_batch_source_trouble(s)[0] == '\0') {
        assert_int_equal(hub_batch_source_build(s, 0, 1, &b, error_text), MR_NOT_READY);
        wait_a_little();
    }
    assert_int_equal(rd_kafka_mock_broker_set_up(kafka.cluster, -1), RD_KAFKA_RESP_ERR_NO_ERROR);
    put_lines("away", 0, 6, 2);
    assert_int_equal(build(s, 0, 1, &b), MR_OK);
    check_lines(&b, 4, 4);
    assert_string_equal(hub_batch_source_trouble(s), "");
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

/* As brokers answer, which name no partitions of a topic that they refuse; librdkafka 2.4 to 2.9 does not
 * survive it if they do. */
static void refuse_topic(const char *topic, rd_kafka_resp_err_t code)
{
    assert_int_equal(rd_kafka_mock_topic_create(kafka.cluster, topic, 0, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_mock_topic_set_error(kafka.cluster, topic, code);
}

TEST(what_the_brokers_refuse_is_an_error)
{
    struct hub_batch b = {0};
    uint64_t data;
    struct hub_batch_source *s = NULL;
    struct hub_request request = request_of("kafka:missing");
    refuse_topic("missing", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_int_equal(open_request(&request, &s), MR_INVALID_ARGUMENT);
    assert_string_equal(error_text, "kafka:missing: the brokers have no such topic");
    kafka_mock_topic(&kafka, "secret", 1);
    put_lines("secret", 0, 0, 2);
    s = open_source("kafka:secret");
    assert_int_equal(kafka_source_begin(s, 0, NULL, &data), MR_OK);
    assert_int_equal(hub_batch_source_build(s, 0, 0, &b, error_text), MR_NOT_READY);
    refuse_fetches(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED); /* nobody changes the topic's rights */
    assert_int_equal(build(s, 0, 0, &b), MR_IO_ERROR);
    assert_non_null(strstr(error_text, "kafka:secret[0] cannot be read from offset "));
    hub_batch_source_close(s);
    refuse_topic("denied", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    snprintf(request.path, sizeof(request.path), "%s", "kafka:denied");
    assert_int_equal(open_request(&request, &s), MR_UNAUTHORIZED);
    assert_string_equal(error_text, "kafka:denied: Broker: Topic authorization failed");
    hub_batch_free(&b);
}

/* A file of properties with this text is refused so. */
static void check_config(const char *text, enum mr_status wanted, const char *says)
{
    char path[] = "/tmp/kafka_config.XXXXXX";
    bool skips_deleted;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(hub_kafka_configure(conf, NULL, path, &skips_deleted, error_text), wanted);
    if (wanted != MR_OK && (strncmp(error_text, path, strlen(path)) != 0 || strstr(error_text, says) == NULL))
        fail_msg("%s", error_text);
    char value[64];
    size_t bytes = sizeof(value);
    if (wanted == MR_OK) {
        assert_int_equal(rd_kafka_conf_get(conf, "bootstrap.servers", value, &bytes), RD_KAFKA_CONF_OK);
        assert_string_equal(value, says);
    }
    rd_kafka_conf_destroy(conf);
    unlink(path);
}

TEST(properties_are_checked)
{
    check_config("# brokers\n\n  bootstrap.servers = a:1,b:2 \nclient.id=x=y", MR_OK, "a:1,b:2");
    check_config("\nfetch.mx=1\n", MR_INVALID_ARGUMENT, ":2: No such configuration property: \"fetch.mx\"");
    check_config("queued.max.messages.kbytes=0\n", MR_INVALID_ARGUMENT, ":1: ");
    check_config("a line\n", MR_INVALID_ARGUMENT, ":1: a line is key=value");
    check_config("#\nauto.offset.reset=latest\n", MR_INVALID_ARGUMENT,
                 ":2: auto.offset.reset is error or earliest: ");
    check_config("auto.offset.reset=error\nbootstrap.servers=a:1\n", MR_OK, "a:1");
    check_config("enable.auto.commit=true\n", MR_INVALID_ARGUMENT, ":1: enable.auto.commit is the hub's own");
    check_config("isolation.level=read_uncommitted\n", MR_INVALID_ARGUMENT,
                 ":1: isolation.level is the hub's own");
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    bool skips_deleted = true;
    assert_int_equal(hub_kafka_configure(conf, NULL, NULL, &skips_deleted, error_text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "--kafka HOST:PORT,..."));
    assert_int_equal(hub_kafka_configure(conf, "a:1", "/nowhere/file", &skips_deleted, error_text),
                     MR_IO_ERROR);
    assert_string_equal(error_text, "--kafka-config /nowhere/file: No such file or directory");
    rd_kafka_conf_destroy(conf);
}

TEST(brokers_that_are_not_there_are_an_error)
{
    const struct hub_kafka_options options = {.brokers = "127.0.0.1:1", .topic = "away"};
    struct hub_kafka_topic *topic = NULL;
    assert_int_equal(hub_kafka_open(&options, &topic, error_text), MR_IO_ERROR);
    if (strncmp(error_text, "kafka:away: 127.0.0.1:1/bootstrap: Connect to", 45) != 0)
        fail_msg("%s", error_text);
}

static int kafka_source_start(void **state)
{
    if (make_formats(state) != 0 || sem_init(&come, 0, 0) != 0)
        return -1;
    kafka_mock_start(&kafka, 2);
    return 0;
}

static int kafka_source_end(void **state)
{
    kafka_mock_stop(&kafka);
    return free_formats(state);
}

int main(void)
{
    return tests_run(kafka_source_start, kafka_source_end);
}
