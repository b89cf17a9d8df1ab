/* One core's memory for tables: a jemalloc arena of its own whose extents come from 2 MiB aligned, huge-page backed
 * mappings, with a limit and an exact account. Belongs to one thread; `used` may be read from any. */
#ifndef PS_ARENA_H
#define PS_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct ps_arena;

/* limit_bytes: the sum of mapped extents never exceeds it. NULL when memory is short. */
struct ps_arena *ps_arena_create(size_t limit_bytes);
void ps_arena_destroy(struct ps_arena *a); /* unmaps everything allocated from it */
/* NULL when the limit or the machine's memory is reached. Zeroed. Alignment is a power of two. */
void *ps_arena_alloc(struct ps_arena *a, size_t bytes, size_t alignment);
void ps_arena_free(struct ps_arena *a, void *p, size_t bytes, size_t alignment); /* NULL is fine */
size_t ps_arena_mapped_bytes(const struct ps_arena *a);    /* what the process holds for it */
size_t ps_arena_allocated_bytes(const struct ps_arena *a); /* what was asked for and not freed */
size_t ps_arena_limit_bytes(const struct ps_arena *a);

#endif
