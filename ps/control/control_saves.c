/* Which save is next: one asked for, one that waits, or an automatic one; and those that are cancelled. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/control/control_internal.h"

#define ARM_TRIES 8u /* at steps that training is passing just now */

/* ---- the queue ---- */

static void count_queued(const struct ps_control *c)
{
    ps_counter_set(&c->node->checkpoint_counters.saves_queued, c->saves.queued);
}

static void queue_remove(struct ps_control *c, uint32_t i)
{
    struct ps_saves *s = &c->saves;
    memmove(s->queue + i, s->queue + i + 1, (--s->queued - i) * sizeof(*s->queue));
    count_queued(c);
}

/* ---- asked for ---- */

enum mr_status ps_control_check_idle(const struct ps_control *c, char *text)
{
    if (c->writer == NULL)
        return MR_OK;
    snprintf(
        text, PS_CONTROL_TEXT_BYTES,
        "checkpoint %llu is being written by save %llu; wait for its end, or cancel it (ctl save --cancel "
        "%llu); a save may be queued after it (ctl save --queue)",
        (unsigned long long)c->view.id, (unsigned long long)c->saves.running.number,
        (unsigned long long)c->saves.running.number);
    return MR_CHECKPOINT_RUNNING;
}

static bool is_at_step(const struct ps_save_request *request)
{
    return request->trainers > 0;
}

static enum mr_status check_request(struct ps_control *c, struct ps_save_request *request, char *text)
{
    char directory[sizeof(request->directory)];
    enum mr_status status = ps_control_check_whole(c, text);
    if (status == MR_OK)
        status = ps_control_check_directory(c->node->config, request->directory, directory, text);
    if (status != MR_OK)
        return status;
    memcpy(request->directory, directory, sizeof(directory));
    if (request->step != 0 && request->trainers == 0)
        request->trainers = (uint32_t)c->node->config->checkpoint_trainers;
    if (request->step != 0 && request->trainers == 0) {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "a cut at a step needs to know how many trainers there are: name them in the call, or set "
                 "checkpoint.trainers");
        return MR_INVALID_ARGUMENT;
    }
    if (is_at_step(request) && request->step != 0 && ps_control_step(c) > request->step) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "step %" PRIu64 " has passed: training is at step %" PRIu64,
                 request->step, ps_control_step(c));
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

static bool is_the_same(const struct ps_save_request *a, const struct ps_save_request *b)
{
    return a->is_by_trainer == b->is_by_trainer && a->kind == b->kind && a->step == b->step &&
           a->trainers == b->trainers && strcmp(a->directory, b->directory) == 0 &&
           a->feature_count == b->feature_count &&
           memcmp(a->feature_ids, b->feature_ids, a->feature_count * sizeof(*a->feature_ids)) == 0 &&
           a->parameter_count == b->parameter_count &&
           memcmp(a->parameters, b->parameters, a->parameter_count * sizeof(*a->parameters)) == 0;
}

/* A save with the same request that waits already will hold all that this one should. */
static enum mr_status enqueue(struct ps_control *c, struct ps_save_request *request, char *text)
{
    struct ps_saves *s = &c->saves;
    for (uint32_t i = 0; i < s->queued; i++) {
        if (is_the_same(&s->queue[i], request)) {
            request->number = s->queue[i].number;
            return MR_OK;
        }
    }
    uint32_t by_trainers = 0;
    for (uint32_t i = 0; i < s->queued; i++)
        by_trainers += s->queue[i].is_by_trainer;
    if (s->queued == PS_SAVES_QUEUED_MAX ||
        (request->is_by_trainer && by_trainers == PS_SAVES_QUEUED_MAX / 2)) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%u saves wait already", s->queued);
        return MR_CHECKPOINT_RUNNING;
    }
    ps_control_note_save(c, request, PS_SAVE_QUEUED);
    s->queue[s->queued++] = *request;
    count_queued(c);
    return MR_OK;
}

/* Whether the node is to save by itself now. */
static bool automatic_is_due(struct ps_control *c)
{
    struct ps_save_schedule *schedule = &c->saves.schedule;
    const bool is_due = ps_save_schedule_time_is_due(schedule, dp_now_us()) ||
                        ps_save_schedule_step_is_due(schedule, ps_control_step(c));
    return is_due && ps_control_changes(c) != c->saves.changes_saved;
}

/* Whether a trainer's save waits for the same step or a later one, which may never come: that is no reason
 * for others to wait. One of an earlier step ends before theirs, as training does not pass it. */
static bool goes_before_waiting(const struct ps_control *c, const struct ps_save_request *request)
{
    const struct ps_save_request *waiting = &c->saves.waiting;
    return waiting->is_by_trainer && !request->is_by_trainer && request->step <= waiting->step;
}

/* Whether it must wait, because another save is running or waits for a step. A trainer's also lets the node's
 * own go first, which would never begin beside trainers that always save. */
static bool must_wait(struct ps_control *c, const struct ps_save_request *request)
{
    if (is_at_step(request))
        return c->saves.is_waiting && !goes_before_waiting(c, request);
    return c->writer != NULL || (request->is_by_trainer && automatic_is_due(c));
}

static enum mr_status refuse_second(const struct ps_control *c, const struct ps_save_request *request,
                                    char *text)
{
    if (!is_at_step(request) && c->writer != NULL)
        return ps_control_check_idle(c, text);
    if (!is_at_step(request))
        snprintf(text, PS_CONTROL_TEXT_BYTES, "an automatic save begins; wait for its end");
    else
        snprintf(text, PS_CONTROL_TEXT_BYTES, "save %" PRIu64 " waits for a step already",
                 c->saves.waiting.number);
    return MR_CHECKPOINT_RUNNING;
}

/* The save that waits for a step lets another one go first. */
static void put_waiting_back(struct ps_control *c)
{
    struct ps_saves *s = &c->saves;
    s->is_waiting = false;
    if (!s->cut.is_automatic)
        ps_cut_disarm(c);
    if (s->queued == PS_SAVES_QUEUED_MAX) {
        ps_control_save_failed(c, s->waiting.number, MR_CANCELLED,
                               "an operator's save at a step goes first, and as many saves wait as may");
        return;
    }
    ps_control_note_state(c, s->waiting.number, PS_SAVE_QUEUED);
    s->queue[s->queued++] = s->waiting;
    count_queued(c);
}

static void wait_for_step(struct ps_control *c, const struct ps_save_request *request)
{
    if (c->saves.is_waiting)
        put_waiting_back(c);
    c->saves.waiting = *request;
    c->saves.is_waiting = true;
    const struct ps_step_cut *cut = &c->saves.cut;
    bool comes_first = request->step != 0 ? request->step <= cut->step : cut->held_since_us == 0;
    if (cut->is_armed && comes_first) /* the automatic cut comes later, or would be the same */
        ps_cut_disarm(c);
}

static void look_at_cut(struct ps_control *c);

/* Makes the cut, or waits for its step. */
static enum mr_status control_saves_begin(struct ps_control *c, struct ps_save_request *request, uint64_t *id,
                                          char *text)
{
    *id = 0;
    if (is_at_step(request)) {
        wait_for_step(c, request);
        if (c->gate == PS_GATE_OPEN)
            look_at_cut(c);
        if (c->saves.is_waiting && c->saves.waiting.number == request->number) {
            /* clients that read this state are held from now on */
            ps_control_note_state(c, request->number, PS_SAVE_WAITS_FOR_STEP);
        }
        return MR_OK;
    }
    enum mr_status status = ps_control_cut(c, request, ps_control_step(c), false, id, text);
    if (status != MR_OK)
        ps_control_save_failed(c, request->number, status, text);
    return status;
}

enum mr_status ps_control_save(struct ps_control *c, struct ps_save_request *request, uint64_t *id,
                               char *text)
{
    enum mr_status status = check_request(c, request, text);
    *id = 0;
    if (status != MR_OK)
        return status;
    if (must_wait(c, request))
        return request->queue ? enqueue(c, request, text) : refuse_second(c, request, text);
    ps_control_note_save(c, request, PS_SAVE_WRITING);
    return control_saves_begin(c, request, id, text);
}

enum mr_status ps_control_save_last(struct ps_control *c, char *text)
{
    struct ps_save_request request = {.is_automatic = true};
    uint64_t id;
    /* A broken gate stays, and with it the refusal to save half a checkpoint. */
    if (c->gate != PS_GATE_BROKEN) {
        ps_control_gate(c, PS_GATE_BUSY);
        if (ps_control_changes(c) == c->saves.changes_saved) {
            mr_log_info("nothing_to_save", "nothing was pushed since the last save: none more");
            return MR_OK;
        }
    }
    enum mr_status status = ps_control_save(c, &request, &id, text);
    return status == MR_OK ? ps_control_save_wait(c, text) : status;
}

/* ---- those that wait ---- */

/* Takes the first save from the queue that need not wait. */
static bool take_queued(struct ps_control *c, struct ps_save_request *request)
{
    struct ps_saves *s = &c->saves;
    for (uint32_t by_trainer = 0; by_trainer < 2; by_trainer++) { /* trainers' saves come last */
        for (uint32_t i = 0; i < s->queued; i++) {
            if (s->queue[i].is_by_trainer == by_trainer && !must_wait(c, &s->queue[i])) {
                *request = s->queue[i];
                queue_remove(c, i);
                return true;
            }
        }
    }
    return false;
}

static void begin_queued(struct ps_control *c)
{
    struct ps_save_request request;
    char text[PS_CONTROL_TEXT_BYTES];
    uint64_t id;
    while (take_queued(c, &request)) {
        enum mr_status status = check_request(c, &request, text);
        if (status != MR_OK)
            ps_control_save_failed(c, request.number, status, text);
        else
            (void)control_saves_begin(c, &request, &id, text);
    }
}

/* ---- automatic ones ---- */

void ps_control_schedule_start(struct ps_control *c)
{
    const struct ps_config *config = c->node->config;
    ps_save_schedule_start(&c->saves.schedule, config->checkpoint_every_steps,
                           config->checkpoint_every_s * 1000000, ps_control_step(c), dp_now_us());
    c->saves.changes_saved = ps_control_changes(c);
}

static void automatic_begin(struct ps_control *c, uint64_t step, bool at_step)
{
    struct ps_save_request request = {.is_automatic = true, .step = step};
    char text[PS_CONTROL_TEXT_BYTES];
    uint64_t id;
    snprintf(request.directory, sizeof(request.directory), "%s", c->node->config->checkpoint_directory);
    ps_save_schedule_began(&c->saves.schedule, ps_control_step(c), dp_now_us()); /* also if it fails */
    ps_control_note_save(c, &request, PS_SAVE_WRITING);
    enum mr_status status = ps_control_cut(c, &request, step, at_step, &id, text);
    if (status != MR_OK)
        ps_control_save_failed(c, request.number, status, text);
    else
        ps_counter_add(&c->node->checkpoint_counters.saves_automatic, 1);
}

/* Without trainers to wait for: saves as soon as one is due. */
static void automatic_at_once(struct ps_control *c)
{
    struct ps_save_schedule *schedule = &c->saves.schedule;
    uint64_t step = ps_control_step(c), now_us = dp_now_us();
    if (!ps_save_schedule_step_is_due(schedule, step) && !ps_save_schedule_time_is_due(schedule, now_us))
        return;
    if (ps_control_changes(c) == c->saves.changes_saved) {
        ps_save_schedule_began(schedule, step, now_us);
        return;
    }
    automatic_begin(c, step, false);
}

/* The step of the next automatic cut: the next multiple, or, when a save is due by time, the present step of
 * training. */
static bool automatic_next_step(struct ps_control *c, uint64_t *step)
{
    struct ps_save_schedule *schedule = &c->saves.schedule;
    uint64_t present = ps_control_step(c), now_us = dp_now_us();
    if (ps_save_schedule_time_is_due(schedule, now_us)) {
        if (present != 0 && ps_control_changes(c) != c->saves.changes_saved) {
            *step = present;
            return true;
        }
        mr_log_debug("nothing_to_save", "no automatic save: nothing has changed since the last one");
        schedule->next_us = now_us + schedule->every_us; /* nothing has changed */
    }
    if (schedule->every_steps == 0)
        return false;
    if (ps_save_schedule_step_is_due(schedule, present))
        ps_save_schedule_began(schedule, present, schedule->next_us - schedule->every_us);
    *step = schedule->next_step;
    return true;
}

/* ---- at a step ---- */

/* Chooses whichever comes first, the save that waits or an automatic one. An automatic one does not begin
 * while another save is being written, because trainers would have to wait for its end. */
static bool choose_step(struct ps_control *c, uint64_t *step, bool *is_automatic)
{
    const struct ps_saves *s = &c->saves;
    bool may_be_automatic = c->writer == NULL && c->node->config->checkpoint_trainers > 0;
    uint64_t automatic_step = 0;
    *is_automatic = may_be_automatic && automatic_next_step(c, &automatic_step);
    if (!s->is_waiting) {
        *step = *is_automatic ? automatic_step : 0;
        return *is_automatic;
    }
    uint64_t asked = s->waiting.step != 0 ? s->waiting.step : ps_control_step(c);
    *is_automatic = *is_automatic && automatic_step < asked;
    *step = *is_automatic ? automatic_step : asked;
    return true;
}

/* Arms the cut at that step. A step that nobody named may move on while training continues. */
static bool arm(struct ps_control *c, uint64_t step, bool is_automatic)
{
    const struct ps_saves *s = &c->saves;
    uint32_t trainers = is_automatic ? (uint32_t)c->node->config->checkpoint_trainers : s->waiting.trainers;
    bool is_fixed = is_automatic ? step == s->schedule.next_step : s->waiting.step != 0;
    bool is_armed = ps_cut_arm(c, step, trainers, is_automatic);
    c->saves.cut.is_timed = !is_fixed;
    for (uint32_t i = 0; i < ARM_TRIES && !is_armed && !is_fixed; i++)
        is_armed = ps_cut_arm(c, ps_control_step(c) + (UINT64_C(1) << i) - 1, trainers, is_automatic);
    return is_armed;
}

static void give_up_waiting(struct ps_control *c, const char *text)
{
    uint64_t number = c->saves.waiting.number;
    c->saves.is_waiting = false;
    ps_control_save_failed(c, number, MR_DEADLINE_EXCEEDED, text);
}

static void arm_next(struct ps_control *c)
{
    char text[PS_CONTROL_TEXT_BYTES];
    uint64_t step;
    bool is_automatic;
    if (!choose_step(c, &step, &is_automatic) || arm(c, step, is_automatic) || is_automatic)
        return; /* an automatic cut that failed is tried again at the next step, in the next poll */
    snprintf(text, sizeof(text), "step %" PRIu64 " has passed: training is at step %" PRIu64, step,
             ps_control_step(c));
    give_up_waiting(c, text);
}

/* Every trainer is held at the step: make the cut, then release them. */
static void cut_at_step(struct ps_control *c)
{
    struct ps_saves *s = &c->saves;
    char text[PS_CONTROL_TEXT_BYTES];
    uint64_t step = s->cut.step, id;
    if (s->cut.is_automatic) {
        automatic_begin(c, step, true);
    } else {
        s->is_waiting = false;
        enum mr_status status = ps_control_cut(c, &s->waiting, step, true, &id, text);
        if (status != MR_OK)
            ps_control_save_failed(c, s->waiting.number, status, text);
    }
    ps_cut_disarm(c);
}

static void cut_late(struct ps_control *c)
{
    struct ps_saves *s = &c->saves;
    char text[PS_CONTROL_TEXT_BYTES];
    uint64_t step = s->cut.step;
    snprintf(text, sizeof(text),
             "step %" PRIu64 ": %u of %u trainers came to it within %" PRIu64
             " ms (checkpoint.step_wait_ms); the others are slower, or fewer than that%s",
             step, s->cut.arrived, s->cut.trainers, c->node->config->checkpoint_step_wait_ms,
             c->writer != NULL ? ", or another save took too long" : "");
    if (!s->cut.is_automatic) {
        give_up_waiting(c, text);
    } else {
        mr_log_warning("save_at_once", "automatic save at once: %s", text);
        ps_counter_add(&c->node->checkpoint_counters.saves_late, 1);
        automatic_begin(c, ps_control_step(c), false);
    }
    ps_cut_disarm(c);
}

/* Whether the automatic cut is armed for a step that training has passed or returned from, or another one is
 * due before it. */
static bool is_out_of_date(struct ps_control *c)
{
    const struct ps_step_cut *cut = &c->saves.cut;
    struct ps_save_schedule *schedule = &c->saves.schedule;
    uint64_t present = ps_control_step(c);
    if (!cut->is_automatic)
        return false;
    (void)ps_save_schedule_step_is_due(schedule, present); /* follows a step that fell */
    bool has_fallen = schedule->every_steps != 0 && schedule->next_step < cut->step;
    bool is_due =
        !cut->is_timed && cut->held_since_us == 0 && ps_save_schedule_time_is_due(schedule, dp_now_us());
    return c->writer != NULL || present > cut->step || has_fallen || is_due;
}

static void look_at_cut(struct ps_control *c)
{
    if (c->saves.cut.is_armed && is_out_of_date(c))
        ps_cut_disarm(c);
    if (!c->saves.cut.is_armed)
        arm_next(c);
    if (!c->saves.cut.is_armed)
        return;
    enum ps_cut_state state = ps_cut_look(c);
    if (state == PS_CUT_READY && c->writer == NULL)
        cut_at_step(c);
    else if (ps_cut_is_late(c))
        cut_late(c);
}

/* ---- those that will not be made ---- */

void ps_control_saves_drop(struct ps_control *c, const char *why)
{
    struct ps_saves *s = &c->saves;
    ps_cut_disarm(c);
    if (s->is_waiting) {
        s->is_waiting = false;
        ps_control_save_failed(c, s->waiting.number, MR_CANCELLED, why);
    }
    for (uint32_t i = 0; i < s->queued; i++)
        ps_control_save_failed(c, s->queue[i].number, MR_CANCELLED, why);
    s->queued = 0;
    count_queued(c);
}

static bool take_out_queued(struct ps_control *c, uint64_t number)
{
    struct ps_saves *s = &c->saves;
    for (uint32_t i = 0; i < s->queued; i++) {
        if (s->queue[i].number == number) {
            queue_remove(c, i);
            return true;
        }
    }
    return false;
}

/* Releases the trainers that are held for it, but not those held for an automatic cut. */
static bool take_out_waiting(struct ps_control *c, uint64_t number)
{
    struct ps_saves *s = &c->saves;
    if (!s->is_waiting || s->waiting.number != number)
        return false;
    s->is_waiting = false;
    if (!s->cut.is_automatic)
        ps_cut_disarm(c);
    return true;
}

static enum mr_status cancel_running(struct ps_control *c, char *text)
{
    struct ps_saves *s = &c->saves;
    s->is_cancelled = true;
    ps_writer_abort(c->writer);
    enum mr_status status = ps_control_save_wait(c, text);
    s->is_cancelled = false;
    if (status == MR_CANCELLED) {
        text[0] = '\0';
        return MR_OK;
    }
    if (status == MR_OK) { /* it was published before it could be aborted */
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "save %" PRIu64 " was finished before it could be cancelled: it is checkpoint %" PRIu64,
                 s->running.number, s->entry.id);
    } else {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "save %" PRIu64 " failed before it could be cancelled: %.200s",
                 s->running.number, s->entry.text);
    }
    return MR_INVALID_ARGUMENT;
}

/* Explains why a save that neither waits nor is being written cannot be cancelled. */
static enum mr_status refuse_cancel(struct ps_control *c, uint64_t number, char *text)
{
    pthread_mutex_lock(&c->view_lock);
    const struct ps_save_entry *entry = ps_save_log_find(&c->saves.log, number);
    bool is_good = entry != NULL && entry->status == MR_OK;
    uint64_t id = entry != NULL ? entry->id : 0;
    pthread_mutex_unlock(&c->view_lock);
    if (entry == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "save %" PRIu64 " is not known: only the last %u are", number,
                 PS_SAVE_LOG_MAX);
        return MR_CHECKPOINT_NOT_FOUND;
    }
    if (is_good) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "save %" PRIu64 " has ended already: it is checkpoint %" PRIu64,
                 number, id);
    } else {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "save %" PRIu64 " has ended already, without a checkpoint",
                 number);
    }
    return MR_INVALID_ARGUMENT;
}

/* Whether somebody else than a trainer has asked for a save that is not over. */
static bool is_of_others(const struct ps_control *c, uint64_t number)
{
    const struct ps_saves *s = &c->saves;
    bool is = (c->writer != NULL && s->running.number == number && !s->running.is_by_trainer) ||
              (s->is_waiting && s->waiting.number == number && !s->waiting.is_by_trainer);
    for (uint32_t i = 0; i < s->queued; i++)
        is |= s->queue[i].number == number && !s->queue[i].is_by_trainer;
    return is;
}

enum mr_status ps_control_save_cancel(struct ps_control *c, uint64_t number, bool is_by_trainer, char *text)
{
    if (is_by_trainer && is_of_others(c, number)) {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "no trainer asked for save %" PRIu64 ": to cancel it needs an operator's key", number);
        return MR_UNAUTHORIZED;
    }
    if (c->writer != NULL && c->saves.running.number == number)
        return cancel_running(c, text);
    if (take_out_queued(c, number) || take_out_waiting(c, number)) {
        ps_control_save_cancelled(c, number);
        return MR_OK;
    }
    return refuse_cancel(c, number, text);
}

/* ---- each round of the thread ---- */

void ps_control_saves_poll(struct ps_control *c)
{
    ps_control_save_progress(c);
    if (c->gate != PS_GATE_OPEN)
        return;
    begin_queued(c);
    look_at_cut(c);
    bool is_on = ps_save_schedule_is_on(&c->saves.schedule) && c->node->config->checkpoint_trainers == 0;
    if (is_on && c->writer == NULL)
        automatic_at_once(c);
}

bool ps_control_saves_pending(const struct ps_control *c)
{
    const struct ps_saves *s = &c->saves;
    return c->writer != NULL || s->queued > 0 || s->is_waiting || ps_save_schedule_is_on(&s->schedule);
}
