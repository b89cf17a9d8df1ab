/* AddressSanitizer's marks on memory that no allocator of its own looks after. Nothing when built without
 * it. */
#ifndef MR_ASAN_H
#define MR_ASAN_H

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static inline void mr_asan_poison(const void *p, size_t bytes)
{
    __asan_poison_memory_region(p, bytes);
}
static inline void mr_asan_unpoison(const void *p, size_t bytes)
{
    __asan_unpoison_memory_region(p, bytes);
}
#else
static inline void mr_asan_poison(const void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}
static inline void mr_asan_unpoison(const void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}
#endif

#endif
