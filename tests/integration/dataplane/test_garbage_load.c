/* A real node over memif while garbage comes at full speed: it says nothing on the wire and little in its
 * log, and counts every packet under its reason (which the load itself checks). */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jansson.h>
#include "dataplane/wire/format/drop_causes.h"
#include "tests/integration/netns.h"
#include "tests/test.h"

enum { READY_MS = 60000, LOAD_MS = 60000, PACKETS = 300000, PATH_BYTES = 128 };

static char *millraced, *load_path;

static void start_node(struct netns *net, const char *log, struct netns_process *node)
{
    char command[512];
    char *argv[] = {"/bin/sh", "-c", command, NULL};
    snprintf(command, sizeof(command),
             "exec %s --config /dev/null --set node.name=garbage --set port.driver=memif "
             "--set port.device=%s/memif.sock --set port.ipv4=" NETNS_SERVER_IPV4
             "/24 --set cores.poll_mode=adaptive --set cores.adaptive_idle_us=0 --set memory.hugepages=never "
             "--set memory.packets_mib=128 --set memory.limit_mib=128 --set batches.memory_mib=16 2>%s",
             millraced, net->directory, log);
    netns_spawn(net, NETNS_SERVER, argv, node);
    if (!netns_wait_line(node, "millraced: ready", READY_MS))
        fail_msg("the node does not start; see %s", log);
}

static off_t size_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

/* What the log has gained: a line for each counter of dropped packets at most (ps/server/drop_log.h). */
static void check_lines_since(const char *path, off_t bytes)
{
    char line[4096];
    uint32_t lines = 0;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fseeko(f, bytes, SEEK_SET), 0);
    for (; fgets(line, sizeof(line), f) != NULL; lines++)
        if (strstr(line, " rose by ") == NULL)
            fail_msg("%s", line);
    (void)fclose(f);
    assert_int_in_range(lines, 0, mr_drop_cause_count);
}

TEST(garbage_at_full_speed_has_few_lines)
{
    char log[PATH_BYTES], socket[PATH_BYTES], packets[16];
    struct netns net;
    struct netns_process node, load;
    json_error_t error;
    netns_create(&net, &(struct netns_options){.no_veth = true});
    snprintf(log, sizeof(log), "%s/log", net.directory);
    snprintf(socket, sizeof(socket), "%s/memif.sock", net.directory);
    snprintf(packets, sizeof(packets), "%d", PACKETS);
    start_node(&net, log, &node);

    off_t log_bytes = size_of(log);
    char server[] = NETNS_SERVER_IPV4 ":7700";
    char *argv[] = {load_path, "--socket",  socket, "--server", server, "--packets",
                    packets,   "--seconds", "0.2",  "--json",   NULL};

    netns_spawn(&net, NETNS_CLIENT, argv, &load);
    assert_true(netns_wait_line(&load, "garbage", LOAD_MS));
    json_t *row = json_loads(load.line, 0, &error);
    assert_non_null(row);
    assert_true(json_number_value(json_object_get(row, "calls_per_s")) > 0);
    assert_true(json_number_value(json_object_get(row, "garbage_per_s")) > 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(row, "dropped_by_reason"), "wire.drop_tag")),
        PACKETS / 5);
    json_decref(row);
    assert_int_equal(netns_end(&load, 0), 0);
    check_lines_since(log, log_bytes);
    assert_int_equal(netns_end(&node, SIGTERM), 0);
    netns_destroy(&net);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_garbage_load MILLRACED GARBAGE_LOAD\n");
        return 2;
    }
    millraced = argv[1];
    load_path = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
