/* The transport's state machine: sessions, calls, loss recovery, exactly-once, for either side of the wire.
 *
 * An endpoint takes bytes and the time, and gives bytes and the next deadline. It has no socket, no clock and
 * no thread, and allocates nothing after create, so the same code runs on a server core, in the client
 * library, in the hub, in the simulator and under the fuzzers.
 *
 * The side that makes a call drives its reliability. The serving side keeps no timer per call: it answers
 * what it is asked, keeps a finished call's answer until it is acknowledged or a newer call takes its slot,
 * and drops idle sessions. (eRPC, NSDI '19, sections 4 and 5, keeps servers passive in the same way; grants
 * after Homa, SIGCOMM '18; probe time-outs after RFC 9002.)
 *
 * One endpoint belongs to one thread. All times are microseconds of one monotonic clock.
 */
#ifndef MR_ENDPOINT_H
#define MR_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/mr_histogram.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"
#include "dataplane/wire/format/wire_counters.h"

/* Where packets come from and go to. The endpoint compares ip and port, and hands the rest back unchanged. */
struct mr_address {
    uint8_t ip[16];    /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint16_t port;     /* host order */
    uint16_t reserved; /* zero */
    uint32_t path[5];  /* the owner's business: MAC, VLAN, port, local address, ... */
};

/* The functions that the owner of an endpoint provides. */
struct mr_endpoint_io {
    void *self;
    /* Returns room for one datagram of up to `bytes_max` to `to`, or NULL when there is none now; the
     * endpoint then tries again in its next poll. At most one datagram is open at a time. */
    uint8_t *(*tx_begin)(void *self, const struct mr_address *to, uint32_t bytes_max);
    /* Sends the first `bytes` of it; 0 gives the room back, and nothing is sent. */
    void (*tx_end)(void *self, uint32_t bytes);
    /* Fills `out` with n random bytes, for nonces and session ids. */
    void (*random)(void *self, void *out, size_t n);
};

struct mr_endpoint;
struct mr_client_session; /* calling side: a session to one core of one node */
struct mr_call;           /* calling side: one call */

/* Names a call on the serving side. It may be kept for any time; once the call is over it is stale, and does
 * no harm. */
struct mr_call_ref {
    uint32_t session_index;
    uint32_t slot;
    uint64_t session_id;
    uint64_t call_id;
};

/* A request, as the serving side's handler sees it. It is valid until the handler returns, or, after
 * mr_reply_later(), until the call is answered. */
struct mr_request {
    struct mr_call_ref ref;
    const struct mr_message *message; /* tensors point into the receive buffer */
    const uint8_t *client_uuid;       /* MR_UUID_BYTES */
    enum mr_role role;                /* of the session's key */
    uint64_t capabilities;            /* the client's; 0: of a version before 0.3.0 */
    uint64_t now_us;
    uint64_t deadline_us; /* UINT64_MAX = none */
};

/* Handles a request (serving side). The handler must call exactly one of mr_reply_begin/end, mr_reply_status,
 * mr_reply_error, mr_reply_busy or mr_reply_later before it returns. It is called from mr_endpoint_receive()
 * only. */
typedef void (*mr_on_request)(void *app, struct mr_endpoint *ep, const struct mr_request *request);

/* Announces requests that are about to be executed, in this order, so that what they need can be prefetched
 * together. The bytes are from the session's client, but nothing else about them is checked, and they have no
 * alignment. The handler must change nothing. It is called from mr_endpoint_receive() only, for packets that
 * hold several requests. */
struct mr_prefetch {
    const uint8_t *message;
    uint32_t message_bytes;
};
/* Reports that more of a request of several segments has arrived, and that it is not whole: its first
 * `received_bytes` are at `message`, aligned, from the session's client, and otherwise unchecked. They stay
 * there as long as mr_call_ref_arriving() returns true, and after that until the call is answered. The
 * handler must change nothing that others see, as the request may never be whole. It is called from
 * mr_endpoint_receive() only. */
typedef void (*mr_on_arriving)(void *app, struct mr_call_ref ref, const uint8_t *message,
                               uint32_t received_bytes, uint32_t message_bytes);
#define MR_PREFETCH_MAX MR_FRAGMENTS_MAX /* in one announcement */
typedef void (*mr_on_prefetch)(void *app, const struct mr_prefetch *requests, uint32_t count);

enum mr_client_session_event {
    /* accepted: incarnation and core count are known; or heard again after AWAY, and nothing is lost */
    MR_SESSION_UP,
    /* accepted again: by another incarnation, or (incarnation as before) by a server that had forgotten the
     * session; calls that are not repeatable (neither by their op nor numbered) and were sent whole have
     * ended with MR_UNKNOWN_OUTCOME, the others are sent again by themselves */
    MR_SESSION_RESTARTED,
    MR_SESSION_AWAY, /* no answer for a second; calls keep trying until their deadlines */
    MR_SESSION_PATH, /* the path was probed: path_known, path_narrow or segment_bytes may have changed */
};
/* The handler may do anything but destroy the endpoint; it may close this session. */
typedef void (*mr_on_session)(void *app, struct mr_client_session *session,
                              enum mr_client_session_event event);

/* Reports that a call has ended (calling side). `reply` is NULL unless a reply came; `status` is then its
 * preamble.status, which may be an error. Without a reply, MR_BAD_MESSAGE means that the server's answer was
 * malformed, and MR_NO_MEMORY that the server has executed the call, but there is no room for its reply (see
 * mr_call_unread_bytes). *reply is valid until the handler returns, and what its tensors point to until
 * mr_call_free(call). The handler may begin, send, cancel and free calls, including this one, and close
 * sessions. */
typedef void (*mr_on_reply)(void *app, struct mr_call *call, void *user, enum mr_status status,
                            const struct mr_message *reply);

#define MR_PSK_MAX 16u /* keys accepted at once: one for each kind of client, and their successors */

struct mr_endpoint_config {
    struct mr_endpoint_io io;
    void *app;
    mr_on_request on_request;   /* NULL: serves nothing */
    mr_on_session on_session;   /* NULL: not reported */
    mr_on_reply on_reply;       /* NULL: calls nothing */
    mr_on_prefetch on_prefetch; /* serving side; NULL: not announced */
    mr_on_arriving on_arriving; /* serving side; NULL: not reported */
    /* serving side: times calls for mr_endpoint_latency() and mr_endpoint_call_records(); NULL: it has
     * none */
    uint64_t (*clock_ns)(void);

    uint8_t psk[MR_PSK_MAX][MR_PSK_BYTES]; /* [0] is used for new sessions of the calling side */
    uint8_t psk_roles[MR_PSK_MAX];         /* serving side: enum mr_role; 0: MR_ROLE_OPERATOR */
    uint32_t psk_count; /* 0: no key; sessions are open to anybody who can receive at their address */

    uint8_t client_uuid[MR_UUID_BYTES]; /* calling side */
    struct mr_peer_version version;     /* what the peers are told; default mr_version_own() */
    uint32_t incarnation;               /* serving side; rises at every start, from 1 */
    uint64_t start_id;         /* serving side; random at every start; 0: the incarnation stands for it */
    uint32_t lineage;          /* serving side, see struct mr_accept */
    uint32_t restores;         /* serving side, see mr_endpoint_set_restores() */
    uint64_t checkpoint;       /* serving side, see mr_endpoint_set_checkpoint() */
    uint16_t core, core_count; /* serving side */
    uint32_t map_version;      /* serving side */
    bool takes_epochs;         /* serving side: requests may have one, because the node is in a cluster */
    /* calling side, with on_session: after MR_SESSION_RESTARTED a session is held until
     * mr_client_session_release(); meanwhile only calls with mr_call_options.ahead go out */
    bool hold_on_restart;

    uint32_t sessions_max;         /* both sides together; default 1024 */
    uint32_t sessions_per_address; /* serving side; default 0: a quarter of sessions_max, at least 64 */
    /* serving side: HELLOs with a cookie in each second, 1..1000000; default 512 */
    uint32_t hellos_per_address;
    uint32_t calls_max; /* calling side: begun and not freed; default 4096 */
    uint32_t window;    /* slots per session, 1..MR_WINDOW_MAX; default MR_WINDOW_MAX */
    /* largest UDP payload that this side takes, and sends where the path carries it; default
     * MR_UDP_BYTES_MIN */
    uint32_t udp_bytes_max;
    uint32_t receive_window_bytes; /* what may be in flight towards this side per call; default 256 KiB */
    uint32_t message_bytes_max;    /* default MR_MESSAGE_BYTES_MAX */
    /* for messages that are being assembled, kept answers and requests; default 64 MiB. Requests take at most
     * half of it, unless there is only one: the rest is for their replies */
    size_t memory_bytes;
    /* serving side: how much of memory_bytes one session's calls may hold; more is answered BUSY, unless one
     * call alone needs it. 0 = half, the default */
    size_t session_memory_bytes;
    /* payload of a packet of several messages; default UINT32_MAX: as much as the path carries. 0: every
     * message is sent in packets of its own, for measurements and packet captures */
    uint32_t bundle_bytes_max;
    void *memory;             /* 64-byte aligned region of that size, or NULL: the endpoint allocates it */
    uint64_t session_idle_us; /* serving side forgets a silent session after this; default 60 s */
    uint64_t busy_retry_us;   /* default 200 */
};

/* Fills in the defaults named above, and zero elsewhere. */
void mr_endpoint_config_default(struct mr_endpoint_config *config);

/* Allocates everything that the endpoint will ever use. MR_INVALID_ARGUMENT, MR_NO_MEMORY. */
enum mr_status mr_endpoint_create(const struct mr_endpoint_config *config, struct mr_endpoint **out);
/* Drops everything without sending anything to the peers (see mr_client_session_close), and calls no handler.
 * NULL is fine. */
void mr_endpoint_destroy(struct mr_endpoint *ep);

/* ---- driving it ---- */

/* Handles a datagram that was received; may call handlers. `datagram` needs no alignment, and is neither
 * changed nor kept. */
void mr_endpoint_receive(struct mr_endpoint *ep, uint64_t now_us, const struct mr_address *from,
                         const uint8_t *datagram, size_t datagram_bytes);
/* Handles a router's report that a datagram sent `to` (only ip and port count) was too long, and that no more
 * than `udp_bytes` of payload get through (0: the router does not know). `quoted` is the beginning of that
 * datagram. The report is believed only if the quoted packet was sent in a session not long ago, never below
 * MR_UDP_BYTES_MIN, and only a limited number of reports are examined in each interval. The serving side
 * shortens its replies at once and passes the report on to the client, which verifies it (ADR 33). */
void mr_endpoint_too_long(struct mr_endpoint *ep, uint64_t now_us, const struct mr_address *to,
                          const uint8_t *quoted, size_t quoted_bytes, uint32_t udp_bytes);
/* Notes that the next datagram received came in on the NIC queue of core `core`; otherwise it is that of the
 * endpoint's own core. ACCEPTs report it. */
void mr_endpoint_arrived_at(struct mr_endpoint *ep, uint16_t core);
/* Sends what waits to be bundled, and the first segments of large messages. Call it after each burst of
 * receives, replies or sends. */
void mr_endpoint_flush(struct mr_endpoint *ep, uint64_t now_us);
/* Runs timers, flushes, and sends up to `segment_budget` segments of large messages that wait for their turn;
 * the budget limits how long a small call that arrives meanwhile has to wait. Returns the time by which it
 * must be called again: now_us when segments are left, UINT64_MAX when nothing is pending. That time holds
 * until another function is called, which may make something due earlier. Timers are up to 32 us late. */
uint64_t mr_endpoint_poll(struct mr_endpoint *ep, uint64_t now_us, uint32_t segment_budget);

const struct mr_wire_counters *mr_endpoint_counters(const struct mr_endpoint *ep);

/* Serving side: HELLOs of other protocol versions, and the last of them. Anybody can send one. */
struct mr_other_version {
    uint64_t count;
    struct mr_address from;
    uint8_t version; /* of the protocol */
};
const struct mr_other_version *mr_endpoint_other_version(const struct mr_endpoint *ep);

/* The phases of a call on the serving side: from the arrival of the last of its request until its handler
 * begins; until its answer is given, with the turns of other calls of its core if it is worked on in slices;
 * and until the last of the answer has gone to the port. */
enum mr_latency_phase { MR_LATENCY_WAIT, MR_LATENCY_WORK, MR_LATENCY_SEND, MR_LATENCY_PHASES };
/* Returns how long calls of an operation (enum mr_op) have been in a phase; NULL: none was timed so far. It
 * lives as long as the endpoint. Any thread may call this and mr_histogram_read() the result. */
const struct mr_histogram *mr_endpoint_latency(const struct mr_endpoint *ep, uint32_t op,
                                               enum mr_latency_phase phase);
/* The last calls, and those around slow ones (call_records.h). Empty without a clock. The endpoint's
 * thread. */
struct mr_call_records;
struct mr_call_records *mr_endpoint_call_records(struct mr_endpoint *ep);
/* Notes that a call whose answer comes later has had its turn only now: in its record it has waited until
 * then, while the histogram counts that as work. To be called once at most. With a stale ref this does
 * nothing. */
void mr_call_turn(struct mr_endpoint *ep, struct mr_call_ref ref);
/* Notes that a call, which is not answered yet, is about so many keys more. With a stale ref this does
 * nothing. */
void mr_call_add_keys(struct mr_endpoint *ep, struct mr_call_ref ref, uint32_t keys);
/* Returns the bytes of message memory in use. */
size_t mr_endpoint_memory_used(const struct mr_endpoint *ep);

/* Serving side: whether a client that may push has a session. */
bool mr_endpoint_has_client(const struct mr_endpoint *ep, const uint8_t client_uuid[MR_UUID_BYTES]);
/* Serving side: of `places` of a record, how many one network (mr_address_network()) may hold: the same part
 * as of sessions (sessions_per_address). 1..places. */
uint32_t mr_endpoint_network_share(const struct mr_endpoint *ep, uint32_t places);

/* Serving side: sets the function that is asked at ACCEPT for the last push step of a client; without one the
 * step is 0. */
void mr_endpoint_set_last_step_hook(struct mr_endpoint *ep,
                                    uint64_t (*hook)(void *app, const uint8_t *client_uuid));

/* Serving side: sets how many restores by call there have been; ACCEPTs, and replies that are begun from now
 * on, report it. */
void mr_endpoint_set_restores(struct mr_endpoint *ep, uint32_t restores);
/* Serving side: sets the checkpoint that holds what the `sequence` of a reply reports as being on disk; 0:
 * none. Replies that have a sequence name it from now on. */
void mr_endpoint_set_checkpoint(struct mr_endpoint *ep, uint64_t checkpoint);

/* Uses these keys from now on, at most MR_PSK_MAX; 0: none, as in the configuration. Sessions and calls
 * continue. The serving side accepts each of the keys, and answers a session under the one that its client
 * uses. The calling side changes to the first key at once; if the server does not have it yet, the session is
 * away until it does. A client that has none of the server's keys gets no more answers, and its sessions are
 * dropped like silent ones. A session keeps the role that it was made with, and changes to keys of that role
 * only. */
void mr_endpoint_set_keys(struct mr_endpoint *ep, const uint8_t psks[][MR_PSK_BYTES], uint32_t count,
                          uint64_t now_us);
/* The same with a role for each key. */
void mr_endpoint_set_role_keys(struct mr_endpoint *ep, const uint8_t psks[][MR_PSK_BYTES],
                               const uint8_t roles[], uint32_t count, uint64_t now_us);

/* Serving side: how many times per second one address may ask for a session, from now on. */
void mr_endpoint_set_hellos(struct mr_endpoint *ep, uint32_t hellos_per_address);

/* ---- serving side: answers ---- */

/* Makes room for a reply with these tensors. Tensors with data are copied in; for the others `data` is set to
 * where the handler writes. Returns false when message memory is short: nothing was begun, and the caller
 * should call mr_reply_busy(). It also returns false, and mr_reply_busy() then does nothing, when the ref is
 * stale, when the reply is too large for a message (the call is answered with MR_TOO_LARGE), and when it
 * could not fit even if no other call held memory (MR_NO_MEMORY). Begin the reply before changing anything: a
 * call that was answered with BUSY is made again. Between begin and end no other function of the endpoint may
 * be called, unless the answer comes later (mr_reply_later). If the ref has become stale meanwhile,
 * mr_reply_end() only gives the request back. */
bool mr_reply_begin(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status,
                    struct mr_tensor *tensors, uint32_t tensor_count);
void mr_reply_end(struct mr_endpoint *ep, struct mr_call_ref ref);
/* Takes back a reply that was begun and of which nothing was sent (mr_reply_advance): then the call is
 * answered as if it had not been begun. With a stale ref this does nothing. */
void mr_reply_cancel(struct mr_endpoint *ep, struct mr_call_ref ref);
/* A reply may stay open, from begin to end, over many rounds of the caller's loop if mr_reply_later() was
 * called before. Other functions of the endpoint may then be called in between, other calls may begin and
 * end, and parts of this reply may be sent already.
 *
 * mr_reply_advance() declares everything before `end`, a place within one of the reply's tensors or just
 * after one, as final: it may be sent with the next flush or poll, in whole segments, and never the last one
 * before mr_reply_end(). It must not be written again, and the status given to mr_reply_begin() stands. A
 * reply of one segment, or one whose client has stopped waiting, just waits for mr_reply_end().
 *
 * The session may end meanwhile. The reply's memory is then gone, but the request's is not: in each round,
 * ask mr_call_ref_alive() before writing; if it returns false, call mr_reply_end() without writing, which
 * gives the request back. An open reply cannot be ended in another way. With a stale ref this does
 * nothing. */
void mr_reply_advance(struct mr_endpoint *ep, struct mr_call_ref ref, const void *end);
/* Sets `sequence` in the reply's preamble, which is 0 otherwise. To be called before the answer ends, and
 * before mr_reply_advance(). With a stale ref this does nothing. */
void mr_reply_set_sequence(struct mr_endpoint *ep, struct mr_call_ref ref, uint64_t sequence);
/* Replies without tensors, or with one line of text (printf style, cut at 400 bytes; left out when memory is
 * short). These need no memory and cannot fail. */
void mr_reply_status(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status);
void mr_reply_error(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));
/* Answers that the call was not executed, and never will be under its id; the client makes it again under
 * another id a little later. */
void mr_reply_busy(struct mr_endpoint *ep, struct mr_call_ref ref);
/* Postpones the answer, which the same thread gives later. The request's memory stays valid until then, even
 * if the session ends meanwhile, so one of the answers above must be given in any case; it may already be
 * given in the same handler. Returns a stable copy of the request, or NULL when memory is short: the caller
 * must then call mr_reply_busy(). */
const struct mr_request *mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request);
/* Returns whether the session that made the call is alive and waits for this answer. */
bool mr_call_ref_alive(const struct mr_endpoint *ep, struct mr_call_ref ref);
/* Returns whether the call's request is arriving, and not whole yet. */
bool mr_call_ref_arriving(const struct mr_endpoint *ep, struct mr_call_ref ref);
/* Sets `*out` to the current address of the session that made the call. False: the session is gone. */
bool mr_call_ref_address(const struct mr_endpoint *ep, struct mr_call_ref ref, struct mr_address *out);
/* Returns the network of that address (mr_address_network()); 0: the session is gone. */
uint64_t mr_call_ref_network(const struct mr_endpoint *ep, struct mr_call_ref ref);

/* ---- calling side ---- */

/* Opens a session with core `core` at `to`. The handshake begins with the next poll and is tried for ever.
 * Calls may be made at once; they wait. MR_NO_MEMORY when sessions_max is reached. */
enum mr_status mr_client_session_open(struct mr_endpoint *ep, const struct mr_address *to, uint16_t core,
                                      void *user, struct mr_client_session **out);
/* Ends all its calls with MR_CANCELLED, sends a BYE and frees the session. Calls begun and not sent remain
 * the caller's, and end with MR_CANCELLED when they are sent. */
void mr_client_session_close(struct mr_endpoint *ep, struct mr_client_session *session, uint64_t now_us);

/* Lets the calls of a held session be sent. Does nothing if it is not held. */
void mr_client_session_release(struct mr_endpoint *ep, struct mr_client_session *session, uint64_t now_us);

/* Begins another handshake because our address or the server's has changed, or may have, so that the server
 * learns ours before it needs it. The session and its calls stay. */
void mr_client_session_moved(struct mr_endpoint *ep, struct mr_client_session *session, uint64_t now_us);

/* Handles a report, of a router by ICMP or of this machine, that no more than `udp_bytes` of payload get
 * through to the peer. The path is probed; the report alone is not believed. */
void mr_client_session_path_hint(struct mr_endpoint *ep, struct mr_client_session *session,
                                 uint32_t udp_bytes, uint64_t now_us);

struct mr_client_session_info {
    bool up;
    bool held; /* restarted and not released, see hold_on_restart */
    uint32_t incarnation;
    uint64_t start_id;          /* different at each start of the server, whatever its incarnation */
    uint32_t lineage, restores; /* as of the last ACCEPT, see struct mr_accept */
    uint16_t core, core_count;
    uint16_t arrived_core; /* whose NIC queue our HELLO came in on */
    uint32_t map_version;
    uint32_t segment_bytes; /* of messages that begin now */
    bool path_known;        /* datagrams of that size get through, both ways */
    bool path_narrow;       /* not even MR_UDP_BYTES_MIN bytes get through, while shorter datagrams do */
    /* the protocol version that somebody at the server's address claims to speak, under no key: for an
     * error's text only. 0: nobody does, or the server has been heard since */
    uint8_t other_version;
    struct mr_peer_version version; /* the server's, as of the last ACCEPT */
    uint64_t last_push_step;
    uint64_t rtt_us;          /* smoothed; 0 before the first sample */
    uint64_t silent_since_us; /* when the peer was last heard; 0 = never */
    uint32_t calls_pending;
    void *user;
};
void mr_client_session_info(const struct mr_client_session *session, struct mr_client_session_info *out);
/* Writes a line with both versions and the side to upgrade, if other_version is not 0; otherwise returns
 * false. `peer` is what the other side is called. */
bool mr_client_session_version_text(const struct mr_client_session *session, const char *peer, char *text,
                                    size_t text_bytes);

struct mr_call_options {
    uint8_t op;
    uint8_t priority;
    bool ahead; /* is sent before all that wait, whatever their priority, even while the session is held */
    uint16_t table;
    uint16_t flags;
    uint16_t epoch; /* to a node of a cluster; otherwise 0 */
    uint64_t step;
    /* not 0: the server knows the call by it, so the call is repeatable, whatever its op */
    uint64_t sequence;
    /* Absolute; UINT64_MAX = none. The call then ends with MR_UNKNOWN_OUTCOME if it is not repeatable and was
     * sent whole since it was last refused; with MR_BUSY if it was refused and no server can have executed
     * it; otherwise with MR_UNREACHABLE if the session never came up, is away, or has too narrow a path;
     * otherwise with MR_DEADLINE_EXCEEDED. */
    uint64_t deadline_us;
    void *user;
};

/* Makes room for a request; tensors are as in mr_reply_begin. MR_TOO_LARGE, MR_NO_MEMORY (also when calls_max
 * are begun), MR_INVALID_ARGUMENT (priority), MR_CANCELLED (from a handler, while the session is being
 * closed). */
enum mr_status mr_call_begin(struct mr_endpoint *ep, struct mr_client_session *session,
                             const struct mr_call_options *options, struct mr_tensor *tensors,
                             uint32_t tensor_count, struct mr_call **out);
/* Replaces the flags that it was begun with: before it is sent, and while its session is held after a
 * restart. */
void mr_call_set_flags(struct mr_call *call, uint16_t flags);
/* Declares that only what comes before `end`, a place within the request, is written so far: before
 * mr_call_send() for the first time, and later as more is written, until all of it is (`end` is then the end
 * of the last tensor). Whole segments of it may be sent meanwhile, so the request must take several, and
 * what was declared must not be written again. Does nothing once the call has ended. */
void mr_call_advance(struct mr_endpoint *ep, struct mr_call *call, const void *end);
/* Declares that `bytes` of the request, from `place` within it on, are not written there: they are at `data`,
 * and sent from there, so the caller leaves them as they are until on_reply has been called. Before
 * mr_call_send(), once a call at most, of requests longer than MR_SEGMENT_BYTES_MAX. */
void mr_call_borrow(struct mr_call *call, const void *place, const void *data, uint32_t bytes);
/* Hands the call over. Calls are sent in the order of `ahead`, of priority, and of this function, as slots of
 * the session's window become free (one slot in 8 goes to the lowest priority that waits); the first are sent
 * in the next flush or poll. on_reply is called exactly once for the call, never from within this function. A
 * call keeps its slot until the server has answered it, even if it ended earlier by its deadline or by
 * cancellation. */
void mr_call_send(struct mr_endpoint *ep, struct mr_call *call, uint64_t now_us);
/* Ends it now with MR_CANCELLED (through on_reply) if it has not ended. */
void mr_call_cancel(struct mr_endpoint *ep, struct mr_call *call);
/* Does the same if not all of the call was ever sent, so that no server can execute it. False: nothing is
 * changed. */
bool mr_call_withdraw(struct mr_endpoint *ep, struct mr_call *call);
/* Returns the length of the reply for which there was no room, of a call that ended with MR_NO_MEMORY for
 * that reason; 0: there was room. Such a call ends as soon as the reply begins to arrive, because the reply
 * takes more than half of memory_bytes (in a block of the next power of two), or because replies that their
 * users hold take the memory. As long as other calls are in flight, the call waits for the room that they
 * will leave. */
uint32_t mr_call_unread_bytes(const struct mr_call *call);
/* Frees the memory of a call that has ended, or that was begun and never sent. */
void mr_call_free(struct mr_endpoint *ep, struct mr_call *call);

#endif
