/* One core's share of one table: u64 key -> row (values, and the optimizer's state beside them).
 *
 * The index is a small hash table per partition of 64-byte buckets (parts of hashes, and row numbers); rows
 * lie in slabs of the core's arena. Calls work on groups of keys: hash and prefetch the bucket, probe and
 * prefetch the row, then gather. Belongs to one thread. Errors leave the table as it was. The same calls in
 * the same order give the same bits, whatever the processor's vector width and however the keys are spread
 * over cores.
 */
#ifndef PS_TABLE_H
#define PS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/key_hash.h"
#include "ps/memory/arena.h"

struct ps_table;

/* X(name, kind, unit, help): per table and core */
#define PS_TABLE_COUNTER_LIST(X)                                                                             \
    X(rows, GAUGE, NONE, "rows held")                                                                        \
    X(rows_copied, GAUGE, NONE, "of these: copies of other nodes' rows (cluster.replication)")               \
    X(rows_created, COUNTER, NONE, "rows created")                                                           \
    X(keys_looked_up, COUNTER, NONE, "keys looked up, repeats counted")                                      \
    X(keys_missing, COUNTER, NONE, "keys looked up that have no row and got the initial value")              \
    X(keys_pushed, COUNTER, NONE, "keys pushed, repeats counted")                                            \
    X(updates, COUNTER, NONE, "rows changed by the optimizer")                                               \
    X(gradients_skipped, COUNTER, NONE,                                                                      \
      "gradients skipped because they held NaN or Inf, or would have led to it")                             \
    X(rows_saturated, COUNTER, NONE,                                                                         \
      "rows of 16 bits set to values beyond their type's largest, which they became")                        \
    X(rows_not_finite, COUNTER, NONE, "rows of a checkpoint that hold NaN or Inf, as they were loaded")      \
    X(gradients_without_row, COUNTER, NONE,                                                                  \
      "keys of pushes left out because they have no row, repeats counted once")                              \
    X(rows_refused, COUNTER, NONE, "rows not created because memory or the capacity was used up")            \
    X(rows_evicted_age, COUNTER, NONE, "rows evicted: unseen for too many seconds")                          \
    X(rows_evicted_steps, COUNTER, NONE, "rows evicted: unseen for too many steps")                          \
    X(rows_evicted_norm, COUNTER, NONE, "rows evicted: small norm")                                          \
    X(rows_evicted_capacity, COUNTER, NONE, "rows evicted for others: capacity_rows was reached")            \
    X(rows_evicted_memory, COUNTER, NONE, "rows evicted for others: memory was used up")                     \
    X(keys_not_admitted_probability, COUNTER, NONE,                                                          \
      "keys looked up that the admission's probability leaves out")                                          \
    X(keys_not_admitted_observations, COUNTER, NONE, "keys looked up that were not seen often enough yet")   \
    X(observations_not_counted, COUNTER, NONE,                                                               \
      "keys looked up, not seen often enough yet, and not counted because memory was used up")

struct ps_table_counters {
    PS_TABLE_COUNTER_LIST(MR_COUNTER_FIELD)
};

/* What forbids one more row. */
enum ps_limit {
    PS_LIMIT_NONE,
    PS_LIMIT_ROWS,   /* capacity_rows */
    PS_LIMIT_MEMORY, /* memory_bytes */
    PS_LIMIT_NODE,   /* the node's memory */
};

/* MR_UNSUPPORTED names the option in *what ("optimizer ftrl"); MR_OUT_OF_MEMORY. `feature` has passed
 * mr_feature_check(); its limits are this core's, see ps_table_set_share(). secret: the node's, by which keys
 * are spread within a partition. */
enum mr_status ps_table_create(const struct mr_feature *feature, struct ps_arena *arena,
                               const struct ps_key_secret *secret, struct ps_table **out, const char **what);
/* The options are `feature`'s from now on, which ps_alter_check() has let pass, for a core's share as in
 * ps_table_set_share(). A table that is over a limit now returns to it as one that was restored. */
void ps_table_alter(struct ps_table *t, const struct mr_feature *feature, uint32_t core, uint32_t core_count);
/* Bytes, on a node, of the filter in which a table counts the occurrences of keys; 0: it does not. */
uint64_t ps_table_filter_size(const struct mr_feature *feature);
void ps_table_destroy(struct ps_table *t); /* NULL is fine; a running cut ends */
const struct ps_table_counters *ps_table_counters(const struct ps_table *t);
/* Returns what forbade the last row that was refused; PS_LIMIT_NONE: none was. */
enum ps_limit ps_table_refused_by(const struct ps_table *t);
uint64_t ps_table_rows(const struct ps_table *t);
/* The same without rows that are kept for another node (ps/table/table_changes.h). */
uint64_t ps_table_rows_owned(const struct ps_table *t);
/* Where its bytes are. `values` and `state` are those of rows held; `slack` is the rest of the row slabs:
 * places free, padding, and what else is kept about a row. */
struct ps_table_memory {
    uint64_t rows, index_bytes, values_bytes, state_bytes, slack_bytes, filter_bytes;
};
void ps_table_memory(const struct ps_table *t, struct ps_table_memory *out);
/* Bytes of index, of rows, and of the filter that counts observations, as reserved from the arena. */
size_t ps_table_index_bytes(const struct ps_table *t);
size_t ps_table_row_bytes_total(const struct ps_table *t);
size_t ps_table_filter_bytes(const struct ps_table *t);
/* All of these, and what the table has beside them. */
size_t ps_table_memory_bytes(const struct ps_table *t);

/* ---- limits, admission, eviction: docs/tables.md ---- */

/* The table is one core's share of `core_count`: its limits are that part of the node's, the remainder of
 * capacity_rows going to the first cores, and a row and MR_MEMORY_BYTES_MIN at least to each. Before the
 * first row; 1 of 1 unless this is called. */
void ps_table_set_share(struct ps_table *t, uint32_t core, uint32_t core_count);
/* The node's clock in seconds and the caller's training step, before a lookup or push, and now and then
 * besides: what rows are stamped with, and what their age is measured by. Neither goes back. */
void ps_table_set_now(struct ps_table *t, uint32_t now_s, uint64_t step);
/* Before rows of a checkpoint are loaded: the node's clock when it was cut, and what it is for this table
 * from now on. */
void ps_table_load_from(struct ps_table *t, uint32_t clock_s, uint32_t now_s);
/* Who is told of each eviction, after it; neither touches the table. Copied. */
struct ps_eviction_watch {
    bool (*may_evict)(void *self); /* false: no row is evicted now. At most a few dozen follow each true */
    void (*evicted)(void *self, uint64_t key);
    void *self;
};
void ps_table_watch_evictions(struct ps_table *t, const struct ps_eviction_watch *watch);
/* Replay: the key's row was evicted, if there is one; as a change, and not counted. */
void ps_table_replay_eviction(struct ps_table *t, uint64_t key);
/* Some of the evictions that are due, for about `budget_bytes` of memory touched. True when there are more.
 * Rows that a running cut has still to write are evicted only if it has room for them. */
bool ps_table_evict(struct ps_table *t, uint64_t budget_bytes);
/* ---- hints ----
 * Brings the rows of keys, of one table or of several, into the caches, overlapping their misses. Changes
 * nothing. */
#define PS_HINT_KEYS_MAX 64u
struct ps_hint {
    const struct ps_table *table;
    uint64_t key;
    uint32_t row_bytes; /* of the row, from its start; its state lies after its values */
};
void ps_table_prefetch(const struct ps_hint *hints, uint32_t count); /* up to PS_HINT_KEYS_MAX */

/* ---- lookups and pushes, in steps ---- So that a long call does not hold up others: a step does as much
 * of the work as touches about *budget_bytes of memory (at least one group of keys; UINT64_MAX: all of it)
 * and takes it off, and any other function of this table may be called between two steps. What the
 * pointers point to stays the caller's and must stay there. The results are the same in one step or in
 * many, bit for bit. */
#define PS_KEY_COST_BYTES 128u /* of a budget, for finding a key's row: about what two cache misses cost */

/* The keys of one table in a call, in bags or by themselves. */
struct ps_bags {
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* [bag_count + 1]; NULL: no bags, a row per key */
    uint32_t bag_count;
    bool is_single;       /* each bag has one key: bag b is key b */
    const float *weights; /* of keys in bags, [key_count]; NULL: 1. See dataplane/wire/format/bag.h */
    /* [bag_count], of tables that average: what bags are divided by whose other keys are elsewhere; NULL: as
     * their keys and weights make it */
    const float *divisors;
};

/* A row per key, or per bag: bag b reduces keys[offsets[b] .. offsets[b+1]) as the table's pooling says,
 * in the order of the keys; an empty bag gives zeros. Offsets never fall, and the last is the number of
 * keys (checked by the caller). */
struct ps_table_lookup {
    struct ps_bags in;
    /* A key without a row gets one (initial values), if it is admitted, unless memory or capacity is used
     * up; and rows there are count as used. Else a key is answered with its initial values and nothing is
     * stored. */
    bool insert;
    uint64_t step; /* of training, of dense optimizers: rows are as it finds them; 0: as they are stored */
    /* What the answers are written as: f32 (also for 0), f16, bf16 or i8, by the rules of
     * dataplane/wire/format/convert.h. Rows of the table's own type are copied as they are. */
    enum mr_dtype out_dtype;
    void *out;     /* [k or bags, dim] of out_dtype */
    float *scales; /* i8: [k or bags]; else unused */
    float *sum;    /* bags of another type than f32: [dim], for the bag that is being summed; else unused */
    /* so far; zero to begin with */
    uint32_t keys_done;
    uint32_t bag;        /* that the next key belongs to, or an earlier one */
    uint32_t bags_begun; /* set to zeros, or more */
    /* rows (or bags) of `out` that will not change any more: all before the first that will */
    uint32_t rows_done;
};
/* What the whole lookup costs of a budget. */
uint64_t ps_table_lookup_cost_bytes(const struct ps_table *t, uint32_t key_count, uint32_t bag_count);
/* True when it is complete. */
bool ps_table_lookup_step(struct ps_table *t, struct ps_table_lookup *l, uint64_t *budget_bytes);

/* Floats of optimizer state that a row has. */
uint32_t ps_table_state_floats(const struct ps_table *t);

/* Rows as they are stored: nothing is made, and nothing counts as used. */
struct ps_table_read {
    const uint64_t *keys;
    uint32_t key_count;
    bool has_state;
    uint64_t step; /* as of a lookup */
    /* [key_count, dim + state + 1]: the values, with has_state the optimizer's state, and 1, or 0 for a key
     * without a row: then the rest is what a new row would have. Of a number of updates, a u32, the float has
     * the bits. */
    float *out;
    uint32_t keys_done; /* so far; zero to begin with */
};
/* What the whole costs of a budget. */
uint64_t ps_table_read_cost_bytes(const struct ps_table *t, uint32_t key_count);
/* True when it is complete. Each row and its state are of the same moment. */
bool ps_table_read_step(struct ps_table *t, struct ps_table_read *r, uint64_t *budget_bytes);

/* What became of a push: as enum mr_pushed_word (dataplane/wire/format/op.h). */
struct ps_push_counts {
    uint32_t applied, refused, without_row, not_finite;
};

/* Between the first step and the last only one push in steps may be in flight on the tables of one arena;
 * pushes at once may come in between. It cannot fail either, and must be brought to its end once its first
 * step was taken. */
/* How far a push has come; the table's own, zero to begin with. */
struct ps_push_cursor {
    uint32_t stage; /* enum push_stage of table_push.c */
    /* keys are done by the lowest bits of their hash, if there is no room for all at once */
    uint32_t class_bits;
    uint64_t class_value;
    uint32_t position, bag, bag_end; /* within the stage */
    float divisor;                   /* of that bag */
    float learning_rate;
    uint32_t row_floats; /* of each gradient, or row to be set */
    bool in_bags;        /* a gradient is of a bag, whose keys have to be found */
    bool expands;        /* gradients of a narrow type become f32, in `expanded`, a group at a time */
    bool derives;        /* each gradient has to be made from what was pushed: as f32, divided, weighted */
    uint32_t skipped;
};

/* The working memory of a push, in which its keys are brought together: in the arena's scratch. */
struct ps_push_scratch {
    uint32_t *slots; /* hash table: number of a distinct key + 1, or 0 */
    uint32_t slot_mask;
    uint32_t distinct_count, distinct_max;
    struct ps_distinct *distinct; /* the keys, and the gradient of each: the caller's, or a sum in `sums` */
    uint32_t sum_count, sum_max;
    float *sums;
    float *expanded;        /* [key_count, dim], of a push that expands */
    const float *gradients; /* of f32: the caller's, or `expanded` */
};

/* The keys of a push, which are brought together while its gradients still arrive: it depends on the keys
 * and on the seed of their hash, and on nothing that is in the table. */
struct ps_repeat {
    uint32_t distinct, row; /* of scratch.distinct; of the gradients */
};
struct ps_early_keys {
    const uint64_t *keys;
    const float *gradients; /* where they will be: [key_count, dim] */
    uint32_t key_count;
    uint32_t dim;
    struct ps_key_hasher hasher;
    uint32_t slots_cleared, numbered; /* so far */
    struct ps_push_scratch scratch;   /* without sums */
    struct ps_repeat *repeats;        /* keys that were there before, in the order of the push */
    uint32_t repeat_count;
};
/* Begins with the keys of a push of f32 rows by key into this table. False: memory is short. The memory is
 * the arena's, and the next one that is begun takes it over. */
bool ps_early_keys_begin(struct ps_early_keys *e, const struct ps_table *t, const uint64_t *keys,
                         uint32_t key_count, const float *gradients);
/* Whether what is begun is of such a table, which may be another one now. */
bool ps_early_keys_are_of(const struct ps_early_keys *e, const struct ps_table *t);
/* Does about as much as `count` keys take, with keys [0, arrived) there; true when all are done. */
bool ps_early_keys_step(struct ps_early_keys *e, const struct ps_table *t, uint32_t arrived, uint32_t count);

/* Gradients of rows or of bags; repeated keys are summed first (in the order of appearance), then the
 * optimizer runs once per key. A key without a row is skipped and counted. A gradient that holds NaN or
 * Inf is left out and counted, and so is a sum that overflows. Cannot fail for well-formed input, so
 * exactly-once needs no undo. */
struct ps_table_replay {
    const uint64_t *left_out; /* keys, ascending */
    uint32_t left_out_count;
};

struct ps_table_push {
    struct ps_bags in;             /* with bags a gradient is of a bag */
    enum mr_dtype gradients_dtype; /* f32 (also for 0), f16, bf16 or i8 */
    const void *gradients;         /* [k or bags, dim] */
    const float *gradient_scales;  /* i8: [k or bags]; else unused */
    /* a bit per partition, set where keys are as if the push had none of them; NULL: none */
    const uint64_t *excluded;
    bool at_once; /* it is done in one step with UINT64_MAX: nothing comes in between */
    /* The gradients, of f32 and without bags, are rows to be set, of whatever optimizer: of a repeated key
     * the last one that is finite. Their state becomes that of a new row, unless has_state: then each row is
     * followed by its own, ps_table_state_floats(). With `insert` admission is not asked. */
    bool sets, has_state;
    bool insert; /* keys without a row get one first, unless admission wants observations */
    /* with `insert`: the lookup of these keys was lost; where admission wants observations, each counts as
     * one now */
    bool sees;
    uint64_t step;              /* training step, for the table's schedule, and for Adam's if it asks */
    const float *learning_rate; /* of this push alone; NULL: as the table's schedule has it */
    /* of the same keys and gradients, or it is not used; its memory stays until the push is complete. NULL:
     * none */
    struct ps_early_keys *early;
    /* Of a push that is logged: takes the keys that got no row, room for in.key_count; and rows that the push
     * has used are not evicted before its end. NULL: it is not. */
    uint64_t *left_out;
    uint32_t left_out_count; /* so far */
    /* Of a push that comes from the log: keys without a row get one whatever forbids it, except these, which
     * got none when the push was applied first. NULL: it comes from a client. */
    const struct ps_table_replay *replay;
    struct ps_push_cursor cursor;
    struct ps_push_scratch scratch;
    struct ps_push_counts counts; /* so far; whole once it is complete */
};
uint64_t ps_table_push_cost_bytes(const struct ps_table *t, uint32_t key_count);
bool ps_table_push_step(struct ps_table *t, struct ps_table_push *p, uint64_t *budget_bytes);

/* ---- checkpoints: a cut while pushes continue ---- Between cut_begin and the last cut_step each row that
 * existed at cut_begin (and has changed since the cut before, in a cut of changes) is given to `emit` exactly
 * once, as it was at cut_begin, but for when and how often it was used, which lookups continue to count: by
 * the cursor, or just before its first change. Rows made meanwhile are not part of the cut, and making them
 * emits nothing. Neither the table nor its arena may be touched from inside `emit`. */
#define PS_CUT_EMIT_ROWS_MAX                                                                                 \
    60u /* rows in one call of emit; a record of them fits PS_BLOCK_BYTES at any dim */

struct ps_cut {
    void *self;
    /* rows[i] points at keys[i]'s stored row of ps_table_stored_row_bytes() bytes; valid during the call.
     * 1 <= count <= PS_CUT_EMIT_ROWS_MAX. */
    void (*emit)(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count);
    /* Whether `emit` may be called now for up to so many rows that no push has been promised room for: asked
     * before an eviction that would make it write. NULL: never. */
    bool (*has_room)(void *self, const struct ps_table *t, uint32_t rows);
};
enum ps_save_kind {
    PS_SAVE_FULL, /* every row */
    /* rows changed since the last cut: made, pushed to, used (where uses are kept). Not those loaded */
    PS_SAVE_DELTA,
};
/* From now on the table marks the rows that change, and keeps the keys whose rows are removed, so that cuts
 * of changes can be taken. These keys take memory of `tombstone_arena`: when that is short, or they are more
 * than PS_TABLE_TOMBSTONE_MIN and a PS_TABLE_TOMBSTONE_SHARE-th of the rows, they are forgotten, and the next
 * cut must be of every row. Before the first row. */
#define PS_TABLE_TOMBSTONE_SHARE 4u
#define PS_TABLE_TOMBSTONE_MIN   1024u
void ps_table_keep_marks(struct ps_table *t, struct ps_arena *tombstone_arena);
/* False where it was not asked to, and where memory was short: observations have marks of their own. */
bool ps_table_keeps_marks(const struct ps_table *t);
/* A cut of what has changed since the last cut can be begun: marks are kept, and the last cut gave out all it
 * had to. */
bool ps_table_delta_possible(const struct ps_table *t);
uint32_t ps_table_stored_row_bytes(const struct ps_table *t); /* values, then optimizer state */
/* No cut may be running, and one of changes must be possible. `cut` is copied. Rows that change from now on
 * are marked for the next. Returns how many rows it has. */
uint64_t ps_table_cut_begin(struct ps_table *t, const struct ps_cut *cut, enum ps_save_kind kind);
/* Look at up to `bucket_budget` further buckets, of at most PS_CUT_BUCKET_ROWS_MAX rows each, or a few times
 * as many where there is nothing to emit, and emit what is left in them; true when the cut is complete (and
 * over). */
#define PS_CUT_BUCKET_ROWS_MAX 8u
bool ps_table_cut_step(struct ps_table *t, uint32_t bucket_budget);
/* Up to keys_max keys that had a row at the cut before this one, or were made since, and had none when this
 * one, of changes, began: each comes once. Any time until the next cut begins. Returns how many; 0: there are
 * none left. */
uint32_t ps_table_cut_take_tombstones(struct ps_table *t, uint64_t *keys, uint32_t keys_max);
uint64_t ps_table_cut_tombstones_left(const struct ps_table *t);
/* The table's filter of observations in the cut (ps/table/occurrence_filter.h), no effect where there is
 * none. Begun before the cut of rows, at the same instant: MR_OUT_OF_MEMORY, and nothing was. Then piece
 * after piece: what is next, PS_FILTER_PIECE_BYTES_MAX at most, until there is none left; its bytes, for a
 * checkpoint. */
#define PS_FILTER_PIECE_BYTES_MAX 4104u
struct ps_occurrence_part;
enum mr_status ps_table_filter_cut_begin(struct ps_table *t, enum ps_save_kind kind);
bool ps_table_filter_cut_next(struct ps_table *t, struct ps_occurrence_part *piece, uint32_t *bytes);
void ps_table_filter_cut_take(struct ps_table *t, const struct ps_occurrence_part *piece, uint8_t *out);
/* Of all pieces, about. */
uint64_t ps_table_filter_cut_bytes(const struct ps_table *t);
/* Emits nothing more; the next cut must be of every row. Fine when none is running. */
void ps_table_cut_abort(struct ps_table *t);
/* Most rows that one push (or load) of key_count keys can make `emit` write: what must be free before it may
 * run. 0 when no cut is running. Lookups, and pushes that make rows, emit no more than that: nothing, but for
 * evictions by lookups that have asked for room. */
uint64_t ps_table_cut_rows_max(const struct ps_table *t, uint32_t key_count);
/* Most rows that a step of so many buckets emits. */
uint64_t ps_table_cut_step_rows_max(const struct ps_table *t, uint32_t bucket_count);

/* ---- upkeep ---- Some of the background work there is, for about `budget_bytes` of memory touched (at least
 * one bounded piece of it): parts of the index that removals have left too large or untidy are written again,
 * and memory that is not needed is freed. True when there is more to do. Rows may move, here and nowhere
 * else; steps of lookups and pushes hold no rows from one to the next. Answers of lookups, and the rows of a
 * running cut, stay the same. */
bool ps_table_maintain(struct ps_table *t, uint64_t budget_bytes);

/* Restore: put a stored row in its place (replaces), as it is and counted if it holds NaN or Inf, not as a
 * change, also beyond the table's own limits; then LRU and LFU bring the table back to them little by little.
 * MR_OUT_OF_MEMORY: the node's limit is reached, and no row is evicted for this one. */
enum mr_status ps_table_load(struct ps_table *t, uint64_t key, const uint8_t *stored_row);
/* The same for many rows of different keys, in an order of its own: a cut gives out rows in the order of
 * their partitions and hashes, which would crowd each partition's first buckets. `makes_room`, for keys of
 * which the table has none: their partitions are made as large as they will be, not little by little, which
 * is several times as fast, and may take some percent more memory; a table with a limit of its own makes no
 * more room once a quarter of it is in use. Without it partitions grow only when they are full to the last
 * place, so that what filled the node's memory fits into as much again. Some rows are there when it fails. */
struct ps_stored_row {
    uint64_t key;
    const uint8_t *bytes;
};
enum mr_status ps_table_load_rows(struct ps_table *t, const struct ps_stored_row *rows, uint32_t count,
                                  bool makes_room);
/* Restore: removes the key's row, if there is one, not as a change. No eviction is counted. */
void ps_table_load_tombstone(struct ps_table *t, uint64_t key);
/* Restore: such bytes back into their place, not as a change. MR_CHECKPOINT_CORRUPT: they are of a filter of
 * another size or count, or no piece of it; `text` (of `text_bytes`) says which. MR_OUT_OF_MEMORY. */
enum mr_status ps_table_filter_load(struct ps_table *t, uint32_t partition, uint32_t first_line,
                                    const uint8_t *stored, uint64_t bytes, char *text, size_t text_bytes);
/* Drop all rows. No cut may be running; the next one must be of every row. */
void ps_table_clear(struct ps_table *t);
/* Frees a little of a table that is no longer used: PS_TABLE_SLICE_PIECES pieces of memory at
 * most, and one huge page (ps/memory/huge_pages.h) at most unless a piece is larger. True when there is
 * more; only this and ps_table_destroy() may be called from now on. */
#define PS_TABLE_SLICE_PIECES 64u
bool ps_table_destroy_some(struct ps_table *t);

#endif
