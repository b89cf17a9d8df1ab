/* Big-endian fields of network headers at any alignment. */
#ifndef DP_BYTES_H
#define DP_BYTES_H

#include <stdint.h>

static inline uint16_t dp_get16(const uint8_t *p)
{
    return (uint16_t)(((unsigned)p[0] << 8) | p[1]);
}

static inline void dp_put16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

#endif
