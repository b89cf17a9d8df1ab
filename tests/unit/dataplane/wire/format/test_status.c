#include <string.h>
#include "dataplane/wire/format/mr_status.h"
#include "tests/test.h"

TEST(every_status_has_a_name_and_a_text)
{
    for (int s = 0; s < MR_STATUS_COUNT; s++) {
        assert_true(strlen(mr_status_name((enum mr_status)s)) >= 2);
        assert_true(strlen(mr_status_text((enum mr_status)s)) >= 2);
        assert_string_not_equal(mr_status_text((enum mr_status)s), "unknown status");
        for (int other = 0; other < s; other++)
            assert_string_not_equal(mr_status_name((enum mr_status)s), mr_status_name((enum mr_status)other));
    }
}

TEST(names_are_the_enum_s)
{
    assert_string_equal(mr_status_name(MR_OK), "OK");
    assert_string_equal(mr_status_text(MR_OK), "ok");
    assert_string_equal(mr_status_name(MR_UNKNOWN_TABLE), "UNKNOWN_TABLE");
    assert_string_equal(mr_status_name(MR_INTERNAL), "INTERNAL");
}

/* The numbers travel: a change would make two versions misunderstand each other. */
TEST(values_are_part_of_the_protocol)
{
    assert_int_equal(MR_OK, 0);
    assert_int_equal(MR_UNKNOWN_OUTCOME, 2);
    assert_int_equal(MR_BUSY, 4);
    assert_int_equal(MR_ALREADY_LEARNT, 13);
    assert_int_equal(MR_FEATURE_MISMATCH, 17);
    assert_int_equal(MR_END_OF_DATA, 28);
    assert_int_equal(MR_INTERNAL, 35);
}

TEST(unknown_values_are_said_to_be)
{
    assert_string_equal(mr_status_text(MR_STATUS_COUNT), "unknown status");
    assert_string_equal(mr_status_name(MR_STATUS_COUNT), "?");
    assert_string_equal(mr_status_text((enum mr_status)65535), "unknown status");
    assert_string_equal(mr_status_name((enum mr_status)65535), "?");
}
