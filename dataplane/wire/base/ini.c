#include "dataplane/wire/base/ini.h"

#include <ini.h>
#include <string.h>

struct reading {
    FILE *file;
    const char *path;
    mr_ini_handler handler;
    void *arg;
    uint32_t line;
    uint32_t error_line; /* 0 = none yet */
    char *error;
    size_t error_bytes;
};

static void record_error(struct reading *r, const char *why)
{
    if (r->error_line != 0)
        return;
    r->error_line = r->line;
    snprintf(r->error, r->error_bytes, "%.160s:%u: %s", r->path, r->line, why);
}

static void record_too_long(struct reading *r, int bytes_max)
{
    char why[64];
    snprintf(why, sizeof(why), "the line is longer than %d bytes", bytes_max - 2);
    record_error(r, why);
}

/* inih's line source: counts lines, and drops indentation, which inih would take for a continued value. */
static char *read_line(char *out, int out_bytes, void *user)
{
    struct reading *r = user;
    char line[MR_INI_LINE_MAX];
    if (fgets(line, sizeof(line), r->file) == NULL)
        return NULL;
    r->line++;
    size_t length = strcspn(line, "\n");
    const char *start = line + strspn(line, " \t");
    bool is_comment = *start == '#' || *start == ';';
    if (line[length] != '\n' && !feof(r->file)) {
        if (!is_comment)
            record_too_long(r, MR_INI_LINE_MAX);
        for (int c = fgetc(r->file); c != EOF && c != '\n';)
            c = fgetc(r->file);
    }
    if (strlen(start) >= (size_t)out_bytes) {
        if (!is_comment)
            record_too_long(r, out_bytes);
        start = "#\n";
    }
    memcpy(out, start, strlen(start) + 1);
    return out;
}

/* inih ends a value at " ;", but not at " #". */
static void cut_comment(char *value)
{
    for (char *c = value; *c != '\0'; c++) {
        const bool is_apart = c == value ? c[1] == ' ' || c[1] == '\t' : c[-1] == ' ' || c[-1] == '\t';
        if (*c != '#' || !is_apart)
            continue;
        while (c > value && (c[-1] == ' ' || c[-1] == '\t'))
            c--;
        *c = '\0';
        return;
    }
}

static int on_value(void *user, const char *section, const char *name, const char *text)
{
    struct reading *r = user;
    char why[MR_INI_WHY_MAX], value[MR_INI_LINE_MAX];
    (void)snprintf(value, sizeof(value), "%s", text);
    cut_comment(value);
    if (r->handler(r->arg, r->line, section, name, value, why))
        return 1;
    record_error(r, why);
    return 0;
}

enum mr_ini mr_ini_read(FILE *file, const char *path, mr_ini_handler handler, void *arg, char *error,
                        size_t error_bytes)
{
    struct reading r = {.file = file,
                        .path = path,
                        .handler = handler,
                        .arg = arg,
                        .error = error,
                        .error_bytes = error_bytes};
    int bad_line = ini_parse_stream(read_line, &r, on_value, &r);
    if (ferror(file) != 0) {
        snprintf(error, error_bytes, "%.300s: cannot be read: is it a file?", path);
        return MR_INI_UNREADABLE;
    }
    /* inih finds lines that are neither section nor key, without calling the handler. */
    if (bad_line > 0 && (r.error_line == 0 || (uint32_t)bad_line < r.error_line)) {
        r.error_line = 0;
        r.line = (uint32_t)bad_line;
        record_error(&r, "expected [section], key = value, or a comment that starts with #");
    }
    return r.error_line != 0 ? MR_INI_WRONG : MR_INI_OK;
}
