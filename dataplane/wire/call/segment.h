/* A message of several segments in flight, as its receiver and as its sender see it. Requests and replies
 * both use it.
 *
 * The receiver reports what it has (a prefix, and a bitmap of 256 segments after the first gap) and how far
 * the sender may go. It never grants further than the bitmap reaches, so 256 bits are enough at both ends,
 * however long the message is.
 *
 * Each message has its own segment size, which its packets and reports name. While the message is in flight,
 * segments may become shorter, if the path becomes narrower, but never longer. What is known to have arrived
 * remains so, rounded down to whole new segments. Pure: no clock, no memory of its own. */
#ifndef MR_SEGMENT_H
#define MR_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define MR_SACK_SEGMENTS       (MR_SACK_WORDS * 64u)
#define MR_REORDER_SEGMENTS    3u /* a gap with so many segments after it is a loss (RFC 9002, 6.1.1) */
#define MR_WINDOW_SEGMENTS_MIN 4u
#define MR_GRANT_STEPS         4u /* the sender gets a report about every 1/4 window */

/* Returns what may be in flight of one message: `window_bytes` in whole segments, within the reach of the
 * bitmap. Both ends compute the first grant of a message with this. */
uint32_t mr_window_clamp(uint32_t window_bytes, uint32_t segment_bytes);
/* Returns whether a segment at this offset and of this length belongs to a message of that length;
 * segment_bytes 0: the segment is the whole message. */
bool mr_segment_fits(uint32_t message_bytes, uint32_t segment_bytes, uint32_t offset, uint32_t bytes);
/* Returns whether the fragment can be part of a message of at most `message_bytes_max`. */
bool mr_fragment_fits(const struct mr_fragment *fragment, uint32_t message_bytes_max);

/* ---- receiver ---- */

struct mr_incoming {
    uint8_t *bytes; /* room for the whole message */
    uint32_t message_bytes;
    uint32_t segment_bytes;
    uint32_t window_bytes;
    uint32_t received_bytes;      /* everything below has arrived */
    uint32_t grant_bytes;         /* how far the sender may send */
    uint32_t gap_segments;        /* arrived after the first gap */
    uint32_t unreported_segments; /* arrived since the last report, at any offset */
    uint64_t sack[MR_SACK_WORDS]; /* bit i: segment received_bytes / segment_bytes + 1 + i has arrived */
};

enum mr_segment_result {
    MR_SEGMENT_NEW,
    MR_SEGMENT_REPEATED, /* or it was overtaken by shorter segments */
    MR_SEGMENT_RANGE     /* does not fit the message, or lies beyond the grant */
};

void mr_incoming_init(struct mr_incoming *in, uint8_t *bytes, uint32_t message_bytes, uint32_t segment_bytes,
                      uint32_t window_bytes);
/* Copies a segment into the message. segment_bytes 0: it is the whole message. */
enum mr_segment_result mr_incoming_put(struct mr_incoming *in, uint32_t segment_bytes, uint32_t offset,
                                       const uint8_t *payload, uint32_t payload_bytes);
static inline bool mr_incoming_whole(const struct mr_incoming *in)
{
    return in->received_bytes == in->message_bytes;
}
/* Returns whether a report to the sender is due. With `sharing` messages in flight at once, each is reported
 * more often, because what is in flight of all of them together is limited. */
bool mr_incoming_report_due(const struct mr_incoming *in, uint32_t sharing);
/* Returns whether the first gap is a loss, and not just reordering. */
static inline bool mr_incoming_gap_certain(const struct mr_incoming *in)
{
    return in->gap_segments >= MR_REORDER_SEGMENTS;
}
/* Returns how many segments below the last one that arrived are missing. */
uint32_t mr_incoming_missing(const struct mr_incoming *in);
/* Fills in a report for the sender, and notes that it was made. */
void mr_incoming_report(struct mr_incoming *in, struct mr_ack *ack);

/* ---- sender ---- */

/* Bytes [begin, end) of a message, if they are elsewhere than the rest; end 0: none are. */
struct mr_borrowed {
    const uint8_t *bytes;
    uint32_t begin, end;
};

struct mr_outgoing {
    const uint8_t *bytes;
    struct mr_borrowed borrowed;
    uint32_t message_bytes;
    uint32_t segment_bytes;
    uint32_t sent_bytes;  /* everything below has been sent at least once */
    uint32_t acked_bytes; /* everything below has arrived */
    uint32_t grant_bytes; /* everything below may be sent, according to the receiver */
    uint32_t ready_bytes; /* everything below is written: a message may be sent before its end is complete */
    uint64_t resend[MR_SACK_WORDS]; /* bit i: segment acked_bytes / segment_bytes + i must be sent again */
    /* likewise: was sent again recently, so that reports do not cover it yet */
    uint64_t resent[MR_SACK_WORDS];
};

struct mr_segment {
    uint32_t offset, bytes;
    bool again; /* it was sent before */
};

void mr_outgoing_init(struct mr_outgoing *out, const uint8_t *bytes, uint32_t message_bytes,
                      uint32_t segment_bytes, uint32_t grant_bytes);
/* Continues in shorter segments. What was sent and is not known to have arrived counts as not sent. */
void mr_outgoing_resize(struct mr_outgoing *out, uint32_t segment_bytes);
/* Sets how many bytes are written; after init all are. The number never decreases. */
void mr_outgoing_set_ready(struct mr_outgoing *out, uint32_t ready_bytes);
/* Notes that a round trip has passed since segments were last sent again: reports now cover all that was
 * sent. */
void mr_outgoing_forget_resent(struct mr_outgoing *out);
/* Processes a report. Gaps with at least `losses_from` segments after them are marked to be sent again,
 * unless that was done recently; 0 marks none. Returns false when the report cannot be about this message. */
bool mr_outgoing_report(struct mr_outgoing *out, const struct mr_ack *ack, uint32_t losses_from);
/* Marks the first segment that is not known to have arrived, and the last one sent, to be sent again. If only
 * they were lost, that repairs the loss; otherwise the answer shows what is missing. Does nothing when all
 * that was sent has arrived. */
void mr_outgoing_probe(struct mr_outgoing *out);
/* Returns how many segments are marked to be sent again. */
uint32_t mr_outgoing_resends(const struct mr_outgoing *out);
/* Returns whether something may be sent, with `room_bytes` more in flight. */
bool mr_outgoing_ready(const struct mr_outgoing *out, uint32_t room_bytes);
/* Takes the next segment to send, lost ones first. Returns false when none may be sent. */
bool mr_outgoing_next(struct mr_outgoing *out, uint32_t room_bytes, struct mr_segment *segment);
/* Copies the bytes of a segment, and returns their XXH3-64. */
uint64_t mr_outgoing_copy(const struct mr_outgoing *out, const struct mr_segment *segment, uint8_t *to);
/* Gives back the segment taken last, which was not sent after all. */
void mr_outgoing_undo(struct mr_outgoing *out, const struct mr_segment *segment);
static inline uint32_t mr_outgoing_flight_bytes(const struct mr_outgoing *out)
{
    return out->sent_bytes - out->acked_bytes;
}

#endif
