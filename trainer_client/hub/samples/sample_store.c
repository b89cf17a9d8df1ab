#include "trainer_client/hub/samples/sample_store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "dataplane/wire/base/bytes.h"

#define LINE_BYTES     64u
#define HUGE_BYTES     ((size_t)2 << 20)
#define PREFETCH_LINES 4u /* the processor fetches those that follow by itself */

/* A sample in `bytes`: this, its dense values, its bag_end, its keys from the next multiple of 8 on, and
 * their weights if the format has any, up to a multiple of 8. */
struct head {
    float label;
    uint32_t key_count;
};

struct hub_sample_store {
    size_t dense_bytes, slots_bytes, keys_at, weight_bytes; /* weight_bytes: of a key; 0: there are none */
    /* Samples from the beginning, where each begins from the end: places_end[-1 - i]. The kernel gives pages
     * when they are first written to, so that a bound larger than the samples costs nothing. */
    uint8_t *bytes;
    uint64_t *places_end;
    size_t used, size;
    uint64_t samples;
    bool full;
};

struct hub_sample_store *hub_sample_store_create(const struct hub_format *format, size_t bytes_max)
{
    struct hub_sample_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->dense_bytes = format->dense * sizeof(float);
    s->slots_bytes = format->slots * sizeof(uint32_t);
    s->weight_bytes = format->has_weights ? sizeof(float) : 0;
    s->keys_at = mr_padded(sizeof(struct head) + s->dense_bytes + s->slots_bytes);
    s->size = (bytes_max / HUGE_BYTES + 1) * HUGE_BYTES;
    s->bytes = aligned_alloc(HUGE_BYTES, s->size);
    if (s->bytes == NULL) {
        free(s);
        return NULL;
    }
    /* Samples are read in random order: of small pages each would cost a walk of the page tables. */
    (void)madvise(s->bytes, s->size, MADV_HUGEPAGE);
    s->size = bytes_max & ~(size_t)7;
    s->places_end = (uint64_t *)(void *)(s->bytes + s->size);
    return s;
}

void hub_sample_store_destroy(struct hub_sample_store *s)
{
    if (s == NULL)
        return;
    free(s->bytes);
    free(s);
}

size_t hub_sample_store_sample_bytes(const struct hub_format *format, uint32_t keys)
{
    size_t values = format->dense * sizeof(float) + format->slots * sizeof(uint32_t);
    return sizeof(struct head) + values + keys * (sizeof(uint64_t) + sizeof(float)) + 3 * sizeof(uint64_t);
}

void hub_sample_store_clear(struct hub_sample_store *s)
{
    s->used = s->samples = 0;
    s->full = false;
}

void hub_sample_store_add(struct hub_sample_store *s, const struct hub_sample *sample)
{
    const struct head head = {sample->label, sample->key_count};
    size_t keys_bytes = sample->key_count * sizeof(*sample->keys),
           weights_bytes = sample->key_count * s->weight_bytes,
           bytes = s->keys_at + keys_bytes + mr_padded(weights_bytes);
    s->full = s->full || s->used + bytes + (s->samples + 1) * sizeof(*s->places_end) > s->size;
    if (s->full)
        return;
    uint8_t *at = s->bytes + s->used;
    memcpy(at, &head, sizeof(head));
    memcpy(at + sizeof(head), sample->dense, s->dense_bytes);
    memcpy(at + sizeof(head) + s->dense_bytes, sample->bag_end, s->slots_bytes);
    memcpy(at + s->keys_at, sample->keys, keys_bytes);
    memcpy(at + s->keys_at + keys_bytes, sample->weights, weights_bytes);
    s->samples++;
    s->places_end[-(int64_t)s->samples] = s->used;
    s->used += bytes;
}

void hub_sample_store_prefetch(const struct hub_sample_store *s, uint64_t next, uint64_t later)
{
    if (later < s->samples)
        __builtin_prefetch(s->places_end - 1 - later);
    if (next >= s->samples)
        return;
    const uint8_t *at = s->bytes + s->places_end[-(int64_t)next - 1];
    for (size_t line = 0; line < PREFETCH_LINES; line++)
        __builtin_prefetch(at + line * LINE_BYTES);
}

bool hub_sample_store_get(const struct hub_sample_store *s, uint64_t index, struct hub_sample *sample)
{
    struct head head;
    if (index >= s->samples)
        return false;
    const uint8_t *at = s->bytes + s->places_end[-(int64_t)index - 1];
    memcpy(&head, at, sizeof(head));
    sample->label = head.label;
    sample->key_count = head.key_count;
    memcpy(sample->dense, at + sizeof(head), s->dense_bytes);
    memcpy(sample->bag_end, at + sizeof(head) + s->dense_bytes, s->slots_bytes);
    size_t keys_bytes = head.key_count * sizeof(*sample->keys);
    memcpy(sample->keys, at + s->keys_at, keys_bytes);
    memcpy(sample->weights, at + s->keys_at + keys_bytes, head.key_count * s->weight_bytes);
    return true;
}
