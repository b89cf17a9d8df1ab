/* How often keys without a row were seen: a counting Bloom filter in cache lines, for tables that admit a key
 * with its n-th observation.
 *
 * A key belongs to one line of 64 counters of 8 bits, and there to one counter of each quarter, so that an
 * observation costs one cache miss (blocked Bloom filter: Putze, Sanders, Singler, WEA 2007). Its count is
 * the smallest of the four; an observation raises only those that are that small (conservative update: Estan,
 * Varghese, SIGCOMM 2002). So a count is never too small. It is too large only if other keys share all four
 * counters, with d keys on a line with probability (1 - (15/16)^d)^4.
 *
 * Counters fade: an observation that finds more than half of its line's counters taken takes one off each of
 * them, as Lossy Counting does (Manku, Motwani, VLDB 2002), until half are free. So the error never exceeds
 * 1/16, however many keys come by. The price is that a key's observations are forgotten, one by one, when
 * more than about ten others on its line, which take half of the counters, came after them.
 *
 * A line belongs to a partition of the hashed key space, and follows from the hash alone: the same
 * observations give the same counts on any number of cores, and counters can move with their partitions.
 * Memory is taken per partition, with the first observation in it. Belongs to one thread.
 */
#ifndef PS_OCCURRENCE_FILTER_H
#define PS_OCCURRENCE_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "ps/base/partition_set.h"
#include "ps/memory/arena.h"

#define PS_OCCURRENCE_BYTES_DEFAULT ((uint64_t)16 << 20) /* of a node */
#define PS_OCCURRENCE_LINE_BYTES    64u
#define PS_OCCURRENCE_HASHES        4u

struct ps_occurrence_cut;

struct ps_occurrence_filter {
    struct ps_arena *arena;
    uint8_t **counters;  /* [MR_PARTITION_COUNT]: lines of a partition, NULL before the first observation */
    uint32_t line_count; /* of a partition */
    uint32_t wanted;     /* observations with which a key is admitted; counters stop there */
    size_t bytes;        /* taken from the arena */
    uint64_t fadings;    /* times that one was taken off a line's counters */
    uint64_t *changed;   /* a bit per piece, set since the last cut began; NULL: not kept */
    struct ps_occurrence_cut *cut; /* NULL: none is running */
};

/* filter_bytes: of all partitions together, rounded up to whole lines (256 KiB); at most MR_FILTER_BYTES_MAX.
 * wanted: 1..MR_OBSERVATIONS_MAX. False when the arena has no room. */
bool ps_occurrence_init(struct ps_occurrence_filter *s, struct ps_arena *arena, uint64_t filter_bytes,
                        uint32_t wanted);
/* Sets all counters to zero and frees their memory. */
void ps_occurrence_clear(struct ps_occurrence_filter *s);
/* The same a little at a time: true when there is more. Until it is done, nothing else may be called but
 * ps_occurrence_clear(). */
bool ps_occurrence_clear_some(struct ps_occurrence_filter *s, struct ps_arena_slice *slice);
/* Frees everything. A filter of zeros, never initialised, is fine. */
void ps_occurrence_fini(struct ps_occurrence_filter *s);

enum ps_occurrence {
    PS_OCCURRENCE_WANTED, /* the last that was wanted, or more */
    PS_OCCURRENCE_COUNTED,
    PS_OCCURRENCE_LOST, /* no memory to count it */
};
/* Result of an observation that there is no memory to count: the first one is known without a counter. */
static inline enum ps_occurrence ps_occurrence_not_counted(const struct ps_occurrence_filter *s)
{
    return s->wanted == 1 ? PS_OCCURRENCE_WANTED : PS_OCCURRENCE_LOST;
}
/* A key with this hash was seen. */
enum ps_occurrence ps_occurrence_add(struct ps_occurrence_filter *s, uint64_t hash);
/* Observations counted: never too few, but for those that faded; not above `wanted`. */
uint32_t ps_occurrence_count(const struct ps_occurrence_filter *s, uint64_t hash);
/* The first observation in this hash's partition would take ps_occurrence_partition_bytes(). */
static inline bool ps_occurrence_takes_memory(const struct ps_occurrence_filter *s, uint64_t hash)
{
    return s->counters[mr_partition_of(hash)] == NULL;
}
size_t ps_occurrence_partition_bytes(const struct ps_occurrence_filter *s);

/* ---- cuts, for checkpoints (ps/table/occurrence_filter_cut.c) ---- A partition is written in pieces of up
 * to PS_OCCURRENCE_PART_LINES lines. Between cut_begin and the end of the cut each piece is given out once,
 * as it was at cut_begin, while observations continue: a line that changes before its piece was taken is kept
 * aside first, up to PS_OCCURRENCE_ASIDE_MAX of them (1.2 MiB from the heap); beyond that observations are
 * lost. */
#define PS_OCCURRENCE_PART_LINES 64u
#define PS_OCCURRENCE_ASIDE_MAX  16384u

struct ps_occurrence_part {
    uint32_t partition, first_line, line_count;
};
/* From now on it is known what changes from one cut to the next. False when the arena has no room. */
bool ps_occurrence_keep_marks(struct ps_occurrence_filter *s);
void ps_occurrence_forget_marks(struct ps_occurrence_filter *s);
/* All that is not zero, or what changed since the last cut began. None may be running. False when memory is
 * short: nothing was begun then, and what changed is as it was. */
bool ps_occurrence_cut_begin(struct ps_occurrence_filter *s, bool changed_only);
/* Lines of pieces that are left. */
uint64_t ps_occurrence_cut_lines(const struct ps_occurrence_filter *s);
/* The next piece to be taken, the same until it is; false when there is none left, or no cut is running: it
 * is over. */
bool ps_occurrence_cut_next(struct ps_occurrence_filter *s, struct ps_occurrence_part *out);
void ps_occurrence_cut_take(struct ps_occurrence_filter *s, const struct ps_occurrence_part *piece,
                            uint8_t *counters);
/* Gives out nothing more. Fine when none is running. */
void ps_occurrence_cut_end(struct ps_occurrence_filter *s);
/* For copies (ps/table/table_copy.h), which use the marks for themselves. All pieces of a partition count as
 * changed. */
void ps_occurrence_mark_partition(struct ps_occurrence_filter *s, uint32_t partition);
/* Takes the mark off a piece of these partitions, the first that has one; false: none has. */
bool ps_occurrence_take_marked(struct ps_occurrence_filter *s, const struct ps_partition_set *partitions,
                               struct ps_occurrence_part *out);
/* Sets a partition's counters to zero, and frees them. No cut may be running. */
void ps_occurrence_drop(struct ps_occurrence_filter *s, uint32_t partition);
/* Before a line changes. False when there is no room to keep it aside: it must not change. */
bool ps_occurrence_before_change(struct ps_occurrence_filter *s, uint32_t partition, uint32_t line);
/* Puts counters back, of a filter of the same size and `wanted`, not as a change. The piece lies within it.
 * False when the arena has no room. */
bool ps_occurrence_load(struct ps_occurrence_filter *s, const struct ps_occurrence_part *piece,
                        const uint8_t *counters);

#endif
