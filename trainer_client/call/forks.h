/* Tells which process a handle belongs to: the one that made it. In a child that was forked from it, the
 * threads and the locks' owners are missing, and the sockets are the parent's. Any thread. */
#ifndef MRC_FORKS_H
#define MRC_FORKS_H

#include <stdint.h>

/* Returns the number of forks between the load of the library and this process. Handles store it. */
uint32_t mrc_forks(void);

#endif
