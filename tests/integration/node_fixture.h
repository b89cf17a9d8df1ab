/* A running millraced between two namespaces, for cmocka tests: the test's thread is on the client's side. */
#ifndef TESTS_NODE_FIXTURE_H
#define TESTS_NODE_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include "tests/integration/netns.h"
#include "trainer_client/millrace_admin.h"

#define NODE_SETTINGS_MAX 16
#define NODE_READY_MS     60000
#define NODE_PATH_BYTES   64

struct node_fixture {
    struct netns net;
    struct netns_process server;
    char directory[NODE_PATH_BYTES];   /* its own; removed at the end */
    char checkpoints[NODE_PATH_BYTES]; /* inside */
    char config[NODE_PATH_BYTES];
    char address[32]; /* for mr_client_create */
    const char *settings[NODE_SETTINGS_MAX + 1];
};

/* Path of millraced; set by the test's main. */
extern const char *node_fixture_server;
/* Nodes have the kernel's sockets: MILLRACE_DRIVER=socket. Routes are the kernel's then, which has them. */
bool node_fixture_on_sockets(void);
/* Reads the command line MILLRACED CORES, and skips the test without root. Returns false after a line on
 * how to use the program. */
bool node_fixture_arguments(int argc, char **argv, uint32_t *cores);

/* Starts a node with `cores` data cores and further settings ("section.key=value"; NULL ends them, NULL =
 * none). */
void node_fixture_start(struct node_fixture *f, uint32_t cores, const char *const *settings);
/* The same over a cable of another kind. */
void node_fixture_start_over(struct node_fixture *f, const struct netns_options *cable, uint32_t cores,
                             const char *const *settings);
/* SIGKILL, with whatever is in flight. */
void node_fixture_kill(struct node_fixture *f);
/* After a kill: begins to start the same again, and does not wait for it. */
void node_fixture_launch(struct node_fixture *f);
/* After a kill: the same again. It restores the newest checkpoint, if there is one. */
void node_fixture_restart(struct node_fixture *f);
/* The same with another number of cores. */
void node_fixture_restart_with(struct node_fixture *f, uint32_t cores);
/* SIGTERM; checks that it ends well. Leaves nothing behind. */
void node_fixture_stop(struct node_fixture *f);

struct mr_client *node_fixture_connect(const struct node_fixture *f);
/* Waits until no checkpoint is being written. Returns what the node says then: there is a good one. */
struct mr_checkpoint_info node_fixture_wait_saved(struct mr_client *client);
/* Saves to the configured directory and waits until the checkpoint is published. Returns its id. */
uint64_t node_fixture_save(struct mr_client *client);
/* A counter of one core; fails the test when there is none of that name. */
uint64_t node_fixture_counter(struct mr_client *client, uint32_t core, const char *name);
/* Summed over the cores. */
uint64_t node_fixture_sum(struct mr_client *client, const char *name);

/* The call was refused so, and mr_last_error() says `says`. */
void node_fixture_refused(enum mr_status got, enum mr_status expected, const char *says);

#endif
