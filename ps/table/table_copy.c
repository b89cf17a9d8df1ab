#include "ps/table/table_copy.h"

#include <stdlib.h>
#include "ps/table/table_internal.h"

#define CHUNK_KEYS 1022u

struct chunk {
    struct chunk *next;
    uint64_t count;
    uint64_t hashes[CHUNK_KEYS];
};

struct ps_table_copy {
    struct ps_partition_set partitions;
    struct ps_partition_set begun; /* of those: the cursor is or was there, so changes are noted */
    uint32_t partition, bucket;    /* the cursor's next; MR_PARTITION_COUNT: it is through */
    uint16_t version;              /* of that partition, when the cursor was there last */
    bool filter_marks;             /* of the filter: they are the copy's own */
    bool is_lost;
    struct chunk *first, *last; /* the log */
    uint32_t taken;             /* of the first chunk */
    uint64_t log_count;
};

/* ---- the log ---- */

static void table_copy_note(struct ps_table_copy *c, uint64_t hash)
{
    if (c->is_lost)
        return;
    if (c->last == NULL || c->last->count == CHUNK_KEYS) {
        struct chunk *chunk = c->log_count < PS_COPY_LOG_MAX ? malloc(sizeof(*chunk)) : NULL;
        if (chunk == NULL) {
            c->is_lost = true;
            return;
        }
        chunk->next = NULL;
        chunk->count = 0;
        *(c->last != NULL ? &c->last->next : &c->first) = chunk;
        c->last = chunk;
    }
    c->last->hashes[c->last->count++] = hash;
    c->log_count++;
}

static void take_from_log(struct ps_table_copy *c)
{
    struct chunk *first = c->first;
    c->log_count--;
    if (++c->taken < first->count)
        return;
    c->taken = 0;
    c->first = first->next;
    c->last = c->first == NULL ? NULL : c->last;
    free(first);
}

void ps_table_copy_changed(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    uint64_t *entry = ps_place_entry(place);
    if (!ps_partitions_has(&t->copy->begun, mr_partition_of(hash)) || ps_entry_state(*entry) == t->index.mark)
        return;
    *entry = ps_entry_with_state(*entry, t->index.mark);
    t->index.marks++;
    table_copy_note(t->copy, hash);
}

bool ps_table_copy_notes(const struct ps_table *t, uint64_t hash)
{
    return ps_partitions_has(&t->copy->begun, mr_partition_of(hash));
}

void ps_table_copy_note(struct ps_table *t, uint64_t hash)
{
    if (ps_table_copy_notes(t, hash))
        table_copy_note(t->copy, hash);
}

/* ---- life ---- */

enum mr_status ps_table_copy_begin(struct ps_table *t, const struct ps_partition_set *partitions)
{
    assert(t->copy == NULL && !t->cut_running && t->filter.cut == NULL);
    struct ps_table_copy *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return MR_NO_MEMORY;
    if (t->feature.admission == MR_ADMIT_OBSERVATIONS && t->filter.changed == NULL) {
        c->filter_marks = ps_occurrence_keep_marks(&t->filter);
        if (!c->filter_marks) {
            free(c);
            return MR_OUT_OF_MEMORY;
        }
    }
    c->partitions = *partitions;
    t->marks_hold = false;
    t->copy = c;
    t->notes = true;
    return MR_OK;
}

void ps_table_copy_end(struct ps_table *t)
{
    struct ps_table_copy *c = t->copy;
    if (c == NULL)
        return;
    while (c->first != NULL) {
        struct chunk *next = c->first->next;
        free(c->first);
        c->first = next;
    }
    if (c->filter_marks)
        ps_occurrence_forget_marks(&t->filter);
    t->index.watched_partition = PS_PARTITION_NONE;
    free(c);
    t->copy = NULL;
    t->notes = t->changes != NULL;
}

bool ps_table_copy_runs(const struct ps_table *t)
{
    return t->copy != NULL;
}

/* ---- giving out ---- */

static void budget_use(uint64_t *budget_bytes, uint64_t cost_bytes)
{
    *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
}

static void cursor_enter(struct ps_table *t)
{
    struct ps_table_copy *c = t->copy;
    c->bucket = 0;
    c->version = t->index.versions[c->partition];
    t->index.watched_partition = c->partition;
    t->index.watched_moves = 0;
}

/* The first time in a partition: none of its rows has been given out. */
static void partition_begin(struct ps_table *t, uint64_t *budget_bytes)
{
    struct ps_table_copy *c = t->copy;
    const uint32_t buckets = ps_index_bucket_count(&t->index, c->partition);
    for (uint32_t i = 0; i < buckets; i++) {
        struct ps_bucket *b = ps_index_bucket(&t->index, c->partition, i);
        for (uint32_t taken = ps_bucket_taken(b); taken != 0; taken &= taken - 1) {
            uint64_t *entry = &b->entries[__builtin_ctz(taken)];
            t->index.marks += ps_entry_state(*entry) != t->index.mark;
            *entry = ps_entry_with_state(*entry, t->index.mark);
        }
    }
    ps_partitions_add(&c->begun, c->partition);
    if (t->filter.changed != NULL)
        ps_occurrence_mark_partition(&t->filter, c->partition);
    budget_use(budget_bytes, (uint64_t)buckets * sizeof(struct ps_bucket));
    cursor_enter(t);
}

/* Brings the cursor to a bucket. False: it is through, or the budget is used up. */
static bool cursor_seek(struct ps_table *t, uint64_t *budget_bytes)
{
    struct ps_table_copy *c = t->copy;
    while (*budget_bytes > 0 && c->partition < MR_PARTITION_COUNT) {
        if (!ps_partitions_has(&c->partitions, c->partition)) {
            c->partition++;
            continue;
        }
        if (!ps_partitions_has(&c->begun, c->partition)) {
            partition_begin(t, budget_bytes);
            continue;
        }
        const bool is_same = c->version == t->index.versions[c->partition]; /* or it has other buckets now */
        if (is_same && c->bucket < ps_index_bucket_count(&t->index, c->partition))
            return true;
        if (!is_same || t->index.watched_moves > 0) /* a key may have gone past the cursor */
            cursor_enter(t);
        else
            c->partition++;
    }
    return false;
}

static void table_copy_give(struct ps_table *t, struct ps_place place, uint64_t hash,
                            struct ps_copy_part *out, uint64_t *budget_bytes)
{
    const uint8_t *row = ps_table_row(t, place);
    ps_row_prefetch(t, row, t->layout.bytes);
    *ps_place_entry(place) = ps_entry_with_state(*ps_place_entry(place), t->index.base);
    t->index.marks--;
    out->keys[out->count] = ps_index_key(&t->index, hash);
    out->rows[out->count++] = row;
    budget_use(budget_bytes, PS_KEY_COST_BYTES + t->layout.bytes);
}

/* Rows of the cursor's bucket, as many as there is room for. False: some are left. */
static bool bucket_give(struct ps_table *t, uint32_t keys_max, struct ps_copy_part *out,
                        uint64_t *budget_bytes)
{
    const uint32_t partition = t->copy->partition;
    struct ps_bucket *b = ps_index_bucket(&t->index, partition, t->copy->bucket);
    for (uint32_t taken = ps_bucket_taken(b); taken != 0; taken &= taken - 1) {
        const struct ps_place place =
            ps_index_place_at(&t->index, partition, b, (uint32_t)__builtin_ctz(taken));
        if (!ps_index_is_marked(&t->index, place))
            continue;
        if (out->count == keys_max)
            return false;
        table_copy_give(t, place, ps_index_hash_at(&t->index, place), out, budget_bytes);
    }
    return true;
}

static void first_rows(struct ps_table *t, uint32_t keys_max, struct ps_copy_part *out,
                       uint64_t *budget_bytes)
{
    while (out->count < keys_max && cursor_seek(t, budget_bytes)) {
        budget_use(budget_bytes, sizeof(struct ps_bucket));
        t->copy->bucket += bucket_give(t, keys_max, out, budget_bytes);
    }
}

/* Keys of the log that are alike: with a row, or without. */
static enum ps_copy_kind changed_keys(struct ps_table *t, uint32_t keys_max, struct ps_copy_part *out,
                                      uint64_t *budget_bytes)
{
    struct ps_table_copy *c = t->copy;
    enum ps_copy_kind kind = PS_COPY_NONE;
    while (c->first != NULL && out->count<keys_max && * budget_bytes> 0) {
        const uint64_t hash = c->first->hashes[c->taken];
        const struct ps_place place = ps_index_find(&t->index, hash);
        const enum ps_copy_kind of_key = place.bucket != NULL ? PS_COPY_ROWS : PS_COPY_GONE;
        if (kind != PS_COPY_NONE && of_key != kind)
            break;
        take_from_log(c);
        if (of_key == PS_COPY_ROWS && !ps_index_is_marked(&t->index, place)) {
            budget_use(budget_bytes, PS_KEY_COST_BYTES); /* it was given out since */
            continue;
        }
        kind = of_key;
        if (kind == PS_COPY_ROWS) {
            table_copy_give(t, place, hash, out, budget_bytes);
        } else {
            out->keys[out->count++] = ps_index_key(&t->index, hash);
            budget_use(budget_bytes, PS_KEY_COST_BYTES);
        }
    }
    return kind;
}

enum ps_copy_kind ps_table_copy_next(struct ps_table *t, uint32_t keys_max, struct ps_copy_part *out,
                                     uint64_t *budget_bytes)
{
    struct ps_table_copy *c = t->copy;
    assert(keys_max > 0 && keys_max <= PS_CUT_EMIT_ROWS_MAX);
    out->count = 0;
    first_rows(t, keys_max, out, budget_bytes);
    if (out->count > 0)
        return PS_COPY_ROWS;
    if (c->partition < MR_PARTITION_COUNT)
        return PS_COPY_NONE; /* the budget is used up */
    struct ps_occurrence_part piece;
    if (t->filter.changed != NULL &&
        ps_table_filter_take_marked(t, &c->partitions, out->filter, &piece, &out->filter_bytes)) {
        out->partition = piece.partition;
        out->first_line = piece.first_line;
        budget_use(budget_bytes, out->filter_bytes);
        return PS_COPY_FILTER;
    }
    return changed_keys(t, keys_max, out, budget_bytes);
}

uint64_t ps_table_copy_left(const struct ps_table *t)
{
    const struct ps_table_copy *c = t->copy;
    uint64_t rows = c->log_count;
    for (uint32_t p = c->partition; p < MR_PARTITION_COUNT; p++)
        rows += ps_partitions_has(&c->partitions, p) ? t->index.partition_rows[p] : 0;
    return rows;
}

bool ps_table_copy_is_first(const struct ps_table *t)
{
    return t->copy->partition < MR_PARTITION_COUNT;
}

bool ps_table_copy_is_lost(const struct ps_table *t)
{
    return t->copy->is_lost;
}

/* ---- dropping ---- */

static void bucket_drop(struct ps_table *t, uint32_t partition, struct ps_bucket *b, uint64_t *budget_bytes)
{
    for (uint32_t taken = ps_bucket_taken(b); taken != 0; taken &= taken - 1) {
        const struct ps_place place =
            ps_index_place_at(&t->index, partition, b, (uint32_t)__builtin_ctz(taken));
        if (t->counters.rows_not_finite > 0)
            t->counters.rows_not_finite -= !ps_table_row_is_finite(t, ps_table_row(t, place));
        ps_index_remove(&t->index, place);
        ps_slabs_give(&t->slabs, partition / PS_GROUP_PARTITIONS, place.row);
        t->counters.rows_copied -= t->followed != NULL && ps_partitions_has(t->followed, partition);
        budget_use(budget_bytes, PS_KEY_COST_BYTES);
    }
}

bool ps_table_drop_partition(struct ps_table *t, uint32_t partition, uint64_t *budget_bytes)
{
    struct ps_upkeep *at = &t->drop;
    assert(!t->cut_running && (t->copy == NULL || !ps_partitions_has(&t->copy->partitions, partition)));
    t->marks_hold = false;
    while (t->index.partition_rows[partition] > 0) {
        if (*budget_bytes == 0)
            return true;
        if (at->partition != partition || at->version != t->index.versions[partition] ||
            at->bucket >= ps_index_bucket_count(&t->index, partition))
            *at = (struct ps_upkeep){.partition = partition, .version = t->index.versions[partition]};
        budget_use(budget_bytes, sizeof(struct ps_bucket));
        bucket_drop(t, partition, ps_index_bucket(&t->index, partition, at->bucket++), budget_bytes);
        t->counters.rows = t->index.rows;
    }
    ps_occurrence_drop(&t->filter, partition);
    return false;
}
