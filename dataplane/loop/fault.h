/* What a bad network does to packets, decided by a seed: loss, duplicates, reordering, delay, corruption.
 *
 * For tests of a real server. Pure: packets are opaque here, time comes in; fault_port.c applies it to a
 * port's bursts. The same seed and the same calls decide the same. One thread.
 */
#ifndef DP_FAULT_H
#define DP_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DP_FAULT_HELD_MAX        256u
#define DP_FAULT_PPM             1000000u /* always */
#define DP_FAULT_REORDER_WAIT_US 10000u   /* a packet held back with nothing after it */

/* Parts per million of packets. A packet has one fault at most, but for a duplicate or a late one that is
 * damaged too. */
struct dp_fault_rates {
    uint32_t loss_ppm;
    uint32_t duplicate_ppm;
    uint32_t reorder_ppm;
    uint32_t delay_ppm;
    uint32_t corrupt_ppm;
    uint32_t reorder_packets; /* how many overtake one that is held back */
    uint32_t delay_us;
};

enum dp_fault_kind { DP_FAULT_NONE, DP_FAULT_LOSE, DP_FAULT_DUPLICATE, DP_FAULT_REORDER, DP_FAULT_DELAY };

struct dp_fault_choice {
    enum dp_fault_kind kind;
    bool corrupt; /* never with DP_FAULT_LOSE */
};

struct dp_fault_held {
    void *packet;
    uint64_t overtaken_at; /* released once so many have passed, or ... */
    uint64_t due_us;       /* ... at this time */
};

struct dp_fault {
    struct dp_fault_rates rates;
    uint64_t random;
    uint64_t passed; /* packets decided on so far */
    uint32_t held_count;
    struct dp_fault_held held[DP_FAULT_HELD_MAX]; /* in the order they were held back */
};

void dp_fault_init(struct dp_fault *fault, const struct dp_fault_rates *rates, uint64_t seed);

/* What becomes of the next packet. */
struct dp_fault_choice dp_fault_choose(struct dp_fault *fault);

/* Keeps a packet for which REORDER or DELAY was chosen; false when no more can be held: it goes on as it
 * is. */
bool dp_fault_hold(struct dp_fault *fault, enum dp_fault_kind kind, void *packet, uint64_t now_us);
/* The next packet that has been held long enough, or NULL. */
void *dp_fault_release(struct dp_fault *fault, uint64_t now_us);

/* Damages a frame's bytes after the first `spare` of them: either flips one to four bits, or exchanges two
 * 16-bit words that differ, which the Internet checksum cannot see (RFC 1071 adds the words up in any order).
 * Does nothing when no byte is left. */
void dp_fault_damage(struct dp_fault *fault, uint8_t *bytes, size_t byte_count, size_t spare);

#endif
