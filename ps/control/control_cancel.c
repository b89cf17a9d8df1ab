/* Saves that will not be made: withdrawn by a call, or given up because the node stops or holds another
 * state. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ps/control/control_internal.h"

void ps_control_saves_drop(struct ps_control *c, const char *why)
{
    struct ps_saves *s = &c->saves;
    ps_cut_disarm(c);
    if (s->is_waiting) {
        s->is_waiting = false;
        ps_control_save_failed(c, s->waiting.number, MR_CANCELLED, why);
    }
    for (uint32_t i = 0; i < s->queued; i++) {
        ps_control_save_failed(c, s->queue[i].number, MR_CANCELLED, why);
    }
    s->queued = 0;
    ps_control_count_queued(c);
}

static bool take_out_queued(struct ps_control *c, uint64_t number)
{
    struct ps_saves *s = &c->saves;
    for (uint32_t i = 0; i < s->queued; i++) {
        if (s->queue[i].number == number) {
            ps_control_queue_remove(c, i);
            return true;
        }
    }
    return false;
}

/* Trainers that are held for it go on; those held for an automatic one are not its business. */
static bool take_out_waiting(struct ps_control *c, uint64_t number)
{
    struct ps_saves *s = &c->saves;
    if (!s->is_waiting || s->waiting.number != number) {
        return false;
    }
    s->is_waiting = false;
    if (!s->cut.is_automatic) {
        ps_cut_disarm(c);
    }
    return true;
}

static enum mr_status withdraw_running(struct ps_control *c, char *text)
{
    struct ps_saves *s = &c->saves;
    s->is_withdrawn = true;
    ps_writer_abort(c->writer);
    enum mr_status status = ps_control_save_wait(c, text);
    s->is_withdrawn = false;
    if (status == MR_CANCELLED) {
        text[0] = '\0';
        return MR_OK;
    }
    if (status == MR_OK) { /* all was written, and it was too late to take it back */
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "save %" PRIu64 " was finished before it could be cancelled: it is checkpoint %" PRIu64,
                 s->running.number, s->entry.id);
    } else {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "save %" PRIu64 " failed before it could be cancelled: %.200s",
                 s->running.number, s->entry.text);
    }
    return MR_INVALID_ARGUMENT;
}

/* It does not wait, nor is it being written. */
static enum mr_status refuse(struct ps_control *c, uint64_t number, char *text)
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

enum mr_status ps_control_save_cancel(struct ps_control *c, uint64_t number, char *text)
{
    if (c->writer != NULL && c->saves.running.number == number) {
        return withdraw_running(c, text);
    }
    if (take_out_queued(c, number) || take_out_waiting(c, number)) {
        ps_control_save_withdrawn(c, number);
        return MR_OK;
    }
    return refuse(c, number, text);
}
