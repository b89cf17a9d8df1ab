/* The network. Everything that UDP permits happens to packets: loss, repetition, delay, old ones turning up
 * again, damage that a checksum did not catch, strangers' packets, queues and sockets that are full. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define DELAY_LOW_US  5u
#define DELAY_HIGH_US 40u
#define TURN_PACKETS  32u /* taken in at once */
#define SPARE_CLASSES 3u

/* ---- packets ---- */

static uint32_t class_of(uint32_t bytes)
{
    return bytes <= 256 ? 0 : bytes <= 2048 ? 1 : 2;
}

static struct sim_packet *packet_new(struct sim *sim, uint32_t bytes)
{
    static const uint32_t rooms[SPARE_CLASSES] = {256, 2048, MR_UDP_BYTES_MAX};
    uint32_t size = class_of(bytes);
    struct sim_packet *packet = sim->spare[size];
    if (packet != NULL) {
        sim->spare[size] = packet->next;
    } else {
        packet = malloc(sizeof(*packet) + rooms[size]);
        assert(packet != NULL);
        packet->room = rooms[size];
    }
    packet->bytes = bytes;
    packet->again = false;
    return packet;
}

static void packet_free(struct sim *sim, struct sim_packet *packet)
{
    if (packet == NULL)
        return;
    struct sim_packet **spare = &sim->spare[class_of(packet->room)];
    packet->next = *spare;
    *spare = packet;
}

static struct sim_packet *packet_copy(struct sim *sim, const struct sim_packet *packet)
{
    struct sim_packet *copy = packet_new(sim, packet->bytes);
    copy->from = packet->from;
    copy->to = packet->to;
    memcpy(copy->data, packet->data, packet->bytes);
    return copy;
}

struct sim_packet *sim_packet_copy(struct sim *sim, const struct sim_packet *packet)
{
    return packet_copy(sim, packet);
}

void sim_packet_free(struct sim *sim, struct sim_packet *packet)
{
    packet_free(sim, packet);
}

const char *sim_packet_type(const struct sim_packet *packet)
{
#define TYPE_NAME(name, value) [value] = #name,
    static const char *const names[UINT8_MAX + 1] = {MR_PACKET_TYPE_LIST(TYPE_NAME)};
#undef TYPE_NAME
    const char *name = packet->bytes >= MR_HEADER_BYTES ? names[packet->data[3]] : NULL;
    return name != NULL ? name : "?";
}

/* ---- on the way ---- */

/* Time at which it leaves the queue of the link to its node; UINT64_MAX: the queue is full. */
static uint64_t through_link(struct sim *sim, const struct sim_packet *packet)
{
    struct sim_link *link = &sim->nodes[packet->to].link;
    if (link->bytes_per_ms == 0)
        return sim->now_us;
    uint64_t now_ns = sim->now_us * 1000;
    uint64_t start_ns = link->free_ns > now_ns ? link->free_ns : now_ns;
    if ((start_ns - now_ns) * link->bytes_per_ms / 1000000 + packet->bytes > link->queue_bytes)
        return UINT64_MAX;
    link->carried_bytes += packet->bytes;
    link->free_ns = start_ns + packet->bytes * UINT64_C(1000000) / link->bytes_per_ms;
    return link->free_ns / 1000;
}

static uint64_t delay_us(struct sim *sim)
{
    if (sim->work.steady) /* and in order */
        return DELAY_HIGH_US;
    uint64_t us = sim_between(&sim->rng, DELAY_LOW_US, DELAY_HIGH_US) + sim->work.far_us;
    if (sim_chance(&sim->rng, sim->faults.reorder_ppm))
        us += sim_below(&sim->rng, 2000);
    if (sim_chance(&sim->rng, sim->faults.spike_ppm))
        us += sim_below(&sim->rng, sim->faults.spike_us);
    return us;
}

/* Takes the packet over. */
static void carry(struct sim *sim, struct sim_packet *packet)
{
    uint64_t left_us = through_link(sim, packet);
    if (left_us == UINT64_MAX) {
        sim_log(sim, "  queue to node %u is full", packet->to);
        packet_free(sim, packet);
        return;
    }
    sim_at(sim, left_us + delay_us(sim), SIM_ARRIVAL, packet->to, packet);
}

/* Flip a bit, wherever: the tag covers all of the packet. */
static void damage(struct sim *sim, struct sim_packet *packet)
{
    uint64_t bit = sim_below(&sim->rng, (uint64_t)packet->bytes * 8);
    packet->data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    sim_log(sim, "  bit %llu damaged", (unsigned long long)bit);
}

/* Some of all, and half of those of a handshake, which are few. */
static void remember(struct sim *sim, const struct sim_packet *packet)
{
    bool handshake = packet->data[3] <= MR_PACKET_ACCEPT;
    if (!sim_chance(&sim->rng, handshake ? 500000 : 100000))
        return;
    uint64_t place = sim_below(&sim->rng, SIM_OLD_PACKETS / 2) + (handshake ? SIM_OLD_PACKETS / 2 : 0);
    packet_free(sim, sim->old[place]);
    sim->old[place] = packet_copy(sim, packet);
}

static void play_old(struct sim *sim)
{
    const struct sim_packet *old = sim->old[sim_below(&sim->rng, SIM_OLD_PACKETS)];
    if (old == NULL)
        return;
    struct sim_packet *again = packet_copy(sim, old);
    if (sim_chance(&sim->rng, 300000)) /* from somewhere else */
        sim_address_stranger(&again->from, (uint32_t)sim_below(&sim->rng, SIM_STRANGERS));
    sim_log(sim, "  an old %s to node %u again, from port %u", sim_packet_type(again), again->to,
            again->from.port);
    carry(sim, again);
}

static void send_garbage(struct sim *sim, const struct sim_packet *like)
{
    struct sim_packet *packet = packet_new(sim, (uint32_t)sim_between(&sim->rng, 0, 256));
    packet->from = like->from;
    packet->to = like->to;
    if (sim_chance(&sim->rng, 300000))
        sim_address_stranger(&packet->from, (uint32_t)sim_below(&sim->rng, SIM_STRANGERS));
    for (uint32_t i = 0; i < packet->bytes; i++)
        packet->data[i] = (uint8_t)sim_random(&sim->rng);
    if (packet->bytes >= MR_HEADER_BYTES && sim_chance(&sim->rng, 800000)) {
        struct mr_packet_header header;
        memcpy(&header, like->data, sizeof(header)); /* a right beginning and a wrong end */
        header.payload_bytes = (uint16_t)(packet->bytes - MR_HEADER_BYTES);
        header.type = (uint8_t)sim_between(&sim->rng, 1, MR_PACKET_TYPE_END - 1);
        memcpy(packet->data, &header, sizeof(header));
    }
    carry(sim, packet);
}

static struct sim_node *node_at(struct sim *sim, const struct mr_address *address)
{
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->address.port == address->port && memcmp(node->address.ip, address->ip, 16) == 0)
            return node;
    }
    return NULL;
}

/* Takes the packet over. */
static void suffer(struct sim *sim, struct sim_packet *packet)
{
    const struct sim_faults *f = &sim->faults;
    struct sim_rng *rng = &sim->rng;
    if (f->replay_ppm > 0)
        remember(sim, packet);
    if (sim_chance(rng, f->replay_ppm))
        play_old(sim);
    if (sim_chance(rng, f->stranger_ppm))
        send_garbage(sim, packet);
    if (sim_chance(rng, f->repeat_ppm))
        carry(sim, packet_copy(sim, packet));
    if (sim_chance(rng, f->damage_ppm))
        damage(sim, packet);
    if (sim_chance(rng, f->truncate_ppm))
        packet->bytes = (uint32_t)sim_below(rng, packet->bytes);
    if (sim_chance(rng, f->lose_ppm)) {
        sim_log(sim, "  lost");
        packet_free(sim, packet);
    } else {
        carry(sim, packet);
    }
}

/* ---- the endpoints' side ---- */

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct sim_node *node = self;
    assert(!node->is_open && bytes_max <= MR_UDP_BYTES_MAX);
    if (bytes_max > node->config.udp_bytes_max)
        sim_fail(node->sim, "node %u sends %u bytes, more than its MTU", node->index, bytes_max);
    if (sim_chance(&node->sim->rng, node->sim->faults.no_room_ppm)) {
        if (node->poll_at_us > node->sim->now_us + 20)
            node->poll_at_us = node->sim->now_us + 20; /* an owner looks again when its port had no room */
        return NULL;
    }
    node->is_open = true;
    node->open_to = *to;
    return node->open;
}

static void tx_end(void *self, uint32_t bytes)
{
    struct sim_node *node = self;
    struct sim *sim = node->sim;
    assert(node->is_open);
    node->is_open = false;
    if (bytes == 0)
        return;
    sim->packets++;
    node->carried_bytes += bytes;
    if (node->is_server)
        sim_address_check_send(node, &node->open_to, node->open, bytes);
    const struct sim_node *to = node_at(sim, &node->open_to);
    if (to == NULL)
        return;
    sim_grant_check(node, to->index, node->open);
    if (bytes > to->config.udp_bytes_max)
        sim_fail(sim, "node %u was sent %u bytes, more than it takes", to->index, bytes);
    struct sim_packet *packet = packet_new(sim, bytes);
    packet->from = node->address;
    packet->to = to->index;
    memcpy(packet->data, node->open, bytes);
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    sim_log(sim, "node %u -> %u %s flags %u call %llu segment %u of %u bytes of %u, %u bytes", node->index,
            to->index, sim_packet_type(packet), h.flags, (unsigned long long)h.call_id, h.segment_number,
            h.segment_bytes, h.message_bytes, bytes);
    if (sim->cut_until_us[node->index][to->index] > sim->now_us) {
        sim_log(sim, "  cut off");
        packet_free(sim, packet);
        return;
    }
    if (bytes > sim->path_bytes[node->index][to->index]) {
        sim_log(sim, "  too long for the path");
        packet_free(sim, packet);
        return;
    }
    suffer(sim, packet);
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

void sim_net_arrive(struct sim *sim, struct sim_packet *packet)
{
    struct sim_node *to = &sim->nodes[packet->to];
    if (to->queue_bytes + packet->bytes > to->queue_bytes_max) {
        sim_log(sim, "socket of node %u is full", to->index);
        packet_free(sim, packet);
        return;
    }
    packet->next = NULL;
    *to->queue_end = packet;
    to->queue_end = &packet->next;
    to->queue_bytes += packet->bytes;
}

static struct sim_packet *queue_take(struct sim_node *node)
{
    struct sim_packet *packet = node->queue;
    if (packet == NULL)
        return NULL;
    node->queue = packet->next;
    if (node->queue == NULL)
        node->queue_end = &node->queue;
    node->queue_bytes -= packet->bytes;
    return packet;
}

static void log_drops(struct sim_node *node, const struct mr_wire_counters *before)
{
    const struct mr_wire_counters *now = mr_endpoint_counters(node->ep);
#define LOG_DROP(name, kind, unit, help)                                                                     \
    if (now->name != before->name)                                                                           \
        sim_log(node->sim, "  %s", #name);
    MR_DROP_LIST(LOG_DROP)
#undef LOG_DROP
}

static void take_in(struct sim_node *node, const struct sim_packet *packet)
{
    struct sim *sim = node->sim;
    sim_note(sim, packet->to, packet->bytes);
    sim_log(sim, "node %u takes in %s of %u bytes from port %u", node->index, sim_packet_type(packet),
            packet->bytes, packet->from.port);
    node->receiving_bytes = packet->bytes;
    node->receiving_from = packet->from;
    if (packet->again) {
        sim_play_check(node, packet);
        node->receiving_bytes = 0;
        return;
    }
    if (!node->is_server && packet->bytes >= MR_HEADER_BYTES && packet->data[3] == MR_PACKET_RETRY)
        for (uint32_t i = 0; i < sim->servers; i++)
            if (packet->from.port == sim->nodes[i].address.port)
                sim_address_note_retry(&sim->nodes[i], &node->address);
    const struct sim_node *from = node_at(sim, &packet->from);
    if (from != NULL)
        sim_grant_came(node, from->index, packet->data, packet->bytes);
    if (node->is_server)
        sim_address_note_hello(node, &packet->from, packet->data, packet->bytes);
    struct mr_wire_counters before = *mr_endpoint_counters(node->ep);
    mr_endpoint_receive(node->ep, sim_clock_us(node), &packet->from, packet->data, packet->bytes);
    node->receiving_bytes = 0;
    if (sim->plays)
        sim_play_keep(node, packet, &before);
    if (sim->verbose)
        log_drops(node, &before);
}

void sim_net_receive(struct sim_node *node)
{
    uint32_t count = 0;
    struct sim_packet *packet;
    while (count < TURN_PACKETS && (packet = queue_take(node)) != NULL) {
        take_in(node, packet);
        packet_free(node->sim, packet);
        count++;
    }
    node->busy_until_us = node->sim->now_us + count * node->packet_ns / 1000;
}

void sim_net_close(struct sim_node *node)
{
    struct sim_packet *packet;
    while ((packet = queue_take(node)) != NULL)
        packet_free(node->sim, packet);
}

void sim_net_end(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->heap_count; i++)
        if (sim->heap[i].kind == SIM_ARRIVAL)
            packet_free(sim, sim->heap[i].what);
    sim->heap_count = 0;
    sim_play_end(sim);
    for (uint32_t i = 0; i < sim->servers + sim->clients; i++)
        sim_net_close(&sim->nodes[i]);
    for (uint32_t i = 0; i < SIM_OLD_PACKETS; i++) {
        packet_free(sim, sim->old[i]);
        sim->old[i] = NULL;
    }
}

void sim_net_free(struct sim *sim)
{
    for (uint32_t i = 0; i < SPARE_CLASSES; i++) {
        struct sim_packet *packet;
        while ((packet = sim->spare[i]) != NULL) {
            sim->spare[i] = packet->next;
            free(packet);
        }
    }
}
