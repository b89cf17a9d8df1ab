/* Records of the log, applied again by the handlers that applied them first (ps/core/push_log.h). On the
 * core's thread, before it serves. */
#ifndef PS_PUSH_REPLAY_H
#define PS_PUSH_REPLAY_H

#include "dataplane/wire/format/mr_status.h"
#include "ps/core/core.h"
#include "ps/log/log_format.h"

/* Applies the record: rows, records of pushes and batches, and what there is are as they were after it. What
 * has its effect already, by its number, changes nothing. The content's arrays of keys are sorted. The core's
 * clock and step are as they were then. MR_CHECKPOINT_CORRUPT: no node applied this, in this state;
 * MR_OUT_OF_MEMORY; `text` (PS_CORE_TEXT_BYTES). */
enum mr_status ps_replay_record(struct ps_core *core, const struct ps_log_record *record, uint8_t *content,
                                char *text);

#endif
