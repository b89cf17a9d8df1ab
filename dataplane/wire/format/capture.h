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
#include "dataplane/wire/format/bodies.h"

#define MR_CAPTURE_BLOCK_BYTES (60u << 10) /* of records in an answer, at most */
#define MR_CAPTURE_SNAP_MIN    64u
#define MR_CAPTURE_SNAP_MAX    16384u /* longer than any frame */
#define MR_CAPTURE_KIB_MIN     64u
#define MR_CAPTURE_KIB_MAX     (256u << 10)
#define MR_CAPTURE_IDLE_MS_MIN 100u
#define MR_CAPTURE_IDLE_MS_MAX 60000u
#define MR_CAPTURE_WHO_BYTES   96u
#define MR_CAPTURE_OP_WORDS    (MR_CAPTURE_ASK_OPS_LAST - MR_CAPTURE_ASK_OPS + 1u)

enum mr_capture_kind {
    MR_CAPTURE_START = 1,
    MR_CAPTURE_READ,
    MR_CAPTURE_HALT, /* as READ, and nothing more is recorded from now on */
    MR_CAPTURE_END,
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
