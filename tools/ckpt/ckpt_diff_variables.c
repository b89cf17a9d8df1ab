/* Variables of two checkpoints. Their stored bytes, one variable behind the other, are looked at through a
 * window. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt_diff.h"

struct window {
    struct ckpt_diff *d;
    const uint64_t *offsets; /* of each pair, and behind the last */
    uint8_t *bytes;          /* a's, [begin, end) */
    uint64_t begin, end;
    uint16_t *pairs; /* by feature id of the side that is read, the pair's number + 1 */
};

/* What of the record lies in the window: its bytes from *from, *count of them, belong to offset *at. False:
 * nothing. */
static bool clip(const struct window *w, uint32_t pair, const struct ps_record *record, uint64_t *from,
                 uint64_t *count, uint64_t *at)
{
    const uint64_t size = w->offsets[pair + 1] - w->offsets[pair];
    if (record->offset >= size || record->bytes > size - record->offset)
        return false;
    const uint64_t first = w->offsets[pair] + record->offset, last = first + record->bytes;
    *at = first > w->begin ? first : w->begin;
    const uint64_t stop = last < w->end ? last : w->end;
    *from = *at - first;
    *count = stop > *at ? stop - *at : 0;
    return *count > 0;
}

static enum mr_status fill(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct window *w = arg;
    uint64_t from, count, at;
    const uint32_t pair = record->kind == PS_RECORD_VARIABLE ? w->pairs[record->feature] : 0;
    if (pair > 0 && clip(w, pair - 1, record, &from, &count, &at))
        memcpy(w->bytes + (at - w->begin), bytes + from, count);
    return MR_OK;
}

/* Values and state, element by element: all are 4 bytes. */
static void compare_element(struct ckpt_pair *pair, uint64_t element, const uint8_t *a, const uint8_t *b)
{
    float x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    if (element < pair->a_count)
        pair->changed += ckpt_pair_compare(pair, &x, &y, 1, element, 0);
    else if (pair->has_same_state)
        pair->state_changed += mr_f32_bits(x) != mr_f32_bits(y);
}

static enum mr_status compare(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct window *w = arg;
    uint64_t from, count, at;
    const uint32_t pair = record->kind == PS_RECORD_VARIABLE ? w->pairs[record->feature] : 0;
    if (pair == 0 || !clip(w, pair - 1, record, &from, &count, &at))
        return MR_OK;
    for (uint64_t i = 0; i + sizeof(float) <= count; i += sizeof(float))
        compare_element(&w->d->pairs[pair - 1], (at + i - w->offsets[pair - 1]) / sizeof(float),
                        w->bytes + (at + i - w->begin), bytes + from + i);
    return MR_OK;
}

static void name_pairs(struct window *w, bool b)
{
    memset(w->pairs, 0, (PS_FEATURE_ID_MAX + 1u) * sizeof(*w->pairs));
    for (uint32_t i = 0; i < w->d->pair_count; i++)
        if (w->offsets[i + 1] > w->offsets[i])
            w->pairs[b ? w->d->pairs[i].b_id : w->d->pairs[i].a_id] = (uint16_t)(i + 1);
}

/* Room for the values and the largest state that there is; what a variable does not have stays equal. */
static uint64_t window_bytes(const struct ckpt_pair *p)
{
    const struct mr_feature *f = p->a ? p->a : p->b;
    return f->kind == MR_VARIABLE && p->is_comparable ? (3 * p->a_count + 1) * sizeof(float) : 0;
}

static enum mr_status run(struct window *w, uint64_t step, uint64_t total, char *text)
{
    enum mr_status status = MR_OK;
    for (w->begin = 0; w->begin < total && status == MR_OK; w->begin = w->end) {
        w->end = total - w->begin < step ? total : w->begin + step;
        memset(w->bytes, 0, w->end - w->begin);
        name_pairs(w, false);
        status = ckpt_link_each(ckpt_chain_last(w->d->a), fill, w, &w->d->progress, text);
        name_pairs(w, true);
        if (status == MR_OK)
            status = ckpt_link_each(ckpt_chain_last(w->d->b), compare, w, &w->d->progress, text);
    }
    return status;
}

/* Where each pair's bytes begin, and behind the last; to be freed. */
static uint64_t *place_pairs(const struct ckpt_diff *d)
{
    uint64_t *offsets = calloc(d->pair_count + 1u, sizeof(*offsets));
    for (uint32_t i = 0; offsets && i < d->pair_count; i++)
        offsets[i + 1] = offsets[i] + window_bytes(&d->pairs[i]);
    return offsets;
}

enum mr_status ckpt_diff_variables(struct ckpt_diff *d, uint64_t memory_bytes, char *text)
{
    uint64_t *offsets = place_pairs(d);
    const uint64_t total = offsets ? offsets[d->pair_count] : 0;
    const uint64_t limit =
        memory_bytes < CKPT_MAP_BYTES_MIN ? CKPT_MAP_BYTES_MIN : memory_bytes & ~UINT64_C(7);
    const uint64_t step = total < limit ? total : limit;
    struct window w = {.d = d,
                       .offsets = offsets,
                       .bytes = malloc(step + 1),
                       .pairs = calloc(PS_FEATURE_ID_MAX + 1u, sizeof(*w.pairs))};
    enum mr_status status;
    if (offsets && w.bytes && w.pairs)
        status = run(&w, step, total, text);
    else
        status = ps_checkpoint_fail(text, "compare", ckpt_chain_last(d->a)->path, -ENOMEM);
    free(w.bytes);
    free(w.pairs);
    free(offsets);
    return status;
}
