#include "ps/server/drop_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/base/log.h"
#include "ps/core/core.h"

#define DROP_LOOK_US UINT64_C(5000000)
#define DROP_LINE_US UINT64_C(60000000)

struct drop_sums {
    uint64_t dropped[MR_DROP_CAUSES_MAX], received;
};

static void drop_sum(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                     uint64_t value)
{
    struct drop_sums *sums = arg;
    char name[128];
    (void)snprintf(name, sizeof(name), "%s.%s", set->name, counter->name);
    const uint32_t cause = mr_drop_cause_find(name);
    if (cause < mr_drop_cause_count)
        sums->dropped[cause] += value;
    else if (strcmp(name, "port.rx_frames") == 0)
        sums->received += value;
}

uint64_t ps_drop_log_due(struct ps_drop_counter *c, const struct mr_drop_cause *cause, uint64_t dropped,
                         uint64_t received, uint64_t now_us)
{
    const uint64_t rise = dropped - c->dropped;
    const bool may_log = c->line_us == 0 || now_us - c->line_us >= DROP_LINE_US;
    const bool is_due = may_log && mr_drop_cause_matters(cause, rise, received - c->received);
    if (is_due)
        c->line_us = now_us;
    if (is_due || now_us - c->since_us >= DROP_LINE_US) { /* else what was dropped waits for the line */
        c->dropped = dropped;
        c->received = received;
        c->since_us = now_us;
    }
    return is_due ? rise : 0;
}

void ps_drop_log_look(struct ps_drop_log *log, const struct ps_node *node, uint64_t now_us)
{
    struct drop_sums sums = {.received = 0};
    if (now_us < log->look_us)
        return;
    log->look_us = now_us + DROP_LOOK_US;
    for (uint32_t i = 0; i < node->core_count; i++)
        dp_core_each_counter(node->cores[i]->dp_core, drop_sum, &sums);
    for (uint32_t i = 0; i < mr_drop_cause_count; i++) {
        const struct mr_drop_cause *cause = &mr_drop_causes[i];
        const uint64_t count =
            ps_drop_log_due(&log->counters[i], cause, sums.dropped[i], sums.received, now_us);
        if (count > 0)
            mr_log_with(MR_LOG_WARNING,
                        MR_LOG_FIELDS({"counter", .text = cause->counter}, {"count", .number = count}),
                        "packets_dropped", "%s rose by %" PRIu64 ": %s: %s", cause->counter, count,
                        cause->what, cause->cure);
    }
}
