/* The feeding thread: file -> batches -> parameter server, and the server's record of what it has learnt. */
#ifndef HUB_FEEDER_H
#define HUB_FEEDER_H

#include "trainer_client/hub/hub.h"

/* Runs until hub->stop; `arg` is a struct hub *. For pthread_create(). */
void *hub_feeder_run(void *arg);

#endif
