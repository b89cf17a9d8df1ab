/* Calls for rows that are larger than a message: they are divided by bytes (divide.h) and made as a series of
 * calls (call/series.h), each of which is divided by owner as any other.
 *
 * A node tells how long a message it takes at most, with its map. Shares are smaller where the client's
 * memory for messages is. */
#ifndef MRC_LARGE_CALL_H
#define MRC_LARGE_CALL_H

#include "trainer_client/api/rows_call.h"

/* Of a message, for its preamble, and for descriptions and padding of its tensors. */
#define MRC_LARGE_RESERVED_BYTES (32u << 10)

/* Returns whether a call with these requests may be larger than a message. Nearly none is. */
static inline bool mrc_large_may_be(const struct mrc_rows_call *c)
{
    const struct mr_client *client = c->retry.client;
    const uint32_t told = atomic_load_explicit(&client->message_bytes_max, memory_order_relaxed);
    uint64_t bytes = MRC_LARGE_RESERVED_BYTES;
    for (uint32_t i = 0; i < c->table_count; i++) {
        /* A row that is looked up as it is stored has its values, its state, and whether there is one. */
        const struct mrc_rows_request *r = &c->requests[i];
        const uint32_t floats = r->gradients.values != NULL ? r->dim : MR_STORED_ROW_FLOATS_MAX + 1;
        bytes += (uint64_t)r->key_count * 16 + (uint64_t)mrc_request_rows(r) * (4 * (uint64_t)floats + 16);
    }
    return bytes > told || bytes > client->link_config.memory_bytes / 4;
}
/* Finds out whether it is; the deadline of all its calls is set from here on. Fails as mrc_find_feature()
 * does. Takes the lock. */
enum mr_status mrc_large_check(struct mrc_rows_call *c, bool *is_large);
/* Makes a call that was checked, in several. MR_TOO_LARGE: a bag, or the gradients of a key, are longer
 * than a message; nothing was sent. Otherwise as mrc_retry_run(). Not under the lock. */
enum mr_status mrc_large_run(const struct mrc_rows_call *c, struct mr_reply **reply);

#endif
