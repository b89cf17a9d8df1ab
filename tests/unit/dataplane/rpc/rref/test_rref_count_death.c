/* The rules of rref_count.h when workers die, and when memory is short. */

#include "references_world.h"
#include "tests/test.h"

enum { O, A, B, C };
#define FORK      MR_REFERENCE_FORK
#define CONFIRMED MR_REFERENCE_CONFIRMED
#define DELETED   MR_REFERENCE_DELETED
#define SETTLE    MR_REFERENCE_SETTLE
#define SETTLED   MR_REFERENCE_SETTLED

static uint32_t allocations_left = UINT32_MAX;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    if (allocations_left != UINT32_MAX && allocations_left-- == 0) {
        allocations_left = 0;
        return NULL;
    }
    return __real_calloc(count, bytes);
}

/* The worker stops, and another one notices. */
static void die_for(struct world *w, uint32_t rank, uint32_t other)
{
    crash(w, rank);
    mr_references_died(w->refs[other], rank);
}

/* This is the last hold of the value anywhere. */
static void expect_last(struct world *w, uint32_t rank, struct mr_reference *handle,
                        const struct value *value)
{
    assert_int_equal(value->freed, 0);
    release(w, rank, handle);
    deliver_all(w);
    assert_int_equal(value->freed, 1);
    assert_nothing_left(w);
}

static void move_to_end(struct world *w, uint32_t kind)
{
    for (uint32_t i = 0, last = w->queued - 1; i < last; i++) {
        if (w->queue[i].message.kind == kind) {
            struct queued moved = w->queue[i];
            w->queue[i] = w->queue[last];
            w->queue[last] = moved;
        }
    }
}

TEST(what_the_dead_held_is_freed_once_all_have_answered, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    (void)hand(w, O, mine, A);
    (void)pass(w, O, mine, A); /* never arrived */
    release(w, O, mine);
    die_for(w, A, O);
    deliver(w, O, B, SETTLE);
    deliver(w, O, C, SETTLE);
    deliver(w, B, O, SETTLED);
    assert_int_equal(value.freed, 0);
    deliver(w, C, O, SETTLED);
    assert_int_equal(value.freed, 1);
    assert_true(is_dead(w->refs[B], A)); /* it was reported to B */
    assert_nothing_left(w);
}

TEST(nobody_is_asked_when_the_dead_held_nothing, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *theirs = hand(w, O, mine, A);
    die(w, B);
    assert_int_equal(w->queued, 0);
    release(w, A, theirs);
    release(w, O, mine);
    deliver_all(w);
    assert_nothing_left(w);
}

/* A held it and passed it to B, who has not told the owner yet. */
TEST(what_the_dead_passed_on_is_not_freed, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *a = hand(w, O, mine, A), *b = hand(w, A, a, B);
    release(w, O, mine);
    die_for(w, A, O);
    deliver(w, O, C, SETTLE);
    deliver(w, C, O, SETTLED);
    deliver(w, O, B, SETTLE);
    assert_int_equal(count_of(w, B, O, SETTLED), 0); /* not before it is confirmed */
    deliver(w, B, O, FORK);
    assert_int_equal(value.freed, 0);
    deliver(w, O, B, CONFIRMED);
    deliver(w, B, O, SETTLED);
    assert_int_equal(value.freed, 0);
    assert_int_equal(mr_references_held_by(w->refs[O], A), 0);
    expect_last(w, B, b, &value);
}

TEST(nothing_is_taken_from_the_dead, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting waiting;
    struct mr_reference *out = NULL, *mine = own(w, O, &value), *a = hand(w, O, mine, A);
    struct mr_reference_ticket late = pass(w, A, a, B), back = pass(w, A, a, O), made,
                               as = {O, a->id, a->by_fork.id};
    bool run;
    assert_int_equal(make_remote(w->refs[A], O, &out, &made), MR_OK);
    die(w, A);
    deliver_all(w);
    assert_int_equal(mr_references_take(w->refs[B], A, &late, &out), MR_WORKER_DIED);
    assert_int_equal(mr_references_take(w->refs[O], A, &back, &out), MR_WORKER_DIED);
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made, &run), MR_WORKER_DIED);
    assert_int_equal(mr_references_fetch(w->refs[O], A, &as, &waiting_init(&waiting)->waiter),
                     MR_WORKER_DIED);
    assert_int_equal(mr_references_pass(w->refs[O], mine, A, &as), MR_WORKER_DIED);
    assert_int_equal(make_remote(w->refs[O], A, &out, &as), MR_WORKER_DIED);
    struct mr_reference_message fork = {FORK, A, mine->id, 77};
    assert_int_equal(mr_references_receive(w->refs[O], A, &fork), MR_OK);
    assert_int_equal(w->queued, 0);
    release(w, O, mine);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

/* A passed it to B, who passed it to C and died; A's child will never be accepted. */
TEST(a_parent_whose_child_died_has_the_owner_look_after_its_grandchildren, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *a = hand(w, O, mine, A), *b = hand(w, A, a, B), *c = hand(w, B, b, C);
    release(w, O, mine);
    release(w, A, a);
    die_for(w, B, A);
    deliver(w, A, O, FORK); /* in the dead one's name; the owner has not heard of the death */
    deliver(w, O, A, CONFIRMED);
    deliver(w, A, O, DELETED);
    assert_int_equal(value.freed, 0);
    mr_references_died(w->refs[O], B);
    deliver(w, O, A, SETTLE);
    deliver(w, O, C, SETTLE);
    deliver(w, A, O, SETTLED);
    assert_int_equal(value.freed, 0);
    deliver_all(w); /* with C's fork */
    assert_int_equal(value.freed, 0);
    assert_int_equal(mr_references_held_by(w->refs[O], C), 1);
    expect_last(w, C, c, &value);
}

TEST(a_fork_of_the_long_dead_is_confirmed_and_settled, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *a = hand(w, O, mine, A);
    struct mr_reference_ticket lost = pass(w, A, a, B), second = pass(w, A, a, B);
    assert_true(lost.fork != second.fork);
    release(w, O, mine);
    release(w, A, a);
    crash(w, B);
    mr_references_died(w->refs[O], B); /* held nothing: nobody is asked */
    assert_int_equal(w->queued, 0);
    mr_references_died(w->refs[A], B);
    w->repeat = true;
    deliver_all(w);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

/* O -> A -> B -> C; A's fork is the only one known. The owner asks about A; B dies before it answers, and
 * before C has told of its fork. C has nothing from A. */
TEST(deaths_one_after_another_are_settled_together, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *a = hand(w, O, mine, A), *b = hand(w, A, a, B);
    struct mr_reference_ticket to_c = pass(w, B, b, C);
    release(w, O, mine);
    die_for(w, A, O);
    deliver(w, O, C, SETTLE);
    deliver(w, C, O, SETTLED);
    struct mr_reference *c = take(w, B, C, &to_c);
    die_for(w, B, O);
    assert_int_equal(value.freed, 0);
    deliver(w, O, C, SETTLE);
    assert_int_equal(count_of(w, C, O, SETTLED), 0);
    deliver_all(w);
    expect_last(w, C, c, &value);
}

/* The same, but B is known to be dead first, when it held nothing that the owner knew. */
TEST(one_that_died_before_is_asked_about_too, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *a = hand(w, O, mine, A), *b = hand(w, A, a, B), *c = hand(w, B, b, C);
    release(w, O, mine);
    die_for(w, B, O);
    assert_int_equal(count_of(w, O, C, SETTLE), 0);
    die_for(w, A, O);
    assert_int_equal(count_of(w, O, C, SETTLE), 2);
    assert_int_equal(count_of(w, C, O, FORK), 1);
    move_to_end(w, FORK);
    w->repeat = true;
    deliver_all(w);
    assert_int_equal(value.freed, 0);
    assert_int_equal(mr_references_held_by(w->refs[O], C), 1);
    expect_last(w, C, c, &value);
}

TEST(who_dies_need_not_answer, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    (void)hand(w, O, mine, A);
    release(w, O, mine);
    die_for(w, A, O);
    deliver(w, O, B, SETTLE);
    deliver(w, B, O, SETTLED);
    die_for(w, C, O);
    deliver_all(w);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

TEST(a_value_whose_maker_died_is_told_to_be_lost, world_setup, world_teardown)
{
    struct world *w = *state;
    struct waiting before, after, late;
    struct mr_reference *a = NULL;
    struct mr_reference_ticket ticket;
    assert_int_equal(make_remote(w->refs[A], O, &a, &ticket), MR_OK);
    struct mr_reference *b = hand(w, A, a, B), *c = hand(w, A, a, C);
    struct mr_reference_ticket bs = {O, b->id, b->by_fork.id}, cs = {O, c->id, c->by_fork.id};
    assert_int_equal(mr_references_fetch(w->refs[O], B, &bs, &waiting_init(&before)->waiter), MR_OK);
    die(w, A);
    assert_int_equal(before.runs, 1);
    assert_int_equal(before.status, MR_WORKER_DIED);
    assert_int_equal(mr_references_fetch(w->refs[O], B, &bs, &waiting_init(&after)->waiter), MR_OK);
    assert_int_equal(after.status, MR_WORKER_DIED);
    release(w, B, b);
    deliver(w, O, B, CONFIRMED);
    deliver_all(w);
    assert_int_equal(mr_references_fetch(w->refs[O], C, &cs, &waiting_init(&late)->waiter), MR_OK);
    assert_int_equal(late.status, MR_WORKER_DIED);
    release(w, C, c);
    deliver_all(w);
    assert_nothing_left(w);
}

TEST(references_to_a_dead_owner_fail_and_go, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting confirmed, after;
    struct mr_reference_ticket ticket;
    struct mr_reference *made = NULL, *mine = own(w, O, &value), *a = hand(w, O, mine, A);
    assert_int_equal(make_remote(w->refs[A], O, &made, &ticket), MR_OK);
    struct mr_reference_ticket to_b = pass(w, A, a, B);
    struct mr_reference *gone = hand(w, O, mine, A);
    mr_references_wait_confirmed(w->refs[A], made, &waiting_init(&confirmed)->waiter);
    (void)pass(w, A, gone, C);
    release(w, A, gone);
    die(w, O);
    assert_int_equal(confirmed.status, MR_WORKER_DIED);
    assert_int_equal(a->status, MR_WORKER_DIED);
    assert_int_equal(mr_references_pass(w->refs[A], a, B, &ticket), MR_WORKER_DIED);
    struct mr_reference *b = take(w, A, B, &to_b);
    assert_int_equal(b->status, MR_WORKER_DIED);
    mr_references_wait_confirmed(w->refs[B], b, &waiting_init(&after)->waiter);
    assert_int_equal(after.status, MR_WORKER_DIED);
    assert_nothing_left(w); /* though they are not released yet */
    mr_references_remote_failed(w->refs[A], made, MR_WORKER_DIED);
    release(w, A, made);
    release(w, A, a);
    release(w, B, b);
    assert_nothing_left(w);
}

TEST(who_left_in_peace_leaves_nothing, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct mr_reference *mine = own(w, O, &value);
    struct mr_reference *a = hand(w, O, mine, A);
    release(w, A, a);
    deliver_all(w);
    assert_true(mr_references_may_leave(w->refs[A]));
    crash(w, A);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        if (rank != A)
            mr_references_died(w->refs[rank], A);
    assert_int_equal(w->queued, 0);
    release(w, O, mine);
    assert_int_equal(value.freed, 1);
    assert_nothing_left(w);
}

/* Each step with the first, then the second allocation failing: nothing changes, and it can be done again. */
TEST(without_memory_nothing_changes, world_setup, world_teardown)
{
    struct world *w = *state;
    struct value value = {0};
    struct waiting waiting;
    struct mr_reference_ticket ticket, made;
    struct mr_reference *out = NULL, *a = NULL, *b = NULL;
    bool run = false;
#define SHORT(expression)                                                                                    \
    do {                                                                                                     \
        allocations_left = 0;                                                                                \
        enum mr_status short_status = (expression);                                                          \
        allocations_left = UINT32_MAX;                                                                       \
        assert_int_equal(short_status, MR_NO_MEMORY);                                                        \
    } while (0)
    allocations_left = 0;
    assert_null(mr_references_own(w->refs[O], mr_references_new_id(w->refs[O]), &value));
    allocations_left = UINT32_MAX;
    struct mr_reference *mine = own(w, O, &value);
    SHORT(mr_references_pass(w->refs[O], mine, A, &ticket));
    ticket = pass(w, O, mine, A);
    SHORT(mr_references_take(w->refs[A], O, &ticket, &out));
    a = take(w, O, A, &ticket);
    SHORT(mr_references_pass(w->refs[A], a, B, &ticket));
    ticket = pass(w, A, a, B);
    b = take(w, A, B, &ticket);
    SHORT(mr_references_receive(w->refs[O], B, &w->queue[0].message));
    deliver_all(w);
    SHORT(make_remote(w->refs[A], O, &out, &made));
    assert_int_equal(make_remote(w->refs[A], O, &out, &made), MR_OK);
    SHORT(mr_references_remote_arrived(w->refs[O], A, &made, &run));
    allocations_left = 1;
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made, &run), MR_NO_MEMORY);
    assert_int_equal(mr_references_fetch(w->refs[O], A, &made, &waiting_init(&waiting)->waiter),
                     MR_NO_MEMORY);
    allocations_left = UINT32_MAX;
    struct mr_references_counts counts;
    mr_references_counts(w->refs[O], &counts);
    assert_int_equal(counts.values, 1);
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made, &run), MR_OK);
    assert_true(run);
    release(w, O, mine);
    release(w, A, a);
    release(w, A, out);
    expect_last(w, B, b, &value);
}

/* Each of which takes a value that was not heard of, and a fork of it. */
TEST(what_was_reserved_needs_no_memory, world_setup, world_teardown)
{
    enum { CALLS = 3 };
    struct world *w = *state;
    struct mr_reference_ticket made[CALLS + 1];
    struct mr_reference *handles[CALLS + 1], *taken;
    bool run;
    for (uint32_t i = 0; i < CALLS + 1; i++)
        assert_int_equal(make_remote(w->refs[A], O, &handles[i], &made[i]), MR_OK);
    struct mr_reference_ticket passed = pass(w, A, handles[0], B);
    allocations_left = 0;
    assert_false(mr_references_reserve(w->refs[O], CALLS));
    allocations_left = UINT32_MAX;
    assert_true(mr_references_reserve(w->refs[O], CALLS));
    assert_true(mr_references_reserve(w->refs[B], 1));
    allocations_left = 0;
    for (uint32_t i = 0; i < CALLS; i++)
        assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made[i], &run), MR_OK);
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made[CALLS], &run), MR_NO_MEMORY);
    assert_int_equal(mr_references_take(w->refs[B], A, &passed, &taken), MR_OK);
    allocations_left = UINT32_MAX;
    assert_int_equal(mr_references_remote_arrived(w->refs[O], A, &made[CALLS], &run), MR_OK);
    release(w, B, taken);
    for (uint32_t i = 0; i < CALLS + 1; i++)
        release(w, A, handles[i]);
    deliver_all(w);
    assert_nothing_left(w);
}
