/* What a node must not forget when it dies, though no checkpoint holds it: which numbers it has given to
 * features, which features were dropped or altered, at which level it is frozen, how often it was restored
 * by call, and what it was restored from last. It lies in the file `history` of the checkpoint directory;
 * without a directory it lives as long as the node does.
 *
 * Numbers never come again: a client may still use that of a feature which went in a crash. Restores are
 * counted so that clients know which of their pushes were taken back by somebody, and are not to be sent
 * again. What it was restored from is where it goes on until it has saved: later checkpoints are those
 * that somebody went back from. Any thread, one at a time.
 */
#ifndef PS_HISTORY_H
#define PS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/io/store.h"

#define PS_HISTORY_DIRECTORY_BYTES 256u
#define PS_HISTORY_OWN             "."

struct ps_history {
    uint32_t lineage;      /* random, of this directory: counts of one lineage can be compared */
    uint32_t last_feature; /* the highest number given to a feature; 0: none */
    uint32_t freeze;       /* enum mr_freeze, as last set */
    bool has_log;          /* segments of a log may follow the newest checkpoint (ps/log/) */
    uint32_t restores;     /* by call, of everything or in place of what was there */
    uint32_t whole;        /* `restores` as of the last one of everything */
    uint64_t back_id;      /* of the checkpoint of that one, if there were later ones; 0: none */
    uint64_t back_newest;  /* the newest in the node's own directory then */
    /* where it lies; PS_HISTORY_OWN: in the node's own directory, wherever that is by then */
    char back_directory[PS_HISTORY_DIRECTORY_BYTES];
    uint32_t dropped_count; /* features that were dropped, the newest last */
    uint16_t dropped[MR_FEATURE_MAX];
    uint32_t altered_count; /* features that were altered, each as it is since */
    struct ps_altered {
        uint32_t id;
        struct mr_feature feature;
    } altered[MR_FEATURE_MAX];
    uint32_t replaced_count; /* features replaced since then, each with `restores` as of that */
    struct ps_replaced {
        uint32_t id, restores;
    } replaced[MR_FEATURE_MAX];
};

/* Reads DIRECTORY/history of the store (NULL: the local files), or begins one. MR_IO_ERROR, and a line in
 * `error`. */
enum mr_status ps_history_open(const struct ps_store *store, const char *directory,
                               struct ps_history *history, char *error, size_t error_bytes);
/* Is on disk, or in the store, when this returns. MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_history_write(const struct ps_store *store, const char *directory,
                                const struct ps_history *history, char *error, size_t error_bytes);
/* Everything was restored from checkpoint `id` of `directory`, while the newest of the node's own directory
 * was `newest`, 0: none. And: feature `id` was replaced in the restore that `restores` counts already. */
void ps_history_restored(struct ps_history *history, const char *directory, uint64_t id, uint64_t newest);
void ps_history_replaced(struct ps_history *history, uint32_t id);
/* The node has not saved since it was restored by call: where it goes on is back_id of back_directory, not
 * `newest` of its own. */
bool ps_history_goes_back(const struct ps_history *history, uint64_t newest);
/* Notes that feature `id` was dropped, so that a start leaves it out of the checkpoint that it goes on from;
 * of more than MR_FEATURE_MAX the oldest is forgotten. And: that a restore by call brought it back. */
void ps_history_dropped(struct ps_history *history, uint32_t id);
void ps_history_brought_back(struct ps_history *history, uint32_t id);
bool ps_history_is_dropped(const struct ps_history *history, uint32_t id);
/* Notes that feature `id` was altered, and is `feature` now, so that a start alters it in the checkpoint
 * that it continues from. And: that it is as a checkpoint has it, or is no longer there. */
void ps_history_altered(struct ps_history *history, uint32_t id, const struct mr_feature *feature);
void ps_history_not_altered(struct ps_history *history, uint32_t id);
/* NULL: it was not altered. */
const struct mr_feature *ps_history_find_altered(const struct ps_history *history, uint32_t id);
/* `restores` as of when the feature was taken back last; 0: never. */
uint32_t ps_history_taken_back(const struct ps_history *history, uint32_t id);

#endif
