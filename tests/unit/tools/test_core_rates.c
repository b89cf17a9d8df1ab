#include <stdio.h>
#include <string.h>

#include "tools/core_rates.h"
#include "tests/test.h"

TEST(test_counters_are_picked_by_name)
{
    struct tool_core_sample s = {0};
    static const struct {
        const char *name;
        uint64_t value;
    } counters[] = {{"wire.calls_served", 1},         {"table.keys_looked_up", 10},
                    {"table.keys_pushed", 100},       {"wire.rx_packets", 1000},
                    {"wire.rx_bytes", 2000},          {"wire.tx_packets", 3000},
                    {"wire.tx_bytes", 4000},          {"checkpoint.running_id", 5},
                    {"checkpoint.running_bytes", 6},  {"checkpoint.running_bytes_total", 7},
                    {"checkpoint.saves_queued", 8},   {"checkpoint.waiting_step", 9},
                    {"checkpoint.trainers_held", 10}, {"checkpoint.trainers_awaited", 11},
                    {"port.rx_frames", 77},           {"wire.calls_made", 77},
                    {"table.keys_missing", 77},       {"", 77},
                    {"wire.rx_bytes_more", 77}};
    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
        tool_core_sample_counter(&s, counters[i].name, counters[i].value);
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.keys, 110);
    assert_int_equal(s.rx_packets, 1000);
    assert_int_equal(s.rx_bytes, 2000);
    assert_int_equal(s.tx_packets, 3000);
    assert_int_equal(s.tx_bytes, 4000);
    assert_int_equal(s.running_id, 5);
    assert_int_equal(s.running_bytes, 6);
    assert_int_equal(s.running_bytes_total, 7);
    assert_int_equal(s.saves_queued, 8);
    assert_int_equal(s.waiting_step, 9);
    assert_int_equal(s.trainers_held, 10);
    assert_int_equal(s.trainers_awaited, 11);
}

static struct tool_core_sample sample(uint64_t time_us, uint64_t n)
{
    return (struct tool_core_sample){.time_us = time_us,
                                     .calls = n,
                                     .keys = 2 * n,
                                     .rx_packets = 3 * n,
                                     .rx_bytes = 4 * n,
                                     .tx_packets = 5 * n,
                                     .tx_bytes = 6 * n,
                                     .state = {.core = 3,
                                               .state = 1,
                                               .incarnation = 2,
                                               .busy_share = 0.5,
                                               .rows = 1234567,
                                               .memory_bytes = UINT64_C(5) << 30,
                                               .cached_batches = 98,
                                               .rows_refused = 41,
                                               .gradients_without_row = 42,
                                               .gradients_skipped = 43,
                                               .steps_ignored = 44}};
}

TEST(test_rates)
{
    struct tool_core_sample before = sample(1000000, 100), now = sample(3000000, 300);
    struct tool_core_rates r = tool_core_rates(&before, &now);
    assert_true(r.calls_per_s == 100 && r.keys_per_s == 200 && r.rx_packets_per_s == 300);
    assert_true(r.rx_bytes_per_s == 400 && r.tx_packets_per_s == 500 && r.tx_bytes_per_s == 600);
}

TEST(test_no_rate_across_a_restart)
{
    struct tool_core_sample before = sample(1000000, 100), now = sample(3000000, 300);
    now.state.incarnation++;
    struct tool_core_rates r = tool_core_rates(&before, &now);
    assert_true(r.calls_per_s == 0 && r.tx_bytes_per_s == 0);
    now = sample(1000000, 300); /* no time has passed */
    r = tool_core_rates(&before, &now);
    assert_true(r.calls_per_s == 0);
    now = sample(2000000, 50); /* fewer than before, which no counter is */
    r = tool_core_rates(&before, &now);
    assert_true(r.calls_per_s == 0);
}

TEST(test_short_numbers)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {7, "7"},
                 {999, "999"},
                 {1000, "1.00k"},
                 {1234567, "1.23M"},
                 {12345678, "12.3M"},
                 {123456789, "123M"},
                 {999999, "1.00M"},
                 {5e9, "5.00G"},
                 {2e21, "2000E"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[16];
        tool_short_number(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

/* Every column of a line begins where its heading does. */
TEST(test_lines_fit_their_heading)
{
    struct tool_core_sample before = sample(0, 0), now = sample(1000000, 123456);
    struct tool_core_rates r = tool_core_rates(&before, &now);
    char line[256];
    tool_core_line(&now, &r, line, sizeof(line));
    assert_non_null(strstr(line, "serving"));
    assert_non_null(strstr(line, " 50%"));
    static const struct {
        const char *heading, *value;
    } columns[] = {{"calls/s", "123k"}, {"keys/s", "247k"}, {"tx B/s", "741k"},
                   {"rows", "1.23M"},   {"MiB", "5120.0"},  {"batches", "98"}};
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        assert_int_equal(strstr(line, columns[i].value) - line,
                         strstr(tool_core_heading, columns[i].heading) - tool_core_heading);
    char little[10];
    tool_core_line(&now, &r, little, sizeof(little));
    assert_int_equal(strlen(little), sizeof(little) - 1);
}

TEST(test_json_holds_the_same)
{
    struct tool_core_sample before = sample(0, 0), now = sample(1000000, 1000);
    struct tool_core_rates r = tool_core_rates(&before, &now);
    json_t *o = tool_core_json(&now, &r);
    assert_non_null(o);
    assert_int_equal(json_integer_value(json_object_get(o, "core")), 3);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "serving");
    assert_true(json_real_value(json_object_get(o, "calls_per_s")) == 1000);
    assert_int_equal(json_integer_value(json_object_get(o, "rows")), 1234567);
    assert_int_equal(json_integer_value(json_object_get(o, "rows_refused")), 41);
    assert_int_equal(json_integer_value(json_object_get(o, "gradients_without_row")), 42);
    assert_int_equal(json_integer_value(json_object_get(o, "gradients_skipped")), 43);
    assert_int_equal(json_integer_value(json_object_get(o, "steps_ignored")), 44);
    json_decref(o);
}

/* Summed over cores, what there is of it. */
TEST(test_what_was_left_out)
{
    struct tool_core_sample cores[2] = {0};
    char line[512] = "", little[8];
    assert_false(tool_drop_stats_line(cores, 2, line, sizeof(line)));
    assert_string_equal(line, "");
    cores[0].state.rows_refused = 549727;
    cores[1].state.rows_refused = 1;
    cores[1].state.gradients_skipped = 1;
    assert_true(tool_drop_stats_line(cores, 2, line, sizeof(line)));
    assert_string_equal(line, "549728 rows refused at a limit; 1 gradient with NaN or Inf, since the start");
    cores[0].state.rows_refused = 0;
    cores[0].state.gradients_without_row = 20;
    cores[0].state.steps_ignored = 3;
    assert_true(tool_drop_stats_line(cores, 1, line, sizeof(line)));
    assert_string_equal(line, "20 gradients without a row; 3 calls with steps too far off, since the start");
    assert_true(tool_drop_stats_line(cores, 2, little, sizeof(little)));
    assert_int_equal(strlen(little), sizeof(little) - 1);
}

static void expect_line(const struct tool_core_sample *before, const struct tool_core_sample *now,
                        const char *expected)
{
    char line[512] = "";
    assert_int_equal(tool_checkpoint_line(before, now, line, sizeof(line)), expected[0] != '\0');
    assert_string_equal(line, expected);
}

TEST(test_what_checkpoints_are_about)
{
    struct tool_core_sample before = sample(0, 0), now = sample(2000000, 0);
    expect_line(&before, &now, "");
    now.running_id = 7;
    now.running_bytes = UINT64_C(12) << 20;
    now.running_bytes_total = UINT64_C(400) << 20;
    expect_line(&before, &now, "checkpoint 7: 12.0 of 400.0 MiB, 6.0 MiB/s now");
    before.running_id = 7;
    before.running_bytes = UINT64_C(10) << 20;
    expect_line(&before, &now, "checkpoint 7: 12.0 of 400.0 MiB, 1.0 MiB/s now");
    before.running_id = 6; /* another one then: that began since */
    now.saves_queued = 1;
    now.waiting_step = 40;
    now.trainers_held = 1;
    now.trainers_awaited = 2;
    expect_line(
        &before, &now,
        "checkpoint 7: 12.0 of 400.0 MiB, 6.0 MiB/s now; 1 save queued; a cut waits for step 40, where "
        "1 of 2 trainers are");
    json_t *o = tool_checkpoint_json(&before, &now);
    assert_int_equal(json_integer_value(json_object_get(o, "id")), 7);
    assert_int_equal(json_integer_value(json_object_get(o, "bytes_total")), 400 << 20);
    assert_true(json_real_value(json_object_get(o, "bytes_per_s")) == 6 << 20);
    assert_int_equal(json_integer_value(json_object_get(o, "trainers_awaited")), 2);
    json_decref(o);
    before.state.incarnation++;
    now.running_id = 0;
    expect_line(&before, &now, "1 save queued; a cut waits for step 40, where 1 of 2 trainers are");
    char little[10];
    assert_true(tool_checkpoint_line(&before, &now, little, sizeof(little)));
    assert_int_equal(strlen(little), sizeof(little) - 1);
}

static void expect_store(const struct tool_core_sample *before, const struct tool_core_sample *now,
                         const char *expected)
{
    char line[512] = "";
    assert_int_equal(tool_remote_line(before, now, line, sizeof(line)), expected[0] != '\0');
    assert_string_equal(line, expected);
}

TEST(test_how_far_the_store_is)
{
    struct tool_core_sample before = sample(0, 0), now = sample(2000000, 0);
    expect_store(&before, &now, "");
    tool_core_sample_counter(&now, "remote.state", 1);
    expect_store(&before, &now, "store: no checkpoint there");
    tool_core_sample_counter(&now, "remote.last_id", 7);
    expect_store(&before, &now, "store: all is there, up to checkpoint 7");
    tool_core_sample_counter(&now, "remote.state", 1); /* 2: copying */
    tool_core_sample_counter(&now, "remote.behind", 2);
    tool_core_sample_counter(&now, "remote.behind_s", 40);
    tool_core_sample_counter(&now, "remote.bytes", 20 << 20);
    expect_store(&before, &now, "store: 2 checkpoints behind, for 40 s; 10.0 MiB/s now");
    struct tool_core_sample resumed = now;
    tool_core_sample_counter(&resumed, "remote.bytes_kept", 3 << 20);
    tool_core_sample_counter(&resumed, "remote.bytes_again", 1 << 20);
    expect_store(&before, &resumed,
                 "store: 2 checkpoints behind, for 40 s; 10.0 MiB/s now; "
                 "after interruptions 1.0 MiB sent again, 3.0 MiB not");
    tool_core_sample_counter(&now, "remote.state", 1); /* 3: failing */
    tool_core_sample_counter(&now, "remote.copies_failed", 3);
    tool_core_sample_counter(&now, "remote.last_status", MR_IO_ERROR);
    char expected[256];
    (void)snprintf(expected, sizeof(expected),
                   "store: 2 checkpoints behind, for 40 s; the last of 3 failed tries: %s (see the log)",
                   mr_status_text(MR_IO_ERROR));
    expect_store(&before, &now, expected);
    json_t *o = tool_remote_json(&before, &now);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "failing");
    assert_int_equal(json_integer_value(json_object_get(o, "behind")), 2);
    assert_true(json_real_value(json_object_get(o, "bytes_per_s")) == 10 << 20);
    json_decref(o);
}

TEST(test_what_the_scrub_found)
{
    struct tool_core_sample now = sample(0, 0);
    char line[256] = "";
    assert_false(tool_scrub_line(&now, line, sizeof(line)));
    tool_core_sample_counter(&now, "scrub.rounds", 3);
    assert_false(tool_scrub_line(&now, line, sizeof(line)));
    tool_core_sample_counter(&now, "scrub.damaged", 1);
    assert_true(tool_scrub_line(&now, line, sizeof(line)));
    assert_string_equal(line, "damaged on the disk: 1 checkpoint (see the log)");
    tool_core_sample_counter(&now, "scrub.damaged", 1);
    tool_core_sample_counter(&now, "scrub.damaged_id", 7);
    assert_true(tool_scrub_line(&now, line, sizeof(line)));
    assert_string_equal(line,
                        "damaged on the disk: 2 checkpoints, the newest of all, 7, among them (see the log)");
    json_t *o = tool_scrub_json(&now);
    assert_int_equal(json_integer_value(json_object_get(o, "rounds")), 3);
    assert_int_equal(json_integer_value(json_object_get(o, "damaged_id")), 7);
    json_decref(o);
}

TEST(test_how_far_backups_are_behind)
{
    struct tool_core_sample now = sample(0, 0);
    char line[256] = "";
    assert_false(tool_copies_line(&now, line, sizeof(line)));
    tool_core_sample_counter(&now, "cluster.copies_lag_bytes", 1000);
    tool_core_sample_counter(&now, "cluster.partitions_backed_up", 683);
    assert_false(tool_copies_line(&now, line, sizeof(line))); /* no backup is nearer */
    tool_core_sample_counter(&now, "cluster.partitions_uncopied", 1);
    assert_true(tool_copies_line(&now, line, sizeof(line)));
    assert_string_equal(line, "1 of its partitions has no backup in sync");
    tool_core_sample_counter(&now, "cluster.copies_lag_bytes", 12 * 1048576 - 1000);
    tool_core_sample_counter(&now, "cluster.copies_lag_us", 400000);
    assert_true(tool_copies_line(&now, line, sizeof(line)));
    assert_string_equal(
        line, "its backups are 12.0 MiB behind, by 0.4 s; 1 of its partitions has no backup in sync");
    json_t *o = tool_copies_json(&now);
    assert_int_equal(json_integer_value(json_object_get(o, "lag_bytes")), 12 * 1048576);
    assert_true(json_real_value(json_object_get(o, "lag_s")) > 0.39);
    assert_int_equal(json_integer_value(json_object_get(o, "backed_up")), 683);
    json_decref(o);
}

TEST(test_state_names)
{
    assert_string_equal(tool_node_state_name(1), "serving");
    assert_string_equal(tool_node_state_name(4), "stopping");
    assert_string_equal(tool_node_state_name(0), "away");
    assert_string_equal(tool_node_state_name(99), "?");
}
