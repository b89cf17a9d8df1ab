/* Of the fake node's operations, those about the node itself, its checkpoints, and samples as a hub. */
#ifndef FAKE_NODE_OPS_H
#define FAKE_NODE_OPS_H

#include "tests/unit/trainer_client/fake_node.h"

/* Answers, or that it is busy. */
void fake_reply(struct mr_endpoint *ep, const struct mr_request *r, struct mr_tensor *tensors,
                uint32_t count);

void fake_heartbeat(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_tell_clock(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_stats(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_memory(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_capture(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_recent_calls(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_checkpoint(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_sample(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_hub_status(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_freeze(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);
void fake_echo(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *r);

#endif
