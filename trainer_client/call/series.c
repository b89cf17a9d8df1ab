#include "trainer_client/call/series.h"

#include <stdio.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/outcome.h"
#include "trainer_client/call/retry.h"

enum mr_status mrc_series_begin(struct mrc_series *s)
{
    s->pushed.is_known = true;
    if (s->options.future == NULL)
        return MR_OK;
    const enum mr_status status = mrc_future_new(s->client, NULL, s->op, 0, 0, 0, 0, &s->future);
    if (status == MR_OK)
        s->future->series = s;
    return status;
}

void mrc_series_free(struct mrc_series *s)
{
    if (s->future != NULL)
        mrc_future_free(s->future);
    for (; s->taken < s->made; s->taken++)
        mr_future_destroy(s->calls[s->taken % MRC_SERIES_IN_FLIGHT].future);
    s->free(s);
}

/* Notes a failure, whose line is this thread's last error. After a push that is kept the others are made all
 * the same: if nobody answers them they are kept, too, and the push is applied as a whole once there is a
 * server. So any other failure replaces that of a kept push, and none is replaced by it. Among those others
 * MR_UNKNOWN_OUTCOME takes precedence. */
static void series_note_failure(struct mrc_series *s, enum mr_status status, bool kept)
{
    const bool is_worse =
        !kept && (!s->has_failed || (status == MR_UNKNOWN_OUTCOME && s->failure != MR_UNKNOWN_OUTCOME));
    s->has_failed |= !kept;
    if (s->failure != MR_OK && !is_worse)
        return;
    s->failure = status;
    (void)snprintf(s->line, sizeof(s->line), "%s", mr_last_error());
}

static void add_pushed(struct mr_pushed *sum, const struct mr_pushed *more)
{
    sum->is_known &= more->is_known;
    sum->sent += more->sent;
    sum->applied += more->applied;
    sum->refused += more->refused;
    sum->without_row += more->without_row;
    sum->not_finite += more->not_finite;
}

/* Waits for the first call in flight, and takes its outcome. */
static void series_take_first(struct mrc_series *s)
{
    struct mrc_series_call *c = &s->calls[s->taken % MRC_SERIES_IN_FLIGHT];
    struct mr_reply *reply = NULL;
    enum mr_status status = mr_future_wait(c->future, s->take != NULL ? &reply : NULL);
    const bool kept = status == MR_UNKNOWN_OUTCOME && mrc_outcome_is_kept(c->future);
    if (status == MR_OK) {
        s->succeeded++;
        add_pushed(&s->pushed, &c->pushed);
        if (s->take != NULL)
            status = s->take(s, s->taken, reply);
    }
    s->kept += kept;
    if (status != MR_OK)
        series_note_failure(s, status, kept);
    mr_reply_free(reply);
    mr_future_destroy(c->future);
    s->taken++;
}

/* Once nobody has answered in time, what comes next has no time to wait for room: it is made when nothing is
 * in flight. */
const struct mr_options *mrc_series_next(struct mrc_series *s)
{
    while (!s->has_failed && s->made - s->taken == MRC_SERIES_IN_FLIGHT)
        series_take_first(s);
    uint64_t now_us = mr_clock_us();
    while (!s->has_failed && (s->kept > 0 || now_us >= s->deadline_us) && s->taken < s->made) {
        series_take_first(s);
        now_us = mr_clock_us();
    }
    if (s->has_failed)
        return NULL;
    if (now_us >= s->deadline_us && s->kept == 0) {
        series_note_failure(
            s,
            mrc_error(MR_DEADLINE_EXCEEDED,
                      "%s: %s: its deadline came before all of its %u parts were sent: give it a "
                      "longer one",
                      s->client->server, mr_op_name(s->op), s->call_count),
            false);
        return NULL;
    }
    struct mrc_series_call *c = &s->calls[s->made % MRC_SERIES_IN_FLIGHT];
    s->next = s->options;
    s->next.deadline_ms = now_us < s->deadline_us ? mrc_left_ms(s->deadline_us, now_us) : 1;
    s->next.more = false;
    s->next.future = &c->future;
    s->next.pushed = s->options.pushed != NULL ? &c->pushed : NULL;
    c->pushed = (struct mr_pushed){.is_known = true};
    return &s->next;
}

void mrc_series_made(struct mrc_series *s, enum mr_status status)
{
    if (status == MR_OK)
        s->made++;
    else
        series_note_failure(s, status, false);
}

/* Reports the outcome. A push of which a call was applied, or may be, has an unknown one unless all of it
 * was, or will be. */
static enum mr_status series_outcome(const struct mrc_series *s)
{
    const bool may_be_applied = s->succeeded > 0 || s->kept > 0 || s->failure == MR_UNKNOWN_OUTCOME;
    char step[MRC_STEPS_BYTES] = ""; /* the line of an unknown outcome has it */
    if (s->failure == MR_OK)
        return MR_OK;
    if (mr_op_repeatable(s->op) || !may_be_applied || s->succeeded + s->kept == s->call_count)
        return mrc_error(s->failure, "%s", s->line);
    if (s->failure != MR_UNKNOWN_OUTCOME)
        mrc_of_steps(s->options.step, s->options.step, step);
    return mrc_error(
        MR_UNKNOWN_OUTCOME,
        "%.560s; the call%s was made in %u parts: %u were applied, %u are kept to be sent again, %u were not "
        "sent",
        s->line, step, s->call_count, s->succeeded, s->kept, s->call_count - s->made);
}

enum mr_status mrc_series_wait(struct mrc_series *s, struct mr_reply **reply)
{
    while (s->taken < s->made)
        series_take_first(s);
    enum mr_status status = series_outcome(s);
    if (status != MR_OK)
        return status;
    if (s->options.pushed != NULL && s->op == MR_OP_PUSH_GRAD)
        *s->options.pushed = s->pushed;
    return reply == NULL || s->take == NULL ? MR_OK : s->give(s, reply);
}

enum mr_status mrc_series_run(struct mrc_series *s, struct mr_reply **reply)
{
    if (s->future != NULL && s->made > 0) {
        *s->options.future = s->future;
        s->future = NULL;
        return MR_OK;
    }
    enum mr_status status = mrc_series_wait(s, reply);

    mrc_series_free(s);
    return status;
}

bool mrc_series_poll(struct mrc_series *s, uint64_t until_us)
{
    for (uint32_t i = s->taken; i < s->made; i++) {
        struct mr_future *f = s->calls[i % MRC_SERIES_IN_FLIGHT].future;
        if (!mr_future_wait_for(f, mrc_left_ms(until_us, mr_clock_us())))
            return false;
    }
    return true;
}

void mrc_series_notify(struct mrc_series *s, int event_fd)
{
    for (uint32_t i = s->taken; i < s->made; i++)
        mr_future_notify(s->calls[i % MRC_SERIES_IN_FLIGHT].future, event_fd);
}
