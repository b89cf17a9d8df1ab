/* A checkpoint being written: what the cores' side, the writer thread and the control thread share. Each
 * field says whose it is; what two threads touch is in the rings and the atomics.
 */
#ifndef PS_CHECKPOINT_WRITER_INTERNAL_H
#define PS_CHECKPOINT_WRITER_INTERNAL_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <xxhash.h>
#include "ps/base/ring.h"
#include "ps/base/byte_rate.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_attempt.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/checkpoint/uring_writer.h"

static_assert(PS_WRITER_BUFFERS_MAX == PS_RING_CAPACITY, "a ring holds every buffer of its core");

struct writer_core {
    /* the core's own */
    alignas(64) uint8_t *block; /* being filled, NULL = none */
    uintptr_t buffer;           /* its number */
    uint32_t payload_bytes, record_count;
    uint64_t expected_bytes; /* of the file; 0: unknown. Set before the first put, then read by the writer */
    struct ps_ring full;     /* core -> writer */
    struct ps_ring empty;    /* writer -> core */
    /* the writer's own, and what it polls */
    alignas(64) XXH3_state_t *hash; /* over the hashes of the blocks so far */
    _Atomic bool done;              /* set by the core after its last put */
};

struct ps_writer {
    struct ps_attempt attempt;
    struct ps_chain parents; /* of a delta: held, so that no retention takes them away under it */
    struct ps_uring_writer *disk;
    uint8_t *buffers;
    size_t buffers_bytes;
    uint32_t core_count, buffers_per_core;
    uint8_t *feature_kind; /* by feature id: enum mr_feature_kind, 0 = not saved */
    pthread_t thread;
    struct ps_byte_rate rate; /* this and the next are the thread's */
    uint32_t next_core;       /* whose turn it is */
    uint64_t start_us;
    char method[32];
    _Atomic uint64_t bytes_written;
    _Atomic bool abort, failed, done;
    struct ps_writer_status outcome; /* the thread's until `done` */
    struct writer_core cores[MR_CORE_MAX];
};

/* All that a delta is based on: whole, as far as that shows without reading blocks, and up to the very parent
 * that its manifest names, or any if no hash is named. Errors as those of ps_chain_open();
 * ps_chain_close(out). */
enum mr_status ps_writer_open_parents(const struct ps_writer *w, const char *directory,
                                      const struct ps_hash *expected, struct ps_chain *out, char *text);
/* The thread; arg is the writer: it writes what the cores hand over, then publishes or removes. */
void *ps_writer_thread(void *arg);

#endif
