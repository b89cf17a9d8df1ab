/* What a stored row holds, and where: the values, then what the table keeps about the row, then the
 * optimizer's state. What a lookup touches comes first. All parts are aligned to 4 bytes. Checkpoints hold
 * rows in this layout. Pure, any thread.
 */
#ifndef PS_ROW_LAYOUT_H
#define PS_ROW_LAYOUT_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

#define PS_ROW_NO_FIELD 0u /* an offset: the values are never empty */

struct ps_row_layout {
    uint32_t values_bytes; /* dim elements of the table's dtype, without padding */
    uint32_t
        updates_offset;   /* u32, rows of 16-bit values: times the row was changed, for stochastic rounding */
    uint32_t seen_offset; /* u32, tables with eviction: when the row was last used */
    uint32_t uses_offset; /* u32, eviction by LFU: how often */
    uint32_t state_offset; /* f32[state_floats] */
    uint32_t bytes;
};

/* state_floats: mr_rule_state_floats() of a row. `feature` is a table that has passed mr_feature_check(). */
struct ps_row_layout ps_row_layout_of(const struct mr_feature *feature, size_t state_floats);

#endif
