#include "trainer_client/hub/samples/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hub_batch_free(struct hub_batch *b)
{
    free(b->dense);
    free(b->labels);
    free(b->keys);
    free(b->offsets);
    free(b->weights);
    *b = (struct hub_batch){0};
}

static bool batch_grow(void **array, size_t count, size_t element_bytes)
{
    void *grown = realloc(*array, (count > 0 ? count : 1) * element_bytes);
    if (grown != NULL)
        *array = grown;
    return grown != NULL;
}

bool hub_batch_make_room(struct hub_batch *b, uint32_t keys_more)
{
    if (b->samples_size < b->samples) {
        if (!batch_grow((void **)&b->dense, (size_t)b->samples * b->dense_count, sizeof(*b->dense)) ||
            !batch_grow((void **)&b->labels, b->samples, sizeof(*b->labels)) ||
            !batch_grow((void **)&b->offsets, (size_t)b->samples * b->slots + 1, sizeof(*b->offsets)))
            return false;
        b->samples_size = b->samples;
    }
    if (b->keys_size - b->key_count < keys_more) {
        uint32_t size = (b->key_count + keys_more) * 2;
        if (!batch_grow((void **)&b->keys, size, sizeof(*b->keys)) ||
            (b->has_weights && !batch_grow((void **)&b->weights, size, sizeof(*b->weights))))
            return false;
        b->keys_size = size;
    }
    return true;
}

bool hub_batch_append(struct hub_batch *b, uint32_t place, const struct hub_sample *sample)
{
    if (!hub_batch_make_room(b, sample->key_count))
        return false;
    if (place == 0)
        b->offsets[0] = 0;
    uint32_t *bag_end = b->offsets + (size_t)place * b->slots + 1;
    for (uint32_t slot = 0; slot < b->slots; slot++)
        bag_end[slot] = b->key_count + sample->bag_end[slot];
    memcpy(b->keys + b->key_count, sample->keys, sample->key_count * sizeof(*b->keys));
    memcpy(b->dense + (size_t)place * b->dense_count, sample->dense, b->dense_count * sizeof(*b->dense));
    if (b->has_weights)
        memcpy(b->weights + b->key_count, sample->weights, sample->key_count * sizeof(*b->weights));
    b->labels[place] = sample->label;
    b->key_count += sample->key_count;
    return true;
}

void hub_batch_place_block(struct hub_batch *b, uint32_t place, const struct hub_block *block, uint32_t from,
                           uint32_t count)
{
    const uint32_t *offsets = block->offsets + (size_t)from * b->slots;
    const size_t bags = (size_t)count * b->slots;
    const uint32_t first = offsets[0], keys = offsets[bags] - first;
    uint32_t *bag_end = b->offsets + (size_t)place * b->slots + 1;
    b->offsets[0] = 0;
    for (size_t i = 0; i < bags; i++)
        bag_end[i] = b->key_count + (offsets[i + 1] - first);
    memcpy(b->keys + b->key_count, block->keys + (size_t)first * sizeof(uint64_t), keys * sizeof(uint64_t));
    if (b->has_weights)
        memcpy(b->weights + b->key_count, block->weights + first, keys * sizeof(float));
    if (block->labels != NULL)
        memcpy(b->labels + place, block->labels + from, count * sizeof(float));
    for (uint32_t i = place; block->labels == NULL && i < place + count; i++)
        b->labels[i] = NAN;
    memcpy(b->dense + (size_t)place * b->dense_count, block->dense + (size_t)from * b->dense_count,
           (size_t)count * b->dense_count * sizeof(float));
    b->key_count += keys;
}
