/* The keys that a node takes, from the files that the configuration names. main()'s thread. */
#ifndef PS_KEYS_H
#define PS_KEYS_H

#include "dataplane/wire/endpoint.h"
#include "ps/config/config.h"

#define PS_KEYS_ERROR_BYTES 512

struct ps_keys {
    uint8_t psks[MR_PSK_MAX][MR_PSK_BYTES];
    uint8_t roles[MR_PSK_MAX]; /* enum mr_role */
    uint32_t count;
    char missing[PS_KEYS_ERROR_BYTES]; /* of a reload: files that are not there, "a, b" */
};

/* node.key_file, node.key_file_next, and each node.key with what follows it (FILE.next, if it is there). The
 * first one is what the node's own calls are under: of a node that takes part in remote calls a trainer's,
 * where there is one. On failure `error` gets one line and `out` holds nothing. Wipe it when it has been
 * used: explicit_bzero. */
enum mr_status ps_keys_read(const struct ps_config *config, struct ps_keys *out,
                            char error[PS_KEYS_ERROR_BYTES]);

/* The same for a node that serves: a key whose file is missing ends, and `missing` names the file. Refuses to
 * leave a node without a key that has one (`has_keys`), since then everybody could do everything. */
enum mr_status ps_keys_read_again(const struct ps_config *config, bool has_keys, struct ps_keys *out,
                                  char error[PS_KEYS_ERROR_BYTES]);

/* "2 keys: 1 operator, 1 trainer", for the log. */
void ps_keys_describe(const struct ps_keys *keys, char *out, size_t out_bytes);

#endif
