/* millrace ctl save, checkpoints. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/connection.h"
#include "tools/ctl.h"
#include "tools/options.h"

#define POLL_MS 100u

static const char *state_name(enum mr_save_state state)
{
    switch (state) {
    case MR_SAVE_ENDED:
        return "ended";
    case MR_SAVE_WRITING:
        return "writing";
    case MR_SAVE_WAITS_FOR_STEP:
        return "waits for step";
    case MR_SAVE_QUEUED:
        return "queued";
    }
    return "?";
}

static const char *kind_name(const struct mr_save_info *s)
{
    return s->kind == MR_SAVE_FULL ? "full" : s->kind == MR_SAVE_DELTA ? "delta" : "-";
}

static json_t *save_json(const struct mr_save_info *s)
{
    return json_pack("{s:I, s:s, s:I, s:s, s:I, s:I, s:b, s:b, s:I, s:f, s:s, s:s}", "number",
                     (json_int_t)s->number, "state", state_name(s->state), "id", (json_int_t)s->id, "kind",
                     kind_name(s), "parent", (json_int_t)s->parent_id, "step", (json_int_t)s->step, "at_step",
                     s->is_at_step, "automatic", s->is_automatic, "bytes", (json_int_t)s->bytes, "seconds",
                     (double)s->duration_us / 1e6, "status", mr_status_name(s->status), "error", s->error);
}

/* ---- save ---- */

static void keep(void *arg, const struct mr_save_info *save)
{
    *(struct mr_save_info *)arg = *save;
}

static void print_progress(const struct mr_save_info *s, const struct mr_checkpoint_status *now,
                           const struct mr_checkpoint_info *info)
{
    if (s->state == MR_SAVE_WAITS_FOR_STEP)
        (void)fprintf(
            stderr, "\rstep %" PRIu64 ", cut at %" PRIu64 ": %" PRIu64 " of %" PRIu64 " trainers are there ",
            info->step, info->waiting_step, info->trainers_held, info->trainers_awaited);
    else
        (void)fprintf(stderr, "\rcheckpoint %" PRIu64 ": %.1f of %.1f MB ", now->id,
                      (double)now->bytes_done / 1e6, (double)now->bytes_total / 1e6);
    (void)fflush(stderr);
}

static enum mr_status look(struct mr_client *client, uint64_t number, bool terminal, struct mr_save_info *s)
{
    struct mr_checkpoint_info info = {.bytes = sizeof info};
    struct mr_checkpoint_status now = {0};
    enum mr_status status = mr_checkpoint_info(client, NULL, number, &info, keep, s);

    if (status == MR_OK && terminal)
        status = mr_checkpoint_status(client, NULL, &now);
    if (status == MR_OK && terminal)
        print_progress(s, &now, &info);
    return status;
}

static int wait_saved(const char *command, struct mr_client *client, uint64_t number, struct mr_save_info *s)
{
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};

    while (s->state != MR_SAVE_ENDED) {
        (void)nanosleep(&pause, NULL);
        enum mr_status status = look(client, number, terminal, s);
        if (status != MR_OK)
            return tool_call_failed(command, status);
    }
    if (terminal)
        (void)fputc('\n', stderr);
    if (s->status == MR_OK)
        return 0;
    if (s->id == 0)
        return tool_fail(command, "save %" PRIu64 " failed: %s", number, s->error);
    return tool_fail(command, "checkpoint %" PRIu64 " failed: %s", s->id,
                     s->error[0] ? s->error : mr_status_text(s->status));
}

static void print_save(const struct mr_save_info *s)
{
    if (s->state == MR_SAVE_WAITS_FOR_STEP && s->step != 0)
        (void)printf("save %" PRIu64 " waits for step %" PRIu64 "\n", s->number, s->step);
    else if (s->state == MR_SAVE_WAITS_FOR_STEP || s->state == MR_SAVE_QUEUED)
        (void)printf("save %" PRIu64 " waits for %s\n", s->number,
                     s->state == MR_SAVE_QUEUED ? "another one" : "the end of a step");
    else if (s->state == MR_SAVE_WRITING)
        (void)printf("checkpoint %" PRIu64 " started\n", s->id);
    else
        (void)printf("saved checkpoint %" PRIu64 ": %s, step %" PRIu64 ", %.1f MB in %.2f s\n", s->id,
                     kind_name(s), s->step, (double)s->bytes / 1e6, (double)s->duration_us / 1e6);
}

static int save(const char *command, const struct tool_connection *c, const struct mr_save_options *wish,
                bool wait)
{
    struct mr_client *client;
    struct mr_save_info s = {0};
    uint64_t number = 0;
    int exit_code = tool_connect(command, c, &client);

    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_checkpoint_save(client, NULL, wish, &number);
    if (status == MR_OK)
        status = mr_checkpoint_info(client, NULL, number, NULL, keep, &s);
    if (status != MR_OK)
        exit_code = tool_call_failed(command, status);
    else if (wait)
        exit_code = wait_saved(command, client, number, &s);
    mr_client_destroy(client);
    if (exit_code != 0)
        return exit_code;
    if (c->json)
        return tool_print_json(command, save_json(&s));
    print_save(&s);
    return 0;
}

int tool_ctl_save(int argc, char **argv)
{
    static const char command[] = "ctl save";
    struct tool_connection c = {0};
    struct mr_save_options wish = {.bytes = sizeof wish};
    bool wait = false, full = false, delta = false;
    const struct tool_option options[] = {
        {"directory", TOOL_STRING, &wish.directory, "DIR",
         "on the server's machine; default: as configured there"},
        {"full", TOOL_FLAG, &full, NULL, "all of it, whatever the server is configured to do"},
        {"delta", TOOL_FLAG, &delta, NULL,
         "what has changed since the last one; an error if that is not known"},
        {"step", TOOL_U64, &wish.step, "S", "all pushes up to step S, and none behind; see --trainers"},
        {"trainers", TOOL_U32, &wish.trainers, "N",
         "how many trainers a step has; default: as configured. Without --step: at the step they are at"},
        {"queue", TOOL_FLAG, &wish.queue, NULL, "wait while another save is under way; default: an error"},
        {"wait", TOOL_FLAG, &wait, NULL, "return when it is on disk; progress on a terminal"},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const struct tool_usage usage = {
        .command = command,
        .synopsis = "[options]",
        .summary = "Starts a checkpoint and prints its number. Training goes on meanwhile.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    uint32_t word_count;
    int exit_code;

    if (!tool_options_parse(&usage, argc, argv, NULL, &word_count, &exit_code))
        return exit_code;
    if (full && delta) {
        (void)tool_fail(command, "--full or --delta, not both");
        return TOOL_EXIT_USAGE;
    }
    wish.kind = full ? MR_SAVE_FULL : delta ? MR_SAVE_DELTA : MR_SAVE_CONFIGURED;
    return save(command, &c, &wish, wait);
}

/* ---- checkpoints ---- */

struct list {
    json_t *saves; /* NULL: text */
    uint32_t count;
};

static void list_save(void *arg, const struct mr_save_info *s)
{
    struct list *list = arg;

    if (list->saves != NULL) {
        (void)json_array_append_new(list->saves, save_json(s));
        return;
    }
    if (list->count++ == 0)
        (void)printf("%-7s%-12s%-7s%-12s%-14s%-6s%12s%10s  %s\n", "save", "checkpoint", "kind", "parent",
                     "step", "at it", "MB", "seconds", "");
    (void)printf("%-7" PRIu64 "%-12" PRIu64 "%-7s%-12" PRIu64 "%-14" PRIu64 "%-6s%12.1f%10.2f  %s%s%s\n",
                 s->number, s->id, kind_name(s), s->parent_id, s->step, s->is_at_step ? "yes" : "no",
                 (double)s->bytes / 1e6, (double)s->duration_us / 1e6,
                 s->state != MR_SAVE_ENDED ? state_name(s->state)
                 : s->is_automatic         ? "automatic"
                                           : "",
                 s->error[0] ? ": " : "", s->error);
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

static void print_info(const struct mr_checkpoint_info *i)
{
    if (i->waiting_step != 0)
        (void)printf("a cut waits for step %" PRIu64 ": %" PRIu64 " of %" PRIu64
                     " trainers are there, training is at step %" PRIu64 "\n",
                     i->waiting_step, i->trainers_held, i->trainers_awaited, i->step);
    if (i->restored_id != 0)
        (void)printf("restored from checkpoint %" PRIu64 " of step %" PRIu64 "%s\n", i->restored_id,
                     i->restored_step, i->restored_is_at_step ? ", cut at that step" : "");
}

int tool_ctl_checkpoints(int argc, char **argv)
{
    static const char command[] = "ctl checkpoints";
    struct tool_connection c = {0};
    const struct tool_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct tool_usage usage = {
        .command = command,
        .synopsis = "[options]",
        .summary = "The saves that wait, the one being written, and the last ones since the server's start; "
                   "and what it was restored from.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    struct mr_client *client;
    struct list list = {0};
    struct mr_checkpoint_info info = {.bytes = sizeof info};
    int exit_code;

    if (!tool_parse_and_connect(&usage, argc, argv, &c, &client, &exit_code))
        return exit_code;
    if (c.json)
        list.saves = json_array();
    enum mr_status status = mr_checkpoint_info(client, NULL, 0, &info, list_save, &list);
    mr_client_destroy(client);
    if (status != MR_OK) {
        json_decref(list.saves);
        return tool_call_failed(command, status);
    }
    if (c.json)
        return tool_print_json(command, info_json(&info, list.saves));
    if (list.count == 0)
        (void)printf("no saves since the server's start\n");
    print_info(&info);
    return 0;
}
