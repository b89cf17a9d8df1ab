/* One run: a world drawn from the seed, its clock, and its end. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"
#include "session_count.h"

#define CALM_US                                                                                              \
    20000000u /* after the faults everything must have ended within this, and the time the bytes take */
#define BYTES_PER_US   10u       /* that even a crowded network carries */
#define SESSION_US     61000000u /* an idle session is forgotten by then */
#define KEEPALIVE_US   11000000u /* of a session, and some */
#define STEPS_MAX      5000000u
#define TURN_SEGMENTS  16u
#define STREAM_TURN_US 20u

#define SENT_AGAIN_SHARE 50u /* one of so many, and some */
#define USE_FACTOR       2u
#define SENT_AGAIN_MORE  10u
#define USE_SLACK_US     25000u

/* ---- reports ---- */

void sim_fail(struct sim *sim, const char *format, ...)
{
    if (sim->failed)
        return;
    sim->failed = true;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sim->why, sizeof(sim->why), format, args);
    va_end(args);
    sim_log(sim, "FAILED: %s", sim->why);
}

void sim_note(struct sim *sim, uint64_t a, uint64_t b)
{
    sim->trace = (sim->trace ^ (sim->now_us + a * 31 + b)) * UINT64_C(0x100000001B3);
}

void sim_log_line(const struct sim *sim, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%10llu ", (unsigned long long)(sim->now_us - SIM_FIRST_US));
    (void)vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* ---- events ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

void sim_at(struct sim *sim, uint64_t at_us, enum sim_event_kind kind, uint32_t index, void *what)
{
    struct sim_event event = {at_us, sim->order++, kind, index, what};
    if (sim->heap_count == sim->heap_room) {
        sim->heap_room = sim->heap_room > 0 ? 2 * sim->heap_room : 1024;
        sim->heap = realloc(sim->heap, sim->heap_room * sizeof(*sim->heap));
        assert(sim->heap != NULL);
    }
    uint32_t at = sim->heap_count++;
    while (at > 0 && earlier(&event, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = event;
}

static struct sim_event next_event(struct sim *sim)
{
    struct sim_event top = sim->heap[0], last = sim->heap[--sim->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= sim->heap_count)
            break;
        if (child + 1 < sim->heap_count && earlier(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!earlier(&sim->heap[child], &last))
            break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    sim->heap[at] = last;
    return top;
}

static void happen(struct sim *sim, const struct sim_event *event)
{
    switch ((enum sim_event_kind)event->kind) {
    case SIM_ARRIVAL:
        sim_net_arrive(sim, event->what);
        break;
    case SIM_ANSWER:
        sim_answer_later(sim, event->index);
        break;
    case SIM_CALLS:
        sim_client_calls(sim, &sim->nodes[event->index]);
        break;
    case SIM_REPLAY:
        sim_client_replay(sim, event->what);
        break;
    case SIM_RELEASE:
        sim_client_release(sim, event->index);
        break;
    case SIM_CANCEL:
        sim_client_cancel(sim, event->what);
        break;
    case SIM_FREE:
        sim_client_free(sim, event->what);
        break;
    case SIM_PLAY:
        sim_play(sim);
        break;
    case SIM_SHARE:
        sim_share_settled(sim);
        break;
    case SIM_RESTART:
    case SIM_CUT:
    case SIM_STALL:
    case SIM_MOVE:
    case SIM_PATH:
    case SIM_KEYS:
        sim_fault_happen(sim, (enum sim_event_kind)event->kind);
        break;
    }
}

/* ---- clocks ---- */

uint64_t sim_clock_us(const struct sim_node *node)
{
    uint64_t gone_us = node->sim->now_us - SIM_FIRST_US;
    return node->clock_base_us + gone_us + (uint64_t)((int64_t)gone_us * node->clock_drift_ppm / 1000000);
}

uint64_t sim_when_us(const struct sim_node *node, uint64_t local_us)
{
    if (local_us == UINT64_MAX)
        return UINT64_MAX;
    if (local_us <= node->clock_base_us)
        return 0;
    uint64_t gone_us =
        (local_us - node->clock_base_us) * 1000000 / (uint64_t)(1000000 + node->clock_drift_ppm);
    return SIM_FIRST_US + gone_us + 1; /* rounded up */
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When the node is to be looked at again. */
static uint64_t node_due_us(const struct sim_node *node)
{
    uint64_t at_us = node->queue != NULL ? 0 : node->poll_at_us;
    return max_u64(at_us, max_u64(node->stalled_until_us, node->busy_until_us));
}

static void node_turn(struct sim *sim, struct sim_node *node)
{
    sim_net_receive(node);
    uint64_t clock_us = sim_clock_us(node);
    node->poll_at_us = UINT64_MAX;
    mr_endpoint_flush(node->ep, clock_us);
    uint32_t segments = sim->work.stream ? 1 : TURN_SEGMENTS; /* its port is what messages wait for */
    uint64_t at_us = sim_when_us(node, mr_endpoint_poll(node->ep, clock_us, segments));
    at_us = max_u64(at_us, sim->now_us + 3);
    if (sim->work.stream)
        node->busy_until_us = sim->now_us + STREAM_TURN_US;
    node->poll_at_us = min_u64(at_us, node->poll_at_us); /* the port may have had no room */
}

static void run_until(struct sim *sim, uint64_t end_us, bool (*done)(const struct sim *sim))
{
    uint32_t nodes = sim->servers + sim->clients;
    for (uint32_t step = 0; !sim->failed && sim->now_us < end_us; step++) {
        if (step == STEPS_MAX) {
            sim_fail(sim, "no end after %u steps", STEPS_MAX);
            return;
        }
        while (!sim->failed && sim->heap_count > 0 && sim->heap[0].at_us <= sim->now_us) {
            struct sim_event event = next_event(sim);
            happen(sim, &event);
        }
        uint64_t next_us = end_us;
        for (uint32_t i = 0; i < nodes; i++) {
            struct sim_node *node = &sim->nodes[i];
            if (node_due_us(node) <= sim->now_us)
                node_turn(sim, node);
            next_us = min_u64(next_us, node_due_us(node));
        }
        if (done != NULL && done(sim))
            return;
        if (sim->heap_count > 0)
            next_us = min_u64(next_us, sim->heap[0].at_us);
        sim->now_us = max_u64(next_us, sim->now_us + 1);
    }
}

/* ---- beginning and end ---- */

void sim_node_start(struct sim_node *node)
{
    struct sim *sim = node->sim;
    enum mr_status status = mr_endpoint_create(&node->config, &node->ep);
    assert(status == MR_OK);
    node->poll_at_us = sim->now_us;
    node->is_open = false;
    for (uint32_t i = 0; !node->is_server && i < sim->servers; i++) {
        status =
            mr_client_session_open(node->ep, &sim->nodes[i].address, (uint16_t)i, NULL, &node->sessions[i]);
        assert(status == MR_OK);
    }
    (void)status;
}

static bool all_over(const struct sim *sim)
{
    return sim->calls_to_start == 0 && sim->calls_alive == 0 && sim->later_count == 0;
}

static bool all_forgotten(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->servers; i++)
        if (session_count(sim->nodes[i].ep) > 0)
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

/* An idle client hears of a restart by its keep-alive, and brings again what may be lost. */
static bool quiet(const struct sim *sim)
{
    return servers_empty(sim) && all_over(sim) &&
           (sim->restarts == 0 || sim->now_us > sim->faults_end_us + 2 * KEEPALIVE_US);
}

/* Calls have ended. Nothing may be left of them on the clients, nor, after a keep-alive of each session that
 * is in use, on the servers (a client that has moved finds that out by its keep-alives, too); nor of the
 * sessions once they are closed or forgotten. */
static void check_memory(struct sim *sim)
{
    run_until(sim, sim->now_us + (sim->restarts > 0 ? SESSION_US : 4 * KEEPALIVE_US), quiet);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        if (mr_endpoint_memory_used(sim->nodes[i].ep) != 0)
            sim_fail(sim, "node %u still has %zu bytes of messages", i,
                     mr_endpoint_memory_used(sim->nodes[i].ep));
    for (uint32_t i = sim->servers; i < sim->servers + sim->clients; i++) {
        struct sim_node *node = &sim->nodes[i];
        for (uint32_t s = 0; s < sim->servers; s++)
            mr_client_session_close(node->ep, node->sessions[s], sim_clock_us(node));
        if (session_count(node->ep) != 0)
            sim_fail(sim, "client %u still has sessions", i - sim->servers);
    }
    sim_record_check(sim);
    run_until(sim, sim->now_us + SESSION_US, all_forgotten);
    if (!sim->failed && !all_forgotten(sim))
        sim_fail(sim, "a server did not forget its sessions");
}

/* Where nothing is damaged, forged or replayed, nothing that comes in is wrong. Only what was overtaken by a
 * BUSY, or by the end of its call, may be out of place. */
static void check_counters(struct sim *sim)
{
    bool calls_end_early = sim->work.cancel_ppm > 0 || sim->work.deadline_ppm > 0;
    for (uint32_t i = 0; sim->honest && i < sim->servers + sim->clients; i++) {
        const struct mr_wire_counters *c = mr_endpoint_counters(sim->nodes[i].ep);
        uint64_t wrong = c->drop_short + c->drop_magic + c->drop_version + c->drop_type + c->drop_tag +
                         c->drop_proof + c->drop_message;
        if (!calls_end_early && c->busy_sent == 0)
            wrong += c->drop_range;
        if (wrong > 0)
            sim_fail(sim, "node %u got %llu wrong packets", i, (unsigned long long)wrong);
    }
}

/* Where nothing is lost, next to nothing is sent again, and the link that has most to carry is used: the time
 * for its bytes is a good part of all. A window that stays small, or a wait for a probe, would be many times
 * that. */
static void check_use(struct sim *sim)
{
    uint64_t again = 0, least_us = 0, us = sim->now_us - SIM_FIRST_US;
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        const struct sim_node *node = &sim->nodes[i];
        uint64_t link_us = node->link.carried_bytes * 1000 / node->link.bytes_per_ms;
        again += mr_endpoint_counters(node->ep)->segments_resent;
        least_us = link_us > least_us ? link_us : least_us;
    }
    if (again > sim->packets / SENT_AGAIN_SHARE + SENT_AGAIN_MORE)
        sim_fail(sim, "%llu of %llu packets were sent again, and none was lost", (unsigned long long)again,
                 (unsigned long long)sim->packets);
    if (us > USE_FACTOR * least_us + USE_SLACK_US)
        sim_fail(sim, "%llu us were needed for what the links carry in %llu us", (unsigned long long)us,
                 (unsigned long long)least_us);
}

static void print_counters(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        const struct mr_wire_counters *c = mr_endpoint_counters(sim->nodes[i].ep);
        printf("%s %u: memory=%zu of %zu", sim_is_client(sim, i) ? "client" : "server", i,
               mr_endpoint_memory_used(sim->nodes[i].ep), sim->nodes[i].config.memory_bytes);
#define PRINT_COUNTER(name, kind, unit, help)                                                                \
    if (c->name != 0)                                                                                        \
        printf(" %s=%llu", #name, (unsigned long long)c->name);
        MR_WIRE_COUNTER_LIST(PRINT_COUNTER)
#undef PRINT_COUNTER
        printf("\n");
    }
}

/* Who has moved, and is idle, finds out by his keep-alives; until then what the server keeps for him
 * stays. */
static uint64_t calm_us(const struct sim *sim)
{
    const struct sim_work *w = &sim->work;
    uint64_t bytes_max =
        (uint64_t)sim->clients * w->calls_per_client * ((uint64_t)w->request_bytes_max + w->reply_bytes_max);
    uint32_t moves = 0;
    for (uint32_t i = sim->servers; i < sim->servers + sim->clients; i++)
        moves += sim->nodes[i].moves;
    return CALM_US + bytes_max / BYTES_PER_US + (moves > 0 && sim->memory_is_short ? 4 * KEEPALIVE_US : 0);
}

static void live(struct sim *sim)
{
    run_until(sim, sim->faults_end_us, NULL);
    sim_fault_end(sim);
    run_until(sim, sim->now_us + calm_us(sim), all_over);
    uint64_t over_us = sim->now_us - sim->faults_end_us;
    if (!sim->failed && sim->work.steady && all_over(sim))
        check_use(sim);
    if (!sim->failed && !all_over(sim))
        sim_check_calls(sim);
    if (!sim->failed && !all_over(sim))
        sim_fail(sim, "%u calls were never begun", sim->calls_to_start);
    if (!sim->failed)
        sim_check_calls(sim);
    if (!sim->failed)
        check_counters(sim);
    if (!sim->failed)
        check_memory(sim);
    if (!sim->verbose)
        return;
    print_counters(sim);
    printf(
        "%s: %u servers, %u clients, %llu packets, %llu executions, %u restarts, calm after %llu us, slowest "
        "small call %llu us, trace %016llx\n",
        sim->kind, sim->servers, sim->clients, (unsigned long long)sim->packets,
        (unsigned long long)sim->executions, sim->restarts, (unsigned long long)over_us,
        (unsigned long long)sim->slowest_small_us, (unsigned long long)sim->trace);
}

/* What lasts from run to run is memory only; the rest is as after sim_create(). */
static void reset(struct sim *sim)
{
    memset(&sim->later, 0, sizeof(sim->later));
    memset(&sim->cut_until_us, 0, sizeof(sim->cut_until_us));
    memset(&sim->faults, 0, sizeof(sim->faults));
    memset(&sim->work, 0, sizeof(sim->work));
    sim->now_us = SIM_FIRST_US;
    sim->restarts = sim->later_count = sim->calls_alive = 0;
    sim->may_restart_servers = sim->may_restart_clients = sim->memory_is_short = sim->calm = false;
    sim->changes_paths = false;
    sim->order = sim->trace = sim->packets = sim->executions = sim->slowest_small_us = 0;
    sim->share_from_us = 0;
    sim->share_is_over = false;
    sim->failed = false;
}

bool sim_run(struct sim *sim, uint64_t seed, bool verbose)
{
    reset(sim);
    sim->seed = seed;
    sim->rng.state = seed * UINT64_C(0xD1342543DE82EF95) + 1;
    sim->verbose = verbose;
    sim_draw(sim);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        sim_node_start(&sim->nodes[i]);
    sim_fault_begin(sim);
    if (sim->plays)
        sim_play_next(sim);
    live(sim);
    sim_net_end(sim);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        mr_endpoint_destroy(sim->nodes[i].ep);
    return !sim->failed;
}

struct sim *sim_create(void)
{
    struct sim *sim = calloc(1, sizeof(*sim));
    for (uint32_t i = 0; sim != NULL && i < SIM_NODES_MAX; i++) {
        void *memory = mmap(NULL, SIM_MEMORY_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            sim_destroy(sim);
            return NULL;
        }
        sim->nodes[i].memory = memory;
    }
    return sim;
}

void sim_destroy(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++)
        if (sim->nodes[i].memory != NULL)
            (void)munmap(sim->nodes[i].memory, SIM_MEMORY_BYTES);
    sim_net_free(sim);
    free(sim->heap);
    free(sim);
}
