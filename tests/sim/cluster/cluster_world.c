#include "cluster_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FAULT_US 20000u
#define END_US   20000000u /* after the last fault */

void fail(struct world *w, const char *format, ...)
{
    if (w->failed)
        return;
    w->failed = true;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(w->why, w->why_bytes, format, arguments);
    va_end(arguments);
}

uint64_t node_now(const struct world *w, uint32_t node)
{
    return (uint64_t)((double)w->now_us * w->nodes[node].clock_rate);
}

bool is_calm(const struct world *w)
{
    return w->now_us >= w->calm_us;
}

/* ---- messages, the earliest first ---- */

static bool is_earlier(const struct world *w, uint32_t a, uint32_t b)
{
    const struct message *x = &w->messages[a];
    const struct message *y = &w->messages[b];
    return x->at_us < y->at_us || (x->at_us == y->at_us && x->order < y->order);
}

static void swap(uint32_t *a, uint32_t *b)
{
    const uint32_t c = *a;
    *a = *b;
    *b = c;
}

void post(struct world *w, struct message m, uint64_t delay_us)
{
    if (w->free_count == 0) {
        fail(w, "more messages than there is room for");
        return;
    }
    const uint32_t slot = w->free_list[--w->free_count];
    m.at_us = w->now_us + delay_us;
    m.order = ++w->last_order;
    w->messages[slot] = m;
    uint32_t at = w->heap_count++;
    w->heap[at] = slot;
    while (at > 0) {
        const uint32_t parent = (at - 1) / 2;
        if (!is_earlier(w, w->heap[at], w->heap[parent]))
            break;
        swap(&w->heap[at], &w->heap[parent]);
        at = parent;
    }
}

static struct message next_message(struct world *w)
{
    const uint32_t slot = w->heap[0];
    w->heap[0] = w->heap[--w->heap_count];
    for (uint32_t at = 0;;) {
        uint32_t first = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < w->heap_count; child++)
            if (is_earlier(w, w->heap[child], w->heap[first]))
                first = child;
        if (first == at)
            break;
        swap(&w->heap[at], &w->heap[first]);
        at = first;
    }
    w->free_list[w->free_count++] = slot;
    return w->messages[slot];
}

bool is_cut_off(const struct world *w, uint32_t from, uint32_t to)
{
    const bool from_node = from < NODES_MAX;
    const bool to_node = to < NODES_MAX;
    if (from_node && to_node)
        return w->cut_off[from][to] || w->cut_off[to][from];
    const uint32_t node = from_node ? from : to;
    const uint32_t other = from_node ? to : from;
    return other < NODES_MAX + CLIENTS_MAX ? w->clients_cut_off[node] : w->cut_off[node][NODES_MAX];
}

void send_message(struct world *w, struct message m)
{
    if (is_cut_off(w, m.from, m.to))
        return;
    const uint32_t copies = 1 + sim_chance(&w->rng, is_calm(w) ? 0 : w->twice_ppm);
    for (uint32_t i = 0; i < copies; i++)
        if (is_calm(w) || !sim_chance(&w->rng, w->loss_ppm))
            post(w, m, 100 + sim_below(&w->rng, w->delay_us_max));
}

/* ---- what fails ---- */

static void kill_node(struct world *w, uint32_t i)
{
    if (!w->nodes[i].runs)
        return;
    w->nodes[i].runs = false;
    w->counts.restarts++;
    post(w, (struct message){.kind = START, .to = i}, 1000 + sim_below(&w->rng, w->session_us * 3));
}

static void go_wrong(struct world *w)
{
    const uint32_t i = (uint32_t)sim_below(&w->rng, w->node_count);
    const uint32_t j = (uint32_t)sim_below(&w->rng, w->node_count);
    if (sim_chance(&w->rng, w->kill_ppm))
        kill_node(w, i);
    if (sim_chance(&w->rng, w->pause_ppm))
        w->nodes[i].paused_until_us = w->now_us + sim_below(&w->rng, w->session_us * 3);
    if (sim_chance(&w->rng, w->outage_ppm))
        w->coordinator.down_until_us = w->now_us + sim_below(&w->rng, w->session_us * 3);
    if (sim_chance(&w->rng, w->cut_off_ppm))
        w->cut_off[i][j == i || sim_chance(&w->rng, 500000) ? NODES_MAX : j] = true;
    if (sim_chance(&w->rng, w->cut_off_ppm / 2))
        w->clients_cut_off[i] = true;
    if (sim_chance(&w->rng, 50000)) {
        memset(w->cut_off, 0, sizeof(w->cut_off));
        memset(w->clients_cut_off, 0, sizeof(w->clients_cut_off));
    }
    if (sim_chance(&w->rng, w->order_ppm))
        w->wants_balance = !w->wants_balance;
    if (sim_chance(&w->rng, w->order_ppm))
        w->drained[i] = !w->drained[i];
    if (sim_chance(&w->rng, w->order_ppm))
        w->wants_cut = true;
}

static void calm_down(struct world *w)
{
    memset(w->cut_off, 0, sizeof(w->cut_off));
    memset(w->clients_cut_off, 0, sizeof(w->clients_cut_off));
    memset(w->drained, 0, sizeof(w->drained));
    w->coordinator.down_until_us = 0;
    w->wants_cut = false;
    for (uint32_t i = 0; i < w->node_count; i++)
        w->nodes[i].paused_until_us = 0;
}

/* Once in a while: something fails, and the coordinator looks at its sessions. */
static void take_fault(struct world *w)
{
    const bool was_down = w->coordinator.down_until_us > w->now_us - FAULT_US && w->now_us > FAULT_US;
    if (is_calm(w))
        calm_down(w);
    else
        go_wrong(w);
    /* a coordinator that comes back gives every session its whole time again */
    if (was_down || w->now_us < w->coordinator.down_until_us)
        for (uint32_t i = 0; i < w->node_count; i++)
            w->coordinator.sessions[i].heard_us = w->now_us;
    coordinator_tick(w);
    post(w, (struct message){.kind = FAULT}, FAULT_US);
}

/* ---- a run ---- */

static void draw(struct world *w, uint64_t seed)
{
    struct sim_rng *rng = &w->rng;
    rng->state = seed * 0x9e3779b97f4a7c15ULL + 1;
    w->watch_rng.state = ~rng->state;
    w->node_count = (uint32_t)sim_between(rng, 1, NODES_MAX);
    w->client_count = (uint32_t)sim_between(rng, 1, CLIENTS_MAX);
    w->partition_count = (uint32_t)sim_between(rng, 1, PARTITIONS_MAX);
    w->steps = (uint32_t)sim_between(rng, 8, STEPS_MAX);
    w->session_us = sim_between(rng, 40000, 250000);
    w->take_over_us =
        sim_chance(rng, 600000) ? sim_between(rng, 1, sim_chance(rng, 500000) ? 1000 : 100000) : 0;
    w->store_us_max = sim_between(rng, 100, sim_chance(rng, 500000) ? 2000 : 30000);
    w->calm_us = sim_between(rng, 500000, 3000000);
    w->computing_us_max = 2 * w->calm_us / w->steps; /* training lasts about as long as the faults */
    w->loss_ppm = sim_chance(rng, 500000) ? (uint32_t)sim_below(rng, 100000) : 0;
    w->twice_ppm = sim_chance(rng, 500000) ? (uint32_t)sim_below(rng, 100000) : 0;
    w->delay_us_max = (uint32_t)sim_between(rng, 200, sim_chance(rng, 200000) ? w->session_us / 12 : 5000);
    w->kill_ppm = sim_chance(rng, 600000) ? (uint32_t)sim_below(rng, 60000) : 0;
    w->pause_ppm = sim_chance(rng, 400000) ? (uint32_t)sim_below(rng, 60000) : 0;
    w->outage_ppm = sim_chance(rng, 300000) ? (uint32_t)sim_below(rng, 40000) : 0;
    w->cut_off_ppm = sim_chance(rng, 400000) ? (uint32_t)sim_below(rng, 60000) : 0;
    w->order_ppm = (uint32_t)sim_below(rng, 300000);
    for (uint32_t i = 0; i < w->node_count; i++)
        w->nodes[i].clock_rate = 0.6 + (double)sim_below(rng, 1000) / 1000.0;
}

static void deliver(struct world *w, const struct message *m)
{
    if (m->kind == FAULT) {
        take_fault(w);
    } else if (m->kind == START) {
        node_start(w, m->to);
    } else if (m->kind == UPGRADE) {
        versions_upgrade(w, m->to);
    } else if (m->to == NODES_MAX + CLIENTS_MAX) {
        coordinator_receive(w, m);
    } else if (m->to >= NODES_MAX) {
        client_receive(w, m);
    } else {
        const struct node *node = &w->nodes[m->to];
        if (!node->runs || (m->to_start != 0 && m->to_start != node->start_id))
            return;
        if (w->now_us < node->paused_until_us)
            post(w, *m, node->paused_until_us - w->now_us);
        else
            node_receive(w, m);
    }
}

/* Everybody knows the map, and it is that of the processes which run. */
static bool is_settled(const struct world *w)
{
    const struct ps_cluster_map *map = &w->maps[w->coordinator.epoch];
    for (uint32_t c = 0; c < w->client_count; c++)
        if (!client_is_done(w, c) || w->clients[c].epoch != map->epoch)
            return false;
    for (uint32_t i = 0; i < w->node_count; i++)
        if (!w->nodes[i].runs || w->nodes[i].member.map.epoch != map->epoch)
            return false;
    for (uint32_t p = 0; p < w->partition_count; p++)
        if (map->owner[p] == PS_CLUSTER_NO_NODE ||
            w->nodes[map->nodes[map->owner[p]].name[0] - 'a'].member.have[p] != map->grant[p])
            return false;
    for (uint32_t k = 0; k < map->node_count; k++)
        if (map->nodes[k].start_id != w->nodes[map->nodes[k].name[0] - 'a'].start_id)
            return false;
    uint32_t without;
    return map->node_count == w->node_count && map->move_count == 0 && map->cut == 0 &&
           features_are_settled(w) && copies_are_made(w, &without);
}

bool cluster_run(void *world, uint64_t seed, bool verbose, uint64_t *trace, char *why, size_t why_bytes)
{
    struct world *w = world;
    memset(w, 0, offsetof(struct world, maps));
    memset(w->parts, 0, sizeof(w->parts));
    memset(w->clusters, 0, sizeof(w->clusters));
    memset(w->generation_count, 0, sizeof(w->generation_count));
    memset(w->served, 0, sizeof(w->served));
    memset(w->answered, 0, sizeof(w->answered));
    memset(w->acknowledged, 0, sizeof(w->acknowledged));
    w->heap_count = w->free_count = 0;
    w->last_start = 0;
    w->failed = w->wants_balance = w->wants_cut = false;
    memset(w->drained, 0, sizeof(w->drained));
    memset(&w->counts, 0, sizeof(w->counts));
    w->verbose = verbose;
    w->why = why;
    w->why_bytes = why_bytes;
    for (uint32_t i = 0; i < MESSAGES_MAX; i++)
        w->free_list[w->free_count++] = i;
    draw(w, seed);
    w->loads_rng.state = w->rng.state ^ UINT64_C(0x2545f4914f6cdd1d);
    w->load_fails_ppm = sim_chance(&w->loads_rng, 300000) ? (uint32_t)sim_below(&w->loads_rng, 600000) : 0;
    w->features_rng.state = w->rng.state ^ UINT64_C(0x5851f42d4c957f2d);
    memset(&w->catalogs[0], 0, sizeof(w->catalogs[0]));
    copies_draw(w, seed);
    versions_draw(w, seed);
    w->rebalances = seed % 3 == 0;
    w->spare = w->node_count - (seed % 4 == 0 && w->node_count > 1 && !w->has_versions);
    ps_cluster_map_init(&w->maps[0], w->partition_count);
    for (uint32_t i = 0; i < w->node_count; i++)
        post(w, (struct message){.kind = START, .to = i}, sim_below(&w->rng, 100000));
    for (uint32_t c = 0; c < w->client_count; c++) {
        client_start(w, c);
        features_client_start(w, c);
    }
    post(w, (struct message){.kind = FAULT}, 0);
    while (!w->failed && w->now_us < w->calm_us + END_US && !(is_calm(w) && is_settled(w))) {
        const struct message m = next_message(w);
        w->now_us = m.at_us;
        w->trace = (w->trace ^ m.at_us ^ (uint64_t)m.kind << 56 ^ m.order << 32) * 0x9e3779b97f4a7c15ULL;
        if (verbose)
            printf("%llu kind %d from %u to %u partition %u step %u number %llu status %u\n",
                   (unsigned long long)m.at_us, (int)m.kind, m.from, m.to, m.partition, m.step,
                   (unsigned long long)m.number, m.status);
        deliver(w, &m);
    }
    if (!w->failed)
        check_end(w);
    for (uint32_t i = 0; i < w->node_count; i++)
        features_end(w, i);
    *trace = w->trace;
    return !w->failed;
}
