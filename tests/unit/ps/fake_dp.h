/* A data plane without a port, for tests of the node: every core is a thread with an endpoint, and datagrams
 * between it and the test's own endpoint go through queues in memory. Implements what dataplane/dataplane.h
 * declares, so that ps_server_start() runs on it as it is. One node at a time. With the driver SOCKET, core i
 * also has a UDP socket at 127.0.0.1, port udp_port + i, and of such nodes there may be several. */
#ifndef FAKE_DP_H
#define FAKE_DP_H

#include <stdbool.h>
#include "dataplane/dataplane.h"

/* The test's side. Core i's address; the queue is named by its port. */
struct mr_address fake_dp_address(uint32_t core);
/* Sends to a core, as struct mr_endpoint_io asks. */
uint8_t *fake_dp_client_tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max);
void fake_dp_client_tx_end(void *self, uint32_t bytes);
/* Gives every datagram that came from a core to `ep`; false when there was none. */
bool fake_dp_client_receive(struct mr_endpoint *ep);

/* What stands in front of a node's cores: for tests that have it answer otherwise than it would, or not at
 * all. Each is NULL or called by the core's thread. */
struct fake_dp_front {
    void *self;
    void (*configure)(void *self, struct mr_endpoint_config *config); /* by the thread of dp_start() */
    /* Answers, or has the node do so by fake_dp_handle(). */
    void (*on_request)(void *self, struct dp_core *core, const struct mr_request *request);
    /* The core whose queue receives a datagram, where sockets are. */
    uint16_t (*arrived_at)(void *self, uint32_t core, const struct mr_address *from);
    void (*poll)(void *self, struct dp_core *core, void *app); /* in each turn */
};
/* Puts that in front of the node that is started next. */
void fake_dp_set_front(const struct fake_dp_front *front);
/* The node's own answer. */
void fake_dp_handle(struct dp_core *core, const struct mr_request *request);
/* From now on nothing comes to the core's socket, and nothing leaves it. By the core's thread. */
void fake_dp_cut_off(struct dp_core *core);

/* For looking into a core that stands still: the data plane's, and what runs on it. */
struct dp_core *fake_dp_core(uint32_t core);
void *fake_dp_app(uint32_t core);
/* Stops a core in its next turn, behind the tasks that were posted before. Holds nest: each ends with a
 * release. */
void fake_dp_hold(uint32_t core);
void fake_dp_release(uint32_t core);
/* Waits until it stands still. */
void fake_dp_wait_held(uint32_t core);
/* Lets a core that stands still go through one turn, and stops it at the beginning of the next, before it
 * looks at what it has taken in by then. */
void fake_dp_turn(uint32_t core);
/* Waits until `count` tasks have been posted to a core since fake_dp_wait_held(); turns may have begun them
 * since. */
void fake_dp_wait_posted(uint32_t core, uint32_t count);

#endif
