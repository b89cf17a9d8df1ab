/* One run: a world drawn from the seed, its clock, its network, deaths, and its end. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "refsim.h"

#define EVENTS_MAX 2000000u

/* ---- reports ---- */

void refsim_fail(struct refsim *sim, const char *format, ...)
{
    if (sim->failed)
        return;
    sim->failed = true;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sim->why, sizeof(sim->why), format, args);
    va_end(args);
    refsim_log(sim, "FAILED: %s", sim->why);
}

void refsim_log_line(const struct refsim *sim, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%10llu ", (unsigned long long)sim->now_us);
    (void)vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* ---- events: a binary heap ---- */

static bool earlier(const struct refsim_event *a, const struct refsim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

void refsim_at(struct refsim *sim, uint64_t at_us, const struct refsim_event *event)
{
    struct refsim_event *copy = malloc(sizeof(*copy));
    if (sim->heap_count == sim->heap_room) {
        uint32_t room = sim->heap_room * 2 + 256;
        struct refsim_event **heap = realloc(sim->heap, room * sizeof(struct refsim_event *));
        if (heap == NULL)
            abort();
        sim->heap = heap;
        sim->heap_room = room;
    }
    if (copy == NULL)
        abort();
    *copy = *event;
    copy->at_us = at_us;
    copy->order = sim->order++;
    uint32_t at = sim->heap_count++;
    for (; at > 0 && earlier(copy, sim->heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim->heap[at] = sim->heap[(at - 1) / 2];
    sim->heap[at] = copy;
}

static struct refsim_event *next_event(struct refsim *sim)
{
    if (sim->heap_count == 0)
        return NULL;
    struct refsim_event *first = sim->heap[0], *last = sim->heap[--sim->heap_count];
    uint32_t at = 0, count = sim->heap_count;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < count && earlier(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (child >= count || earlier(last, sim->heap[child]))
            break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    if (count > 0)
        sim->heap[at] = last;
    return first;
}

/* ---- the network ---- */

/* Lost packets are sent again until they arrive: to the receiver they are late. */
static uint64_t delay(struct refsim *sim, bool slow)
{
    uint64_t late_us = 0;
    while (sim_chance(&sim->rng, sim->late_ppm))
        late_us += sim->late_us;
    if (sim->relay && slow && sim_chance(&sim->rng, 500000))
        late_us += sim_below(&sim->rng, 30 * sim->late_us);
    return 1 + sim_below(&sim->rng, sim->delay_us) + late_us;
}

void refsim_carry(struct refsim *sim, const struct refsim_event *event)
{
    struct refsim_event copy = *event;
    bool may = event->kind == REFSIM_MESSAGE || event->kind == REFSIM_FETCH;
    bool slow = event->kind == REFSIM_MESSAGE && event->message.kind <= MR_REFERENCE_ACCEPTED;
    uint32_t copies = 1;
    while (may && copies < 4 && sim_chance(&sim->rng, sim->repeat_ppm))
        copies++;
    copy.again |= copies > 1;
    for (uint32_t i = 0; i < copies; i++)
        refsim_at(sim, sim->now_us + delay(sim, slow) + (i > 0 ? sim_below(&sim->rng, 20 * sim->late_us) : 0),
                  &copy);
}

bool refsim_deaf(const struct refsim *sim, uint32_t from, uint32_t to)
{
    const struct mr_references *refs = sim->worker[to].refs;
    return refs == NULL || (from != to && refs->peers[from].dead);
}

static void on_send(void *self, uint32_t to, const struct mr_reference_message *message)
{
    struct refsim_worker *worker = self;
    struct refsim_event event = {.kind = REFSIM_MESSAGE, .from = worker->rank, .to = to, .message = *message};
    if (worker->stopping)
        return;
    refsim_log(worker->sim, "worker %u sends to %u: kind %u rank %u reference %llx fork %llx", worker->rank,
               to, message->kind, message->rank, (unsigned long long)message->reference,
               (unsigned long long)message->fork);
    refsim_carry(worker->sim, &event);
}

/* ---- deaths ---- */

static void tell_of_death(struct refsim *sim, uint32_t rank)
{
    for (uint32_t other = 0; other < sim->workers; other++) {
        struct refsim_event notice = {.kind = REFSIM_NOTICE, .from = rank, .to = other};
        uint64_t within_us = sim_chance(&sim->rng, 500000) ? sim->delay_us : 10 * sim->late_us;
        if (other != rank)
            refsim_at(sim, sim->now_us + 1 + sim_below(&sim->rng, within_us), &notice);
    }
}

/* Of what it sent and has not arrived, some never will: nobody sends it again. */
static void lose_what_was_sent(struct refsim *sim, uint32_t rank)
{
    for (uint32_t i = 0; i < sim->heap_count; i++) {
        struct refsim_event *event = sim->heap[i];
        if (event->from == rank && event->kind >= REFSIM_MESSAGE && event->kind <= REFSIM_FETCHED &&
            sim_chance(&sim->rng, 500000))
            event->kind = REFSIM_KIND_COUNT;
    }
}

static void die(struct refsim *sim, uint32_t rank, bool crash)
{
    struct refsim_worker *worker = &sim->worker[rank];
    if (worker->refs == NULL || worker->dead)
        return;
    worker->dead = true;
    if (crash) {
        worker->stopping = true;
        mr_references_destroy(worker->refs);
        worker->refs = NULL;
        lose_what_was_sent(sim, rank);
    }
    tell_of_death(sim, rank);
}

static void happen(struct refsim *sim, const struct refsim_event *event)
{
    struct refsim_worker *to = &sim->worker[event->to];
    switch (event->kind) {
    case REFSIM_MESSAGE:
        if (to->refs != NULL && mr_references_receive(to->refs, event->from, &event->message) != MR_OK)
            refsim_fail(sim, "worker %u refused a message of kind %u from %u", event->to, event->message.kind,
                        event->from);
        break;
    case REFSIM_CRASH:
    case REFSIM_FENCE:
        refsim_log(sim, "worker %u %s", event->to,
                   event->kind == REFSIM_CRASH ? "crashes" : "is taken for dead");
        die(sim, event->to, event->kind == REFSIM_CRASH);
        break;
    case REFSIM_NOTICE:
        refsim_log(sim, "worker %u hears that %u is dead", event->to, event->from);
        if (to->refs != NULL)
            mr_references_died(to->refs, event->from);
        break;
    case REFSIM_KIND_COUNT:
        break;
    default:
        refsim_happen(sim, event);
    }
}

/* ---- a run ---- */

static void draw(struct refsim *sim)
{
    struct sim_rng *rng = &sim->rng;
    sim->workers = (uint32_t)sim_between(rng, 2, REFSIM_WORKERS_MAX);
    sim->steps_left =
        (uint32_t)(sim_chance(rng, 700000) ? sim_between(rng, 5, 60) : sim_between(rng, 60, 400));
    sim->delay_us = sim_chance(rng, 500000) ? 10 : 1000;
    sim->gap_us = sim_chance(rng, 500000) ? 20 : 500;
    sim->late_us = sim_between(rng, 50, 3000);
    sim->late_ppm = sim_chance(rng, 700000) ? (uint32_t)sim_below(rng, 500000) : 0;
    sim->repeat_ppm = sim_chance(rng, 500000) ? (uint32_t)sim_below(rng, 500000) : 0;
    sim->fail_ppm = sim_chance(rng, 300000) ? (uint32_t)sim_below(rng, 200000) : 0;
    sim->inner_ppm = sim_chance(rng, 500000) ? (uint32_t)sim_below(rng, 500000) : 0;
    sim->keep_ppm = (uint32_t)sim_below(rng, 1000000);
    sim->relay = sim_chance(rng, 300000);
    sim->deaths_left =
        sim->relay || sim_chance(rng, 600000) ? (uint32_t)sim_between(rng, 1, sim->workers - 1) : 0;
}

static void refsim_world_begin(struct refsim *sim)
{
    uint64_t length_us = sim->gap_us * sim->steps_left + 1;
    for (uint32_t rank = 0; rank < sim->workers; rank++) {
        struct refsim_worker *worker = &sim->worker[rank];
        *worker = (struct refsim_worker){.sim = sim, .rank = rank};
        struct mr_references_config config = {rank, sim->workers, false, worker, on_send, refsim_on_free};
        if (mr_references_create(&config, &worker->refs) != MR_OK)
            abort();
    }
    for (uint32_t i = 0; i < sim->steps_left; i++) {
        struct refsim_event step = {.kind = REFSIM_STEP, .to = (uint32_t)sim_below(&sim->rng, sim->workers)};
        refsim_at(sim, 1 + sim_below(&sim->rng, length_us), &step);
    }
    for (uint32_t i = 0; i < sim->deaths_left && !sim->relay; i++) {
        struct refsim_event death = {.kind = sim_chance(&sim->rng, 700000) ? REFSIM_CRASH : REFSIM_FENCE,
                                     .to = (uint32_t)sim_below(&sim->rng, sim->workers)};
        refsim_at(sim, 1 + sim_below(&sim->rng, length_us + 5 * sim->late_us), &death);
    }
}

static void run_events(struct refsim *sim)
{
    struct refsim_event *event;
    while (!sim->failed && (event = next_event(sim)) != NULL) {
        sim->now_us = event->at_us;
        sim->trace = (sim->trace ^ (sim->now_us + event->kind * 31u + event->from * 7u + event->to)) *
                     UINT64_C(0x100000001B3);
        happen(sim, event);
        free(event);
        if (++sim->events == EVENTS_MAX)
            refsim_fail(sim, "it does not come to an end");
    }
}

static void refsim_world_end(struct refsim *sim)
{
    struct refsim_event *event;
    while ((event = next_event(sim)) != NULL)
        free(event);
    for (uint32_t rank = 0; rank < sim->workers; rank++) {
        sim->worker[rank].stopping = true;
        mr_references_destroy(sim->worker[rank].refs);
        sim->worker[rank].refs = NULL;
    }
    while (sim->waiters != NULL) {
        struct refsim_waiter *waiter = sim->waiters;
        sim->waiters = waiter->next;
        free(waiter);
    }
}

bool refsim_run(struct refsim *sim, uint64_t seed, bool verbose)
{
    struct refsim_event **heap = sim->heap;
    uint32_t room = sim->heap_room;
    memset(sim, 0, sizeof(*sim));
    sim->heap = heap;
    sim->heap_room = room;
    sim->seed = sim->rng.state = seed;
    sim->verbose = verbose;
    draw(sim);
    refsim_world_begin(sim);
    run_events(sim); /* until all is quiet */
    sim->calm = true;
    for (uint32_t rank = 0; rank < sim->workers; rank++)
        refsim_release_all(sim, rank);
    run_events(sim);
    if (!sim->failed)
        refsim_check_end(sim);
    refsim_world_end(sim);
    return !sim->failed;
}

struct refsim *refsim_create(void)
{
    return calloc(1, sizeof(struct refsim));
}

void refsim_destroy(struct refsim *sim)
{
    free(sim->heap);
    free(sim);
}
