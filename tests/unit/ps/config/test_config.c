/* The configuration: the printed default is the shipped file, and every mistake is reported with its place
 * and how to fix it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ps/config/config.h"
#include "ps/config/config_rules.h"
#include "ps/config/config_table.h"
#include "tests/test.h"

#define FILE_BYTES_MAX 65536

static char path[] = "/tmp/millrace-config-XXXXXX";

static int make_path(void **state)
{
    int fd = mkstemp(path);
    *state = path;
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    return unlink(*state);
}

/* Loads a file with this text. */
static enum mr_status config_load(const char *text, struct ps_config *config, char *error)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
    return ps_config_load(path, config, error);
}

/* The file is refused, the error names line `line` and contains `what`, and nothing is changed. */
static void refused(const char *text, uint32_t line, const char *what)
{
    struct ps_config config, before;
    char error[PS_CONFIG_ERROR_BYTES], place[64];
    ps_config_default(&config);
    before = config;
    assert_int_equal(config_load(text, &config, error), MR_INVALID_ARGUMENT);
    snprintf(place, sizeof(place), "%s:%u: ", path, line);
    if (strncmp(error, place, strlen(place)) != 0 || strstr(error, what) == NULL)
        fail_msg("\"%s\" does not start with \"%s\" or does not contain \"%s\"", error, place, what);
    assert_memory_equal(&config, &before, sizeof(config));
}

TEST(shipped_file_is_the_printed_one)
{
    static char shipped[FILE_BYTES_MAX], printed[FILE_BYTES_MAX];
    FILE *f = fopen(MILLRACED_CONF, "r");
    assert_non_null(f);
    size_t bytes = fread(shipped, 1, sizeof(shipped) - 1, f);
    fclose(f);
    f = fmemopen(printed, sizeof(printed), "w");
    ps_config_print(f);
    fclose(f);
    assert_true(bytes > 1000);
    assert_string_equal(shipped, printed);
}

TEST(shipped_file_holds_the_defaults)
{
    struct ps_config defaults, config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&defaults);
    ps_config_default(&config);
    config.port_udp_port = 1;
    config.batches_ttl_ms = 1;
    assert_int_equal(ps_config_load(MILLRACED_CONF, &config, error), MR_OK);
    assert_memory_equal(&config, &defaults, offsetof(struct ps_config, path));
}

TEST(demo_file_is_good)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(ps_config_load(DEMO_CONF, &config, error), MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_OK);
}

/* "Every key commented where it stands." */
TEST(every_key_of_the_demo_file_is_commented)
{
    char line[512], before[512] = "";
    uint32_t keys = 0;
    FILE *f = fopen(DEMO_CONF, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strchr(line, '=') != NULL && line[0] != '#') {
            keys++;
            if (before[0] != '#')
                fail_msg("no comment above %s", line);
        }
        snprintf(before, sizeof(before), "%s", line);
    }
    fclose(f);
    assert_true(keys > 10);
}

TEST(reads_every_type)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(config_load("; a comment\n"
                                 "[port]\n"
                                 "\tdevice = mr0   ; a comment behind a value\n"
                                 "  driver=af_packet\n"
                                 "ipv4 : 10.0.0.1/24\n"
                                 "[cores]\n"
                                 "count = 2\n"
                                 "[checkpoint]\n"
                                 "save_on_stop = yes\n",
                                 &config, error),
                     MR_OK);
    assert_string_equal(config.port_device, "mr0");
    assert_int_equal(config.port_driver, 2);
    assert_string_equal(config.port_ipv4, "10.0.0.1/24");
    assert_int_equal(config.cores_count, 2);
    assert_true(config.checkpoint_save_on_stop);
    assert_int_equal(config.port_udp_port, 7700);
}

/* After a value and a space, as where a line begins; a # within a value is part of it. */
TEST(comments_follow_values)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(
        config_load("[checkpoint]\ndirectory = /data/ck # note\nremote = s3://b/x#y\t# more # still\n"
                    "[port]\ndevice = # none\n[cores]\ncount = 3 ; note\ncpus = 1-3 #\n",
                    &config, error),
        MR_OK);
    assert_string_equal(config.checkpoint_directory, "/data/ck");
    assert_string_equal(config.checkpoint_remote, "s3://b/x#y");
    assert_string_equal(config.port_device, "");
    assert_string_equal(config.cores_cpus, "1-3");
    assert_int_equal(config.cores_count, 3);
}

TEST(tells_the_place_of_a_mistake)
{
    refused("[port]\n\ndevcie = mr0\n", 3, "did you mean device in [port]");
    refused("[cores]\ndevice = mr0\n", 2, "did you mean device in [port]");
    refused("[port]\nfoo = 1\n", 2, "[port] has no key \"foo\"; there are driver, device");
    refused("[cores]\nqwertyuiop = 1\n", 2, "there are count, cpus, poll_mode, adaptive_idle_us");
    refused("[prot]\ndevice = mr0\n", 2, "unknown section [prot]; there are [node], [log]");
    refused("count = 1\n", 1, "unknown section []");
    refused("[checkpoint]\ndirectory = s4://bucket/ads\n", 2, "or a URL: hdfs://");
    refused("[checkpoint]\nallow = http://namenode:9870/\n", 2, "or a URL: hdfs://");
    refused("[cores]\ncount = two\n", 2, "cores.count = \"two\": allowed: a whole number from 1 to 64");
    refused("[cores]\ncount = 65\n", 2, "from 1 to 64");
    refused("[cores]\ncount = -1\n", 2, "from 1 to 64");
    refused("[cores]\ncount =\n", 2, "from 1 to 64");
    refused("[cores]\ncount = 99999999999999999999\n", 2, "from 1 to 64");
    refused("[port]\ndriver = dpdk\n", 2, "allowed: auto, af_xdp, af_packet, tap, memif, pci");
    refused("[checkpoint]\nsave_on_stop = true\n", 2, "allowed: no, yes");
    refused("[cores]\ncount = 1\ncount = 2\n", 3, "cores.count is given twice");
    refused("[cores]\ncount\n", 2, "expected [section], key = value");
    refused("[cores\ncount = 1\n", 1, "expected [section]");
    refused("[cores]\ncount = 0\ncount = many\n", 2, "cores.count");
}

TEST(tells_what_text_may_be)
{
    refused("[node]\nname = a b\n", 2, "letters, digits, - and _");
    refused("[node]\nname =\n", 2, "letters");
    refused("[node]\nname = 0123456789012345678901234567890123456789\n", 2, "text of up to 31 bytes");
    refused("[port]\nmac = 02:00:00:00:00\n", 2, "six bytes");
    refused("[port]\nmac = 02:00:00:00:00-01\n", 2, "six bytes");
    refused("[port]\nipv4 = 10.0.0.1\n", 2, "prefix length");
    refused("[port]\nipv4 = 10.0.0.1/33\n", 2, "prefix length");
    refused("[port]\nipv6 = 10.0.0.1/24\n", 2, "fd00::1/64");
    refused("[cores]\ncpus = 1,,2\n", 2, "CPU numbers");
    refused("[cores]\ncpus = 0,0\n", 2, "each once");
    refused("[cores]\ncpus = 0-3,2\n", 2, "each once");
    refused("[port]\nipv4 = 0.0.0.0/0\n", 2, "an address with its prefix length");
    refused("[port]\nipv6 = ::/0\n", 2, "an address with its prefix length");
    refused("[checkpoint]\nrestore = newest\n", 2, "latest, none, or the number");
    refused("[checkpoint]\nrestore = 0\n", 2, "latest, none, or the number");
}

TEST(a_line_that_is_too_long_is_refused)
{
    char text[2000];
    snprintf(text, sizeof(text), "[node]\nkey_file = %01000d\n", 0);
    refused(text, 2, "longer than");
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    snprintf(text, sizeof(text), "# %01000d\n[cores]\ncount = 3\n", 0);
    ps_config_default(&config);
    assert_int_equal(config_load(text, &config, error), MR_OK); /* but not a comment */
    assert_int_equal(config.cores_count, 3);
}

TEST(a_missing_file_is_named)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(ps_config_load("/nonexistent/m.conf", &config, error), MR_IO_ERROR);
    assert_non_null(strstr(error, "/nonexistent/m.conf: No such file"));
    assert_non_null(strstr(error, "--print-config"));
    assert_int_equal(ps_config_load("/tmp", &config, error), MR_IO_ERROR);
    assert_non_null(strstr(error, "/tmp"));
}

TEST(a_key_on_the_command_line)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(ps_config_set(&config, "cores.count=4", error), MR_OK);
    assert_int_equal(config.cores_count, 4);
    assert_int_equal(ps_config_set(&config, "port.device=a=b", error), MR_OK);
    assert_string_equal(config.port_device, "a=b");
    assert_int_equal(ps_config_set(&config, "cores.cout=4", error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "did you mean count"));
    assert_int_equal(ps_config_set(&config, "cores.count=0", error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "from 1 to 64"));
    assert_int_equal(ps_config_set(&config, "count=4", error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "section.key=value"));
    assert_int_equal(ps_config_set(&config, "cores.count", error), MR_INVALID_ARGUMENT);
    assert_int_equal(config.cores_count, 4);
}

/* Nodes call each other under it. */
TEST(the_first_operators_key_is_found)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_string_equal(ps_config_operator_key(&config), "");
    assert_int_equal(ps_config_set(&config, "node.key=trainer:/t.key", error), MR_OK);
    assert_null(ps_config_operator_key(&config));
    assert_int_equal(ps_config_set(&config, "node.key=operator:/o.key", error), MR_OK);
    assert_int_equal(ps_config_set(&config, "node.key=operator:/p.key", error), MR_OK);
    assert_string_equal(ps_config_operator_key(&config), "/o.key");
    assert_int_equal(ps_config_set(&config, "node.key_file=/all.key", error), MR_OK);
    assert_string_equal(ps_config_operator_key(&config), "/all.key");
}

static void check_fails(void (*change)(struct ps_config *config), const char *what)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    snprintf(config.port_device, sizeof(config.port_device), "mr0");
    assert_int_equal(ps_config_check(&config, error), MR_OK);
    change(&config);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, what));
}

static void no_device(struct ps_config *c)
{
    c->port_device[0] = '\0';
}

TEST(sockets_need_no_device)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(ps_config_set(&config, "port.driver=socket", error), MR_OK);
    assert_int_equal(config.port_driver, PS_DRIVER_SOCKET);
    assert_int_equal(ps_config_check(&config, error), MR_OK);
}

static void small_mtu(struct ps_config *c)
{
    c->port_mtu = 1279;
}

static void few_cpus(struct ps_config *c)
{
    c->cores_count = 4;
    snprintf(c->cores_cpus, sizeof(c->cores_cpus), "1-3");
}

static void batches_over_limit(struct ps_config *c)
{
    c->batches_memory_mib = c->memory_limit_mib;
}

static void little_per_core(struct ps_config *c)
{
    c->cores_count = 64;
    c->memory_limit_mib = 4000;
}

static void little_for_messages(struct ps_config *c)
{
    c->memory_messages_mib = 100;
}

static void next_key_alone(struct ps_config *c)
{
    snprintf(c->node_key_file_next, sizeof(c->node_key_file_next), "k");
}

static void little_for_long_messages(struct ps_config *c)
{
    c->rpc_long_memory_mib = 100;
}

static void small_messages_of_workers(struct ps_config *c)
{
    c->rpc_world_size = 2;
    c->transport_message_mib_max = 7;
}

/* A limit that is set alone is enough: defaults that do not fit it give way, and values that were given do
 * not. */
TEST(defaults_follow_what_is_set)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    assert_int_equal(
        config_load("[port]\ndevice = mr0\n[memory]\nlimit_mib = 256\nmessages_mib = 32\n", &config, error),
        MR_OK);
    ps_config_settle(&config);
    assert_int_equal(config.batches_memory_mib, 64);
    assert_int_equal(config.transport_message_mib_max, 16);
    assert_int_equal(ps_config_check(&config, error), MR_OK);
    assert_int_equal(ps_config_set(&config, "batches.memory_mib=300", error), MR_OK);
    ps_config_settle(&config);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    assert_string_equal(
        error, "--set: batches.memory_mib (300) is a part of memory.limit_mib (256) and must be smaller");
    assert_int_equal(ps_config_set(&config, "batches.memory_mib=200", error), MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(
        error, "64 MiB for each core (cores.count = 1) and batches.memory_mib (200) make 264 at least"));
    ps_config_default(&config);
    ps_config_settle(&config);
    assert_int_equal(config.batches_memory_mib, 1024);
    assert_int_equal(config.transport_message_mib_max, 64);
}

/* The worker of a cluster's node has the node's name, unless it is given another one. */
/* Puts `line` in place of the line of a key in a printed file. */
static void replace_line(char *file, size_t file_bytes, const char *section, const char *key,
                         const char *line)
{
    static char rest[FILE_BYTES_MAX];
    char name[64];
    snprintf(name, sizeof(name), "\n[%s]\n", section);
    char *at = strstr(file, name);
    assert_non_null(at);
    snprintf(name, sizeof(name), "\n%s = ", key);
    at = strstr(at, name);
    assert_non_null(at);
    snprintf(rest, sizeof(rest), "%s", strchr(at + 1, '\n'));
    snprintf(at + 1, file_bytes - (size_t)(at + 1 - file), "%s%s", line, rest);
}

/* Who edits one key of the printed file gets what somebody gets whose file has only that key. */
TEST(a_printed_default_does_not_hold_back_what_follows)
{
    static char printed[FILE_BYTES_MAX];
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    FILE *f = fmemopen(printed, sizeof(printed), "w");
    ps_config_print(f);
    fclose(f);
    assert_non_null(strstr(printed, "\n#memory_mib = 1024\n"));
    assert_non_null(strstr(printed, "\n#message_mib_max = 64\n"));
    replace_line(printed, sizeof(printed), "memory", "limit_mib", "limit_mib = 256");
    replace_line(printed, sizeof(printed), "memory", "messages_mib", "messages_mib = 32");
    replace_line(printed, sizeof(printed), "port", "driver", "driver = socket");
    ps_config_default(&config);
    assert_int_equal(config_load(printed, &config, error), MR_OK);
    ps_config_settle(&config);
    assert_int_equal(config.batches_memory_mib, 64);
    assert_int_equal(config.transport_message_mib_max, 16);
    assert_int_equal(ps_config_check(&config, error), MR_OK);
}

/* Any value that settling changes is of a key that is printed as a comment. */
TEST(all_that_follows_is_known_as_such)
{
    struct ps_config config, settled;
    char error[PS_CONFIG_ERROR_BYTES];
    uint32_t changed = 0;
    ps_config_default(&config);
    assert_int_equal(ps_config_set(&config, "memory.limit_mib=64", error), MR_OK);
    assert_int_equal(ps_config_set(&config, "memory.messages_mib=16", error), MR_OK);
    settled = config;
    ps_config_settle(&settled);
    for (uint32_t i = 0; i < PS_CONFIG_KEY_COUNT; i++) {
        const struct ps_config_key *key = &ps_config_keys[i];
        const size_t at = key->offset;
        if (memcmp((uint8_t *)&config + at, (uint8_t *)&settled + at, key->bytes) == 0)
            continue;
        changed++;
        if (!ps_config_follows(key))
            fail_msg("%s.%s has no PS_FOLLOWS", key->section, key->name);
    }
    assert_int_equal(changed, 2);
}

TEST(workers_of_a_cluster_have_their_nodes_names)
{
    static const char cluster[] = "[port]\ndevice = mr0\nipv4 = 10.0.0.1/24\nipv4_gateway = 10.0.0.254\n"
                                  "[cluster]\nname = c\nzookeeper = z:2181\n%s[rpc]\nrendezvous = %s\n%s";
    static const struct {
        const char *node, *rendezvous, *rpc, *name;
    } cases[] = {{"node = c-1\n", "[fd00::1]:7700", "world_size = 2\nrank = 1\n", "c-1"},
                 {"node = c-1\n", "c-1:7700", "world_size = 2\nname = w\n", "w"},
                 {"", "10.0.0.1:7700", "world_size = 2\n", NULL}};
    char text[512], error[PS_CONFIG_ERROR_BYTES], host[256] = "";
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ps_config config;
        ps_config_default(&config);
        snprintf(text, sizeof(text), cluster, cases[i].node, cases[i].rendezvous, cases[i].rpc);
        assert_int_equal(config_load(text, &config, error), MR_OK);
        ps_config_settle(&config);
        assert_int_equal(ps_config_check(&config, error), MR_OK);
        if (cases[i].name != NULL)
            assert_string_equal(config.rpc_name, cases[i].name);
        else
            assert_memory_equal(config.rpc_name, host, strnlen(config.rpc_name, sizeof(config.rpc_name)));
        assert_string_equal(config.rpc_rendezvous, cases[i].rendezvous);
    }
}

TEST(keys_are_checked_against_each_other)
{
    check_fails(no_device, "port.device");
    check_fails(small_mtu, "port.mtu");
    check_fails(few_cpus, "cores.cpus");
    check_fails(batches_over_limit, "batches.memory_mib");
    check_fails(little_per_core, "memory.limit_mib");
    check_fails(little_for_messages, "memory.messages_mib");
    check_fails(next_key_alone, "node.key_file");
    check_fails(little_for_long_messages, "rpc.long_memory_mib");
    check_fails(small_messages_of_workers, "transport.message_mib_max");
}

/* The file is good by itself, and its keys do not fit together. */
TEST(places_of_keys_that_do_not_fit)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES], place[128];
    ps_config_default(&config);
    assert_int_equal(config_load("[port]\ndevice = mr0\n[cores]\ncount = 4\n", &config, error), MR_OK);
    assert_int_equal(ps_config_set(&config, "cores.cpus=1-3", error), MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    assert_memory_equal(error, "--set: cores.cpus", 17);

    ps_config_default(&config);
    assert_int_equal(config_load("[port]\ndevice = mr0\n[memory]\n\nlimit_mib = 256\n", &config, error),
                     MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    snprintf(place, sizeof(place), "%s:5: batches.memory_mib", path); /* which has its default */
    assert_memory_equal(error, place, strlen(place));

    ps_config_default(&config);
    assert_int_equal(config_load("[cores]\ncount = 4\n", &config, error), MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    snprintf(place, sizeof(place), "%s: port.device is not set", path);
    assert_memory_equal(error, place, strlen(place));
}

/* ---- a key that may be given several times ---- */

TEST(a_list_is_read)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES], place[PS_CONFIG_PLACE_BYTES], expected[PS_CONFIG_PLACE_BYTES];
    ps_config_default(&config);
    assert_int_equal(config.rpc_module.count, 0);
    assert_int_equal(config_load("[rpc]\nmodule = /a.so x=1 y\n\nmodule =\nmodule = b.so\n", &config, error),
                     MR_OK);
    assert_int_equal(config.rpc_module.count, 2);
    assert_string_equal(config.rpc_module.values[0], "/a.so x=1 y");
    assert_string_equal(config.rpc_module.values[1], "b.so");
    assert_int_equal(config.rpc_module.lines[0], 2);
    assert_int_equal(config.rpc_module.lines[1], 5);
    ps_config_place(&config, config.rpc_module.lines[1], place, sizeof(place));
    snprintf(expected, sizeof(expected), "%s:5", path);
    assert_string_equal(place, expected);

    /* The command line's come in the place of the file's. */
    assert_int_equal(ps_config_set(&config, "rpc.module=c.so", error), MR_OK);
    assert_int_equal(ps_config_set(&config, "rpc.module=d.so", error), MR_OK);
    assert_int_equal(config.rpc_module.count, 2);
    assert_string_equal(config.rpc_module.values[0], "c.so");
    assert_string_equal(config.rpc_module.values[1], "d.so");
    ps_config_place(&config, config.rpc_module.lines[0], place, sizeof(place));
    assert_string_equal(place, "--set");
    ps_config_default(&config);
    assert_int_equal(config_load("[rpc]\nmodule = /a.so\n", &config, error), MR_OK);
    assert_int_equal(ps_config_set(&config, "rpc.module=", error), MR_OK);
    assert_int_equal(config.rpc_module.count, 0);
}

static void add_line(char *text, size_t bytes)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "module = m.so\n");
}

TEST(a_list_has_an_end)
{
    char text[1024] = "[rpc]\n";
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    for (uint32_t i = 0; i < PS_CONFIG_LIST_MAX; i++)
        add_line(text, sizeof(text));
    ps_config_default(&config);
    assert_int_equal(config_load(text, &config, error), MR_OK);
    add_line(text, sizeof(text));
    refused(text, 2 + PS_CONFIG_LIST_MAX,
            "rpc.module = \"m.so\": allowed: 16 times, text of up to 383 bytes");
}

static void refused_together(const char *text, uint32_t line, const char *what)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES], place[128];
    ps_config_default(&config);
    snprintf(config.port_device, sizeof(config.port_device), "mr0");
    assert_int_equal(config_load(text, &config, error), MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_INVALID_ARGUMENT);
    snprintf(place, sizeof(place), "%s:%u: ", path, line);
    if (strncmp(error, place, strlen(place)) != 0 || strstr(error, what) == NULL)
        fail_msg("\"%s\" does not start with \"%s\" or does not contain \"%s\"", error, place, what);
}

TEST(keys_of_stores_are_checked_against_each_other)
{
    refused_together("[checkpoint]\nremote = s3://b/ads\n", 2, "checkpoint.directory: set it");
    refused_together("[checkpoint]\nremote = s3://b/ads\ndirectory = s3://b/ads\n", 2, "in a store already");
    refused_together("[checkpoint]\ndirectory = /ckpt\n\ndurable = remote\n", 4, "checkpoint.remote: set it");
    refused_together("[checkpoint]\ndurability = log\n", 2, "set checkpoint.directory to a directory there");
    refused_together("[checkpoint]\ndirectory = s3://b/ads\ndurability = log\n", 3, "a disk of this machine");
    refused_together(
        "[checkpoint]\ndirectory = /ckpt\ndurability = log\n[cluster]\nname = ads\nzookeeper = z:1\n", 3,
        "is for a node by itself");
}

TEST(keys_of_clusters_are_checked_against_each_other)
{
    refused_together("[cluster]\nzookeeper = zk1:2181\n", 2, "cluster.name is not set");
    refused_together("[cluster]\n\nnode = a\n", 3, "cluster.name is not set");
    refused_together("[cluster]\ninit_from = /c/CLUSTER-1\n", 2, "cluster.name is not set");
    refused_together("[cluster]\nname = ads\n", 2, "name the servers there, as zk1:2181,zk2:2181");
    refused_together("[cluster]\nname = ads\nzookeeper = zk1:2181\n", 2, "set it, or port.ipv4");
    refused_together(
        "[checkpoint]\nserve = /c/ckpt-1\n[cluster]\nname = ads\nzookeeper = zk1:2181\naddress = a:1\n", 2,
        "leave out cluster.name");
    refused_together("[cluster]\nname = ads\nzookeeper = z:1\naddress = a:1\ncopies = sync\n", 5,
                     "set cluster.replication = 2");
    refused("[cluster]\ncopies = later\n", 2, "async, sync");
    refused("[cluster]\nname = a/b\n", 2, "letters, digits, -, _ and .");
    refused("[cluster]\nnode = ..\n", 2, "letters, digits, -, _ and ., not first");
    refused("[cluster]\nzookeeper = zk1\n", 2, "hosts with their ports, as zk1:2181,zk2:2181");
    refused("[cluster]\nzookeeper = zk1:2181,\n", 2, "hosts with their ports");
    refused("[cluster]\nzookeeper = zk1:2181, zk2:2181\n", 2, "hosts with their ports");
    static const char *const no_checkpoints[] = {
        "/c",         "/c/ckpt",       "/c/ckpt-", "/c/ckpt-07",
        "/c/xckpt-7", "/c/CLUSTER-7x", "CLUSTER",  "s3://b/ads?x=/ckpt-7"};
    for (size_t i = 0; i < sizeof(no_checkpoints) / sizeof(*no_checkpoints); i++) {
        char line[80];
        snprintf(line, sizeof(line), "[cluster]\ninit_from = %s\n", no_checkpoints[i]);
        refused(line, 2, "one checkpoint of a directory or URL, as DIR/CLUSTER-7 or DIR/ckpt-7");
    }
    refused("[cluster]\ninit_from = ftp://h/ckpt-7\n", 2, "hdfs://, webhdfs://");
    assert_null(ps_rule_checkpoint("/c/CLUSTER-7"));
    assert_null(ps_rule_checkpoint("ckpt-12/"));
    assert_null(ps_rule_checkpoint("s3://b/ads/CLUSTER-10?region=r"));
    refused("[cluster]\naddress = node1:0\n", 2, "a host with its port, as node1:7700");
    refused("[cluster]\naddress = 0.0.0.0:7700\n", 2, "0.0.0.0 and [::] are none");
    refused("[cluster]\naddress = [::]:7700\n", 2, "0.0.0.0 and [::] are none");
    refused("[cluster]\naddress = [0::0]:7700\n", 2, "0.0.0.0 and [::] are none");
    refused("[rpc]\nrendezvous = 0.0.0.0:7700\n", 2, "0.0.0.0 and [::] are none");
    refused("[cluster]\naddress = :7700\n", 2, "a host with its port");
    refused("[cluster]\naddress = []:7700\n", 2, "a host with its port");
    refused("[cluster]\naddress = a:7700,b:7700\n", 2, "a host with its port");
    refused("[cluster]\nnodes = 257\n", 2, "a whole number from 1 to 256");
}

TEST(a_member_of_a_cluster)
{
    struct ps_config config;
    char error[PS_CONFIG_ERROR_BYTES];
    ps_config_default(&config);
    snprintf(config.port_device, sizeof(config.port_device), "mr0");
    assert_int_equal(
        config_load("[cluster]\nname = ads-1.eu\nzookeeper = 10.0.0.1:2181,[fd00::1]:2181,zk3:2181\n"
                    "address = [fd00::7]:7700\n",
                    &config, error),
        MR_OK);
    assert_int_equal(ps_config_check(&config, error), MR_OK);
    assert_string_equal(config.cluster_zookeeper, "10.0.0.1:2181,[fd00::1]:2181,zk3:2181");
    assert_int_equal(config.cluster_session_ms, 10000);
}

TEST(keys_of_rpc_are_checked_against_each_other)
{
    refused_together("[rpc]\nname = a\n", 2, "rpc.world_size is 0");
    refused_together("[rpc]\n\nmodule = a.so\n", 3, "rpc.world_size is 0");
    refused_together("[rpc]\nworld_size = 2\nname = a\nrank = 2\n", 4,
                     "rpc.rank must be 0 to rpc.world_size - 1");
    refused_together("[rpc]\nworld_size = 2\nrank = 1\n", 3, "only with a name: give it one with rpc.name");
    refused_together("[rpc]\nworld_size = 2\nmodule = a.so\n", 3, "give it a name with rpc.name");
    refused_together("[rpc]\nworld_size = 2\nrendezvous = 10.0.0.2:7700\n", 3,
                     "is one of them: give it a name");
    refused_together(
        "[cluster]\nname = c\nzookeeper = z:1\naddress = n:1\n[rpc]\nworld_size = 2\nname = a\n", 6,
        "rpc.rendezvous: the nodes of a cluster are workers of one world: name the node where they meet");
    refused("[rpc]\nrendezvous = 10.0.0.2\n", 2, "a host with its port, as node1:7700");
    refused("[rpc]\nrendezvous = 10.0.0.2:0\n", 2, "a host with its port");
    refused("[rpc]\nrendezvous = fd00::1:7700\n", 2, "a host with its port");
    refused("[port]\nipv4_gateway = 10.0.0.1/24\n", 2, "an IPv4 address as 10.0.0.254");
    refused("[port]\nipv6_gateway = 10.0.0.1\n", 2, "an IPv6 address as fd00::ff");
    refused("[rpc]\nthreads = 0\n", 2, "a whole number from 1 to 256");
    refused("[rpc]\nmodul = a.so\n", 2, "did you mean module in [rpc]");
}

TEST(lists_of_cpus)
{
    int cpus[4];
    assert_int_equal(ps_cpus_parse("", cpus, 4), 0);
    assert_int_equal(ps_cpus_parse("7,2-4", cpus, 4), 4);
    assert_int_equal(cpus[0], 7);
    assert_int_equal(cpus[1], 2);
    assert_int_equal(cpus[3], 4);
    assert_int_equal(ps_cpus_parse("0-4", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("1,2,3,4,5", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("3-2", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("1,", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("-1", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("1-", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("1 2", cpus, 4), -1);
    assert_int_equal(ps_cpus_parse("4096", cpus, 4), -1);
}

int main(void)
{
    return tests_run(make_path, remove_path);
}
