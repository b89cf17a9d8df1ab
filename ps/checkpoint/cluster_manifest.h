/* The file CLUSTER-<id>: a checkpoint of a whole cluster. It names the nodes that wrote a part each, in
 * DIR/NODE/ckpt-<id>, with the hash of each part's MANIFEST, and says which partitions each had. It is JSON
 * with a hash of its own, and written last: without it the parts are no checkpoint of the cluster. Any
 * thread.
 */
#ifndef PS_CLUSTER_MANIFEST_H
#define PS_CLUSTER_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/mr_feature.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/io/store.h"

#define PS_CLUSTER_FORMAT_VERSION  2u /* with the capabilities that its parts need */
#define PS_CLUSTER_FORMAT_1        1u /* without them; written when they need none */
#define PS_CLUSTER_PARTS_MAX       256u
#define PS_CLUSTER_PART_NAME_BYTES 64u

/* What one node wrote. */
struct ps_cluster_part {
    char name[PS_CLUSTER_PART_NAME_BYTES]; /* the node's, and that of its folder */
    uint32_t core_count;
    struct ps_hash manifest_hash;
};

struct ps_cluster_manifest {
    uint32_t version;
    uint64_t id; /* also of the parts */
    uint64_t step;
    bool is_at_step;
    uint64_t needs;                         /* capabilities of its parts; 0 in version 1 */
    char written_by[MR_VERSION_TEXT_BYTES]; /* "" in version 1 */
    uint64_t time_s;                        /* when it was committed, since 1970 */
    struct ps_hash hash;                    /* of this manifest; _parse() and _seal() fill it in */
    uint32_t part_count;
    struct ps_cluster_part parts[PS_CLUSTER_PARTS_MAX];
    uint8_t owner[MR_PARTITION_COUNT]; /* of each partition: an index of parts */
};

/* Whether a node may have this name: a folder is named so, and messages quote it. */
bool ps_cluster_part_name_is_good(const char *name);
/* The part of a node; part_count: there is none. */
uint32_t ps_cluster_manifest_find(const struct ps_cluster_manifest *m, const char *name);

/* Returns JSON text, to be freed with free(), and fills in the hash; NULL: no memory. */
char *ps_cluster_manifest_seal(struct ps_cluster_manifest *m);
/* False: `*out` has no meaning, and `text` (PS_TEXT_BYTES) says what is wrong. */
bool ps_cluster_manifest_parse(const char *json, size_t json_bytes, struct ps_cluster_manifest *out,
                               char *text);

/* Whether the directory has the file CLUSTER-<id>, verified or not. */
bool ps_cluster_manifest_is_there(const struct ps_store *store, const char *directory, uint64_t id);
/* Reads DIR/CLUSTER-<id>. MR_CHECKPOINT_NOT_FOUND: there is none; MR_CHECKPOINT_CORRUPT, MR_CHECKPOINT_NEWER
 * (see ps_manifest_read()), MR_IO_ERROR, MR_NO_MEMORY: `text` (PS_TEXT_BYTES) says what and where. */
enum mr_status ps_cluster_manifest_read(const struct ps_store *store, const char *directory, uint64_t id,
                                        struct ps_cluster_manifest *out, char *text);
/* Writes it, which commits the checkpoint: it is there, whole, when this returns MR_OK, and perhaps when it
 * returns MR_IO_ERROR. Seals *m, of which `needs` is set. MR_NO_MEMORY; `text` as above. */
enum mr_status ps_cluster_manifest_write(const struct ps_store *store, const char *directory,
                                         struct ps_cluster_manifest *m, char *text);

#endif
