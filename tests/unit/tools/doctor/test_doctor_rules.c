#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor_rules.h"
#include "tests/test.h"

static struct doctor_findings findings;

/* A machine that nothing is wrong with. */
static struct doctor_facts good(void)
{
    struct doctor_facts f = {
        .has_proc = true,
        .hugepages_total = 1024,
        .hugepages_free = 1000,
        .hugepage_kib = 2048,
        .node_count = 1,
        .cpu_count = 8,
        .isolated_count = 2,
        .isolated = "6-7",
        .governed_count = 8,
        .nics = {{.name = "ens5", .driver = "ena", .state = "up", .mtu = 9001, .numa_node = 0}},
        .nic_count = 1,
        .rmem_max = 8u << 20,
        .wmem_max = 8u << 20,
        .memory_lock_bytes = UINT64_MAX,
        .capabilities = UINT64_MAX,
        .huge_transparent = "madvise",
        .has_sse42 = true,
        .has_avx2 = true,
        .is_x86 = true,
        .release = "6.1.0",
        .kernel_major = 6,
        .kernel_minor = 1,
        .has_af_xdp = true,
        .has_af_packet = true,
    };
    return f;
}

/* The machine has exactly one thing that is not ok: this check, at this level, with a fix that holds these
 * words. */
static void expect(const struct doctor_facts *f, const char *check, enum doctor_level level, const char *fix)
{
    doctor_judge(f, &findings);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < findings.count; i++) {
        const struct doctor_finding *found = &findings.list[i];
        assert_int_not_equal(found->what[0], '\0');
        if (found->level == DOCTOR_OK) {
            assert_string_equal(found->fix, "");
            continue;
        }
        seen++;
        assert_string_equal(found->check, check);
        assert_int_equal(found->level, level);
        if (!strstr(found->fix, fix))
            fail_msg("%s: \"%s\" does not say \"%s\"", check, found->fix, fix);
    }
    assert_int_equal(seen, 1);
    assert_int_equal(doctor_count(&findings, level), 1);
}

TEST(test_a_good_machine_needs_nothing)
{
    struct doctor_facts f = good();
    doctor_judge(&f, &findings);
    assert_int_equal(doctor_count(&findings, DOCTOR_OK), findings.count);
    assert_true(findings.count >= 12);
}

TEST(test_memory)
{
    struct doctor_facts f = good();
    f.hugepages_total = f.hugepages_free = 0;
    expect(&f, "hugepages", DOCTOR_ADVICE, "sudo sysctl -w vm.nr_hugepages=1024");
    f.hugepage_kib = 1u << 20;
    expect(&f, "hugepages", DOCTOR_ADVICE, "vm.nr_hugepages=2");
    f = good();
    f.hugepages_free = 0;
    expect(&f, "hugepages", DOCTOR_ADVICE, "vm.nr_hugepages=2048");
    f = good();
    f.node_count = 2;
    f.node_hugepages[0] = 1024;
    expect(&f, "numa", DOCTOR_ADVICE,
           "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages");
    f = good();
    memcpy(f.huge_transparent, "never", 6);
    expect(&f, "thp", DOCTOR_ADVICE, "echo madvise");
    f = good();
    f.memory_lock_bytes = 65536;
    f.capabilities = (1u << 12) | (1u << 13);
    expect(&f, "memory lock", DOCTOR_ADVICE, "ulimit -l unlimited");
}

TEST(test_cpus)
{
    struct doctor_facts f = good();
    f.isolated_count = 0;
    expect(&f, "cores", DOCTOR_ADVICE, "isolcpus=6-7 nohz_full=6-7");
    f.cpu_count = 2; /* nothing to isolate */
    doctor_judge(&f, &findings);
    assert_int_equal(doctor_count(&findings, DOCTOR_OK), findings.count);
    f = good();
    f.slow_governor_count = 3;
    memcpy(f.governor, "powersave", 10);
    expect(&f, "governor", DOCTOR_ADVICE, "echo performance");
    f = good();
    f.has_avx2 = false;
    expect(&f, "vectors", DOCTOR_ADVICE, "-cpu host");
    f.has_sse42 = false;
    expect(&f, "vectors", DOCTOR_PROBLEM, "-cpu host");
    f.is_x86 = false;
    doctor_judge(&f, &findings);
    assert_int_equal(doctor_count(&findings, DOCTOR_OK), findings.count);
}

TEST(test_ports)
{
    struct doctor_facts f = good();
    f.has_af_xdp = false;
    expect(&f, "ports", DOCTOR_ADVICE, "linux-image-amd64");
    f.has_af_packet = false;
    f.has_tun = true;
    expect(&f, "ports", DOCTOR_ADVICE, "linux-image-amd64");
    f.has_tun = false;
    expect(&f, "ports", DOCTOR_PROBLEM, "modprobe af_packet");
    f.dpdk_nic_count = 1;
    expect(&f, "ports", DOCTOR_ADVICE, "linux-image-amd64");
    f = good();
    f.capabilities = 0;
    expect(&f, "rights", DOCTOR_PROBLEM, "sudo");
    f = good();
    f.nic_count = 0;
    doctor_judge(&f, &findings);
    assert_int_equal(doctor_count(&findings, DOCTOR_OK), findings.count);
}

TEST(test_limits)
{
    struct doctor_facts f = good();
    f.rmem_max = 212992;
    expect(&f, "rmem_max", DOCTOR_ADVICE, "sudo sysctl -w net.core.rmem_max=4194304");
    f = good();
    f.wmem_max = (4u << 20) - 1;
    expect(&f, "wmem_max", DOCTOR_ADVICE, "net.core.wmem_max=4194304");
    f = good();
    f.has_io_uring_switch = true;
    f.io_uring_disabled = 1;
    expect(&f, "io_uring", DOCTOR_ADVICE, "kernel.io_uring_disabled=0");
    f.io_uring_disabled = 0;
    f.io_uring_error = EPERM;
    expect(&f, "io_uring", DOCTOR_ADVICE, "seccomp");
    f.io_uring_error = ENOSYS;
    expect(&f, "io_uring", DOCTOR_ADVICE, "CONFIG_IO_URING");
}

TEST(test_without_proc_nothing_is_guessed)
{
    const struct doctor_facts f = {0};
    expect(&f, "proc", DOCTOR_PROBLEM, "mount -t proc");
    assert_int_equal(findings.count, 1);
}

TEST(test_the_most_findings_fit)
{
    struct doctor_facts f = good();
    f.nic_count = DOCTOR_NICS_MAX;
    f.dpdk_nic_count = 9;
    for (uint32_t i = 0; i < DOCTOR_NICS_MAX; i++)
        (void)snprintf(f.nics[i].name, sizeof(f.nics[i].name), "veth%u", i);
    doctor_judge(&f, &findings);
    assert_true(findings.count > DOCTOR_NICS_MAX && findings.count <= DOCTOR_FINDINGS_MAX);
}

static void expect_what(const struct doctor_facts *f, const char *check, const char *says)
{
    doctor_judge(f, &findings);
    for (uint32_t i = 0; i < findings.count; i++)
        if (strcmp(findings.list[i].check, check) == 0 && strstr(findings.list[i].what, says))
            return;
    fail_msg("no finding about %s says \"%s\"", check, says);
}

TEST(test_queues_decide_how_cores_share_a_nic)
{
    struct doctor_facts f = good();
    expect_what(&f, "nic", "ens5: ena, MTU 9001, up, node 0");
    f.nics[0].queue_count = 1;
    expect_what(&f, "nic", "1 queue: several cores share it through rings");
    f.nics[0].queue_count = 8;
    expect_what(&f, "nic", "8 queues: several cores share them by flow rules (driver = pci) or rss");
    f.nics[0].driver[0] = '\0';
    expect_what(&f, "nic", "8 queues: several cores share them by rss");
}

static void expect_port(uint64_t steering, uint64_t queues, enum doctor_level level, const char *says,
                        const char *fix)
{
    static const char *const names[] = {"port.steering", "port.queues", "port.rx_frames", "port.steered_in",
                                        "wire.rx_packets"};
    const uint64_t values[] = {steering, queues, 200, 30, 7};
    struct doctor_port port = {.server = "10.0.0.1:7700", .core_count = 2, .carrier = UINT64_MAX};
    findings.count = 0;
    for (uint32_t core = 0; core < 2; core++)
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
            doctor_port_counter(&port, names[i], values[i]);
    doctor_judge_port(&port, &findings);
    assert_int_equal(findings.count, 2); /* an older server does not report its carrier */
    assert_string_equal(findings.list[1].what, "10.0.0.1:7700: no packet was dropped that should not be");
    assert_string_equal(findings.list[0].check, "steering");
    assert_int_equal(findings.list[0].level, level);
    assert_says(findings.list[0].what, says);
    assert_non_null(strstr(findings.list[0].fix, fix));
}

static void expect_nodes(const struct doctor_nodes *nodes, enum doctor_level level, const char *says)
{
    findings.count = 0;
    doctor_judge_nodes(nodes, &findings);
    assert_int_equal(findings.count, 1);
    assert_string_equal(findings.list[0].check, "state");
    assert_int_equal(findings.list[0].level, level);
    assert_string_equal(findings.list[0].what, says);
    assert_int_equal(findings.list[0].fix[0] != '\0', level == DOCTOR_PROBLEM);
}

TEST(test_a_node_that_serves_nothing_is_a_problem)
{
    const struct mr_core_state serves = {.state = 1}, failed = {.state = 6, .why = "its part is missing"},
                               reads = {.state = 5};
    struct doctor_nodes nodes = {.server = "10.0.0.1:7700"};
    doctor_nodes_add(&nodes, "", &reads);
    expect_nodes(&nodes, DOCTOR_OK, "10.0.0.1:7700: read only");
    nodes = (struct doctor_nodes){.server = "10.0.0.1:7700"};
    doctor_nodes_add(&nodes, "", &failed);
    expect_nodes(&nodes, DOCTOR_PROBLEM, "10.0.0.1:7700 serves nothing: its part is missing");
    nodes = (struct doctor_nodes){.server = "10.0.0.1:7700"};
    doctor_nodes_add(&nodes, "n0", &serves);
    doctor_nodes_add(&nodes, "n1", &serves);
    expect_nodes(&nodes, DOCTOR_OK, "10.0.0.1:7700: none of 2 nodes has failed");
    doctor_nodes_add(&nodes, "n2", &failed);
    expect_nodes(&nodes, DOCTOR_PROBLEM, "10.0.0.1:7700: n2 serves nothing: its part is missing");
    doctor_nodes_add(&nodes, "n3", &failed);
    expect_nodes(&nodes, DOCTOR_PROBLEM,
                 "10.0.0.1:7700: n2 serves nothing, and 1 more of 4: its part is missing");
}

TEST(test_a_running_server_tells_its_steering)
{
    expect_port(0, 1, DOCTOR_OK, "10.0.0.1:7700: one core", "");
    expect_port(1, 2, DOCTOR_OK, "flow rules; 2 cores, 2 queues, 15 % of packets", "");
    expect_port(2, 2, DOCTOR_OK, "rss;", "");
    expect_port(3, 1, DOCTOR_ADVICE, "rings; 2 cores, 1 queue,", "ethtool -L INTERFACE combined 2");
    expect_port(3, 2, DOCTOR_ADVICE, "rings;", "use a NIC with flow rules");
    expect_port(99, 2, DOCTOR_OK, "of a kind not known here", "");
}

static void expect_carrier(uint64_t carrier, uint64_t virtual_link, enum doctor_level level, const char *says,
                           const char *fix)
{
    struct doctor_port port = {.server = "10.0.0.1:7700", .core_count = 1, .carrier = UINT64_MAX};
    findings.count = 0;
    doctor_port_counter(&port, "port.carrier", carrier);
    doctor_port_counter(&port, "port.virtual_link", virtual_link);
    doctor_judge_port(&port, &findings);
    assert_int_equal(findings.count, 3);
    assert_string_equal(findings.list[1].check, "carrier");
    assert_int_equal(findings.list[1].level, level);
    assert_says(findings.list[1].what, says);
    assert_says(findings.list[1].fix, fix);
}

TEST(test_a_running_server_tells_what_carries_its_packets)
{
    struct doctor_port later = {.server = "10.0.0.1:7700", .core_count = 1, .carrier = 8};
    expect_carrier(0, 0, DOCTOR_OK, "10.0.0.1:7700: a NIC driven by DPDK, bypassing the kernel", "");
    expect_carrier(2, 0, DOCTOR_OK, "zero copy, bypassing", "");
    expect_carrier(3, 0, DOCTOR_ADVICE, "copy mode", "driver = pci is faster");
    expect_carrier(3, 1, DOCTOR_ADVICE, "copy mode", "driver = socket is faster for large calls");
    expect_carrier(4, 1, DOCTOR_ADVICE, "a packet socket", "driver = socket");
    expect_carrier(6, 0, DOCTOR_ADVICE, "UDP sockets of the kernel, with super-packets", "driver = pci");
    expect_carrier(6, 1, DOCTOR_OK, "UDP sockets of the kernel, with super-packets", "");
    expect_carrier(7, 1, DOCTOR_ADVICE, "one datagram at a time", "Linux 5.0");
    findings.count = 0;
    doctor_judge_port(&later, &findings);
    assert_int_equal(findings.count, 2);
}

static void expect_drops(const char *counter, uint64_t frames, enum doctor_level level, const char *says,
                         const char *fix)
{
    struct doctor_port port = {.server = "10.0.0.1:7700", .core_count = 2, .carrier = UINT64_MAX};
    findings.count = 0;
    doctor_port_counter(&port, "port.rx_frames", frames);
    doctor_port_counter(&port, counter, 3); /* of two cores */
    doctor_port_counter(&port, counter, 4);
    doctor_judge_port(&port, &findings);
    const struct doctor_finding *f = &findings.list[findings.count - 1];
    assert_string_equal(f->check, "drops");
    assert_int_equal(f->level, level);
    if (!strstr(f->what, says) || !strstr(f->fix, fix))
        fail_msg("%s: \"%s\", fix \"%s\"", counter, f->what, f->fix);
}

TEST(test_pushes_without_a_record_are_told)
{
    struct doctor_port port = {.server = "10.0.0.1:7700", .core_count = 2, .carrier = UINT64_MAX};
    findings.count = 0;
    doctor_port_counter(&port, "ps.push_streams_lost", 3); /* of two cores */
    doctor_port_counter(&port, "ps.push_streams_lost", 4);
    doctor_judge_port(&port, &findings);
    const struct doctor_finding *f = &findings.list[findings.count - 1];
    assert_string_equal(f->check, "pushes");
    assert_int_equal(f->level, DOCTOR_ADVICE);
    assert_non_null(strstr(f->what, "ps.push_streams_lost is 7"));
    assert_non_null(strstr(f->fix, "more cores or nodes"));
}

TEST(test_dropped_packets_have_a_cause)
{
    expect_drops("port.rx_malformed", 100, DOCTOR_PROBLEM,
                 "port.rx_malformed is 7: frames with a wrong length",
                 "ethtool -K INTERFACE tso off gso off");
    expect_drops("port.rx_malformed", 100000, DOCTOR_ADVICE, "joins datagrams (GSO)", "driver = socket");
    expect_drops("nic.rx_missed_errors", 100, DOCTOR_PROBLEM, "receive ring was full", "port.rx_descriptors");
    expect_drops("port.no_buffer", 100, DOCTOR_PROBLEM, "no packet buffer", "memory.packets_mib");
    expect_drops("wire.drop_stale", 1000, DOCTOR_OK, "no packet was dropped", "");
    expect_drops("port.rx_other", 10, DOCTOR_OK, "no packet was dropped", "");
}

TEST(test_the_links_decide_which_driver_suits)
{
    struct doctor_facts f = good();
    expect_what(&f, "driver", "pci bypasses the kernel if ens5 is bound");
    f.nics[0].driver[0] = '\0';
    expect_what(&f, "driver", "socket: virtual links only");
    f.dpdk_nic_count = 1;
    expect_what(&f, "driver", "pci: DPDK drives the device itself");
}

static const struct doctor_finding *judge_store(const struct doctor_store *store)
{
    findings.count = 0;
    doctor_judge_store(store, &findings);
    return &findings.list[0];
}

TEST(test_stores)
{
    struct doctor_store s = {.directory = "s3://models/ads", .has_clock = true, .is_s3 = true, .ahead_s = -2};
    assert_string_equal(judge_store(&s)->what,
                        "s3://models/ads: may be read and written; no checkpoint is there");
    assert_int_equal(doctor_count(&findings, DOCTOR_OK), 3);
    assert_string_equal(findings.list[1].what, "it does not say what it is");
    (void)snprintf(s.server, sizeof(s.server), "MinIO");
    s.has_condition = true;
    (void)judge_store(&s);
    assert_string_equal(findings.list[1].what, "MinIO; honours If-None-Match");
    s.condition = PS_CONDITION_IGNORED;
    (void)judge_store(&s);
    assert_int_equal(findings.list[1].level, DOCTOR_ADVICE);
    assert_string_equal(findings.list[1].what, "MinIO; ignores If-None-Match");
    assert_non_null(strstr(findings.list[1].fix, "a prefix of its own"));
    s.newest = 7;
    s.checkpoints = 3;
    assert_non_null(strstr(judge_store(&s)->what, "3 checkpoints, the newest is 7"));
    s.ahead_s = -400;
    (void)judge_store(&s);
    assert_int_equal(findings.list[2].level, DOCTOR_ADVICE);
    assert_string_equal(findings.list[2].what, "the store's clock is 400 s behind this machine's");
    assert_non_null(strstr(findings.list[2].fix, "timedatectl"));
    s.is_unreadable = true;
    (void)snprintf(s.why, sizeof(s.why), "it is of format 9; install a newer millrace");
    assert_int_equal(judge_store(&s)->level, DOCTOR_PROBLEM);
    s.failed = "write";
    (void)snprintf(s.why, sizeof(s.why), "AccessDenied; allow this key s3:PutObject");
    assert_string_equal(judge_store(&s)->what, "s3://models/ads: cannot write: AccessDenied");
    assert_string_equal(findings.list[0].fix, "allow this key s3:PutObject");
    assert_int_equal(findings.count, 2); /* the clock may be why */
}

TEST(test_a_log_that_is_kept)
{
    struct tool_log_state log = {.cores = 0};
    findings.count = 0;
    doctor_judge_log("a:7700", &log, &findings);
    assert_int_equal(findings.count, 0);
    log = (struct tool_log_state){.cores = 2, .flushes = 100, .flush_us = 90000};
    doctor_judge_log("a:7700", &log, &findings);
    assert_int_equal(findings.list[0].level, DOCTOR_OK);
    assert_non_null(strstr(findings.list[0].what, "a flush takes 0.9 ms"));
    log.kept_bytes = UINT64_C(20) << 30;
    doctor_judge_log("a:7700", &log, &findings);
    assert_int_equal(findings.list[1].level, DOCTOR_ADVICE);
    assert_non_null(strstr(findings.list[1].fix, "checkpoint.every_s"));
    log.flush_us = 9000000;
    doctor_judge_log("a:7700", &log, &findings);
    assert_non_null(strstr(findings.list[2].fix, "doctor --log"));
    log.stalled = 1;
    doctor_judge_log("a:7700", &log, &findings);
    assert_int_equal(findings.list[3].level, DOCTOR_PROBLEM);
    assert_non_null(strstr(findings.list[3].fix, "make room"));
}

static const struct doctor_finding *judge_log_disk(const struct ps_log_disk *disk, int error)
{
    findings.count = 0;
    doctor_judge_log_disk("/var/lib/millrace", disk, error, &findings);
    return &findings.list[0];
}

TEST(test_where_a_log_is_to_be)
{
    struct ps_log_disk disk = {
        .name = "ext4", .bytes = 100ull << 30, .free_bytes = 50ull << 30, .flush_us = 640};
    assert_string_equal(judge_log_disk(&disk, 0)->what, "/var/lib/millrace: ext4, a flush takes 0.64 ms");
    assert_int_equal(doctor_count(&findings, DOCTOR_OK), 2);
    disk.flush_us = 30000;
    assert_int_equal(judge_log_disk(&disk, 0)->level, DOCTOR_ADVICE);
    disk.flush_us = 2; /* a disk that lies */
    assert_int_equal(judge_log_disk(&disk, 0)->level, DOCTOR_PROBLEM);
    assert_non_null(strstr(findings.list[0].what, "does not reach a disk"));
    assert_non_null(strstr(findings.list[0].fix, "nobarrier"));
    disk.kind = PS_LOG_DISK_MEMORY;
    (void)snprintf(disk.name, sizeof(disk.name), "tmpfs");
    assert_int_equal(judge_log_disk(&disk, 0)->level, DOCTOR_PROBLEM);
    assert_non_null(strstr(findings.list[0].what, "is on tmpfs, which is memory"));
    assert_int_equal(doctor_count(&findings, DOCTOR_PROBLEM), 1); /* which is why it is fast */
    disk.kind = PS_LOG_DISK_NETWORK;
    assert_int_equal(judge_log_disk(&disk, 0)->level, DOCTOR_ADVICE);
    disk =
        (struct ps_log_disk){.name = "xfs", .bytes = 100ull << 30, .free_bytes = 1ull << 30, .flush_us = 100};
    assert_int_equal(judge_log_disk(&disk, 0)->level, DOCTOR_OK);
    assert_int_equal(findings.list[1].level, DOCTOR_ADVICE);
    assert_non_null(strstr(findings.list[1].fix, "make room"));
    assert_int_equal(judge_log_disk(&disk, EACCES)->level, DOCTOR_PROBLEM);
    assert_non_null(strstr(findings.list[0].what, "cannot be written"));
    assert_int_equal(findings.count, 1);
}

static const struct doctor_finding *judge_zookeeper(const struct doctor_zookeeper *z)
{
    findings.count = 0;
    doctor_judge_zookeeper(z, &findings);
    return &findings.list[0];
}

TEST(test_zookeeper)
{
    struct doctor_zookeeper z = {.count = 3};
    for (uint32_t i = 0; i < z.count; i++) {
        (void)snprintf(z.servers[i].address, sizeof(z.servers[i].address), "zk%u:2181", i);
        doctor_read_srvr("Zookeeper version: 3.8.0-${mvnbuild}, built on 2023\nLatency min/avg/max: 0/0.0/0\n"
                         "Zxid: 0x1\nMode: follower\nNode count: 5\n",
                         &z.servers[i]);
    }
    assert_string_equal(judge_zookeeper(&z)->what, "3 of 3 servers serve, version 3.8.0");
    assert_int_equal(findings.count, 1);
    assert_int_equal(findings.list[0].level, DOCTOR_OK);

    z.servers[1].mode[0] = '\0';
    (void)snprintf(z.servers[1].why, sizeof(z.servers[1].why), "Connection refused");
    assert_int_equal(judge_zookeeper(&z)->level, DOCTOR_OK);
    assert_string_equal(findings.list[1].what, "zk1:2181: Connection refused");
    assert_int_equal(findings.list[1].level, DOCTOR_ADVICE);

    z.servers[2] = (struct doctor_zookeeper_server){.address = "zk2:2181"};
    doctor_read_srvr("This ZooKeeper instance is not currently serving requests\n", &z.servers[2]);
    assert_string_equal(judge_zookeeper(&z)->what,
                        "1 of 3 servers serves: nodes stop to serve when their leases end");
    assert_int_equal(findings.list[0].level, DOCTOR_PROBLEM);
    assert_string_equal(findings.list[2].what, "zk2:2181: it runs, and has no quorum");

    z.count = 1;
    doctor_read_srvr("srvr is not executed because it is not in the whitelist.\n", &z.servers[0]);
    z.servers[0].mode[0] = '\0';
    (void)judge_zookeeper(&z);
    assert_string_equal(findings.list[1].what,
                        "zk0:2181: it answers no srvr: add it to 4lw.commands.whitelist");
    doctor_ask_zookeeper("nohost,127.0.0.1:1", &z);
    assert_int_equal(z.count, 2);
    assert_string_equal(z.servers[0].why, "it is not HOST:PORT");
    assert_string_equal(z.servers[1].why, "Connection refused");
}

/* A cluster that would wait for a dead node is no problem, and says what to do. */
TEST(test_a_cluster_says_what_it_loses_with_a_node)
{
    struct mr_cluster_state cluster = {.is_member = false, .tolerance = MR_TOLERANCE_OFF};
    findings.count = 0;
    doctor_judge_tolerance("a:7700", &cluster, "", &findings);
    cluster.is_member = true;
    cluster.tolerance = MR_TOLERANCE_UNKNOWN;
    doctor_judge_tolerance("a:7700", &cluster, "", &findings);
    assert_int_equal(findings.count, 0);
    cluster.tolerance = MR_TOLERATES_ONE;
    doctor_judge_tolerance("a:7700", &cluster, "", &findings);
    assert_int_equal(findings.list[0].level, DOCTOR_OK);
    static const struct {
        enum mr_tolerance tolerance;
        const char *says;
    } losses[] = {{MR_TOLERANCE_OFF, "set cluster.take_over_s"},
                  {MR_TOLERANCE_ALONE, "no other node is there"},
                  {MR_TOLERANCE_AWAY, "n7 is away"},
                  {MR_TOLERANCE_UNSAVED, "millrace ctl save"},
                  {MR_TOLERANCE_ROOM, "no room for what n7 owns"},
                  {MR_TOLERANCE_VERSION, "n7 has a version that cannot take over"},
                  {MR_TOLERANCE_BACKUP, "what n7 owns has no backup: start a node on another host"},
                  {MR_TOLERANCE_SYNC, "the backups of what n7 owns are not in sync"}};
    for (uint32_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        cluster.tolerance = (uint8_t)losses[i].tolerance;
        doctor_judge_tolerance("a:7700", &cluster, "n7", &findings);
        assert_int_equal(findings.list[i + 1].level, DOCTOR_ADVICE);
        assert_non_null(strstr(findings.list[i + 1].what, losses[i].says));
    }
}
