/* `millrace capture` of a real node, over af_packet and over sockets, as tshark with the dissector decodes
 * its * files. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"
#include "tests/unit/tools/capture/tshark.h"
#include "tests/wait.h"

enum { CORES = 2, KEYS = 300, DIM = 8, LOOKUPS = 3, PUSHES = 2, WAIT_MS = 60000, STRANGER = 1 };

static const char *millrace, *dissector;
static bool over_sockets;

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table;
    struct netns_process tool;
    struct program_result result;
    char file[128];
};

/* ---- a node, and calls to it ---- */

static void start_node(struct fixture *x)
{
    static const char *const sockets[] = {"port.driver=socket", NULL};
    const struct netns_options cable = {.server_kernel = over_sockets};
    node_fixture_start_over(&x->node, &cable, CORES, over_sockets ? sockets : NULL);
}

static int set_up(void **state)
{
    static struct fixture x;
    struct mr_feature feature = mr_feature_table("user", DIM);
    memset(&x, 0, sizeof(x));
    start_node(&x);
    x.client = node_fixture_connect(&x.node);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &x.table), MR_OK);
    snprintf(x.file, sizeof(x.file), "%s/x.pcapng", x.node.directory);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

/* A few lookups and pushes; each call is split over both cores. */
static void use_table(struct fixture *x)
{
    uint64_t keys[KEYS];
    static float gradients[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < LOOKUPS; i++)
        assert_int_equal(mr_lookup(x->client, NULL, x->table, keys, KEYS, NULL), MR_OK);
    for (uint32_t i = 0; i < PUSHES; i++)
        assert_int_equal(mr_push_gradients(x->client, NULL, x->table, keys, KEYS, DIM, gradients), MR_OK);
}

/* ---- the tool ---- */

static enum mr_status capture_ask(struct fixture *x, uint32_t core, enum mr_capture_request_kind kind,
                                  uint32_t idle_ms)
{
    const struct mr_capture_request request = {
        .kind = kind, .id = STRANGER, .who = "a test", .idle_ms = idle_ms};
    return mr_capture(x->client, NULL, core, &request, NULL, NULL, NULL);
}

/* A stranger's read is refused by the name of the capture that the core has. */
static uint32_t captured_cores(struct fixture *x)
{
    uint32_t on = 0;
    for (uint32_t core = 0; core < CORES; core++)
        on += capture_ask(x, core, MR_REQUEST_CAPTURE_READ, 0) == MR_ALREADY_STARTED;
    return on;
}

static void wait_captured(struct fixture *x, bool is_on)
{
    WAIT_UNTIL(captured_cores(x) == (is_on ? CORES : 0));
}

static void begin_capture(struct fixture *x, const char *const *options)
{
    char *argv[24] = {(char *)millrace, "capture", "--server", x->node.address, "--output", x->file};
    for (uint32_t i = 0, n = 6; options != NULL && options[i] != NULL; i++)
        argv[n++] = (char *)options[i];
    netns_spawn(&x->node.net, NETNS_CLIENT, argv, &x->tool);
    wait_captured(x, true);
}

static void end_capture(struct fixture *x)
{
    assert_int_equal(netns_end(&x->tool, SIGINT), 0);
}

static void decode(struct fixture *x, const char *file, const char *filter, const char *how)
{
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s -X lua_script:%s -r %s -Y '%s' %s",
                tshark_command(), dissector, file, filter, how);
    if (x->result.code != 0)
        fail_msg("tshark: %s", x->result.err);
}

static uint32_t count_lines(const char *text)
{
    uint32_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

/* Packets of the file that fit a display filter. */
static uint32_t capture_count(struct fixture *x, const char *filter)
{
    decode(x, x->file, filter, "-T fields -e frame.number");
    return count_lines(x->result.out);
}

/* The sum of a field of all packets that fit. */
static uint64_t sum(struct fixture *x, const char *filter, const char *field)
{
    char how[64];
    uint64_t total = 0;
    snprintf(how, sizeof(how), "-T fields -E aggregator=/s -e %s", field);
    decode(x, x->file, filter, how);
    for (char *at = x->result.out; *at != '\0';) {
        char *end;
        total += strtoull(at, &end, 10);
        at = end == at ? at + 1 : end;
    }
    return total;
}

#define WRONG "_ws.malformed || _ws.lua.error || millrace.malformed || (udp && !millrace)"

/* ---- tests ---- */

static void calls_are_decoded(void **state)
{
    struct fixture *x = *state;
    begin_capture(x, NULL);
    use_table(x);
    assert_int_not_equal(mr_lookup(x->client, NULL, 99, &(uint64_t){1}, 1, NULL), MR_OK);
    end_capture(x);

    assert_int_equal(capture_count(x, WRONG), 0);
    /* The tool's own calls are missing; the test's are refused. */
    assert_int_equal(capture_count(x, "millrace.op == 43 && millrace.is_reply == 1 && millrace.status == 0"),
                     0);
    const uint64_t keys = sum(x, "millrace.op == 8 && !millrace.again", "millrace.keys");
    assert_int_in_range(keys, LOOKUPS * KEYS, LOOKUPS * KEYS + 1);
    assert_int_equal(sum(x, "millrace.op == 10 && !millrace.again", "millrace.keys"), PUSHES * KEYS);
    assert_true(capture_count(x, "millrace.is_reply == 1 && millrace.op == 8") >= LOOKUPS * CORES);
    assert_true(capture_count(x, "millrace.request_in") >= (LOOKUPS + PUSHES) * CORES);
    decode(x, x->file, "millrace.op == 10 && millrace.is_reply == 0", "-T fields -e millrace.dims");
    assert_non_null(strstr(x->result.out, ", 8")); /* of the gradients */
    /* Each core has an interface, and both directions. */
    for (uint32_t core = 0; core < CORES; core++) {
        for (uint32_t way = 1; way <= 2; way++) {
            char filter[128];
            snprintf(filter, sizeof(filter),
                     "frame.interface_id == %u && frame.packet_flags_direction == %u && udp.port == %u && "
                     "millrace.op",
                     core, way, 7700 + core);
            assert_true(capture_count(x, filter) > 0);
        }
    }
}

static void a_filter_leaves_only_what_it_names(void **state)
{
    struct fixture *x = *state;
    static const char *const lookups[] = {"--op",   "lookup", "--client", NETNS_CLIENT_IPV4,
                                          "--snap", "128",    NULL};
    begin_capture(x, lookups);
    use_table(x);
    end_capture(x);
    assert_int_equal(capture_count(x, WRONG), 0);
    assert_true(capture_count(x, "millrace.op == 8 && millrace.is_reply == 0") >= LOOKUPS * CORES);
    assert_true(capture_count(x, "millrace.op == 8 && millrace.is_reply == 1") >= LOOKUPS * CORES);
    assert_int_equal(capture_count(x, "millrace.op && !(millrace.op == 8)"), 0);
    assert_int_equal(capture_count(x, "frame.cap_len > 128"), 0);
    assert_true(capture_count(x, "frame.len > 128") > 0);

    static const char *const nobody[] = {"--client", "10.99.0.77", NULL};
    begin_capture(x, nobody);
    use_table(x);
    end_capture(x);
    assert_int_equal(capture_count(x, "frame"), 0);
}

static void the_last_files_are_kept(void **state)
{
    enum { ECHO_BYTES = 64 << 10, ECHOES = 40 };
    struct fixture *x = *state;
    static const char *const options[] = {"--file-mib", "1", "--files", "2", "--snap", "16384", NULL};
    static uint8_t bytes[ECHO_BYTES];
    const struct mr_tensor tensor = mr_tensor_1d(MR_U8, ECHO_BYTES, bytes);
    begin_capture(x, options);
    for (uint32_t i = 0; i < ECHOES; i++)
        assert_int_equal(mr_echo(x->client, NULL, i % CORES, &tensor, 1, NULL), MR_OK);
    end_capture(x);
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "ls %s/x-*.pcapng", x->node.directory);
    assert_int_equal(count_lines(x->result.out), 2);
    assert_null(strstr(x->result.out, "x-00001")); /* 5 MiB went over the wire */
    for (char *file = strtok(x->result.out, "\n"), *next; file != NULL; file = next) {
        static struct program_result read;
        next = strtok(NULL, "\n");
        program_run(&x->node.net, NETNS_CLIENT, &read, "%s -X lua_script:%s -r %s -Y '%s' 2>/dev/null",
                    tshark_command(), dissector, file, WRONG);
        assert_int_equal(read.code, 0);
        assert_int_equal(count_lines(read.out), 0);
    }
}

static void it_ends_after_so_many_packets(void **state)
{
    struct fixture *x = *state;
    static const char *const options[] = {"--count", "5", "--core", "1", "--json", NULL};
    char *argv[] = {(char *)millrace,   "capture",          "--server",
                    x->node.address,    "--output",         x->file,
                    (char *)options[0], (char *)options[1], (char *)options[2],
                    (char *)options[3], (char *)options[4], NULL};
    netns_spawn(&x->node.net, NETNS_CLIENT, argv, &x->tool);
    while (capture_ask(x, 1, MR_REQUEST_CAPTURE_READ, 0) != MR_ALREADY_STARTED) {
    }
    assert_int_equal(capture_ask(x, 0, MR_REQUEST_CAPTURE_READ, 0), MR_INVALID_ARGUMENT);
    use_table(x);
    assert_true(netns_wait_line(&x->tool, "\"packets\": 5", WAIT_MS));
    assert_int_equal(netns_end(&x->tool, 0), 0);
    assert_int_equal(capture_count(x, "frame"), 5);
    assert_int_equal(capture_count(x, "udp.port == 7701"), 5);
}

static void a_second_capture_is_refused_by_the_firsts_name(void **state)
{
    struct fixture *x = *state;
    begin_capture(x, NULL);
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s capture --server %s --output %s/y.pcapng",
                millrace, x->node.address, x->node.directory);
    program_expect(&x->result, 1, "core 0 captures packets for root@");
    assert_int_equal(count_lines(x->result.err), 1);
    assert_int_not_equal(access("y.pcapng", F_OK), 0);
    end_capture(x);
    wait_captured(x, false); /* it has ended with its tool */
}

static void mistakes_are_told_in_a_line(void **state)
{
    struct fixture *x = *state;
    static const struct {
        const char *arguments, *says;
        int code;
    } wrong[] = {
        {"", "--output is missing", 2},
        {"--output x --op looup", "there is no operation \"looup\"", 1},
        {"--output x --client nowhere.invalid", "peer: ", 1},
        {"--output x --files 3", "--file-mib", 2},
        {"--output - --file-mib 3", "--output - is none", 2},
        {"--output x --core 9", "core is 9; the node has 2", 1},
        {"--output /nowhere/x.pcapng", "/nowhere/x.pcapng cannot be made", 1},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s capture --server %s %s", millrace,
                    x->node.address, wrong[i].arguments);
        program_expect(&x->result, wrong[i].code, wrong[i].says);
        assert_int_equal(count_lines(x->result.err), 1);
    }
    wait_captured(x, false);
}

/* Nothing of the capture is left on the node, whatever becomes of the tool. */
static void a_capture_that_nobody_reads_ends(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(capture_ask(x, 0, MR_REQUEST_CAPTURE_START, 200), MR_OK);
    const struct mr_capture_request other = {.kind = MR_REQUEST_CAPTURE_START, .id = 7};
    enum mr_status status;
    while ((status = mr_capture(x->client, NULL, 0, &other, NULL, NULL, NULL)) == MR_ALREADY_STARTED) {
    }
    assert_int_equal(status, MR_OK);
    const struct mr_capture_request end = {.kind = MR_REQUEST_CAPTURE_END, .id = 7};
    assert_int_equal(mr_capture(x->client, NULL, 0, &end, NULL, NULL, NULL), MR_OK);
}

static void a_tool_that_is_killed_leaves_a_whole_file(void **state)
{
    struct fixture *x = *state;
    static const char *const options[] = {"--op", "echo", NULL};
    begin_capture(x, options);
    do {
        assert_int_equal(mr_echo(x->client, NULL, 0, NULL, 0, NULL), MR_OK);
    } while (capture_count(x, "millrace.op == 2") == 0); /* until some of them are in the file */
    assert_int_equal(netns_end(&x->tool, SIGKILL), 128 + SIGKILL);
    assert_true(capture_count(x, "millrace.op == 2") > 0);
    assert_null(strstr(x->result.err, "cut short"));
}

static void a_restart_of_the_server_leaves_a_whole_file(void **state)
{
    struct fixture *x = *state;
    static const char *const options[] = {"--op", "lookup", NULL};
    node_fixture_kill(&x->node); /* with the capture of the test before this one */
    node_fixture_restart(&x->node);
    const struct mr_feature feature = mr_feature_table("user", DIM);
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &x->table), MR_OK);
    begin_capture(x, options);
    do {
        use_table(x);
    } while (capture_count(x, "millrace.op == 8") == 0);
    node_fixture_kill(&x->node);
    node_fixture_restart(&x->node);
    assert_true(netns_wait_line(&x->tool, "packets in", WAIT_MS));
    assert_int_equal(netns_end(&x->tool, 0), 1);
    assert_true(capture_count(x, "millrace.op == 8") > 0);
    assert_null(strstr(x->result.err, "cut short"));
    assert_int_equal(capture_count(x, WRONG), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_decoded),
        cmocka_unit_test(a_filter_leaves_only_what_it_names),
        cmocka_unit_test(the_last_files_are_kept),
        cmocka_unit_test(it_ends_after_so_many_packets),
        cmocka_unit_test(a_second_capture_is_refused_by_the_firsts_name),
        cmocka_unit_test(mistakes_are_told_in_a_line),
        cmocka_unit_test(a_capture_that_nobody_reads_ends),
        cmocka_unit_test(a_tool_that_is_killed_leaves_a_whole_file),
        cmocka_unit_test(a_restart_of_the_server_leaves_a_whole_file),
    };
    const struct CMUnitTest socket_tests[] = {
        cmocka_unit_test(calls_are_decoded),
        cmocka_unit_test(a_filter_leaves_only_what_it_names),
    };
    if (argc != 5) {
        (void)fprintf(stderr, "usage: %s MILLRACED MILLRACE MILLRACE.LUA af_packet|socket\n", argv[0]);
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    dissector = argv[3];
    over_sockets = strcmp(argv[4], "socket") == 0;
    netns_require_root();
    if (system("command -v tshark >/dev/null") != 0) {
        (void)fprintf(stderr, "skipped: tshark is not installed (scripts/setup.sh test)\n");
        return NETNS_SKIP;
    }
    return over_sockets ? cmocka_run_group_tests_name("capture over sockets", socket_tests, set_up, tear_down)
                        : cmocka_run_group_tests_name("capture over af_packet", tests, set_up, tear_down);
}
