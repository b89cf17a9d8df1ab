/* Which batches this core has learnt: per stream its plan, a watermark, below which all are, and a bitmap
 * after it.
 *
 * Sequence numbers may come in any order within PS_LEARNT_WINDOW of the oldest one missing. PS_STREAMS_KEPT
 * streams are kept: a new one takes the place of the one not used for longest. Belongs to one thread.
 */
#ifndef PS_LEARNT_H
#define PS_LEARNT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"
#include "ps/memory/arena.h"

#define PS_STREAMS_MAX   MR_STREAMS_MAX
#define PS_STREAMS_KEPT  8192u      /* a plan an hour for most of a year */
#define PS_LEARNT_WINDOW (1u << 20) /* batches between the oldest missing one and the newest learnt one */

struct ps_learnt;

/* NULL when the arena has no room. */
struct ps_learnt *ps_learnt_create(struct ps_arena *arena);
void ps_learnt_destroy(struct ps_learnt *l);
void ps_learnt_clear(struct ps_learnt *l);

/* The stream is this plan's from now on, and has been used. MR_ALREADY_STARTED: it is another's;
 * MR_OUT_OF_MEMORY. */
enum mr_status ps_learnt_claim(struct ps_learnt *l, uint32_t stream, const struct mr_plan *plan);
/* NULL: never seen, or forgotten. */
const struct mr_plan *ps_learnt_plan(const struct ps_learnt *l, uint32_t stream);
/* It is as if never seen. */
void ps_learnt_forget(struct ps_learnt *l, uint32_t stream);
/* When a batch or a claim came last, counted in claims and streams made on this core: of two streams the
 * higher was used later. */
uint64_t ps_learnt_used(const struct ps_learnt *l, uint32_t stream);
/* Streams there are, and those that had to make room since the start. */
uint32_t ps_learnt_streams(const struct ps_learnt *l);
uint64_t ps_learnt_dropped(const struct ps_learnt *l);

bool ps_learnt_has(const struct ps_learnt *l, uint64_t batch_id);
/* Makes room, so that adding this batch cannot fail. MR_OUT_OF_MEMORY; MR_INVALID_ARGUMENT when it is further
 * than PS_LEARNT_WINDOW ahead of the oldest one missing. */
enum mr_status ps_learnt_reserve(struct ps_learnt *l, uint64_t batch_id);
void ps_learnt_add(struct ps_learnt *l, uint64_t batch_id);

/* How often a batch of the stream was added. Equal to the number of batches learnt as long as none was added
 * twice: the record's check on itself. */
uint64_t ps_learnt_added(const struct ps_learnt *l, uint32_t stream);
/* Batches learnt, each counted once. */
uint64_t ps_learnt_count(const struct ps_learnt *l, uint32_t stream);

/* All sequence numbers below the watermark are learnt; 0 for a stream never seen. */
uint64_t ps_learnt_watermark(const struct ps_learnt *l, uint32_t stream);
/* Words that ps_learnt_bitmap() writes: up to the last bit set. */
uint32_t ps_learnt_bitmap_words(const struct ps_learnt *l, uint32_t stream);
/* Bit i of the words: watermark + i is learnt. */
void ps_learnt_bitmap(const struct ps_learnt *l, uint32_t stream, uint64_t *words);
/* Set a stream to a stored state, of a plan that is not known; what it held before is forgotten. Same errors
 * as reserve. */
enum mr_status ps_learnt_load(struct ps_learnt *l, uint32_t stream, uint64_t watermark, const uint64_t *words,
                              uint32_t word_count, uint64_t added);
/* The stored plan and use of a stream; nothing when the stream is not there. */
void ps_learnt_load_plan(struct ps_learnt *l, uint32_t stream, const struct mr_plan *plan, uint64_t used);
/* The next stream from `stream` on that is known, or PS_STREAMS_MAX. */
uint32_t ps_learnt_next_stream(const struct ps_learnt *l, uint32_t stream);

#endif
