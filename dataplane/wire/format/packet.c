#include "dataplane/wire/format/packet.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/capability.h"

/* What each type may carry. */
static const struct packet_rule {
    uint16_t flags; /* allowed */
    uint16_t payload_min, payload_max;
} rules[MR_PACKET_TYPE_END] = {
    [MR_PACKET_HELLO] = {0, sizeof(struct mr_hello), sizeof(struct mr_hello)},
    [MR_PACKET_RETRY] = {0, sizeof(struct mr_retry), sizeof(struct mr_retry)},
    [MR_PACKET_ACCEPT] = {0, sizeof(struct mr_accept), sizeof(struct mr_accept_long)},
    [MR_PACKET_DATA] = {MR_FLAG_REPLY | MR_FLAG_BUNDLE | MR_FLAG_PROBE, 1, MR_SEGMENT_BYTES_MAX},
    [MR_PACKET_ACK] = {MR_FLAG_REPLY, sizeof(struct mr_ack), sizeof(struct mr_ack)},
    [MR_PACKET_RESEND] = {MR_FLAG_REPLY, sizeof(struct mr_ack), sizeof(struct mr_ack)},
    [MR_PACKET_BUSY] = {0, 0, 0},
    [MR_PACKET_RESET] = {0, 0, 0},
    [MR_PACKET_BYE] = {0, 0, 0},
    [MR_PACKET_PING] = {MR_FLAG_PROBE, 0, 0},
    [MR_PACKET_PATH] = {MR_FLAG_REPLY, 0, MR_SEGMENT_BYTES_MAX},
};

/* Only a segment names its part of a message; a bundle's frames name their calls. */
static bool fields_fit(const struct mr_packet_header *h)
{
    bool bundle = (h->flags & MR_FLAG_BUNDLE) != 0;
    if (h->type == MR_PACKET_DATA && !bundle)
        return h->segment_bytes != 0 || h->segment_number == 0;
    return h->message_bytes == 0 && h->segment_bytes == 0 && h->segment_number == 0 &&
           (!bundle || h->call_id == 0);
}

enum mr_drop mr_packet_parse(const uint8_t *datagram, size_t datagram_bytes, struct mr_packet_header *header,
                             const uint8_t **payload)
{
    struct mr_packet_header h;
    if (datagram_bytes < sizeof(h))
        return MR_drop_short;
    memcpy(&h, datagram, sizeof(h));
    if (h.magic != MR_MAGIC)
        return MR_drop_magic;
    if (h.version != MR_PROTOCOL_VERSION)
        return MR_drop_version;
    if (h.type == 0 || h.type >= MR_PACKET_TYPE_END)
        return MR_drop_type;
    const struct packet_rule *rule = &rules[h.type];
    if ((h.flags & ~rule->flags) != 0)
        return MR_drop_type;
    if (datagram_bytes != sizeof(h) + h.payload_bytes)
        return MR_drop_short;
    if (h.payload_bytes < rule->payload_min || h.payload_bytes > rule->payload_max)
        return MR_drop_range;
    if (h.type == MR_PACKET_ACCEPT && h.payload_bytes != sizeof(struct mr_accept) &&
        h.payload_bytes != sizeof(struct mr_accept_long))
        return MR_drop_range;
    if (!fields_fit(&h))
        return MR_drop_range;
    *header = h;
    *payload = datagram + sizeof(h);
    return MR_DROP_NONE;
}

static bool frame_take(const struct mr_packet_header *header, const uint8_t *payload, uint32_t *at,
                       struct mr_fragment *out)
{
    struct mr_frame frame;
    uint32_t left = header->payload_bytes - *at;
    if (left < sizeof(frame))
        return false;
    memcpy(&frame, payload + *at, sizeof(frame));
    uint32_t padded_bytes = frame.message_bytes <= left ? (uint32_t)mr_padded(frame.message_bytes) : 0;
    if (padded_bytes == 0 || frame.reserved != 0 || padded_bytes > left - sizeof(frame))
        return false;
    *out = (struct mr_fragment){.call_id = frame.call_id,
                                .payload = payload + *at + sizeof(frame),
                                .message_bytes = frame.message_bytes,
                                .bytes = frame.message_bytes,
                                .probe = (header->flags & MR_FLAG_PROBE) != 0};
    *at += (uint32_t)sizeof(frame) + padded_bytes;
    return true;
}

bool mr_packet_fragments(const struct mr_packet_header *header, const uint8_t *payload, uint32_t *at,
                         struct mr_fragment out[MR_FRAGMENTS_MAX], uint32_t *count)
{
    *count = 0;
    if ((header->flags & MR_FLAG_BUNDLE) != 0) {
        for (; *at < header->payload_bytes && *count < MR_FRAGMENTS_MAX; ++*count)
            if (!frame_take(header, payload, at, &out[*count]))
                return false;
        return true;
    }
    out[(*count)++] = (struct mr_fragment){.call_id = header->call_id,
                                           .payload = payload,
                                           .message_bytes = header->message_bytes,
                                           .segment_bytes = header->segment_bytes,
                                           .offset = (uint32_t)header->segment_number * header->segment_bytes,
                                           .bytes = header->payload_bytes,
                                           .probe = (header->flags & MR_FLAG_PROBE) != 0};
    *at = header->payload_bytes;
    return true;
}

bool mr_version_answer_make(const uint8_t *datagram, size_t datagram_bytes, struct mr_version_answer *out)
{
    if (datagram_bytes < MR_VERSION_HELLO_BYTES ||
        datagram[offsetof(struct mr_packet_header, type)] != MR_PACKET_HELLO)
        return false;
    *out = (struct mr_version_answer){.magic = MR_MAGIC,
                                      .version = MR_PROTOCOL_VERSION,
                                      .type = MR_PACKET_VERSION,
                                      .asked = datagram[offsetof(struct mr_packet_header, version)]};
    (void)snprintf(out->text, sizeof(out->text), "%s", mr_version_text());
    memcpy(out->echo, datagram + offsetof(struct mr_version_answer, echo), MR_VERSION_ECHO);
    return true;
}

bool mr_version_answer_parse(const uint8_t *datagram, size_t datagram_bytes, struct mr_version_answer *out)
{
    struct mr_version_answer answer;
    if (datagram_bytes != sizeof(answer))
        return false;
    memcpy(&answer, datagram, sizeof(answer));
    if (answer.type != MR_PACKET_VERSION || answer.version == 0 || answer.asked != MR_PROTOCOL_VERSION)
        return false;
    *out = answer;
    return true;
}
