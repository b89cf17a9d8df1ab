/* Keys are put in and taken out, and cuts begin and end. */
#include <string.h>
#include "ps/index/index_internal.h"

/* Of a partition on its way, with each insert. At least 2.2 are needed for it to be done before the index
 * wants the next one, at the load that it has. */
#define MOVE_BUCKETS_PER_INSERT 4u
#define GROWTHS_PER_INSERT      4u
/* Of searches and moves in vain: what an index begins with, what an insert adds, and how many it keeps. */
#define SPARE_BUCKETS_FIRST      4096u
#define SPARE_BUCKETS_PER_INSERT 4u
#define SPARE_BUCKETS_MAX        (1u << 20)

/* States: entries of one of the two bases are unchanged, those of one of the two marks are changed. */
#define BASE_FIRST  0u
#define BASE_SECOND 3u
#define MARK_FIRST  1u
#define MARKS_SUM   3u
#define SWEEP_ALL   UINT64_MAX

void ps_index_init(struct ps_index *ix, struct ps_arena *arena, const struct ps_key_hasher *hasher)
{
    ix->arena = arena;
    ix->hasher = *hasher;
    ix->rows = ix->places = ix->marks = 0;
    ix->bytes = 0;
    ix->bytes_max = SIZE_MAX;
    ix->is_tight = false;
    ix->grow_count = 2;
    ix->grow_next = ix->first_next = ix->partitions_used = 0;
    ix->move = (struct ps_index_move){.partition = PS_PARTITION_NONE};
    ix->spare_buckets = SPARE_BUCKETS_FIRST;
    ix->gather_count = ix->gather_next = 0;
    ix->base = BASE_FIRST;
    ix->mark = MARK_FIRST;
    ix->pending_codes = 0;
    ix->is_unswept = false;
    ix->sweep_partition = 0;
    ix->watched_partition = PS_PARTITION_NONE;
    ix->watched_moves = 0;
    ix->untidy_count = 0;
    memset(ix->untidy, 0, sizeof(ix->untidy));
    memset(ix->crowded, 0, sizeof(ix->crowded));
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        ix->partitions[i] = ps_partition_without_buckets();
        ix->partition_rows[i] = 0;
        ix->versions[i]++;
    }
    ix->rewrites++;
}

void ps_index_clear(struct ps_index *ix)
{
    size_t bytes_max = ix->bytes_max;
    ps_index_free_all(ix);
    const struct ps_key_hasher hasher = ix->hasher;
    ps_index_init(ix, ix->arena, &hasher);
    ix->bytes_max = bytes_max;
}

size_t ps_index_insert_bytes(const struct ps_index *ix, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    return ix->partition_rows[mr_partition_of(hash)] >= ps_partition_rows_max(p) ? ps_partition_grow_bytes(p)
                                                                                 : 0;
}

/* The partition has buckets for the row number. */
static bool put_in(struct ps_index *ix, uint64_t hash, uint32_t row, uint32_t state)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    return row <= ps_row_max(p->bucket_count) &&
           ps_entry_place(ix, (struct ps_bucket_array){p->buckets, p->bucket_count}, hash, row, state);
}

/* Of the running move, with an insert into this partition: it is to be over before the partition is full,
 * unless that is small enough to grow at once beside it. */
static uint32_t move_buckets(const struct ps_index *ix, uint32_t partition)
{
    const struct ps_partition *p = &ix->partitions[partition];
    const uint32_t places = p->bucket_count * PS_BUCKET_KEYS, rows = ix->partition_rows[partition];
    if (partition == ix->move.partition || p->bucket_count <= PS_BESIDE_BUCKETS_MAX)
        return MOVE_BUCKETS_PER_INSERT;
    const uint32_t left = ix->move.bucket_count - ix->move.done, wanted = left / (places - rows + 1) + 1;
    return wanted > MOVE_BUCKETS_PER_INSERT ? wanted : MOVE_BUCKETS_PER_INSERT;
}

bool ps_index_insert(struct ps_index *ix, uint64_t hash, uint32_t row, bool marked)
{
    uint32_t number = mr_partition_of(hash), state = marked ? ix->mark : ix->base;
    const struct ps_partition *p = &ix->partitions[number];
    if (__builtin_expect(ix->move.partition != PS_PARTITION_NONE, 0))
        ps_move_step(ix, move_buckets(ix, number));
    uint64_t rewrites = ix->rewrites;
    /* When another one is on its way, a partition that should grow fills up meanwhile. */
    bool fills_up = ix->is_tight || (ix->move.partition != PS_PARTITION_NONE && ix->move.partition != number);
    bool is_full =
        ix->partition_rows[number] >= ps_partition_rows_max(p) && (ps_partition_is_empty(p) || !fills_up);
    if (__builtin_expect(is_full, 0) && !ps_partition_grow(ix, number, row))
        return false;
    for (uint32_t i = 0; __builtin_expect(!put_in(ix, hash, row, state), 0); i++) {
        if (ix->partition_rows[number] < ps_partition_rows_max(p))
            (void)ps_spare_take(ix, PS_SEARCH_BUCKETS_MAX);
        if (i == GROWTHS_PER_INSERT || !ps_partition_grow(ix, number, row))
            return false;
    }
    ix->partition_rows[number]++;
    ix->rows++;
    ix->marks += marked;
    if (__builtin_expect(ix->spare_buckets < SPARE_BUCKETS_MAX, 0))
        ix->spare_buckets += SPARE_BUCKETS_PER_INSERT;
    if (__builtin_expect(ix->first_next < MR_PARTITION_COUNT, 0) && ps_index_keeps_first(ix))
        ps_index_first_in_turn(ix);
    if (__builtin_expect(ix->rows * PS_INDEX_LOAD_DEN > ix->places * PS_INDEX_LOAD_NUM, 0) &&
        ix->move.partition == PS_PARTITION_NONE && !ix->is_tight)
        ps_index_grow_in_turn(ix);
    if (__builtin_expect(ix->rewrites != rewrites, 0))
        ps_index_gather(ix);
    return true;
}

void ps_index_remove(struct ps_index *ix, struct ps_place place)
{
    uint64_t *entry = ps_place_entry(place);
    assert(*entry != 0);
    ix->marks -= ps_index_is_marked(ix, place);
    *entry = 0;
    ix->partition_rows[place.partition]--;
    ix->rows--;
    if (ps_partition_is_too_large(ix, place.partition))
        ps_partition_set_untidy(ix, place.partition, true);
    for (uint32_t i = 0; ix->rows == MR_PARTITION_COUNT - 1 && i < MR_PARTITION_COUNT; i++)
        if (ix->partition_rows[i] == 0 && !ps_partition_is_empty(&ix->partitions[i]))
            ps_partition_set_untidy(ix, i, true);
}

/* ---- cuts ---- */

uint64_t ps_index_cut_begin(struct ps_index *ix, bool marked_only)
{
    uint64_t all = SWEEP_ALL;
    assert(ix->pending_codes == 0);
    ps_index_sweep(ix, &all);
    uint64_t keys = marked_only ? ix->marks : ix->rows;
    ix->pending_codes = 1u << ix->mark | (marked_only ? 0 : 1u << ix->base);
    ix->mark = MARKS_SUM - ix->mark;
    if (!marked_only)
        ix->base = BASE_SECOND - ix->base;
    ix->marks = 0;
    return keys;
}

void ps_index_cut_end(struct ps_index *ix, bool is_whole)
{
    ix->is_unswept = !is_whole;
    ix->sweep_partition = 0;
    ix->pending_codes = 0;
    ix->watched_partition = PS_PARTITION_NONE;
}
