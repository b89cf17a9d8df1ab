/* Counters of the transport, declared once. Struct, names and telemetry follow. Monotonic, owned by the
 * endpoint's thread; other threads may read them torn-free (aligned u64) but not as one instant. */
#ifndef MR_WIRE_COUNTERS_H
#define MR_WIRE_COUNTERS_H

#include <stdint.h>
#include "packet.h"

/* X(name, help) */
#define MR_WIRE_COUNTER_LIST(X)                                                                              \
    X(rx_packets, "packets received and accepted")                                                           \
    X(rx_bytes, "bytes of them, UDP payload")                                                                \
    X(tx_packets, "packets sent")                                                                            \
    X(tx_bytes, "bytes of them, UDP payload")                                                                \
    X(tx_no_room, "times the port had no room for a packet")                                                 \
    X(segments_resent, "segments sent again")                                                                \
    X(segments_repeated, "segments received again")                                                          \
    X(window_delays, "times a congestion window shrank because packets queued up")                           \
    X(window_losses, "times a congestion window shrank because packets were lost")                           \
    X(path_shrank, "times a path turned out to carry only smaller datagrams than before")                    \
    X(path_hints,                                                                                            \
      "times a router or this machine said that a path is narrower (ICMP), which was looked into")           \
    X(path_hints_dropped, "the same about no packet that was sent, or beyond what is looked at at once")     \
    X(probes, "probe time-outs")                                                                             \
    X(calls_served, "requests handed to a handler")                                                          \
    X(replies_short, "answers given that fit into one packet")                                               \
    X(calls_replayed, "repeated requests answered with the kept answer")                                     \
    X(calls_not_allowed, "requests refused because the key's role does not allow them")                      \
    X(calls_expired, "requests dropped because their deadline had passed")                                   \
    X(calls_made, "calls sent")                                                                              \
    X(calls_ended, "calls ended, with whatever status")                                                      \
    X(busy_sent, "requests refused for want of memory")                                                      \
    X(shares_used_up, "times a session already held its share of message memory")                            \
    X(busy_received, "requests refused by the peer, sent again later")                                       \
    X(sessions_accepted, "sessions accepted")                                                                \
    X(sessions_expired, "sessions forgotten after silence")                                                  \
    X(sessions_refused, "sessions refused because the table of sessions is full")                            \
    X(sessions_refused_address, "sessions refused because their address has as many as it may")              \
    X(sessions_restarted, "sessions made again with a restarted peer")                                       \
    X(hellos_other_version,                                                                                  \
      "HELLOs of another protocol version: their senders, or this one, are to be upgraded")                  \
    X(resets_sent, "RESETs sent")                                                                            \
    X(resets_unproven, "packets of unknown sessions under no key of ours: got no RESET")                     \
    X(resets_skipped, "packets of unknown sessions beyond what is looked at at once: got no RESET")          \
    X(resets_received, "RESETs received")                                                                    \
    MR_DROP_LIST(X)

struct mr_wire_counters {
#define MR_WIRE_COUNTER_FIELD(name, help) uint64_t name;
    MR_WIRE_COUNTER_LIST(MR_WIRE_COUNTER_FIELD)
#undef MR_WIRE_COUNTER_FIELD
};

#endif
