/* Metrics of this process, by the names that Prometheus's own libraries give them. */
#ifndef MR_METRICS_PROCESS_H
#define MR_METRICS_PROCESS_H

#include "dataplane/metrics/metrics_text.h"

/* Its version, when it started, its processor time and memory. */
void mr_metrics_process(struct mr_metrics_text *text, const struct mr_labels *labels);

#endif
