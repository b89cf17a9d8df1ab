/* A call for rows by key: a lookup or a push, of one table or of several.
 *
 * Each owner (shard_map.h) gets one message with what it owns of all tables, and more of them only where one
 * would be too large. The messages are all sent before the first answer is waited for. A table whose keys all
 * have one owner goes there whole, and that owner divides its bags by itself; otherwise each owner gets its
 * share, and the thread that waits joins the answers. Rows travel in the options' wire_dtype; callers see
 * f32.
 *
 * A call is about one table, LOOKUP or PUSH_GRAD, or about several, LOOKUP_TABLES or PUSH_GRAD. Servers of
 * versions that lack LOOKUP_TABLES get a LOOKUP for each table; and so does one that is pushed to with
 * `replay`, a PUSH_GRAD for each: what is kept is split by table when owners change. */
#ifndef MRC_ROWS_CALL_H
#define MRC_ROWS_CALL_H

#include "trainer_client/api/calls.h"
#include "trainer_client/api/divide.h"

struct mrc_rows_call {
    struct mrc_retry retry;                  /* mrc_rows_retry() */
    const struct mrc_rows_request *requests; /* [table_count], as the caller gave them */
    uint32_t table_count;
    /* pushes: MR_PUSH_SET and what follows it, or 0; lookups: enum mr_lookup_flag, and MR_FEED_READ_ONLY with
     * it */
    uint32_t flags;
    /* set by mrc_rows_run(); zero to begin with */
    enum mr_dtype dtype; /* of rows in messages */
};

static inline bool mrc_rows_is_push(const struct mrc_rows_call *c)
{
    return c->retry.op == MR_OP_PUSH_GRAD;
}

/* Returns the retry context of a call with that op: LOOKUP, LOOKUP_TABLES or PUSH_GRAD. */
struct mrc_retry mrc_rows_retry(struct mr_client *client, const struct mr_options *options, enum mr_op op);
/* Makes the call with these requests, [c->table_count], in which it sets what depends on the options; in
 * several calls if it is larger than a message (large_call.h). Otherwise as mrc_future_run(). Not under the
 * lock. */
enum mr_status mrc_rows_run(struct mrc_rows_call *c, struct mrc_rows_request *requests,
                            struct mr_reply **reply);

#endif
