#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "ps/cluster/cluster_map.h"

#define PARTITIONS 12u

static struct ps_cluster_map map;
static const bool everybody[PS_CLUSTER_NODES_MAX] = {true, true, true, true};
static const bool nobody[PS_CLUSTER_NODES_MAX];

static struct ps_cluster_node node(char name, uint32_t core_count, uint64_t start_id)
{
    struct ps_cluster_node n = {.core_count = core_count,
                                .start_id = start_id,
                                .session = start_id,
                                .version = {.capabilities = MR_CAN(TAKE_OVER)}};
    n.name[0] = name;
    return n;
}

static void join(char name, uint32_t core_count, uint64_t start_id)
{
    const struct ps_cluster_node n = node(name, core_count, start_id);
    assert_true(ps_cluster_map_join(&map, &n));
}

/* a has 4 partitions, b 8. */
static int two_nodes(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, PARTITIONS);
    join('a', 1, 11);
    join('b', 2, 12);
    return ps_cluster_map_spread(&map, everybody) ? 0 : -1;
}

static void test_partitions_are_spread_by_cores(void **state)
{
    (void)state;
    assert_int_equal(map.epoch, 3);
    assert_int_equal(ps_cluster_map_load(&map, 0), 4);
    assert_int_equal(ps_cluster_map_load(&map, 1), 8);
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        assert_int_equal(map.owner[p], p < 4 ? 0 : 1); /* in runs */
        assert_int_equal(map.grant[p], map.grant[0]);
        assert_int_not_equal(map.grant[p], 0);
    }
    assert_false(ps_cluster_map_spread(&map, everybody)); /* nothing is left */
    assert_int_equal(map.epoch, 3);
}

static struct ps_cluster_node node_of_version(char name, uint64_t start_id, uint64_t capabilities)
{
    struct ps_cluster_node n = node(name, 1, start_id);
    n.version = (struct mr_peer_version){.capabilities = capabilities, .text = "0.9.1"};
    return n;
}

/* In use once all have them; who lacks one afterwards stays outside, under a known name, too. */
static void test_what_is_in_use_all_nodes_have(void **state)
{
    const struct ps_cluster_node a = node_of_version('a', 11, 6), b = node_of_version('b', 12, 2),
                                 newer = node_of_version('b', 22, 7), older = node_of_version('b', 32, 2),
                                 other = node('c', 1, 13);
    (void)state;
    assert_int_equal(ps_cluster_map_lacking(&map, 0), PS_CLUSTER_NO_NODE);
    assert_int_equal(ps_cluster_map_lacking(&map, 2), 0);
    assert_false(ps_cluster_map_use(&map, 2));
    assert_true(ps_cluster_map_join(&map, &a)); /* the same process, of which more is known */
    assert_false(ps_cluster_map_join(&map, &a));
    assert_int_equal(ps_cluster_map_lacking(&map, 2), 1);
    assert_false(ps_cluster_map_use(&map, 2));
    assert_true(ps_cluster_map_join(&map, &b));
    assert_int_equal(ps_cluster_map_load(&map, 0), 4); /* nothing else has changed */
    assert_false(ps_cluster_map_use(&map, 4));
    const uint64_t epoch = map.epoch;
    assert_true(ps_cluster_map_use(&map, 2));
    assert_int_equal(map.epoch, epoch + 1);
    assert_int_equal(map.needs, 2);
    assert_false(ps_cluster_map_use(&map, 2));
    assert_false(ps_cluster_map_join(&map, &other));
    assert_true(ps_cluster_map_join(&map, &newer));
    assert_true(ps_cluster_map_use(&map, 4));
    assert_int_equal(map.needs, 6);
    assert_false(ps_cluster_map_join(&map, &older));
    assert_int_equal(map.nodes[1].start_id, 22);
}

/* Versions before that would misread so large a map: they are told before the first node too many. */
static void test_a_map_has_many_nodes_if_all_know_such_maps(void **state)
{
    static bool all[PS_CLUSTER_NODES_MAX];
    struct ps_cluster_node n = node_of_version('x', 1000, MR_CAPABILITIES & ~MR_CAN(MANY_NODES));
    (void)state;
    ps_cluster_map_init(&map, PS_CLUSTER_PARTITIONS_MAX);
    for (uint32_t i = 0; i < PS_CLUSTER_NODES_MAX; i++, n.start_id++) {
        all[i] = true;
        (void)snprintf(n.name, sizeof(n.name), "n-%u", i);
        if (i == 32) { /* one of the others cannot; nor can this one */
            assert_int_equal(ps_cluster_map_admits(&map, &n), PS_CLUSTER_NOT_SO_MANY);
            n.version.capabilities = MR_CAPABILITIES;
            assert_int_equal(ps_cluster_map_admits(&map, &n), PS_CLUSTER_NOT_SO_MANY);
            for (uint32_t k = 0; k < i; k++)
                map.nodes[k].version.capabilities = MR_CAPABILITIES;
            assert_int_equal(map.needs, 0);
        }
        assert_int_equal(ps_cluster_map_admits(&map, &n), PS_CLUSTER_ADMITS);
        assert_true(ps_cluster_map_join(&map, &n));
    }
    assert_true(map.needs == MR_CAN(MANY_NODES));
    assert_true(ps_cluster_map_spread(&map, all));
    assert_int_equal(map.owner[PS_CLUSTER_PARTITIONS_MAX - 1], 255);
    for (uint32_t i = 0; i < PS_CLUSTER_NODES_MAX; i++)
        assert_int_equal(ps_cluster_map_load(&map, i), PS_CLUSTER_PARTITIONS_MAX / PS_CLUSTER_NODES_MAX);
    (void)snprintf(n.name, sizeof(n.name), "one-more");
    assert_int_equal(ps_cluster_map_admits(&map, &n), PS_CLUSTER_IS_FULL);
    assert_false(ps_cluster_map_join(&map, &n));
    assert_true(ps_cluster_map_begin_move(&map, 0, 16, 255));
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    assert_int_equal(ps_cluster_map_load(&map, 255), 32);
    assert_true(ps_cluster_map_forget(&map, 0));
    assert_int_equal(ps_cluster_map_load(&map, 254), 32);
    assert_true(ps_cluster_map_join(&map, &n));
}

static void test_a_process_joins_once(void **state)
{
    const struct ps_cluster_node same = node('a', 1, 11);
    (void)state;
    assert_false(ps_cluster_map_join(&map, &same));
    assert_int_equal(map.node_count, 2);
    assert_int_equal(map.epoch, 3);
}

static void test_a_new_session_is_a_change_and_ends_nothing(void **state)
{
    struct ps_cluster_node again = node('a', 1, 11);
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 0, 2, 1));
    again.session = 99;
    assert_true(ps_cluster_map_join(&map, &again));
    assert_int_equal(map.nodes[0].session, 99);
    assert_int_equal(map.epoch, 5);
    assert_int_equal(map.move_count, 1);
}

static void test_a_new_process_ends_its_moves_and_the_cut(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 0, 2, 1));
    const uint64_t move = map.moves[0].id;
    join('b', 2, 22);
    assert_int_equal(map.node_count, 2);
    assert_int_equal(map.move_count, 0);
    assert_false(ps_cluster_map_finish_move(&map, move));
    assert_true(ps_cluster_map_begin_cut(&map, 7));
    join('a', 1, 21);
    assert_int_equal(map.cut, 0);
    assert_int_equal(map.owner[0], 0); /* it owns what the process before it did, and loads it */
}

static void test_a_move_is_finished_or_cancelled(void **state)
{
    const uint64_t before = map.grant[0];
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, 1, 2, 1));
    const uint64_t move = map.moves[0].id;
    assert_int_equal(map.owner[1], 0); /* the source serves meanwhile */
    assert_int_equal(ps_cluster_map_load(&map, 1), 10);
    assert_true(ps_cluster_map_cancel_move(&map, move));
    assert_false(ps_cluster_map_finish_move(&map, move));
    assert_int_equal(map.grant[1], before);

    assert_true(ps_cluster_map_begin_move(&map, 1, 2, 1));
    assert_int_not_equal(map.moves[0].id, move);
    const uint64_t second = map.moves[0].id;
    assert_true(ps_cluster_map_finish_move(&map, second));
    assert_int_equal(map.owner[0], 0);
    assert_int_equal(map.owner[1], 1);
    assert_int_equal(map.owner[2], 1);
    assert_int_equal(map.grant[1], second);
    assert_int_equal(map.grant[0], before);
    assert_null(ps_cluster_map_move(&map, second));
}

static void test_moves_that_do_not_fit_are_refused(void **state)
{
    const struct ps_cluster_map before = map;
    (void)state;
    assert_false(ps_cluster_map_begin_move(&map, 0, 0, 1));              /* nothing */
    assert_false(ps_cluster_map_begin_move(&map, 0, 2, 0));              /* to its owner */
    assert_false(ps_cluster_map_begin_move(&map, 0, 2, 2));              /* to nobody */
    assert_false(ps_cluster_map_begin_move(&map, 3, 2, 1));              /* of two owners */
    assert_false(ps_cluster_map_begin_move(&map, PARTITIONS - 1, 2, 0)); /* beyond the last */
    assert_false(ps_cluster_map_begin_move(&map, UINT32_MAX, 2, 0));     /* beyond everything */
    assert_false(ps_cluster_map_finish_move(&map, 77));
    assert_memory_equal(&map, &before, sizeof(map));
    assert_true(ps_cluster_map_begin_move(&map, 0, 2, 1));
    assert_false(ps_cluster_map_begin_move(&map, 1, 1, 1)); /* it moves already */
    assert_false(ps_cluster_map_begin_cut(&map, 1));        /* partitions move */
}

static void test_a_cut_is_committed_or_cancelled(void **state)
{
    (void)state;
    assert_true(ps_cluster_map_begin_cut(&map, 40));
    const uint64_t first = map.cut;
    assert_false(ps_cluster_map_begin_cut(&map, 41));
    assert_false(ps_cluster_map_begin_move(&map, 0, 1, 1));
    assert_true(ps_cluster_map_cancel_cut(&map, first));
    assert_false(ps_cluster_map_commit_cut(&map, first));
    assert_int_equal(map.committed, 0);
    assert_int_equal(map.last_cut, first); /* that it was begun is known */
    assert_true(ps_cluster_map_begin_cut(&map, 50));
    const uint64_t second = map.cut;
    assert_true(second > first);
    assert_true(ps_cluster_map_commit_cut(&map, second));
    assert_int_equal(map.committed, second);
    assert_int_equal(map.committed_step, 50);
    assert_int_equal(map.cut, 0);
}

static void test_what_the_dead_owned_goes_to_the_present(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, false};
    (void)state;
    join('c', 2, 13);
    assert_false(ps_cluster_map_take_over(&map, 0, present, NULL)); /* it lives */
    assert_true(ps_cluster_map_begin_move(&map, 0, 1, 1));
    const uint64_t granted = map.grant[11];
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL));
    assert_int_equal(ps_cluster_map_load(&map, 0), PARTITIONS); /* c is absent, too */
    assert_int_equal(map.move_count, 0);
    assert_int_not_equal(map.grant[11], granted);
    assert_int_equal(map.grant[0], granted); /* a had this one before */
    present[0] = false;
    assert_false(ps_cluster_map_take_over(&map, 0, present, NULL)); /* nobody is left */
}

/* Clients tell a take-over from a move by that. */
static void test_the_map_says_what_is_restored_from_a_checkpoint(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, false};
    (void)state;
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL)); /* there is no checkpoint yet */
    const uint64_t first = map.epoch;
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        assert_int_equal(map.restored_in[p], p < 4 ? 0 : first);
        assert_int_equal(map.restored_from[p], 0);
    }
    assert_true(map.needs == MR_CAN(TAKE_OVER));
    join('b', 2, 22);
    assert_true(ps_cluster_map_begin_cut(&map, 40) && ps_cluster_map_commit_cut(&map, map.cut));
    assert_true(ps_cluster_map_begin_move(&map, 2, 4, 1) &&
                ps_cluster_map_finish_move(&map, map.moves[0].id));
    assert_int_equal(map.restored_in[3], 0); /* it moved alive */
    assert_int_equal(map.restored_in[4], first);
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL));
    assert_int_equal(map.restored_in[1], 0);
    assert_int_equal(map.restored_in[2], map.epoch);
    assert_int_equal(map.restored_from[2], map.committed);
    assert_int_equal(map.restored_in[6], first);
    assert_true(ps_cluster_map_forget(&map, 1));
    assert_int_equal(map.restored_in[2], map.epoch - 1);
}

/* a and c are there, and have room for some of b's 8 each. */
static void test_partitions_go_where_there_is_room(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, true};
    uint32_t room[PS_CLUSTER_NODES_MAX] = {7, 100, 0};
    (void)state;
    join('c', 1, 13);
    const struct ps_cluster_map before = map;
    assert_false(ps_cluster_map_take_over(&map, 1, present, room));
    assert_memory_equal(&map, &before, sizeof(map));
    room[2] = 1;
    assert_true(ps_cluster_map_take_over(&map, 1, present, room));
    assert_int_equal(ps_cluster_map_load(&map, 0), 4 + 7);
    assert_int_equal(ps_cluster_map_load(&map, 2), 1);
}

/* Only what the node has by the grants that failed: what it serves stays. */
static void test_what_cannot_be_loaded_is_passed_on(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, true};
    uint64_t failed[PARTITIONS] = {0};
    (void)state;
    join('c', 1, 13);
    assert_true(ps_cluster_map_take_over(&map, 1, present, (uint32_t[]){8, 0, 0}));
    for (uint32_t p = 4; p < PARTITIONS; p++)
        failed[p] = map.grant[p];
    failed[1] = map.grant[1] + 100; /* it has another one by now */
    failed[11] = 0;
    assert_false(ps_cluster_map_pass_on(&map, 0, failed, present, (uint32_t[]){8, 8, 6}));
    assert_true(ps_cluster_map_begin_cut(&map, 7));
    assert_false(ps_cluster_map_pass_on(&map, 0, failed, present, NULL));
    assert_true(ps_cluster_map_cancel_cut(&map, map.cut));
    const uint64_t epoch = map.epoch, grant = map.grant[5];
    assert_true(ps_cluster_map_pass_on(&map, 0, failed, present, NULL));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        assert_int_equal(map.owner[p], p >= 4 && p < 11 ? 2 : 0);
    assert_int_equal(map.restored_in[5], epoch + 1);
    assert_int_equal(map.restored_in[11], epoch - 2);
    assert_true(map.grant[5] > grant);
    assert_false(ps_cluster_map_pass_on(&map, 0, failed, present, NULL)); /* they are c's now */
}

static void test_take_overs_wait_until_all_nodes_can_read_them(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, true};
    const struct ps_cluster_node older = {.name = "c", .core_count = 1, .start_id = 13, .session = 13};
    (void)state;
    assert_true(ps_cluster_map_join(&map, &older));
    struct ps_cluster_map before = map;
    assert_false(ps_cluster_map_take_over(&map, 1, present, NULL));
    assert_false(ps_cluster_map_set_take_over(&map, 30));
    assert_memory_equal(&map, &before, sizeof(map));
    join('c', 1, 14);
    assert_true(ps_cluster_map_set_take_over(&map, 30));
    assert_int_equal(map.epoch, before.epoch + 2);
    assert_false(ps_cluster_map_set_take_over(&map, 30)); /* it is so */
    assert_false(ps_cluster_map_join(&map, &older));
    assert_true(ps_cluster_map_set_take_over(&map, 0));
    assert_int_equal(map.take_over_s, 0);
}

static void test_the_drained_take_over_only_when_nobody_else_is_there(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, true};
    (void)state;
    join('c', 1, 13);
    map.drained[2] = true;
    struct ps_cluster_map before = map;
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL));
    assert_int_equal(ps_cluster_map_load(&map, 0), PARTITIONS);
    assert_int_equal(ps_cluster_map_load(&map, 2), 0);
    map = before;
    present[0] = false;
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL));
    assert_int_equal(ps_cluster_map_load(&map, 2), PARTITIONS - 4);
}

static void test_spares_wait_until_all_nodes_know_them(void **state)
{
    struct ps_cluster_node older = {.name = "c", .core_count = 1, .start_id = 13, .session = 13};
    struct ps_cluster_node spare = {.name = "d",
                                    .core_count = 1,
                                    .start_id = 14,
                                    .session = 14,
                                    .is_spare = true,
                                    .version = {.capabilities = MR_CAPABILITIES}};
    (void)state;
    assert_true(ps_cluster_map_join(&map, &older));
    assert_int_equal(ps_cluster_map_admits(&map, &spare), PS_CLUSTER_NO_SPARES);
    join('c', 1, 15); /* of this version now */
    assert_true(ps_cluster_map_join(&map, &spare));
    assert_int_equal(ps_cluster_map_admits(&map, &older), PS_CLUSTER_LACKS_USED);
    older.is_spare = true;
    map.needs = 0;
    assert_int_equal(ps_cluster_map_admits(&map, &older), PS_CLUSTER_NO_SPARES);
}

static void expect_tolerance(const bool *present, const uint32_t *room, enum mr_tolerance tolerance,
                             uint32_t about)
{
    uint32_t node;
    assert_int_equal(ps_cluster_map_tolerance(&map, present, room, &node), tolerance);
    assert_int_equal(node, about);
}

/* a owns 4 partitions, b 8. */
static void test_the_map_tells_whether_it_could_lose_a_node(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, true};
    uint32_t room[PS_CLUSTER_NODES_MAX] = {8, 4};
    const struct ps_cluster_node older = {.name = "c", .core_count = 1, .start_id = 13, .session = 13};
    (void)state;
    expect_tolerance(present, room, MR_TOLERANCE_OFF, PS_CLUSTER_NO_NODE);
    assert_true(ps_cluster_map_set_take_over(&map, 30));
    expect_tolerance(present, room, MR_TOLERANCE_UNSAVED, PS_CLUSTER_NO_NODE);
    assert_true(ps_cluster_map_begin_cut(&map, 40) && ps_cluster_map_commit_cut(&map, map.cut));
    expect_tolerance(present, room, MR_TOLERATES_ONE, PS_CLUSTER_NO_NODE);
    expect_tolerance(present, NULL, MR_TOLERANCE_UNKNOWN, PS_CLUSTER_NO_NODE);
    room[0] = 7;
    expect_tolerance(present, room, MR_TOLERANCE_ROOM, 1);
    room[0] = 8;
    room[1] = 3;
    expect_tolerance(present, room, MR_TOLERANCE_ROOM, 0);
    present[1] = false;
    expect_tolerance(present, room, MR_TOLERANCE_AWAY, 1);
    join('c', 1, 14);
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL));
    expect_tolerance(present, room, MR_TOLERANCE_ALONE, PS_CLUSTER_NO_NODE);
    map.nodes[2] = older;
    expect_tolerance(present, room, MR_TOLERANCE_VERSION, 2);
}

/* Moves one after the other until nothing is left to do; returns how many. */
static uint32_t settle(const bool drained[PS_CLUSTER_NODES_MAX], const bool present[PS_CLUSTER_NODES_MAX])
{
    uint32_t moves = 0;
    uint32_t first;
    uint32_t count;
    uint32_t to;
    while (ps_cluster_map_next_move(&map, drained, present, &first, &count, &to)) {
        assert_true(ps_cluster_map_begin_move(&map, first, count, to));
        assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
        assert_true(++moves < 20);
    }
    return moves;
}

static void test_balance_moves_no_more_than_needed(void **state)
{
    (void)state;
    assert_int_equal(settle(nobody, everybody), 0);
    join('c', 3, 13);
    assert_true(settle(nobody, everybody) <= 2);
    assert_int_equal(ps_cluster_map_load(&map, 0), 2);
    assert_int_equal(ps_cluster_map_load(&map, 1), 4);
    assert_int_equal(ps_cluster_map_load(&map, 2), 6);
}

static void test_a_drained_node_ends_empty(void **state)
{
    const bool drained[PS_CLUSTER_NODES_MAX] = {false, true};
    (void)state;
    settle(drained, everybody);
    assert_int_equal(ps_cluster_map_load(&map, 0), PARTITIONS);
    const bool all[PS_CLUSTER_NODES_MAX] = {true, true};
    uint32_t first;
    uint32_t count;
    uint32_t to;
    assert_false(ps_cluster_map_next_move(&map, all, everybody, &first, &count, &to)); /* nowhere to go */
}

/* Those after it move up, with what they own and with their moves. */
static void test_a_node_that_owns_nothing_is_forgotten(void **state)
{
    (void)state;
    join('c', 3, 13);
    assert_true(ps_cluster_map_begin_move(&map, 0, 1, 2));
    assert_false(ps_cluster_map_forget(&map, 0)); /* it owns some */
    assert_false(ps_cluster_map_forget(&map, 2)); /* it gets some */
    assert_false(ps_cluster_map_forget(&map, 3));
    assert_true(ps_cluster_map_cancel_move(&map, map.moves[0].id));
    while (ps_cluster_map_load(&map, 0) > 0) {
        uint32_t p = 0;
        while (map.owner[p] != 0)
            p++;
        assert_true(ps_cluster_map_begin_move(&map, p, 1, 2));
        assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    }
    map.drained[0] = true;
    const uint32_t of_b = ps_cluster_map_load(&map, 1), of_c = ps_cluster_map_load(&map, 2);
    uint32_t p = 0;
    while (map.owner[p] != 2)
        p++;
    assert_true(ps_cluster_map_begin_move(&map, p, 1, 1));
    const uint64_t epoch = map.epoch;
    assert_true(ps_cluster_map_forget(&map, 0));
    assert_int_equal(map.epoch, epoch + 1);
    assert_int_equal(map.node_count, 2);
    assert_int_equal(ps_cluster_map_find(&map, "a"), PS_CLUSTER_NO_NODE);
    assert_string_equal(map.nodes[0].name, "b");
    assert_string_equal(map.nodes[1].name, "c");
    assert_false(map.drained[0] || map.drained[1] || map.drained[2]);
    assert_int_equal(map.moves[0].from, 1);
    assert_int_equal(map.moves[0].to, 0);
    assert_int_equal(ps_cluster_map_load(&map, 0), of_b + 1);
    assert_int_equal(ps_cluster_map_load(&map, 1), of_c - 1);
    join('a', 1, 99); /* it may come back */
    assert_int_equal(map.node_count, 3);
}

/* What is away keeps what it owns, gives nothing and gets nothing; the rest is shared among the others. */
static void test_the_absent_do_not_decide_for_the_present(void **state)
{
    const bool present[PS_CLUSTER_NODES_MAX] = {true, false, true};
    const bool drained[PS_CLUSTER_NODES_MAX] = {true, true};
    (void)state;
    join('c', 1, 13);
    const uint32_t kept = ps_cluster_map_load(&map, 1);
    assert_true(settle(nobody, present) > 0);
    assert_int_equal(ps_cluster_map_load(&map, 1), kept);
    assert_int_equal(ps_cluster_map_load(&map, 0), (PARTITIONS - kept) / 2);
    assert_int_equal(ps_cluster_map_load(&map, 2), (PARTITIONS - kept) / 2);
    settle(drained, present);
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
    assert_int_equal(ps_cluster_map_load(&map, 1), kept);
    assert_int_equal(ps_cluster_map_load(&map, 2), PARTITIONS - kept);
}

/* A node has a run of slots: its cores' slices of the partitions get equal shares of it. */
static void test_slots_spread_a_run_over_all_cores(void **state)
{
    (void)state;
    bool seen[MR_PARTITION_COUNT] = {false};
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        assert_false(seen[ps_cluster_slot(slot)]);
        seen[ps_cluster_slot(slot)] = true;
        assert_int_equal(ps_cluster_slot(ps_cluster_slot(slot)), slot);
    }
    assert_int_equal(ps_cluster_slot(1), 2048);
    for (uint32_t nodes = 1; nodes <= 32; nodes++)
        for (uint32_t node = 0; node < nodes; node++)
            for (uint32_t cores = 1; cores <= 16; cores++) {
                const uint32_t first = node * MR_PARTITION_COUNT / nodes;
                const uint32_t end = (node + 1) * MR_PARTITION_COUNT / nodes;
                uint32_t of_core[16] = {0};
                for (uint32_t slot = first; slot < end; slot++)
                    of_core[ps_cluster_slot(slot) * cores / MR_PARTITION_COUNT]++;
                for (uint32_t core = 0; core < cores; core++)
                    assert_int_in_range(of_core[core] + 12, (end - first) / cores,
                                        (end - first) / cores + 24);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_partitions_are_spread_by_cores, two_nodes),
        cmocka_unit_test(test_slots_spread_a_run_over_all_cores),
        cmocka_unit_test_setup(test_a_process_joins_once, two_nodes),
        cmocka_unit_test_setup(test_what_is_in_use_all_nodes_have, two_nodes),
        cmocka_unit_test(test_a_map_has_many_nodes_if_all_know_such_maps),
        cmocka_unit_test_setup(test_a_new_session_is_a_change_and_ends_nothing, two_nodes),
        cmocka_unit_test_setup(test_a_new_process_ends_its_moves_and_the_cut, two_nodes),
        cmocka_unit_test_setup(test_a_move_is_finished_or_cancelled, two_nodes),
        cmocka_unit_test_setup(test_moves_that_do_not_fit_are_refused, two_nodes),
        cmocka_unit_test_setup(test_a_cut_is_committed_or_cancelled, two_nodes),
        cmocka_unit_test_setup(test_what_the_dead_owned_goes_to_the_present, two_nodes),
        cmocka_unit_test_setup(test_the_map_says_what_is_restored_from_a_checkpoint, two_nodes),
        cmocka_unit_test_setup(test_take_overs_wait_until_all_nodes_can_read_them, two_nodes),
        cmocka_unit_test_setup(test_the_drained_take_over_only_when_nobody_else_is_there, two_nodes),
        cmocka_unit_test_setup(test_spares_wait_until_all_nodes_know_them, two_nodes),
        cmocka_unit_test_setup(test_partitions_go_where_there_is_room, two_nodes),
        cmocka_unit_test_setup(test_what_cannot_be_loaded_is_passed_on, two_nodes),
        cmocka_unit_test_setup(test_the_map_tells_whether_it_could_lose_a_node, two_nodes),
        cmocka_unit_test_setup(test_balance_moves_no_more_than_needed, two_nodes),
        cmocka_unit_test_setup(test_a_drained_node_ends_empty, two_nodes),
        cmocka_unit_test_setup(test_the_absent_do_not_decide_for_the_present, two_nodes),
        cmocka_unit_test_setup(test_a_node_that_owns_nothing_is_forgotten, two_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
