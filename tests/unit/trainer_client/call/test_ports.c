#include "trainer_client/call/ports.h"
#include "tests/test.h"

enum { CORE = 2, CORES = 4 };

TEST(test_settled_at_once)
{
    struct mrc_ports ports = {.tries = 0};
    assert_false(mrc_ports_try_another(&ports, CORE, CORE, CORES, true, 5));
    assert_int_equal(mrc_ports_next_us(&ports, CORE, CORE, CORES), UINT64_MAX);
    assert_false(mrc_ports_try_another(&ports, CORE, 0xffff, CORES, true, 5)); /* no core of this node */
}

TEST(test_never_while_busy)
{
    struct mrc_ports ports = {.tries = 0};
    assert_false(mrc_ports_try_another(&ports, CORE, 1, CORES, false, 1000000));
    assert_true(mrc_ports_try_another(&ports, CORE, 1, CORES, true, 1000000));
}

TEST(test_bounded_and_ever_rarer)
{
    struct mrc_ports ports = {.tries = 0};
    uint64_t now_us = 1, last_pause_us = 0;
    uint32_t tries = 0;
    while (mrc_ports_try_another(&ports, CORE, 1, CORES, true, now_us)) {
        uint64_t next_us = mrc_ports_next_us(&ports, CORE, 1, CORES);
        tries++;
        if (next_us == UINT64_MAX)
            break;
        assert_true(next_us - now_us > last_pause_us);
        assert_false(mrc_ports_try_another(&ports, CORE, 1, CORES, true, next_us - 1));
        last_pause_us = next_us - now_us;
        now_us = next_us;
    }
    assert_int_equal(tries, MRC_PORT_TRIES_PER_CORE * CORES);
    assert_false(mrc_ports_try_another(&ports, CORE, 1, CORES, true, UINT64_MAX - 1));
}

/* Ports lead anywhere: with the bound nearly every link finds its core. */
TEST(test_finds_its_core)
{
    uint32_t random = 1, found = 0;
    for (uint32_t link = 0; link < 1000; link++) {
        struct mrc_ports ports = {.tries = 0};
        uint16_t arrived = 1;
        for (uint64_t now_us = 0; mrc_ports_try_another(&ports, CORE, arrived, CORES, true, now_us);
             now_us += 10000000) {
            random = random * 1664525 + 1013904223;
            arrived = (uint16_t)((random >> 16) % CORES);
        }
        found += arrived == CORE;
    }
    assert_true(found > 990);
}
