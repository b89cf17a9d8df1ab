/* Batches of an input that is read once: cut as the samples come, kept while they may be wanted. */
#include <math.h>
#include <semaphore.h>
#include <time.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/block_bytes.h"
#include "tests/unit/trainer_client/hub/format/formats_fixture.h"
#include "tests/unit/trainer_client/hub/named_file.h"
#include "trainer_client/hub/samples/live_source.h"
#include "trainer_client/hub/plan/plan.h"

#define MEMORY (1u << 20)

static char error_text[HUB_ERROR_BYTES];
static sem_t come; /* posted when something may have come */

static void on_batch(void *arg)
{
    sem_post(&come);
}

/* Standard input is a pipe from here on. Returns its writing end. */
static int standard_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    return ends[1];
}

struct live_options {
    const char *path, *format;
    const struct hub_formats *formats; /* NULL: those that are built in */
    uint32_t batch_samples;            /* 0: 4 */
    bool follow, is_repeated;
    size_t memory_bytes;
};

static enum mr_status try_to_open(struct live_options options, struct hub_batch_source **s)
{
    struct hub_request request = {.batch_samples = options.batch_samples != 0 ? options.batch_samples : 4,
                                  .epochs = 1};
    snprintf(request.path, sizeof(request.path), "%s", options.path);
    snprintf(request.format, sizeof(request.format), "%s", options.format);
    const struct hub_batch_source_options all = {.request = &request,
                                                 .formats =
                                                     options.formats != NULL ? options.formats : formats,
                                                 .follow = options.follow,
                                                 .is_repeated = options.is_repeated,
                                                 .memory_bytes = options.memory_bytes,
                                                 .on_batch = on_batch};
    return hub_live_source_open(&all, s, error_text);
}

static struct hub_batch_source *open_source(struct live_options options)
{
    struct hub_batch_source *s = NULL;
    assert_int_equal(try_to_open(options, &s), MR_OK);
    return s;
}

static void wait_until_come(void)
{
    struct timespec until;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += 60;
    assert_int_equal(sem_timedwait(&come, &until), 0);
}

static enum mr_status build(struct hub_batch_source *s, uint64_t sequence, struct hub_batch *b)
{
    enum mr_status status;
    while ((status = hub_batch_source_build(s, 0, sequence, b, error_text)) == MR_NOT_READY &&
           hub_batch_source_batches(s, 0) == HUB_BATCHES_UNKNOWN)
        wait_until_come();
    /* The end and the batch before it may have come between the two questions. */
    return status == MR_NOT_READY ? hub_batch_source_build(s, 0, sequence, b, error_text) : status;
}

static void live_source_put(int fd, const struct block_bytes *b)
{
    assert_int_equal(write(fd, b->bytes, b->used), b->used);
}

static void check_batch(const struct hub_batch *b, uint32_t first, uint32_t samples, bool has_weights)
{
    assert_int_equal(b->samples, samples);
    assert_int_equal(b->first_sample, first);
    assert_int_equal(b->slots, 2);
    assert_int_equal(b->dense_count, 2);
    assert_int_equal(b->key_count, 3 * samples);
    assert_int_equal(b->offsets[0], 0);
    for (uint32_t i = 0; i < samples; i++) {
        uint32_t n = first + i;
        assert_true(b->labels[i] == (float)(n % 2));
        assert_true(b->dense[2 * i] == (float)n && b->dense[2 * i + 1] == -(float)n);
        assert_int_equal(b->keys[3 * i], n);
        assert_int_equal(b->keys[3 * i + 2], n + 2000);
        assert_int_equal(b->offsets[2 * i + 1], 3 * i + 1);
        assert_int_equal(b->offsets[2 * i + 2], 3 * i + 3);
        if (has_weights)
            assert_true(b->weights[3 * i + 1] == (float)(n + 1000) / 2);
    }
    assert_int_equal(b->has_weights, has_weights);
}

TEST(blocks_are_cut_into_batches)
{
    for (int has_weights = 0; has_weights < 2; has_weights++) {
        struct hub_batch b = {0};
        struct block_bytes bytes = {.used = 0};
        int to = standard_pipe();
        struct hub_batch_source *s = open_source(
            (struct live_options){.path = "-", .format = HUB_BLOCK_FORMAT, .memory_bytes = MEMORY});
        assert_int_equal(hub_batch_source_ready(s, error_text), MR_NOT_READY);
        block_put_samples(&bytes, 0, 3, has_weights);
        live_source_put(to, &bytes);
        while (hub_batch_source_ready(s, error_text) == MR_NOT_READY)
            wait_until_come();
        assert_int_equal(hub_batch_source_info(s)->format->slots, 2);
        assert_int_equal(hub_batch_source_info(s)->format->dense, 2);
        assert_int_equal(hub_batch_source_build(s, 0, 0, &b, error_text), MR_NOT_READY);
        assert_int_equal(hub_batch_source_batches(s, 0), HUB_BATCHES_UNKNOWN);
        bytes.used = 0;
        block_put_samples(&bytes, 3, 11, has_weights);
        block_put_samples(&bytes, 14, 1, has_weights);
        block_put_end(&bytes);
        live_source_put(to, &bytes);
        for (uint32_t n = 0; n < 4; n++) {
            assert_int_equal(build(s, n, &b), MR_OK);
            check_batch(&b, 4 * n, n < 3 ? 4 : 3, has_weights);
        }
        assert_int_equal(build(s, 4, &b), MR_NOT_READY);
        assert_int_equal(hub_batch_source_batches(s, 0), 4);
        assert_int_equal(build(s, 1, &b), MR_OK); /* again, as it is not released */
        check_batch(&b, 4, 4, has_weights);
        hub_batch_free(&b);
        hub_batch_source_close(s);
        close(to);
    }
}

TEST(a_writer_that_breaks_off_is_no_end)
{
    struct hub_batch b = {0};
    struct block_bytes bytes = {.used = 0};
    int to = standard_pipe();
    struct hub_batch_source *s =
        open_source((struct live_options){.path = "-", .format = HUB_BLOCK_FORMAT, .memory_bytes = MEMORY});
    block_put_samples(&bytes, 0, 6, false);
    live_source_put(to, &bytes);
    close(to);
    assert_int_equal(build(s, 0, &b), MR_OK);
    assert_int_equal(build(s, 1, &b), MR_BAD_MESSAGE);
    assert_non_null(strstr(error_text, "block 2 of - cannot be used: the input ends without"));
    assert_int_equal(hub_batch_source_batches(s, 0), HUB_BATCHES_UNKNOWN);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(a_writer_that_fails_says_why)
{
    struct hub_batch b = {0};
    struct block_bytes bytes = {.used = 0};
    const struct hub_block_head failed = {.magic = HUB_BLOCK_MAGIC, .flags = HUB_BLOCK_FAILED, .keys = 8};
    int to = standard_pipe();
    struct hub_batch_source *s =
        open_source((struct live_options){.path = "-", .format = HUB_BLOCK_FORMAT, .memory_bytes = MEMORY});
    block_put_samples(&bytes, 0, 6, false);
    block_put(&bytes, &failed, sizeof(failed));
    block_put(&bytes, "no space and what follows", 25);
    live_source_put(to, &bytes);
    assert_int_equal(build(s, 0, &b), MR_OK);
    assert_int_equal(build(s, 1, &b), MR_IO_ERROR);
    assert_string_equal(error_text, "the program that writes - has failed: no space");
    hub_batch_free(&b);
    hub_batch_source_close(s);
    close(to);
}

TEST(blocks_that_do_not_match_are_refused)
{
    struct hub_batch b = {0};
    struct block_bytes bytes = {.used = 0};
    int to = standard_pipe();
    struct hub_batch_source *s =
        open_source((struct live_options){.path = "-", .format = HUB_BLOCK_FORMAT, .memory_bytes = MEMORY});
    block_put_samples(&bytes, 0, 4, false);
    block_put_samples(&bytes, 4, 4, true);
    live_source_put(to, &bytes);
    assert_int_equal(build(s, 0, &b), MR_OK);
    assert_int_equal(build(s, 1, &b), MR_BAD_MESSAGE);
    assert_non_null(strstr(error_text, "weights are either in every block or in none"));
    hub_batch_free(&b);
    hub_batch_source_close(s);
    close(to);
}

/* A program that is not millrace.feed() may write anything. */
TEST(blocks_with_nan_are_refused_by_their_place)
{
    struct hub_batch b = {0};
    struct block_bytes bytes = {.used = 0};
    int to = standard_pipe();
    struct hub_batch_source *s =
        open_source((struct live_options){.path = "-", .format = HUB_BLOCK_FORMAT, .memory_bytes = MEMORY});
    block_put_samples(&bytes, 0, 4, true);
    block_put_samples(&bytes, 4, 4, true);
    memcpy(bytes.bytes + bytes.used - sizeof(float), &(const float){__builtin_nanf("")}, sizeof(float));
    live_source_put(to, &bytes);
    assert_int_equal(build(s, 0, &b), MR_OK);
    assert_int_equal(build(s, 1, &b), MR_BAD_MESSAGE);
    assert_string_equal(error_text,
                        "block 2 of - cannot be used: sample 3, slot 1: the weight of key 1 is nan");
    hub_batch_free(&b);
    hub_batch_source_close(s);
    close(to);
}

static const char *criteo_line(uint32_t n)
{
    static char line[128];
    size_t bytes = (size_t)sprintf(line, "%u\t%u", n % 2, n);
    memset(line + bytes, '\t', 38);
    (void)sprintf(line + bytes + 38, "%x\n", n);
    return line;
}

static void put_lines(int fd, uint32_t first, uint32_t count)
{
    for (uint32_t n = first; n < first + count; n++)
        assert_int_equal(write(fd, criteo_line(n), strlen(criteo_line(n))), strlen(criteo_line(n)));
}

/* The batch's samples are lines first, first + 1, ... */
static void check_lines(const struct hub_batch *b, uint32_t first, uint32_t samples)
{
    assert_int_equal(b->samples, samples);
    for (uint32_t i = 0; i < samples; i++)
        assert_int_equal((uint32_t)lrint(expm1((double)b->dense[i * b->dense_count])), first + i);
}

TEST(lines_of_standard_input)
{
    struct hub_batch b = {0};
    int to = standard_pipe();
    struct hub_batch_source *s =
        open_source((struct live_options){.path = "-", .format = "criteo", .memory_bytes = MEMORY});
    assert_int_equal(hub_batch_source_ready(s, error_text), MR_OK);
    assert_false(hub_batch_source_can_repeat(s));
    put_lines(to, 0, 5);
    assert_int_equal(write(to, "no sample\n", 10), 10);
    put_lines(to, 5, 4);
    const char *last = criteo_line(9);
    assert_int_equal(write(to, last, strlen(last) - 1), strlen(last) - 1); /* without a line end */
    close(to);
    for (uint32_t n = 0; n < 3; n++) {
        assert_int_equal(build(s, n, &b), MR_OK);
        check_lines(&b, 4 * n, n < 2 ? 4 : 2);
    }
    assert_int_equal(build(s, 3, &b), MR_NOT_READY);
    assert_int_equal(hub_batch_source_batches(s, 0), 3);
    assert_int_equal(hub_batch_source_info(s)->broken_lines, 1);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

/* The columns are where the first line says; weights go along. */
TEST(formats_of_ones_own)
{
    static const char header_format[] = "[format]\nname = named\nlabel = y\n[columns]\ny = flag\nn = number\n"
                                        "[dense]\nn = n\n[slots]\nn = n\n",
                      weights_format[] = "[format]\nname = weights\nlayout = libsvm\nvalues = weights\n";
    struct hub_format *named = read_format(header_format, error_text),
                      *weights = read_format(weights_format, error_text);
    struct hub_formats own = {.all = {named, weights}, .count = 2};
    struct hub_batch b = {0};
    for (uint32_t i = 0; i < 3; i++) { /* with a header, without the right one, and with weights */
        static const char *const texts[] = {"n,x,y\n7,,1\n8,,0\n", "n,x\n7,\n", "1 3:0.5\n0 3:2\n"};
        int to = standard_pipe();
        const struct live_options options = {.path = "-",
                                             .formats = &own,
                                             .format = own.all[i / 2]->name,
                                             .batch_samples = 2,
                                             .memory_bytes = MEMORY};
        struct hub_batch_source *s = NULL;
        assert_int_equal(write(to, texts[i], strlen(texts[i])), strlen(texts[i]));
        close(to);
        assert_int_equal(try_to_open(options, &s), MR_OK);
        assert_int_equal(build(s, 0, &b), i == 1 ? MR_BAD_MESSAGE : MR_OK);
        if (i == 0)
            assert_true(lrintf(b.dense[0]) == 7 && lrintf(b.dense[1]) == 8);
        else if (i == 1)
            assert_non_null(
                strstr(error_text, "- is not in the format named: the first line has no column \"y\""));
        else
            assert_true(b.has_weights && lrintf(2 * b.weights[0]) == 1 && lrintf(b.weights[1]) == 2);
        hub_batch_source_close(s);
    }
    hub_batch_free(&b);
    hub_format_free(named);
    hub_format_free(weights);
}

TEST(lines_of_another_format_are_refused)
{
    struct hub_batch b = {0};
    int to = standard_pipe();
    struct hub_batch_source *s =
        open_source((struct live_options){.path = "-", .format = "criteo", .memory_bytes = MEMORY});
    for (int i = 0; i < 100; i++)
        assert_int_equal(write(to, "1 2:3\n", 6), 6);
    assert_int_equal(build(s, 0, &b), MR_BAD_MESSAGE);
    assert_non_null(strstr(error_text, "- is not in the format criteo: 16 of 16 lines are broken"));
    hub_batch_source_close(s);
    const struct live_options options = {.path = "-", .format = "parquet"};
    assert_int_equal(try_to_open(options, &s), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "flights, batches"));
    close(to);
}

TEST(a_line_that_is_too_long_is_skipped)
{
    struct hub_batch b = {0};
    int to = standard_pipe();
    static char line[HUB_LINE_BYTES_MAX / 2];
    memset(line, 'x', sizeof(line));
    struct hub_batch_source *s = open_source(
        (struct live_options){.path = "-", .format = "criteo", .batch_samples = 2, .memory_bytes = MEMORY});
    put_lines(to, 0, 1);
    for (int part = 0; part < 5; part++)
        assert_int_equal(write(to, line, sizeof(line)), sizeof(line));
    assert_int_equal(write(to, "\n", 1), 1);
    put_lines(to, 1, 1);
    close(to);
    assert_int_equal(build(s, 0, &b), MR_OK);
    check_lines(&b, 0, 2);
    assert_int_equal(hub_batch_source_info(s)->broken_lines, 1);
    hub_batch_free(&b);
    hub_batch_source_close(s);
}

TEST(finishing_takes_the_rest_of_a_pipe_but_not_of_a_file)
{
    struct hub_batch b = {0};
    struct named_file file = named_file_make();
    int to = standard_pipe();
    put_lines(to, 0, 6);
    put_lines(file.fd, 0, 6);
    for (int is_file = 0; is_file < 2; is_file++) {
        struct hub_batch_source *s = open_source((struct live_options){
            .path = is_file ? file.path : "-", .format = "criteo", .follow = true, .memory_bytes = MEMORY});
        assert_int_equal(build(s, 0, &b), MR_OK);
        assert_int_equal(hub_batch_source_can_repeat(s), is_file);
        hub_batch_source_finish(s);
        while (hub_batch_source_batches(s, 0) == HUB_BATCHES_UNKNOWN)
            wait_until_come();
        assert_int_equal(hub_batch_source_batches(s, 0), is_file ? 1 : 2);
        if (!is_file) {
            assert_int_equal(build(s, 1, &b), MR_OK);
            check_lines(&b, 4, 2);
        }
        hub_batch_source_close(s);
    }
    hub_batch_free(&b);
    named_file_remove(&file);
    close(to);
}

TEST(a_file_is_followed_and_its_batches_have_their_places)
{
    struct hub_batch b = {0};
    struct named_file file = named_file_make();
    put_lines(file.fd, 0, 6);
    struct hub_batch_source *s = open_source(
        (struct live_options){.path = file.path, .format = "criteo", .follow = true, .memory_bytes = MEMORY});
    assert_int_equal(build(s, 0, &b), MR_OK);
    put_lines(file.fd, 6, 200);
    hub_batch_source_close(s);
    s = open_source(
        (struct live_options){.path = file.path, .format = "criteo", .follow = true, .memory_bytes = MEMORY});
    hub_batch_source_release(s, 0, 40); /* a start that goes on at batch 40 */
    assert_int_equal(build(s, 40, &b), MR_OK);
    check_lines(&b, 160, 4);
    put_lines(file.fd, 206, 2);
    assert_int_equal(build(s, 51, &b), MR_OK);
    check_lines(&b, 204, 4);
    hub_batch_free(&b);
    hub_batch_source_close(s);
    named_file_remove(&file);
}

TEST(blocks_of_a_file_are_read_again)
{
    struct hub_batch b = {0};
    struct named_file file = named_file_make();
    static struct block_bytes bytes;
    for (uint32_t n = 0; n < 42; n += 3)
        block_put_samples(&bytes, n, 3, true);
    live_source_put(file.fd, &bytes);
    struct hub_batch_source *s =
        open_source((struct live_options){.path = file.path, .format = HUB_BLOCK_FORMAT, .follow = true});
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t n = 2 * turn; n < 10; n++) {
            assert_int_equal(build(s, n, &b), MR_OK);
            check_batch(&b, 4 * n, 4, true);
            hub_batch_source_release(s, 0, n + 1);
        }
        hub_batch_source_release(s, 0, 2); /* a server that went back */
    }
    hub_batch_source_close(s);
    hub_batch_free(&b);
    named_file_remove(&file);
}

TEST(what_left_the_memory_is_read_again_from_a_file_only)
{
    struct hub_batch b = {0};
    struct named_file file = named_file_make();
    int to = standard_pipe();
    put_lines(to, 0, 40);
    put_lines(file.fd, 0, 40);
    for (int is_file = 0; is_file < 2; is_file++) {
        struct hub_batch_source *s = open_source(
            (struct live_options){.path = is_file ? file.path : "-", .format = "criteo", .follow = true});
        for (uint32_t n = 0; n < 8; n++) { /* with no memory for them one after the other */
            assert_int_equal(build(s, n, &b), MR_OK);
            check_lines(&b, 4 * n, 4);
            hub_batch_source_release(s, 0, n + 1);
        }
        hub_batch_source_release(s, 0, 2);
        assert_int_equal(build(s, 2, &b), is_file ? MR_OK : MR_IO_ERROR);
        if (is_file)
            check_lines(&b, 8, 4);
        else
            assert_non_null(strstr(error_text, "went back to batch 2 of -"));
        hub_batch_source_close(s);
    }
    hub_batch_free(&b);
    named_file_remove(&file);
    close(to);
}

TEST(a_file_is_known_again_and_a_pipe_is_not)
{
    struct named_file file = named_file_make(), other = named_file_make();
    int to = standard_pipe();
    put_lines(file.fd, 0, 1);
    struct live_options options = {
        .path = file.path, .format = "criteo", .follow = true, .memory_bytes = MEMORY};
    struct hub_batch_source *s = open_source(options);
    const uint64_t digest = hub_batch_source_info(s)->digest;
    put_lines(file.fd, 1, 1);
    assert_int_equal(hub_batch_source_info(s)->digest, digest);
    hub_batch_source_close(s);
    options.path = other.path;
    s = open_source(options);
    assert_int_not_equal(hub_batch_source_info(s)->digest, digest);
    hub_batch_source_close(s);
    options.path = "-";
    s = open_source(options);
    assert_false(hub_batch_source_can_repeat(s));
    hub_batch_source_close(s);
    options.is_repeated = true;
    s = open_source(options);
    assert_true(hub_batch_source_can_repeat(s));
    hub_batch_source_close(s);
    named_file_remove(&file);
    named_file_remove(&other);
    close(to);
}

TEST(a_batch_that_no_message_holds_is_refused)
{
    struct hub_batch b = {0};
    int to = standard_pipe();
    struct hub_batch_source *s = open_source((struct live_options){
        .path = "-", .format = HUB_BLOCK_FORMAT, .batch_samples = 65536, .memory_bytes = MEMORY});
    const struct hub_block_head head = {
        .magic = HUB_BLOCK_MAGIC, .samples = 1, .slots = 1, .keys = HUB_BLOCK_KEYS_MAX};
    const size_t bytes = hub_block_body_bytes(&head);
    uint8_t *body = calloc(1, bytes);
    assert_non_null(body);
    memcpy(body + bytes - sizeof(uint32_t), &head.keys, sizeof(uint32_t));
    assert_int_equal(write(to, &head, sizeof(head)), sizeof(head));
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(to, body + done, bytes - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    assert_int_equal(build(s, 0, &b), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text, "take a smaller batch_samples than 65536"));
    free(body);
    hub_batch_source_close(s);
    hub_batch_source_close(NULL);
    close(to);
}

static int live_source_begin(void **state)
{
    if (make_formats(state) != 0)
        return -1;
    return sem_init(&come, 0, 0);
}

int main(void)
{
    return tests_run(live_source_begin, free_formats);
}
