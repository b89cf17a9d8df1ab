#include "tools/perf/slow_poll.h"

#include "millrace_observe.h"
#include "dataplane/wire/base/clock.h"

#define ANSWER_MS   1000u
#define ANSWERS_MAX 4u /* at a time: more than a core keeps */

struct visit {
    struct tool_slow_poll *poll;
    uint32_t core;
    uint64_t now_us; /* of the run, about when the core answered */
    struct mr_recent_calls_state state;
};

static void skip_call(void *arg, const struct mr_recent_call *call)
{
    (void)arg;
    (void)call;
}

static void take_call(void *arg, const struct mr_recent_call *call)
{
    struct visit *v = arg;
    const uint64_t age_us = (v->state.now_ns - call->arrived_ns) / 1000;
    const uint64_t time_us =
        v->now_us > age_us ? v->now_us - age_us : 0; /* it may have come before the run */
    tool_slow_lines_add(&v->poll->lines, v->core, time_us / 1000, call);
}

enum mr_status tool_slow_poll_try(struct mr_client *client, uint64_t slow_ns)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    return mr_recent_calls(client, &options, 0, slow_ns, MR_RECENT_CALLS_FROM_NOW, NULL, skip_call, NULL);
}

void tool_slow_poll(struct tool_slow_poll *p, uint32_t core)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    struct visit v = {.poll = p, .core = p->first + core, .state = {.left = 1}};
    uint64_t lost = 0;
    for (uint32_t i = 0; i < ANSWERS_MAX && v.state.left > 0; i++) {
        const uint64_t position = p->next[core] > 0 ? p->next[core] - 1 : MR_RECENT_CALLS_FROM_NOW;
        v.now_us = mr_clock_us() - p->started_us;
        if (mr_recent_calls(p->client, &options, core, p->lines.slow_ns, position, &v.state, take_call, &v) !=
            MR_OK)
            break; /* it is away, or busy: next time */
        p->next[core] = v.state.next + 1;
        lost += v.state.lost;
    }
    tool_slow_lines_end(&p->lines, v.core, v.now_us / 1000, lost);
}
