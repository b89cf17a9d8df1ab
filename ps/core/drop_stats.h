/* What was asked of a feature and not done: when there is to be a line about it in the log, and which.
 * Pure. */
#ifndef PS_DROP_STATS_H
#define PS_DROP_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "ps/table/table.h"

#define PS_DROP_STATS_INTERVAL_US    UINT64_C(60000000) /* between two lines about a feature */
#define PS_DROP_STATS_LINE_BYTES_MAX 640u

/* Since the feature was made, on all cores. */
struct ps_drop_stats {
    uint64_t rows_refused, gradients_without_row, gradients_skipped;
    enum ps_limit limit; /* what refused a row, the last time */
};

/* What has been said of a feature; zero to begin with. */
struct ps_drop_stats_log {
    struct ps_drop_stats reported;
    uint64_t next_us; /* nothing is said before */
};

static inline uint64_t ps_drop_stats_sum(const struct ps_drop_stats *l)
{
    return l->rows_refused + l->gradients_without_row + l->gradients_skipped;
}

/* Now there is something new to be said, and enough time has passed: *since becomes what came since the last
 * line, which counts as said. */
bool ps_drop_stats_due(struct ps_drop_stats_log *log, const struct ps_drop_stats *now, uint64_t now_us,
                       struct ps_drop_stats *since);
/* There is something that was not said yet. */
bool ps_drop_stats_pends(const struct ps_drop_stats_log *log, const struct ps_drop_stats *now);
/* A line that says what, and what to set. memory_limit_mib: the node's. */
void ps_drop_stats_line(const struct mr_feature *feature, const struct ps_drop_stats *since,
                        uint64_t memory_limit_mib, char line[PS_DROP_STATS_LINE_BYTES_MAX]);

#endif
