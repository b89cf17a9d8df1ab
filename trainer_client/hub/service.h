/* What the hub answers: START_SAMPLE, READ_SAMPLE, HUB_STATUS, and as a node of one core NODE_INFO, ECHO,
 * HEARTBEAT. */
#ifndef HUB_SERVICE_H
#define HUB_SERVICE_H

#include "dataplane/wire/endpoint.h"
#include "trainer_client/hub/hub.h"

struct hub_service;

struct hub_service *hub_service_create(struct hub *hub); /* NULL: no memory */
void hub_service_destroy(struct hub_service *service);   /* NULL is fine */
/* For mrc_socket_server_create(): `app` is a struct hub_service *. */
void hub_service_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request);
/* Answers the START_SAMPLEs whose file has been read through. Call it after each poll of the server. */
void hub_service_poll(struct hub_service *service, struct mr_endpoint *ep);

#endif
