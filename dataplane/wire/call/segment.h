/* One message of several segments in flight, as its receiver and as its sender see it. Both directions use
 * both.
 *
 * The receiver tells what it has (a prefix, and a bitmap of 256 segments behind the first gap) and how far
 * the sender may go. It never grants further than the bitmap reaches, so that 256 bits are enough at both
 * ends however long the message is.
 *
 * Each message has segments of a size of its own, which its packets and reports name. While it is on its way
 * they may become shorter, never longer: the path has become narrower. What is known to have arrived stays
 * so, down to a whole number of the new segments. Pure: no clock, no memory of its own. */
#ifndef MR_SEGMENT_H
#define MR_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define MR_SACK_SEGMENTS       (MR_SACK_WORDS * 64u)
#define MR_REORDER_SEGMENTS    3u /* so many behind a gap, and the gap is a loss (RFC 9002, 6.1.1) */
#define MR_WINDOW_SEGMENTS_MIN 4u
#define MR_GRANT_STEPS         4u /* the sender hears about every 1/4 window */

/* What may be in flight of one message: `window_bytes` in whole segments, within what the bitmap can tell.
 * Both ends compute the first grant of a message with this. */
uint32_t mr_window_clamp(uint32_t window_bytes, uint32_t segment_bytes);
/* A segment of this place and length belongs to a message of that length; segment_bytes 0: it is the whole
 * message. */
bool mr_segment_fits(uint32_t message_bytes, uint32_t segment_bytes, uint32_t offset, uint32_t bytes);
/* Returns whether the fragment can be part of a message of at most `message_bytes_max`. */
bool mr_fragment_fits(const struct mr_fragment *fragment, uint32_t message_bytes_max);

/* ---- receiver ---- */

struct mr_incoming {
    uint8_t *bytes; /* the whole message's room */
    uint32_t message_bytes;
    uint32_t segment_bytes;
    uint32_t window_bytes;
    uint32_t received_bytes;      /* everything below has arrived */
    uint32_t grant_bytes;         /* what the sender was allowed to send */
    uint32_t gap_segments;        /* arrived behind the first gap */
    uint32_t unreported_segments; /* arrived since the last report, wherever */
    uint64_t sack[MR_SACK_WORDS]; /* bit i: segment received_bytes / segment_bytes + 1 + i has arrived */
};

enum mr_segment_result {
    MR_SEGMENT_NEW,
    MR_SEGMENT_REPEATED, /* or was overtaken by shorter ones */
    MR_SEGMENT_RANGE     /* does not fit the message, or lies beyond what was granted */
};

void mr_incoming_init(struct mr_incoming *in, uint8_t *bytes, uint32_t message_bytes, uint32_t segment_bytes,
                      uint32_t window_bytes);
/* segment_bytes 0: it is the whole message. */
enum mr_segment_result mr_incoming_put(struct mr_incoming *in, uint32_t segment_bytes, uint32_t offset,
                                       const uint8_t *payload, uint32_t payload_bytes);
static inline bool mr_incoming_whole(const struct mr_incoming *in)
{
    return in->received_bytes == in->message_bytes;
}
/* The sender should hear of what has arrived and how far it may go. With `sharing` messages on their way at
 * once each is reported the more often, as what is in flight of them all together is limited. */
bool mr_incoming_report_due(const struct mr_incoming *in, uint32_t sharing);
/* The first gap is a loss, not a matter of order. */
static inline bool mr_incoming_gap_certain(const struct mr_incoming *in)
{
    return in->gap_segments >= MR_REORDER_SEGMENTS;
}
/* Segments below the last one that arrived which have not. */
uint32_t mr_incoming_missing(const struct mr_incoming *in);
/* Fills in the report for the sender, and notes that it was made. */
void mr_incoming_report(struct mr_incoming *in, struct mr_ack *ack);

/* ---- sender ---- */

struct mr_outgoing {
    const uint8_t *bytes;
    uint32_t message_bytes;
    uint32_t segment_bytes;
    uint32_t sent_bytes;            /* everything below has been sent at least once */
    uint32_t acked_bytes;           /* everything below has arrived */
    uint32_t grant_bytes;           /* may be sent, says the receiver */
    uint32_t ready_bytes;           /* are written: a message may be sent while its end is still being made */
    uint64_t resend[MR_SACK_WORDS]; /* bit i: segment acked_bytes / segment_bytes + i is to be sent again */
    /* likewise: was sent again lately, so that a report cannot tell of it yet */
    uint64_t resent[MR_SACK_WORDS];
};

struct mr_segment {
    uint32_t offset, bytes;
    bool again; /* was sent before */
};

void mr_outgoing_init(struct mr_outgoing *out, const uint8_t *bytes, uint32_t message_bytes,
                      uint32_t segment_bytes, uint32_t grant_bytes);
/* Go on in shorter segments. What was sent and is not known to have arrived counts as not sent. */
void mr_outgoing_resize(struct mr_outgoing *out, uint32_t segment_bytes);
/* The first `ready_bytes` are written; after init all are. It never falls. */
void mr_outgoing_set_ready(struct mr_outgoing *out, uint32_t ready_bytes);
/* Reports from now on tell of all that was sent: a round trip has passed since the last was sent again. */
void mr_outgoing_forget_resent(struct mr_outgoing *out);
/* Take in a report. Gaps, but those resent lately, with at least `losses_from` segments behind them are
 * marked to be sent again; 0 marks none. False when the report cannot be about this message. */
bool mr_outgoing_report(struct mr_outgoing *out, const struct mr_ack *ack, uint32_t losses_from);
/* Mark the first segment not known to have arrived, and the last one sent, to be sent again: if only they
 * were lost that heals it, if more was, the answer tells. Nothing when all that was sent has arrived. */
void mr_outgoing_probe(struct mr_outgoing *out);
/* So many segments are marked to be sent again. */
uint32_t mr_outgoing_resends(const struct mr_outgoing *out);
/* There is something that may be sent, with `room_bytes` more in flight. */
bool mr_outgoing_ready(const struct mr_outgoing *out, uint32_t room_bytes);
/* Take the next segment to send; what was lost first. False when not ready. */
bool mr_outgoing_next(struct mr_outgoing *out, uint32_t room_bytes, struct mr_segment *segment);
/* The segment last taken was not sent after all. */
void mr_outgoing_undo(struct mr_outgoing *out, const struct mr_segment *segment);
static inline uint32_t mr_outgoing_flight_bytes(const struct mr_outgoing *out)
{
    return out->sent_bytes - out->acked_bytes;
}

#endif
