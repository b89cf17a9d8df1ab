/* The endpoint's state, shared by the files that implement endpoint.h and by nobody else.
 *
 *   endpoint.c   create, destroy, the way in (receive) and the clock (poll)
 *   transmit.c   packets out: headers and tags, bundles of small messages, turns of large ones
 *   accept.c     serving side: HELLO to ACCEPT, sessions coming and going
 *   session.c    calling side: sessions opened, found, kept alive, closed
 *   connect.c    calling side: HELLO to ACCEPT, lost and restarted servers
 *   serve.c      serving side: requests in, slots
 *   keys.c       the keys in use, their rotation, packets under another key than expected
 *   reply.c      serving side: replies out, kept until they are acknowledged
 *   call.c       calling side: the life of a call
 *   call_io.c    calling side: its packets in, its timers
 *   flow.c       calling side: how much of its requests, and of their replies, may be in flight
 */
#ifndef MR_ENDPOINT_INTERNAL_H
#define MR_ENDPOINT_INTERNAL_H

#include "dataplane/wire/address_limit.h"
#include "dataplane/wire/auth.h"
#include "dataplane/wire/buddy.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/list.h"
#include "dataplane/wire/rtt.h"
#include "dataplane/wire/segment.h"
#include "dataplane/wire/timer_wheel.h"
#include "dataplane/wire/window.h"

#define MR_PRIORITIES            8u
#define MR_QUEUE_AHEAD           MR_PRIORITIES /* the queue of calls that go before all priorities */
#define MR_QUEUES                (MR_PRIORITIES + 1u)
#define MR_SESSIONS_LIMIT        65536u   /* a session id holds 16 bits of index */
#define MR_UNCONFIRMED_US        5000000u /* an accepted session must be used within this */
#define MR_AWAY_US               1000000u /* calls pending and silence for so long: the server is away */
#define MR_KEEPALIVE_US          10000000u
#define MR_CONFIRM_US            50000u /* between pings until the server has answered under the session's key */
#define MR_SLOTS_ACK_US          20000u /* calls that are over are acknowledged together, this long after the first */
#define MR_SLOTS_ACK_AGAIN_US    200000u
#define MR_HELLO_RETRY_US        10000u /* first; doubles up to MR_PTO_MAX_US */
#define MR_HELLO_COOKIE_TRIES    3u     /* then the cookie may be stale: start again without */
#define MR_TURNS_PER_BULK        8u     /* one turn in so many is the lowest priority's that waits */
#define MR_BUDGET_INTERVAL_US    10000u
#define MR_RESETS_PER_INTERVAL   64u
#define MR_VERIFIES_PER_INTERVAL 128u /* of packets under no known key: about 2 us each */
#define MR_REKEYS_PER_INTERVAL   128u /* likewise, of known sessions: strangers cannot use these up */
#define MR_BUSY_BACKOFF_MAX      6u   /* doublings of busy_retry_us */
#define MR_DEAD_SESSIONS         4u   /* ids of ended sessions, whose late ACCEPTs are not believed */
#define MR_LOSS_PROBES           2u /* probes in a row after which a peer that has less than it said is believed */

enum mr_timer_kind { MR_TIMER_SERVED, MR_TIMER_SESSION, MR_TIMER_CALL };

/* What the two kinds of sessions have in common. */
struct mr_peer {
    struct mr_address address;
    struct mr_tag_key key;
    uint64_t session_id;
    uint64_t heard_us;
    uint64_t ready;         /* slots whose message of one segment waits for the flush */
    struct mr_link dirty;   /* in endpoint.dirty: something for the flush to do */
    struct mr_link turn;    /* in endpoint.turns[priority of its first sender], if it has senders */
    struct mr_link senders; /* large messages that may send, the highest priority first */
    struct mr_link parked;  /* large messages that wait for room in flight, the longest wait first */
    uint32_t incarnation;
    uint32_t clock_us, clock_heard_us; /* serving: the client's clock, and ours (low bits) when it came */
    uint32_t segment_bytes;
    uint32_t window;
    uint32_t flight_bytes, flight_limit_bytes; /* of large messages towards the peer */
    uint32_t
        ask_bytes; /* calling: it is asked what it has each so many bytes; 0 = it tells often enough by itself */
    uint8_t turn_priority;
    bool serving;
};

/* A message of several segments on its way out. */
struct mr_sending {
    struct mr_link link; /* in its peer's senders or parked, or in none */
    struct mr_outgoing out;
    struct mr_peer *peer;
    uint64_t call_id;
    uint32_t unasked_bytes; /* sent since the receiver was last asked what it has */
    uint32_t turn;          /* number of its last one */
    uint8_t priority;
};

/* ---- serving ---- */

enum mr_slot_state { MR_SLOT_EMPTY, MR_SLOT_RECEIVING, MR_SLOT_EXECUTING, MR_SLOT_DONE };

/* A request of several segments on its way in. */
struct mr_receiving {
    struct mr_incoming in;
    uint64_t first_us;
};

/* A request whose answer comes later. */
struct mr_later {
    struct mr_link link; /* in endpoint.orphans once its session is gone */
    struct mr_request request;
    uint8_t *bytes;
    uint8_t client_uuid[MR_UUID_BYTES];
    struct mr_message message; /* last: only as many tensors as there are */
};

/* Invariant: a call id executes at most once. A slot leaves EXECUTING only by the handler's answer; DONE never goes back,
 * except to a newer id; EMPTY with an id means that id has not executed. */
struct mr_slot {
    uint64_t call_id; /* the newest seen; 0 = none */
    uint8_t *message; /* the reply; NULL: status only, or given back after its acknowledgement */
    void *transfer;   /* RECEIVING: struct mr_receiving; reply of several segments: struct mr_sending */
    struct mr_later *later;
    uint64_t sequence;      /* of the reply */
    uint32_t message_bytes; /* of the reply */
    uint32_t request_bytes;
    uint16_t status;
    uint8_t state; /* enum mr_slot_state */
    uint8_t op;
    uint8_t priority;
    bool begun; /* EXECUTING: between mr_reply_begin and mr_reply_end */
    bool acked; /* the client has the reply, or, while EXECUTING, wants none any more */
};

struct mr_served {
    struct mr_peer peer;
    struct mr_timer timer;
    uint64_t boot_nonce, client_nonce;
    uint32_t grant_bytes;      /* of a reply that may be sent before the first ACK */
    uint32_t flight_max_bytes; /* of all replies: what the client's buffer takes */
    uint32_t receiving;        /* slots in that state */
    size_t memory_bytes;       /* of message memory, in blocks, that its slots hold */
    uint32_t next;             /* in the chain of its uuid's bucket, or of free ones; index + 1, 0 = end */
    uint16_t udp_bytes_max;
    uint8_t auth_index;
    bool used;
    bool confirmed; /* a packet under the session's key has come: it is no replay of a HELLO */
    uint8_t client_uuid[MR_UUID_BYTES];
    struct mr_slot slots[MR_WINDOW_MAX];
};
/* With the most that the tables of uuids and of addresses take per session. */
static_assert(sizeof(struct mr_served) + 2 * sizeof(uint32_t) + 4 * sizeof(struct mr_address_entry) < 4096,
              "an idle session stays small");

/* ---- calling ---- */

enum mr_handshake { MR_HANDSHAKE_NONE, MR_HANDSHAKE_HELLO, MR_HANDSHAKE_COOKIE };

struct mr_session {
    struct mr_peer peer;
    struct mr_timer timer; /* handshake, else keep-alive */
    struct mr_rtt rtt;
    struct mr_base_delay base_delay;
    struct mr_window requests, replies;
    uint32_t told_window_bytes; /* of replies: what the server knows */
    struct mr_endpoint *ep;
    void *user;
    struct mr_link queue[MR_QUEUES]; /* calls that wait for a slot */
    struct mr_link built;            /* calls begun and not sent */
    struct mr_link doomed;           /* calls about to end, while their callbacks are made one by one */
    uint32_t queued;                 /* bit q: queue[q] is not empty */
    uint32_t calls_pending;
    uint32_t receiving; /* replies of several segments on their way in */
    uint64_t busy_slots;
    uint64_t unacked_slots; /* their calls were over since the last acknowledgement of slots */
    uint64_t unacked_at_us; /* when that is due; 0 = nothing to acknowledge */
    uint64_t keepalive_at_us;
    uint64_t next_call_id;
    uint64_t client_nonce;
    uint64_t last_push_step;
    uint64_t dead_ids[MR_DEAD_SESSIONS];
    uint32_t dead_count;
    uint32_t generation; /* rises when it is freed, so that one notices if a callback did that */
    uint32_t next;       /* in the chain of its id's bucket, or of free ones; index + 1, 0 = end */
    uint32_t grant_bytes;
    uint32_t map_version;
    uint32_t hello_tries;
    uint16_t core, core_count, arrived_core;
    uint8_t handshake; /* enum mr_handshake */
    bool held;         /* made anew, and not released by its user */
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
    MR_CALL_SENDING, /* has a slot, until its answer */
    MR_CALL_PAUSED,  /* has a slot; the server was busy */
    MR_CALL_ENDED,   /* its user knows; may still hold a slot that the server has not given an answer for */
};

struct mr_call {
    struct mr_link link; /* in its session's queue or built, or in the endpoint's free calls */
    struct mr_timer timer;
    struct mr_session *session;  /* NULL: closed under a call that was not sent yet */
    struct mr_sending sending;   /* requests of several segments */
    struct mr_incoming incoming; /* replies of several segments; bytes is NULL unless one is on its way in */
    uint64_t call_id;            /* 0: has no slot */
    uint64_t deadline_us;
    uint64_t sent_us; /* first sent in this session */
    uint64_t probe_at_us;
    uint64_t asked_again_us; /* gaps were last resent, or asked for */
    uint8_t *request;
    uint8_t *reply;
    void *user;
    uint32_t request_bytes;
    uint8_t state;
    uint8_t op;
    uint8_t queue;  /* its priority, or MR_QUEUE_AHEAD */
    uint8_t probes; /* in a row, and since it ended */
    uint8_t busy_count;
    bool sent_whole; /* every byte was sent in this session: the server may have executed it */
    bool server_has; /* the server said that it has the request whole */
    bool user_freed;
    bool repeatable; /* may be executed again in another session */
};

/* ---- both ---- */

struct mr_endpoint {
    struct mr_endpoint_config config;
    struct mr_wire_counters counters;
    struct mr_buddy *memory;
    void *own_memory;
    uint64_t (*last_step_hook)(void *app, const uint8_t *client_uuid);
    uint64_t now_us;    /* of the last call that told it */
    uint64_t polled_us; /* what comes in now has come since */
    uint64_t random_state;
    uint64_t boot_nonce;
    struct mr_link dirty;                /* peers */
    struct mr_link turns[MR_PRIORITIES]; /* peers with senders, by the priority of their first one */
    uint32_t turn;                       /* number of the current one */
    uint64_t budget_interval;            /* of the three that follow */
    uint32_t resets_in_interval;
    uint32_t verifies_in_interval;
    uint32_t rekeys_in_interval;
    uint16_t arrived_core; /* of the datagram being received */
    uint32_t auth_count;
    uint32_t session_count;
    uint8_t *scratch;   /* one message of one segment, aligned */
    uint8_t *executing; /* the request its handler is looking at; NULL once it is to be answered later */
    uint32_t executing_bytes;
    struct mr_auth auth[MR_PSK_MAX];
    uint8_t cookie_secret[MR_COOKIE_SECRET_BYTES];

    struct mr_served *served; /* [sessions_max], or NULL when nothing is served */
    uint32_t served_free;     /* index + 1 */
    uint32_t *served_buckets; /* by uuid; index + 1 */
    struct mr_address_limits *limits;
    struct mr_link orphans; /* requests to be answered later whose session is gone */

    struct mr_session *sessions; /* [sessions_max], or NULL when nothing is called */
    uint32_t sessions_free;
    uint32_t *session_buckets; /* by id */
    uint32_t bucket_mask;      /* of both tables */
    struct mr_call *calls;     /* [calls_max] */
    size_t requests_bytes;     /* of message memory, in blocks */
    struct mr_link calls_free;

    struct mr_timer_wheel wheel;
    struct mr_message message; /* the one just parsed */
};

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

/* Reads all of the packet: to be asked once the cheap checks have passed. */
static inline bool mr_packet_verify(const struct mr_packet *packet, const struct mr_tag_key *key)
{
    return mr_tag_verify(key, packet->datagram, MR_HEADER_BYTES + packet->header.payload_bytes);
}

/* The user's clock, as each of its calls tells it; it never goes back. */
static inline void mr_endpoint_set_now(struct mr_endpoint *ep, uint64_t now_us)
{
    if (now_us > ep->now_us)
        ep->now_us = now_us;
}

uint64_t mr_endpoint_random(struct mr_endpoint *ep);

/* Visit the messages in a DATA packet, whole ones of a bundle or one segment. False: the bundle is malformed. */
struct mr_fragment {
    uint64_t call_id;
    const uint8_t *payload;
    uint32_t message_bytes, offset, bytes;
    bool probe;
};
typedef bool (*mr_on_fragment)(struct mr_endpoint *ep, void *arg, const struct mr_fragment *fragment);
void mr_each_fragment(struct mr_endpoint *ep, void *arg, const struct mr_packet *packet,
                      mr_on_fragment visit);

/* ---- transmit.c ---- */

/* Send one packet; the header's payload_bytes says how long `payload` is. False: no room now. */
bool mr_transmit(struct mr_endpoint *ep, const struct mr_address *to, const struct mr_tag_key *key,
                 const struct mr_packet_header *header, const void *payload);
/* Within a session. */
bool mr_transmit_control(struct mr_endpoint *ep, const struct mr_peer *peer, enum mr_packet_type type,
                         uint16_t flags, uint64_t call_id, const void *payload, uint16_t payload_bytes);
bool mr_transmit_segment(struct mr_endpoint *ep, const struct mr_peer *peer, uint16_t flags, uint64_t call_id,
                         const uint8_t *message, uint32_t message_bytes, const struct mr_segment *segment);
bool mr_transmit_ack(struct mr_endpoint *ep, const struct mr_peer *peer, uint16_t flags, uint64_t call_id,
                     uint32_t received_bytes);
void mr_peer_init(struct mr_peer *peer, bool serving);
void mr_peer_mark(struct mr_endpoint *ep, struct mr_peer *peer);
/* Queue the slot's message of one segment for the next flush. */
void mr_peer_ready(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t slot);
/* Give the message its turn among the senders if it may send something. */
void mr_sending_activate(struct mr_endpoint *ep, struct mr_sending *sending);
/* Take in a report about it, and go on as it allows. False: the report cannot be about it. */
bool mr_sending_report(struct mr_endpoint *ep, struct mr_sending *sending, const struct mr_ack *ack,
                       uint32_t losses_from);
/* There is more room in flight: its parked messages may try. */
void mr_peer_unpark(struct mr_endpoint *ep, struct mr_peer *peer);
/* Off all lists; what it had in flight no longer counts. */
void mr_sending_stop(struct mr_endpoint *ep, struct mr_sending *sending);
/* Flush all; false when the port had no room. */
bool mr_transmit_flush(struct mr_endpoint *ep);
/* Segments of large messages: higher priorities first, sessions of one priority in turn, and the messages of one session in
 * turn among themselves. */
void mr_transmit_senders(struct mr_endpoint *ep, uint32_t segment_budget);
/* Nothing waits for a turn. */
bool mr_transmit_idle(const struct mr_endpoint *ep);

/* ---- accept.c ---- */

void mr_accept_hello(struct mr_endpoint *ep, const struct mr_packet *packet);
/* The head of an answer to a packet of no session, or of none that is known. */
struct mr_packet_header mr_answer_header(const struct mr_endpoint *ep, const struct mr_packet *packet,
                                         enum mr_packet_type type, uint16_t payload_bytes);
/* The session a packet to the serving side belongs to, verified; NULL: counted, and perhaps answered with a RESET. */
struct mr_served *mr_served_find(struct mr_endpoint *ep, const struct mr_packet *packet);
void mr_served_drop(struct mr_endpoint *ep, struct mr_served *served);
void mr_served_timer(struct mr_endpoint *ep, struct mr_served *served);

/* ---- keys.c ---- */

/* Take over the configured keys; no copy of them stays in the configuration. */
void mr_keys_init(struct mr_endpoint *ep);
/* Whether the packet is under the session's key, or its client has gone over to another of ours: then the session has. */
bool mr_keys_served_verify(struct mr_endpoint *ep, struct mr_served *served, const struct mr_packet *packet);
/* Nothing is known of the session. If the packet proves that somebody with a key of ours made it, say so with a RESET, under
 * that same session's key. A hint: the client looks for itself with a HELLO. */
void mr_keys_unknown_session(struct mr_endpoint *ep, const struct mr_packet *packet);
bool mr_keys_session_verify(struct mr_session *session, const struct mr_packet *packet);

/* ---- serve.c ---- */

void mr_serve_packet(struct mr_endpoint *ep, const struct mr_packet *packet);
/* Message memory for the slot. NULL when there is none, or when the session holds its share, in other slots too. */
void *mr_slot_alloc(struct mr_endpoint *ep, struct mr_served *served, const struct mr_slot *slot,
                    size_t bytes);
/* Give back such a block; NULL is fine. */
void mr_slot_free(struct mr_endpoint *ep, struct mr_served *served, void *block);
/* Give back what the slot holds, whatever its state. */
void mr_slot_clear(struct mr_endpoint *ep, struct mr_served *served, struct mr_slot *slot);
void mr_served_busy(struct mr_endpoint *ep, const struct mr_served *served, uint64_t call_id);

/* ---- reply.c ---- */

/* The message that stands in a slot marked ready. `status_message` (a preamble long, aligned) is used for those without tensors. */
const uint8_t *mr_slot_message(const struct mr_slot *slot, uint8_t *status_message);
/* A request that was taken in whole is sent again, or asked about: with `probe` the client has waited for it in vain. */
void mr_reply_repeat(struct mr_endpoint *ep, struct mr_served *served, struct mr_slot *slot, bool probe);
void mr_reply_acked(struct mr_endpoint *ep, struct mr_served *served, const struct mr_packet *packet);

/* ---- session.c ---- */

/* The session a packet to the calling side belongs to, verified; NULL: counted. */
struct mr_session *mr_session_find(struct mr_endpoint *ep, const struct mr_packet *packet);
/* By id and address alone. */
struct mr_session *mr_session_lookup(const struct mr_endpoint *ep, uint64_t session_id,
                                     const struct mr_address *from);
/* Into, and out of, the table that they are found in; under the id the peer has at the time. */
void mr_session_enter(struct mr_endpoint *ep, struct mr_session *session);
void mr_session_leave(struct mr_endpoint *ep, struct mr_session *session);
void mr_session_timer(struct mr_endpoint *ep, struct mr_session *session);
/* For the next keep-alive or acknowledgement of slots. */
void mr_session_arm(struct mr_endpoint *ep, struct mr_session *session);
void mr_session_tell(struct mr_endpoint *ep, struct mr_session *session, enum mr_session_event event);
void mr_session_sample_rtt(struct mr_endpoint *ep, struct mr_session *session,
                           const struct mr_packet *packet);
/* The call in the slot is over, and the server keeps what it has of it until told so. */
void mr_session_slot_over(struct mr_endpoint *ep, struct mr_session *session, uint32_t slot);

/* Say that the calls in these slots are over, and how much of replies may be in flight. */
void mr_session_ack_slots(struct mr_endpoint *ep, struct mr_session *session, uint64_t slots);

/* ---- flow.c ---- */

/* The session has been accepted: nothing is known of its path. */
void mr_flow_begin(struct mr_endpoint *ep, struct mr_session *session);
void mr_flow_round_trip(struct mr_endpoint *ep, struct mr_session *session, uint32_t rtt_us);
/* So many segments have arrived for the first time, so many others turn out to be lost. */
void mr_flow_request_segments(struct mr_endpoint *ep, struct mr_session *session, uint32_t arrived,
                              uint32_t lost);
void mr_flow_reply_segments(struct mr_endpoint *ep, struct mr_session *session, uint32_t arrived,
                            uint32_t lost);
/* Most of what was in flight is lost, and probes in a row with it. */
void mr_flow_request_lost(struct mr_endpoint *ep, struct mr_session *session);

/* ---- connect.c ---- */

void mr_connect_packet(struct mr_endpoint *ep, const struct mr_packet *packet); /* RETRY, ACCEPT, RESET */
void mr_connect_begin(struct mr_endpoint *ep, struct mr_session *session);
/* The time for an answer to the last HELLO is up. */
void mr_connect_retry(struct mr_endpoint *ep, struct mr_session *session);
void mr_connect_end(struct mr_endpoint *ep, struct mr_session *session);
/* Nothing was heard for too long. */
void mr_session_away(struct mr_endpoint *ep, struct mr_session *session);

/* ---- call.c ---- */

/* Give slots to waiting calls, as far as there are free ones. */
void mr_session_start_calls(struct mr_endpoint *ep, struct mr_session *session);
/* The session is made anew: all slots are freed. What cannot be repeated is doomed, the rest waits for a slot again. */
void mr_session_restart_calls(struct mr_endpoint *ep, struct mr_session *session);
void mr_session_end_doomed(struct mr_endpoint *ep, struct mr_session *session, enum mr_status status);
/* The session is being closed: end all with MR_CANCELLED. */
void mr_session_cancel_calls(struct mr_endpoint *ep, struct mr_session *session);
/* End the call, if it has not ended; its slot stays taken. The call must not be touched afterwards. */
void mr_call_end(struct mr_endpoint *ep, struct mr_call *call, enum mr_status status,
                 const struct mr_message *reply);
/* The server has answered, or will never execute it: the slot is free for the next call. */
void mr_call_release_slot(struct mr_endpoint *ep, struct mr_call *call);
/* Free the reply, or what there is of it. */
void mr_call_drop_reply(struct mr_endpoint *ep, struct mr_call *call);
/* Send the request, from its first byte on, in the slot it has. */
void mr_call_transmit(struct mr_endpoint *ep, struct mr_call *call);
/* See to it that the call's timer fires at its next probe or deadline; it may fire earlier. */
void mr_call_arm(struct mr_endpoint *ep, struct mr_call *call);

/* ---- call_io.c ---- */

void mr_call_packet(struct mr_endpoint *ep, const struct mr_packet *packet);
void mr_call_timer(struct mr_endpoint *ep, struct mr_call *call);
/* Something of the request went out. */
void mr_call_sent(struct mr_endpoint *ep, struct mr_call *call, bool whole);

#endif
