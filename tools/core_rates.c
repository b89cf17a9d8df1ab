#include "tools/core_rates.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "ps/store/copier.h"
#include "tools/ctl/save_text.h"

const char tool_core_heading[] =
    "core state      busy  calls/s  keys/s   rx pk/s  rx B/s   tx pk/s  tx B/s   rows     MiB      batches";

void tool_core_sample_counter(void *arg, const char *name, uint64_t value)
{
    struct tool_core_sample *s = arg;
    const struct {
        const char *name;
        uint64_t *sum;
    } wanted[] = {
        {"wire.calls_served", &s->calls},
        {"table.keys_looked_up", &s->keys},
        {"table.keys_pushed", &s->keys},
        {"wire.rx_packets", &s->rx_packets},
        {"wire.rx_bytes", &s->rx_bytes},
        {"wire.tx_packets", &s->tx_packets},
        {"wire.tx_bytes", &s->tx_bytes},
        {"checkpoint.running_id", &s->running_id},
        {"checkpoint.running_bytes", &s->running_bytes},
        {"checkpoint.running_bytes_total", &s->running_bytes_total},
        {"checkpoint.saves_queued", &s->saves_queued},
        {"checkpoint.waiting_step", &s->waiting_step},
        {"checkpoint.trainers_held", &s->trainers_held},
        {"checkpoint.trainers_awaited", &s->trainers_awaited},
        {"remote.state", &s->remote_state},
        {"remote.last_id", &s->remote_last_id},
        {"remote.behind", &s->remote_behind},
        {"remote.behind_s", &s->remote_behind_s},
        {"remote.bytes", &s->remote_bytes},
        {"remote.bytes_kept", &s->remote_bytes_kept},
        {"remote.bytes_again", &s->remote_bytes_again},
        {"remote.copies_failed", &s->remote_failed},
        {"remote.last_status", &s->remote_status},
        {"cluster.copies_lag_bytes", &s->copies_lag_bytes},
        {"cluster.copies_lag_us", &s->copies_lag_us},
        {"cluster.partitions_backed_up", &s->partitions_backed_up},
        {"cluster.partitions_uncopied", &s->partitions_uncopied},
        {"scrub.rounds", &s->scrub_rounds},
        {"scrub.last_s", &s->scrub_last_s},
        {"scrub.damaged", &s->scrub_damaged},
        {"scrub.damaged_id", &s->scrub_damaged_id},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
        if (strcmp(name, wanted[i].name) == 0)
            *wanted[i].sum += value;
}

static double rate(uint64_t before, uint64_t now, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0.0;
}

/* The number of the start may come again; the time since then does not go back. */
static bool is_other_start(const struct tool_core_sample *before, const struct tool_core_sample *now)
{
    return now->state.incarnation != before->state.incarnation ||
           now->state.uptime_us < before->state.uptime_us;
}

struct tool_core_rates tool_core_rates(const struct tool_core_sample *before,
                                       const struct tool_core_sample *now)
{
    if (now->time_us <= before->time_us || is_other_start(before, now))
        return (struct tool_core_rates){0};
    const double seconds = (double)(now->time_us - before->time_us) / 1e6;
    return (struct tool_core_rates){
        .calls_per_s = rate(before->calls, now->calls, seconds),
        .keys_per_s = rate(before->keys, now->keys, seconds),
        .rx_packets_per_s = rate(before->rx_packets, now->rx_packets, seconds),
        .rx_bytes_per_s = rate(before->rx_bytes, now->rx_bytes, seconds),
        .tx_packets_per_s = rate(before->tx_packets, now->tx_packets, seconds),
        .tx_bytes_per_s = rate(before->tx_bytes, now->tx_bytes, seconds),
    };
}

const char *tool_node_state_name(uint32_t state)
{
    static const char *const names[] = {"away",     "serving",   "saving", "restoring",
                                        "stopping", "read only", "failed"};
    return state < sizeof(names) / sizeof(*names) ? names[state] : "?";
}

void tool_short_number(double value, char out[16])
{
    static const char units[] = {'k', 'M', 'G', 'T', 'P', 'E'};
    if (value < 1000.0) {
        (void)snprintf(out, 16, "%.0f", value);
        return;
    }
    uint32_t unit = 0;
    value /= 1000.0;
    /* 999.5 would be printed as 1000 */
    while (value >= 999.5 && unit + 1 < sizeof(units)) {
        value /= 1000.0;
        unit++;
    }
    (void)snprintf(out, 16,
                   value < 10.0    ? "%.2f%c"
                   : value < 100.0 ? "%.1f%c"
                                   : "%.0f%c",
                   value, units[unit]);
}

static int add_number(char *out, size_t out_bytes, int at, const char *number)
{
    if (at < 0 || (size_t)at >= out_bytes)
        return at;
    return at + snprintf(out + at, out_bytes - (size_t)at, "  %-7s", number);
}

void tool_core_line(const struct tool_core_sample *now, const struct tool_core_rates *rates, char *out,
                    size_t out_bytes)
{
    const double values[] = {
        rates->calls_per_s,      rates->keys_per_s,     rates->rx_packets_per_s, rates->rx_bytes_per_s,
        rates->tx_packets_per_s, rates->tx_bytes_per_s, (double)now->state.rows,
    };
    char number[16];
    int at = snprintf(out, out_bytes, "%4" PRIu32 " %-10s%4.0f%%", now->state.core,
                      tool_node_state_name(now->state.state), 100.0 * now->state.busy_share);
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        tool_short_number(values[i], number);
        at = add_number(out, out_bytes, at, number);
    }
    (void)snprintf(number, sizeof(number), "%.1f", tool_mib(now->state.memory_bytes));
    at = add_number(out, out_bytes, at, number);
    tool_short_number((double)now->state.cached_batches, number);
    (void)add_number(out, out_bytes, at, number);
}

/* Of what was written between the samples. */
static double written_per_s(const struct tool_core_sample *before, const struct tool_core_sample *now)
{
    const uint64_t from = before->running_id == now->running_id ? before->running_bytes : 0;
    if (now->running_id == 0 || now->time_us <= before->time_us || is_other_start(before, now))
        return 0.0;
    return rate(from, now->running_bytes, (double)(now->time_us - before->time_us) / 1e6);
}

static int add_text(char *out, size_t out_bytes, int at, const char *text)
{
    if (at < 0 || (size_t)at >= out_bytes)
        return at;
    return at + snprintf(out + at, out_bytes - (size_t)at, "%s%s", at > 0 ? "; " : "", text);
}

bool tool_checkpoint_line(const struct tool_core_sample *before, const struct tool_core_sample *now,
                          char *out, size_t out_bytes)
{
    char text[160];
    int at = 0;
    if (now->running_id != 0) {
        (void)snprintf(text, sizeof(text), "checkpoint %" PRIu64 ": %.1f of %.1f MiB, %.1f MiB/s now",
                       now->running_id, tool_mib(now->running_bytes), tool_mib(now->running_bytes_total),
                       written_per_s(before, now) / (double)(1u << 20));
        at = add_text(out, out_bytes, at, text);
    }
    if (now->saves_queued != 0) {
        (void)snprintf(text, sizeof(text), "%" PRIu64 " save%s queued", now->saves_queued,
                       mr_plural(now->saves_queued));
        at = add_text(out, out_bytes, at, text);
    }
    if (now->waiting_step != 0) {
        (void)snprintf(text, sizeof(text),
                       "a cut waits for step %" PRIu64 ", where %" PRIu64 " of %" PRIu64 " trainers are",
                       now->waiting_step, now->trainers_held, now->trainers_awaited);
        at = add_text(out, out_bytes, at, text);
    }
    return at > 0;
}

static double copied_per_s(const struct tool_core_sample *before, const struct tool_core_sample *now)
{
    if (now->time_us <= before->time_us || is_other_start(before, now))
        return 0.0;
    return rate(before->remote_bytes, now->remote_bytes, (double)(now->time_us - before->time_us) / 1e6);
}

bool tool_remote_line(const struct tool_core_sample *before, const struct tool_core_sample *now, char *out,
                      size_t out_bytes)
{
    char text[160];
    int at = 0;
    if (now->remote_state == PS_COPIER_OFF)
        return false;
    if (now->remote_behind == 0 && now->remote_last_id == 0)
        (void)snprintf(text, sizeof(text), "store: no checkpoint there");
    else if (now->remote_behind == 0)
        (void)snprintf(text, sizeof(text), "store: all is there, up to checkpoint %" PRIu64,
                       now->remote_last_id);
    else
        (void)snprintf(text, sizeof(text), "store: %" PRIu64 " checkpoint%s behind, for %" PRIu64 " s",
                       now->remote_behind, mr_plural(now->remote_behind), now->remote_behind_s);
    at = add_text(out, out_bytes, at, text);
    if (now->remote_state == PS_COPIER_COPYING) {
        (void)snprintf(text, sizeof(text), "%.1f MiB/s now", copied_per_s(before, now) / (double)(1u << 20));
        at = add_text(out, out_bytes, at, text);
    }
    if (now->remote_bytes_kept > 0 || now->remote_bytes_again > 0) {
        (void)snprintf(text, sizeof(text), "after interruptions %.1f MiB sent again, %.1f MiB not",
                       (double)now->remote_bytes_again / (double)(1u << 20),
                       (double)now->remote_bytes_kept / (double)(1u << 20));
        at = add_text(out, out_bytes, at, text);
    }
    if (now->remote_state == PS_COPIER_FAILING) {
        (void)snprintf(text, sizeof(text), "the last of %" PRIu64 " failed tr%s: %s (see the log)",
                       now->remote_failed, now->remote_failed == 1 ? "y" : "ies",
                       mr_status_text((enum mr_status)now->remote_status));
        at = add_text(out, out_bytes, at, text);
    }
    return at > 0;
}

/* The newest is known to be damaged before the round that has found it has ended. */
bool tool_scrub_line(const struct tool_core_sample *now, char *out, size_t out_bytes)
{
    const uint64_t count = now->scrub_damaged == 0 && now->scrub_damaged_id != 0 ? 1 : now->scrub_damaged;
    char newest[64] = "";
    if (count == 0)
        return false;
    if (now->scrub_damaged_id != 0)
        (void)snprintf(newest, sizeof(newest), ", the newest of all, %" PRIu64 ", among them",
                       now->scrub_damaged_id);
    (void)snprintf(out, out_bytes, "damaged on the disk: %" PRIu64 " checkpoint%s%s (see the log)", count,
                   mr_plural(count), newest);
    return true;
}

json_t *tool_scrub_json(const struct tool_core_sample *now)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "rounds", (json_int_t)now->scrub_rounds, "last_s",
                     (json_int_t)now->scrub_last_s, "damaged", (json_int_t)now->scrub_damaged, "damaged_id",
                     (json_int_t)now->scrub_damaged_id);
}

/* Below so much a backup is as near as it can be. */
#define LAG_BYTES UINT64_C(1048576)

bool tool_copies_line(const struct tool_core_sample *now, char *out, size_t out_bytes)
{
    int at = 0;
    if (now->copies_lag_bytes >= LAG_BYTES || now->copies_lag_us > 0)
        at = snprintf(out, out_bytes, "its backups are %.1f MiB behind, by %.1f s%s",
                      tool_mib(now->copies_lag_bytes), (double)now->copies_lag_us / 1e6,
                      now->partitions_uncopied > 0 ? "; " : "");
    if (now->partitions_uncopied > 0 && at >= 0 && (size_t)at < out_bytes)
        at += snprintf(out + at, out_bytes - (size_t)at, "%" PRIu64 " of its partitions %s no backup in sync",
                       now->partitions_uncopied, now->partitions_uncopied == 1 ? "has" : "have");
    return at > 0;
}

json_t *tool_copies_json(const struct tool_core_sample *now)
{
    return json_pack("{s:I, s:f, s:I, s:I}", "lag_bytes", (json_int_t)now->copies_lag_bytes, "lag_s",
                     (double)now->copies_lag_us / 1e6, "backed_up", (json_int_t)now->partitions_backed_up,
                     "uncopied", (json_int_t)now->partitions_uncopied);
}

static void add_count(char *out, size_t out_bytes, int *at, uint64_t count, const char *one, const char *many)
{
    char text[96];
    if (count == 0)
        return;
    (void)snprintf(text, sizeof(text), "%" PRIu64 " %s", count, count == 1 ? one : many);
    *at = add_text(out, out_bytes, *at, text);
}

bool tool_drop_stats_line(const struct tool_core_sample *cores, uint32_t core_count, char *out,
                          size_t out_bytes)
{
    uint64_t refused = 0, without_row = 0, skipped = 0, ignored = 0;
    int at = 0;
    for (uint32_t i = 0; i < core_count; i++) {
        refused += cores[i].state.rows_refused;
        without_row += cores[i].state.gradients_without_row;
        skipped += cores[i].state.gradients_skipped;
        ignored += cores[i].state.steps_ignored;
    }
    if (refused + without_row + skipped + ignored == 0)
        return false;
    add_count(out, out_bytes, &at, refused, "row refused at a limit", "rows refused at a limit");
    add_count(out, out_bytes, &at, without_row, "gradient without a row", "gradients without a row");
    add_count(out, out_bytes, &at, skipped, "gradient with NaN or Inf", "gradients with NaN or Inf");
    add_count(out, out_bytes, &at, ignored, "call with a step too far off", "calls with steps too far off");
    if (at >= 0 && (size_t)at < out_bytes)
        (void)snprintf(out + at, out_bytes - (size_t)at, ", since the start");
    return true;
}

json_t *tool_checkpoint_json(const struct tool_core_sample *before, const struct tool_core_sample *now)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "id", (json_int_t)now->running_id,
                     "bytes_done", (json_int_t)now->running_bytes, "bytes_total",
                     (json_int_t)now->running_bytes_total, "bytes_per_s", written_per_s(before, now),
                     "queued", (json_int_t)now->saves_queued, "waiting_step", (json_int_t)now->waiting_step,
                     "trainers_held", (json_int_t)now->trainers_held, "trainers_awaited",
                     (json_int_t)now->trainers_awaited);
}

json_t *tool_remote_json(const struct tool_core_sample *before, const struct tool_core_sample *now)
{
    static const char *const states[] = {"off", "idle", "copying", "failing"};
    const bool is_known = now->remote_state < sizeof(states) / sizeof(*states);
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:s}", "state",
                     is_known ? states[now->remote_state] : "?", "last_id", (json_int_t)now->remote_last_id,
                     "behind", (json_int_t)now->remote_behind, "behind_s", (json_int_t)now->remote_behind_s,
                     "bytes_per_s", copied_per_s(before, now), "bytes_kept",
                     (json_int_t)now->remote_bytes_kept, "bytes_again", (json_int_t)now->remote_bytes_again,
                     "copies_failed", (json_int_t)now->remote_failed, "last_status",
                     mr_status_text((enum mr_status)now->remote_status));
}

json_t *tool_core_json(const struct tool_core_sample *now, const struct tool_core_rates *rates)
{
    return json_pack(
        "{s:I, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "core", (json_int_t)now->state.core, "state", tool_node_state_name(now->state.state), "why",
        now->state.why, "incarnation", (json_int_t)now->state.incarnation, "busy_share",
        now->state.busy_share, "calls_per_s", rates->calls_per_s, "keys_per_s", rates->keys_per_s,
        "rx_packets_per_s", rates->rx_packets_per_s, "rx_bytes_per_s", rates->rx_bytes_per_s,
        "tx_packets_per_s", rates->tx_packets_per_s, "tx_bytes_per_s", rates->tx_bytes_per_s, "rows",
        (json_int_t)now->state.rows, "memory_bytes", (json_int_t)now->state.memory_bytes, "cached_batches",
        (json_int_t)now->state.cached_batches, "last_step", (json_int_t)now->state.last_step, "rows_refused",
        (json_int_t)now->state.rows_refused, "gradients_without_row",
        (json_int_t)now->state.gradients_without_row, "gradients_skipped",
        (json_int_t)now->state.gradients_skipped, "steps_ignored", (json_int_t)now->state.steps_ignored);
}
