/* Somebody on the path has kept packets that were taken in, of every type, and plays them again at any time,
 * to the end of the run: nothing may come of that. They execute nothing and end nothing, hold no memory and
 * no session, and are not counted as packets of a session. So sessions end all the same, and all checks of
 * the run hold. */
#include <string.h>

#include "sim.h"
#include "session_count.h"

#define EVERY_SHIFT_LOW  9u  /* from half a millisecond */
#define EVERY_SHIFT_HIGH 19u /* to half a second */

static uint64_t drops(const struct mr_wire_counters *c)
{
    uint64_t sum = 0;
#define ADD_DROP(name, kind, unit, help) sum += c->name;
    MR_DROP_LIST(ADD_DROP)
#undef ADD_DROP
    return sum;
}

void sim_play_keep(struct sim_node *node, const struct sim_packet *packet,
                   const struct mr_wire_counters *before)
{
    struct sim *sim = node->sim;
    if (packet->bytes < MR_HEADER_BYTES || packet->data[3] >= MR_PACKET_TYPE_END ||
        drops(mr_endpoint_counters(node->ep)) != drops(before) || !sim_chance(&sim->rng, 200000))
        return;
    struct sim_packet **place = &sim->taken[packet->data[3]][sim_below(&sim->rng, SIM_TAKEN)];
    sim_packet_free(sim, *place);
    *place = sim_packet_copy(sim, packet);
}

void sim_play_next(struct sim *sim)
{
    uint64_t within_us = UINT64_C(1) << sim_between(&sim->rng, EVERY_SHIFT_LOW, EVERY_SHIFT_HIGH);
    sim_at(sim, sim->now_us + 1 + sim_below(&sim->rng, within_us), SIM_PLAY, 0, NULL);
}

void sim_play(struct sim *sim)
{
    uint64_t type = sim_below(&sim->rng, MR_PACKET_TYPE_END);
    const struct sim_packet *kept = sim->taken[type][sim_below(&sim->rng, SIM_TAKEN)];
    sim_play_next(sim);
    if (kept == NULL)
        return;
    struct sim_packet *again = sim_packet_copy(sim, kept);
    again->again = true;
    sim_log(sim, "a %s that node %u took in is played again", sim_packet_type(again), again->to);
    sim_net_arrive(sim, again);
}

/* What may be counted for it: why it was dropped, and the one answer that it may have. A HELLO whose process
 * has no session here any more may make one, which nobody can use, as long as its cookie lives. */
static void forgive(struct mr_wire_counters *c, const struct mr_wire_counters *now)
{
#define FORGIVE(name, kind, unit, help) c->name = now->name;
    MR_DROP_LIST(FORGIVE)
#undef FORGIVE
    c->tx_packets = now->tx_packets;
    c->tx_bytes = now->tx_bytes;
    c->tx_no_room = now->tx_no_room;
    c->resets_sent = now->resets_sent;
    c->resets_unproven = now->resets_unproven;
    c->resets_skipped = now->resets_skipped;
}

void sim_play_check(struct sim_node *node, const struct sim_packet *packet)
{
    struct sim *sim = node->sim;
    struct mr_wire_counters before = *mr_endpoint_counters(node->ep);
    size_t memory = mr_endpoint_memory_used(node->ep);
    uint32_t sessions = session_count(node->ep);
    uint64_t executions = sim->executions;
    mr_endpoint_receive(node->ep, sim_clock_us(node), &packet->from, packet->data, packet->bytes);
    const struct mr_wire_counters *now = mr_endpoint_counters(node->ep);
    uint64_t answers = now->tx_packets - before.tx_packets;
    if (packet->data[3] == MR_PACKET_HELLO) {
        before.sessions_accepted = now->sessions_accepted;
        before.sessions_refused = now->sessions_refused;
        before.sessions_refused_address = now->sessions_refused_address;
        sessions = session_count(node->ep);
    } else if (answers > now->resets_sent - before.resets_sent) {
        sim_fail(sim, "node %u answers a %s that was played again", node->index, sim_packet_type(packet));
    }
    forgive(&before, now);
    if (answers > 1 || memcmp(&before, now, sizeof(before)) != 0 || sim->executions != executions ||
        mr_endpoint_memory_used(node->ep) != memory || session_count(node->ep) != sessions)
        sim_fail(sim, "a %s that was played again changes something at node %u", sim_packet_type(packet),
                 node->index);
}

void sim_play_end(struct sim *sim)
{
    for (uint32_t type = 0; type < MR_PACKET_TYPE_END; type++) {
        for (uint32_t i = 0; i < SIM_TAKEN; i++) {
            sim_packet_free(sim, sim->taken[type][i]);
            sim->taken[type][i] = NULL;
        }
    }
}
