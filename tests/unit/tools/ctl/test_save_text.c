#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "millrace_admin.h"
#include "tools/ctl/save_text.h"
#include "tests/test.h"

/* One save is written, one waits for step 40. */
static const struct mr_checkpoint_info busy = {.step = 38,
                                               .waiting_step = 40,
                                               .trainers_held = 1,
                                               .trainers_awaited = 2,
                                               .saves_queued = 1,
                                               .state = MR_CHECKPOINT_SAVING,
                                               .id = 7,
                                               .bytes_done = 12 * MR_MIB,
                                               .bytes_total = 400 * MR_MIB,
                                               .duration_us = 500000};

static void stands(struct mr_save_info save, const char *expected)
{
    char out[TOOL_SAVE_LINE_BYTES];
    tool_save_stands(&save, &busy, out);
    assert_string_equal(out, expected);
}

TEST(test_where_a_save_stands)
{
    stands((struct mr_save_info){.state = MR_SAVE_WRITING, .id = 7},
           "it writes checkpoint 7: 12.0 of 400.0 MiB, 24.0 MiB/s");
    /* What is known of its progress is of another moment. */
    stands((struct mr_save_info){.state = MR_SAVE_WRITING, .id = 6}, "it writes checkpoint 6: almost there");
    stands((struct mr_save_info){.state = MR_SAVE_QUEUED},
           "it waits for checkpoint 7: 12.0 of 400.0 MiB, 24.0 MiB/s");
    stands((struct mr_save_info){.state = MR_SAVE_WAITS_FOR_STEP, .step = 40},
           "it waits for step 40, where 1 of 2 trainers are; training is at step 38");
    stands((struct mr_save_info){.state = MR_SAVE_WAITS_FOR_STEP},
           "it waits for step 40, where 1 of 2 trainers are; training is at step 38");
    /* An automatic cut comes before. */
    stands((struct mr_save_info){.state = MR_SAVE_WAITS_FOR_STEP, .step = 50},
           "it waits for step 50; training is at step 38");
    stands((struct mr_save_info){.state = MR_SAVE_ENDED}, "it has ended");
}

TEST(test_queued_behind_one_that_waits)
{
    char out[TOOL_SAVE_LINE_BYTES];
    struct mr_checkpoint_info idle = busy;
    struct mr_save_info save = {.state = MR_SAVE_QUEUED};
    idle.state = MR_CHECKPOINT_IDLE;
    tool_save_stands(&save, &idle, out);
    assert_string_equal(out, "it waits for another save");
}

TEST(test_names)
{
    struct mr_save_info save = {.state = MR_SAVE_ENDED, .kind = MR_SAVE_DELTA};
    assert_string_equal(tool_save_state_name(&save), "ended");
    assert_string_equal(tool_save_kind_name(&save), "delta");
    save.status = MR_CANCELLED;
    assert_string_equal(tool_save_state_name(&save), "cancelled");
    save.state = MR_SAVE_QUEUED;
    assert_string_equal(tool_save_remote_name(&save), "-");
    save.remote = MR_REMOTE_SUPERSEDED;
    assert_string_equal(tool_save_remote_name(&save), "superseded");
    save.kind = MR_SAVE_PARTIAL;
    assert_string_equal(tool_save_kind_name(&save), "partial");
    save.kind = MR_SAVE_CONFIGURED;
    assert_string_equal(tool_save_state_name(&save), "queued");
    assert_string_equal(tool_save_kind_name(&save), "-");
}

TEST(test_progress_and_step)
{
    char out[64];
    tool_save_progress(0, 3 * MR_MIB, 0, out, sizeof(out));
    assert_string_equal(out, "0.0 of 3.0 MiB");
    tool_save_step(0, false, out, sizeof(out));
    assert_string_equal(out, "");
    tool_save_step(40, false, out, sizeof(out));
    assert_string_equal(out, " of step 40");
    tool_save_step(40, true, out, sizeof(out));
    assert_string_equal(out, " of step 40, cut at that step");
}

TEST(test_what_has_ended)
{
    char out[TOOL_SAVE_LINE_BYTES];
    struct mr_save_info save = {.id = 7,
                                .kind = MR_SAVE_FULL,
                                .bytes = 12 * MR_MIB,
                                .duration_us = 520000,
                                .step = 40,
                                .is_at_step = true};
    struct mr_checkpoint_info first = busy, idle = {.state = MR_CHECKPOINT_IDLE};
    tool_save_done(&save, true, out, sizeof(out)); /* a node's part */
    assert_string_equal(out, "saved checkpoint 7 of step 40, cut at that step: full, 12.0 MiB in 0.52 s");
    save.bytes = 0; /* tables without rows */
    tool_save_done(&save, false, out, sizeof(out));
    assert_string_equal(out, "saved checkpoint 7 of step 40, cut at that step: full, 0.0 MiB in 0.52 s");
    tool_save_done(&save, true, out, sizeof(out));
    assert_string_equal(out, "saved checkpoint 7 of the cluster of step 40, cut at that step in 0.52 s");
    save.duration_us = 0; /* by a node of 0.2 */
    tool_save_done(&save, true, out, sizeof(out));
    assert_string_equal(out, "saved checkpoint 7 of the cluster of step 40, cut at that step");
    tool_save_last(&first, out, sizeof(out));
    assert_string_equal(out, "none since the server's start");
    first.last_good_id = 6;
    tool_save_last(&first, out, sizeof(out));
    assert_string_equal(out, "ended well");
    tool_save_last(&idle, out, sizeof(out));
    assert_string_equal(out, "none since the server's start");
    idle.last_status = MR_IO_ERROR;
    tool_save_last(&idle, out, sizeof(out));
    assert_non_null(strstr(out, "failed: "));
}
