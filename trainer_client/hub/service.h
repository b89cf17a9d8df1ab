/* What the hub answers: START_SAMPLE, READ_SAMPLE, HUB_STATUS, and as a node of one core NODE_INFO, ECHO, HEARTBEAT. */
#ifndef HUB_SERVICE_H
#define HUB_SERVICE_H

#include "dataplane/wire/endpoint.h"
#include "trainer_client/hub/hub.h"

#define HUB_STARTS_WAITING_MAX 64u /* START_SAMPLEs that wait for a file to be read through */

struct hub_service {
    struct hub *hub;
    uint16_t udp_port; /* that it listens on */
    struct {
        struct mr_call_ref ref;
        uint64_t plan_number;
    } waiting[HUB_STARTS_WAITING_MAX];
    uint32_t waiting_count;
};

/* For mrc_socket_server_create(): `service` is a struct hub_service *. */
void hub_service_on_request(void *service, struct mr_endpoint *ep, const struct mr_request *request);
/* Answers the START_SAMPLEs whose file has been read through. Call it after every turn of the server. */
void hub_service_poll(struct hub_service *service, struct mr_endpoint *ep);

#endif
