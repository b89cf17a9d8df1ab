/* One table's keys, bags and gradients in the requests of a call: as the caller gave them, or split by
 * owner. */
#ifndef MRC_ROWS_REQUEST_H
#define MRC_ROWS_REQUEST_H

#include "trainer_client/api/shard.h"
#include "trainer_client/call/future.h"

#define MRC_REQUEST_TENSORS_MAX 7u /* head, keys, offsets, gradients, scales, weights, divisors */

struct mrc_rows_request {
    uint32_t table;
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* NULL: no bags */
    uint32_t bag_count;
    const float *weights;   /* of keys in bags; NULL: none */
    uint32_t dim;           /* pushes */
    const float *gradients; /* pushes; NULL: lookup */
    enum mr_dtype dtype;    /* of gradients in messages */
    bool averages;          /* bags are divided by something, and the divisors are sent */
    uint32_t pooling;       /* enum mr_pooling; several owners */
    const float *divisors;  /* of bags that are parts of larger ones; NULL: of these bags */
};

/* Returns how many rows are looked up or learn: one for each key, or for each bag. */
static inline uint32_t mrc_request_rows(const struct mrc_rows_request *r)
{
    return r->offsets == NULL ? r->key_count : r->bag_count;
}
/* Returns enum mr_bag_flag of what is sent with the bags. */
uint32_t mrc_request_flags(const struct mrc_rows_request *r);
/* Returns how many tensors it makes in a part. */
uint32_t mrc_request_tensors(const struct mrc_rows_request *r, bool has_head);

/* Appends the tensors to part i's request. head: NULL: none, and there are offsets only if there are bags; it
 * stays until the call is sent. share NULL: all of the caller's, which are the tensors' sources; otherwise
 * room for this share. Gradients of another type than f32 are room in any case. */
void mrc_request_add(const struct mrc_rows_request *r, struct mr_future *f, uint32_t i,
                     const struct mr_push_head *head, const struct mrc_share *share);
/* Sets where the tensors are, from the first of them on, after the request was begun. */
void mrc_request_find(const struct mrc_rows_request *r, const struct mr_tensor *tensors, bool has_head,
                      struct mrc_share *out);
/* Fills the shares of all owners that have keys; where they are was found. */
void mrc_request_fill(const struct mrc_rows_request *r, struct mrc_shard *shard);

/* Returns the length of a copy of keys, offsets and weights, a multiple of 8. */
size_t mrc_request_copy_bytes(const struct mrc_rows_request *r);
/* Copies them there, aligned to 8, and refers to the copy from now on. */
void mrc_request_copy(struct mrc_rows_request *r, void *memory);

#endif
