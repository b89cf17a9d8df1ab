/* A node as a backup of another one, whose copies fail as the test says: the coordinator and what copies rows
 * (ps/move/migration_target.h) are the test's own. */
#include "tests/test.h"

#include <pthread.h>
#include <string.h>
#include "ps/move/migration_target.h"
#include "ps/move/copy_source.h"
#include "tests/unit/ps/fake_coordinator.h"
#include "tests/unit/ps/fake_dp.h"
#include "tests/unit/ps/log_event.h"
#include "tests/unit/ps/node_fixture.h"
#include "tests/wait.h"

#define SESSION 500u
#define SELF    0u
#define OTHER   1u

/* ---- in place of what copies ---- */

static struct {
    pthread_mutex_t lock;
    struct ps_node *node;
    uint32_t starts;
    uint64_t id; /* of the copy that was begun last; 0: none runs */
    struct ps_migration_target_progress progress;
} target = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum mr_status __wrap_ps_migration_target_start(const struct ps_migration_target_options *options,
                                                struct ps_migration_target **out, char *text);
void __wrap_ps_migration_target_progress(struct ps_migration_target *t,
                                         struct ps_migration_target_progress *out);
void __wrap_ps_migration_target_stop(struct ps_migration_target *t);
void __wrap_ps_migration_target_hurry(struct ps_migration_target *t, bool hurries);

enum mr_status __wrap_ps_migration_target_start(const struct ps_migration_target_options *options,
                                                /* NOLINTNEXTLINE(readability-non-const-parameter): wrapped */
                                                struct ps_migration_target **out, char *text)
{
    (void)text;
    pthread_mutex_lock(&target.lock);
    target.starts++;
    target.id = options->migration.move.id;
    target.node = options->node;
    target.progress = (struct ps_migration_target_progress){.state = PS_MIGRATION_COPYING};
    pthread_mutex_unlock(&target.lock);
    *out = (struct ps_migration_target *)&target;
    return MR_OK;
}

void __wrap_ps_migration_target_progress(struct ps_migration_target *t,
                                         struct ps_migration_target_progress *out)
{
    (void)t;
    pthread_mutex_lock(&target.lock);
    *out = target.progress;
    pthread_mutex_unlock(&target.lock);
}

void __wrap_ps_migration_target_stop(struct ps_migration_target *t)
{
    pthread_mutex_lock(&target.lock);
    if (t != NULL)
        target.id = 0;
    pthread_mutex_unlock(&target.lock);
}

void __wrap_ps_migration_target_hurry(struct ps_migration_target *t, bool hurries)
{
    (void)t;
    (void)hurries;
}

/* What the copy has come to. */
static void copy_is(enum ps_migration_state state, enum mr_status status)
{
    pthread_mutex_lock(&target.lock);
    target.progress = (struct ps_migration_target_progress){.state = state, .status = status};
    (void)snprintf(target.progress.text, sizeof(target.progress.text), "the test says so");
    struct ps_node *node = target.node;
    pthread_mutex_unlock(&target.lock);
    ps_node_wake_control(node);
}

static uint64_t copying(void)
{
    pthread_mutex_lock(&target.lock);
    const uint64_t id = target.id;
    pthread_mutex_unlock(&target.lock);
    return id;
}

static uint32_t starts(void)
{
    pthread_mutex_lock(&target.lock);
    const uint32_t count = target.starts;
    pthread_mutex_unlock(&target.lock);
    return count;
}

/* ---- the cluster ---- */

/* Node a, which leads, and b on another host, whose partitions a follows. */
static int backup_begins(void **state)
{
    if (node_setup(state) != 0)
        return -1;
    struct node_fixture *n = *state;
    struct ps_config *c = &n->config;
    node_stop(n);
    fake_coordinator_reset();
    fake_coordinator_configure(c, 2);
    c->checkpoint_directory[0] = '\0';
    c->cluster_replication = 2;
    target.starts = 0;
    node_start(n, 1);
    fake_coordinator_set_other("b");
    WAIT_UNTIL(fake_coordinator_settle(SESSION), copying() != 0);
    return 0;
}

static int backup_ends(void **state)
{
    log_event_listen(NULL);
    return node_teardown(state);
}

/* The number by which node a follows b; 0: it does not. */
static uint64_t assigned(void)
{
    const struct ps_cluster_map *map = fake_coordinator_map();
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] == OTHER && map->backup[p] == SELF)
            return map->backup_grant[p];
    return 0;
}

/* As b would say it. */
static void say_in_sync(void)
{
    struct ps_cluster_map *map = fake_coordinator_map();
    for (uint32_t p = 0; p < map->partition_count; p++)
        map->in_sync[p] |= map->owner[p] == OTHER && map->backup[p] == SELF;
    map->epoch++;
    fake_coordinator_settle(SESSION);
}

/* The copy of what b owns is begun again, after a second each, and then the node is no backup any more. */
TEST(a_backup_without_memory_gives_its_assignment_up, backup_begins, backup_ends)
{
    log_event_listen("copy_given_up");
    const uint64_t id = copying();
    assert_int_equal(id, assigned());
    copy_is(PS_MIGRATION_FAILED, MR_OUT_OF_MEMORY);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), starts() == 2 && copying() == id);
    assert_int_equal(assigned(), id);
    assert_false(log_event_has_come());
    copy_is(PS_MIGRATION_FAILED, MR_NO_MEMORY);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), assigned() == 0);
    assert_true(fake_coordinator_report().room.refuses_copies);
    assert_log_event("has no memory for the copy of");
    assert_log_event("raise memory.limit_mib");
    const uint64_t epoch = fake_coordinator_map()->epoch;
    fake_coordinator_settle(SESSION); /* and this leader does not assign it again */
    assert_int_equal(fake_coordinator_map()->epoch, epoch);
    assert_int_equal(starts(), 2);
}

/* The map would promote it: it gives the assignment up at once, and another one begins the copy again. */
TEST(what_a_backup_in_sync_has_lost_is_given_up_at_once, backup_begins, backup_ends)
{
    const uint64_t id = copying();
    log_event_listen("copy_follows");
    copy_is(PS_MIGRATION_FOLLOWING, MR_OK);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), log_event_has_come());
    say_in_sync();
    copy_is(PS_MIGRATION_FAILED, MR_UNREACHABLE);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), assigned() != id);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), copying() == assigned() && copying() != 0);
    assert_false(fake_coordinator_report().room.refuses_copies);
    assert_int_equal(starts(), 2);
}

/* The owner knows: it has said so, and the assignment stays. */
TEST(what_the_owner_cannot_complete_stays_assigned, backup_begins, backup_ends)
{
    const uint64_t id = copying();
    log_event_listen("copy_failed");
    for (uint32_t i = 1; i < 3; i++) {
        copy_is(PS_MIGRATION_FAILED, MR_BUSY);
        WAIT_UNTIL(fake_coordinator_settle(SESSION), starts() == i + 1 && copying() == id);
        assert_int_equal(assigned(), id);
    }
    assert_log_event("begins again: the test says so");
}
