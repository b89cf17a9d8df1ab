#include "trainer_client/hub/plan/stream.h"

#include <stdbool.h>
#include <string.h>
#include "millrace_admin.h"

static struct mr_plan plan_of(const struct mr_stream *s)
{
    return (struct mr_plan){{s->plan[0], s->plan[1]}, s->plan[2]};
}

static const struct mr_stream *stream_find(const struct mr_stream *streams, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++)
        if (streams[i].stream == number)
            return &streams[i];
    return NULL;
}

static bool is_of_request(const struct mr_stream *s, const struct mr_plan *plan)
{
    return !s->differs && memcmp(s->plan, plan->request, sizeof(plan->request)) == 0;
}

const struct mr_stream *hub_stream_of_request(const struct mr_stream *streams, uint32_t count,
                                              const struct mr_plan *plan)
{
    const struct mr_stream *best = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (is_of_request(&streams[i], plan) && (best == NULL || streams[i].applied > best->applied))
            best = &streams[i];
    return best;
}

enum hub_stream_found hub_stream_choose(const struct mr_stream *streams, uint32_t count,
                                        const struct mr_plan *plan, uint32_t preferred, uint32_t *number)
{
    for (uint32_t i = 0; i < count; i++) {
        struct mr_plan other = plan_of(&streams[i]);
        if (is_of_request(&streams[i], plan) && (other.data == plan->data || streams[i].applied > 0)) {
            *number = streams[i].stream;
            return other.data == plan->data ? HUB_STREAM_OWN : HUB_STREAM_CHANGED;
        }
    }
    const struct mr_stream *s = stream_find(streams, count, preferred);
    struct mr_plan unknown = MR_PLAN_UNKNOWN, other = s != NULL ? plan_of(s) : unknown;
    *number = preferred;
    if (s != NULL && !s->differs && mr_plan_same(&other, &unknown))
        return HUB_STREAM_ADOPTED;
    for (uint32_t tries = 0; s != NULL && tries < MR_STREAMS_MAX; tries++) {
        *number = (*number + 1) % MR_STREAMS_MAX;
        s = stream_find(streams, count, *number);
    }
    return HUB_STREAM_FREE;
}
