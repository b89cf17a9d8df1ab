/* Lines of layout delimited: fields between separators, each the column of a description. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"
#include "trainer_client/api/slot_key.h"
#include "trainer_client/hub/format/description.h"
#include "trainer_client/hub/format/proposal.h"

#define FIELDS_MAX             4096u
#define FIRST_LINE_SHOWN_BYTES 60u
#define BYTE_ORDER_MARK        "\xef\xbb\xbf"
#define PART_SHORT_MAX         15u /* bytes of a part that is copied at once, with the '|' after it */
#define SPLIT_KEYS_MAX         (HUB_SAMPLE_KEYS_MAX - HUB_SLOTS_MAX) /* other slots have one key at most */
#define CROSS_SLACK            (HUB_CROSS_PARTS_MAX * (PART_SHORT_MAX + 1) + PART_SHORT_MAX + 1)

struct hour_of_day {
    int64_t year;
    uint32_t month, day, hour;
};

/* What a checked column holds, where it is not empty. */
union value {
    double number;
    struct hour_of_day time;
};

/* A part's text. A short one lies in `copy`, too, with its '|'. */
struct piece {
    char copy[PART_SHORT_MAX + 1];
    const char *text;
    uint64_t bytes; /* 0: it is missing */
};

struct line {
    uint32_t field_count;
    struct hub_field fields[FIELDS_MAX];
    union value values[HUB_COLUMNS_MAX];
    struct piece pieces[HUB_PARTS_MAX];
    char unquoted[HUB_LINE_BYTES_MAX]; /* fields without their quotation marks */
    size_t unquoted_bytes;
};

/* ---- fields ---- */

static bool delimited_split(const char *text, size_t bytes, char separator, struct line *line)
{
    const char *end = text + bytes, *field = text;
    uint32_t count = 0;
    for (;;) {
        const char *field_end = memchr(field, separator, (size_t)(end - field));
        if (count == FIELDS_MAX)
            return false;
        line->fields[count++] =
            (struct hub_field){field, (size_t)((field_end != NULL ? field_end : end) - field)};
        if (field_end == NULL)
            break;
        field = field_end + 1;
    }
    line->field_count = count;
    return true;
}

/* Takes a field that begins with a quotation mark, which `at` is at; a doubled one inside stands for one
 * (RFC 4180). Returns what follows the closing mark, or NULL: there is none. */
static const char *take_quoted(const char *at, const char *end, char quote, struct line *line,
                               struct hub_field *field)
{
    char *copy = line->unquoted + line->unquoted_bytes;
    size_t bytes = 0;
    for (at++; at < end; at++) {
        if (*at == quote) {
            if (at + 1 == end || at[1] != quote) {
                *field = (struct hub_field){copy, bytes};
                line->unquoted_bytes += bytes;
                return at + 1;
            }
            at++;
        }
        copy[bytes++] = *at;
    }
    return NULL;
}

/* Blanks before a quotation mark, or behind one. */
static const char *pass_blanks(const char *at, const char *end, char separator)
{
    while (at < end && (*at == ' ' || *at == '\t') && *at != separator)
        at++;
    return at;
}

static bool split_quoted(const struct hub_description *d, const char *text, size_t bytes, struct line *line)
{
    const char *end = text + bytes, *at = text;
    const char separator = d->separator, quote = d->quote;
    line->field_count = 0;
    line->unquoted_bytes = 0;
    for (;;) {
        if (line->field_count == FIELDS_MAX)
            return false;
        struct hub_field *field = &line->fields[line->field_count++];
        const char *mark = d->trims ? pass_blanks(at, end, separator) : at;
        if (mark < end && *mark == quote) {
            at = take_quoted(mark, end, quote, line, field);
            if (at != NULL && d->trims)
                at = pass_blanks(at, end, separator);
            if (at == NULL || (at < end && *at != separator))
                return false;
        } else {
            const char *field_end = at < end ? memchr(at, separator, (size_t)(end - at)) : NULL;
            field_end = field_end != NULL ? field_end : end;
            *field = (struct hub_field){at, (size_t)(field_end - at)};
            if (d->trims)
                *field = hub_field_trim(*field);
            at = field_end;
        }
        if (at == end)
            return true;
        at++;
    }
}

/* False: `reason` says why. */
static bool split_line(const struct hub_description *d, const char *text, size_t bytes, struct line *line,
                       char *reason)
{
    bool is_quoted = d->quote != '\0' && memchr(text, d->quote, bytes) != NULL;
    if (is_quoted ? split_quoted(d, text, bytes, line) : delimited_split(text, bytes, d->separator, line)) {
        for (uint32_t i = 0; d->trims && !is_quoted && i < line->field_count; i++)
            line->fields[i] = hub_field_trim(line->fields[i]);
        return true;
    }
    if (line->field_count == FIELDS_MAX || !is_quoted)
        snprintf(reason, HUB_REASON_BYTES, "more than %u fields", FIELDS_MAX);
    else
        snprintf(reason, HUB_REASON_BYTES, "field %" PRIu32 " begins with %c, and no %c ends it",
                 line->field_count, d->quote, d->quote);
    return false;
}

static bool is_text(struct hub_field field, const char *text)
{
    return field.bytes == strlen(text) && memcmp(field.text, text, field.bytes) == 0;
}

static void say_no_column(const char *name, const struct line *line, const char *text, size_t bytes,
                          char *reason)
{
    for (uint32_t i = 0; i < line->field_count; i++) {
        if (is_text(hub_field_trim(line->fields[i]), name)) {
            snprintf(reason, HUB_REASON_BYTES, "the first line has the column \"%.40s\"", name);
            hub_propose(line->fields[i], false, reason);
            return;
        }
    }
    int shown = bytes < FIRST_LINE_SHOWN_BYTES ? (int)bytes : (int)FIRST_LINE_SHOWN_BYTES;
    snprintf(reason, HUB_REASON_BYTES,
             "the first line has no column \"%.40s\", it begins with \"%.*s\": correct [columns] or "
             "format.separator, or set format.header = none",
             name, shown, text);
}

bool hub_delimited_bind(struct hub_description *d, const char *text, size_t bytes, char *reason)
{
    struct line line;
    if (bytes >= sizeof(BYTE_ORDER_MARK) - 1 &&
        memcmp(text, BYTE_ORDER_MARK, sizeof(BYTE_ORDER_MARK) - 1) == 0) {
        text += sizeof(BYTE_ORDER_MARK) - 1;
        bytes -= sizeof(BYTE_ORDER_MARK) - 1;
    }
    if (!split_line(d, text, bytes, &line, reason))
        return false;
    for (uint32_t i = 0; i < d->column_count; i++) {
        const struct hub_column *column = &d->columns[i];
        uint32_t found = 0;
        for (uint32_t field = 0; field < line.field_count; field++) {
            if (is_text(line.fields[field], column->name)) {
                d->positions[i] = (uint16_t)field;
                found++;
            }
        }
        if (found == 0) {
            say_no_column(column->name, &line, text, bytes, reason);
            return false;
        }
        if (found > 1) {
            snprintf(reason, HUB_REASON_BYTES, "the first line has more than one column \"%.60s\"",
                     column->name);
            return false;
        }
    }
    d->field_count = line.field_count;
    return true;
}

static bool is_header(const struct hub_description *d, const struct line *line)
{
    if (line->field_count != d->column_count)
        return false;
    for (uint32_t i = 0; i < d->column_count; i++)
        if (!is_text(line->fields[i], d->columns[i].name))
            return false;
    return true;
}

/* Texts that stand for a missing value are as good as nothing where a column may be empty. Elsewhere they are
 * what they are: NA is a country. */
static void empty_missing(const struct hub_description *d, struct line *line)
{
    for (uint32_t i = 0; i < d->column_count; i++) {
        struct hub_field *field = &line->fields[d->positions[i]];
        for (uint32_t m = 0; d->columns[i].may_be_empty && m < d->missing_count; m++)
            if (is_text(*field, d->missing[m]))
                field->bytes = 0;
    }
}

/* ---- values of columns ---- */

/* Days since 1970-01-01 in the proleptic Gregorian calendar, and back: Howard Hinnant, "chrono-Compatible
 * Low-Level Date Algorithms", 2013, days_from_civil() and civil_from_days(). */
static int64_t days_of(int64_t year, uint32_t month, uint32_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    uint32_t year_of_era = (uint32_t)(year - era * 400);
    uint32_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + (int64_t)(year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year) -
           719468;
}

static void set_time(int64_t seconds, struct hour_of_day *time)
{
    int64_t days = (seconds >= 0 ? seconds : seconds - 86399) / 86400;
    time->hour = (uint32_t)((seconds - days * 86400) / 3600);
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    uint32_t day_of_era = (uint32_t)(days - era * 146097);
    uint32_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint32_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint32_t month = (5 * day_of_year + 2) / 153; /* from March on */
    time->day = day_of_year - (153 * month + 2) / 5 + 1;
    time->month = month < 10 ? month + 3 : month - 9;
    time->year = (int64_t)year_of_era + era * 400 + (time->month <= 2);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes `digits` digits as a number from low to high. */
static bool take_digits(const char **at, const char *end, uint32_t digits, uint32_t low, uint32_t high,
                        uint32_t *number)
{
    uint32_t value = 0;
    if (end - *at < (ptrdiff_t)digits)
        return false;
    for (uint32_t i = 0; i < digits; i++) {
        char c = (*at)[i];
        if (!is_digit(c))
            return false;
        value = value * 10 + (uint32_t)(c - '0');
    }
    *at += digits;
    *number = value;
    return value >= low && value <= high;
}

/* Takes seconds, or milliseconds, since 1970. */
static bool take_epoch(const char **at, const char *end, int64_t per_second, struct hour_of_day *time)
{
    const int64_t seconds_max = INT64_C(1) << 42; /* some 140,000 years */
    const char *begin = *at;
    int64_t value;
    if (*at < end && **at == '-')
        ++*at;
    while (*at < end && is_digit(**at))
        ++*at;
    if (!hub_field_integer((struct hub_field){begin, (size_t)(*at - begin)}, &value))
        return false;
    value = (value >= 0 ? value : value - (per_second - 1)) / per_second;
    if (value > seconds_max || value < -seconds_max)
        return false;
    set_time(value, time);
    return true;
}

static bool take_conversion(char conversion, const char **at, const char *end, struct hour_of_day *time)
{
    uint32_t number = 0;
    bool ok;
    switch (conversion) {
    case 'Y':
        ok = take_digits(at, end, 4, 0, 9999, &number);
        time->year = number;
        return ok;
    case 'm':
        return take_digits(at, end, 2, 1, 12, &time->month);
    case 'd':
        return take_digits(at, end, 2, 1, 31, &time->day);
    case 'H': /* 24 stands for midnight at the end of a day */
        return take_digits(at, end, 2, 0, 24, &time->hour);
    case 'M':
        return take_digits(at, end, 2, 0, 59, &number);
    case 'S':
        return take_digits(at, end, 2, 0, 60, &number);
    case 'f':
        for (ok = false; *at < end && is_digit(**at); ok = true)
            ++*at;
        return ok;
    case 's':
        return take_epoch(at, end, 1, time);
    case 'Q':
        return take_epoch(at, end, 1000, time);
    default:
        return *at < end && *(*at)++ == conversion;
    }
}

static bool parse_time(const char *pattern, struct hub_field field, struct hour_of_day *time)
{
    const char *at = field.text, *end = at + field.bytes;
    for (const char *c = pattern; *c != '\0'; c++)
        if (*c == '%' ? !take_conversion(*++c, &at, end, time) : at == end || *at++ != *c)
            return false;
    return at == end;
}

static bool has_only(const uint64_t class[4], struct hub_field field)
{
    for (size_t i = 0; i < field.bytes; i++) {
        unsigned char c = (unsigned char)field.text[i];
        if ((class[c / 64] >> c % 64 & 1) == 0)
            return false;
    }
    return true;
}

static bool is_within(const struct hub_column *column, double number)
{
    return !column->has_bounds || (number >= column->low && number <= column->high);
}

/* NULL: the field is as the column's type says, and `value` has it. Otherwise what it is not. */
static const char *check_field(const struct hub_column *column, struct hub_field field, union value *value)
{
    int64_t integer;
    if (field.bytes == 0) {
        value->number = 0;
        return column->may_be_empty ? NULL : "is empty";
    }
    switch (column->type) {
    case HUB_FLAG:
        value->number = field.text[0] - '0';
        return field.bytes == 1 && (field.text[0] == '0' || field.text[0] == '1') ? NULL : "is not 0 or 1";
    case HUB_INTEGER:
        if (!hub_field_integer(field, &integer))
            return "is not an integer";
        value->number = (double)integer;
        return is_within(column, value->number) ? NULL : "is out of its bounds";
    case HUB_NUMBER:
        if (!hub_field_number(field, &value->number))
            return "is not a finite number";
        return is_within(column, value->number) ? NULL : "is out of its bounds";
    case HUB_TIME:
        return parse_time(column->pattern, field, &value->time) ? NULL : "is not a time of its pattern";
    case HUB_TEXT:
        break;
    }
    if (!is_within(column, (double)field.bytes))
        return "has too few or too many bytes";
    return !column->has_class || has_only(column->class, field) ? NULL : "has bytes that are not allowed";
}

static bool check_columns(const struct hub_description *d, struct line *line, char *reason)
{
    for (uint32_t i = 0; i < d->check_count; i++) {
        uint32_t c = d->checks[i];
        const struct hub_column *column = &d->columns[c];
        const char *why = check_field(column, line->fields[d->positions[c]], &line->values[c]);
        if (why != NULL) {
            snprintf(reason, HUB_REASON_BYTES, "field %" PRIu32 " (%.60s) %s", d->positions[c] + 1U,
                     column->name, why);
            hub_propose(line->fields[d->positions[c]], column->may_be_empty, reason);
            return false;
        }
    }
    return true;
}

/* ---- what becomes of them ---- */

static struct hub_field field_of(const struct hub_description *d, const struct line *line, uint32_t column)
{
    return line->fields[d->positions[column]];
}

static float is_one_of(const struct hub_label *label, struct hub_field field)
{
    for (uint32_t i = 0; i < label->text_count; i++)
        if (is_text(field, label->texts[i]))
            return 1.0f;
    return 0.0f;
}

static float label_of(const struct hub_label *label, double number)
{
    switch (label->kind) {
    case HUB_LABEL_COLUMN:
        return (float)number;
    case HUB_LABEL_LESS:
        return number < label->number ? 1.0f : 0.0f;
    case HUB_LABEL_LESS_EQUAL:
        return number <= label->number ? 1.0f : 0.0f;
    case HUB_LABEL_MORE:
        return number > label->number ? 1.0f : 0.0f;
    case HUB_LABEL_MORE_EQUAL:
        return number >= label->number ? 1.0f : 0.0f;
    case HUB_LABEL_EQUAL:
        return number >= label->number && number <= label->number ? 1.0f : 0.0f;
    case HUB_LABEL_NOT_EQUAL:
        return number < label->number || number > label->number ? 1.0f : 0.0f;
    case HUB_LABEL_IS:
    case HUB_LABEL_SIGN:
    case HUB_LABEL_NUMBER:
    case HUB_LABEL_NONE:
        break;
    }
    return 0.0f;
}

static bool set_label(const struct hub_description *d, const struct line *line, struct hub_sample *sample,
                      char *reason)
{
    const struct hub_label *label = &d->label;
    if (label->kind == HUB_LABEL_NONE) {
        sample->label = NAN;
        return true;
    }
    sample->label = label->kind == HUB_LABEL_IS ? is_one_of(label, field_of(d, line, label->column))
                                                : label_of(label, line->values[label->column].number);
    if (!isfinite(sample->label))
        snprintf(reason, HUB_REASON_BYTES, "the label is too large for a float");
    return isfinite(sample->label);
}

/* A missing one is 0, whatever the transform. */
static float dense_of(const struct hub_dense *dense, double number, bool is_missing)
{
    if (is_missing)
        return 0.0f;
    switch (dense->transform) {
    case HUB_PLAIN:
        break;
    case HUB_LOG: /* for counts, which span many orders of magnitude; with the sign kept */
        return (float)copysign(log1p(fabs(number)), number);
    case HUB_SCALE:
        return (float)((number - dense->a) / dense->b);
    case HUB_CLIP:
        return (float)fmin(fmax(number, dense->a), dense->b);
    }
    return (float)number;
}

static bool set_dense(const struct hub_description *d, const struct line *line, struct hub_sample *sample,
                      char *reason)
{
    for (uint32_t i = 0; i < d->dense_count; i++) {
        const struct hub_dense *dense = &d->dense[i];
        sample->dense[i] =
            dense_of(dense, line->values[dense->column].number, field_of(d, line, dense->column).bytes == 0);
        if (!isfinite(sample->dense[i])) {
            snprintf(reason, HUB_REASON_BYTES, "dense value %.60s is too large for a float", dense->name);
            return false;
        }
    }
    return true;
}

/* Writes a number below 100 as two digits. Returns the end. */
static char *put_two(char *out, uint32_t number)
{
    out[0] = (char)('0' + number / 10);
    out[1] = (char)('0' + number % 10);
    return out + 2;
}

/* Writes the text of a part that is computed. Returns its end. */
static char *put_part(enum hub_part_kind kind, const union value *value, char out[PART_SHORT_MAX + 1])
{
    switch (kind) {
    case HUB_PART_TEXT:
        break;
    case HUB_PART_HOUR:
        return put_two(out, value->time.hour);
    case HUB_PART_WEEKDAY: { /* 1 is Monday; 1970 began on a Thursday */
        int64_t day = (days_of(value->time.year, value->time.month, value->time.day) + 3) % 7;
        *out = (char)('1' + (day < 0 ? day + 7 : day));
        return out + 1;
    }
    case HUB_PART_DAY:
        return put_two(put_two(out, value->time.month), value->time.day);
    case HUB_PART_MONTH:
        return put_two(out, value->time.month);
    case HUB_PART_RANGE:
        return out + snprintf(out, PART_SHORT_MAX, "%" PRId32, hub_range_of(value->number));
    }
    return out;
}

static void set_piece(const struct hub_part *part, struct hub_field field, const union value *value,
                      struct piece *piece)
{
    piece->text = field.text;
    piece->bytes = field.bytes;
    if (field.bytes == 0 || (part->kind == HUB_PART_TEXT && field.bytes > PART_SHORT_MAX))
        return;
    if (part->kind == HUB_PART_TEXT) {
        memcpy(piece->copy, field.text, field.bytes);
    } else {
        piece->bytes = (size_t)(put_part(part->kind, value, piece->copy) - piece->copy);
        piece->text = piece->copy;
    }
    piece->copy[piece->bytes] = '|';
}

/* Writes the parts of a cross, each with its '|'. Returns how many bytes: 0 where one is missing. */
static size_t put_cross(const struct hub_slot *slot, const struct piece *pieces, char *out)
{
    char *at = out;
    for (uint32_t i = 0; i < slot->part_count; i++) {
        const struct piece *piece = &pieces[slot->parts[i]];
        if (piece->bytes - 1 < PART_SHORT_MAX) { /* all of it at once; what is behind it is written over */
            memcpy(at, piece->copy, sizeof(piece->copy));
        } else if (piece->bytes == 0) {
            return 0;
        } else {
            memcpy(at, piece->text, piece->bytes);
            at[piece->bytes] = '|';
        }
        at += piece->bytes + 1;
    }
    return (size_t)(at - out);
}

/* Writes a key for each piece between separators; empty ones have none. Returns how many; more than `room`:
 * there are too many. */
static uint32_t put_split(uint32_t slot, char separator, struct hub_field rest, uint64_t *keys, uint32_t room)
{
    struct hub_field piece;
    uint32_t count = 0;
    while (hub_field_next(&rest, separator, &piece)) {
        if (piece.bytes == 0)
            continue;
        if (count == room)
            return room + 1;
        keys[count++] = mrc_slot_key(slot, piece.text, piece.bytes);
    }
    return count;
}

static bool set_slots(const struct hub_description *d, struct line *line, struct hub_sample *sample,
                      char *reason)
{
    char cross[HUB_LINE_BYTES_MAX + CROSS_SLACK];
    uint32_t count = 0, room;
    for (uint32_t i = 0; i < d->part_count; i++)
        set_piece(&d->parts[i], field_of(d, line, d->parts[i].column), &line->values[d->parts[i].column],
                  &line->pieces[i]);
    for (uint32_t i = 0; i < d->slot_count; i++) {
        const struct hub_slot *slot = &d->slots[i];
        struct hub_field value = {NULL, 0};
        switch (slot->kind) {
        case HUB_SLOT_CROSS:
            value = (struct hub_field){cross, put_cross(slot, line->pieces, cross)};
            break;
        case HUB_SLOT_TEXT:
            value = field_of(d, line, slot->column);
            break;
        case HUB_SLOT_PART:
            value = (struct hub_field){line->pieces[slot->parts[0]].text, line->pieces[slot->parts[0]].bytes};
            break;
        case HUB_SLOT_SPLIT:
            room = SPLIT_KEYS_MAX - mr_min_u32(count, SPLIT_KEYS_MAX);
            count +=
                put_split(i, slot->separator, field_of(d, line, slot->column), sample->keys + count, room);
            if (count > SPLIT_KEYS_MAX) {
                snprintf(reason, HUB_REASON_BYTES, "more than %u keys", SPLIT_KEYS_MAX);
                return false;
            }
            break;
        }
        if (value.bytes > 0)
            sample->keys[count++] = mrc_slot_key(i, value.text, value.bytes);
        sample->bag_end[i] = count;
    }
    sample->key_count = count;
    return true;
}

enum hub_parse hub_delimited_parse(const struct hub_description *d, const char *text, size_t bytes,
                                   uint64_t line_number, struct hub_sample *sample, char *reason)
{
    struct line line;
    if (bytes == 0 || (line_number == 1 && d->header == HUB_HEADER_NAMES))
        return HUB_NO_SAMPLE;
    if (!split_line(d, text, bytes, &line, reason))
        return HUB_BROKEN;
    if (line.field_count != d->field_count) {
        snprintf(reason, HUB_REASON_BYTES, "%" PRIu32 " field%s, not %" PRIu32, line.field_count,
                 mr_plural(line.field_count), d->field_count);
        return HUB_BROKEN;
    }
    if (line_number == 1 && d->header == HUB_HEADER_OPTIONAL && is_header(d, &line))
        return HUB_NO_SAMPLE;
    if (d->missing_count > 0)
        empty_missing(d, &line);
    if (!check_columns(d, &line, reason))
        return HUB_BROKEN;
    return set_label(d, &line, sample, reason) && set_dense(d, &line, sample, reason) &&
                   set_slots(d, &line, sample, reason)
               ? HUB_PARSED
               : HUB_BROKEN;
}
