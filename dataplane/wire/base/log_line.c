#include "dataplane/wire/base/log_line.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/base/utf8.h"

/* A byte takes six of JSON at most; names, punctuation and numbers have the rest. */
static_assert(6 * (MR_LOG_MESSAGE_BYTES + MR_LOG_TEXTS_BYTES + MR_LOG_NODE_BYTES) + 2048 <= MR_LOG_LINE_BYTES,
              "every line fits");

struct line {
    char *out;
    size_t at;
};

static void add_bytes(struct line *l, const char *bytes, size_t count)
{
    const size_t room = MR_LOG_LINE_BYTES - 1 - l->at;
    count = count < room ? count : room;
    memcpy(l->out + l->at, bytes, count);
    l->at += count;
}

static void log_line_add(struct line *l, const char *text)
{
    add_bytes(l, text, strlen(text));
}

static void add_number(struct line *l, uint64_t number)
{
    char text[24];
    const int bytes = snprintf(text, sizeof(text), "%" PRIu64, number);
    add_bytes(l, text, (size_t)bytes);
}

static void add_time(struct line *l, const struct timespec *time)
{
    char text[40];
    struct tm utc;
    gmtime_r(&time->tv_sec, &utc);
    size_t at = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    at += (size_t)snprintf(text + at, sizeof(text) - at, ".%03ldZ", time->tv_nsec / 1000000);
    add_bytes(l, text, at);
}

/* ---- names ---- */

static const char *const levels[] = {"error", "warning", "info", "debug"};
static const char *const formats[] = {"text", "logfmt", "json"};

static bool find_name(const char *name, const char *const *names, int count, int *index)
{
    for (*index = 0; *index < count; (*index)++)
        if (strcmp(name, names[*index]) == 0)
            return true;
    return false;
}

const char *mr_log_level_name(enum mr_log_level level)
{
    return levels[level];
}

bool mr_log_level_parse(const char *name, enum mr_log_level *out)
{
    int index;
    const bool is_one = find_name(name, levels, sizeof(levels) / sizeof(*levels), &index);
    if (is_one)
        *out = (enum mr_log_level)index;
    return is_one;
}

bool mr_log_format_parse(const char *name, enum mr_log_format *out)
{
    int index;
    const bool is_one = find_name(name, formats, sizeof(formats) / sizeof(*formats), &index);
    if (is_one)
        *out = (enum mr_log_format)index;
    return is_one;
}

size_t mr_log_component(const char *file, const char **start)
{
    const char *name = strrchr(file, '/');
    const char *end = name != NULL ? name : file;
    for (*start = end; *start > file && (*start)[-1] != '/';)
        (*start)--;
    return (size_t)(end - *start);
}

void mr_log_record_fields(struct mr_log_record *record, const struct mr_log_field *fields, size_t count)
{
    size_t used = 0;
    record->field_count = count < MR_LOG_FIELDS_MAX ? count : MR_LOG_FIELDS_MAX;
    for (size_t i = 0; i < record->field_count; i++) {
        record->fields[i] = fields[i];
        if (fields[i].text == NULL)
            continue;
        const size_t room = sizeof(record->texts) - used;
        size_t length = strnlen(fields[i].text, room - 1);
        memcpy(record->texts + used, fields[i].text, length);
        record->texts[used + length] = '\0';
        length = strlen(mr_make_printable(record->texts + used, room));
        record->fields[i].text = record->texts + used;
        used += length + (room > length + 1 ? 1 : 0);
    }
}

/* ---- quoting ---- */

static void add_escaped(struct line *l, unsigned char c)
{
    char text[8];
    if (c == '"' || c == '\\')
        snprintf(text, sizeof(text), "\\%c", c);
    else if (c == '\n' || c == '\r' || c == '\t')
        snprintf(text, sizeof(text), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else
        snprintf(text, sizeof(text), "\\u%04x", c);
    log_line_add(l, text);
}

/* A string of JSON. */
static void add_quoted(struct line *l, const char *text)
{
    log_line_add(l, "\"");
    for (const char *s = text; *s != '\0';) {
        const size_t bytes = mr_utf8_bytes(s);
        const unsigned char first = (unsigned char)*s;
        if (bytes == 0)
            log_line_add(l, "\\ufffd");
        else if (first < ' ' || first == '"' || first == '\\' || first == 0x7f)
            add_escaped(l, first);
        else
            add_bytes(l, s, bytes);
        s += bytes != 0 ? bytes : 1;
    }
    log_line_add(l, "\"");
}

/* Whether logfmt takes it as it is. */
static bool is_bare(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s > ' ' && *s < 0x7f && *s != '"' && *s != '=' && *s != '\\')
        s++;
    return *s == '\0' && text[0] != '\0';
}

/* ---- formats ---- */

static void add_text_line(struct line *l, const struct mr_log_record *r, const struct mr_log_identity *who)
{
    add_time(l, &r->time);
    log_line_add(l, " ");
    log_line_add(l, who->program);
    log_line_add(l, ": ");
    if (r->site->level != MR_LOG_INFO) {
        log_line_add(l, mr_log_level_name(r->site->level));
        log_line_add(l, ": ");
    }
    const size_t begin = l->at;
    log_line_add(l, r->message);
    for (size_t i = begin; i < l->at; i++)
        if ((unsigned char)l->out[i] < ' ' || l->out[i] == 0x7f)
            l->out[i] = ' ';
}

struct pairs {
    struct line *line;
    bool is_json;
    size_t count;
};

static void add_name(struct pairs *p, const char *name)
{
    if (p->count++ > 0)
        log_line_add(p->line, p->is_json ? "," : " ");
    log_line_add(p->line, p->is_json ? "\"" : "");
    log_line_add(p->line, name);
    log_line_add(p->line, p->is_json ? "\":" : "=");
}

static void add_pair(struct pairs *p, const char *name, const char *value)
{
    add_name(p, name);
    if (!p->is_json && is_bare(value))
        log_line_add(p->line, value);
    else
        add_quoted(p->line, value);
}

static void add_pairs(struct line *l, const struct mr_log_record *r, const struct mr_log_identity *who,
                      bool is_json)
{
    struct pairs p = {.line = l, .is_json = is_json};
    const char *folder;
    char component[64];
    const size_t length = mr_log_component(r->site->file, &folder);
    snprintf(component, sizeof(component), "%.*s", (int)length, folder);
    add_name(&p, "ts");
    log_line_add(l, is_json ? "\"" : "");
    add_time(l, &r->time);
    log_line_add(l, is_json ? "\"" : "");
    add_pair(&p, "level", mr_log_level_name(r->site->level));
    if (who->node[0] != '\0')
        add_pair(&p, "node", who->node);
    add_pair(&p, "component", component);
    add_pair(&p, "event", r->site->event);
    add_name(&p, "msg");
    add_quoted(l, r->message);
    for (size_t i = 0; i < r->field_count; i++) {
        if (r->fields[i].text != NULL) {
            add_pair(&p, r->fields[i].name, r->fields[i].text);
            continue;
        }
        add_name(&p, r->fields[i].name);
        add_number(l, r->fields[i].number);
    }
}

size_t mr_log_line(const struct mr_log_record *record, enum mr_log_format format,
                   const struct mr_log_identity *who, char out[MR_LOG_LINE_BYTES])
{
    struct line l = {.out = out};
    if (format == MR_LOG_TEXT) {
        add_text_line(&l, record, who);
    } else {
        log_line_add(&l, format == MR_LOG_JSON ? "{" : "");
        add_pairs(&l, record, who, format == MR_LOG_JSON);
        log_line_add(&l, format == MR_LOG_JSON ? "}" : "");
    }
    out[l.at++] = '\n';
    return l.at;
}
