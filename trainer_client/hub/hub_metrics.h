/* The hub's metrics over HTTP: its plan, its trainers, and the counters of the trainers' endpoint. */
#ifndef HUB_METRICS_H
#define HUB_METRICS_H

#include "dataplane/metrics/metrics_server.h"
#include "dataplane/wire/endpoint.h"
#include "trainer_client/hub/hub.h"

struct hub_metrics;

/* Serves them at hub->config.metrics; NULL there: nothing is made, and *out is NULL. On failure `error`
 * (HUB_ERROR_BYTES) says why. */
enum mr_status hub_metrics_start(struct hub *hub, struct hub_metrics **out, char *error);
/* Takes in what the endpoint has counted: by its thread, after each poll. NULL is fine. */
void hub_metrics_note(struct hub_metrics *metrics, const struct mr_endpoint *ep);
uint16_t hub_metrics_port(const struct hub_metrics *metrics); /* NULL: 0 */
void hub_metrics_stop(struct hub_metrics *metrics);           /* NULL is fine */

#endif
