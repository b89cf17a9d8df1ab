#include "trainer_client/hub/format/sample_block.h"

#include <math.h>

#define LAST (HUB_BLOCK_END | HUB_BLOCK_FAILED)

const char *hub_block_check_head(const struct hub_block_head *head)
{
    if (head->magic != HUB_BLOCK_MAGIC || head->reserved[0] != 0 || head->reserved[1] != 0 ||
        (head->flags & ~(uint32_t)(HUB_BLOCK_WEIGHTS | LAST)) != 0)
        return "it does not begin as a block of samples does";
    if ((head->flags & LAST) != 0)
        return head->samples == 0 &&
                       head->keys <= ((head->flags & HUB_BLOCK_FAILED) != 0 ? HUB_BLOCK_REASON_MAX : 0)
                   ? NULL
                   : "the last block has samples";
    if (head->samples < 1 || head->samples > HUB_BLOCK_SAMPLES_MAX)
        return "the number of its samples is not in 1..65536";
    if (head->slots < 1 || head->slots > HUB_BLOCK_SLOTS_MAX)
        return "the number of its slots is not in 1..1024";
    if (head->dense > HUB_BLOCK_DENSE_MAX)
        return "the number of its dense values is not in 0..4096";
    if (head->keys > HUB_BLOCK_KEYS_MAX)
        return "it has more than 8388608 keys";
    return NULL;
}

size_t hub_block_body_bytes(const struct hub_block_head *head)
{
    if ((head->flags & LAST) != 0)
        return head->keys;
    size_t keys = head->keys, samples = head->samples;
    size_t words = samples * (1 + head->dense) + samples * head->slots + 1 +
                   ((head->flags & HUB_BLOCK_WEIGHTS) != 0 ? keys : 0);
    return keys * sizeof(uint64_t) + words * sizeof(uint32_t);
}

static const char *check_values(const struct hub_block *b)
{
    const size_t bags = (size_t)b->head->samples * b->head->slots;
    if (b->offsets[0] != 0 || b->offsets[bags] != b->head->keys)
        return "its offsets do not go from 0 to the number of its keys";
    for (size_t i = 0; i < bags; i++)
        if (b->offsets[i] > b->offsets[i + 1])
            return "its offsets do not rise";
    for (size_t i = 0; i < b->head->samples; i++)
        if (!isfinite(b->labels[i]))
            return "a label is not a finite number";
    return NULL;
}

const char *hub_block_open(const struct hub_block_head *head, const void *body, struct hub_block *block)
{
    const uint8_t *at = body;
    *block = (struct hub_block){.head = head, .keys = at};
    at += (size_t)head->keys * sizeof(uint64_t);
    block->labels = (const float *)(const void *)at;
    at += head->samples * sizeof(float);
    block->dense = (const float *)(const void *)at;
    at += (size_t)head->samples * head->dense * sizeof(float);
    block->offsets = (const uint32_t *)(const void *)at;
    at += ((size_t)head->samples * head->slots + 1) * sizeof(uint32_t);
    if ((head->flags & HUB_BLOCK_WEIGHTS) != 0)
        block->weights = (const float *)(const void *)at;
    return check_values(block);
}
