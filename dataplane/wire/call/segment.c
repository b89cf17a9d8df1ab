#include "dataplane/wire/call/segment.h"

#include <string.h>

#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/xxh3.h"
#include "dataplane/wire/format/message.h"

static bool bit_get(const uint64_t *words, uint32_t bit)
{
    return (words[bit / 64] >> (bit % 64) & 1) != 0;
}

static void bit_set(uint64_t *words, uint32_t bit)
{
    words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static void bit_clear(uint64_t *bits, uint32_t i)
{
    bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static bool bits_any(const uint64_t *words)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < MR_SACK_WORDS; i++)
        any |= words[i];
    return any != 0;
}

static void bits_shift_down(uint64_t *words, uint32_t bits)
{
    if (bits >= MR_SACK_SEGMENTS) {
        memset(words, 0, MR_SACK_WORDS * sizeof(*words));
        return;
    }
    uint32_t skip = bits / 64, shift = bits % 64;
    for (uint32_t i = 0; i < MR_SACK_WORDS; i++) {
        uint64_t low = i + skip < MR_SACK_WORDS ? words[i + skip] : 0;
        uint64_t high = i + skip + 1 < MR_SACK_WORDS ? words[i + skip + 1] : 0;
        words[i] = shift == 0 ? low : low >> shift | high << (64 - shift);
    }
}

uint32_t mr_window_clamp(uint32_t window_bytes, uint32_t segment_bytes)
{
    uint32_t segments = window_bytes / segment_bytes;
    if (segments < MR_WINDOW_SEGMENTS_MIN)
        segments = MR_WINDOW_SEGMENTS_MIN;
    return mr_min_u32(segments, MR_SACK_SEGMENTS) * segment_bytes;
}

bool mr_segment_fits(uint32_t message_bytes, uint32_t segment_bytes, uint32_t offset, uint32_t bytes)
{
    if (segment_bytes == 0)
        return offset == 0 && bytes == message_bytes;
    return offset < message_bytes && offset % segment_bytes == 0 &&
           bytes == mr_min_u32(segment_bytes, message_bytes - offset);
}

bool mr_fragment_fits(const struct mr_fragment *f, uint32_t message_bytes_max)
{
    bool segment_bytes_fit =
        f->segment_bytes == 0 || (f->segment_bytes >= MR_SEGMENT_BYTES_MIN &&
                                  f->segment_bytes < f->message_bytes && f->segment_bytes % 8 == 0);
    return segment_bytes_fit && f->message_bytes <= message_bytes_max &&
           f->message_bytes >= sizeof(struct mr_preamble) &&
           mr_segment_fits(f->message_bytes, f->segment_bytes, f->offset, f->bytes);
}

/* ---- receiver ---- */

void mr_incoming_init(struct mr_incoming *in, uint8_t *bytes, uint32_t message_bytes, uint32_t segment_bytes,
                      uint32_t window_bytes)
{
    memset(in, 0, sizeof(*in));
    in->bytes = bytes;
    in->message_bytes = message_bytes;
    in->segment_bytes = segment_bytes;
    in->window_bytes = mr_window_clamp(window_bytes, segment_bytes);
    in->grant_bytes = mr_min_u32(in->window_bytes, message_bytes);
}

static void close_gap(struct mr_incoming *in)
{
    bool next = true;
    while (next) {
        in->received_bytes += mr_min_u32(in->segment_bytes, in->message_bytes - in->received_bytes);
        if (in->gap_segments == 0)
            return;
        next = bit_get(in->sack, 0);
        in->gap_segments -= next;
        bits_shift_down(in->sack, 1);
    }
}

static void incoming_resize(struct mr_incoming *in, uint32_t segment_bytes)
{
    in->received_bytes -= in->received_bytes % segment_bytes;
    in->segment_bytes = segment_bytes;
    in->window_bytes = mr_window_clamp(in->window_bytes, segment_bytes);
    in->gap_segments = 0;
    memset(in->sack, 0, sizeof(in->sack));
}

static enum mr_segment_result put_whole(struct mr_incoming *in, const uint8_t *payload)
{
    memcpy(in->bytes, payload, in->message_bytes);
    in->received_bytes = in->message_bytes;
    in->unreported_segments++;
    return MR_SEGMENT_NEW;
}

enum mr_segment_result mr_incoming_put(struct mr_incoming *in, uint32_t segment_bytes, uint32_t offset,
                                       const uint8_t *payload, uint32_t payload_bytes)
{
    if (!mr_segment_fits(in->message_bytes, segment_bytes, offset, payload_bytes))
        return MR_SEGMENT_RANGE;
    if (segment_bytes == 0)
        return put_whole(in, payload);
    if (segment_bytes < in->segment_bytes)
        incoming_resize(in, segment_bytes);
    if (offset < in->received_bytes || segment_bytes > in->segment_bytes)
        return MR_SEGMENT_REPEATED;
    if (offset == in->received_bytes) {
        memcpy(in->bytes + offset, payload, payload_bytes);
        close_gap(in);
        in->unreported_segments++;
        return MR_SEGMENT_NEW;
    }
    uint32_t bit = (offset - in->received_bytes) / in->segment_bytes - 1;
    if (bit >= MR_SACK_SEGMENTS)
        return MR_SEGMENT_RANGE;
    if (bit_get(in->sack, bit))
        return MR_SEGMENT_REPEATED;
    memcpy(in->bytes + offset, payload, payload_bytes);
    bit_set(in->sack, bit);
    in->gap_segments++;
    in->unreported_segments++;
    return MR_SEGMENT_NEW;
}

static uint32_t grant_target(const struct mr_incoming *in)
{
    uint32_t room = in->message_bytes - in->received_bytes;
    return in->received_bytes + mr_min_u32(room, in->window_bytes);
}

bool mr_incoming_report_due(const struct mr_incoming *in, uint32_t sharing)
{
    uint32_t step = in->window_bytes / (MR_GRANT_STEPS * (sharing > 0 ? sharing : 1));
    if (step < in->segment_bytes)
        step = in->segment_bytes;
    uint32_t target = grant_target(in); /* may have grown by more than what arrived, with the window */
    return (uint64_t)in->unreported_segments * in->segment_bytes >= step ||
           (target > in->grant_bytes && target - in->grant_bytes >= step);
}

uint32_t mr_incoming_missing(const struct mr_incoming *in)
{
    for (uint32_t i = MR_SACK_WORDS; i-- > 0;)
        if (in->sack[i] != 0)
            return 64 * i + 65 - (uint32_t)__builtin_clzll(in->sack[i]) - in->gap_segments;
    return 0;
}

void mr_incoming_report(struct mr_incoming *in, struct mr_ack *ack)
{
    uint32_t target = grant_target(in);
    if (target > in->grant_bytes)
        in->grant_bytes = target;
    in->unreported_segments = 0;
    ack->received_bytes = in->received_bytes;
    ack->grant_bytes = in->grant_bytes;
    ack->segment_bytes = in->segment_bytes;
    ack->reserved = 0;
    memcpy(ack->sack, in->sack, sizeof(ack->sack));
}

/* ---- sender ---- */

void mr_outgoing_init(struct mr_outgoing *out, const uint8_t *bytes, uint32_t message_bytes,
                      uint32_t segment_bytes, uint32_t grant_bytes)
{
    memset(out, 0, sizeof(*out));
    out->bytes = bytes;
    out->message_bytes = message_bytes;
    out->segment_bytes = segment_bytes;
    out->grant_bytes = mr_min_u32(mr_window_clamp(grant_bytes, segment_bytes), message_bytes);
    out->ready_bytes = message_bytes;
}

void mr_outgoing_resize(struct mr_outgoing *out, uint32_t segment_bytes)
{
    uint32_t reach = MR_SACK_SEGMENTS * segment_bytes;
    out->segment_bytes = segment_bytes;
    out->acked_bytes -= out->acked_bytes % segment_bytes;
    out->sent_bytes = out->acked_bytes;
    if (out->grant_bytes - out->acked_bytes > reach)
        out->grant_bytes = out->acked_bytes + reach;
    memset(out->resend, 0, sizeof(out->resend));
    memset(out->resent, 0, sizeof(out->resent));
}

void mr_outgoing_set_ready(struct mr_outgoing *out, uint32_t ready_bytes)
{
    out->ready_bytes = ready_bytes;
}

/* Marks missing segments with at least `losses_from` arrived ones after them, and clears the marks of what
 * has arrived. Bit 0 of `resend` is the first gap itself, one below bit 0 of `sack`. */
static void mark_losses(struct mr_outgoing *out, const uint64_t *sack, uint32_t losses_from)
{
    uint32_t behind = 0;
    for (uint32_t i = MR_SACK_SEGMENTS; i-- > 0;) {
        bool arrived = i > 0 && bit_get(sack, i - 1);
        uint64_t offset = out->acked_bytes + (uint64_t)i * out->segment_bytes;
        if (offset >= out->sent_bytes)
            continue;
        if (arrived) {
            behind++;
            bit_clear(out->resend, i);
        } else if (losses_from > 0 && behind >= losses_from && !bit_get(out->resent, i)) {
            bit_set(out->resend, i);
        }
    }
}

void mr_outgoing_forget_resent(struct mr_outgoing *out)
{
    memset(out->resent, 0, sizeof(out->resent));
}

bool mr_outgoing_report(struct mr_outgoing *out, const struct mr_ack *ack, uint32_t losses_from)
{
    uint32_t received = ack->received_bytes;
    bool same_segments = ack->segment_bytes == out->segment_bytes;
    if (received > out->ready_bytes || /* nobody can have what has not been written yet */
        (same_segments && received != out->message_bytes && received % out->segment_bytes != 0))
        return false;
    if (received != out->message_bytes)
        received -= received % out->segment_bytes; /* the report may be older than the shorter segments */
    if (received > out->acked_bytes) {
        uint32_t first = out->acked_bytes / out->segment_bytes;
        uint32_t now_first = received / out->segment_bytes;
        bits_shift_down(out->resend, now_first - first);
        bits_shift_down(out->resent, now_first - first);
        out->acked_bytes = received;
        if (out->sent_bytes < received)
            out->sent_bytes = received; /* an earlier attempt's segments arrived after all */
        if (received == out->message_bytes)
            memset(out->resend, 0, sizeof(out->resend));
    }
    uint32_t reach = MR_SACK_SEGMENTS * out->segment_bytes;
    uint32_t limit =
        out->message_bytes - out->acked_bytes < reach ? out->message_bytes : out->acked_bytes + reach;
    uint32_t grant = mr_min_u32(ack->grant_bytes, limit);
    if (grant < out->acked_bytes)
        grant = out->acked_bytes;
    if (grant > out->grant_bytes)
        out->grant_bytes = grant;
    if (same_segments && received == out->acked_bytes && bits_any(ack->sack))
        mark_losses(out, ack->sack, losses_from);
    return true;
}

void mr_outgoing_probe(struct mr_outgoing *out)
{
    if (out->sent_bytes <= out->acked_bytes)
        return;
    uint32_t last = (out->sent_bytes - 1) / out->segment_bytes - out->acked_bytes / out->segment_bytes;
    bit_set(out->resend, 0);
    if (last < MR_SACK_SEGMENTS)
        bit_set(out->resend, last);
}

uint32_t mr_outgoing_resends(const struct mr_outgoing *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MR_SACK_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(out->resend[i]);
    return n;
}

bool mr_outgoing_ready(const struct mr_outgoing *out, uint32_t room_bytes)
{
    if (bits_any(out->resend))
        return true;
    uint32_t bytes = mr_min_u32(out->segment_bytes, out->message_bytes - out->sent_bytes);
    uint32_t limit = mr_min_u32(out->grant_bytes, out->ready_bytes);
    return bytes > 0 && bytes <= limit - out->sent_bytes && bytes <= room_bytes;
}

bool mr_outgoing_next(struct mr_outgoing *out, uint32_t room_bytes, struct mr_segment *segment)
{
    for (uint32_t i = 0; i < MR_SACK_WORDS; i++) {
        if (out->resend[i] == 0)
            continue;
        uint32_t bit = i * 64 + (uint32_t)__builtin_ctzll(out->resend[i]);
        out->resend[i] &= out->resend[i] - 1;
        bit_set(out->resent, bit);
        segment->offset = out->acked_bytes + bit * out->segment_bytes;
        segment->bytes = mr_min_u32(out->segment_bytes, out->message_bytes - segment->offset);
        segment->again = true;
        return true;
    }
    if (!mr_outgoing_ready(out, room_bytes))
        return false;
    segment->offset = out->sent_bytes;
    segment->bytes = mr_min_u32(out->segment_bytes, out->message_bytes - out->sent_bytes);
    segment->again = false;
    out->sent_bytes += segment->bytes;
    return true;
}

uint64_t mr_outgoing_copy(const struct mr_outgoing *out, const struct mr_segment *segment, uint8_t *to)
{
    const struct mr_borrowed *b = &out->borrowed;
    const struct mr_borrowed parts[] = {
        {.bytes = out->bytes, .begin = 0, .end = b->end > 0 ? b->begin : out->message_bytes},
        *b,
        {.bytes = out->bytes + b->end, .begin = b->end, .end = b->end > 0 ? out->message_bytes : 0},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const uint32_t first = parts[i].begin > segment->offset ? parts[i].begin : segment->offset;
        const uint32_t last = mr_min_u32(parts[i].end, segment->offset + segment->bytes);
        if (first >= last)
            continue;
        const uint64_t hash = mr_xxh3_64_copy(to + (first - segment->offset),
                                              parts[i].bytes + (first - parts[i].begin), last - first);
        if (last - first == segment->bytes)
            return hash;
    }
    return mr_xxh3_64(to, segment->bytes); /* it came in parts, whose hashes do not add up to one */
}

void mr_outgoing_undo(struct mr_outgoing *out, const struct mr_segment *segment)
{
    uint32_t bit = (segment->offset - out->acked_bytes) / out->segment_bytes;
    if (segment->again) {
        bit_set(out->resend, bit);
        bit_clear(out->resent, bit);
    } else {
        out->sent_bytes = segment->offset;
    }
}
