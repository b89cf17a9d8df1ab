/* The last push step of each client, by its uuid: a client that comes back learns which of its pushes this
 * core holds.
 *
 * Bounded: once PS_CLIENTS_MAX are known, a new one takes the place of one that was silent for long. One
 * thread.
 */
#ifndef PS_CLIENTS_H
#define PS_CLIENTS_H

#include <stdint.h>
#include "dataplane/wire/format/packet.h"
#include "ps/memory/arena.h"

#define PS_CLIENTS_MAX     16384u
#define PS_CLIENT_SET_WAYS 8u /* a uuid's hash names a set of this many places */

struct ps_client {
    uint8_t uuid[MR_UUID_BYTES];
    uint64_t last_step; /* highest step pushed */
    uint64_t used;      /* when it pushed last, in pushes of all clients; 0 = the place is free */
};
struct ps_clients;

/* NULL when the arena has no room. */
struct ps_clients *ps_clients_create(struct ps_arena *arena, uint64_t secret);
void ps_clients_destroy(struct ps_clients *c);
void ps_clients_clear(struct ps_clients *c);

/* A push of that step was applied. Steps never fall. */
void ps_clients_note(struct ps_clients *c, const uint8_t uuid[MR_UUID_BYTES], uint64_t step);
/* 0 when the client is not known. */
uint64_t ps_clients_last_step(const struct ps_clients *c, const uint8_t uuid[MR_UUID_BYTES]);
/* Place i of PS_CLIENTS_MAX, for checkpoints; `used` is 0 when it is free. */
const struct ps_client *ps_clients_at(const struct ps_clients *c, uint32_t i);

#endif
