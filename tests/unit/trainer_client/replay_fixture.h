/* A client with `replay` and a node that goes back to its last checkpoint, and a table whose rows tell which
 * pushes were applied. */
#ifndef REPLAY_FIXTURE_H
#define REPLAY_FIXTURE_H

#include "tests/unit/trainer_client/live_node.h"
#include "trainer_client/millrace.h"

enum { REPLAY_DIM = 2, REPLAY_KEYS = 40 };

struct replay_fixture {
    struct live_node *node;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[REPLAY_KEYS];
    float expected[REPLAY_KEYS]; /* subtracted from each row so far */
};

/* One whose rows fall by their gradients. */
struct mr_feature replay_table(const char *name);
struct mr_client *replay_connect(const struct live_node *node, uint32_t replay_bytes);
/* A node of so many cores that forgets what is not saved, a client with `replay` (replay_bytes 0: the
 * default), and a table. */
void replay_start(struct replay_fixture *x, uint32_t cores, uint32_t replay_bytes);
void replay_stop(struct replay_fixture *x);
/* Every row falls by `amount`. */
enum mr_status replay_push(struct replay_fixture *x, const struct mr_options *options, float amount);
/* ... by 1, once for each step. */
void replay_push_steps(struct replay_fixture *x, uint64_t from, uint64_t to);
/* The node goes back to its last checkpoint. */
void replay_crash(struct replay_fixture *x);
/* Copies the node's checkpoints beside them; and has that copy take their place, after a kill. */
void replay_copy_directory(const struct replay_fixture *x, const char *name);
void replay_put_back(const struct replay_fixture *x, const char *name);
/* Fails unless the rows are what the pushes made them. */
void replay_check_rows(struct replay_fixture *x);
struct mr_replay_info replay_info_of(const struct replay_fixture *x);

#endif
