#include "ps/core/drop_stats.h"
#include "dataplane/wire/base/plural.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A feature that was restored, or another under the same number, counts from 0 again. */
static uint64_t more_than(uint64_t now, uint64_t reported)
{
    return now >= reported ? now - reported : now;
}

static struct ps_drop_stats difference(const struct ps_drop_stats *now, const struct ps_drop_stats *reported)
{
    return (struct ps_drop_stats){
        .rows_refused = more_than(now->rows_refused, reported->rows_refused),
        .gradients_without_row = more_than(now->gradients_without_row, reported->gradients_without_row),
        .gradients_skipped = more_than(now->gradients_skipped, reported->gradients_skipped),
        .limit = now->limit};
}

bool ps_drop_stats_pends(const struct ps_drop_stats_log *log, const struct ps_drop_stats *now)
{
    struct ps_drop_stats since = difference(now, &log->reported);
    return ps_drop_stats_sum(&since) > 0;
}

bool ps_drop_stats_due(struct ps_drop_stats_log *log, const struct ps_drop_stats *now, uint64_t now_us,
                       struct ps_drop_stats *since)
{
    if (now_us < log->next_us || !ps_drop_stats_pends(log, now))
        return false;
    *since = difference(now, &log->reported);
    *log = (struct ps_drop_stats_log){.reported = *now, .next_us = now_us + PS_DROP_STATS_INTERVAL_US};
    return true;
}

/* ---- the line ---- */

struct line {
    char *text;
    size_t at;
};

static __attribute__((format(printf, 2, 3))) void drop_stats_add(struct line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(l->text + l->at, PS_DROP_STATS_LINE_BYTES_MAX - l->at, format, arguments);
    va_end(arguments);
    size_t left = PS_DROP_STATS_LINE_BYTES_MAX - 1 - l->at;
    l->at += n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
}

static void add_count(struct line *l, uint64_t count, const char *what)
{
    drop_stats_add(l, "%s%llu %s%s", l->text[l->at - 1] == ':' ? " " : "; ", (unsigned long long)count, what,
                   mr_plural(count));
}

/* What refused the rows, and what to set. */
static void add_limit(struct line *l, const struct mr_feature *f, enum ps_limit limit,
                      uint64_t memory_limit_mib)
{
    bool makes_room = f->eviction != MR_EVICT_NEVER && f->eviction != MR_EVICT_NORM;
    const char *or_evict = makes_room ? "" : ", or with eviction lru, lfu, age or steps";
    switch (limit) {
    case PS_LIMIT_ROWS:
        drop_stats_add(l, " refused at capacity_rows %llu: make the table with a larger one%s",
                       (unsigned long long)f->capacity_rows, or_evict);
        break;
    case PS_LIMIT_MEMORY:
        drop_stats_add(l, " refused at memory_bytes %llu: make the table with more%s",
                       (unsigned long long)f->memory_bytes, or_evict);
        break;
    default:
        drop_stats_add(l, " refused at the node's memory.limit_mib %llu: raise it%s",
                       (unsigned long long)memory_limit_mib,
                       makes_room ? "" : ", or make the table with eviction lru, lfu, age or steps");
        break;
    }
}

void ps_drop_stats_line(const struct mr_feature *feature, const struct ps_drop_stats *since,
                        uint64_t memory_limit_mib, char line[PS_DROP_STATS_LINE_BYTES_MAX])
{
    struct line l = {.at = 0};
    l.text = line;
    drop_stats_add(&l, "%s %.63s:", feature->kind == MR_TABLE ? "table" : "variable", feature->name);
    if (since->rows_refused > 0) {
        add_count(&l, since->rows_refused, "new row");
        add_limit(&l, feature, since->limit, memory_limit_mib);
    }
    if (since->gradients_without_row > 0) {
        add_count(&l, since->gradients_without_row, "gradient");
        drop_stats_add(&l,
                       " left out for want of a row (keys not looked up, not admitted, refused or evicted)");
    }
    if (since->gradients_skipped > 0) {
        add_count(&l, since->gradients_skipped, "gradient");
        drop_stats_add(&l, " left out because of NaN or Inf: check the loss and the learning rate");
    }
    drop_stats_add(&l, " (since the last line about it; millrace ctl list has the sums)");
}
