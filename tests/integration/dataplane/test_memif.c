/* Two DPDK processes and shared memory between them: a server that offers the socket, a load that connects to
 * it. */
#include <stdio.h>
#include <string.h>
#include "tests/integration/dataplane/echo_fixture.h"
#include "tests/test.h"

static const char *load_path;

/* The load ends badly when one of its calls does. */
static void run_load(struct echo_fixture *f, const char *options, const char *only, uint32_t cores)
{
    struct netns_process load;
    char arguments[192], socket[96], count[16];
    netns_create(&f->net, &(struct netns_options){.no_veth = true});
    snprintf(socket, sizeof(socket), "%s/memif.sock", f->net.directory);
    snprintf(arguments, sizeof(arguments), "--driver memif --device %s --idle-us 0 --cores %u %s", socket,
             cores, options);
    snprintf(count, sizeof(count), "%u", cores);
    echo_fixture_spawn(f, arguments);
    assert_non_null(strstr(f->server.line, "driver=memif"));
    assert_non_null(strstr(f->server.line, "segment_bytes=8896")); /* of a packet of 9000 bytes */
    char server[] = NETNS_SERVER_IPV4 ":7700";
    char *argv[] = {(char *)load_path, "--socket",  socket, "--server", server, "--only",
                    (char *)only,      "--seconds", "1",    "--cores",  count,  NULL};
    netns_spawn(&f->net, NETNS_CLIENT, argv, &load);
    assert_true(netns_wait_line(&load, "memif_echo", ECHO_READY_MS));
    assert_int_equal(netns_end(&load, 0), 0);
    echo_fixture_stop(f, cores);
}

TEST(serves_over_memif)
{
    struct echo_fixture f;
    run_load(&f, "", "echo", 1);
    assert_int_equal(echo_fixture_counter(&f, 0, "wire.sessions_accepted"), 4);
    assert_true(echo_fixture_counter(&f, 0, "wire.calls_served") > 4);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.rx_malformed"), 0);
}

/* Packets go without a UDP checksum here: what is damaged is found by its tag. */
TEST(damage_over_memif_is_found_by_the_tag)
{
    struct echo_fixture f;
    run_load(&f, "--fault-loss-ppm 5000 --fault-corrupt-ppm 20000", "echo", 1);
    assert_true(echo_fixture_counter(&f, 0, "port.fault_lost") > 0);
    assert_true(echo_fixture_counter(&f, 0, "port.fault_corrupted") > 0);
    assert_true(echo_fixture_counter(&f, 0, "wire.drop_tag") > 0);
    assert_true(echo_fixture_counter(&f, 0, "wire.calls_served") > 4);
}

/* One core receives for all. Each of the others keeps some of the buffers that it is done with for its next
 * packets, and here has none to send. */
TEST(buffers_that_cores_keep_do_not_run_out)
{
    struct echo_fixture f;
    run_load(&f, "", "noise", ECHO_CORES_MAX);
    for (uint32_t core = 0; core < ECHO_CORES_MAX; core++)
        assert_true(echo_fixture_counter(&f, core, "wire.drop_magic") > 400);
    assert_true(echo_fixture_counter(&f, 0, "wire.calls_served") > 4);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_memif <path of echo_server> <path of memif_load>\n");
        return 2;
    }
    echo_fixture_server = argv[1];
    load_path = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
