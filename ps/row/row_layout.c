#include "ps/row/row_layout.h"

#include <stdbool.h>

static uint32_t field_place(struct ps_row_layout *l, bool wanted)
{
    if (!wanted)
        return PS_ROW_NO_FIELD;
    uint32_t offset = l->bytes;
    l->bytes += (uint32_t)sizeof(uint32_t);
    return offset;
}

struct ps_row_layout ps_row_layout_of(const struct mr_feature *feature, size_t state_floats)
{
    uint32_t element_bytes = mr_dtype_bytes((enum mr_dtype)feature->dtype);
    struct ps_row_layout l = {.values_bytes = feature->dims[0] * element_bytes};
    l.bytes = (l.values_bytes + 3) / 4 * 4;
    l.updates_offset = field_place(&l, element_bytes < sizeof(float));
    l.seen_offset = field_place(&l, feature->eviction != MR_EVICT_NEVER);
    l.uses_offset = field_place(&l, feature->eviction == MR_EVICT_LFU);
    l.state_offset = l.bytes;
    l.bytes += (uint32_t)(state_floats * sizeof(float));
    return l;
}
