#include "trainer_client/call/future.h"

#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/call_hooks.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/call/outcome.h"
#include "trainer_client/call/own_latency.h"
#include "trainer_client/call/retry.h"
#include "trainer_client/call/series.h"

void mrc_future_notify(const struct mr_future *f)
{
    uint64_t one = 1;
    if (f->notify_fd >= 0)
        (void)!write(f->notify_fd, &one, sizeof(one));
}

static bool has_ended(const void *arg)
{
    const struct mr_future *f = arg;
    return f->ended;
}

/* Waits, under the lock. How long a call takes counts until its caller goes on: what the thread that received
 * the answer has to send before that is a part of it. */
static void wait_for_end(struct mr_future *f)
{
    f->awaited = !f->ended;
    (void)mrc_wait(f->client, has_ended, f, UINT64_MAX);
    if (f->awaited)
        mrc_own_latency_ended(f);
}

static enum mr_status future_finish(struct mr_future *f, struct mr_reply **reply)
{
    return f->finish != NULL ? f->finish(f, reply) : mrc_reply_give(f, reply);
}

/* Finishes a push whose caller asked what became of it. */
static enum mr_status finish_counted(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_pushed pushed;
    enum mr_status status = mrc_pushed(f, &pushed);
    if (status == MR_OK && f->finish != NULL)
        status = f->finish(f, reply);
    if (status == MR_OK)
        *f->pushed = pushed;
    return status;
}

/* Returns the outcome of a call that has ended, and writes its outputs. Not under the lock. */
static enum mr_status conclude(struct mr_future *f, struct mr_reply **reply)
{
    mrc_call_hooks.settle(f);
    enum mr_status status = mrc_outcome(f);

    if (status != MR_OK) {
        if (f->takes_some)
            (void)future_finish(f, reply);
        return status;
    }
    return f->pushed != NULL ? finish_counted(f, reply) : future_finish(f, reply);
}

enum mr_status mrc_future_run(struct mr_future *f, const struct mr_options *options, struct mr_reply **reply)
{
    struct mr_client *client = f->client;
    const bool waits = options == NULL || options->future == NULL;
    enum mr_status status = mrc_future_send(f, waits);
    if (status == MR_OK && !waits) {
        pthread_mutex_unlock(&client->lock);
        *options->future = f;
        return MR_OK;
    }
    if (status == MR_OK) {
        wait_for_end(f);
        pthread_mutex_unlock(&client->lock);
        status = conclude(f, reply);
    }
    mrc_future_free(f);
    return status;
}

/* ---- the public functions ---- */

enum mr_status mr_future_wait(struct mr_future *future, struct mr_reply **reply)
{
    if (future == NULL)
        return mrc_bad_argument("mr_future_wait", "future is NULL");
    if (future->waited)
        return mrc_bad_argument("mr_future_wait", "this future has been waited for before");
    if (mrc_is_inherited(future->client))
        return mrc_check_process(future->client, mr_op_name(future->options.op));
    struct mr_reply *tensors = NULL; /* remains NULL when the whole answer goes into other outputs */
    enum mr_status status;
    if (future->series != NULL) {
        status = mrc_series_wait(future->series, reply == NULL ? NULL : &tensors);
    } else {
        do {
            pthread_mutex_lock(&future->client->lock);
            wait_for_end(mrc_retry_latest(future));
            pthread_mutex_unlock(&future->client->lock);
        } while (mrc_retry_next(future, UINT64_MAX) == MRC_RETRY_NOW);
        status = conclude(mrc_retry_latest(future), reply == NULL ? NULL : &tensors);
    }
    future->waited = true;
    if (status == MR_OK && reply != NULL)
        *reply = tensors;
    return status;
}

/* Returns whether the latest try of the future that the caller has needs nothing more to be waited for. */
static bool is_over(const void *arg)
{
    struct mr_future *f = (void *)(uintptr_t)arg;
    const struct mr_future *latest = mrc_retry_latest(f);
    bool was_refused = false;
    if (!latest->ended || !mrc_call_hooks.has_settled(latest))
        return false;
    if (mrc_cluster_is_settled(f->client) || f->retry == NULL || f->retry->is_over ||
        mr_clock_us() >= f->options.deadline_us)
        return true;
    for (uint32_t i = 0; i < latest->request_count; i++)
        was_refused |= latest->requests[i].status == MR_WRONG_OWNER;
    return !was_refused;
}

/* The caller was notified and polled, but the retry was not possible yet. Notify again when there is more
 * room than there was. Under the lock. */
static void notify_later(struct mr_future *f, uint64_t room_made)
{
    const struct mr_future *latest = mrc_retry_latest(f);
    if (!latest->ended || latest->notify_fd < 0)
        return;
    mr_list_remove(&f->pending_notify);
    mr_list_append(&f->client->pending_notify, &f->pending_notify);
    f->room_made = room_made;
}

void mrc_futures_notify_pending(struct mr_client *client)
{
    struct mr_link *next;
    for (struct mr_link *at = client->pending_notify.next; at != &client->pending_notify; at = next) {
        struct mr_future *f = MR_CONTAINER(at, struct mr_future, pending_notify);
        next = at->next;
        if ((f->room_made != client->room_made && is_over(f)) || mr_clock_us() >= f->options.deadline_us) {
            mr_list_remove(at);
            mrc_future_notify(mrc_retry_latest(f));
        }
    }
}

uint64_t mrc_futures_next_us(const struct mr_client *client)
{
    uint64_t next_us = UINT64_MAX;
    const struct mr_link *pending = &client->pending_notify;
    for (const struct mr_link *at = pending->next; at != pending; at = at->next) {
        const struct mr_future *f = MR_CONTAINER(at, struct mr_future, pending_notify);
        if (f->options.deadline_us < next_us)
            next_us = f->options.deadline_us;
    }
    return next_us;
}

/* Returns whether a call is over, for which it waits until then at most; makes it again if need be. */
static bool future_poll(struct mr_future *f, uint64_t until_us)
{
    if (f->series != NULL)
        return mrc_series_poll(f->series, until_us);
    for (;;) {
        pthread_mutex_lock(&f->client->lock);
        const bool over = mrc_wait(f->client, is_over, f, until_us);
        const uint64_t room_made = f->client->room_made;
        if (!over)
            notify_later(f, room_made - 1);
        pthread_mutex_unlock(&f->client->lock);
        if (!over)
            return false;
        const enum mrc_retry_due due = mrc_retry_next(f, until_us);
        if (due == MRC_RETRY_NO)
            return true;
        if (due == MRC_RETRY_NOW)
            continue;
        pthread_mutex_lock(&f->client->lock);
        (void)mrc_progress_once(f->client); /* polling alone makes progress */
        notify_later(f, room_made);
        pthread_mutex_unlock(&f->client->lock);
        return false;
    }
}

/* In the child of a fork there is nothing to wait for; mr_future_wait() reports why. */
bool mr_future_done(struct mr_future *future)
{
    if (future == NULL || mrc_is_inherited(future->client) || future_poll(future, 0))
        return true;
    pthread_mutex_lock(&future->client->lock);
    (void)mrc_progress_once(future->client);
    pthread_mutex_unlock(&future->client->lock);
    return future_poll(future, 0);
}

bool mr_future_wait_for(struct mr_future *future, uint32_t timeout_ms)
{
    return future == NULL || mrc_is_inherited(future->client) ||
           future_poll(future, mr_clock_us() + timeout_ms * UINT64_C(1000));
}

void mr_future_notify(struct mr_future *future, int event_fd)
{
    if (future == NULL || mrc_is_inherited(future->client))
        return;
    if (future->series != NULL) {
        mrc_series_notify(future->series, event_fd);
        return;
    }
    pthread_mutex_lock(&future->client->lock);
    struct mr_future *latest = mrc_retry_latest(future);

    latest->notify_fd = event_fd;
    if (latest->ended)
        mrc_future_notify(latest);
    pthread_mutex_unlock(&future->client->lock);
}

static void future_abandon(struct mr_future *f)
{
    if (f->ended)
        mrc_future_free_locked(f);
    else
        f->abandoned = true;
}

void mr_future_destroy(struct mr_future *future)
{
    if (future == NULL || mrc_is_inherited(future->client))
        return;
    struct mr_client *client = future->client;
    if (future->series != NULL) {
        mrc_series_free(future->series);
        mrc_future_free(future);
        return;
    }
    pthread_mutex_lock(&client->lock);
    mr_list_remove(&future->pending_notify);
    if (mrc_retry_latest(future) != future)
        future_abandon(mrc_retry_latest(future));
    future_abandon(future);
    pthread_mutex_unlock(&client->lock);
}
