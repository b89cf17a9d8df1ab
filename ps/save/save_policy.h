/* Which kind of checkpoint comes next: whole, or what has changed since the last one (a delta on it).
 *
 * A delta needs its parent: the last one that this node published to the same directory, or restored from it;
 * still there; and every core has kept the marks of what has changed since. A chain ends, and a full one
 * begins the next, once it has deltas_max deltas or these have grown to a share of the full one's bytes: then
 * a full one is cheaper to have than the chain to read. A save that failed leaves marks nobody can go by, so
 * a full one follows. Pure; one thread.
 */
#ifndef PS_SAVE_POLICY_H
#define PS_SAVE_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"

#define PS_CHAIN_DIRECTORY_BYTES 256

/* What a save may ask for. */
enum ps_save_wish { PS_WISH_CONFIGURED = 0, PS_WISH_FULL = 1, PS_WISH_DELTA = 2 };

struct ps_chain {
    bool is_open;                             /* there is a checkpoint that a delta may follow */
    const char *why_closed;                   /* if not; NULL: there was none yet */
    char directory[PS_CHAIN_DIRECTORY_BYTES]; /* where */
    uint64_t last_id;
    struct ps_hash last_hash; /* of its MANIFEST */
    uint32_t deltas;
    uint64_t full_bytes, delta_bytes; /* of the full one's blocks, and of all deltas' on it */
};

struct ps_chain_limits {
    uint32_t deltas_max; /* 0: no deltas */
    uint32_t delta_share_percent;
};

/* Why a delta is not possible now, or NULL. `parent_is_there`: the directory still holds last_id.
 * `marks_lost`: why a core does not know what has changed, NULL: all do; it may be what is returned. Deltas
 * may be possible that the limits are against. */
const char *ps_chain_no_delta(const struct ps_chain *chain, const struct ps_chain_limits *limits,
                              const char *directory, bool parent_is_there, const char *marks_lost);
/* A delta would be one too many. */
bool ps_chain_is_long(const struct ps_chain *chain, const struct ps_chain_limits *limits);

/* A checkpoint of so many bytes was published. */
void ps_chain_published(struct ps_chain *chain, const char *directory, uint64_t id, bool is_delta,
                        uint64_t bytes);
/* Behind either: the hash of its MANIFEST, by which another one under the same number is told apart. */
void ps_chain_set_hash(struct ps_chain *chain, struct ps_hash hash);
/* The node holds just what a checkpoint holds: it was restored. */
void ps_chain_restored(struct ps_chain *chain, const char *directory, uint64_t id, uint32_t deltas,
                       uint64_t full_bytes, uint64_t delta_bytes);
/* A save failed, or the node holds something else now. `why` is kept, not copied. */
void ps_chain_break(struct ps_chain *chain, const char *why);

#endif
