/* Who is held at a step, and who counts. */
#include <string.h>
#include "ps/core/step_barrier.h"
#include "tests/test.h"

static struct ps_step_barrier gate, all; /* large */

static const uint8_t *uuid_of(uint64_t number)
{
    static uint8_t uuid[MR_UUID_BYTES];
    uint64_t halves[2] = {number, ~number};
    memcpy(uuid, halves, sizeof(uuid));
    return uuid;
}

TEST(holds_what_is_behind_the_step)
{
    ps_step_barrier_init(&gate, 100, 2000);
    assert_false(ps_step_barrier_holds(&gate, 0)); /* a call without a step */
    assert_false(ps_step_barrier_holds(&gate, 100));
    assert_true(ps_step_barrier_holds(&gate, 101));
    assert_true(ps_step_barrier_holds(&gate, 1999));
    assert_false(ps_step_barrier_holds(&gate, 2000));
    assert_false(ps_step_barrier_holds(&gate, UINT64_MAX));
}

TEST(a_client_counts_once_over_all_cores)
{
    static struct ps_step_barrier other;
    ps_step_barrier_init(&gate, 100, 2000);
    ps_step_barrier_init(&other, 100, 2000);
    ps_step_barrier_init(&all, 100, 2000);
    assert_true(ps_step_barrier_note(&gate, uuid_of(1), 10));
    assert_false(ps_step_barrier_note(&gate, uuid_of(1), 20));
    assert_true(ps_step_barrier_note(&gate, uuid_of(2), 20));
    assert_true(ps_step_barrier_note(&other, uuid_of(2), 30)); /* another core has it, too */
    assert_true(ps_step_barrier_note(&other, uuid_of(3), 30));
    ps_step_barrier_merge(&all, &gate, 40);
    ps_step_barrier_merge(&all, &other, 40);
    assert_int_equal(all.count, 3);
}

TEST(who_has_stopped_trying_does_not_count)
{
    ps_step_barrier_init(&gate, 100, 2000);
    ps_step_barrier_init(&all, 100, 2000);
    ps_step_barrier_note(&gate, uuid_of(1), 1000);
    ps_step_barrier_note(&gate, uuid_of(2), 1000);
    ps_step_barrier_note(&gate, uuid_of(2), 1001 + PS_STEP_HELD_US);
    ps_step_barrier_merge(&all, &gate, 1001 + PS_STEP_HELD_US);
    assert_int_equal(all.count, 1);
    assert_memory_equal(all.clients[0].uuid, uuid_of(2), MR_UUID_BYTES);
    ps_step_barrier_note(&gate, uuid_of(1), 1002 + PS_STEP_HELD_US); /* it has come back */
    ps_step_barrier_merge(&all, &gate, 1002 + PS_STEP_HELD_US);
    assert_int_equal(all.count, 2);
}

TEST(there_are_only_so_many)
{
    ps_step_barrier_init(&gate, 1, 2000);
    for (uint32_t i = 0; i < PS_STEP_CLIENTS_MAX; i++)
        assert_true(ps_step_barrier_note(&gate, uuid_of(i), 1));
    assert_false(ps_step_barrier_note(&gate, uuid_of(PS_STEP_CLIENTS_MAX), 1));
    assert_int_equal(gate.count, PS_STEP_CLIENTS_MAX);
    ps_step_barrier_init(&gate, 2, 2000);
    assert_int_equal(gate.count, 0);
}
