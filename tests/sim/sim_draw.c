/* What kind of world a seed is. Many small ones of all kinds find more than few large ones; a few are
 * large. */
#include <assert.h>
#include <string.h>

#include "sim.h"

#define SERVER_PORT      7700u
#define SESSION_IDLE_US  60000000u
#define DRIFT_PPM_MAX    500
#define KIB              1024u
#define MIB              (1024u * 1024u)
#define STREAM_SLOTS_MAX 8u
#define NARROW_LATE_US   400000u /* a change of the path in the middle of a call and all */

struct kind {
    const char *name;
    uint32_t of_1000;
    void (*draw)(struct sim *sim);
};

static uint32_t up_to(struct sim *sim, uint32_t ppm, uint32_t often_ppm)
{
    return sim_chance(&sim->rng, often_ppm) ? (uint32_t)sim_below(&sim->rng, ppm + 1) : 0;
}

static uint32_t number(struct sim *sim, uint32_t low, uint32_t high)
{
    return (uint32_t)sim_between(&sim->rng, low, high);
}

/* ---- faults ---- */

static void draw_faults(struct sim *sim)
{
    sim->faults = (struct sim_faults){
        .lose_ppm = up_to(sim, 200000, 700000),
        .repeat_ppm = up_to(sim, 100000, 500000),
        .reorder_ppm = up_to(sim, 300000, 500000),
        .damage_ppm = up_to(sim, 50000, 400000),
        .truncate_ppm = up_to(sim, 20000, 300000),
        .replay_ppm = up_to(sim, 50000, 400000),
        .stranger_ppm = up_to(sim, 50000, 400000),
        .no_room_ppm = up_to(sim, 200000, 400000),
        .spike_ppm = up_to(sim, 10000, 400000),
        .spike_us = 500000,
    };
    sim->may_restart_servers = sim_chance(&sim->rng, 400000);
    sim->may_restart_clients = sim_chance(&sim->rng, 300000);
}

/* ---- kinds of worlds ---- */

static void draw_work(struct sim *sim)
{
    struct sim_rng *rng = &sim->rng;
    struct sim_work *w = &sim->work;
    w->burst_max = 12;
    w->waiting_max = sim_chance(rng, 200000) ? number(sim, 1, 8) : SIM_CALLS_MAX;
    w->gap_us = sim_chance(rng, 600000) ? 400 : 50000;
    w->busy_ppm = up_to(sim, 100000, 300000);
    w->later_ppm = up_to(sim, 300000, 500000);
    w->parts_ppm = up_to(sim, 1000000, 500000);
    w->number_ppm = up_to(sim, 1000000, 500000);
    w->save_ppm = up_to(sim, 300000, 700000);
    w->cancel_ppm = up_to(sim, 300000, 300000);
    w->deadline_ppm = sim_chance(rng, 500000) ? (uint32_t)sim_below(rng, 1000001) : 0;
    w->large_ppm = 120000;
}

static void draw_tiny(struct sim *sim)
{
    draw_work(sim);
    draw_faults(sim);
    sim->servers = 1;
    sim->clients = number(sim, 1, 2);
    sim->work.calls_per_client = number(sim, 2, 30);
    sim->work.request_bytes_max = sim->work.reply_bytes_max = sim_chance(&sim->rng, 300000) ? 20000 : 3000;
    sim->faults_end_us = SIM_FIRST_US + number(sim, 5000, 1500000);
}

static void draw_mixed(struct sim *sim)
{
    draw_work(sim);
    draw_faults(sim);
    sim->servers = number(sim, 1, SIM_SERVERS_MAX);
    sim->clients = number(sim, 1, SIM_CLIENTS_MAX);
    sim->work.calls_per_client = number(sim, 5, sim_chance(&sim->rng, 100000) ? SIM_CALLS_MAX : 50);
    sim->work.request_bytes_max = sim_chance(&sim->rng, 200000) ? 300000 : 30000;
    sim->work.reply_bytes_max = sim_chance(&sim->rng, 200000) ? 600000 : 30000;
    sim->faults_end_us = SIM_FIRST_US + number(sim, 50000, 4000000);
}

static void draw_short_of_memory(struct sim *sim)
{
    draw_mixed(sim);
    sim->memory_is_short = true;
    if (sim_chance(&sim->rng, 300000)) { /* and much is wanted at once */
        sim->work.calls_per_client = number(sim, 50, SIM_CALLS_MAX);
        sim->work.waiting_max = SIM_CALLS_MAX;
        sim->work.gap_us = 400;
        sim->work.large_ppm = 300000;
    }
    sim->work.request_bytes_max = sim->work.reply_bytes_max = 100000;
}

/* No faults, but a link and clients that want more than it carries: small calls must come through all the
 * same. */
static void draw_crowded(struct sim *sim)
{
    draw_work(sim);
    sim->servers = number(sim, 1, 2);
    sim->clients = SIM_CLIENTS_MAX;
    sim->work.calls_per_client = number(sim, 20, 60);
    sim->work.waiting_max = number(sim, 2, 12);
    sim->work.gap_us = 2000;
    sim->work.busy_ppm = sim->work.later_ppm = sim->work.cancel_ppm = sim->work.deadline_ppm = 0;
    sim->work.request_bytes_max = number(sim, 20000, 400000);
    sim->work.reply_bytes_max = number(sim, 20000, 400000);
    sim->work.large_ppm = 300000;
    sim->work.small_late_us = 3000000;
    sim->faults_end_us = SIM_FIRST_US + 1;
}

/* No faults, and links whose queues hold all there is. */
static void draw_steady(struct sim *sim)
{
    draw_work(sim);
    sim->servers = 1;
    sim->clients = number(sim, 1, 2);
    sim->work.steady = true;
    sim->work.calls_per_client = number(sim, 30, 80);
    sim->work.waiting_max = number(sim, 4, 12);
    sim->work.gap_us = 200;
    sim->work.busy_ppm = sim->work.later_ppm = sim->work.cancel_ppm = sim->work.deadline_ppm = 0;
    sim->work.request_bytes_max = number(sim, 200000, 1000000);
    sim->work.reply_bytes_max = number(sim, 200000, 1000000);
    sim->work.large_ppm = 1000000;
    sim->faults_end_us = SIM_FIRST_US + 1;
}

/* No faults, and a link that all clients want more of than there is. */
static void draw_shared(struct sim *sim)
{
    sim->servers = 1;
    sim->clients = number(sim, 2, SIM_CLIENTS_MAX);
    sim->work.shared = true;
    sim->work.calls_per_client = SIM_CALLS_MAX;
    sim->work.burst_max = SIM_CALLS_MAX;
    sim->work.waiting_max = number(sim, 6, 16);
    sim->work.far_us = sim_chance(&sim->rng, 500000) ? number(sim, 100, 1000) : 0;
    sim->work.gap_us = 200;
    sim->work.request_bytes_max = 300000;
    sim->work.reply_bytes_max = 200;
    sim->work.large_ppm = 1000000;
    sim->faults_end_us = SIM_FIRST_US + 1;
}

/* No faults, and more calls of high priority, at any time, than there are slots for. */
static void draw_stream(struct sim *sim)
{
    sim->servers = sim->clients = 1;
    sim->work.stream = true;
    sim->work.calls_per_client = SIM_CALLS_MAX;
    sim->work.burst_max = SIM_CALLS_MAX;
    sim->work.waiting_max = 4 * STREAM_SLOTS_MAX;
    sim->work.gap_us = 200;
    sim->work.request_bytes_max = sim_chance(&sim->rng, 500000) ? 100 : 200000;
    sim->work.reply_bytes_max = sim_chance(&sim->rng, 500000) ? 100 : 200000;
    sim->work.large_ppm = 1000000;
    sim->faults_end_us = SIM_FIRST_US + 1;
}

static void draw_bulk(struct sim *sim)
{
    draw_work(sim);
    draw_faults(sim);
    sim->faults.lose_ppm /= 4;
    sim->servers = number(sim, 1, 2);
    sim->clients = number(sim, 1, 3);
    sim->work.calls_per_client = number(sim, 2, 8);
    sim->work.request_bytes_max = sim_chance(&sim->rng, 500000) ? 4 * MIB : 200000;
    sim->work.reply_bytes_max = sim_chance(&sim->rng, 500000) ? 4 * MIB : 200000;
    sim->work.large_ppm = 400000;
    sim->faults_end_us = SIM_FIRST_US + number(sim, 50000, 3000000);
}

/* One message each way, up to the largest that there may be. */
static void draw_huge(struct sim *sim)
{
    bool asks = sim_chance(&sim->rng, 500000);
    draw_bulk(sim);
    sim->servers = sim->clients = 1;
    sim->work.calls_per_client = 2;
    sim->work.waiting_max = 1;
    sim->work.request_bytes_max = asks ? 1000 : MR_MESSAGE_BYTES_MAX - 4 * KIB;
    sim->work.reply_bytes_max = asks ? MR_MESSAGE_BYTES_MAX - 4 * KIB : 1000;
    sim->work.large_ppm = 1000000;
    sim->faults_end_us = SIM_FIRST_US + number(sim, 50000, 1000000);
}

/* No faults but paths that become narrower and wider, and one that carries the least from the beginning.
 * Nothing else takes time, so that what a change costs is seen. */
static void draw_narrow(struct sim *sim)
{
    draw_work(sim);
    sim->servers = number(sim, 1, 2);
    sim->clients = number(sim, 1, 2);
    sim->work.calls_per_client = number(sim, 20, SIM_CALLS_MAX);
    sim->work.waiting_max = number(sim, 1, 12);
    sim->work.gap_us = sim_chance(&sim->rng, 500000) ? 2000 : 50000;
    sim->work.busy_ppm = sim->work.later_ppm = sim->work.cancel_ppm = sim->work.deadline_ppm = 0;
    sim->work.request_bytes_max = sim_chance(&sim->rng, 500000) ? 8000 : 400000;
    sim->work.reply_bytes_max = sim_chance(&sim->rng, 500000) ? 8000 : 400000;
    sim->work.large_ppm = 300000;
    sim->work.late_us = NARROW_LATE_US;
    sim->faults_end_us = SIM_FIRST_US + number(sim, 100000, 4000000);
    sim->changes_paths = true;
}

static const struct kind kinds[] = {
    {"tiny", 590, draw_tiny},
    {"shared", 10, draw_shared},
    {"stream", 10, draw_stream},
    {"mixed", 240, draw_mixed},
    {"short of memory", 70, draw_short_of_memory},
    {"narrow", 20, draw_narrow},
    {"crowded", 20, draw_crowded},
    {"bulk", 29, draw_bulk},
    {"huge", 1, draw_huge},
    {"steady", 10, draw_steady},
};

/* ---- machines ---- */

void sim_draw_clock(struct sim_node *node)
{
    struct sim_rng *rng = &node->sim->rng;
    uint64_t wrap_us = UINT64_C(1) << 32;
    node->clock_base_us = sim_chance(rng, 300000)   ? wrap_us - sim_below(rng, 3000000)
                          : sim_chance(rng, 300000) ? 1 + sim_below(rng, 1000000)
                                                    : sim_below(rng, 1000 * wrap_us);
    node->clock_drift_ppm =
        sim_chance(rng, 500000) ? (int64_t)sim_below(rng, 2 * DRIFT_PPM_MAX + 1) - DRIFT_PPM_MAX : 0;
}

static void draw_link(struct sim_node *node)
{
    struct sim *sim = node->sim;
    bool crowded = sim->work.small_late_us > 0;
    node->link = (struct sim_link){0};
    node->queue_bytes_max = UINT64_MAX;
    node->packet_ns = sim_chance(&sim->rng, 300000) ? sim_below(&sim->rng, 3000) : 0;
    if (sim->work.late_us > 0)
        return;
    if (sim->work.shared || sim->work.stream) {
        node->packet_ns = 0;
        if (node->is_server && sim->work.shared)
            node->link = (struct sim_link){.bytes_per_ms = sim_between(&sim->rng, 40 * KIB, 80 * KIB),
                                           .queue_bytes = 64 * MIB};
        return;
    }
    if (sim->work.steady) {
        node->packet_ns = 0;
        node->link = (struct sim_link){.bytes_per_ms = sim_between(&sim->rng, 400 * KIB, 2 * MIB),
                                       .queue_bytes = 64 * MIB};
        return;
    }
    if (crowded || sim_chance(&sim->rng, 150000)) {
        node->link.bytes_per_ms = sim_between(&sim->rng, 20 * KIB, 2 * MIB); /* 0.16 to 17 Gb/s */
        node->link.queue_bytes = sim_between(&sim->rng, 32 * KIB, 512 * KIB);
    }
    if (!node->is_server && sim_chance(&sim->rng, crowded ? 500000 : 200000)) /* a socket has a buffer */
        node->queue_bytes_max =
            sim_between(&sim->rng, 32 * KIB, 2 * node->config.receive_window_bytes + 64 * KIB);
}

static void draw_sizes(struct sim *sim, struct sim_node *node)
{
    struct mr_endpoint_config *c = &node->config;
    struct sim_rng *rng = &sim->rng;
    bool large = sim->work.request_bytes_max > MIB || sim->work.reply_bytes_max > MIB;
    bool huge = sim->work.request_bytes_max > 8 * MIB || sim->work.reply_bytes_max > 8 * MIB;
    c->sessions_max = node->is_server ? (sim->servers == 1 ? 24 : 64) : SIM_SERVERS_MAX;
    c->calls_max = sim_chance(rng, 100000) ? number(sim, 1, 8) : SIM_CALLS_MAX;
    c->window = sim_chance(rng, 300000) ? number(sim, 1, 63) : MR_WINDOW_MAX;
    c->udp_bytes_max = number(sim, MR_UDP_BYTES_MIN, MR_UDP_BYTES_MAX);
    c->receive_window_bytes = number(sim, 1000, 400000);
    if (sim->work.steady || sim->work.shared || sim->work.stream) { /* no side is short of anything */
        c->calls_max = SIM_CALLS_MAX;
        c->window = sim->work.stream ? number(sim, 1, STREAM_SLOTS_MAX) : MR_WINDOW_MAX;
        c->receive_window_bytes = number(sim, 128 * KIB, 512 * KIB);
    }
    large |= sim->work.shared;
    c->memory_bytes = huge ? SIM_MEMORY_BYTES : large ? 128 * (size_t)MIB : 32 * (size_t)MIB;
    if (huge) {
        c->udp_bytes_max = MR_UDP_BYTES_MAX;
        c->receive_window_bytes = 2 * MIB;
    }
    if (sim->work
            .shared) { /* few messages: each may have a segment in flight, whatever the session's share */
        c->window = number(sim, 2, 4);
        c->udp_bytes_max = number(sim, MR_UDP_BYTES_MIN, 2000);
    }
    if (!sim->memory_is_short)
        return;
    if (node->is_server)
        c->memory_bytes = sim_between(rng, 384 * KIB, 2 * MIB);
    else if (sim_chance(rng, 600000))
        c->memory_bytes = sim_between(rng, 512 * KIB, 2 * MIB);
}

static void draw_node(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    struct mr_endpoint_config *c = &node->config;
    uint8_t *memory = node->memory;
    uint32_t place = index < sim->servers ? index : index - sim->servers;
    memset(node, 0, sizeof(*node));
    node->memory = memory;
    node->sim = sim;
    node->index = index;
    node->is_server = index < sim->servers;
    node->queue_end = &node->queue;
    node->rng.state = sim_random(&sim->rng);
    mr_endpoint_config_default(c);
    sim_net_io(node, &c->io);
    c->app = node;
    c->memory = node->memory;
    c->session_idle_us = SESSION_IDLE_US;
    node->has_old_key = true;
    sim_keys_configure(node);
    draw_sizes(sim, node);
    draw_link(node);
    sim_draw_clock(node);
    if (node->is_server) {
        sim_address_set(&node->address, index, (uint16_t)(SERVER_PORT + index));
        c->on_request = sim_on_request;
        c->core = (uint16_t)place;
        c->core_count = (uint16_t)sim->servers;
    } else {
        sim_address_client(&node->address, place, 0);
        c->on_reply = sim_on_reply;
        c->on_session = sim_on_session;
        c->hold_on_restart = sim_chance(&sim->rng, 400000);
        memset(c->client_uuid, 0x10 + (int)place, MR_UUID_BYTES);
        const uint64_t in_us =
            sim->work.shared ? sim_share_begins_us(sim, place) : sim_below(&sim->rng, 5000);
        sim_at(sim, SIM_FIRST_US + in_us, SIM_CALLS, index, NULL);
    }
}

void sim_draw(struct sim *sim)
{
    uint64_t at = sim_below(&sim->rng, 1000);
    uint32_t kind = 0;
    while (at >= kinds[kind].of_1000) {
        at -= kinds[kind].of_1000;
        kind++;
        assert(kind < sizeof(kinds) / sizeof(kinds[0]));
    }
    sim->kind = kinds[kind].name;
    kinds[kind].draw(sim);
    const struct sim_faults *f = &sim->faults;
    sim->changes_keys = sim->faults_end_us > SIM_FIRST_US + 1 && sim_chance(&sim->rng, 100000);
    sim->changes_paths |= sim->faults_end_us > SIM_FIRST_US + 1 && sim_chance(&sim->rng, 150000);
    sim->honest =
        !sim->changes_keys && f->damage_ppm + f->truncate_ppm + f->replay_ppm + f->stranger_ppm == 0;
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        draw_node(sim, i);
    sim_path_draw(sim);
    sim->plays = sim_chance(&sim->rng, 300000);
    sim->calls_to_start = sim->clients * sim->work.calls_per_client;
}
