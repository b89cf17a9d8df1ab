/* Answers by heart, for tests of what the client makes of them: every field has a value of its own, which no
 * node would have all at once. */
#ifndef CANNED_ANSWERS_H
#define CANNED_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/op.h"

#define CANNED_CLOCK_NAME     UINT64_C(77)
#define CANNED_CLOCK_AHEAD_NS UINT64_C(5000000000) /* of the client's */
#define CANNED_HOSTILE        "\033]0;x\a\x9b"

/* Answers, or that there is no room. */
void canned_reply(struct mr_endpoint *ep, const struct mr_request *r, struct mr_tensor *tensors,
                  uint32_t count);
/* Answers operations about the node itself, saves and restores, and samples as a hub; false: it is another
 * operation. */
bool canned_answer(struct mr_endpoint *ep, uint32_t core, const struct mr_request *request);
/* Answers all operations as a server of ill will: each text is CANNED_HOSTILE, which a terminal takes for a
 * command. */
bool hostile_answer(struct mr_endpoint *ep, uint32_t core, const struct mr_request *request);

#endif
