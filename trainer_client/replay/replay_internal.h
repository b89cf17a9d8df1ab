/* What replay.c and replay_lanes.c share: the lists of a buffer. */
#ifndef MRC_REPLAY_INTERNAL_H
#define MRC_REPLAY_INTERNAL_H

#include "trainer_client/replay/replay.h"

void mrc_replay_init_lists(struct mrc_replay *r);
/* As the newest. It is in no queue until mrc_replay_set_state(). */
void mrc_replay_insert(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after);
void mrc_replay_take_out(struct mrc_replay *r, struct mrc_push *push);
/* Into the queue of that state, in the order of the numbers. */
void mrc_replay_set_state(struct mrc_replay *r, struct mrc_push *push, enum mrc_push_state state);
/* `refused`: why the server refused them; MR_OK: they had been given up. */
void mrc_replay_add_loss(struct mrc_replay *r, uint64_t pushes, uint64_t from_step, uint64_t to_step,
                         enum mr_status refused);

#endif
