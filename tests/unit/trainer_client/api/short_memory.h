/* Memory that runs out: on this thread, once, after so many allocations. For tests that are linked with
 * --wrap=malloc,--wrap=calloc. */
#ifndef SHORT_MEMORY_H
#define SHORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

static _Thread_local int allocations_left = -1;

static bool runs_out(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return runs_out() ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return runs_out() ? NULL : __real_calloc(count, bytes);
}

#endif
