/* Calls that are long enough to be done in slices, and a core that goes turn by turn, so that each test knows
 * what has been done when. */
#ifndef COOP_TASK_FIXTURE_H
#define COOP_TASK_FIXTURE_H

#include "node_fixture.h"

enum { LONG_KEYS = 3000 }; /* of NODE_DIM: several slices */

#define NEVER_US UINT64_MAX

extern uint64_t long_keys[LONG_KEYS];              /* 0, 1, ... */
extern float long_gradients[LONG_KEYS * NODE_DIM]; /* all 1 */

/* Table "emb" of NODE_DIM, all of whose values begin at 1. */
uint32_t long_make_table(struct node_fixture *n);
/* Makes the rows, in calls that are small. */
void long_make_rows(struct node_fixture *n, uint32_t table);
/* Calls to core 0, about the first keys. */
void long_post_lookup(struct node_fixture *n, struct node_call *call, uint32_t table, uint32_t key_count);
void long_post_push(struct node_fixture *n, struct node_call *call, uint32_t table, uint32_t key_count,
                    uint64_t deadline_us);
void long_post_feed(struct node_fixture *n, struct node_call *call, uint32_t table, uint64_t batch_id,
                    uint32_t key_count, uint32_t flags);
void long_post_push_batch(struct node_fixture *n, struct node_call *call, uint64_t batch_id, uint32_t table,
                          uint32_t samples);
void long_post_id(struct node_fixture *n, struct node_call *call, uint8_t op, uint32_t table, uint64_t id);
void long_post_text(struct node_fixture *n, struct node_call *call, uint8_t op, uint64_t id);
void long_post_freeze(struct node_fixture *n, struct node_call *call, uint32_t level);
/* Core 0 stands still from here on. */
void long_hold(void);
/* What was posted to a core that is held is taken in, and `count` slices are done of it. */
void long_slices(uint32_t count);
/* Frees the answers. */
void long_end_all(struct node_call *calls, uint32_t count);

#endif
