/* The streams that a node knows, over all its cores, and forgetting them. */
#include <stdlib.h>
#include "millrace_admin.h"
#include "trainer_client/api/calls.h"

struct streams_context {
    struct mr_stream **streams;
    uint32_t *count;
};

/* What one core reports about a stream. */
static struct mr_stream stream_of(const uint64_t *w)
{
    const uint64_t applied = w[MR_STREAM_APPLIED], added = w[MR_STREAM_ADDED];
    return (struct mr_stream){.stream = (uint32_t)w[MR_STREAM_ID],
                              .plan = {w[MR_STREAM_PLAN], w[MR_STREAM_PLAN + 1], w[MR_STREAM_PLAN + 2]},
                              .applied = applied,
                              .twice = added > applied ? added - applied : 0,
                              .used = w[MR_STREAM_USED]};
}

static void add_core(struct mr_stream *all, const struct mr_stream *one)
{
    all->differs |= memcmp(all->plan, one->plan, sizeof(all->plan)) != 0;
    all->applied = one->applied < all->applied ? one->applied : all->applied;
    all->twice = one->twice > all->twice ? one->twice : all->twice;
    all->used = one->used > all->used ? one->used : all->used;
}

static int by_number(const void *a, const void *b)
{
    const struct mr_stream *x = a, *y = b;
    return (x->stream > y->stream) - (x->stream < y->stream);
}

/* Merges the entries of `s`, which has one for each core that knows a stream, into one for each stream.
 * Returns how many remain. */
static uint32_t merge(struct mr_stream *s, uint32_t count, uint32_t core_count)
{
    uint32_t merged = 0;
    qsort(s, count, sizeof(*s), by_number);
    for (uint32_t i = 0; i < count;) {
        struct mr_stream all = s[i];
        uint32_t first = i++;
        for (; i < count && s[i].stream == all.stream; i++)
            add_core(&all, &s[i]);
        all.applied = i - first < core_count ? 0 : all.applied;
        s[merged++] = all;
    }
    return merged;
}

static enum mr_status finish_streams(struct mr_future *f, struct mr_reply **reply)
{
    const struct streams_context *context = f->context;
    uint32_t total = 0, filled = 0;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mr_tensor *t = mrc_answer_body_rows(f, i, 0, MR_BODY_STREAM);
        if (t == NULL || t->dims[0] > MR_STREAMS_MAX)
            return mrc_answer_garbled(f, i);
        total += t->dims[0];
    }
    struct mr_stream *streams = malloc((total + 1) * sizeof(*streams));

    if (streams == NULL)
        return mrc_error(MR_NO_MEMORY, "mr_streams: no memory for %u streams", total);
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mr_tensor *t = mrc_answer_body_rows(f, i, 0, MR_BODY_STREAM);
        for (uint32_t s = 0; s < t->dims[0]; s++) {
            uint64_t row[MR_STREAM_WORDS];
            mr_body_read_row(MR_BODY_STREAM, t, s, row);
            streams[filled++] = stream_of(row);
        }
    }
    *context->count = merge(streams, total, f->request_count);
    *context->streams = streams;
    return MR_OK;
}

struct streams_call {
    struct mrc_retry retry;
    struct streams_context context;
};

static enum mr_status streams_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status = mrc_future_for_cores(r, 0, NULL, sizeof(struct streams_context), 0, &f);
    if (status != MR_OK)
        return status;
    *(struct streams_context *)f->context = MR_CONTAINER(r, struct streams_call, retry)->context;
    f->finish = finish_streams;
    return mrc_future_run(f, r->options, reply);
}

enum mr_status mr_streams(struct mr_client *client, const struct mr_options *options,
                          struct mr_stream **streams, uint32_t *count)
{
    if (client == NULL)
        return mrc_bad_argument("mr_streams", "client is NULL");
    if (streams == NULL || count == NULL)
        return mrc_bad_argument("mr_streams", "streams and count must both be given");
    struct streams_call c = {.retry = {.client = client,
                                       .options = options,
                                       .op = MR_OP_STREAMS,
                                       .make = streams_make,
                                       .is_due = mrc_retry_unexecuted},
                             .context = {streams, count}};
    return mrc_retry_run(&c.retry, NULL);
}

struct forget_call {
    struct mrc_retry retry;
    struct mr_tensor streams; /* u64 */
};

static enum mr_status forget_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status =
        mrc_future_for_cores(r, 0, &MR_CONTAINER(r, struct forget_call, retry)->streams, 0, 0, &f);
    return status == MR_OK ? mrc_future_run(f, r->options, reply) : status;
}

enum mr_status mr_forget_streams(struct mr_client *client, const struct mr_options *options,
                                 const uint32_t *streams, uint32_t count)
{
    if (client == NULL)
        return mrc_bad_argument("mr_forget_streams", "client is NULL");
    if (streams == NULL && count > 0)
        return mrc_bad_argument("mr_forget_streams", "streams is NULL");
    if (count > MR_STREAMS_MAX)
        return mrc_bad_argument("mr_forget_streams", "there are no more than 65536 streams");
    uint64_t *numbers = malloc((count + 1) * sizeof(*numbers));
    if (numbers == NULL)
        return mrc_error(MR_NO_MEMORY, "mr_forget_streams: no memory for %u streams", count);
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = streams[i];
    struct forget_call c = {.retry = {.client = client,
                                      .options = options,
                                      .op = MR_OP_FORGET_STREAM,
                                      .make = forget_make,
                                      .is_due = mrc_retry_unexecuted},
                            .streams = mr_tensor_1d(MR_U64, count, numbers)};
    const enum mr_status status = mrc_retry_run(&c.retry, NULL);

    free(numbers);
    return status;
}
