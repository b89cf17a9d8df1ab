/* Counters of the transport, declared once; see base/counter_set.h. Monotonic, owned by the
 * endpoint's thread; other threads may read them torn-free (aligned u64) but not as one instant. */
#ifndef MR_WIRE_COUNTERS_H
#define MR_WIRE_COUNTERS_H

#include "dataplane/wire/base/counter_set.h"
#include "packet.h"

/* X(name, kind, unit, help) */
#define MR_WIRE_COUNTER_LIST(X)                                                                              \
    X(rx_packets, COUNTER, NONE, "packets received and accepted")                                            \
    X(rx_bytes, COUNTER, BYTES, "bytes of the packets received and accepted, UDP payload")                   \
    X(tx_packets, COUNTER, NONE, "packets sent")                                                             \
    X(tx_bytes, COUNTER, BYTES, "bytes of the packets sent, UDP payload")                                    \
    X(tx_no_room, COUNTER, NONE, "times the port had no room for a packet")                                  \
    X(segments_resent, COUNTER, NONE, "segments sent again")                                                 \
    X(segments_repeated, COUNTER, NONE, "segments received again")                                           \
    X(window_delays, COUNTER, NONE, "times a congestion window shrank because packets queued up")            \
    X(window_losses, COUNTER, NONE, "times a congestion window shrank because packets were lost")            \
    X(path_shrank, COUNTER, NONE, "times a path turned out to carry only smaller datagrams than before")     \
    X(path_hints, COUNTER, NONE,                                                                             \
      "times a router or this machine said that a path is narrower (ICMP), which was looked into")           \
    X(path_hints_dropped, COUNTER, NONE,                                                                     \
      "such hints about no packet that was sent, or beyond what is looked at at once")                       \
    X(probes, COUNTER, NONE, "probe time-outs")                                                              \
    X(calls_served, COUNTER, NONE, "requests handed to a handler")                                           \
    X(replies_short, COUNTER, NONE, "answers given that fit into one packet")                                \
    X(calls_replayed, COUNTER, NONE, "repeated requests answered with the kept answer")                      \
    X(calls_not_allowed, COUNTER, NONE, "requests refused because the key's role does not allow them")       \
    X(calls_expired, COUNTER, NONE, "requests dropped because their deadline had passed")                    \
    X(calls_made, COUNTER, NONE, "calls sent")                                                               \
    X(calls_ended, COUNTER, NONE, "calls ended, with whatever status")                                       \
    X(busy_sent, COUNTER, NONE, "requests refused for want of memory")                                       \
    X(shares_used_up, COUNTER, NONE,                                                                         \
      "times a session, a role or an address already held its share of message memory")                      \
    X(requests_stalled, COUNTER, NONE, "requests given up because their segments stopped coming")            \
    X(busy_received, COUNTER, NONE, "requests refused by the peer, sent again later")                        \
    X(sessions_accepted, COUNTER, NONE, "sessions accepted")                                                 \
    X(sessions_expired, COUNTER, NONE, "sessions forgotten after silence")                                   \
    X(sessions_refused, COUNTER, NONE, "sessions refused because the table of sessions is full")             \
    X(sessions_refused_address, COUNTER, NONE,                                                               \
      "sessions refused because their address has as many as it may")                                        \
    X(sessions_restarted, COUNTER, NONE, "sessions made again with a restarted peer")                        \
    X(hellos_other_version, COUNTER, NONE,                                                                   \
      "HELLOs of another protocol version: their senders, or this one, are to be upgraded")                  \
    X(resets_sent, COUNTER, NONE, "RESETs sent")                                                             \
    X(resets_unproven, COUNTER, NONE, "packets of unknown sessions under no key of ours: got no RESET")      \
    X(resets_skipped, COUNTER, NONE,                                                                         \
      "packets of unknown sessions beyond what is looked at at once: got no RESET")                          \
    X(resets_received, COUNTER, NONE, "RESETs received")                                                     \
    MR_DROP_LIST(X)

struct mr_wire_counters {
    MR_WIRE_COUNTER_LIST(MR_COUNTER_FIELD)
};
extern const struct mr_counter_set mr_wire_counter_set;

#endif
