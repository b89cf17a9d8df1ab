#include "tools/timeline/division.h"

#include <stdlib.h>
#include <string.h>

static const char *const keys[TOOL_PART_COUNT] = {
#define PART_KEY(name, key, text) key,
    TOOL_PARTS(PART_KEY)
#undef PART_KEY
};
static const char *const texts[TOOL_PART_COUNT] = {
#define PART_TEXT(name, key, text) text,
    TOOL_PARTS(PART_TEXT)
#undef PART_TEXT
};

/* What spans of these names are; those of waits for a server are divided. */
static const struct {
    const char *span;
    enum tool_part work, rest;
} kinds[] = {
    {"ask for a batch", TOOL_PART_HUB, TOOL_PART_HUB},
    {"wait for a batch", TOOL_PART_HUB, TOOL_PART_HUB},
    {"ask for rows", TOOL_PART_LOOKUP_WORK, TOOL_PART_LOOKUP_REST},
    {"wait for rows", TOOL_PART_LOOKUP_WORK, TOOL_PART_LOOKUP_REST},
    {"lookup", TOOL_PART_LOOKUP_WORK, TOOL_PART_LOOKUP_REST},
    {"send push", TOOL_PART_PUSH_WORK, TOOL_PART_PUSH_REST},
    {"wait for push", TOOL_PART_PUSH_WORK, TOOL_PART_PUSH_REST},
    {"push", TOOL_PART_PUSH_WORK, TOOL_PART_PUSH_REST},
};

const char *tool_part_text(enum tool_part part)
{
    return texts[part];
}

bool tool_is_trainer(const struct tool_process *p)
{
    return strcmp(p->name, "millraced") != 0 && strcmp(p->name, "millrace-hub") != 0;
}

static bool is_server(const struct tool_process *p)
{
    return strcmp(p->name, "millraced") == 0;
}

/* Of all processes, by batch and time. */
struct batch_spans {
    struct tool_span *list;
    size_t count;
};

/* How long servers work on the batch between these times, on any core. */
static int64_t server_work_ns(const struct tool_traces *t, const struct batch_spans *all, const char *batch,
                              int64_t begin_ns, int64_t end_ns)
{
    size_t low = 0, high = all->count;
    int64_t work_ns = 0, seen_ns = begin_ns;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(all->list[middle].batch, batch) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < all->count && strcmp(all->list[low].batch, batch) == 0; low++) {
        const struct tool_span *s = &all->list[low];
        if (!is_server(&t->processes[s->process]))
            continue;
        const int64_t from_ns = s->begin_ns > seen_ns ? s->begin_ns : seen_ns;
        const int64_t to_ns = s->end_ns < end_ns ? s->end_ns : end_ns;
        if (to_ns > from_ns) {
            work_ns += to_ns - from_ns;
            seen_ns = to_ns;
        }
    }
    return work_ns;
}

/* A span's own time: without the spans that lie in it on its track, which come next in the order of begins.
 */
static int64_t own_ns(const struct tool_traces *t, size_t index)
{
    const struct tool_span *s = &t->spans[index];
    int64_t own = s->end_ns - s->begin_ns, inner_end_ns = s->begin_ns;
    for (size_t i = index + 1; i < t->span_count && t->spans[i].begin_ns < s->end_ns; i++) {
        const struct tool_span *inner = &t->spans[i];
        if (inner->process != s->process || inner->track != s->track || inner->begin_ns < inner_end_ns)
            continue;
        inner_end_ns = inner->end_ns < s->end_ns ? inner->end_ns : s->end_ns;
        own -= inner_end_ns - inner->begin_ns;
    }
    return own;
}

static void count_span(const struct tool_traces *t, size_t index, const struct batch_spans *all,
                       struct tool_division *d)
{
    const struct tool_span *s = &t->spans[index];
    const int64_t own = own_ns(t, index);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strcmp(s->name, kinds[i].span) != 0)
            continue;
        int64_t work = 0;
        if (kinds[i].work != kinds[i].rest && s->batch != NULL)
            work = server_work_ns(t, all, s->batch, s->begin_ns, s->end_ns);
        work = work < own ? work : own;
        d->parts_ns[kinds[i].work] += work;
        d->parts_ns[kinds[i].rest] += own - work;
        return;
    }
    d->parts_ns[TOOL_PART_COMPUTE] += own;
}

static uint64_t count_batches(const struct batch_spans *all, uint32_t process)
{
    const char *last = "";
    uint64_t batches = 0;
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i].process != process || strcmp(all->list[i].batch, last) == 0)
            continue;
        last = all->list[i].batch;
        batches++;
    }
    return batches;
}

bool tool_divide(const struct tool_traces *t, uint32_t process, struct tool_division *out)
{
    struct batch_spans all;
    int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN, known_ns = 0;
    *out = (struct tool_division){.process = process};
    all.list = tool_traces_by_batch(t, &all.count);
    if (all.list == NULL)
        return false;
    for (size_t i = 0; i < t->span_count; i++) {
        const struct tool_span *s = &t->spans[i];
        if (s->process != process)
            continue;
        begin_ns = s->begin_ns < begin_ns ? s->begin_ns : begin_ns;
        end_ns = s->end_ns > end_ns ? s->end_ns : end_ns;
        count_span(t, i, &all, out);
    }
    out->batches = count_batches(&all, process);
    free(all.list);
    out->total_ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
    for (int i = 0; i < TOOL_PART_COUNT; i++)
        known_ns += out->parts_ns[i];
    out->parts_ns[TOOL_PART_OTHER] = out->total_ns > known_ns ? out->total_ns - known_ns : 0;
    return true;
}

/* What no span tells of is not known to be a wait. */
static bool is_wait(enum tool_part part)
{
    return part != TOOL_PART_COMPUTE && part != TOOL_PART_OTHER;
}

int64_t tool_waits_ns(const struct tool_division *d)
{
    int64_t waits_ns = 0;
    for (int i = 0; i < TOOL_PART_COUNT; i++)
        waits_ns += is_wait((enum tool_part)i) ? d->parts_ns[i] : 0;
    return waits_ns;
}

enum tool_part tool_largest_wait(const struct tool_division *d)
{
    enum tool_part largest = TOOL_PART_COMPUTE;
    for (int i = 0; i < TOOL_PART_COUNT; i++) {
        if (!is_wait((enum tool_part)i) || d->parts_ns[i] == 0)
            continue;
        if (largest == TOOL_PART_COMPUTE || d->parts_ns[i] > d->parts_ns[largest])
            largest = (enum tool_part)i;
    }
    return largest;
}

json_t *tool_division_json(const struct tool_traces *t, const struct tool_division *d)
{
    json_t *parts = json_object();
    for (int i = 0; i < TOOL_PART_COUNT; i++)
        (void)json_object_set_new(parts, keys[i], json_real((double)d->parts_ns[i] / 1e9));
    return json_pack("{s:s, s:I, s:f, s:o, s:s}", "trainer", t->processes[d->process].title, "batches",
                     (json_int_t)d->batches, "seconds", (double)d->total_ns / 1e9, "parts_s", parts,
                     "largest_wait", keys[tool_largest_wait(d)]);
}
