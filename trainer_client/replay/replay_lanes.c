/* Pushes on their way from one lane's buffer to another's, when the cores of the node have changed. */
#include <assert.h>
#include "dataplane/wire/format/op.h"
#include "trainer_client/replay/replay_internal.h"

void mrc_replay_adopt(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after)
{
    assert(number >= r->next);
    mrc_replay_insert(r, push, number, after);
    r->next = number + 1;
    r->restarted = true;
    mrc_replay_set_state(r, push, MRC_PUSH_DUE);
}

void mrc_replay_ask(struct mrc_replay *r)
{
    struct mrc_push *newest = MR_CONTAINER(r->kept.prev, struct mrc_push, kept), *mark = newest;

    if (newest->tensor_count > 0)
        mark = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);
    if (mark == NULL)
        return; /* another time */
    if (mark != newest)
        mrc_replay_insert(r, mark, newest->number, 0);
    mrc_replay_set_state(r, mark, MRC_PUSH_DUE);
}

void mrc_replay_put_back(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after)
{
    mrc_replay_insert(r, push, number, after);
    mr_list_remove(&push->kept);
    mr_list_prepend(&r->kept, &push->kept);
    mrc_replay_set_state(r, push, MRC_PUSH_DUE);
}

void mrc_replay_withdraw(struct mrc_replay *r, struct mrc_push *push)
{
    mrc_replay_take_out(r, push);
}

void mrc_replay_move(struct mrc_replay *to, struct mrc_replay *from)
{
    *to = *from;
    mrc_replay_init_lists(to);
    mr_list_splice(&to->kept, &from->kept);
    mr_list_splice(&to->asked, &from->asked);
    mr_list_splice(&to->due, &from->due);
    mr_list_splice(&to->again, &from->again);
    mr_list_splice(&to->later, &from->later);
    mrc_replay_init(from, 0, to->bytes_max);
}

void mrc_replay_retire(struct mrc_replay *r, struct mrc_replay *heir)
{
    if (r->loss.pushes > 0)
        mrc_replay_add_loss(heir, r->loss.pushes, r->loss.from_step, r->loss.to_step, r->loss.refused);
    heir->replayed += r->replayed;
    heir->given_up += r->given_up;
    heir->dropped += r->dropped;
    mrc_replay_fini(r);
}

void mrc_replay_drop(struct mrc_replay *r, struct mrc_push *push, enum mr_status refused)
{
    if (refused != MR_OK)
        mrc_replay_add_loss(r, 1, push->step, push->step, refused);
    r->dropped++;
    mrc_replay_take_out(r, push);
    mrc_push_free(push);
}
