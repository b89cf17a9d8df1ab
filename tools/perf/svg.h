/* Plots over time as SVG, without a script: lines, and a map of how many calls took how long. They take the
 * width of their column; colours and fonts come from the page's style sheet (report_html.c). */
#ifndef TOOL_SVG_H
#define TOOL_SVG_H

#include <stdint.h>
#include <stdio.h>

enum tool_unit { TOOL_UNIT_COUNT, TOOL_UNIT_BYTES, TOOL_UNIT_SHARE, TOOL_UNIT_NS };

#define TOOL_LINES_MAX 12u

struct tool_plot {
    const char *title;
    enum tool_unit unit;
    double seconds; /* the width */
    uint32_t points;
    uint32_t line_count;
    struct tool_line {
        char name[160];
        const double *values; /* [points]; NAN: nothing there */
    } lines[TOOL_LINES_MAX];
    uint32_t annotation_count;
    const struct tool_plot_annotation {
        double at_s;
        const char *text;
    } * annotations;
};

void tool_plot_lines(const struct tool_plot *plot, FILE *out);

/* Columns are times, rows spans: counts[column * rows + row]; row r is from low_ns[r] to low_ns[r + 1]. */
struct tool_map {
    const char *title;
    double seconds;
    uint32_t columns, rows;
    const uint32_t *counts;
    const double *low_ns; /* [rows + 1] */
};

void tool_plot_map(const struct tool_map *map, FILE *out);

/* Writes text for HTML: &, <, > and " are escaped. */
void tool_html_text(const char *text, FILE *out);
/* "1.23M", "4.5 MiB", "12.3 us", "45 %". */
void tool_quantity(double value, enum tool_unit unit, char out[24]);

#endif
