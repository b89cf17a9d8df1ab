/* Threads that compute parts of a work beside whoever asks. The asker takes parts itself, so a crew that is
 * busy, or has no threads, only makes it slower. Any number of threads may ask at once. */
#ifndef PS_MODEL_CREW_H
#define PS_MODEL_CREW_H

#include <stdint.h>

struct ps_crew;

/* With up to `threads` threads besides those who ask: as many as can be had. NULL: no memory. */
struct ps_crew *ps_crew_create(uint32_t threads);
void ps_crew_destroy(struct ps_crew *crew); /* nobody asks any more; NULL is fine */

/* run(context, 0) to run(context, count - 1), each once, at once where there are threads; returns when all
 * are done. */
typedef void (*ps_crew_part)(void *context, uint32_t index);
void ps_crew_run(struct ps_crew *crew, ps_crew_part run, void *context, uint32_t count);

#endif
