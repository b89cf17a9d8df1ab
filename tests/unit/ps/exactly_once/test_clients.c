/* Last steps by client, and who is forgotten when there are too many. */
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "ps/exactly_once/clients.h"
#include "tests/test.h"

static struct ps_arena *arena;

static int clients_make(void **state)
{
    arena = ps_arena_create(16 * MR_MIB);
    *state = ps_clients_create(arena, 1);
    return *state == NULL;
}

static int clients_destroy(void **state)
{
    ps_clients_destroy(*state);
    ps_arena_destroy(arena);
    return 0;
}

static void uuid_of(uint64_t number, uint8_t uuid[MR_UUID_BYTES])
{
    uint64_t halves[2] = {number * UINT64_C(0x9E3779B97F4A7C15), ~number * UINT64_C(0xC2B2AE3D27D4EB4F)};
    memcpy(uuid, halves, MR_UUID_BYTES);
}

TEST(steps_never_fall, clients_make, clients_destroy)
{
    struct ps_clients *c = *state;
    uint8_t a[MR_UUID_BYTES], b[MR_UUID_BYTES];
    uuid_of(1, a);
    uuid_of(2, b);
    assert_int_equal(ps_clients_last_step(c, a), 0);
    ps_clients_note(c, a, 5);
    ps_clients_note(c, a, 3);
    ps_clients_note(c, b, 1);
    assert_int_equal(ps_clients_last_step(c, a), 5);
    assert_int_equal(ps_clients_last_step(c, b), 1);
    ps_clients_clear(c);
    assert_int_equal(ps_clients_last_step(c, a), 0);
}

TEST(lists_all_of_them, clients_make, clients_destroy)
{
    struct ps_clients *c = *state;
    uint32_t used = 0;
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= 100; i++) {
        uint8_t uuid[MR_UUID_BYTES];
        uuid_of(i, uuid);
        ps_clients_note(c, uuid, i);
    }
    for (uint32_t i = 0; i < PS_CLIENTS_MAX; i++) {
        const struct ps_client *client = ps_clients_at(c, i);
        used += client->used != 0;
        sum += client->used != 0 ? client->last_step : 0;
    }
    assert_int_equal(used, 100);
    assert_int_equal(sum, 5050);
}

TEST(forgets_the_silent_first, clients_make, clients_destroy)
{
    struct ps_clients *c = *state;
    uint8_t busy[MR_UUID_BYTES], silent[MR_UUID_BYTES], uuid[MR_UUID_BYTES];
    uuid_of(0, busy);
    uuid_of(UINT64_MAX, silent);
    ps_clients_note(c, silent, 1);
    for (uint64_t i = 1; i <= 40 * PS_CLIENTS_MAX; i++) {
        uuid_of(i, uuid);
        ps_clients_note(c, uuid, 1);
        if (i % 16 == 0)
            ps_clients_note(c, busy, i);
    }
    assert_int_equal(ps_clients_last_step(c, busy), 40 * PS_CLIENTS_MAX);
    assert_int_equal(ps_clients_last_step(c, silent), 0);
    assert_int_equal(ps_clients_last_step(c, uuid), 1);
}
