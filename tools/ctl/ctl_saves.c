/* millrace ctl save. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/clock.h"
#include "millrace_admin.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/save_text.h"
#include "dataplane/wire/base/cli.h"

#define POLL_MS      100u
#define CALL_MS_MIN  1000u /* a look takes this long at most where less is left */
#define CLEAR_LINE   "\r\033[K"
#define TABLES_MAX   256u /* on a command line */
#define EXIT_GOES_ON 3    /* the deadline came first */

static const char command[] = "millrace ctl save";

/* A save that is waited for, and where it stood when it was looked at last. */
struct waiting {
    struct mr_client *client;
    uint64_t end_us;   /* UINT64_MAX: none */
    uint64_t start_id; /* of the server */
    bool is_remote;    /* also until its copy is there */
    bool is_seen;      /* what follows was read from the server */
    struct mr_save_info save;
    struct mr_checkpoint_info info;
};

static uint64_t left_ms(const struct waiting *w)
{
    const uint64_t now = mr_clock_us();
    return w->end_us == UINT64_MAX ? UINT64_MAX : now < w->end_us ? (w->end_us - now + 999) / 1000 : 0;
}

static void ctl_saves_keep(void *arg, const struct mr_save_info *save)
{
    struct waiting *w = arg;
    w->save = *save;
    w->is_seen = true;
}

static enum mr_status ctl_saves_look(struct waiting *w)
{
    const uint64_t left = left_ms(w);
    const struct mr_options options = {.deadline_ms = left == UINT64_MAX   ? 0
                                                      : left < CALL_MS_MIN ? CALL_MS_MIN
                                                                           : (uint32_t)left};
    w->info.bytes = sizeof(w->info);
    return mr_checkpoint_info(w->client, &options, w->save.number, &w->info, ctl_saves_keep, w);
}

static void pause_before_look(const struct waiting *w)
{
    const uint64_t left = left_ms(w), ms = left < POLL_MS ? left : POLL_MS;
    const struct timespec pause = {.tv_nsec = (long)ms * 1000000L};
    (void)nanosleep(&pause, NULL);
}

static int look_failed(const struct waiting *w, enum mr_status status)
{
    if (mr_client_start_id(w->client) != w->start_id)
        return cli_fail(command,
                        "the server was restarted while save %" PRIu64 " was running; millrace ctl "
                        "checkpoints says what it was restored from",
                        w->save.number);
    return tool_call_failed(command, status);
}

static int goes_on(const struct waiting *w)
{
    char stands[TOOL_SAVE_LINE_BYTES];
    tool_save_stands(&w->save, &w->info, stands);
    if (w->save.state == MR_SAVE_ENDED) {
        (void)cli_fail(command, "the deadline has passed: %s", stands);
        return EXIT_GOES_ON;
    }
    (void)cli_fail(command,
                   "the deadline has passed and save %" PRIu64
                   " is still running: %s; millrace ctl checkpoints shows it, millrace ctl save --cancel "
                   "%" PRIu64 " cancels it",
                   w->save.number, stands, w->save.number);
    return EXIT_GOES_ON;
}

/* The server did not answer the last look, which ends when the wait does; the save may have ended since. */
static int went_silent(const struct waiting *w)
{
    char stands[TOOL_SAVE_LINE_BYTES] = "not known yet";
    if (w->is_seen)
        tool_save_stands(&w->save, &w->info, stands);
    (void)cli_fail(command,
                   "the deadline has passed, and the server did not answer at the end of it; save %" PRIu64
                   " when it last did: %s; millrace ctl checkpoints shows it",
                   w->save.number, stands);
    return EXIT_GOES_ON;
}

static int ended(const struct waiting *w)
{
    const struct mr_save_info *s = &w->save;
    if (s->status == MR_OK && w->is_remote && s->remote != MR_REMOTE_THERE)
        return cli_fail(command, "checkpoint %" PRIu64 " is on the server's disk, but %s", s->id,
                        s->remote == MR_REMOTE_SUPERSEDED
                            ? "was removed there before it was copied; a newer one is in checkpoint.remote"
                            : "is not copied: set checkpoint.remote on the server, and save to its own "
                              "directory");
    if (s->status == MR_OK)
        return 0;
    if (s->status == MR_CANCELLED)
        return cli_fail(command, "save %" PRIu64 " was not made: %s", s->number, s->error);
    if (s->id == 0)
        return cli_fail(command, "save %" PRIu64 " failed: %s", s->number, s->error);
    return cli_fail(command, "checkpoint %" PRIu64 " failed: %s", s->id,
                    s->error[0] ? s->error : mr_status_text(s->status));
}

static bool is_over(const struct waiting *w)
{
    const bool is_pending = w->save.status == MR_OK && w->save.remote == MR_REMOTE_PENDING;
    return w->save.state == MR_SAVE_ENDED && !(w->is_remote && is_pending);
}

/* first is how the first look at the save ended. */
static int wait_saved(struct waiting *w, enum mr_status first)
{
    const bool terminal = isatty(STDERR_FILENO) == 1;
    char stands[TOOL_SAVE_LINE_BYTES];
    enum mr_status status = first;
    while (status == MR_OK && !is_over(w) && left_ms(w) > 0) {
        pause_before_look(w);
        status = ctl_saves_look(w);
        tool_save_stands(&w->save, &w->info, stands);
        if (terminal && status == MR_OK)
            (void)fprintf(stderr, CLEAR_LINE "save %" PRIu64 ": %s ", w->save.number, stands);
    }
    if (terminal)
        (void)fputc('\n', stderr);
    const bool is_restarted = mr_client_start_id(w->client) != w->start_id;
    const bool is_silent = status == MR_DEADLINE_EXCEEDED || status == MR_UNREACHABLE;
    if (is_silent && w->end_us != UINT64_MAX && !is_restarted)
        return went_silent(w);
    if (status != MR_OK || is_restarted)
        return look_failed(w, status);
    return is_over(w) ? ended(w) : goes_on(w);
}

static void print_save(const struct mr_save_info *s, bool in_cluster)
{
    if (s->state == MR_SAVE_WAITS_FOR_STEP && s->step != 0)
        (void)printf("save %" PRIu64 " waits for step %" PRIu64 "\n", s->number, s->step);
    else if (s->state == MR_SAVE_WAITS_FOR_STEP || s->state == MR_SAVE_QUEUED)
        (void)printf("save %" PRIu64 " waits for %s\n", s->number,
                     s->state == MR_SAVE_QUEUED ? "another one" : "the end of a step");
    else if (s->state == MR_SAVE_WRITING)
        (void)printf("save %" PRIu64 " writes checkpoint %" PRIu64 "\n", s->number, s->id);
    else {
        char line[TOOL_SAVE_LINE_BYTES];
        tool_save_done(s, in_cluster, line, sizeof(line));
        (void)printf("%s\n", line);
    }
}

static int ctl_saves_save(const struct tool_connection *c, const struct mr_save_options *wanted, bool wait,
                          bool wait_remote)
{
    const bool ends = wait && c->deadline_ms != 0;
    struct waiting w = {.end_us = ends ? mr_clock_us() + c->deadline_ms * UINT64_C(1000) : UINT64_MAX,
                        .is_remote = wait_remote,
                        .save.state = MR_SAVE_QUEUED};
    int exit_code = tool_connect(command, c, &w.client);
    if (exit_code != 0)
        return exit_code;
    w.start_id = mr_client_start_id(w.client);
    struct mr_core_place place;
    const bool in_cluster = mr_client_core_place(w.client, 0, &place) && place.node[0] != '\0';
    enum mr_status status = mr_save(w.client, NULL, wanted, NULL, &w.save.number);
    const bool is_started = status == MR_OK;
    if (is_started)
        status = ctl_saves_look(&w);
    if (is_started && (wait || w.save.state == MR_SAVE_ENDED))
        exit_code = wait_saved(&w, status);
    else if (status != MR_OK)
        exit_code = tool_call_failed(command, status);
    mr_client_destroy(w.client);
    if (exit_code != 0 && exit_code != EXIT_GOES_ON)
        return exit_code;
    if (c->json) {
        int printed = tool_print_json(command, tool_save_json(&w.save));
        return printed != 0 ? printed : exit_code;
    }
    if (exit_code == 0)
        print_save(&w.save, in_cluster);
    return exit_code;
}

static int cancel(const struct tool_connection *c, uint64_t number)
{
    struct mr_client *client;
    int exit_code = tool_connect(command, c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_checkpoint_cancel(client, NULL, number);
    json_t *cancelled = json_pack("{s:I, s:s}", "number", (json_int_t)number, "state", "cancelled");
    return tool_ctl_end(command, c, client, status, cancelled, "save %" PRIu64 " was cancelled\n", number);
}

/* What was asked for beside --cancel. */
static bool is_a_save(const struct mr_save_options *wanted, bool wait)
{
    return wait || wanted->directory != NULL || wanted->name_count > 0 ||
           wanted->kind != MR_SAVE_CONFIGURED || wanted->step != 0 || wanted->trainers != 0 || wanted->queue;
}

int tool_ctl_save(int argc, char **argv)
{
    struct tool_connection c = {0};
    struct mr_save_options wanted = {.bytes = sizeof(wanted)};
    static const char *items[TABLES_MAX];
    struct cli_list names = {.items = items, .items_max = TABLES_MAX};
    bool wait = false, wait_remote = false, full = false, delta = false;
    uint64_t cancelled = 0;
    const struct cli_option options[] = {
        {"directory", CLI_STRING, &wanted.directory, "DIR",
         "directory on the server's machine to save to; default: as configured there"},
        {"table", CLI_LIST, &names, "NAME",
         "save only this table, variable or parameter of remote calls; may be given several times.\n"
         "Such a checkpoint is partial: it goes to the folder \"partial\" of the directory, and is\n"
         "restored by name"},
        {"full", CLI_FLAG, &full, NULL, "save everything, whatever the server is configured to do"},
        {"delta", CLI_FLAG, &delta, NULL,
         "save what has changed since the last checkpoint; an error if the server does not know that"},
        {"step", CLI_U64, &wanted.step, "S",
         "save all pushes up to step S, and none after it; see --trainers"},
        {"trainers", CLI_U32, &wanted.trainers, "N",
         "how many trainers take part in a step; default: as configured on the server.\n"
         "Without --step, cut at the step that the trainers have reached"},
        {"queue", CLI_FLAG, &wanted.queue, NULL,
         "if another save is running, wait for it; by default this is an error"},
        {"wait", CLI_FLAG, &wait, NULL,
         "return only when the checkpoint is on disk; on a terminal, show the progress.\n"
         "With --deadline-ms, return after that time at the latest"},
        {"wait-remote", CLI_FLAG, &wait_remote, NULL,
         "like --wait, and also wait until the copy is in checkpoint.remote"},
        {"cancel", CLI_U64, &cancelled, "NUMBER",
         "cancel a save that is waiting or being written; \"millrace ctl checkpoints\" shows\nthe numbers"},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary = "Starts a checkpoint and prints its number. Training continues meanwhile.\n"
                   "The exit code is 3 if --wait reaches its deadline while the save continues.\n"
                   "\n"
                   "  millrace ctl save --wait\n"
                   "  millrace ctl save --full --directory /backup/millrace\n"
                   "  millrace ctl save --table user --table item --wait",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (full && delta)
        cli_refuse(command, "--full or --delta, not both");
    wanted.kind = full ? MR_SAVE_FULL : delta ? MR_SAVE_DELTA : MR_SAVE_CONFIGURED;
    wanted.name_count = names.count;
    wanted.names = names.count > 0 ? names.items : NULL;
    if (cancelled != 0 && is_a_save(&wanted, wait || wait_remote))
        cli_refuse(command, "--cancel cancels a save, and starts none: leave the other options out");
    return cancelled != 0 ? cancel(&c, cancelled)
                          : ctl_saves_save(&c, &wanted, wait || wait_remote, wait_remote);
}
