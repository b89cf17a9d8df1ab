#include <string.h>
#include "trainer_client/hub/plan/trainers.h"
#include "tests/test.h"

static struct hub_trainers trainers;

static const uint8_t *uuid_of(uint32_t i)
{
    static uint8_t uuid[MR_UUID_BYTES];
    memset(uuid, 0, sizeof(uuid));
    memcpy(uuid, &i, sizeof(i));
    return uuid;
}

TEST(joining_and_being_heard)
{
    memset(&trainers, 0, sizeof(trainers));
    assert_int_equal(hub_trainers_seen(&trainers, uuid_of(1), 5), 0);
    hub_trainers_join(&trainers, uuid_of(1), 7, 10);
    hub_trainers_join(&trainers, uuid_of(2), 7, 10);
    assert_int_equal(hub_trainers_seen(&trainers, uuid_of(1), 100), 7);
    assert_int_equal(hub_trainers_alive(&trainers, 7, 105, 50), 1);
    assert_int_equal(hub_trainers_alive(&trainers, 7, 105, 96), 2);
    assert_int_equal(hub_trainers_alive(&trainers, 8, 105, 96), 0);
    hub_trainers_told_end(&trainers, uuid_of(1));
    hub_trainers_told_end(&trainers, uuid_of(3)); /* unknown */
    assert_int_equal(hub_trainers_alive(&trainers, 7, 105, 96), 2);
    assert_int_equal(hub_trainers_in_plan(&trainers, 7, 105, 96), 1);
    hub_trainers_join(&trainers, uuid_of(1), 8, 110);
    assert_int_equal(hub_trainers_in_plan(&trainers, 8, 111, 96), 1);
    assert_int_equal(trainers.count, 2);
    assert_int_equal(hub_trainers_seen(&trainers, uuid_of(1), 111), 8);
}

TEST(the_longest_silent_makes_room)
{
    memset(&trainers, 0, sizeof(trainers));
    for (uint32_t i = 0; i < HUB_TRAINERS_MAX; i++)
        hub_trainers_join(&trainers, uuid_of(i), 1, 1000 + i);
    hub_trainers_seen(&trainers, uuid_of(0), 5000);
    hub_trainers_join(&trainers, uuid_of(9999), 1, 6000);
    assert_int_equal(trainers.count, HUB_TRAINERS_MAX);
    assert_int_equal(hub_trainers_seen(&trainers, uuid_of(1), 7000), 0);
    assert_int_equal(hub_trainers_seen(&trainers, uuid_of(0), 7000), 1);
    assert_int_equal(hub_trainers_seen(&trainers, uuid_of(9999), 7000), 1);
}
