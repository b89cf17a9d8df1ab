/* Who gets how much. Between sessions: one link carries what all clients want, one of which asks for many
 * things at once, and another comes late. And within a session: calls of the lowest priority go on beside a
 * stream of the highest. */
#include "sim.h"

#define SETTLES_US    300000u /* a latecomer has its share by then */
#define MEASURE_US    250000u /* nothing is said of less */
#define SHARE_FACTOR  2u      /* that the most has of the least */
#define USE_FACTOR    2u      /* that the link could carry of what it does */
#define LOW_EVERY     20u     /* calls of a stream */
#define HIGHEST       7u
#define OVERTAKEN_MAX 32u

/* ---- between sessions ---- */

static struct sim_node *client(struct sim *sim, uint32_t i)
{
    return &sim->nodes[sim->servers + i];
}

uint64_t sim_share_begins_us(struct sim *sim, uint32_t i)
{
    if (i + 1 < sim->clients)
        return sim_below(&sim->rng, 5000);
    const uint64_t late_us = sim_between(&sim->rng, 20000, 200000);
    sim_at(sim, SIM_FIRST_US + late_us + SETTLES_US, SIM_SHARE, 0, NULL);
    return late_us;
}

uint32_t sim_share_waiting(const struct sim *sim, uint32_t i)
{
    return i > 0 ? sim->work.waiting_max : SIM_CALLS_MAX;
}

void sim_share_settled(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->clients; i++)
        client(sim, i)->share_from_bytes = client(sim, i)->carried_bytes;
    sim->share_from_us = sim->now_us;
}

/* The first client wants nothing more. */
void sim_share_over(struct sim *sim)
{
    uint64_t least = UINT64_MAX, most = 0, all = 0;
    if (!sim->work.shared || sim->share_is_over)
        return;
    sim->share_is_over = true;
    if (sim->share_from_us == 0 || sim->now_us - sim->share_from_us < MEASURE_US)
        return;
    for (uint32_t i = 0; i < sim->clients; i++) {
        const uint64_t bytes = client(sim, i)->carried_bytes - client(sim, i)->share_from_bytes;
        sim_log(sim, "client %u: %llu bytes in %llu us", i, (unsigned long long)bytes,
                (unsigned long long)(sim->now_us - sim->share_from_us));
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
        all += bytes;
    }
    const uint64_t carries = (sim->now_us - sim->share_from_us) * sim->nodes[0].link.bytes_per_ms / 1000;
    sim_log(sim, "all: %llu of %llu bytes", (unsigned long long)all, (unsigned long long)carries);
    if (all < carries / USE_FACTOR)
        sim_fail(sim, "a link that carries %llu bytes was used for %llu", (unsigned long long)carries,
                 (unsigned long long)all);
    if (most > SHARE_FACTOR * least)
        sim_fail(sim, "of one link a client got %llu bytes, and another %llu", (unsigned long long)most,
                 (unsigned long long)least);
}

/* ---- within a session ---- */

uint8_t sim_stream_priority(uint32_t serial)
{
    return serial % LOW_EVERY == LOW_EVERY / 2 ? 0 : HIGHEST;
}

/* A call of a stream has ended: those of low priority that were begun before it were overtaken. */
void sim_stream_ended(struct sim *sim, const struct sim_call *ended)
{
    struct sim_call *calls = sim->calls[ended->client];
    if (sim->work.stream && ended->priority == 0)
        sim_log(sim, "client %u: call %u was overtaken by %u", ended->client, ended->serial,
                ended->overtaken);
    if (!sim->work.stream || ended->priority == 0)
        return;
    for (uint32_t i = 0; i < ended->serial; i++) {
        struct sim_call *c = &calls[i];
        if (c->priority == 0 && !c->ended && ++c->overtaken > OVERTAKEN_MAX)
            sim_fail(sim, "client %u call %u, of low priority, was overtaken by %u of high priority",
                     c->client, i, c->overtaken);
    }
}
