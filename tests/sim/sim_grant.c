/* Nobody sends more of a message than its receiver has granted: at first with HELLO and ACCEPT, then with its
 * reports. Looked at where nothing is damaged or forged, and as far as the last grants are known. */
#include <string.h>

#include "dataplane/wire/call/segment.h"
#include "sim.h"

/* In segments of whatever size the message began with: they may have become shorter since. */
static uint64_t first_grant(const struct sim_node *sender, const struct sim_node *receiver)
{
    uint32_t a = sender->config.udp_bytes_max & ~7u, b = receiver->config.udp_bytes_max & ~7u;
    uint32_t longest = (a < b ? a : b) - MR_HEADER_BYTES, window = receiver->config.receive_window_bytes;
    uint32_t least = MR_WINDOW_SEGMENTS_MIN * longest;
    return window > least ? window : least;
}

void sim_grant_came(struct sim_node *sender, uint32_t receiver, const uint8_t *data, uint32_t bytes)
{
    struct mr_packet_header h;
    struct mr_ack ack;
    if (bytes != MR_HEADER_BYTES + sizeof(ack) || (data[3] != MR_PACKET_ACK && data[3] != MR_PACKET_RESEND))
        return;
    memcpy(&h, data, sizeof(h));
    memcpy(&ack, data + MR_HEADER_BYTES, sizeof(ack));
    struct sim_grant *g = &sender->grants[receiver][h.call_id % MR_WINDOW_MAX];
    if (h.call_id < g->call_id)
        return;
    if (h.call_id > g->call_id)
        *g = (struct sim_grant){h.call_id, 0};
    g->bytes = ack.grant_bytes > g->bytes ? ack.grant_bytes : g->bytes;
}

void sim_grant_check(struct sim_node *sender, uint32_t receiver, const uint8_t *data)
{
    struct sim *sim = sender->sim;
    struct mr_packet_header h;
    memcpy(&h, data, sizeof(h));
    if (!sim->honest || h.type != MR_PACKET_DATA || (h.flags & MR_FLAG_BUNDLE) != 0)
        return;
    uint64_t first = first_grant(sender, &sim->nodes[receiver]);
    const struct sim_grant *g = &sender->grants[receiver][h.call_id % MR_WINDOW_MAX];
    uint64_t granted = g->call_id == h.call_id ? g->bytes : 0;
    uint64_t end = (uint64_t)h.segment_number * h.segment_bytes + h.payload_bytes;
    if (end > first && end > granted && g->call_id <= h.call_id)
        sim_fail(sim, "node %u sends %llu bytes of call %llu and was granted %llu", sender->index,
                 (unsigned long long)end, (unsigned long long)h.call_id,
                 (unsigned long long)(granted > first ? granted : first));
}
