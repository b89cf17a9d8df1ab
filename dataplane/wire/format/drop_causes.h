/* Counters of dropped packets: what it means that one rises, and what to do. Declared once, for the node's
 * log and for millrace doctor. */
#ifndef MR_DROP_CAUSES_H
#define MR_DROP_CAUSES_H

#include <stdbool.h>
#include <stdint.h>

#define MR_DROP_CAUSES_MAX 32u

struct mr_drop_cause {
    const char *counter;     /* "port.rx_malformed" */
    uint32_t normal_percent; /* of the packets received: as many are dropped where nothing is wrong */
    const char *what, *cure;
};
extern const struct mr_drop_cause mr_drop_causes[];
extern const uint32_t mr_drop_cause_count;

/* The index of the counter's cause; mr_drop_cause_count: it has none, as dropping those packets is no
 * fault. */
uint32_t mr_drop_cause_find(const char *counter);
/* Whether that many, beside that many received in the same time, want looking at. */
bool mr_drop_cause_matters(const struct mr_drop_cause *cause, uint64_t dropped, uint64_t received);

#endif
