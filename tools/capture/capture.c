/* millrace capture: the packets of a server's port, in a file for Wireshark. */
#include <jansson.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/plural.h"
#include "millrace_observe.h"
#include "tools/capture/capture_cores.h"
#include "tools/capture/capture_files.h"
#include "tools/commands.h"
#include "tools/connection.h"

#define OPS_MAX      64
#define ALL_CORES    UINT32_MAX
#define PAUSE_US     5000u  /* between two reads, while little comes */
#define FULL_BYTES   32768u /* left to read: at once */
#define PROGRESS_US  200000u
#define FILTER_BYTES 512
#define FILE_MIB_MAX (1u << 20)
#define RING_MIB_MAX 256u
#define SECONDS_MAX  (366 * 86400)
#define SNAP_MIN     64
#define SNAP_MAX     16384

static const char command[] = "millrace capture";
static atomic_bool stop_requested; /* any thread may get the signal */

struct arguments {
    struct tool_connection connection;
    const char *output, *client;
    struct cli_list ops;
    uint32_t snap, core, file_mib, files, ring_mib;
    uint64_t count;
    float seconds;
};

struct capture {
    const struct arguments *arguments;
    struct capture_cores cores;
    struct capture_files files;
    uint64_t written[MR_CLIENT_CORES_MAX]; /* packets, of each core */
    uint64_t packets;
    bool has_failed; /* a file */
    bool is_terminal;
    char filter[FILTER_BYTES];
    char error[CAPTURE_ERROR_BYTES];
};

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop_requested, true);
}

static bool is_stopped(void)
{
    return atomic_load(&stop_requested);
}

/* ---- the file ---- */

static void name_core(const struct capture_core *core, char *name, size_t bytes)
{
    const char *node = core->place.node;
    (void)snprintf(name, bytes, "%s%score %u", node, node[0] != '\0' ? " " : "", core->place.core);
}

static void begin_file(void *arg, struct pcapng *out)
{
    const struct capture *c = arg;
    const struct mr_capture_state *first = &c->cores.list[0].start;
    char program[128], name[MR_NODE_NAME_BYTES + 32];
    (void)snprintf(program, sizeof(program), "millrace capture %s of %s", MR_VERSION, first->program);
    pcapng_add_section(
        out, &(struct pcapng_section){
                 .hardware = first->machine, .system = first->system, .program = program, .comment = NULL});
    for (uint32_t i = 0; i < c->cores.count; i++) {
        const struct capture_core *core = &c->cores.list[i];
        name_core(core, name, sizeof(name));
        pcapng_add_interface(out, &(struct pcapng_interface){.link_type = (uint16_t)core->start.link_type,
                                                             .snap_bytes = core->start.snap_bytes,
                                                             .name = name,
                                                             .description = core->start.port,
                                                             .filter = c->filter});
    }
}

static void end_file(void *arg, struct pcapng *out)
{
    const struct capture *c = arg;
    for (uint32_t i = 0; i < c->cores.count; i++) {
        const struct capture_core *core = &c->cores.list[i];
        pcapng_add_statistics(out, &(struct pcapng_statistics){.interface = i,
                                                               .start_ns = c->cores.start_ns,
                                                               .end_ns = c->cores.end_ns,
                                                               .received = core->now.seen,
                                                               .lost = core->now.lost,
                                                               .wanted = core->now.wanted,
                                                               .written = c->written[i]});
    }
}

static bool is_full(const struct capture *c)
{
    return c->arguments->count != 0 && c->packets >= c->arguments->count;
}

static void take_packet(void *arg, const struct capture_core *core, const struct mr_captured *packet)
{
    struct capture *c = arg;
    const struct pcapng_packet block = {.interface = core->index,
                                        .time_ns = packet->time_ns,
                                        .bytes = packet->bytes,
                                        .captured_bytes = packet->captured_bytes,
                                        .packet_bytes = packet->packet_bytes,
                                        .lost = packet->lost,
                                        .is_sent = packet->is_sent};
    if (c->has_failed || is_full(c))
        return;
    c->has_failed = !capture_files_add(&c->files, &block, c->error);
    c->written[core->index]++;
    c->packets++;
}

/* ---- its course ---- */

static uint64_t lost(const struct capture *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->cores.count; i++)
        sum += c->cores.list[i].now.lost;
    return sum;
}

static void show_progress(const struct capture *c, uint64_t *next_us)
{
    const uint64_t now_us = mr_clock_us();
    if (!c->is_terminal || now_us < *next_us)
        return;
    *next_us = now_us + PROGRESS_US;
    (void)fprintf(stderr, "\r%llu packet%s, %llu lost ", (unsigned long long)c->packets,
                  mr_plural(c->packets), (unsigned long long)lost(c));
}

static void pause_a_little(void)
{
    const struct timespec pause = mr_span_us(PAUSE_US);
    (void)nanosleep(&pause, NULL);
}

/* Reads until the end that was asked for. */
static enum mr_status follow(struct capture *c)
{
    const float seconds = c->arguments->seconds;
    const uint64_t end_us = seconds > 0 ? mr_clock_us() + (uint64_t)((double)seconds * 1e6) : UINT64_MAX;
    uint64_t left_bytes, next_us = 0;
    enum mr_status status = MR_OK;
    while (!atomic_load(&stop_requested) && !is_full(c) && !c->has_failed && mr_clock_us() < end_us) {
        status = capture_cores_read(&c->cores, false, &left_bytes);
        if (status != MR_OK)
            break;
        c->has_failed = c->has_failed || !capture_files_flush(&c->files, c->error);
        show_progress(c, &next_us);
        if (left_bytes < FULL_BYTES)
            pause_a_little();
    }
    return status;
}

/* Reads what the cores have recorded by now. */
static enum mr_status capture_finish(struct capture *c)
{
    uint64_t left_bytes;
    enum mr_status status;
    do
        status = capture_cores_read(&c->cores, true, &left_bytes);
    while (status == MR_OK && left_bytes > 0 && !is_full(c) && !c->has_failed);
    return status;
}

static int print_summary(const struct capture *c)
{
    const struct arguments *a = c->arguments;
    FILE *out = strcmp(a->output, "-") == 0 ? stderr : stdout;
    char last[4096] = "";
    if (a->connection.json && out == stdout)
        return tool_print_json(command, json_pack("{s:s, s:I, s:I, s:I}", "file", a->output, "files",
                                                  (json_int_t)c->files.number, "packets",
                                                  (json_int_t)c->packets, "lost", (json_int_t)lost(c)));
    if (a->file_mib != 0)
        capture_file_name(a->output, c->files.number, last, sizeof(last));
    (void)fprintf(out, "%llu packet%s in %s%s, %llu lost\n", (unsigned long long)c->packets,
                  mr_plural(c->packets), a->file_mib != 0 ? "files up to " : "",
                  a->file_mib != 0 ? last : a->output, (unsigned long long)lost(c));
    return fflush(out) == 0 ? 0 : cli_fail(command, "the output could not be written");
}

/* The file is whole in any case. */
static int capture_end(struct capture *c, enum mr_status status)
{
    char why[CAPTURE_ERROR_BYTES];
    (void)snprintf(why, sizeof(why), "%s", mr_last_error());
    c->has_failed |= !capture_files_close(&c->files, c->error);
    if (c->is_terminal)
        (void)fputc('\n', stderr);
    if (c->has_failed)
        return cli_fail(command, "%s", c->error);
    if (status == MR_CANCELLED && atomic_load(&stop_requested))
        (void)cli_fail(command, "the server is silent: what it captured last is missing");
    else if (status != MR_OK)
        (void)cli_fail(command, "%s", why);
    const int exit_code = print_summary(c);
    return status != MR_OK ? CLI_EXIT_FAILED : exit_code;
}

static int capture_run(struct capture *c)
{
    enum mr_status status = MR_OK;
    if (!capture_files_open(&c->files, c->error)) {
        capture_cores_end(&c->cores);
        (void)capture_files_close(&c->files, c->error);
        return cli_fail(command, "%s", c->error);
    }
    status = follow(c);
    if (status == MR_OK)
        status = capture_finish(c);
    const int exit_code = capture_end(c, status);
    capture_cores_end(&c->cores);
    return exit_code;
}

/* ---- what is captured ---- */

static void name_holder(char who[96])
{
    const struct passwd *user = getpwuid(geteuid());
    char host[48] = "";
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(who, 96, "%.24s@%s (process %d)", user != NULL ? user->pw_name : "somebody", host,
                   (int)getpid());
}

static void describe_filter(const struct arguments *a, char text[FILTER_BYTES])
{
    int at = a->client != NULL ? snprintf(text, FILTER_BYTES, "client %s", a->client) : 0;
    for (uint32_t i = 0; i < a->ops.count && at < FILTER_BYTES; i++)
        at += snprintf(text + at, FILTER_BYTES - (size_t)at, "%sop %s", at > 0 ? ", " : "", a->ops.items[i]);
}

static int capture(const struct arguments *a, struct mr_client *client)
{
    static struct capture c;
    char who[96];
    name_holder(who);
    const struct mr_capture_request request = {.who = who,
                                               .peer = a->client,
                                               .ops = a->ops.items,
                                               .op_count = a->ops.count,
                                               .snap_bytes = a->snap,
                                               .ring_kib = a->ring_mib << 10};
    c = (struct capture){
        .arguments = a,
        .cores = {.visit = take_packet, .arg = &c, .is_stopped = is_stopped},
        .files = {.path = a->output,
                  .file_bytes = a->file_mib * MR_MIB,
                  .files_max = a->files,
                  .begin = begin_file,
                  .end = end_file,
                  .arg = &c},
        .is_terminal = isatty(STDERR_FILENO) == 1,
    };
    describe_filter(a, c.filter);
    const enum mr_status status = capture_cores_start(&c.cores, client, a->core, &request);
    const int exit_code = status == MR_OK ? capture_run(&c) : tool_call_failed(command, status);
    capture_cores_free(&c.cores);
    return exit_code;
}

/* ---- the command line ---- */

static void capture_check(const struct arguments *a)
{
    if (a->output == NULL || a->output[0] == '\0')
        cli_refuse(command, "--output is missing; name a file, or - for standard output");
    if (a->files != 0 && a->file_mib == 0)
        cli_refuse(command, "--files is the number of files that are kept, each as long as --file-mib says");
    if (a->file_mib != 0 && strcmp(a->output, "-") == 0)
        cli_refuse(command, "--file-mib makes files; --output - is none");
}

static void catch_signals(void)
{
    const struct sigaction end = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGINT, &end, NULL);
    (void)sigaction(SIGTERM, &end, NULL);
    (void)sigaction(SIGHUP, &end, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
}

int tool_capture(int argc, char **argv)
{
    const char *ops[OPS_MAX];
    struct arguments a = {.core = ALL_CORES, .ops = {.items = ops, .items_max = OPS_MAX}};
    struct mr_client *client;
    const struct cli_option options[] = {
        {"output", CLI_STRING, &a.output, "FILE", "the pcapng file to write; -: standard output"},
        {"client", CLI_STRING, &a.client, "ADDRESS[:PORT]", "only packets from and to that client"},
        {"op", CLI_LIST, &a.ops, "NAME",
         "only packets of calls of this operation: lookup, push_grad, ...; may be given\nmore than once"},
        {"snap", CLI_U32_IN(SNAP_MIN, SNAP_MAX), &a.snap, "BYTES", "bytes kept of each packet; default 512"},
        {"core", CLI_U32, &a.core, "N", "only this core; default: all"},
        {"seconds", CLI_FLOAT_IN(0.001, SECONDS_MAX), &a.seconds, "N", "end after so many seconds"},
        {"count", CLI_U64, &a.count, "N", "end after so many packets"},
        {"file-mib", CLI_U32_IN(1, FILE_MIB_MAX), &a.file_mib, "N",
         "begin another file when one has so many MiB: FILE-00001, ..."},
        {"files", CLI_U32_IN(1, FILE_MIB_MAX), &a.files, "K", "keep only the last K files"},
        {"ring-mib", CLI_U32_IN(1, RING_MIB_MAX), &a.ring_mib, "N",
         "memory of each core for packets that have not been read yet; default 8"},
        TOOL_CONNECTION_OPTIONS(&a.connection),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "--output FILE [options]",
        .summary =
            "Writes the packets that a server's cores receive and send to a pcapng file, until Ctrl-C or\n"
            "the end that the options name, while the server goes on. The packets are fetched from the\n"
            "server, which needs the role operator; those of this program are left out. What a core\n"
            "records faster than it is fetched is lost, and counted in the file. Wireshark and tshark\n"
            "show the protocol with the dissector millrace.lua. From version 4.4 on they run it for root\n"
            "only from Wireshark's own folder of plug-ins (see the manual page).\n"
            "\n"
            "  millrace capture --output x.pcapng --op lookup --seconds 10 --server 10.0.0.1:7700",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    capture_check(&a);
    catch_signals();
    const int failed = tool_connect(command, &a.connection, &client);
    if (failed != 0)
        return failed;
    const int exit_code = capture(&a, client);
    mr_client_destroy(client);
    return exit_code;
}
