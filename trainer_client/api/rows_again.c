#include "trainer_client/api/rows_again.h"

#include <stdlib.h>
#include <string.h>

struct kept {
    struct mrc_again again;
    struct mr_options options;
    struct mrc_rows_call call;
    uint64_t data[]; /* keys, then weights, then offsets */
};

static enum mr_status make(const struct mrc_again *again, uint32_t deadline_ms, struct mr_future **out)
{
    const struct kept *kept = MR_CONTAINER(again, const struct kept, again);
    struct mr_options options = kept->options;
    struct mrc_rows_call call = kept->call;

    options.deadline_ms = deadline_ms;
    options.future = out;
    call.options = &options;
    return mrc_rows_run(&call, NULL);
}

void mrc_rows_keep(const struct mrc_rows_call *c, struct mr_future *f)
{
    size_t keys_bytes = c->key_count * sizeof(*c->keys);
    size_t weights_bytes = c->weights == NULL ? 0 : c->key_count * sizeof(*c->weights);
    size_t offsets_bytes = c->offsets == NULL ? 0 : ((size_t)c->bag_count + 1) * sizeof(*c->offsets);
    struct kept *kept = malloc(sizeof(*kept) + keys_bytes + weights_bytes + offsets_bytes);

    if (kept == NULL)
        return;
    uint8_t *weights = (uint8_t *)kept->data + keys_bytes, *offsets = weights + weights_bytes;

    kept->again.make = make;
    kept->options = *c->options;
    kept->options.more = false;
    kept->call = (struct mrc_rows_call){.client = c->client,
                                        .op = c->op,
                                        .table = c->table,
                                        .keys = kept->data,
                                        .key_count = c->key_count,
                                        .bag_count = c->bag_count};
    if (keys_bytes > 0)
        memcpy(kept->data, c->keys, keys_bytes);
    if (c->weights != NULL) {
        memcpy(weights, c->weights, weights_bytes);
        kept->call.weights = (const float *)(const void *)weights;
    }
    if (c->offsets != NULL) {
        memcpy(offsets, c->offsets, offsets_bytes);
        kept->call.offsets = (const uint32_t *)(const void *)offsets;
    }
    f->again = &kept->again;
}
