#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define PORT 7700

const char *node_fixture_server;

/* The directory of the running test: a test that fails does not come to its end. */
static char leftover[NODE_PATH_BYTES];

static void remove_leftover(void)
{
    char command[NODE_PATH_BYTES + 16];
    if (leftover[0] == '\0')
        return;
    snprintf(command, sizeof(command), "rm -rf %s", leftover);
    if (system(command) == 0)
        leftover[0] = '\0';
}

bool node_fixture_arguments(int argc, char **argv, uint32_t *cores)
{
    if (argc != 3 || (*cores = (uint32_t)strtoul(argv[2], NULL, 10)) == 0) {
        fprintf(stderr, "usage: %s MILLRACED CORES\n", program_invocation_short_name);
        return false;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return true;
}

static void make_directory(struct node_fixture *f)
{
    static bool at_exit;
    if (!at_exit)
        at_exit = atexit(remove_leftover) == 0;
    remove_leftover();
    snprintf(f->directory, sizeof(f->directory), "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    memcpy(leftover, f->directory, sizeof(leftover));
}

/* The port's driver: the first that opens, or the one that the environment names, as where there is no port
 * for DPDK. */
static const char *port_driver(void)
{
    const char *driver = getenv("MILLRACE_DRIVER");
    return driver != NULL && *driver != '\0' ? driver : "auto";
}

bool node_fixture_on_sockets(void)
{
    return strcmp(port_driver(), "socket") == 0;
}

static void write_config(struct node_fixture *f, uint32_t cores)
{
    FILE *file = fopen(f->config, "w");
    assert_non_null(file);
    fprintf(file,
            "[node]\nname = %s\n"
            "[port]\ndriver = %s\ndevice = %s\nipv4 = %s/24\nipv6 = %s/64\nudp_port = %d\n"
            "[cores]\ncount = %u\npoll_mode = adaptive\nadaptive_idle_us = 50\n"
            "[memory]\nhugepages = never\npackets_mib = 128\nlimit_mib = 256\nmessages_mib = 64\n"
            "[transport]\nmessage_mib_max = 16\n"
            "[batches]\nmemory_mib = 64\ncount_max = 8\n"
            "[checkpoint]\ndirectory = %s\nallow = %s\nevery_s = 0\nsave_on_stop = no\n",
            strrchr(f->directory, '/') + 1, port_driver(), NETNS_SERVER_IF, NETNS_SERVER_IPV4,
            NETNS_SERVER_IPV6, PORT, cores, f->checkpoints, f->directory);
    assert_int_equal(fclose(file), 0);
}

void node_fixture_launch(struct node_fixture *f)
{
    char *argv[4 + 2 * NODE_SETTINGS_MAX] = {(char *)node_fixture_server, "--config", f->config};
    int argc = 3;
    for (uint32_t i = 0; f->settings[i] != NULL; i++) {
        argv[argc++] = "--set";
        argv[argc++] = (char *)f->settings[i];
    }
    netns_spawn(&f->net, NETNS_SERVER, argv, &f->server);
}

static void run_server(struct node_fixture *f)
{
    node_fixture_launch(f);
    assert_true(netns_wait_line(&f->server, "millraced: ready", NODE_READY_MS));
}

void node_fixture_start_over(struct node_fixture *f, const struct netns_options *cable, uint32_t cores,
                             const char *const *settings)
{
    memset(f, 0, sizeof(*f));
    make_directory(f);
    snprintf(f->checkpoints, sizeof(f->checkpoints), "%.40s/ckpt", f->directory);
    snprintf(f->config, sizeof(f->config), "%.40s/node.conf", f->directory);
    snprintf(f->address, sizeof(f->address), "%s:%d", NETNS_SERVER_IPV4, PORT);
    for (uint32_t i = 0; settings != NULL && settings[i] != NULL && i < NODE_SETTINGS_MAX; i++)
        f->settings[i] = settings[i];
    write_config(f, cores);
    struct netns_options options = *cable;
    options.server_kernel = options.server_kernel || node_fixture_on_sockets();
    netns_create(&f->net, &options);
    run_server(f);
    netns_enter(&f->net, NETNS_CLIENT);
}

void node_fixture_start(struct node_fixture *f, uint32_t cores, const char *const *settings)
{
    struct netns_options cable = {.mtu = 0};
    node_fixture_start_over(f, &cable, cores, settings);
}

void node_fixture_kill(struct node_fixture *f)
{
    assert_int_equal(netns_end(&f->server, SIGKILL), 128 + SIGKILL);
}

void node_fixture_restart(struct node_fixture *f)
{
    run_server(f);
}

void node_fixture_restart_with(struct node_fixture *f, uint32_t cores)
{
    write_config(f, cores);
    run_server(f);
}

void node_fixture_stop(struct node_fixture *f)
{
    netns_leave(&f->net);
    assert_int_equal(netns_end(&f->server, SIGTERM), 0);
    netns_destroy(&f->net);
    remove_leftover();
}

struct mr_client *node_fixture_connect(const struct node_fixture *f)
{
    struct mr_client_options options = {
        .server = f->address, .connect_ms = NODE_READY_MS, .deadline_ms = NODE_READY_MS};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

struct mr_checkpoint_info node_fixture_wait_saved(struct mr_client *client)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    enum mr_status asked;
    WAIT_UNTIL((asked = mr_checkpoint_info(client, NULL, 0, &status, NULL, NULL)) != MR_OK ||
               status.state == MR_CHECKPOINT_IDLE);
    if (asked != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_int_not_equal(status.last_good_id, 0);
    return status;
}

uint64_t node_fixture_save(struct mr_client *client)
{
    uint64_t id;
    if (save_into(client, NULL, NULL, &id) != MR_OK)
        fail_msg("%s", mr_last_error());
    struct mr_checkpoint_info status = node_fixture_wait_saved(client);
    assert_int_equal(status.last_status, MR_OK);
    assert_int_equal(status.last_good_id, id);
    return id;
}

struct search {
    const char *name;
    uint64_t value;
    bool found;
};

static void compare(void *arg, const char *name, uint64_t value)
{
    struct search *search = arg;
    if (strcmp(name, search->name) == 0) {
        search->value = value;
        search->found = true;
    }
}

uint64_t node_fixture_counter(struct mr_client *client, uint32_t core, const char *name)
{
    struct search search = {.name = name};
    assert_int_equal(mr_stats(client, NULL, core, compare, &search), MR_OK);
    if (!search.found)
        fail_msg("no counter %s", name);
    return search.value;
}

uint64_t node_fixture_sum(struct mr_client *client, const char *name)
{
    uint64_t sum = 0;
    for (uint32_t core = 0; core < mr_client_core_count(client); core++)
        sum += node_fixture_counter(client, core, name);
    return sum;
}

void node_fixture_refused(enum mr_status got, enum mr_status expected, const char *says)
{
    if (got != expected)
        fail_msg("%s, not %s: %s", mr_status_name(got), mr_status_name(expected), mr_last_error());
    assert_says(mr_last_error(), says);
}
