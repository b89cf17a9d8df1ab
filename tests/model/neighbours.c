/* dataplane/net/neighbours.c: whatever cores learn while core 0 gives a place to another host, no host is
 * found with the address of another. There is one place, so that each new host takes that of the one before.
 */
#include "model.h"

#include <string.h>

#include "dataplane/net/neighbours.h"
#undef DP_NEIGHBOURS_MAX
#define DP_NEIGHBOURS_MAX 1u
#include "dataplane/net/neighbours.c" // NOLINT(bugprone-suspicious-include)

#define HOSTS 2u

static struct dp_neighbours neighbours;
static const uint8_t ips[HOSTS][16] = {{[15] = 1}, {[7] = 2, [15] = 2}};
static const uint8_t macs[HOSTS][6] = {{[5] = 1}, {[5] = 2}};
static const uint32_t hosts[HOSTS] = {0, 1};

static void *learn(void *arg)
{
    const uint32_t host = *(const uint32_t *)arg;
    dp_neighbour_learn(&neighbours, ips[host], macs[host]);
    return NULL;
}

static void find_host(uint32_t host, uint64_t now_us)
{
    uint8_t mac[6];
    bool asks;
    if (dp_neighbour_find(&neighbours, ips[host], now_us, mac, &asks))
        assert(mac[5] == macs[host][5]);
}

static void *find_hosts(void *arg)
{
    (void)arg;
    find_host(0, 1);
    find_host(1, 2);
    find_host(1, 3);
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[HOSTS + 1];
    atomic_store(&neighbours.count, 0);
    atomic_store(&neighbours.entries[0].mac, 0);
    neighbours.entries[0].asked_us = 0;
    threads[HOSTS] = model_start(find_hosts, NULL);
    for (uint32_t i = 0; i < HOSTS; i++)
        threads[i] = model_start(learn, (void *)&hosts[i]);
    for (uint32_t i = 0; i <= HOSTS; i++)
        pthread_join(threads[i], NULL);
    find_host(1, 4);
    find_host(0, 5); /* its place is another's: not known again */
}
