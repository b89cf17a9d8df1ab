/* Copies requests out of the caller's memory, and answers out of the memory for messages. */
#ifndef MRC_CALL_COPY_H
#define MRC_CALL_COPY_H

#include "trainer_client/call/call.h"

/* Returns how many bytes the tensors of all requests have. */
uint64_t mrc_copy_bytes(const struct mr_future *f);
/* Copies the tensors that have a source into the requests, which were begun. With or without the lock. */
void mrc_copy_tensors(struct mr_future *f);

/* A long request that is sent while it is copied. */
struct mrc_copy_steps {
    const struct mrc_shard_request *request;
    uint32_t tensor;   /* of the request: those before it are copied */
    uint64_t bytes;    /* of that tensor: copied */
    uint32_t borrowed; /* the tensor that is sent from where it is; UINT32_MAX: none */
};

/* Returns whether the request may be sent so: it is long, goes to one core, and is all the caller's own. */
bool mrc_copy_is_in_steps(const struct mr_future *f);
/* Before the first step. `waits`: the caller's memory stays as it is until the call ends, and its longest
 * tensor is sent from there. Under the lock. */
void mrc_copy_start(struct mrc_copy_steps *c, const struct mrc_shard_request *request, bool waits);
/* Copies a step more. Returns the end of what may be sent now. Under the lock. */
const uint8_t *mrc_copy_step(struct mrc_copy_steps *c);
bool mrc_copy_is_done(const struct mrc_copy_steps *c);

/* Sets the request's answers: the parsed message is the endpoint's, and ends with the callback. Their bytes
 * stay where they are, unless callers hold so many replies that the next ones would find no room. Under the
 * lock. */
void mrc_copy_answers(struct mrc_shard_request *request, const struct mr_message *reply);

#endif
