/* The call RECENT_CALLS: what a core's last calls were, or, of all calls, the slow ones with some before and
 * after each. A core keeps a limited number of both, the newest; a reader goes on where it has stopped, and
 * learns how many it has missed. */
#ifndef MR_RECENT_CALLS_H
#define MR_RECENT_CALLS_H

#include <stdint.h>
#include "dataplane/wire/format/bodies.h"

#define MR_RECENT_CALLS_MAX 256u                    /* in an answer */
#define MR_RECENT_FROM_NOW  UINT64_MAX              /* as a position: behind what is there */
#define MR_RECENT_SLOW_MAX  UINT64_C(1000000000000) /* ns */

#endif
