/* A node of two cores that answers by heart what it can, and a client of it, for each test of a file that
 * needs no more. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include "tests/unit/trainer_client/live_node.h"
#include "trainer_client/millrace.h"

struct client_fixture {
    struct live_node *node;
    struct mr_client *client;
};

/* cmocka's: the state is a struct client_fixture. */
int client_set_up(void **state);
int client_tear_down(void **state);

#endif
