#include "tools/perf/svg.h"

#include <math.h>
#include <stdbool.h>
#include "tools/core_rates.h"

/* Of the drawing, in its own units; text is 13 of them high. */
#define WIDTH   640.0
#define HEIGHT  212.0
#define LEFT    86.0
#define RIGHT   12.0
#define TOP     12.0
#define BOTTOM  26.0
#define INNER_W (WIDTH - LEFT - RIGHT)
#define INNER_H (HEIGHT - TOP - BOTTOM)
#define TICKS   4u
#define SHADES  8u

void tool_html_text(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            (void)fputs("&amp;", out);
            break;
        case '<':
            (void)fputs("&lt;", out);
            break;
        case '>':
            (void)fputs("&gt;", out);
            break;
        case '"':
            (void)fputs("&quot;", out);
            break;
        default:
            (void)fputc(*text, out);
        }
    }
}

static void scaled(double value, const char *const *units, uint32_t unit_count, double step, char out[24])
{
    uint32_t unit = 0;
    for (; fabs(value) >= step && unit + 1 < unit_count; unit++)
        value /= step;
    (void)snprintf(out, 24, fabs(value) < 10 && value != floor(value) ? "%.2g %s" : "%.3g %s", value,
                   units[unit]);
}

void tool_quantity(double value, enum tool_unit unit, char out[24])
{
    static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const times[] = {"ns", "us", "ms", "s"};
    char number[16];
    switch (unit) {
    case TOOL_UNIT_BYTES:
        scaled(value, bytes, sizeof(bytes) / sizeof(*bytes), 1024, out);
        break;
    case TOOL_UNIT_NS:
        scaled(value, times, sizeof(times) / sizeof(*times), 1000, out);
        break;
    case TOOL_UNIT_SHARE:
        (void)snprintf(out, 24, "%.3g %%", 100 * value);
        break;
    case TOOL_UNIT_COUNT:
        if (value > 0 && value < 10 && value != floor(value)) {
            (void)snprintf(out, 24, "%.2f", value);
        } else {
            tool_short_number(value, number);
            (void)snprintf(out, 24, "%s", number);
        }
        break;
    }
}

/* At least the value, and easy to read as the top of an axis: 1, 2 or 5 times a power of ten; of bytes, a
 * power of two. */
static double round_up(double value, enum tool_unit unit)
{
    if (!(value > 0))
        return 1;
    if (unit == TOOL_UNIT_BYTES)
        return exp2(ceil(log2(value)));
    const double power = pow(10, floor(log10(value)));
    const double digits = value / power;
    return power * (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10);
}

/* In HTML, which breaks its lines where the page is narrow. */
static void legend(const struct tool_plot *plot, FILE *out)
{
    (void)fprintf(out, "<div class=\"keys\">");
    for (uint32_t l = 0; l < plot->line_count; l++) {
        (void)fprintf(out, "<span class=\"k%u\">", l);
        tool_html_text(plot->lines[l].name, out);
        (void)fprintf(out, "</span> ");
    }
    (void)fprintf(out, "</div>");
}

static void svg_begin(const char *title, const struct tool_plot *with_legend, FILE *out)
{
    (void)fprintf(out, "<figure><figcaption>");
    tool_html_text(title, out);
    (void)fprintf(out, "</figcaption>");
    if (with_legend != NULL)
        legend(with_legend, out);
    (void)fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    tool_html_text(title, out);
    (void)fprintf(out, "\">");
}

static void seconds_axis(double seconds, FILE *out)
{
    for (uint32_t i = 0; i <= TICKS; i++) {
        const double x = LEFT + INNER_W * i / TICKS;
        const char *anchor = i == TICKS ? "end" : i == 0 ? "start" : "middle";
        (void)fprintf(out, "<text class=\"x\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\">%.3g s</text>", x,
                      HEIGHT - 8, anchor, seconds * i / TICKS);
    }
}

static void value_axis(double top, enum tool_unit unit, FILE *out)
{
    char text[24];
    for (uint32_t i = 0; i <= TICKS; i++) {
        const double y = TOP + INNER_H * (TICKS - i) / TICKS;
        tool_quantity(top * i / TICKS, unit, text);
        (void)fprintf(out,
                      "<path class=\"grid\" d=\"M%.0f %.1fh%.0f\"/><text class=\"y\" x=\"%.0f\" y=\"%.1f\" "
                      "text-anchor=\"end\">%s</text>",
                      LEFT, y, INNER_W, LEFT - 6, y + 4, text);
    }
}

static double largest(const struct tool_plot *plot)
{
    double most = 0;
    for (uint32_t l = 0; l < plot->line_count; l++)
        for (uint32_t i = 0; i < plot->points; i++)
            if (plot->lines[l].values[i] > most)
                most = plot->lines[l].values[i];
    return most;
}

static void draw_line(const struct tool_plot *plot, uint32_t number, double top, FILE *out)
{
    const double *values = plot->lines[number].values;
    bool is_open = false;
    (void)fprintf(out, "<path class=\"line c%u\" d=\"", number);
    for (uint32_t i = 0; i < plot->points; i++) {
        if (!isfinite(values[i])) {
            is_open = false;
            continue;
        }
        const double x = LEFT + INNER_W * (plot->points > 1 ? i / (double)(plot->points - 1) : 0);
        const bool is_alone = !is_open && (i + 1 == plot->points || !isfinite(values[i + 1]));
        (void)fprintf(out, "%c%.1f %.1f%s", is_open ? 'L' : 'M', x, TOP + INNER_H * (1 - values[i] / top),
                      is_alone ? "h.1" : ""); /* a dot */
        is_open = true;
    }
    (void)fprintf(out, "\"/>");
}

static void draw_annotations(const struct tool_plot *plot, FILE *out)
{
    for (uint32_t i = 0; i < plot->annotation_count; i++) {
        const double x = LEFT + INNER_W * plot->annotations[i].at_s / plot->seconds;
        (void)fprintf(out, "<path class=\"annotation\" d=\"M%.1f %.0fv%.0f\"><title>", x, TOP, INNER_H);
        tool_html_text(plot->annotations[i].text, out);
        (void)fprintf(out, "</title></path>");
    }
}

void tool_plot_lines(const struct tool_plot *plot, FILE *out)
{
    const double top =
        plot->unit == TOOL_UNIT_SHARE && largest(plot) <= 1 ? 1 : round_up(largest(plot), plot->unit);
    svg_begin(plot->title, plot, out);
    value_axis(top, plot->unit, out);
    seconds_axis(plot->seconds, out);
    draw_annotations(plot, out);
    for (uint32_t l = 0; l < plot->line_count; l++)
        draw_line(plot, l, top, out);
    (void)fprintf(out, "</svg></figure>\n");
}

/* The more calls, the darker, by the logarithm: one call of a million shows. */
static uint32_t shade(uint32_t count, uint32_t most)
{
    return count == 0 ? 0 : 1 + (uint32_t)((SHADES - 1) * log1p(count) / log1p(most));
}

static void used_rows(const struct tool_map *map, uint32_t *first, uint32_t *end, uint32_t *most)
{
    *first = map->rows;
    *end = 0;
    *most = 0;
    for (uint32_t i = 0; i < map->columns * map->rows; i++) {
        const uint32_t row = i % map->rows;
        if (map->counts[i] == 0)
            continue;
        *first = row < *first ? row : *first;
        *end = row + 1 > *end ? row + 1 : *end;
        *most = map->counts[i] > *most ? map->counts[i] : *most;
    }
}

void tool_plot_map(const struct tool_map *map, FILE *out)
{
    uint32_t first, end, most;
    char text[24];
    used_rows(map, &first, &end, &most);
    svg_begin(map->title, NULL, out);
    seconds_axis(map->seconds, out);
    const double width = INNER_W / map->columns, height = INNER_H / (end > first ? end - first : 1);
    for (uint32_t column = 0; column < map->columns; column++)
        for (uint32_t row = first; row < end; row++) {
            const uint32_t s = shade(map->counts[column * map->rows + row], most);
            if (s > 0)
                (void)fprintf(out, "<path class=\"s%u\" d=\"M%.1f %.1fh%.1fv%.1fh-%.1fz\"/>", s,
                              LEFT + width * column, TOP + height * (end - 1 - row), width + 0.2,
                              height + 0.2, width + 0.2);
        }
    for (uint32_t i = 0; i <= TICKS && end > first; i++) {
        const uint32_t row = first + (end - first) * i / TICKS;
        tool_quantity(map->low_ns[row], TOOL_UNIT_NS, text);
        (void)fprintf(out, "<text class=\"y\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 6,
                      TOP + height * (end - row) + 4, text);
    }
    (void)fprintf(out, "</svg></figure>\n");
}
