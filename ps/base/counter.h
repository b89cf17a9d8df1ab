/* Counters that one thread at a time writes, while others read them. */
#ifndef PS_COUNTER_H
#define PS_COUNTER_H

#include <stdint.h>

// NOLINTNEXTLINE(readability-non-const-parameter): the store is not seen
static inline void ps_counter_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void ps_counter_add(uint64_t *counter, uint64_t value)
{
    ps_counter_set(counter, *counter + value);
}

static inline uint64_t ps_counter_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

#endif
