/* A batch of samples: arrays that grow as needed and are used again. Pure; one thread at a time. */
#ifndef HUB_BATCH_H
#define HUB_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/hub/format/sample.h"
#include "trainer_client/hub/format/sample_block.h"

#define HUB_BATCH_KEY_BYTES_MAX                                                                              \
    (16u << 20) /* of one batch's keys: two such feeds fit into a client's memory */

/* Start with all zero. */
struct hub_batch {
    uint64_t sequence;
    uint32_t epoch;
    uint64_t first_sample; /* of the epoch's order */
    uint32_t samples, slots, dense_count, key_count;
    float *dense;  /* [samples, dense_count] */
    float *labels; /* [samples] */
    uint64_t *keys;
    uint32_t *offsets; /* [samples * slots + 1] */
    bool has_weights;
    float *weights; /* of the keys, if it has any */
    uint32_t samples_size, keys_size;
};
void hub_batch_free(struct hub_batch *b);
/* Makes room in the arrays for the batch's `samples`, and for more keys. False: no memory. */
bool hub_batch_make_room(struct hub_batch *b, uint32_t keys_more);
/* Sample `place` < samples, after the one before it. False: no memory. */
bool hub_batch_append(struct hub_batch *b, uint32_t place, const struct hub_sample *sample);

/* Samples [from, from + count) of a block of the batch's shape, after `place` that are there. There is room.
 */
void hub_batch_place_block(struct hub_batch *b, uint32_t place, const struct hub_block *block, uint32_t from,
                           uint32_t count);

#endif
