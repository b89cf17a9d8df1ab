/* Blocks of samples as a program writes them. Sample n has the label n % 2, dense values n and -n, and a key
 * in each of its slots: n in slot 0, and in slot 1 two, n + 1000 and n + 2000; key k has the weight k / 2. */
#ifndef TESTS_BLOCK_BYTES_H
#define TESTS_BLOCK_BYTES_H

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/format/sample_block.h"

#define BLOCK_BYTES_MAX 65536u

struct block_bytes {
    uint8_t bytes[BLOCK_BYTES_MAX] __attribute__((aligned(8)));
    size_t used;
};

static inline void block_put(struct block_bytes *b, const void *what, size_t bytes)
{
    assert(b->used + bytes <= sizeof(b->bytes));
    memcpy(b->bytes + b->used, what, bytes);
    b->used += bytes;
}

/* flags: of enum hub_block_flags. */
static inline void block_put_flagged(struct block_bytes *b, uint32_t first, uint32_t count, uint32_t flags)
{
    const bool has_weights = (flags & HUB_BLOCK_WEIGHTS) != 0;
    const bool has_labels = (flags & HUB_BLOCK_NO_LABELS) == 0;
    const struct hub_block_head head = {.magic = HUB_BLOCK_MAGIC,
                                        .flags = flags,
                                        .samples = count,
                                        .slots = 2,
                                        .dense = 2,
                                        .keys = 3 * count};
    block_put(b, &head, sizeof(head));
    for (uint64_t n = first; n < first + count; n++)
        block_put(b, (const uint64_t[]){n, n + 1000, n + 2000}, 3 * sizeof(uint64_t));
    for (uint32_t n = first; has_labels && n < first + count; n++)
        block_put(b, &(const float){(float)(n % 2)}, sizeof(float));
    for (uint32_t n = first; n < first + count; n++)
        block_put(b, (const float[]){(float)n, -(float)n}, 2 * sizeof(float));
    block_put(b, &(const uint32_t){0}, sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++)
        block_put(b, (const uint32_t[]){3 * i + 1, 3 * i + 3}, 2 * sizeof(uint32_t));
    for (uint32_t n = first; has_weights && n < first + count; n++)
        block_put(b, (const float[]){(float)n / 2, (float)(n + 1000) / 2, (float)(n + 2000) / 2},
                  3 * sizeof(float));
}

static inline void block_put_samples(struct block_bytes *b, uint32_t first, uint32_t count, bool has_weights)
{
    block_put_flagged(b, first, count, has_weights ? HUB_BLOCK_WEIGHTS : 0);
}

static inline void block_put_end(struct block_bytes *b)
{
    const struct hub_block_head head = {.magic = HUB_BLOCK_MAGIC, .flags = HUB_BLOCK_END};
    block_put(b, &head, sizeof(head));
}

#endif
