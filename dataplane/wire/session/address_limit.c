#include "dataplane/wire/session/address_limit.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/base/buddy.h"

#define HELLO_BUCKETS 1024u
#define SECOND_US     UINT64_C(1000000)

struct mr_address_limits {
    uint64_t seed;
    uint32_t sessions_per_address;
    uint32_t mask; /* of entries; at least half of them are always free */
    uint32_t used; /* entries that are not free */
    uint64_t hello_cost_us;
    /* the time at which all admitted HELLOs are paid for */
    uint64_t hellos_paid_until_us[HELLO_BUCKETS];
    struct mr_address_entry entries[];
};

struct mr_address_limits *mr_address_limits_create(uint32_t sessions_max, uint32_t sessions_per_address,
                                                   uint32_t hellos_per_address, uint64_t seed)
{
    uint32_t size = 2;
    while (size < 2 * sessions_max)
        size *= 2;
    struct mr_address_limits *limits = calloc(1, sizeof(*limits) + size * sizeof(limits->entries[0]));
    if (limits == NULL)
        return NULL;
    if (sessions_per_address == 0) {
        sessions_per_address = sessions_max / 4;
        if (sessions_per_address < MR_ADDRESS_SESSIONS_MIN)
            sessions_per_address = MR_ADDRESS_SESSIONS_MIN;
    }
    limits->seed = seed;
    limits->sessions_per_address = sessions_per_address;
    limits->mask = size - 1;
    limits->hello_cost_us = SECOND_US / hellos_per_address;
    return limits;
}

void mr_address_limits_set_hellos(struct mr_address_limits *limits, uint32_t hellos_per_address)
{
    limits->hello_cost_us = SECOND_US / hellos_per_address;
}

void mr_address_limits_destroy(struct mr_address_limits *limits)
{
    free(limits);
}

uint64_t mr_address_network(const uint8_t ip[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint64_t network;
    /* of a mapped address ffff:a.b.c.d, after two bytes of zeros: no machine has an IPv6 address in there */
    memcpy(&network, memcmp(ip, mapped, sizeof(mapped)) == 0 ? ip + 8 : ip, sizeof(network));
    return network != 0 ? network : UINT64_MAX; /* that of ::1 */
}

static uint32_t hash(const struct mr_address_limits *limits, uint64_t network)
{
    return (uint32_t)XXH3_64bits_withSeed(&network, sizeof(network), limits->seed);
}

/* Returns the network's entry, or the free one where it belongs. */
static uint32_t entry_of(const struct mr_address_limits *limits, uint64_t network)
{
    uint32_t at = hash(limits, network) & limits->mask;
    while (limits->entries[at].sessions != 0 && limits->entries[at].network != network)
        at = (at + 1) & limits->mask;
    return at;
}

uint32_t mr_address_sessions_max(const struct mr_address_limits *limits)
{
    return limits->sessions_per_address;
}

bool mr_address_session_begin(struct mr_address_limits *limits, const uint8_t address[16], uint32_t count)
{
    const uint64_t network = mr_address_network(address);
    struct mr_address_entry *entry = &limits->entries[entry_of(limits, network)];
    if (entry->sessions >= count)
        return false;
    if (entry->sessions == 0) {
        entry->network = network;
        entry->memory_units = 0;
        limits->used++;
    }
    entry->sessions++;
    return true;
}

void mr_address_session_end(struct mr_address_limits *limits, const uint8_t address[16])
{
    const uint64_t network = mr_address_network(address);
    uint32_t hole = entry_of(limits, network);
    assert(limits->entries[hole].sessions > 0);
    if (--limits->entries[hole].sessions > 0)
        return;
    limits->used--;
    /* Linear probing without tombstones: entries that would not be found across the hole move up. */
    for (uint32_t at = (hole + 1) & limits->mask; limits->entries[at].sessions != 0;
         at = (at + 1) & limits->mask) {
        uint32_t home = hash(limits, limits->entries[at].network) & limits->mask;
        if (((at - home) & limits->mask) < ((at - hole) & limits->mask))
            continue;
        limits->entries[hole] = limits->entries[at];
        limits->entries[at].sessions = 0;
        hole = at;
    }
}

void mr_address_memory_add(struct mr_address_limits *limits, const uint8_t address[16], int64_t bytes)
{
    const uint64_t network = mr_address_network(address);
    struct mr_address_entry *entry = &limits->entries[entry_of(limits, network)];
    assert(entry->sessions > 0);
    entry->memory_units += (uint32_t)(bytes / MR_BUDDY_BLOCK_BYTES_MIN);
}

uint64_t mr_address_memory(const struct mr_address_limits *limits, const uint8_t address[16])
{
    const uint64_t network = mr_address_network(address);
    const struct mr_address_entry *entry = &limits->entries[entry_of(limits, network)];
    return entry->sessions > 0 ? (uint64_t)entry->memory_units * MR_BUDDY_BLOCK_BYTES_MIN : 0;
}

bool mr_address_is_alone(const struct mr_address_limits *limits, const uint8_t address[16])
{
    const uint64_t network = mr_address_network(address);
    return limits->used <= 1 &&
           (limits->used == 0 || limits->entries[entry_of(limits, network)].sessions > 0);
}

bool mr_address_hello(struct mr_address_limits *limits, const uint8_t address[16], uint64_t now_us)
{
    const uint64_t network = mr_address_network(address);
    uint64_t *paid_until_us = &limits->hellos_paid_until_us[hash(limits, network) % HELLO_BUCKETS];
    uint64_t from_us = *paid_until_us > now_us ? *paid_until_us : now_us;
    if (from_us + limits->hello_cost_us > now_us + SECOND_US)
        return false;
    *paid_until_us = from_us + limits->hello_cost_us;
    return true;
}
