#include "tools/perf/run_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LINE_BYTES_FIRST (64u << 10)
#define LINE_BYTES_MAX   (64u << 20)

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

static bool read_lines(struct reader *r, const char *path, bool (*visit)(void *arg, const json_t *line),
                       void *arg, char *error, size_t error_bytes)
{
    bool goes_on = true, is_first = true;
    size_t bytes;
    while (goes_on && (bytes = read_line(r)) > 0) {
        json_t *line = json_loadb(r->line, bytes, 0, NULL);
        if (is_first && !is_header(line, path, error, error_bytes)) {
            json_decref(line);
            return false;
        }
        is_first = false;
        goes_on = line != NULL && visit(arg, line); /* what is damaged ends the run */
        json_decref(line);
    }
    return is_first ? is_header(NULL, path, error, error_bytes) : true;
}

bool tool_run_read(const char *path, bool (*visit)(void *arg, const json_t *line), void *arg, char *error,
                   size_t error_bytes)
{
    struct reader r = {
        .file = gzopen(path, "rbe"), .line = malloc(LINE_BYTES_FIRST), .room = LINE_BYTES_FIRST};
    bool good = false;
    if (r.file == NULL || r.line == NULL)
        (void)snprintf(error, error_bytes, "%s: %s", path, strerror(errno));
    else
        good = read_lines(&r, path, visit, arg, error, error_bytes);
    if (r.file != NULL)
        (void)gzclose(r.file);
    free(r.line);
    return good;
}
