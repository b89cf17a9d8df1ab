/* The packet: everything that one UDP payload may hold. This header has all wire structures and limits of the
 * transport; docs/protocol.md explains them to authors of a second client.
 *
 * Little-endian, naturally aligned. Pure layout and checks: no clock, no memory, no I/O. Any thread.
 */
#ifndef MR_PACKET_H
#define MR_PACKET_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs travel as they stand in memory");

#define MR_MAGIC            0x524Du /* "MR" */
#define MR_PROTOCOL_VERSION 4u

#define MR_HEADER_BYTES      56u
#define MR_UDP_BYTES_MAX     8952u /* MTU 9000 less IPv6 and UDP headers, rounded down to 8 */
#define MR_PATH_MTU_MIN      1280u /* the least that IPv6 has (RFC 8200, 5), and that is asked of IPv4 */
#define MR_UDP_BYTES_MIN     1232u /* that less IPv6 and UDP headers */
#define MR_SEGMENT_BYTES_MIN (MR_UDP_BYTES_MIN - MR_HEADER_BYTES)
#define MR_SEGMENT_BYTES_MAX (MR_UDP_BYTES_MAX - MR_HEADER_BYTES)
#define MR_MESSAGE_BYTES_MAX (64u << 20)
#define MR_WINDOW_MAX        64u /* call slots per session; slot = call id modulo the window */
#define MR_SACK_WORDS        4u  /* 256 segments after the first gap */
#define MR_CORE_MAX          64u /* cores per node; a session id's low 8 bits name the core */
#define MR_CORE_BITS         8u

/* X(name, value): packet types */
#define MR_PACKET_TYPE_LIST(X)                                                                               \
    X(HELLO, 1)                                                                                              \
    X(RETRY, 2)                                                                                              \
    X(ACCEPT, 3)                                                                                             \
    X(DATA, 4)                                                                                               \
    X(ACK, 5)                                                                                                \
    X(RESEND, 6)                                                                                             \
    X(BUSY, 7)                                                                                               \
    X(RESET, 8)                                                                                              \
    X(BYE, 9)                                                                                                \
    X(PING, 10)                                                                                              \
    X(PATH, 11)

enum mr_packet_type {
#define MR_PACKET_TYPE_ENUM(name, value) MR_PACKET_##name = (value),
    MR_PACKET_TYPE_LIST(MR_PACKET_TYPE_ENUM)
#undef MR_PACKET_TYPE_ENUM
        MR_PACKET_TYPE_END
};

enum mr_packet_flag {
    /* sent by the side that serves the call (DATA, PATH), or about its message (ACK, RESEND) */
    MR_FLAG_REPLY = 1u << 0,
    MR_FLAG_BUNDLE = 1u << 1, /* DATA: the payload is a list of frames, each one whole message */
    MR_FLAG_PROBE = 1u << 2,  /* DATA, PING: answer at once with what you have */
};

struct mr_packet_header {
    uint16_t magic;
    uint8_t version;
    uint8_t type;           /* enum mr_packet_type */
    uint16_t flags;         /* enum mr_packet_flag */
    uint16_t payload_bytes; /* after this header */
    uint64_t session_id;    /* random bits, the low MR_CORE_BITS are the core's number; 0 before ACCEPT */
    /* rises with each call of the session, from 1, and skips ids whose slot is taken; 0 in bundles and
     * session packets. HELLO: the client nonce, which RETRY and ACCEPT echo */
    uint64_t call_id;
    uint32_t message_bytes; /* DATA: length of the whole message */
    /* DATA: length of all the message's segments but the last; 0: the whole message is here */
    uint16_t segment_bytes;
    uint16_t segment_number; /* DATA: which of them this is, from 0 */
    uint32_t incarnation;    /* the server's; in a client's packet the one that it knows; 0 in HELLO */
    uint32_t clock_us; /* client: its clock, low 32 bits. Server: the last client clock it saw, echoed */
    /* counts the sender's packets in the session, from 1; each is processed once. HELLO: counts the HELLOs of
     * its process; RETRY, ACCEPT and RESET echo the number of what they answer */
    uint64_t number;
    uint64_t tag; /* of the 48 bytes before and the payload, under the session's key (see auth.h) */
};
static_assert(sizeof(struct mr_packet_header) == MR_HEADER_BYTES, "header size");
static_assert(offsetof(struct mr_packet_header, session_id) == 8, "session_id");
static_assert(offsetof(struct mr_packet_header, call_id) == 16, "call_id");
static_assert(offsetof(struct mr_packet_header, message_bytes) == 24, "message_bytes");
static_assert(offsetof(struct mr_packet_header, segment_bytes) == 28, "segment_bytes");
static_assert(offsetof(struct mr_packet_header, segment_number) == 30, "segment_number");
static_assert(offsetof(struct mr_packet_header, incarnation) == 32, "incarnation");
static_assert(offsetof(struct mr_packet_header, clock_us) == 36, "clock_us");
static_assert(offsetof(struct mr_packet_header, number) == 40, "number");
static_assert(offsetof(struct mr_packet_header, tag) == 48, "tag");

static_assert(MR_MESSAGE_BYTES_MAX / MR_SEGMENT_BYTES_MIN < UINT16_MAX, "every segment has a number");

/* One message inside a bundle; the message follows, padded with zeros to a multiple of 8 bytes. */
struct mr_frame {
    uint64_t call_id;
    uint32_t message_bytes;
    uint32_t reserved; /* zero */
};
static_assert(sizeof(struct mr_frame) == 16, "frame size");

/* Payload of ACK and RESEND: what the receiver of a message has, and how far it may be sent. Offsets are
 * absolute, so lost or repeated reports do no harm. RESEND asks for the gaps to be filled at once.
 *
 * ACK with MR_FLAG_REPLY and call id 0 is about the session. received_bytes and grant_bytes hold the low and
 * the high half of a call id: the calls below that id in the slots of sack[0] are over, and the server may
 * free what it keeps of them. sack[1]: bytes of all replies that may be in flight from now on; 0 = as before.
 * segment_bytes: length of replies' segments from now on; 0 = as before. */
struct mr_ack {
    uint32_t received_bytes; /* all bytes below this have arrived */
    uint32_t grant_bytes;    /* the sender may send bytes below this */
    uint32_t segment_bytes;  /* of the segments that `sack` counts */
    uint32_t reserved;       /* zero */
    /* bit i: segment number (received_bytes / segment_bytes) + 1 + i has arrived */
    uint64_t sack[MR_SACK_WORDS];
};
static_assert(sizeof(struct mr_ack) == 48, "ack size");

/* Payload of a PATH with MR_FLAG_REPLY and call id 0: what a router reported to the server. */
struct mr_path_word {
    uint32_t udp_bytes; /* datagrams that are longer do not get through */
    uint32_t reserved;  /* zero */
};
static_assert(sizeof(struct mr_path_word) == 8, "path word size");

/* A whole message, or one segment of one, as a DATA packet carries it. */
struct mr_fragment {
    uint64_t call_id;
    const uint8_t *payload;
    uint32_t message_bytes, segment_bytes, offset, bytes; /* segment_bytes 0: the message is whole */
    bool probe;
};
#define MR_FRAGMENTS_MAX 64u /* taken at once */
/* Takes the next fragments of a DATA packet: its one segment, or up to MR_FRAGMENTS_MAX messages of a bundle.
 * `*at` is the number of payload bytes taken so far, 0 at first and payload_bytes at the end. False: the
 * bundle is malformed after the `*count` messages taken. */
bool mr_packet_fragments(const struct mr_packet_header *header, const uint8_t *payload, uint32_t *at,
                         struct mr_fragment out[MR_FRAGMENTS_MAX], uint32_t *count);

#define MR_UUID_BYTES   16u
#define MR_COOKIE_BYTES 16u
#define MR_PROOF_BYTES  32u
#define MR_PSK_BYTES    32u /* pre-shared key */

#define MR_VERSION_TEXT_BYTES 16u /* of a version's text, NUL-padded; at most 15 characters */

/* A peer's version: its capabilities (capability.h), and a text for people. All zero: a version before
 * 0.3.0, which has none. */
struct mr_peer_version {
    uint64_t capabilities;
    char text[MR_VERSION_TEXT_BYTES];
};
static_assert(sizeof(struct mr_peer_version) == 24, "peer version size");

/* Sent by the client twice: without a cookie, then with the cookie of the RETRY. It is at least as long as
 * any answer. */
struct mr_hello {
    uint8_t client_uuid[MR_UUID_BYTES]; /* names the client across restarts of its process */
    uint64_t boot_nonce;   /* random at each start of the process: a new one ends the old sessions */
    uint64_t client_nonce; /* random in each handshake: an answer with another nonce is not believed */
    uint64_t session_id;   /* the session that the client has, and wants to keep; 0 = none */
    uint32_t key_id;       /* names the pre-shared key: the first 4 bytes of BLAKE2b(key) */
    uint32_t receive_buffer_bytes;   /* what may be in flight to this client */
    uint16_t udp_bytes_max;          /* largest UDP payload the client takes */
    uint16_t window;                 /* call slots wanted */
    uint16_t core;                   /* core wanted */
    uint16_t reserved;               /* zero */
    uint8_t cookie[MR_COOKIE_BYTES]; /* zero in the first HELLO */
    uint8_t proof[MR_PROOF_BYTES];   /* zero in the first HELLO; keyed hash, see auth.h */
    struct mr_peer_version version;  /* the client's; versions before 0.3.0 sent zeros, and read nothing */
};
static_assert(sizeof(struct mr_hello) == 128, "hello size");

struct mr_retry {
    uint8_t cookie[MR_COOKIE_BYTES];
};

struct mr_accept {
    uint64_t session_id;
    uint64_t client_nonce;   /* the HELLO's */
    uint64_t last_push_step; /* highest step of this client's pushes that this core has; 0 = none */
    uint64_t start_id;       /* random, and different at each start of the server, whatever its incarnation */
    uint32_t lineage;  /* random, of the server's directory: `restores` can be compared within one lineage */
    uint32_t restores; /* number of restores by call so far, each of which took back what had been answered */
    uint32_t incarnation;
    uint32_t grant_bytes; /* of each request that may be sent before the first ACK */
    uint32_t map_version; /* of the partition map, see MR_OP_NODE_INFO */
    /* agreed UDP payload: no datagram is longer, and a narrow path may carry less */
    uint16_t udp_bytes_max;
    uint16_t window; /* agreed call slots */
    uint16_t core;
    uint16_t core_count;
    uint16_t arrived_core; /* core whose NIC queue received the HELLO: `core`, unless the NIC chose another */
    uint16_t reserved;     /* zero */
    uint8_t proof[MR_PROOF_BYTES];
};
static_assert(sizeof(struct mr_accept) == 96, "accept size");

/* The answer to a HELLO that has a version: the proof covers the server's, too. Other HELLOs are answered
 * with the first part alone. */
struct mr_accept_long {
    struct mr_accept accept;
    struct mr_peer_version version;
};
static_assert(sizeof(struct mr_accept_long) == 120, "long accept size");
static_assert(sizeof(struct mr_accept_long) <= sizeof(struct mr_hello), "nothing is amplified");

/* The answer to a HELLO of another version. Its form is the same in all versions, as are these fields of a
 * HELLO: magic, version, type 1, and at least 64 random bits in bytes 8 to 31. It is under no key, because
 * other versions may use keys differently: it is a hint for an error's text. */
#define MR_PACKET_VERSION 255u /* in all versions, packets of this type have this form */
#define MR_VERSION_ECHO   24u
struct mr_version_answer {
    uint16_t magic;
    uint8_t version; /* of the server */
    uint8_t type;    /* MR_PACKET_VERSION */
    uint8_t asked;   /* the HELLO's version */
    uint8_t reserved[3];
    uint8_t echo[MR_VERSION_ECHO];    /* bytes 8 to 31 of the HELLO */
    char text[MR_VERSION_TEXT_BYTES]; /* the server's version, for people; zeros before 0.3.0 */
    uint8_t padding[8];               /* zero */
};
static_assert(sizeof(struct mr_version_answer) == 56, "version answer size");
#define MR_VERSION_HELLO_BYTES 64u /* no HELLO of any version is shorter */
static_assert(sizeof(struct mr_version_answer) <= MR_VERSION_HELLO_BYTES, "nothing is amplified");

/* Makes the answer to a datagram that mr_packet_parse() dropped because of its version. Returns false unless
 * the datagram is a HELLO. */
bool mr_version_answer_make(const uint8_t *datagram, size_t datagram_bytes, struct mr_version_answer *out);
/* Parses such a datagram as an answer to a HELLO of this version. Returns false if it is none. */
bool mr_version_answer_parse(const uint8_t *datagram, size_t datagram_bytes, struct mr_version_answer *out);

/* Why a packet was dropped: X(name, kind, unit, help), in the order of the checks. Drops are counted for each
 * reason, and never answered. */
#define MR_DROP_LIST(X)                                                                                      \
    X(drop_short, COUNTER, NONE, "datagrams shorter than a header or not as long as it says")                \
    X(drop_magic, COUNTER, NONE, "datagrams that are not Millrace packets")                                  \
    X(drop_version, COUNTER, NONE, "packets of another protocol version")                                    \
    X(drop_type, COUNTER, NONE, "packets of an unknown type or with flags that do not belong to it")         \
    X(drop_session, COUNTER, NONE, "packets for a session this core does not have")                          \
    X(drop_repeated, COUNTER, NONE, "packets of sessions that have come before, or are too old to know")     \
    X(drop_tag, COUNTER, NONE, "packets whose tag does not verify")                                          \
    X(drop_range, COUNTER, NONE, "packets with a length, offset or id out of range")                         \
    X(drop_cookie, COUNTER, NONE, "HELLOs with a wrong or stale cookie")                                     \
    X(drop_rate, COUNTER, NONE, "HELLOs beyond what their address may send")                                 \
    X(drop_proof, COUNTER, NONE, "HELLOs or ACCEPTs without proof of the key")                               \
    X(drop_stale, COUNTER, NONE, "packets of calls or sessions that are over")                               \
    X(drop_message, COUNTER, NONE, "messages whose tensor list is malformed; answered with BAD_MESSAGE")

/* mr_packet_parse() checks length, magic, version, type and flags; that the payload has a length that the
 * type may have (that of its struct, none, or 1..max of DATA); and that fields without a meaning are zero. On
 * success `*header` is filled, and `*payload` points to what follows the header; on failure both are
 * untouched, and the caller counts the reason returned. */
enum mr_drop {
    MR_DROP_NONE = 0,
#define MR_DROP_ENUM(name, kind, unit, help) MR_##name,
    MR_DROP_LIST(MR_DROP_ENUM)
#undef MR_DROP_ENUM
        MR_DROP_COUNT
};
enum mr_drop mr_packet_parse(const uint8_t *datagram, size_t datagram_bytes, struct mr_packet_header *header,
                             const uint8_t **payload);

#endif
