/* Memory for keys: no core dump has it, and it is wiped when it is freed. Any thread. */
#ifndef MR_KEY_MEMORY_H
#define MR_KEY_MEMORY_H

#include <stddef.h>

/* For pre-shared keys: zeroed, between guard pages, and kept out of swap where the process may lock memory.
 * NULL: no memory. */
void *mr_key_memory_alloc(size_t bytes);
void mr_key_memory_free(void *memory); /* NULL is fine */

/* For what has keys of sessions among other things: zeroed, and of pages that take no memory until they are
 * used. */
void *mr_key_pages_alloc(size_t bytes);
void mr_key_pages_free(void *pages, size_t bytes); /* NULL is fine */

#endif
