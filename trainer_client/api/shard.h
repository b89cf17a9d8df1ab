/* Splits keys and bags by the owners of their partitions, and joins the owners' answers in the caller's
 * order. Pure: no client, no lock. Any thread. */
#ifndef MRC_SHARD_H
#define MRC_SHARD_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/packet.h"
#include "trainer_client/api/rows.h"

/* What one owner gets of a call. */
struct mrc_share {
    uint32_t key_count;
    uint32_t bag_count; /* non-empty ones; after mrc_shard_bags() */
    /* Where its part is, or goes, in the order of the caller's; set before the functions that need it. */
    uint64_t *keys;       /* [key_count] */
    uint32_t *offsets;    /* [bag_count + 1] */
    float *weights;       /* [key_count] */
    float *divisors;      /* [bag_count] */
    struct mrc_rows rows; /* gradients or answers, of keys or bags */
    /* the functions' own */
    uint32_t next_key, next_bag, first_bag;
};

struct mrc_shard {
    uint32_t key_count, owner_count;
    struct mrc_share *shares; /* [owner_count] */
    uint16_t *owner_of;       /* [key_count] */
    uint32_t
        *bag_of;  /* for one owner after the other: which of the caller's bags its j-th bag is a part of */
    void *memory; /* holds the arrays */
};

/* Finds the owner of each key, below owner_count. `with_bags` reserves what the bag functions need. False
 * when memory is short. On success s->memory is to be freed by the caller with free(). */
bool mrc_shard_keys(struct mrc_shard *s, const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count,
                    uint64_t seed, const uint64_t *keys, uint32_t key_count, bool with_bags);
/* Does the same in memory of the caller's, of mrc_shard_bytes(), aligned to 8. */
void mrc_shard_keys_in(void *memory, struct mrc_shard *s, const uint16_t owners[MR_PARTITION_COUNT],
                       uint32_t owner_count, uint64_t seed, const uint64_t *keys, uint32_t key_count,
                       bool with_bags);
/* Returns how much that is, a multiple of 8. */
size_t mrc_shard_bytes(uint32_t owner_count, uint32_t key_count, bool with_bags);
/* Returns how many owners have keys; *last is the last of them. */
uint32_t mrc_shard_owners(const struct mrc_shard *s, uint32_t *last);

/* ---- keys ---- */
void mrc_shard_split_keys(struct mrc_shard *s, const uint64_t *keys);
void mrc_shard_split_weights(struct mrc_shard *s, const float *weights);
void mrc_shard_split_rows(struct mrc_shard *s, const struct mrc_rows *rows, uint32_t dim);
void mrc_shard_join_rows(struct mrc_shard *s, uint32_t dim, float *out);

/* ---- bags: an owner gets those that it owns a key of, shortened to its keys. It divides its share of a bag,
 * and the gradients of its keys, by the whole bag's divisor, so that shares add up, and a key gets the same
 * bits as if one owner had it all ---- */

/* Counts each share's bags. offsets: [bag_count + 1] from 0 to key_count, non-decreasing. */
void mrc_shard_bags(struct mrc_shard *s, const uint32_t *offsets, uint32_t bag_count);
/* Splits keys and offsets by bags, and fills bag_of. */
void mrc_shard_split_bags(struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                          uint32_t bag_count);
/* Sets out[bag_count of the share] to the divisors of the whole bags. weights: of all keys, or NULL. */
void mrc_shard_divisors(const struct mrc_shard *s, uint32_t owner, uint32_t pooling, const float *weights,
                        const uint32_t *offsets, float *out);
/* Does the same for all bags of a call. */
void mrc_divisors(uint32_t pooling, const float *weights, const uint32_t *offsets, uint32_t bag_count,
                  float *out);
/* Sets out[bag_count of the share] to the values of the owner's bags. */
void mrc_shard_split_bag_floats(const struct mrc_shard *s, uint32_t owner, const float *values, float *out);
/* Sets the rows of the share, [its bag_count, dim], to those of the owner's bags. */
void mrc_shard_split_bag_rows(const struct mrc_shard *s, uint32_t owner, const struct mrc_rows *rows,
                              uint32_t dim);
/* Adds an owner's reduced bags to the caller's: out is [bag_count, dim], scratch [dim]. */
void mrc_shard_add_bag_rows(const struct mrc_shard *s, uint32_t owner, uint32_t dim, float *scratch,
                            float *out);

/* Splits all bags for every owner, including empty ones: each share's offsets are [bag_count + 1]. */
void mrc_shard_split_csr(struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                         uint32_t bag_count);

#endif
