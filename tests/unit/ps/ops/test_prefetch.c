/* The hint about requests: any bytes do no harm, and nothing is changed. That it makes anything faster is for
 * the benchmarks. */
#include <stdlib.h>
#include <string.h>
#include "core_fixture.h"
#include "ps/core/node.h"
#include "ps/ops/ops.h"
#include "ps/server/poll.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM  16u
#define ROWS 20000u

static struct core_fixture alone;
static struct ps_core *core;

static int prefetch_make(void **state)
{
    char text[PS_CORE_TEXT_BYTES];
    struct mr_feature table = mr_feature_table("emb", DIM);
    struct mr_feature variable = mr_feature_variable("v", 1, (uint32_t[]){DIM});
    core_fixture_init(&alone, 1, 256);
    alone.node.message_bytes_max = 1u << 20;
    core_fixture_make(&alone, 0);
    core = alone.core;
    assert_int_equal(ps_core_add_feature(core, 1, &table, text), MR_OK);
    assert_int_equal(ps_core_add_feature(core, 2, &variable, text), MR_OK);
    static uint64_t keys[ROWS];
    static float rows[ROWS * DIM];
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    table_lookup(core->features[1]->table, keys, ROWS, true, rows);
    core->gate = PS_GATE_OPEN;
    return 0;
}

static int prefetch_destroy(void **state)
{
    ps_core_destroy(core);
    return 0;
}

/* ---- requests ---- */

/* In memory of their own, that ends where they end, and of no alignment: a sanitizer sees each byte too
 * many. */
struct bytes {
    uint8_t *memory;
    struct mr_prefetch request;
};

static struct bytes request(uint8_t op, uint16_t table, struct mr_tensor *tensors, uint32_t tensor_count)
{
    struct mr_preamble preamble = {.op = op, .table = table};
    uint32_t bytes = mr_message_bytes(tensors, tensor_count);
    uint8_t *laid_out = aligned_alloc(64, (bytes + 63u) & ~63u);
    struct bytes out = {.memory = malloc(bytes + 1u)};
    mr_message_layout(laid_out, &preamble, tensors, tensor_count);
    memcpy(out.memory + 1, laid_out, bytes);
    free(laid_out);
    out.request = (struct mr_prefetch){out.memory + 1, bytes};
    return out;
}

static struct bytes lookup(uint16_t table, const uint64_t *keys, uint32_t key_count)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, key_count, keys);
    return request(MR_OP_LOOKUP, table, &t, 1);
}

static struct bytes prefetch_push(uint32_t table, const uint64_t *keys, uint32_t key_count)
{
    static const float gradient[16 * DIM];
    struct mr_tensor t[4] = {mr_tensor_1d(MR_U32, 4, (uint32_t[]){table, 0, 0, 0}),
                             mr_tensor_1d(MR_U64, key_count, keys), mr_tensor_1d(MR_U32, 0, NULL),
                             mr_tensor_2d(MR_F32, key_count, DIM, gradient)};
    return request(MR_OP_PUSH_GRAD, 0, t, 4);
}

/* The keys are looked up twice: in this table and, as bags, in another one. */
static struct bytes lookup_tables(uint32_t table, uint32_t other, const uint64_t *keys, uint32_t key_count)
{
    uint32_t offsets[2] = {0, key_count};
    struct mr_tensor t[6] = {mr_tensor_1d(MR_U32, 4, (uint32_t[]){table, 0, 0, 0}),
                             mr_tensor_1d(MR_U64, key_count, keys),
                             mr_tensor_1d(MR_U32, 0, NULL),
                             mr_tensor_1d(MR_U32, 4, (uint32_t[]){other, 0, 0, 0}),
                             mr_tensor_1d(MR_U64, key_count, keys),
                             mr_tensor_1d(MR_U32, 2, offsets)};
    return request(MR_OP_LOOKUP_TABLES, 0, t, 6);
}

struct numbers {
    struct ps_core_counters core;
    struct ps_table_counters table;
    uint64_t rows;
};

static struct numbers numbers(void)
{
    const struct ps_table *t = core->features[1]->table;
    return (struct numbers){core->counters, *ps_table_counters(t), ps_table_rows(t)};
}

/* Says so of `bytes`, and frees it. */
static void announce(struct bytes *bytes, uint32_t count)
{
    struct mr_prefetch requests[MR_PREFETCH_MAX];
    struct numbers before = numbers();
    for (uint32_t i = 0; i < count; i++)
        requests[i] = bytes[i].request;
    ps_prefetch(core, requests, count);
    struct numbers after = numbers();
    assert_memory_equal(&before, &after, sizeof(before));
    for (uint32_t i = 0; i < count; i++)
        free(bytes[i].memory);
}

TEST(changes_nothing)
{
    uint64_t keys[16] = {1, 2, 3, UINT64_MAX, 5, ROWS, 7}; /* some have no row, and get none */
    struct bytes all[MR_PREFETCH_MAX];
    for (uint32_t i = 0; i < MR_PREFETCH_MAX; i++) {
        uint32_t key_count = i % 9;
        all[i] = i % 3 == 0   ? lookup(1, keys, key_count)
                 : i % 3 == 1 ? prefetch_push(1, keys, key_count)
                              : lookup_tables(1, 1, keys, key_count);
    }
    announce(all, MR_PREFETCH_MAX);                  /* more keys than fit */
    const uint16_t tables[] = {0, 2, 3, UINT16_MAX}; /* none of them is a table */
    for (uint32_t i = 0; i < 4; i++) {
        all[0] = lookup(tables[i], keys, 1);
        all[1] = prefetch_push(tables[i], keys, 1);
        all[2] = lookup_tables(tables[i], 1, keys, 1);
        announce(all, 3);
    }
    core->gate = PS_GATE_BUSY;
    all[0] = lookup(1, keys, 1);
    all[1] = lookup(1, keys, 16);
    announce(all, 2);
    core->gate = PS_GATE_OPEN;
}

TEST(any_bytes_do_no_harm)
{
    uint64_t random = fixture_seed("any_bytes_do_no_harm"), keys[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t round = 0; round < 4000; round++) {
        struct bytes all[4];
        for (uint32_t i = 0; i < 4; i++) {
            all[i] = i < 2    ? lookup(1, keys, 1 + i)
                     : i == 2 ? prefetch_push(1, keys, i)
                              : lookup_tables(1, 1, keys, i);
            uint32_t bytes = all[i].request.message_bytes;
            for (uint32_t damage = random_below(&random, 4); damage > 0; damage--) {
                all[i].memory[1 + random_below(&random, bytes < 192 ? bytes : 192)] =
                    (uint8_t)random_next(&random);
            }
            if (random_below(&random, 2) == 0) { /* cut short: its end goes where its memory ends */
                uint32_t left = random_below(&random, bytes + 1);
                uint8_t *memory = malloc(left + 1u);
                memcpy(memory + 1, all[i].memory + 1, left);
                free(all[i].memory);
                all[i] = (struct bytes){memory, {memory + 1, left}};
            }
        }
        announce(all, 4);
    }
}

int main(void)
{
    return tests_run(prefetch_make, prefetch_destroy);
}
