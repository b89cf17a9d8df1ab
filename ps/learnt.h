/* Which batches this core has learnt: per stream a watermark, below which all are, and a bitmap behind it.
 *
 * Sequence numbers may come in any order within PS_LEARNT_WINDOW of the oldest one missing. Belongs to one thread.
 */
#ifndef PS_LEARNT_H
#define PS_LEARNT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/mr_status.h"
#include "ps/arena.h"

#define PS_STREAMS_MAX   65536u     /* a stream number has 16 bits */
#define PS_LEARNT_WINDOW (1u << 20) /* batches between the oldest missing one and the newest learnt one */

struct ps_learnt;

/* NULL when the arena has no room. */
struct ps_learnt *ps_learnt_create(struct ps_arena *arena);
void ps_learnt_destroy(struct ps_learnt *l);
void ps_learnt_clear(struct ps_learnt *l);

bool ps_learnt_has(const struct ps_learnt *l, uint64_t batch_id);
/* Makes room, so that adding this batch cannot fail. MR_OUT_OF_MEMORY; MR_INVALID_ARGUMENT when it is further than
 * PS_LEARNT_WINDOW ahead of the oldest one missing. */
enum mr_status ps_learnt_reserve(struct ps_learnt *l, uint64_t batch_id);
void ps_learnt_add(struct ps_learnt *l, uint64_t batch_id);

/* How often a batch of the stream was added. Equal to the number of batches learnt as long as none was added twice: the
 * record's check on itself. */
uint64_t ps_learnt_added(const struct ps_learnt *l, uint32_t stream);

/* All sequence numbers below the watermark are learnt; 0 for a stream never seen. */
uint64_t ps_learnt_watermark(const struct ps_learnt *l, uint32_t stream);
/* Words that ps_learnt_bitmap() writes: up to the last bit set. */
uint32_t ps_learnt_bitmap_words(const struct ps_learnt *l, uint32_t stream);
/* Bit i of the words: watermark + i is learnt. */
void ps_learnt_bitmap(const struct ps_learnt *l, uint32_t stream, uint64_t *words);
/* Set a stream to a stored state; what it held before is forgotten. Same errors as reserve. */
enum mr_status ps_learnt_load(struct ps_learnt *l, uint32_t stream, uint64_t watermark, const uint64_t *words,
                              uint32_t word_count, uint64_t added);
/* The next stream from `stream` on that is known, or PS_STREAMS_MAX. */
uint32_t ps_learnt_next_stream(const struct ps_learnt *l, uint32_t stream);

#endif
