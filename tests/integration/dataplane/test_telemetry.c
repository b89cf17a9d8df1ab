/* The counters over DPDK's telemetry socket, as dpdk-telemetry.py asks for them. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <jansson.h>
#include "dataplane/dataplane.h"
#include "tests/integration/dataplane/echo_fixture.h"
#include "tests/test.h"

#define ANSWER_BYTES 16384

static int telemetry_connect(const struct echo_fixture *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    char greeting[ANSWER_BYTES];
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/dpdk/millrace-test-%d/dpdk_telemetry.v2",
             f->net.directory, (int)f->server.pid);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_true(read(fd, greeting, sizeof(greeting)) > 0);
    return fd;
}

/* What the server answers to `command`, without the object around it that names the command. */
static json_t *telemetry_ask(int fd, const char *command)
{
    char answer[ANSWER_BYTES], name[64];
    json_error_t error;
    assert_int_equal(write(fd, command, strlen(command)), strlen(command));
    ssize_t bytes = read(fd, answer, sizeof(answer));
    assert_true(bytes > 0);
    json_t *root = json_loadb(answer, (size_t)bytes, 0, &error);
    assert_non_null(root);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(command, ","), command);
    json_t *value = json_incref(json_object_get(root, name));
    json_decref(root);
    return value;
}

static void check_counters(json_t *counters)
{
    const json_t *port = json_object_get(counters, "port"), *wire = json_object_get(counters, "wire");

#define CHECK(name, kind, unit, help) assert_true(json_is_integer(json_object_get(port, #name)));
    DP_COUNTER_LIST(CHECK)
#undef CHECK
#define CHECK(name, kind, unit, help) assert_true(json_is_integer(json_object_get(wire, #name)));
    MR_WIRE_COUNTER_LIST(CHECK)
#undef CHECK
    json_decref(counters);
}

TEST(every_counter_of_every_core_is_served)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver af_xdp --cores 2 --idle-us 0");
    assert_int_equal(
        netns_run(&f.net, NETNS_CLIENT, "ping -c 2 -i 0.05 -W 10 " NETNS_SERVER_IPV4 " >/dev/null"), 0);
    int fd = telemetry_connect(&f);
    json_t *port = telemetry_ask(fd, "/millrace/port");
    assert_string_equal(json_string_value(json_object_get(port, "driver")), "af_xdp");
    assert_string_equal(json_string_value(json_object_get(port, "steering")), "rings");
    assert_string_equal(json_string_value(json_object_get(port, "why")), "1 queue for 2 cores");
    json_decref(port);
    json_t *cores = telemetry_ask(fd, "/millrace/cores");
    assert_int_equal(json_object_size(cores), 2);
    assert_true(json_integer_value(json_object_get(json_object_get(cores, "0"), "rx_frames")) > 0);
    assert_true(json_is_integer(json_object_get(json_object_get(cores, "1"), "busy_ppm")));
    json_decref(cores);
    json_t *first = telemetry_ask(fd, "/millrace/counters,0");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(first, "port"), "rx_icmp")), 2);
    check_counters(first);
    check_counters(telemetry_ask(fd, "/millrace/counters,1"));
    assert_true(json_is_null(telemetry_ask(fd, "/millrace/counters,2")));
    assert_true(json_is_null(telemetry_ask(fd, "/millrace/counters,x")));
    close(fd);
    echo_fixture_stop(&f, 2);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_telemetry <path of echo_server>\n");
        return 2;
    }
    echo_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
