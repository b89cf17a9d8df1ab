/* Restarts, pauses, partitions, clients that get another address, paths that carry less; and the end of them
 * all. */
#include <string.h>

#include "sim.h"

#define RESTARTS_MAX 6u /* so that all can be told of the last within the time there is */

static struct sim_node *any_node(struct sim *sim)
{
    return &sim->nodes[sim_below(&sim->rng, sim->servers + sim->clients)];
}

/* Soon or late: what has begun may last milliseconds or seconds. */
static void sim_fault_next(struct sim *sim, enum sim_event_kind kind)
{
    uint64_t within_us = UINT64_C(1) << sim_between(&sim->rng, 10, 21);
    sim_at(sim, sim->now_us + 1 + sim_below(&sim->rng, within_us), kind, 0, NULL);
}

static void restart(struct sim *sim, struct sim_node *node)
{
    if (sim->restarts == RESTARTS_MAX ||
        (node->is_server ? !sim->may_restart_servers : !sim->may_restart_clients))
        return;
    sim_log(sim, "node %u restarts", node->index);
    sim->restarts++;
    if (!node->is_server)
        sim_client_crashed(sim, node);
    mr_endpoint_destroy(node->ep);
    node->life++;
    if (node->is_server) {
        node->config.incarnation++;
        sim_record_restore(sim, node->index);
    }
    memset(node->cookie_came, 0, sizeof(node->cookie_came));
    memset(node->proven, 0, sizeof(node->proven));
    memset(node->grants, 0, sizeof(node->grants));
    memset(node->held, 0, sizeof(node->held));
    sim_net_close(node);
    if (sim_chance(&sim->rng, 300000)) /* the whole machine */
        sim_draw_clock(node);
    sim_node_start(node);
}

/* A node alone, or two nodes; either way or both. */
static void cut(struct sim *sim)
{
    uint64_t until_us = sim->now_us + sim_below(&sim->rng, sim_chance(&sim->rng, 500000) ? 100000 : 3000000);
    uint32_t nodes = sim->servers + sim->clients;
    uint32_t a = any_node(sim)->index, b = any_node(sim)->index;
    bool alone = sim_chance(&sim->rng, 500000);
    bool out = sim_chance(&sim->rng, 700000), in = !out || sim_chance(&sim->rng, 600000);
    for (uint32_t i = 0; i < nodes; i++) {
        if (!alone && i != b)
            continue;
        if (out)
            sim->cut_until_us[a][i] = until_us;
        if (in)
            sim->cut_until_us[i][a] = until_us;
    }
    sim_log(sim, "node %u is cut off from %s, %s%s", a, alone ? "all" : "another", out ? "out " : "",
            in ? "in" : "");
}

static void stall(struct sim *sim)
{
    struct sim_node *node = any_node(sim);
    uint64_t longest_us = sim_chance(&sim->rng, 100000) ? 1500000 : 50000;
    node->stalled_until_us = sim->now_us + sim_below(&sim->rng, longest_us);
    sim_log(sim, "node %u pauses until %llu", node->index, (unsigned long long)node->stalled_until_us);
}

/* As behind an address translator that has forgotten it. */
static void sim_fault_move(struct sim *sim)
{
    struct sim_node *node = any_node(sim);
    if (node->is_server || node->moves + 1 == SIM_PORTS)
        return;
    node->moves++;
    sim_address_client(&node->address, node->index - sim->servers, node->moves);
    sim_log(sim, "node %u moves to port %u", node->index, node->address.port);
}

/* ---- what paths carry ---- */

/* One way may carry less than the other, as where tunnels are not the same both ways. */
static void path_set(struct sim *sim, uint32_t a, uint32_t b)
{
    bool wide = sim_chance(&sim->rng, 300000), both = sim_chance(&sim->rng, 700000);
    uint32_t bytes = wide ? MR_UDP_BYTES_MAX
                          : (uint32_t)sim_between(&sim->rng, MR_UDP_BYTES_MIN,
                                                  sim_chance(&sim->rng, 500000) ? 1500 : MR_UDP_BYTES_MAX);
    sim->path_bytes[a][b] = bytes;
    if (both)
        sim->path_bytes[b][a] = bytes;
    sim_log(sim, "the path from %u to %u%s carries %u bytes", a, b, both ? " and back" : "", bytes);
}

void sim_path_draw(struct sim *sim)
{
    for (uint32_t a = 0; a < SIM_NODES_MAX; a++)
        for (uint32_t b = 0; b < SIM_NODES_MAX; b++)
            sim->path_bytes[a][b] = MR_UDP_BYTES_MAX;
    for (uint32_t a = 0; sim->changes_paths && a < sim->servers; a++)
        for (uint32_t b = sim->servers; b < sim->servers + sim->clients; b++)
            if (sim_chance(&sim->rng, 500000))
                path_set(sim, a, b);
}

static void path_change(struct sim *sim)
{
    uint32_t server = (uint32_t)sim_below(&sim->rng, sim->servers);
    uint32_t client = sim->servers + (uint32_t)sim_below(&sim->rng, sim->clients);
    if (sim_chance(&sim->rng, 500000))
        path_set(sim, server, client);
    else
        path_set(sim, client, server);
}

/* ---- the pre-shared key is changed while calls are in flight ---- */

void sim_keys_configure(struct sim_node *node)
{
    struct mr_endpoint_config *c = &node->config;
    c->psk_count = 0;
    if (node->has_old_key)
        memset(c->psk[c->psk_count++], 0x21, MR_PSK_BYTES);
    if (node->has_new_key)
        memset(c->psk[c->psk_count++], 0x22, MR_PSK_BYTES);
}

static void keys_set(struct sim_node *node, bool has_old, bool has_new)
{
    if (node->has_old_key == has_old && node->has_new_key == has_new)
        return;
    node->has_old_key = has_old;
    node->has_new_key = has_new;
    sim_keys_configure(node);
    sim_log(node->sim, "node %u has the%s%s key", node->index, has_old ? " old" : "", has_new ? " new" : "");
    mr_endpoint_set_keys(node->ep, (const uint8_t(*)[MR_PSK_BYTES])node->config.psk, node->config.psk_count,
                         sim_clock_us(node));
    node->poll_at_us = node->sim->now_us;
}

/* A client may be too early: then it waits. A server keeps the old key as long as a client has it. */
static void keys_change(struct sim_node *node)
{
    const struct sim *sim = node->sim;
    bool in_use = false;
    for (uint32_t i = sim->servers; i < sim->servers + sim->clients; i++)
        in_use |= sim->nodes[i].has_old_key;
    keys_set(node, node->is_server && in_use, true);
}

void sim_fault_begin(struct sim *sim)
{
    bool none = sim->faults_end_us == SIM_FIRST_US + 1;
    if (none)
        return;
    if (sim->changes_paths)
        sim_fault_next(sim, SIM_PATH);
    if (sim->work.late_us > 0)
        return;
    sim_fault_next(sim, SIM_RESTART);
    if (sim->changes_keys)
        sim_fault_next(sim, SIM_KEYS);
    if (sim_chance(&sim->rng, 400000))
        sim_fault_next(sim, SIM_CUT);
    if (sim_chance(&sim->rng, 400000))
        sim_fault_next(sim, SIM_STALL);
    if (sim_chance(&sim->rng, 100000))
        sim_fault_next(sim, SIM_MOVE);
}

void sim_fault_happen(struct sim *sim, enum sim_event_kind kind)
{
    if (sim->calm)
        return;
    switch (kind) {
    case SIM_RESTART:
        restart(sim, any_node(sim));
        sim_fault_next(sim, kind);
        break;
    case SIM_CUT:
        cut(sim);
        sim_fault_next(sim, kind);
        break;
    case SIM_STALL:
        stall(sim);
        sim_fault_next(sim, kind);
        break;
    case SIM_PATH:
        path_change(sim);
        sim_fault_next(sim, kind);
        break;
    case SIM_KEYS:
        keys_change(any_node(sim));
        sim_fault_next(sim, kind);
        break;
    default:
        sim_fault_move(sim);
        sim_fault_next(sim, kind);
        break;
    }
}

void sim_fault_end(struct sim *sim)
{
    sim_log(sim, "faults are over");
    sim->calm = true;
    memset(&sim->faults, 0, sizeof(sim->faults));
    memset(sim->cut_until_us, 0, sizeof(sim->cut_until_us));
    sim->work.busy_ppm = 0;
    for (uint32_t i = 0; sim->changes_keys && i < sim->servers + sim->clients; i++)
        keys_set(&sim->nodes[i], false, true);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        if (sim->nodes[i].stalled_until_us > sim->now_us)
            sim->nodes[i].stalled_until_us = sim->now_us;
}
