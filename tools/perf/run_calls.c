#include "tools/perf/run_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/svg.h"

/* ---- lines ---- */

static uint64_t number_in(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

static void text_in(const json_t *object, const char *name, char *out, size_t out_bytes)
{
    const char *text = json_string_value(json_object_get(object, name));
    (void)snprintf(out, out_bytes, "%s", text != NULL ? text : "");
}

static struct tool_run_call *append(struct tool_run_calls *calls)
{
    if (calls->count == calls->room) {
        const uint32_t room = calls->room == 0 ? 256 : 2 * calls->room;
        struct tool_run_call *more =
            calls->count < TOOL_RUN_CALLS_MAX ? realloc(calls->list, room * sizeof(*more)) : NULL;
        if (more == NULL) {
            calls->left_out++;
            return NULL;
        }
        calls->list = more;
        calls->room = room;
    }
    return &calls->list[calls->count++];
}

bool tool_run_calls_take(struct tool_run_calls *calls, uint32_t core, uint64_t time_ms, const json_t *line)
{
    const json_t *object = json_object_get(line, "call");
    if (object == NULL) {
        calls->lost += number_in(line, "calls_lost");
        calls->left_out += number_in(line, "calls_left_out");
        return json_object_get(line, "calls_lost") != NULL;
    }
    struct tool_run_call *c = append(calls);
    if (c == NULL)
        return true;
    *c = (struct tool_run_call){.time_ms = time_ms,
                                .number = number_in(object, "n"),
                                .arrived_ns = number_in(object, "at"),
                                .total_ns = number_in(object, "total"),
                                .wait_ns = number_in(object, "wait"),
                                .work_ns = number_in(object, "work"),
                                .is_timed = json_object_get(object, "work") != NULL,
                                .core = core,
                                .table = (uint32_t)number_in(object, "table"),
                                .keys = (uint32_t)number_in(object, "keys"),
                                .request_bytes = (uint32_t)number_in(object, "in"),
                                .reply_bytes = (uint32_t)number_in(object, "out")};
    text_in(object, "op", c->op, sizeof(c->op));
    text_in(object, "from", c->client, sizeof(c->client));
    text_in(object, "status", c->status, sizeof(c->status));
    calls->slow += c->total_ns >= calls->slow_ns;
    return true;
}

void tool_run_calls_free(struct tool_run_calls *calls)
{
    free(calls->list);
}

/* ---- the slowest, and bursts ---- */

struct place {
    uint64_t key; /* what it is sorted by, the smallest first */
    uint32_t at;  /* in the list */
};

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static uint64_t slowest_key(const struct tool_run_call *call)
{
    return UINT64_MAX - call->total_ns;
}

static uint64_t time_key(const struct tool_run_call *call)
{
    return call->time_ms;
}

/* Where the slow calls are, in an order; the caller frees it. NULL: there are none, or memory is short. */
static struct place *sort_slow(const struct tool_run_calls *calls,
                               uint64_t (*key)(const struct tool_run_call *call))
{
    struct place *places = calls->slow > 0 ? calloc(calls->slow, sizeof(*places)) : NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; places != NULL && i < calls->count; i++)
        if (calls->list[i].total_ns >= calls->slow_ns)
            places[count++] = (struct place){key(&calls->list[i]), i};
    if (places != NULL)
        qsort(places, count, sizeof(*places), by_key);
    return places;
}

uint32_t tool_run_slowest(const struct tool_run_calls *calls, const struct tool_run_call **out, uint32_t max)
{
    struct place *places = sort_slow(calls, slowest_key);
    const uint32_t count = places == NULL ? 0 : calls->slow < max ? calls->slow : max;
    for (uint32_t i = 0; i < count; i++)
        out[i] = &calls->list[places[i].at];
    free(places);
    return count;
}

static void name_burst(struct tool_slow_burst *b)
{
    char span[24];
    tool_quantity((double)b->longest_ns, TOOL_UNIT_NS, span);
    (void)snprintf(b->text, sizeof(b->text), "%u slow call%s, %s%s", b->calls, b->calls == 1 ? "" : "s",
                   b->calls == 1 ? "" : "up to ", span);
}

void tool_run_calls_end(struct tool_run_calls *calls, uint64_t end_ms)
{
    struct place *places = sort_slow(calls, time_key);
    uint64_t apart_ms = TOOL_SLOW_SPAN_MS_MIN;
    if (end_ms / TOOL_SLOW_BURSTS_MAX + 1 > apart_ms) /* so that there is room for all */
        apart_ms = end_ms / TOOL_SLOW_BURSTS_MAX + 1;
    for (uint32_t i = 0; places != NULL && i < calls->slow; i++) {
        const struct tool_run_call *call = &calls->list[places[i].at];
        struct tool_slow_burst *b = calls->burst_count > 0 ? &calls->bursts[calls->burst_count - 1] : NULL;
        if ((b == NULL || call->time_ms >= b->end_ms + apart_ms) &&
            calls->burst_count < TOOL_SLOW_BURSTS_MAX) {
            b = &calls->bursts[calls->burst_count++];
            *b = (struct tool_slow_burst){.time_ms = call->time_ms};
        }
        b->calls++;
        b->end_ms = call->time_ms;
        if (call->total_ns > b->longest_ns)
            b->longest_ns = call->total_ns;
    }
    for (uint32_t i = 0; i < calls->burst_count; i++)
        name_burst(&calls->bursts[i]);
    free(places);
}

/* ---- what else the core did ---- */

/* How long the core worked on `other` while `slow` was there. */
static uint64_t within_ns(const struct tool_run_call *slow, const struct tool_run_call *other)
{
    const uint64_t other_begin = other->arrived_ns + other->wait_ns;
    const uint64_t begin = slow->arrived_ns > other_begin ? slow->arrived_ns : other_begin;
    const uint64_t slow_end = slow->arrived_ns + slow->total_ns, other_end = other_begin + other->work_ns;
    const uint64_t end = slow_end < other_end ? slow_end : other_end;
    return end > begin ? end - begin : 0;
}

uint32_t tool_run_beside(const struct tool_run_calls *calls, const struct tool_run_call *slow,
                         struct tool_beside out[TOOL_SLOW_BESIDE_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < calls->count; i++) {
        const struct tool_run_call *other = &calls->list[i];
        const uint64_t ns =
            other != slow && other->core == slow->core && other->is_timed ? within_ns(slow, other) : 0;
        if (ns == 0)
            continue;
        uint32_t at = count;
        for (; at > 0 && out[at - 1].ns < ns; at--)
            if (at < TOOL_SLOW_BESIDE_MAX)
                out[at] = out[at - 1];
        if (at < TOOL_SLOW_BESIDE_MAX)
            out[at] = (struct tool_beside){other, ns};
        count += count < TOOL_SLOW_BESIDE_MAX;
    }
    return count;
}
