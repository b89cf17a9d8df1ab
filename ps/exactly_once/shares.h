/* How many places of a bounded record each client and each network holds, so that none takes what others
 * need. A client is counted by its uuid, which it chooses; a network (mr_address_network()) cannot be chosen.
 * Both by a hash under a secret: two that share one of PS_SHARE_COUNTS counts share its limit. One thread. */
#ifndef PS_SHARES_H
#define PS_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#define PS_SHARE_COUNTS 16384u
#define PS_SHARE_NONE   PS_SHARE_COUNTS /* of somebody who is not known, and is not counted */

struct ps_shares {
    uint64_t secret;
    uint16_t clients[PS_SHARE_COUNTS], networks[PS_SHARE_COUNTS];
};

/* Whose a place is: where it is counted. */
struct ps_share {
    uint16_t client, network; /* 0..PS_SHARE_NONE */
};

/* uuid NULL, network 0: not known. */
struct ps_share ps_shares_find(const struct ps_shares *s, const uint8_t *uuid, uint64_t network);
/* The places that the client, or the network, holds; 0 when it is not known. */
uint32_t ps_shares_of_client(const struct ps_shares *s, struct ps_share share);
uint32_t ps_shares_of_network(const struct ps_shares *s, struct ps_share share);
void ps_shares_add(struct ps_shares *s, struct ps_share share);
void ps_shares_remove(struct ps_shares *s, struct ps_share share);

#endif
