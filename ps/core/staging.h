/* What a restore makes on a core beside the state that serves, until all of it is there: features, under the
 * numbers they have in the checkpoint, and the records that are part of a whole restore. Calls, saves and
 * upkeep see none of it. So a restore that fails leaves the core as it was.
 *
 * A whole restore exchanges everything at once, and can take that back; a partial one moves single features
 * in. Belongs to the core's thread.
 */
#ifndef PS_STAGING_H
#define PS_STAGING_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct ps_core;
struct ps_feature;

/* Makes room for what is to come; with `whole` also empty records of batches, clients and pushes. clock_s: of
 * the node that saved what comes, at that time. MR_OUT_OF_MEMORY, and nothing is staged. There may be
 * none yet. */
enum mr_status ps_staging_begin(struct ps_core *core, bool whole, uint32_t clock_s);
/* Makes an empty feature, number `checkpoint_id` in the checkpoint and `id` once it serves. Errors as
 * ps_core_add_feature(). */
enum mr_status ps_staging_add(struct ps_core *core, uint32_t checkpoint_id, uint32_t id,
                              const struct mr_feature *feature, char *text);
/* What comes next was saved by a node whose clock was another: `clock_s`. */
void ps_staging_load_from(struct ps_core *core, uint32_t clock_s);
/* NULL when there is none. */
struct ps_feature *ps_staging_feature(const struct ps_core *core, uint32_t checkpoint_id);
/* The highest number that ps_staging_feature() may know; 0: none. */
uint32_t ps_staging_id_max(const struct ps_core *core);
/* After a begin with `whole`: the staged state serves from now on, and what served is staged; the core's
 * clock changes with it. A second call undoes the first. Batches that were fed stay: the caller drops them
 * when it keeps the new state. */
void ps_staging_swap(struct ps_core *core);
/* A feature serves from now on under its `id`, which is free. */
void ps_staging_move(struct ps_core *core, uint32_t checkpoint_id);
/* Frees the staged state, its tables in the polls to come; no effect when there is none. */
void ps_staging_end(struct ps_core *core);

#endif
