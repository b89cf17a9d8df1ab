/* The Internet checksum (RFC 1071). Pure, any thread.
 *
 * A sum is kept unfolded and in the machine's byte order: the one's complement sum does not depend on byte
 * order, so the bytes are added as they lie (RFC 1071, section 2B) and the two octets of the result are
 * stored as they lie, too.
 */
#ifndef DP_CHECKSUM_H
#define DP_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Adds `bytes` bytes, from any alignment. Pieces of one sum must have an even length, but for the last. */
uint64_t dp_checksum_add(uint64_t sum, const uint8_t *data, size_t bytes);

/* Adds a 16-bit number of host order. */
uint64_t dp_checksum_add16(uint64_t sum, uint16_t value);

/* The folded sum, not complemented; 0xffff over data that includes its own right checksum. */
uint16_t dp_checksum_fold(uint64_t sum);

/* Writes the complement of the sum at `field`. With `zero_is_none` (UDP: RFC 768, RFC 8200 section 8.1) a
 * result of 0 is written as 0xffff. */
void dp_checksum_store(uint8_t *field, uint64_t sum, int zero_is_none);

/* Sum of the pseudo header of IPv4 or IPv6 (addresses, protocol, length of what the checksum covers). */
uint64_t dp_checksum_pseudo4(const uint8_t *source, const uint8_t *destination, uint8_t protocol,
                             uint16_t bytes);
uint64_t dp_checksum_pseudo6(const uint8_t *source, const uint8_t *destination, uint8_t protocol,
                             uint16_t bytes);

#endif
