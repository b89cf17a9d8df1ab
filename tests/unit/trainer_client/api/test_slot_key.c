/* Keys of values in slots: XXH3-64 with the slot as its seed, for the hub and for callers of libmillrace. */
#include "trainer_client/api/slot_key.h"
#include "trainer_client/millrace.h"
#include "tests/test.h"

TEST(keys_are_hashes_seeded_by_slot)
{
    assert_int_equal(mrc_slot_key(1, "ab", 2), UINT64_C(0xad9eb8f4efd9807b));
    assert_int_equal(mrc_slot_key(2, "ab", 2), UINT64_C(0x5654a82ea4325b60));
    assert_int_equal(mrc_slot_key(2, "", 0), UINT64_C(0xf36cf7ecd1fcfda0));
}

TEST(keys_of_a_column_are_those_of_its_values)
{
    const uint32_t offsets[] = {1, 3, 3, 5};
    uint64_t keys[3];
    mr_slot_keys(2, "xabab", offsets, 3, keys);
    assert_int_equal(keys[0], mrc_slot_key(2, "ab", 2));
    assert_int_equal(keys[1], mrc_slot_key(2, "", 0));
    assert_int_equal(keys[2], keys[0]);
}
