/* The replay buffer against a model of the server's record: what is applied, what a checkpoint holds, and a
 * restart. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/replay/replay.h"
#include "tests/test.h"

enum { MODEL_MAX = 4096, STREAM = 0x0201 };

/* A server that applies a number once. `times[n]` counts how often number n changed its data, since the
 * checkpoint that it was restored from was empty. */
struct model {
    bool has[MODEL_MAX], saved[MODEL_MAX];
    uint64_t order[MODEL_MAX]; /* in which they were applied, 1 = first */
    uint64_t applied, durable;
};

static void model_take(struct model *m, uint64_t number)
{
    if (m->has[number])
        return;
    m->has[number] = true;
    m->order[number] = ++m->applied;
}

static uint64_t model_floor(const bool *has)
{
    uint64_t floor = 0;
    while (has[floor + 1])
        floor++;
    return floor;
}

static void model_save(struct model *m)
{
    memcpy(m->saved, m->has, sizeof(m->saved));
    m->durable = model_floor(m->saved);
}

static void model_restart(struct model *m)
{
    memcpy(m->has, m->saved, sizeof(m->has));
}

static struct mrc_push *new_push(uint64_t step, uint64_t bytes)
{
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, (uint32_t)bytes, NULL);
    struct mrc_push *push = mrc_push_new(MR_OP_PUSH_GRAD, 7, 3, step, &tensor, 1);
    assert_non_null(push);
    return push;
}

static struct mrc_push *replay_add(struct mrc_replay *r, uint64_t step, uint64_t bytes)
{
    struct mrc_push *push = new_push(step, bytes);
    assert_true(mrc_replay_add(r, push));
    return push;
}

static void replay_answer(struct mrc_replay *r, struct model *m, struct mrc_push *push)
{
    model_take(m, push->number);
    mrc_replay_answered(r, push, MR_OK, m->durable, 0);
}

/* Everything that is due, one after the other. */
static uint64_t catch_up(struct mrc_replay *r, struct model *m)
{
    uint64_t count = 0;
    for (struct mrc_push *push; (push = mrc_replay_next(r, 0)) != NULL; count++)
        replay_answer(r, m, push);
    assert_true(mrc_replay_caught_up(r));
    return count;
}

TEST(test_push_is_a_copy)
{
    float values[3] = {1, 2, 3};
    uint32_t head[4] = {9, 0};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_F32, 3, values),
                                   mr_tensor_1d(MR_U64, 0, NULL)};
    struct mrc_push *push = mrc_push_new(MR_OP_PUSH_GRAD, 9, 2, 77, tensors, 3);
    assert_non_null(push);
    values[1] = 8;
    assert_int_equal(push->tensor_count, 3);
    assert_true(((const float *)push->tensors[1].data)[1] == 2);
    assert_int_equal(((const uint32_t *)push->tensors[0].data)[0], 9);
    assert_int_equal(push->tensors[1].dims[0], 3);
    assert_int_equal(push->tensors[2].bytes, 0);
    assert_int_equal(push->step, 77);
    mrc_push_free(push);
}

TEST(test_numbers_carry_the_stream)
{
    struct mrc_replay r;
    mrc_replay_init(&r, STREAM, 1 << 20);
    assert_int_equal(mrc_replay_sequence(&r, replay_add(&r, 5, 10)), mr_push_sequence(0x0201, 1));
    assert_int_equal(mrc_replay_sequence(&r, replay_add(&r, 5, 10)), mr_push_sequence(0x0201, 2));
    mrc_replay_fini(&r);
}

#define DUE_BYTES 200u

/* Lists what is due, as "first-number" for marks of several and "number" for pushes. */
static void due_of(struct mrc_replay *r, char text[DUE_BYTES])
{
    struct mrc_push *push;
    size_t at = 0;
    while ((push = mrc_replay_next(r, 0)) != NULL) {
        const unsigned first = (unsigned)push->first, number = (unsigned)push->number;
        at += (size_t)(first != 0 ? snprintf(text + at, DUE_BYTES - at, "%u-%u ", first, number)
                                  : snprintf(text + at, DUE_BYTES - at, "%u ", number));
        mrc_replay_answered(r, push, MR_OK, MRC_FLOOR_UNKNOWN, 0);
    }
    text[at] = '\0';
}

static struct mrc_push *some(uint64_t step)
{
    const float value = 1;
    const uint32_t head[4] = {1};
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_F32, 1, &value)};
    return mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, step, tensors, 2);
}

/* A closed stream at an owner: what it has answered is not sent again, and numbers that it will not get are
 * marked. After a restart it gets all again, and marks for the rest. */
TEST(test_a_closed_stream_marks_what_does_not_come)
{
    struct mrc_replay r;
    char text[DUE_BYTES];
    mrc_replay_init(&r, STREAM, 1 << 20);
    r.is_former = true;
    mrc_replay_adopt(&r, some(1), 3, 0, true);
    mrc_replay_adopt(&r, some(2), 5, 0, false);
    mrc_replay_adopt(&r, some(3), 6, 0, false);
    mrc_replay_adopt(&r, some(4), 8, 0, true);
    mrc_replay_mark_gaps(&r, 9);
    due_of(&r, text);
    assert_string_equal(text, "1-4 5 6 7-9 ");
    mrc_replay_restart(&r);
    due_of(&r, text);
    assert_string_equal(text, "1-2 3 4-4 5 6 7-7 8 9-9 ");
    mrc_replay_fini(&r);
}

/* Of a closed stream the server may know some partitions only: what it has not answered stays, whatever it
 * says to be on disk. */
TEST(test_a_closed_stream_keeps_what_is_not_answered)
{
    struct mrc_replay r;
    mrc_replay_init(&r, STREAM, 1 << 20);
    r.is_former = true;
    mrc_replay_adopt(&r, some(1), 1, 0, false);
    mrc_replay_adopt(&r, some(2), 2, 0, false);
    struct mrc_push *first = mrc_replay_next(&r, 0), *second = mrc_replay_next(&r, 0);
    assert_int_equal(second->number, 2);
    mrc_replay_unanswered(&r, first);
    mrc_replay_answered(&r, second, MR_OK, 2, 0);
    assert_int_equal(r.count, 1);
    assert_ptr_equal(mrc_replay_next(&r, 0), first);
    mrc_replay_answered(&r, first, MR_OK, 2, 0);
    assert_int_equal(r.count, 0);
    mrc_replay_fini(&r);
}

TEST(test_on_disk_is_let_go)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    mrc_replay_init(&r, STREAM, 1 << 20);
    for (uint64_t i = 1; i <= 10; i++)
        replay_answer(&r, &m, replay_add(&r, i, 100));
    assert_int_equal(r.count, 10);
    model_save(&m);
    replay_answer(&r, &m, replay_add(&r, 11, 100));
    assert_int_equal(r.count, 1);
    mrc_replay_restart(&r);
    model_restart(&m);
    assert_int_equal(catch_up(&r, &m), 1);
    assert_int_equal(model_floor(m.has), 11);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    assert_int_equal(r.replayed, 1);
    mrc_replay_fini(&r);
}

/* The first answer after the restart says what the checkpoint held: the rest of that is not sent. */
TEST(test_floor_learnt_on_restart)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    mrc_replay_init(&r, STREAM, 1 << 20);
    for (uint64_t i = 1; i <= 10; i++)
        replay_answer(&r, &m, replay_add(&r, i, 100));
    model_save(&m); /* and no answer tells */
    mrc_replay_restart(&r);
    model_restart(&m);
    assert_int_equal(catch_up(&r, &m), 1);
    assert_int_equal(r.count, 0);
    mrc_replay_fini(&r);
}

/* What came after an answer comes after it again; what was in flight beside it need not. */
TEST(test_order_of_answers_holds)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *one, *two, *three;
    mrc_replay_init(&r, STREAM, 1 << 20);
    one = replay_add(&r, 1, 10);
    two = replay_add(&r, 1, 10);
    replay_answer(&r, &m, one);
    replay_answer(&r, &m, two);
    three = replay_add(&r, 2, 10);
    replay_answer(&r, &m, three);
    mrc_replay_restart(&r);
    assert_ptr_equal(mrc_replay_next(&r, 0), one);
    assert_ptr_equal(mrc_replay_next(&r, 0), two);
    assert_null(mrc_replay_next(&r, 0));
    replay_answer(&r, &m, two);
    assert_null(mrc_replay_next(&r, 0));
    replay_answer(&r, &m, one);
    assert_ptr_equal(mrc_replay_next(&r, 0), three);
    assert_false(mrc_replay_caught_up(&r));
    mrc_replay_unanswered(&r, three);
    mrc_replay_fini(&r);
}

/* One that nobody answers yet changes nothing in the order of the others. */
TEST(test_order_holds_beside_one_under_way)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *slow, *two, *three;
    mrc_replay_init(&r, STREAM, 1 << 20);
    slow = replay_add(&r, 1, 10);
    two = replay_add(&r, 1, 10);
    replay_answer(&r, &m, two);
    three = replay_add(&r, 2, 10);
    replay_answer(&r, &m, three);
    mrc_replay_restart(&r);
    assert_ptr_equal(mrc_replay_next(&r, 0), two);
    assert_null(mrc_replay_next(&r, 0));
    replay_answer(&r, &m, two);
    assert_ptr_equal(mrc_replay_next(&r, 0), three);
    replay_answer(&r, &m, three);
    replay_answer(&r, &m, slow);
    mrc_replay_fini(&r);
}

TEST(test_asked_is_left_to_its_caller)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *asked, *behind;
    mrc_replay_init(&r, STREAM, 1 << 20);
    asked = replay_add(&r, 1, 10);
    behind = replay_add(&r, 2, 10);
    replay_answer(&r, &m, behind);
    mrc_replay_restart(&r);
    assert_ptr_equal(mrc_replay_next(&r, 0), behind);
    replay_answer(&r, &m, behind);
    assert_true(mrc_replay_caught_up(&r));
    /* Its deadline passes: the caller does not know, and it is applied all the same. */
    mrc_replay_unanswered(&r, asked);
    assert_ptr_equal(mrc_replay_next(&r, 0), asked);
    replay_answer(&r, &m, asked);
    assert_int_equal(model_floor(m.has), 2);
    mrc_replay_fini(&r);
}

/* Its number is marked, so that it does not hold the floor. */
TEST(test_refused_is_not_kept)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *mark;
    mrc_replay_init(&r, STREAM, 1 << 20);
    mrc_replay_answered(&r, replay_add(&r, 1, 100000), MR_WRONG_DIM, 0, 0);
    replay_answer(&r, &m, replay_add(&r, 2, 10));
    assert_true(r.bytes < 2000);
    mark = mrc_replay_next(&r, 0);
    assert_int_equal(mark->number, 1);
    assert_int_equal(mark->tensor_count, 0);
    replay_answer(&r, &m, mark);
    model_save(&m);
    assert_int_equal(m.durable, 2);
    /* A mark that is refused is let be. */
    mrc_replay_answered(&r, replay_add(&r, 3, 10), MR_WRONG_DIM, 0, 0);
    mark = mrc_replay_next(&r, 0);
    mrc_replay_answered(&r, mark, MR_FROZEN, 0, 0);
    assert_true(mrc_replay_caught_up(&r));
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    mrc_replay_fini(&r);
}

TEST(test_window)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *first, *more = new_push(1, 10);
    mrc_replay_init(&r, STREAM, 1 << 24);
    first = replay_add(&r, 1, 10);
    for (uint32_t i = 1; i < MR_PUSH_WINDOW; i++)
        replay_answer(&r, &m, replay_add(&r, 1, 10));
    assert_false(mrc_replay_add(&r, more));
    replay_answer(&r, &m, first);
    assert_true(mrc_replay_add(&r, more));
    replay_answer(&r, &m, more);
    mrc_replay_fini(&r);
}

/* Those that were all in flight together are so again. */
TEST(test_window_again)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *all[MR_PUSH_WINDOW];
    mrc_replay_init(&r, STREAM, 1 << 24);
    for (uint32_t i = 0; i < MR_PUSH_WINDOW; i++)
        all[i] = replay_add(&r, 1, 10);
    for (uint32_t i = 0; i < MR_PUSH_WINDOW; i++)
        replay_answer(&r, &m, all[i]);
    replay_answer(&r, &m, replay_add(&r, 2, 10));
    mrc_replay_restart(&r);
    for (uint32_t i = 0; i < MR_PUSH_WINDOW; i++)
        assert_ptr_equal(mrc_replay_next(&r, 0), all[i]);
    for (uint32_t i = MR_PUSH_WINDOW; i-- > 0;) {
        assert_null(mrc_replay_next(&r, 0));
        replay_answer(&r, &m, all[i]);
    }
    assert_int_equal(mrc_replay_next(&r, 0)->number, MR_PUSH_WINDOW + 1);
    mrc_replay_fini(&r);
}

TEST(test_undo)
{
    struct mrc_replay r;
    struct mrc_push *push = new_push(1, 10);
    mrc_replay_init(&r, STREAM, 1 << 20);
    assert_true(mrc_replay_add(&r, push));
    mrc_replay_undo(&r, push);
    assert_int_equal(r.count, 0);
    assert_true(mrc_replay_add(&r, push));
    assert_int_equal(push->number, 1);
    mrc_replay_fini(&r);
}

/* The question what is on disk goes under the number of a push: to a server that has lost that push, the push
 * comes first. */
TEST(test_a_question_does_not_pass_its_push)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *push, *question;
    mrc_replay_init(&r, STREAM, 1 << 20);
    for (uint32_t pushes = 1; pushes <= 2; pushes++) {
        push = replay_add(&r, pushes, 10);
        replay_answer(&r, &m, push);
        mrc_replay_ask(&r);
        question = mrc_replay_next(&r, 0);
        assert_non_null(question);
        assert_int_equal(question->number, push->number);
        assert_int_equal(question->tensor_count, 0);
        mrc_replay_unanswered(&r, question); /* the server is gone */
        mrc_replay_restart(&r);
        assert_int_equal(r.count, pushes);
        for (uint32_t i = 1; i <= pushes; i++) {
            struct mrc_push *next = mrc_replay_next(&r, 0);
            assert_non_null(next);
            assert_int_equal(next->tensor_count, 1);
            assert_null(mrc_replay_next(&r, 0));
            replay_answer(&r, &m, next);
        }
        assert_true(mrc_replay_caught_up(&r));
    }
    mrc_replay_fini(&r);
}

/* Others were numbered since: the number stays taken, and the server hears of it, so that its record has no
 * hole. */
TEST(test_undo_leaves_a_mark_before_others)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *undone = new_push(1, 10), *later, *mark;
    mrc_replay_init(&r, STREAM, 1 << 20);
    assert_true(mrc_replay_add(&r, undone));
    later = replay_add(&r, 2, 10);
    mrc_replay_undo(&r, undone);
    assert_int_equal(undone->state, MRC_PUSH_NEW);
    replay_answer(&r, &m, later);
    mark = mrc_replay_next(&r, 0);
    assert_non_null(mark);
    assert_int_equal(mark->number, 1);
    assert_int_equal(mark->tensor_count, 0);
    replay_answer(&r, &m, mark);
    assert_int_equal(model_floor(m.has), 2);
    assert_true(mrc_replay_add(&r, undone));
    assert_int_equal(undone->number, 3);
    assert_int_equal(undone->tensor_count, 1);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    mrc_replay_fini(&r);
}

TEST(test_full_gives_up_the_oldest)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *open;
    struct mrc_loss loss;
    mrc_replay_init(&r, STREAM, 4096);
    open = replay_add(&r, 99, 500);
    for (uint64_t i = 2; i <= 20; i++)
        replay_answer(&r, &m, replay_add(&r, 100 + i, 500));
    assert_true(r.bytes <= 4096);
    assert_true(r.given_up > 10);
    uint64_t gone = r.trimmed.to;

    replay_answer(&r, &m, open);
    mrc_replay_restart(&r);
    model_restart(&m);
    (void)catch_up(&r, &m);
    loss = mrc_replay_take_loss(&r);
    assert_int_equal(loss.pushes, gone); /* the first one may be among them: its number is */
    assert_int_equal(loss.from_step, 102);
    assert_int_equal(loss.to_step, 100 + gone);
    assert_int_equal(loss.refused, MR_OK);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0); /* told once */
    mrc_replay_fini(&r);
}

TEST(test_pushes_of_a_call_are_added_as_one)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *open[3];
    mrc_replay_init(&r, STREAM, 4096);
    replay_answer(&r, &m, replay_add(&r, 1, 500));
    for (uint64_t i = 0; i < 3; i++) {
        open[i] = new_push(2, 1400);
        assert_true(3 * open[i]->bytes > 4096);
        open[i]->call_bytes = i * open[i]->bytes;
        assert_true(mrc_replay_add(&r, open[i]));
    }
    struct mrc_push *next = new_push(3, 500);
    assert_false(mrc_replay_add(&r, next)); /* of another call: it waits for them */
    for (uint64_t i = 0; i < 3; i++)
        replay_answer(&r, &m, open[i]);
    assert_true(mrc_replay_add(&r, next));
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    mrc_replay_fini(&r);
}

TEST(test_given_up_but_on_disk_is_no_loss)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    mrc_replay_init(&r, STREAM, 4096);
    for (uint64_t i = 1; i <= 20; i++)
        replay_answer(&r, &m, replay_add(&r, i, 500));
    model_save(&m);
    mrc_replay_restart(&r);
    model_restart(&m);
    (void)catch_up(&r, &m);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    mrc_replay_fini(&r);
}

TEST(test_unanswered_is_never_given_up)
{
    struct mrc_replay r;
    struct mrc_push *big = new_push(3, 3000);
    mrc_replay_init(&r, STREAM, 4096);
    (void)replay_add(&r, 1, 1000);
    (void)replay_add(&r, 2, 1000);
    assert_false(mrc_replay_add(&r, big));
    assert_int_equal(r.count, 2);
    assert_int_equal(r.given_up, 0);
    mrc_push_free(big);
    mrc_replay_fini(&r);
}

TEST(test_alone_it_fits)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    mrc_replay_init(&r, STREAM, 4096);
    replay_answer(&r, &m, replay_add(&r, 1, 100000));
    replay_answer(&r, &m, replay_add(&r, 2, 100000));
    assert_int_equal(r.count, 1);
    mrc_replay_fini(&r);
}

TEST(test_trail_of_many)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_loss loss;
    mrc_replay_init(&r, STREAM, 4096);
    for (uint64_t i = 1; i <= 3000; i++) {
        if (i == 1500)
            model_save(&m);
        replay_answer(&r, &m, replay_add(&r, 10 * i, 500));
    }
    uint64_t gone = r.trimmed.to;

    mrc_replay_restart(&r);
    model_restart(&m);
    (void)catch_up(&r, &m);
    loss = mrc_replay_take_loss(&r);
    assert_int_equal(loss.pushes, gone - 1499);
    assert_true(loss.from_step <= 15000 && loss.from_step > 13000); /* not above the truth, and near it */
    assert_int_equal(loss.to_step, 10 * gone);
    mrc_replay_fini(&r);
}

TEST(test_batch_waits_for_the_hub)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *batch, *next;
    mrc_replay_init(&r, STREAM, 1 << 20);
    replay_answer(&r, &m, replay_add(&r, 1, 10));
    replay_answer(&r, &m, replay_add(&r, 2, 10));
    mrc_replay_restart(&r);
    batch = mrc_replay_next(&r, 0);
    mrc_replay_answered(&r, batch, MR_UNKNOWN_BATCH, 0, 1000);
    next = mrc_replay_next(&r, 1000);
    assert_int_equal(next->number, 2); /* it holds nobody up */
    mrc_replay_answered(&r, next, MR_OK, 0, 1000);
    assert_true(mrc_replay_caught_up(&r));
    assert_true(mrc_replay_is_open(&r)); /* and takes room until it is answered */
    assert_int_equal(mrc_replay_next_us(&r), 1000 + MRC_REPLAY_PAUSE_US);
    assert_null(mrc_replay_next(&r, 1000));
    assert_ptr_equal(mrc_replay_next(&r, 1000 + MRC_REPLAY_PAUSE_US), batch);
    mrc_replay_answered(&r, batch, MR_ALREADY_LEARNT, 0, 200000);
    assert_int_equal(mrc_replay_next_us(&r), UINT64_MAX);
    assert_false(mrc_replay_is_open(&r));
    assert_int_equal(r.count, 2);
    mrc_replay_fini(&r);
}

TEST(test_batch_is_dropped_in_the_end)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *push;
    uint64_t now_us = 0;
    uint32_t tries = 0;
    mrc_replay_init(&r, STREAM, 1 << 20);
    replay_answer(&r, &m, replay_add(&r, 1, 10));
    mrc_replay_restart(&r);
    while ((push = mrc_replay_next(&r, now_us)) != NULL && push->tensor_count > 0) {
        mrc_replay_answered(&r, push, MR_UNKNOWN_BATCH, 0, now_us);
        now_us += MRC_REPLAY_PAUSE_US;
        tries++;
    }
    assert_int_equal(tries, MRC_REPLAY_TRIES_MAX);
    assert_int_equal(r.dropped, 1);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0); /* the hub hands the batch out again */
    mrc_replay_fini(&r);
}

TEST(test_refused_again_is_a_loss)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_loss loss;
    mrc_replay_init(&r, STREAM, 1 << 20);
    replay_answer(&r, &m, replay_add(&r, 41, 10));
    mrc_replay_restart(&r);
    mrc_replay_answered(&r, mrc_replay_next(&r, 0), MR_UNKNOWN_TABLE, 0, 0);
    loss = mrc_replay_take_loss(&r);
    assert_int_equal(loss.pushes, 1);
    assert_int_equal(loss.from_step, 41);
    assert_int_equal(loss.refused, MR_UNKNOWN_TABLE);
    mrc_replay_fini(&r);
}

TEST(test_a_stopping_server_is_asked_again)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_push *push;
    mrc_replay_init(&r, STREAM, 1 << 20);
    replay_answer(&r, &m, replay_add(&r, 1, 10));
    mrc_replay_restart(&r);
    push = mrc_replay_next(&r, 5);
    mrc_replay_answered(&r, push, MR_SHUTTING_DOWN, 0, 5);
    assert_false(mrc_replay_caught_up(&r)); /* nothing may pass it */
    assert_null(mrc_replay_next(&r, 6));
    assert_int_equal(mrc_replay_next_us(&r), 5 + MRC_REPLAY_PAUSE_US);
    assert_ptr_equal(mrc_replay_next(&r, 5 + MRC_REPLAY_PAUSE_US), push);
    mrc_replay_fini(&r);
}

/* One trainer after another push, crashes at any point, saves that nobody tells of: the order is that of the
 * caller. */
TEST(test_synchronous_trainer_repeats_exactly)
{
    enum { PUSHES = 1500 };
    struct mrc_replay r;
    struct model m = {.applied = 0};
    uint32_t random = 1;

    mrc_replay_init(&r, STREAM, 1 << 22);
    for (uint64_t i = 1; i <= PUSHES; i++) {
        struct mrc_push *push = replay_add(&r, i, 16);
        random = random * 1664525 + 1013904223;
        if ((random >> 16) % 7 == 0)
            model_save(&m);
        if ((random >> 16) % 11 == 0) {
            if ((random >> 24) % 2 == 0)
                model_take(&m, push->number); /* applied, and the answer lost */
            model_restart(&m);
            m.applied = model_floor(m.has);
            mrc_replay_restart(&r);
            (void)catch_up(&r, &m);
        }
        replay_answer(&r, &m, push);
    }
    assert_int_equal(model_floor(m.has), PUSHES);
    for (uint64_t n = 1; n <= PUSHES; n++)
        assert_int_equal(m.order[n], n);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    mrc_replay_fini(&r);
}

/* Giving up all that was answered would not be enough: nothing is given up for it. */
TEST(test_no_room_gives_nothing_up)
{
    struct mrc_replay r;
    struct mrc_push *done =
        mrc_push_new(MR_OP_PUSH_GRAD, 1, 0, 1, (struct mr_tensor[]){mr_tensor_1d(MR_U8, 1000, NULL)}, 1);
    struct mrc_push *asked =
        mrc_push_new(MR_OP_PUSH_GRAD, 1, 0, 2, (struct mr_tensor[]){mr_tensor_1d(MR_U8, 3000, NULL)}, 1);
    struct mrc_push *large =
        mrc_push_new(MR_OP_PUSH_GRAD, 1, 0, 3, (struct mr_tensor[]){mr_tensor_1d(MR_U8, 9000, NULL)}, 1);
    mrc_replay_init(&r, 0x100, done->bytes + asked->bytes);
    assert_true(mrc_replay_add(&r, done));
    mrc_replay_answered(&r, done, MR_OK, 0, 0);
    assert_true(mrc_replay_add(&r, asked));
    assert_false(mrc_replay_add(&r, large));
    assert_int_equal(r.count, 2);
    assert_int_equal(r.given_up, 0);
    mrc_replay_answered(&r, asked, MR_OK, 0, 0);
    assert_true(mrc_replay_add(&r, large)); /* alone it always fits */
    assert_int_equal(r.given_up, 2);
    mrc_replay_fini(&r);
}

/* From an older checkpoint, and then from a still older one. */
TEST(test_a_second_loss_is_of_the_rest)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    struct mrc_loss loss;
    mrc_replay_init(&r, STREAM, 1 << 20);
    for (uint64_t i = 1; i <= 10; i++)
        replay_answer(&r, &m, replay_add(&r, 100 + i, 100));
    model_save(&m);
    replay_answer(&r, &m, replay_add(&r, 111, 100)); /* tells that ten are on disk */
    for (uint64_t floor = 6, before = 10; floor > 0; before = floor, floor -= 3) {
        memset(m.saved + floor + 1, 0, MODEL_MAX - floor - 1);
        m.durable = floor;
        model_restart(&m);
        mrc_replay_restart(&r);
        r.trimmed.is_suspect = true;
        (void)catch_up(&r, &m);
        loss = mrc_replay_take_loss(&r);
        assert_int_equal(loss.pushes, before - floor);
        assert_int_equal(loss.from_step, 101 + floor);
        assert_int_equal(loss.to_step, 100 + before);
    }
    mrc_replay_fini(&r);
}

TEST(test_an_heir_tells_what_was_lost)
{
    struct mrc_replay r, heir;
    struct model m = {.applied = 0};
    mrc_replay_init(&heir, STREAM, 4096);
    mrc_replay_init(&r, STREAM + 1, 4096);
    for (uint64_t i = 1; i <= 20; i++)
        replay_answer(&r, &m, replay_add(&r, i, 500));
    mrc_replay_restart(&r);
    model_restart(&m);
    (void)catch_up(&r, &m);
    (void)mrc_replay_take_loss(&r);
    const uint64_t given_up = r.given_up, replayed = r.replayed;

    assert_true(given_up > 10 && replayed > 0);
    mrc_replay_add_loss(&r, 3, 50, 90, MR_UNKNOWN_TABLE);
    mrc_replay_add_loss(&heir, 1, 70, 70, MR_OK);
    mrc_replay_retire(&r, &heir);
    struct mrc_loss loss = mrc_replay_take_loss(&heir);

    assert_int_equal(loss.pushes, 4);
    assert_int_equal(loss.from_step, 50);
    assert_int_equal(loss.to_step, 90);
    assert_int_equal(loss.refused, MR_UNKNOWN_TABLE);
    assert_int_equal(heir.given_up, given_up);
    assert_int_equal(heir.replayed, replayed);
    mrc_replay_fini(&heir);
}

/* A restore by hand is heard of with each answer: what it may lack is marked once. */
TEST(test_a_restore_is_marked_once)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    mrc_replay_init(&r, STREAM, 1 << 20);
    for (uint64_t i = 1; i <= 10; i++)
        replay_answer(&r, &m, replay_add(&r, i, 100));
    model_save(&m);
    replay_answer(&r, &m, replay_add(&r, 11, 100));
    assert_int_equal(r.count, 1);
    mrc_replay_restored(&r, 1);
    assert_int_equal(r.count, 11);
    (void)catch_up(&r, &m);
    model_save(&m);
    replay_answer(&r, &m, replay_add(&r, 12, 100));
    assert_int_equal(r.count, 1);
    mrc_replay_restored(&r, 1);
    assert_int_equal(r.count, 1);
    mrc_replay_fini(&r);
}

/* A push whose answer was lost is let go, as others' answers say that it is on disk. What a restore by hand
 * takes back then is no loss. */
TEST(test_a_restore_takes_what_was_never_answered)
{
    struct mrc_replay r;
    struct model m = {.applied = 0};
    mrc_replay_init(&r, STREAM, 1 << 20);
    struct mrc_push *first = replay_add(&r, 1, 100), *lost = replay_add(&r, 2, 100);

    model_take(&m, 1);
    model_take(&m, 2);
    model_save(&m);
    mrc_replay_unanswered(&r, lost);
    replay_answer(&r, &m, first);
    assert_int_equal(r.count, 0);
    assert_int_equal(r.trimmed.to, 2);
    mrc_replay_restored(&r, 1);
    memset(&m, 0, sizeof(m));
    mrc_replay_restart(&r);
    (void)catch_up(&r, &m);
    assert_int_equal(mrc_replay_take_loss(&r).pushes, 0);
    mrc_replay_fini(&r);
}
