/* A link: one core of a node, with its own socket, endpoint and session. Everything but mrc_link_receive()
 * runs under the client's lock; mrc_link_receive() belongs to the thread that drives the client (see
 * progress.h). */
#ifndef MRC_CORE_LINK_H
#define MRC_CORE_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/endpoint.h"
#include "trainer_client/call/ports.h"
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"
#include "dataplane/udp/udp_socket.h"

#define MRC_LINK_NAME_BYTES (MR_ADDRESS_TEXT_BYTES + 16u)
#define MRC_CALLS_MAX       4096u /* begun and not freed, per link */
#define MRC_PATH_TEXT_BYTES 320u
#define MRC_CALLS_AHEAD     128u /* more of them, for the library's own */

struct mr_client;
struct mrc_link_replay;
struct mrc_node;

struct mrc_link_config {
    struct mr_udp_options socket;
    bool offload;
    bool no_bundle;
    uint32_t memory_bytes;
    uint8_t client_uuid[MR_UUID_BYTES];
    uint8_t *psk; /* MR_PSK_BYTES, in memory for keys; without has_psk it means nothing */
    bool has_psk;
    bool replay;
};

struct mrc_link {
    struct mr_client *client;
    struct mrc_node *node;
    uint16_t core;
    struct mr_address address;      /* the session's */
    struct mr_address at;           /* where packets go: the same, unless the server has moved */
    char name[MRC_LINK_NAME_BYTES]; /* "10.0.0.1:7700 core 0" */
    struct mr_udp_socket socket;
    struct mrc_ports ports; /* which source ports have been tried */
    uint64_t port_us;       /* when mrc_link_choose_port() is due */
    struct mr_udp_receiver *receiver;
    struct mr_udp_sender *sender;
    struct mr_endpoint *ep;
    struct mr_client_session *session; /* NULL once closed */
    uint64_t opened_us;
    uint64_t next_us;               /* when mrc_link_poll() is due */
    uint64_t processed_us;          /* when mrc_link_process() last handled packets */
    uint64_t memory_bytes;          /* for the caller's messages */
    uint64_t request_bytes;         /* of calls begun and not ended */
    uint32_t calls_pending;         /* begun and not ended */
    uint32_t calls_held;            /* ended and not freed, because the caller holds views */
    uint64_t start_id;              /* of the server, as this link has seen it last */
    struct mrc_link_replay *replay; /* its pushes (call_hooks.h) */
    bool regrouped;          /* the core has got or lost partitions, and its pushes are to be split again */
    struct mr_link requests; /* calls begun and not ended: struct mrc_shard_request.in_flight */
    uint64_t forgotten_us;   /* the last time, see mrc_link_was_forgotten() */
    uint32_t forgotten;
    bool held;                    /* the server was restarted: only calls marked `ahead` are sent */
    bool up;                      /* has been accepted at least once */
    bool path_known, path_narrow; /* and segment_bytes: as in mr_client_session_info */
    uint32_t segment_bytes;
    bool refused;                                 /* the peer's machine reported that nobody listens there */
    bool blocked;                                 /* the socket's buffer is full: it is watched for room */
    bool unsent;                                  /* calls were handed over, and no poll has sent them yet */
    bool received;                                /* the driver's own: since it polled the link last */
    bool offload_wanted, offload, offload_proven; /* see mrc_link_delivered() */
    uint64_t offload_since_us;                    /* runs have been in use */
    uint64_t offload_again_us, offload_pause_us;  /* when runs are tried again, after so long a pause */
    uint64_t offloaded_seen, resent_seen;         /* since when it is watched */
};

/* Opens the socket and begins the handshake. MR_UNREACHABLE (no route), MR_NO_MEMORY, MR_INVALID_ARGUMENT. */
enum mr_status mrc_link_create(struct mrc_node *node, const struct mrc_link_config *config, uint16_t core,
                               const struct mr_address *address, struct mrc_link **out, char *error,
                               size_t error_bytes);
/* Ends its calls with MR_CANCELLED and the session; ended calls keep their replies. */
void mrc_link_close(struct mrc_link *link, uint64_t now_us);
/* Starts a new session on a closed link. */
enum mr_status mrc_link_reopen(struct mrc_link *link, uint64_t now_us);
/* All calls must have been freed. NULL is fine. */
void mrc_link_destroy(struct mrc_link *link);

/* Returns whether there is room for a request: requests may take only a part of the message memory, so that
 * there is room for their answers. */
bool mrc_link_has_room(const struct mrc_link *link, uint64_t request_bytes);
/* Returns whether views that the caller keeps take so much memory that the next answer should be copied. */
bool mrc_link_is_short(const struct mrc_link *link);

/* Notes that a request of several datagrams, begun at sent_us, was answered. If runs were in use all the
 * while, and most datagrams in runs were not sent again, runs reach this peer: losses are counted from now
 * on, and the next pause is the shortest. A request from before runs were in use proves nothing, nor does one
 * among many losses. Runs pause after the first losses before that, and after heavy ones later, each time for
 * twice as long. */
void mrc_link_delivered(struct mrc_link *link, uint64_t sent_us);

/* Notes that the server, which was not restarted, no longer knew the session. If that happens again and
 * again, another process with the same client_id takes the session away. */
void mrc_link_was_forgotten(struct mrc_link *link, uint64_t now_us);
bool mrc_link_is_contested(const struct mrc_link *link, uint64_t now_us);
/* Returns whether the server was silent during a call that ended at its deadline: nothing was heard since
 * `sent_us`, for so long that a running server would have answered a probe. */
bool mrc_link_was_silent(const struct mrc_link *link, uint64_t sent_us, uint64_t now_us);

/* Writes a line about a path that carries less than the transport needs, for an error. Returns false, and
 * writes nothing, if the path is wide enough. */
bool mrc_link_describe_path(const struct mrc_link *link, char *text, size_t text_bytes);

/* Does the same for a server of another protocol version. */
bool mrc_link_describe_version(const struct mrc_link *link, char *text, size_t text_bytes);
/* Writes which versions the server, by its last ACCEPT, and this library have: for answers of an unknown
 * form. */
void mrc_link_versions(const struct mrc_link *link, char *text, size_t text_bytes);

/* Changes to another source port if packets from this one take a detour at the server. By the driving
 * thread. */
void mrc_link_choose_port(struct mrc_link *link, uint64_t now_us);

/* The server is at another address from now on. By the driving thread, or while nobody drives. */
void mrc_link_move(struct mrc_link *link, const struct mr_address *at, uint64_t now_us);

/* Receives what the socket has, without the lock. Returns whether there was anything. */
bool mrc_link_receive(struct mrc_link *link);
/* Returns whether mrc_link_choose_port() and mrc_link_poll() have anything to do. By the driving thread. */
bool mrc_link_is_due(const struct mrc_link *link, uint64_t now_us);
/* Handles what mrc_link_receive() received: calls may end. */
void mrc_link_process(struct mrc_link *link, uint64_t now_us);
/* Receives and handles what has arrived while nobody polled the link for long. To be called before
 * mrc_link_poll(), whose timers would otherwise see silence: by the driver, or under the lock while nobody
 * drives. Calls may end. */
void mrc_link_catch_up(struct mrc_link *link, uint64_t now_us);
/* Runs timers, and sends what waits: calls may end. */
void mrc_link_poll(struct mrc_link *link, uint64_t now_us);

#endif
