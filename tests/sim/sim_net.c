/* The network. Everything that UDP permits happens to packets: loss, repetition, delay, old ones turning up again, damage
 * that a checksum did not catch, strangers' packets. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define DELAY_LOW_US  5u
#define DELAY_HIGH_US 40u

/* ---- packets under way, by time of arrival ---- */

static bool earlier(const struct sim_packet *a, const struct sim_packet *b)
{
    return a->arrives_us != b->arrives_us ? a->arrives_us < b->arrives_us : a->order < b->order;
}

static void heap_push(struct sim *sim, struct sim_packet packet)
{
    if (sim->heap_count == SIM_PACKETS_MAX) { /* a full network loses */
        free(packet.data);
        return;
    }
    packet.order = sim->order++;
    uint32_t at = sim->heap_count++;
    while (at > 0 && earlier(&packet, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = packet;
}

static struct sim_packet heap_pop(struct sim *sim)
{
    struct sim_packet top = sim->heap[0], last = sim->heap[--sim->heap_count];
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

uint64_t sim_net_next_us(const struct sim *sim)
{
    return sim->heap_count > 0 ? sim->heap[0].arrives_us : UINT64_MAX;
}

void sim_net_free(struct sim *sim)
{
    while (sim->heap_count > 0)
        free(sim->heap[--sim->heap_count].data);
    for (uint32_t i = 0; i < SIM_OLD_PACKETS; i++)
        free(sim->old[i].data);
}

/* ---- what happens to one ---- */

static uint8_t *copy_of(const uint8_t *data, uint32_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert(copy != NULL);
    memcpy(copy, data, bytes);
    return copy;
}

static uint64_t delay_us(struct sim *sim)
{
    uint64_t us = sim_between(&sim->rng, DELAY_LOW_US, DELAY_HIGH_US);
    if (sim_chance(&sim->rng, sim->faults.reorder_ppm))
        us += sim_below(&sim->rng, 2000);
    if (sim_chance(&sim->rng, sim->faults.spike_ppm))
        us += sim_below(&sim->rng, sim->faults.spike_us);
    return us;
}

static void send_copy(struct sim *sim, const struct sim_packet *packet)
{
    struct sim_packet copy = *packet;
    copy.data = copy_of(packet->data, packet->bytes);
    copy.arrives_us = sim->now_us + delay_us(sim);
    heap_push(sim, copy);
}

/* Flip a bit, wherever: the tag covers all of the packet. */
static void damage(struct sim *sim, struct sim_packet *packet)
{
    uint64_t bit = sim_below(&sim->rng, (uint64_t)packet->bytes * 8);
    packet->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
}

static void play_old(struct sim *sim)
{
    struct sim_packet *old = &sim->old[sim_below(&sim->rng, SIM_OLD_PACKETS)];
    if (old->data == NULL)
        return;
    struct sim_packet again = *old;
    if (sim_chance(&sim->rng, 200000))
        again.from.port++; /* from somewhere else */
    send_copy(sim, &again);
}

static void send_garbage(struct sim *sim, const struct sim_packet *like)
{
    uint8_t data[256];
    struct sim_packet packet = *like;
    packet.data = data;
    packet.bytes = (uint32_t)sim_between(&sim->rng, 0, sizeof(data));
    for (uint32_t i = 0; i < packet.bytes; i++)
        data[i] = (uint8_t)sim_random(&sim->rng);
    if (packet.bytes >= MR_HEADER_BYTES && sim_chance(&sim->rng, 800000)) {
        struct mr_packet_header header;
        memcpy(&header, like->data, sizeof(header)); /* a right beginning and a wrong end */
        header.payload_bytes = (uint16_t)(packet.bytes - MR_HEADER_BYTES);
        header.type = (uint8_t)sim_between(&sim->rng, 1, 10);
        memcpy(data, &header, sizeof(header));
    }
    send_copy(sim, &packet);
}

static struct sim_node *node_at(struct sim *sim, const struct mr_address *address)
{
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        if (sim->nodes[i].address.port == address->port)
            return &sim->nodes[i];
    return NULL;
}

static void remember(struct sim *sim, const struct sim_packet *packet)
{
    struct sim_packet *old = &sim->old[sim_below(&sim->rng, SIM_OLD_PACKETS)];
    free(old->data);
    *old = *packet;
    old->data = copy_of(packet->data, packet->bytes);
}

static void transmit(struct sim *sim, struct sim_node *from, uint32_t bytes)
{
    struct sim_node *to = node_at(sim, &from->open_to);
    sim->packets++;
    if (to == NULL)
        return;
    struct sim_packet packet = {
        .from = from->address, .to = to->index, .bytes = bytes, .data = copy_of(from->open, bytes)};
    const struct sim_faults *f = &sim->faults;
    struct sim_rng *rng = &sim->rng;
    if (f->replay_ppm > 0 && sim_chance(rng, 50000))
        remember(sim, &packet);
    if (sim_chance(rng, f->replay_ppm))
        play_old(sim);
    if (sim_chance(rng, f->stranger_ppm))
        send_garbage(sim, &packet);
    if (sim_chance(rng, f->repeat_ppm))
        send_copy(sim, &packet);
    if (sim_chance(rng, f->damage_ppm))
        damage(sim, &packet);
    if (sim_chance(rng, f->truncate_ppm))
        packet.bytes = (uint32_t)sim_below(rng, bytes);
    if (!sim_chance(rng, f->lose_ppm) && from->cut_off_until_us <= sim->now_us)
        send_copy(sim, &packet);
    free(packet.data);
}

/* ---- the endpoints' side ---- */

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct sim_node *node = self;
    assert(!node->is_open && bytes_max <= MR_UDP_BYTES_MAX);
    if (sim_chance(&node->sim->rng, node->sim->faults.no_room_ppm))
        return NULL;
    node->is_open = true;
    node->open_to = *to;
    return node->open;
}

static void tx_end(void *self, uint32_t bytes)
{
    struct sim_node *node = self;
    assert(node->is_open);
    node->is_open = false;
    if (bytes > 0)
        transmit(node->sim, node, bytes);
}

static void fill_random(void *self, void *out, size_t n)
{
    struct sim_node *node = self;
    uint8_t *bytes = out;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(sim_random(&node->rng) >> 32);
}

void sim_net_io(struct sim_node *node, struct mr_endpoint_io *io)
{
    *io = (struct mr_endpoint_io){node, tx_begin, tx_end, fill_random};
}

bool sim_net_deliver(struct sim *sim)
{
    if (sim_net_next_us(sim) > sim->now_us)
        return false;
    struct sim_packet packet = heap_pop(sim);
    struct sim_node *to = &sim->nodes[packet.to];
    if (to->stalled_until_us > sim->now_us) { /* waits in the receive queue */
        packet.arrives_us = to->stalled_until_us;
        heap_push(sim, packet);
        return true;
    }
    sim_note(sim, packet.to, packet.bytes);
    if (to->cut_off_until_us <= sim->now_us) {
        mr_endpoint_receive(to->ep, sim->now_us, &packet.from, packet.data, packet.bytes);
        to->poll_at_us = sim->now_us;
    }
    free(packet.data);
    return true;
}
