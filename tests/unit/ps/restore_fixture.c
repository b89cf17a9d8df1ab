#include "restore_fixture.h"

#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "fake_dp.h"
#include "ps/core/core.h"
#include "ps/move/cleanup.h"
#include "tests/test.h"
#include "tests/wait.h"

uint64_t keys[KEYS];

uint32_t make_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("emb", 100);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = 1000 + i;
    return node_create(n, &f);
}

uint32_t learn(struct node_fixture *n, uint32_t table, uint64_t batch_id)
{
    uint32_t applied = 0;
    node_feed(n, batch_id, table, keys, KEYS);
    for (uint32_t core = 0; core < n->core_count; core++)
        applied += node_push_batch(n, core, batch_id, table, KEYS, 1);
    return applied;
}

void check_values(struct node_fixture *n, uint32_t table, float expected)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        float value = node_value(n, table, keys[i]);
        if (value != expected)
            fail_msg("key %u is %g, not %g", (unsigned)keys[i], (double)value, (double)expected);
    }
}

uint32_t core_of(uint32_t cores, uint64_t key)
{
    return mr_partition_of(mr_key_hash(key, 0)) * cores / MR_PARTITION_COUNT;
}

static float table_of_ones[KEYS * NODE_DIM];

/* Push `number` of core `old` of `cores`: a gradient of 1 for all of its keys, to core `to` of now its share.
 * In bags when the number is even. Of all it has the same content, whenever it is sent. */
void push_to(struct node_fixture *n, uint32_t table, uint32_t cores, uint32_t old, uint64_t number,
             uint32_t to)
{
    uint64_t mine[KEYS];
    uint32_t offsets[KEYS + 1] = {0}, head[4] = {table, 0}, count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        if (core_of(cores, keys[i]) == old && core_of(n->core_count, keys[i]) == to) {
            mine[count++] = keys[i];
            offsets[count] = count;
        }
        table_of_ones[i * NODE_DIM] = 1;
    }
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, count, mine),
                                   number % 2 == 0 ? mr_tensor_1d(MR_U32, count + 1, offsets)
                                                   : mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, count, NODE_DIM, table_of_ones)};
    n->sequence = mr_push_sequence(cores == n->core_count ? 0 : mr_push_stream_of_core(cores, old), number);
    node_check(node_call_step(n, to, MR_OP_PUSH_GRAD, 0, number, 0, tensors, count > 0 ? 4 : 0), MR_OK, NULL);
    n->sequence = 0;
}

bool meets(const struct node_fixture *n, uint32_t cores, uint32_t old, uint32_t to)
{
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (p * cores / MR_PARTITION_COUNT == old && p * n->core_count / MR_PARTITION_COUNT == to)
            return true;
    return false;
}

void push_all(struct node_fixture *n, uint32_t table, uint32_t cores, uint64_t number)
{
    for (uint32_t old = 0; old < cores; old++) {
        for (uint32_t to = 0; to < n->core_count; to++)
            if (meets(n, cores, old, to))
                push_to(n, table, cores, old, number, to);
    }
}

/* ---- taking over ---- */

struct owning {
    struct ps_owned owned;
    const struct ps_partition_set *partitions;
    _Atomic bool has_left;
};

static void own_on_core(struct ps_core *core, void *arg)
{
    const struct owning *o = arg;
    char text[PS_CORE_TEXT_BYTES];
    assert_int_equal(ps_core_own(core, &o->owned, text), MR_OK);
}

static void clean_on_core(struct ps_core *core, void *arg)
{
    const struct owning *o = arg;
    ps_cleanup_add(core, o->partitions);
}

static void look_on_core(struct ps_core *core, void *arg)
{
    struct owning *o = arg;
    if (ps_cleanup_has(core, o->partitions))
        atomic_store(&o->has_left, true);
}

static void lose_marks_on_core(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_save_marks_lost(core);
}

static void clean(struct ps_node *node, struct owning *o)
{
    ps_node_each_core(node, clean_on_core, o);
    WAIT_UNTIL(atomic_store(&o->has_left, false), ps_node_each_core(node, look_on_core, o),
               !atomic_load(&o->has_left));
}

enum ps_take_over_state take_over(const char *directory, uint64_t id,
                                  const struct ps_partition_set *partitions, char text[PS_MOVE_TEXT_BYTES])
{
    static struct owning o;
    struct ps_node *node = ((struct ps_core *)fake_dp_app(0))->node;
    struct ps_take_over_options options = {
        .node = node, .place.store = ps_store_local(), .checkpoint = id, .partitions = *partitions};
    struct ps_take_over_progress progress;
    struct ps_take_over *t;
    memset(&o, 0, sizeof(o));
    o.partitions = partitions;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        o.owned.since[p] = ps_partitions_has(partitions, p) ? PS_LOADING : 0;
    ps_node_each_core(node, own_on_core, &o);
    clean(node, &o);
    (void)snprintf(options.place.path, sizeof(options.place.path), "%s", directory);
    assert_int_equal(ps_take_over_start(&options, &t, text), MR_OK);
    WAIT_UNTIL(ps_take_over_progress(t, &progress), progress.state != PS_TAKE_OVER_LOADING);
    memcpy(text, progress.text, PS_MOVE_TEXT_BYTES);
    ps_take_over_stop(t);
    if (progress.state == PS_TAKE_OVER_FAILED)
        clean(node, &o);
    ps_node_each_core(node, lose_marks_on_core, NULL);
    memset(o.owned.since, 0, sizeof(o.owned.since));
    ps_node_each_core(node, own_on_core, &o);
    return progress.state;
}
