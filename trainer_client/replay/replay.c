#include "trainer_client/replay/replay.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/push_number.h"

#define PUSH_OF(l, member) MR_CONTAINER(l, struct mrc_push, member)

/* ---- the lists ---- */

static struct mr_link *queue_of(struct mrc_replay *r, enum mrc_push_state state)
{
    switch (state) {
    case MRC_PUSH_ASKED:
        return &r->asked;
    case MRC_PUSH_DUE:
        return &r->due;
    case MRC_PUSH_AGAIN:
        return &r->again;
    case MRC_PUSH_LATER:
        return &r->later;
    default:
        return NULL;
    }
}

/* Queues are in the order of the numbers; nearly always the new one is the last. */
static void set_state(struct mrc_replay *r, struct mrc_push *push, enum mrc_push_state state)
{
    struct mr_link *head = queue_of(r, state);
    mr_list_remove(&push->queue);
    push->state = state;
    if (head == NULL)
        return;
    struct mr_link *before = head->prev;

    while (before != head && PUSH_OF(before, queue)->number > push->number)
        before = before->prev;
    mr_list_prepend(before, &push->queue);
}

static uint64_t first_number(const struct mr_link *head)
{
    return mr_list_empty(head) ? UINT64_MAX : PUSH_OF(head->next, queue)->number;
}

/* Returns the oldest number that the server has not answered since it last lost its memory; UINT64_MAX:
 * none. */
static uint64_t oldest_open(const struct mrc_replay *r)
{
    return mr_min_u64(first_number(&r->asked), mr_min_u64(first_number(&r->due), first_number(&r->again)));
}

static void init_lists(struct mrc_replay *r)
{
    mr_list_init(&r->kept);
    mr_list_init(&r->asked);
    mr_list_init(&r->due);
    mr_list_init(&r->again);
    mr_list_init(&r->later);
}

void mrc_replay_init(struct mrc_replay *r, uint32_t stream_id, uint64_t bytes_max)
{
    *r = (struct mrc_replay){.stream_id = stream_id, .next = 1, .bytes_max = bytes_max};
    mrc_trim_init(&r->trimmed);
    init_lists(r);
}

static void insert(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after)
{
    push->number = number;
    push->after = after;
    mr_list_init(&push->queue);
    mr_list_append(&r->kept, &push->kept);
    r->bytes += push->bytes;
    r->count++;
}

void mrc_replay_withdraw(struct mrc_replay *r, struct mrc_push *push)
{
    mr_list_remove(&push->kept);
    mr_list_remove(&push->queue);
    r->bytes -= push->bytes;
    r->count--;
    push->state = MRC_PUSH_NEW;
}

void mrc_replay_fini(struct mrc_replay *r)
{
    while (!mr_list_empty(&r->kept)) {
        struct mrc_push *push = PUSH_OF(r->kept.next, kept);
        mrc_replay_withdraw(r, push);
        mrc_push_free(push);
    }
}

/* ---- what was trimmed ---- */

/* Removes an answered push from the buffer. */
static void let_go(struct mrc_replay *r, struct mrc_push *push)
{
    /* Without an answer of its own, it was on disk as of the last known restore. */
    const uint32_t restores = push->restores != MRC_PUSH_UNANSWERED ? push->restores : r->whole;

    if (push->tensor_count > 0)
        mrc_trim_add(&r->trimmed, push->number, push->step, restores);
    mrc_replay_withdraw(r, push);
    mrc_push_free(push);
}

void mrc_replay_add_loss(struct mrc_replay *r, uint64_t pushes, uint64_t from_step, uint64_t to_step,
                         enum mr_status refused)
{
    struct mrc_loss *loss = &r->loss;
    if (loss->pushes == 0)
        *loss = (struct mrc_loss){.from_step = from_step, .to_step = to_step};
    loss->pushes += pushes;
    loss->from_step = from_step < loss->from_step ? from_step : loss->from_step;
    loss->to_step = to_step > loss->to_step ? to_step : loss->to_step;
    loss->refused = refused != MR_OK ? refused : loss->refused;
}

/* Compares the floor of a restarted server with what is no longer kept, to find what it lacks. */
static void compare_floor(struct mrc_replay *r, uint64_t floor)
{
    const struct mrc_loss loss = mrc_trim_compare(&r->trimmed, floor);
    r->restarted = false;
    r->floor = floor;
    if (loss.pushes > 0)
        mrc_replay_add_loss(r, loss.pushes, loss.from_step, loss.to_step, loss.refused);
}

/* Removes a push that will not be applied: a push without tensors marks its number, which would otherwise
 * hold back the floor. */
static void take_out_marked(struct mrc_replay *r, struct mrc_push *push)
{
    struct mrc_push *empty = push->tensor_count == 0 ? NULL
                                                     : mrc_push_new(MR_OP_PUSH_GRAD, push->table,
                                                                    push->priority, push->step, NULL, 0);
    if (empty != NULL) {
        insert(r, empty, push->number, 0);
        mr_list_remove(&empty->kept);
        mr_list_prepend(&push->kept, &empty->kept);
        set_state(r, empty, MRC_PUSH_DUE);
    }
    mrc_replay_withdraw(r, push);
}

static void leave_empty(struct mrc_replay *r, struct mrc_push *push)
{
    take_out_marked(r, push);
    mrc_push_free(push);
}

static bool is_on_disk(const struct mrc_replay *r, const struct mrc_push *push)
{
    return push->state == MRC_PUSH_DONE || ((!r->is_former || push->tensor_count == 0) &&
                                            (push->state == MRC_PUSH_DUE || push->state == MRC_PUSH_LATER));
}

static void set_floor(struct mrc_replay *r, uint64_t floor)
{
    if (r->restarted)
        compare_floor(r, floor);
    else if (floor > r->floor)
        r->floor = floor;
    mrc_trim_saved(&r->trimmed, r->floor);
    for (struct mr_link *l = r->kept.next, *next; l != &r->kept; l = next) {
        struct mrc_push *push = PUSH_OF(l, kept);
        next = l->next;
        if (push->number > r->floor)
            break;
        if (is_on_disk(r, push))
            let_go(r, push);
    }
}

/* ---- restores on the server ---- */

void mrc_replay_review(struct mrc_replay *r, enum mrc_verdict (*judge)(void *arg, struct mrc_push *push),
                       void *arg)
{
    for (struct mr_link *l = r->kept.next, *next; l != &r->kept; l = next) {
        struct mrc_push *push = PUSH_OF(l, kept);
        next = l->next;
        if (push->tensor_count == 0 || push->state == MRC_PUSH_ASKED || push->state == MRC_PUSH_AGAIN)
            continue;
        enum mrc_verdict verdict = judge(arg, push);

        if (verdict == MRC_VOID) {
            mrc_replay_add_loss(r, 1, push->step, push->step, MR_UNKNOWN_TABLE);
            r->dropped++;
        }
        if (verdict != MRC_KEEP)
            leave_empty(r, push);
    }
}

/* Inserts a mark for first..number before `at` in the list of what is kept, whose numbers are higher. */
static void mark_before(struct mrc_replay *r, struct mr_link *at, uint64_t first, uint64_t number)
{
    struct mrc_push *empty = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);
    if (empty == NULL)
        return; /* the floor is held back for longer */
    empty->first = first;
    insert(r, empty, number, 0);
    mr_list_remove(&empty->kept);
    mr_list_append(at, &empty->kept);
    set_state(r, empty, MRC_PUSH_DUE);
}

/* Marks every number in the server's window that is not kept here. */
static void mark_holes(struct mrc_replay *r)
{
    uint64_t number = r->next > MR_PUSH_WINDOW ? r->next - MR_PUSH_WINDOW + 1 : 1;
    struct mr_link *l = r->kept.next;
    for (; number < r->next; number++) {
        while (l != &r->kept && PUSH_OF(l, kept)->number < number)
            l = l->next;
        if (l == &r->kept || PUSH_OF(l, kept)->number > number)
            mark_before(r, l, 0, number);
    }
}

void mrc_replay_restored(struct mrc_replay *r, uint32_t whole)
{
    if (whole <= r->whole)
        return;
    r->whole = whole;
    mrc_trim_restored(&r->trimmed, whole);
    if (r->stream_id != 0)
        mark_holes(r);
}

/* ---- adding ---- */

/* Returns the bytes left when everything that can be given up has been. */
static uint64_t bytes_not_answered(const struct mrc_replay *r)
{
    uint64_t bytes = 0;
    for (const struct mr_link *l = r->kept.next; l != &r->kept; l = l->next)
        if (PUSH_OF(l, kept)->state != MRC_PUSH_DONE)
            bytes += PUSH_OF(l, kept)->bytes;
    return bytes;
}

static void give_up(struct mrc_replay *r, struct mrc_push *push)
{
    if (push->tensor_count > 0) {
        r->given_up++;
        r->trimmed.given_up_to = push->number;
    }
    let_go(r, push);
}

/* Makes room; gives nothing up if that would not be enough. Those of one call are added as one push would
 * be. */
static bool make_room(struct mrc_replay *r, uint64_t bytes, uint64_t call_bytes)
{
    struct mr_link *l = r->kept.next;
    if (r->bytes + bytes <= r->bytes_max || r->count == 0)
        return true;
    uint64_t stays = bytes_not_answered(r);

    if (stays > call_bytes && stays + bytes > r->bytes_max)
        return false;
    while (l != &r->kept && r->bytes + bytes > r->bytes_max) {
        struct mrc_push *oldest = PUSH_OF(l, kept);
        l = l->next;
        if (oldest->state == MRC_PUSH_DONE)
            give_up(r, oldest);
    }
    return true;
}

bool mrc_replay_add(struct mrc_replay *r, struct mrc_push *push)
{
    uint64_t oldest = oldest_open(r);
    if (oldest != UINT64_MAX && r->next - oldest >= MR_PUSH_WINDOW)
        return false;
    if (!make_room(r, push->bytes, push->call_bytes))
        return false;
    uint64_t all_answered_to = mr_min_u64(first_number(&r->asked), r->next) - 1;

    insert(r, push, r->next, all_answered_to > r->answered_to ? all_answered_to : r->answered_to);
    r->next++;
    set_state(r, push, MRC_PUSH_ASKED);
    return true;
}

bool mrc_replay_has_open(const struct mrc_replay *r, uint64_t number)
{
    const struct mr_link *const queues[] = {&r->asked, &r->due, &r->again, &r->later};
    for (uint32_t q = 0; q < 4; q++) {
        for (const struct mr_link *l = queues[q]->next; l != queues[q]; l = l->next)
            if (PUSH_OF(l, queue)->number == number)
                return true;
    }
    return false;
}

bool mrc_replay_is_open(const struct mrc_replay *r)
{
    return oldest_open(r) != UINT64_MAX || !mr_list_empty(&r->later);
}

void mrc_replay_undo(struct mrc_replay *r, struct mrc_push *push)
{
    assert(push->state == MRC_PUSH_ASKED);
    if (push->number + 1 == r->next) {
        mrc_replay_withdraw(r, push);
        r->next--;
    } else {
        take_out_marked(r, push);
    }
}

uint64_t mrc_replay_sequence(const struct mrc_replay *r, const struct mrc_push *push)
{
    return mr_push_sequence(r->stream_id, push->number);
}

/* ---- answers ---- */

/* Returns whether the server is there, and may accept the push it is repeated later. */
static bool is_passing(enum mr_status status)
{
    return status == MR_SHUTTING_DOWN || status == MR_BUSY;
}

static bool is_fed_again(enum mr_status status)
{
    return status == MR_UNKNOWN_BATCH || status == MR_BATCH_EXPIRED;
}

static void repeated(struct mrc_replay *r, struct mrc_push *push, enum mr_status status, uint64_t now_us)
{
    if (status == MR_OK || status == MR_ALREADY_LEARNT) {
        r->replayed++;
        push->tries = 0;
        set_state(r, push, MRC_PUSH_DONE);
    } else if (is_passing(status)) {
        r->pause_until_us = now_us + MRC_REPLAY_PAUSE_US;
        set_state(r, push, MRC_PUSH_DUE);
    } else if (is_fed_again(status) && ++push->tries < MRC_REPLAY_TRIES_MAX) {
        push->retry_us = now_us + MRC_REPLAY_PAUSE_US;
        set_state(r, push, MRC_PUSH_LATER);
    } else {
        if (!is_fed_again(status) && push->tensor_count > 0) /* the hub hands that batch out again */
            mrc_replay_add_loss(r, 1, push->step, push->step, status);
        r->dropped += push->tensor_count > 0;
        leave_empty(r, push);
    }
}

void mrc_replay_answered(struct mrc_replay *r, struct mrc_push *push, enum mr_status status, uint64_t durable,
                         uint64_t now_us)
{
    uint64_t number = push->number;
    if (push->state == MRC_PUSH_AGAIN)
        repeated(r, push, status, now_us);
    else if (status == MR_OK || status == MR_ALREADY_LEARNT)
        set_state(r, push, MRC_PUSH_DONE);
    else
        leave_empty(r, push);                             /* refused: the caller knows */
    if (status == MR_OK || status == MR_ALREADY_LEARNT) { /* others carry none */
        r->answered_to = number > r->answered_to ? number : r->answered_to;
        if (durable != MRC_FLOOR_UNKNOWN)
            set_floor(r, durable);
    }
}

void mrc_replay_unanswered(struct mrc_replay *r, struct mrc_push *push)
{
    set_state(r, push, MRC_PUSH_DUE);
}

/* ---- again ---- */

/* The mark of mrc_replay_ask() follows the push of its number: if it reached a server that lost that push
 * first, the push would count as applied. */
static void take_back_question(struct mrc_replay *r)
{
    struct mr_link *last = r->kept.prev;
    if (last == r->kept.next || mr_list_empty(&r->kept))
        return;
    struct mrc_push *mark = PUSH_OF(last, kept);

    if (mark->tensor_count == 0 && PUSH_OF(last->prev, kept)->number == mark->number) {
        mrc_replay_withdraw(r, mark);
        mrc_push_free(mark);
    }
}

/* Marks of several numbers say what would not come to a server that had the others. */
static void take_back_ranges(struct mrc_replay *r)
{
    for (struct mr_link *l = r->kept.next, *next; l != &r->kept; l = next) {
        struct mrc_push *push = PUSH_OF(l, kept);
        next = l->next;
        if (push->first == 0)
            continue;
        mrc_replay_withdraw(r, push);
        mrc_push_free(push);
    }
}

void mrc_replay_restart(struct mrc_replay *r)
{
    assert(mr_list_empty(&r->again));
    take_back_question(r);
    take_back_ranges(r);
    r->restarted = true;
    r->pause_until_us = 0;
    if (mr_list_empty(&r->kept) && r->trimmed.to > 0)
        mark_before(r, &r->kept, 0, r->trimmed.to); /* no other answer would show what the server has */
    for (struct mr_link *l = r->kept.next; l != &r->kept; l = l->next) {
        struct mrc_push *push = PUSH_OF(l, kept);
        if (push->state != MRC_PUSH_ASKED) {
            push->tries = 0;
            set_state(r, push, MRC_PUSH_DUE);
        }
    }
    if (r->is_former)
        mrc_replay_mark_gaps(r, r->next - 1);
}

static void wake_later(struct mrc_replay *r, uint64_t now_us)
{
    for (struct mr_link *l = r->later.next, *next; l != &r->later; l = next) {
        struct mrc_push *push = PUSH_OF(l, queue);
        next = l->next;
        if (push->retry_us <= now_us)
            set_state(r, push, MRC_PUSH_DUE);
    }
}

struct mrc_push *mrc_replay_next(struct mrc_replay *r, uint64_t now_us)
{
    if (now_us < r->pause_until_us)
        return NULL;
    r->pause_until_us = 0;
    wake_later(r, now_us);
    if (mr_list_empty(&r->due))
        return NULL;
    struct mrc_push *push = PUSH_OF(r->due.next, queue);

    if (first_number(&r->again) <= push->after || push->number - oldest_open(r) >= MR_PUSH_WINDOW)
        return NULL;
    set_state(r, push, MRC_PUSH_AGAIN);
    return push;
}

uint32_t mrc_replay_first_era(const struct mrc_replay *r)
{
    const struct mr_link *const queues[] = {&r->due, &r->again};
    uint32_t first = UINT32_MAX;
    for (uint32_t q = 0; q < 2; q++) {
        const struct mr_link *l = queues[q]->next;
        while (l != queues[q] && PUSH_OF(l, queue)->era == 0)
            l = l->next;
        if (l != queues[q] && PUSH_OF(l, queue)->era < first)
            first = PUSH_OF(l, queue)->era;
    }
    return first;
}

uint64_t mrc_replay_next_us(const struct mrc_replay *r)
{
    uint64_t next_us = mr_list_empty(&r->due) || r->pause_until_us == 0 ? UINT64_MAX : r->pause_until_us;
    for (const struct mr_link *l = r->later.next; l != &r->later; l = l->next)
        next_us = mr_min_u64(next_us, PUSH_OF(l, queue)->retry_us);
    return next_us;
}

bool mrc_replay_caught_up(const struct mrc_replay *r)
{
    return mr_list_empty(&r->due) && mr_list_empty(&r->again);
}

struct mrc_loss mrc_replay_take_loss(struct mrc_replay *r)
{
    struct mrc_loss loss = r->loss;
    r->loss = (struct mrc_loss){.pushes = 0};
    return loss;
}

/* ---- pushes that move to another stream's buffer, when the node's cores have changed ---- */

void mrc_replay_adopt(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after,
                      bool is_done)
{
    assert(number >= r->next);
    insert(r, push, number, after);
    r->next = number + 1;
    set_state(r, push, is_done ? MRC_PUSH_DONE : MRC_PUSH_DUE);
}

void mrc_replay_mark_gaps(struct mrc_replay *r, uint64_t last)
{
    uint64_t next = 1; /* the first number that is neither marked nor due */
    for (struct mr_link *l = r->kept.next; l != &r->kept; l = l->next) {
        const struct mrc_push *push = PUSH_OF(l, kept);
        if (push->state == MRC_PUSH_DONE)
            continue;
        if (push->number > next)
            mark_before(r, l, next, push->number - 1);
        next = push->number + 1;
    }
    if (last >= next)
        mark_before(r, &r->kept, next, last);
    r->next = last >= r->next ? last + 1 : r->next;
}

void mrc_replay_ask(struct mrc_replay *r)
{
    struct mrc_push *newest = MR_CONTAINER(r->kept.prev, struct mrc_push, kept), *mark = newest;
    if (newest->tensor_count > 0)
        mark = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);
    if (mark == NULL)
        return; /* another time */
    if (mark != newest)
        insert(r, mark, newest->number, 0);
    set_state(r, mark, MRC_PUSH_DUE);
}

void mrc_replay_put_back(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after)
{
    insert(r, push, number, after);
    mr_list_remove(&push->kept);
    mr_list_prepend(&r->kept, &push->kept);
    set_state(r, push, MRC_PUSH_DUE);
}

void mrc_replay_move(struct mrc_replay *to, struct mrc_replay *from)
{
    *to = *from;
    init_lists(to);
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
    mrc_replay_withdraw(r, push);
    mrc_push_free(push);
}
