/* What a restore takes from a checkpoint, and what becomes of it on the node. Pure, for the control thread.
 *
 * Without names everything is taken and replaces all that the node holds, each feature under its number in
 * the checkpoint. With names those alone are taken, under their own names or new ones, beside what the node
 * holds; where the node has a feature of such a name, it is replaced or the plan is refused, as asked.
 */
#ifndef PS_RESTORE_PLAN_H
#define PS_RESTORE_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/catalog.h"

#define PS_RESTORE_PLAN_TEXT_BYTES 400

struct ps_restore_entry {
    uint32_t checkpoint_id, id; /* the feature's number there and here */
    uint32_t replaced_id;       /* the feature that it replaces; 0: none */
    struct mr_feature feature;  /* under its name on the node */
};

struct ps_restore_plan {
    bool whole;
    uint32_t count;
    struct ps_restore_entry entries[MR_FEATURE_MAX];
};

/* Reads the checkpoint's catalog: its features, checked like those of a Create. MR_CHECKPOINT_CORRUPT, and
 * `text` (PS_RESTORE_PLAN_TEXT_BYTES) says which is wrong. */
enum mr_status ps_restore_read_catalog(const struct ps_reader *reader, struct ps_catalog *catalog,
                                       char *text);
/* Plans a restore. `held` is the checkpoint's catalog, `node` the node's. A feature that replaces another one
 * gets its number, so that clients need not ask again; others get the numbers from `next_id` on.
 * MR_UNKNOWN_TABLE: a name that the checkpoint does not hold; MR_INVALID_ARGUMENT: a name that is wrong,
 * comes twice, or is taken on the node. `text` then says which, and what to do. */
enum mr_status ps_restore_plan_make(const struct ps_catalog *held, const struct ps_catalog *node,
                                    const struct mr_restore_pair *names, uint32_t name_count, bool replace,
                                    uint32_t next_id, struct ps_restore_plan *out, char *text);
/* Changes the node's catalog as the plan says. */
void ps_restore_plan_apply(const struct ps_restore_plan *plan, struct ps_catalog *node);

#endif
