#include "ps/config/config_table.h"

#include <stdio.h>
#include <string.h>

#define SUGGEST_DISTANCE_MAX 3u /* edits between an unknown key and one that is suggested */

const struct ps_config_key *ps_config_find(const char *section, const char *name)
{
    for (size_t i = 0; i < PS_CONFIG_KEY_COUNT; i++) {
        if (strcmp(ps_config_keys[i].section, section) == 0 && strcmp(ps_config_keys[i].name, name) == 0) {
            return &ps_config_keys[i];
        }
    }
    return NULL;
}

static bool is_section(const char *name)
{
    for (size_t i = 0; i < PS_CONFIG_SECTION_COUNT; i++) {
        if (strcmp(ps_config_sections[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Levenshtein distance; names longer than PS_CONFIG_NAME_MAX are far from everything. */
static uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t row[PS_CONFIG_NAME_MAX + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > PS_CONFIG_NAME_MAX || b_length > PS_CONFIG_NAME_MAX) {
        return UINT32_MAX;
    }
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = (uint32_t)j;
    }
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

/* The key nearest to an unknown one, wherever it is; NULL when none is near. */
static const struct ps_config_key *nearest_key(const char *section, const char *name)
{
    const struct ps_config_key *best = NULL;
    uint32_t best_distance = SUGGEST_DISTANCE_MAX + 1;
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
