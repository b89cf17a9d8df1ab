#include "dataplane/capture/filter.h"
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/packet.h"

static struct dp_filter_call *place_of(const struct dp_filter *filter, uint64_t session_id, uint64_t call_id)
{
    /* Calls of one session lie side by side. */
    const uint64_t first = session_id * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    return &filter->calls[(first + call_id) % DP_FILTER_CALLS];
}

static bool knows_call(const struct dp_filter *filter, uint64_t session_id, uint64_t call_id)
{
    const struct dp_filter_call *place = place_of(filter, session_id, call_id);
    return call_id != 0 && place->session_id == session_id && place->call_id == call_id;
}

/* The first bytes of a message say its operation. */
static bool note_message(struct dp_filter *filter, uint64_t session_id, uint64_t call_id, uint8_t op)
{
    if ((filter->ops[op / 64] >> (op % 64) & 1) == 0)
        return false;
    *place_of(filter, session_id, call_id) = (struct dp_filter_call){session_id, call_id};
    return true;
}

/* Looks at all messages, so that each of their calls is known afterwards. */
static bool wants_bundle(struct dp_filter *filter, const struct mr_packet_header *header,
                         const uint8_t *payload, uint32_t payload_bytes)
{
    bool wanted = false;
    uint32_t at = 0;
    while (payload_bytes - at > sizeof(struct mr_frame)) {
        struct mr_frame frame;
        memcpy(&frame, payload + at, sizeof(frame));
        at += (uint32_t)sizeof(frame);
        wanted |= note_message(filter, header->session_id, frame.call_id, payload[at]);
        const uint64_t next = at + mr_padded(frame.message_bytes);
        if (next >= payload_bytes)
            break;
        at = (uint32_t)next;
    }
    return wanted;
}

static bool wants_data(struct dp_filter *filter, const struct mr_packet_header *header,
                       const uint8_t *payload, uint32_t payload_bytes)
{
    if (payload_bytes == 0)
        return false;
    if ((header->flags & MR_FLAG_BUNDLE) != 0)
        return wants_bundle(filter, header, payload, payload_bytes);
    if (header->segment_bytes != 0 && header->segment_number != 0)
        return knows_call(filter, header->session_id, header->call_id);
    return note_message(filter, header->session_id, header->call_id, payload[0]);
}

static bool wants_op(struct dp_filter *filter, const uint8_t *payload, uint32_t payload_bytes)
{
    struct mr_packet_header header;
    if (payload == NULL || payload_bytes < sizeof(header))
        return false;
    memcpy(&header, payload, sizeof(header));
    if (header.magic != MR_MAGIC || header.version != MR_PROTOCOL_VERSION)
        return false;
    if (header.type == MR_PACKET_DATA)
        return wants_data(filter, &header, payload + sizeof(header),
                          payload_bytes - (uint32_t)sizeof(header));
    return knows_call(filter, header.session_id, header.call_id);
}

bool dp_filter_wants(struct dp_filter *filter, const uint8_t *ip, uint16_t port, const uint8_t *payload,
                     uint32_t payload_bytes)
{
    if (filter->has_ip && (ip == NULL || memcmp(ip, filter->ip, sizeof(filter->ip)) != 0))
        return false;
    if (filter->port != 0 && port != filter->port)
        return false;
    return !filter->has_ops || wants_op(filter, payload, payload_bytes);
}
