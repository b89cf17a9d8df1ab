#include "tools/perf/run_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "dataplane/wire/base/printable.h"

#define LINE_BYTES_FIRST  (64u << 10)
#define LINE_BYTES_MAX    (64u << 20)
#define NUMBER_DIGITS_MAX 18
#define BUFFER_BYTES      (1u << 18)

struct tool_run_writer {
    gzFile file;
    bool failed;
};

struct tool_run_writer *tool_run_create(const char *path)
{
    struct tool_run_writer *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->file = gzopen(path, "wbe6");
    if (w->file == NULL) {
        const int why = errno;
        free(w);
        errno = why;
        return NULL;
    }
    return w;
}

static int write_text(const char *text, size_t bytes, void *arg)
{
    return gzwrite(arg, text, (unsigned)bytes) == (int)bytes ? 0 : -1;
}

bool tool_run_write(struct tool_run_writer *w, json_t *line)
{
    if (line == NULL || w->failed || json_dump_callback(line, write_text, w->file, JSON_COMPACT) != 0 ||
        gzputc(w->file, '\n') != '\n')
        w->failed = true;
    json_decref(line);
    return !w->failed;
}

bool tool_run_flush(struct tool_run_writer *w)
{
    if (!w->failed && gzflush(w->file, Z_SYNC_FLUSH) != Z_OK)
        w->failed = true;
    return !w->failed;
}

bool tool_run_close(struct tool_run_writer *w)
{
    const bool closed = gzclose(w->file) == Z_OK;
    const bool good = closed && !w->failed;
    free(w);
    return good;
}

/* ---- reading ---- */

struct reader {
    gzFile file;
    char *line;
    size_t room;
    int64_t *values; /* of a line of counters */
    uint32_t value_room;
};

/* Returns the length of the next whole line; 0: there is none. */
static size_t read_line(struct reader *r)
{
    size_t used = 0;
    for (;;) {
        if (r->room - used < 2) {
            char *more = r->room < LINE_BYTES_MAX ? realloc(r->line, 2 * r->room) : NULL;
            if (more == NULL)
                return 0;
            r->line = more;
            r->room *= 2;
        }
        if (gzgets(r->file, r->line + used, (int)(r->room - used)) == NULL)
            return 0;
        used += strlen(r->line + used);
        if (used > 0 && r->line[used - 1] == '\n')
            return used;
    }
}

/* ---- lines of counters ---- */

/* They are most of a run, and a parser for any JSON spends most of a report's time on them. These functions
 * know them as this program writes them; what is written otherwise is left to that parser. */

static bool text_skip(const char **at, const char *text)
{
    const size_t bytes = strlen(text);
    if (strncmp(*at, text, bytes) != 0)
        return false;
    *at += bytes;
    return true;
}

static bool read_number(const char **at, int64_t *out)
{
    const bool is_negative = text_skip(at, "-");
    const char *begin = *at;
    int64_t value = 0;
    while (**at >= '0' && **at <= '9' && *at - begin < NUMBER_DIGITS_MAX)
        value = 10 * value + (*(*at)++ - '0');
    *out = is_negative ? -value : value;
    return *at > begin && !(**at >= '0' && **at <= '9');
}

static bool keep_value(struct reader *r, uint32_t count, int64_t value)
{
    if (count == r->value_room) {
        const uint32_t room = r->value_room == 0 ? 256 : 2 * r->value_room;
        int64_t *more = realloc(r->values, room * sizeof(*more));
        if (more == NULL)
            return false;
        r->values = more;
        r->value_room = room;
    }
    r->values[count] = value;
    return true;
}

static bool read_values(struct reader *r, const char **at, uint32_t *count)
{
    int64_t value;
    *count = 0;
    if (text_skip(at, "]"))
        return true;
    do {
        if (!read_number(at, &value) || !keep_value(r, *count, value))
            return false;
        ++*count;
    } while (text_skip(at, ","));
    return text_skip(at, "]");
}

/* {"t":100,"c":0,"v":[7,1200]}; false: it is not of this form. */
static bool read_counters(struct reader *r, int64_t *time_ms, int64_t *core, uint32_t *count)
{
    const char *at = r->line;
    return text_skip(&at, "{\"t\":") && read_number(&at, time_ms) && *time_ms >= 0 &&
           text_skip(&at, ",\"c\":") && read_number(&at, core) && *core >= 0 && *core <= INT32_MAX &&
           text_skip(&at, ",\"v\":[") && read_values(r, &at, count) && strcmp(at, "}\n") == 0;
}

/* ---- all lines ---- */

static bool is_header(const json_t *line, const char *path, char *error, size_t error_bytes)
{
    const char *format = json_string_value(json_object_get(line, "format"));
    const json_int_t version = json_integer_value(json_object_get(line, "version"));
    if (format == NULL || strcmp(format, TOOL_RUN_FORMAT) != 0) {
        (void)snprintf(error, error_bytes, "%s is no run: \"millrace perf record\" makes them", path);
        return false;
    }
    if (version != TOOL_RUN_VERSION) {
        (void)snprintf(error, error_bytes,
                       "%s is a run of version %lld, and this program reads version %d: use a newer one",
                       path, (long long)version, TOOL_RUN_VERSION);
        return false;
    }
    return true;
}

/* A run may come from elsewhere, and reports print what it says. */
static void line_make_printable(json_t *value)
{
    char text[MR_PRINTABLE_BYTES_MAX];
    const char *key;
    json_t *member;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_STRING:
        (void)mr_printable(text, sizeof(text), json_string_value(value), json_string_length(value));
        (void)json_string_set(value, text);
        break;
    case JSON_OBJECT:
        json_object_foreach(value, key, member) line_make_printable(member);
        break;
    case JSON_ARRAY:
        json_array_foreach(value, i, member) line_make_printable(member);
        break;
    default:
        break;
    }
}

static bool read_lines(struct reader *r, const char *path, const struct tool_run_visitor *visitor, void *arg,
                       char *error, size_t error_bytes)
{
    bool goes_on = true, is_first = true;
    size_t bytes;
    while (goes_on && (bytes = read_line(r)) > 0) {
        int64_t time_ms, core;
        uint32_t count;
        if (!is_first && visitor->counters != NULL && read_counters(r, &time_ms, &core, &count)) {
            goes_on = visitor->counters(arg, (uint64_t)time_ms, (uint32_t)core, r->values, count);
            continue;
        }
        json_t *line = json_loadb(r->line, bytes, 0, NULL);
        if (is_first && !is_header(line, path, error, error_bytes)) {
            json_decref(line);
            return false;
        }
        is_first = false;
        if (line != NULL)
            line_make_printable(line);
        goes_on = line != NULL && visitor->line(arg, line); /* what is damaged ends the run */
        json_decref(line);
    }
    return is_first ? is_header(NULL, path, error, error_bytes) : true;
}

bool tool_run_read(const char *path, const struct tool_run_visitor *visitor, void *arg, char *error,
                   size_t error_bytes)
{
    struct reader r = {
        .file = gzopen(path, "rbe"), .line = malloc(LINE_BYTES_FIRST), .room = LINE_BYTES_FIRST};
    bool good = false;
    if (r.file != NULL)
        (void)gzbuffer(r.file, BUFFER_BYTES);
    if (r.file == NULL || r.line == NULL)
        (void)snprintf(error, error_bytes, "%s: %s", path, strerror(errno));
    else
        good = read_lines(&r, path, visitor, arg, error, error_bytes);
    if (r.file != NULL)
        (void)gzclose(r.file);
    free(r.line);
    free(r.values);
    return good;
}
