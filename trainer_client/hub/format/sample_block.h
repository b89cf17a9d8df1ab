/* A block of samples in binary, as a program writes it to the hub's standard input (docs/data-formats.md).
 *
 * All numbers are little endian. A block is a head, and behind it, without gaps:
 *
 *   u64 keys[keys]; f32 labels[samples] unless it has none; f32 dense[samples * dense];
 *   u32 offsets[samples * slots + 1]; f32 weights[keys] if it has weights
 *
 * Bag (sample s, slot j) is keys[offsets[s * slots + j] .. offsets[s * slots + j + 1]). Blocks of one input
 * have the same slots and dense values, and all or none of them have labels, or weights. The last one is a
 * head alone, with HUB_BLOCK_END; or, if the program has failed, one with HUB_BLOCK_FAILED, and behind it the
 * reason, of `keys` bytes. Pure, any thread.
 */
#ifndef HUB_SAMPLE_BLOCK_H
#define HUB_SAMPLE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUB_BLOCK_FORMAT      "batches"   /* its name in a plan */
#define HUB_BLOCK_MAGIC       0x4253524du /* "MRSB" */
#define HUB_BLOCK_SAMPLES_MAX 65536u
#define HUB_BLOCK_SLOTS_MAX   1024u
#define HUB_BLOCK_DENSE_MAX   4096u
#define HUB_BLOCK_KEYS_MAX    (1u << 23)
#define HUB_BLOCK_REASON_MAX  300u
#define HUB_BLOCK_WRONG_BYTES 96u

enum hub_block_flags {
    HUB_BLOCK_WEIGHTS = 1,
    HUB_BLOCK_END = 2,
    HUB_BLOCK_FAILED = 4,
    HUB_BLOCK_NO_LABELS = 8
};

struct hub_block_head {
    uint32_t magic, flags, samples, slots, dense, keys;
    uint32_t reserved[2]; /* 0 */
};

/* Points into the block's bytes, which are aligned to 4 bytes at least. */
struct hub_block {
    const struct hub_block_head *head;
    const uint8_t *keys; /* u64[keys], perhaps not aligned to 8 */
    const float *labels; /* NULL: none */
    const float *dense;
    const uint32_t *offsets;
    const float *weights; /* NULL: none */
    char wrong[HUB_BLOCK_WRONG_BYTES];
};

/* NULL, or what is wrong with it, "it has 0 slots": one line that names no place. */
const char *hub_block_check_head(const struct hub_block_head *head);
/* Of a checked head: bytes that follow it. */
size_t hub_block_body_bytes(const struct hub_block_head *head);
/* The block with this checked head and body. NULL, or what is wrong with it, as above, perhaps in
 * block->wrong: labels, dense values and weights are finite. */
const char *hub_block_open(const struct hub_block_head *head, const void *body, struct hub_block *block);

#endif
