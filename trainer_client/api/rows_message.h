/* One table's rows in messages: keys, bags and gradients in requests, rows in answers. */
#ifndef MRC_ROWS_MESSAGE_H
#define MRC_ROWS_MESSAGE_H

#include "trainer_client/api/divide.h"
#include "trainer_client/call/call.h"

#define MRC_REQUEST_TENSORS_MAX 7u /* head, keys, offsets, gradients, scales, weights, divisors */

/* Returns enum mr_bag_flag of what is sent with the bags. */
uint32_t mrc_rows_flags(const struct mrc_rows_request *r);
/* Returns how many tensors the rows make in a request. */
uint32_t mrc_rows_tensors(const struct mrc_rows_request *r, bool has_head);
/* Appends the tensors to request i. head: NULL: none, and there are offsets only if there are bags; it
 * stays until the call is sent. share NULL: all of the caller's, which are the tensors' sources; otherwise
 * room for this share. Gradients of another type than f32 are room in any case. */
void mrc_rows_add(const struct mrc_rows_request *r, struct mr_future *f, uint32_t i,
                  const struct mr_push_head *head, const struct mrc_share *share);
/* Sets where the share's arrays are, from the first of the tensors on, after the request was begun. */
void mrc_rows_find(const struct mrc_rows_request *r, const struct mr_tensor *tensors, bool has_head,
                   struct mrc_share *out);

/* Reads rows of that type in request i's answer, from its tensor t on. Returns that one, which describes them
 * and has that rank; NULL when the answer is malformed. */
const struct mr_tensor *mrc_answer_rows(const struct mr_future *f, uint32_t i, uint32_t t,
                                        enum mr_dtype dtype, uint32_t rank, struct mrc_rows *out);
/* Return how many rows such a tensor has, and their length. */
static inline uint32_t mrc_row_dim(const struct mr_tensor *rows)
{
    return rows->dims[rows->rank - 1];
}
static inline uint32_t mrc_row_count(const struct mr_tensor *rows)
{
    uint32_t count = 1;
    for (uint32_t d = 0; d + 1 < rows->rank; d++)
        count *= rows->dims[d];
    return count;
}
/* Allocates room for f32 rows, to be freed with free(). NULL, reported by mrc_error(), when memory is
 * short. */
float *mrc_rows_allocate(uint64_t rows, uint32_t dim);

#endif
