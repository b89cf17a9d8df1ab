/* Which form of the text a request asks for. Pure. */
#ifndef MR_METRICS_ACCEPT_H
#define MR_METRICS_ACCEPT_H

#include <stdbool.h>

#define MR_METRICS_TYPE_PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"
#define MR_METRICS_TYPE_OPEN       "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Whether `accept`, the header of that name or NULL, prefers OpenMetrics to plain text, by the q of both. */
bool mr_metrics_wants_open(const char *accept);

#endif
