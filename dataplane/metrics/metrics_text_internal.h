/* What the files that write metrics share. */
#ifndef MR_METRICS_TEXT_INTERNAL_H
#define MR_METRICS_TEXT_INTERNAL_H

#include "dataplane/metrics/metrics_text.h"

void mr_metrics_add(struct mr_metrics_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* HELP, TYPE and UNIT of a family. */
void mr_metrics_begin(struct mr_metrics_text *text, const char *name, const char *type, enum mr_unit unit,
                      const char *help);

#endif
