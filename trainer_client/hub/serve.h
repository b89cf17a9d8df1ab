/* The hub at work: its socket, the feeding thread, and the loop that answers trainers. */
#ifndef HUB_SERVE_H
#define HUB_SERVE_H

#include "trainer_client/hub/hub.h"

/* Serves until hub->stop. MR_OK, or why it could not begin or go on: `error` (HUB_ERROR_BYTES) says what,
 * where and how to mend it. hub->port is set once it listens. */
enum mr_status hub_serve(struct hub *hub, char *error);

#endif
