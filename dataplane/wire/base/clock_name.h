/* Which clock mr_clock_ns() reads. Any thread. */
#ifndef MR_CLOCK_NAME_H
#define MR_CLOCK_NAME_H

#include <stdint.h>

/* Returns a number that is the same in two processes exactly when their monotonic clocks are: a hash of the
 * machine's boot id and of the time namespace. Never 0. */
uint64_t mr_clock_name(void);

#endif
