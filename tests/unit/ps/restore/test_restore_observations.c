/* Observations that were counted before a restart count after it, on any number of cores. */
#include <string.h>
#include "restore_fixture.h"
#include "tests/test.h"

#undef KEYS
#define KEYS   300u
#define WANTED 3u

static uint32_t make_rare(struct node_fixture *n)
{
    struct mr_feature f = node_table("rare", 0);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = WANTED;
    f.filter_bytes = 64u << 20; /* of which a partition has several pieces */
    return node_create(n, &f);
}

/* Key i of those that were seen i % WANTED times before. */
static uint64_t key_at(uint32_t i)
{
    return 77 + i * UINT64_C(0x9e3779b97f4a7c15);
}

static void look_up(struct node_fixture *n, uint32_t table, uint32_t i)
{
    uint64_t key = key_at(i);
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
}

static uint64_t rows(struct node_fixture *n)
{
    uint64_t sum = 0;
    for (uint32_t core = 0; core < n->core_count; core++)
        sum += node_counter(n, core, "table.rows");
    return sum;
}

static void observations_check(struct node_fixture *n, uint32_t cores)
{
    uint32_t table = make_rare(n);
    for (uint32_t i = 0; i < KEYS; i++)
        for (uint32_t seen = 0; seen < i % WANTED; seen++)
            look_up(n, table, i);
    assert_int_equal(rows(n), 0);
    node_save(n);
    node_restart(n, cores);
    for (uint32_t i = 0; i < KEYS; i++)
        look_up(n, table, i); /* the last that was wanted for a third of the keys */
    assert_int_equal(rows(n), KEYS / WANTED);
    for (uint32_t i = 0; i < KEYS; i++)
        look_up(n, table, i);
    assert_int_equal(rows(n), KEYS / WANTED * 2);
}

TEST(from_1_core_to_3, node_setup, node_teardown)
{
    observations_check(*state, 3);
}

TEST(from_3_cores_to_2, node_setup_3_cores, node_teardown)
{
    observations_check(*state, 2);
}

/* A full, and a delta with what was seen since, on another number of cores. */
TEST(of_a_chain, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.checkpoint_deltas = 8;
    n->config.checkpoint_delta_share_percent = 100;
    node_restart(n, 2);
    uint32_t table = make_rare(n);
    for (uint32_t seen = 0; seen + 1 < WANTED; seen++) {
        for (uint32_t i = 0; i < KEYS; i++)
            if (seen < i % WANTED)
                look_up(n, table, i);
        node_save(n);
    }
    assert_int_equal(rows(n), 0);
    assert_int_equal(node_counter(n, 0, "checkpoint.deltas_good"), 1);
    node_restart(n, 3);
    for (uint32_t i = 0; i < KEYS; i++)
        look_up(n, table, i);
    assert_int_equal(rows(n), KEYS / WANTED);
}

/* Half of the partitions go back to what had been seen then. */
TEST(beside_what_serves, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct ps_partition_set set = {{0}};
    char text[PS_MOVE_TEXT_BYTES];
    uint32_t seen[KEYS], expected = 0;
    uint32_t table = make_rare(n);
    for (uint32_t i = 0; i < KEYS; i++)
        for (seen[i] = 0; seen[i] < i % WANTED; seen[i]++)
            look_up(n, table, i);
    const uint64_t id = node_save(n);
    for (uint32_t i = 0; i < KEYS; i++)
        look_up(n, table, i);
    assert_int_equal(rows(n), KEYS / WANTED);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p += 2)
        ps_partitions_add(&set, p);
    if (take_over(n->config.checkpoint_directory, id, &set, text) != PS_TAKE_OVER_LOADED)
        fail_msg("%s", text);
    for (uint32_t i = 0; i < KEYS; i++) {
        look_up(n, table, i);
        seen[i] += ps_partitions_has(&set, mr_partition_of(mr_key_hash(key_at(i), 0))) ? 1 : 2;
        expected += seen[i] >= WANTED;
    }
    assert_int_equal(rows(n), expected);
}
