#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "ps/cluster/copies.h"
#include "ps/cluster/member.h"

#define PARTITIONS 4u
#define SESSION_US 1000u
#define FENCE_US   300u
#define SESSION    5u
#define START      50u

/* The coordinator's map, and what the member asked for. */
static struct ps_cluster_map map, written;
static const bool everybody[PS_CLUSTER_NODES_MAX] = {true, true, true, true};
static struct ps_member m;
static bool arrived; /* what install() finds */
static struct asked {
    uint32_t writes, loads, installed, cleanups, cuts, cancelled;
    uint32_t changes[2][PS_MIGRATION_STATES];
    uint64_t checkpoint;
} asked;

static void write_map(void *context, const struct ps_cluster_map *next)
{
    (void)context;
    asked.writes++;
    written = *next;
}

static void load(void *context, uint32_t partition, uint64_t checkpoint, uint64_t grant)
{
    (void)context;
    asked.loads++;
    asked.checkpoint = checkpoint;
    assert_int_equal(grant, m.map.grant[partition]);
}

static void migration_changed(void *context, const struct ps_migration *migration)
{
    (void)context;
    asked.changes[migration->role][migration->state]++;
}

static bool install(void *context, uint32_t partition, uint64_t move)
{
    (void)context;
    (void)partition;
    (void)move;
    asked.installed += arrived;
    return arrived;
}

static void cleanup(void *context, uint32_t partition)
{
    (void)context;
    (void)partition;
    asked.cleanups++;
}

static void cut(void *context, uint64_t id, uint64_t step)
{
    (void)context;
    assert_int_equal(id, map.cut);
    assert_int_equal(step, map.cut_step);
    asked.cuts++;
}

static void cancel_cut(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    asked.cancelled++;
}

static const struct ps_member_ops ops = {.write_map = write_map,
                                         .load = load,
                                         .migration_changed = migration_changed,
                                         .install = install,
                                         .cleanup = cleanup,
                                         .cut = cut,
                                         .cancel_cut = cancel_cut};

static struct ps_cluster_node node(char name, uint64_t start_id, uint64_t session)
{
    struct ps_cluster_node n = {.core_count = 1, .start_id = start_id, .session = session};
    n.name[0] = name;
    return n;
}

static void take(void)
{
    ps_member_take_map(&m, &map);
}

static enum ps_member_answer serves(uint32_t partition, uint64_t now_us)
{
    return ps_member_serves(&m, partition, map.grant[partition], START, now_us);
}

/* a, the node, owns partitions 0 and 1, and has loaded them; b owns the others. */
static int set_up(void **state)
{
    const struct ps_cluster_node a = node('a', START, SESSION);
    const struct ps_cluster_node b = node('b', 60, 6);
    (void)state;
    asked = (struct asked){0};
    arrived = false;
    ps_cluster_map_init(&map, PARTITIONS);
    assert_true(ps_cluster_map_join(&map, &a) && ps_cluster_map_join(&map, &b) &&
                ps_cluster_map_spread(&map, everybody));
    ps_member_init(&m, &ops, NULL, &a, SESSION_US, FENCE_US, PARTITIONS);
    ps_member_confirmed(&m, SESSION, 0);
    take();
    for (uint32_t p = 0; p < 2; p++)
        ps_member_loaded(&m, p, map.grant[p]);
    return asked.loads == 2 ? 0 : -1;
}

static void test_it_serves_what_it_owns_and_has(void **state)
{
    (void)state;
    assert_int_equal(serves(0, 0), PS_MEMBER_SERVES);
    assert_int_equal(serves(2, 0), PS_MEMBER_OTHER_OWNER);
    assert_int_equal(ps_member_serves(&m, 0, map.grant[0] + 1, START, 0), PS_MEMBER_OTHER_OWNER);
    assert_int_equal(ps_member_serves(&m, 0, map.grant[0], START + 1, 0), PS_MEMBER_OTHER_OWNER);
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    map.committed = 33;
    take();
    assert_int_equal(asked.checkpoint, 33); /* nothing had arrived */
    assert_int_equal(serves(2, 0), PS_MEMBER_WAIT);
    ps_member_loaded(&m, 2, map.grant[0]); /* of a grant before this one */
    assert_int_equal(serves(2, 0), PS_MEMBER_WAIT);
    ps_member_loaded(&m, 2, map.grant[2]);
    assert_int_equal(serves(2, 0), PS_MEMBER_SERVES);
}

static void test_its_lease_is_half_a_session_from_the_sending_on(void **state)
{
    (void)state;
    assert_int_equal(serves(0, SESSION_US / 2 - 1), PS_MEMBER_SERVES);
    assert_int_equal(serves(0, SESSION_US / 2), PS_MEMBER_WAIT);
    ps_member_confirmed(&m, SESSION, 400);
    assert_int_equal(serves(0, 899), PS_MEMBER_SERVES);
    ps_member_confirmed(&m, SESSION, 300); /* an answer that was overtaken */
    assert_int_equal(serves(0, 899), PS_MEMBER_SERVES);
    assert_int_equal(serves(0, 900), PS_MEMBER_WAIT);
}

static void test_a_new_session_serves_once_the_map_has_it(void **state)
{
    const struct ps_cluster_node again = node('a', START, SESSION + 1);
    (void)state;
    ps_member_expired(&m);
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    ps_member_confirmed(&m, SESSION + 1, 0);
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    assert_true(ps_cluster_map_join(&map, &again));
    take();
    assert_int_equal(serves(0, 0), PS_MEMBER_SERVES);
    assert_int_equal(asked.loads, 2); /* it went on with what it had */
}

static void test_it_ends_when_another_process_has_its_name(void **state)
{
    const struct ps_cluster_node other = node('a', START + 1, SESSION + 1);
    (void)state;
    assert_true(ps_cluster_map_join(&map, &other));
    take();
    assert_true(m.is_superseded);
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    assert_int_equal(asked.cleanups, 2);
}

static void test_an_older_map_changes_nothing(void **state)
{
    const struct ps_cluster_map old = map;
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 0, 1, 1));
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    take();
    ps_member_take_map(&m, &old);
    assert_int_equal(serves(0, 0), PS_MEMBER_OTHER_OWNER);
    assert_int_equal(m.map.epoch, map.epoch);
}

/* Nobody has to wait for the next round to serve what has come, or to refuse what has gone. */
static void test_the_end_of_an_own_move_is_taken_at_a_glimpse(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    const uint64_t move = map.moves[0].id;
    ps_member_glimpse_map(&m, &map);
    assert_int_not_equal(m.map.epoch, map.epoch); /* nobody waits for a beginning */
    take();
    arrived = true;
    assert_true(ps_cluster_map_finish_move(&map, move));
    ps_member_glimpse_map(&m, &map);
    assert_int_equal(serves(2, 0), PS_MEMBER_SERVES);
}

/* The map may be one of before it. */
static void test_a_glimpse_does_not_tell_the_fate_of_a_change(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    const uint64_t move = map.moves[0].id;
    take();
    assert_true(ps_cluster_map_finish_move(&map, move));
    const uint64_t epoch = m.map.epoch;
    m.asks = true;
    ps_member_glimpse_map(&m, &map);
    assert_true(m.asks);
    assert_int_equal(m.map.epoch, epoch);
    m.asks = false;
    ps_member_glimpse_map(&m, &map);
    assert_int_equal(m.map.epoch, map.epoch);
}

static uint32_t source_changes(enum ps_migration_state state)
{
    return asked.changes[PS_MIGRATION_SOURCE][state];
}

/* Up to the change of the map that ends the move, which is then in `written`. */
static uint64_t migrate(void)
{
    assert_true(ps_cluster_map_begin_move(&map, 0, 1, 1));
    const uint64_t move = map.moves[0].id;
    take();
    assert_int_equal(source_changes(PS_MIGRATION_WAITING), 1);
    assert_true(ps_member_migrate(&m, move, PS_MIGRATION_COPYING, 0));
    assert_int_equal(serves(0, 0), PS_MEMBER_SERVES);
    assert_false(ps_member_migrate(&m, move, PS_MIGRATION_INSTALLED, 0)); /* too early */
    assert_int_equal(asked.writes, 0);
    assert_true(ps_member_migrate(&m, move, PS_MIGRATION_FENCING, 0));
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    assert_int_equal(serves(1, 0), PS_MEMBER_SERVES);
    ps_member_tick(&m, FENCE_US);
    assert_int_equal(asked.writes, 0);
    assert_true(ps_member_migrate(&m, move, PS_MIGRATION_FENCED, 0));
    assert_true(ps_member_migrate(&m, move, PS_MIGRATION_INSTALLED, 0));
    assert_int_equal(asked.writes, 1);
    return move;
}

static void test_what_moves_away_waits_until_the_map_has_changed(void **state)
{
    (void)state;
    const uint64_t move = migrate();
    assert_int_equal(written.owner[0], 1);
    assert_int_equal(written.grant[0], move);
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    map = written;
    ps_member_map_written(&m, &written, PS_WRITTEN);
    assert_int_equal(serves(0, 0), PS_MEMBER_OTHER_OWNER);
    assert_int_equal(asked.cleanups, 1);
    assert_int_equal(source_changes(PS_MIGRATION_DONE), 1);
    assert_int_equal(m.migration_count, 1); /* the cores may have something of it */
    ps_member_release(&m, move);
    assert_int_equal(m.migration_count, 0);
}

/* Up to the calls' waiting for the end of the move. */
static uint64_t fence(uint64_t now_us)
{
    assert_true(ps_cluster_map_begin_move(&map, 0, 1, 1));
    const uint64_t move = map.moves[0].id;
    take();
    (void)(ps_member_migrate(&m, move, PS_MIGRATION_COPYING, now_us) &&
           ps_member_migrate(&m, move, PS_MIGRATION_FENCING, now_us) &&
           ps_member_migrate(&m, move, PS_MIGRATION_FENCED, now_us));
    return move;
}

/* The second one would take the place of the first, whose end nobody would hear of. */
static void test_changes_are_made_one_at_a_time(void **state)
{
    (void)state;
    const uint64_t move = fence(0);
    struct ps_cluster_map other = map;
    assert_true(ps_cluster_map_begin_move(&other, 1, 1, 1));
    assert_true(ps_member_propose(&m, &other));
    assert_true(ps_member_migrate(&m, move, PS_MIGRATION_INSTALLED, 0));
    assert_int_equal(asked.writes, 1);
    assert_false(ps_member_propose(&m, &other));
    ps_member_map_written(&m, &other, PS_NOT_WRITTEN);
    ps_member_tick(&m, 0);
    assert_int_equal(asked.writes, 1); /* there is another map first */
    map = other;
    take();
    ps_member_tick(&m, 0);
    assert_int_equal(asked.writes, 2);
    assert_int_equal(written.owner[0], 1);
}

static void test_a_change_of_unknown_fate_is_asked_for(void **state)
{
    (void)state;
    migrate();
    ps_member_map_written(&m, &written, PS_PERHAPS_WRITTEN);
    assert_true(m.asks);
    ps_member_tick(&m, 1);
    assert_int_equal(asked.writes, 1);
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    take(); /* it was not written: the map is as it was */
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT);
    ps_member_tick(&m, 2);
    assert_int_equal(asked.writes, 2);
    map = written; /* it was, and the answer is lost again */
    ps_member_map_written(&m, &written, PS_NOT_WRITTEN);
    take();
    assert_int_equal(serves(0, 0), PS_MEMBER_OTHER_OWNER);
}

static void test_a_cancelled_move_lets_calls_through(void **state)
{
    (void)state;
    const uint64_t move = migrate();
    ps_member_map_written(&m, &written, PS_NOT_WRITTEN);
    assert_true(ps_cluster_map_cancel_move(&map, move));
    take();
    assert_int_equal(serves(0, 0), PS_MEMBER_SERVES);
    assert_int_equal(source_changes(PS_MIGRATION_CANCELLED), 1);
    assert_int_equal(asked.cleanups, 0);
}

static void test_a_migration_that_fences_calls_too_long_is_given_up(void **state)
{
    (void)state;
    (void)fence(100);
    ps_member_tick(&m, 100 + FENCE_US);
    assert_int_equal(asked.writes, 0);
    ps_member_tick(&m, 101 + FENCE_US);
    assert_int_equal(asked.writes, 1);
    assert_int_equal(written.move_count, 0);
    assert_int_equal(written.owner[0], 0);
    assert_int_equal(serves(0, 0), PS_MEMBER_WAIT); /* until it is known to be cancelled */
    ps_member_map_written(&m, &written, PS_WRITTEN);
    assert_int_equal(serves(0, 0), PS_MEMBER_SERVES);
}

static void test_what_came_by_a_migration_is_installed(void **state)
{
    (void)state;
    arrived = true;
    assert_true(ps_cluster_map_begin_move(&map, 2, 2, 0));
    take();
    assert_int_equal(asked.installed, 0); /* the source still owns it */
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    take();
    assert_int_equal(asked.installed, 2);
    assert_int_equal(asked.loads, 2);
    assert_int_equal(serves(3, 0), PS_MEMBER_SERVES);
}

static struct ps_migration *of_target(void)
{
    assert_int_equal(m.migration_count, 1);
    assert_int_equal(m.migrations[0].role, PS_MIGRATION_TARGET);
    assert_string_equal(m.migrations[0].peer.name, "b");
    return &m.migrations[0];
}

static void test_a_target_ends_as_the_map_says(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    const uint64_t first = map.moves[0].id;
    take();
    assert_int_equal(of_target()->state, PS_MIGRATION_WAITING);
    assert_true(ps_member_migrate(&m, first, PS_MIGRATION_CLEANUP, 0));
    assert_true(ps_member_migrate(&m, first, PS_MIGRATION_COPYING, 0));
    assert_false(ps_member_migrate(&m, first, PS_MIGRATION_INSTALLED, 0)); /* the source serves them */
    assert_true(ps_member_migrate(&m, first, PS_MIGRATION_FAILED, 0));
    ps_member_release(&m, first); /* the map still has it */
    assert_true(ps_cluster_map_cancel_move(&map, first));
    take();
    assert_int_equal(of_target()->state, PS_MIGRATION_CANCELLED);
    ps_member_release(&m, first);
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    const uint64_t second = map.moves[0].id;
    take();
    for (uint32_t i = PS_MIGRATION_CLEANUP; i <= PS_MIGRATION_INSTALLED; i++)
        if (i != PS_MIGRATION_FOLLOWING) /* a backup's */
            assert_int_equal(ps_member_migrate(&m, second, i, 0), i != PS_MIGRATION_FENCING);
    arrived = true;
    assert_true(ps_cluster_map_finish_move(&map, second));
    take();
    assert_int_equal(of_target()->state, PS_MIGRATION_DONE);
    assert_int_equal(serves(2, 0), PS_MEMBER_SERVES);
    assert_false(ps_member_migrate(&m, second, PS_MIGRATION_CANCELLED, 0));
}

/* Nothing on the cores is to be ended, and nobody releases it. */
static void test_one_that_waits_leaves_nothing_when_it_ends(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 0, 1, 1));
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    take();
    assert_int_equal(m.migration_count, 2);
    while (map.move_count > 0)
        assert_true(ps_cluster_map_cancel_move(&map, map.moves[0].id));
    take();
    assert_int_equal(m.migration_count, 0);
    assert_int_equal(source_changes(PS_MIGRATION_CANCELLED), 1);
    assert_int_equal(asked.changes[PS_MIGRATION_TARGET][PS_MIGRATION_CANCELLED], 1);
}

static void test_it_cuts_once_it_has_all_that_it_owns(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 2, 1, 0));
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    assert_true(ps_cluster_map_begin_cut(&map, 8));
    take();
    assert_int_equal(asked.cuts, 0);
    ps_member_loaded(&m, 2, map.grant[2]);
    assert_int_equal(asked.cuts, 1);
    assert_true(ps_cluster_map_cancel_cut(&map, map.cut));
    take();
    assert_int_equal(asked.cancelled, 1);
}

/* Partition 0 has b as its backup. */
static void back_up(void)
{
    map.replication = 2;
    map.backup[0] = 1;
    map.backup_grant[0] = ++map.last_id;
    map.epoch++;
    take();
}

static struct ps_cluster_map say(bool is_in_sync)
{
    uint64_t grants[PS_CLUSTER_PARTITIONS_MAX] = {0};
    struct ps_cluster_map next = m.map;
    grants[0] = map.backup_grant[0];
    assert_true(ps_copies_set_sync(&next, 0, grants, is_in_sync));
    return next;
}

static void test_answers_wait_for_a_backup_from_the_proposal_on(void **state)
{
    (void)state;
    back_up();
    assert_false(ps_member_answer_waits(&m, 0));
    const struct ps_cluster_map next = say(true);
    assert_true(ps_member_propose(&m, &next));
    assert_true(ps_member_answer_waits(&m, 0)); /* it may be in force, and the backup be promoted */
    assert_false(ps_member_answer_waits(&m, 1));
    ps_member_map_written(&m, &next, PS_WRITTEN);
    map = next;
    assert_true(ps_member_answer_waits(&m, 0));
    const struct ps_cluster_map alone = say(false);
    assert_true(ps_member_propose(&m, &alone));
    assert_true(ps_member_answer_waits(&m, 0)); /* and no answer is given alone before it is known */
    ps_member_map_written(&m, &alone, PS_WRITTEN);
    assert_false(ps_member_answer_waits(&m, 0));
}

static void test_answers_wait_while_it_is_unknown_whether_a_backup_is_in_sync(void **state)
{
    (void)state;
    back_up();
    const struct ps_cluster_map next = say(true);
    assert_true(ps_member_propose(&m, &next));
    ps_member_map_written(&m, &next, PS_PERHAPS_WRITTEN);
    assert_true(ps_member_answer_waits(&m, 0));
    take(); /* it is not written yet, and may be later */
    assert_false(m.asks);
    assert_true(ps_member_answer_waits(&m, 0));
    map.epoch++; /* something else was: now it never will be */
    take();
    assert_false(ps_member_answer_waits(&m, 0));
}

static void test_no_answer_waits_for_the_backup_of_another_owner(void **state)
{
    (void)state;
    map.replication = 2;
    map.backup[2] = 0;
    map.backup_grant[2] = ++map.last_id;
    map.in_sync[2] = true;
    map.epoch++;
    take();
    assert_false(ps_member_answer_waits(&m, 2));
}

/* It has what came under the number of the assignment, as what came by a move of that number. */
static void test_a_backup_that_is_promoted_serves_what_it_has(void **state)
{
    bool there[PS_CLUSTER_NODES_MAX] = {true};
    (void)state;
    map.replication = 2;
    map.backup[2] = 0;
    map.backup_grant[2] = ++map.last_id;
    map.in_sync[2] = true;
    map.epoch++;
    take();
    assert_int_equal(serves(2, 0), PS_MEMBER_OTHER_OWNER);
    assert_true(ps_copies_promote(&map, 1, there));
    arrived = true;
    const uint32_t loads = asked.loads;
    take();
    assert_int_equal(asked.installed, 1);
    assert_int_equal(asked.loads, loads);
    ps_member_confirmed(&m, SESSION, 10);
    assert_int_equal(serves(2, 11), PS_MEMBER_SERVES);
    assert_int_equal(map.owner[3], 1); /* which had no backup */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_it_serves_what_it_owns_and_has, set_up),
        cmocka_unit_test_setup(test_its_lease_is_half_a_session_from_the_sending_on, set_up),
        cmocka_unit_test_setup(test_a_new_session_serves_once_the_map_has_it, set_up),
        cmocka_unit_test_setup(test_it_ends_when_another_process_has_its_name, set_up),
        cmocka_unit_test_setup(test_an_older_map_changes_nothing, set_up),
        cmocka_unit_test_setup(test_the_end_of_an_own_move_is_taken_at_a_glimpse, set_up),
        cmocka_unit_test_setup(test_a_glimpse_does_not_tell_the_fate_of_a_change, set_up),
        cmocka_unit_test_setup(test_what_moves_away_waits_until_the_map_has_changed, set_up),
        cmocka_unit_test_setup(test_changes_are_made_one_at_a_time, set_up),
        cmocka_unit_test_setup(test_a_change_of_unknown_fate_is_asked_for, set_up),
        cmocka_unit_test_setup(test_a_cancelled_move_lets_calls_through, set_up),
        cmocka_unit_test_setup(test_a_migration_that_fences_calls_too_long_is_given_up, set_up),
        cmocka_unit_test_setup(test_what_came_by_a_migration_is_installed, set_up),
        cmocka_unit_test_setup(test_a_target_ends_as_the_map_says, set_up),
        cmocka_unit_test_setup(test_one_that_waits_leaves_nothing_when_it_ends, set_up),
        cmocka_unit_test_setup(test_it_cuts_once_it_has_all_that_it_owns, set_up),
        cmocka_unit_test_setup(test_answers_wait_for_a_backup_from_the_proposal_on, set_up),
        cmocka_unit_test_setup(test_answers_wait_while_it_is_unknown_whether_a_backup_is_in_sync, set_up),
        cmocka_unit_test_setup(test_no_answer_waits_for_the_backup_of_another_owner, set_up),
        cmocka_unit_test_setup(test_a_backup_that_is_promoted_serves_what_it_has, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
