/* Turns the records of applied batches of the cores that wrote a checkpoint, of one or many nodes, into those
 * of the cores that read it.
 *
 * A node that has the partitions and cores of one that wrote it takes that one's records, core by core.
 * Otherwise a batch counts as applied when every writing core had applied it. Those that only some had
 * applied, because the cut fell between their messages, are partly applied: every core gets ranges of batches
 * and the partitions that hold them, and a push of such a batch skips those (ps/exactly_once/partial.h). So
 * each key's gradient is applied exactly once, however often the number of cores changes.
 */
#ifndef PS_APPLIED_BATCHES_MERGE_H
#define PS_APPLIED_BATCHES_MERGE_H

#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/core.h"
#include "ps/restore/saved_writers.h"

struct ps_applied_batches_merge;

/* `writers` stays the caller's, and must outlive it. */
struct ps_applied_batches_merge *ps_applied_batches_merge_create(const struct ps_saved_writers *writers);
void ps_applied_batches_merge_destroy(struct ps_applied_batches_merge *m); /* NULL is fine */
/* Adds a PS_RECORD_STREAM or PS_RECORD_CLIENT of a part of the checkpoint; it is copied. */
enum mr_status ps_applied_batches_merge_add(struct ps_applied_batches_merge *m, uint32_t part,
                                            const struct ps_record *record, const uint8_t *bytes, char *text);
/* Merges them, after all are added. */
enum mr_status ps_applied_batches_merge_finish(struct ps_applied_batches_merge *m, char *text);
/* Loads a core's records. On the core's thread; several cores may do so at the same time. */
enum mr_status ps_applied_batches_merge_load(const struct ps_applied_batches_merge *m, struct ps_core *core,
                                             char *text);

#endif
