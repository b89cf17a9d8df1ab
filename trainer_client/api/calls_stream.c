/* The streams that a node knows, over all its cores, and forgetting them. */
#include <stdlib.h>
#include "trainer_client/api/calls.h"

struct streams_context {
    struct mr_stream **streams;
    uint32_t *count;
};

/* What one core reports about a stream. */
static struct mr_stream stream_of(const uint64_t *w)
{
    return (struct mr_stream){.stream = (uint32_t)w[0],
                              .plan = {w[4], w[5], w[6]},
                              .learnt = w[2],
                              .twice = w[3] > w[2] ? w[3] - w[2] : 0,
                              .used = w[7]};
}

static void add_core(struct mr_stream *all, const struct mr_stream *one)
{
    all->differs |= memcmp(all->plan, one->plan, sizeof(all->plan)) != 0;
    all->learnt = one->learnt < all->learnt ? one->learnt : all->learnt;
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
        all.learnt = i - first < core_count ? 0 : all.learnt;
        s[merged++] = all;
    }
    return merged;
}

static enum mr_status finish_streams(struct mr_future *f, struct mr_reply **reply)
{
    const struct streams_context *context = f->context;
    uint32_t total = 0, filled = 0;
    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mr_tensor *t = mrc_part_tensor(f, i, 0, MR_U64, 2);
        if (t == NULL || t->dims[0] > MR_STREAMS_MAX || t->dims[1] != MR_STREAM_WORDS)
            return mrc_part_garbled(f, i);
        total += t->dims[0];
    }
    struct mr_stream *streams = malloc((total + 1) * sizeof(*streams));

    if (streams == NULL)
        return mrc_error(MR_NO_MEMORY, "mr_streams: no memory for %u streams", total);
    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mr_tensor *t = mrc_part_tensor(f, i, 0, MR_U64, 2);
        for (uint32_t s = 0; s < t->dims[0]; s++)
            streams[filled++] = stream_of((const uint64_t *)t->data + (size_t)s * MR_STREAM_WORDS);
    }
    *context->count = merge(streams, total, f->part_count);
    *context->streams = streams;
    return MR_OK;
}

/* Asks all cores of the map as it is now; MRC_STALE_MAP: there is another one by the time of sending. */
static enum mr_status ask_streams(struct mr_client *client, const struct mr_options *options,
                                  const struct streams_context *asked)
{
    struct mr_future *f;
    uint32_t map_changes;
    const uint32_t cores = mrc_cores_of_map(client, &map_changes);
    enum mr_status status =
        mrc_future_new(client, options, MR_OP_STREAMS, 0, cores, 0, sizeof(struct streams_context), &f);

    if (status != MR_OK)
        return status;
    *(struct streams_context *)f->context = *asked;
    f->map_changes = map_changes;
    f->finish = finish_streams;
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_streams(struct mr_client *client, const struct mr_options *options,
                          struct mr_stream **streams, uint32_t *count)
{
    struct streams_context asked;
    enum mr_status status;
    if (client == NULL)
        return mrc_bad_argument("mr_streams", "client is NULL");
    if (streams == NULL || count == NULL)
        return mrc_bad_argument("mr_streams", "streams and count must both be given");
    asked.streams = streams;
    asked.count = count;
    do {
        status = ask_streams(client, options, &asked);
    } while (status == MRC_STALE_MAP);
    return status;
}

static enum mr_status forget_streams(struct mr_client *client, const struct mr_options *options,
                                     const uint32_t *streams, uint32_t count)
{
    struct mr_future *f;
    uint32_t map_changes;
    const uint32_t cores = mrc_cores_of_map(client, &map_changes);
    enum mr_status status =
        mrc_future_new(client, options, MR_OP_FORGET_STREAM, 0, cores, 1, (count + 1) * sizeof(uint64_t), &f);

    if (status != MR_OK)
        return status;
    uint64_t *numbers = f->context;

    for (uint32_t i = 0; i < count; i++)
        numbers[i] = streams[i];
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_part_add(f, i, mr_tensor_1d(MR_U64, count, numbers));
    f->map_changes = map_changes;
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_forget_streams(struct mr_client *client, const struct mr_options *options,
                                 const uint32_t *streams, uint32_t count)
{
    enum mr_status status;
    if (client == NULL)
        return mrc_bad_argument("mr_forget_streams", "client is NULL");
    if (streams == NULL && count > 0)
        return mrc_bad_argument("mr_forget_streams", "streams is NULL");
    if (count > MR_STREAMS_MAX)
        return mrc_bad_argument("mr_forget_streams", "there are no more than 65536 streams");
    do {
        status = forget_streams(client, options, streams, count);
    } while (status == MRC_STALE_MAP);
    return status;
}
