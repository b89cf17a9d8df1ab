/* Sets of applied batches of one stream, as the cores tell them: all sequence numbers below a watermark, and
 * those above it whose bit is set. Pure. */
#ifndef MRC_APPLIED_BATCHES_H
#define MRC_APPLIED_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

struct mrc_applied_batches {
    uint64_t watermark;
    uint64_t *bitmap; /* bit i: watermark + i */
    uint32_t words;
};

/* What is in all of `sets` (count >= 1), with the watermark as high as it can be and no empty words at the
 * end. out->bitmap is to be freed by free(). False when memory is short. */
bool mrc_applied_by_all(const struct mrc_applied_batches *sets, uint32_t count,
                        struct mrc_applied_batches *out);

#endif
