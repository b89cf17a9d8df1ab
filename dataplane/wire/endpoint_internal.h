/* What an endpoint remembers, and what the files that implement endpoint.h call in each other. Nobody else
 * includes this.
 *
 *   endpoint.c        create, destroy, the way in (receive) and the timers (poll)
 *   client_session.c  calling side: HELLO to ACCEPT, keep-alive, lost and restarted servers, close
 *   server_session.c  serving side: HELLO to ACCEPT, sessions until they are dropped
 *   keys.c            the keys in use, their rotation, packets under a key other than the expected one
 *   client_call.c     calling side: the life of a call
 *   client_rx.c       calling side: packets that arrive for calls, and the calls' timers
 *   client_window.c   calling side: how much of requests, and of replies, may be in flight
 *   server_request.c  serving side: requests in, slots
 *   server_reply.c    serving side: replies out, kept until they are acknowledged
 *   transmit.c        packets out: headers and tags, bundles of small messages, turns of large ones
 *   path_session.c    calling side: how long datagrams may be; serving side: the answers to its probes
 */
#ifndef MR_ENDPOINT_INTERNAL_H
#define MR_ENDPOINT_INTERNAL_H

#include "dataplane/wire/base/buddy.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/timer_wheel.h"
#include "dataplane/wire/call/call_records.h"
#include "dataplane/wire/call/latency.h"
#include "dataplane/wire/call/numbers.h"
#include "dataplane/wire/call/path.h"
#include "dataplane/wire/call/rtt.h"
#include "dataplane/wire/call/segment.h"
#include "dataplane/wire/call/window.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/session/address_limit.h"
#include "dataplane/wire/session/auth.h"

#define MR_PRIORITIES     8u
#define MR_QUEUE_AHEAD    MR_PRIORITIES /* the queue of calls that are sent before all priorities */
#define MR_QUEUES         (MR_PRIORITIES + 1u)
#define MR_SESSIONS_LIMIT 65536u /* a session id holds 16 bits of index */
/* A request whose segments stop coming is given up: this long after the last new one, or when it has come at
 * less than this rate for longer. */
#define MR_STALLED_US         5000000u
#define MR_RECEIVED_PER_S_MIN 32768u
/* Of sessions, and of the memory for messages, what is kept for operators, and for trainers. */
#define MR_OPERATOR_SHARE 16u
#define MR_TRAINER_SHARE  4u
#define MR_ADDRESS_SHARE  4u       /* and of the memory, for other addresses than one, if there are any */
#define MR_UNCONFIRMED_US 5000000u /* an accepted session must be used within this time */
#define MR_AWAY_US        1000000u /* after such a silence with calls pending, the server is away */
#define MR_KEEPALIVE_US   10000000u
/* between pings until the server has answered under the session's key */
#define MR_CONFIRM_US 50000u
/* calls that are over are acknowledged together, this long after the first */
#define MR_SLOTS_ACK_US       20000u
#define MR_SLOTS_ACK_AGAIN_US 200000u
/* Of the window of replies: what the client may have received without a word to the server */
#define MR_UNACKED_WINDOW_SHARE  8u
#define MR_HELLO_RETRY_US        10000u /* first; doubles up to MR_PTO_MAX_US */
#define MR_HELLO_COOKIE_TRIES    3u     /* then the cookie may be stale: start again without one */
#define MR_TURNS_PER_BULK        8u     /* one turn in so many goes to the lowest priority that waits */
#define MR_BUDGET_INTERVAL_US    10000u
#define MR_RESETS_PER_INTERVAL   64u
#define MR_VERIFIES_PER_INTERVAL 128u /* of packets under no known key: about 2 us each */
#define MR_REKEYS_PER_INTERVAL   128u /* the same for known sessions: strangers cannot use these up */
#define MR_VERSIONS_PER_INTERVAL 16u  /* HELLOs of other versions that are answered */
#define MR_HINTS_PER_INTERVAL    16u  /* reports about paths that are examined */
#define MR_BUSY_BACKOFF_MAX      6u   /* doublings of busy_retry_us */
/* for so long a router's report overrides what the client says */
#define MR_NARROW_US        1000000u
#define MR_NARROW_AGAIN_US  10000u /* the same report within this time is ignored */
#define MR_REPORTED_NUMBERS 65536u /* a router can report only one of the last so many packets */
#define MR_DOUBT_PROBES     2u     /* unanswered probes in a row after which the path is probed */
/* probes in a row after which a peer that reports less than before is believed */
#define MR_LOSS_PROBES 2u

enum mr_timer_kind { MR_TIMER_SERVED, MR_TIMER_SESSION, MR_TIMER_CALL };

/* What the two kinds of sessions have in common. */
struct mr_peer {
    struct mr_address address;
    struct mr_tag_key key;
    uint64_t session_id;
    uint64_t sent_number;      /* of the last packet to it */
    struct mr_numbers numbers; /* of those that came from it */
    uint64_t heard_us;
    uint64_t ready;          /* slots whose one-segment message waits for the flush */
    struct mr_link dirty;    /* in endpoint.dirty: the flush has something to do */
    struct mr_link turn;     /* if it has senders: in endpoint.turns[priority of the first one] */
    struct mr_link low_turn; /* likewise in endpoint.low_turns[priority of the last one] */
    struct mr_link senders;  /* large messages that may send, the highest priority first */
    struct mr_link parked;   /* large messages that wait for room in flight, the longest wait first */
    uint32_t incarnation;
    uint32_t clock_us, clock_heard_us; /* serving: the client's clock, and ours (low bits) when it arrived */
    uint32_t segment_bytes;            /* of messages that begin now */
    uint32_t window;
    uint32_t flight_bytes, flight_limit_bytes; /* of large messages towards the peer */
    /* calling: the peer is asked what it has after so many bytes; 0 = it reports often enough by itself */
    uint32_t ask_bytes;
    uint8_t turn_priority, low_turn_priority;
    bool serving;
};

/* An outgoing message of several segments. */
struct mr_tx_message {
    struct mr_link link; /* in its peer's senders or parked, or in none */
    struct mr_outgoing out;
    struct mr_peer *peer;
    uint64_t call_id;
    uint32_t unasked_bytes; /* sent since the receiver was last asked for a report */
    uint32_t turn;          /* number of its last one */
    uint8_t priority;
};

/* ---- serving ---- */

enum mr_slot_state { MR_SLOT_EMPTY, MR_SLOT_RECEIVING, MR_SLOT_EXECUTING, MR_SLOT_DONE, MR_SLOT_REFUSED };

/* An incoming request of several segments. */
struct mr_rx_message {
    struct mr_incoming in;
    uint64_t first_us, progress_us; /* when its first, and its last new segment arrived */
};

/* A request whose answer comes later. */
struct mr_deferred_request {
    struct mr_link link; /* in endpoint.orphans once its session is gone */
    struct mr_request request;
    uint8_t *bytes;
    uint8_t client_uuid[MR_UUID_BYTES];
    struct mr_message message; /* last: only as many tensors as there are */
};

/* Invariant: a call id executes at most once, and never after it has been answered with BUSY. A slot leaves
 * EXECUTING only by the handler's answer; it leaves DONE and REFUSED only for a newer id; EMPTY with an id
 * means that the id has not executed. */
struct mr_slot {
    uint64_t call_id; /* the newest id seen; 0 = none */
    uint8_t *message; /* the reply; NULL: status only, or freed after its acknowledgement */
    void *transfer;   /* RECEIVING: struct mr_rx_message; reply of several segments: struct mr_tx_message */
    struct mr_deferred_request *deferred;
    uint64_t stamp; /* when the running phase began (latency.h); 0: the call is over, or there is no clock */
    union {
        uint64_t sequence;   /* of the reply; until `acked` */
        uint64_t refused_to; /* `acked`: newer ids up to this were answered with BUSY while it executed */
    };
    float wait_ns, work_ns; /* while there is a stamp; wait_ns < 0: its phases are not timed */
    uint32_t table, keys;   /* likewise */
    uint32_t message_bytes; /* of the reply */
    uint32_t request_bytes;
    uint16_t status;
    uint8_t state; /* enum mr_slot_state */
    uint8_t op;
    uint8_t priority;
    uint8_t restores; /* the low bits of the endpoint's count when the reply was begun */
    bool begun;       /* EXECUTING: between mr_reply_begin and mr_reply_end */
    bool acked;       /* the client has the reply, or, while EXECUTING, no longer wants one */
};

struct mr_server_session {
    struct mr_peer peer;
    struct mr_timer timer;
    uint64_t boot_nonce, client_nonce;
    uint64_t hello_number;     /* of the last HELLO that counted */
    uint64_t flight_number;    /* of the packet that last set flight_limit_bytes */
    uint32_t grant_bytes;      /* of a reply, in whole segments, that may be sent before the first ACK */
    uint32_t flight_max_bytes; /* of all replies together: what the client's buffer takes */
    uint32_t receiving;        /* slots in that state */
    size_t memory_bytes;       /* message memory, in blocks, that its slots hold */
    uint64_t narrow_us;        /* when a router reported that segments of at most narrow_bytes get through */
    uint32_t narrow_bytes;     /* 0: no such report */
    uint32_t next; /* in the chain of its uuid's bucket, or of free sessions; index + 1, 0 = end */
    uint16_t udp_bytes_max;
    uint8_t auth_index;
    uint8_t role; /* enum mr_role, of the key that the session was made with */
    bool used;
    bool confirmed; /* a packet under the session's key has arrived: the session is no replay of a HELLO */
    uint8_t client_uuid[MR_UUID_BYTES];
    uint64_t capabilities; /* the client's; 0: it says none, so it is of a version before 0.3.0 */
    struct mr_slot slots[MR_WINDOW_MAX];
};
/* Includes the most that the tables of uuids and addresses take per session. */
static_assert(sizeof(struct mr_server_session) + 2 * sizeof(uint32_t) + 4 * sizeof(struct mr_address_entry) <
                  5632,
              "an idle session stays small");

/* ---- calling ---- */

enum mr_handshake { MR_HANDSHAKE_NONE, MR_HANDSHAKE_HELLO, MR_HANDSHAKE_COOKIE };

struct mr_client_session {
    struct mr_peer peer;
    struct mr_timer timer; /* handshake, else keep-alive */
    struct mr_rtt rtt;
    struct mr_base_delay base_delay;
    struct mr_window requests, replies;
    struct mr_path path;
    uint32_t told_window_bytes; /* of replies: what the server knows */
    struct mr_endpoint *ep;
    void *user;
    struct mr_link queue[MR_QUEUES]; /* calls that wait for a slot */
    struct mr_link built;            /* calls begun and not sent */
    struct mr_link aborted;          /* calls about to end, while their callbacks are made one by one */
    uint32_t queued;                 /* bit q: queue[q] is not empty */
    uint32_t slots_given;            /* while more than one priority waited */
    uint32_t calls_pending;
    uint32_t receiving; /* replies of several segments on their way in */
    uint64_t busy_slots;
    uint64_t unacked_slots; /* their calls were over since the last acknowledgement of slots */
    uint64_t unacked_at_us; /* when that is due; 0 = nothing to acknowledge */
    uint32_t unacked_bytes; /* of replies of several segments in them, at most */
    uint64_t keepalive_at_us;
    uint64_t next_call_id;
    uint64_t client_nonce; /* of the handshake */
    uint64_t retry_from;   /* number of the first HELLO that may be answered with a RETRY */
    uint64_t reset_number; /* of the newest packet that was answered with a RESET */
    uint64_t last_push_step;
    uint64_t start_id;          /* of the server */
    uint32_t lineage, restores; /* as of its last ACCEPT */
    uint32_t generation;        /* rises when it is freed, so that one notices if a callback did that */
    uint32_t next;              /* in the chain of its id's bucket, or of free ones; index + 1, 0 = end */
    uint32_t grant_bytes;
    uint32_t map_version;
    uint32_t hello_tries;
    uint16_t core, core_count, arrived_core;
    uint8_t handshake; /* enum mr_handshake */
    /* of the protocol, that the server is said to speak; 0: nothing is said since it was last heard */
    uint8_t other_version;
    char other_text[MR_VERSION_TEXT_BYTES]; /* that server's version, as it says */
    struct mr_peer_version version;         /* the server's, as of its last ACCEPT */
    bool held;                              /* opened again, and not released by its user */
    bool used, established, confirmed, away, closing;
    bool acked_once; /* the slots' acknowledgement is to be repeated, in case it was lost */
    bool has_previous_key;
    struct mr_tag_key previous_key; /* good until something comes under the new one */
    uint8_t cookie[MR_COOKIE_BYTES];
    struct mr_call *slots[MR_WINDOW_MAX];
};

enum mr_call_state {
    MR_CALL_FREE,
    MR_CALL_BUILT,
    MR_CALL_QUEUED,
    MR_CALL_SENDING, /* has a slot until its answer */
    MR_CALL_PAUSED,  /* has a slot; the server was busy */
    MR_CALL_ENDED,   /* reported to its user; may still hold a slot that the server has not answered */
};

struct mr_call {
    struct mr_link link; /* in `queue` or `built` of its session, or in the endpoint's free calls */
    struct mr_timer timer;
    struct mr_client_session *session; /* NULL: the session was closed before the call was sent */
    struct mr_tx_message sending;      /* requests of several segments */
    struct mr_incoming incoming; /* replies of several segments; `bytes` is NULL unless one is arriving */
    uint64_t call_id;            /* 0: has no slot. It changes after each BUSY */
    uint64_t deadline_us;
    uint64_t sent_us; /* first sent in this session */
    uint64_t probe_at_us;
    uint64_t asked_again_us; /* when gaps were last resent or asked for */
    uint8_t *request;
    struct mr_borrowed borrowed; /* a part of it */
    uint8_t *reply;
    void *user;
    uint32_t request_bytes;
    uint32_t ready_bytes;  /* of the request: everything below is written */
    uint32_t unread_bytes; /* of a reply for which there was no room */
    /* of the request in its present slot, where it only shrinks; 0: has no slot */
    uint32_t segment_bytes;
    uint8_t state;
    uint8_t op;
    uint8_t queue;      /* its priority, or MR_QUEUE_AHEAD */
    uint8_t probes;     /* in a row, and since the call ended */
    uint8_t unanswered; /* probes in a row without progress */
    uint8_t busy_count;
    bool sent_whole; /* every byte was sent under the present id: the server may have executed the call */
    bool in_doubt;   /* the same in an earlier session */
    bool server_has; /* the server reported that it has the whole request */
    bool asks;       /* a one-segment request is sent again as a probe */
    bool user_freed;
    bool repeatable; /* may be executed once more in another session */
};

/* ---- both ---- */

struct mr_endpoint {
    struct mr_endpoint_config config;
    struct mr_wire_counters counters;
    struct mr_latencies latencies;
    struct mr_call_records records; /* only with a clock */
    struct mr_buddy *memory;
    void *own_memory; /* mapped, unless the caller gave it */
    size_t own_memory_bytes;
    uint64_t (*last_step_hook)(void *app, const uint8_t *client_uuid);
    uint64_t now_us; /* as of the last call into the endpoint */
    /* of the last poll: what is received now arrived after it. For a poll's timers: of the one before */
    uint64_t polled_us;
    uint64_t boot_nonce;
    uint64_t hello_number;                   /* of the last HELLO sent */
    struct mr_link dirty;                    /* peers */
    struct mr_link turns[MR_PRIORITIES];     /* peers with senders, by the priority of the first sender */
    struct mr_link low_turns[MR_PRIORITIES]; /* and by that of the last one */
    uint32_t turn;                           /* segments sent in turns so far */
    uint64_t budget_interval;                /* of the five counts that follow */
    uint32_t resets_in_interval;
    uint32_t verifies_in_interval;
    uint32_t rekeys_in_interval;
    uint32_t versions_in_interval;
    uint32_t hints_in_interval;
    uint16_t arrived_core; /* of the datagram being received */
    uint32_t auth_count;
    uint32_t session_count;
    uint64_t role_memory_bytes[MR_ROLE_COUNT]; /* message memory, in blocks, of the sessions of a role */
    uint8_t *scratch;                          /* an aligned copy of one one-segment message */
    uint8_t *executing; /* the request that its handler reads; NULL once the answer has been postponed */
    uint32_t executing_bytes;
    struct mr_auth *auth; /* [MR_PSK_MAX], in memory for keys */
    uint8_t cookie_secret[MR_COOKIE_SECRET_BYTES];

    struct mr_server_session *server_sessions; /* [sessions_max], or NULL when nothing is served */
    uint32_t server_sessions_free;             /* index + 1 */
    uint32_t *server_buckets;                  /* by uuid; index + 1 */
    struct mr_address_limits *limits;
    struct mr_link orphans; /* postponed requests whose session is gone */

    struct mr_client_session *client_sessions; /* [sessions_max], or NULL when nothing is called */
    uint32_t client_sessions_free;
    uint32_t *client_buckets; /* by id */
    uint32_t bucket_mask;     /* of both tables */
    struct mr_call *calls;    /* [calls_max] */
    size_t requests_bytes;    /* of message memory, in blocks */
    struct mr_link calls_free;

    struct mr_other_version other_version; /* serving */
    struct mr_timer_wheel wheel;
    struct mr_message message; /* the message parsed last */
};

/* ==== what the files call in each other ==== */

/* A packet that passed mr_packet_parse(). */
struct mr_packet {
    struct mr_packet_header header;
    const uint8_t *datagram;
    const uint8_t *payload;
    const struct mr_address *from;
};

static inline bool mr_address_equal(const struct mr_address *a, const struct mr_address *b)
{
    return a->port == b->port && __builtin_memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

/* Reads the whole packet: to be called after the cheap checks have passed. */
static inline bool mr_packet_verify(const struct mr_packet *packet, const struct mr_tag_key *key)
{
    return mr_tag_verify(key, packet->datagram, MR_HEADER_BYTES + packet->header.payload_bytes);
}

/* Takes over the user's clock, which each call passes; it never goes back. */
static inline void mr_endpoint_set_now(struct mr_endpoint *ep, uint64_t now_us)
{
    if (now_us > ep->now_us)
        ep->now_us = now_us;
}

uint64_t mr_endpoint_random(struct mr_endpoint *ep);

/* ---- transmit.c ---- */

/* Sends one packet; the header's payload_bytes is the length of `payload`. False: there is no room now. */
bool mr_transmit(struct mr_endpoint *ep, const struct mr_address *to, const struct mr_tag_key *key,
                 const struct mr_packet_header *header, const void *payload);
/* Sends one within a session. */
bool mr_transmit_control(struct mr_endpoint *ep, struct mr_peer *peer, enum mr_packet_type type,
                         uint16_t flags, uint64_t call_id, const void *payload, uint16_t payload_bytes);
bool mr_transmit_ack(struct mr_endpoint *ep, struct mr_peer *peer, uint16_t flags, uint64_t call_id,
                     uint32_t received_bytes);
void mr_peer_init(struct mr_peer *peer, bool serving);
void mr_peer_mark(struct mr_endpoint *ep, struct mr_peer *peer);
/* Queues the slot's one-segment message for the next flush. */
void mr_peer_ready(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t slot);
/* Queues the message among the senders if it may send something. */
void mr_tx_message_activate(struct mr_endpoint *ep, struct mr_tx_message *sending);
/* Processes a report about the message, and queues it again if the report allows that. False: the report
 * cannot be about this message. */
bool mr_tx_message_report(struct mr_endpoint *ep, struct mr_tx_message *sending, const struct mr_ack *ack,
                          uint32_t losses_from);
/* Queues the parked messages that may send now, because there is more room in flight. */
void mr_peer_unpark(struct mr_endpoint *ep, struct mr_peer *peer);
/* Continues in segments of at most this length. */
void mr_tx_message_shorten(struct mr_endpoint *ep, struct mr_tx_message *sending, uint32_t segment_bytes);
/* Removes the message from all lists; what it had in flight no longer counts. */
void mr_tx_message_stop(struct mr_endpoint *ep, struct mr_tx_message *sending);
/* Flushes all peers; false when the port had no room. */
bool mr_transmit_flush(struct mr_endpoint *ep);
/* Sends segments of large messages: higher priorities first, sessions of one priority in turn, and the
 * messages of one session in turn. */
void mr_transmit_senders(struct mr_endpoint *ep, uint32_t segment_budget);
/* Returns whether nothing waits for its turn. */
bool mr_transmit_idle(const struct mr_endpoint *ep);

/* ---- server_session.c ---- */

void mr_accept_hello(struct mr_endpoint *ep, const struct mr_packet *packet);
/* Returns the header of an answer to a packet without a known session. */
struct mr_packet_header mr_answer_header(const struct mr_endpoint *ep, const struct mr_packet *packet,
                                         enum mr_packet_type type, uint16_t payload_bytes);
/* The first packet under the session's key has arrived. */
void mr_server_session_confirm(struct mr_endpoint *ep, struct mr_server_session *session);
void mr_server_session_drop(struct mr_endpoint *ep, struct mr_server_session *session);
void mr_server_session_timer(struct mr_endpoint *ep, struct mr_server_session *session);
/* Answers a HELLO of another protocol version. */
void mr_server_session_other_version(struct mr_endpoint *ep, const struct mr_address *to,
                                     const struct mr_version_answer *answer);

/* ---- keys.c ---- */

/* Takes over the configured keys, and clears them in the configuration. */
void mr_keys_init(struct mr_endpoint *ep);
/* The packet is not under the session's key. Returns whether it is under another of our keys of the same
 * role, to which the client has changed; the session then changes to it, too. */
bool mr_keys_server_follow(struct mr_endpoint *ep, struct mr_server_session *session,
                           const struct mr_packet *packet);
/* Handles a packet of an unknown session. If somebody with one of our keys made it, answers with a RESET
 * under that session's key. The RESET is only a hint: the client verifies it with a HELLO. */
void mr_keys_unknown_session(struct mr_endpoint *ep, const struct mr_packet *packet);

/* Limits costly work that anybody can cause: returns true, and counts `cost`, if less than `limit` has been
 * spent in this interval. `spent` is one of the endpoint's `..._in_interval`. */
bool mr_budget_take(struct mr_endpoint *ep, uint32_t *spent, uint32_t cost, uint32_t limit);

/* ---- server_request.c ---- */

void mr_serve_packet(struct mr_endpoint *ep, const struct mr_packet *packet);
/* Of a whole, what a role and those below it may have: shares are kept for the higher roles that there are
 * keys of. */
uint64_t mr_role_share(const struct mr_endpoint *ep, uint8_t role, uint64_t whole);
/* Gives up the requests of the session that have stopped coming, with BUSY. Returns when to look again;
 * UINT64_MAX: none is being received. */
uint64_t mr_requests_end_stalled(struct mr_endpoint *ep, struct mr_server_session *session);
/* Allocates message memory for the slot. NULL when there is none, or when the session, including its other
 * slots, or its role holds its share. */
void *mr_slot_alloc(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_slot *slot,
                    size_t bytes);
/* Returns whether an allocation that failed would fail even if no other call held memory, given
 * `beside_bytes` of the same call. */
bool mr_slot_fits_never(const struct mr_endpoint *ep, const struct mr_server_session *session,
                        const struct mr_slot *slot, size_t bytes, size_t beside_bytes);
/* Frees such a block; NULL is fine. */
void mr_slot_free(struct mr_endpoint *ep, struct mr_server_session *session, void *block);
/* Frees what the slot holds, whatever its state. */
void mr_slot_clear(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot);
/* Answers the slot's call, which holds no memory, with BUSY: it will not be executed under this id. */
void mr_slot_refuse(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot);

/* ---- server_reply.c ---- */

/* Returns the message in a slot that is marked ready. `status_message` (a preamble long, aligned) is filled
 * for a reply without tensors. */
const uint8_t *mr_slot_message(const struct mr_endpoint *ep, const struct mr_slot *slot,
                               uint8_t *status_message);
/* Handles a repetition of a request that is here as a whole, or a question about it; with `probe` the client
 * has waited in vain. */
void mr_reply_repeat(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                     bool probe);
/* Notes that the last of the slot's reply has gone to the port. */
void mr_reply_sent(struct mr_endpoint *ep, struct mr_server_session *session, uint32_t slot_index);
/* Sets the length of replies' segments from now on, also of replies in flight with longer ones. */
void mr_server_session_set_segments(struct mr_endpoint *ep, struct mr_server_session *session,
                                    uint32_t segment_bytes);
void mr_reply_acked(struct mr_endpoint *ep, struct mr_server_session *session,
                    const struct mr_packet *packet);

/* ---- client_session.c ---- */

/* Returns whether the packet is under the session's key, or still under the one before a rotation. */
static inline bool mr_client_session_verify(struct mr_client_session *session, const struct mr_packet *packet)
{
    if (mr_packet_verify(packet, &session->peer.key)) {
        session->has_previous_key = false;
        return true;
    }
    return session->has_previous_key && mr_packet_verify(packet, &session->previous_key);
}
/* Finds a session by id and address alone. */
struct mr_client_session *mr_client_session_lookup(const struct mr_endpoint *ep, uint64_t session_id,
                                                   const struct mr_address *from);
void mr_client_session_timer(struct mr_endpoint *ep, struct mr_client_session *session);
/* A RETRY, an ACCEPT or a RESET. */
void mr_client_session_handshake(struct mr_endpoint *ep, const struct mr_packet *packet);
/* Begins a handshake, unless one is in progress. */
void mr_client_session_connect(struct mr_endpoint *ep, struct mr_client_session *session);
/* Ends it: the server has been heard. */
void mr_client_session_connected(struct mr_endpoint *ep, struct mr_client_session *session);
/* The server has been silent for too long. */
void mr_client_session_away(struct mr_endpoint *ep, struct mr_client_session *session);
/* The server at this address speaks another protocol version. It is believed as far as it echoes a HELLO of a
 * handshake that has no answer yet, which only somebody who has seen that HELLO can do. */
void mr_client_session_other_version(struct mr_endpoint *ep, const struct mr_address *from,
                                     const struct mr_version_answer *answer);
/* Arms the timer for the next keep-alive, probe of the path or acknowledgement of slots; during a handshake
 * it is armed already. */
void mr_client_session_arm(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_client_session_notify(struct mr_endpoint *ep, struct mr_client_session *session,
                              enum mr_client_session_event event);
void mr_client_session_sample_rtt(struct mr_endpoint *ep, struct mr_client_session *session,
                                  const struct mr_packet *packet);
/* Notes that the call in the slot is over; the server keeps its reply until that is acknowledged. */
void mr_client_session_slot_over(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t slot);

/* Acknowledges that the calls in these slots are over, and reports how many bytes of replies may be in
 * flight. */
void mr_client_session_ack_slots(struct mr_endpoint *ep, struct mr_client_session *session, uint64_t slots);

/* ---- path_session.c ---- */

void mr_client_session_path_timer(struct mr_endpoint *ep, struct mr_client_session *session);
/* The session may be closed afterwards. */
void mr_client_session_path_packet(struct mr_endpoint *ep, struct mr_client_session *session,
                                   const struct mr_packet *packet);
/* Probes the path, because calls stay unanswered again and again. */
void mr_client_session_path_doubt(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_server_session_path_answer(struct mr_endpoint *ep, struct mr_server_session *session,
                                   const struct mr_packet *packet);

/* ---- client_window.c ---- */

/* Initializes both windows of a session that has been accepted. */
void mr_flow_begin(struct mr_endpoint *ep, struct mr_client_session *session);
/* Adjusts both windows to another length of segments. */
void mr_flow_resize(struct mr_client_session *session, uint32_t segment_bytes);
void mr_flow_round_trip(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t rtt_us);
/* Reports segments that have arrived for the first time, and others that turned out to be lost. */
void mr_flow_request_segments(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t arrived,
                              uint32_t lost);
void mr_flow_reply_segments(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t arrived,
                            uint32_t lost);
/* Reports persistent loss: most of what was in flight is lost, and several probes in a row. */
void mr_flow_request_lost(struct mr_endpoint *ep, struct mr_client_session *session);

/* ---- client_call.c ---- */

/* Gives free slots to waiting calls. */
void mr_client_session_start_calls(struct mr_endpoint *ep, struct mr_client_session *session);
/* Frees all slots, because the session was opened again. Calls that cannot be repeated are aborted; the
 * others wait for a slot again. */
void mr_client_session_restart_calls(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_client_session_end_aborted(struct mr_endpoint *ep, struct mr_client_session *session,
                                   enum mr_status status);
/* Ends all calls of a session that is being closed with MR_CANCELLED. */
void mr_client_session_cancel_calls(struct mr_endpoint *ep, struct mr_client_session *session);
/* Ends the call if it has not ended; its slot stays taken. The call must not be used afterwards. */
void mr_call_end(struct mr_endpoint *ep, struct mr_call *call, enum mr_status status,
                 const struct mr_message *reply);
/* Frees the call's slot: the server has answered, or will never execute the call. */
void mr_call_release_slot(struct mr_endpoint *ep, struct mr_call *call);
/* Writes the time left until its deadline into the request. */
void mr_call_set_time_left(const struct mr_endpoint *ep, const struct mr_call *call);
/* Sends the request from its first byte on, in its slot. */
void mr_call_transmit(struct mr_endpoint *ep, struct mr_call *call);
/* Does the same after a BUSY, under a new id of the same slot, as the old id is over. */
void mr_call_transmit_again(struct mr_endpoint *ep, struct mr_call *call);
/* Returns whether its request has several segments. */
static inline bool mr_call_is_cut(const struct mr_call *call)
{
    return call->request_bytes > call->segment_bytes;
}
/* Continues a request in flight in segments that get through now. */
void mr_call_shorten(struct mr_endpoint *ep, struct mr_call *call);
/* Arms the call's timer for its next probe or deadline; it may fire earlier. */
void mr_call_arm(struct mr_endpoint *ep, struct mr_call *call);

/* ---- client_rx.c ---- */

void mr_call_packet(struct mr_endpoint *ep, const struct mr_packet *packet);
void mr_call_timer(struct mr_endpoint *ep, struct mr_call *call);
/* Notes that a part of the request was sent. */
void mr_call_sent(struct mr_endpoint *ep, struct mr_call *call, bool whole);

#endif
