/* millrace ctl status. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/connection.h"
#include "tools/ctl.h"
#include "tools/options.h"

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
