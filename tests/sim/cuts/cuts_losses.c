#include <stdio.h>
#include <string.h>
#include "cuts.h"

/* The line names steps, as "pushes of steps A..B", or "of step A". */
void cuts_losses_note(struct cuts_losses *losses)
{
    const char *steps = strstr(mr_last_error(), " of step");
    unsigned long long from = 0, to = 0;
    if (steps != NULL && sscanf(steps, " of step %llu", &from) == 1)
        to = from;
    else if (steps == NULL || sscanf(steps, " of steps %llu..%llu", &from, &to) != 2)
        cuts_fail("a push has an unknown outcome, and no loss is reported: %s", mr_last_error());
    if (from == 0 || to < from || to > CUTS_STEPS_MAX)
        cuts_fail("lost are pushes of steps %llu..%llu, and so many were never made", from, to);
    for (uint64_t i = from; i <= to; i++)
        losses->steps[i] = true;
    losses->reports++;
}
