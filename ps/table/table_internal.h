/* What the table's files share: its struct, and the pipeline over groups of keys. */
#ifndef PS_TABLE_INTERNAL_H
#define PS_TABLE_INTERNAL_H

#include <assert.h>
#include "dataplane/wire/format/bag.h"
#include "ps/table/tombstones.h"
#include "ps/index/index.h"
#include "ps/row/initializer.h"
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/missed_steps.h"
#include "ps/base/key_hash.h"
#include "ps/base/partition_set.h"
#include "dataplane/optimizer/rule.h"
#include "ps/row/row_layout.h"
#include "ps/row/row_use.h"
#include "ps/table/occurrence_filter.h"
#include "ps/index/slab.h"
#include "ps/table/table.h"

/* Keys whose cache misses overlap: enough to fill a core's line-fill buffers, few enough for their rows to
 * stay in L1. */
#define PS_GROUP_KEYS 16u
#define PS_GROUP_LINES_MAX                                                                                   \
    16u /* lines prefetched per row; the hardware's stream prefetcher fetches the rest */
/* Rows are asked for, after their first line, by turns with work on those that came, this many lines or fewer
 * a turn: a core waits for 16 to 24 lines at once (Ice Lake, Zen 3), and would stand still beyond. */
#define PS_FIRST_LINE 1u
#define PS_TURN_LINES 16u
static_assert(PS_TURN_LINES >= PS_GROUP_LINES_MAX, "a turn has a row at least");
#define PS_GROUPS             4u                  /* in flight at once, one in each stage */
#define PS_INITIAL_ROWS_COUNT (3 * PS_GROUP_KEYS) /* found, found late, used */

#define PS_EVICT_ROUNDS_PER_LIMIT   16u
#define PS_EVICT_SAMPLE_ROWS        10u
#define PS_EVICT_NEAR_ROWS          16u /* looked at where only a row of the same partition makes room */
#define PS_EVICT_SAMPLE_BUCKETS_MAX 64u /* looked at for a sample, at most */
#define PS_EVICT_POOL_ROWS          16u
#define PS_EVICT_PER_INSERT_MAX     3u /* rows that are evicted for a new one, at most */

/* Where the row mover is, or whoever drops a partition. */
struct ps_upkeep {
    uint32_t partition, bucket;
    uint16_t version; /* of the partition when the cursor reached it */
};

/* A row as it was when the cursor came by. */
struct ps_evict_candidate {
    uint64_t hash;
    uint32_t seen, uses;
};

/* Goes round the index: the next bucket, and the version of its partition when the cursor was there last. */
struct ps_evict_cursor {
    uint32_t partition, bucket;
    uint16_t version;
};

/* What a table remembers of its evictions: cursors over the index, the work that is due, and candidates
 * (ps/table/table_evict.c says by which rules). */
struct ps_evictor {
    struct ps_evict_cursor due;  /* of rows over their limit, which passes none over */
    struct ps_evict_cursor room; /* of samples, at a limit of the table */
    bool emits;           /* the running eviction may take rows that a running cut has still to write */
    uint64_t buckets_due; /* still to be looked at in this time */
    uint32_t pool_count;
    struct ps_evict_candidate pool[PS_EVICT_POOL_ROWS];
};

#define PS_ROWS_OF_LATE    16u
#define PS_PASS_COST_BYTES 256u /* of one row through the optimizer, beside twice the row's bytes */

/* What a table with a dense optimizer has beside the others. */
struct ps_dense {
    struct mr_step_rates rates;
    uint32_t passes_of_late;         /* through the optimizer, of PS_ROWS_OF_LATE rows that were wanted */
    const void *rows[PS_GROUP_KEYS]; /* of ps_table_rows_before(), among the copies */
    float copies[];                  /* [PS_GROUP_KEYS, dim + state] */
};

struct ps_table {
    struct mr_feature feature;
    struct ps_arena *arena;
    struct ps_initializer initializer;
    struct mr_rule optimizer;
    const struct mr_kernels *kernels;
    const struct ps_group_stages *group_stages; /* by vectors; NULL: key by key */
    mr_rows_kernel *copy_rows, *add_rows;       /* of rows of the table's type, like the next */
    mr_weighted_rows_kernel *add_weighted_rows;
    uint32_t straddle_bytes;            /* how far after a cache line's start a row may begin */
    const struct mr_half_kernels *half; /* NULL: rows of f32 */
    uint32_t dim;
    uint32_t partitions; /* about how many are this core's */
    struct ps_row_layout layout;
    uint64_t rows_max;    /* this core's share of capacity_rows */
    uint64_t memory_max;  /* of memory_bytes; 0: none */
    uint64_t admit_below; /* admission by probability: of a hash, mixed */
    struct ps_occurrence_filter filter;
    struct ps_row_use use;
    struct ps_evictor evictor;
    /* [PS_INITIAL_ROWS_COUNT, dim]: answers for keys that get no row, of the table's type */
    float *initial_rows;
    /* [PS_GROUP_KEYS, dim], tables of 16-bit rows: some rows as f32, for as long as a function needs them */
    float *expanded;
    struct ps_dense *dense; /* NULL: the optimizer is not */
    struct ps_slabs slabs;
    struct ps_table_counters counters;
    enum ps_limit refused_by; /* the last row that was refused */

    bool keeps_marks; /* rows that change are marked */
    bool marks_hold;  /* and all that have changed since the last cut are, as are the removed keys */
    struct ps_tombstones tombstones; /* keys removed since the last cut began */
    struct ps_tombstones leaving;    /* removed between the last two cuts: still to be taken */
    bool cut_running;
    bool may_emit; /* the running call was not promised room: evictions may ask for it */
    struct ps_cut cut;
    uint32_t cut_partition, cut_bucket; /* cursor */
    uint16_t cut_version;               /* of cut_partition when the cursor reached it */
    uint64_t cut_rows_left;             /* still to be emitted */

    struct ps_table_copy *copy; /* that is being made (ps/table/table_copy.h); NULL: none */
    struct ps_table_changes
        *changes; /* the keys of all changes go there (ps/table/table_changes.h); NULL: none */
    /* Partitions that are kept up to date for another node (ps/table/table_changes.h); NULL: none are. */
    const struct ps_partition_set *followed;
    struct ps_eviction_watch watch; /* all NULL: nobody is told */
    bool notes;                     /* changes are noted for the copy, or for `changes` */
    bool replays;                   /* a push of the log is applied: limits do not stand against its rows */

    struct ps_upkeep upkeep;
    struct ps_upkeep drop; /* where ps_table_drop_partition() is */

    struct ps_index index;
};

/* A new row with its first values; NULL (counted) when memory or the capacity is used up. The key is not
 * there yet. */
void *ps_table_row_create(struct ps_table *t, uint64_t key, uint64_t hash);
/* The table's admission. A lookup is an observation, and so is a push whose lookup was lost; another push is
 * none, and makes no rows where observations are wanted. */
bool ps_table_admits_lookup(struct ps_table *t, uint64_t hash);
bool ps_table_admits_push(const struct ps_table *t, uint64_t hash);
/* Takes a piece of the filter of these partitions that has a mark, as ps_table_filter_load() wants it. */
bool ps_table_filter_take_marked(struct ps_table *t, const struct ps_partition_set *partitions, uint8_t *out,
                                 struct ps_occurrence_part *piece, uint32_t *bytes);
/* Returns what forbids one more row, for a key of this hash. The node's own limit shows only when memory is
 * asked for. */
enum ps_limit ps_table_limit_met(const struct ps_table *t, uint64_t hash);
/* The memory that the table may use, if it has a limit. */
size_t ps_table_memory_limit(const struct ps_table *t);
/* Makes room for it at the cost of another row; false when the table's eviction does not do that, or finds
 * none to go. Rows that a call in progress holds stay. Bounded work. */
bool ps_table_evict_for(struct ps_table *t, uint64_t hash, enum ps_limit limit);
/* Takes a row out, having given it to a running cut that has still to have it. `hash` is the key's. Other
 * rows and places stay as they are. */
void ps_table_row_remove(struct ps_table *t, struct ps_place place, uint64_t hash);
/* Before a row is changed while a cut runs: emit it unless that has been done. */
void ps_table_cut_before_change(struct ps_table *t, struct ps_place place);
/* The same in two parts, for a group of rows that are looked for first and changed together later: true when
 * the running cut has still to have the row, which counts as emitted from now on ... */
static inline bool ps_table_cut_take(struct ps_table *t, struct ps_place place);
/* ... and must be emitted before it changes. */
struct ps_row_group;
void ps_table_cut_group_before_change(struct ps_table *t, const struct ps_row_group *g);
/* A key's row is removed, or made. */
void ps_table_note_tombstone(struct ps_table *t, uint64_t key, uint64_t hash);
static inline void ps_table_note_made(struct ps_table *t, uint64_t key, uint64_t hash)
{
    if (t->tombstones.count > 0)
        ps_tombstones_remove(&t->tombstones, key, hash);
}
/* The same in a table that is being copied. */
void ps_table_copy_changed(struct ps_table *t, struct ps_place place, uint64_t hash);
void ps_table_copy_note(struct ps_table *t, uint64_t hash);        /* a key's row is removed, or made */
bool ps_table_copy_notes(const struct ps_table *t, uint64_t hash); /* whether it is: such rows are marked */
/* A key's row was changed, removed or made, in a table whose changes are collected. */
void ps_table_changes_note(struct ps_table *t, uint64_t hash);
/* In a table that notes changes: a row has been, or is about to be, changed; or it is removed or made. */
void ps_table_note_changed(struct ps_table *t, struct ps_place place, uint64_t hash);
void ps_table_note_key(struct ps_table *t, uint64_t hash);
/* A row has been, or is about to be, changed: the next cut of changes has it. Behind the former. */
static inline void ps_table_mark(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    if (__builtin_expect(t->notes, 0))
        ps_table_note_changed(t, place, hash);
    if (t->keeps_marks)
        ps_index_mark(&t->index, place);
}
/* The same of a row that is used and not changed: only its stamp is another. Changes are not collected
 * then. */
static inline void ps_table_mark_used(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    if (__builtin_expect(t->copy != NULL, 0))
        ps_table_copy_changed(t, place, hash);
    if (t->keeps_marks)
        ps_index_mark(&t->index, place);
}
/* Is the partition of this hash kept for another node? */
static inline bool ps_table_is_followed(const struct ps_table *t, uint64_t hash)
{
    return __builtin_expect(t->followed != NULL, 0) && ps_partitions_has(t->followed, mr_partition_of(hash));
}

/* ---- tables with a dense optimizer (ps/table/table_dense.c) ----
 * Rows as they are before a training step, of calls that name it: copies, which stay until the next call.
 * Rows that are not the table's are new ones. */
const void *const *ps_table_rows_before(struct ps_table *t, uint64_t step, const void *const *rows,
                                        uint32_t count);
/* What the steps that a row has missed cost of a budget, if they are as many as those of rows wanted of
 * late. */
static inline uint64_t ps_table_missed_cost_bytes(const struct ps_table *t)
{
    if (__builtin_expect(t->dense == NULL, 1))
        return 0;
    return (uint64_t)(t->dense->passes_of_late / PS_ROWS_OF_LATE) *
           (PS_PASS_COST_BYTES + 2 * t->layout.bytes);
}

/* Whether the row's values are all finite. */
bool ps_table_row_is_finite(struct ps_table *t, const void *row);
/* A row's first values, in the table's type. */
void ps_table_initial_values(struct ps_table *t, uint64_t key, void *row);
/* The row's values as f32; of a 16-bit row, until the next one is asked for. */
const float *ps_table_row_values(struct ps_table *t, const void *row);

/* A key of a push, once, by its placed hash, from which the key follows, and its gradient. */
struct ps_distinct {
    uint64_t hash;
    const float *gradient;
};

/* Of the hash table in which a push's keys are brought together. */
#define PS_PUSH_SLOTS_MIN 16u
#define PS_PUSH_SLOTS_PER_KEY                                                                                \
    4u /* at least, and less than twice that: a probe that meets another key costs a mispredicted branch */
static inline uint32_t ps_push_slots(size_t keys)
{
    uint32_t slots = PS_PUSH_SLOTS_MIN;
    while (slots < PS_PUSH_SLOTS_PER_KEY * keys)
        slots *= 2;
    return slots;
}
/* A key's first slot: by bits below the partition, which a peer cannot choose. */
#define PS_PUSH_SLOT_SHIFT 20u
static inline uint32_t ps_push_slot(uint64_t hash, uint32_t slot_mask)
{
    return (uint32_t)(hash >> PS_PUSH_SLOT_SHIFT) & slot_mask;
}

/* Rows of a group, and their gradients, on the way. Keys without a row are left out. */
struct ps_row_group {
    uint32_t count;
    uint32_t taken_by_cut;        /* a bit per row: to be emitted before it changes */
    float *values[PS_GROUP_KEYS]; /* rows of 16 bits: where the row begins, not to be read as it stands */
    float *states[PS_GROUP_KEYS];
    const float *gradients[PS_GROUP_KEYS];
    uint64_t hashes[PS_GROUP_KEYS];
};
/* Some of them, in a row. */
struct ps_row_turn {
    uint32_t count;
    float *const *values, *const *states;
    const float *const *gradients;
    const uint64_t *hashes;
};
/* mr_rule_apply() for 16-bit rows: how many were changed. */
uint32_t ps_table_half_apply(struct ps_table *t, const struct mr_rule_push *push,
                             const struct ps_row_turn *r);
/* mr_rule_apply() after the steps before the push's: how many were changed. */
uint32_t ps_table_dense_apply(struct ps_table *t, const struct mr_rule_push *push,
                              const struct ps_row_turn *r);
/* Sets a 16-bit row to these values, as a table of set rows does. */
void ps_table_half_set(struct ps_table *t, void *row, const float *values);
/* The gradients are rows to be set, with has_state with their state: how many were set. Those that hold NaN
 * or Inf are as they were. step: of dense optimizers, before which rows without state are what they are set
 * to; 0: before the first. */
uint32_t ps_table_set_rows(struct ps_table *t, const struct ps_row_turn *r, bool has_state, uint64_t step);

static inline void *ps_table_row(const struct ps_table *t, struct ps_place place)
{
    return ps_slabs_row(&t->slabs, place.partition / PS_GROUP_PARTITIONS, place.row);
}

static inline bool ps_table_cut_take(struct ps_table *t, struct ps_place place)
{
    if (!ps_entry_is_pending(&t->index, *ps_place_entry(place)))
        return false;
    ps_index_emitted(&t->index, place.bucket, place.slot);
    t->cut_rows_left--;
    return true;
}

/* Lookups that may insert, and pushes, count as uses. */
static inline bool ps_table_stamps(const struct ps_table *t)
{
    return t->layout.seen_offset != PS_ROW_NO_FIELD;
}

static inline float *ps_table_row_state(const struct ps_table *t, void *row)
{
    return (float *)(void *)((uint8_t *)row + t->layout.state_offset);
}

/* By what bag `bag` of a call, and so the gradient of each of its rows, is divided. weights, divisors: the
 * call's, or NULL. */
static inline float ps_bag_divisor(const struct ps_table *t, const uint32_t *offsets, const float *weights,
                                   const float *divisors, uint32_t bag)
{
    uint32_t first = offsets[bag];
    return divisors != NULL ? divisors[bag]
                            : mr_bag_divisor(t->feature.pooling, weights != NULL ? weights + first : NULL,
                                             offsets[bag + 1] - first);
}

/* A group of keys goes through four stages, a step of its pipeline each, so that what a stage reads was asked
 * for a step before:
 *   seek   hash the keys; ask for their home buckets
 *   find   look into those; ask for the rows, or, where a key does not lie at home, for its other bucket
 *   late   look for these keys once more, in all their buckets; ask for their rows
 *   use    the rows
 * Without the third, the tenth of all keys that does not lie at home would cost as much as the others
 * together. */
struct ps_group {
    uint64_t hashes[PS_GROUP_KEYS] __attribute__((aligned(64)));
    struct ps_bucket *buckets[PS_GROUP_KEYS]; /* home ones, of late keys the other ones */
    void *rows[PS_GROUP_KEYS];
    uint32_t limits[PS_GROUP_KEYS]; /* of the partitions */
    uint8_t matches[PS_GROUP_KEYS]; /* a bit: the key's slot in its home bucket, of those found there */
    uint32_t late;                  /* a bit per key that was not found there */
};

/* Hashes `count` keys, PS_GROUP_KEYS at most. */
void ps_group_hash(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys, uint32_t count);
/* Asks for the home buckets of the first `count` keys, whose hashes are there. */
void ps_group_seek(const struct ps_table *t, struct ps_group *g, uint32_t count);
/* Looks for them there: sets `rows`, `matches` and `late`, and asks for as many bytes of the rows
 * (PS_FIRST_LINE: the first line), and for the other buckets of late keys. */
void ps_group_find(const struct ps_table *t, struct ps_group *g, uint32_t count, uint32_t row_bytes);
/* Looks for the i-th key, which is late, in all its buckets. */
struct ps_place ps_group_find_late(const struct ps_table *t, const struct ps_group *g, uint32_t i);
/* Finds the home buckets again, after partitions were given others. */
void ps_groups_refresh(const struct ps_table *t, struct ps_group groups[PS_GROUPS]);

static inline uint32_t ps_group_of(uint64_t hash)
{
    return mr_partition_of(hash) / PS_GROUP_PARTITIONS;
}

/* The keys that were found, a bit each. */
static inline uint32_t ps_group_found(const struct ps_group *g, uint32_t count)
{
    return ((1u << count) - 1) & ~g->late;
}

/* Where the i-th key is, which was found. */
static inline struct ps_place ps_group_place(const struct ps_group *g, uint32_t i)
{
    return (struct ps_place){.bucket = g->buckets[i], .slot = (uint16_t)__builtin_ctz(g->matches[i])};
}

static inline uint32_t ps_group_size(uint32_t key_count, uint32_t first)
{
    return key_count - first < PS_GROUP_KEYS ? key_count - first : PS_GROUP_KEYS;
}

static inline uint32_t ps_group_count(uint32_t key_count)
{
    return key_count / PS_GROUP_KEYS + (key_count % PS_GROUP_KEYS != 0);
}

/* How many of up to `left` things the budget of a step has room for, a group at least; what they cost is
 * taken off. */
static inline uint32_t ps_budget_take(uint64_t *budget_bytes, uint64_t cost_bytes, uint32_t left)
{
    assert(cost_bytes > 0);
    uint64_t count =
        *budget_bytes / cost_bytes / PS_GROUP_KEYS * PS_GROUP_KEYS; /* few groups are cut short */
    count = count < PS_GROUP_KEYS ? PS_GROUP_KEYS : count;
    uint32_t taken = count < left ? (uint32_t)count : left;
    uint64_t cost = taken * cost_bytes;
    *budget_bytes -= cost < *budget_bytes ? cost : *budget_bytes;
    return taken;
}

/* The same of rows, each of which costs so much. Of a dense table, a group at most, or one row where a group
 * would be too much: only then it is known what they had missed. */
static inline uint32_t ps_budget_take_rows(const struct ps_table *t, uint64_t *budget_bytes,
                                           uint64_t cost_bytes, uint32_t left)
{
    uint32_t most = left;
    if (__builtin_expect(t->dense != NULL, 0))
        most = *budget_bytes < PS_GROUP_KEYS * cost_bytes ? 1 : PS_GROUP_KEYS;
    return ps_budget_take(budget_bytes, cost_bytes, left < most ? left : most);
}

/* Whether ps_budget_take_rows() has left enough for more rows. Of other tables it takes all at once. */
static inline bool ps_budget_goes_on(const struct ps_table *t, uint64_t budget_bytes, uint64_t cost_bytes)
{
    return t->dense != NULL && budget_bytes / PS_GROUP_KEYS >= cost_bytes;
}

static inline uint32_t ps_row_prefetch_lines(const struct ps_table *t, uint32_t bytes)
{
    uint32_t lines = (bytes + t->straddle_bytes + 63) / 64;
    return lines < PS_GROUP_LINES_MAX ? lines : PS_GROUP_LINES_MAX;
}

static inline void ps_row_prefetch(const struct ps_table *t, const void *row, uint32_t bytes)
{
    const uint32_t lines = ps_row_prefetch_lines(t, bytes);
    for (uint32_t line = 0; line < lines; line++)
        __builtin_prefetch((const char *)row + line * 64, 0, 3);
}

/* Asks for the rest of rows [first, first + most) of `count`, whose first lines have been asked for. */
static inline void ps_rows_ask(const void *const *rows, uint32_t count, uint32_t first, uint32_t most,
                               uint32_t lines)
{
    const uint32_t end = first + most < count ? first + most : count;
    for (uint32_t line = 1; line < lines; line++)
        for (uint32_t i = first; i < end; i++)
            __builtin_prefetch((const char *)rows[i] + line * 64, 0, 3);
}

#endif
