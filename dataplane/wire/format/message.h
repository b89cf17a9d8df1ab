/* Messages: a 32-byte preamble, a table of tensor descriptors, and the tensors' bytes.
 *
 *   0   struct mr_preamble
 *   32  struct mr_tensor_wire x tensor_count
 *   ..  tensor data, each at the next multiple of MR_TENSOR_ALIGN from the message's start, zeros between
 *
 * Parsing copies nothing: tensors point into the buffer. Pure, any thread.
 */
#ifndef MR_MESSAGE_H
#define MR_MESSAGE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_status.h"
#include "mr_tensor.h"

#define MR_TENSOR_ALIGN 64u
#define MR_TENSORS_MAX  128u /* per message */

struct mr_preamble {
    uint8_t op;       /* enum mr_op */
    uint8_t priority; /* 0 = bulk .. 7 = first */
    uint16_t table;   /* feature id, or 0 */
    uint16_t status;  /* enum mr_status; 0 in requests */
    uint16_t flags;   /* of the operation; 0 unless the operation defines flags */
    uint16_t tensor_count;
    /* request to a node of a cluster: the low bits of the epoch of the map that its keys were split by
     * (cluster.h); otherwise 0 */
    uint16_t epoch;
    union {
        uint32_t deadline_ms; /* request: time left for this call when it was sent; 0 = no deadline */
        uint32_t restores;    /* reply: restores by call on the server when the reply was begun */
    };
    union {
        uint64_t step;       /* request: the trainer's training step */
        uint64_t checkpoint; /* reply: the checkpoint that `sequence` is about; 0 = none */
    };
    /* request: number of this push among its client's pushes to this core, from 1; 0 = not numbered. Reply:
     * this client's pushes up to this number are in a checkpoint on disk; 0 = none, or unknown */
    uint64_t sequence;
};
static_assert(sizeof(struct mr_preamble) == 32, "preamble size");

struct mr_tensor_wire {
    uint8_t dtype;
    uint8_t rank;
    uint16_t reserved0; /* zero */
    uint32_t dims[MR_RANK_MAX];
    uint32_t reserved1; /* zero */
    uint64_t bytes;
};
static_assert(sizeof(struct mr_tensor_wire) == 32, "tensor descriptor size");

/* A parsed message. `tensors` holds tensor_count entries whose data points into the message. */
struct mr_message {
    struct mr_preamble preamble;
    struct mr_tensor tensors[MR_TENSORS_MAX];
};

/* Returns the bytes of a message with these tensors. 0 when it would exceed MR_MESSAGE_BYTES_MAX, when a
 * tensor is ill-formed (its bytes are not the product of its dims), or when there are more than
 * MR_TENSORS_MAX. */
uint32_t mr_message_bytes(const struct mr_tensor *tensors, uint32_t tensor_count);

/* Long messages have the same layout, but are longer than the transport carries, and travel in parts, as
 * tensors of other messages. Returns the bytes of one; 0 as above, with MR_LONG_MESSAGE_BYTES_MAX. */
#define MR_LONG_MESSAGE_BYTES_MAX (UINT64_C(1) << 40)
uint64_t mr_message_long_bytes(const struct mr_tensor *tensors, uint32_t tensor_count);
/* Writes `bytes` of a long message from `offset` on to `out`; they lie within the message. The tensors have
 * their data. */
void mr_message_read_part(const struct mr_preamble *preamble, const struct mr_tensor *tensors,
                          uint32_t tensor_count, uint64_t offset, uint32_t bytes, uint8_t *out);
/* Does what mr_message_parse() does, for a long message that is whole and 64-byte aligned; its epoch is 0. */
bool mr_message_parse_long(const uint8_t *message, uint64_t message_bytes, struct mr_message *out);

/* Lays the message out in `buffer` (64-byte aligned, mr_message_bytes() long): writes preamble and
 * descriptors, zeroes the gaps, copies the data of every tensor whose `data` is not NULL, and points `data`
 * of each tensor to its place in the buffer, so that the caller can fill in the rest. */
void mr_message_layout_tensors(uint8_t *buffer, struct mr_tensor *tensors, uint32_t tensor_count);
static inline void mr_message_layout(uint8_t *buffer, const struct mr_preamble *preamble,
                                     struct mr_tensor *tensors, uint32_t tensor_count)
{
    struct mr_preamble *p = (struct mr_preamble *)(void *)buffer;
    /* Written field by field, so that a preamble that was just made need not be stored and read back. */
    p->op = preamble->op;
    p->priority = preamble->priority;
    p->table = preamble->table;
    p->status = preamble->status;
    p->flags = preamble->flags;
    p->tensor_count = (uint16_t)tensor_count;
    p->epoch = preamble->epoch;
    p->deadline_ms = preamble->deadline_ms;
    p->step = preamble->step;
    p->sequence = preamble->sequence;
    mr_message_layout_tensors(buffer, tensors, tensor_count);
}

/* Checks and parses a message. `aligned` is 64-byte aligned and holds the same bytes: `message` itself, or
 * a copy of it; the tensors point there. A copy is not read: loads of what wide stores have just written
 * are slow. Returns false when the length, a descriptor or a reserved field is wrong; out->preamble is
 * then valid if the message is long enough to have one, and the rest is undefined. The tensors' contents
 * are not checked, because the packets' tags protect them, and neither is the epoch, which members of
 * clusters take. */
bool mr_message_parse(const uint8_t *message, uint32_t message_bytes, const uint8_t *aligned,
                      struct mr_message *out);

/* Reads tensor `index` of a message that has not been checked, at any alignment. Returns false unless the
 * tensor's descriptor and data lie within the message. In `out` only dtype, rank, dims, bytes and data are
 * set; they agree with mr_message_parse() if that accepts the message, and mean nothing otherwise. */
bool mr_message_peek(const uint8_t *message, uint32_t message_bytes, uint32_t index, struct mr_tensor *out);

#endif
