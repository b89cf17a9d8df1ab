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
    for (uint32_t i = 0; i < count; i++)
        atomic_store(&c->owner_of[i], i);
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
    struct fake_feature *features = x->features;
    x->features = y->features;
    y->features = features;
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
    return atomic_load(&c->owner_of[partition * 7 % (c->count == 0 ? 1 : c->count)]); /* scattered */
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
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        out->owner[p] = (uint16_t)(out->owner[p] + c->others);
    for (uint32_t i = 0; i < c->others; i++) {
        (void)snprintf(out->nodes[i].name, sizeof(out->nodes[i].name), "other-%u", i);
        (void)snprintf(out->nodes[i].address, sizeof(out->nodes[i].address), "127.0.0.1:1");
        out->nodes[i].core_count = 1;
    }
}
