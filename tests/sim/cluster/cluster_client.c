/* A client: trains step after step, a push to each partition in each, keeps what is in no checkpoint yet, and
 * sends it again to whoever comes to own the partition. It knows no coordinator: nodes tell it the map. */
#include <string.h>
#include "cluster_world.h"

#define RETRY_US 20000u

static uint32_t party(uint32_t c)
{
    return NODES_MAX + c;
}

static void ask_map(struct world *w, uint32_t c)
{
    send_message(w, (struct message){.kind = CALL_MAP,
                                     .from = party(c),
                                     .to = (uint32_t)sim_below(&w->rng, w->node_count)});
}

/* The node's number of an owner in the map: names are numbers. */
static uint32_t node_of(const struct ps_cluster_map *map, uint32_t owner)
{
    return (uint32_t)(map->nodes[owner].name[0] - 'a');
}

/* The next push that the partition lacks, as far as the client knows. */
static void send_push(struct world *w, uint32_t c, uint32_t p)
{
    struct client *client = &w->clients[c];
    const struct ps_cluster_map *map = &w->maps[client->epoch];
    if (map->owner[p] == PS_CLUSTER_NO_NODE || client->acked[p] >= client->step)
        return;
    send_message(w, (struct message){.kind = CALL_PUSH,
                                     .from = party(c),
                                     .to = node_of(map, map->owner[p]),
                                     .partition = p,
                                     .step = (uint8_t)(client->acked[p] + 1),
                                     .grant = client->grant[p],
                                     .start_id = client->start_id[p]});
}

static void send_lookup(struct world *w, uint32_t c, uint32_t p)
{
    struct client *client = &w->clients[c];
    const struct ps_cluster_map *map = &w->maps[client->epoch];
    /* not before the owner has all that this client pushed: its own kept pushes go first */
    if (map->owner[p] == PS_CLUSTER_NO_NODE || client->acked[p] + 1u < client->step)
        return;
    send_message(w, (struct message){.kind = CALL_LOOKUP,
                                     .from = party(c),
                                     .to = node_of(map, map->owner[p]),
                                     .partition = p,
                                     .step = client->acked[p],
                                     .grant = client->grant[p],
                                     .start_id = client->start_id[p]});
}

static void take_map(struct world *w, uint32_t c, uint64_t epoch)
{
    struct client *client = &w->clients[c];
    if (epoch <= client->epoch)
        return;
    const struct ps_cluster_map *map = &w->maps[epoch];
    client->epoch = epoch;
    if (map->committed_step > client->durable)
        client->durable = (uint32_t)map->committed_step;
    for (uint32_t p = 0; p < w->partition_count; p++) {
        if (map->owner[p] == PS_CLUSTER_NO_NODE)
            continue;
        const uint64_t start_id = map->nodes[map->owner[p]].start_id;
        if (client->grant[p] == map->grant[p] && client->start_id[p] == start_id)
            continue;
        w->counts.replayed += client->grant[p] != 0 && client->acked[p] > client->durable;
        client->grant[p] = map->grant[p];
        client->start_id[p] = start_id;
        client->acked[p] = (uint8_t)client->durable; /* what it kept goes there again, in order */
    }
}

/* A step ends when every partition has its push. */
static void go_on(struct world *w, uint32_t c)
{
    struct client *client = &w->clients[c];
    for (uint32_t p = 0; p < w->partition_count; p++)
        if (client->acked[p] < client->step)
            return;
    if (client->step == w->steps || w->now_us < client->next_step_us)
        return;
    client->next_step_us = w->now_us + sim_below(&w->rng, w->computing_us_max);
    client->step++;
    for (uint32_t p = 0; p < w->partition_count; p++)
        send_push(w, c, p);
    send_lookup(w, c, (uint32_t)sim_below(&w->rng, w->partition_count));
}

bool client_is_done(const struct world *w, uint32_t c)
{
    const struct client *client = &w->clients[c];
    for (uint32_t p = 0; p < w->partition_count; p++)
        if (client->acked[p] < w->steps)
            return false;
    return true;
}

void client_start(struct world *w, uint32_t c)
{
    w->clients[c].step = 1;
    post(w, (struct message){.kind = TICK, .to = party(c)}, sim_below(&w->rng, RETRY_US));
}

static void take_reply(struct world *w, uint32_t c, const struct message *m)
{
    struct client *client = &w->clients[c];
    const uint32_t p = m->partition;
    if (m->grant != client->grant[p] || m->start_id != client->start_id[p])
        return; /* of an owner before this one */
    switch ((enum call_status)m->status) {
    case CALL_OK:
        if (m->number == CALL_LOOKUP) {
            client->lookups++;
            if (m->upto[c] < m->step)
                fail(w, "client %u sees partition %u at %u, and has had %u applied", c, p, m->upto[c],
                     m->step);
        } else if (m->step == client->acked[p] + 1) {
            client->acked[p] = m->step;
            if (client->acked[p] < client->step)
                send_push(w, c, p);
            go_on(w, c);
        }
        break;
    case CALL_GAP:
        if (m->upto[c] < client->durable)
            fail(w, "partition %u lacks pushes after %u, which client %u no longer keeps", p, m->upto[c], c);
        client->acked[p] = m->upto[c];
        send_push(w, c, p);
        break;
    case CALL_OTHER_OWNER:
        ask_map(w, c);
        break;
    case CALL_WAIT:
        break;
    }
}

void client_receive(struct world *w, const struct message *m)
{
    const uint32_t c = m->to - NODES_MAX;
    if (m->kind == REPLY_MAP) {
        take_map(w, c, m->epoch);
    } else if (m->kind == REPLY_CALL) {
        take_reply(w, c, m);
    } else if (m->kind == FEATURES_TICK || m->kind == REPLY_FEATURES) {
        features_client_receive(w, c, m);
    } else if (m->kind == TICK) {
        if (sim_chance(&w->rng, 50000) || w->clients[c].epoch == 0)
            ask_map(w, c);
        for (uint32_t p = 0; p < w->partition_count; p++)
            send_push(w, c, p);
        send_lookup(w, c, (uint32_t)sim_below(&w->rng, w->partition_count));
        go_on(w, c);
        post(w, (struct message){.kind = TICK, .to = party(c)}, RETRY_US / 2 + sim_below(&w->rng, RETRY_US));
    }
}
