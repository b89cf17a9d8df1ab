#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ps/cluster/copies.h"
#include "ps/cluster/map_json.h"

static struct ps_cluster_map map, again;
static const bool everybody[PS_CLUSTER_NODES_MAX] = {true, true, true, true};
static char text[PS_CLUSTER_TEXT_BYTES];

static void join(const char *name, uint32_t core_count, uint64_t start_id)
{
    struct ps_cluster_node n = {.core_count = core_count, .start_id = start_id, .session = ~start_id};
    n.session_ms = 1000u * core_count;
    (void)snprintf(n.name, sizeof(n.name), "%s", name);
    (void)snprintf(n.address, sizeof(n.address), "10.0.0.%u:7700", core_count);
    assert_true(ps_cluster_map_join(&map, &n));
}

static int three_nodes(void **state)
{
    (void)state;
    ps_cluster_map_init(&map, PS_CLUSTER_PARTITIONS_MAX);
    join("a", 1, UINT64_C(0xfedcba9876543210));
    join("b", 2, 0);
    join("c \"quoted\"", 4, 13);
    const bool is_spread = ps_cluster_map_spread(&map, everybody);
    map.nodes[2].is_spare = true;
    return is_spread ? 0 : -1;
}

static void expect_same(void)
{
    char *json = ps_cluster_map_json(&map);
    assert_non_null(json);
    memset(&again, 0xa5, sizeof(again));
    const bool is_read = ps_cluster_map_parse(json, strlen(json), &again, text);
    free(json);
    assert_true(is_read);
    assert_int_equal(again.epoch, map.epoch);
    assert_int_equal(again.last_id, map.last_id);
    assert_int_equal(again.partition_count, map.partition_count);
    assert_true(again.needs == map.needs);
    assert_int_equal(again.node_count, map.node_count);
    for (uint32_t i = 0; i < map.node_count; i++) {
        assert_string_equal(again.nodes[i].name, map.nodes[i].name);
        assert_string_equal(again.nodes[i].address, map.nodes[i].address);
        assert_int_equal(again.nodes[i].core_count, map.nodes[i].core_count);
        assert_true(again.nodes[i].start_id == map.nodes[i].start_id);
        assert_true(again.nodes[i].session == map.nodes[i].session);
        assert_int_equal(again.nodes[i].session_ms, map.nodes[i].session_ms);
        assert_int_equal(again.nodes[i].is_spare, map.nodes[i].is_spare);
        assert_string_equal(again.nodes[i].host, map.nodes[i].host);
        assert_memory_equal(&again.nodes[i].version, &map.nodes[i].version, sizeof(map.nodes[i].version));
    }
    assert_memory_equal(again.owner, map.owner, sizeof(map.owner));
    assert_memory_equal(again.grant, map.grant, sizeof(map.grant));
    assert_memory_equal(again.restored_in, map.restored_in, sizeof(map.restored_in));
    assert_memory_equal(again.restored_from, map.restored_from, sizeof(map.restored_from));
    assert_int_equal(again.take_over_s, map.take_over_s);
    assert_int_equal(again.replication, map.replication);
    assert_int_equal(again.answers_wait, map.answers_wait);
    assert_memory_equal(again.backup, map.backup, sizeof(map.backup));
    assert_memory_equal(again.backup_grant, map.backup_grant, sizeof(map.backup_grant));
    assert_memory_equal(again.in_sync, map.in_sync, sizeof(map.in_sync));
    assert_memory_equal(again.drained, map.drained, sizeof(map.drained));
    assert_int_equal(again.balances, map.balances);
    assert_int_equal(again.balances_when_asked, map.balances_when_asked);
    assert_int_equal(again.balance_mib_s, map.balance_mib_s);
    assert_int_equal(again.move_count, map.move_count);
    for (uint32_t i = 0; i < map.move_count; i++) {
        assert_int_equal(again.moves[i].id, map.moves[i].id);
        assert_int_equal(again.moves[i].first, map.moves[i].first);
        assert_int_equal(again.moves[i].count, map.moves[i].count);
        assert_int_equal(again.moves[i].from, map.moves[i].from);
        assert_int_equal(again.moves[i].to, map.moves[i].to);
        assert_int_equal(again.moves[i].mib_s, map.moves[i].mib_s);
    }
    assert_int_equal(again.committed, map.committed);
    assert_int_equal(again.committed_step, map.committed_step);
    assert_int_equal(again.last_cut, map.last_cut);
    assert_int_equal(again.cut, map.cut);
    assert_int_equal(again.cut_step, map.cut_step);
}

static void expect_text(const char *says, bool expected)
{
    char *json = ps_cluster_map_json(&map);
    assert_non_null(json);
    if ((strstr(json, says) != NULL) != expected)
        fail_msg("%s: %s", says, json);
    free(json);
}

/* Versions before 0.3.0 read format 1, as long as nothing is in use that they lack. */
static void test_what_is_in_use_makes_another_format(void **state)
{
    (void)state;
    expect_text("\"format\":1,", true);
    expect_text("version", false);
    expect_text("needs", false);
    for (uint32_t i = 0; i < map.node_count; i++)
        map.nodes[i].version =
            (struct mr_peer_version){.capabilities = UINT64_MAX - 256 * i, .text = "0.9.1+0badcafe"};
    expect_same();
    expect_text("\"format\":1,", true);
    assert_true(ps_cluster_map_use(&map, MR_CAN(DENSE)));
    expect_same();
    expect_text("\"format\":2,", true);
}

/* A later version's: with names of what this one knows, and numbers of what it does not. */
static void test_what_is_not_known_is_refused(void **state)
{
    (void)state;
    map.needs = MR_CAN(DENSE) | UINT64_C(1) << 62;
    char *json = ps_cluster_map_json(&map);
    assert_false(ps_cluster_map_parse(json, strlen(json), &again, text));
    assert_non_null(strstr(text, "the cluster uses bit 62, which this version of millraced ("));
    assert_non_null(strstr(text, mr_version_text()));
    char *format = strstr(json, "\"format\":2");
    assert_non_null(format);
    format[strlen("\"format\":")] = '3';
    assert_false(ps_cluster_map_parse(json, strlen(json), &again, text));
    assert_non_null(strstr(text, "format: is 3, and this version of millraced ("));
    free(json);
}

static void test_maps_are_read_as_they_were_written(void **state)
{
    (void)state;
    expect_same();
    assert_true(ps_cluster_map_begin_move(&map, 7, 20, 2));
    assert_true(ps_cluster_map_begin_move(&map, PS_CLUSTER_PARTITIONS_MAX - 1, 1, 0));
    map.moves[0].mib_s = 250;
    map.balances = map.balances_when_asked = map.drained[1] = true;
    map.balance_mib_s = 9;
    expect_same();
    map.balances = map.balances_when_asked = map.drained[1] = false;
    map.balance_mib_s = 0;
    assert_true(ps_cluster_map_finish_move(&map, map.moves[0].id));
    assert_true(ps_cluster_map_cancel_move(&map, map.moves[0].id));
    assert_true(ps_cluster_map_begin_cut(&map, 77));
    expect_same();
    assert_true(ps_cluster_map_commit_cut(&map, map.cut));
    expect_same();
    ps_cluster_map_init(&map, 3); /* nobody owns anything */
    expect_same();
}

/* Neighbours that were taken over at different times are not one run, even if a later move made their grants
 * equal. */
static void test_take_overs_are_read_as_they_were_written(void **state)
{
    bool present[PS_CLUSTER_NODES_MAX] = {true, false, true};
    (void)state;
    expect_text("restored", false);
    expect_text("take_over", false);
    for (uint32_t i = 0; i < map.node_count; i++)
        map.nodes[i].version = (struct mr_peer_version){.capabilities = MR_CAN(TAKE_OVER), .text = "0.4.0"};
    assert_true(ps_cluster_map_set_take_over(&map, 30));
    assert_true(ps_cluster_map_take_over(&map, 1, present, NULL)); /* there is no checkpoint yet */
    expect_same();
    expect_text("\"take_over_s\":30", true);
    expect_text("\"restored_from\":0", true);
    assert_true(ps_cluster_map_begin_cut(&map, 77) && ps_cluster_map_commit_cut(&map, map.cut));
    present[0] = false;
    assert_true(ps_cluster_map_take_over(&map, 0, present, NULL));
    expect_same();
    for (uint32_t p = 0; p < map.partition_count; p++)
        map.grant[p] = 1;
    expect_same();
}

static void test_copies_are_read_as_they_were_written(void **state)
{
    uint64_t grants[PS_CLUSTER_PARTITIONS_MAX];
    (void)state;
    expect_text("replication", false);
    expect_text("backup", false);
    expect_text("host", false);
    for (uint32_t i = 0; i < map.node_count; i++)
        map.nodes[i].version = (struct mr_peer_version){.capabilities = MR_CAPABILITIES, .text = "0.4.0"};
    assert_true(ps_copies_set_replication(&map, 2));
    (void)snprintf(map.nodes[1].host, sizeof(map.nodes[1].host), "rack \"7\"");
    expect_same();
    expect_text("\"replication\":2", true);
    expect_text("answers_wait", false);
    assert_true(ps_copies_set_answers(&map, true));
    expect_same();
    expect_text("\"answers_wait\":true", true);
    assert_true(ps_copies_assign(&map, everybody, NULL));
    expect_same();
    memset(grants, 0, sizeof(grants));
    for (uint32_t p = 0; p < map.partition_count; p += 3)
        grants[p] = map.backup_grant[p];
    assert_true(ps_copies_set_sync(&map, 1, grants, true));
    expect_same();
}

/* The most that a map can be: every partition's owner is another one than its neighbour's. */
static void test_the_largest_map_fits_a_znode(void **state)
{
    (void)state;
    char name[PS_CLUSTER_NAME_BYTES];
    for (uint32_t i = 3; i < PS_CLUSTER_NODES_MAX; i++) {
        map.nodes[i] = map.nodes[0];
        memset(name, 'n', sizeof(name));
        (void)snprintf(name + 59, 5, "%u", i);
        memcpy(map.nodes[i].name, name, sizeof(name));
        memcpy(map.nodes[i].address, name, sizeof(name));
    }
    map.node_count = PS_CLUSTER_NODES_MAX;
    for (uint32_t p = 0; p < PS_CLUSTER_PARTITIONS_MAX; p++) {
        map.owner[p] = (uint16_t)(p % map.node_count);
        map.grant[p] = map.restored_in[p] = map.restored_from[p] = UINT64_C(1000000000) + p;
        map.backup[p] = (uint16_t)((p + 1) % map.node_count);
        map.backup_grant[p] = map.grant[p];
    }
    map.last_id = map.epoch = UINT64_C(1000000000) + PS_CLUSTER_PARTITIONS_MAX;
    map.needs = MR_CAN(TAKE_OVER) | MR_CAN(COPIES);
    map.replication = 2;
    char *json = ps_cluster_map_json(&map);
    assert_true(strlen(json) < 1000u * 1000u); /* ZooKeeper's jute.maxbuffer is 1 MB less some bytes */
    free(json);
    expect_same();
}

static void test_nodes_are_read_as_they_were_written(void **state)
{
    struct ps_cluster_node node;
    struct ps_cluster_report report = {.features = {.has_catalog = false}}, said;
    (void)state;
    char *json = ps_cluster_node_json(&map.nodes[0], &report);
    assert_true(ps_cluster_node_parse(json, strlen(json), &node, &said, text));
    free(json);
    assert_string_equal(node.address, "10.0.0.1:7700");
    assert_int_equal(node.core_count, 1);
    assert_true(node.start_id == UINT64_C(0xfedcba9876543210));
    assert_string_equal(node.name, "");
    assert_int_equal(node.replication, 0); /* it does not say */
    assert_int_equal(node.session, 0);
    assert_memory_equal(&said, &report, sizeof(said));

    report.trainer_cut = 12;
    report.features.has_catalog = true;
    report.features.failed = 7;
    report.features.failed_status = MR_OUT_OF_MEMORY;
    memset(report.features.failed_text, '"', sizeof(report.features.failed_text) - 1);
    report.cut = (struct ps_cluster_cut_report){.id = 12,
                                                .status = MR_IO_ERROR,
                                                .step = UINT64_MAX,
                                                .hash_high = UINT64_MAX,
                                                .hash_low = 1,
                                                .text = "the disk is full"};
    report.move = (struct ps_cluster_move_report){
        .id = 13, .is_ending = true, .rows = 5, .bytes = UINT64_C(1) << 40, .left_bytes = 7, .us = 8};
    report.room = (struct ps_cluster_room_report){
        .is_known = true, .free_mib = 6, .used_mib = 9, .failed = 12, .failed_text = "it is damaged"};
    report.room.refuses_copies = true;
    map.nodes[0].take_over_s = 30;
    map.nodes[0].replication = 2;
    json = ps_cluster_node_json(&map.nodes[0], &report);
    assert_true(ps_cluster_node_parse(json, strlen(json), &node, &said, text));
    free(json);
    assert_int_equal(node.take_over_s, 30);
    assert_int_equal(node.replication, 2);
    assert_memory_equal(&said, &report, sizeof(said));
    const char *longer = "{\"format\":1,\"address\":\"h:1\",\"cores\":1,\"start_id\":\"0000000000000001\","
                         "\"failed\":{\"since\":1,\"status\":999,\"text\":\"\"}}";
    assert_false(ps_cluster_node_parse(longer, strlen(longer), &node, &said, text));
    assert_string_equal(text, "status: is no number that it can be");
}

#define NODES                                                                                                \
    "\"nodes\":[{\"name\":\"a\",\"address\":\"h:1\",\"cores\":1,\"start_id\":\"0000000000000001\","          \
    "\"session\":\"0000000000000002\"},{\"name\":\"b\",\"address\":\"h:2\",\"cores\":1,"                     \
    "\"start_id\":\"0000000000000003\",\"session\":\"0000000000000004\"}]"
#define HEAD "{\"format\":1,\"epoch\":1,\"last_id\":9,\"partitions\":8,"
#define TAIL "\"committed\":{\"id\":0,\"step\":0},\"cut\":{\"id\":0,\"step\":0}}"
#define ALL  "\"owners\":[{\"first\":0,\"count\":8,\"node\":\"a\",\"grant\":1}],"

#define BACKUP(backup)                                                                                       \
    "\"owners\":[{\"first\":0,\"count\":8,\"node\":\"a\",\"grant\":1,\"backup\":" backup                     \
    "}],\"moves\":[]," TAIL

static void test_what_is_no_map_is_refused(void **state)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "not JSON"},
        {"[]", "format: is no number"},
        {"{\"format\":3}", "format: is 3, and this version of millraced ("},
        {"{\"format\":1,\"format\":1}", "not JSON: duplicate object key"},
        {"{\"format\":1,\"partitions\":4097}", "partitions: is no number"},
        {"{\"format\":1,\"partitions\":-1}", "partitions: is no number"},
        {"{\"format\":1,\"partitions\":8,\"epoch\":\"1\"}", "epoch: is no number"},
        {HEAD "\"nodes\":{}," ALL "\"moves\":[]," TAIL, "nodes: is no list"},
        {HEAD "\"nodes\":[{\"name\":\"\"}]," ALL "\"moves\":[]," TAIL, "name: is no name"},
        {HEAD "\"nodes\":[{\"name\":\"a\",\"address\":\"h:1\",\"cores\":1,\"start_id\":\"12\"}]," ALL
              "\"moves\":[]," TAIL,
         "start_id: is not 16 hexadecimal digits"},
        {HEAD NODES ",\"owners\":[{\"first\":0,\"count\":9,\"node\":\"a\",\"grant\":1}],\"moves\":[]," TAIL,
         "count: is no number"},
        {HEAD NODES ",\"owners\":[{\"first\":8,\"count\":0,\"node\":\"a\",\"grant\":1}],\"moves\":[]," TAIL,
         "count: is no number"},
        {HEAD NODES ",\"owners\":[{\"first\":0,\"count\":1,\"node\":\"x\",\"grant\":1}],\"moves\":[]," TAIL,
         "node: is none of the map's nodes"},
        {HEAD NODES ",\"owners\":[{\"first\":0,\"count\":1,\"node\":\"a\",\"grant\":10}],\"moves\":[]," TAIL,
         "grant: is no number"},
        {HEAD NODES ",\"owners\":[{\"first\":0,\"count\":2,\"node\":\"a\",\"grant\":1},"
                    "{\"first\":1,\"count\":2,\"node\":\"b\",\"grant\":1}],\"moves\":[]," TAIL,
         "first: has two owners"},
        {HEAD NODES "," BACKUP("[0,1,0]"), "backup: is not another node"}, /* its own */
        {HEAD NODES "," BACKUP("[2,1,0]"), "backup: is not another node"},
        {HEAD NODES "," BACKUP("[1,0,0]"), "backup: is not another node"},
        {HEAD NODES "," BACKUP("[1,10,0]"), "backup: is not another node"},
        {HEAD NODES "," BACKUP("[1,1,2]"), "backup: is not another node"},
        {HEAD NODES "," BACKUP("[1,1]"), "backup: is not another node"},
        {HEAD NODES "," BACKUP("{}"), "backup: is not another node"},
        {HEAD NODES "," ALL
                    "\"moves\":[{\"id\":2,\"first\":0,\"count\":1,\"from\":\"b\",\"to\":\"a\"}]," TAIL,
         "from: does not own what is moved"},
        {HEAD NODES "," ALL
                    "\"moves\":[{\"id\":2,\"first\":0,\"count\":1,\"from\":\"a\",\"to\":\"a\"}]," TAIL,
         "to: is where it comes from"},
        {HEAD NODES "," ALL "\"moves\":[{\"id\":2,\"first\":0,\"count\":2,\"from\":\"a\",\"to\":\"b\"},"
                    "{\"id\":3,\"first\":1,\"count\":2,\"from\":\"a\",\"to\":\"b\"}]," TAIL,
         "moves: two moves are of the same partitions"},
        {HEAD NODES "," ALL "\"moves\":[{\"id\":2,\"first\":0,\"count\":2,\"from\":\"a\",\"to\":\"b\"}],"
                    "\"committed\":{\"id\":0,\"step\":0},\"cut\":{\"id\":3,\"step\":0}}",
         "cut: there is none while partitions move"},
        {HEAD NODES "," ALL "\"moves\":[]}", "id: is no number"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (ps_cluster_map_parse(cases[i].json, strlen(cases[i].json), &again, text))
            fail_msg("case %zu was taken", i);
        if (strncmp(text, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("case %zu: \"%s\" does not begin with \"%s\"", i, text, cases[i].says);
    }
    const char *good = HEAD NODES "," ALL "\"moves\":[]," TAIL;
    assert_true(ps_cluster_map_parse(good, strlen(good), &again, text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_maps_are_read_as_they_were_written, three_nodes),
        cmocka_unit_test_setup(test_what_is_in_use_makes_another_format, three_nodes),
        cmocka_unit_test_setup(test_what_is_not_known_is_refused, three_nodes),
        cmocka_unit_test_setup(test_take_overs_are_read_as_they_were_written, three_nodes),
        cmocka_unit_test_setup(test_copies_are_read_as_they_were_written, three_nodes),
        cmocka_unit_test_setup(test_the_largest_map_fits_a_znode, three_nodes),
        cmocka_unit_test_setup(test_nodes_are_read_as_they_were_written, three_nodes),
        cmocka_unit_test(test_what_is_no_map_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
