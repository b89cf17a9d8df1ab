#include "tools/bench/worker.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include "dataplane/wire/base/clock.h"

#define US        UINT64_C(1000)
#define MS        (UINT64_C(1000) * US)
#define SECOND_NS 1000000000ull
#define SPIN_NS   (50 * US) /* without anything to do, before it sleeps */
#define WAKE_NS   (60 * US) /* it wakes up so long before a call is due */
#define SLEEP_NS  (50 * MS) /* at most */
#define PAUSE_NS  MS        /* after a call that failed at once */
#define STOP_NS   (2 * SECOND_NS)
#define SEND_MAX  64u   /* before it looks for answers again */
#define SLACK_NS  1000u /* of timers */

bool tool_worker_init(struct tool_worker *w, const struct tool_bench_plan *plan, const atomic_bool *stop,
                      struct mr_client *client, uint32_t number)
{
    w->plan = plan;
    w->stop = stop;
    w->client = client;
    w->give_up_ns = UINT64_MAX;
    w->calls = calloc(plan->in_flight, sizeof(*w->calls));
    if (plan->rate > 0)
        tool_schedule_init(&w->flight.schedule, plan->rate, plan->is_even, plan->seed, number, plan->clients);
    return tool_caller_init(&w->caller, plan, client, number) && w->calls != NULL;
}

void tool_worker_fini(struct tool_worker *w)
{
    tool_caller_fini(&w->caller);
    free(w->calls);
    mr_client_destroy(w->client);
}

/* ---- calls that end ---- */

/* Keeps the text of the first failure, for the user. */
static void note_error(struct tool_worker *w, enum tool_op op, enum mr_status status)
{
    const char *text = mr_last_error();
    if (status != MR_OK && w->first_error[0] == '\0')
        (void)snprintf(w->first_error, sizeof(w->first_error), "%s: %s", tool_op_name(op),
                       text[0] != '\0' ? text : mr_status_text(status));
}

/* Counts a call, and makes its place free. */
static void worker_count(struct tool_worker *w, struct tool_flight_call *call, enum mr_status status)
{
    const uint64_t now_ns = mr_clock_ns(), latency_ns = tool_flight_end(&w->flight, call, now_ns);
    w->busy_ns = now_ns;
    if (status != MR_OK && latency_ns < PAUSE_NS)
        w->pause_ns = now_ns + PAUSE_NS;
    if (call->due_ns < w->times.measured_ns)
        tool_load_stats_warm_up(&w->stats);
    else
        tool_load_stats_ended(&w->stats, call->op, status, latency_ns, call->keys,
                              tool_call_bytes(w->plan, call->op, call->keys));
}

/* The whole answer is taken, as a trainer would take it. */
static void worker_finish(struct tool_worker *w, struct tool_flight_call *call)
{
    struct mr_reply *reply = NULL;
    enum mr_status status = mr_future_wait(call->future, &reply);
    if (status == MR_OK && !tool_call_is_answered(w->plan, call->op, call->keys, reply))
        status = MR_BAD_MESSAGE;
    note_error(w, call->op, status);
    worker_count(w, call, status);
    mr_reply_free(reply);
    mr_future_destroy(call->future);
}

/* Finishes the calls that have ended, oldest first, as that is how most of them end; looks no further once it
 * has found as many as there are. */
static void find_ended(struct tool_worker *w)
{
    struct mr_link *next;
    for (struct mr_link *at = w->flight.calls.next; at != &w->flight.calls && w->unseen > 0; at = next) {
        struct tool_flight_call *call = MR_CONTAINER(at, struct tool_flight_call, link);
        next = at->next;
        if (!mr_future_wait_for(call->future, 0))
            continue;
        worker_finish(w, call);
        w->unseen--;
    }
    w->unseen = 0;
}

static void take_ended(struct tool_worker *w)
{
    w->unseen += mr_client_progress(w->client);
    if (w->unseen > 0)
        find_ended(w);
}

/* ---- calls that are due ---- */

static bool may_send(const struct tool_worker *w, uint64_t now_ns)
{
    return now_ns >= w->pause_ns && w->flight.count < w->flight.max &&
           tool_flight_next_ns(&w->flight, now_ns) <= now_ns;
}

static void leave_warm_up(struct tool_worker *w, uint64_t now_ns)
{
    if (w->is_measured || now_ns < w->times.measured_ns)
        return;
    w->is_measured = true;
    tool_flight_pass(&w->flight, w->times.measured_ns);
}

static void send_due(struct tool_worker *w)
{
    uint64_t now_ns = mr_clock_ns();
    leave_warm_up(w, now_ns);
    for (uint32_t i = 0; i < SEND_MAX && may_send(w, now_ns); i++) {
        struct tool_flight_call *call = tool_flight_begin(&w->flight, now_ns);
        if (call == NULL)
            return;
        const bool more = i + 1 < SEND_MAX && may_send(w, now_ns);
        call->op = tool_caller_draw(&w->caller, &call->keys);
        const enum mr_status status = tool_caller_send(&w->caller, call->op, call->keys, more, &call->future);
        note_error(w, call->op, status);
        if (status != MR_OK)
            worker_count(w, call, status);
        now_ns = mr_clock_ns();
        w->busy_ns = now_ns;
    }
}

/* ---- between them ---- */

/* When there is something to send; UINT64_MAX: not before a call has ended. */
static uint64_t wake_ns(const struct tool_worker *w, uint64_t now_ns)
{
    if (w->flight.count == w->flight.max)
        return UINT64_MAX;
    const uint64_t next_ns = tool_flight_next_ns(&w->flight, now_ns);
    return next_ns > w->pause_ns ? next_ns : w->pause_ns;
}

static void sleep_until(const struct tool_worker *w, uint64_t until_ns, uint64_t now_ns)
{
    struct pollfd fd = {.fd = mr_client_fd(w->client), .events = POLLIN};
    const int timer_ms = mr_client_timeout_ms(w->client);
    uint64_t span_ns = until_ns - now_ns < SLEEP_NS ? until_ns - now_ns : SLEEP_NS;
    if (timer_ms >= 0 && (uint64_t)timer_ms * MS < span_ns)
        span_ns = (uint64_t)timer_ms * MS;
    const struct timespec span = {.tv_nsec = (long)span_ns};
    (void)ppoll(&fd, 1, &span, NULL);
}

/* Nothing is to be done now: spins for a moment, and sleeps then. */
static void rest(struct tool_worker *w)
{
    const uint64_t now_ns = mr_clock_ns(), next_ns = wake_ns(w, now_ns);
    if (next_ns <= now_ns + WAKE_NS)
        return;
    if (now_ns < w->busy_ns + SPIN_NS) {
        (void)sched_yield();
        return;
    }
    w->unseen = UINT64_MAX; /* looks through all of them before it sleeps */
    find_ended(w);
    if (w->busy_ns <= now_ns)
        sleep_until(w, next_ns == UINT64_MAX ? next_ns : next_ns - WAKE_NS, now_ns);
}

/* ---- the thread ---- */

static void heed_stop(struct tool_worker *w)
{
    if (w->give_up_ns != UINT64_MAX || !atomic_load_explicit(w->stop, memory_order_relaxed))
        return;
    const uint64_t now_ns = mr_clock_ns();
    w->give_up_ns = now_ns + STOP_NS;
    if (now_ns < w->flight.end_ns)
        w->flight.end_ns = now_ns;
}

static bool goes_on(const struct tool_worker *w)
{
    const uint64_t now_ns = mr_clock_ns();
    return now_ns < w->flight.end_ns || (w->flight.count > 0 && now_ns < w->give_up_ns);
}

/* After a stop: what has not been answered yet will not be counted as an answer. */
static void abandon(struct tool_worker *w)
{
    while (w->flight.count > 0) {
        struct tool_flight_call *call = MR_CONTAINER(w->flight.calls.next, struct tool_flight_call, link);
        mr_future_destroy(call->future);
        worker_count(w, call, MR_CANCELLED);
    }
}

static void set_behind(struct tool_worker *w, uint64_t behind_ns)
{
    atomic_store_explicit(&w->behind_ns, behind_ns, memory_order_relaxed);
}

/* Calls that were due and could not be sent have waited until now, and would have waited longer. */
static void charge_unsent(struct tool_worker *w)
{
    uint64_t due_ns;
    uint32_t keys;
    set_behind(w, tool_flight_behind_ns(&w->flight, w->flight.end_ns));
    while (tool_flight_skip(&w->flight, &due_ns)) {
        const enum tool_op op = tool_caller_draw(&w->caller, &keys);
        if (due_ns >= w->times.measured_ns)
            tool_load_stats_unsent(&w->stats, op, w->flight.end_ns - due_ns);
    }
}

static void *worker_run(void *arg)
{
    struct tool_worker *w = arg;
    (void)prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS);
    while (goes_on(w)) {
        heed_stop(w);
        send_due(w);
        take_ended(w);
        set_behind(w, tool_flight_behind_ns(&w->flight, mr_clock_ns()));
        rest(w);
    }
    abandon(w);
    charge_unsent(w);
    atomic_store(&w->is_over, true);
    return NULL;
}

bool tool_worker_start(struct tool_worker *w, const struct tool_bench_times *times)
{
    const struct tool_schedule schedule = w->flight.schedule;
    w->times = *times;
    tool_flight_init(&w->flight, w->calls, w->plan->in_flight, times->start_ns, times->end_ns,
                     w->plan->rate > 0 ? &schedule : NULL);
    return pthread_create(&w->thread, NULL, worker_run, w) == 0;
}

void tool_worker_join(struct tool_worker *w)
{
    (void)pthread_join(w->thread, NULL);
}
