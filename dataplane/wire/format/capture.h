/* The call CAPTURE: packets that a core receives and sends, copied as they pass.
 *
 * A caller starts a capture on each core that it wants, under random bits that name it, reads what the core
 * has recorded, and ends it. A core records for one caller at a time; a capture that nobody reads for a while
 * ends by itself. The caller's own packets to that core are left out.
 *
 * What a core records is a stream of bytes: records, one after the other. READ says how much of it has been
 * read, which the core then forgets, and is answered with what follows, so that it may be repeated. */
#ifndef MR_CAPTURE_H
#define MR_CAPTURE_H

#include <assert.h>
#include <stdint.h>
#include "dataplane/wire/base/bytes.h"

#define MR_CAPTURE_BLOCK_BYTES (60u << 10) /* of records in an answer, at most */
#define MR_CAPTURE_SNAP_MIN    64u
#define MR_CAPTURE_SNAP_MAX    16384u /* longer than any frame */
#define MR_CAPTURE_KIB_MIN     64u
#define MR_CAPTURE_KIB_MAX     (256u << 10)
#define MR_CAPTURE_IDLE_MS_MIN 100u
#define MR_CAPTURE_IDLE_MS_MAX 60000u
#define MR_CAPTURE_WHO_BYTES   96u
#define MR_CAPTURE_OP_WORDS    4u

enum mr_capture_kind {
    MR_CAPTURE_START = 1,
    MR_CAPTURE_READ,
    MR_CAPTURE_HALT, /* as READ, and nothing more is recorded from now on */
    MR_CAPTURE_END,
};

/* The request: u64[MR_CAPTURE_ASK_WORDS]; START has u8[n] as well: who captures, for others who are
 * refused. */
enum mr_capture_ask_word {
    MR_CAPTURE_ASK_KIND,     /* enum mr_capture_kind */
    MR_CAPTURE_ASK_ID,       /* random, not 0 */
    MR_CAPTURE_ASK_POSITION, /* READ, HALT: everything before it has been read */
    /* START: */
    MR_CAPTURE_ASK_SNAP_BYTES, /* of each packet */
    MR_CAPTURE_ASK_KIB,        /* of the ring of records */
    MR_CAPTURE_ASK_IDLE_MS,    /* it ends when nobody reads it for so long */
    MR_CAPTURE_ASK_IP,         /* only packets from and to this address: two words; zero: all */
    MR_CAPTURE_ASK_PORT = MR_CAPTURE_ASK_IP + 2, /* and this port; 0: all */
    MR_CAPTURE_ASK_OPS,       /* only packets about these operations: a bit for each; no bit: all packets */
    MR_CAPTURE_ASK_WORDS = 16 /* the rest is 0 */
};
static_assert(MR_CAPTURE_ASK_OPS + MR_CAPTURE_OP_WORDS <= MR_CAPTURE_ASK_WORDS, "room for a bit of each op");

/* The answer: u64[MR_CAPTURE_WORDS], u8[n]: records; to START lines of text: the machine, its system, the
 * program, the port. To END: nothing. */
enum mr_capture_word {
    MR_CAPTURE_LINK_TYPE, /* enum mr_capture_link */
    MR_CAPTURE_LEFT,      /* bytes recorded that follow this answer's */
    MR_CAPTURE_SEEN,      /* packets that passed, but for the caller's own */
    MR_CAPTURE_WANTED,    /* of these: that the filter let through */
    MR_CAPTURE_LOST,      /* of these: for which there was no room */
    MR_CAPTURE_SNAP,      /* bytes of each packet that are recorded */
    MR_CAPTURE_WORDS = 8  /* the rest is 0 */
};
/* As pcap names them (LINKTYPE_ETHERNET, LINKTYPE_RAW). */
enum mr_capture_link { MR_CAPTURE_LINK_ETHERNET = 1, MR_CAPTURE_LINK_IP = 101 };

enum mr_capture_flag { MR_CAPTURE_SENT = 1u << 0 /* by the core; otherwise received */ };

/* A packet; `captured_bytes` bytes of it follow, and zeros up to a multiple of 8. */
struct mr_capture_record {
    uint64_t time_ns; /* since 1970, of the machine */
    uint32_t bytes;   /* on the link */
    uint32_t captured_bytes;
    uint32_t lost;  /* packets lost since the record before this one */
    uint32_t flags; /* enum mr_capture_flag */
};
static_assert(sizeof(struct mr_capture_record) == 24, "record size");

static inline uint32_t mr_capture_record_bytes(uint32_t captured_bytes)
{
    return (uint32_t)(sizeof(struct mr_capture_record) + mr_padded(captured_bytes));
}

#endif
