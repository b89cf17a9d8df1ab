/* Tells of rows that the node did not take: pushes are answered all the same. The instance's thread. */
#ifndef TDE_LOSSES_H
#define TDE_LOSSES_H

#include "millrace.h"

struct tde_losses {
    uint64_t no_room; /* rows of which no line tells yet */
    uint64_t told_us; /* 0: never */
    bool told_not_finite;
};

/* What became of a push to the table: a line about rows that found no room, once a minute at most, and one
 * about values. */
void tde_losses_add(struct tde_losses *l, const char *table, const struct mr_pushed *pushed, uint64_t now_us);
/* The line that is due, whenever the last one was. */
void tde_losses_end(struct tde_losses *l);

#endif
