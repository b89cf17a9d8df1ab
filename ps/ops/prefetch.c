/* Requests that came in one packet: the cache misses of small ones overlap only if they are begun before the
 * first is executed. Large ones overlap their own. */
#include <string.h>
#include "dataplane/wire/format/op.h"
#include "ps/ops/ops.h"

#define REQUEST_KEYS_MAX 8u

/* The keys a request begins with, and the table's number. `keys` has no alignment. */
struct wanted {
    const uint8_t *keys;
    uint32_t key_count;
    uint32_t table_id;
    bool is_push;
};

static bool find_keys(const struct mr_prefetch *r, struct wanted *out)
{
    struct mr_preamble preamble;
    struct mr_tensor head, keys;
    if (r->message_bytes < sizeof(preamble))
        return false;
    memcpy(&preamble, r->message, sizeof(preamble));
    out->table_id = preamble.table;
    out->is_push = preamble.op == MR_OP_PUSH_GRAD;
    if (out->is_push) {
        if (!mr_message_peek(r->message, r->message_bytes, 0, &head) || head.bytes < sizeof(uint32_t))
            return false;
        memcpy(&out->table_id, head.data, sizeof(out->table_id));
    } else if (preamble.op != MR_OP_LOOKUP) {
        return false;
    }
    if (!mr_message_peek(r->message, r->message_bytes, out->is_push ? 1 : 0, &keys))
        return false;
    out->keys = keys.data;
    out->key_count =
        keys.bytes <= REQUEST_KEYS_MAX * sizeof(uint64_t) ? (uint32_t)(keys.bytes / sizeof(uint64_t)) : 0;
    return true;
}

static uint32_t add_hints(const struct ps_core *core, const struct mr_prefetch *r, struct ps_hint *hints,
                          uint32_t room)
{
    struct wanted wanted;
    if (!find_keys(r, &wanted))
        return 0;
    const struct ps_feature *f = ps_core_feature(core, wanted.table_id);
    if (f == NULL || f->table == NULL || wanted.key_count > room)
        return 0;
    uint32_t row_bytes = wanted.is_push
                             ? ps_table_stored_row_bytes(f->table)
                             : f->feature.dims[0] * mr_dtype_bytes((enum mr_dtype)f->feature.dtype);
    for (uint32_t i = 0; i < wanted.key_count; i++) {
        hints[i] = (struct ps_hint){.table = f->table, .row_bytes = row_bytes};
        memcpy(&hints[i].key, wanted.keys + i * sizeof(uint64_t), sizeof(uint64_t));
    }
    return wanted.key_count;
}

void ps_prefetch(void *core_app, const struct mr_prefetch *requests, uint32_t count)
{
    const struct ps_core *core = core_app;
    struct ps_hint hints[PS_HINT_KEYS_MAX];
    uint32_t hint_count = 0;
    if (core->gate != PS_GATE_OPEN)
        return;
    for (uint32_t i = 0; i < count; i++)
        hint_count += add_hints(core, &requests[i], hints + hint_count, PS_HINT_KEYS_MAX - hint_count);
    ps_table_prefetch(hints, hint_count);
}
