/* What workers do: programs that make, pass, fetch and release, and functions that are called. */
#include <stdlib.h>

#include "refsim.h"

static struct mr_references *refs_of(struct refsim *sim, uint32_t worker)
{
    return sim->worker[worker].refs;
}

static uint32_t draw_worker(struct refsim *sim)
{
    return (uint32_t)sim_below(&sim->rng, sim->workers);
}

/* One of the worker's holds; REFSIM_HOLDS_MAX: it has none. */
static uint32_t draw_hold(struct refsim *sim, uint32_t worker)
{
    uint32_t found = REFSIM_HOLDS_MAX, count = 0;
    for (uint32_t i = 0; i < sim->hold_count; i++)
        if (sim->holds[i].used && !sim->holds[i].asking && sim->holds[i].worker == worker &&
            sim_below(&sim->rng, ++count) == 0)
            found = i;
    return found;
}

static void let_go(struct refsim *sim, uint32_t hold)
{
    struct refsim_hold *h = &sim->holds[hold];
    if (!h->used)
        return;
    h->used = false;
    refsim_log(sim, "worker %u releases value %u", h->worker, h->number);
    if (refs_of(sim, h->worker) != NULL)
        mr_references_release(refs_of(sim, h->worker), h->handle);
}

void refsim_release_all(struct refsim *sim, uint32_t worker)
{
    for (uint32_t i = 0; i < sim->hold_count; i++)
        if (sim->holds[i].worker == worker)
            let_go(sim, i);
}

/* Of a worker's program, or at once given back where there is no more room. */
static void hold(struct refsim *sim, uint32_t worker, struct mr_reference *handle, uint32_t number, bool keep)
{
    struct refsim_event later = {.kind = REFSIM_RELEASE, .from = worker, .to = worker};
    later.hold = refsim_check_held(sim, worker, handle, number);
    if (later.hold == REFSIM_HOLDS_MAX)
        mr_references_release(refs_of(sim, worker), handle);
    else
        later.serial = sim->holds[later.hold].serial;
    if (later.serial != 0 && !keep)
        refsim_at(sim, sim->now_us + sim_below(&sim->rng, 2 * sim->delay_us + 1), &later);
}

/* A value may hold an older reference of its owner's. */
static void refsim_program_fill(struct refsim *sim, struct refsim_value *value)
{
    uint32_t inner = draw_hold(sim, value->owner);
    value->fulfilled = true;
    if (inner == REFSIM_HOLDS_MAX || sim->holds[inner].number >= value->number ||
        !sim_chance(&sim->rng, sim->inner_ppm))
        return;
    value->inner = sim->holds[inner].handle;
    value->inner_number = sim->holds[inner].number;
    value->inner->count++;
}

void refsim_on_free(void *self, void *what)
{
    struct refsim_worker *worker = self;
    struct refsim_value *value = what;
    struct mr_reference *inner = value->inner;
    value->inner = NULL;
    if (!worker->stopping)
        refsim_check_freed(worker->sim, worker->rank, value);
    if (inner != NULL)
        mr_references_release(worker->refs, inner);
}

/* ---- making ---- */

static void make_later(struct refsim *sim, const struct refsim_value *value)
{
    struct refsim_event made = {
        .kind = REFSIM_MADE, .from = value->owner, .to = value->owner, .number = value->number};
    refsim_at(sim, sim->now_us + sim_below(&sim->rng, 3 * sim->delay_us + 1), &made);
}

static void made(struct refsim *sim, const struct refsim_event *event)
{
    struct refsim_value *value = &sim->values[event->number];
    struct mr_references *refs = refs_of(sim, event->to);
    if (refs == NULL)
        return;
    refsim_program_fill(sim, value);
    if (mr_references_fulfil(refs, value->reference, value))
        return;
    value->freed = true; /* nobody wants it */
    if (value->inner != NULL)
        mr_references_release(refs, value->inner);
    value->inner = NULL;
}

static void make_own(struct refsim *sim, uint32_t worker)
{
    bool later = sim_chance(&sim->rng, 300000);
    struct refsim_value *value = refsim_check_new(sim, worker, worker);
    if (value == NULL)
        return;
    if (!later)
        refsim_program_fill(sim, value);
    struct mr_reference *handle = mr_references_own(
        refs_of(sim, worker), mr_references_new_id(refs_of(sim, worker)), later ? NULL : value);
    value->reference = handle->id;
    refsim_log(sim, "worker %u makes value %u, reference %llx", worker, value->number,
               (unsigned long long)handle->id);
    hold(sim, worker, handle, value->number, true);
    if (later)
        make_later(sim, value);
}

/* ---- calls ---- */

/* Up to n tickets of what the worker holds. */
static void pass_some(struct refsim *sim, struct refsim_event *call, uint32_t n)
{
    for (uint32_t i = 0; i < n && call->ticket_count < REFSIM_TICKETS_MAX; i++) {
        uint32_t at = draw_hold(sim, call->from);
        if (at == REFSIM_HOLDS_MAX)
            return;
        enum mr_status status = mr_references_pass(refs_of(sim, call->from), sim->holds[at].handle, call->to,
                                                   &call->tickets[call->ticket_count]);
        if (status == MR_OK) {
            refsim_log(sim, "worker %u passes value %u to %u as fork %llx", call->from, sim->holds[at].number,
                       call->to, (unsigned long long)call->tickets[call->ticket_count].fork);
            call->numbers[call->ticket_count++] = sim->holds[at].number;
        }
    }
}

static void make_remote(struct refsim *sim, uint32_t worker, struct refsim_event *call)
{
    struct mr_reference *handle;
    struct mr_references *refs = refs_of(sim, worker);
    if (refs->peers[call->to].dead)
        return;
    struct refsim_value *value = refsim_check_new(sim, call->to, worker);
    call->tickets[0] =
        (struct mr_reference_ticket){call->to, mr_references_new_id(refs), mr_references_new_id(refs)};
    if (value == NULL || mr_references_remote(refs, call->tickets, &handle) != MR_OK)
        return;
    value->reference = handle->id;
    call->remote = true;
    call->numbers[0] = value->number;
    call->ticket_count = 1;
    refsim_log(sim, "worker %u has %u make value %u, reference %llx", worker, call->to, value->number,
               (unsigned long long)handle->id);
    if (sim_chance(&sim->rng, sim->fail_ppm / 4)) { /* it never leaves */
        mr_references_remote_failed(refs_of(sim, worker), handle, MR_TOO_LARGE);
        mr_references_release(refs_of(sim, worker), handle);
        call->ticket_count = 0;
        call->remote = false;
        return;
    }
    hold(sim, worker, handle, value->number, sim_chance(&sim->rng, 700000));
}

static void make_call(struct refsim *sim, uint32_t worker)
{
    struct refsim_event call = {.kind = REFSIM_CALL, .from = worker, .to = draw_worker(sim)};
    if (call.to != worker && sim_chance(&sim->rng, 300000))
        make_remote(sim, worker, &call);
    pass_some(sim, &call, (uint32_t)sim_below(&sim->rng, REFSIM_TICKETS_MAX));
    if (call.ticket_count == 0)
        return;
    if (!call.remote && sim_chance(&sim->rng, sim->fail_ppm)) {
        for (uint32_t i = 0; i < call.ticket_count; i++)
            mr_references_unpass(refs_of(sim, worker), &call.tickets[i]);
        return;
    }
    refsim_carry(sim, &call);
}

/* To a third, or a fourth: not to the owner. And perhaps the worker dies then. */
static void relay_on(struct refsim *sim, uint32_t worker, struct mr_reference *handle, uint32_t number)
{
    struct refsim_event call = {.kind = REFSIM_CALL,
                                .from = worker,
                                .to = (uint32_t)sim_between(&sim->rng, 1, sim->workers - 1),
                                .ticket_count = 1,
                                .numbers = {number}};
    if (mr_references_pass(refs_of(sim, worker), handle, call.to, &call.tickets[0]) != MR_OK)
        return;
    refsim_log(sim, "worker %u passes value %u on to %u as fork %llx", worker, number, call.to,
               (unsigned long long)call.tickets[0].fork);
    refsim_carry(sim, &call);
    if (sim->deaths_left == 0 || !sim_chance(&sim->rng, 200000))
        return;
    struct refsim_event death = {.kind = sim_chance(&sim->rng, 800000) ? REFSIM_CRASH : REFSIM_FENCE,
                                 .to = worker};
    sim->deaths_left--;
    refsim_at(sim, sim->now_us + sim_below(&sim->rng, 2 * sim->delay_us), &death);
}

static void take_all(struct refsim *sim, const struct refsim_event *call)
{
    struct mr_references *refs = refs_of(sim, call->to);
    for (uint32_t i = call->remote ? 1 : 0; i < call->ticket_count; i++) {
        struct mr_reference *handle;
        enum mr_status status = mr_references_take(refs, call->from, &call->tickets[i], &handle);
        if (status != MR_OK) {
            refsim_fail(sim, "worker %u could not take value %u: %s", call->to, call->numbers[i],
                        mr_status_name(status));
            return;
        }
        refsim_log(sim, "worker %u takes value %u from %u", call->to, call->numbers[i], call->from);
        refsim_check_taken(sim, call->to, handle, call->numbers[i]);
        bool relay = sim->relay && call->to != handle->owner && !sim->calm && sim_chance(&sim->rng, 700000);
        if (relay)
            relay_on(sim, call->to, handle, call->numbers[i]);
        hold(sim, call->to, handle, call->numbers[i],
             sim_chance(&sim->rng, sim->keep_ppm) && !sim->calm && !relay);
    }
}

static void call_arrives(struct refsim *sim, const struct refsim_event *call)
{
    struct refsim_event reply = {.kind = REFSIM_REPLY, .from = call->to, .to = call->from};
    bool run = false;
    if (refsim_deaf(sim, call->from, call->to))
        return;
    take_all(sim, call);
    if (call->remote) {
        enum mr_status status =
            mr_references_remote_arrived(refs_of(sim, call->to), call->from, &call->tickets[0], &run);
        if (status != MR_OK || !run)
            refsim_fail(sim, "worker %u does not make value %u", call->to, call->numbers[0]);
        make_later(sim, &sim->values[call->numbers[0]]);
    } else if (!sim->calm && !sim->relay) {
        pass_some(sim, &reply, (uint32_t)sim_below(&sim->rng, 3));
        if (reply.ticket_count > 0)
            refsim_carry(sim, &reply);
    }
}

/* ---- asking ---- */

static void refsim_program_answer(struct refsim *sim, const struct refsim_waiter *w, enum mr_status status)
{
    struct refsim_event fetched = {.kind = REFSIM_FETCHED,
                                   .from = w->worker,
                                   .to = w->from,
                                   .number = w->number,
                                   .hold = w->hold,
                                   .serial = w->serial,
                                   .status = status};
    if (w->from != w->worker)
        refsim_carry(sim, &fetched);
}

static void on_waited(struct mr_reference_waiter *waiter, enum mr_status status, void *value)
{
    struct refsim_waiter *w = (struct refsim_waiter *)(void *)waiter;
    w->done = true;
    if (w->sim->worker[w->worker].stopping)
        return;
    refsim_check_waited(w->sim, w, status, value);
    refsim_program_answer(w->sim, w, status);
    if (w->from == w->worker && w->sim->holds[w->hold].serial == w->serial)
        let_go(w->sim, w->hold);
}

static struct refsim_waiter *wait_for(struct refsim *sim, uint32_t worker, uint32_t from, uint32_t number)
{
    struct refsim_waiter *w = calloc(1, sizeof(*w));
    if (w == NULL)
        abort();
    *w = (struct refsim_waiter){.waiter.run = on_waited, .sim = sim, .next = sim->waiters};
    w->worker = worker;
    w->from = from;
    w->number = number;
    sim->waiters = w;
    return w;
}

/* The hold of a fetch in flight is one of its own, given back when the answer comes. */
static void refsim_program_ask(struct refsim *sim, uint32_t worker)
{
    uint32_t of = draw_hold(sim, worker);
    if (of == REFSIM_HOLDS_MAX)
        return;
    struct mr_reference *handle = sim->holds[of].handle;
    uint32_t number = sim->holds[of].number;
    uint32_t at = refsim_check_held(sim, worker, handle, number);
    if (at == REFSIM_HOLDS_MAX)
        return;
    handle->count++;
    sim->holds[at].asking = true;
    refsim_log(sim, "worker %u asks for value %u", worker, number);
    if (handle->owned != NULL || sim_chance(&sim->rng, 200000)) {
        struct refsim_waiter *w = wait_for(sim, worker, worker, number);
        w->hold = at;
        w->serial = sim->holds[at].serial;
        w->confirmation = handle->owned == NULL;
        if (w->confirmation)
            mr_references_wait_confirmed(refs_of(sim, worker), handle, &w->waiter);
        else
            mr_references_wait_value(refs_of(sim, worker), handle, &w->waiter);
        return;
    }
    struct refsim_event fetch = {.kind = REFSIM_FETCH,
                                 .from = worker,
                                 .to = handle->owner,
                                 .number = number,
                                 .hold = at,
                                 .serial = sim->holds[at].serial,
                                 .tickets = {{handle->owner, handle->id, handle->by_fork.id}}};
    if (handle->status == MR_OK)
        refsim_carry(sim, &fetch);
    else
        let_go(sim, at);
}

static void fetch_arrives(struct refsim *sim, const struct refsim_event *fetch)
{
    if (refsim_deaf(sim, fetch->from, fetch->to))
        return;
    struct refsim_waiter *w = wait_for(sim, fetch->to, fetch->from, fetch->number);
    w->again = fetch->again;
    w->hold = fetch->hold;
    w->serial = fetch->serial;
    if (mr_references_fetch(refs_of(sim, fetch->to), fetch->from, &fetch->tickets[0], &w->waiter) == MR_OK)
        return;
    w->done = true;
    refsim_fail(sim, "worker %u refused a fetch of value %u by %u", fetch->to, fetch->number, fetch->from);
}

/* The hold may have gone before: with another answer, or because everything was let go. */
static void let_go_if(struct refsim *sim, const struct refsim_event *event)
{
    const struct refsim_hold *h = &sim->holds[event->hold];
    if (h->used && h->serial == event->serial)
        let_go(sim, event->hold);
}

/* ---- all of it ---- */

void refsim_step(struct refsim *sim, uint32_t worker)
{
    uint64_t what = sim_below(&sim->rng, 100);
    if (sim->relay && (worker == 0 ? what < 50 : what >= 70))
        worker = 0; /* its values are what the world is about */
    if (refs_of(sim, worker) == NULL)
        return;
    uint32_t some = draw_hold(sim, worker);
    if (what < 20)
        make_own(sim, worker);
    else if (what < 70)
        make_call(sim, worker);
    else if (what < 85)
        refsim_program_ask(sim, worker);
    else if (some != REFSIM_HOLDS_MAX)
        let_go(sim, some);
}

void refsim_happen(struct refsim *sim, const struct refsim_event *event)
{
    switch (event->kind) {
    case REFSIM_STEP:
        refsim_step(sim, event->to);
        break;
    case REFSIM_CALL:
        call_arrives(sim, event);
        break;
    case REFSIM_REPLY:
        if (!refsim_deaf(sim, event->from, event->to))
            take_all(sim, event);
        break;
    case REFSIM_FETCH:
        fetch_arrives(sim, event);
        break;
    case REFSIM_FETCHED:
    case REFSIM_RELEASE:
        let_go_if(sim, event);
        break;
    case REFSIM_MADE:
        made(sim, event);
        break;
    default:
        break;
    }
}
