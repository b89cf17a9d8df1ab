/* Batches that were fed and wait to be looked up and applied: keys, offsets and the lookup's result, by batch
 * id.
 *
 * Bounded in number and in bytes; entries are made at create, their memory comes from the core's arena and is
 * used again. A batch that nobody asks for during its time to live is dropped, and its id remembered for a
 * while, so that a late call gets an answer that says so. Belongs to one thread.
 */
#ifndef PS_BATCH_CACHE_H
#define PS_BATCH_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/memory/arena.h"

#define PS_EXPIRED_IDS_MAX 4096u /* expired batches remembered */

/* One table's part of a batch. Bag (sample, slot) is keys[offsets[sample * slots + slot] ..]. */
struct ps_batch_part {
    uint64_t *keys;    /* [key_count] */
    uint32_t *offsets; /* [samples * slots + 1] */
    /* [key_count], [samples * slots]; NULL where there are none. See dataplane/wire/format/bag.h */
    float *weights, *divisors;
    float *values; /* [samples, slots, dim], as looked up when the batch was fed */
    uint32_t feature;
    uint32_t samples, slots, dim;
    uint32_t key_count;
    bool looked_up, has_weights, has_divisors;
    bool is_single; /* each bag has one key */
};

struct ps_batch {
    uint64_t id;
    uint32_t epoch; /* of the map by which it was split; the caller sets it before it publishes the batch */
    bool read_only; /* dropped after its lookup */
    uint32_t part_count;
    struct ps_batch_part *parts;
    /* the cache's own */
    bool is_listed; /* found by its id */
    uint32_t pins;
    uint64_t expires_us;
    uint8_t *block;
    size_t block_bytes;
    uint32_t older, newer;
};

struct ps_batch_cache;

/* NULL when the arena has no room for `count_max` entries. secret: of the node, for the places of ids. */
struct ps_batch_cache *ps_batch_cache_create(struct ps_arena *arena, uint32_t count_max, size_t bytes_max,
                                             uint64_t ttl_us, uint64_t secret);
void ps_batch_cache_destroy(struct ps_batch_cache *c);

/* Room for a batch of parts with these shapes (feature .. key_count, has_weights and has_divisors are read),
 * whose arrays the caller fills in. MR_BATCH_CACHE_FULL; MR_TOO_LARGE when it would not even fit an empty
 * cache; MR_OUT_OF_MEMORY when the arena has no room although the cache is empty. The batch is not found, and
 * takes the place of no other of its id, before it is published: until then only ps_batch_remove() and
 * ps_batch_publish() may be given it. There is room for one such, or one pinned and removed, beside the
 * others. */
enum mr_status ps_batch_prepare(struct ps_batch_cache *c, uint64_t id, bool read_only,
                                const struct ps_batch_part *shapes, uint32_t part_count,
                                struct ps_batch **out);
void ps_batch_publish(struct ps_batch_cache *c, struct ps_batch *b, uint64_t now_us);
/* Keeps the batch's memory although it may be removed meanwhile: then it is no longer found, and is freed
 * with the last unpinning. */
void ps_batch_pin(struct ps_batch *b);
void ps_batch_unpin(struct ps_batch_cache *c, struct ps_batch *b);
/* NULL when there is none. */
struct ps_batch *ps_batch_find(const struct ps_batch_cache *c, uint64_t id);
/* The part that belongs to a table, or NULL. */
struct ps_batch_part *ps_batch_part_of(const struct ps_batch *b, uint32_t feature);
/* Its time to live starts again. */
void ps_batch_touch(struct ps_batch_cache *c, struct ps_batch *b, uint64_t now_us);
void ps_batch_remove(struct ps_batch_cache *c, struct ps_batch *b);
/* Drops up to `count_max` batches whose time is over; returns how many. */
uint32_t ps_batch_expire(struct ps_batch_cache *c, uint64_t now_us, uint32_t count_max);
/* Whether the id is among the PS_EXPIRED_IDS_MAX that expired last (and was not fed again since). */
bool ps_batch_expired(const struct ps_batch_cache *c, uint64_t id);
/* Drops and forgets everything. */
void ps_batch_cache_clear(struct ps_batch_cache *c); /* none may be pinned or prepared */

uint32_t ps_batch_cache_count(const struct ps_batch_cache *c);
/* Those of a stream. */
uint32_t ps_batch_cache_of_stream(const struct ps_batch_cache *c, uint32_t stream);
size_t ps_batch_cache_bytes(const struct ps_batch_cache *c);

#endif
