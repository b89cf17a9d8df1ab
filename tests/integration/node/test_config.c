/* millraced refuses to start with one line that says what is wrong, where, and how to fix it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tests/integration/program.h"
#include "tests/test.h"

#define NODE_READY_MS 60000
#define EXIT_RUN      1 /* the configuration is good, and the server cannot start with it */
#define EXIT_USAGE    2
#define CASE(list)    list, sizeof(list) / sizeof *(list)

struct refusal {
    const char *text; /* of the configuration file, or more arguments */
    const char *says;
};

static const char *millraced;
static struct netns net;
static char config[128];

static int set_up(void **state)
{
    netns_create(&net, NULL);
    snprintf(config, sizeof(config), "%s/node.conf", net.directory);
    return 0;
}

static int tear_down(void **state)
{
    netns_destroy(&net);
    return 0;
}

static void write_config(const char *text)
{
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* What the program says in its own name; lines of the log begin with a date. */
static uint32_t error_lines(const struct program_result *result)
{
    uint32_t lines = 0;
    for (const char *line = result->err; line != NULL && *line != '\0';) {
        lines += strncmp(line, "millraced: ", 11) == 0;
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return lines;
}

static void expect_one_line(const struct program_result *result, int code, const char *says)
{
    program_expect(result, code, says);
    if (error_lines(result) != 1)
        fail_msg("more than one line:\n%s", result->err);
    assert_null(strstr(result->out, "ready"));
}

/* A file of which no line is wrong but those of the case. */
TEST(test_files, set_up, tear_down)
{
    static const struct refusal cases[] = {
        {"[node]\nname = a\nnmae = b\n", "node.conf:3: [node] has no key \"nmae\"; did you mean name"},
        {"[nodes]\nname = a\n", "node.conf:2: unknown section [nodes]; there are [node]"},
        {"[cores]\ncount = many\n",
         "node.conf:2: cores.count = \"many\": allowed: a whole number from 1 to 64"},
        {"[cores]\n\ncount = 65\n",
         "node.conf:3: cores.count = \"65\": allowed: a whole number from 1 to 64"},
        {"[cores]\npoll_mode = lazy\n", "node.conf:2: cores.poll_mode = \"lazy\": allowed: busy, adaptive"},
        {"[checkpoint]\nsave_on_stop = 1.5\n",
         "node.conf:2: checkpoint.save_on_stop = \"1.5\": allowed: no, yes"},
        {"[cores]\ncount = 1\ncount = 2\n", "node.conf:3: cores.count is given twice"},
        {"[cores]\ncount\n", "node.conf:2: expected [section], key = value"},
        {"[port]\nipv4 = 10.0.0.1\n",
         "node.conf:2: port.ipv4 = \"10.0.0.1\": allowed: empty, or an address with"},
        {"[node]\nname = a\n", "port.device is not set: name a PCI address"},
    };
    struct program_result result;
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        write_config(cases[i].text);
        program_run(&net, NETNS_SERVER, &result, "%s --config %s", millraced, config);
        expect_one_line(&result, EXIT_USAGE, cases[i].says);
        program_run(&net, NETNS_SERVER, &result, "%s --check-config %s", millraced, config);
        expect_one_line(&result, EXIT_USAGE, cases[i].says);
    }
}

static void refuse(const struct refusal *cases, size_t count, int code)
{
    struct program_result result;
    for (size_t i = 0; i < count; i++) {
        program_run(&net, NETNS_SERVER, &result, "%s %s", millraced, cases[i].text);
        program_expect(&result, code, cases[i].says);
    }
}

TEST(test_arguments, set_up, tear_down)
{
    static const struct refusal cases[] = {
        {"", "--config FILE is missing; see millraced --help"},
        {"--config /nowhere/node.conf",
         "/nowhere/node.conf: No such file or directory; millraced --print-config"},
        {"--config /dev/null --frobnicate", "--frobnicate"},
        {"--config /dev/null --set cores.count", "--set cores.count: expected section.key=value"},
        {"--config /dev/null --set cores.cuont=1", "[cores] has no key \"cuont\"; did you mean count"},
        {"--config /dev/null --set cores.count=0",
         "--set cores.count=0: allowed: a whole number from 1 to 64"},
        {"--check-config /dev/null --set port.device=eth0 --set cores.cpus=4095",
         "--set: cores.cpus: this process may not run on CPU 4095, but on"},
        {"--config /dev/null --restore soon", "--restore: latest, none, or the number of a checkpoint"},
        {"--config /dev/null --config /dev/null", "--config is given twice"},
        {"--config /dev/null more", "unexpected argument \"more\""},
    };
    refuse(CASE(cases), EXIT_USAGE);
}

/* A node that would start, if it were not for what the case adds. */
static void write_good_config(void)
{
    char text[512];
    snprintf(text, sizeof(text),
             "[node]\nname = config-%d\n[port]\ndevice = %s\nipv4 = %s/24\n[cores]\npoll_mode = adaptive\n"
             "[memory]\nhugepages = never\npackets_mib = 64\nlimit_mib = 128\nmessages_mib = 16\n"
             "[transport]\nmessage_mib_max = 4\n[batches]\nmemory_mib = 16\n"
             "[checkpoint]\ndirectory = %s/checkpoints\n",
             (int)getpid(), NETNS_SERVER_IF, NETNS_SERVER_IPV4, net.directory);
    write_config(text);
}

static void expect_refused_with(const char *options, const char *says)
{
    struct program_result result;
    program_run(&net, NETNS_SERVER, &result, "%s --config %s %s", millraced, config, options);
    expect_one_line(&result, EXIT_RUN, says);
}

TEST(test_starts, set_up, tear_down)
{
    struct program_result result;
    write_good_config();
    expect_refused_with("--set port.driver=af_packet --set port.device=nowhere0",
                        "there is no network interface \"nowhere0\" here; \"ip link\" lists them");
    expect_refused_with("--set port.driver=af_xdp --set port.device=nowhere0", "\"nowhere0\"");
    expect_refused_with("--set port.driver=pci --set port.device=ff:1F.7",
                        "there is no PCI device 0000:ff:1f.7 here");
    expect_refused_with("--set port.driver=pci --set port.device=nowhere0",
                        "driver = pci needs a PCI address such as 0000:3b:00.0, not \"nowhere0\"");
    expect_refused_with("--set port.driver=memif --set port.device=/nowhere/memif.sock",
                        "socket path in a directory that can be written");
    expect_refused_with("--set node.key_file=/nowhere/key",
                        "make one with: (umask 077; openssl rand -hex 32");
    expect_refused_with("--set node.key_file=/dev/null", "/dev/null");
    expect_refused_with("--set memory.hugepages=always --set memory.packets_mib=65536",
                        "hugepages = always, but of the 65536 MiB wanted only");
    expect_refused_with("--restore 7", "there is no such checkpoint");
    expect_refused_with("--set checkpoint.directory=/proc/nowhere/ckpt --restore 7", "/proc/nowhere/ckpt");
    program_run(&net, NETNS_SERVER, &result,
                "bash -o pipefail -c 'prlimit --fsize=0 -- %s --config %s --set port.driver=socket "
                "--set port.ipv4= --set checkpoint.directory=%s/limited 2>&1 | cat >&2'",
                millraced, config, net.directory);
    expect_one_line(&result, EXIT_RUN, "raise the limit on file sizes (ulimit -f)");
    program_run(&net, NETNS_SERVER, &result, "unshare -m sh -c 'umount -l /sys; exec %s --config %s'",
                millraced, config);
    expect_one_line(&result, EXIT_RUN, "DPDK finds the processors there: mount -t sysfs");
    program_run(&net, NETNS_SERVER, &result, "%s --check-config %s", millraced, config);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "node.conf: ok"));
}

/* Root without any capability. */
TEST(test_no_permission, set_up, tear_down)
{
    struct program_result result;
    write_good_config();
    program_run(&net, NETNS_SERVER, &result,
                "setpriv --bounding-set=-all --inh-caps=-all --no-new-privs %s --config %s --set "
                "port.driver=af_packet",
                millraced, config);
    expect_one_line(&result, EXIT_RUN, "CAP_NET_");
}

/* The printed file, on a machine with little memory. */
static void expect_starts_small(void)
{
    char *argv[] = {(char *)millraced,
                    "--config",
                    config,
                    "--set",
                    "port.driver=socket",
                    "--set",
                    "port.ipv4=127.0.0.1/8",
                    "--set",
                    "memory.limit_mib=128",
                    "--set",
                    "memory.messages_mib=32",
                    "--set",
                    "memory.packets_mib=64",
                    NULL};
    struct netns_process node;
    assert_int_equal(netns_run(&net, NETNS_SERVER, "ip link set lo up"), 0);
    netns_spawn(&net, NETNS_SERVER, argv, &node);
    assert_true(netns_wait_line(&node, "ready", NODE_READY_MS));
    assert_int_equal(netns_end(&node, SIGTERM), 0);
}

TEST(test_what_it_prints, set_up, tear_down)
{
    struct program_result result;
    FILE *file;
    program_run(&net, NETNS_SERVER, &result, "%s --print-config", millraced);
    assert_int_equal(result.code, 0);
    file = fopen(config, "w");
    assert_non_null(file);
    assert_true(fputs(result.out, file) >= 0);
    assert_int_equal(fclose(file), 0);
    /* It is a good configuration but for the port. */
    program_run(&net, NETNS_SERVER, &result,
                "%s --check-config %s --set port.device=eth0 --set port.ipv4=10.0.0.1/8", millraced, config);
    assert_int_equal(result.code, 0);
    /* What follows from other keys is not in it, so it fits a smaller machine. */
    program_run(&net, NETNS_SERVER, &result,
                "%s --check-config %s --set port.device=eth0 --set port.ipv4=10.0.0.1/8 "
                "--set memory.limit_mib=512 --set memory.messages_mib=64",
                millraced, config);
    assert_int_equal(result.code, 0);
    expect_starts_small();
    program_run(&net, NETNS_SERVER, &result, "%s --help", millraced);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "usage: millraced"));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_config MILLRACED\n");
        return 2;
    }
    millraced = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
