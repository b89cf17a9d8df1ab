/* Both sides: what a DATA packet carries, whole messages of a bundle or one segment of a long message. */
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

/* Takes up to MR_PREFETCH_MAX messages from the front of a bundle. False: what follows them is malformed. */
static bool frames_take(const uint8_t **at, uint32_t *left, struct mr_fragment *out, uint32_t *count)
{
    for (*count = 0; *left > 0 && *count < MR_PREFETCH_MAX; ++*count) {
        struct mr_frame frame;
        if (*left < sizeof(frame))
            return false;
        memcpy(&frame, *at, sizeof(frame));
        uint32_t padded_bytes = frame.message_bytes <= *left ? (frame.message_bytes + 7) & ~7u : 0;
        if (padded_bytes == 0 || frame.reserved != 0 || padded_bytes > *left - sizeof(frame))
            return false;
        out[*count] = (struct mr_fragment){.call_id = frame.call_id,
                                           .payload = *at + sizeof(frame),
                                           .message_bytes = frame.message_bytes,
                                           .bytes = frame.message_bytes};
        *at += sizeof(frame) + padded_bytes;
        *left -= (uint32_t)sizeof(frame) + padded_bytes;
    }
    return true;
}

static void announce(const struct mr_endpoint *ep, const struct mr_fragment *frames, uint32_t count)
{
    struct mr_prefetch prefetch[MR_PREFETCH_MAX];
    for (uint32_t i = 0; i < count; i++)
        prefetch[i] = (struct mr_prefetch){frames[i].payload, frames[i].bytes};
    ep->config.on_prefetch(ep->config.app, prefetch, count);
}

static void each_frame(struct mr_endpoint *ep, void *arg, const struct mr_packet *packet,
                       mr_on_fragment visit)
{
    bool requests = (packet->header.flags & MR_FLAG_REPLY) == 0;
    bool probe = (packet->header.flags & MR_FLAG_PROBE) != 0;
    const uint8_t *at = packet->payload;
    uint32_t left = packet->header.payload_bytes, count;
    struct mr_fragment frames[MR_PREFETCH_MAX];
    for (bool well_formed = true; well_formed && left > 0;) {
        well_formed = frames_take(&at, &left, frames, &count);
        if (requests && count > 1 && ep->config.on_prefetch != NULL)
            announce(ep, frames, count);
        for (uint32_t i = 0; i < count; i++) {
            frames[i].probe = probe;
            if (!visit(ep, arg, &frames[i]))
                return;
        }
        if (!well_formed)
            ep->counters.drop_range++;
    }
}

void mr_each_fragment(struct mr_endpoint *ep, void *arg, const struct mr_packet *packet, mr_on_fragment visit)
{
    const struct mr_packet_header *header = &packet->header;
    if ((header->flags & MR_FLAG_BUNDLE) != 0) {
        each_frame(ep, arg, packet, visit);
        return;
    }
    struct mr_fragment fragment = {.call_id = header->call_id,
                                   .payload = packet->payload,
                                   .message_bytes = header->message_bytes,
                                   .segment_bytes = header->segment_bytes,
                                   .offset = (uint32_t)header->segment_number * header->segment_bytes,
                                   .bytes = header->payload_bytes,
                                   .probe = (header->flags & MR_FLAG_PROBE) != 0};
    (void)visit(ep, arg, &fragment);
}

bool mr_fragment_fits(const struct mr_endpoint *ep, const struct mr_fragment *f)
{
    bool segment_fits =
        f->segment_bytes == 0 || (f->segment_bytes >= MR_SEGMENT_BYTES_MIN &&
                                  f->segment_bytes < f->message_bytes && f->segment_bytes % 8 == 0);
    return segment_fits && f->message_bytes <= ep->config.message_bytes_max &&
           f->message_bytes >= sizeof(struct mr_preamble) &&
           mr_segment_fits(f->message_bytes, f->segment_bytes, f->offset, f->bytes);
}
