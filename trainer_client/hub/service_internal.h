/* What service.c (plans and batches) and service_node.c (the hub as a node) share. */
#ifndef HUB_SERVICE_INTERNAL_H
#define HUB_SERVICE_INTERNAL_H

#include "trainer_client/hub/service.h"

#define HUB_STARTS_WAITING_MAX 64u /* START_SAMPLEs that wait for a file to be read through */

struct hub_service {
    struct hub *hub;
    struct {
        struct mr_call_ref ref;
        uint64_t plan_number;
    } waiting[HUB_STARTS_WAITING_MAX];
    uint32_t waiting_count;
};

/* Answers with u64[count]. */
void hub_reply_numbers(struct mr_endpoint *ep, struct mr_call_ref ref, const uint64_t *numbers,
                       uint32_t count);

/* Handlers, called under the hub's lock. */
void hub_op_status(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request);
void hub_op_heartbeat(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request);
void hub_op_node_info(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request);
void hub_op_echo(struct hub_service *service, struct mr_endpoint *ep, const struct mr_request *request);

#endif
