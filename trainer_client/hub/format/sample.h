/* One training sample, as a format makes it from one line of text.
 *
 * A sample is a label, dense values, and one bag of keys per slot. Keys are 64-bit hashes of (slot, value),
 * so that no dictionary is needed and every hub makes the same keys.
 */
#ifndef HUB_SAMPLE_H
#define HUB_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#define HUB_LINE_BYTES_MAX  65536u
#define HUB_SAMPLE_KEYS_MAX 4096u
#define HUB_SLOTS_MAX       256u
#define HUB_DENSE_MAX       256u
#define HUB_REASON_BYTES    256u

struct hub_sample {
    float label; /* 0 or 1, unless the format gives a number; NaN: it gives none */
    float dense[HUB_DENSE_MAX];
    uint32_t key_count;
    uint32_t bag_end[HUB_SLOTS_MAX]; /* slot j's keys end here; they begin where slot j - 1's end */
    uint64_t keys[HUB_SAMPLE_KEYS_MAX];
    float weights[HUB_SAMPLE_KEYS_MAX]; /* of the keys; set by formats with weights */
};

#endif
