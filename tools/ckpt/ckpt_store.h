/* Where the checkpoints that a command names are: on this machine's disk, or in a store that a URL names.
 * Stores stay open until the program ends. Belongs to one thread; the stores themselves do not.
 */
#ifndef TOOL_CKPT_STORE_H
#define TOOL_CKPT_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/io/store.h"

#define CKPT_STORES_MAX 2u /* named by one command */

/* Like ckpt_path_split() (tools/ckpt/ckpt_chain.h), for a path or a URL, whose store is opened; its query is
 * taken off. 0, or the exit code after one line. */
int ckpt_place_open(const char *command, const char *path, char directory[PS_PATH_BYTES], uint64_t *id);
/* The store of a path: a remote one that was opened for it, else the local files. */
const struct ps_store *ckpt_store_of(const char *path);

#endif
