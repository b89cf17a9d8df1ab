/* The manifest: what a checkpoint consists of, as JSON with a hash of its own content. It is written last, so
 * a directory without a manifest that verifies is no checkpoint. Any thread.
 */
#ifndef PS_CHECKPOINT_MANIFEST_H
#define PS_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/mr_feature.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/io/store.h"

#define PS_MANIFEST_NAME      "MANIFEST"
#define PS_BY_TRAINER_NAME    "BY_TRAINER"
#define PS_BY_TRAINER_TEXT    "A trainer asked for this checkpoint, not the node or an operator.\n"
#define PS_MANIFEST_BYTES_MAX (16u << 20)
#define PS_STARTS_MAX         8u
#define PS_FEATURE_ID_MAX     ((uint32_t)MR_FEATURE_ID_MAX)

struct ps_manifest_file {
    uint32_t blocks;
    uint64_t payload_bytes;
    uint64_t records;
    struct ps_hash hash; /* XXH3-128 over the hash fields of its blocks, in order */
};

/* One start of a node, and the checkpoint of its own directory that it continued from; 0: none. */
struct ps_start {
    uint64_t id, from;
};

/* The starts that a state comes from, the newest first, as far as there is room. By it a client knows whether
 * a node that was started again holds the contents of some checkpoint, even if it continued from a later
 * one. */
struct ps_ancestry {
    uint32_t count;
    struct ps_start starts[PS_STARTS_MAX];
};

/* Sets `*ancestry` for a start named `id` that continues from checkpoint `from`, whose ancestry is `older`;
 * NULL: from none. `older` may be `*ancestry` itself. */
void ps_ancestry_begin(struct ps_ancestry *ancestry, const struct ps_ancestry *older, uint64_t id,
                       uint64_t from);

struct ps_manifest {
    uint32_t version; /* of the format */
    uint32_t incarnation;
    uint64_t id;
    uint64_t parent; /* id; 0: the checkpoint is full */
    uint64_t step;
    uint32_t clock_s;            /* of the node at the cut: ages of rows count from it; 0 before version 4 */
    struct ps_hash parent_hash;  /* of the parent's manifest; 0 if full */
    struct ps_hash hash;         /* of this manifest; ps_manifest_parse() and _seal() fill it in */
    struct ps_ancestry ancestry; /* of the state in it; empty before version 4 */
    bool lacks_ancestry;         /* of format 4, as 0.1 wrote it */
    bool is_at_step;
    bool is_partial; /* it has some of the node's features, and no record of batches and pushes */
    uint64_t needs;  /* capabilities of its content; 0 before version 7 */
    char written_by[MR_VERSION_TEXT_BYTES]; /* the version, for people; "" before version 7 */
    uint32_t feature_count;
    struct mr_feature *features;
    uint32_t *feature_ids;
    uint32_t parameter_count; /* 0 before version 5 */
    struct ps_saved_parameter *parameters;
    uint32_t dropped_count; /* features of the parent that were dropped since; a delta has none of them */
    uint32_t *dropped;
    uint32_t file_count; /* cores that wrote it */
    struct ps_manifest_file files[MR_CORE_MAX];
};

/* Returns JSON text, to be freed with free(); NULL when memory is short or a name or number cannot be written
 * in JSON. */
char *ps_manifest_print(const struct ps_manifest *manifest);
char *ps_manifest_seal(struct ps_manifest *manifest); /* the same, and fills in its hash */
/* Parses a manifest into `*out` (ps_manifest_clear it). False: `*out` is untouched and `text` (256 bytes)
 * says what is wrong. */
bool ps_manifest_parse(const char *json, size_t json_bytes, struct ps_manifest *out, char *text);
/* Reads `*out` (ps_manifest_clear it) from DIR/ckpt-<id>/MANIFEST; no block is read.
 * MR_CHECKPOINT_NOT_FOUND when there is no such directory, MR_CHECKPOINT_CORRUPT, MR_CHECKPOINT_NEWER (of a
 * later format version, or as some version wrote it but with content that this one does not know: not
 * damage), MR_IO_ERROR, MR_NO_MEMORY: `*out` is untouched and `text`
 * (PS_TEXT_BYTES) says what and where. */
enum mr_status ps_manifest_read(const struct ps_store *store, const char *directory, uint64_t id,
                                struct ps_manifest *out, char *text);
void ps_manifest_clear(struct ps_manifest *manifest);
/* Returns the payload of all its blocks. */
uint64_t ps_manifest_bytes(const struct ps_manifest *manifest);
/* Returns the bytes of the blocks themselves, which is the length of the files. */
uint64_t ps_manifest_block_bytes(const struct ps_manifest *manifest);
/* NULL when the feature is not in the manifest. */
const struct mr_feature *ps_manifest_feature(const struct ps_manifest *manifest, uint32_t feature_id);
/* Returns 0 when the feature is not in the manifest, else its enum mr_feature_kind. */
uint32_t ps_manifest_feature_kind(const struct ps_manifest *manifest, uint32_t feature_id);
/* Returns the bytes of a parameter's values, or of a state. */
uint64_t ps_saved_parameter_bytes(const struct ps_saved_parameter *parameter);
/* Sets `dropped` of a delta to the features of its parent that it does not have. False: no memory. */
bool ps_manifest_note_dropped(struct ps_manifest *delta, const struct ps_manifest *parent);
/* Whether a delta may have this parent: each feature of the parent is in it, as it was or altered, or is said
 * to be dropped. If not, `wrong` (PS_TEXT_BYTES) names one and its field. */
bool ps_manifest_follows(const struct ps_manifest *parent, const struct ps_manifest *delta, char *wrong);
/* Returns NULL when every record of a checked block belongs to a feature of the manifest, else what is
 * wrong. */
const char *ps_manifest_block_check(const struct ps_manifest *manifest, const uint8_t *block);

#endif
