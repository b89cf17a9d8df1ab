#include "trainer_client/call/joined.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/call/outcome.h"
#include "trainer_client/call/retry.h"

/* A call in flight. */
struct member {
    struct mr_future *future;
    struct mr_pushed pushed;
};

struct mrc_joined {
    struct mr_client *client;
    enum mr_op op;
    struct mr_options options; /* the caller's */
    uint64_t deadline_us;
    struct mr_future *future; /* to be handed out; NULL: none is wanted, or it has been */
    struct mr_options next;   /* of the call that is being made */
    uint32_t call_count, made, taken;
    struct member
        members[MRC_JOINED_IN_FLIGHT]; /* call i is in i % MRC_JOINED_IN_FLIGHT, from taken to made */
    /* how they ended */
    uint32_t succeeded, kept; /* kept: nobody answered the push, and it will be sent again */
    bool has_failed;          /* otherwise than that: no more calls are made */
    enum mr_status failure;   /* which the caller gets, with its line; MR_OK: none */
    char line[MRC_ERROR_BYTES];
    struct mr_pushed pushed;
    /* the reply */
    uint32_t tensor_count, place_count, next_place;
    struct mr_tensor *tensors;       /* [tensor_count] */
    struct mrc_joined_place *places; /* [place_count] */
    uint8_t *rows;                   /* NULL: no answer has come */
};

enum mr_status mrc_joined_new(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                              const struct mrc_joined_plan *plan, struct mrc_joined **out)
{
    const size_t tensors_bytes = plan->tensor_count * sizeof(struct mr_tensor);
    const size_t places_bytes = plan->place_count * sizeof(*plan->places);
    struct mrc_joined *j = calloc(1, sizeof(*j) + tensors_bytes + places_bytes);
    if (j == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for a call in %u parts", mr_op_name(op),
                         plan->call_count);
    j->client = client;
    j->op = op;
    if (options != NULL)
        j->options = *options;
    j->deadline_us = plan->deadline_us;
    j->call_count = plan->call_count;
    j->pushed.is_known = true;
    j->tensor_count = plan->tensor_count;
    j->place_count = plan->place_count;
    j->tensors = (struct mr_tensor *)(j + 1);
    j->places = (struct mrc_joined_place *)((uint8_t *)(j + 1) + tensors_bytes);
    for (uint32_t t = 0; t < plan->tensor_count; t++)
        j->tensors[t] = mr_tensor_2d(MR_F32, plan->tensors[t].rows, plan->tensors[t].dim, NULL);
    if (places_bytes > 0)
        memcpy(j->places, plan->places, places_bytes);
    if (j->options.future != NULL) {
        enum mr_status status = mrc_future_new(client, NULL, op, 0, 0, 0, 0, &j->future);
        if (status != MR_OK) {
            free(j);
            return status;
        }
        j->future->joined = j;
    }
    *out = j;
    return MR_OK;
}

void mrc_joined_free(struct mrc_joined *j)
{
    if (j->future != NULL)
        mrc_future_free(j->future);
    for (; j->taken < j->made; j->taken++)
        mr_future_destroy(j->members[j->taken % MRC_JOINED_IN_FLIGHT].future);
    free(j->rows);
    free(j);
}

/* ---- answers ---- */

static size_t aligned_bytes(uint64_t bytes)
{
    return (bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
}

/* Makes room for all rows. */
static enum mr_status make_room(struct mrc_joined *j)
{
    size_t bytes = MR_TENSOR_ALIGN;
    for (uint32_t t = 0; t < j->tensor_count; t++)
        bytes += aligned_bytes(j->tensors[t].bytes);
    j->rows = aligned_alloc(MR_TENSOR_ALIGN, bytes);
    if (j->rows == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for a reply of %zu bytes", mr_op_name(j->op), bytes);
    uint8_t *at = j->rows;
    for (uint32_t t = 0; t < j->tensor_count; t++) {
        j->tensors[t].data = at;
        at += aligned_bytes(j->tensors[t].bytes);
    }
    return MR_OK;
}

static enum mr_status put_rows(struct mrc_joined *j, const struct mrc_joined_place *p,
                               const struct mr_reply *reply, uint32_t t)
{
    const struct mr_tensor *rows = mr_reply_tensor(reply, t);
    struct mr_tensor *to = &j->tensors[p->tensor];
    const bool is_matrix = rows != NULL && rows->dtype == MR_F32 && rows->rank == 2;
    if (is_matrix && to->dims[1] == 0) /* the first answer says how long they are */
        *to = mr_tensor_2d(MR_F32, to->dims[0], rows->dims[1], NULL);
    if (!is_matrix || rows->dims[0] != p->rows || rows->dims[1] != to->dims[1])
        return mrc_reply_garbled(j->client, reply, j->op);
    enum mr_status status = j->rows == NULL ? make_room(j) : MR_OK;

    if (status == MR_OK && rows->bytes > 0)
        memcpy((float *)to->data + (size_t)p->row * to->dims[1], rows->data, rows->bytes);
    return status;
}

/* Puts the answer of call `call` where it belongs. */
static enum mr_status put_answer(struct mrc_joined *j, uint32_t call, const struct mr_reply *reply)
{
    enum mr_status status = MR_OK;
    for (uint32_t t = 0; j->next_place < j->place_count && j->places[j->next_place].call == call; t++) {
        const struct mrc_joined_place *p = &j->places[j->next_place++];
        if (status == MR_OK)
            status = put_rows(j, p, reply, t);
    }
    return status;
}

/* ---- how they ended ---- */

/* Notes a failure, whose line is this thread's last error. After a push that is kept the others are made all
 * the same: if nobody answers them they are kept, too, and the push is applied as a whole once there is a
 * server. So any other failure replaces that of a kept push, and none is replaced by it. Among those others
 * MR_UNKNOWN_OUTCOME takes precedence. */
static void note_failure(struct mrc_joined *j, enum mr_status status, bool kept)
{
    const bool is_worse =
        !kept && (!j->has_failed || (status == MR_UNKNOWN_OUTCOME && j->failure != MR_UNKNOWN_OUTCOME));
    j->has_failed |= !kept;
    if (j->failure != MR_OK && !is_worse)
        return;
    j->failure = status;
    (void)snprintf(j->line, sizeof(j->line), "%s", mr_last_error());
}

static void add_pushed(struct mr_pushed *sum, const struct mr_pushed *more)
{
    sum->is_known &= more->is_known;
    sum->sent += more->sent;
    sum->applied += more->applied;
    sum->refused += more->refused;
    sum->without_row += more->without_row;
    sum->not_finite += more->not_finite;
}

/* Waits for the first call in flight, and takes its outcome. */
static void take_first(struct mrc_joined *j)
{
    struct member *m = &j->members[j->taken % MRC_JOINED_IN_FLIGHT];
    struct mr_reply *reply = NULL;
    enum mr_status status = mr_future_wait(m->future, j->tensor_count > 0 ? &reply : NULL);
    const bool kept = status == MR_UNKNOWN_OUTCOME && mrc_outcome_is_kept(m->future);
    if (status == MR_OK) {
        j->succeeded++;
        add_pushed(&j->pushed, &m->pushed);
        status = put_answer(j, j->taken, reply);
    }
    j->kept += kept;
    if (status != MR_OK)
        note_failure(j, status, kept);
    mr_reply_free(reply);
    mr_future_destroy(m->future);
    j->taken++;
}

/* Once nobody has answered in time, what comes next has no time to wait for room: it is made when nothing is
 * in flight. */
const struct mr_options *mrc_joined_next(struct mrc_joined *j)
{
    while (!j->has_failed && j->made - j->taken == MRC_JOINED_IN_FLIGHT)
        take_first(j);
    uint64_t now_us = mr_clock_us();
    while (!j->has_failed && (j->kept > 0 || now_us >= j->deadline_us) && j->taken < j->made) {
        take_first(j);
        now_us = mr_clock_us();
    }
    if (j->has_failed)
        return NULL;
    if (now_us >= j->deadline_us && j->kept == 0) {
        note_failure(j,
                     mrc_error(MR_DEADLINE_EXCEEDED,
                               "%s: %s: its deadline came before all of its %u parts were sent: give it a "
                               "longer one",
                               j->client->server, mr_op_name(j->op), j->call_count),
                     false);
        return NULL;
    }
    struct member *m = &j->members[j->made % MRC_JOINED_IN_FLIGHT];
    j->next = j->options;
    j->next.deadline_ms = now_us < j->deadline_us ? mrc_left_ms(j->deadline_us, now_us) : 1;
    j->next.more = false;
    j->next.future = &m->future;
    j->next.pushed = j->options.pushed != NULL ? &m->pushed : NULL;
    m->pushed = (struct mr_pushed){.is_known = true};
    return &j->next;
}

void mrc_joined_made(struct mrc_joined *j, enum mr_status status)
{
    if (status == MR_OK)
        j->made++;
    else
        note_failure(j, status, false);
}

/* Reports the outcome. A push of which a part was applied, or may be, has an unknown one unless all of it
 * was, or will be. */
static enum mr_status report(const struct mrc_joined *j)
{
    const bool may_be_applied = j->succeeded > 0 || j->kept > 0 || j->failure == MR_UNKNOWN_OUTCOME;
    char step[MRC_STEPS_BYTES] = ""; /* the line of an unknown outcome has it */
    if (j->failure == MR_OK)
        return MR_OK;
    if (mr_op_repeatable(j->op) || !may_be_applied || j->succeeded + j->kept == j->call_count)
        return mrc_error(j->failure, "%s", j->line);
    if (j->failure != MR_UNKNOWN_OUTCOME)
        mrc_of_steps(j->options.step, j->options.step, step);
    return mrc_error(
        MR_UNKNOWN_OUTCOME,
        "%.560s; the call%s was made in %u parts: %u were applied, %u are kept to be sent again, %u were not "
        "sent",
        j->line, step, j->call_count, j->succeeded, j->kept, j->call_count - j->made);
}

/* Hands out the rows. */
static enum mr_status joined_give(struct mrc_joined *j, struct mr_reply **reply)
{
    if (j->options.pushed != NULL && j->op == MR_OP_PUSH_GRAD)
        *j->options.pushed = j->pushed;
    if (reply == NULL || j->tensor_count == 0)
        return MR_OK;
    struct mr_reply *own = mrc_reply_own_all(j->tensors, j->tensor_count, j->rows);

    j->rows = NULL;
    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

enum mr_status mrc_joined_wait(struct mrc_joined *j, struct mr_reply **reply)
{
    while (j->taken < j->made)
        take_first(j);
    enum mr_status status = report(j);
    return status != MR_OK ? status : joined_give(j, reply);
}

enum mr_status mrc_joined_run(struct mrc_joined *j, struct mr_reply **reply)
{
    if (j->future != NULL && j->made > 0) {
        *j->options.future = j->future;
        j->future = NULL;
        return MR_OK;
    }
    enum mr_status status = mrc_joined_wait(j, reply);

    mrc_joined_free(j);
    return status;
}

bool mrc_joined_poll(struct mrc_joined *j, uint64_t until_us)
{
    for (uint32_t i = j->taken; i < j->made; i++) {
        struct mr_future *f = j->members[i % MRC_JOINED_IN_FLIGHT].future;
        if (!mr_future_wait_for(f, mrc_left_ms(until_us, mr_clock_us())))
            return false;
    }
    return true;
}

void mrc_joined_notify(struct mrc_joined *j, int event_fd)
{
    for (uint32_t i = j->taken; i < j->made; i++)
        mr_future_notify(j->members[i % MRC_JOINED_IN_FLIGHT].future, event_fd);
}
