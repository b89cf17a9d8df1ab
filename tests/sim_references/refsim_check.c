/* The model: who holds what, whatever the state machines believe. */
#include "refsim.h"

struct refsim_value *refsim_check_new(struct refsim *sim, uint32_t owner, uint32_t maker)
{
    if (sim->value_count == REFSIM_VALUES_MAX)
        return NULL;
    struct refsim_value *value = &sim->values[sim->value_count];
    *value = (struct refsim_value){.number = sim->value_count++, .owner = owner, .maker = maker};
    return value;
}

uint32_t refsim_check_held(struct refsim *sim, uint32_t worker, struct mr_reference *handle, uint32_t number)
{
    for (uint32_t i = 0; i < REFSIM_HOLDS_MAX; i++) {
        if (sim->holds[i].used)
            continue;
        sim->holds[i] = (struct refsim_hold){true, worker, number, false, ++sim->serial, handle};
        if (i >= sim->hold_count)
            sim->hold_count = i + 1;
        return i;
    }
    return REFSIM_HOLDS_MAX;
}

static bool lives(const struct refsim *sim, uint32_t worker)
{
    return !sim->worker[worker].dead;
}

void refsim_check_taken(struct refsim *sim, uint32_t worker, const struct mr_reference *handle,
                        uint32_t number)
{
    const struct refsim_value *value = &sim->values[number];
    if (!lives(sim, worker) || !lives(sim, value->owner))
        return;
    if (handle->id != value->reference || handle->owner != value->owner)
        refsim_fail(sim, "worker %u got a reference to another value than %u", worker, number);
    if (value->freed)
        refsim_fail(sim, "value %u of worker %u was freed, and a reference to it comes to worker %u", number,
                    value->owner, worker);
}

/* Whether a living worker's program, or a value that it owns, holds it. */
static bool is_held(const struct refsim *sim, uint32_t number, uint32_t *by)
{
    for (uint32_t i = 0; i < sim->hold_count; i++) {
        const struct refsim_hold *hold = &sim->holds[i];
        if (hold->used && hold->number == number && lives(sim, hold->worker)) {
            *by = hold->worker;
            return true;
        }
    }
    for (uint32_t i = 0; i < sim->value_count; i++) {
        const struct refsim_value *outer = &sim->values[i];
        if (outer->inner != NULL && outer->inner_number == number && lives(sim, outer->owner)) {
            *by = outer->owner;
            return true;
        }
    }
    return false;
}

void refsim_check_freed(struct refsim *sim, uint32_t worker, struct refsim_value *value)
{
    uint32_t by = 0;
    refsim_log(sim, "worker %u frees value %u", worker, value->number);
    if (value->freed || !value->fulfilled)
        refsim_fail(sim, "value %u is freed %s", value->number, value->freed ? "twice" : "and was not there");
    value->freed = true;
    if (lives(sim, worker) && is_held(sim, value->number, &by))
        refsim_fail(sim, "worker %u freed value %u, which worker %u holds", worker, value->number, by);
}

void refsim_check_waited(struct refsim *sim, const struct refsim_waiter *w, enum mr_status status,
                         const struct refsim_value *value)
{
    const struct refsim_value *wanted = &sim->values[w->number];
    if (!lives(sim, w->worker) || !lives(sim, w->from) || !lives(sim, wanted->owner))
        return;
    if (w->confirmation) {
        if (status != MR_OK)
            refsim_fail(sim, "confirmation of value %u at worker %u ended with %s", w->number, w->worker,
                        mr_status_name(status));
        return;
    }
    if (status == MR_OK && (value != wanted || !value->fulfilled || value->freed))
        refsim_fail(sim, "worker %u asked for value %u and got %s", w->from, w->number,
                    value == wanted ? "it when it was not there" : "another");
    /* A fetch that comes again may find the value gone; what a dead worker was to have made may never
     * come. */
    if (status != MR_OK && !(status == MR_CANCELLED && w->again) &&
        !(status == MR_WORKER_DIED && !lives(sim, wanted->maker)))
        refsim_fail(sim, "worker %u asked for value %u: %s", w->from, w->number, mr_status_name(status));
}

static void check_worker(struct refsim *sim, uint32_t rank)
{
    struct mr_references_counts counts;
    mr_references_counts(sim->worker[rank].refs, &counts);
    refsim_log(sim, "worker %u: %u values, %u forks, %u holds, %u children, %u settling", rank, counts.values,
               counts.forks, counts.holds, counts.children, counts.settling);
    if (counts.values + counts.forks + counts.holds + counts.children + counts.settling != 0)
        refsim_fail(sim, "worker %u is left with %u values, %u forks, %u holds, %u children, %u to settle",
                    rank, counts.values, counts.forks, counts.holds, counts.children, counts.settling);
}

void refsim_check_end(struct refsim *sim)
{
    for (uint32_t rank = 0; rank < sim->workers; rank++)
        if (lives(sim, rank))
            check_worker(sim, rank);
    for (uint32_t i = 0; i < sim->value_count; i++)
        if (lives(sim, sim->values[i].owner) && sim->values[i].fulfilled && !sim->values[i].freed)
            refsim_fail(sim, "value %u of worker %u is never freed", i, sim->values[i].owner);
    for (const struct refsim_waiter *w = sim->waiters; w != NULL; w = w->next)
        if (!w->done && lives(sim, w->worker))
            refsim_fail(sim, "worker %u waits for value %u for ever", w->from, w->number);
}
