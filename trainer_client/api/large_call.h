/* Calls for rows that are larger than a message: they are divided by size (division.h) and made as several
 * calls (call/joined.h), each of which is split by owner as any other.
 *
 * A node tells how long a message it takes at most, with its map. Parts are smaller where the client's memory
 * for messages is. */
#ifndef MRC_LARGE_CALL_H
#define MRC_LARGE_CALL_H

#include "trainer_client/api/calls.h"
#include "trainer_client/api/rows_request.h"

struct mrc_large_call {
    struct mr_client *client;
    const struct mr_options *options;
    enum mr_op op;
    const struct mrc_rows_request *requests; /* [request_count], as the caller gave them */
    uint32_t request_count;
    bool is_stored; /* rows are looked up as they are stored */
    bool has_reply;
    /* Makes a call for some of the rows, which is not divided again, with these options, which have a future.
     * No table is there twice in a push. */
    enum mr_status (*make)(const struct mrc_large_call *c, const struct mr_options *options,
                           const struct mrc_rows_request *requests, uint32_t count);
    const void *context;  /* of `make` */
    uint64_t deadline_us; /* of all parts; set by mrc_large_check() */
};

/* Returns how long such a request and its answer are at most. A row that is looked up as it is stored has its
 * values, its state, and whether there is one. */
static inline uint64_t mrc_large_bytes_at_most(const struct mrc_rows_request *r)
{
    const uint32_t floats = r->gradients != NULL ? r->dim : MR_STORED_ROW_FLOATS_MAX + 1;
    return (uint64_t)r->key_count * 16 + (uint64_t)mrc_request_rows(r) * (4 * (uint64_t)floats + 16);
}
/* Of a message, for its preamble, and for descriptions and padding of its tensors. */
#define MRC_LARGE_RESERVED_BYTES (32u << 10)
/* Returns how many bytes of keys and rows go in a message to any node, if the client has so much memory to
 * spare for it. */
static inline uint64_t mrc_large_bytes_max(const struct mr_client *client, uint32_t memory_bytes)
{
    const uint32_t told = atomic_load_explicit(&client->message_bytes_max, memory_order_relaxed);
    const uint32_t most = told < memory_bytes ? told : memory_bytes;
    return most > 2 * MRC_LARGE_RESERVED_BYTES ? most - MRC_LARGE_RESERVED_BYTES : MRC_LARGE_RESERVED_BYTES;
}
/* Returns how many go in one call: its request and its reply take half of the memory. */
static inline uint64_t mrc_large_call_bytes(const struct mr_client *client)
{
    return mrc_large_bytes_max(client, client->link_config.memory_bytes / 4);
}
/* Returns whether a call that is at most so long may be larger than a message. Nearly none is. */
static inline bool mrc_large_may_be(const struct mr_client *client, uint64_t bytes_at_most)
{
    const uint32_t told = atomic_load_explicit(&client->message_bytes_max, memory_order_relaxed);
    const uint64_t bytes = bytes_at_most + MRC_LARGE_RESERVED_BYTES;
    return bytes > told || bytes > client->link_config.memory_bytes / 4;
}
/* Finds out whether it is; the call's time runs from here on. Fails as mrc_find_feature() does. Takes the
 * lock. */
enum mr_status mrc_large_check(struct mrc_large_call *c, bool *is_large);
/* Makes such a call, which has been checked, in several. MR_TOO_LARGE: a bag, or the gradients of a key, are
 * longer than a message; nothing was sent. Not under the lock. */
enum mr_status mrc_large_run(const struct mrc_large_call *c, struct mr_reply **reply);

#endif
