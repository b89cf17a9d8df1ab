/* millrace ctl create, alter, drop, freeze, list. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/feature_args.h"
#include "tools/ctl/feature_text.h"
#include "dataplane/wire/base/cli.h"

#define CONNECTION_ROWS 4u
#define DROP_MAX        256u /* on a command line */

int tool_ctl_create(int argc, char **argv)
{
    static const char command[] = "millrace ctl create";
    struct tool_connection c = {0};
    struct tool_feature_args args;
    struct cli_option options[TOOL_FEATURE_OPTION_COUNT + CONNECTION_ROWS];
    const struct cli_option connection[] = {TOOL_CONNECTION_OPTIONS(&c)};
    _Static_assert(sizeof(connection) / sizeof(*connection) == CONNECTION_ROWS, "rows of the option table");
    tool_feature_args_init(&args, options);
    memcpy(options + TOOL_FEATURE_OPTION_COUNT, connection, sizeof(connection));
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "table|variable NAME [options]",
        .summary = "Creates a table, which maps a u64 key to a row, or a variable, which is a dense tensor.\n"
                   "Creating the same one again succeeds; a different one under an existing name is\n"
                   "refused. Prints the number by which calls refer to it.\n"
                   "\n"
                   "  millrace ctl create table user --dim 16 --optimizer adagrad --learning-rate 0.1 \\\n"
                   "                                 --init normal --init-b 0.01\n"
                   "  millrace ctl create variable bias --shape 1",
        CLI_OPTIONS(options),
        .words_min = 2,
        .words_max = 2,
    };
    const char *words[2];
    uint32_t id = 0;
    char error[256];
    struct mr_feature feature;
    (void)cli_parse(&usage, argc, argv, words);
    if (!tool_feature_args_finish(&args, words[0], words[1], &feature, error, sizeof(error)))
        cli_refuse(command, "%s", error);
    struct mr_client *client;
    int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_create(client, NULL, &feature, 1, &id);
    json_t *made = json_pack("{s:s, s:I}", "name", feature.name, "id", (json_int_t)id);
    return tool_ctl_end(command, &c, client, status, made, "%s is %s %" PRIu32 "\n", feature.name, words[0],
                        id);
}

/* The options of the command line beside those of `args`. */
struct alter_options {
    struct tool_connection connection;
    struct tool_feature_args args;
    struct cli_option options[TOOL_FEATURE_OPTION_COUNT + CONNECTION_ROWS];
};

#define ALTER_COMMAND "millrace ctl alter"

static const char *parse_alter(struct alter_options *a, const struct mr_feature *is, int argc, char **argv)
{
    const char *name;
    const struct cli_option connection[] = {TOOL_CONNECTION_OPTIONS(&a->connection)};
    tool_feature_args_init_alter(&a->args, is, a->options);
    memcpy(a->options + TOOL_FEATURE_OPTION_COUNT, connection, sizeof(connection));
    const struct cli_usage usage = {
        .program = ALTER_COMMAND,
        .synopsis = "NAME [options]",
        .summary = "Alters a table or variable while it serves, on all cores at once. Options that are not\n"
                   "given stay as they are. Learning rate and schedule, the optimizer's arguments, weight\n"
                   "decay, clipping, limits and the arguments of admission and eviction can be altered;\n"
                   "others are refused with the reason. Prints the options as they are then.\n"
                   "\n"
                   "  millrace ctl alter user --learning-rate 0.01 --capacity-rows 50000000",
        CLI_OPTIONS(a->options),
        .words_min = 1,
        .words_max = 1,
    };
    (void)cli_parse(&usage, argc, argv, &name);
    return name;
}

/* Copies the feature of that name to `out`; false when there is none. */
static bool find_feature(struct mr_client *client, const char *name, struct mr_feature *out,
                         enum mr_status *status)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    bool is_found = false;
    *status = mr_list(client, NULL, &infos, &count);
    for (uint32_t i = 0; *status == MR_OK && i < count && !is_found; i++) {
        is_found = strcmp(infos[i].feature.name, name) == 0;
        *out = infos[i].feature;
    }
    free(infos);
    return is_found;
}

/* The command line is read twice: for the server to ask, and for what is to differ from its answer. */
int tool_ctl_alter(int argc, char **argv)
{
    struct alter_options a = {.connection = {0}};
    struct mr_feature is = mr_feature_table("", 1), after = is;
    char error[256], options[TOOL_FEATURE_OPTIONS_BYTES];
    const char *name = parse_alter(&a, &is, argc, argv);
    struct mr_client *client;
    enum mr_status status;
    int exit_code = tool_connect(ALTER_COMMAND, &a.connection, &client);
    if (exit_code != 0)
        return exit_code;
    if (!find_feature(client, name, &is, &status)) {
        exit_code = status != MR_OK
                        ? tool_call_failed(ALTER_COMMAND, status)
                        : cli_fail(ALTER_COMMAND,
                                   "there is no table or variable named %s; millrace ctl list shows "
                                   "what there is",
                                   name);
        mr_client_destroy(client);
        return exit_code;
    }
    (void)parse_alter(&a, &is, argc, argv);
    if (!tool_feature_args_finish_alter(&a.args, &after, error, sizeof(error))) {
        mr_client_destroy(client);
        cli_refuse(ALTER_COMMAND, "%s", error);
    }
    status = mr_alter(client, NULL, &is, &after);
    tool_feature_options(&after, options, sizeof(options));
    json_t *altered = json_pack("{s:s, s:s}", "name", name, "options", options);
    return tool_ctl_end(ALTER_COMMAND, &a.connection, client, status, altered, "%s: %s\n", name, options);
}

int tool_ctl_drop(int argc, char **argv)
{
    static const char command[] = "millrace ctl drop";
    struct tool_connection c = {0};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "NAME.. [options]",
        .summary =
            "Drops tables, variables and parameters of remote calls, all or none, with what they have\n"
            "learnt. A restart of the server does not bring tables and variables back; a parameter is\n"
            "gone for good with the next checkpoint. \"millrace ctl restore --table\" brings them back\n"
            "from a checkpoint that has them. For streams of batches, see \"millrace ctl forget-stream\".\n"
            "\n"
            "  millrace ctl drop user_old",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = DROP_MAX,
    };
    const char *names[DROP_MAX];
    const uint32_t count = cli_parse(&usage, argc, argv, names);
    struct mr_client *client;
    int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_drop(client, NULL, names, count);
    return tool_ctl_end(command, &c, client, status, json_pack("{s:I}", "dropped", (json_int_t)count),
                        "dropped: %" PRIu32 "\n", count);
}

int tool_ctl_freeze(int argc, char **argv)
{
    static const char command[] = "millrace ctl freeze";
    static const char *const levels[] = {"off", "admit", "all"};
    struct tool_connection c = {0};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "off|admit|all [options]",
        .summary = "Limits what clients may change. With admit, no new rows are made. With all, the server\n"
                   "is read only, for evaluation and serving. off lifts these limits.\n"
                   "\n"
                   "  millrace ctl freeze all",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *word;
    uint32_t level = 0;
    (void)cli_parse(&usage, argc, argv, &word);
    while (level < 3 && strcmp(word, levels[level]) != 0)
        level++;
    if (level == 3)
        cli_refuse(command, "the level must be off, admit or all, not \"%s\"", word);
    struct mr_client *client;
    int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_freeze(client, NULL, level);
    return tool_ctl_end(command, &c, client, status, json_pack("{s:s}", "level", word), "freeze: %s\n", word);
}

static json_t *info_json(const struct mr_feature_info *info)
{
    char options[TOOL_FEATURE_OPTIONS_BYTES];
    const struct mr_feature *f = &info->feature;
    json_t *all = tool_feature_json(f);
    tool_feature_options(f, options, sizeof(options));
    json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "id", (json_int_t)info->id, "rows",
                             (json_int_t)info->rows, "bytes", (json_int_t)info->bytes, "rows_refused",
                             (json_int_t)info->rows_refused, "gradients_without_row",
                             (json_int_t)info->gradients_without_row, "gradients_skipped",
                             (json_int_t)info->gradients_skipped, "options", options);
    (void)json_object_update(all, more);
    json_decref(more);
    return all;
}

static int print_infos(const struct tool_query *q, const struct mr_feature_info *infos, uint32_t count)
{
    if (q->json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(list, info_json(&infos[i]));
        return tool_print_json(q->command, list);
    }
    (void)printf("%5s  %-24s %-24s %12s %14s %10s %10s %10s  %s\n", "id", "name", "shape", "rows", "bytes",
                 "refused", "no row", "skipped", "options");
    for (uint32_t i = 0; i < count; i++) {
        char shape[64], options[TOOL_FEATURE_OPTIONS_BYTES];
        tool_feature_shape(&infos[i].feature, shape, sizeof(shape));
        tool_feature_options(&infos[i].feature, options, sizeof(options));
        (void)printf("%5" PRIu32 "  %-24.63s %-24s %12" PRIu64 " %14" PRIu64 " %10" PRIu64 " %10" PRIu64
                     " %10" PRIu64 "  %s\n",
                     infos[i].id, infos[i].feature.name, shape, infos[i].rows, infos[i].bytes,
                     infos[i].rows_refused, infos[i].gradients_without_row, infos[i].gradients_skipped,
                     options);
    }
    return 0;
}

static void print_if_absent(void *arg, const struct mr_cluster_member *node)
{
    (void)arg;
    if (!node->is_present && node->partitions > 0)
        (void)printf("without the rows of %s, which is away\n", node->name);
}

int tool_ctl_list(const struct tool_query *q)
{
    uint32_t count = 0;
    struct mr_feature_info *infos = NULL;
    enum mr_status status = mr_list(q->client, NULL, &infos, &count);
    if (status != MR_OK)
        return tool_call_failed(q->command, status);
    int exit_code = print_infos(q, infos, count);
    free(infos);
    struct mr_cluster_state cluster;
    status =
        exit_code == 0 && !q->json ? mr_cluster(q->client, NULL, &cluster, print_if_absent, NULL) : MR_OK;
    return status == MR_OK ? exit_code : tool_call_failed(q->command, status);
}
