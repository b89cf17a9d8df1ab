/* A text in a file for node_exporter's textfile collector: who reads it sees all of it, or the one before. */
#ifndef MR_METRICS_FILE_H
#define MR_METRICS_FILE_H

#include <stdbool.h>
#include "dataplane/metrics/metrics_text.h"

/* Writes the text beside `path`, and renames it. False: errno says why; nothing is left behind. */
bool mr_metrics_write_file(const struct mr_metrics_text *text, const char *path);

#endif
