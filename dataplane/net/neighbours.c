#include "dataplane/net/neighbours.h"
#include <string.h>

#define KNOWN     UINT64_C(1)
#define TURN      UINT64_C(2) /* one turn further */
#define TURN_MASK UINT64_C(0xfffe)

static uint64_t pack(const uint8_t mac[6])
{
    uint64_t word = 0;
    for (int i = 0; i < 6; i++)
        word = word << 8 | mac[i];
    return word << 16 | KNOWN;
}

static void unpack(uint64_t word, uint8_t mac[6])
{
    for (int i = 0; i < 6; i++)
        mac[i] = (uint8_t)(word >> (56 - 8 * i));
}

static void set_ip(struct dp_neighbour *entry, const uint8_t ip[16])
{
    uint64_t words[2];
    memcpy(words, ip, sizeof(words));
    atomic_store(&entry->ip[0], words[0]);
    atomic_store(&entry->ip[1], words[1]);
}

/* `*mac` is as it was before the place was found to be this host's. */
static struct dp_neighbour *neighbours_find(struct dp_neighbours *neighbours, const uint8_t ip[16],
                                            uint64_t *mac)
{
    uint64_t words[2];
    memcpy(words, ip, sizeof(words));
    uint32_t count = atomic_load_explicit(&neighbours->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct dp_neighbour *entry = &neighbours->entries[i];
        *mac = atomic_load_explicit(&entry->mac, memory_order_acquire);
        if (atomic_load_explicit(&entry->ip[1], memory_order_acquire) == words[1] &&
            atomic_load_explicit(&entry->ip[0], memory_order_acquire) == words[0])
            return entry;
    }
    return NULL;
}

static struct dp_neighbour *least_used(struct dp_neighbours *neighbours)
{
    struct dp_neighbour *least = &neighbours->entries[0];
    for (uint32_t i = 1; i < DP_NEIGHBOURS_MAX; i++)
        if (neighbours->entries[i].looked_us < least->looked_us)
            least = &neighbours->entries[i];
    return least;
}

/* The place changes hands. A turn begun and not ended is odd: nobody writes an address into it meanwhile. */
static void take_over(struct dp_neighbour *entry, const uint8_t ip[16])
{
    uint64_t turn = atomic_load_explicit(&entry->mac, memory_order_relaxed) & TURN_MASK;
    atomic_store(&entry->mac, (turn + TURN) & TURN_MASK);
    set_ip(entry, ip);
    atomic_store(&entry->mac, (turn + 2 * TURN) & TURN_MASK);
    entry->asked_us = 0;
}

static struct dp_neighbour *neighbours_add(struct dp_neighbours *neighbours, const uint8_t ip[16])
{
    uint32_t count = atomic_load_explicit(&neighbours->count, memory_order_relaxed);
    if (count == DP_NEIGHBOURS_MAX) {
        struct dp_neighbour *entry = least_used(neighbours);
        take_over(entry, ip);
        return entry;
    }
    set_ip(&neighbours->entries[count], ip);
    atomic_store_explicit(&neighbours->count, count + 1, memory_order_release);
    return &neighbours->entries[count];
}

bool dp_neighbour_find(struct dp_neighbours *neighbours, const uint8_t ip[16], uint64_t now_us,
                       uint8_t mac[6], bool *ask)
{
    uint64_t word = 0;
    struct dp_neighbour *entry = neighbours_find(neighbours, ip, &word);
    if (entry == NULL) {
        entry = neighbours_add(neighbours, ip);
        word = 0;
    }
    bool known = (word & KNOWN) != 0;
    uint64_t wait_us = known ? DP_NEIGHBOUR_REFRESH_US : DP_NEIGHBOUR_ASK_US;

    *ask = entry->asked_us == 0 || now_us - entry->asked_us >= wait_us;
    if (*ask)
        entry->asked_us = now_us;
    entry->looked_us = now_us;
    unpack(word, mac);
    return known;
}

void dp_neighbour_learn(struct dp_neighbours *neighbours, const uint8_t ip[16], const uint8_t mac[6])
{
    uint64_t word;
    struct dp_neighbour *entry = neighbours_find(neighbours, ip, &word);
    if (entry == NULL || (word & TURN) != 0)
        return;
    /* Fails when the place has changed hands since, or another core has just learnt the same. */
    atomic_compare_exchange_strong(&entry->mac, &word, pack(mac) | (word & TURN_MASK));
}
