#include "ps/config/config_reload.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ps/config/config_table.h"

static const void *field_of(const struct ps_config *config, const struct ps_config_key *key)
{
    return (const uint8_t *)config + key->offset;
}

/* Lines of the file do not count, and nor do bytes behind a text's end. */
static bool is_same_list(const struct ps_config_list *a, const struct ps_config_list *b)
{
    bool is_same = a->count == b->count;
    for (uint32_t i = 0; i < a->count && is_same; i++)
        is_same = strcmp(a->values[i], b->values[i]) == 0;
    return is_same;
}

static bool is_same(const struct ps_config *a, const struct ps_config *b, const struct ps_config_key *key)
{
    if (key->type == PS_CONFIG_TYPE_LIST)
        return is_same_list(field_of(a, key), field_of(b, key));
    if (key->type == PS_CONFIG_TYPE_TEXT)
        return strcmp(field_of(a, key), field_of(b, key)) == 0;
    return memcmp(field_of(a, key), field_of(b, key), key->bytes) == 0;
}

void ps_config_changed(const struct ps_config *before, const struct ps_config *after,
                       struct ps_config_keys_found *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < PS_CONFIG_KEY_COUNT; i++)
        if (!is_same(before, after, &ps_config_keys[i]))
            out->keys[out->count++] = i;
}

bool ps_config_key_reloads(uint32_t key)
{
    return ps_config_reloads(&ps_config_keys[key]);
}

void ps_config_key_name(uint32_t key, char out[PS_CONFIG_SHOWN_BYTES])
{
    snprintf(out, PS_CONFIG_SHOWN_BYTES, "%s.%s", ps_config_keys[key].section, ps_config_keys[key].name);
}

static void show_choice(const char *choices, uint32_t index, char *out)
{
    for (; index > 0; index--)
        choices = strchr(choices, '|') + 1;
    snprintf(out, PS_CONFIG_SHOWN_BYTES, "%.*s", (int)strcspn(choices, "|"), choices);
}

static void show_list(const struct ps_config_list *list, char *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < list->count && at < PS_CONFIG_SHOWN_BYTES; i++)
        at += (size_t)snprintf(out + at, PS_CONFIG_SHOWN_BYTES - at, "%s%s", i > 0 ? ", " : "",
                               list->values[i]);
}

void ps_config_show(const struct ps_config *config, uint32_t key, char out[PS_CONFIG_SHOWN_BYTES])
{
    const struct ps_config_key *k = &ps_config_keys[key];
    const void *field = field_of(config, k);
    out[0] = '\0';
    switch (k->type) {
    case PS_CONFIG_TYPE_NUMBER:
        snprintf(out, PS_CONFIG_SHOWN_BYTES, "%" PRIu64, *(const uint64_t *)field);
        break;
    case PS_CONFIG_TYPE_CHOICE:
        show_choice(k->choices, *(const uint32_t *)field, out);
        break;
    case PS_CONFIG_TYPE_FLAG:
        snprintf(out, PS_CONFIG_SHOWN_BYTES, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case PS_CONFIG_TYPE_TEXT:
        snprintf(out, PS_CONFIG_SHOWN_BYTES, "%s", (const char *)field);
        break;
    case PS_CONFIG_TYPE_LIST:
        show_list(field, out);
        break;
    }
    if (out[0] == '\0')
        snprintf(out, PS_CONFIG_SHOWN_BYTES, "(empty)");
}

void ps_config_take(struct ps_config *config, const struct ps_config *from, uint32_t key)
{
    const struct ps_config_key *k = &ps_config_keys[key];
    memcpy((uint8_t *)config + k->offset, field_of(from, k), k->bytes);
    config->lines[key] = from->lines[key];
}

void ps_config_join(const struct ps_config_keys_found *keys, char *out, size_t out_bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < keys->count && at < out_bytes; i++) {
        char name[PS_CONFIG_SHOWN_BYTES];
        ps_config_key_name(keys->keys[i], name);
        at += (size_t)snprintf(out + at, out_bytes - at, "%s%s", i > 0 ? ", " : "", name);
    }
}
