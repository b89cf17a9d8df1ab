/* The list of saves: what stands in ps/control/save_log.h of each, and what is counted and logged of those
 * that never came to their cut. */
#include <stdio.h>
#include "ps/base/log.h"
#include "ps/control/control_internal.h"

void ps_control_note_save(struct ps_control *c, struct ps_save_request *request, enum ps_save_state state)
{
    pthread_mutex_lock(&c->view_lock);
    struct ps_save_entry *entry = ps_save_log_add(&c->saves.log);
    entry->state = state;
    entry->step = request->step;
    entry->is_automatic = request->is_automatic;
    request->number = entry->number;
    pthread_mutex_unlock(&c->view_lock);
}

void ps_control_note_state(struct ps_control *c, uint64_t number, enum ps_save_state state)
{
    pthread_mutex_lock(&c->view_lock);
    struct ps_save_entry *entry = ps_save_log_find(&c->saves.log, number);
    if (entry != NULL) {
        entry->state = state;
    }
    pthread_mutex_unlock(&c->view_lock);
}

void ps_control_note_entry(struct ps_control *c, uint64_t number, const struct ps_save_entry *from)
{
    pthread_mutex_lock(&c->view_lock);
    struct ps_save_entry *entry = ps_save_log_find(&c->saves.log, number);
    if (entry != NULL) {
        bool is_automatic = entry->is_automatic;
        *entry = *from;
        entry->number = number;
        entry->is_automatic = is_automatic;
    }
    pthread_mutex_unlock(&c->view_lock);
}

static void note_end(struct ps_control *c, uint64_t number, enum mr_status status, const char *text)
{
    pthread_mutex_lock(&c->view_lock);
    struct ps_save_entry *entry = ps_save_log_find(&c->saves.log, number);
    if (entry != NULL) {
        entry->state = PS_SAVE_ENDED;
        entry->status = status;
        snprintf(entry->text, sizeof(entry->text), "%.255s", text);
    }
    pthread_mutex_unlock(&c->view_lock);
}

/* Who asks how the last save ended is told of this one, unless another is being written. */
static void show_failure(struct ps_control *c, enum mr_status status, const char *text)
{
    struct ps_checkpoint_view view = c->view;
    if (c->writer != NULL) {
        return;
    }
    view.last_status = status;
    view.last_errno = 0;
    snprintf(view.text, sizeof(view.text), "%.255s", text);
    ps_control_set_view(c, &view);
}

void ps_control_save_failed(struct ps_control *c, uint64_t number, enum mr_status status, const char *text)
{
    note_end(c, number, status, text);
    show_failure(c, status, text);
    ps_log("save %llu failed: %s", (unsigned long long)number, text);
    ps_control_add_counter(&c->node->checkpoint_counters.saves_failed, 1);
    ps_control_set_counter(&c->node->checkpoint_counters.last_status, status);
}

void ps_control_save_withdrawn(struct ps_control *c, uint64_t number)
{
    note_end(c, number, MR_CANCELLED, PS_SAVE_WITHDRAWN);
    ps_log("save %llu was withdrawn", (unsigned long long)number);
    ps_control_add_counter(&c->node->checkpoint_counters.saves_withdrawn, 1);
}
