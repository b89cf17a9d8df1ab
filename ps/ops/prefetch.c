/* Requests that came in one packet: the cache misses of small ones overlap only if they are begun before the
 * first is executed. Large ones overlap their own. */
#include <string.h>
#include "dataplane/wire/format/op.h"
#include "ps/ops/ops.h"

#define REQUEST_KEYS_MAX 8u
/* Each tensor is found from the message's beginning on: behind these that takes longer than it saves. */
#define REQUEST_TENSORS_MAX 24u

/* The keys of a table in a request. `keys` has no alignment. */
struct wanted {
    const uint8_t *keys;
    uint32_t key_count;
    uint32_t table_id;
    bool is_push;
};

/* Tensor `index` of the request is u64 keys. */
static bool find_keys(const struct mr_prefetch *r, uint32_t index, struct wanted *out)
{
    struct mr_tensor keys;
    if (!mr_message_peek(r->message, r->message_bytes, index, &keys))
        return false;
    out->keys = keys.data;
    out->key_count =
        keys.bytes <= REQUEST_KEYS_MAX * sizeof(uint64_t) ? (uint32_t)(keys.bytes / sizeof(uint64_t)) : 0;
    return true;
}

/* Tensor `index` is the head of a table's part. */
static bool find_head(const struct mr_prefetch *r, uint32_t index, struct mr_table_head *out)
{
    struct mr_tensor head;
    if (!mr_message_peek(r->message, r->message_bytes, index, &head) || head.bytes != sizeof(*out))
        return false;
    memcpy(out, head.data, sizeof(*out));
    return true;
}

static uint32_t add_hints(const struct ps_core *core, const struct wanted *wanted, struct ps_hint *hints,
                          uint32_t room)
{
    const struct ps_feature *f = ps_core_feature(core, wanted->table_id);
    if (f == NULL || f->table == NULL || wanted->key_count > room)
        return 0;
    uint32_t row_bytes = wanted->is_push
                             ? ps_table_stored_row_bytes(f->table)
                             : f->feature.dims[0] * mr_dtype_bytes((enum mr_dtype)f->feature.dtype);
    for (uint32_t i = 0; i < wanted->key_count; i++) {
        hints[i] = (struct ps_hint){.table = f->table, .row_bytes = row_bytes};
        memcpy(&hints[i].key, wanted->keys + i * sizeof(uint64_t), sizeof(uint64_t));
    }
    return wanted->key_count;
}

/* Of the one table of a lookup, or the first of a push. */
static uint32_t hint_one(const struct ps_core *core, const struct mr_prefetch *r, uint32_t table_id,
                         uint32_t keys_at, struct ps_hint *hints, uint32_t room)
{
    struct wanted wanted = {.table_id = table_id, .is_push = keys_at > 0};
    return find_keys(r, keys_at, &wanted) ? add_hints(core, &wanted, hints, room) : 0;
}

static uint32_t hint_all(const struct ps_core *core, const struct mr_prefetch *r, struct ps_hint *hints,
                         uint32_t room)
{
    struct mr_table_head head;
    uint32_t count = 0;
    for (uint32_t at = 0; at < REQUEST_TENSORS_MAX && find_head(r, at, &head);) {
        struct wanted wanted = {.table_id = head.table};
        if (find_keys(r, at + 1, &wanted))
            count += add_hints(core, &wanted, hints + count, room - count);
        at += 3u + ((head.flags & MR_BAG_WEIGHTS) != 0) + ((head.flags & MR_BAG_DIVISORS) != 0);
    }
    return count;
}

static uint32_t hint(const struct ps_core *core, const struct mr_prefetch *r, struct ps_hint *hints,
                     uint32_t room)
{
    struct mr_preamble preamble;
    struct mr_table_head head;
    if (r->message_bytes < sizeof(preamble))
        return 0;
    memcpy(&preamble, r->message, sizeof(preamble));
    switch (preamble.op) {
    case MR_OP_LOOKUP:
        return hint_one(core, r, preamble.table, 0, hints, room);
    case MR_OP_LOOKUP_TABLES:
        return hint_all(core, r, hints, room);
    case MR_OP_PUSH_GRAD: /* whose heads begin in the same way */
        return find_head(r, 0, &head) ? hint_one(core, r, head.table, 1, hints, room) : 0;
    default:
        return 0;
    }
}

void ps_prefetch(void *core_app, const struct mr_prefetch *requests, uint32_t count)
{
    const struct ps_core *core = core_app;
    struct ps_hint hints[PS_HINT_KEYS_MAX];
    uint32_t hint_count = 0;
    if (core->gate != PS_GATE_OPEN)
        return;
    for (uint32_t i = 0; i < count; i++)
        hint_count += hint(core, &requests[i], hints + hint_count, PS_HINT_KEYS_MAX - hint_count);
    ps_table_prefetch(hints, hint_count);
}
