/* A node under a flood of new keys goes on serving: tables that evict make room within the memory there is,
 * also while checkpoints are written, and others leave the keys out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum { DIM = 64, CHUNK = 10000, CHUNKS = 60, LIMIT_MIB = 144, TABLE_MIB = 24, CORES = 2 };

/* What docs/tables.md states: the process beside its limit, over what it had before the first row. */
#ifdef __SANITIZE_ADDRESS__
enum { SLACK_MIB = 288 }; /* its quarantine of freed memory, 256 MiB, too */
#else
enum { SLACK_MIB = 32 };
#endif

static const char *const settings[] = {"memory.limit_mib=144", "batches.memory_mib=16", NULL};

static uint64_t resident_mib(const struct node_fixture *node, const char *field)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)node->server.pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            assert_int_equal(sscanf(line + strlen(field), ": %llu", &kib), 1);
    fclose(f);
    assert_true(kib > 0);
    return kib >> 10;
}

static void look_up(struct mr_client *client, uint32_t table, uint64_t *keys, uint64_t first)
{
    struct mr_reply *reply;
    for (uint64_t i = 0; i < CHUNK; i++)
        keys[i] = first + i;
    assert_int_equal(mr_lookup(client, NULL, table, keys, CHUNK, &reply), MR_OK);
    const struct mr_tensor *rows = mr_reply_tensor(reply, 0);
    for (uint32_t i = 0; i < CHUNK; i++) /* nobody has trained them */
        assert_true(((const float *)rows->data)[(size_t)i * DIM] == 1.0f);
    mr_reply_free(reply);
}

static uint64_t evicted(struct mr_client *client)
{
    return node_fixture_sum(client, "table.rows_evicted_memory");
}

/* Saves begin as soon as the one before is through. */
static void keep_saving(struct mr_client *client)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    uint64_t id;
    assert_int_equal(mr_checkpoint_info(client, NULL, 0, &status, NULL, NULL), MR_OK);
    if (status.state == MR_CHECKPOINT_IDLE)
        assert_int_equal(save_into(client, NULL, NULL, &id), MR_OK);
}

static void check_learns(struct mr_client *client, uint32_t table, uint64_t key)
{
    struct mr_reply *reply;
    float gradient[DIM];
    for (uint32_t i = 0; i < DIM; i++)
        gradient[i] = 1;
    assert_int_equal(mr_push_gradients(client, NULL, table, &key, 1, DIM, gradient), MR_OK);
    assert_int_equal(mr_lookup(client, NULL, table, &key, 1, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 0.5f);
    mr_reply_free(reply);
}

static uint64_t bytes_of(struct mr_client *client, uint32_t table)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    uint64_t bytes = 0;
    assert_int_equal(mr_list(client, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        bytes = infos[i].id == table ? infos[i].bytes : bytes;
    free(infos);
    return bytes;
}

static struct mr_feature table_of(const char *name, enum mr_eviction eviction)
{
    struct mr_feature f = mr_feature_table(name, DIM);
    f.init_a = 1;
    f.learning_rate = 0.5f;
    f.eviction = (uint32_t)eviction;
    return f;
}

TEST(test_flood)
{
    struct node_fixture node;
    struct mr_feature features[3] = {table_of("lru", MR_EVICT_LRU), table_of("limited", MR_EVICT_LFU),
                                     table_of("seen", MR_EVICT_LRU)};
    uint64_t *keys = calloc(CHUNK, sizeof(*keys));
    uint32_t ids[3];

    assert_non_null(keys);
    node_fixture_start(&node, CORES, settings);
    struct mr_client *client = node_fixture_connect(&node);
    features[1].memory_bytes = (uint64_t)TABLE_MIB << 20;
    features[2].admission = MR_ADMIT_OBSERVATIONS;
    features[2].admission_arg = 2;
    features[2].filter_bytes = 4 << 20;
    assert_int_equal(mr_create(client, NULL, features, 3, ids), MR_OK);
    uint64_t before_mib = resident_mib(&node, "VmRSS");

    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        look_up(client, ids[1], keys, chunk * CHUNK);
        assert_true(bytes_of(client, ids[1]) <= (uint64_t)TABLE_MIB << 20);
        look_up(client, ids[2], keys, chunk * CHUNK); /* once each: no rows */
        look_up(client, ids[0], keys, chunk * CHUNK);
        if (chunk % 2 == 0)
            keep_saving(client);
    }
    assert_int_equal(node_fixture_wait_saved(client).last_status, MR_OK);
    uint64_t peak_mib = resident_mib(&node, "VmHWM");
    printf("resident: %llu MiB before, at most %llu MiB\n", (unsigned long long)before_mib,
           (unsigned long long)peak_mib);
    assert_true(peak_mib <= before_mib + LIMIT_MIB + SLACK_MIB);
    assert_true(evicted(client) > (uint64_t)CHUNKS * CHUNK);
    /* the newest keys have rows, the first have none */
    check_learns(client, ids[0], (uint64_t)CHUNKS * CHUNK - 1);
    check_learns(client, ids[1], (uint64_t)CHUNKS * CHUNK - 1);
    uint64_t admitted = node_fixture_sum(client, "table.keys_not_admitted_observations");
    assert_true(admitted > (uint64_t)CHUNKS * CHUNK * 9 / 10); /* few are taken for known ones */

    uint64_t id;
    assert_int_equal(save_into(client, NULL, NULL, &id), MR_OK);
    assert_int_equal(node_fixture_wait_saved(client).last_status, MR_OK);
    uint64_t rows = node_fixture_sum(client, "table.rows");
    node_fixture_kill(&node);
    node_fixture_restart_with(&node, CORES == 2 ? 1 : 2);
    mr_client_destroy(client);
    client = node_fixture_connect(&node);
    assert_true(node_fixture_sum(client, "table.rows") <= rows);
    assert_true(node_fixture_sum(client, "table.rows") > rows / 2);
    look_up(client, ids[0], keys, UINT64_C(1) << 40);
    check_learns(client, ids[0], (UINT64_C(1) << 40) + CHUNK - 1);
    mr_client_destroy(client);
    node_fixture_stop(&node);
    free(keys);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_eviction MILLRACED\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
