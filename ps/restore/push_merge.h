/* Turns the records of numbered pushes of the cores that wrote a checkpoint into those of the cores that read
 * it.
 *
 * With as many cores as before, each takes its own. Otherwise every core gets the lanes that can have keys of
 * its partitions. If the checkpoint was made while clients sent pushes of an old lane again, only some of the
 * writing cores may have applied them: then the lane is split into pieces (ps/exactly_once/pushes.h), so that
 * each key's gradient is applied once.
 */
#ifndef PS_PUSH_MERGE_H
#define PS_PUSH_MERGE_H

#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/core.h"

struct ps_push_merge;

struct ps_push_merge *ps_push_merge_create(uint32_t saved_core_count, uint32_t core_count);
void ps_push_merge_destroy(struct ps_push_merge *m); /* NULL is fine */
/* Adds a PS_RECORD_PUSHES of the checkpoint; it is copied. `text` here and below: PS_RESTORE_TEXT_BYTES. */
enum mr_status ps_push_merge_add(struct ps_push_merge *m, const struct ps_record *record,
                                 const uint8_t *bytes, char *text);
/* Merges them, after all are added. */
enum mr_status ps_push_merge_finish(struct ps_push_merge *m, char *text);
/* Loads a core's records. On the core's thread; several cores may do so at the same time. */
enum mr_status ps_push_merge_load(const struct ps_push_merge *m, struct ps_core *core, char *text);

#endif
