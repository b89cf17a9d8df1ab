/* The rules of rref_count.h while everybody lives. O = 0 owns; A, B, C = 1, 2, 3 use. */

#include "references_world.h"
#include "tests/test.h"

enum { O, A, B, C };
#define FORK      MR_REFERENCE_FORK
#define CONFIRMED MR_REFERENCE_CONFIRMED
#define ACCEPTED  MR_REFERENCE_ACCEPTED
#define DELETED   MR_REFERENCE_DELETED

TEST(a_value_is_freed_with_its_last_handle, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *handle = own(w, O, &value);
    assert_int_equal(handle->owner, O);
    handle->count++;
    release(w, O, handle);
    assert_int_equal(value.freed, 0);
    release(w, O, handle);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(what_the_owner_passes_is_known_at_once, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference_ticket ticket = pass(w, O, mine, A);
    release(w, O, mine);
    assert_int_equal(value.freed, 0);
    struct mr_reference *theirs = take(w, O, A, &ticket);
    assert_int_equal(w->queued, 0);
    assert_true(theirs->confirmed);
    assert_int_equal(theirs->owner, O);
    assert_int_equal(mr_references_held_by(w->refs[O], A), 1);
    assert_int_equal(mr_references_holds_of(w->refs[A], O), 1);
    assert_false(mr_references_may_leave(w->refs[O]));
    assert_false(mr_references_may_leave(w->refs[A]));
    release(w, A, theirs);
    assert_int_equal(value.freed, 0);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

static struct mr_reference *remote(struct world *w, struct mr_reference_ticket *ticket)
{
    struct mr_reference *handle = NULL;
    assert_int_equal(make_remote(w->refs[A], O, &handle, ticket), MR_OK);
    assert_non_null(handle);
    assert_false(handle->confirmed);
    return handle;
}

static void arrives(struct world *w, const struct mr_reference_ticket *ticket)
{
    bool run = false;
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, ticket, &run), MR_OK);
    assert_true(run);
}

TEST(a_remote_result_stays_until_its_caller_releases_it, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference_ticket ticket;
    struct mr_reference *handle = remote(w, &ticket);
    arrives(w, &ticket);
    deliver(w, O, A, CONFIRMED);
    assert_true(handle->confirmed);
    assert_true(mr_references_fulfil(w->refs[O], ticket.reference, &value));
    release(w, A, handle);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(a_caller_that_lets_go_at_once_still_waits_for_the_owner, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference_ticket ticket;
    struct mr_reference *handle = remote(w, &ticket);
    release(w, A, handle);
    assert_int_equal(w->queued, 0);
    arrives(w, &ticket);
    deliver(w, O, A, CONFIRMED);
    deliver(w, A, O, DELETED);
    assert_false(mr_references_fulfil(w->refs[O], ticket.reference, &value));
    assert_int_equal(value.freed, 0); /* it stayed ours */
    assert_nothing_left(w);
}

TEST(a_remote_call_that_cannot_leave_fails_its_handle, world_setup, world_teardown)
{
    struct world *w = *state;
    struct mr_reference_ticket ticket;
    struct waiting waiting;
    struct mr_reference *handle = remote(w, &ticket);
    mr_references_wait_confirmed(w->refs[A], handle, &waiting_init(&waiting)->waiter);
    mr_references_remote_failed(w->refs[A], handle, MR_TOO_LARGE);
    assert_int_equal(waiting.runs, 1);
    assert_int_equal(waiting.status, MR_TOO_LARGE);
    assert_int_equal(mr_references_pass(w->refs[A], handle, B, &ticket), MR_TOO_LARGE);
    release(w, A, handle);
    assert_nothing_left(w);
}

/* Passed on before: who has it waits in vain, and nothing stays when all have let go. */
TEST(a_remote_call_that_cannot_leave_may_have_been_passed_on, world_setup, world_teardown)
{
    struct world *w = *state;
    struct mr_reference_ticket ticket;
    struct waiting waiting;
    struct mr_reference *handle = remote(w, &ticket);
    struct mr_reference_ticket made = {O, mr_references_new_id(w->refs[A]), mr_references_new_id(w->refs[A])};
    struct mr_reference *theirs = hand(w, A, handle, B);
    mr_references_remote_failed(w->refs[A], handle, MR_TOO_LARGE);
    deliver_all(w);
    release(w, A, handle);
    assert_int_equal(mr_references_fetch(w->refs[O], B,
                                         &(struct mr_reference_ticket){O, theirs->id, theirs->by_fork.id},
                                         &waiting_init(&waiting)->waiter),
                     MR_OK);
    assert_int_equal(waiting.runs, 0);
    release(w, B, theirs);
    deliver_all(w);
    assert_int_equal(waiting.status, MR_CANCELLED);
    /* What has left does not fail any more. */
    bool run;
    assert_int_equal(mr_references_remote(w->refs[A], &made, &handle), MR_OK);
    assert_int_equal(handle->id, made.reference);
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made, &run), MR_OK);
    deliver_all(w);
    mr_references_remote_failed(w->refs[A], handle, MR_TOO_LARGE);
    assert_int_equal(handle->status, MR_OK);
    release(w, A, handle);
    deliver_all(w);
    assert_nothing_left(w);
}

TEST(what_is_there_is_at_hand, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0}, later = {0};
    uint64_t id = mr_references_new_id(w->refs[O]);
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *coming = mr_references_own(w->refs[O], id, NULL);
    struct mr_reference *theirs = hand(w, O, mine, A);
    assert_int_equal(coming->id, id);
    assert_int_not_equal(mine->id, id);
    assert_ptr_equal(mr_references_value(mine), &value);
    assert_null(mr_references_value(coming));
    assert_null(mr_references_value(theirs));
    assert_true(mr_references_fulfil(w->refs[O], id, &later));
    assert_ptr_equal(mr_references_value(coming), &later);
    release(w, O, mine);
    release(w, O, coming);
    release(w, A, theirs);
    deliver_all(w);
    assert_int_equal(later.freed, 1);
    assert_nothing_left(w);
}

TEST(a_parent_stays_until_its_child_is_accepted, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *parent = hand(w, O, mine, A);
    struct mr_reference_ticket ticket = pass(w, A, parent, B);
    release(w, O, mine);
    release(w, A, parent);
    assert_int_equal(w->queued, 0);
    struct mr_reference *child = take(w, A, B, &ticket);
    assert_false(child->confirmed);
    release(w, B, child);
    assert_int_equal(count_of(w, B, O, DELETED), 0);
    deliver(w, B, O, FORK);
    assert_int_equal(mr_references_held_by(w->refs[O], B), 1);
    assert_int_equal(count_of(w, A, O, DELETED), 0);
    deliver(w, O, B, CONFIRMED);
    deliver(w, B, O, DELETED);
    assert_int_equal(value.freed, 0); /* the parent still is there */
    deliver(w, B, A, ACCEPTED);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(what_goes_back_to_the_owner_is_the_owners_handle, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *theirs = hand(w, O, mine, A);
    struct mr_reference_ticket ticket = pass(w, A, theirs, O);
    release(w, O, mine);
    release(w, A, theirs);
    assert_int_equal(w->queued, 0); /* not deleted before it is back */
    struct mr_reference *back = take(w, A, O, &ticket);
    assert_ptr_equal(back, mine);
    deliver(w, O, A, ACCEPTED);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 0);
    release(w, O, back);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(a_reference_may_arrive_before_the_call_that_makes_it, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting fetched = {0}, local = {0};
    struct mr_reference_ticket ticket;
    struct mr_reference *handle = remote(w, &ticket);
    struct mr_reference *child = hand(w, A, handle, B);
    struct mr_reference_ticket back = pass(w, A, handle, O);
    deliver(w, B, O, FORK);
    struct mr_reference *owners = take(w, A, O, &back);
    struct mr_reference_ticket childs = {O, child->id, child->by_fork.id};
    assert_int_equal(mr_references_fetch(w->refs[O], B, &childs, &waiting_init(&fetched)->waiter), MR_OK);
    mr_references_wait_value(w->refs[O], owners, &waiting_init(&local)->waiter);
    arrives(w, &ticket);
    assert_int_equal(fetched.runs + local.runs, 0);
    assert_true(mr_references_fulfil(w->refs[O], ticket.reference, &value));
    assert_int_equal(fetched.runs, 1);
    assert_int_equal(fetched.status, MR_OK);
    assert_ptr_equal(fetched.value, &value);
    assert_ptr_equal(local.value, &value);
    release(w, A, handle);
    release(w, B, child);
    deliver_all(w);
    assert_int_equal(value.freed, 0);
    release(w, O, owners);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(a_fetch_tells_of_the_fork_when_nothing_else_has, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting fetched;
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *parent = hand(w, O, mine, A);
    struct mr_reference *child = hand(w, A, parent, B);
    struct mr_reference_ticket childs = {O, child->id, child->by_fork.id};
    assert_int_equal(mr_references_fetch(w->refs[O], B, &childs, &waiting_init(&fetched)->waiter), MR_OK);
    assert_int_equal(fetched.runs, 1);
    assert_ptr_equal(fetched.value, &value);
    deliver(w, O, B, CONFIRMED);
    assert_true(child->confirmed);
    deliver(w, B, A, ACCEPTED);
    release(w, A, parent);
    release(w, O, mine);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 0);
    release(w, B, child);
    deliver_all(w); /* the FORK, and then the DELETED; or the other way round */
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(a_fork_message_behind_its_deletion_is_undone, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting fetched;
    struct mr_reference_ticket ticket;
    struct mr_reference *handle = remote(w, &ticket);
    arrives(w, &ticket);
    assert_true(mr_references_fulfil(w->refs[O], ticket.reference, &value));
    deliver(w, O, A, CONFIRMED);
    struct mr_reference *child = hand(w, A, handle, B);
    struct mr_reference_ticket childs = {O, child->id, child->by_fork.id};
    assert_int_equal(mr_references_fetch(w->refs[O], B, &childs, &waiting_init(&fetched)->waiter), MR_OK);
    deliver(w, O, B, CONFIRMED);
    deliver(w, B, A, ACCEPTED);
    release(w, B, child);
    deliver(w, B, O, DELETED);
    release(w, A, handle);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 1);
    deliver(w, B, O, FORK); /* the owner cannot know that this is over, and expects the value */
    assert_int_equal(mr_references_held_by(w->refs[O], B), 1);
    deliver(w, O, B, CONFIRMED);
    deliver(w, B, O, DELETED);
    assert_nothing_left(w);
}

TEST(messages_that_come_again_do_no_harm, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0}, made = {0};
    struct waiting fetched;
    struct mr_reference_ticket ticket;
    w->repeat = true;
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *parent = hand(w, O, mine, A), *child = hand(w, A, parent, B);
    struct mr_reference *grandchild = hand(w, B, child, C), *back = hand(w, C, grandchild, O);
    struct mr_reference *handle = remote(w, &ticket);
    struct mr_reference *other = hand(w, A, handle, B);
    arrives(w, &ticket);
    assert_true(mr_references_fulfil(w->refs[O], ticket.reference, &made));
    release(w, O, mine);
    release(w, A, parent);
    release(w, B, child);
    release(w, C, grandchild);
    release(w, O, back);
    release(w, A, handle);
    release(w, B, other);
    deliver_all(w);
    assert_int_equal(value.freed, 1);
    assert_int_equal(made.freed, 1);
    /* and a fetch, long after */
    assert_int_equal(mr_references_fetch(w->refs[O], A, &ticket, &waiting_init(&fetched)->waiter), MR_OK);
    assert_int_equal(fetched.runs, 0);
    deliver_all(w);
    assert_int_equal(fetched.runs, 1);
    assert_int_equal(fetched.status, MR_CANCELLED);
    struct mr_reference_ticket gone = {O, mine == NULL ? 0 : UINT64_C(1), UINT64_C(99)};
    assert_int_equal(mr_references_fetch(w->refs[O], A, &gone, &waiting_init(&fetched)->waiter), MR_OK);
    assert_int_equal(fetched.status, MR_CANCELLED);
    assert_nothing_left(w);
}

TEST(a_ticket_that_comes_again_is_one_hold, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *parent = hand(w, O, mine, A);
    struct mr_reference_ticket ticket = pass(w, A, parent, B);
    struct mr_reference *first = take(w, A, B, &ticket), *second = take(w, A, B, &ticket);
    assert_ptr_equal(first, second);
    release(w, O, mine);
    release(w, A, parent);
    release(w, B, first);
    deliver_all(w);
    assert_int_equal(value.freed, 0);
    release(w, B, second);
    deliver_all(w);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(one_may_pass_to_oneself, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference_ticket ticket = pass(w, O, mine, O);
    release(w, O, mine);
    assert_int_equal(value.freed, 0);
    assert_ptr_equal(take(w, O, O, &ticket), mine);
    struct mr_reference *theirs = hand(w, O, mine, A);
    release(w, O, mine);
    ticket = pass(w, A, theirs, A);
    release(w, A, theirs);
    struct mr_reference *again = take(w, A, A, &ticket);
    deliver_all(w);
    assert_int_equal(value.freed, 0);
    assert_int_equal(mr_references_held_by(w->refs[O], A), 1);
    release(w, A, again);
    deliver_all(w);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(what_never_left_is_taken_back, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference_ticket owners = pass(w, O, mine, A);
    mr_references_unpass(w->refs[O], &owners);
    struct mr_reference *theirs = hand(w, O, mine, A);
    struct mr_reference_ticket users = pass(w, A, theirs, B);
    release(w, O, mine);
    release(w, A, theirs);
    assert_int_equal(w->queued, 0);
    mr_references_unpass(w->refs[A], &users);
    mr_references_unpass(w->refs[A], &users);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(waiters_are_told_once, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting confirmed, again, quit, local;
    struct mr_reference_ticket ticket;
    struct mr_reference *handle = remote(w, &ticket);
    mr_references_wait_confirmed(w->refs[A], handle, &waiting_init(&confirmed)->waiter);
    mr_references_wait_confirmed(w->refs[A], handle, &waiting_init(&quit)->waiter);
    assert_true(mr_references_unwait(&quit.waiter));
    assert_false(mr_references_unwait(&quit.waiter));
    arrives(w, &ticket);
    deliver(w, O, A, CONFIRMED);
    mr_references_wait_confirmed(w->refs[A], handle, &waiting_init(&again)->waiter);
    assert_int_equal(confirmed.runs, 1);
    assert_int_equal(confirmed.status, MR_OK);
    assert_int_equal(again.runs, 1);
    assert_int_equal(quit.runs, 0);
    assert_false(mr_references_unwait(&confirmed.waiter));

    struct mr_reference *mine = mr_references_own(w->refs[O], mr_references_new_id(w->refs[O]), NULL);
    mr_references_wait_value(w->refs[O], mine, &waiting_init(&local)->waiter);
    assert_int_equal(local.runs, 0);
    assert_true(mr_references_fulfil(w->refs[O], mine->id, &value));
    assert_int_equal(local.runs, 1);
    assert_false(mr_references_fulfil(w->refs[O], mine->id, &value));
    release(w, O, mine);
    assert_int_equal(value.freed, 1);
    release(w, A, handle);
    deliver_all(w);
    assert_nothing_left(w);
}

TEST(values_may_hold_references, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value inner = {0}, outer = {0}, kept = {0};
    struct mr_reference *in = own(w, O, &inner);
    outer.refs = w->refs[A];
    outer.inner = hand(w, O, in, A);
    release(w, O, in);
    struct mr_reference *out = own(w, A, &outer);
    release(w, A, out);
    deliver_all(w);
    assert_int_equal(outer.freed, 1);
    assert_int_equal(inner.freed, 1);
    kept.refs = w->refs[B]; /* and goes with the worker */
    kept.inner = own(w, B, &inner);
    (void)own(w, B, &kept);
    crash(w, B);
    assert_int_equal(kept.freed, 1);
    assert_int_equal(inner.freed, 2);
}

TEST(waiters_end_with_the_worker, world_setup, world_teardown)
{
    struct world *w = *state;
    struct waiting local, confirmed;
    struct mr_reference_ticket ticket;
    mr_references_wait_value(w->refs[O],
                             mr_references_own(w->refs[O], mr_references_new_id(w->refs[O]), NULL),
                             &waiting_init(&local)->waiter);
    mr_references_wait_confirmed(w->refs[A], remote(w, &ticket), &waiting_init(&confirmed)->waiter);
    crash(w, O);
    crash(w, A);
    assert_int_equal(local.runs, 1);
    assert_int_equal(local.status, MR_SHUTTING_DOWN);
    assert_int_equal(confirmed.status, MR_SHUTTING_DOWN);
}

TEST(malformed_messages_change_nothing, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting waiting;
    struct mr_reference *out, *mine = own(w, O, &value), *theirs = hand(w, O, mine, A);
    uint64_t id = mine->id, fork = theirs->by_fork.id, words[MR_REFERENCE_MESSAGE_WORDS] = {0};
    bool run;
    const struct mr_reference_message bad[] = {
        {0, 0, id, fork},
        {MR_REFERENCE_KIND_COUNT, 0, id, fork},
        {FORK, WORKERS, id, fork},
        {FORK, O, id, fork},
        {FORK, B, id, fork}, /* of A's fork */
        {FORK, A, id + 1, fork},
        {FORK, A, (uint64_t)WORKERS << MR_REFERENCE_RANK_SHIFT, fork},
        {CONFIRMED, WORKERS, id, fork},
        {ACCEPTED, 0, id, 0},
        {MR_REFERENCE_SETTLE, WORKERS, 0, 0},
        {MR_REFERENCE_SETTLE, O, 0, 0},
        {MR_REFERENCE_SETTLE, A, 0, 0},
        {MR_REFERENCE_SETTLED, WORKERS, 0, 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(mr_references_receive(w->refs[O], A, &bad[i]), MR_BAD_MESSAGE);
    struct mr_reference_message good = {DELETED, 0, id, fork};
    assert_int_equal(mr_references_receive(w->refs[O], WORKERS, &good), MR_BAD_MESSAGE);
    assert_int_equal(mr_references_receive(w->refs[O], O, &good), MR_BAD_MESSAGE);
    assert_int_equal(mr_references_receive(w->refs[O], B, &good), MR_OK); /* not B's to delete */
    assert_false(mr_reference_message_unpack(words, &good));
    struct mr_reference_ticket tickets[] = {{WORKERS, id, 7}, {O, id, 0}, {O, UINT64_MAX, 7}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(mr_references_take(w->refs[O], A, &tickets[i], &out), MR_BAD_MESSAGE);
        assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &tickets[i], &run), MR_BAD_MESSAGE);
        assert_int_equal(mr_references_fetch(w->refs[O], A, &tickets[i], &waiting_init(&waiting)->waiter),
                         MR_BAD_MESSAGE);
    }
    struct mr_reference_ticket ours = {O, id, 7};
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &ours, &run), MR_BAD_MESSAGE);
    assert_int_equal(w->queued, 0);
    assert_int_equal(mr_references_held_by(w->refs[O], A), 1);
    release(w, A, theirs);
    release(w, O, mine);
    deliver_all(w);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(configurations_are_checked)
{
    struct mr_references *refs = NULL;
    struct mr_references_config config = {.rank = 4, .world_size = 4};
    assert_int_equal(mr_references_create(&config, &refs), MR_INVALID_ARGUMENT);
    config = (struct mr_references_config){.world_size = 0};
    assert_int_equal(mr_references_create(&config, &refs), MR_INVALID_ARGUMENT);
    config = (struct mr_references_config){.world_size = 65536};
    assert_int_equal(mr_references_create(&config, &refs), MR_INVALID_ARGUMENT);
    assert_null(refs);
}
