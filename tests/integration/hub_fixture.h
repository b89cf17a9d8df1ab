/* A hub beside a node, and samples for it of which everything is known: sample i of the file has i as its
 * first integer, and keys that are a function of i. For cmocka tests; see node_fixture.h. */
#ifndef TESTS_HUB_FIXTURE_H
#define TESTS_HUB_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include "tests/integration/node_fixture.h"

#define HUB_ADDRESS NETNS_CLIENT_IPV4 ":7800"
#define HUB_SLOTS   26u /* of the Criteo format */
#define HUB_DENSE   13u

struct hub_fixture {
    const struct node_fixture *node;
    struct netns_process process;
    char samples[NODE_PATH_BYTES]; /* a file in the node's directory */
    char log[NODE_PATH_BYTES];     /* the hub's stderr */
    const char *options;           /* of the command line, NULL = none */
};

/* Path of millrace-hub; set by the test's main. */
extern const char *hub_fixture_program;

/* Starts a hub that feeds the node. Its sample file is not there yet. */
void hub_fixture_start(struct hub_fixture *f, const struct node_fixture *node, const char *options);
void hub_fixture_kill(struct hub_fixture *f);
/* After a kill: the same again. */
void hub_fixture_restart(struct hub_fixture *f);
/* SIGTERM; checks that it ends well. */
void hub_fixture_stop(struct hub_fixture *f);
struct mr_client *hub_fixture_connect(void);
bool hub_fixture_logged(const struct hub_fixture *f, const char *text);

/* Writes `count` samples; the line behind sample `broken_behind` is broken (UINT32_MAX = none). */
void hub_fixture_write_samples(const struct hub_fixture *f, uint32_t count, uint32_t broken_behind);
/* One pass over the file in its order. */
struct mr_sample_plan hub_fixture_plan(const struct hub_fixture *f, uint32_t batch_samples);
/* The number of a sample that came in a batch; checks its other dense values and its label. */
uint32_t hub_fixture_sample(const struct mr_batch *batch, uint32_t index);
/* The key of sample i in a slot. */
uint64_t hub_fixture_key(uint32_t sample, uint32_t slot);

#endif
