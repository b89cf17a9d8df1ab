#include "tools/bench/load_report.h"

#include <inttypes.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "tools/core_rates.h"

#define US_NS 1e3
#define S_NS  1e9
#define MB    1e6

static const struct {
    const char *name; /* in JSON */
    double share;
} percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}, {"p99_99", 0.9999}};

void tool_load_server_counter(void *arg, const char *name, uint64_t value)
{
    struct tool_load_server *s = arg;
    const struct {
        const char *name;
        uint64_t *sum;
    } wanted[] = {
        {"wire.segments_resent", &s->segments_resent},
        {"wire.segments_repeated", &s->segments_repeated},
        {"wire.calls_expired", &s->calls_expired},
        {"wire.busy_sent", &s->busy_sent},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
        if (strcmp(name, wanted[i].name) == 0)
            *wanted[i].sum += value;
}

static double per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static uint64_t good(const struct tool_op_stats *s)
{
    return s->counts[TOOL_ENDED] - s->counts[TOOL_FAILED];
}

/* ---- text ---- */

void tool_load_heading(FILE *out)
{
    (void)fprintf(out, "%8s %-13s %8s %8s %8s %9s %9s %9s %9s %8s\n", "", "", "calls/s", "keys/s", "MB/s",
                  "p50 us", "p99 us", "p99.9 us", "max us", "failed");
}

/* Four digits at least. */
static void us_text(uint64_t ns, char out[24])
{
    const double us = (double)ns / US_NS;
    (void)snprintf(out, 24, us < 1000 ? "%.1f" : "%.0f", us);
}

static void print_line(FILE *out, const char *label, const char *name, const struct tool_op_stats *s,
                       double seconds)
{
    const struct mr_histogram *h = &s->latency;
    char calls[16], keys[16], p50[24], p99[24], p999[24], max[24];
    tool_short_number(per_second(good(s), seconds), calls);
    tool_short_number(per_second(s->counts[TOOL_KEYS], seconds), keys);
    us_text(mr_histogram_percentile_ns(h, 0.5), p50);
    us_text(mr_histogram_percentile_ns(h, 0.99), p99);
    us_text(mr_histogram_percentile_ns(h, 0.999), p999);
    us_text(h->max_ns, max);
    (void)fprintf(out, "%8s %-13s %8s %8s %8.1f %9s %9s %9s %9s %8" PRIu64 "\n", label, name, calls, keys,
                  per_second(s->counts[TOOL_BYTES], seconds) / MB, p50, p99, p999, max,
                  s->counts[TOOL_FAILED]);
}

void tool_load_lines(FILE *out, const char *label, const struct tool_bench_plan *plan,
                     const struct tool_load_block *block)
{
    uint32_t lines = 0;
    for (uint32_t op = 0; op < TOOL_OPS; op++)
        if (plan->mix.weights[op] > 0)
            print_line(out, lines++ == 0 ? label : "", tool_op_name((enum tool_op)op), &block->stats.ops[op],
                       block->seconds);
    if (lines < 2)
        return;
    struct tool_op_stats sum;
    tool_load_stats_sum(&block->stats, &sum);
    print_line(out, "", "all", &sum, block->seconds);
}

bool tool_load_behind(const struct tool_load_block *block, uint64_t least_ns, char *out, size_t out_bytes)
{
    const double ms = (double)block->behind_ns / 1e6;
    if (block->behind_ns < least_ns || block->behind_ns == 0)
        return false;
    (void)snprintf(out, out_bytes, ms < 1000 ? "%.0f ms" : "%.1f s", ms < 1000 ? ms : ms / 1000);
    return true;
}

/* More than one cause, the most frequent ones of which the user learns. */
static void print_causes(FILE *out, const struct tool_load_stats *stats)
{
    for (uint32_t i = 1; i < MR_STATUS_COUNT; i++)
        if (stats->statuses[i] > 0)
            (void)fprintf(out, "  %" PRIu64 " call%s: %s\n", stats->statuses[i],
                          mr_plural(stats->statuses[i]), mr_status_text((enum mr_status)i));
}

void tool_load_failures(FILE *out, const struct tool_load_block *total, const char *first_error)
{
    struct tool_op_stats sum;
    char behind[32] = "0 ms";
    tool_load_stats_sum(&total->stats, &sum);
    if (sum.counts[TOOL_FAILED] > 0) {
        (void)fprintf(out, "%" PRIu64 " of %" PRIu64 " calls failed:\n", sum.counts[TOOL_FAILED],
                      sum.counts[TOOL_ENDED]);
        print_causes(out, &total->stats);
    }
    if (first_error[0] != '\0')
        (void)fprintf(out, "the first failure: %s\n", first_error);
    if (sum.counts[TOOL_UNSENT] == 0)
        return;
    (void)tool_load_behind(total, 0, behind, sizeof(behind));
    (void)fprintf(out,
                  "the server did not keep up with --rate: %" PRIu64
                  " call%s that %s due could not be sent, and "
                  "sending was %s behind at the end. They count with the time they had waited\n",
                  sum.counts[TOOL_UNSENT], mr_plural(sum.counts[TOOL_UNSENT]),
                  sum.counts[TOOL_UNSENT] == 1 ? "was" : "were", behind);
}

/* ---- JSON ---- */

static json_t *latency_json(const struct mr_histogram *h)
{
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(*percentiles); i++)
        (void)json_object_set_new(
            out, percentiles[i].name,
            json_real((double)mr_histogram_percentile_ns(h, percentiles[i].share) / US_NS));
    (void)json_object_set_new(out, "max", json_real((double)h->max_ns / US_NS));
    (void)json_object_set_new(out, "mean", json_real(mr_histogram_mean_ns(h) / US_NS));
    return out;
}

static json_t *histogram_json(const struct mr_histogram *h)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++)
        if (h->buckets[i] > 0)
            (void)json_array_append_new(
                out, json_pack("[I, I]", (json_int_t)mr_histogram_low_ns(i), (json_int_t)h->buckets[i]));
    return out;
}

static json_t *op_json(const struct tool_op_stats *s, double seconds)
{
    const uint64_t *n = s->counts;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "calls", (json_int_t)n[TOOL_ENDED],
                     "failed", (json_int_t)n[TOOL_FAILED], "timeouts", (json_int_t)n[TOOL_TIMEOUTS], "unsent",
                     (json_int_t)n[TOOL_UNSENT], "keys", (json_int_t)n[TOOL_KEYS], "bytes",
                     (json_int_t)n[TOOL_BYTES], "calls_per_s", per_second(good(s), seconds), "keys_per_s",
                     per_second(n[TOOL_KEYS], seconds), "bytes_per_s", per_second(n[TOOL_BYTES], seconds),
                     "latency_us", latency_json(&s->latency));
}

json_t *tool_load_block_json(const struct tool_bench_plan *plan, const struct tool_load_block *block,
                             bool with_histograms)
{
    struct tool_op_stats sum;
    tool_load_stats_sum(&block->stats, &sum);
    json_t *out = op_json(&sum, block->seconds), *ops = json_object();
    for (uint32_t op = 0; op < TOOL_OPS; op++) {
        if (plan->mix.weights[op] == 0)
            continue;
        json_t *one = op_json(&block->stats.ops[op], block->seconds);
        if (with_histograms)
            (void)json_object_set_new(one, "histogram", histogram_json(&block->stats.ops[op].latency));
        (void)json_object_set_new(ops, tool_op_name((enum tool_op)op), one);
    }
    (void)json_object_set_new(out, "ops", ops);
    (void)json_object_set_new(out, "end_s", json_real(block->end_s));
    (void)json_object_set_new(out, "seconds", json_real(block->seconds));
    (void)json_object_set_new(out, "warm_up_calls", json_integer((json_int_t)block->stats.warm_up));
    (void)json_object_set_new(out, "behind_ms", json_real((double)block->behind_ns / 1e6));
    return out;
}

json_t *tool_load_failures_json(const struct tool_load_stats *stats)
{
    json_t *out = json_object();
    for (uint32_t i = 1; i < MR_STATUS_COUNT; i++)
        if (stats->statuses[i] > 0)
            (void)json_object_set_new(out, mr_status_text((enum mr_status)i),
                                      json_integer((json_int_t)stats->statuses[i]));
    return out;
}

json_t *tool_load_server_json(const struct tool_load_server *server)
{
    if (!server->is_known)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I}", "segments_resent", (json_int_t)server->segments_resent,
                     "segments_repeated", (json_int_t)server->segments_repeated, "calls_expired",
                     (json_int_t)server->calls_expired, "busy_sent", (json_int_t)server->busy_sent);
}

static void key_law_text(const struct tool_key_law *l, char *out, size_t out_bytes)
{
    switch (l->kind) {
    case TOOL_KEYS_UNIFORM:
        (void)snprintf(out, out_bytes, "uniform:%" PRIu64, l->count);
        return;
    case TOOL_KEYS_ZIPF:
        (void)snprintf(out, out_bytes, "zipf:%" PRIu64 ":%g", l->count, l->exponent);
        return;
    case TOOL_KEYS_SEQUENTIAL:
        (void)snprintf(out, out_bytes, "sequential:%" PRIu64, l->count);
        return;
    case TOOL_KEYS_HOT:
        (void)snprintf(out, out_bytes, "hot:%" PRIu64 ":%g:%" PRIu64, l->count, l->hot_share, l->hot_count);
        return;
    }
}

static json_t *mix_json(const struct tool_mix *mix)
{
    json_t *out = json_object();
    for (uint32_t op = 0; op < TOOL_OPS; op++)
        if (mix->weights[op] > 0)
            (void)json_object_set_new(out, tool_op_name((enum tool_op)op), json_integer(mix->weights[op]));
    return out;
}

json_t *tool_load_plan_json(const struct tool_bench_plan *p)
{
    char keys[96], keys_per_call[32];
    key_law_text(&p->keys, keys, sizeof(keys));
    (void)snprintf(keys_per_call, sizeof(keys_per_call), "%" PRIu32 "..%" PRIu32, p->keys_per_call.min,
                   p->keys_per_call.max);
    return json_pack(
        "{s:I, s:I, s:f, s:s?, s:f, s:f, s:s, s:s, s:I, s:o, s:s, s:I, s:s, s:I, s:I, s:I, s:I}", "clients",
        (json_int_t)p->clients, "in_flight", (json_int_t)p->in_flight, "rate", p->rate, "arrivals",
        p->rate <= 0 ? NULL
        : p->is_even ? "even"
                     : "poisson",
        "seconds", p->seconds, "warm_up", p->warm_up_s, "keys", keys, "keys_per_call", keys_per_call,
        "bag_keys", (json_int_t)p->bag_keys, "mix", mix_json(&p->mix), "wire_dtype",
        mr_dtype_name(p->wire_dtype), "dim", (json_int_t)p->feature.dims[0], "optimizer",
        mr_optimizer_name(p->feature.optimizer), "preload", (json_int_t)p->preload, "variable_values",
        (json_int_t)p->variable_values, "echo_bytes", (json_int_t)p->echo_bytes, "seed", (json_int_t)p->seed);
}
