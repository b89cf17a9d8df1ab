#include "dataplane/wire/session/key_memory.h"

#include <sodium.h>
#include <string.h>
#include <sys/mman.h>

void *mr_key_memory_alloc(size_t bytes)
{
    void *memory = sodium_init() >= 0 ? sodium_malloc(bytes) : NULL;
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

void mr_key_memory_free(void *memory)
{
    sodium_free(memory);
}

void *mr_key_pages_alloc(size_t bytes)
{
    void *pages =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    (void)madvise(pages, bytes, MADV_DONTDUMP);
    return pages;
}

void mr_key_pages_free(void *pages, size_t bytes)
{
    if (pages != NULL)
        (void)munmap(pages, bytes); /* the kernel clears pages before it gives them to anybody else */
}
