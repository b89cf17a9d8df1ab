/* The same as ring.c with a ring that is empty at first, so that items are taken while others are put. */
#define OLD 0u
#include "ring.c" // NOLINT(bugprone-suspicious-include)
