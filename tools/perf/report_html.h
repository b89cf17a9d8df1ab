/* One HTML file about a run, or about two side by side: plots, figures, and what changed most. Without links,
 * scripts or fonts from elsewhere. */
#ifndef TOOL_REPORT_HTML_H
#define TOOL_REPORT_HTML_H

#include <stdio.h>
#include "tools/perf/run.h"

/* `other` is NULL, or the run that `run` is compared with. The paths are shown as titles. */
void tool_report_html(const struct tool_run *run, const char *path, const struct tool_run *other,
                      const char *other_path, FILE *out);

#endif
