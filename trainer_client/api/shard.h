/* Splits keys and bags by the core that owns them, and joins the cores' answers in the caller's order. Pure:
 * no client, no lock. Any thread. */
#ifndef MRC_SHARD_H
#define MRC_SHARD_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/packet.h"
#include "trainer_client/api/rows.h"

struct mrc_shard {
    uint32_t key_count;
    uint32_t keys[MR_CORE_MAX]; /* how many each core owns */
    uint32_t bags[MR_CORE_MAX]; /* non-empty bags of each core; after mrc_shard_bags() */
    uint8_t *core_of;           /* [key_count] */
    uint32_t *bag_of; /* for one core after the other: which of the caller's bags its j-th bag is a part of */
    void *memory;     /* holds core_of and bag_of */
};

/* Finds the owner of each key. `with_bags` reserves what the bag functions need. False when memory is short.
 * On success s->memory is to be freed by the caller with free(). */
bool mrc_shard_keys(struct mrc_shard *s, const uint8_t partition_core[MR_PARTITION_COUNT], uint64_t seed,
                    const uint64_t *keys, uint32_t key_count, bool with_bags);

/* ---- keys: out[core] has room for s->keys[core], in the order of the caller's ---- */
void mrc_shard_split_keys(const struct mrc_shard *s, const uint64_t *keys, uint64_t *const out[]);
void mrc_shard_split_floats(const struct mrc_shard *s, const float *values, float *const out[]);
void mrc_shard_split_rows(const struct mrc_shard *s, const struct mrc_rows *rows, uint32_t dim,
                          const struct mrc_rows out[]);
void mrc_shard_join_rows(const struct mrc_shard *s, const struct mrc_rows in[], uint32_t dim, float *out);

/* ---- bags: a core gets those that it owns a key of, shortened to its keys. It divides its share of a bag,
 * and the gradients of its keys, by the whole bag's divisor, so that shares add up, and a key gets the same
 * bits as if one core had it all ---- */

/* Counts s->bags[]. offsets: [bag_count + 1] from 0 to key_count, non-decreasing. */
void mrc_shard_bags(struct mrc_shard *s, const uint32_t *offsets, uint32_t bag_count);
/* Splits bags, and fills bag_of. keys_out[core] has room for s->keys[core], offsets_out[core] for
 * s->bags[core] + 1. */
void mrc_shard_split_bags(struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                          uint32_t bag_count, uint64_t *const keys_out[], uint32_t *const offsets_out[]);
/* Sets out[s->bags[core]] to the divisors of the whole bags. weights: of all keys, or NULL. */
void mrc_shard_divisors(const struct mrc_shard *s, uint32_t core, uint32_t pooling, const float *weights,
                        const uint32_t *offsets, float *out);
/* Does the same for all bags of a call. */
void mrc_divisors(uint32_t pooling, const float *weights, const uint32_t *offsets, uint32_t bag_count,
                  float *out);
/* Sets out[s->bags[core]] to the values of the core's bags. */
void mrc_shard_split_bag_floats(const struct mrc_shard *s, uint32_t core, const float *values, float *out);
/* Sets out[s->bags[core], dim] to the rows of the core's bags. */
void mrc_shard_split_bag_rows(const struct mrc_shard *s, uint32_t core, const struct mrc_rows *rows,
                              uint32_t dim, const struct mrc_rows *out);
/* Adds a core's reduced bags to the caller's: out is [bag_count, dim], scratch [dim]. */
void mrc_shard_add_bag_rows(const struct mrc_shard *s, uint32_t core, const struct mrc_rows *rows,
                            uint32_t dim, float *scratch, float *out);

/* Splits all bags for every core, including empty ones: offsets_out[core] has bag_count + 1. */
void mrc_shard_split_csr(const struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                         uint32_t bag_count, uint64_t *const keys_out[], uint32_t *const offsets_out[],
                         uint32_t core_count);

#endif
