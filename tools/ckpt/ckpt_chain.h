/* A checkpoint on disk for the commands of `millrace ckpt`: its chain of links, and its live rows in bounded
 * memory.
 *
 * A row of a chain is live in the last link that knows its key, unless that link says that it is gone. Which
 * link that is is noted for the keys of all links but the first, in a map of fixed size; what does not fit is
 * left for another pass over the files. A checkpoint that is a full by itself needs no map. Every block is
 * verified as it is read. Belongs to one thread.
 */
#ifndef TOOL_CKPT_CHAIN_H
#define TOOL_CKPT_CHAIN_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "tools/ckpt/ckpt_map.h"
#include "tools/ckpt/ckpt_progress.h"
#include "tools/ckpt/ckpt_row.h"

struct ckpt_chain {
    struct ps_chain files; /* its links, of a cluster's those of all nodes */
    struct ckpt_row *rows; /* of the checkpoint's tables, by feature id; bytes 0: no table of it */
};

/* "DIR/ckpt-7" is checkpoint 7 of DIR, and so is "DIR/CLUSTER-7"; anything else is a directory, and *id 0.
 * False when the path is too long. */
bool ckpt_path_split(const char *path, char directory[PS_PATH_BYTES], uint64_t *id);

/* Reads the MANIFESTs of a checkpoint and of those it builds upon. id 0: the one with the highest id. `text`
 * (PS_TEXT_BYTES) says what is wrong, and where. */
enum mr_status ckpt_chain_open(const char *directory, uint64_t id, struct ckpt_chain *out, char *text);
void ckpt_chain_close(struct ckpt_chain *chain); /* one of zeros is fine */

/* The place of a table among the last link's features; UINT32_MAX when it has none of that name. */
uint32_t ckpt_chain_table(const struct ckpt_chain *chain, const char *name);

typedef enum mr_status (*ckpt_visit_record)(void *arg, const struct ps_record *record, const uint8_t *bytes);

/* Every record of one link. `visit` may be NULL: then its blocks are only verified. Stops at the first status
 * that is not MR_OK; `text` is then the visitor's to fill. `progress` may be NULL. */
enum mr_status ckpt_link_each(const struct ps_chain_link *link, ckpt_visit_record visit, void *arg,
                              struct ckpt_progress *progress, char *text);

/* Whether a record of a part counts: of a cluster's checkpoint one of a variable, or of a piece of an
 * admission filter, does if the part's node had it. Of rows each key counts by itself. */
bool ckpt_part_has(const struct ps_chain *files, uint32_t part, const struct ps_record *record);
/* Every record of the checkpoint itself, of a cluster's those of each node; variables count once. As
 * ckpt_link_each(). */
enum mr_status ckpt_last_each(const struct ckpt_chain *chain, ckpt_visit_record visit, void *arg,
                              struct ckpt_progress *progress, char *text);

/* ---- live rows ---- */

struct ckpt_live {
    const struct ckpt_chain *chain;
    uint32_t feature;     /* only rows and observations of this table; 0: of all */
    struct ckpt_map *map; /* NULL for a full */
    struct ckpt_progress *progress;
};

/* MR_NO_MEMORY with `text`. memory_bytes: of the map. */
enum mr_status ckpt_live_open(struct ckpt_live *live, const struct ckpt_chain *chain, uint32_t feature,
                              uint64_t memory_bytes, struct ckpt_progress *progress, char *text);
void ckpt_live_close(struct ckpt_live *live);

/* Notes which link has the last word on each key in the range. range->end sinks to what the map has room
 * for. */
enum mr_status ckpt_live_index(struct ckpt_live *live, struct ckpt_range *range, char *text);

struct ckpt_rows {
    uint32_t feature; /* id in the last link */
    uint32_t row_bytes, count;
    const uint64_t *keys;
    const uint8_t *rows; /* 4-byte aligned */
};
typedef enum mr_status (*ckpt_visit_rows)(void *arg, const struct ckpt_rows *rows);

/* Every live row in the range, once; and, if the range begins at 0, `small` (may be NULL) gets the last
 * link's records of all else but rows, keys that are gone, and observations. Pieces of admission filters come
 * with the range that their place falls into, each from the last link that has it. */
enum mr_status ckpt_live_each(const struct ckpt_live *live, const struct ckpt_range *range,
                              ckpt_visit_rows rows, ckpt_visit_record small, void *arg, char *text);

/* All ranges in turn: index and visit, as many passes as it takes. */
enum mr_status ckpt_live_all(struct ckpt_live *live, ckpt_visit_rows rows, ckpt_visit_record small, void *arg,
                             char *text);

#endif
