/* millrace ctl streams, forget-stream. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "millrace_admin.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

#define FORGET_MAX  256u
#define PLAN_BYTES  49u /* 3 words in hexadecimal, and a NUL */
#define STREAM_LAST 65535u

static const char *plan_text(const struct mr_stream *s, char text[PLAN_BYTES])
{
    const uint64_t *p = s->plan;
    if (s->differs)
        return "(cores differ)";
    if (p[0] == 0 && p[1] == 0 && p[2] == 0)
        return "-";
    if (p[0] == UINT64_MAX && p[1] == UINT64_MAX && p[2] == UINT64_MAX)
        return "(unknown)";
    (void)snprintf(text, PLAN_BYTES, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, p[0], p[1], p[2]);
    return text;
}

static int print_streams(const struct tool_query *q, const struct mr_stream *streams, uint32_t count)
{
    char plan[PLAN_BYTES];
    if (q->json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(
                list,
                json_pack("{s:I, s:I, s:I, s:I, s:s}", "stream", (json_int_t)streams[i].stream, "applied",
                          (json_int_t)streams[i].applied, "twice", (json_int_t)streams[i].twice, "used",
                          (json_int_t)streams[i].used, "plan", plan_text(&streams[i], plan)));
        return tool_print_json(q->command, list);
    }
    (void)printf("%6s %12s %6s %10s  %s\n", "stream", "applied", "twice", "used", "plan");
    for (uint32_t i = 0; i < count; i++)
        (void)printf("%6" PRIu32 " %12" PRIu64 " %6" PRIu64 " %10" PRIu64 "  %s\n", streams[i].stream,
                     streams[i].applied, streams[i].twice, streams[i].used, plan_text(&streams[i], plan));
    return 0;
}

int tool_ctl_streams(const struct tool_query *q)
{
    struct mr_stream *streams;
    uint32_t count;
    enum mr_status status = mr_streams(q->client, NULL, &streams, &count);
    if (status != MR_OK)
        return tool_call_failed(q->command, status);
    int exit_code = print_streams(q, streams, count);
    free(streams);
    return exit_code;
}

int tool_ctl_forget_stream(int argc, char **argv)
{
    static const char command[] = "millrace ctl forget-stream";
    struct tool_connection c = {0};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "NUMBER.. [options]",
        .summary = "Drops the record of these streams. Their plans must not continue: a plan without a\n"
                   "record is trained on from its start again. A stream of which the server still keeps\n"
                   "batches is refused. \"millrace ctl streams\" shows the numbers.\n"
                   "\n"
                   "  millrace ctl forget-stream 3 4",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = FORGET_MAX,
    };
    const char *words[FORGET_MAX];
    uint32_t numbers[FORGET_MAX], count;
    count = cli_parse(&usage, argc, argv, words);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number;
        if (!cli_u64(words[i], STREAM_LAST, &number))
            cli_refuse(command, "a stream is a number from 0 to 65535, not \"%s\"", words[i]);
        numbers[i] = (uint32_t)number;
    }
    struct mr_client *client;
    int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_forget_streams(client, NULL, numbers, count);
    return tool_ctl_end(command, &c, client, status, json_pack("{s:I}", "forgotten", (json_int_t)count),
                        "forgotten: %" PRIu32 "\n", count);
}
