/* A block of binary samples, as programs write them: what is taken for one can be read to its end. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fuzz/fuzz_assert.h"
#include "trainer_client/hub/format/sample_block.h"

static void read_all(const struct hub_block *block)
{
    uint64_t sum = 0;
    for (size_t bag = 0; bag < (size_t)block->head->samples * block->head->slots; bag++) {
        for (uint32_t i = block->offsets[bag]; i < block->offsets[bag + 1]; i++) {
            uint64_t key;
            memcpy(&key, block->keys + i * sizeof(key), sizeof(key));
            sum += key;
            FUZZ_ASSERT(block->weights == NULL || isfinite(block->weights[i]));
        }
    }
    for (size_t i = 0; i < (size_t)block->head->samples * block->head->dense; i++)
        FUZZ_ASSERT(isfinite(block->dense[i]));
    for (size_t i = 0; block->labels != NULL && i < block->head->samples; i++)
        FUZZ_ASSERT(isfinite(block->labels[i]));
    FUZZ_ASSERT(sum != 1 || block->head->samples > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct hub_block_head head;
    struct hub_block block;
    if (bytes < sizeof(head))
        return 0;
    memcpy(&head, data, sizeof(head));
    if (hub_block_check_head(&head) != NULL || hub_block_body_bytes(&head) > bytes - sizeof(head))
        return 0;
    if ((head.flags & (HUB_BLOCK_END | HUB_BLOCK_FAILED)) != 0)
        return 0;
    uint8_t *body =
        malloc(bytes - sizeof(head) + 1); /* no longer than it, so that a sanitizer sees its end */
    FUZZ_ASSERT(body != NULL);
    memcpy(body, data + sizeof(head), bytes - sizeof(head));
    if (hub_block_open(&head, body, &block) == NULL)
        read_all(&block);
    free(body);
    return 0;
}
