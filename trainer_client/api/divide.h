/* Divides what a call is about, the rows of a table or the elements of a variable, into shares. Pure: no
 * client, no lock. Any thread.
 *
 * There are two limits:
 *   owner  A request goes to one core. Keys are divided by the shard map and the table's hash, elements by
 *          the owners of their ranges.
 *   bytes  A message holds so much. A lookup is divided in its order, between rows, so that answers follow
 *          each other and a bag has the bits that it has in one call. A push is divided by key, as among
 *          owners, by a map that is made for this limit: the optimizer runs once for each key.
 *
 * A call that is larger than a message is divided by bytes first. Each share is a call of its own, with its
 * own push number, and is divided by owner whenever it is made or made again (large_call.h, rows_call.h): a
 * retry keeps the number, whoever owns the keys by then, so that no share is applied twice.
 *
 * Order: a share has its keys, and the gradients of each key, in the caller's order. Where a push, or a
 * lookup among owners, has bags, a share has those that it has a key of, shortened to its keys, each with
 * the gradient and the divisor of the whole bag: a row gets the bits that it gets undivided. Rows come back
 * to where their keys were; sums of bags are added up in the order of the shares.
 *
 * The caller's arrays are only read, and stay as long as the division. What is found about them is in
 * `memory`, which the caller frees. Arrays of shares are the caller's (requests, answers), who sets them. */
#ifndef MRC_DIVIDE_H
#define MRC_DIVIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/packet.h"
#include "dataplane/wire/format/ranges.h"
#include "trainer_client/api/rows.h"

/* ---- rows of a table ---- */

/* Rows that are looked up, or learn. */
struct mrc_rows_request {
    uint32_t table;
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* [bag_count + 1] from 0 to key_count, non-decreasing; NULL: no bags */
    uint32_t bag_count;
    const float *weights;      /* of keys in bags; NULL: none */
    uint32_t dim;              /* pushes */
    struct mrc_rows gradients; /* pushes, of keys or bags; values NULL: lookup */
    enum mr_dtype dtype;       /* of rows in messages */
    bool averages;             /* bags are divided by something, and the divisors are sent */
    bool keeps_bags;  /* all shares get all bags, as they are or without keys: what cores answer adds up */
    uint32_t pooling; /* enum mr_pooling; where bags are divided */
    const float *divisors; /* of bags that are shares of larger ones; NULL: of these bags */
};

/* Returns how many rows are looked up or learn: one for each key, or for each bag. */
static inline uint32_t mrc_request_rows(const struct mrc_rows_request *r)
{
    return r->offsets == NULL ? r->key_count : r->bag_count;
}

struct mrc_share {
    uint32_t key_count, bag_count;
    /* where the share is put together, or its answer is */
    uint64_t *keys;       /* [key_count] */
    uint32_t *offsets;    /* [bag_count + 1] */
    float *weights;       /* [key_count] */
    float *divisors;      /* [bag_count] */
    struct mrc_rows rows; /* of its keys or bags */
    /* the functions' own */
    uint32_t first_key, first_bag; /* among those of all shares, one share after the other */
    uint32_t next_key, next_bag;
};

/* Returns how many of the request's rows a share of it has. */
static inline uint32_t mrc_share_rows(const struct mrc_rows_request *r, const struct mrc_share *share)
{
    return r->offsets == NULL ? share->key_count : share->bag_count;
}

struct mrc_division {
    const struct mrc_rows_request *of;
    uint32_t share_count;
    struct mrc_share *shares; /* [share_count] */
    uint16_t *share_of;       /* [key_count]; NULL: shares follow each other */
    uint32_t *bag_of; /* for one share after the other: which of the caller's bags its j-th bag is of */
    uint32_t *order;  /* [key_count], by bytes: which of the caller's keys; NULL: not listed */
    void *memory;     /* holds the arrays */
    /* by bytes */
    uint64_t
        largest_bytes; /* of a share; more than the limit where a bag or the gradients of a few keys are */
    uint64_t key_bytes, row_bytes; /* of each key, and of each row beside its keys, in messages */
};

#define MRC_SEVERAL_OWNERS UINT32_MAX

/* By owner. Finds the owner of each key, and counts keys and bags, in memory of mrc_division_bytes(), aligned
 * to 8. Returns the owner that has all keys, 0 if there are none, or MRC_SEVERAL_OWNERS. */
uint32_t mrc_divide_by_owner(struct mrc_division *d, const struct mrc_rows_request *r,
                             const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count, uint64_t seed,
                             void *memory);
/* Returns how much memory that takes, a multiple of 8. */
size_t mrc_division_bytes(const struct mrc_rows_request *r, uint32_t owner_count);
/* Copies keys, offsets, weights, gradients and divisors into the arrays of all shares that have keys, and
 * where `keeps_bags` of all. */
void mrc_division_fill(struct mrc_division *d);
/* Joins the rows of all shares to `out`, [rows, dim], in the caller's order. scratch: [dim]. */
void mrc_division_join(struct mrc_division *d, uint32_t dim, float *scratch, float *out);

/* By bytes, into shares of at most bytes_max, requests or answers. floats: of a row. Pushes of bags:
 * `pooling` is set. False: no memory. */
bool mrc_divide_by_bytes(struct mrc_division *d, const struct mrc_rows_request *r, uint32_t floats,
                         uint64_t bytes_max);
/* Returns about how many bytes the rows take in messages, requests or replies, whichever are longer. */
uint64_t mrc_rows_bytes(const struct mrc_rows_request *r, uint32_t floats);
/* The same of a share. */
uint64_t mrc_share_bytes(const struct mrc_division *d, uint32_t i);
/* Makes share i a request, of what the caller gave and what is put together in `room`, aligned to 8, of
 * mrc_share_room_bytes(), a multiple of 8. */
void mrc_share_request(const struct mrc_division *d, uint32_t i, void *room, struct mrc_rows_request *out);
size_t mrc_share_room_bytes(const struct mrc_division *d, uint32_t i);

/* ---- pieces of a variable (dataplane/wire/format/ranges.h), by owner ---- */

struct mrc_piece_share {
    uint16_t owner;
    uint32_t word_count; /* of its pieces */
    uint64_t *words;
    uint64_t elements;
    float *values; /* [elements]; set before the functions that move values */
    uint64_t next; /* the functions' own */
};

struct mrc_pieces {
    struct mr_feature variable;
    uint64_t *words; /* that were divided */
    uint32_t word_count;
    uint64_t elements;
    uint32_t share_count;
    struct mrc_piece_share *shares; /* by owner; none is empty */
    uint16_t *share_of;             /* of each run */
    void *memory;                   /* holds the arrays */
};

/* Divides pieces that rise, lie inside the variable and are not empty. Adjoining ranges of one owner become
 * one piece. False: no memory. */
bool mrc_divide_pieces(struct mrc_pieces *p, const struct mr_feature *variable,
                       const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count, const uint64_t *words,
                       uint32_t word_count);
/* Copies the values of all pieces to the shares, or from them. */
void mrc_pieces_fill(struct mrc_pieces *p, const float *values);
void mrc_pieces_join(struct mrc_pieces *p, float *values);

#endif
