/* Splitting keys and bags by the core that owns them, and putting the cores' answers together in the caller's order.
 * Pure: no client, no lock. Any thread. */
#ifndef MRC_SHARD_H
#define MRC_SHARD_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/mr_feature.h"
#include "dataplane/wire/packet.h"

struct mrc_shard {
    uint32_t key_count;
    uint32_t keys[MR_CORE_MAX]; /* how many each core owns */
    uint32_t bags[MR_CORE_MAX]; /* non-empty bags of each core; after mrc_shard_bags() */
    uint8_t *core_of;           /* [key_count] */
    uint32_t *bag_of;           /* core after core: which of the caller's bags its j-th bag is part of */
    float *weight;              /* beside bag_of: its share in that bag, see mrc_shard_split_bags() */
    void *memory;               /* holds these three */
};

/* Finds the owner of each key. `with_bags` reserves what the bag functions need. False when memory is short. On success
 * s->memory is to be freed by the caller with free(). */
bool mrc_shard_keys(struct mrc_shard *s, const uint8_t partition_core[MR_PARTITION_COUNT], uint64_t seed,
                    const uint64_t *keys, uint32_t key_count, bool with_bags);

/* ---- keys: out[core] has room for s->keys[core], in the order of the caller's ---- */
void mrc_shard_split_keys(const struct mrc_shard *s, const uint64_t *keys, uint64_t *const out[]);
void mrc_shard_split_rows(const struct mrc_shard *s, const float *rows, uint32_t dim, float *const out[]);
void mrc_shard_join_rows(const struct mrc_shard *s, const float *const in[], uint32_t dim, float *out);

/* ---- bags: a core gets those that it owns a key of, shortened to its keys ---- */

/* Counts s->bags[]. offsets: [bag_count + 1] from 0 to key_count, non-decreasing. */
void mrc_shard_bags(struct mrc_shard *s, const uint32_t *offsets, uint32_t bag_count);
/* keys_out[core]: s->keys[core]; offsets_out[core]: s->bags[core] + 1. Fills bag_of and weight. A core reduces what it has
 * of a bag on its own; weight makes that the core's share in the whole: 1 for sums, its keys / all keys of the bag for means,
 * the root of that for sqrtn. The same factor turns the bag's gradient into the one to send to the core. */
void mrc_shard_split_bags(struct mrc_shard *s, uint32_t pooling, const uint64_t *keys,
                          const uint32_t *offsets, uint32_t bag_count, uint64_t *const keys_out[],
                          uint32_t *const offsets_out[]);
/* out: [s->bags[core], dim] = the weighted rows of the core's bags. */
void mrc_shard_split_bag_rows(const struct mrc_shard *s, uint32_t core, const float *rows, uint32_t dim,
                              float *out);
/* Add a core's reduced bags to the caller's: out is [bag_count, dim]. */
void mrc_shard_add_bag_rows(const struct mrc_shard *s, uint32_t core, const float *rows, uint32_t dim,
                            float *out);

/* All bags for every core, empty ones too: offsets_out[core] has bag_count + 1. */
void mrc_shard_split_csr(const struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                         uint32_t bag_count, uint64_t *const keys_out[], uint32_t *const offsets_out[],
                         uint32_t core_count);

#endif
