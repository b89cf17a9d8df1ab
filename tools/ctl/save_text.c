#include "tools/ctl/save_text.h"

#include <inttypes.h>
#include <stdio.h>
#include "millrace_admin.h"

const char *tool_save_state_name(const struct mr_save_info *save)
{
    switch (save->state) {
    case MR_SAVE_ENDED:
        return save->status == MR_CANCELLED ? "cancelled" : "ended";
    case MR_SAVE_WRITING:
        return "writing";
    case MR_SAVE_WAITS_FOR_STEP:
        return "waits for step";
    case MR_SAVE_QUEUED:
        return "queued";
    }
    return "?";
}

const char *tool_save_kind_name(const struct mr_save_info *save)
{
    switch (save->kind) {
    case MR_SAVE_FULL:
        return "full";
    case MR_SAVE_DELTA:
        return "delta";
    case MR_SAVE_PARTIAL:
        return "partial";
    case MR_SAVE_CONFIGURED:
        break;
    }
    return "-";
}

const char *tool_save_remote_name(const struct mr_save_info *save)
{
    switch (save->remote) {
    case MR_REMOTE_PENDING:
        return "pending";
    case MR_REMOTE_THERE:
        return "there";
    case MR_REMOTE_SUPERSEDED:
        return "superseded";
    case MR_REMOTE_NONE:
        break;
    }
    return "-";
}

json_t *tool_save_json(const struct mr_save_info *s)
{
    return json_pack("{s:I, s:s, s:I, s:s, s:I, s:I, s:b, s:b, s:I, s:f, s:s, s:s, s:I, s:I, s:s}", "number",
                     (json_int_t)s->number, "state", tool_save_state_name(s), "id", (json_int_t)s->id, "kind",
                     tool_save_kind_name(s), "parent", (json_int_t)s->parent_id, "step", (json_int_t)s->step,
                     "at_step", s->is_at_step, "automatic", s->is_automatic, "bytes", (json_int_t)s->bytes,
                     "seconds", (double)s->duration_us / 1e6, "status", mr_status_name(s->status), "error",
                     s->error, "committed_ms", (json_int_t)s->committed_ms, "remote_ms",
                     (json_int_t)s->remote_ms, "remote", tool_save_remote_name(s));
}

void tool_save_done(const struct mr_save_info *s, bool in_cluster, char *out, size_t out_bytes)
{
    char step[64], size[64] = "", took[32] = "";
    const bool is_whole = tool_save_is_whole(s, in_cluster);
    tool_save_step(s->step, s->is_at_step, step, sizeof(step));
    if (!is_whole)
        (void)snprintf(size, sizeof(size), ": %s, %.1f MiB", tool_save_kind_name(s), tool_mib(s->bytes));
    if (s->duration_us != 0)
        (void)snprintf(took, sizeof(took), " in %.2f s", (double)s->duration_us / 1e6);
    (void)snprintf(out, out_bytes, "saved checkpoint %" PRIu64 "%s%s%s%s", s->id,
                   is_whole ? " of the cluster" : "", step, size, took);
}

void tool_save_last(const struct mr_checkpoint_info *s, char *out, size_t out_bytes)
{
    const bool is_first = s->state == MR_CHECKPOINT_SAVING && s->last_good_id == 0;
    if (s->last_status != MR_OK)
        (void)snprintf(out, out_bytes, "%s: %s", s->last_status == MR_CANCELLED ? "cancelled" : "failed",
                       s->last_error[0] ? s->last_error : mr_status_text(s->last_status));
    else
        (void)snprintf(out, out_bytes, "%s",
                       s->id == 0 || is_first ? "none since the server's start" : "ended well");
}

void tool_save_progress(uint64_t bytes_done, uint64_t bytes_total, uint64_t duration_us, char *out,
                        size_t out_bytes)
{
    int at = snprintf(out, out_bytes, "%.1f of %.1f MiB", tool_mib(bytes_done), tool_mib(bytes_total));
    if (duration_us > 0 && at > 0 && (size_t)at < out_bytes)
        (void)snprintf(out + at, out_bytes - (size_t)at, ", %.1f MiB/s",
                       tool_mib(bytes_done) * 1e6 / (double)duration_us);
}

static void at_step(const struct mr_save_info *save, const struct mr_checkpoint_info *info,
                    char out[TOOL_SAVE_LINE_BYTES])
{
    if (info->waiting_step == 0 || (save->step != 0 && save->step != info->waiting_step)) /* an earlier one */
        (void)snprintf(out, TOOL_SAVE_LINE_BYTES,
                       "it waits for step %" PRIu64 "; training is at step %" PRIu64, save->step, info->step);
    else
        (void)snprintf(out, TOOL_SAVE_LINE_BYTES,
                       "it waits for step %" PRIu64 ", where %" PRIu64 " of %" PRIu64
                       " trainers are; training is at step %" PRIu64,
                       info->waiting_step, info->trainers_held, info->trainers_awaited, info->step);
}

void tool_save_stands(const struct mr_save_info *save, const struct mr_checkpoint_info *info,
                      char out[TOOL_SAVE_LINE_BYTES])
{
    char progress[128];
    tool_save_progress(info->bytes_done, info->bytes_total, info->duration_us, progress, sizeof(progress));
    switch (save->state) {
    case MR_SAVE_WAITS_FOR_STEP:
        at_step(save, info, out);
        return;
    case MR_SAVE_QUEUED:
        if (info->state == MR_CHECKPOINT_SAVING)
            (void)snprintf(out, TOOL_SAVE_LINE_BYTES, "it waits for checkpoint %" PRIu64 ": %s", info->id,
                           progress);
        else
            (void)snprintf(out, TOOL_SAVE_LINE_BYTES, "it waits for another save");
        return;
    case MR_SAVE_WRITING:
        (void)snprintf(out, TOOL_SAVE_LINE_BYTES, "it writes checkpoint %" PRIu64 ": %s", save->id,
                       info->id == save->id ? progress : "almost there");
        return;
    case MR_SAVE_ENDED:
        break;
    }
    if (save->remote == MR_REMOTE_PENDING)
        (void)snprintf(out, TOOL_SAVE_LINE_BYTES,
                       "checkpoint %" PRIu64
                       " is on the server's disk, and not yet in checkpoint.remote (the "
                       "server's log says why if that fails)",
                       save->id);
    else
        (void)snprintf(out, TOOL_SAVE_LINE_BYTES, "it has ended");
}

void tool_save_step(uint64_t step, bool is_at_step, char *out, size_t out_bytes)
{
    if (step == 0)
        (void)snprintf(out, out_bytes, "%s", "");
    else
        (void)snprintf(out, out_bytes, " of step %" PRIu64 "%s", step,
                       is_at_step ? ", cut at that step" : "");
}
