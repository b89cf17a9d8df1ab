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

static void fill_progress(const struct ps_checkpoint_view *view, uint64_t out[MR_PROGRESS_WORDS])
{
    out[MR_PROGRESS_STATE] = view->state;
    out[MR_PROGRESS_ID] = view->id;
    out[MR_PROGRESS_BYTES_DONE] = view->bytes_done;
    out[MR_PROGRESS_BYTES_TOTAL] = view->bytes_total;
    out[MR_PROGRESS_DURATION_US] = view->duration_us;
    out[MR_PROGRESS_LAST_GOOD_ID] = view->last_good_id;
    out[MR_PROGRESS_STATUS] = view->last_status;
    out[MR_PROGRESS_ERRNO] = view->last_errno;
}

static void fill_details(const struct ps_control *c, uint64_t out[MR_DETAIL_WORDS])
{
    const struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    out[MR_DETAIL_STEP] = ps_control_step(c);
    out[MR_DETAIL_RESTORED_ID] = ps_counter_read(&counters->restored_id);
    out[MR_DETAIL_RESTORED_STEP] = ps_counter_read(&counters->restored_step);
    out[MR_DETAIL_RESTORED_IS_AT_STEP] = ps_counter_read(&counters->restored_at_step);
    out[MR_DETAIL_LAST_GOOD_STEP] = ps_counter_read(&counters->last_good_step);
    out[MR_DETAIL_SAVES_QUEUED] = ps_counter_read(&counters->saves_queued);
    out[MR_DETAIL_WAITING_STEP] = ps_counter_read(&counters->waiting_step);
    out[MR_DETAIL_TRAINERS_HELD] = ps_counter_read(&counters->trainers_held);
    out[MR_DETAIL_TRAINERS_AWAITED] = ps_counter_read(&counters->trainers_awaited);
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
    uint64_t *row = out->saves[out->save_count++];
    row[MR_SAVE_ROW_NUMBER] = entry->number;
    row[MR_SAVE_ROW_STATE] = entry->state;
    row[MR_SAVE_ROW_ID] = entry->id;
    row[MR_SAVE_ROW_KIND] = kind_of(entry);
    row[MR_SAVE_ROW_PARENT_ID] = entry->parent_id;
    row[MR_SAVE_ROW_STEP] = entry->step;
    row[MR_SAVE_ROW_IS_AT_STEP] = entry->is_at_step;
    row[MR_SAVE_ROW_BYTES] = runs ? view->bytes_done : entry->bytes;
    row[MR_SAVE_ROW_DURATION_US] = runs ? view->duration_us : entry->duration_us;
    row[MR_SAVE_ROW_STATUS] = entry->status;
    row[MR_SAVE_ROW_ERRNO] = (uint64_t)entry->error_number;
    row[MR_SAVE_ROW_IS_AUTOMATIC] = entry->is_automatic;
    row[MR_SAVE_ROW_COMMITTED_MS] = entry->committed_ms;
    row[MR_SAVE_ROW_REMOTE_MS] = remote_ms;
    row[MR_SAVE_ROW_REMOTE] = copied;
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
    out->progress[MR_PROGRESS_STATE] = entry->state;
    out->progress[MR_PROGRESS_ID] = entry->id;
    out->progress[MR_PROGRESS_BYTES_DONE] = is_last ? view->bytes_done : entry->bytes;
    out->progress[MR_PROGRESS_BYTES_TOTAL] = is_last ? view->bytes_total : entry->bytes;
    out->progress[MR_PROGRESS_DURATION_US] = is_last ? view->duration_us : entry->duration_us;
    out->progress[MR_PROGRESS_STATUS] = entry->status;
    out->progress[MR_PROGRESS_ERRNO] = (uint64_t)entry->error_number;
    memcpy(out->text, entry->text, sizeof(out->text));
}

bool ps_control_report(struct ps_control *c, uint64_t number, struct ps_checkpoint_report *out)
{
    struct ps_checkpoint_view view;
    struct ps_save_log *log = &c->saves.log;
    ps_control_view(c, &view);
    memset(out, 0, sizeof(*out));
    fill_progress(&view, out->progress);
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
