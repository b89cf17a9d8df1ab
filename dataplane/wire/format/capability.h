/* Capabilities: what a version of Millrace can do beyond protocol 4 and checkpoints of format 6. Peers
 * exchange them in the handshake, nodes of a cluster write them into their entries and the map, and a
 * checkpoint names those that its content needs (ADR 130). A peer that says nothing has none of them.
 *
 * Whatever changes the meaning or the layout of rows, of bodies or of files, so that a version without the
 * change would misread it, takes the next line here. Bits are never used again. scripts/layouts.py (make
 * lint) compares the declarations of all layouts with scripts/layouts.list, and fails until somebody has
 * looked whether a change needs a bit.
 *
 * Pure functions, any thread.
 */
#ifndef MR_CAPABILITY_H
#define MR_CAPABILITY_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/packet.h"

/* X(name, bit, text, since, what it changes) */
#define MR_CAPABILITY_LIST(X)                                                                                \
    X(ADAM_STEP, 0, "adam_step", "0.3.0", "Adam and AdamW with argument 3 = 1: t is the step of pushes")     \
    X(DENSE, 1, "dense", "0.3.0",                                                                            \
      "tables of optimizers with argument 5 = 1: rows go through steps without a gradient, and remember "    \
      "their last step")                                                                                     \
    X(SET_ROWS, 2, "set_rows", "0.3.0",                                                                      \
      "PUSH_GRAD with MR_PUSH_SET for any table; LOOKUP with MR_LOOKUP_STORED: rows as they are stored")     \
    X(RPC, 3, "rpc", "0.3.0", "bodies of remote calls, references and members of worlds as of 0.3.0")        \
    X(MANY_NODES, 4, "many_nodes", "0.4.0",                                                                  \
      "clusters of more than 32 nodes: their maps, NODE_INFO with owners of u16, and checkpoints of as "     \
      "many "                                                                                                \
      "parts")                                                                                               \
    X(TAKE_OVER, 5, "take_over", "0.4.0",                                                                    \
      "maps of clusters with spares, with take_over_s, and since when partitions are restored; NODE_INFO "   \
      "with the latter")                                                                                     \
    X(BATCH_RANGES, 6, "batch_ranges", "0.4.0",                                                              \
      "records of ranges of batches that are applied to some partitions, in checkpoints and moves")          \
    X(COPIES, 7, "copies", "0.4.0", "maps of clusters with backups of partitions (replication 2)")

enum mr_capability {
#define MR_CAPABILITY_ENUM(name, bit, text, since, change) MR_CAPABILITY_##name = (bit),
    MR_CAPABILITY_LIST(MR_CAPABILITY_ENUM)
#undef MR_CAPABILITY_ENUM
};

/* The bit of a capability, and those that this version has. */
#define MR_CAN(name)                                      (UINT64_C(1) << MR_CAPABILITY_##name)
#define MR_CAPABILITY_BIT(name, bit, text, since, change) | UINT64_C(1) << (bit)
#define MR_CAPABILITIES                                   (UINT64_C(0) MR_CAPABILITY_LIST(MR_CAPABILITY_BIT))

/* Returns the text of the running version, with the commit where the program knows it: "0.3.0+1a2b3c4d". */
const char *mr_version_text(void);
struct mr_peer_version mr_version_own(void);
/* Writes a peer's version for people, at most MR_VERSION_TEXT_BYTES: characters that a version does not have
 * become '?'; "before 0.3.0" for a peer that says nothing. */
void mr_version_name(const struct mr_peer_version *peer, char text[MR_VERSION_TEXT_BYTES]);

/* The name of one bit; NULL: this version does not know it. */
const char *mr_capability_name(uint32_t bit);
/* Returns the bit of that name as a set, 0 if it is unknown. */
uint64_t mr_capability_named(const char *name);
/* Lists a set by names, "dense, bit 40"; "none". Cut where there is no room. */
void mr_capability_text(uint64_t set, char *text, size_t bytes);

/* What a node must have to keep this feature as it is described, and to save it. */
uint64_t mr_feature_needs(const struct mr_feature *f);

#endif
