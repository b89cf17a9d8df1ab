/* The table of configuration keys for ps/config/config.h: how to find a key, set its field, and say what
 * is allowed. */
#ifndef PS_CONFIG_TABLE_H
#define PS_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/config/config.h"
#include "ps/config/config_rules.h"

#define PS_CONFIG_NAME_MAX 64u /* bytes of the name of a section or key */

enum ps_config_type {
    PS_CONFIG_TYPE_TEXT,
    PS_CONFIG_TYPE_NUMBER,
    PS_CONFIG_TYPE_CHOICE,
    PS_CONFIG_TYPE_FLAG,
    PS_CONFIG_TYPE_LIST
};

struct ps_config_key {
    const char *section, *name, *value, *help;
    enum ps_config_type type;
    size_t offset, bytes; /* of the field in struct ps_config */
    uint64_t low, high;
    const char *choices; /* "a|b|c" */
    ps_rule rule;
};

struct ps_config_section {
    const char *name, *help;
};

/* One per section, for the count at its end. */
enum {
#define PS_SECTION(section, help) PS_CONFIG_SECTION_##section,
#include "ps/config/config_keys.def"
    PS_CONFIG_SECTION_COUNT
};

extern const struct ps_config_key ps_config_keys[PS_CONFIG_KEY_COUNT];
extern const struct ps_config_section ps_config_sections[PS_CONFIG_SECTION_COUNT];

/* NULL when there is none. */
const struct ps_config_key *ps_config_find(const char *section, const char *name);
/* Whether a reload changes it; otherwise it needs a restart. */
bool ps_config_reloads(const struct ps_config_key *key);
/* Whether its default follows other keys, as ps_config_settle() has it. */
bool ps_config_follows(const struct ps_config_key *key);
/* Why there is no such key, and which one may be meant. */
void ps_config_explain_unknown(const char *section, const char *name, char *out, size_t out_bytes);
/* Sets the key's field, or adds to it, if it is a list; false, with what is allowed in `allowed`, when `text`
 * is no value of it. */
bool ps_config_set_value(struct ps_config *config, const struct ps_config_key *key, const char *text,
                         char *allowed, size_t allowed_bytes);
/* A value was taken: from that line. */
void ps_config_note_line(struct ps_config *config, const struct ps_config_key *key, uint32_t line);

#endif
