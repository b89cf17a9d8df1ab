/* A whole node in the test's process, on the fake data plane, with a temporary directory and a client that
 * makes one call at a time. Every check_ function fails the test when the node answers otherwise. */
#ifndef NODE_FIXTURE_H
#define NODE_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/format/bodies.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/op.h"
#include "ps/config/config.h"
#include "ps/server/server.h"

#define NODE_REPLY_TENSORS_MAX 9
#define NODE_DIM               4u

struct node_fixture {
    struct ps_config config;
    struct ps_server *server;
    struct ps_config passed_on; /* config, as the running node has it */
    char *directory;
    struct mr_endpoint *client;
    uint32_t core_count;
    struct mr_client_session *sessions[DP_CORES_MAX];
    uint64_t sequence; /* that calls carry from now on; 0 = none */
};

/* An answer; tensors' data are copies, freed by the next call. */
struct node_reply {
    enum mr_status status;
    uint64_t sequence, checkpoint;
    char text[512]; /* of an error */
    uint32_t tensor_count;
    struct mr_tensor tensors[NODE_REPLY_TENSORS_MAX];
};

/* cmocka set-up and tear-down: a node of one core with the directory for checkpoints; nothing is left
 * behind. */
int node_setup(void **state);
int node_setup_3_cores(void **state);
int node_teardown(void **state);
/* Ends the node and starts it again with that many cores (the configuration is in n->config). */
void node_restart(struct node_fixture *n, uint32_t core_count);
void node_stop(struct node_fixture *n);
void node_start(struct node_fixture *n, uint32_t core_count);
/* What the test has changed in n->config since the start holds for the running node, too. Calls and the stop
 * do that by themselves. */
void node_pass_config_on(struct node_fixture *n);

/* One call, to its end. */
const struct node_reply *node_call(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                                   const struct mr_tensor *tensors, uint32_t tensor_count);
const struct node_reply *node_call_step(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                                        uint64_t step, uint16_t flags, const struct mr_tensor *tensors,
                                        uint32_t tensor_count);
/* One of several calls in flight. */
struct node_call {
    struct node_reply reply;
    bool is_answered;
    uint32_t order; /* in which the answers came, from 1 */
};
void node_post(struct node_fixture *n, uint32_t core, struct node_call *call,
               const struct mr_call_options *options, const struct mr_tensor *tensors, uint32_t tensor_count);
/* Takes in what has come by now. */
void node_look(struct node_fixture *n);
const struct node_reply *node_wait(struct node_fixture *n, struct node_call *call);
void node_call_end(struct node_call *call); /* frees the answer's tensors */
/* The client leaves a core, and all its calls there end; and comes back. */
void node_leave(struct node_fixture *n, uint32_t core);
void node_join(struct node_fixture *n, uint32_t core);
/* The same in two halves: other things can be done in between. One at a time. */
void node_begin(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                const struct mr_tensor *tensors, uint32_t tensor_count);
const struct node_reply *node_end(struct node_fixture *n);
/* Fails unless the answer's status is `status` and its text (if any is given) contains `text`. */
void node_check(const struct node_reply *reply, enum mr_status status, const char *text);

/* ---- calls made of it ---- */

/* Table `name` of dim NODE_DIM: initial values `init`, SGD with learning rate 1, sum pooling. */
struct mr_feature node_table(const char *name, float init);
struct mr_feature node_variable(const char *name, uint32_t elements);
uint32_t node_create(struct node_fixture *n, const struct mr_feature *feature);
void node_drop(struct node_fixture *n, const char *name);
/* The core that owns a key of a table with that seed, and the one that owns a variable. */
uint32_t node_core_of_key(const struct node_fixture *n, uint64_t key, uint64_t seed);
uint32_t node_core_of_variable(const struct node_fixture *n, const char *name);
/* Feeds a batch of one slot with one key per sample to every core, each its own keys. */
void node_feed(struct node_fixture *n, uint64_t batch_id, uint32_t table, const uint64_t *keys,
               uint32_t key_count);
/* Pushes a gradient of `value` for every sample of such a batch to one core; what it answered: 1 applied, 0
 * applied before. */
uint32_t node_push_batch(struct node_fixture *n, uint32_t core, uint64_t batch_id, uint32_t table,
                         uint32_t samples, float value);
/* The first value of a key's row, without making one. */
float node_value(struct node_fixture *n, uint32_t table, uint64_t key);
/* What CHECKPOINT_STATUS says of the save of that number. */
void node_save_row(struct node_fixture *n, uint64_t number, uint64_t out[MR_SAVE_ROW_WORDS]);
/* A counter of a core's STATS. */
uint64_t node_counter(struct node_fixture *n, uint32_t core, const char *name);
/* Waits until no save runs; the first tensor of CHECKPOINT_STATUS then. */
const uint64_t *node_wait_saved(struct node_fixture *n);
/* Saves to the configured directory and waits until it is there; the checkpoint's id. */
uint64_t node_save(struct node_fixture *n);
/* Returns the checkpoint that the answer to the empty push of this number names; 0: it names none. */
uint64_t node_durable_in(struct node_fixture *n, uint64_t number);
const struct node_reply *node_restore(struct node_fixture *n, uint64_t id);

#endif
