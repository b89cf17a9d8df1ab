/* What a node must not forget when it dies, though no checkpoint holds it: which numbers it has given to features, and how often it was
 * restored by call. It lies in the file `history` of the checkpoint directory; without a directory it lives as long as the node does.
 *
 * Numbers never come again: a client may still use that of a feature which went in a crash. Restores are counted so that clients know which of
 * their pushes were taken back by somebody, and are not to be sent again. Any thread, one at a time.
 */
#ifndef PS_HISTORY_H
#define PS_HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_feature.h"
#include "dataplane/wire/mr_status.h"

struct ps_history {
    uint32_t lineage;        /* random, of this directory: counts of one lineage can be compared */
    uint32_t last_feature;   /* the highest number given to a feature; 0: none */
    uint32_t restores;       /* by call, of everything or in place of what was there */
    uint32_t whole;          /* `restores` as of the last one of everything */
    uint32_t replaced_count; /* features replaced since then, each with `restores` as of that */
    struct ps_replaced {
        uint32_t id, restores;
    } replaced[MR_FEATURE_MAX];
};

/* Reads DIRECTORY/history, or begins one. MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_history_open(const char *directory, struct ps_history *history, char *error,
                               size_t error_bytes);
/* Is on disk when this returns. MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_history_write(const char *directory, const struct ps_history *history, char *error,
                                size_t error_bytes);
/* A restore of everything was made. And: feature `id` was replaced in the restore that `restores` counts already. */
void ps_history_restored(struct ps_history *history);
void ps_history_replaced(struct ps_history *history, uint32_t id);
/* `restores` as of when the feature was taken back last; 0: never. */
uint32_t ps_history_taken_back(const struct ps_history *history, uint32_t id);

#endif
