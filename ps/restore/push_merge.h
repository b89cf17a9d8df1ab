/* Turns the records of numbered pushes of the cores that wrote a checkpoint, of one or many nodes, into those
 * of the cores that read it.
 *
 * A node that has the partitions and cores of one that wrote it takes that one's records, core by core.
 * Otherwise every core takes of each push stream what is recorded for its partitions, by whoever had them. If
 * the checkpoint was made while clients sent pushes of an old push stream again, only some of the writing
 * cores may have applied them: then the push stream is in pieces (ps/exactly_once/pushes.h), so that each
 * key's gradient is applied once.
 */
#ifndef PS_PUSH_MERGE_H
#define PS_PUSH_MERGE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/core.h"
#include "ps/restore/saved_writers.h"

struct ps_push_merge;

/* `writers` stays the caller's, and must outlive it. owns: the partitions that the node is to have; NULL:
 * all. */
struct ps_push_merge *ps_push_merge_create(const struct ps_saved_writers *writers, const bool *owns);
void ps_push_merge_destroy(struct ps_push_merge *m); /* NULL is fine */
/* Adds a PS_RECORD_PUSHES or PS_RECORD_PUSH_STREAM of a part of the checkpoint; it is copied. `text` here
 * and below: PS_RESTORE_TEXT_BYTES. */
enum mr_status ps_push_merge_add(struct ps_push_merge *m, uint32_t part, const struct ps_record *record,
                                 const uint8_t *bytes, char *text);
/* Merges them, after all are added. */
enum mr_status ps_push_merge_finish(struct ps_push_merge *m, char *text);
/* Reads a PS_RECORD_PUSHES or PS_RECORD_PUSH_STREAM, and which partitions it is about; out->uuid points into
 * `bytes`. False: it is malformed. */
bool ps_push_merge_read(const struct ps_record *record, const uint8_t *bytes, struct ps_push_load *out,
                        struct ps_partition_set *partitions);
/* Loads a core's records. On the core's thread; several cores may do so at the same time. */
enum mr_status ps_push_merge_load(const struct ps_push_merge *m, struct ps_core *core, char *text);

#endif
