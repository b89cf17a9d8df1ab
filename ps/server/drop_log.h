/* Log lines about packets that are dropped: a counter that rises (dataplane/wire/format/drop_causes.h) has a
 * line with its cure within seconds, and then one a minute at most. One thread. */
#ifndef PS_DROP_LOG_H
#define PS_DROP_LOG_H

#include "dataplane/wire/format/drop_causes.h"
#include "ps/core/node.h"

struct ps_drop_log {
    uint64_t look_us; /* not before */
    struct ps_drop_counter {
        uint64_t dropped, received; /* when the span began that a line would be about */
        uint64_t since_us, line_us; /* that time; 0: no look yet. When the last line was */
    } counters[MR_DROP_CAUSES_MAX];
};

/* Looks at the counters of all cores, if it is time to. Once they have started. */
void ps_drop_log_look(struct ps_drop_log *log, const struct ps_node *node, uint64_t now_us);

/* Of one counter, with values over all cores: how many packets a line is due about; 0: none is. */
uint64_t ps_drop_log_due(struct ps_drop_counter *counter, const struct mr_drop_cause *cause, uint64_t dropped,
                         uint64_t received, uint64_t now_us);

#endif
