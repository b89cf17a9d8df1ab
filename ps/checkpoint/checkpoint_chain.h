/* A checkpoint with all that it is based on. One thread at a time.
 */
#ifndef PS_CHECKPOINT_CHAIN_H
#define PS_CHECKPOINT_CHAIN_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_manifest.h"

/* A checkpoint with all that it is based on: the MANIFESTs from its full to itself, each tied to the one
 * before by its hash. One thread at a time. */
struct ps_chain_link {
    struct ps_manifest manifest;
    char path[PS_PATH_BYTES]; /* of the checkpoint's directory */
};

struct ps_chain {
    const struct ps_store *store;
    uint32_t count;
    struct ps_chain_link **links; /* full first */
    int claim; /* shared, of the full checkpoint's directory: retention then leaves the chain alone */
    bool claimed;
};

static inline const struct ps_chain_link *ps_chain_last(const struct ps_chain *c)
{
    return c->links[c->count - 1];
}
/* Whether earlier links have records of features that later ones dropped. */
bool ps_chain_drops(const struct ps_chain *c);
/* Returns the payload of all blocks of all links. */
uint64_t ps_chain_bytes(const struct ps_chain *c);

/* Reads the MANIFESTs of a chain; no block is read. MR_CHECKPOINT_NOT_FOUND: there is no such checkpoint.
 * MR_CHECKPOINT_CORRUPT: its MANIFEST is, or a parent is missing, broken or not the one that it was written
 * on. MR_CHECKPOINT_NEWER, MR_IO_ERROR, MR_NO_MEMORY. On failure `text` (PS_TEXT_BYTES) says what and where,
 * and there is nothing to close. */
enum mr_status ps_chain_open(const struct ps_store *store, const char *directory, uint64_t id,
                             struct ps_chain *out, char *text);
/* Checks that each link's files exist and have the lengths that its MANIFEST gives; no block is read. Errors
 * as those of ps_chain_open(). */
enum mr_status ps_chain_check_files(const struct ps_chain *chain, char *text);
void ps_chain_close(struct ps_chain *chain); /* zeros are fine */

#endif
