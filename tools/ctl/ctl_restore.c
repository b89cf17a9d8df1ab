/* millrace ctl restore. */
#include <inttypes.h>
#include <stdio.h>

#include "dataplane/wire/base/plural.h"
#include "millrace_admin.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/restore_args.h"
#include "tools/ctl/save_text.h"
#include "dataplane/wire/base/cli.h"

#define RESTORE_MS_DEFAULT 600000u /* a restore ends when it is done, which may take minutes */
#define TABLES_MAX         256u    /* on a command line */
#define ERROR_BYTES        512

static const char command[] = "millrace ctl restore";

struct restore_args {
    const char *directory;
    uint64_t id;
    struct cli_list tables;
    bool replace;
    struct mr_restore_name names[TABLES_MAX];
    char buffers[TABLES_MAX][2 * MR_NAME_BYTES];
};

static void read_tables(struct restore_args *args)
{
    char error[ERROR_BYTES];
    for (uint32_t i = 0; i < args->tables.count; i++)
        if (!tool_restore_name_parse(args->tables.items[i], args->buffers[i], sizeof(args->buffers[i]),
                                     &args->names[i], error, sizeof(error)))
            cli_refuse(command, "%s", error);
    if (args->replace && args->tables.count == 0)
        cli_refuse(command, "--replace is for --table: without one, everything is replaced");
}

static json_t *restored_json(const struct mr_restored *r)
{
    return json_pack("{s:I, s:I, s:b, s:I, s:I, s:I}", "id", (json_int_t)r->id, "step", (json_int_t)r->step,
                     "at_step", r->is_at_step, "tables", (json_int_t)r->tables, "variables",
                     (json_int_t)r->variables, "parameters", (json_int_t)r->parameters);
}

static void print_restored(const struct mr_restored *r, bool is_whole)
{
    char step[64], what[96];
    tool_save_step(r->step, r->is_at_step, step, sizeof(step));
    const int n = snprintf(what, sizeof(what), "%" PRIu32 " table%s, %" PRIu32 " variable%s", r->tables,
                           mr_plural(r->tables), r->variables, mr_plural(r->variables));
    if (r->parameters > 0)
        (void)snprintf(what + n, sizeof(what) - (size_t)n, ", %" PRIu32 " parameter%s", r->parameters,
                       mr_plural(r->parameters));
    if (!is_whole)
        (void)printf("restored %s out of checkpoint %" PRIu64 "%s\n", what, r->id, step);
    else
        (void)printf("restored checkpoint %" PRIu64 "%s: %s\n", r->id, step, what);
    if (is_whole && r->is_at_step)
        (void)printf("training continues with step %" PRIu64 "\n", r->step + 1);
}

static int restore(const struct tool_connection *c, const struct restore_args *args)
{
    struct mr_client *client;
    struct mr_restored restored = {.bytes = sizeof(restored)};
    const struct mr_options call = {.deadline_ms = c->deadline_ms ? c->deadline_ms : RESTORE_MS_DEFAULT};
    const uint32_t count = args->tables.count;
    const struct mr_restore_options what = {.bytes = sizeof(what),
                                            .directory = args->directory,
                                            .id = args->id,
                                            .names = count > 0 ? args->names : NULL,
                                            .name_count = count,
                                            .replace = args->replace};
    int exit_code = tool_connect(command, c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_restore(client, &call, &what, &restored);
    if (status != MR_OK)
        exit_code = tool_call_failed(command, status);
    else if (c->json)
        exit_code = tool_print_json(command, restored_json(&restored));
    else
        print_restored(&restored, count == 0);
    mr_client_destroy(client);
    return exit_code;
}

int tool_ctl_restore(int argc, char **argv)
{
    static const char *items[TABLES_MAX];
    static struct restore_args args;
    struct tool_connection c = {0};
    args.tables = (struct cli_list){.items = items, .items_max = TABLES_MAX};
    const struct cli_option options[] = {
        {"directory", CLI_STRING, &args.directory, "DIR",
         "directory on the server's machine to restore from; default: as configured there"},
        {"id", CLI_U64, &args.id, "N", "number of the checkpoint; default: the newest that verifies"},
        {"table", CLI_LIST, &args.tables, "NAME[:NEW]",
         "restore only this table, variable or parameter, under its own name or a new one; may\n"
         "be given several times; for names that contain colons, write NAME=NEW"},
        {"replace", CLI_FLAG, &args.replace, NULL,
         "with --table, replace a table, variable or parameter that already has that name"},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary =
            "Replaces all tables and variables with those of a checkpoint, and the parameters that it\n"
            "has. With --table, it keeps what the server holds, and adds single tables, variables or\n"
            "parameters of the checkpoint to it. Returns when the restore is done; if it fails,\n"
            "nothing has changed.\n"
            "\n"
            "  millrace ctl restore --id 7\n"
            "  millrace ctl restore --table user:user_before --directory /backup/millrace",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    read_tables(&args);
    return restore(&c, &args);
}
