/* Rows of two checkpoints, a part of the key space at a time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt_diff.h"

struct pass {
    struct ckpt_diff *d;
    struct ckpt_live a, b;
    struct ckpt_map *map; /* a's rows, by pair */
    struct ckpt_range range;
    /* by feature id, the pair's number + 1 */
    uint16_t *a_pairs, *b_pairs;
    char *text;
};

/* Room for the row; NULL when it now belongs to a later pass. */
static struct ckpt_entry *make_entry(struct pass *p, uint32_t pair, uint64_t key, uint32_t row_bytes,
                                     bool *failed)
{
    while (ckpt_range_has(&p->range, key)) {
        bool is_new;
        struct ckpt_entry *entry = ckpt_map_add(p->map, pair, key, row_bytes, &is_new);
        if (entry)
            return entry;
        if (p->range.end - p->range.begin < 2) {
            (void)snprintf(p->text, PS_TEXT_BYTES, "there is no room for the rows; raise --memory-mib");
            *failed = true;
            return NULL;
        }
        p->range.end -= (p->range.end - p->range.begin) / 2;
        ckpt_map_keep(p->map, &p->range);
    }
    return NULL;
}

static enum mr_status hold_rows(void *arg, const struct ckpt_rows *rows)
{
    struct pass *p = arg;
    const uint32_t pair = p->a_pairs[rows->feature] - 1u;
    bool failed = false;
    for (uint32_t i = 0; i < rows->count && !failed; i++) {
        struct ckpt_entry *entry = make_entry(p, pair, rows->keys[i], rows->row_bytes, &failed);
        if (entry)
            memcpy(entry->payload, rows->rows + (size_t)i * rows->row_bytes, rows->row_bytes);
    }
    return failed ? MR_NO_MEMORY : MR_OK;
}

static bool compare_values(struct ckpt_pair *pair, const uint8_t *a, const uint8_t *b, uint64_t key)
{
    float x[MR_DIM_MAX], y[MR_DIM_MAX];
    const uint32_t dim = pair->a->dims[0];
    mr_convert_to_f32((enum mr_dtype)pair->a->dtype, x, a, NULL, 1, dim);
    mr_convert_to_f32((enum mr_dtype)pair->b->dtype, y, b, NULL, 1, dim);
    return ckpt_pair_compare(pair, x, y, dim, key, 0);
}

static void compare_row(const struct pass *p, struct ckpt_pair *pair, const uint8_t *a, const uint8_t *b,
                        uint64_t key)
{
    const struct ckpt_row *ra = &p->d->a->rows[pair->a_id], *rb = &p->d->b->rows[pair->b_id];
    if (!pair->is_comparable || compare_values(pair, a, b, key))
        pair->changed++;
    else if (pair->has_same_state &&
             memcmp(a + ra->state_offset, b + rb->state_offset, ra->bytes - ra->state_offset) != 0)
        pair->state_changed++;
}

static enum mr_status lay_beside(void *arg, const struct ckpt_rows *rows)
{
    struct pass *p = arg;
    const uint32_t number = p->b_pairs[rows->feature] - 1u;
    struct ckpt_pair *pair = &p->d->pairs[number];
    for (uint32_t i = 0; i < rows->count; i++) {
        struct ckpt_entry *entry = ckpt_map_find(p->map, number, rows->keys[i]);
        pair->b_count++;
        if (!entry) {
            pair->added++;
            continue;
        }
        entry->mark = 1;
        compare_row(p, pair, entry->payload, rows->rows + (size_t)i * rows->row_bytes, rows->keys[i]);
    }
    return MR_OK;
}

static void count_entry(void *arg, struct ckpt_entry *entry)
{
    struct ckpt_pair *pair = &((struct pass *)arg)->d->pairs[entry->table];
    pair->a_count++;
    pair->removed += entry->mark == 0;
}

static enum mr_status run_pass(struct pass *p)
{
    ckpt_map_clear(p->map);
    enum mr_status status = ckpt_live_index(&p->a, &p->range, p->text);
    if (status == MR_OK)
        status = ckpt_live_index(&p->b, &p->range, p->text);
    if (status == MR_OK)
        status = ckpt_live_each(&p->a, &p->range, hold_rows, NULL, p, p->text);
    if (status == MR_OK)
        status = ckpt_live_each(&p->b, &p->range, lay_beside, NULL, p, p->text);
    if (status == MR_OK)
        ckpt_map_each(p->map, count_entry, p);
    return status;
}

static enum mr_status open_pass(struct pass *p, uint64_t memory_bytes)
{
    struct ckpt_diff *d = p->d;
    enum mr_status status = ckpt_live_open(&p->a, d->a, 0, memory_bytes / 4, &d->progress, p->text);
    if (status == MR_OK)
        status = ckpt_live_open(&p->b, d->b, 0, memory_bytes / 4, &d->progress, p->text);
    if (status != MR_OK)
        return status;
    p->map = ckpt_map_create(memory_bytes / 2);
    p->a_pairs = calloc(2 * (PS_FEATURE_ID_MAX + 1u), sizeof(*p->a_pairs));
    if (!p->map || !p->a_pairs)
        return ps_checkpoint_fail(p->text, "compare", ckpt_chain_last(d->a)->path, -ENOMEM);
    p->b_pairs = p->a_pairs + PS_FEATURE_ID_MAX + 1;
    for (uint32_t i = 0; i < d->pair_count; i++) {
        if (d->pairs[i].a)
            p->a_pairs[d->pairs[i].a_id] = (uint16_t)(i + 1);
        if (d->pairs[i].b)
            p->b_pairs[d->pairs[i].b_id] = (uint16_t)(i + 1);
    }
    return MR_OK;
}

enum mr_status ckpt_diff_tables(struct ckpt_diff *d, uint64_t memory_bytes, char *text)
{
    struct pass p = {.d = d, .range = {0, CKPT_PLACES}};
    p.text = text;
    enum mr_status status = open_pass(&p, memory_bytes);
    while (status == MR_OK && p.range.begin < CKPT_PLACES) {
        status = run_pass(&p);
        /* The next one may fit twice as much: ranges only sink by halves. */
        const uint64_t width = 2 * (p.range.end - p.range.begin), left = CKPT_PLACES - p.range.end;
        p.range = (struct ckpt_range){p.range.end, p.range.end + (width < left ? width : left)};
    }
    ckpt_map_destroy(p.map);
    ckpt_live_close(&p.a);
    ckpt_live_close(&p.b);
    free(p.a_pairs);
    return status;
}
