#include "tools/bench/schedule.h"

#include <math.h>
#include "tools/bench/random.h"

#define SECOND_NS 1e9

/* Exponentially distributed. */
static double draw_gap_ns(struct tool_schedule *s)
{
    return -log1p(-tool_random_unit(&s->random)) / s->rate * SECOND_NS;
}

void tool_schedule_init(struct tool_schedule *s, double rate, bool is_even, uint64_t seed, uint32_t client,
                        uint32_t client_count)
{
    uint64_t own = ~(seed + client); /* other numbers than those of the client's keys */
    *s = (struct tool_schedule){
        .rate = rate / client_count, .is_even = is_even, .random = tool_random_next(&own)};
    s->first_ns = is_even ? client / rate * SECOND_NS : draw_gap_ns(s);
    s->next_ns = s->first_ns;
}

/* Even ones are counted from the first, so that no error adds up. */
void tool_schedule_advance(struct tool_schedule *s)
{
    s->count++;
    if (s->is_even)
        s->next_ns = s->first_ns + (double)s->count / s->rate * SECOND_NS;
    else
        s->next_ns += draw_gap_ns(s);
}
