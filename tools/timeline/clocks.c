#include "tools/timeline/clocks.h"

#include <stdlib.h>

struct sample {
    int64_t at_ns, offset_ns;
    uint64_t error_ns;
};

/* All that is known of one clock from another one's view, in the order of time once they are joined. */
struct edge {
    uint64_t own, peer;
    struct sample *samples;
    uint32_t count, room;
};

/* A clock from which the reference is reached by `next`, an edge of which it is `own`. */
struct way {
    uint64_t clock, error_ns;
    const struct edge *next; /* NULL: it is the reference */
};

struct tool_clocks {
    struct edge *edges;
    struct way *ways;
    uint32_t edge_count, way_count;
};

struct tool_clocks *tool_clocks_new(void)
{
    return calloc(1, sizeof(struct tool_clocks));
}

void tool_clocks_free(struct tool_clocks *c)
{
    for (uint32_t i = 0; c != NULL && i < c->edge_count; i++)
        free(c->edges[i].samples);
    if (c != NULL) {
        free(c->edges);
        free(c->ways);
    }
    free(c);
}

static struct edge *edge_of(struct tool_clocks *c, uint64_t own, uint64_t peer)
{
    for (uint32_t i = 0; i < c->edge_count; i++)
        if (c->edges[i].own == own && c->edges[i].peer == peer)
            return &c->edges[i];
    struct edge *edges = realloc(c->edges, (c->edge_count + 1) * sizeof(*edges));
    if (edges == NULL)
        return NULL;
    c->edges = edges;
    edges[c->edge_count] = (struct edge){.own = own, .peer = peer};
    return &edges[c->edge_count++];
}

static bool clocks_add(struct tool_clocks *c, uint64_t own, uint64_t peer, struct sample sample)
{
    struct edge *e = edge_of(c, own, peer);
    if (e == NULL)
        return false;
    if (e->count == e->room) {
        const uint32_t room = e->room == 0 ? 16 : 2 * e->room;
        struct sample *samples = realloc(e->samples, room * sizeof(*samples));
        if (samples == NULL)
            return false;
        e->samples = samples;
        e->room = room;
    }
    e->samples[e->count++] = sample;
    return true;
}

bool tool_clocks_measured(struct tool_clocks *c, uint64_t own, uint64_t peer, int64_t at_ns,
                          int64_t offset_ns, uint64_t error_ns)
{
    return clocks_add(c, own, peer, (struct sample){at_ns, offset_ns, error_ns}) &&
           clocks_add(c, peer, own, (struct sample){at_ns + offset_ns, -offset_ns, error_ns});
}

static uint64_t drift_ns(int64_t from_ns, int64_t to_ns)
{
    const int64_t apart_ns = from_ns < to_ns ? to_ns - from_ns : from_ns - to_ns;
    return (uint64_t)apart_ns / 1000000u * TOOL_CLOCK_DRIFT_PPM;
}

static void move_over(const struct edge *e, int64_t *ns, uint64_t *error_ns)
{
    uint32_t after = 0;
    for (uint32_t high = e->count; after < high;) {
        const uint32_t middle = after + (high - after) / 2;
        if (e->samples[middle].at_ns <= *ns)
            after = middle + 1;
        else
            high = middle;
    }
    const struct sample *a = &e->samples[after == 0 ? 0 : after - 1];
    const struct sample *b = &e->samples[after == e->count ? e->count - 1 : after];
    const int64_t length_ns = b->at_ns - a->at_ns;
    const double share = length_ns > 0 ? (double)(*ns - a->at_ns) / (double)length_ns : 0;
    const uint64_t near_ns = drift_ns(a->at_ns, *ns), far_ns = drift_ns(b->at_ns, *ns);
    *error_ns += a->error_ns > b->error_ns ? a->error_ns : b->error_ns;
    *error_ns += near_ns < far_ns ? near_ns : far_ns;
    *ns += a->offset_ns + (int64_t)(share * (double)(b->offset_ns - a->offset_ns));
}

static int by_time(const void *left, const void *right)
{
    const struct sample *a = left, *b = right;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

static uint64_t worst_ns(const struct edge *e)
{
    uint64_t worst = 0;
    for (uint32_t i = 0; i < e->count; i++)
        worst = e->samples[i].error_ns > worst ? e->samples[i].error_ns : worst;
    return worst;
}

static struct way *way_of(const struct tool_clocks *c, uint64_t clock)
{
    for (uint32_t i = 0; i < c->way_count; i++)
        if (c->ways[i].clock == clock)
            return &c->ways[i];
    return NULL;
}

/* Takes the edge into its way when that is the better one. True: something changed. */
static bool relax(struct tool_clocks *c, const struct edge *e)
{
    const struct way *there = way_of(c, e->peer);
    struct way *here = way_of(c, e->own);
    if (there == NULL)
        return false;
    const uint64_t error_ns = there->error_ns + worst_ns(e);
    if (here != NULL && here->error_ns <= error_ns)
        return false;
    if (here == NULL)
        here = &c->ways[c->way_count++];
    *here = (struct way){e->own, error_ns, e};
    return true;
}

bool tool_clocks_join(struct tool_clocks *c, uint64_t reference)
{
    struct way *ways = realloc(c->ways, (c->edge_count + 1) * sizeof(*ways));
    if (ways == NULL)
        return false;
    c->ways = ways;
    c->ways[0] = (struct way){.clock = reference};
    c->way_count = 1;
    for (uint32_t i = 0; i < c->edge_count; i++)
        qsort(c->edges[i].samples, c->edges[i].count, sizeof(struct sample), by_time);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < c->edge_count; i++)
            changed |= relax(c, &c->edges[i]);
    }
    return true;
}

bool tool_clocks_move(const struct tool_clocks *c, uint64_t clock, int64_t *ns, uint64_t *error_ns)
{
    const struct way *way = way_of(c, clock);
    *error_ns = 0;
    if (way == NULL)
        return false;
    for (; way->next != NULL; way = way_of(c, way->next->peer))
        move_over(way->next, ns, error_ns);
    return true;
}
