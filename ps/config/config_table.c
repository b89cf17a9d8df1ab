#include "ps/config/config_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
        if (choice_length == length && memcmp(at, text, length) == 0) {
            return index;
        }
        at += choice_length;
        at += *at == '|' ? 1 : 0;
    }
    return -1;
}

void ps_config_describe_allowed(const struct ps_config_key *key, char *out, size_t out_bytes)
{
    switch (key->type) {
    case PS_CONFIG_TYPE_NUMBER:
        snprintf(out, out_bytes, "a whole number from %" PRIu64 " to %" PRIu64, key->low, key->high);
        return;
    case PS_CONFIG_TYPE_CHOICE:
    case PS_CONFIG_TYPE_FLAG: {
        size_t at = 0;
        for (const char *c = key->choices; *c != '\0' && at + 3 < out_bytes; c++) {
            at += (size_t)snprintf(out + at, out_bytes - at, *c == '|' ? ", " : "%c", *c);
        }
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
    if (text[0] == '\0') {
        return true;
    }
    if (strlen(text) >= PS_CONFIG_VALUE_MAX || list->count == PS_CONFIG_LIST_MAX) {
        return false;
    }
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
    if (key->type == PS_CONFIG_TYPE_LIST && list->count > 0 && list->lines[list->count - 1] == 0) {
        list->lines[list->count - 1] = line;
    }
    if (key->type != PS_CONFIG_TYPE_LIST || *first == 0 || line == PS_CONFIG_ON_COMMAND_LINE) {
        *first = line;
    }
}

bool ps_config_set_value(struct ps_config *config, const struct ps_config_key *key, const char *text,
                         char *allowed, size_t allowed_bytes)
{
    uint8_t *field = (uint8_t *)config + key->offset;
    uint64_t number;
    int index;
    ps_config_describe_allowed(key, allowed, allowed_bytes);
    switch (key->type) {
    case PS_CONFIG_TYPE_NUMBER:
        if (!ps_number_parse(text, &number) || number < key->low || number > key->high) {
            return false;
        }
        memcpy(field, &number, sizeof(number));
        return true;
    case PS_CONFIG_TYPE_CHOICE:
        index = choice_index(key->choices, text);
        if (index < 0) {
            return false;
        }
        memcpy(field, &(uint32_t){(uint32_t)index}, sizeof(uint32_t));
        return true;
    case PS_CONFIG_TYPE_FLAG:
        index = choice_index(key->choices, text);
        if (index < 0) {
            return false;
        }
        memcpy(field, &(bool){index == 1}, sizeof(bool));
        return true;
    case PS_CONFIG_TYPE_TEXT:
        if (strlen(text) >= key->bytes) {
            return false;
        }
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
