#include "ps/cluster/migration.h"

#define TO(state) (1u << PS_MIGRATION_##state)

/* By role and state: the states that may follow. */
static const uint16_t following[2][PS_MIGRATION_STATES] = {
    [PS_MIGRATION_SOURCE] = {[PS_MIGRATION_WAITING] = TO(COPYING) | TO(CANCELLED),
                             [PS_MIGRATION_COPYING] = TO(FENCING) | TO(FAILED) | TO(CANCELLED),
                             [PS_MIGRATION_FENCING] = TO(FENCED) | TO(CANCELLED),
                             [PS_MIGRATION_FENCED] = TO(INSTALLED) | TO(CANCELLED),
                             [PS_MIGRATION_INSTALLED] = TO(DONE) | TO(CANCELLED),
                             [PS_MIGRATION_FAILED] = TO(CANCELLED)},
    [PS_MIGRATION_TARGET] = {[PS_MIGRATION_WAITING] = TO(CLEANUP) | TO(CANCELLED),
                             [PS_MIGRATION_CLEANUP] = TO(COPYING) | TO(CANCELLED),
                             [PS_MIGRATION_COPYING] = TO(FOLLOWING) | TO(FENCED) | TO(FAILED) | TO(CANCELLED),
                             [PS_MIGRATION_FOLLOWING] = TO(DONE) | TO(FAILED) | TO(CANCELLED),
                             [PS_MIGRATION_FENCED] = TO(INSTALLED) | TO(FAILED) | TO(CANCELLED),
                             [PS_MIGRATION_INSTALLED] = TO(DONE) | TO(CANCELLED),
                             [PS_MIGRATION_FAILED] = TO(CANCELLED)},
};

bool ps_migration_to(struct ps_migration *migration, enum ps_migration_state state)
{
    const bool follows = (following[migration->role][migration->state] >> state & 1) != 0;
    migration->state = follows ? state : migration->state;
    return follows;
}

bool ps_migration_has_ended(const struct ps_migration *migration)
{
    return migration->state == PS_MIGRATION_CANCELLED || migration->state == PS_MIGRATION_DONE;
}

struct ps_partition_set ps_migration_partitions(const struct ps_migration *migration)
{
    struct ps_partition_set set = {{0}};
    for (uint32_t slot = migration->move.first;
         slot < (uint32_t)migration->move.first + migration->move.count; slot++)
        ps_partitions_add(&set, ps_cluster_slot(slot));
    return set;
}

const char *ps_migration_state_text(enum ps_migration_state state)
{
    static const char *const texts[PS_MIGRATION_STATES] = {
        [PS_MIGRATION_WAITING] = "waiting",     [PS_MIGRATION_CLEANUP] = "cleanup",
        [PS_MIGRATION_COPYING] = "copying",     [PS_MIGRATION_FOLLOWING] = "following",
        [PS_MIGRATION_FENCING] = "fencing",     [PS_MIGRATION_FENCED] = "fenced",
        [PS_MIGRATION_INSTALLED] = "installed", [PS_MIGRATION_FAILED] = "failed",
        [PS_MIGRATION_CANCELLED] = "cancelled", [PS_MIGRATION_DONE] = "done"};
    return texts[state];
}
