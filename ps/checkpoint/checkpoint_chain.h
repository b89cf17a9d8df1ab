/* A checkpoint with all that it is based on: the MANIFESTs from its full to itself, each tied to the one
 * before by its hash. That of a cluster has such links for each of its nodes, one node after the other. One
 * thread at a time.
 */
#ifndef PS_CHECKPOINT_CHAIN_H
#define PS_CHECKPOINT_CHAIN_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/cluster_manifest.h"

struct ps_chain_link {
    struct ps_manifest manifest;
    char path[PS_PATH_BYTES]; /* of the checkpoint's directory */
    uint32_t part;            /* that it belongs to; 0 unless it is of a cluster */
    bool is_first, is_last;   /* the full of its part; the checkpoint itself, as its node wrote it */
};

/* The links of one node. */
struct ps_chain_part {
    uint32_t first, count;
    int claim; /* shared, of the full checkpoint's directory: retention then leaves the chain alone */
    bool claimed;
};

struct ps_chain {
    const struct ps_store *store;
    uint32_t count;
    struct ps_chain_link **links; /* full first */
    uint32_t part_count;          /* 1 unless it is of a cluster */
    struct ps_chain_part *parts;
    struct ps_cluster_manifest *cluster; /* NULL: a single node's */
    /* of a cluster: */
    char path[PS_PATH_BYTES];    /* of the file CLUSTER-<id> */
    struct ps_manifest manifest; /* what the checkpoint is as a whole, without files and parameters */
};

/* What the checkpoint is: id, step, features. That of a cluster has all features of its nodes, but neither
 * files nor parameters nor an ancestry, which are the nodes' own; clock_s is the latest of theirs. */
static inline const struct ps_manifest *ps_chain_manifest(const struct ps_chain *c)
{
    return c->cluster ? &c->manifest : &c->links[c->count - 1]->manifest;
}
/* The directory of the checkpoint, or its file CLUSTER-<id>. */
static inline const char *ps_chain_path(const struct ps_chain *c)
{
    return c->cluster ? c->path : c->links[c->count - 1]->path;
}
/* The checkpoint as the node of this part wrote it. */
static inline const struct ps_chain_link *ps_chain_part_last(const struct ps_chain *c, uint32_t part)
{
    return c->links[c->parts[part].first + c->parts[part].count - 1];
}
/* Whether a part's records of keys in this partition count. */
static inline bool ps_chain_part_owns(const struct ps_chain *c, uint32_t part, uint32_t partition)
{
    return !c->cluster || c->cluster->owner[partition] == part;
}
/* Returns how many links the longest of its parts has. */
uint32_t ps_chain_links(const struct ps_chain *c);
/* Whether earlier links have records of features that later ones dropped. */
bool ps_chain_drops(const struct ps_chain *c);
/* Returns the payload of all blocks of all links. */
uint64_t ps_chain_bytes(const struct ps_chain *c);

/* Reads the MANIFESTs of a chain; no block is read. Where a node by itself has saved among a cluster's
 * checkpoints, both may have the number: then the cluster's is meant. MR_CHECKPOINT_NOT_FOUND: there is no
 * such checkpoint. MR_CHECKPOINT_CORRUPT: its MANIFEST is, or a parent is missing, broken or not the one
 * that it was written on; of a cluster also if a part is missing, not the one that CLUSTER-<id> names, or
 * does not go with the others. MR_CHECKPOINT_NEWER, MR_IO_ERROR, MR_NO_MEMORY. On failure `text`
 * (PS_TEXT_BYTES) says what and where, and there is nothing to close. */
enum mr_status ps_chain_open(const struct ps_store *store, const char *directory, uint64_t id,
                             struct ps_chain *out, char *text);
/* Checks that each link's files exist and have the lengths that its MANIFEST gives; no block is read. Errors
 * as those of ps_chain_open(). */
enum mr_status ps_chain_check_files(const struct ps_chain *chain, char *text);
void ps_chain_close(struct ps_chain *chain); /* zeros are fine */

#endif
