/* One restore, and the checkpoint that is being tried: control_restore.c chooses it, control_restore_load.c
 * loads it beside the state that serves (ps/core/staging.h), and lets it take that one's place once all of it
 * is there. Control thread. */
#ifndef PS_CONTROL_RESTORE_H
#define PS_CONTROL_RESTORE_H

#include "ps/control/control_internal.h"
#include "ps/restore/restore.h"
#include "ps/restore/restore_plan.h"

struct ps_restore_attempt {
    struct ps_control *c;
    const struct ps_restore_request *request;
    const char *directory;
    struct ps_place place; /* of that directory */
    struct ps_store_watch *watch;
    struct ps_checkpoint_view *view;
    struct ps_catalog held; /* by the checkpoint */
    struct ps_restore_plan plan;
    struct mr_restore_pair *names;        /* the request's, those of parameters after the others */
    uint32_t parameter_names;             /* how many of them */
    struct ps_parameter_load *parameters; /* NULL: none are restored */
    struct ps_restored *restored;
    struct ps_restore_share share;
    bool is_damaged;  /* why it failed */
    bool reopens;     /* the gate was closed for a moment */
    uint32_t skipped; /* features of the checkpoint that were dropped since */
    char *text;       /* of the caller */
};

/* Whose ancestry and parameters are taken: of a cluster's checkpoint those of the node's part, or none. */
const struct ps_manifest *ps_restore_own_manifest(const struct ps_restore_attempt *a,
                                                  const struct ps_reader *reader);
/* A partial checkpoint is not a state that a node can have, and gives its features by their names only:
 * MR_INVALID_ARGUMENT, and a->text. Needs a->held. */
enum mr_status ps_restore_check_partial(const struct ps_restore_attempt *a, const struct ps_reader *reader);
/* Loads the open checkpoint, whole or what is named. On failure the node holds what it held before, or serves
 * no data (PS_GATE_BROKEN), and a->text says why. */
enum mr_status ps_restore_attempt_load(struct ps_restore_attempt *a, struct ps_reader *reader);

#endif
