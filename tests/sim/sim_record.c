/* Numbered pushes. A server knows them by their numbers and makes each once, whoever brings it how often; its
 * knowledge is in its checkpoints, and it comes back with the last one when it restarts. Clients keep what is
 * in no checkpoint that they have heard of, and bring it again to a server that has restarted. So each is
 * made exactly once, whatever crashes but the client itself. */
#include "sim.h"

bool sim_record_apply(struct sim_call *c)
{
    bool first = !c->applied;
    c->applied = true;
    return first;
}

/* All of this client's pushes to this server up to that number are in the server's last checkpoint. */
uint64_t sim_record_floor(const struct sim *sim, uint32_t server, uint32_t client)
{
    uint64_t floor = UINT64_MAX, last = 0;
    const struct sim_node *node = &sim->nodes[sim->servers + client];
    for (uint32_t i = 0; i < node->calls_started; i++) {
        const struct sim_call *c = &sim->calls[client][i];
        if (c->number == 0 || c->server != server)
            continue;
        last = c->number;
        if (!c->saved && c->number <= floor)
            floor = c->number - 1;
    }
    return floor < last ? floor : last;
}

static void each_push_to(struct sim *sim, uint32_t server, void (*visit)(struct sim_call *c))
{
    for (uint32_t client = 0; client < sim->clients; client++)
        for (uint32_t i = 0; i < sim->nodes[sim->servers + client].calls_started; i++)
            if (sim->calls[client][i].number != 0 && sim->calls[client][i].server == server)
                visit(&sim->calls[client][i]);
}

static void save_sim(struct sim_call *c)
{
    c->saved = c->applied;
}

static void restore(struct sim_call *c)
{
    c->applied = c->saved;
}

void sim_record_save(struct sim *sim, uint32_t server)
{
    sim_log(sim, "server %u saves", server);
    each_push_to(sim, server, save_sim);
}

void sim_record_restore(struct sim *sim, uint32_t server)
{
    each_push_to(sim, server, restore);
}

/* A reply said that all up to `floor` is safe. */
void sim_record_learn(struct sim *sim, const struct sim_call *from, uint64_t floor)
{
    for (uint32_t i = 0; i < sim->nodes[sim->servers + from->client].calls_started; i++) {
        struct sim_call *c = &sim->calls[from->client][i];
        if (c->number == 0 || c->number > floor || c->server != from->server)
            continue;
        if (!c->saved)
            sim_fail(sim, "client %u was told that call %u, push %llu, is safe, and it is not", c->client,
                     c->serial, (unsigned long long)c->number);
        c->known_safe = true;
    }
}

/* At the end, with all clients having heard of all restarts for long. */
void sim_record_check(struct sim *sim)
{
    for (uint32_t client = 0; client < sim->clients; client++) {
        const struct sim_node *node = &sim->nodes[sim->servers + client];
        for (uint32_t i = 0; i < node->calls_started; i++) {
            const struct sim_call *c = &sim->calls[client][i];
            if (c->number != 0 && c->life == node->life && !c->applied)
                sim_fail(sim, "client %u call %u, push %llu, is lost", client, i,
                         (unsigned long long)c->number);
        }
    }
}
