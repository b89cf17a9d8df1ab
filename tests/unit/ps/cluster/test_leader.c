#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "ps/cluster/copies.h"
#include "ps/cluster/leader.h"

static struct ps_cluster_map map, next;
static struct ps_cluster_node nodes[3];
static uint64_t absent_us[PS_CLUSTER_NODES_MAX];
static bool drained[PS_CLUSTER_NODES_MAX];
static struct ps_leader_view view;

static enum ps_leader_action lead(void)
{
    const enum ps_leader_action action = ps_leader_next(&view, &next);
    if (action == PS_LEADER_WRITES_MAP) {
        assert_int_equal(next.epoch, map.epoch + 1);
        map = next;
    }
    return action;
}

/* Two nodes with 6 partitions each. */
static int set_up(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, 12);
    for (uint32_t i = 0; i < 3; i++) {
        nodes[i] = (struct ps_cluster_node){.core_count = 1,
                                            .start_id = 10 + i,
                                            .session = 20 + i,
                                            .version = {.capabilities = MR_CAN(TAKE_OVER)}};
        nodes[i].name[0] = (char)('a' + (int)i);
        absent_us[i] = 0;
        drained[i] = false;
    }
    view = (struct ps_leader_view){.map = &map,
                                   .registered = nodes,
                                   .registered_count = 2,
                                   .absent_us = absent_us,
                                   .nodes_wanted = 2,
                                   .replication = 1,
                                   .drained = drained};
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* all of it is one change */
    return 0;
}

static void test_nodes_are_admitted_and_get_partitions_together(void **state)
{
    (void)state;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    assert_int_equal(ps_cluster_map_load(&map, 0), 6);
    ps_cluster_map_init(&map, 12);
    view.registered_count = 1;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* a joins */
    assert_int_equal(lead(), PS_LEADER_WAITS);      /* for b */
    assert_int_equal(map.owner[0], PS_CLUSTER_NO_NODE);
}

static void nodes_configured(uint32_t at, uint32_t take_over_s, uint32_t replication)
{
    nodes[at].take_over_s = take_over_s;
    nodes[at].replication = replication;
}

/* As it is while an operator changes one node after the other, and after one has stayed as it was. */
static void test_settings_change_once_all_nodes_have_them(void **state)
{
    struct ps_leader_differs differs;
    (void)state;
    view.registered_count = 2;
    differs = ps_leader_settings(&view); /* nobody says anything: nodes of an older version */
    assert_int_equal(view.take_over_s, 0);
    assert_int_equal(view.replication, 1);
    assert_null(differs.replication[0]);
    nodes_configured(0, 30, 2); /* and the other is of an older version */
    (void)ps_leader_settings(&view);
    assert_int_equal(view.take_over_s, 30);
    assert_int_equal(view.replication, 2);
    nodes_configured(1, 30, 1);
    differs = ps_leader_settings(&view);
    assert_int_equal(view.take_over_s, 30);
    assert_int_equal(view.replication, 1); /* as the map has it */
    assert_null(differs.take_over[0]);
    assert_ptr_equal(differs.replication[0], &nodes[0]);
    assert_ptr_equal(differs.replication[1], &nodes[1]);
    map.replication = 2; /* however often the leader changes */
    (void)ps_leader_settings(&view);
    assert_int_equal(view.replication, 2);
    nodes[0].answers_wait = true;
    differs = ps_leader_settings(&view);
    assert_false(view.answers_wait);
    assert_ptr_equal(differs.copies[1], &nodes[1]);
    nodes[1].answers_wait = true;
    differs = ps_leader_settings(&view);
    assert_true(view.answers_wait);
    assert_null(differs.copies[0]);
    view.registered_count = 1; /* what is left is no proof while the other owns something */
    nodes_configured(0, 60, 1);
    absent_us[1] = 5;
    (void)ps_leader_settings(&view);
    assert_int_equal(view.take_over_s, 0);
    assert_int_equal(view.replication, 2);
    for (uint32_t p = 0; p < map.partition_count; p++)
        map.owner[p] = 0;
    (void)ps_leader_settings(&view);
    assert_int_equal(view.take_over_s, 60);
    assert_int_equal(view.replication, 1);
}

/* A node that was started under a wrong name stays in the map, but will never serve. */
static void test_partitions_go_to_nodes_that_are_there(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, 12);
    view.registered = nodes + 2;
    view.registered_count = 1;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* c joins */
    absent_us[0] = 5;
    view.registered = nodes;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* a joins */
    assert_int_equal(lead(), PS_LEADER_WAITS);      /* for b: two are to be there */
    view.registered_count = 2;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* b joins, and both get theirs */
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(ps_cluster_map_load(&map, 1), 6);
    assert_int_equal(ps_cluster_map_load(&map, 2), 6);
}

static void test_a_late_node_gets_its_share_when_asked(void **state)
{
    (void)state;
    view.registered_count = 3;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.wants_balance = true;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.moves[0].to, 2);
    assert_int_equal(map.moves[0].count, 2);
}

/* All of its moves, and none after them: what an operator has moved stays where it is. */
static void test_a_node_that_owns_nothing_gets_its_share_by_itself(void **state)
{
    (void)state;
    view.rebalances = true;
    view.registered_count = 3;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* c joins */
    assert_true(ps_cluster_map_begin_cut(&map, 3));
    assert_int_equal(lead(), PS_LEADER_WAITS);
    assert_true(ps_cluster_map_cancel_cut(&map, map.cut));
    absent_us[2] = 1;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    absent_us[2] = 0;
    drained[2] = true;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    drained[2] = false;
    map.balances_when_asked = true;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    nodes[2].start_id = 99;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* c has started again */
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_true(map.balances);
    view.wants_balance = true;
    while (map.balances) {
        assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
        assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
        map.balances = ps_cluster_map_load(&map, 2) < 4;
    }
    view.wants_balance = false;
    uint32_t first;
    const uint32_t count = ps_cluster_map_longest_run(&map, 0, 3, &first);
    assert_true(count > 0 && ps_cluster_map_begin_move(&map, first, count, 1) &&
                ps_cluster_map_finish_move(&map, map.moves[0].id));
    assert_int_equal(lead(), PS_LEADER_WAITS);
}

/* It is in the map, and not one of those that partitions wait for. */
static void test_a_spare_gets_partitions_only_of_the_dead(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, 12);
    nodes[0].is_spare = true;
    view.rebalances = true;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* a and b join */
    assert_int_equal(lead(), PS_LEADER_WAITS);      /* for c */
    view.registered_count = 3;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(ps_cluster_map_load(&map, 1), 6);
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.take_over_us = 1000;
    absent_us[1] = 1001;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 0), 6);
    assert_int_equal(ps_cluster_map_load(&map, 2), 6);
    absent_us[1] = 0; /* it comes back, and the spare is one again */
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_true(map.balances);
    view.wants_balance = true;
    while (ps_cluster_map_load(&map, 0) > 0) {
        assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
        assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    }
    assert_int_equal(ps_cluster_map_load(&map, 1), 6);
    assert_int_equal(lead(), PS_LEADER_WAITS);
}

static void test_moves_with_an_absent_node_end(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 0, 2, 1));
    assert_int_equal(lead(), PS_LEADER_WAITS);
    absent_us[1] = 1;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.move_count, 0);
    drained[0] = true;
    view.wants_balance = true;
    assert_int_equal(lead(), PS_LEADER_WAITS); /* none begins, either */
}

static void test_names_that_nobody_uses_leave_the_map(void **state)
{
    (void)state;
    view.registered_count = 3;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* c joins, and owns nothing */
    view.registered_count = 2;
    absent_us[2] = 1001;
    absent_us[1] = 5000; /* owns partitions */
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.forget_us = 1001;
    assert_int_equal(lead(), PS_LEADER_WAITS); /* not yet */
    view.forget_us = 1000;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.node_count, 2);
    assert_int_equal(lead(), PS_LEADER_WAITS);
}

static void test_those_that_are_there_are_balanced_without_the_absent(void **state)
{
    (void)state;
    view.registered_count = 3;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    absent_us[1] = 1;
    view.wants_balance = true;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.moves[0].from, 0);
    assert_int_equal(map.moves[0].to, 2);
    assert_int_equal(map.moves[0].count, 3);
}

static void test_the_dead_are_replaced_if_that_is_wanted(void **state)
{
    (void)state;
    absent_us[1] = 1000;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.take_over_us = 1000;
    assert_int_equal(lead(), PS_LEADER_WAITS); /* not yet */
    absent_us[1] = 1001;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 0), 12);
}

/* All leaders go by the map; what it says is what the leader is configured with. */
static void test_the_leader_says_after_how_long(void **state)
{
    (void)state;
    view.take_over_s = 30;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.take_over_s, 30);
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.take_over_s = 0;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.take_over_s, 0);
}

/* Whichever of the nodes comes first when the cluster forms. */
static void test_an_older_node_may_come_second(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, 12);
    nodes[1].version.capabilities = 0;
    view.registered_count = 1;
    view.take_over_s = 30;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* a joins */
    assert_int_equal(map.needs, 0);
    view.registered_count = 2;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 1), 6);
    assert_int_equal(map.take_over_s, 0);
}

static void test_a_checkpoint_is_committed_once_all_is_written(void **state)
{
    (void)state;
    view.wants_cut = true;
    view.cut_step = 9;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    const uint64_t cut = map.cut;
    assert_int_equal(map.cut_step, 9);
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.parts_are_written = true;
    assert_int_equal(lead(), PS_LEADER_COMMITS_CUT);
    view.cut_is_committed = true;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.committed, cut);
    assert_int_equal(map.cut, 0);
}

static void test_a_checkpoint_waits_for_moves_and_none_begins(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 0, 2, 1));
    view.wants_cut = view.wants_balance = true;
    drained[0] = true;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_not_equal(map.cut, 0);
}

static void test_a_late_checkpoint_is_given_up_unless_it_is_there(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_cut(&map, 3));
    view.cut_is_late = true;
    view.cut_is_committed = true;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_not_equal(map.committed, 0);
    assert_true(ps_cluster_map_begin_cut(&map, 4));
    view.cut_is_committed = false;
    const uint64_t committed = map.committed;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.cut, 0);
    assert_int_equal(map.committed, committed);
}

/* The file CLUSTER may be there although a node has started again meanwhile: the checkpoint is valid, and all
 * must agree that it is there. */
static void test_what_is_in_the_store_is_committed_before_a_restart_is_noted(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_cut(&map, 3));
    const uint64_t cut = map.cut;
    view.cut_is_committed = true;
    nodes[1].start_id = 77;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.committed, cut);
    assert_int_equal(map.nodes[1].start_id, 11);
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(map.nodes[1].start_id, 77);
}

/* a, b and c on hosts of their own, with 4 partitions each, all of which are copied. */
static int three_with_copies(void **state)
{
    (void)set_up(state);
    ps_cluster_map_init(&map, 12);
    for (uint32_t i = 0; i < 3; i++) {
        nodes[i].host[0] = (char)('1' + (int)i);
        nodes[i].version.capabilities = MR_CAPABILITIES;
    }
    view.registered_count = view.nodes_wanted = 3;
    view.replication = 2;
    view.take_over_s = 1;
    view.take_over_us = 100;
    view.drop_us = 50;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* all of it is one change */
    assert_int_equal(map.replication, 2);
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* and this is the backups */
    assert_int_equal(lead(), PS_LEADER_WAITS);
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t grants[PS_CLUSTER_PARTITIONS_MAX];
        assert_int_equal(ps_copies_held(&map, i), 4);
        memcpy(grants, map.backup_grant, sizeof(grants));
        assert_true(ps_copies_set_sync(&map, i, grants, true));
    }
    assert_int_equal(lead(), PS_LEADER_WAITS);
    return 0;
}

/* Node a has no session, or another process has. */
static void lose_a(void)
{
    view.registered = nodes + 1;
    view.registered_count = 2;
    absent_us[0] = 1;
}

static void test_backups_go_on_at_once(void **state)
{
    (void)state;
    lose_a();
    view.may_not_take_over = true; /* no checkpoint is needed */
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(ps_cluster_map_load(&map, 1), 6);
    assert_int_equal(ps_cluster_map_load(&map, 2), 6);
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP); /* new backups */
    assert_int_equal(ps_copies_held(&map, 0), 4);   /* a may be back soon */
    assert_int_equal(ps_copies_held(&map, 1) + ps_copies_held(&map, 2), 8);
    assert_int_equal(lead(), PS_LEADER_WAITS);
    absent_us[0] = 51;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_copies_held(&map, 0), 0);
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_copies_held(&map, 1) + ps_copies_held(&map, 2), 12);
}

/* It has nothing of what it owned, and the backups have all. */
static void test_backups_go_on_before_the_owner_starts_again(void **state)
{
    (void)state;
    nodes[0].start_id++;
    nodes[0].session++;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_true(map.nodes[0].start_id != nodes[0].start_id);
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_true(map.nodes[0].start_id == nodes[0].start_id);
    assert_int_equal(ps_copies_held(&map, 0), 0); /* what the process before it followed */
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_copies_held(&map, 0) + ps_copies_held(&map, 1) + ps_copies_held(&map, 2), 12);
}

/* As the leader is configured. */
static void test_the_map_says_whether_answers_wait(void **state)
{
    (void)state;
    view.answers_wait = true;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_true(map.answers_wait && map.in_sync[0]);
    assert_int_equal(lead(), PS_LEADER_WAITS);
    view.answers_wait = false;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_false(map.answers_wait);
    assert_int_equal(lead(), PS_LEADER_WAITS);
}

/* They are back with all, or gone after take_over_s. */
static void test_backups_that_are_away_are_waited_for(void **state)
{
    (void)state;
    view.registered = nodes + 2;
    view.registered_count = 1;
    absent_us[0] = 200;
    absent_us[1] = 20;
    while (lead() == PS_LEADER_WRITES_MAP) /* c goes on with what it has */
        continue;
    assert_int_equal(ps_cluster_map_load(&map, 0), 2);
    nodes[0].start_id++; /* nor does a begin again from a checkpoint */
    struct ps_cluster_node there[2] = {nodes[0], nodes[2]};
    view.registered = there;
    view.registered_count = 2;
    absent_us[0] = 0;
    struct ps_cluster_map before = map;
    assert_int_equal(lead(), PS_LEADER_WAITS);
    absent_us[1] = 101;
    while (lead() == PS_LEADER_WRITES_MAP)
        continue;
    assert_true(map.nodes[0].start_id == nodes[0].start_id);
    map = before;
    there[0] = nodes[1]; /* b is back with what it had, and a is not */
    absent_us[0] = 200;
    absent_us[1] = 0;
    assert_int_equal(lead(), PS_LEADER_WRITES_MAP);
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    for (uint32_t p = 0; p < 12; p++)
        assert_true(map.restored_from[p] == 0 && map.owner[p] != 0);
}

/* Whatever has come under the name: the copy is not there any more. */
static void test_copies_of_a_process_that_is_gone_are_made_elsewhere(void **state)
{
    (void)state;
    nodes[0].start_id++;
    nodes[0].version.capabilities = 0; /* and is not admitted */
    while (lead() == PS_LEADER_WRITES_MAP)
        continue;
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(ps_copies_held(&map, 0), 0);
    assert_int_equal(ps_copies_held(&map, 1) + ps_copies_held(&map, 2), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nodes_are_admitted_and_get_partitions_together, set_up),
        cmocka_unit_test_setup(test_settings_change_once_all_nodes_have_them, set_up),
        cmocka_unit_test_setup(test_partitions_go_to_nodes_that_are_there, set_up),
        cmocka_unit_test_setup(test_a_late_node_gets_its_share_when_asked, set_up),
        cmocka_unit_test_setup(test_a_node_that_owns_nothing_gets_its_share_by_itself, set_up),
        cmocka_unit_test_setup(test_a_spare_gets_partitions_only_of_the_dead, set_up),
        cmocka_unit_test_setup(test_moves_with_an_absent_node_end, set_up),
        cmocka_unit_test_setup(test_names_that_nobody_uses_leave_the_map, set_up),
        cmocka_unit_test_setup(test_those_that_are_there_are_balanced_without_the_absent, set_up),
        cmocka_unit_test_setup(test_the_dead_are_replaced_if_that_is_wanted, set_up),
        cmocka_unit_test_setup(test_the_leader_says_after_how_long, set_up),
        cmocka_unit_test_setup(test_an_older_node_may_come_second, set_up),
        cmocka_unit_test_setup(test_the_map_says_whether_answers_wait, three_with_copies),
        cmocka_unit_test_setup(test_a_checkpoint_is_committed_once_all_is_written, set_up),
        cmocka_unit_test_setup(test_a_checkpoint_waits_for_moves_and_none_begins, set_up),
        cmocka_unit_test_setup(test_a_late_checkpoint_is_given_up_unless_it_is_there, set_up),
        cmocka_unit_test_setup(test_what_is_in_the_store_is_committed_before_a_restart_is_noted, set_up),
        cmocka_unit_test_setup(test_backups_go_on_at_once, three_with_copies),
        cmocka_unit_test_setup(test_backups_go_on_before_the_owner_starts_again, three_with_copies),
        cmocka_unit_test_setup(test_backups_that_are_away_are_waited_for, three_with_copies),
        cmocka_unit_test_setup(test_copies_of_a_process_that_is_gone_are_made_elsewhere, three_with_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
