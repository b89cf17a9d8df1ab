/* What a core takes of a checkpoint's records: rows, keys that are gone, sightings and variables of the features that are staged on
 * it (ps/staged.h), as far as their partitions are its own. On the core's thread.
 */
#ifndef PS_RESTORE_RECORDS_H
#define PS_RESTORE_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/mr_status.h"
#include "ps/checkpoint.h"

struct ps_core;

/* Records of other kinds are passed over, and with `named_only` those of features that are not staged. MR_CHECKPOINT_CORRUPT,
 * MR_OUT_OF_MEMORY: `text` (PS_RESTORE_TEXT_BYTES) says what. */
enum mr_status ps_restore_record(struct ps_core *core, bool named_only, const struct ps_record *record,
                                 const uint8_t *bytes, char *text);

#endif
