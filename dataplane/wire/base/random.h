/* Random bytes of the kernel, for ids, nonces and cookies. Any thread. */
#ifndef MR_RANDOM_H
#define MR_RANDOM_H

#include <stddef.h>

/* Fills in all of them: from /dev/urandom where the call for them is refused. Ends the process with a line if
 * there are none at all: nobody could go on without. */
void mr_random_fill(void *out, size_t bytes);

#endif
