#include "ps/core/push_answers.h"

#include <assert.h>
#include <stdlib.h>
#include "ps/core/core.h"
#include "ps/core/push_log.h"

#define ANSWERS_MAX  16384u /* that wait */
#define ANSWERS_KEPT 64u    /* of these, places for calls that were begun */

struct ps_push_answer {
    struct mr_call_ref ref;
    uint64_t log_position; /* durable: it goes; 0: there is no log */
    uint64_t record;       /* the backups have it: it goes; 0: it does not wait for them */
    bool may_be_repeated;
};

/* ---- handlers ---- */

static bool may_wait(const struct ps_core *core)
{
    return core->log != NULL || core->push_answers.waits_for_backups;
}

bool ps_push_answer_keep(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    if (!may_wait(core))
        return true;
    if (core->push_answers.count + ANSWERS_KEPT < ANSWERS_MAX &&
        (ps_is_deferred(core, op->request) || mr_reply_later(op->ep, op->request) != NULL))
        return true;
    ps_hold_back(op,
                 core->log != NULL ? &core->log_counters.pushes_held_back : &core->counters.pushes_waiting);
    return false;
}

bool ps_push_answer_begin(const struct ps_op *op, struct mr_tensor *tensors, uint32_t count)
{
    return op->core->replay != NULL || mr_reply_begin(op->ep, op->request->ref, MR_OK, tensors, count);
}

/* A push by keys without a number would be applied twice. */
static bool may_be_repeated(const struct ps_op *op)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    return preamble->sequence != 0 ||
           (preamble->op != MR_OP_PUSH_GRAD && preamble->op != MR_OP_VARIABLE_PUSH);
}

static bool has_passed(const struct ps_core *core, const struct ps_push_answer *answer)
{
    const struct ps_push_answers *a = &core->push_answers;
    return (!a->waits_for_backups || answer->record <= a->passed) &&
           (core->log == NULL || ps_push_log_is_durable(core, answer->log_position));
}

static void answers_count(struct ps_core *core)
{
    const uint32_t count = core->push_answers.count;
    core->log_counters.answers_waiting = core->log != NULL ? count : 0;
    core->counters.answers_waiting = core->log != NULL ? 0 : count;
}

void ps_push_answer_end(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    struct ps_push_answers *a = &core->push_answers;
    if (core->replay != NULL) {
        core->replay->is_done = true;
        return;
    }
    if (!may_wait(core)) {
        mr_reply_end(op->ep, op->request->ref);
        return;
    }
    /* What is applied beside a push in slices is in the record of that. */
    const struct ps_push_answer answer = {.ref = op->request->ref,
                                          .log_position = core->log != NULL ? ps_push_log_answers(op) : 0,
                                          .record = a->waits_for_backups ? a->record + core->push_is_open : 0,
                                          .may_be_repeated = may_be_repeated(op)};
    if (a->count == 0 && has_passed(core, &answer)) {
        mr_reply_end(op->ep, op->request->ref);
        return;
    }
    assert(a->count < ANSWERS_MAX);
    a->waiting[(a->first + a->count++) % ANSWERS_MAX] = answer;
    answers_count(core);
}

/* ---- whom they wait for ---- */

void ps_push_answers_send(struct ps_core *core)
{
    struct ps_push_answers *a = &core->push_answers;
    if (a->count == 0)
        return;
    while (a->count > 0 && has_passed(core, &a->waiting[a->first])) {
        const struct mr_call_ref ref = a->waiting[a->first].ref;
        a->first = (a->first + 1) % ANSWERS_MAX;
        a->count--;
        mr_reply_end(core->ep, ref);
    }
    answers_count(core);
}

enum mr_status ps_push_answers_wait(struct ps_core *core, uint64_t passed)
{
    struct ps_push_answers *a = &core->push_answers;
    if (ps_push_answers_make(core) != MR_OK)
        return MR_NO_MEMORY;
    a->waits_for_backups = true;
    a->passed = passed;
    return MR_OK;
}

void ps_push_answers_wait_no_more(struct ps_core *core)
{
    core->push_answers.waits_for_backups = false;
    ps_push_answers_send(core);
}

void ps_push_answers_pass(struct ps_core *core, uint64_t passed)
{
    core->push_answers.passed = passed;
    ps_push_answers_send(core);
}

static void answer_give_up(struct ps_core *core, const struct ps_push_answer *answer)
{
    mr_reply_cancel(core->ep, answer->ref);
    if (answer->may_be_repeated)
        mr_reply_busy(core->ep, answer->ref);
    else
        mr_reply_error(
            core->ep, answer->ref, MR_UNKNOWN_OUTCOME,
            "the push was applied here, and another node has the partitions now: whether with it is "
            "not known; numbered pushes (replay) are made again by themselves");
}

void ps_push_answers_give_up(struct ps_core *core, uint64_t record)
{
    struct ps_push_answers *a = &core->push_answers;
    while (a->count > 0) {
        const struct ps_push_answer *last = &a->waiting[(a->first + a->count - 1) % ANSWERS_MAX];
        if (last->record < record)
            break;
        a->count--;
        answer_give_up(core, last);
    }
    answers_count(core);
}

enum mr_status ps_push_answers_make(struct ps_core *core)
{
    struct ps_push_answers *a = &core->push_answers;
    if (a->waiting == NULL)
        a->waiting = calloc(ANSWERS_MAX, sizeof(*a->waiting));
    return a->waiting != NULL ? MR_OK : MR_NO_MEMORY;
}

void ps_push_answers_free(struct ps_core *core)
{
    free(core->push_answers.waiting);
    core->push_answers = (struct ps_push_answers){0};
}
