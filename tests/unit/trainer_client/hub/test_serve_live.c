/* Plans of a hub whose input is read once: standard input, and files that grow. */
#include <string.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/block_bytes.h"
#include "tests/unit/trainer_client/hub/serve_fixture.h"

/* Standard input is a pipe with the samples [first, first + count) of the file. Returns its writing end. */
static int pipe_samples(const struct bench *b, uint32_t first, uint32_t count)
{
    static char text[SAMPLES * 100];
    ssize_t bytes = pread(b->file.fd, text, sizeof(text), 0);
    const char *begin = text, *end;
    int ends[2];
    assert_true(bytes > 0 && bytes < (ssize_t)sizeof(text));
    text[bytes] = '\0';
    for (; first > 0; first--)
        begin = strchr(begin, '\n') + 1;
    for (end = begin; count > 0; count--)
        end = strchr(end, '\n') + 1;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    assert_int_equal(write(ends[1], begin, (size_t)(end - begin)), end - begin);
    return ends[1];
}

TEST(standard_input_ends_with_what_has_come, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = live_plan("-");
    int to = pipe_samples(b, 0, SAMPLES - 3);
    struct mr_sample_info info;
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_OK);
    assert_int_equal(info.batches, 0); /* not known */
    assert_int_equal(train(b, trainer, SAMPLES / BATCH_SAMPLES - 1), SAMPLES / BATCH_SAMPLES - 1);
    struct mr_batch batch;
    assert_int_equal(mr_read_sample(trainer, NULL, NULL, 0, &batch), MR_NOT_READY); /* and no end */
    atomic_store(&b->hub.ending, true);
    assert_int_equal(train(b, trainer, UINT32_MAX), 1);
    wait_for_end(b);
    for (uint32_t n = 0; n < SAMPLES; n++)
        assert_int_equal(b->applied[n], n < SAMPLES - 3);
    mr_client_destroy(trainer);
    close(to);
}

TEST(what_comes_on_a_pipe_is_new, set_up, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("-");
    for (uint32_t part = 0; part < 2; part++) { /* the same plan, with what another writer has */
        int to = pipe_samples(b, part * SAMPLES / 2, SAMPLES / 2);
        close(to);
        struct mr_client *trainer = connect_to(hub_address);
        start_plan(trainer, &plan);
        assert_int_equal(train(b, trainer, UINT32_MAX), SAMPLES / 2 / BATCH_SAMPLES);
        mr_client_destroy(trainer);
        stop_hub(b);
        start_hub(b);
    }
    assert_applied(b, 1);
}

TEST(repeatable_input_goes_on_after_what_is_applied, set_up, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan("-");
    uint32_t batches = 0;
    stop_hub(b);
    b->config.is_repeated = true;
    start_hub(b);
    for (int start = 0; start < 2; start++) {
        int to = pipe_samples(b, 0, SAMPLES);
        close(to);
        struct mr_client *trainer = connect_to(hub_address);
        start_plan(trainer, &plan);
        batches += train(b, trainer, start == 0 ? 17 : UINT32_MAX);
        mr_client_destroy(trainer);
        stop_hub(b);
        start_hub(b);
    }
    assert_int_equal(batches, SAMPLES / BATCH_SAMPLES);
    assert_applied(b, 1);
}

TEST(batches_of_a_pipe_come_again_to_a_server_that_forgot, set_up, take_down)
{
    struct bench *b = *state;
    stop_hub(b);
    b->config.sample_memory_bytes = 1u << 20;
    start_hub(b);
    struct mr_client *trainer = connect_to(hub_address);
    const struct mr_sample_plan plan = live_plan("-");
    close(pipe_samples(b, 0, SAMPLES));
    start_plan(trainer, &plan);
    train_although_the_server_forgets(b, trainer);
    mr_client_destroy(trainer);
}

TEST(batches_that_are_gone_fail_the_plan, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = live_plan("-");
    struct mr_batch batch;
    close(pipe_samples(b, 0, SAMPLES));
    start_plan(trainer, &plan);
    train(b, trainer, 20);
    live_node_kill(b->node);
    live_node_restart(b->node);
    enum mr_status status;
    while ((status = read_batch(trainer, NULL, 0, &batch)) == MR_OK)
        mr_reply_free(batch.reply); /* handed out before */
    assert_int_equal(status, MR_IO_ERROR);
    assert_non_null(strstr(mr_last_error(), "another `run`"));
    plan.run = 1;
    start_plan(trainer, &plan);
    assert_int_equal(read_batch(trainer, NULL, 0, &batch), MR_END_OF_DATA); /* the rest went with the plan */
    mr_client_destroy(trainer);
}

TEST(a_followed_file_goes_on_where_it_was, set_up, take_down)
{
    struct bench *b = *state;
    const struct mr_sample_plan plan = live_plan(b->file.path);
    stop_hub(b);
    b->config.follow = true;
    start_hub(b);
    struct mr_client *trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    uint32_t batches = train(b, trainer, 17);
    mr_client_destroy(trainer);
    stop_hub(b);
    start_hub(b);
    trainer = connect_to(hub_address);
    start_plan(trainer, &plan);
    batches += train(b, trainer, SAMPLES / BATCH_SAMPLES - batches);
    assert_int_equal(batches, SAMPLES / BATCH_SAMPLES);
    assert_applied(b, 1);
    struct mr_batch batch;
    assert_int_equal(mr_read_sample(trainer, NULL, NULL, 0, &batch), MR_NOT_READY);
    mr_client_destroy(trainer);
    stop_hub(b);
    start_hub(b);
    trainer = connect_to(hub_address);
    struct mr_sample_plan held_out = plan;
    struct mr_sample_info info;
    held_out.part = MR_PART_HELD_OUT;
    held_out.held_out_share = 0.5;
    assert_int_equal(mr_start_sample(trainer, NULL, &held_out, &info), MR_INVALID_ARGUMENT);
    mr_client_destroy(trainer);
}

static struct mr_sample_plan scoring_plan(const char *path, const char *format)
{
    struct mr_sample_plan plan = live_plan(path);
    plan.format = format;
    plan.part = MR_PART_HELD_OUT;
    return plan;
}

static int pipe_blocks(const struct block_bytes *blocks)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    assert_int_equal(write(ends[1], blocks->bytes, blocks->used), blocks->used);
    return ends[1];
}

/* Once, as a pipe has it once; no stream of them stays at the server. */
TEST(samples_without_labels_are_scored_as_they_come, set_up, take_down)
{
    struct bench *b = *state;
    static struct block_bytes blocks;
    struct mr_sample_plan plan = scoring_plan("-", "batches");
    struct mr_sample_info info;
    struct mr_stream *streams;
    struct mr_batch batch;
    uint32_t count;
    blocks.used = 0;
    block_put_flagged(&blocks, 0, 35, HUB_BLOCK_NO_LABELS);
    block_put_flagged(&blocks, 35, 10, HUB_BLOCK_NO_LABELS);
    int to = pipe_blocks(&blocks);
    struct mr_client *trainer = connect_to(hub_address);
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_OK);
    assert_true(info.slots == 2 && info.dense == 2 && info.batches == 0);
    assert_int_equal(score(b, trainer, 4, false), 4);
    assert_int_equal(mr_read_sample(trainer, NULL, &b->scored, 1, &batch), MR_NOT_READY);
    b->scored_count = 0;
    blocks.used = 0;
    block_put_end(&blocks);
    assert_int_equal(write(to, blocks.bytes, blocks.used), blocks.used);
    close(to);
    assert_int_equal(score(b, trainer, UINT32_MAX, false), 1);
    for (uint32_t n = 0; n < SAMPLES; n++)
        assert_int_equal(b->applied[n], n < 45);
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_OK);
    assert_int_equal(score(b, trainer, UINT32_MAX, false), 0);
    mr_client_destroy(trainer);
    stop_hub(b);
    assert_int_equal(mr_streams(b->server, NULL, &streams, &count), MR_OK);
    assert_int_equal(count, 0);
    free(streams);
    start_hub(b);
}

/* And again from its start whenever the plan is started, also by another hub, or after the server has lost
 * what it was given. */
TEST(a_followed_file_without_labels_is_scored, set_up, take_down)
{
    struct bench *b = *state;
    char why[HUB_FORMAT_ERROR_BYTES];
    struct hub_format *format =
        read_format("[format]\nname = own\nseparator = tab\nheader = none\nlabel = none\n[columns]\n"
                    "y = flag\nn = integer\nrest1..rest37 = text or empty\nlast = text\n"
                    "[dense]\nn = log(n)\n[slots]\nlast = last\n",
                    why);
    struct hub_formats own = {.all = {format}, .count = 1};
    const struct mr_sample_plan plan = scoring_plan(b->file.path, "own");
    struct mr_sample_info info;
    stop_hub(b);
    b->config.follow = true;
    b->config.formats = &own;
    for (uint32_t start = 0; start < 2; start++) {
        start_hub(b);
        memset(b->applied, 0, sizeof(b->applied));
        struct mr_client *trainer = connect_to(hub_address);
        assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_OK);
        uint32_t batches = score(b, trainer, 17, true);
        if (start == 1) {
            live_node_kill(b->node);
            live_node_restart(b->node);
        }
        batches += score(b, trainer, SAMPLES / BATCH_SAMPLES - batches, true);
        assert_applied(b, 1);
        mr_client_destroy(trainer);
        stop_hub(b);
    }
    b->config.formats = formats;
    start_hub(b);
    hub_format_free(format);
}

/* Neither is trained on what has no labels, nor scored what has: an input that is read once has one part. */
TEST(labels_decide_on_the_part, set_up, take_down)
{
    struct bench *b = *state;
    static struct block_bytes blocks;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = scoring_plan("-", "criteo");
    struct mr_sample_info info;
    int to = pipe_samples(b, 0, 1);
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "format criteo: it has labels"));
    close(to);
    for (int held_out = 0; held_out < 2; held_out++) {
        blocks.used = 0;
        block_put_flagged(&blocks, 0, 5, held_out == 0 ? HUB_BLOCK_NO_LABELS : 0);
        to = pipe_blocks(&blocks);
        plan = scoring_plan("-", "batches");
        plan.part = held_out == 0 ? MR_PART_TRAIN : MR_PART_HELD_OUT;
        assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_BAD_MESSAGE);
        assert_non_null(strstr(mr_last_error(),
                               held_out == 0 ? "block 1 of - cannot be used: it has no labels to train on"
                                             : "block 1 of - cannot be used: it has labels"));
        close(to);
    }
    blocks.used = 0;
    block_put_flagged(&blocks, 0, BATCH_SAMPLES, HUB_BLOCK_NO_LABELS);
    to = pipe_blocks(&blocks);
    blocks.used = 0;
    block_put_samples(&blocks, BATCH_SAMPLES, 5, false);
    plan.run = 1; /* the plan before has failed */
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_OK);
    assert_int_equal(write(to, blocks.bytes, blocks.used), blocks.used);
    struct mr_batch batch;
    enum mr_status status;
    while ((status = read_batch(trainer, NULL, 0, &batch)) == MR_OK)
        mr_reply_free(batch.reply); /* the one before, if it was handed out in time */
    assert_int_equal(status, MR_BAD_MESSAGE);
    assert_non_null(strstr(mr_last_error(), "block 2 of - cannot be used: labels are either in every block"));
    close(to);
    mr_client_destroy(trainer);
}

TEST(what_cannot_be_read_once_is_refused, set_up, take_down)
{
    struct bench *b = *state;
    struct mr_client *trainer = connect_to(hub_address);
    struct mr_sample_plan plan = live_plan("-");
    struct mr_sample_info info;
    int to = pipe_samples(b, 0, 1);
    plan.epochs = 2;
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "- is read once, in its order"));
    plan = live_plan("-");
    plan.format = "batches";
    assert_int_equal(mr_start_sample(trainer, NULL, &plan, &info), MR_BAD_MESSAGE);
    assert_non_null(strstr(mr_last_error(), "block 1 of - cannot be used"));
    mr_client_destroy(trainer);
    close(to);
}

int main(void)
{
    return tests_run(make_formats, free_formats);
}
