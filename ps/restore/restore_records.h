/* What a core takes of a checkpoint's records: rows, keys that are gone, sightings and variables of the
 * features that are staged on it (ps/core/staged.h), as far as their partitions are its own. On the core's
 * thread.
 */
#ifndef PS_RESTORE_RECORDS_H
#define PS_RESTORE_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/table/table.h"

struct ps_core;
struct ps_feature;

#define PS_RESTORE_ROWS 8192u

struct ps_restore_core {
    struct ps_core *core;
    bool named_only; /* records of features that are not staged are passed over */
    bool makes_room; /* there are no rows yet for the keys that come; see ps_table_load_rows() */
    char *text;      /* PS_RESTORE_TEXT_BYTES: what is wrong */
    /* rows that wait to be loaded together; zero to begin with */
    const struct ps_feature *feature;
    uint32_t count;
    struct ps_stored_row rows[PS_RESTORE_ROWS];
};

/* `bytes` must stay until the next flush. Records of kinds that are no core's are passed over.
 * MR_CHECKPOINT_CORRUPT, MR_OUT_OF_MEMORY. */
enum mr_status ps_restore_record(struct ps_restore_core *r, const struct ps_record *record,
                                 const uint8_t *bytes);
/* Loads the rows that wait. */
enum mr_status ps_restore_flush(struct ps_restore_core *r);

#endif
