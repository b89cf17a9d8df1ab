#include "ps/config/config_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/cluster.h"

#define SUGGEST_DISTANCE_MAX 3u   /* edits between an unknown key and one that is suggested */
#define COLUMNS              100u /* of the printed configuration */

#define FIELD(section, key)                                                                                  \
    offsetof(struct ps_config, section##_##key), sizeof(((struct ps_config *)0)->section##_##key)

const struct ps_config_key ps_config_keys[PS_CONFIG_KEY_COUNT] = {
#define PS_TEXT(section, key, value, bytes, check, help)                                                     \
    {#section, #key, value, help, PS_CONFIG_TYPE_TEXT, FIELD(section, key), 0, 0, NULL, check},
#define PS_NUMBER(section, key, value, low, high, help)                                                      \
    {#section, #key, #value, help, PS_CONFIG_TYPE_NUMBER, FIELD(section, key), low, high, NULL, NULL},
#define PS_CHOICE(section, key, value, choices, help)                                                        \
    {#section, #key, value, help, PS_CONFIG_TYPE_CHOICE, FIELD(section, key), 0, 0, choices, NULL},
#define PS_FLAG(section, key, value, help)                                                                   \
    {#section, #key, value, help, PS_CONFIG_TYPE_FLAG, FIELD(section, key), 0, 0, "no|yes", NULL},
#define PS_LIST(section, key, check, help)                                                                   \
    {#section, #key, "", help, PS_CONFIG_TYPE_LIST, FIELD(section, key), 0, 0, NULL, check},
#include "ps/config/config_keys.def"
};

static const bool reloads[PS_CONFIG_KEY_COUNT] = {
#define PS_RELOADS(section, key) [PS_CONFIG_KEY_##section##_##key] = true,
#include "ps/config/config_keys.def"
};

static const bool follows[PS_CONFIG_KEY_COUNT] = {
#define PS_FOLLOWS(section, key) [PS_CONFIG_KEY_##section##_##key] = true,
#include "ps/config/config_keys.def"
};

const struct ps_config_section ps_config_sections[PS_CONFIG_SECTION_COUNT] = {
#define PS_SECTION(section, help) {#section, help},
#include "ps/config/config_keys.def"
};

/* Index of `text` in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *at = choices; *at != '\0'; index++) {
        size_t choice_length = strcspn(at, "|");
        if (choice_length == length && memcmp(at, text, length) == 0)
            return index;
        at += choice_length;
        at += *at == '|' ? 1 : 0;
    }
    return -1;
}

/* What is allowed for `key`, in words. */
static void describe_allowed(const struct ps_config_key *key, char *out, size_t out_bytes)
{
    switch (key->type) {
    case PS_CONFIG_TYPE_NUMBER:
        snprintf(out, out_bytes, "a whole number from %" PRIu64 " to %" PRIu64, key->low, key->high);
        return;
    case PS_CONFIG_TYPE_CHOICE:
    case PS_CONFIG_TYPE_FLAG: {
        size_t at = 0;
        for (const char *c = key->choices; *c != '\0' && at + 3 < out_bytes; c++)
            at += (size_t)snprintf(out + at, out_bytes - at, *c == '|' ? ", " : "%c", *c);
        return;
    }
    case PS_CONFIG_TYPE_TEXT:
        snprintf(out, out_bytes, "text of up to %zu bytes", key->bytes - 1);
        return;
    case PS_CONFIG_TYPE_LIST:
        snprintf(out, out_bytes, "%u times, text of up to %u bytes", PS_CONFIG_LIST_MAX,
                 PS_CONFIG_VALUE_MAX - 1);
        return;
    }
}

/* "" adds nothing. */
static bool add_to_list(struct ps_config_list *list, const struct ps_config_key *key, const char *text,
                        char *allowed, size_t allowed_bytes)
{
    if (text[0] == '\0')
        return true;
    if (strlen(text) >= PS_CONFIG_VALUE_MAX || list->count == PS_CONFIG_LIST_MAX)
        return false;
    const char *rule = key->rule(text);
    if (rule != NULL) {
        snprintf(allowed, allowed_bytes, "%s", rule);
        return false;
    }
    snprintf(list->values[list->count++], PS_CONFIG_VALUE_MAX, "%s", text);
    return true;
}

void ps_config_note_line(struct ps_config *config, const struct ps_config_key *key, uint32_t line)
{
    uint32_t *first = &config->lines[key - ps_config_keys];
    struct ps_config_list *list = (void *)((uint8_t *)config + key->offset);
    if (key->type == PS_CONFIG_TYPE_LIST && list->count > 0 && list->lines[list->count - 1] == 0)
        list->lines[list->count - 1] = line;
    if (key->type != PS_CONFIG_TYPE_LIST || *first == 0 || line == PS_CONFIG_ON_COMMAND_LINE)
        *first = line;
}

bool ps_config_set_value(struct ps_config *config, const struct ps_config_key *key, const char *text,
                         char *allowed, size_t allowed_bytes)
{
    uint8_t *field = (uint8_t *)config + key->offset;
    uint64_t number;
    int index;
    describe_allowed(key, allowed, allowed_bytes);
    switch (key->type) {
    case PS_CONFIG_TYPE_NUMBER:
        if (!ps_number_parse(text, &number) || number < key->low || number > key->high)
            return false;
        memcpy(field, &number, sizeof(number));
        return true;
    case PS_CONFIG_TYPE_CHOICE:
        index = choice_index(key->choices, text);
        if (index < 0)
            return false;
        memcpy(field, &(uint32_t){(uint32_t)index}, sizeof(uint32_t));
        return true;
    case PS_CONFIG_TYPE_FLAG:
        index = choice_index(key->choices, text);
        if (index < 0)
            return false;
        memcpy(field, &(bool){index == 1}, sizeof(bool));
        return true;
    case PS_CONFIG_TYPE_TEXT:
        if (strlen(text) >= key->bytes)
            return false;
        const char *rule = key->rule(text);
        if (rule != NULL) {
            snprintf(allowed, allowed_bytes, "%s", rule);
            return false;
        }
        memset(field, 0, key->bytes);
        snprintf((char *)field, key->bytes, "%s", text);
        return true;
    case PS_CONFIG_TYPE_LIST:
        return add_to_list((void *)field, key, text, allowed, allowed_bytes);
    }
    return false;
}

void ps_config_default(struct ps_config *config)
{
    char allowed[128];
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < PS_CONFIG_KEY_COUNT; i++) {
        bool good = ps_config_set_value(config, &ps_config_keys[i], ps_config_keys[i].value, allowed,
                                        sizeof(allowed));
        assert(good);
        (void)good;
    }
}

/* ---- names ---- */

const struct ps_config_key *ps_config_find(const char *section, const char *name)
{
    for (size_t i = 0; i < PS_CONFIG_KEY_COUNT; i++)
        if (strcmp(ps_config_keys[i].section, section) == 0 && strcmp(ps_config_keys[i].name, name) == 0)
            return &ps_config_keys[i];
    return NULL;
}

bool ps_config_reloads(const struct ps_config_key *key)
{
    return reloads[key - ps_config_keys];
}

bool ps_config_follows(const struct ps_config_key *key)
{
    return follows[key - ps_config_keys];
}

static bool is_section(const char *name)
{
    for (size_t i = 0; i < PS_CONFIG_SECTION_COUNT; i++)
        if (strcmp(ps_config_sections[i].name, name) == 0)
            return true;
    return false;
}

/* Levenshtein distance; names longer than PS_CONFIG_NAME_MAX are far from everything. */
static uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t row[PS_CONFIG_NAME_MAX + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > PS_CONFIG_NAME_MAX || b_length > PS_CONFIG_NAME_MAX)
        return UINT32_MAX;
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 1; i <= a_length; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            uint32_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            uint32_t drop = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < drop ? change : drop;
        }
    }
    return row[b_length];
}

/* The key nearest to an unknown one, wherever it is; NULL when none is near. A short name must be nearer: any
 * three letters are three edits from any others. */
static const struct ps_config_key *nearest_key(const char *section, const char *name)
{
    const struct ps_config_key *best = NULL;
    size_t half = strlen(name) / 2;
    uint32_t best_distance = (half < SUGGEST_DISTANCE_MAX ? (uint32_t)half : SUGGEST_DISTANCE_MAX) + 1;
    for (size_t i = 0; i < PS_CONFIG_KEY_COUNT; i++) {
        uint32_t distance = edit_distance(name, ps_config_keys[i].name);
        distance +=
            distance <= SUGGEST_DISTANCE_MAX && strcmp(section, ps_config_keys[i].section) != 0 ? 1 : 0;
        if (distance < best_distance) {
            best = &ps_config_keys[i];
            best_distance = distance;
        }
    }
    return best;
}

static void list_names(const char *section, char *out, size_t out_bytes)
{
    size_t at = 0;
    out[0] = '\0';
    if (section == NULL) {
        for (size_t i = 0; i < PS_CONFIG_SECTION_COUNT && at < out_bytes; i++) {
            at += (size_t)snprintf(out + at, out_bytes - at, "%s[%s]", at > 0 ? ", " : "",
                                   ps_config_sections[i].name);
        }
        return;
    }
    for (size_t i = 0; i < PS_CONFIG_KEY_COUNT && at < out_bytes; i++) {
        if (strcmp(ps_config_keys[i].section, section) == 0) {
            at += (size_t)snprintf(out + at, out_bytes - at, "%s%s", at > 0 ? ", " : "",
                                   ps_config_keys[i].name);
        }
    }
}

void ps_config_explain_unknown(const char *section, const char *name, char *out, size_t out_bytes)
{
    char names[320];
    const struct ps_config_key *near = nearest_key(section, name);
    if (!is_section(section)) {
        list_names(NULL, names, sizeof(names));
        snprintf(out, out_bytes, "unknown section [%.64s]; there are %s", section, names);
    } else if (near != NULL) {
        snprintf(out, out_bytes, "[%s] has no key \"%.64s\"; did you mean %s in [%s]?", section, name,
                 near->name, near->section);
    } else {
        list_names(section, names, sizeof(names));
        snprintf(out, out_bytes, "[%s] has no key \"%.64s\"; there are %s", section, name, names);
    }
}

/* ---- millraced --print-config ---- */

/* `text` as comment lines of at most COLUMNS bytes, broken between words. */
static void print_comment(FILE *out, const char *text)
{
    size_t column = 0;
    for (const char *word = text; *word != '\0';) {
        size_t length = strcspn(word, " ");
        if (column == 0 || column + 1 + length > COLUMNS) {
            fprintf(out, "%s#", column == 0 ? "" : "\n");
            column = 1;
        }
        fprintf(out, " %.*s", (int)length, word);
        column += 1 + length;
        word += length + strspn(word + length, " ");
    }
    fputc('\n', out);
}

static void print_key(FILE *out, const struct ps_config_key *key)
{
    char allowed[128];
    print_comment(out, key->help);
    if (key->type != PS_CONFIG_TYPE_TEXT && key->type != PS_CONFIG_TYPE_LIST) {
        describe_allowed(key, allowed, sizeof(allowed));
        fprintf(out, "# Allowed: %s.\n", allowed);
    }
    if (ps_config_reloads(key))
        fprintf(out, "# A reload changes it.\n");
    fprintf(out, "%s%s =%s%s\n\n", ps_config_follows(key) ? "#" : "", key->name,
            key->value[0] != '\0' ? " " : "", key->value);
}

void ps_config_print(FILE *out)
{
    print_comment(
        out,
        "millraced configuration: every key, with its default. A key that is left out has its default; "
        "an unknown one is refused. Defaults that follow other keys are comments. millraced --check-config "
        "FILE checks a file, and --set "
        "section.key=value on the command line overrides it. On SIGHUP (systemctl reload) the server reads "
        "its file again: some keys change then, as is noted there; the others need a restart.");
    for (size_t s = 0; s < PS_CONFIG_SECTION_COUNT; s++) {
        fputc('\n', out);
        print_comment(out, ps_config_sections[s].help);
        fprintf(out, "[%s]\n", ps_config_sections[s].name);
        for (size_t k = 0; k < PS_CONFIG_KEY_COUNT; k++)
            if (strcmp(ps_config_keys[k].section, ps_config_sections[s].name) == 0)
                print_key(out, &ps_config_keys[k]);
    }
}
