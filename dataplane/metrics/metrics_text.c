#include "dataplane/metrics/metrics_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/metrics/metrics_text_internal.h"

#define CAPACITY_FIRST (16u << 10)
#define MILLION        UINT64_C(1000000)

/* ---- units ---- */

/* What a declared unit is in text: the base unit, and the end that a counter's own name has instead. */
static const struct {
    const char *ending, *suffix, *base;
    bool in_millionths;
} units[] = {[MR_UNIT_NONE] = {"", "", "", false},
             [MR_UNIT_BYTES] = {"", "_bytes", "bytes", false},
             [MR_UNIT_SECONDS] = {"_s", "_seconds", "seconds", false},
             [MR_UNIT_MICROSECONDS] = {"_us", "_seconds", "seconds", true},
             [MR_UNIT_TIMESTAMP] = {"_s", "_timestamp_seconds", "seconds", false},
             [MR_UNIT_PPM] = {"_ppm", "_ratio", "ratio", true}};

/* Takes the word "bytes" out of "a_bytes_b". */
static void remove_word(char *name, const char *word)
{
    size_t length = strlen(word);
    for (char *at = strstr(name, word); at != NULL; at = strstr(at + 1, word)) {
        bool begins = at == name || at[-1] == '_', ends = at[length] == '_' || at[length] == '\0';
        if (!begins || !ends)
            continue;
        char *from = at == name ? at : at - 1, *rest = at + length;
        rest += from == name && *rest == '_' ? 1 : 0;
        memmove(from, rest, strlen(rest) + 1);
        return;
    }
}

void mr_metric_name(const struct mr_counter_set *set, const struct mr_counter *counter,
                    char name[MR_METRIC_NAME_BYTES])
{
    char own[MR_METRIC_NAME_BYTES / 2];
    snprintf(own, sizeof(own), "%s", counter->name);
    size_t length = strlen(own), ending = strlen(units[counter->unit].ending);
    if (counter->unit == MR_UNIT_BYTES)
        remove_word(own, "bytes");
    else if (length > ending && strcmp(own + length - ending, units[counter->unit].ending) == 0)
        own[length - ending] = '\0';
    snprintf(name, MR_METRIC_NAME_BYTES, "millrace_%.24s%s%s%s", set->name, own[0] != '\0' ? "_" : "", own,
             units[counter->unit].suffix);
}

/* ---- text ---- */

static bool make_room(struct mr_metrics_text *text, size_t bytes)
{
    if (text->no_memory || text->bytes + bytes < text->capacity)
        return !text->no_memory;
    size_t capacity = text->capacity == 0 ? CAPACITY_FIRST : text->capacity;
    while (capacity <= text->bytes + bytes)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    text->no_memory = data == NULL;
    if (data == NULL)
        return false;
    text->data = data;
    text->capacity = capacity;
    return true;
}

void mr_metrics_add(struct mr_metrics_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int bytes = vsnprintf(NULL, 0, format, args);
    if (bytes > 0 && make_room(text, (size_t)bytes + 1)) {
        vsnprintf(text->data + text->bytes, (size_t)bytes + 1, format, again);
        text->bytes += (size_t)bytes;
    }
    va_end(again);
    va_end(args);
}

/* The letter that follows a backslash for this one; 0: it stands for itself. */
static char escape_of(char letter, bool is_quoted)
{
    if (letter == '\n')
        return 'n';
    return letter == '\\' || (is_quoted && letter == '"') ? letter : '\0';
}

static void add_help(struct mr_metrics_text *text, const char *help)
{
    for (; *help != '\0'; help++) {
        const char escaped = escape_of(*help, text->open_metrics);
        if (escaped != '\0')
            mr_metrics_add(text, "\\%c", escaped);
        else
            mr_metrics_add(text, "%c", *help);
    }
}

/* ---- labels ---- */

void mr_labels_add(struct mr_labels *labels, const char *name, const char *value)
{
    char text[MR_LABELS_BYTES];
    size_t bytes = (size_t)snprintf(text, sizeof(text), "%s%.64s=\"", labels->bytes > 0 ? "," : "", name);
    for (; *value != '\0' && bytes + 3 < sizeof(text); value++) {
        const char escaped = escape_of(*value, true);
        if (escaped != '\0')
            text[bytes++] = '\\';
        text[bytes++] = escaped != '\0' ? escaped : *value;
    }
    text[bytes++] = '"';
    if (*value != '\0' || labels->bytes + bytes >= sizeof(labels->text))
        return;
    memcpy(labels->text + labels->bytes, text, bytes);
    labels->bytes += bytes;
    labels->text[labels->bytes] = '\0';
}

void mr_labels_add_number(struct mr_labels *labels, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    mr_labels_add(labels, name, text);
}

/* ---- families ---- */

static const char *ending_of_samples(const struct mr_metrics_text *text)
{
    return text->kind == MR_COUNTER ? "_total" : "";
}

void mr_metrics_begin(struct mr_metrics_text *text, const char *name, const char *type, enum mr_unit unit,
                      const char *help)
{
    mr_metrics_add(text, "# HELP %s ", name);
    add_help(text, help);
    mr_metrics_add(text, "\n# TYPE %s %s\n", name, type);
    if (text->open_metrics && units[unit].base[0] != '\0')
        mr_metrics_add(text, "# UNIT %s %s\n", name, units[unit].base);
}

void mr_metrics_family_named(struct mr_metrics_text *text, const char *name, enum mr_counter_kind kind,
                             enum mr_unit unit, const char *help)
{
    char with_total[MR_METRIC_NAME_BYTES + sizeof("_total")];
    text->kind = kind;
    text->unit = unit;
    /* In the older form a family is called as its samples are. */
    snprintf(with_total, sizeof(with_total), "%s%s", name, text->open_metrics ? "" : ending_of_samples(text));
    mr_metrics_begin(text, with_total, kind == MR_COUNTER ? "counter" : "gauge", unit, help);
    snprintf(text->family, sizeof(text->family), "%s", name);
}

void mr_metrics_family(struct mr_metrics_text *text, const struct mr_counter_set *set,
                       const struct mr_counter *counter)
{
    char name[MR_METRIC_NAME_BYTES];
    mr_metric_name(set, counter, name);
    mr_metrics_family_named(text, name, counter->kind, counter->unit, counter->help);
}

void mr_metrics_sample(struct mr_metrics_text *text, const struct mr_labels *labels, uint64_t value)
{
    bool has_labels = labels != NULL && labels->bytes > 0;
    mr_metrics_add(text, "%s%s%s%s%s ", text->family, ending_of_samples(text), has_labels ? "{" : "",
                   has_labels ? labels->text : "", has_labels ? "}" : "");
    if (units[text->unit].in_millionths)
        mr_metrics_add(text, "%" PRIu64 ".%06" PRIu64 "\n", value / MILLION, value % MILLION);
    else
        mr_metrics_add(text, "%" PRIu64 "\n", value);
}

void mr_metrics_set(struct mr_metrics_text *text, const struct mr_labels *labels,
                    const struct mr_counter_set *set, uint32_t first, const uint64_t *values)
{
    for (uint32_t i = first; i < set->count; i++) {
        mr_metrics_family(text, set, &set->counters[i]);
        mr_metrics_sample(text, labels, mr_counter_read(&values[i - first]));
    }
}

bool mr_metrics_end(struct mr_metrics_text *text)
{
    if (text->open_metrics)
        mr_metrics_add(text, "# EOF\n");
    return !text->no_memory && text->data != NULL;
}
