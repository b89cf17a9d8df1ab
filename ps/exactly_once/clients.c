#include "ps/exactly_once/clients.h"

#include <string.h>
#include <xxhash.h>

struct ps_clients {
    struct ps_arena *arena;
    uint64_t secret; /* by which clients are spread over sets */
    uint64_t pushes;
    struct ps_client places[PS_CLIENTS_MAX];
};

struct ps_clients *ps_clients_create(struct ps_arena *arena, uint64_t secret)
{
    struct ps_clients *c = ps_arena_alloc(arena, sizeof(*c), 64);
    if (c != NULL) {
        c->arena = arena;
        c->secret = secret;
    }
    return c;
}

void ps_clients_destroy(struct ps_clients *c)
{
    if (c != NULL)
        ps_arena_free(c->arena, c, sizeof(*c), 64);
}

void ps_clients_clear(struct ps_clients *c)
{
    memset(c->places, 0, sizeof(c->places));
    c->pushes = 0;
}

/* A client may choose its uuid, but does not know the secret. */
static uint32_t set_of(const struct ps_clients *c, const uint8_t uuid[MR_UUID_BYTES])
{
    const uint64_t hash = XXH3_64bits_withSeed(uuid, MR_UUID_BYTES, c->secret);
    return (uint32_t)(hash % (PS_CLIENTS_MAX / PS_CLIENT_SET_WAYS)) * PS_CLIENT_SET_WAYS;
}

static uint32_t place_of(const struct ps_clients *c, const uint8_t uuid[MR_UUID_BYTES])
{
    uint32_t set = set_of(c, uuid);
    for (uint32_t i = set; i < set + PS_CLIENT_SET_WAYS; i++)
        if (c->places[i].used != 0 && memcmp(c->places[i].uuid, uuid, MR_UUID_BYTES) == 0)
            return i;
    return PS_CLIENTS_MAX;
}

/* A free place of the set, else the one used longest ago. */
static uint32_t place_to_take(const struct ps_clients *c, uint32_t set)
{
    uint32_t oldest = set;
    for (uint32_t i = set + 1; i < set + PS_CLIENT_SET_WAYS; i++)
        oldest = c->places[i].used < c->places[oldest].used ? i : oldest;
    return oldest;
}

void ps_clients_note(struct ps_clients *c, const uint8_t uuid[MR_UUID_BYTES], uint64_t step)
{
    uint32_t place = place_of(c, uuid);
    if (place == PS_CLIENTS_MAX) {
        place = place_to_take(c, set_of(c, uuid));
        memcpy(c->places[place].uuid, uuid, MR_UUID_BYTES);
        c->places[place].last_step = 0;
    }
    struct ps_client *client = &c->places[place];
    client->last_step = step > client->last_step ? step : client->last_step;
    client->used = ++c->pushes;
}

uint64_t ps_clients_last_step(const struct ps_clients *c, const uint8_t uuid[MR_UUID_BYTES])
{
    uint32_t place = place_of(c, uuid);
    return place == PS_CLIENTS_MAX ? 0 : c->places[place].last_step;
}

const struct ps_client *ps_clients_at(const struct ps_clients *c, uint32_t i)
{
    return &c->places[i];
}
