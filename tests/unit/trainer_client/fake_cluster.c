#include "tests/unit/trainer_client/fake_cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define EPOCH_FIRST 5u
#define LEASE_US    60000000u

struct fake_cluster *fake_cluster_start(uint32_t count, const struct mr_feature *table)
{
    return fake_cluster_start_among(0, count, table);
}

struct fake_cluster *fake_cluster_start_among(uint32_t others, uint32_t count, const struct mr_feature *table)
{
    struct fake_cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    assert_int_in_range(count, 1, FAKE_MEMBERS_MAX);
    c->count = count;
    c->others = others;
    atomic_store(&c->lease_us, LEASE_US);
    for (uint32_t i = 0; i < count; i++)
        c->cores[i] = i % 2 + 1;
    for (uint32_t i = 0; i < count; i++) {
        atomic_store(&c->owner_of[i], i);
        c->saved_owner_of[i] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        c->nodes[i] = fake_node_start_member(c, i, c->cores[i], table);
        atomic_store(&c->ports[i], c->nodes[i]->base_port);
    }
    atomic_store(&c->epoch, EPOCH_FIRST); /* until then, they have no map */
    return c;
}

void fake_cluster_destroy(struct fake_cluster *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        fake_node_destroy(c->nodes[i]);
    free(c);
}

const char *fake_cluster_servers(const struct fake_cluster *c)
{
    static _Thread_local char text[FAKE_MEMBERS_MAX * 24];
    int bytes = 0;
    for (uint32_t i = 0; i < c->count; i++)
        bytes += snprintf(text + bytes, sizeof(text) - (size_t)bytes, "%s127.0.0.1:%u", i == 0 ? "" : ",",
                          atomic_load(&c->ports[i]));
    return text;
}

void fake_cluster_grant_again(struct fake_cluster *c, uint32_t node)
{
    atomic_store(&c->nodes[node]->since, atomic_fetch_add(&c->epoch, 1) + 1);
}

static void take_push_streams(struct fake_node *node, struct fake_push_stream *push_streams[FAKE_CORES_MAX])
{
    for (uint32_t core = 0; core < FAKE_CORES_MAX; core++) {
        push_streams[core] = core < node->core_count ? node->cores[core].push_streams : NULL;
        node->cores[core].push_streams = core < node->core_count
                                             ? calloc(FAKE_PUSH_STREAMS_MAX, sizeof(struct fake_push_stream))
                                             : node->cores[core].push_streams;
    }
}

void fake_cluster_swap(struct fake_cluster *c, uint32_t a, uint32_t b)
{
    struct fake_node *x = c->nodes[a], *y = c->nodes[b];
    struct fake_push_stream *of_x[FAKE_CORES_MAX], *of_y[FAKE_CORES_MAX];
    fake_node_pause(x);
    fake_node_pause(y);
    struct fake_table *table = x->table;
    x->table = y->table;
    y->table = table;
    take_push_streams(x, of_x);
    take_push_streams(y, of_y);
    fake_record_hand_over(of_x, y);
    fake_record_hand_over(of_y, x);
    for (uint32_t i = 0; i < c->count; i++) {
        const uint32_t owner = atomic_load(&c->owner_of[i]);
        atomic_store(&c->owner_of[i], owner == a ? b : owner == b ? a : owner);
    }
    const uint64_t epoch = atomic_fetch_add(&c->epoch, 1) + 1;
    atomic_store(&x->since, epoch);
    atomic_store(&y->since, epoch);
    fake_node_go_on(x);
    fake_node_go_on(y);
}

/* ---- groups of partitions ---- */

static uint32_t group_of(const struct fake_cluster *c, uint32_t partition)
{
    return partition * 7 % (c->count == 0 ? 1 : c->count); /* scattered */
}

/* Its rows are as `rows` has them, of a node or a checkpoint. */
static void copy_group(struct fake_cluster *c, uint32_t group, struct fake_table *rows, struct fake_node *to)
{
    struct fake_table *table = to->table;
    struct fake_table *now = calloc(1, sizeof(*now));
    assert_non_null(now);
    now->feature = table->feature;
    for (uint32_t i = 0; i < 2 * FAKE_ROWS_MAX; i++) {
        const bool is_own = i < FAKE_ROWS_MAX;
        const struct fake_row *row = &(is_own ? table : rows)->rows[i % FAKE_ROWS_MAX];
        const uint32_t of =
            row->used ? group_of(c, mr_partition_of(mr_key_hash(row->key, table->feature.seed))) : 0;
        if (row->used && (of == group) != is_own)
            *fake_row_at(now, row->key) = *row;
    }
    *table = *now;
    free(now);
}

/* The new map; who serves by it refuses calls by earlier ones. */
static void next_epoch(struct fake_cluster *c, const uint32_t *nodes, uint32_t count)
{
    const uint64_t epoch = atomic_fetch_add(&c->epoch, 1) + 1;
    for (uint32_t i = 0; i < count; i++)
        atomic_store(&c->nodes[nodes[i]]->since, epoch);
}

void fake_cluster_move(struct fake_cluster *c, uint32_t group, uint32_t to)
{
    const uint32_t nodes[2] = {atomic_load(&c->owner_of[group]), to};
    struct fake_node *from = c->nodes[nodes[0]], *target = c->nodes[to];
    if (nodes[0] == to)
        return;
    fake_node_pause(from);
    fake_node_pause(target);
    struct fake_push_stream *saved = from->saved_push_streams;
    struct fake_node *of_now = calloc(1, sizeof(*of_now));
    assert_non_null(of_now);
    of_now->saved_push_streams = calloc(FAKE_PUSH_STREAMS_MAX, sizeof(*saved));
    assert_non_null(of_now->saved_push_streams);
    fake_record_merge(from, of_now);
    fake_record_take_over(of_now, target);
    free(of_now->saved_push_streams);
    free(of_now);
    copy_group(c, group, from->table, target);
    atomic_store(&c->owner_of[group], to);
    next_epoch(c, nodes, 2);
    fake_node_go_on(from);
    fake_node_go_on(target);
}

void fake_cluster_save(struct fake_cluster *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        c->saved_owner_of[i] = atomic_load(&c->owner_of[i]);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->nodes[i]->thread != NULL)
            fake_node_save(c->nodes[i]);
}

void fake_cluster_take_over(struct fake_cluster *c, uint32_t group, uint32_t to)
{
    fake_node_pause(c->nodes[to]);
    atomic_store(&c->is_loading[group], true);
    atomic_store(&c->owner_of[group], to);
    atomic_store(&c->restored_in[group], (uint32_t)atomic_load(&c->epoch) + 1);
    next_epoch(c, &to, 1);
    fake_node_go_on(c->nodes[to]);
}

void fake_cluster_load(struct fake_cluster *c, uint32_t group)
{
    struct fake_node *to = c->nodes[atomic_load(&c->owner_of[group])];
    const struct fake_node *writer = c->nodes[c->saved_owner_of[group]];
    fake_node_pause(to);
    fake_record_take_over(writer, to);
    copy_group(c, group, writer->saved, to);
    atomic_store(&c->is_loading[group], false);
    fake_node_go_on(to);
}

void fake_cluster_restart(struct fake_cluster *c, uint32_t node)
{
    struct fake_node *n = c->nodes[node];
    memset(n->table->rows, 0, sizeof(n->table->rows));
    for (uint32_t core = 0; core < FAKE_CORES_MAX; core++)
        memset(n->cores[core].push_streams, 0, FAKE_PUSH_STREAMS_MAX * sizeof(struct fake_push_stream));
    for (uint32_t group = 0; group < c->count; group++) {
        const struct fake_node *writer = c->nodes[c->saved_owner_of[group]];
        if (atomic_load(&c->owner_of[group]) != node)
            continue;
        fake_record_take_over(writer, n);
        copy_group(c, group, writer->saved, n);
        atomic_store(&c->is_loading[group], false);
    }
    n->start_id += UINT64_C(1) << 32;
    n->forgetful = false; /* it has loaded already */
    fake_node_restart(n);
    n->forgetful = true;
    next_epoch(c, &node, 1);
}

bool fake_cluster_is_loading(const struct fake_cluster *c, uint32_t node, uint32_t partition)
{
    return fake_cluster_owner(c, partition) == node && atomic_load(&c->is_loading[group_of(c, partition)]);
}

bool fake_cluster_loads(const struct fake_cluster *c, uint32_t node)
{
    bool any = false;
    for (uint32_t i = 0; i < c->count; i++)
        any |= atomic_load(&c->owner_of[i]) == node && atomic_load(&c->is_loading[i]);
    return any;
}

/* ---- other addresses ---- */

void fake_cluster_restart_elsewhere(struct fake_cluster *c, uint32_t node)
{
    fake_node_change_ports(c->nodes[node]);
    fake_node_restart(c->nodes[node]);
    atomic_store(&c->ports[node], c->nodes[node]->base_port);
    fake_cluster_grant_again(c, node);
}

void fake_cluster_restart_crosswise(struct fake_cluster *c, uint32_t a, uint32_t b)
{
    const uint16_t port = c->nodes[a]->base_port;
    c->nodes[a]->base_port = c->nodes[b]->base_port;
    c->nodes[b]->base_port = port;
    c->nodes[b]->start_id += UINT64_C(1) << 32; /* they are random: no two starts have the same */
    fake_node_restart(c->nodes[a]);
    fake_node_restart(c->nodes[b]);
    atomic_store(&c->ports[a], c->nodes[a]->base_port);
    atomic_store(&c->ports[b], c->nodes[b]->base_port);
    fake_cluster_grant_again(c, a);
    fake_cluster_grant_again(c, b);
}

uint32_t fake_cluster_owner(const struct fake_cluster *c, uint32_t partition)
{
    return atomic_load(&c->owner_of[group_of(c, partition)]);
}

void fake_cluster_tell(const struct fake_cluster *c, uint32_t self, struct fake_cluster_map *out)
{
    *out = (struct fake_cluster_map){.words = {[MR_CLUSTER_EPOCH] = atomic_load(&c->epoch),
                                               [MR_CLUSTER_SELF] = c->others + self,
                                               [MR_CLUSTER_NODES] = c->others + c->count,
                                               [MR_CLUSTER_LEASE_US] = atomic_load(&c->lease_us)}};
    out->words[MR_CLUSTER_LEASE_LEFT_US] =
        atomic_load(&c->has_no_lease) ? 0 : out->words[MR_CLUSTER_LEASE_US];
    for (uint32_t i = 0; i < c->count; i++) {
        struct mr_cluster_node *n = &out->nodes[c->others + i];
        (void)snprintf(n->name, sizeof(n->name), "node-%u", i);
        const char *host = atomic_load(&c->hosts[i]);
        (void)snprintf(n->address, sizeof(n->address), "%s:%u", host == NULL ? "127.0.0.1" : host,
                       atomic_load(&c->ports[i]));
        n->core_count = c->cores[i];
        n->flags = atomic_load(&c->away[i]) ? 0 : MR_CLUSTER_NODE_PRESENT;
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        out->owner[p] = out->owner_of_few[p] = (uint8_t)fake_cluster_owner(c, p);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        out->owner[p] = (uint16_t)(out->owner[p] + c->others);
        out->restored_in[p] = atomic_load(&c->restored_in[group_of(c, p)]);
        out->any_restored |= out->restored_in[p] != 0;
    }
    for (uint32_t i = 0; i < c->count; i++) {
        out->copies[i][MR_COPIES_BACKUPS] = 10 * i;
        out->copies[i][MR_COPIES_UNCOPIED] = i;
    }
    for (uint32_t i = 0; i < c->others; i++) {
        (void)snprintf(out->nodes[i].name, sizeof(out->nodes[i].name), "other-%u", i);
        (void)snprintf(out->nodes[i].address, sizeof(out->nodes[i].address), "127.0.0.1:1");
        out->nodes[i].core_count = 1;
    }
}
