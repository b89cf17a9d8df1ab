/* The progress line of a trainer: in place on a terminal, else a line every few seconds. */
#ifndef EXAMPLES_FM_PROGRESS_H
#define EXAMPLES_FM_PROGRESS_H

#include "trainer_client/examples/fm_client.h"

struct fm_progress {
    uint64_t shown_us;
    uint64_t samples; /* since it was shown */
    double loss;      /* of those */
    bool shown;
};

void fm_progress_add(struct fm_progress *p, uint32_t samples, double loss);
/* Shows it when its time has come. Asks the server how busy it is. */
void fm_progress_show(struct fm_progress *p, struct fm_client *c, uint64_t samples_total);
void fm_progress_end(struct fm_progress *p);

#endif
