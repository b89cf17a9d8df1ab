/* One run: a world drawn from the seed, its clock, its disasters, and its end. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define FIRST_US        1000000u
#define CALM_US         60000000u /* after the faults everything must have ended within this */
#define SESSION_IDLE_US 60000000u
#define KEEPALIVE_US    11000000u /* of a session, and some */
#define STEPS_MAX       20000000u
#define SERVER_PORT     7700u
#define CLIENT_PORT     40000u

uint64_t sim_random(struct sim_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t sim_below(struct sim_rng *rng, uint64_t n)
{
    return n == 0 ? 0 : sim_random(rng) % n;
}

uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high)
{
    return low + sim_below(rng, high - low + 1);
}

bool sim_chance(struct sim_rng *rng, uint32_t ppm)
{
    return ppm > 0 && sim_below(rng, 1000000) < ppm;
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    if (sim->failed)
        return;
    sim->failed = true;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(sim->why, sizeof(sim->why), format, args);
    va_end(args);
    assert(n >= 0);
    (void)n;
}

void sim_note(struct sim *sim, uint64_t a, uint64_t b)
{
    sim->trace = (sim->trace ^ (sim->now_us + a * 31 + b)) * UINT64_C(0x100000001B3);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- set-up ---- */

static uint32_t up_to(struct sim *sim, uint32_t ppm, uint32_t often_ppm)
{
    return sim_chance(&sim->rng, often_ppm) ? (uint32_t)sim_below(&sim->rng, ppm + 1) : 0;
}

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
    sim->next_restart_us = FIRST_US + sim_below(&sim->rng, 1000000);
    sim->next_cut_us = sim_chance(&sim->rng, 400000) ? FIRST_US + sim_below(&sim->rng, 2000000) : UINT64_MAX;
    sim->next_stall_us =
        sim_chance(&sim->rng, 400000) ? FIRST_US + sim_below(&sim->rng, 1000000) : UINT64_MAX;
}

static void draw_work(struct sim *sim)
{
    struct sim_rng *rng = &sim->rng;
    sim->servers = (uint32_t)sim_between(rng, 1, SIM_SERVERS_MAX);
    sim->clients = (uint32_t)sim_between(rng, 1, SIM_CLIENTS_MAX);
    sim->calls_per_client = (uint32_t)sim_between(rng, 10, SIM_CALLS_MAX);
    sim->call_gap_us = sim_chance(rng, 500000) ? 200 : 100000;
    sim->busy_ppm = up_to(sim, 100000, 300000);
    sim->later_ppm = up_to(sim, 300000, 500000);
    sim->cancel_ppm = up_to(sim, 2000, 300000);
    sim->deadline_ppm = sim_chance(rng, 500000) ? (uint32_t)sim_below(rng, 1000001) : 0;
    sim->memory_is_short = sim_chance(rng, 300000);
    sim->request_bytes_max = sim_chance(rng, 300000) ? 400000 : 30000;
    sim->reply_bytes_max = sim_chance(rng, 300000) ? 1000000 : 30000;
    if (sim->memory_is_short) {
        sim->request_bytes_max = 100000;
        sim->reply_bytes_max = 100000;
    }
}

static void start_endpoint(struct sim_node *node)
{
    enum mr_status status = mr_endpoint_create(&node->config, &node->ep);
    assert(status == MR_OK);
    (void)status;
    node->poll_at_us = node->sim->now_us;
    node->is_open = false;
    if (node->is_server)
        return;
    for (uint32_t i = 0; i < node->sim->servers; i++) {
        status =
            mr_session_open(node->ep, &node->sim->nodes[i].address, (uint16_t)i, NULL, &node->sessions[i]);
        assert(status == MR_OK);
    }
}

static void draw_node(struct sim *sim, uint32_t index)
{
    struct sim_node *node = &sim->nodes[index];
    struct mr_endpoint_config *c = &node->config;
    struct sim_rng *rng = &sim->rng;
    uint32_t number = index < sim->servers ? index : index - sim->servers;
    node->sim = sim;
    node->index = index;
    node->is_server = index < sim->servers;
    node->rng.state = sim_random(rng);
    node->address.port = (uint16_t)((node->is_server ? SERVER_PORT : CLIENT_PORT + 10 * number) + number);
    mr_endpoint_config_default(c);
    sim_net_io(node, &c->io);
    c->app = node;
    c->sessions_max = 64;
    c->calls_max = 512;
    c->window = sim_chance(rng, 300000) ? (uint32_t)sim_between(rng, 1, 63) : MR_WINDOW_MAX;
    c->udp_bytes_max = (uint32_t)sim_between(rng, MR_UDP_BYTES_MIN, MR_UDP_BYTES_MAX);
    c->receive_window_bytes = (uint32_t)sim_between(rng, 1000, 400000);
    c->session_idle_us = SESSION_IDLE_US;
    c->memory_bytes = 64u << 20;
    c->psk_count = 1;
    memset(c->psk[0], 0x21, MR_PSK_BYTES);
    if (node->is_server) {
        c->on_request = sim_on_request;
        c->core = (uint16_t)number;
        c->core_count = (uint16_t)sim->servers;
        if (sim->memory_is_short)
            c->memory_bytes = sim_between(rng, 384u << 10, 2u << 20);
    } else {
        c->on_reply = sim_on_reply;
        memset(c->client_uuid, 0x10 + (int)number, MR_UUID_BYTES);
        if (sim->memory_is_short && sim_chance(rng, 300000))
            c->memory_bytes = sim_between(rng, 1u << 20, 4u << 20);
    }
    node->next_call_us = FIRST_US + sim_below(rng, 5000);
}

/* ---- disasters ---- */

static void restart(struct sim *sim, struct sim_node *node)
{
    sim->restarts++;
    if (!node->is_server)
        sim_client_crashed(sim, node);
    mr_endpoint_destroy(node->ep);
    node->life++;
    if (node->is_server)
        node->config.incarnation++;
    start_endpoint(node);
}

static struct sim_node *any_node(struct sim *sim)
{
    return &sim->nodes[sim_below(&sim->rng, sim->servers + sim->clients)];
}

static void disasters(struct sim *sim)
{
    if (sim->now_us >= sim->next_restart_us) {
        sim->next_restart_us = sim->now_us + sim_below(&sim->rng, 1500000);
        struct sim_node *node = any_node(sim);
        if (node->is_server ? sim->may_restart_servers : sim->may_restart_clients)
            restart(sim, node);
    }
    if (sim->now_us >= sim->next_cut_us) {
        sim->next_cut_us = sim->now_us + sim_below(&sim->rng, 4000000);
        any_node(sim)->cut_off_until_us = sim->now_us + sim_below(&sim->rng, 3000000);
    }
    if (sim->now_us >= sim->next_stall_us) {
        sim->next_stall_us = sim->now_us + sim_below(&sim->rng, 500000);
        any_node(sim)->stalled_until_us = sim->now_us + sim_below(&sim->rng, 50000);
    }
}

static void calm(struct sim *sim)
{
    memset(&sim->faults, 0, sizeof(sim->faults));
    sim->busy_ppm = 0;
    sim->cancel_ppm = 0;
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        sim->nodes[i].cut_off_until_us = 0;
        sim->nodes[i].stalled_until_us = min_u64(sim->nodes[i].stalled_until_us, sim->now_us);
    }
    sim->next_restart_us = sim->next_cut_us = sim->next_stall_us = UINT64_MAX;
}

/* ---- the clock ---- */

static void poll_nodes(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->stalled_until_us > sim->now_us)
            continue;
        if (!node->is_server)
            sim_client_step(sim, node);
        if (node->poll_at_us > sim->now_us)
            continue;
        mr_endpoint_flush(node->ep, sim->now_us);
        uint64_t at_us = mr_endpoint_poll(node->ep, sim->now_us, 16);
        node->poll_at_us = at_us > sim->now_us ? at_us : sim->now_us + 3;
    }
}

static uint64_t next_us(const struct sim *sim)
{
    uint64_t at_us = min_u64(sim_net_next_us(sim), sim_app_next_us(sim));
    at_us = min_u64(at_us, min_u64(sim->next_restart_us, min_u64(sim->next_cut_us, sim->next_stall_us)));
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        const struct sim_node *node = &sim->nodes[i];
        uint64_t poll_us =
            node->poll_at_us > node->stalled_until_us ? node->poll_at_us : node->stalled_until_us;
        at_us = min_u64(at_us, poll_us);
    }
    return at_us > sim->now_us ? at_us : sim->now_us + 1;
}

static void run_until(struct sim *sim, uint64_t end_us, bool (*done)(const struct sim *sim))
{
    for (uint32_t step = 0; !sim->failed && sim->now_us < end_us; step++) {
        if (step == STEPS_MAX) {
            sim_fail(sim, "no end after %u steps", STEPS_MAX);
            return;
        }
        disasters(sim);
        while (sim_net_deliver(sim))
            ;
        sim_answer_later(sim);
        poll_nodes(sim);
        if (done != NULL && done(sim))
            return;
        sim->now_us = min_u64(next_us(sim), end_us);
    }
}

static bool all_forgotten(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->servers; i++)
        if (mr_endpoint_session_count(sim->nodes[i].ep) > 0)
            return false;
    return true;
}

static bool servers_empty(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->servers; i++)
        if (mr_endpoint_memory_used(sim->nodes[i].ep) != 0)
            return false;
    return true;
}

/* Calls have ended. Nothing may be left of them on the clients, nor, after a keep-alive of each session that is in use, on
 * the servers; nor of the sessions once they are closed or forgotten. */
static void check_memory(struct sim *sim)
{
    bool crashed = sim->restarts > 0;
    run_until(sim, sim->now_us + (crashed ? SESSION_IDLE_US + 1000000 : 2 * KEEPALIVE_US), servers_empty);
    for (uint32_t i = 0; i < sim->servers; i++)
        if (mr_endpoint_memory_used(sim->nodes[i].ep) != 0)
            sim_fail(sim, "server %u still has %zu bytes of messages", i,
                     mr_endpoint_memory_used(sim->nodes[i].ep));
    for (uint32_t i = sim->servers; i < sim->servers + sim->clients; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (mr_endpoint_memory_used(node->ep) != 0)
            sim_fail(sim, "client %u still has %zu bytes of messages", i - sim->servers,
                     mr_endpoint_memory_used(node->ep));
        for (uint32_t s = 0; s < sim->servers; s++)
            mr_session_close(node->ep, node->sessions[s], sim->now_us);
        if (mr_endpoint_session_count(node->ep) != 0)
            sim_fail(sim, "client %u still has sessions", i - sim->servers);
    }
    run_until(sim, sim->now_us + SESSION_IDLE_US + 1000000, all_forgotten);
    if (!all_forgotten(sim))
        sim_fail(sim, "a server did not forget its sessions");
}

static void print_counters(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        const struct mr_wire_counters *c = mr_endpoint_counters(sim->nodes[i].ep);
        printf("%s %u:", i < sim->servers ? "server" : "client", i);
#define PRINT_COUNTER(name, help)                                                                            \
    if (c->name != 0)                                                                                        \
        printf(" %s=%llu", #name, (unsigned long long)c->name);
        MR_WIRE_COUNTER_LIST(PRINT_COUNTER)
#undef PRINT_COUNTER
        printf("\n");
    }
}

static bool later_done(const struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_LATER_MAX; i++)
        if (sim->later[i].used)
            return false;
    return sim_all_ended(sim);
}

bool sim_run(struct sim *sim, uint64_t seed, bool verbose)
{
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->rng.state = seed * UINT64_C(0xD1342543DE82EF95) + 1;
    sim->verbose = verbose;
    sim->now_us = FIRST_US;
    sim->heap = malloc(SIM_PACKETS_MAX * sizeof(*sim->heap));
    assert(sim->heap != NULL);
    draw_work(sim);
    draw_faults(sim);
    sim->faults_until_us = FIRST_US + sim_between(&sim->rng, 100000, 8000000);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        draw_node(sim, i);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        start_endpoint(&sim->nodes[i]);

    run_until(sim, sim->faults_until_us, NULL);
    calm(sim);
    run_until(sim, sim->now_us + CALM_US, later_done);
    if (!sim->failed)
        sim_check_calls(sim);
    uint64_t calm_us = sim->now_us - sim->faults_until_us;
    if (!sim->failed)
        check_memory(sim);
    if (verbose) {
        print_counters(sim);
        printf("packets %llu, executions %llu, restarts %u, calm after %llu us, trace %016llx\n",
               (unsigned long long)sim->packets, (unsigned long long)sim->executions, sim->restarts,
               (unsigned long long)calm_us, (unsigned long long)sim->trace);
    }
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        mr_endpoint_destroy(sim->nodes[i].ep);
    sim_net_free(sim);
    free(sim->heap);
    return !sim->failed;
}
