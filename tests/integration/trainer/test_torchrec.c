/* TorchRec's plug-in against a real node: what is pushed comes back, by table, column, id and state, also
 * after the node was killed. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/integration/trainer/torchrec_fixture.h"
#include "tests/test.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* Calls are small, so that one takes many messages. */
static int set_up_small(void **state)
{
    static const char *const settings[] = {"transport.message_mib_max=1", NULL};
    return torchrec_setup_with(settings);
}

static struct mr_feature_info table_info(const char *name)
{
    struct mr_client *client = node_fixture_connect(&node);
    struct mr_feature_info *infos, found = {0};
    uint32_t count;
    assert_int_equal(mr_list(client, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(infos[i].feature.name, name) == 0)
            found = infos[i];
    free(infos);
    mr_client_destroy(client);
    return found;
}

static const int64_t some_ids[] = {5, -1, 0, INT64_MAX, INT64_MIN, 1000000007, -42};

static struct rows some(const char *table, uint32_t states, uint32_t floats)
{
    return (struct rows){
        .table = table, .id_count = COUNT(some_ids), .states = states, .floats = floats, .ids = some_ids};
}

TEST(test_the_symbols, torchrec_setup, torchrec_teardown)
{
    assert_string_equal(plugin.type, "millrace");
    assert_null(dlsym(plugin.handle, "tde_instance_create"));
}

TEST(test_values_and_states, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    const struct rows r = some("model.user", 3, 5);
    struct rows fewer = r;
    const int64_t others[] = {7, 8};
    const struct rows absent = {
        .table = "model.user", .id_count = 2, .states = 3, .floats = 5, .ids = others};
    expect_absent(&plugin, instance, &r);
    assert_int_equal(table_info("model.user").feature.kind, 0);
    push_version(&plugin, instance, &r, 0);
    expect_version(&plugin, instance, &r, 0);
    expect_absent(&plugin, instance, &absent);
    push_version(&plugin, instance, &r, 1);
    expect_version(&plugin, instance, &r, 1);
    struct mr_feature_info info = table_info("model.user");
    assert_int_equal(info.rows, r.id_count);
    assert_int_equal(info.feature.dims[0], 1 + 3 * 5);
    fewer.states = 1; /* values alone, as for serving */
    struct outcome o;
    begin_fetch(&plugin, instance, &fewer, &o);
    outcome_wait(&o);
    for (uint32_t id = 0; id < r.id_count; id++)
        for (uint32_t i = 0; i < 5; i++)
            assert_true(o.values[id * 5 + i] == value_of(r.ids[id], -1, 0, i, 1));
    outcome_end(&o);
    plugin.finalize(instance);
}

/* Some ids of a fetch are there and others are not; places tell which. */
TEST(test_ids_that_are_there_beside_others, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    const struct rows r = some("t", 2, 4);
    const int64_t mixed[] = {99, -1, 98, 0, -1};
    const struct rows asked = {.table = "t", .id_count = 5, .states = 2, .floats = 4, .ids = mixed};
    const bool there[] = {false, true, false, true, true};
    struct outcome o;
    push_version(&plugin, instance, &r, 0);
    begin_fetch(&plugin, instance, &asked, &o);
    outcome_wait(&o);
    assert_int_equal(o.places_told, 10);
    for (uint32_t block = 0; block < 10; block++) {
        assert_int_equal(o.is_there[block], there[block / 2]);
        for (uint32_t i = 0; i < 4 && there[block / 2]; i++)
            assert_true(o.values[block * 4 + i] == value_of(mixed[block / 2], -1, block % 2, i, 0));
    }
    outcome_end(&o);
    plugin.finalize(instance);
}

TEST(test_nothing_is_asked_for, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    struct rows r = some("t", 2, 4);
    r.id_count = 0;
    expect_absent(&plugin, instance, &r);
    push_version(&plugin, instance, &r, 0);
    r = some("t", 2, 4);
    push_version(&plugin, instance, &r, 0);
    r.id_count = 0;
    expect_absent(&plugin, instance, &r);
    r = some("t", 2, 4);
    r.states = 0;
    expect_absent(&plugin, instance, &r);
    plugin.finalize(instance);
}

TEST(test_tables_and_columns, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "prefix=ads/");
    static const int64_t columns[] = {0, 3, -2};
    struct rows whole = some("a", 1, 7), other = some("b", 1, 7), sharded = some("a", 2, 3), part;
    sharded.column_count = 3;
    sharded.columns = columns;
    push_version(&plugin, instance, &whole, 0);
    push_version(&plugin, instance, &sharded, 1);
    push_version(&plugin, instance, &other, 2);
    expect_version(&plugin, instance, &whole, 0);
    expect_version(&plugin, instance, &sharded, 1);
    expect_version(&plugin, instance, &other, 2);
    part = sharded;
    part.columns = columns + 1;
    part.column_count = 1;
    expect_version(&plugin, instance, &part, 1);
    push_version(&plugin, instance, &part, 4);
    expect_version(&plugin, instance, &part, 4);
    part.columns = columns;
    expect_version(&plugin, instance, &part, 1);
    assert_int_equal(table_info("ads/a").rows, COUNT(some_ids));
    assert_int_equal(table_info("ads/a:c-2").feature.dims[0], 7);
    plugin.finalize(instance);
}

/* As TorchRec has it: an instance for each table, with one configuration; and others with theirs. */
TEST(test_instances, torchrec_setup, torchrec_teardown)
{
    void *instances[] = {plugin_instance(&plugin, &node, ""), plugin_instance(&plugin, &node, ""),
                         plugin_instance(&plugin, &node, "prefix=other."),
                         plugin_instance(&plugin, &node, "replay=off&prefix=narrow.&dtype=f16")};
    const struct rows r = some("t", 2, 16);
    push_version(&plugin, instances[0], &r, 0);
    expect_version(&plugin, instances[1], &r, 0);
    expect_absent(&plugin, instances[2], &r);
    push_version(&plugin, instances[2], &r, 3);
    plugin.finalize(instances[0]);
    expect_version(&plugin, instances[1], &r, 0);
    expect_version(&plugin, instances[2], &r, 3);
    push_version(&plugin, instances[3], &r, 0);
    struct outcome o;
    begin_fetch(&plugin, instances[3], &r, &o);
    outcome_wait(&o);
    for (uint32_t id = 0; id < r.id_count; id++)
        for (uint32_t i = 0; i < 32; i++) {
            float exact = value_of(r.ids[id], -1, i / 16, i % 16, 0), error = o.values[id * 32 + i] - exact;
            assert_true(error <= exact / 1024 && error >= -exact / 1024);
        }
    outcome_end(&o);
    assert_int_equal(table_info("narrow.t").feature.dtype, MR_F16);
    for (uint32_t i = 1; i < COUNT(instances); i++)
        plugin.finalize(instances[i]);
}

enum { MANY = 100000 };

/* Also ids that come twice, far apart: the last row counts, as in TorchRec's own plug-ins. */
TEST(test_many_ids, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    int64_t *ids = malloc((MANY + 100) * sizeof(*ids));
    assert_non_null(ids);
    for (int64_t i = 0; i < MANY; i++)
        ids[i] = (int64_t)((uint64_t)i * UINT64_C(0x2545f4914f6cdd1d));
    struct rows r = {.table = "many", .id_count = MANY, .states = 2, .floats = 16, .ids = ids};
    const struct rows first = {.table = "many", .id_count = 100, .states = 2, .floats = 16, .ids = ids};
    size_t blocks = 2 * (MANY + (size_t)100);
    float *values = malloc(blocks * 16 * sizeof(*values));
    struct outcome o;

    push_version(&plugin, instance, &r, 0);
    expect_version(&plugin, instance, &r, 0);
    memcpy(ids + MANY, ids, 100 * sizeof(*ids));
    r.id_count = MANY + 100;
    assert_non_null(values);
    for (size_t block = 0; block < blocks; block++)
        for (uint32_t i = 0; i < 16; i++)
            values[block * 16 + i] = value_of(ids[block / 2], -1, block % 2, i, block / 2 < MANY ? 1 : 2);
    begin_push(&plugin, instance, &r, values, false, &o);
    outcome_wait(&o);
    outcome_end(&o);
    expect_version(&plugin, instance, &first, 2);
    free(values);
    free(ids);
    plugin.finalize(instance);
}
TEST_AGAIN(test_many_ids, set_up_small, torchrec_teardown)

#define AT_ONCE 12u

TEST(test_calls_at_the_same_time, torchrec_setup, torchrec_teardown)
{
    void *instances[3] = {plugin_instance(&plugin, &node, ""), plugin_instance(&plugin, &node, ""),
                          plugin_instance(&plugin, &node, "replay_mib=128")};
    static int64_t ids[3000];
    struct outcome o[AT_ONCE];
    for (uint32_t i = 0; i < 3000; i++)
        ids[i] = i;
    const struct rows r = {.table = "t", .id_count = 3000, .states = 2, .floats = 8, .ids = ids};

    push_version(&plugin, instances[0], &r, 0);
    for (uint32_t i = 0; i < AT_ONCE; i++)
        begin_fetch(&plugin, instances[i % 3], &r, &o[i]);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        outcome_wait(&o[i]);
        assert_int_equal(o[i].absent, 0);
        assert_true(o[i].values[3000 * 16 - 1] == value_of(2999, -1, 1, 7, 0));
        outcome_end(&o[i]);
    }
    for (uint32_t i = 0; i < 3; i++)
        plugin.finalize(instances[i]);
}

/* What was asked for before is done when it returns; also what waited after it. */
TEST(test_finalize_waits, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    static int64_t ids[2000];
    static float values[2000 * 8];
    struct outcome o[AT_ONCE];
    for (uint32_t i = 0; i < 2000; i++)
        ids[i] = i;
    const struct rows r = {.table = "t", .id_count = 2000, .states = 1, .floats = 8, .ids = ids};

    for (uint32_t i = 0; i < AT_ONCE; i++)
        if (i % 2 == 0)
            begin_push(&plugin, instance, &r, values, false, &o[i]);
        else
            begin_fetch(&plugin, instance, &r, &o[i]);
    plugin.finalize(instance);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        assert_true(outcome_is_over(&o[i]));
        assert_int_equal(o[i].absent, 0);
        outcome_end(&o[i]);
    }
    assert_int_equal(table_info("t").rows, 2000);
}

int main(int argc, char **argv)
{
    if (!torchrec_arguments(argc, argv))
        return 2;
    return tests_run(NULL, NULL);
}
