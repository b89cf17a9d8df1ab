#include "trainer_client/hub/format/sample_block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAST (HUB_BLOCK_END | HUB_BLOCK_FAILED)

const char *hub_block_check_head(const struct hub_block_head *head)
{
    if (head->magic != HUB_BLOCK_MAGIC || head->reserved[0] != 0 || head->reserved[1] != 0 ||
        (head->flags & ~(uint32_t)(HUB_BLOCK_WEIGHTS | HUB_BLOCK_NO_LABELS | LAST)) != 0)
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
    size_t words = samples * head->dense + samples * head->slots + 1 +
                   ((head->flags & HUB_BLOCK_NO_LABELS) != 0 ? 0 : samples) +
                   ((head->flags & HUB_BLOCK_WEIGHTS) != 0 ? keys : 0);
    return keys * sizeof(uint64_t) + words * sizeof(uint32_t);
}

/* The first of the values that is NaN or infinite; `count`: none is. */
static size_t find_not_finite(const float *values, size_t count)
{
    const uint32_t exponent = 0x7f800000u;
    bool has_one = false;
    for (size_t i = 0; i < count; i++) { /* without a branch: blocks have millions of them */
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        has_one |= (bits & exponent) == exponent;
    }
    size_t i = has_one ? 0 : count;
    while (i < count && isfinite(values[i]))
        i++;
    return i;
}

static const char *check_numbers(struct hub_block *b)
{
    const struct hub_block_head *head = b->head;
    const size_t labels = b->labels != NULL ? head->samples : 0;
    const size_t dense = (size_t)head->samples * head->dense;
    size_t i = find_not_finite(b->labels, labels);
    if (i < labels) {
        snprintf(b->wrong, sizeof(b->wrong), "sample %zu: its label is %g", i, (double)b->labels[i]);
        return b->wrong;
    }
    i = find_not_finite(b->dense, dense);
    if (i < dense) {
        snprintf(b->wrong, sizeof(b->wrong), "sample %zu: dense value %zu is %g", i / head->dense,
                 i % head->dense, (double)b->dense[i]);
        return b->wrong;
    }
    if (b->weights == NULL)
        return NULL;
    i = find_not_finite(b->weights, head->keys);
    if (i == head->keys)
        return NULL;
    size_t bag = 0;
    while (b->offsets[bag + 1] <= i)
        bag++;
    snprintf(b->wrong, sizeof(b->wrong), "sample %zu, slot %zu: the weight of key %zu is %g",
             bag / head->slots, bag % head->slots, i - b->offsets[bag], (double)b->weights[i]);
    return b->wrong;
}

static const char *check_values(struct hub_block *b)
{
    const size_t bags = (size_t)b->head->samples * b->head->slots;
    if (b->offsets[0] != 0 || b->offsets[bags] != b->head->keys)
        return "its offsets do not go from 0 to the number of its keys";
    for (size_t i = 0; i < bags; i++)
        if (b->offsets[i] > b->offsets[i + 1])
            return "its offsets do not rise";
    return check_numbers(b);
}

const char *hub_block_open(const struct hub_block_head *head, const void *body, struct hub_block *block)
{
    const uint8_t *at = body;
    *block = (struct hub_block){.head = head, .keys = at};
    at += (size_t)head->keys * sizeof(uint64_t);
    if ((head->flags & HUB_BLOCK_NO_LABELS) == 0) {
        block->labels = (const float *)(const void *)at;
        at += head->samples * sizeof(float);
    }
    block->dense = (const float *)(const void *)at;
    at += (size_t)head->samples * head->dense * sizeof(float);
    block->offsets = (const uint32_t *)(const void *)at;
    at += ((size_t)head->samples * head->slots + 1) * sizeof(uint32_t);
    if ((head->flags & HUB_BLOCK_WEIGHTS) != 0)
        block->weights = (const float *)(const void *)at;
    return check_values(block);
}
