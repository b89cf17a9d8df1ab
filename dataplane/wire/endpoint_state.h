/* What an endpoint remembers: its peers, calls and slots. For the files that implement endpoint.h and for
 * nobody else, through endpoint_internal.h. */
#ifndef MR_ENDPOINT_STATE_H
#define MR_ENDPOINT_STATE_H

#include "dataplane/wire/base/buddy.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/timer_wheel.h"
#include "dataplane/wire/call/numbers.h"
#include "dataplane/wire/call/path.h"
#include "dataplane/wire/call/rtt.h"
#include "dataplane/wire/call/segment.h"
#include "dataplane/wire/call/window.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/session/address_limit.h"
#include "dataplane/wire/session/auth.h"

#define MR_PRIORITIES     8u
#define MR_QUEUE_AHEAD    MR_PRIORITIES /* the queue of calls that go before all priorities */
#define MR_QUEUES         (MR_PRIORITIES + 1u)
#define MR_SESSIONS_LIMIT 65536u   /* a session id holds 16 bits of index */
#define MR_UNCONFIRMED_US 5000000u /* an accepted session must be used within this */
#define MR_AWAY_US        1000000u /* calls pending and silence for so long: the server is away */
#define MR_KEEPALIVE_US   10000000u
/* between pings until the server has answered under the session's key */
#define MR_CONFIRM_US 50000u
/* calls that are over are acknowledged together, this long after the first */
#define MR_SLOTS_ACK_US          20000u
#define MR_SLOTS_ACK_AGAIN_US    200000u
#define MR_HELLO_RETRY_US        10000u /* first; doubles up to MR_PTO_MAX_US */
#define MR_HELLO_COOKIE_TRIES    3u     /* then the cookie may be stale: start again without */
#define MR_TURNS_PER_BULK        8u     /* one turn in so many is the lowest priority's that waits */
#define MR_BUDGET_INTERVAL_US    10000u
#define MR_RESETS_PER_INTERVAL   64u
#define MR_VERIFIES_PER_INTERVAL 128u /* of packets under no known key: about 2 us each */
#define MR_REKEYS_PER_INTERVAL   128u /* likewise, of known sessions: strangers cannot use these up */
#define MR_VERSIONS_PER_INTERVAL 16u  /* HELLOs of other versions that are answered */
#define MR_HINTS_PER_INTERVAL    16u  /* of paths that are looked at */
#define MR_BUSY_BACKOFF_MAX      6u   /* doublings of busy_retry_us */
/* for so long a router's word counts more than what the client says */
#define MR_NARROW_US        1000000u
#define MR_NARROW_AGAIN_US  10000u /* the same said again so soon is nothing new */
#define MR_REPORTED_NUMBERS 65536u /* a router reports one of so many packets last sent */
#define MR_DOUBT_PROBES     2u     /* probes in a row without an answer after which the path is looked at */
/* probes in a row after which a peer that has less than it said is believed */
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
    uint64_t ready;          /* slots whose message of one segment waits for the flush */
    struct mr_link dirty;    /* in endpoint.dirty: something for the flush to do */
    struct mr_link turn;     /* in endpoint.turns[priority of its first sender], if it has senders */
    struct mr_link low_turn; /* in endpoint.low_turns[priority of its last sender], likewise */
    struct mr_link senders;  /* large messages that may send, the highest priority first */
    struct mr_link parked;   /* large messages that wait for room in flight, the longest wait first */
    uint32_t incarnation;
    uint32_t clock_us, clock_heard_us; /* serving: the client's clock, and ours (low bits) when it came */
    uint32_t segment_bytes;            /* of messages that begin now */
    uint32_t window;
    uint32_t flight_bytes, flight_limit_bytes; /* of large messages towards the peer */
    /* calling: it is asked what it has each so many bytes; 0 = it tells often enough by itself */
    uint32_t ask_bytes;
    uint8_t turn_priority, low_turn_priority;
    bool serving;
};

/* A message of several segments on its way out. */
struct mr_tx_message {
    struct mr_link link; /* in its peer's senders or parked, or in none */
    struct mr_outgoing out;
    struct mr_peer *peer;
    uint64_t call_id;
    uint32_t unasked_bytes; /* sent since the receiver was last asked what it has */
    uint32_t turn;          /* number of its last one */
    uint8_t priority;
};

/* ---- serving ---- */

enum mr_slot_state { MR_SLOT_EMPTY, MR_SLOT_RECEIVING, MR_SLOT_EXECUTING, MR_SLOT_DONE, MR_SLOT_REFUSED };

/* A request of several segments on its way in. */
struct mr_rx_message {
    struct mr_incoming in;
    uint64_t first_us;
};

/* A request whose answer comes later. */
struct mr_deferred_request {
    struct mr_link link; /* in endpoint.orphans once its session is gone */
    struct mr_request request;
    uint8_t *bytes;
    uint8_t client_uuid[MR_UUID_BYTES];
    struct mr_message message; /* last: only as many tensors as there are */
};

/* Invariant: a call id executes at most once, and never once it has been answered with BUSY. A slot leaves
 * EXECUTING only by the handler's answer; DONE and REFUSED never go back, except to a newer id; EMPTY with an
 * id means that id has not executed. */
struct mr_slot {
    uint64_t call_id; /* the newest seen; 0 = none */
    uint8_t *message; /* the reply; NULL: status only, or given back after its acknowledgement */
    void *transfer;   /* RECEIVING: struct mr_rx_message; reply of several segments: struct mr_tx_message */
    struct mr_deferred_request *deferred;
    union {
        uint64_t sequence;   /* of the reply; until `acked` */
        uint64_t refused_to; /* `acked`: newer ids up to this were answered with BUSY while it executed */
    };
    uint32_t message_bytes; /* of the reply */
    uint32_t request_bytes;
    uint16_t status;
    uint8_t state; /* enum mr_slot_state */
    uint8_t op;
    uint8_t priority;
    uint8_t restores; /* the low bits of the endpoint's, when the reply was begun */
    bool begun;       /* EXECUTING: between mr_reply_begin and mr_reply_end */
    bool acked;       /* the client has the reply, or, while EXECUTING, wants none any more */
};

struct mr_server_session {
    struct mr_peer peer;
    struct mr_timer timer;
    uint64_t boot_nonce, client_nonce;
    uint64_t hello_number;     /* of the last HELLO that counted */
    uint64_t flight_number;    /* of the packet that last set flight_limit_bytes */
    uint32_t grant_bytes;      /* of a reply that may be sent before the first ACK, in whole segments */
    uint32_t flight_max_bytes; /* of all replies: what the client's buffer takes */
    uint32_t receiving;        /* slots in that state */
    size_t memory_bytes;       /* of message memory, in blocks, that its slots hold */
    uint64_t narrow_us;    /* when a router said that no more than narrow_bytes of a segment get through */
    uint32_t narrow_bytes; /* 0: none has */
    uint32_t next;         /* in the chain of its uuid's bucket, or of free ones; index + 1, 0 = end */
    uint16_t udp_bytes_max;
    uint8_t auth_index;
    uint8_t role; /* enum mr_role, of the key that it was made with */
    bool used;
    bool confirmed; /* a packet under the session's key has come: it is no replay of a HELLO */
    uint8_t client_uuid[MR_UUID_BYTES];
    struct mr_slot slots[MR_WINDOW_MAX];
};
/* With the most that the tables of uuids and of addresses take per session. */
static_assert(sizeof(struct mr_server_session) + 2 * sizeof(uint32_t) + 4 * sizeof(struct mr_address_entry) <
                  4096,
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
    bool held; /* opened again, and not released by its user */
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
    struct mr_client_session *session; /* NULL: closed under a call that was not sent yet */
    struct mr_tx_message sending;      /* requests of several segments */
    struct mr_incoming incoming; /* replies of several segments; bytes is NULL unless one is on its way in */
    uint64_t call_id;            /* 0: has no slot. A new one after each BUSY */
    uint64_t deadline_us;
    uint64_t sent_us; /* first sent in this session */
    uint64_t probe_at_us;
    uint64_t asked_again_us; /* gaps were last resent, or asked for */
    uint8_t *request;
    uint8_t *reply;
    void *user;
    uint32_t request_bytes;
    uint32_t unread_bytes; /* of a reply that found no room */
    /* of the request in its present slot: never longer than it was there; 0: has no slot */
    uint32_t segment_bytes;
    uint8_t state;
    uint8_t op;
    uint8_t queue;      /* its priority, or MR_QUEUE_AHEAD */
    uint8_t probes;     /* in a row, and since it ended */
    uint8_t unanswered; /* probes in a row that led to nothing */
    uint8_t busy_count;
    bool sent_whole; /* every byte was sent under the present id: the server may have executed it */
    bool in_doubt;   /* the same of an earlier session */
    bool server_has; /* the server said that it has the request whole */
    bool asks;       /* a request of one segment goes out again, to ask after it */
    bool user_freed;
    bool repeatable; /* may be executed again in another session */
};

/* ---- both ---- */

struct mr_endpoint {
    struct mr_endpoint_config config;
    struct mr_wire_counters counters;
    struct mr_buddy *memory;
    void *own_memory; /* mapped, unless the caller gave it */
    size_t own_memory_bytes;
    uint64_t (*last_step_hook)(void *app, const uint8_t *client_uuid);
    uint64_t now_us;    /* as of the last call into the endpoint */
    uint64_t polled_us; /* what comes in now has come since; within a poll, of the one before */
    uint64_t random_state;
    uint64_t boot_nonce;
    uint64_t hello_number;                   /* of the last HELLO sent */
    struct mr_link dirty;                    /* peers */
    struct mr_link turns[MR_PRIORITIES];     /* peers with senders, by the priority of their first one */
    struct mr_link low_turns[MR_PRIORITIES]; /* and by that of their last one */
    uint32_t turn;                           /* segments sent in turns so far */
    uint64_t budget_interval;                /* of the five that follow */
    uint32_t resets_in_interval;
    uint32_t verifies_in_interval;
    uint32_t rekeys_in_interval;
    uint32_t versions_in_interval;
    uint32_t hints_in_interval;
    uint16_t arrived_core; /* of the datagram being received */
    uint32_t auth_count;
    uint32_t session_count;
    uint8_t *scratch;   /* one message of one segment, aligned */
    uint8_t *executing; /* the request its handler is looking at; NULL once it is to be answered later */
    uint32_t executing_bytes;
    struct mr_auth auth[MR_PSK_MAX];
    uint8_t cookie_secret[MR_COOKIE_SECRET_BYTES];

    struct mr_server_session *server_sessions; /* [sessions_max], or NULL when nothing is served */
    uint32_t server_sessions_free;             /* index + 1 */
    uint32_t *server_buckets;                  /* by uuid; index + 1 */
    struct mr_address_limits *limits;
    struct mr_link orphans; /* requests to be answered later whose session is gone */

    struct mr_client_session *client_sessions; /* [sessions_max], or NULL when nothing is called */
    uint32_t client_sessions_free;
    uint32_t *client_buckets; /* by id */
    uint32_t bucket_mask;     /* of both tables */
    struct mr_call *calls;    /* [calls_max] */
    size_t requests_bytes;    /* of message memory, in blocks */
    struct mr_link calls_free;

    struct mr_timer_wheel wheel;
    struct mr_message message; /* the one just parsed */
};

#endif
