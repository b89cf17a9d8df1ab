#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#include "ps/cluster/copies.h"

#define PARTITIONS 12u

static struct ps_cluster_map map;
static bool present[PS_CLUSTER_NODES_MAX];
static uint64_t grants[PS_CLUSTER_PARTITIONS_MAX];

static struct ps_cluster_node node(char name, uint32_t host, uint64_t start_id)
{
    struct ps_cluster_node n = {.core_count = 1,
                                .start_id = start_id,
                                .session = start_id,
                                .version = {.capabilities = MR_CAPABILITIES}};
    n.name[0] = name;
    (void)snprintf(n.address, sizeof(n.address), "10.0.0.%u:7700", host);
    return n;
}

static void copies_join(char name, uint32_t host, uint64_t start_id)
{
    const struct ps_cluster_node n = node(name, host, start_id);
    assert_true(ps_cluster_map_join(&map, &n));
}

/* Nodes a, b, ... on hosts of their own, which own as many partitions each. */
static void copies_begin(uint32_t node_count)
{
    memset(present, 0, sizeof(present));
    ps_cluster_map_init(&map, PARTITIONS);
    for (uint32_t i = 0; i < node_count; i++) {
        copies_join((char)('a' + (int)i), i + 1, 11 + i);
        present[i] = true;
    }
    assert_true(ps_cluster_map_spread(&map, present));
    assert_true(ps_copies_set_replication(&map, 2));
}

static int three_nodes(void **state)
{
    (void)state;
    copies_begin(3);
    return 0;
}

static void assign(void)
{
    const uint64_t epoch = map.epoch;
    assert_true(ps_copies_assign(&map, present, NULL));
    assert_int_equal(map.epoch, epoch + 1);
}

/* All that is assigned is in sync now. */
static void sync_all(void)
{
    memcpy(grants, map.backup_grant, sizeof(grants));
    for (uint32_t i = 0; i < map.node_count; i++)
        (void)ps_copies_set_sync(&map, i, grants, true);
}

static uint32_t backed_up(uint32_t owner, uint32_t backup)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < PARTITIONS; p++)
        count += map.owner[p] == owner && map.backup[p] == backup;
    return count;
}

/* A partition that this node owns. */
static uint32_t owned_by(uint32_t owner)
{
    uint32_t p = 0;
    while (p < PARTITIONS && map.owner[p] != owner)
        p++;
    assert_true(p < PARTITIONS);
    return p;
}

static void expect_no_copy(uint32_t p)
{
    assert_int_equal(map.backup[p], PS_CLUSTER_NO_NODE);
    assert_true(map.backup_grant[p] == 0);
    assert_false(map.in_sync[p]);
}

TEST(a_host_is_configured_or_that_of_the_address)
{
    struct ps_cluster_node n = {.address = "[fd00::1]:7700"};
    char host[PS_CLUSTER_NAME_BYTES];
    (void)state;
    ps_copies_host(&n, host);
    assert_string_equal(host, "[fd00::1]");
    (void)snprintf(n.address, sizeof(n.address), "ads-1");
    ps_copies_host(&n, host);
    assert_string_equal(host, "ads-1");
    (void)snprintf(n.host, sizeof(n.host), "rack-7");
    ps_copies_host(&n, host);
    assert_string_equal(host, "rack-7");
}

TEST(there_are_no_backups_with_replication_1, three_nodes)
{
    (void)state;
    ps_cluster_map_init(&map, PARTITIONS);
    copies_join('a', 1, 11);
    copies_join('b', 2, 12);
    assert_true(ps_cluster_map_spread(&map, present));
    assert_int_equal(map.replication, 1);
    assert_false(ps_copies_assign(&map, present, NULL));
    assert_int_equal(ps_copies_lacking(&map, 0), 0);
    expect_no_copy(0);
}

TEST(replication_waits_until_all_nodes_have_copies, three_nodes)
{
    struct ps_cluster_node older = node('d', 4, 14);
    (void)state;
    older.version.capabilities &= ~MR_CAN(COPIES);
    assert_false(ps_copies_set_replication(&map, 2)); /* it is so */
    assert_int_equal(ps_cluster_map_admits(&map, &older), PS_CLUSTER_LACKS_USED);
    map.needs = 0;
    map.replication = 1;
    assert_true(ps_cluster_map_join(&map, &older));
    assert_false(ps_copies_set_replication(&map, 2));
    copies_join('d', 4, 15);
    const uint64_t epoch = map.epoch;
    assert_true(ps_copies_set_replication(&map, 2));
    assert_int_equal(map.epoch, epoch + 1);
    assert_true(map.needs == (MR_CAN(TAKE_OVER) | MR_CAN(COPIES)));
    assign();
    assert_true(ps_copies_set_replication(&map, 1));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        expect_no_copy(p);
}

TEST(answers_wait_for_copies_alone, three_nodes)
{
    (void)state;
    assert_false(ps_copies_set_answers(&map, false)); /* it is so */
    assign();
    const uint64_t epoch = map.epoch;
    assert_true(ps_copies_set_answers(&map, true));
    assert_true(map.answers_wait);
    assert_int_equal(map.epoch, epoch + 1);
    assert_false(ps_copies_set_answers(&map, true));
    assert_true(ps_copies_set_replication(&map, 1));
    assert_false(map.answers_wait);
    assert_false(ps_copies_set_answers(&map, true));
}

TEST(each_owner_has_few_backups_and_each_node_as_much_to_follow, three_nodes)
{
    (void)state;
    assign();
    for (uint32_t owner = 0; owner < 3; owner++) {
        for (uint32_t backup = 0; backup < 3; backup++)
            assert_int_equal(backed_up(owner, backup), backup == owner ? 0 : 2);
        assert_int_equal(ps_copies_held(&map, owner), 4);
        assert_int_equal(ps_copies_lacking(&map, owner), 4);
    }
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        assert_false(map.in_sync[p]);
        for (uint32_t q = 0; q < p; q++) /* one number for each pair */
            assert_int_equal(map.backup_grant[p] == map.backup_grant[q],
                             map.owner[p] == map.owner[q] && map.backup[p] == map.backup[q]);
    }
    assert_false(ps_copies_assign(&map, present, NULL));
    copies_begin(6);
    assign();
    for (uint32_t owner = 0; owner < 6; owner++) {
        uint32_t backups = 0;
        for (uint32_t backup = 0; backup < 6; backup++)
            backups += backed_up(owner, backup) > 0;
        assert_int_equal(backups, 2);
    }
}

TEST(no_backup_is_on_its_owners_host, three_nodes)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        (void)snprintf(map.nodes[i].host, sizeof(map.nodes[i].host), "%s", i == 2 ? "other" : "one");
    assign();
    assert_int_equal(backed_up(0, 2), 4);
    assert_int_equal(backed_up(1, 2), 4);
    assert_int_equal(ps_copies_held(&map, 2), 8);
    (void)snprintf(map.nodes[2].host, sizeof(map.nodes[2].host), "one");
    map.replication = 1;
    assert_true(ps_copies_set_replication(&map, 2));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        ps_cluster_map_end_copy(&map, p);
    assert_false(ps_copies_assign(&map, present, NULL)); /* there is no other host */
}

TEST(only_those_follow_that_are_there_and_stay, three_nodes)
{
    struct ps_cluster_node spare = node('d', 4, 14);
    (void)state;
    spare.is_spare = true;
    assert_true(ps_cluster_map_join(&map, &spare));
    present[3] = true;
    map.drained[1] = true;
    map.nodes[0].core_count = 8; /* of which each is to have as much */
    present[2] = false;
    assign();
    assert_int_equal(backed_up(0, 3), 4);
    assert_int_equal(backed_up(1, 0) + backed_up(1, 3), 4);
    assert_int_equal(backed_up(2, 0) + backed_up(2, 1) + backed_up(2, 3), 0); /* it is away */
    assert_true(backed_up(1, 0) > backed_up(1, 3));
}

TEST(backups_are_assigned_as_far_as_there_is_room, three_nodes)
{
    const uint32_t room[PS_CLUSTER_NODES_MAX] = {1, 0, 3};
    (void)state;
    assert_true(ps_copies_assign(&map, present, room));
    assert_int_equal(ps_copies_held(&map, 0), 1);
    assert_int_equal(ps_copies_held(&map, 1), 0);
    assert_int_equal(ps_copies_held(&map, 2), 3);
    assert_false(ps_copies_assign(&map, present, room)); /* what is being copied needs it */
    sync_all();
    assert_true(ps_copies_assign(&map, present, room)); /* it was used, and there is as much again */
    assert_int_equal(ps_copies_held(&map, 2), 6);
}

TEST(new_partitions_go_to_the_backups_that_an_owner_has)
{
    (void)state;
    copies_begin(5);
    assign();
    sync_all();
    uint32_t backups[2] = {map.backup[owned_by(0)], 0};
    for (uint32_t p = 0; p < PARTITIONS; p++)
        if (map.owner[p] == 0 && map.backup[p] != backups[0])
            backups[1] = map.backup[p];
    const uint32_t p = owned_by(4);
    assert_true(ps_cluster_map_begin_move(&map, p, 1, 0));
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    expect_no_copy(p);
    const uint64_t last_id = map.last_id;
    assign();
    assert_true(map.backup[p] == backups[0] || map.backup[p] == backups[1]);
    assert_true(map.backup_grant[p] == last_id + 1);
    assert_false(map.in_sync[p]);
}

TEST(what_moves_gets_no_backup_and_loses_it_at_the_end, three_nodes)
{
    const uint32_t p = owned_by(0);
    (void)state;
    assert_true(ps_cluster_map_begin_move(&map, p, 1, 1));
    assign();
    expect_no_copy(p);
    assert_true(ps_cluster_map_cancel_move(&map, map.moves[0].id));
    assign();
    sync_all();
    const uint32_t backup = map.backup[p], other = 3 - backup; /* of nodes 1 and 2 */
    assert_true(ps_cluster_map_begin_move(&map, p, 1, other));
    assert_true(map.in_sync[p]); /* until the move ends */
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    expect_no_copy(p);
    const uint32_t q = owned_by(0);
    assert_true(ps_cluster_map_begin_move(&map, q, 1, map.backup[q]));
    expect_no_copy(q); /* where a copy would be in the way */
}

TEST(the_word_of_an_owner_counts_for_what_it_was_said_of, three_nodes)
{
    const uint32_t p = owned_by(0);
    (void)state;
    assign();
    memcpy(grants, map.backup_grant, sizeof(grants));
    assert_false(ps_copies_set_sync(&map, 1, &(uint64_t[PARTITIONS]){[0] = map.backup_grant[p]}[0], true));
    assert_false(ps_copies_set_sync(&map, 0, grants, false)); /* it is so */
    const uint64_t epoch = map.epoch;
    assert_true(ps_copies_set_sync(&map, 0, grants, true));
    assert_int_equal(map.epoch, epoch + 1);
    assert_int_equal(ps_copies_lacking(&map, 0), 0);
    assert_int_equal(ps_copies_lacking(&map, 1), 4);
    assert_true(ps_copies_drop(&map, map.backup[p], present));
    assign();
    assert_false(map.in_sync[p]);
    assert_false(ps_copies_set_sync(&map, 0, grants, true)); /* said of the one before */
    assert_false(map.in_sync[p]);
}

TEST(copies_end_with_the_processes, three_nodes)
{
    (void)state;
    assign();
    sync_all();
    copies_join('b', 2, 22);
    for (uint32_t p = 0; p < PARTITIONS; p++)
        if (map.owner[p] == 1 || map.backup[p] == PS_CLUSTER_NO_NODE)
            expect_no_copy(p);
        else
            assert_true(map.in_sync[p]);
    assert_int_equal(ps_copies_held(&map, 1), 0);
    copies_join('c', 3, 13 + 100);
    assert_int_equal(ps_copies_held(&map, 2), 0);
}

TEST(copies_survive_a_new_session, three_nodes)
{
    struct ps_cluster_node same = node('b', 2, 12);
    (void)state;
    assign();
    sync_all();
    same.session = 99;
    assert_true(ps_cluster_map_join(&map, &same));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        assert_true(map.in_sync[p]);
}

TEST(copies_at_a_node_that_is_away_end_where_the_owner_is_there, three_nodes)
{
    bool owners[PS_CLUSTER_NODES_MAX] = {true};
    (void)state;
    assert_false(ps_copies_drop(&map, 2, owners));
    assign();
    assert_true(ps_copies_drop(&map, 2, owners));
    assert_int_equal(backed_up(0, 2), 0);
    assert_int_equal(backed_up(1, 2), 2);
    present[2] = false;
    assign();
    assert_int_equal(backed_up(0, 1), 4);
}

/* Also of one that the map says to be in sync: it has lost what it had. Others stay. */
TEST(a_backup_gives_up_what_it_was_assigned, three_nodes)
{
    assign();
    sync_all();
    const uint32_t backup = map.backup[0];
    uint32_t left = 0;
    memset(grants, 0, sizeof(grants));
    for (uint32_t p = 0; p < PARTITIONS; p++)
        grants[p] = map.backup_grant[p] == map.backup_grant[0] ? map.backup_grant[p] : 0;
    const uint64_t given_up = map.backup_grant[0], epoch = map.epoch;
    assert_false(ps_copies_give_up(&map, map.owner[0], grants)); /* of another's */
    assert_true(ps_copies_give_up(&map, backup, grants));
    assert_int_equal(map.epoch, epoch + 1);
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        if (grants[p] != 0)
            expect_no_copy(p);
        left += map.in_sync[p];
        assert_int_not_equal(map.backup_grant[p], given_up);
    }
    assert_true(left > 0);
    assert_false(ps_copies_give_up(&map, backup, grants)); /* it has ended */
    assign();
}

TEST(a_drained_node_is_left_once_all_copies_are_in_sync, three_nodes)
{
    const uint32_t no_room[PS_CLUSTER_NODES_MAX] = {0};
    (void)state;
    assign();
    map.drained[2] = true;
    assert_false(ps_copies_leave(&map, present, NULL)); /* some are being made */
    sync_all();
    assert_false(ps_copies_leave(&map, present, no_room));
    assert_true(ps_copies_leave(&map, present, NULL));
    assert_int_equal(ps_copies_held(&map, 2), 0);
    assign();
    assert_int_equal(ps_copies_held(&map, 2), 0);
    sync_all();
    assert_false(ps_copies_leave(&map, present, NULL));
    for (uint32_t i = 0; i < 3; i++)
        map.drained[i] = true;
    assert_false(ps_copies_leave(&map, present, NULL)); /* nobody else is there */
}

TEST(what_a_dead_node_had_goes_on_at_its_backups, three_nodes)
{
    (void)state;
    assign();
    sync_all();
    assert_true(ps_cluster_map_begin_cut(&map, 3) && ps_cluster_map_commit_cut(&map, map.cut));
    assert_true(ps_cluster_map_begin_cut(&map, 5));
    assert_false(ps_copies_promote(&map, 0, present)); /* it is there */
    present[0] = false;
    const struct ps_cluster_map before = map;
    assert_true(ps_copies_promote(&map, 0, present));
    assert_int_equal(map.epoch, before.epoch + 1);
    assert_true(map.cut == 0);
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        const bool was_its = before.owner[p] == 0;
        assert_int_equal(map.owner[p], was_its ? before.backup[p] : before.owner[p]);
        assert_true(map.grant[p] == (was_its ? before.backup_grant[p] : before.grant[p]));
        assert_true(map.restored_in[p] == (was_its ? map.epoch : 0));
        assert_true(map.restored_from[p] == 0);
        if (was_its)
            expect_no_copy(p);
    }
    assert_int_equal(ps_copies_held(&map, 0), 4); /* until it is known to be gone for longer */
    assert_false(ps_copies_promote(&map, 0, present));
}

TEST(only_backups_in_sync_that_are_there_are_promoted, three_nodes)
{
    (void)state;
    assign();
    present[0] = false;
    assert_false(ps_copies_promote(&map, 0, present)); /* none is in sync */
    sync_all();
    assert_true(ps_copies_is_kept(&map, 0, present));
    present[1] = false;
    assert_true(ps_copies_promote(&map, 0, present));
    assert_int_equal(ps_cluster_map_load(&map, 0), 2);
    assert_int_equal(backed_up(0, 1), 2); /* it may come back with them */
    assert_true(ps_copies_is_kept(&map, 0, (bool[PS_CLUSTER_NODES_MAX]){false, true}));
    assert_false(ps_copies_is_kept(&map, 0, present));
    present[1] = true;
    assert_true(ps_copies_promote(&map, 0, present));
    assert_int_equal(ps_cluster_map_load(&map, 0), 0);
}

TEST(moves_of_a_dead_node_end_with_its_promotion, three_nodes)
{
    (void)state;
    assign();
    sync_all();
    assert_true(ps_cluster_map_begin_move(&map, owned_by(0), 1, 1));
    assert_true(ps_cluster_map_begin_move(&map, owned_by(1), 1, 0));
    assert_true(ps_cluster_map_begin_move(&map, owned_by(2), 1, 1));
    present[0] = false;
    assert_true(ps_copies_promote(&map, 0, present));
    assert_int_equal(map.move_count, 1);
    assert_int_equal(map.moves[0].from, 2);
}

TEST(copies_end_when_others_take_over, three_nodes)
{
    (void)state;
    assign();
    present[0] = false;
    assert_true(ps_cluster_map_take_over(&map, 0, present, NULL));
    for (uint32_t p = 0; p < PARTITIONS; p++) {
        assert_int_not_equal(map.backup[p], 0);
        if (map.restored_in[p] != 0)
            expect_no_copy(p);
    }
}

TEST(a_node_that_is_a_backup_is_not_forgotten, three_nodes)
{
    (void)state;
    copies_begin(2);
    copies_join('c', 3, 13);
    present[2] = true;
    map.drained[1] = true;
    const uint32_t room[PS_CLUSTER_NODES_MAX] = {0, 0, PARTITIONS};
    assert_true(ps_copies_assign(&map, present, room));
    assert_int_equal(ps_copies_held(&map, 2), PARTITIONS);
    assert_false(ps_cluster_map_forget(&map, 2));
    present[1] = false;
    assert_true(ps_cluster_map_take_over(&map, 1, (bool[PS_CLUSTER_NODES_MAX]){true}, NULL));
    assert_int_equal(backed_up(0, 2), PARTITIONS / 2);
    assert_true(ps_cluster_map_forget(&map, 1)); /* those behind it move up */
    assert_int_equal(backed_up(0, 1), PARTITIONS / 2);
}

static void expect_tolerance(enum mr_tolerance tolerance, uint32_t about)
{
    uint32_t at;
    assert_int_equal(ps_cluster_map_tolerance(&map, present, NULL, &at), tolerance);
    assert_int_equal(at, about);
}

/* Neither a checkpoint nor take_over_s is needed for that. */
TEST(the_map_tells_whether_copies_would_carry_the_cluster, three_nodes)
{
    (void)state;
    expect_tolerance(MR_TOLERANCE_BACKUP, 0);
    assign();
    expect_tolerance(MR_TOLERANCE_SYNC, 0);
    memcpy(grants, map.backup_grant, sizeof(grants));
    (void)ps_copies_set_sync(&map, 0, grants, true);
    expect_tolerance(MR_TOLERANCE_SYNC, 1);
    sync_all();
    expect_tolerance(MR_TOLERATES_ONE, PS_CLUSTER_NO_NODE);
    ps_cluster_map_end_copy(&map, PARTITIONS - 1);
    map.in_sync[0] = false;
    expect_tolerance(MR_TOLERANCE_BACKUP, 2);
    present[2] = false;
    expect_tolerance(MR_TOLERANCE_AWAY, 2);
    assert_true(ps_cluster_map_take_over(&map, 2, present, NULL));
    expect_tolerance(MR_TOLERANCE_BACKUP, 0);
    present[1] = false;
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL));
    expect_tolerance(MR_TOLERANCE_ALONE, PS_CLUSTER_NO_NODE);
}
