#include "tools/ckpt/ckpt_row.h"

#include <assert.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"

/* The parts of an optimizer's state, in the order of dataplane/optimizer/rule.c. */
#define STATE_PARTS_MAX 3u
struct state {
    struct ckpt_state_part parts[STATE_PARTS_MAX];
};

static const struct state states[] = {
    [MR_OPT_MOMENTUM] = {{{"velocity", MR_F32, true}, {"was_updated", MR_F32, false}}},
    [MR_OPT_ADAGRAD] = {{{"sum", MR_F32, true}}},
    [MR_OPT_ROWWISE_ADAGRAD] = {{{"sum", MR_F32, false}}},
    [MR_OPT_ADAM] = {{{"m", MR_F32, true}, {"v", MR_F32, true}, {"step", MR_U32, false}}},
    [MR_OPT_ADAMW] = {{{"m", MR_F32, true}, {"v", MR_F32, true}, {"step", MR_U32, false}}},
    [MR_OPT_FTRL] = {{{"z", MR_F32, true}, {"n", MR_F32, true}, {"rate", MR_F32, false}}},
    [MR_OPT_GROUP_FTRL] = {{{"z", MR_F32, true}, {"n", MR_F32, true}, {"rate", MR_F32, false}}},
};

const struct ckpt_state_part *ckpt_state_part(uint32_t optimizer, uint32_t index)
{
    if (optimizer >= sizeof(states) / sizeof(*states) || index >= STATE_PARTS_MAX)
        return NULL;
    const struct ckpt_state_part *part = &states[optimizer].parts[index];
    return part->name ? part : NULL;
}

static void add_part(struct ckpt_row *row, const char *name, enum mr_dtype dtype, uint32_t columns,
                     uint32_t offset)
{
    assert(row->part_count < CKPT_PARTS_MAX);
    row->parts[row->part_count++] =
        (struct ckpt_part){.name = name, .dtype = dtype, .columns = columns, .offset = offset};
}

static void add_field(struct ckpt_row *row, const char *name, uint32_t offset)
{
    if (offset != PS_ROW_NO_FIELD)
        add_part(row, name, MR_U32, 0, offset);
}

/* What the state holds goes by its length, so that a part that is there only with some arguments is named
 * then. */
static void add_state(struct ckpt_row *row, const struct mr_feature *table)
{
    const uint32_t end = row->bytes - (mr_feature_is_dense(table) ? (uint32_t)sizeof(uint32_t) : 0);
    uint32_t at = row->state_offset;
    const struct ckpt_state_part *part;
    for (uint32_t i = 0; at < end && (part = ckpt_state_part(table->optimizer, i)) != NULL; i++) {
        add_part(row, part->name, part->dtype, part->is_wide ? table->dims[0] : 0, at);
        at += ckpt_part_bytes(&row->parts[row->part_count - 1]);
    }
    assert(at == end);
    if (end < row->bytes)
        add_part(row, "last_step", MR_U32, 0, end);
}

const char *ckpt_row_of(const struct mr_feature *table, struct ckpt_row *out)
{
    struct mr_rule optimizer;
    const char *what = NULL;
    if (mr_rule_init(table, &optimizer, &what) != MR_OK)
        return what;
    const uint32_t dim = table->dims[0];
    const struct ps_row_layout layout = ps_row_layout_of(table, mr_rule_state_floats(&optimizer, dim));
    *out = (struct ckpt_row){.state_offset = layout.state_offset, .bytes = layout.bytes};
    add_part(out, "values", (enum mr_dtype)table->dtype, dim, 0);
    add_field(out, "updates", layout.updates_offset);
    add_field(out, "seen", layout.seen_offset);
    add_field(out, "uses", layout.uses_offset);
    add_state(out, table);
    return NULL;
}

void ckpt_row_maker_init(struct ckpt_row_maker *maker, const struct mr_feature *table)
{
    const char *what;
    *maker = (struct ckpt_row_maker){.dtype = (enum mr_dtype)table->dtype, .dim = table->dims[0]};
    enum mr_status status = mr_rule_init(table, &maker->optimizer, &what);
    assert(status == MR_OK);
    (void)status;
    maker->layout = ps_row_layout_of(table, mr_rule_state_floats(&maker->optimizer, maker->dim));
    ps_row_use_init(&maker->use, table, &maker->layout, 1);
}

void ckpt_row_make(const struct ckpt_row_maker *maker, const void *values, uint8_t *out)
{
    float expanded[MR_DIM_MAX], state[MR_RULE_STATE_FLOATS_MAX];
    memset(out, 0, maker->layout.bytes);
    memcpy(out, values, maker->layout.values_bytes);
    ps_row_use_start(&maker->use, out);
    mr_convert_to_f32(maker->dtype, expanded, values, NULL, 1, maker->dim);
    mr_rule_state_init(&maker->optimizer, expanded, state, maker->dim);
    memcpy(out + maker->layout.state_offset, state, maker->layout.bytes - maker->layout.state_offset);
}
