/* Which batches this core has applied: per stream its plan, a watermark, below which all are, and a bitmap
 * after it.
 *
 * Sequence numbers may come in any order within PS_APPLIED_BATCHES_WINDOW of the oldest one missing.
 * PS_STREAMS_KEPT streams are kept: a new one takes the place of the one not used for longest, of those whose
 * last user has no session and that were not used for PS_PUSH_STREAM_KEPT_S, else of an older one of its own
 * maker. Where there is none, the new one waits: so no client can have another's batches applied twice. A
 * client makes no more than PS_STREAMS_PER_CLIENT, about, and a network no more than its share
 * (ps_push_guard.network_share), and then in the place of one of its own that is not used. Belongs to one
 * thread.
 */
#ifndef PS_APPLIED_BATCHES_H
#define PS_APPLIED_BATCHES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"
#include "ps/exactly_once/pushes.h"
#include "ps/memory/arena.h"

#define PS_STREAMS_MAX        MR_STREAMS_MAX
#define PS_STREAMS_KEPT       8192u /* a plan an hour for most of a year */
#define PS_STREAMS_PER_CLIENT 1024u
#define PS_APPLIED_BATCHES_WINDOW                                                                            \
    (1u << 20) /* batches between the oldest missing one and the newest applied one */

struct ps_applied_batches;

/* A client that claims a stream, or pushes a batch of it. */
struct ps_stream_user {
    const uint8_t *uuid; /* MR_UUID_BYTES */
    uint64_t network;    /* mr_address_network(); 0: not known */
};

/* NULL when the arena has no room. guard: copied; NULL: any stream may make room. */
struct ps_applied_batches *ps_applied_batches_create(struct ps_arena *arena,
                                                     const struct ps_push_guard *guard);
void ps_applied_batches_destroy(struct ps_applied_batches *a);
void ps_applied_batches_clear(struct ps_applied_batches *a);

/* The stream is this plan's from now on, and has been used by this client. MR_ALREADY_STARTED: it is
 * another's; MR_BUSY: it is new, and there is no room for it now; MR_OUT_OF_MEMORY. */
enum mr_status ps_applied_batches_claim(struct ps_applied_batches *a, uint32_t stream,
                                        const struct mr_plan *plan, const struct ps_stream_user *user);
/* NULL: never seen, or forgotten. */
const struct mr_plan *ps_applied_batches_plan(const struct ps_applied_batches *a, uint32_t stream);
/* It is as if never seen. */
void ps_applied_batches_forget(struct ps_applied_batches *a, uint32_t stream);
/* When a batch or a claim came last, counted in claims and streams made on this core: of two streams the
 * higher was used later. */
uint64_t ps_applied_batches_used(const struct ps_applied_batches *a, uint32_t stream);
/* Streams there are, and those that had to make room since the start. */
uint32_t ps_applied_batches_streams(const struct ps_applied_batches *a);
uint64_t ps_applied_batches_dropped(const struct ps_applied_batches *a);

bool ps_applied_batches_has(const struct ps_applied_batches *a, uint64_t batch_id);
/* Makes room, so that adding this batch, which this client pushes, cannot fail. MR_BUSY, as above;
 * MR_OUT_OF_MEMORY; MR_INVALID_ARGUMENT when it is further than PS_APPLIED_BATCHES_WINDOW ahead of the oldest
 * one missing. */
enum mr_status ps_applied_batches_reserve(struct ps_applied_batches *a, uint64_t batch_id,
                                          const struct ps_stream_user *user);
void ps_applied_batches_add(struct ps_applied_batches *a, uint64_t batch_id);

/* How often a batch of the stream was added. Equal to the number of batches applied as long as none was added
 * twice: the record's check on itself. */
uint64_t ps_applied_batches_added(const struct ps_applied_batches *a, uint32_t stream);
/* Batches applied, each counted once. */
uint64_t ps_applied_batches_count(const struct ps_applied_batches *a, uint32_t stream);

/* All sequence numbers below the watermark are applied; 0 for a stream never seen. */
uint64_t ps_applied_batches_watermark(const struct ps_applied_batches *a, uint32_t stream);
/* Words that ps_applied_batches_bitmap() writes: up to the last bit set. */
uint32_t ps_applied_batches_bitmap_words(const struct ps_applied_batches *a, uint32_t stream);
/* Bit i of the words: watermark + i is applied. */
void ps_applied_batches_bitmap(const struct ps_applied_batches *a, uint32_t stream, uint64_t *words);
/* Set a stream to a stored state, of a plan that is not known; what it held before is forgotten. Same errors
 * as reserve, and then nothing has changed. */
enum mr_status ps_applied_batches_load(struct ps_applied_batches *a, uint32_t stream, uint64_t watermark,
                                       const uint64_t *words, uint32_t word_count, uint64_t added);
/* The stored plan and use of a stream; nothing when the stream is not there. */
void ps_applied_batches_load_plan(struct ps_applied_batches *a, uint32_t stream, const struct mr_plan *plan,
                                  uint64_t used);
/* The next stream from `stream` on that is known, or PS_STREAMS_MAX. */
uint32_t ps_applied_batches_next_stream(const struct ps_applied_batches *a, uint32_t stream);

#endif
