/* Rows in the answers of cores. */
#ifndef MRC_ROWS_ANSWER_H
#define MRC_ROWS_ANSWER_H

#include "trainer_client/api/calls.h"
#include "trainer_client/api/rows.h"

/* Reads rows of that type in part i's answer, from its tensor t on. Returns that one, which describes them
 * and has that rank; NULL when the answer is malformed. */
const struct mr_tensor *mrc_part_rows(const struct mr_future *f, uint32_t i, uint32_t t, enum mr_dtype dtype,
                                      uint32_t rank, struct mrc_rows *out);
/* Return how many rows such a tensor has, and their length. */
uint32_t mrc_row_count(const struct mr_tensor *rows);
uint32_t mrc_row_dim(const struct mr_tensor *rows);
/* Allocates room for f32 rows, to be freed with free(). NULL, reported by mrc_error(), when memory is
 * short. */
float *mrc_rows_allocate(uint64_t rows, uint32_t dim);
/* Makes a reply of f32 rows with the shape of `like`; `values` are taken over. MR_NO_MEMORY: *reply is left
 * alone. */
enum mr_status mrc_rows_give(float *values, const struct mr_tensor *like, struct mr_reply **reply);

#endif
