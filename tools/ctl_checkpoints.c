/* millrace ctl save, restore, status. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/connection.h"
#include "tools/ctl.h"
#include "tools/options.h"
#include "tools/save_outcome.h"

#define POLL_MS            100u
#define RESTORE_MS_DEFAULT 600000u /* a restore ends when it is done, which may take minutes */

static const char *state_name(enum mr_checkpoint_state state)
{
    static const char *const names[] = {"idle", "saving", "loading"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}

static json_t *status_json(const struct mr_checkpoint_status *s)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:s, s:s}", "state", state_name(s->state), "id",
                     (json_int_t)s->id, "bytes_done", (json_int_t)s->bytes_done, "bytes_total",
                     (json_int_t)s->bytes_total, "seconds", (double)s->duration_us / 1e6, "last_good_id",
                     (json_int_t)s->last_good_id, "last_status", mr_status_name(s->last_status), "last_error",
                     s->last_error);
}

static void print_progress(const struct mr_checkpoint_status *s)
{
    (void)fprintf(stderr, "\rcheckpoint %" PRIu64 ": %.1f of %.1f MB ", s->id, (double)s->bytes_done / 1e6,
                  (double)s->bytes_total / 1e6);
    (void)fflush(stderr);
}

static int wait_saved(const char *command, struct mr_client *client, uint64_t id,
                      struct mr_checkpoint_status *s)
{
    const bool terminal = isatty(STDERR_FILENO) == 1;
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    for (;;) {
        enum mr_status status = mr_checkpoint_status(client, NULL, s);
        if (status != MR_OK)
            return tool_call_failed(command, status);
        if (terminal)
            print_progress(s);
        if (s->state != MR_CHECKPOINT_SAVING || s->id != id)
            break;
        (void)nanosleep(&pause, NULL);
    }
    if (terminal)
        (void)fputc('\n', stderr);
    if (tool_save_is_good(s, id))
        return 0;
    return tool_fail(command, "checkpoint %" PRIu64 " failed: %s", id,
                     s->last_error[0] ? s->last_error : mr_status_text(s->last_status));
}

static int save(const char *command, const struct tool_connection *c, const char *directory, bool wait)
{
    struct mr_client *client;
    int exit_code = tool_connect(command, c, &client);
    if (exit_code != 0)
        return exit_code;
    uint64_t id = 0;
    struct mr_checkpoint_status s = {0};
    enum mr_status status = mr_save(client, NULL, directory, &id);
    if (status != MR_OK)
        exit_code = tool_call_failed(command, status);
    else if (wait)
        exit_code = wait_saved(command, client, id, &s);
    mr_client_destroy(client);
    if (exit_code != 0)
        return exit_code;
    if (c->json)
        return tool_print_json(command, wait ? status_json(&s) : json_pack("{s:I}", "id", (json_int_t)id));
    if (wait)
        (void)printf("saved checkpoint %" PRIu64 ": %.1f MB in %.2f s\n", id, (double)s.bytes_done / 1e6,
                     (double)s.duration_us / 1e6);
    else
        (void)printf("checkpoint %" PRIu64 " started\n", id);
    return 0;
}

int tool_ctl_save(int argc, char **argv)
{
    static const char command[] = "ctl save";
    struct tool_connection c = {0};
    const char *directory = NULL;
    bool wait = false;
    const struct tool_option options[] = {
        {"directory", TOOL_STRING, &directory, "DIR",
         "on the server's machine; default: as configured there"},
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
    return save(command, &c, directory, wait);
}

int tool_ctl_restore(int argc, char **argv)
{
    static const char command[] = "ctl restore";
    struct tool_connection c = {0};
    const char *directory = NULL;
    uint64_t id = 0;
    const struct tool_option options[] = {
        {"directory", TOOL_STRING, &directory, "DIR",
         "on the server's machine; default: as configured there"},
        {"id", TOOL_U64, &id, "N", "default: the newest that verifies"},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const struct tool_usage usage = {
        .command = command,
        .synopsis = "[options]",
        .summary = "Replaces all tables and variables by those of a checkpoint; returns when that is done.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    struct mr_client *client;
    int exit_code;
    if (!tool_parse_and_connect(&usage, argc, argv, &c, &client, &exit_code))
        return exit_code;
    uint64_t restored = 0;
    const struct mr_options call = {.deadline_ms = c.deadline_ms ? c.deadline_ms : RESTORE_MS_DEFAULT};
    enum mr_status status = mr_restore(client, &call, directory, id, &restored);
    if (status != MR_OK)
        exit_code = tool_call_failed(command, status);
    else if (c.json)
        exit_code = tool_print_json(command, json_pack("{s:I}", "id", (json_int_t)restored));
    else
        (void)printf("restored checkpoint %" PRIu64 "\n", restored);
    mr_client_destroy(client);
    return exit_code;
}

int tool_ctl_status(int argc, char **argv)
{
    static const char command[] = "ctl status";
    struct tool_connection c = {0};
    const struct tool_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct tool_usage usage = {
        .command = command,
        .synopsis = "[options]",
        .summary = "The checkpoint under way, if any, and how the last one ended.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
    };
    struct mr_client *client;
    int exit_code;
    if (!tool_parse_and_connect(&usage, argc, argv, &c, &client, &exit_code))
        return exit_code;
    struct mr_checkpoint_status s;
    enum mr_status status = mr_checkpoint_status(client, NULL, &s);
    mr_client_destroy(client);
    if (status != MR_OK)
        return tool_call_failed(command, status);
    if (c.json)
        return tool_print_json(command, status_json(&s));
    (void)printf("state      %s\nid         %" PRIu64 "\nbytes      %" PRIu64 " of %" PRIu64
                 "\nseconds    %.2f\n"
                 "last good  %" PRIu64 "\nlast       %s%s%s\n",
                 state_name(s.state), s.id, s.bytes_done, s.bytes_total, (double)s.duration_us / 1e6,
                 s.last_good_id, mr_status_text(s.last_status), s.last_error[0] ? ": " : "", s.last_error);
    return 0;
}
