#include "trainer_client/call/retry.h"

#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/outcome.h"

#define SHOW_PAUSE_US 10000u /* before a node is asked again that has not read the map yet */

uint32_t mrc_left_ms(uint64_t deadline_us, uint64_t now_us)
{
    const uint64_t us = now_us < deadline_us ? deadline_us - now_us : 0;
    const uint64_t ms = us / 1000 + (us % 1000 != 0);
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* ---- whether a try must be made again ---- */

enum mrc_retry_due mrc_retry_unexecuted(struct mrc_retry *r, enum mr_status status)
{
    if (status == MRC_STALE_MAP)
        return MRC_RETRY_NOW;
    if (status != MR_WRONG_OWNER)
        return MRC_RETRY_NO;
    const bool is_brief = r->wait_until_us < r->deadline_us;
    if (!mrc_cluster_wait(r->client, is_brief ? r->wait_until_us : r->deadline_us))
        return is_brief ? MRC_RETRY_LATER : MRC_RETRY_NO;
    return mr_clock_us() < r->deadline_us ? MRC_RETRY_NOW : MRC_RETRY_NO;
}

enum mrc_retry_due mrc_retry_by_map(struct mrc_retry *r, enum mr_status status)
{
    if (status == MR_OK || status == MRC_NO_ROOM_YET)
        return MRC_RETRY_NO;
    if (status == MRC_STALE_MAP || status == MR_WRONG_OWNER)
        return mrc_retry_unexecuted(r, status);
    if (r->map_generation == UINT32_MAX || !mr_op_repeatable(r->op) || mr_clock_us() >= r->deadline_us)
        return MRC_RETRY_NO;
    pthread_mutex_lock(&r->client->lock);
    const bool has_changed = mrc_shard_map_generation(r->client) != r->map_generation;

    pthread_mutex_unlock(&r->client->lock);
    return has_changed ? MRC_RETRY_NOW : MRC_RETRY_NO;
}

enum mrc_retry_due mrc_retry_shown(struct mrc_retry *r, enum mr_status status)
{
    const bool has_future = r->options != NULL && r->options->future != NULL;
    if (status != MR_BUSY || has_future || mr_clock_us() + SHOW_PAUSE_US >= r->deadline_us)
        return MRC_RETRY_NO;
    (void)nanosleep(&(struct timespec){.tv_nsec = SHOW_PAUSE_US * 1000L}, NULL);
    return MRC_RETRY_NOW;
}

/* ---- tries ---- */

struct mrc_shard_map *mrc_retry_hold_map(struct mrc_retry *r)
{
    struct mrc_shard_map *map = mrc_shard_map_hold(r->client);
    r->map_generation = map == NULL ? UINT32_MAX : map->generation;
    return map;
}

void mrc_retry_future(struct mrc_retry *r, struct mr_future *f)
{
    f->map_generation = r->map_generation;
    f->options.deadline_us = r->deadline_us;
    f->wait_until_us = r->wait_until_us;
    if (r->began_ns == 0)
        r->began_ns = f->began_ns;
    f->began_ns = r->began_ns;
}

static enum mr_status retry_make(struct mrc_retry *r, struct mr_reply **reply)
{
    enum mr_status status;
    do {
        r->map_generation = UINT32_MAX;
        status = r->make(r, reply);
    } while (r->is_due(r, status) == MRC_RETRY_NOW);
    return status;
}

/* Keeps the arguments of a call whose future is handed out, with that future. */
static void retry_keep(const struct mrc_retry *r)
{
    struct mrc_retry *kept = r->copy(r);
    if (kept == NULL)
        return;
    kept->copied = *r->options;
    kept->copied.more = false;
    kept->options = NULL;
    (*r->options->future)->retry = kept;
}

enum mr_status mrc_retry_run(struct mrc_retry *r, struct mr_reply **reply)
{
    r->deadline_us = mrc_deadline_us(r->client, r->options, mr_clock_us());
    r->wait_until_us = UINT64_MAX;
    const enum mr_status status = retry_make(r, reply);
    if (status == MR_OK && r->copy != NULL && r->options != NULL && r->options->future != NULL)
        retry_keep(r);
    return status;
}

/* ---- after the future was handed out ---- */

struct mr_future *mrc_retry_latest(struct mr_future *f)
{
    return f->retry != NULL && f->retry->latest != NULL ? f->retry->latest : f;
}

/* Puts the new try, if there is one, in the place of the one that ended; it gets the caller's notices. */
static void retry_replace(struct mr_future *f, struct mr_future *made)
{
    struct mr_future *ended = mrc_retry_latest(f);
    const int notify_fd = ended->notify_fd;
    pthread_mutex_lock(&f->client->lock);
    if (made == NULL)
        f->retry->is_over = true; /* the outcome of the one that ended stands */
    else
        f->retry->latest = made;
    pthread_mutex_unlock(&f->client->lock);
    if (made == NULL)
        return;
    mr_future_notify(f, notify_fd);
    if (ended != f)
        mrc_future_free(ended);
    else
        ended->notify_fd = -1; /* its end has been seen */
}

enum mrc_retry_due mrc_retry_next(struct mr_future *f, uint64_t until_us)
{
    struct mrc_retry *r = f->retry;
    const uint64_t now_us = mr_clock_us();
    if (r == NULL || r->is_over || now_us >= r->deadline_us)
        return MRC_RETRY_NO;
    r->wait_until_us = until_us;
    r->map_generation =
        mrc_retry_latest(f)->map_generation; /* a try that found no room was split by another */
    const enum mrc_retry_due due = r->is_due(r, mrc_outcome_status(mrc_retry_latest(f)));
    if (due != MRC_RETRY_NOW)
        return due;
    struct mr_future *made = NULL;
    struct mr_options options = r->copied;
    options.deadline_ms = mrc_left_ms(r->deadline_us, now_us);
    options.future = &made;
    r->options = &options;
    const enum mr_status status = retry_make(r, NULL);

    r->options = NULL;
    if (status == MRC_NO_ROOM_YET)
        return MRC_RETRY_LATER;
    retry_replace(f, status == MR_OK ? made : NULL);
    return status == MR_OK ? MRC_RETRY_NOW : MRC_RETRY_NO;
}
