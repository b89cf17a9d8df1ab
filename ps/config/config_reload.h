/* What has changed between two readings of the configuration. Pure. */
#ifndef PS_CONFIG_RELOAD_H
#define PS_CONFIG_RELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/config/config.h"

#define PS_CONFIG_SHOWN_BYTES 160u /* of a value for people; longer ones are cut */

/* Keys by their number, in the order of the file. */
struct ps_config_keys_found {
    uint32_t keys[PS_CONFIG_KEY_COUNT];
    uint32_t count;
};

/* Keys with another value in `after` than in `before`. Where they were given does not count. */
void ps_config_changed(const struct ps_config *before, const struct ps_config *after,
                       struct ps_config_keys_found *out);
/* Whether a reload changes the key with this number. */
bool ps_config_key_reloads(uint32_t key);
/* "checkpoint.every_s" */
void ps_config_key_name(uint32_t key, char out[PS_CONFIG_SHOWN_BYTES]);
/* A key's value as the file would have it; of a list, the values with commas between them; "(empty)". */
void ps_config_show(const struct ps_config *config, uint32_t key, char out[PS_CONFIG_SHOWN_BYTES]);
/* Gives a key the value that it has in `from`. */
void ps_config_take(struct ps_config *config, const struct ps_config *from, uint32_t key);
/* "port.mtu, cores.count", cut where `out` ends. */
void ps_config_join(const struct ps_config_keys_found *keys, char *out, size_t out_bytes);

#endif
