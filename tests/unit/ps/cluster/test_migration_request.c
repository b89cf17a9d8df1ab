#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "ps/cluster/migration_request.h"

static struct ps_cluster_map map, next;
static const bool everybody[PS_CLUSTER_NODES_MAX] = {true, true, true, true};
static bool present[PS_CLUSTER_NODES_MAX];
static struct ps_migration_request request;
static char text[PS_CLUSTER_TEXT_BYTES];

/* Three nodes with 4 partitions each: a has 0 to 3, b 4 to 7, c 8 to 11. */
static int three_nodes(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, 12);
    for (uint32_t i = 0; i < 3; i++) {
        struct ps_cluster_node n = {.core_count = 1,
                                    .start_id = i + 1,
                                    .session = i + 1,
                                    .version = {.capabilities = MR_CAN(TAKE_OVER)}};
        n.name[0] = (char)('a' + (int)i);
        assert_true(ps_cluster_map_join(&map, &n));
    }
    assert_true(ps_cluster_map_spread(&map, everybody));
    memcpy(present, everybody, sizeof(present));
    request = (struct ps_migration_request){
        .kind = MR_MOVE_PARTITIONS, .from = "a", .to = "b", .count = 2, .mib_s = 7};
    return 0;
}

static enum ps_migration_request_state request_ask(void)
{
    const enum ps_migration_request_state state =
        ps_migration_request_propose(&map, present, &request, &next, text);
    if (state == PS_REQUEST_WRITES) {
        assert_int_equal(next.epoch, map.epoch + 1); /* it is one change */
        map = next;
    }
    return state;
}

static void all_of_a_to_b(void)
{
    for (uint32_t p = 0; p < 4; p++)
        map.owner[p] = 1;
}

static void finish_moves(void)
{
    while (map.move_count > 0)
        assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
}

static void test_partitions_begin_to_move_once(void **state)
{
    (void)state;
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(map.move_count, 1);
    assert_int_equal(map.moves[0].count, 2);
    assert_int_equal(map.moves[0].mib_s, 7);
    assert_int_equal(request_ask(), PS_REQUEST_MADE); /* what was perhaps written is recognised */
    finish_moves();
    assert_int_equal(request_ask(), PS_REQUEST_MADE); /* also when it has ended */
    assert_int_equal(ps_cluster_map_load(&map, 0), 2);
    assert_int_equal(ps_cluster_map_load(&map, 1), 6);
}

/* All of a node whose partitions are in several runs is one change. */
static void test_several_runs_move_in_one_change(void **state)
{
    (void)state;
    map.owner[1] = 2;
    request.count = 0;
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(map.move_count, 2);
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
}

static void test_named_places_move_or_it_is_refused(void **state)
{
    (void)state;
    request.has_first = true;
    request.first = 1;
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(map.moves[0].first, 1);
    request.range_count = 0;
    request.first = 2;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_string_equal(text, "partition 2 of node a moves already");
    request.first = 3;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_string_equal(text, "partition 4 is not node a's");
    request.first = 11;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_string_equal(text, "partitions 11 to 12: the map has 0 to 11");
}

static void test_what_cannot_move_is_refused_in_words(void **state)
{
    (void)state;
    (void)snprintf(request.from, sizeof(request.from), "d");
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "called d"));
    (void)snprintf(request.from, sizeof(request.from), "b");
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "there already"));
    (void)snprintf(request.from, sizeof(request.from), "a");
    map.drained[1] = true;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "is drained"));
    map.drained[1] = false;
    all_of_a_to_b();
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "has no partitions"));
}

static void test_moves_wait_for_a_checkpoint(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_cut(&map, 1));
    assert_int_equal(request_ask(), PS_REQUEST_WAITS);
    assert_true(ps_cluster_map_commit_cut(&map, map.cut));
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
}

/* As the leader does it: move by move, until all is as it should be. */
static void lead(void)
{
    uint32_t first;
    uint32_t count;
    uint32_t to;
    while (!ps_migration_balance_ends(&map, present, &next)) {
        assert_true(map.balances);
        assert_true(ps_cluster_map_next_move(&map, map.drained, present, &first, &count, &to));
        assert_true(ps_cluster_map_begin_move(&map, first, count, to));
        assert_false(ps_migration_balance_ends(&map, present, &next)); /* while something moves */
        finish_moves();
    }
    map = next;
}

static void test_a_drained_node_has_none_until_a_rebalance(void **state)
{
    (void)state;
    request = (struct ps_migration_request){.kind = MR_MOVE_DRAIN, .from = "c", .mib_s = 3};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_true(map.balances && map.drained[2]);
    assert_int_equal(map.balance_mib_s, 3);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    lead();
    assert_int_equal(ps_cluster_map_load(&map, 2), 0);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    request = (struct ps_migration_request){.kind = MR_MOVE_BALANCE};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_false(map.drained[2]);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    lead();
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(ps_cluster_map_load(&map, i), 4);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
}

/* What moves needs both nodes: without one it would be cancelled at once, and nobody would be told. */
static void test_what_concerns_an_absent_node_is_refused(void **state)
{
    (void)state;
    present[0] = false;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "node a is away, and owns 4 partitions"));
    request = (struct ps_migration_request){.kind = MR_MOVE_PARTITIONS, .from = "b", .to = "a", .count = 2};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "node a is away"));
    request = (struct ps_migration_request){.kind = MR_MOVE_DRAIN, .from = "a"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "node a is away"));
    present[1] = false;
    request = (struct ps_migration_request){.kind = MR_MOVE_DRAIN, .from = "c"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "no other node that is there"));
}

/* It ends although c, which is away, is neither drained nor has its share. */
static void test_moves_among_the_present_come_to_their_end(void **state)
{
    (void)state;
    present[2] = false;
    request = (struct ps_migration_request){.kind = MR_MOVE_DRAIN, .from = "a"};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    lead();
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(ps_cluster_map_load(&map, 1), 8);
    request = (struct ps_migration_request){.kind = MR_MOVE_BALANCE};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    lead();
    assert_int_equal(ps_cluster_map_load(&map, 0), 4);
    assert_int_equal(ps_cluster_map_load(&map, 1), 4);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
}

static void test_who_was_drained_and_has_left_stays_drained(void **state)
{
    (void)state;
    request = (struct ps_migration_request){.kind = MR_MOVE_DRAIN, .from = "c"};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    lead();
    present[2] = false;
    request = (struct ps_migration_request){.kind = MR_MOVE_BALANCE};
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    request = (struct ps_migration_request){.kind = MR_MOVE_CANCEL};
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    assert_true(map.drained[2]);
    present[2] = true; /* it is back, and wanted */
    request = (struct ps_migration_request){.kind = MR_MOVE_BALANCE};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_false(map.drained[2]);
}

static void test_a_node_that_has_left_is_forgotten(void **state)
{
    (void)state;
    request = (struct ps_migration_request){.kind = MR_MOVE_FORGET, .from = "d"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "called d"));
    request = (struct ps_migration_request){.kind = MR_MOVE_FORGET, .from = "a"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "node a is there"));
    present[0] = false;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "owns 4 partitions"));
    all_of_a_to_b();
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(map.node_count, 2);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
}

static void test_what_a_dead_node_owns_is_taken_over_by_hand(void **state)
{
    const uint32_t none[PS_CLUSTER_NODES_MAX] = {0};
    (void)state;
    request = (struct ps_migration_request){.kind = MR_MOVE_TAKE_OVER, .from = "d"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "called d"));
    request = (struct ps_migration_request){.kind = MR_MOVE_TAKE_OVER, .from = "c"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "node c is there"));
    present[2] = false;
    request.has_no_directory = true;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "this node has no checkpoint.directory"));
    assert_non_null(strstr(text, "or start node c"));
    request.has_no_directory = false;
    request.room = none;
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "no room for the 4 partitions of node c"));
    request.room = NULL;
    assert_true(ps_cluster_map_begin_cut(&map, 5));
    assert_int_equal(request_ask(), PS_REQUEST_WAITS);
    assert_true(ps_cluster_map_cancel_cut(&map, map.cut));
    map.backup[8] = 0;
    map.in_sync[8] = true;
    assert_int_equal(request_ask(), PS_REQUEST_WAITS); /* until the leader has promoted it */
    ps_cluster_map_end_copy(&map, 8);
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(ps_cluster_map_load(&map, 0), 6);
    assert_int_equal(map.restored_in[8], map.epoch);
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    request = (struct ps_migration_request){.kind = MR_MOVE_TAKE_OVER, .from = "c"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "node c owns nothing"));
}

static void test_the_last_node_is_not_drained(void **state)
{
    (void)state;
    map.drained[0] = map.drained[1] = true;
    request = (struct ps_migration_request){.kind = MR_MOVE_DRAIN, .from = "c"};
    assert_int_equal(request_ask(), PS_REQUEST_FAILED);
    assert_non_null(strstr(text, "no other node that is there"));
}

static void test_cancelling_leaves_partitions_where_they_are(void **state)
{
    (void)state;
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_true(ps_cluster_map_begin_move(&map, 8, 1, 1));
    const uint64_t id = map.moves[0].id;
    map.balances = true;
    request = (struct ps_migration_request){.kind = MR_MOVE_CANCEL, .id = id};
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(map.move_count, 1);
    assert_null(ps_cluster_map_move(&map, id));
    request.id = 0;
    assert_int_equal(request_ask(), PS_REQUEST_WRITES);
    assert_int_equal(map.move_count, 0);
    assert_false(map.balances);
    assert_true(map.balances_when_asked); /* or the leader would begin them again */
    assert_int_equal(request_ask(), PS_REQUEST_MADE);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(ps_cluster_map_load(&map, i), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_partitions_begin_to_move_once, three_nodes),
        cmocka_unit_test_setup(test_several_runs_move_in_one_change, three_nodes),
        cmocka_unit_test_setup(test_named_places_move_or_it_is_refused, three_nodes),
        cmocka_unit_test_setup(test_what_cannot_move_is_refused_in_words, three_nodes),
        cmocka_unit_test_setup(test_moves_wait_for_a_checkpoint, three_nodes),
        cmocka_unit_test_setup(test_a_drained_node_has_none_until_a_rebalance, three_nodes),
        cmocka_unit_test_setup(test_what_concerns_an_absent_node_is_refused, three_nodes),
        cmocka_unit_test_setup(test_moves_among_the_present_come_to_their_end, three_nodes),
        cmocka_unit_test_setup(test_who_was_drained_and_has_left_stays_drained, three_nodes),
        cmocka_unit_test_setup(test_a_node_that_has_left_is_forgotten, three_nodes),
        cmocka_unit_test_setup(test_what_a_dead_node_owns_is_taken_over_by_hand, three_nodes),
        cmocka_unit_test_setup(test_the_last_node_is_not_drained, three_nodes),
        cmocka_unit_test_setup(test_cancelling_leaves_partitions_where_they_are, three_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
