/* Splits pieces of a variable (dataplane/wire/format/ranges.h) by the owners of its ranges, and moves
 * values between the caller's order and the owners' shares. Pure: no client, no lock. Any thread. */
#ifndef MRC_PIECES_H
#define MRC_PIECES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/ranges.h"

/* What one owner gets. */
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
    uint64_t *words; /* that were split */
    uint32_t word_count;
    uint64_t elements;
    uint32_t share_count;
    struct mrc_piece_share *shares; /* by owner; none is empty */
    uint16_t *share_of;             /* of each run */
    void *memory;                   /* holds the arrays */
};

/* Splits pieces that rise, lie inside the variable and are not empty. Adjoining ranges of one owner become
 * one piece. False when memory is short. On success p->memory is to be freed by the caller with free(). */
bool mrc_pieces_split(struct mrc_pieces *p, const struct mr_feature *variable,
                      const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count, const uint64_t *words,
                      uint32_t word_count);
/* Copies the values of all pieces to the shares, or from them. */
void mrc_pieces_deal(struct mrc_pieces *p, const float *values);
void mrc_pieces_collect(struct mrc_pieces *p, float *values);

#endif
