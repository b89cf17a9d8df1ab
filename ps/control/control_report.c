/* The list of saves (ps/control/save_log.h): entries, saves that failed or were cancelled before their cut,
 * and the answer to CHECKPOINT_STATUS. */
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/control/control_internal.h"

/* ---- notes ---- */

void ps_control_note_save(struct ps_control *c, struct ps_save_request *request, enum ps_save_state state)
{
    pthread_mutex_lock(&c->view_lock);
    struct ps_save_entry *entry = ps_save_log_add(&c->saves.log);
    entry->state = state;
    entry->step = request->step;
    entry->is_automatic = request->is_automatic;
    entry->is_partial = ps_save_is_partial(request);
    request->number = entry->number;
    pthread_mutex_unlock(&c->view_lock);
}

void ps_control_note_state(struct ps_control *c, uint64_t number, enum ps_save_state state)
{
    pthread_mutex_lock(&c->view_lock);
    struct ps_save_entry *entry = ps_save_log_find(&c->saves.log, number);
    if (entry != NULL)
        entry->state = state;
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

/* Reports this save as the last one that ended, unless another is being written. */
static void show_failure(struct ps_control *c, enum mr_status status, const char *text)
{
    struct ps_checkpoint_view view = c->view;
    if (c->writer != NULL)
        return;
    view.last_status = status;
    view.last_errno = 0;
    snprintf(view.text, sizeof(view.text), "%.255s", text);
    ps_control_set_view(c, &view);
}

void ps_control_save_failed(struct ps_control *c, uint64_t number, enum mr_status status, const char *text)
{
    note_end(c, number, status, text);
    show_failure(c, status, text);
    mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"save", .number = number}), "save_failed",
                "save %llu failed: %s", (unsigned long long)number, text);
    ps_counter_set(&c->node->checkpoint_counters.last_status, status);
    ps_counter_add(&c->node->checkpoint_counters.saves_failed, 1);
}

void ps_control_save_cancelled(struct ps_control *c, uint64_t number)
{
    note_end(c, number, MR_CANCELLED, PS_SAVE_CANCELLED);
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"save", .number = number}), "save_cancelled",
                "save %llu was cancelled", (unsigned long long)number);
    ps_counter_add(&c->node->checkpoint_counters.saves_cancelled, 1);
}

/* ---- CHECKPOINT_STATUS ---- */

static void fill_details(const struct ps_control *c, uint64_t out[PS_DETAIL_WORDS])
{
    const struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    const uint64_t details[PS_DETAIL_WORDS] = {ps_control_step(c),
                                               ps_counter_read(&counters->restored_id),
                                               ps_counter_read(&counters->restored_step),
                                               ps_counter_read(&counters->restored_at_step),
                                               ps_counter_read(&counters->last_good_step),
                                               ps_counter_read(&counters->saves_queued),
                                               ps_counter_read(&counters->waiting_step),
                                               ps_counter_read(&counters->trainers_held),
                                               ps_counter_read(&counters->trainers_awaited),
                                               0};
    memcpy(out, details, sizeof(details));
}

static uint64_t kind_of(const struct ps_save_entry *entry)
{
    if (entry->is_partial)
        return PS_KIND_PARTIAL;
    return entry->id == 0 ? PS_ASKED_CONFIGURED : entry->is_delta ? PS_ASKED_DELTA : PS_ASKED_FULL;
}

static bool is_running(const struct ps_save_entry *entry, const struct ps_checkpoint_view *view)
{
    return entry->state == PS_SAVE_WRITING && view->state == PS_VIEW_SAVING && entry->id == view->id;
}

/* What became of its copy in checkpoint.remote. */
static enum ps_copied look_at_copy(const struct ps_node *node, const struct ps_save_entry *entry,
                                   uint64_t *at_ms)
{
    struct ps_copier *copier = atomic_load(&node->copier);
    *at_ms = 0;
    if (copier == NULL || !entry->is_copied || entry->committed_ms == 0)
        return PS_COPIED_NO_STORE;
    return ps_copier_look(copier, entry->is_partial, entry->id, at_ms);
}

static void add_save(const struct ps_control *c, struct ps_checkpoint_report *out,
                     const struct ps_save_entry *entry, const struct ps_checkpoint_view *view)
{
    bool runs = is_running(entry, view);
    uint64_t remote_ms;
    const enum ps_copied copied = look_at_copy(c->node, entry, &remote_ms);
    const uint64_t words[PS_SAVE_WORDS] = {entry->number,
                                           entry->state,
                                           entry->id,
                                           kind_of(entry),
                                           entry->parent_id,
                                           entry->step,
                                           entry->is_at_step,
                                           runs ? view->bytes_done : entry->bytes,
                                           runs ? view->duration_us : entry->duration_us,
                                           entry->status,
                                           (uint64_t)entry->error_number,
                                           entry->is_automatic,
                                           entry->committed_ms,
                                           remote_ms,
                                           copied};
    memcpy(out->saves[out->save_count++], words, sizeof(words));
    size_t at = strlen(out->lines), bytes = strlen(entry->text);
    memcpy(out->lines + at, entry->text, bytes);
    out->lines[at + bytes] = '\n';
    out->lines[at + bytes + 1] = '\0';
}

/* Reports this save where the last one would be. */
static void show_save(struct ps_checkpoint_report *out, const struct ps_save_entry *entry,
                      const struct ps_checkpoint_view *view)
{
    bool is_last = is_running(entry, view);
    out->words[0] = entry->state;
    out->words[1] = entry->id;
    out->words[2] = is_last ? view->bytes_done : entry->bytes;
    out->words[3] = is_last ? view->bytes_total : entry->bytes;
    out->words[4] = is_last ? view->duration_us : entry->duration_us;
    out->words[6] = entry->status;
    out->words[7] = (uint64_t)entry->error_number;
    memcpy(out->text, entry->text, sizeof(out->text));
}

bool ps_control_report(struct ps_control *c, uint64_t number, struct ps_checkpoint_report *out)
{
    struct ps_checkpoint_view view;
    struct ps_save_log *log = &c->saves.log;
    ps_control_view(c, &view);
    memset(out, 0, sizeof(*out));
    memcpy(out->words, &view, sizeof(out->words));
    memcpy(out->text, view.text, sizeof(out->text));
    fill_details(c, out->details);
    pthread_mutex_lock(&c->view_lock);
    const struct ps_save_entry *one = number != 0 ? ps_save_log_find(log, number) : NULL;
    if (one != NULL) {
        show_save(out, one, &view);
        add_save(c, out, one, &view);
    }
    for (uint64_t back = PS_SAVE_LOG_MAX; number == 0 && back > 0; back--) {
        uint64_t i = log->last_number + 1 - back;
        const struct ps_save_entry *entry = log->last_number + 1 > back ? ps_save_log_find(log, i) : NULL;
        if (entry != NULL)
            add_save(c, out, entry, &view);
    }
    pthread_mutex_unlock(&c->view_lock);
    return number == 0 || one != NULL;
}
