/* Reads descriptions of formats: their keys are collected first, so that they may stand in any order, and
 * then resolved section by section. */
#include "trainer_client/hub/format/description.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/base/ini.h"
#include "trainer_client/hub/format/description_terms.h"

#define VALUE_BYTES      HUB_TERM_BYTES
#define ENTRIES_MAX      4096u
#define ALLOWED_BYTES    320u
#define LIBSVM_SLOTS_MAX HUB_SLOTS_MAX

/* A key of the file; a range of names has become several. */
struct entry {
    uint32_t line;
    const char *section;
    char name[HUB_COLUMN_NAME_BYTES];
    char value[VALUE_BYTES];
};

struct builder {
    const char *path;
    struct entry *entries;
    uint32_t count, size;
    bool no_memory;
    struct hub_format *format;
    struct hub_description *d;
    char *error;
};

static const char *const sections[] = {"format", "columns", "dense", "slots"};

/* ---- collecting ---- */

static const char *section_of(const char *name)
{
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
        if (strcmp(sections[i], name) == 0)
            return sections[i];
    return NULL;
}

static const struct entry *find_entry(const struct builder *b, const char *section, const char *name)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->entries[i].section, section) == 0 && strcmp(b->entries[i].name, name) == 0)
            return &b->entries[i];
    return NULL;
}

static bool add_entry(struct builder *b, const struct entry *entry, char *why)
{
    const struct entry *before = find_entry(b, entry->section, entry->name);
    if (before != NULL) {
        snprintf(why, MR_INI_WHY_MAX, "%s.%s is given twice: see line %" PRIu32, entry->section, entry->name,
                 before->line);
        return false;
    }
    if (b->count == ENTRIES_MAX) {
        snprintf(why, MR_INI_WHY_MAX, "there are more than %u keys", ENTRIES_MAX);
        return false;
    }
    if (b->count == b->size) {
        uint32_t size = b->size == 0 ? 64 : 2 * b->size;
        struct entry *grown = realloc(b->entries, size * sizeof(*grown));
        if (grown == NULL) {
            b->no_memory = true;
            snprintf(why, MR_INI_WHY_MAX, "no memory");
            return false;
        }
        b->entries = grown;
        b->size = size;
    }
    b->entries[b->count++] = *entry;
    return true;
}

static bool on_value(void *arg, uint32_t line, const char *section, const char *name, const char *value,
                     char *why)
{
    struct builder *b = arg;
    struct entry entry = {.line = line, .section = section_of(section)};
    if (entry.section == NULL) {
        if (section[0] == '\0')
            snprintf(
                why, MR_INI_WHY_MAX,
                "\"%.60s\" is in no section: one of [format], [columns], [dense] and [slots] goes above it",
                name);
        else
            snprintf(why, MR_INI_WHY_MAX,
                     "there is no section [%.60s]; there are [format], [columns], [dense] and [slots]",
                     section);
        return false;
    }
    uint32_t count = hub_range_count(name);
    if (count == 0) {
        snprintf(why, MR_INI_WHY_MAX, "%s.%.60s: a range of names goes up, as c1..c26", section, name);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!hub_range_expand(name, count, i, entry.name, sizeof(entry.name))) {
            snprintf(why, MR_INI_WHY_MAX, "%s.%.80s: a name has at most %u bytes", section, name,
                     HUB_COLUMN_NAME_BYTES - 1);
            return false;
        }
        bool fits = count == 1
                        ? snprintf(entry.value, sizeof(entry.value), "%s", value) < (int)sizeof(entry.value)
                        : hub_range_expand(value, count, i, entry.value, sizeof(entry.value));
        if (!fits) {
            snprintf(why, MR_INI_WHY_MAX,
                     "%s.%.60s = \"%.120s\": a range here has as many names as the key's: %" PRIu32, section,
                     name, value, count);
            return false;
        }
        if (!add_entry(b, &entry, why))
            return false;
    }
    return true;
}

/* ---- resolving ---- */

/* The entry is refused. Returns false. */
__attribute__((format(printf, 3, 4))) static bool refuse(const struct builder *b, const struct entry *e,
                                                         const char *format, ...)
{
    int at = snprintf(b->error, HUB_FORMAT_ERROR_BYTES, "%.160s:%" PRIu32 ": %s.%.60s = \"%.80s\": ", b->path,
                      e->line, e->section, e->name, e->value);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->error + at, HUB_FORMAT_ERROR_BYTES - (size_t)at, format, arguments);
    va_end(arguments);
    return false;
}

/* Something is missing. Returns false. */
static bool missing(const struct builder *b, const char *what)
{
    snprintf(b->error, HUB_FORMAT_ERROR_BYTES, "%.160s: %s", b->path, what);
    return false;
}

/* The columns there are, as many as fit. */
static void list_columns(const struct hub_description *d, char out[ALLOWED_BYTES])
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < d->column_count && at < ALLOWED_BYTES; i++)
        at += (size_t)snprintf(out + at, ALLOWED_BYTES - at, "%s%s", i > 0 ? ", " : "", d->columns[i].name);
    if (at >= ALLOWED_BYTES)
        memcpy(out + ALLOWED_BYTES - 4, "...", 4);
}

static bool find_column(const struct builder *b, const struct entry *e, const char *name, uint32_t *column)
{
    char there[ALLOWED_BYTES];
    for (uint32_t i = 0; i < b->d->column_count; i++) {
        if (strcmp(b->d->columns[i].name, name) == 0) {
            *column = i;
            return true;
        }
    }
    list_columns(b->d, there);
    return refuse(b, e, "there is no column \"%.60s\" in [columns]; there are %s", name, there);
}

/* The column is one of numbers. */
static bool find_number(const struct builder *b, const struct entry *e, const char *name, uint32_t *column)
{
    if (!find_column(b, e, name, column))
        return false;
    enum hub_column_type type = b->d->columns[*column].type;
    return type == HUB_FLAG || type == HUB_INTEGER || type == HUB_NUMBER ||
           refuse(b, e, "column \"%.60s\" has no numbers: make it flag, integer or number", name);
}

/* ---- [format] ---- */

struct choice {
    const char *name;
    uint32_t value;
};

static bool description_choose(const struct builder *b, const struct entry *e, const struct choice *choices,
                               uint32_t count, uint32_t *value)
{
    char allowed[ALLOWED_BYTES] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(choices[i].name, e->value) == 0) {
            *value = choices[i].value;
            return true;
        }
        at +=
            (size_t)snprintf(allowed + at, sizeof(allowed) - at, "%s%s", i > 0 ? ", " : "", choices[i].name);
    }
    return refuse(b, e, "allowed: %s", allowed);
}
#define CHOOSE(b, e, choices, value)                                                                         \
    description_choose(b, e, choices, sizeof(choices) / sizeof((choices)[0]), value)

static bool set_name(struct builder *b, const struct entry *e)
{
    static const char of_names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t bytes = strlen(e->value);
    if (bytes == 0 || bytes >= HUB_FORMAT_BYTES || strspn(e->value, of_names) != bytes)
        return refuse(b, e, "allowed: 1 to %u letters, digits, '_', '.' and '-'", HUB_FORMAT_BYTES - 1);
    memcpy(b->format->name, e->value, bytes + 1);
    return true;
}

static bool set_layout(struct builder *b, const struct entry *e)
{
    static const struct choice choices[] = {{"delimited", HUB_DELIMITED}, {"libsvm", HUB_LIBSVM}};
    uint32_t value = 0;
    if (!CHOOSE(b, e, choices, &value))
        return false;
    b->d->layout = (enum hub_layout)value;
    return true;
}

static bool set_separator(struct builder *b, const struct entry *e)
{
    return hub_separator_parse(e->value, &b->d->separator) ||
           refuse(b, e, "allowed: " HUB_SEPARATORS_ALLOWED);
}

static bool set_quote(struct builder *b, const struct entry *e)
{
    static const struct choice choices[] = {{"none", '\0'}, {"double", '"'}, {"single", '\''}};
    uint32_t value = 0;
    if (!CHOOSE(b, e, choices, &value))
        return false;
    b->d->quote = (char)value;
    return true;
}

static bool set_header(struct builder *b, const struct entry *e)
{
    static const struct choice choices[] = {
        {"names", HUB_HEADER_NAMES}, {"none", HUB_HEADER_NONE}, {"optional", HUB_HEADER_OPTIONAL}};
    uint32_t value = 0;
    if (!CHOOSE(b, e, choices, &value))
        return false;
    b->d->header = (enum hub_header)value;
    return true;
}

#define MISSING_ALLOWED "allowed: up to 16 texts of 1 to 31 bytes with commas between them, as NA, NULL"

static bool set_missing(struct builder *b, const struct entry *e)
{
    struct hub_term list;
    if (!hub_list_parse(e->value, &list) || list.count > HUB_MISSING_MAX)
        return refuse(b, e, MISSING_ALLOWED);
    for (uint32_t i = 0; i < list.count; i++) {
        const size_t bytes = strlen(list.arguments[i]);
        if (bytes == 0 || bytes >= HUB_MISSING_BYTES)
            return refuse(b, e, MISSING_ALLOWED);
        memcpy(b->d->missing[i], list.arguments[i], bytes + 1);
    }
    b->d->missing_count = list.count;
    return true;
}

static bool set_trim(struct builder *b, const struct entry *e)
{
    static const struct choice choices[] = {{"none", false}, {"blanks", true}};
    uint32_t value = 0;
    if (!CHOOSE(b, e, choices, &value))
        return false;
    b->d->trims = value != 0;
    return true;
}

static bool set_slots(struct builder *b, const struct entry *e)
{
    double count;
    if (!hub_number_parse(e->value, &count) || count < 1 || count > LIBSVM_SLOTS_MAX ||
        fpclassify(count - trunc(count)) != FP_ZERO)
        return refuse(b, e, "allowed: 1 to %u", LIBSVM_SLOTS_MAX);
    b->d->slot_count = (uint32_t)count;
    return true;
}

static bool set_values(struct builder *b, const struct entry *e)
{
    static const struct choice choices[] = {
        {"ranges", HUB_VALUES_RANGES}, {"weights", HUB_VALUES_WEIGHTS}, {"presence", HUB_VALUES_PRESENCE}};
    uint32_t value = 0;
    if (!CHOOSE(b, e, choices, &value))
        return false;
    b->d->values = (enum hub_libsvm_values)value;
    b->format->has_weights = value == HUB_VALUES_WEIGHTS;
    return true;
}

enum of_layout { ANY_LAYOUT, ONLY_DELIMITED, ONLY_LIBSVM };

/* The keys of [format]; `label` needs the columns, and is resolved after them. */
static const struct key {
    const char *name;
    enum of_layout layout;
    bool (*set)(struct builder *b, const struct entry *e);
} keys[] = {
    {"name", ANY_LAYOUT, set_name},
    {"layout", ANY_LAYOUT, set_layout},
    {"separator", ONLY_DELIMITED, set_separator},
    {"quote", ONLY_DELIMITED, set_quote},
    {"header", ONLY_DELIMITED, set_header},
    {"missing", ONLY_DELIMITED, set_missing},
    {"trim", ONLY_DELIMITED, set_trim},
    {"label", ANY_LAYOUT, NULL},
    {"slots", ONLY_LIBSVM, set_slots},
    {"values", ONLY_LIBSVM, set_values},
};

static bool set_format_key(struct builder *b, const struct entry *e)
{
    const bool is_libsvm = b->d->layout == HUB_LIBSVM;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(keys[i].name, e->name) != 0)
            continue;
        if (keys[i].layout == (is_libsvm ? ONLY_DELIMITED : ONLY_LIBSVM))
            return refuse(b, e, "layout %s has no such key: leave it out",
                          is_libsvm ? "libsvm" : "delimited");
        return keys[i].set == NULL || keys[i].set(b, e);
    }
    return refuse(b, e,
                  "there is no such key; there are name, layout, separator, quote, header, missing, "
                  "trim, label, slots and values");
}

static bool resolve_format(struct builder *b)
{
    const struct entry *layout = find_entry(b, "format", "layout");
    b->d->separator = ',';
    b->d->quote = '"';
    b->d->header = HUB_HEADER_NAMES;
    if (layout != NULL && !set_layout(b, layout))
        return false;
    if (b->d->layout == HUB_LIBSVM)
        b->d->slot_count = 16;
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->entries[i].section, "format") == 0 && !set_format_key(b, &b->entries[i]))
            return false;
    if (b->d->quote != '\0' && b->d->separator == b->d->quote)
        return refuse(b, find_entry(b, "format", "separator"),
                      "it is the quotation mark, too: set format.quote");
    return b->format->name[0] != '\0' ||
           missing(b, "format.name is missing: trainers ask for the format by it");
}

/* ---- [columns] ---- */

#define TYPES_ALLOWED                                                                                        \
    "allowed: flag, integer, number, text or time(PATTERN), with bounds as integer(0..9), number(..1.5) or " \
    "text(A-Z0-9, 1..4) of so many bytes, and \" or empty\" after it"

static bool set_bounds(const struct builder *b, const struct entry *e, const char *text,
                       struct hub_column *column)
{
    if (!hub_bounds_parse(text, &column->low, &column->high) || column->low > column->high)
        return refuse(b, e, "\"%.60s\" are no bounds; write LOW..HIGH, LOW.. or ..HIGH", text);
    column->has_bounds = true;
    return true;
}

static bool set_text_type(const struct builder *b, const struct entry *e, const struct hub_term *term,
                          struct hub_column *column)
{
    column->type = HUB_TEXT;
    if (term->count == 1 && strstr(term->arguments[0], "..") != NULL)
        return set_bounds(b, e, term->arguments[0], column);
    if (term->count > 2)
        return refuse(b, e, TYPES_ALLOWED);
    if (!hub_class_parse(term->arguments[0], column->class))
        return refuse(b, e, "\"%.60s\" are no bytes; write them as A-Z0-9_", term->arguments[0]);
    column->has_class = true;
    return term->count == 1 || set_bounds(b, e, term->arguments[1], column);
}

/* Which conversions a time has, as bits of what can be made of it. */
enum { TIME_YEAR = 1, TIME_MONTH = 2, TIME_DAY = 4, TIME_HOUR = 8, TIME_ALL = 15 };

static uint32_t time_has(const char *pattern)
{
    uint32_t has = 0;
    for (const char *c = pattern; *c != '\0'; c++) {
        if (*c != '%')
            continue;
        c++;
        has |= *c == 'Y' ? TIME_YEAR : 0;
        has |= *c == 'm' ? TIME_MONTH : 0;
        has |= *c == 'd' ? TIME_DAY : 0;
        has |= *c == 'H' ? TIME_HOUR : 0;
        has |= *c == 's' || *c == 'Q' ? TIME_ALL : 0;
    }
    return has;
}

static bool set_time_type(const struct builder *b, const struct entry *e, const struct hub_term *term,
                          struct hub_column *column)
{
    const char *pattern = term->arguments[0];
    column->type = HUB_TIME;
    if (term->count != 1 || strlen(pattern) >= sizeof(column->pattern))
        return refuse(b, e, "a time's pattern has at most %zu bytes and no comma",
                      sizeof(column->pattern) - 1);
    for (const char *c = strchr(pattern, '%'); c != NULL; c = strchr(c + 2, '%'))
        if (c[1] == '\0' || strchr("YmdHMSfsQ%", c[1]) == NULL)
            return refuse(
                b, e,
                "\"%%%.1s\" is no part of a time; allowed: %%Y %%m %%d %%H %%M %%S, %%f (a fraction "
                "of a second), %%s and %%Q (seconds and milliseconds since 1970), %%%%",
                c + 1);
    if (time_has(pattern) == 0)
        return refuse(b, e, "a time needs one of %%Y, %%m, %%d, %%H, %%s and %%Q; is it a text?");
    memcpy(column->pattern, pattern, strlen(pattern) + 1);
    return true;
}

/* The type without " or empty". */
static bool set_type(const struct builder *b, const struct entry *e, const char *text,
                     struct hub_column *column)
{
    static const struct choice types[] = {
        {"flag", HUB_FLAG}, {"integer", HUB_INTEGER}, {"number", HUB_NUMBER}, {"text", HUB_TEXT}};
    struct hub_term term;
    if (!hub_term_parse(text, &term))
        return refuse(b, e, TYPES_ALLOWED);
    if (strcmp(term.function, "text") == 0)
        return set_text_type(b, e, &term, column);
    if (strcmp(term.function, "time") == 0)
        return set_time_type(b, e, &term, column);
    const bool has_bounds = term.function[0] != '\0';
    const char *name = has_bounds ? term.function : term.arguments[0];
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, name) != 0)
            continue;
        column->type = (enum hub_column_type)types[i].value;
        if (has_bounds && (term.count != 1 || column->type == HUB_FLAG))
            break;
        return !has_bounds || set_bounds(b, e, term.arguments[0], column);
    }
    return refuse(b, e, TYPES_ALLOWED);
}

static bool set_column(struct builder *b, const struct entry *e)
{
    static const char empty[] = " or empty";
    struct hub_description *d = b->d;
    char type[VALUE_BYTES];
    if (d->column_count == HUB_COLUMNS_MAX)
        return refuse(b, e, "there are more than %u columns", HUB_COLUMNS_MAX);
    if (strpbrk(e->name, ",()") != NULL)
        return refuse(b, e, "a column's name has no comma and no brackets");
    struct hub_column *column = &d->columns[d->column_count];
    d->positions[d->column_count] = (uint16_t)d->column_count;
    column->low = -HUGE_VAL;
    column->high = HUGE_VAL;
    memcpy(column->name, e->name, sizeof(column->name));
    memcpy(type, e->value, sizeof(type));
    size_t bytes = strlen(type), cut = sizeof(empty) - 1;
    if (bytes > cut && strcmp(type + bytes - cut, empty) == 0) {
        column->may_be_empty = true;
        type[bytes - cut] = '\0';
    }
    if (!set_type(b, e, type, column))
        return false;
    /* A text that may be anything is not looked at until something is made of it. */
    if (column->type != HUB_TEXT || column->has_bounds || column->has_class || !column->may_be_empty)
        d->checks[d->check_count++] = (uint16_t)d->column_count;
    d->column_count++;
    return true;
}

/* ---- format.label ---- */

#define LABEL_ALLOWED                                                                                        \
    "allowed: COLUMN, COLUMN > NUMBER (also >=, <, <=, ==, !=), or COLUMN is TEXT, TEXT, ... "               \
    "(1 for these, 0 for others); none for lines to be scored, which have no label"

static bool set_label_texts(struct builder *b, const struct entry *e, const char *texts)
{
    struct hub_label *label = &b->d->label;
    struct hub_term list;
    if (!hub_list_parse(texts, &list))
        return refuse(b, e, LABEL_ALLOWED);
    for (; label->text_count < list.count; label->text_count++) {
        if (strlen(list.arguments[label->text_count]) >= sizeof(label->texts[0]))
            return refuse(b, e, "a text has at most %zu bytes", sizeof(label->texts[0]) - 1);
        snprintf(label->texts[label->text_count], sizeof(label->texts[0]), "%.63s",
                 list.arguments[label->text_count]);
    }
    return true;
}

/* Splits "COLUMN OPERATOR REST". False: there is no operator. */
static bool split_label(const char *text, char column[VALUE_BYTES], enum hub_label_kind *kind,
                        const char **rest)
{
    static const struct {
        const char *text;
        enum hub_label_kind kind;
    } operators[] = {
        {" is ", HUB_LABEL_IS},  {"<=", HUB_LABEL_LESS_EQUAL}, {">=", HUB_LABEL_MORE_EQUAL},
        {"==", HUB_LABEL_EQUAL}, {"!=", HUB_LABEL_NOT_EQUAL},  {"<", HUB_LABEL_LESS},
        {">", HUB_LABEL_MORE},
    };
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        const char *at = strstr(text, operators[i].text);
        if (at == NULL)
            continue;
        size_t bytes = (size_t)(at - text);
        while (bytes > 0 && text[bytes - 1] == ' ')
            bytes--;
        memcpy(column, text, bytes);
        column[bytes] = '\0';
        *kind = operators[i].kind;
        *rest = at + strlen(operators[i].text);
        *rest += strspn(*rest, " ");
        return true;
    }
    return false;
}

static bool resolve_libsvm_label(struct builder *b)
{
    static const struct choice choices[] = {
        {"sign", HUB_LABEL_SIGN}, {"number", HUB_LABEL_NUMBER}, {"none", HUB_LABEL_NONE}};
    const struct entry *e = find_entry(b, "format", "label");
    uint32_t value = HUB_LABEL_SIGN;
    if (e != NULL && !CHOOSE(b, e, choices, &value))
        return false;
    b->d->label.kind = (enum hub_label_kind)value;
    return true;
}

static bool has_column(const struct hub_description *d, const char *name)
{
    for (uint32_t i = 0; i < d->column_count; i++)
        if (strcmp(d->columns[i].name, name) == 0)
            return true;
    return false;
}

static bool resolve_label(struct builder *b)
{
    const struct entry *e = find_entry(b, "format", "label");
    struct hub_label *label = &b->d->label;
    char column[VALUE_BYTES];
    const char *rest = NULL;
    if (e == NULL)
        return missing(b, "format.label is missing: " LABEL_ALLOWED);
    if (strcmp(e->value, "none") == 0 && !has_column(b->d, e->value)) {
        label->kind = HUB_LABEL_NONE;
        return true;
    }
    if (!split_label(e->value, column, &label->kind, &rest)) {
        label->kind = HUB_LABEL_COLUMN;
        memcpy(column, e->value, sizeof(column));
    }
    if (label->kind == HUB_LABEL_IS ? !find_column(b, e, column, &label->column)
                                    : !find_number(b, e, column, &label->column))
        return false;
    if (b->d->columns[label->column].may_be_empty && label->kind != HUB_LABEL_IS)
        return refuse(b, e, "column \"%.60s\" may be empty, and a sample has a label: remove \"or empty\"",
                      column);
    if (label->kind == HUB_LABEL_IS)
        return set_label_texts(b, e, rest);
    return label->kind == HUB_LABEL_COLUMN || hub_number_parse(rest, &label->number) ||
           refuse(b, e, LABEL_ALLOWED);
}

/* ---- [dense] ---- */

#define DENSE_ALLOWED                                                                                        \
    "allowed: COLUMN, log(COLUMN), scale(COLUMN, MEAN, DEVIATION) or clip(COLUMN, LOWEST, HIGHEST)"

static bool set_dense(struct builder *b, const struct entry *e)
{
    static const struct {
        const char *function;
        enum hub_transform transform;
        uint32_t arguments;
    } transforms[] = {
        {"", HUB_PLAIN, 1}, {"log", HUB_LOG, 1}, {"scale", HUB_SCALE, 3}, {"clip", HUB_CLIP, 3}};
    struct hub_description *d = b->d;
    struct hub_term term;
    if (d->dense_count == HUB_DENSE_MAX)
        return refuse(b, e, "there are more than %u dense values", HUB_DENSE_MAX);
    struct hub_dense *dense = &d->dense[d->dense_count];
    if (!hub_term_parse(e->value, &term))
        return refuse(b, e, DENSE_ALLOWED);
    uint32_t i = 0;
    while (i < 4 &&
           (strcmp(transforms[i].function, term.function) != 0 || transforms[i].arguments != term.count))
        i++;
    if (i == 4)
        return refuse(b, e, DENSE_ALLOWED);
    dense->transform = transforms[i].transform;
    if (!find_number(b, e, term.arguments[0], &dense->column))
        return false;
    if (term.count == 3 &&
        (!hub_number_parse(term.arguments[1], &dense->a) || !hub_number_parse(term.arguments[2], &dense->b)))
        return refuse(b, e, DENSE_ALLOWED);
    if (dense->transform == HUB_SCALE && fpclassify(dense->b) == FP_ZERO)
        return refuse(b, e, "the deviation is 0");
    if (dense->transform == HUB_CLIP && dense->a > dense->b)
        return refuse(b, e, "the lowest value is above the highest one");
    memcpy(dense->name, e->name, sizeof(dense->name));
    d->dense_count++;
    return true;
}

/* ---- [slots] ---- */

#define SLOTS_ALLOWED                                                                                        \
    "allowed: COLUMN, hour(TIME), weekday(TIME), day(TIME), month(TIME), range(NUMBER), "                    \
    "cross(...) of up to 8 of these, or split(COLUMN, SEPARATOR)"

static bool find_part(const struct builder *b, const struct entry *e, const struct hub_term *term,
                      struct hub_part *part)
{
    static const struct {
        const char *function;
        enum hub_part_kind kind;
        uint32_t needs;
        const char *says;
    } kinds[] = {{"hour", HUB_PART_HOUR, TIME_HOUR, "%H"},
                 {"weekday", HUB_PART_WEEKDAY, TIME_YEAR | TIME_MONTH | TIME_DAY, "%Y, %m and %d"},
                 {"day", HUB_PART_DAY, TIME_MONTH | TIME_DAY, "%m and %d"},
                 {"month", HUB_PART_MONTH, TIME_MONTH, "%m"}};
    const char *name = term->arguments[0];
    if (term->count != 1)
        return refuse(b, e, SLOTS_ALLOWED);
    if (term->function[0] == '\0') {
        part->kind = HUB_PART_TEXT;
        return find_column(b, e, name, &part->column);
    }
    if (strcmp(term->function, "range") == 0) {
        part->kind = HUB_PART_RANGE;
        return find_number(b, e, name, &part->column);
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].function, term->function) != 0)
            continue;
        part->kind = kinds[i].kind;
        if (!find_column(b, e, name, &part->column))
            return false;
        const struct hub_column *column = &b->d->columns[part->column];
        if (column->type != HUB_TIME)
            return refuse(b, e, "column \"%.60s\" has no times: make it time(PATTERN)", name);
        return (time_has(column->pattern) & kinds[i].needs) == kinds[i].needs ||
               refuse(b, e, "%s of \"%.60s\" needs %s in its pattern, or %%s", term->function, name,
                      kinds[i].says);
    }
    return refuse(b, e, SLOTS_ALLOWED);
}

/* Adds a part to the slot; what another slot has of it is used again. */
static bool add_part(struct builder *b, const struct entry *e, const struct hub_term *term,
                     struct hub_slot *slot)
{
    struct hub_description *d = b->d;
    struct hub_part part = {0};
    uint32_t i = 0;
    if (!find_part(b, e, term, &part))
        return false;
    while (i < d->part_count && (d->parts[i].kind != part.kind || d->parts[i].column != part.column))
        i++;
    if (i == HUB_PARTS_MAX)
        return refuse(b, e, "there are more than %u different parts in slots", HUB_PARTS_MAX);
    if (i == d->part_count)
        d->parts[d->part_count++] = part;
    for (uint32_t other = 0; other < slot->part_count; other++)
        if (slot->parts[other] == i)
            return refuse(b, e, "a part is there twice");
    slot->parts[slot->part_count++] = (uint16_t)i;
    return true;
}

static bool set_cross(struct builder *b, const struct entry *e, const struct hub_term *cross,
                      struct hub_slot *slot)
{
    slot->kind = HUB_SLOT_CROSS;
    if (cross->count > HUB_CROSS_PARTS_MAX)
        return refuse(b, e, SLOTS_ALLOWED);
    for (uint32_t i = 0; i < cross->count; i++) {
        struct hub_term term;
        if (!hub_term_parse(cross->arguments[i], &term))
            return refuse(b, e, SLOTS_ALLOWED);
        if (!add_part(b, e, &term, slot))
            return false;
    }
    return true;
}

static bool set_slot(struct builder *b, const struct entry *e)
{
    struct hub_description *d = b->d;
    struct hub_term term;
    if (d->slot_count == HUB_SLOTS_MAX)
        return refuse(b, e, "there are more than %u slots", HUB_SLOTS_MAX);
    struct hub_slot *slot = &d->slots[d->slot_count++];
    memcpy(slot->name, e->name, sizeof(slot->name));
    if (!hub_term_parse(e->value, &term))
        return refuse(b, e, SLOTS_ALLOWED);
    if (strcmp(term.function, "cross") == 0)
        return set_cross(b, e, &term, slot);
    if (strcmp(term.function, "split") == 0) {
        slot->kind = HUB_SLOT_SPLIT;
        if (term.count != 2 || !hub_separator_parse(term.arguments[1], &slot->separator))
            return refuse(b, e, "allowed: split(COLUMN, SEPARATOR), the latter as in format.separator");
        return find_column(b, e, term.arguments[0], &slot->column);
    }
    if (term.function[0] == '\0' && term.count == 1) {
        slot->kind = HUB_SLOT_TEXT;
        return find_column(b, e, term.arguments[0], &slot->column);
    }
    slot->kind = HUB_SLOT_PART;
    return add_part(b, e, &term, slot);
}

/* ---- all of it ---- */

static bool resolve_section(struct builder *b, const char *section,
                            bool (*set)(struct builder *b, const struct entry *e))
{
    for (uint32_t i = 0; i < b->count; i++)
        if (strcmp(b->entries[i].section, section) == 0 && !set(b, &b->entries[i]))
            return false;
    return true;
}

static bool refuse_in_libsvm(struct builder *b, const struct entry *e)
{
    return refuse(b, e, "layout libsvm has no section [%s]: leave it out", e->section);
}

static bool has_empty_column(const struct hub_description *d)
{
    for (uint32_t i = 0; i < d->column_count; i++)
        if (d->columns[i].may_be_empty)
            return true;
    return false;
}

static bool resolve(struct builder *b)
{
    if (!resolve_format(b))
        return false;
    if (b->d->layout == HUB_LIBSVM) {
        for (uint32_t i = 0; i < b->d->slot_count; i++)
            snprintf(b->d->slots[i].name, sizeof(b->d->slots[i].name), "%" PRIu32, i);
        return resolve_libsvm_label(b) && resolve_section(b, "columns", refuse_in_libsvm) &&
               resolve_section(b, "dense", refuse_in_libsvm) && resolve_section(b, "slots", refuse_in_libsvm);
    }
    if (!resolve_section(b, "columns", set_column) || !resolve_label(b) ||
        !resolve_section(b, "dense", set_dense) || !resolve_section(b, "slots", set_slot))
        return false;
    b->d->field_count = b->d->column_count;
    if (b->d->missing_count > 0 && !has_empty_column(b->d))
        return refuse(b, find_entry(b, "format", "missing"),
                      "no column may be empty: put \" or empty\" behind the types of those that may");
    return b->d->slot_count > 0 ||
           missing(b, "section [slots] is missing: it says which columns have keys, as `user = user`");
}

/* Of what the description says: comments and the order of sections change nothing. */
static uint64_t digest_of(const struct builder *b)
{
    uint64_t digest = 0;
    for (size_t s = 0; s < sizeof(sections) / sizeof(sections[0]); s++) {
        for (uint32_t i = 0; i < b->count; i++) {
            const struct entry *e = &b->entries[i];
            if (e->section != sections[s])
                continue;
            digest = XXH3_64bits_withSeed(e->name, strlen(e->name), digest + s + 1);
            digest = XXH3_64bits_withSeed(e->value, strlen(e->value), digest);
        }
    }
    return digest;
}

/* The keys, collected and resolved. */
static enum mr_status build(struct builder *b, FILE *file)
{
    snprintf(b->error, HUB_FORMAT_ERROR_BYTES, "%.160s: no memory", b->path);
    if (b->format == NULL || (b->d = b->format->description = calloc(1, sizeof(*b->d))) == NULL)
        return MR_NO_MEMORY;
    enum mr_ini outcome = mr_ini_read(file, b->path, on_value, b, b->error, HUB_FORMAT_ERROR_BYTES);
    if (b->no_memory)
        return MR_NO_MEMORY;
    if (outcome == MR_INI_UNREADABLE)
        return MR_IO_ERROR;
    if (outcome == MR_INI_WRONG || !resolve(b))
        return MR_INVALID_ARGUMENT;
    b->format->slots = b->d->slot_count;
    b->format->dense = b->d->dense_count;
    b->format->has_no_labels = b->d->label.kind == HUB_LABEL_NONE;
    b->format->digest = digest_of(b);
    return MR_OK;
}

enum mr_status hub_format_read(FILE *file, const char *path, struct hub_format **out, char *error)
{
    struct builder b = {.path = path, .format = calloc(1, sizeof(*b.format))};
    b.error = error;
    enum mr_status status = build(&b, file);
    free(b.entries);
    if (status == MR_OK)
        *out = b.format;
    else
        hub_format_free(b.format);
    return status;
}
