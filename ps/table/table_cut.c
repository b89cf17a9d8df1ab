/* The rows of a checkpoint, handed out while calls change them: by a cursor, and by each change before it is
 * made. */
#include <assert.h>
#include "ps/table/table_internal.h"

static_assert(PS_CUT_BUCKET_ROWS_MAX == PS_BUCKET_KEYS, "a bucket's rows");

#define CLEAN_SHARE 16u /* buckets with nothing to emit that count as one with */
#define BUCKETS_AHEAD                                                                                        \
    32u /* asked for before they are looked at: at a glance each, memory would be waited for */

/* Rows on their way to `emit`. */
struct cut_batch {
    uint32_t count;
    uint64_t keys[PS_CUT_EMIT_ROWS_MAX];
    const uint8_t *rows[PS_CUT_EMIT_ROWS_MAX];
};

/* Pending entries of bucket `number` of the run. */
static inline void batch_add(struct ps_table *t, uint32_t partition, const struct ps_bucket_run *run,
                             uint32_t number, uint32_t pending, struct cut_batch *batch)
{
    struct ps_bucket *b = &run->first[number];
    uint32_t limit = ps_entry_limit(run->bucket_count);
    const bool is_followed = t->followed != NULL && ps_partitions_has(t->followed, partition);
    t->cut_rows_left -= (uint32_t)__builtin_popcount(pending);
    for (; pending != 0; pending &= pending - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(pending);
        uint64_t entry = b->entries[slot];
        ps_index_emitted(&t->index, b, slot);
        if (is_followed)
            continue;
        const uint8_t *row =
            ps_slabs_row(&t->slabs, partition / PS_GROUP_PARTITIONS, ps_entry_row(entry, limit));
        ps_row_prefetch(t, row, t->layout.bytes);
        batch->keys[batch->count] = ps_index_key(
            &t->index, ps_entry_hash(partition, run->first_number + number, run->bucket_count, entry));
        batch->rows[batch->count++] = row;
    }
}

static void batch_emit(struct ps_table *t, struct cut_batch *batch)
{
    if (batch->count > 0)
        t->cut.emit(t->cut.self, t, batch->keys, batch->rows, batch->count);
    batch->count = 0;
}

void ps_table_cut_before_change(struct ps_table *t, struct ps_place place)
{
    if (t->cut_running && ps_table_cut_take(t, place) &&
        !(t->followed != NULL && ps_partitions_has(t->followed, place.partition))) {
        uint64_t key = ps_index_key(&t->index, ps_index_hash_at(&t->index, place));
        const uint8_t *row = ps_table_row(t, place);
        t->cut.emit(t->cut.self, t, &key, &row, 1);
    }
}

void ps_table_cut_group_before_change(struct ps_table *t, const struct ps_row_group *g)
{
    struct cut_batch batch; /* not all of it set to zero */
    batch.count = 0;
    for (uint32_t taken = g->taken_by_cut; taken != 0; taken &= taken - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(taken);
        batch.keys[batch.count] = ps_index_key(&t->index, g->hashes[i]);
        batch.rows[batch.count++] = (const uint8_t *)g->values[i];
    }
    batch_emit(t, &batch);
}

static void cursor_enter(struct ps_table *t, uint32_t partition)
{
    t->cut_partition = partition;
    t->cut_bucket = 0;
    t->cut_version = t->index.versions[partition];
    t->index.watched_partition = partition;
    t->index.watched_moves = 0;
}

void ps_table_keep_marks(struct ps_table *t, struct ps_arena *tombstone_arena)
{
    assert(t->index.rows == 0);
    t->keeps_marks = t->marks_hold = true;
    ps_tombstones_init(&t->tombstones, tombstone_arena, &t->index.hasher);
    ps_tombstones_init(&t->leaving, tombstone_arena, &t->index.hasher);
    if (t->feature.admission == MR_ADMIT_OBSERVATIONS) /* without memory for it, there are no deltas */
        t->keeps_marks = ps_occurrence_keep_marks(&t->filter);
}

void ps_table_note_tombstone(struct ps_table *t, uint64_t key, uint64_t hash)
{
    if (t->keeps_marks && t->marks_hold)
        t->marks_hold = ps_tombstones_add(&t->tombstones, key, hash,
                                          PS_TABLE_TOMBSTONE_MIN + t->index.rows / PS_TABLE_TOMBSTONE_SHARE);
}

bool ps_table_keeps_marks(const struct ps_table *t)
{
    return t->keeps_marks;
}

/* As far as it depends on rows. */
static bool marks_hold(const struct ps_table *t)
{
    return t->keeps_marks && t->marks_hold && !t->cut_running && t->leaving.count == 0;
}

bool ps_table_delta_possible(const struct ps_table *t)
{
    return marks_hold(t) && t->filter.cut == NULL;
}

/* Keys removed so far are this cut's, if it is one of changes; keys removed from now on are the next
 * one's. */
static void tombstones_swap(struct ps_table *t, enum ps_save_kind kind)
{
    if (!t->keeps_marks)
        return;
    ps_tombstones_clear(&t->leaving);
    if (kind == PS_SAVE_FULL) {
        ps_tombstones_clear(&t->tombstones);
        return;
    }
    struct ps_tombstones nothing = t->leaving;
    t->leaving = t->tombstones;
    t->tombstones = nothing;
}

uint32_t ps_table_cut_take_tombstones(struct ps_table *t, uint64_t *keys, uint32_t keys_max)
{
    return t->leaving.count > 0 ? ps_tombstones_take(&t->leaving, keys, keys_max) : 0;
}

uint64_t ps_table_cut_tombstones_left(const struct ps_table *t)
{
    return t->leaving.count;
}

uint64_t ps_table_cut_begin(struct ps_table *t, const struct ps_cut *cut, enum ps_save_kind kind)
{
    assert(!t->cut_running && (kind == PS_SAVE_FULL || marks_hold(t)));
    tombstones_swap(t, kind);
    t->cut_running = t->marks_hold = true;
    t->cut = *cut;
    t->cut_rows_left = ps_index_cut_begin(&t->index, kind == PS_SAVE_DELTA);
    cursor_enter(t, 0);
    return t->cut_rows_left;
}

/* Brings the cursor to a bucket. Emitted keys are marked so: going through them again costs little. */
static void cursor_seek(struct ps_table *t)
{
    for (;;) {
        uint32_t partition = t->cut_partition;
        if (t->cut_version != t->index.versions[partition])
            cursor_enter(t, partition); /* it has other buckets now */
        if (t->cut_bucket < ps_index_bucket_count(&t->index, partition))
            return;
        if (t->index.watched_moves > 0) {
            cursor_enter(t, partition); /* a key may have gone past the cursor */
            continue;
        }
        assert(partition + 1 <
               MR_PARTITION_COUNT); /* as long as rows are left, the cursor has not passed them all */
        cursor_enter(t, partition + 1);
    }
}

/* What a step has left. */
struct cut_budget {
    uint32_t buckets, clean_buckets; /* with something to emit, and without */
};

/* Goes on in the cursor's partition. */
static void run_step(struct ps_table *t, struct cut_budget *left, struct cut_batch *batch)
{
    const struct ps_bucket_run run = ps_index_run(&t->index, t->cut_partition, t->cut_bucket);
    uint32_t i = 0;
    for (; i < run.count && left->buckets > 0 && left->clean_buckets > 0; i++) {
        __builtin_prefetch(&run.first[i + BUCKETS_AHEAD], 1, 3);
        uint32_t pending = ps_bucket_pending(&t->index, &run.first[i]);
        if (pending == 0) {
            left->clean_buckets--;
            continue;
        }
        left->buckets--;
        batch_add(t, t->cut_partition, &run, i, pending, batch);
        if (batch->count > PS_CUT_EMIT_ROWS_MAX - PS_BUCKET_KEYS)
            batch_emit(t, batch);
    }
    t->cut_bucket += i;
}

bool ps_table_cut_step(struct ps_table *t, uint32_t bucket_budget)
{
    assert(t->cut_running);
    struct cut_batch batch; /* not all of it set to zero */
    batch.count = 0;
    struct cut_budget left = {
        bucket_budget, bucket_budget < UINT32_MAX / CLEAN_SHARE ? bucket_budget * CLEAN_SHARE : UINT32_MAX};
    while (left.buckets > 0 && left.clean_buckets > 0 && t->cut_rows_left > 0) {
        cursor_seek(t);
        run_step(t, &left, &batch);
    }
    batch_emit(t, &batch);
    if (t->cut_rows_left == 0) {
        t->cut_running = false;
        ps_index_cut_end(&t->index, true);
    }
    return !t->cut_running;
}

void ps_table_cut_abort(struct ps_table *t)
{
    if (t->cut_running || t->leaving.count > 0 || t->filter.cut != NULL) {
        t->marks_hold = false;
        ps_occurrence_cut_end(&t->filter);
        ps_tombstones_clear(&t->leaving);
        ps_tombstones_clear(&t->tombstones);
    }
    if (t->cut_running)
        ps_index_cut_end(&t->index, t->cut_rows_left == 0);
    t->cut_running = false;
    t->cut_rows_left = 0;
}

uint64_t ps_table_cut_rows_max(const struct ps_table *t, uint32_t key_count)
{
    if (!t->cut_running)
        return 0;
    return key_count < t->cut_rows_left ? key_count : t->cut_rows_left;
}

uint64_t ps_table_cut_step_rows_max(const struct ps_table *t, uint32_t bucket_count)
{
    uint64_t rows = (uint64_t)bucket_count * PS_CUT_BUCKET_ROWS_MAX;
    return rows < t->cut_rows_left ? rows : t->cut_rows_left;
}
