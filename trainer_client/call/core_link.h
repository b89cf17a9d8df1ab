/* A link: one core of the node, with its own socket, endpoint and session. Everything but mrc_link_receive()
 * runs under the client's lock; mrc_link_receive() belongs to the thread that drives the client (see
 * progress.h). */
#ifndef MRC_CORE_LINK_H
#define MRC_CORE_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "trainer_client/call/ports.h"
#include "trainer_client/replay/replay.h"
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"
#include "dataplane/udp/udp_socket.h"

#define MRC_LINK_NAME_BYTES (MR_ADDRESS_TEXT_BYTES + 16u)
#define MRC_CALLS_MAX       4096u /* begun and not freed, per link */
#define MRC_PATH_TEXT_BYTES 320u
#define MRC_CALLS_AHEAD     128u /* more of them, for the library's own */

struct mr_client;

struct mrc_link_config {
    struct mr_udp_options socket;
    bool offload;
    bool no_bundle;
    uint32_t memory_bytes;
    uint8_t client_uuid[MR_UUID_BYTES];
    uint8_t psk[MR_PSK_BYTES];
    bool has_psk;
    bool replay;
};

struct mrc_link {
    struct mr_client *client;
    uint16_t core;
    struct mr_address address;
    char name[MRC_LINK_NAME_BYTES]; /* "10.0.0.1:7700 core 0" */
    struct mr_udp_socket socket;
    struct mrc_ports ports; /* which of its source ports have been tried */
    uint64_t port_us;       /* when the next one is due */
    struct mr_udp_receiver *receiver;
    struct mr_udp_sender *sender;
    struct mr_endpoint *ep;
    struct mr_client_session *session; /* NULL once closed */
    uint64_t opened_us;
    uint64_t next_us;       /* when mrc_link_poll() is due */
    uint64_t memory_bytes;  /* for the caller's messages */
    uint64_t request_bytes; /* of calls begun and not ended */
    uint32_t calls_pending; /* begun and not ended */
    uint32_t calls_held;    /* ended and not freed: views that the caller holds */
    uint64_t looked_up_in;  /* the start of the server that answered the last lookup of rows here; 0: none */
    uint64_t start_id;      /* of the server, as this link has seen it last */
    struct mrc_replay own;  /* its pushes */
    /* the lanes of former maps, from the oldest map on: their keys are this core's now */
    struct mrc_replay **former;
    uint32_t former_count;
    uint32_t former_cores;        /* of the map by which they were dealt out */
    struct mr_link parts;         /* calls begun and not ended: struct mrc_part.in_flight */
    struct mr_link resends;       /* those that are in flight again */
    uint64_t resend_us;           /* when there is something to be sent again */
    bool held;                    /* the server restarted: only calls that are ahead of the others go out */
    uint32_t forgotten;           /* times, see mrc_link_was_forgotten() ... */
    uint64_t forgotten_us;        /* ... and the last of them */
    bool up;                      /* has been accepted at least once */
    bool path_known, path_narrow; /* and segment_bytes: as in mr_client_session_info */
    uint32_t segment_bytes;
    bool refused; /* the peer's machine said lately that nobody listens there */
    bool blocked; /* the socket's buffer is full: it is watched for room */
    bool unsent;  /* calls were handed over that no poll has sent yet */
    bool offload_wanted, offload, offload_proven; /* see mrc_link_delivered() */
    uint64_t offloaded_seen, resent_seen;         /* since when it is watched */
};

/* Opens the socket and begins the handshake. MR_UNREACHABLE (no route), MR_NO_MEMORY, MR_INVALID_ARGUMENT. */
enum mr_status mrc_link_create(struct mr_client *client, const struct mrc_link_config *config, uint16_t core,
                               const struct mr_address *address, struct mrc_link **out, char *error,
                               size_t error_bytes);
/* Ends its calls with MR_CANCELLED and the session; ended calls keep their replies. */
void mrc_link_close(struct mrc_link *link, uint64_t now_us);
/* Starts a new session on a closed link. */
enum mr_status mrc_link_reopen(struct mrc_link *link, uint64_t now_us);
/* All calls must have been freed. NULL is fine. */
void mrc_link_destroy(struct mrc_link *link);

/* Requests may take this much of the message memory, so that there is room for the answers they wait for. */
bool mrc_link_has_room(const struct mrc_link *link, uint64_t request_bytes);
/* Views that the caller keeps take so much already that the next answer should be copied out. */
bool mrc_link_is_short(const struct mrc_link *link);

/* A request of several datagrams was answered. If they went out in runs and did not have to be sent again,
 * this peer gets them, and losses later on have other reasons. Until that is known, having to send again
 * gives the runs up. */
void mrc_link_delivered(struct mrc_link *link);

/* The server, the same as before, did not know the session any more. When that comes again and again, another
 * process takes the session away: one with the same client_id. */
void mrc_link_was_forgotten(struct mrc_link *link, uint64_t now_us);
bool mrc_link_is_contested(const struct mrc_link *link, uint64_t now_us);
/* Whether a call that ended at its deadline met with silence: nothing was heard since it was handed over at
 * `sent_us`, for so long that a server which is there would have answered a probe. */
bool mrc_link_was_silent(const struct mrc_link *link, uint64_t sent_us, uint64_t now_us);

/* Writes a line about a path that carries less than the transport needs, for an error; false: it is none, and
 * nothing is written. */
bool mrc_link_describe_path(const struct mrc_link *link, char *text, size_t text_bytes);

/* The same about a server of another version of the protocol. */
bool mrc_link_describe_version(const struct mrc_link *link, char *text, size_t text_bytes);

/* Send from another port where packets from this one take a detour at the server. By the driving thread. */
void mrc_link_choose_port(struct mrc_link *link, uint64_t now_us);

/* Take what the socket has, without the lock; whether there was anything. */
bool mrc_link_receive(struct mrc_link *link);
/* Handle what mrc_link_receive() took: calls may end. */
void mrc_link_process(struct mrc_link *link, uint64_t now_us);
/* When nobody has been here for long: take and handle what has come meanwhile. To be called before
 * mrc_link_poll(), whose timers would take it for silence, by the driver, or under the lock while nobody
 * drives. Calls may end. */
void mrc_link_catch_up(struct mrc_link *link, uint64_t now_us);
/* Timers, and sending what waits: calls may end. */
void mrc_link_poll(struct mrc_link *link, uint64_t now_us);

#endif
