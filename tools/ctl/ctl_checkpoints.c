/* millrace ctl status, checkpoints. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/save_text.h"
#include "tools/log_state.h"
#include "dataplane/wire/base/cli.h"

/* ---- status ---- */

static const char *state_name(enum mr_checkpoint_state state)
{
    static const char *const names[] = {"idle", "saving", "loading"};
    return (unsigned)state < sizeof(names) / sizeof(*names) ? names[state] : "?";
}

static json_t *status_json(const struct mr_checkpoint_info *s, const struct tool_log_state *log)
{
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "log",
                     log->cores > 0 ? tool_log_json(log) : json_null(), "state", state_name(s->state), "id",
                     (json_int_t)s->id, "bytes_done", (json_int_t)s->bytes_done, "bytes_total",
                     (json_int_t)s->bytes_total, "seconds", (double)s->duration_us / 1e6, "last_good_id",
                     (json_int_t)s->last_good_id, "last_good_step", (json_int_t)s->last_good_step,
                     "last_status", mr_status_name(s->last_status), "last_error", s->last_error, "step",
                     (json_int_t)s->step, "queued", (json_int_t)s->saves_queued, "waiting_step",
                     (json_int_t)s->waiting_step, "trainers_held", (json_int_t)s->trainers_held,
                     "trainers_awaited", (json_int_t)s->trainers_awaited);
}

static void print_waiting(const struct mr_checkpoint_info *i)
{
    if (i->waiting_step != 0)
        (void)printf("a cut waits for step %" PRIu64 ": %" PRIu64 " of %" PRIu64
                     " trainers are there, training is at step %" PRIu64 "\n",
                     i->waiting_step, i->trainers_held, i->trainers_awaited, i->step);
}

static void print_log(const struct tool_log_state *log)
{
    char line[TOOL_LOG_LINE_BYTES];
    if (log->cores == 0)
        return;
    tool_log_line(log, line, sizeof(line));
    (void)printf("log        %s\n", line);
}

static void print_status(const struct mr_checkpoint_info *s, const struct tool_log_state *log)
{
    char progress[128], step[64], line[TOOL_SAVE_LINE_BYTES];
    if (s->state != MR_CHECKPOINT_IDLE) {
        tool_save_progress(s->bytes_done, s->bytes_total, s->duration_us, progress, sizeof(progress));
        (void)printf("state      %s checkpoint %" PRIu64 ": %s, %.2f s\n", state_name(s->state), s->id,
                     progress, (double)s->duration_us / 1e6);
    } else {
        (void)printf("state      idle\n");
    }
    tool_save_step(s->last_good_step, false, step, sizeof(step));
    if (s->last_good_id != 0)
        (void)printf("last good  checkpoint %" PRIu64 "%s\n", s->last_good_id, step);
    else
        (void)printf("last good  %s\n", s->state == MR_CHECKPOINT_SAVING
                                            ? "the first since the server's start is being written"
                                            : "none since the server's start");
    tool_save_last(s, line, sizeof(line));
    (void)printf("last       %s\n", line);
    if (s->saves_queued != 0)
        (void)printf("queued     %" PRIu64 "\n", s->saves_queued);
    print_waiting(s);
    print_log(log);
}

int tool_ctl_status(const struct tool_query *q)
{
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    struct tool_log_state log = {.cores = 0};
    struct mr_core_place place;
    enum mr_status status = mr_checkpoint_info(q->client, NULL, 0, &info, NULL, NULL);
    const bool is_member = mr_client_core_place(q->client, 0, &place) && place.node[0] != '\0';
    const uint32_t cores = is_member ? 0 : mr_client_core_count(q->client); /* members keep no log */
    for (uint32_t core = 0; core < cores && status == MR_OK; core++)
        status = mr_stats(q->client, NULL, core, tool_log_counter, &log);
    if (status != MR_OK)
        return tool_call_failed(q->command, status);
    if (q->json)
        return tool_print_json(q->command, status_json(&info, &log));
    print_status(&info, &log);
    return 0;
}

/* ---- checkpoints ---- */

struct list {
    json_t *saves; /* NULL: text */
    bool in_cluster;
    uint32_t count;
};

/* A good one that was asked for has nothing more to be said of it. */
static void remark(const struct mr_save_info *s, char *out, size_t out_bytes)
{
    const bool is_good = s->state == MR_SAVE_ENDED && s->status == MR_OK;
    const char *state = s->state == MR_SAVE_ENDED && s->status != MR_OK && s->status != MR_CANCELLED
                            ? "failed"
                            : tool_save_state_name(s);
    (void)snprintf(out, out_bytes, "%s%s%s%s%s", s->is_automatic ? "automatic" : "",
                   s->is_automatic && !is_good ? ", " : "", is_good ? "" : state, s->error[0] ? ": " : "",
                   s->error);
}

/* 0 is for what there is not. */
static const char *number_or_dash(uint64_t number, char out[24])
{
    if (number == 0)
        return "-";
    (void)snprintf(out, 24, "%" PRIu64, number);
    return out;
}

/* The size, and the time that it took, as far as the node knows them. */
static void size_and_time(const struct list *list, const struct mr_save_info *s, char mib[24],
                          char seconds[24])
{
    const bool is_whole =
        s->state == MR_SAVE_ENDED && s->status == MR_OK && tool_save_is_whole(s, list->in_cluster);
    (void)snprintf(mib, 24, "%.1f", tool_mib(s->bytes));
    (void)snprintf(seconds, 24, "%.2f", (double)s->duration_us / 1e6);
    if (is_whole)
        (void)snprintf(mib, 24, "-");
    if (is_whole && s->duration_us == 0)
        (void)snprintf(seconds, 24, "-");
}

static void list_save(void *arg, const struct mr_save_info *s)
{
    struct list *list = arg;
    char id[24], parent[24], step[24], mib[24], seconds[24], text[sizeof(s->error) + 64];
    if (list->saves != NULL) {
        (void)json_array_append_new(list->saves, tool_save_json(s));
        return;
    }
    if (list->count++ == 0)
        (void)printf("%-7s%-12s%-8s%-12s%-14s%-9s%12s%10s  %s\n", "save", "checkpoint", "kind", "parent",
                     "step", "cut at it", "MiB", "seconds", "remote");
    remark(s, text, sizeof(text));
    size_and_time(list, s, mib, seconds);
    (void)printf("%-7" PRIu64 "%-12s%-8s%-12s%-14s%-9s%12s%10s  %s%s%s\n", s->number,
                 number_or_dash(s->id, id), tool_save_kind_name(s), number_or_dash(s->parent_id, parent),
                 number_or_dash(s->step, step), s->is_at_step ? "yes" : "no", mib, seconds,
                 tool_save_remote_name(s), text[0] ? "  " : "", text);
}

static json_t *info_json(const struct mr_checkpoint_info *i, json_t *saves)
{
    return json_pack("{s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "step", (json_int_t)i->step,
                     "restored_id", (json_int_t)i->restored_id, "restored_step", (json_int_t)i->restored_step,
                     "restored_at_step", i->restored_is_at_step, "last_good_id", (json_int_t)i->last_good_id,
                     "last_good_step", (json_int_t)i->last_good_step, "queued", (json_int_t)i->saves_queued,
                     "waiting_step", (json_int_t)i->waiting_step, "trainers_held",
                     (json_int_t)i->trainers_held, "trainers_awaited", (json_int_t)i->trainers_awaited,
                     "saves", saves);
}

int tool_ctl_checkpoints(const struct tool_query *q)
{
    struct mr_core_place place;
    struct list list = {.saves = q->json ? json_array() : NULL,
                        .in_cluster = mr_client_core_place(q->client, 0, &place) && place.node[0] != '\0'};
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    char step[64];
    enum mr_status status = mr_checkpoint_info(q->client, NULL, 0, &info, list_save, &list);
    if (status != MR_OK) {
        json_decref(list.saves);
        return tool_call_failed(q->command, status);
    }
    if (q->json)
        return tool_print_json(q->command, info_json(&info, list.saves));
    if (list.count == 0)
        (void)printf("no saves since the server's start\n");
    print_waiting(&info);
    tool_save_step(info.restored_step, info.restored_is_at_step, step, sizeof(step));
    if (info.restored_id != 0)
        (void)printf("restored from checkpoint %" PRIu64 "%s\n", info.restored_id, step);
    return 0;
}
