#include "dataplane/neighbours.h"
#include <string.h>

static uint64_t pack(const uint8_t mac[6])
{
    uint64_t word = 0;

    for (int i = 0; i < 6; i++)
        word = word << 8 | mac[i];
    return word << 16 | 1u;
}

static void unpack(uint64_t word, uint8_t mac[6])
{
    for (int i = 0; i < 6; i++)
        mac[i] = (uint8_t)(word >> (56 - 8 * i));
}

static struct dp_neighbour *find(struct dp_neighbours *neighbours, const uint8_t ip[4])
{
    uint32_t count = atomic_load_explicit(&neighbours->count, memory_order_acquire);

    for (uint32_t i = 0; i < count; i++) {
        if (memcmp(neighbours->entries[i].ip, ip, 4) == 0)
            return &neighbours->entries[i];
    }
    return NULL;
}

static struct dp_neighbour *add(struct dp_neighbours *neighbours, const uint8_t ip[4])
{
    uint32_t count = atomic_load_explicit(&neighbours->count, memory_order_relaxed);

    if (count == DP_NEIGHBOURS_MAX)
        return NULL;
    memcpy(neighbours->entries[count].ip, ip, 4);
    atomic_store_explicit(&neighbours->count, count + 1, memory_order_release);
    return &neighbours->entries[count];
}

bool dp_neighbour_find(struct dp_neighbours *neighbours, const uint8_t ip[4], uint64_t now_us, uint8_t mac[6],
                       bool *ask)
{
    struct dp_neighbour *entry = find(neighbours, ip);

    *ask = false;
    if (entry == NULL)
        entry = add(neighbours, ip);
    if (entry == NULL)
        return false;
    uint64_t word = atomic_load_explicit(&entry->mac, memory_order_relaxed);
    uint64_t wait_us = word == 0 ? DP_NEIGHBOUR_ASK_US : DP_NEIGHBOUR_REFRESH_US;

    *ask = entry->asked_us == 0 || now_us - entry->asked_us >= wait_us;
    if (*ask)
        entry->asked_us = now_us;
    unpack(word, mac);
    return word != 0;
}

void dp_neighbour_learn(struct dp_neighbours *neighbours, const uint8_t ip[4], const uint8_t mac[6])
{
    struct dp_neighbour *entry = find(neighbours, ip);

    if (entry != NULL)
        atomic_store_explicit(&entry->mac, pack(mac), memory_order_relaxed);
}
