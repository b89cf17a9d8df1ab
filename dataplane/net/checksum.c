#include "dataplane/net/checksum.h"
#include <string.h>
#include "dataplane/net/bytes.h"

/* Whole packets pass through here on their way out, so the loop is compiled for wide vectors as well.
 * Instrumented builds leave that out: the resolver would run before the sanitizer's runtime is up. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&     \
    !defined(__SANITIZE_THREAD__)
#define DP_WIDE __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define DP_WIDE
#endif

#define LANES          4u
#define LANES_PER_TURN 2u

typedef uint64_t lanes_t __attribute__((vector_size(LANES * sizeof(uint64_t))));

/* Sum of the 32-bit words of `turns` pieces of LANES_PER_TURN vectors. Low and high halves of 64-bit lanes
 * are summed apart, so that no carry is lost: a frame has far fewer than 2^32 words. */
DP_WIDE static uint64_t sum_turns(const uint8_t *data, size_t turns)
{
    lanes_t low[LANES_PER_TURN] = {0}, high[LANES_PER_TURN] = {0};
    uint64_t sum = 0;
    for (; turns > 0; turns--, data += LANES_PER_TURN * sizeof(lanes_t)) {
        for (size_t i = 0; i < LANES_PER_TURN; i++) {
            lanes_t piece;
            memcpy(&piece, data + i * sizeof(piece), sizeof(piece));
            low[i] += piece & UINT32_MAX;
            high[i] += piece >> 32;
        }
    }
    for (size_t i = 0; i < LANES_PER_TURN; i++) {
        lanes_t both = low[i] + high[i];
        for (size_t lane = 0; lane < LANES; lane++)
            sum += both[lane];
    }
    return sum;
}

static uint64_t sum_words(const uint8_t *data, size_t words)
{
    size_t turns = words * sizeof(uint32_t) / (LANES_PER_TURN * sizeof(lanes_t));
    size_t summed = turns * LANES_PER_TURN * sizeof(lanes_t) / sizeof(uint32_t);
    /* Addresses and headers are too short for the call to be worth it. */
    uint64_t sum = turns > 0 ? sum_turns(data, turns) : 0;

    for (size_t i = summed; i < words; i++) {
        uint32_t word;
        memcpy(&word, data + i * sizeof(word), sizeof(word));
        sum += word;
    }
    return sum;
}

uint64_t dp_checksum_add(uint64_t sum, const uint8_t *data, size_t bytes)
{
    size_t words = bytes / sizeof(uint32_t);
    uint8_t tail[sizeof(uint32_t)] = {0};
    uint32_t last;
    sum += sum_words(data, words);
    if (bytes % sizeof(uint32_t) != 0)
        memcpy(tail, data + words * sizeof(uint32_t), bytes % sizeof(uint32_t));
    memcpy(&last, tail, sizeof(last));
    return sum + last;
}

uint64_t dp_checksum_add16(uint64_t sum, uint16_t value)
{
    uint8_t field[2];
    uint16_t as_it_lies;
    dp_put16(field, value);
    memcpy(&as_it_lies, field, sizeof(field));
    return sum + as_it_lies;
}

uint16_t dp_checksum_fold(uint64_t sum)
{
    sum = (sum >> 32) + (sum & UINT32_MAX);
    sum = (sum >> 32) + (sum & UINT32_MAX);
    sum = (sum >> 16) + (sum & UINT16_MAX);
    sum = (sum >> 16) + (sum & UINT16_MAX);
    return (uint16_t)sum;
}

void dp_checksum_store(uint8_t *field, uint64_t sum, int zero_is_none)
{
    uint16_t value = (uint16_t)~dp_checksum_fold(sum);
    if (value == 0 && zero_is_none)
        value = UINT16_MAX;
    memcpy(field, &value, sizeof(value));
}

uint64_t dp_checksum_pseudo4(const uint8_t *source, const uint8_t *destination, uint8_t protocol,
                             uint16_t bytes)
{
    uint32_t from, to;
    memcpy(&from, source, sizeof(from));
    memcpy(&to, destination, sizeof(to));
    return dp_checksum_add16(dp_checksum_add16((uint64_t)from + to, protocol), bytes);
}

uint64_t dp_checksum_pseudo6(const uint8_t *source, const uint8_t *destination, uint8_t protocol,
                             uint16_t bytes)
{
    uint64_t sum = dp_checksum_add(0, source, 16);
    sum = dp_checksum_add(sum, destination, 16);
    sum = dp_checksum_add16(sum, protocol);
    return dp_checksum_add16(sum, bytes);
}
