/* What a stored row of a table is made of (ps/row/row_layout.h), part by part and by name. Pure, any
 * thread. */
#ifndef TOOL_CKPT_ROW_H
#define TOOL_CKPT_ROW_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/optimizer/rule.h"
#include "ps/row/row_layout.h"
#include "ps/row/row_use.h"

#define CKPT_PARTS_MAX 8u

struct ckpt_part {
    const char *name; /* "values", "m", "seen", ..; docs/checkpoints.md has them all */
    enum mr_dtype dtype;
    uint32_t columns; /* 0: a single element */
    uint32_t offset;  /* in the stored row; a multiple of 4 */
};

struct ckpt_row {
    struct ckpt_part parts[CKPT_PARTS_MAX]; /* the first one is the values */
    uint32_t part_count;
    uint32_t state_offset; /* of the optimizer's state */
    uint32_t bytes;
};

static inline uint32_t ckpt_part_elements(const struct ckpt_part *part)
{
    return part->columns > 0 ? part->columns : 1;
}
static inline uint32_t ckpt_part_bytes(const struct ckpt_part *part)
{
    return ckpt_part_elements(part) * mr_dtype_bytes(part->dtype);
}

/* `table` has passed mr_feature_check(). NULL, or the name of what is not known: the optimizer of a newer
 * version. */
const char *ckpt_row_of(const struct mr_feature *table, struct ckpt_row *out);

/* A part of an optimizer's state, in the order in which it is stored: of a row, or of a parameter. */
struct ckpt_state_part {
    const char *name;
    enum mr_dtype dtype;
    bool is_wide; /* an element for each value; otherwise a single one */
};
/* NULL: the state of this optimizer (enum mr_optimizer) has no such part, or the optimizer is not known. */
const struct ckpt_state_part *ckpt_state_part(uint32_t optimizer, uint32_t index);

/* Makes rows with given values as a table makes them when nothing has trained them yet. */
struct ckpt_row_maker {
    struct mr_rule optimizer;
    struct ps_row_layout layout;
    struct ps_row_use use;
    enum mr_dtype dtype;
    uint32_t dim;
};
/* `table` is one that ckpt_row_of() knows. Rows count as used when the clock of nodes begins. */
void ckpt_row_maker_init(struct ckpt_row_maker *maker, const struct mr_feature *table);
/* State at its initial values, used now. `values` are maker->dim elements of the table's dtype; `out` has
 * layout.bytes, 4-byte aligned. */
void ckpt_row_make(const struct ckpt_row_maker *maker, const void *values, uint8_t *out);

#endif
