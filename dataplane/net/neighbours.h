/* MAC addresses of hosts on the link, for packets that answer none: calls to workers that have not called us.
 *
 * Core 0 asks (ARP, neighbour discovery) and looks; the answer may arrive at any core. Where there is no
 * place for another, the one that was looked up longest ago leaves. No lock: the word that holds the address
 * counts whose place it is, so that an answer for who had it before is not taken for the next one's.
 * Addresses are in the form of mr_address.ip.
 */
#ifndef DP_NEIGHBOURS_H
#define DP_NEIGHBOURS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DP_NEIGHBOURS_MAX       2048u
#define DP_NEIGHBOUR_ASK_US     100000u   /* between two requests for one that is not known, */
#define DP_NEIGHBOUR_REFRESH_US 30000000u /* and for one that is: it may have got another network card */

struct dp_neighbour {
    _Atomic uint64_t ip[2]; /* as its bytes stand in memory */
    uint64_t asked_us;      /* core 0's; 0: never */
    uint64_t looked_us;     /* core 0's: when it was last looked up */
    /* in the upper 48 bits; then the place's turn, 15 bits, odd while it changes hands; 1: known */
    _Atomic uint64_t mac;
};

struct dp_neighbours {
    _Atomic uint32_t count;
    struct dp_neighbour entries[DP_NEIGHBOURS_MAX];
};

/* Core 0. True: *mac is that of `ip`. *ask: a request is to be sent now. */
bool dp_neighbour_find(struct dp_neighbours *neighbours, const uint8_t ip[16], uint64_t now_us,
                       uint8_t mac[6], bool *ask);
/* Any core: `ip` says that it has this MAC address. Of those who were not asked for nothing is kept. */
void dp_neighbour_learn(struct dp_neighbours *neighbours, const uint8_t ip[16], const uint8_t mac[6]);

#endif
