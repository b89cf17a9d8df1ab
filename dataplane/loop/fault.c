#include "dataplane/loop/fault.h"
#include <string.h>

#define SWAP_TRIES 16u

/* xorshift64* (Vigna, 2016). */
static uint64_t next_random(struct dp_fault *fault)
{
    fault->random ^= fault->random >> 12;
    fault->random ^= fault->random << 25;
    fault->random ^= fault->random >> 27;
    return fault->random * UINT64_C(0x2545f4914f6cdd1d);
}

/* 0 .. limit-1, from the better half of the bits. */
static uint32_t random_below(struct dp_fault *fault, uint32_t limit)
{
    return (uint32_t)(((next_random(fault) >> 32) * limit) >> 32);
}

void dp_fault_init(struct dp_fault *fault, const struct dp_fault_rates *rates, uint64_t seed)
{
    memset(fault, 0, sizeof(*fault));
    fault->rates = *rates;
    fault->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1; /* small seeds differ in all bits */
    if (fault->random == 0)
        fault->random = 1;
    for (int i = 0; i < 4; i++)
        (void)next_random(fault);
}

struct dp_fault_choice dp_fault_choose(struct dp_fault *fault)
{
    const struct dp_fault_rates *rates = &fault->rates;
    const uint32_t share[] = {rates->loss_ppm, rates->duplicate_ppm, rates->reorder_ppm, rates->delay_ppm};
    static const enum dp_fault_kind kind[] = {DP_FAULT_LOSE, DP_FAULT_DUPLICATE, DP_FAULT_REORDER,
                                              DP_FAULT_DELAY};
    uint32_t drawn = random_below(fault, DP_FAULT_PPM);
    struct dp_fault_choice choice = {.corrupt = random_below(fault, DP_FAULT_PPM) < rates->corrupt_ppm};
    fault->passed++;
    for (size_t i = 0; i < sizeof(share) / sizeof(share[0]); i++) {
        if (drawn < share[i]) {
            choice.kind = kind[i];
            break;
        }
        drawn -= share[i];
    }
    choice.corrupt &= choice.kind != DP_FAULT_LOSE;
    return choice;
}

bool dp_fault_hold(struct dp_fault *fault, enum dp_fault_kind kind, void *packet, uint64_t now_us)
{
    struct dp_fault_held *held = &fault->held[fault->held_count];
    if (fault->held_count == DP_FAULT_HELD_MAX)
        return false;
    held->packet = packet;
    if (kind == DP_FAULT_REORDER) {
        held->overtaken_at = fault->passed + fault->rates.reorder_packets;
        held->due_us = now_us + DP_FAULT_REORDER_WAIT_US;
    } else {
        held->overtaken_at = UINT64_MAX;
        held->due_us = now_us + fault->rates.delay_us;
    }
    fault->held_count++;
    return true;
}

void *dp_fault_release(struct dp_fault *fault, uint64_t now_us)
{
    for (uint32_t i = 0; i < fault->held_count; i++) {
        struct dp_fault_held *held = &fault->held[i];
        if (held->due_us > now_us && held->overtaken_at > fault->passed)
            continue;
        void *packet = held->packet;
        fault->held_count--;
        memmove(held, held + 1, (fault->held_count - i) * sizeof(*held));
        return packet;
    }
    return NULL;
}

static void flip_bits(struct dp_fault *fault, uint8_t *bytes, uint32_t count)
{
    uint32_t flips = 1 + random_below(fault, 4);
    for (uint32_t i = 0; i < flips; i++) {
        uint32_t bit = random_below(fault, count * 8);
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
    }
}

static bool exchange_words(struct dp_fault *fault, uint8_t *bytes, uint32_t count)
{
    uint32_t words = count / 2;
    for (uint32_t i = 0; i < SWAP_TRIES && words > 1; i++) {
        uint8_t *a = bytes + (size_t)random_below(fault, words) * 2;
        uint8_t *b = bytes + (size_t)random_below(fault, words) * 2;
        uint8_t kept[2];
        if (memcmp(a, b, 2) == 0)
            continue;
        memcpy(kept, a, 2);
        memcpy(a, b, 2);
        memcpy(b, kept, 2);
        return true;
    }
    return false;
}

void dp_fault_damage(struct dp_fault *fault, uint8_t *bytes, size_t byte_count, size_t spare)
{
    if (byte_count <= spare)
        return;
    uint32_t count = (uint32_t)(byte_count - spare);
    /* In a frame the spared headers have an even length, so that the words are those of the checksum. */
    if (random_below(fault, 2) == 0 && exchange_words(fault, bytes + spare, count))
        return;
    flip_bits(fault, bytes + spare, count);
}
