/* Lines on the trainer's standard error: errors, and rows that the node did not take, whose pushes are
 * answered like any others. */
#ifndef TDE_REPORT_H
#define TDE_REPORT_H

#include "millrace.h"

/* "millrace: ", and the text, in one write. Any thread. */
void tde_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Rows that were not taken. The instance's thread. */
struct tde_losses {
    uint64_t no_room;     /* rows that no line has reported yet */
    uint64_t reported_us; /* 0: never */
    bool reported_not_finite;
};

/* Adds the result of a push to the table: writes a line about rows that found no room, once a minute at most,
 * and one line about values. */
void tde_losses_add(struct tde_losses *l, const char *table, const struct mr_pushed *pushed, uint64_t now_us);
/* Writes the line that is due, whenever the last one was. */
void tde_losses_end(struct tde_losses *l);

#endif
