#include "ps/exactly_once/shares.h"

#include <assert.h>
#include <stddef.h>
#include <xxhash.h>
#include "dataplane/wire/format/packet.h"

struct ps_share ps_shares_find(const struct ps_shares *s, const uint8_t *uuid, uint64_t network)
{
    struct ps_share share = {PS_SHARE_NONE, PS_SHARE_NONE};
    if (uuid != NULL)
        share.client = (uint16_t)(XXH3_64bits_withSeed(uuid, MR_UUID_BYTES, s->secret) % PS_SHARE_COUNTS);
    if (network != 0)
        share.network =
            (uint16_t)(XXH3_64bits_withSeed(&network, sizeof(network), s->secret) % PS_SHARE_COUNTS);
    return share;
}

uint32_t ps_shares_of_client(const struct ps_shares *s, struct ps_share share)
{
    return share.client == PS_SHARE_NONE ? 0 : s->clients[share.client];
}

uint32_t ps_shares_of_network(const struct ps_shares *s, struct ps_share share)
{
    return share.network == PS_SHARE_NONE ? 0 : s->networks[share.network];
}

void ps_shares_add(struct ps_shares *s, struct ps_share share)
{
    if (share.client != PS_SHARE_NONE)
        s->clients[share.client]++;
    if (share.network != PS_SHARE_NONE)
        s->networks[share.network]++;
}

void ps_shares_remove(struct ps_shares *s, struct ps_share share)
{
    if (share.client != PS_SHARE_NONE) {
        assert(s->clients[share.client] > 0);
        s->clients[share.client]--;
    }
    if (share.network != PS_SHARE_NONE) {
        assert(s->networks[share.network] > 0);
        s->networks[share.network]--;
    }
}
