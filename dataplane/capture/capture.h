/* One core's capture: packets that pass, copied into a ring until somebody reads them.
 *
 * The core's thread puts, reads and ends it, so nothing is shared and nothing waits: where the ring has no
 * room, a packet counts as lost. While no capture is on, the core has none of this. */
#ifndef DP_CAPTURE_H
#define DP_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/capture/filter.h"
#include "dataplane/capture/ring.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/capture.h"

struct dp_capture_config {
    uint64_t id;
    char who[MR_CAPTURE_WHO_BYTES];
    struct mr_address reader; /* whose packets are left out */
    uint8_t ip[16];           /* as in struct dp_filter */
    uint16_t port;
    uint64_t ops[MR_CAPTURE_OP_WORDS];
    uint32_t snap_bytes;
    uint64_t ring_bytes, idle_us;
    /* This core's UDP port, and those of all cores: another core records its own packets, whichever queue
     * they come by. */
    uint16_t own_port, first_port, port_count;
};

struct dp_capture {
    struct dp_capture_config config;
    struct dp_filter filter;
    struct dp_ring ring;
    uint64_t seen, wanted, lost;
    uint32_t lost_before; /* since the last record */
    uint64_t started_us, read_us;
    bool is_halted;
};

/* NULL: memory is short. */
struct dp_capture *dp_capture_create(const struct dp_capture_config *config, uint64_t now_us);
void dp_capture_destroy(struct dp_capture *capture); /* NULL is fine */

/* The time of packets. */
uint64_t dp_capture_time_ns(void);
/* A frame of an Ethernet link: `captured_bytes` of it are there, of `bytes`. */
void dp_capture_frame(struct dp_capture *capture, uint64_t time_ns, bool is_sent, const uint8_t *frame,
                      uint32_t captured_bytes, uint32_t bytes);
/* A datagram of a socket, which gets IP and UDP headers. `local` and `peer` are of one family. */
void dp_capture_datagram(struct dp_capture *capture, uint64_t time_ns, bool is_sent,
                         const struct mr_address *local, const struct mr_address *peer,
                         const uint8_t *payload, uint32_t payload_bytes);

/* Notes that everything before `position` was read, at now_us. False: that is no position of what it
 * keeps. */
bool dp_capture_was_read(struct dp_capture *capture, uint64_t position, uint64_t now_us);
/* Bytes that can be read now. */
static inline uint64_t dp_capture_unread(const struct dp_capture *capture)
{
    return capture->ring.end - capture->ring.first;
}
/* Whether nobody has read it for too long. */
static inline bool dp_capture_is_forgotten(const struct dp_capture *capture, uint64_t now_us)
{
    return now_us > capture->read_us && now_us - capture->read_us > capture->config.idle_us;
}

#endif
