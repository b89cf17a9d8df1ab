#include <string.h>

#include "ps/cluster/migration.h"
#include "tests/test.h"

static bool may(enum ps_migration_role role, enum ps_migration_state from, enum ps_migration_state to)
{
    struct ps_migration m = {.role = role, .state = from};
    const bool may = ps_migration_to(&m, to);
    assert_int_equal(m.state, may ? to : from);
    return may;
}

TEST(test_each_role_has_its_way)
{
    static const enum ps_migration_state ways[2][6] = {
        {PS_MIGRATION_WAITING, PS_MIGRATION_COPYING, PS_MIGRATION_FENCING, PS_MIGRATION_FENCED,
         PS_MIGRATION_INSTALLED, PS_MIGRATION_DONE},
        {PS_MIGRATION_WAITING, PS_MIGRATION_CLEANUP, PS_MIGRATION_COPYING, PS_MIGRATION_FENCED,
         PS_MIGRATION_INSTALLED, PS_MIGRATION_DONE}};
    for (uint32_t role = 0; role < 2; role++)
        for (uint32_t from = 0; from < 6; from++)
            for (uint32_t to = 0; to < 6; to++) /* no step is left out, and none goes back */
                assert_int_equal(may(role, ways[role][from], ways[role][to]), to == from + 1);
    for (uint32_t other = 0; other < PS_MIGRATION_STATES; other++) {
        assert_false(may(PS_MIGRATION_SOURCE, other, PS_MIGRATION_CLEANUP));
        assert_false(may(PS_MIGRATION_TARGET, other, PS_MIGRATION_FENCING));
    }
}

/* A target that follows never asks for the fence: its source is gone when it becomes the owner. */
TEST(test_a_backup_follows)
{
    assert_true(may(PS_MIGRATION_TARGET, PS_MIGRATION_COPYING, PS_MIGRATION_FOLLOWING));
    for (uint32_t to = 0; to < PS_MIGRATION_STATES; to++) {
        assert_false(may(PS_MIGRATION_SOURCE, to, PS_MIGRATION_FOLLOWING));
        assert_int_equal(may(PS_MIGRATION_TARGET, PS_MIGRATION_FOLLOWING, to),
                         to == PS_MIGRATION_DONE || to == PS_MIGRATION_FAILED ||
                             to == PS_MIGRATION_CANCELLED);
    }
}

TEST(test_the_map_ends_it_whatever_it_does)
{
    static const char *const texts[PS_MIGRATION_STATES] = {"waiting",   "cleanup", "copying",   "following",
                                                           "fencing",   "fenced",  "installed", "failed",
                                                           "cancelled", "done"};
    for (uint32_t s = 0; s < PS_MIGRATION_STATES; s++) {
        const struct ps_migration m = {.state = s};
        const bool has_ended = ps_migration_has_ended(&m);
        assert_string_equal(ps_migration_state_text(s), texts[s]);
        assert_int_equal(has_ended, s >= PS_MIGRATION_CANCELLED);
        assert_int_equal(may(PS_MIGRATION_SOURCE, s, PS_MIGRATION_CANCELLED),
                         !has_ended && s != PS_MIGRATION_CLEANUP && s != PS_MIGRATION_FOLLOWING);
        assert_int_equal(may(PS_MIGRATION_TARGET, s, PS_MIGRATION_CANCELLED),
                         !has_ended && s != PS_MIGRATION_FENCING);
        for (uint32_t to = 0; to < PS_MIGRATION_STATES && (has_ended || s == PS_MIGRATION_FAILED); to++)
            assert_int_equal(may(PS_MIGRATION_SOURCE, s, to), !has_ended && to == PS_MIGRATION_CANCELLED);
    }
    /* what calls wait for is given up by the map alone */
    assert_false(may(PS_MIGRATION_SOURCE, PS_MIGRATION_FENCED, PS_MIGRATION_FAILED));
}
