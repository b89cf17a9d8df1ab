/* Sets of applied batches of one stream, as cores report them: all sequence numbers below a watermark, and
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

/* Intersects `sets` (count >= 1), with the highest possible watermark and no empty words at the end. The
 * caller frees out->bitmap with free(). False when memory is short. */
bool mrc_applied_by_all(const struct mrc_applied_batches *sets, uint32_t count,
                        struct mrc_applied_batches *out);

#endif
