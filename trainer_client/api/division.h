/* Divides one table's rows into parts of bounded size, for calls that are larger than a message. Pure: no
 * client, no lock. Any thread.
 *
 * A lookup is divided in its order, and bags stay whole, so that answers follow each other and a bag has the
 * bits that it has in one call. A push is divided by key: all gradients of a key are in one part, in their
 * order, so that the optimizer runs once for it. A bag is then in each part that has keys of it, shortened to
 * those, with its gradient and the divisor of the whole bag, as among several owners (shard.h). */
#ifndef MRC_DIVISION_H
#define MRC_DIVISION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "trainer_client/api/rows_request.h"

struct mrc_division {
    const struct mrc_rows_request *of;
    uint32_t part_count; /* 1 or more */
    /* [part_count + 1]; part i has the rows (lookups), or the keys by `order` (pushes), from first[i] up to,
     * but not including, first[i + 1] */
    uint32_t *first;
    uint32_t *order;        /* [key_count] of pushes: which key; NULL: one part, as it is */
    uint32_t *bags;         /* [part_count] of pushes of bags: how many of them have keys in the part */
    uint64_t largest_bytes; /* of a part; more than was asked for where one bag or the gradients of a few keys
                             * are so large */
    uint64_t key_bytes, row_bytes; /* of each key, and of each row beside its keys, in messages */
    void *memory;                  /* holds the arrays */
};

/* Returns about how many bytes the rows take in messages, requests or replies, whichever are longer. floats:
 * of a row. */
uint64_t mrc_division_bytes(const struct mrc_rows_request *r, uint32_t floats);
/* Divides `r`, which stays as long as the division, into parts of at most that many bytes. False: no memory.
 * On success d->memory is to be freed by the caller with free(). Pushes of bags: r->pooling is set. */
bool mrc_divide(struct mrc_division *d, const struct mrc_rows_request *r, uint32_t floats,
                uint64_t part_bytes);
/* Returns about how many bytes part i takes in messages. */
uint64_t mrc_division_part_bytes(const struct mrc_division *d, uint32_t i);
/* Returns how much room part i needs beside what the caller gave, a multiple of 8. */
size_t mrc_division_room_bytes(const struct mrc_division *d, uint32_t i);
/* Makes part i a request of its own, in part of what the caller gave and in part in `room`, aligned to 8. */
void mrc_division_part(const struct mrc_division *d, uint32_t i, void *room, struct mrc_rows_request *out);

#endif
