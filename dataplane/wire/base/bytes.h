/* Sizes in bytes. */
#ifndef MR_BYTES_H
#define MR_BYTES_H

#include <stdint.h>

#define MR_KIB (UINT64_C(1) << 10)
#define MR_MIB (UINT64_C(1) << 20)

/* The size with the padding up to a multiple of 8, as tensors, messages and records have it on the wire, in
 * buffers and in files. */
static inline uint64_t mr_padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

#endif
