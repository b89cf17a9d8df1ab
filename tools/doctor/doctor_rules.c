#include "tools/doctor/doctor_rules.h"
#include "dataplane/wire/base/plural.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "tools/cluster_tolerance.h"
#include "tools/core_rates.h"

#define HUGEPAGES_WANTED_KIB (2u << 20) /* 2 GiB: packet buffers, and tables to begin with */
#define SOCKET_BUFFER_BYTES  (4u << 20) /* what a client asks for by default */
#define STORE_CLOCK_S_MAX    300
#define FLUSH_US_MIN         8u                  /* less than any disk that keeps what it has flushed takes */
#define FLUSH_US_MAX         20000u              /* more makes pushes slow */
#define KEPT_BYTES_MAX       (UINT64_C(8) << 30) /* in the log: a start applies that again */
#define MEMORY_LOCK_BYTES    (64u << 20)         /* AF_XDP rings and io_uring's registered buffers */

/* Bits of linux/capability.h that opening a port and locking memory need. */
#define CAPABILITY(bit)      (UINT64_C(1) << (bit))
#define CAPABILITY_NET_ADMIN CAPABILITY(12)
#define CAPABILITY_NET_RAW   CAPABILITY(13)
#define CAPABILITY_IPC_LOCK  CAPABILITY(14)

static void __attribute__((format(printf, 4, 5)))
found(struct doctor_findings *out, const char *check, enum doctor_level level, const char *format, ...)
{
    assert(out->count < DOCTOR_FINDINGS_MAX);
    struct doctor_finding *f = &out->list[out->count++];
    f->check = check;
    f->level = level;
    f->fix[0] = '\0';
    va_list args;
    va_start(args, format);
    (void)vsnprintf(f->what, sizeof(f->what), format, args);
    va_end(args);
}

/* How to fix the last finding. */
static void __attribute__((format(printf, 2, 3))) fix(struct doctor_findings *out, const char *format, ...)
{
    struct doctor_finding *f = &out->list[out->count - 1];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(f->fix, sizeof(f->fix), format, args);
    va_end(args);
}

static void judge_proc(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (f->has_proc)
        return;
    found(out, "proc", DOCTOR_PROBLEM,
          "/proc/meminfo cannot be read, so nothing can be known of this machine");
    fix(out, "mount -t proc proc /proc");
}

static void judge_hugepages(const struct doctor_facts *f, struct doctor_findings *out)
{
    const unsigned long long kib = f->hugepage_kib > 0 ? f->hugepage_kib : 2048;
    const unsigned long long wanted = (HUGEPAGES_WANTED_KIB + kib - 1) / kib;
    const unsigned long long free_pages = f->hugepages_free, total = f->hugepages_total;
    if (total == 0)
        found(out, "hugepages", DOCTOR_ADVICE,
              "none reserved: the server runs with --no-huge, with more TLB misses");
    else if (free_pages == 0)
        found(out, "hugepages", DOCTOR_ADVICE, "all %llu of %llu kB are in use", total, kib);
    else {
        found(out, "hugepages", DOCTOR_OK, "%llu of %llu free, %llu kB each", free_pages, total, kib);
        return;
    }
    fix(out, "sudo sysctl -w vm.nr_hugepages=%llu", total + wanted);
}

static void judge_numa(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (f->node_count <= 1) {
        found(out, "numa", DOCTOR_OK, "one node");
        return;
    }
    for (uint32_t node = 0; f->hugepages_total > 0 && node < f->node_count && node < DOCTOR_NODES_MAX;
         node++) {
        if (f->node_hugepages[node] > 0)
            continue;
        found(out, "numa", DOCTOR_ADVICE,
              "node %u has no hugepages: cores there would use another node's memory", node);
        fix(out,
            "echo 1024 | sudo tee /sys/devices/system/node/node%u/hugepages/hugepages-%llukB/nr_hugepages",
            node, (unsigned long long)f->hugepage_kib);
        return;
    }
    found(out, "numa", DOCTOR_OK, "%u nodes: put data cores on the NIC's node", f->node_count);
}

static void judge_cores(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (f->isolated_count > 0) {
        found(out, "cores", DOCTOR_OK, "%u of %u cpus isolated: %s", f->isolated_count, f->cpu_count,
              f->isolated);
    } else if (f->cpu_count <= 2) {
        found(out, "cores", DOCTOR_OK, "%u cpu%s: too few to isolate any; use poll_mode = adaptive",
              f->cpu_count, mr_plural(f->cpu_count));
    } else {
        const uint32_t last = f->cpu_count - 1;
        found(out, "cores", DOCTOR_ADVICE,
              "none of %u cpus is isolated: other work interrupts the data cores", f->cpu_count);
        fix(out,
            "add \"isolcpus=%u-%u nohz_full=%u-%u rcu_nocbs=%u-%u\" to GRUB_CMDLINE_LINUX in "
            "/etc/default/grub, then: sudo update-grub && sudo reboot",
            last > 3 ? last - 1 : last, last, last > 3 ? last - 1 : last, last, last > 3 ? last - 1 : last,
            last);
    }
}

static void judge_governor(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (f->governed_count == 0)
        found(out, "governor", DOCTOR_OK,
              "the clock is not controlled from here (a virtual machine, or fixed)");
    else if (f->slow_governor_count == 0)
        found(out, "governor", DOCTOR_OK, "performance on all %u cpus", f->governed_count);
    else {
        found(out, "governor", DOCTOR_ADVICE, "%s on %u of %u cpus: the clock falls between bursts",
              f->governor, f->slow_governor_count, f->governed_count);
        fix(out, "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
    }
}

static void judge_vectors(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (!f->is_x86) {
        found(out, "vectors", DOCTOR_OK, "not an x86 cpu: baseline code is used");
    } else if (!f->has_sse42) {
        found(out, "vectors", DOCTOR_PROBLEM, "the cpu has no SSE4.2, which DPDK needs");
        fix(out,
            "run on another machine, or give the virtual machine the host's cpu model (qemu: -cpu host)");
    } else if (f->has_avx512) {
        found(out, "vectors", DOCTOR_OK, "AVX-512");
    } else if (f->has_avx2) {
        found(out, "vectors", DOCTOR_OK, "AVX2");
    } else {
        found(out, "vectors", DOCTOR_ADVICE, "no AVX2: rows are added up with baseline code");
        fix(out, "give the virtual machine the host's cpu model (qemu: -cpu host)");
    }
}

/* How several data cores would share it. The server tries flow rules where it drives the card itself (driver
 * = pci). */
static void describe_queues(const struct doctor_nic *nic, char *out, size_t out_bytes)
{
    out[0] = '\0';
    if (nic->queue_count == 1)
        (void)snprintf(out, out_bytes, "; 1 queue: several cores share it through rings");
    else if (nic->queue_count > 1)
        (void)snprintf(out, out_bytes, "; %u queues: several cores share them by %srss", nic->queue_count,
                       nic->driver[0] != '\0' ? "flow rules (driver = pci) or " : "");
}

static void judge_nics(const struct doctor_facts *f, struct doctor_findings *out)
{
    uint32_t physical = 0;
    for (uint32_t i = 0; i < f->nic_count; i++) {
        const struct doctor_nic *nic = &f->nics[i];
        char node[32] = "", queues[96];
        describe_queues(nic, queues, sizeof(queues));
        physical += nic->driver[0] != '\0';
        if (nic->numa_node >= 0)
            (void)snprintf(node, sizeof(node), ", node %d", nic->numa_node);
        found(out, "nic", DOCTOR_OK, "%s: %s, MTU %u, %s%s%s", nic->name,
              nic->driver[0] ? nic->driver : "virtual", nic->mtu, nic->state[0] ? nic->state : "unknown",
              node, queues);
    }
    if (f->dpdk_nic_count > 0)
        found(out, "nic", DOCTOR_OK, "%u device%s bound to DPDK (vfio-pci or uio)", f->dpdk_nic_count,
              mr_plural(f->dpdk_nic_count));
    else if (physical == 0)
        found(out, "nic", DOCTOR_OK, "no NIC to spare: virtual ports serve, as in make demo");
}

/* Which driver suits the links that there are; driver = auto follows the same rule (docs/real-nics.md). */
static void judge_driver(const struct doctor_facts *f, struct doctor_findings *out)
{
    const char *nic = NULL;
    for (uint32_t i = 0; i < f->nic_count && nic == NULL; i++)
        if (f->nics[i].driver[0] != '\0')
            nic = f->nics[i].name;
    if (f->dpdk_nic_count > 0)
        found(out, "driver", DOCTOR_OK, "pci: DPDK drives the device itself, bypassing the kernel");
    else if (nic != NULL)
        found(
            out, "driver", DOCTOR_OK,
            "pci bypasses the kernel if %s is bound to vfio-pci; af_xdp and socket share it with the kernel",
            nic);
    else
        found(out, "driver", DOCTOR_OK,
              "socket: virtual links only, over which the kernel's sockets move large calls fastest");
}

static void judge_ports(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (f->has_af_xdp) {
        found(out, "ports", DOCTOR_OK, "kernel %s has AF_XDP%s", f->release,
              f->kernel_major > 5 || (f->kernel_major == 5 && f->kernel_minor >= 11)
                  ? ""
                  : ", but before 5.11 it counts against the memory lock limit");
    } else if (f->has_af_packet || f->has_tun || f->dpdk_nic_count > 0) {
        found(out, "ports", DOCTOR_ADVICE, "kernel %s has no AF_XDP: %s is used instead, slower", f->release,
              f->dpdk_nic_count > 0 ? "a device bound to DPDK"
              : f->has_af_packet    ? "AF_PACKET"
                                    : "a tap");
        fix(out, "install a kernel with CONFIG_XDP_SOCKETS=y (Debian's own has it): sudo apt-get install "
                 "linux-image-amd64");
    } else {
        found(out, "ports", DOCTOR_PROBLEM,
              "no AF_XDP, no AF_PACKET, no /dev/net/tun and no device bound to DPDK");
        fix(out, "sudo modprobe af_packet");
    }
}

static void judge_buffer(const char *check, uint64_t bytes, struct doctor_findings *out)
{
    if (bytes >= SOCKET_BUFFER_BYTES) {
        found(out, check, DOCTOR_OK, "%llu bytes", (unsigned long long)bytes);
        return;
    }
    found(out, check, DOCTOR_ADVICE, "%llu bytes: a client can have less in flight than it could",
          (unsigned long long)bytes);
    fix(out, "sudo sysctl -w net.core.%s=%u", check, SOCKET_BUFFER_BYTES);
}

static void judge_io_uring(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (f->io_uring_error == EPERM && f->io_uring_disabled == 0) {
        found(out, "io_uring", DOCTOR_ADVICE, "forbidden by a seccomp filter: checkpoints use plain writes");
        fix(out,
            "run the container with --security-opt seccomp=unconfined, or a profile that allows io_uring");
    } else if (f->io_uring_error == ENOSYS) {
        found(out, "io_uring", DOCTOR_ADVICE, "the kernel has none: checkpoints use plain writes");
        fix(out, "install a kernel with CONFIG_IO_URING=y: sudo apt-get install linux-image-amd64");
    } else if (f->has_io_uring_switch && f->io_uring_disabled > 0) {
        found(out, "io_uring", DOCTOR_ADVICE, "switched off (%llu): checkpoints use plain writes",
              (unsigned long long)f->io_uring_disabled);
        fix(out, "sudo sysctl -w kernel.io_uring_disabled=0");
    } else {
        found(out, "io_uring", DOCTOR_OK, "allowed");
    }
}

static void judge_rights(const struct doctor_facts *f, struct doctor_findings *out)
{
    const uint64_t port = CAPABILITY_NET_ADMIN | CAPABILITY_NET_RAW;
    if ((f->capabilities & port) == port)
        found(out, "rights", DOCTOR_OK, "may open ports");
    else {
        found(out, "rights", DOCTOR_PROBLEM,
              "this user may not open ports: the server needs CAP_NET_ADMIN and CAP_NET_RAW");
        fix(out, "start the server with sudo, or through its systemd unit, which gives it what it needs");
    }
    if (f->memory_lock_bytes >= MEMORY_LOCK_BYTES || (f->capabilities & CAPABILITY_IPC_LOCK)) {
        found(out, "memory lock", DOCTOR_OK, "%s",
              f->memory_lock_bytes == UINT64_MAX ? "unlimited" : "enough for this user");
        return;
    }
    found(out, "memory lock", DOCTOR_ADVICE, "%llu kB: registered buffers may be refused",
          (unsigned long long)f->memory_lock_bytes / 1024);
    fix(out, "ulimit -l unlimited (in a systemd unit: LimitMEMLOCK=infinity)");
}

static void judge_transparent(const struct doctor_facts *f, struct doctor_findings *out)
{
    if (strcmp(f->huge_transparent, "always") == 0 || strcmp(f->huge_transparent, "madvise") == 0) {
        found(out, "thp", DOCTOR_OK, "transparent hugepages: %s", f->huge_transparent);
        return;
    }
    found(out, "thp", DOCTOR_ADVICE, "transparent hugepages are off: table memory uses small pages");
    fix(out, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
}

void doctor_judge(const struct doctor_facts *facts, struct doctor_findings *findings)
{
    findings->count = 0;
    judge_proc(facts, findings);
    if (!facts->has_proc)
        return; /* the rest would be guesses */
    judge_hugepages(facts, findings);
    judge_transparent(facts, findings);
    judge_numa(facts, findings);
    judge_cores(facts, findings);
    judge_governor(facts, findings);
    judge_vectors(facts, findings);
    judge_nics(facts, findings);
    judge_driver(facts, findings);
    judge_ports(facts, findings);
    judge_rights(facts, findings);
    judge_buffer("rmem_max", facts->rmem_max, findings);
    judge_buffer("wmem_max", facts->wmem_max, findings);
    judge_io_uring(facts, findings);
}

void doctor_nodes_add(struct doctor_nodes *nodes, const char *name, const struct mr_core_state *core)
{
    if (nodes->count++ == 0)
        nodes->state = core->state;
    if (core->why[0] == '\0' || nodes->failed++ > 0)
        return;
    (void)snprintf(nodes->name, sizeof(nodes->name), "%s", name);
    (void)snprintf(nodes->why, sizeof(nodes->why), "%s", core->why);
}

void doctor_judge_nodes(const struct doctor_nodes *nodes, struct doctor_findings *findings)
{
    char others[48] = "";
    if (nodes->failed == 0) {
        if (nodes->count == 1)
            found(findings, "state", DOCTOR_OK, "%.80s: %s", nodes->server,
                  tool_node_state_name(nodes->state));
        else
            found(findings, "state", DOCTOR_OK, "%.80s: none of %u nodes has failed", nodes->server,
                  nodes->count);
        return;
    }
    if (nodes->failed > 1)
        (void)snprintf(others, sizeof(others), ", and %u more of %u", nodes->failed - 1, nodes->count);
    found(findings, "state", DOCTOR_PROBLEM, "%.40s%s%.40s serves nothing%s: %.100s", nodes->server,
          nodes->name[0] != '\0' ? ": " : "", nodes->name, others, nodes->why);
    fix(findings, "its log says what to put right (docs/clusters.md, docs/checkpoints.md); then restart it");
}

void doctor_judge_tolerance(const char *server, const struct mr_cluster_state *cluster, const char *name,
                            struct doctor_findings *findings)
{
    char text[TOOL_TOLERANCE_BYTES];
    const bool tolerates = cluster->is_member && tool_tolerance_text(cluster, name, text);
    if (!cluster->is_member || text[0] == '\0')
        return;
    found(findings, "tolerance", tolerates ? DOCTOR_OK : DOCTOR_ADVICE, "%.40s: %.150s", server, text);
    if (!tolerates)
        fix(findings, "docs/clusters.md, When something is away, says what calls wait for then");
}

void doctor_port_counter(void *arg, const char *name, uint64_t value)
{
    struct doctor_port *port = arg;
    const uint32_t cause = mr_drop_cause_find(name);
    if (cause < mr_drop_cause_count)
        port->dropped[cause] += value;
    else if (strcmp(name, "port.steering") == 0)
        port->steering = value;
    else if (strcmp(name, "port.queues") == 0)
        port->queues = value;
    else if (strcmp(name, "port.carrier") == 0)
        port->carrier = value;
    else if (strcmp(name, "port.virtual_link") == 0)
        port->virtual_link = value;
    else if (strcmp(name, "port.rx_frames") == 0)
        port->frames += value;
    else if (strcmp(name, "port.steered_in") == 0)
        port->handed_on += value;
    else if (strcmp(name, "ps.push_streams_lost") == 0)
        port->push_streams_lost += value;
}

/* By the numbers of port.carrier. */
static const struct {
    const char *what;
    const char *on_nic, *on_virtual; /* what would be faster, NULL: nothing known */
} carriers[] = {
    {"a NIC driven by DPDK, bypassing the kernel", NULL, NULL},
    {"shared memory, bypassing the kernel", NULL, NULL},
    {"AF_XDP with zero copy, bypassing the kernel's network stack", NULL, NULL},
    {"AF_XDP in copy mode: the kernel copies each packet",
     "driver = pci is faster for all calls, and so is a kernel driver that has zero copy (docs/real-nics.md)",
     "driver = socket is faster for large calls: sudo ip address add ADDRESS dev INTERFACE, then driver = "
     "auto"},
    {"a packet socket: the kernel copies each packet",
     "driver = pci is faster for all calls, driver = af_xdp for most (docs/real-nics.md)",
     "driver = socket is faster for large calls: sudo ip address add ADDRESS dev INTERFACE, then driver = "
     "auto"},
    {"a tap: the kernel copies each packet", NULL, NULL},
    {"UDP sockets of the kernel, with super-packets",
     "driver = pci is faster for all calls, driver = af_xdp for small ones (docs/real-nics.md)", NULL},
    {"UDP sockets of the kernel, one datagram at a time", "run Linux 5.0 or newer: large calls are faster",
     "run Linux 5.0 or newer: large calls are faster"},
};

static void judge_carrier(const struct doctor_port *port, struct doctor_findings *findings)
{
    if (port->carrier >= sizeof(carriers) / sizeof(*carriers))
        return; /* a server of another version */
    const char *faster =
        port->virtual_link != 0 ? carriers[port->carrier].on_virtual : carriers[port->carrier].on_nic;
    found(findings, "carrier", faster != NULL ? DOCTOR_ADVICE : DOCTOR_OK, "%.80s: %s", port->server,
          carriers[port->carrier].what);
    if (faster != NULL)
        fix(findings, "%s", faster);
}

#define DROPS_PROBLEM_PERCENT 1u /* of the packets received: calls are slow, or do not get through */

/* Since the server's start. */
static void judge_drops(const struct doctor_port *port, struct doctor_findings *findings)
{
    uint32_t reasons = 0;
    for (uint32_t i = 0; i < mr_drop_cause_count; i++) {
        const struct mr_drop_cause *cause = &mr_drop_causes[i];
        if (!mr_drop_cause_matters(cause, port->dropped[i], port->frames))
            continue;
        const bool is_many = port->dropped[i] * 100 >= port->frames * DROPS_PROBLEM_PERCENT;
        found(findings, "drops", is_many ? DOCTOR_PROBLEM : DOCTOR_ADVICE, "%s is %llu: %s", cause->counter,
              (unsigned long long)port->dropped[i], cause->what);
        fix(findings, "%s", cause->cure);
        reasons++;
    }
    if (reasons == 0)
        found(findings, "drops", DOCTOR_OK, "%.80s: no packet was dropped that should not be", port->server);
}

void doctor_judge_port(const struct doctor_port *port, struct doctor_findings *findings)
{
    static const char *const ways[] = {"one core", "flow rules", "rss", "rings", "sockets"};
    const uint64_t percent = port->frames > 0 ? port->handed_on * 100 / port->frames : 0;
    const bool known = port->steering < sizeof(ways) / sizeof(*ways);
    const bool rings = known && strcmp(ways[port->steering], "rings") == 0;
    found(findings, "steering", rings ? DOCTOR_ADVICE : DOCTOR_OK,
          "%.80s: %s; %u core%s, %llu queue%s, %llu %% of packets handed on between cores", port->server,
          known ? ways[port->steering] : "of a kind not known here", port->core_count,
          mr_plural(port->core_count), (unsigned long long)port->queues, mr_plural(port->queues),
          (unsigned long long)percent);
    if (rings && port->queues < port->core_count)
        fix(findings,
            "give the port a queue for each core, for instance: sudo ethtool -L INTERFACE combined %u",
            port->core_count);
    else if (rings)
        fix(findings, "use a NIC with flow rules or RSS over UDP ports (docs/real-nics.md)");
    judge_carrier(port, findings);
    judge_drops(port, findings);
    if (port->push_streams_lost == 0)
        return;
    found(findings, "pushes", DOCTOR_ADVICE,
          "ps.push_streams_lost is %llu: there was no room for the records of so many push streams, whose "
          "pushes "
          "may be applied twice if they are sent again",
          (unsigned long long)port->push_streams_lost);
    fix(findings,
        "more cores or nodes have more room; move partitions rarely while hundreds of clients push");
}

/* "error; how to fix it" in its two parts. */
static void store_problem(struct doctor_findings *findings, const struct doctor_store *s, const char *step)
{
    const char *remedy = strstr(s->why, "; ");
    const int bytes = remedy ? (int)(remedy - s->why) : (int)strlen(s->why);
    found(findings, "store", DOCTOR_PROBLEM, "%.80s: cannot %s: %.*s", s->directory, step,
          bytes < 100 ? bytes : 100, s->why);
    fix(findings, "%.200s", remedy ? remedy + 2 : "see docs/stores.md");
}

static void judge_store_clock(const struct doctor_store *s, struct doctor_findings *findings)
{
    const int64_t off_s = s->ahead_s < 0 ? -s->ahead_s : s->ahead_s;
    const bool is_off = off_s > STORE_CLOCK_S_MAX;
    if (!s->has_clock)
        return;
    found(findings, "store clock", is_off ? DOCTOR_ADVICE : DOCTOR_OK,
          "the store's clock is %lld s %s this machine's", (long long)off_s,
          s->ahead_s < 0 ? "behind" : "ahead of");
    if (is_off && s->is_s3)
        fix(findings, "S3 refuses signatures that are 15 minutes off: sudo timedatectl set-ntp true");
    else if (is_off)
        fix(findings, "sudo timedatectl set-ntp true");
}

static void judge_store_server(const struct doctor_store *s, struct doctor_findings *findings)
{
    const bool is_alone = s->has_condition && s->condition != PS_CONDITION_HONOURED;
    found(findings, "store server", is_alone ? DOCTOR_ADVICE : DOCTOR_OK, "%s%s",
          s->server[0] != '\0' ? s->server : "it does not say what it is",
          !s->has_condition                       ? ""
          : s->condition == PS_CONDITION_HONOURED ? "; honours If-None-Match"
          : s->condition == PS_CONDITION_IGNORED  ? "; ignores If-None-Match"
                                                  : "; refuses If-None-Match");
    if (is_alone)
        fix(findings, "give each node a prefix of its own: nothing keeps two from replacing each other's "
                      "checkpoints there");
}

void doctor_judge_store(const struct doctor_store *s, struct doctor_findings *findings)
{
    if (s->failed) {
        store_problem(findings, s, s->failed);
        judge_store_clock(s, findings);
        return;
    }
    if (s->newest == 0)
        found(findings, "store", DOCTOR_OK, "%.120s: may be read and written; no checkpoint is there",
              s->directory);
    else if (!s->is_unreadable)
        found(findings, "store", DOCTOR_OK,
              "%.120s: may be read and written; %u checkpoint%s, the newest is %llu", s->directory,
              s->checkpoints, mr_plural(s->checkpoints), (unsigned long long)s->newest);
    else
        store_problem(findings, s, "read the newest checkpoint");
    judge_store_server(s, findings);
    judge_store_clock(s, findings);
}

void doctor_judge_log(const char *server, const struct tool_log_state *log, struct doctor_findings *findings)
{
    char line[TOOL_LOG_LINE_BYTES];
    if (log->cores == 0)
        return;
    tool_log_line(log, line, sizeof(line));
    const bool is_slow = log->flushes > 0 && log->flush_us / log->flushes > FLUSH_US_MAX;
    const bool is_long = log->kept_bytes > KEPT_BYTES_MAX;
    found(findings, "log",
          log->stalled > 0     ? DOCTOR_PROBLEM
          : is_slow || is_long ? DOCTOR_ADVICE
                               : DOCTOR_OK,
          "%.60s: %.130s", server, line);
    if (log->stalled > 0)
        fix(findings,
            "look at its log (log_stalled): make room on the disk of checkpoint.directory, or replace it");
    else if (is_slow)
        fix(findings, "millrace doctor --log DIR, there, says what the disk can do; give the log a disk of "
                      "its own, or a "
                      "faster one");
    else if (is_long)
        fix(findings,
            "save more often, as each checkpoint removes the log before it: checkpoint.every_s = 600");
}

void doctor_judge_log_disk(const char *directory, const struct ps_log_disk *disk, int error,
                           struct doctor_findings *findings)
{
    const char *risk = ps_log_disk_risk(disk), *name = disk->name[0] != '\0' ? disk->name : "its file system";
    const double free_gib = (double)disk->free_bytes / (double)(1u << 30);
    if (error != 0) {
        found(findings, "log", DOCTOR_PROBLEM, "%.120s: cannot be written: %s", directory, strerror(error));
        fix(findings, "create the directory, and let the user that millraced runs as write there");
        return;
    }
    if (risk != NULL) {
        found(findings, "log", disk->kind == PS_LOG_DISK_NETWORK ? DOCTOR_ADVICE : DOCTOR_PROBLEM,
              "%.80s is on %s, %s", directory, name, risk);
        fix(findings, "set checkpoint.directory to a directory on a disk of this machine");
    }
    if (disk->flush_us < FLUSH_US_MIN && disk->kind == PS_LOG_DISK_LOCAL) {
        found(
            findings, "log", DOCTOR_PROBLEM,
            "%.60s: a flush takes %u us, so it does not reach a disk: what was acknowledged may be lost with "
            "the power",
            directory, disk->flush_us);
        fix(findings,
            "without libeatmydata (LD_PRELOAD), nobarrier (findmnt -no OPTIONS -T DIR), and a virtual disk's "
            "cache = unsafe");
    } else if (disk->kind != PS_LOG_DISK_MEMORY) {
        const bool is_slow = disk->flush_us > FLUSH_US_MAX;
        found(findings, "log", is_slow ? DOCTOR_ADVICE : DOCTOR_OK, "%.100s: %s, a flush takes %.2f ms",
              directory, name, (double)disk->flush_us / 1e3);
        if (is_slow)
            fix(findings, "pushes wait for it: take another disk, or one that others do not write to");
    }
    const bool is_full = ps_log_disk_is_nearly_full(disk);
    found(findings, "log room", is_full ? DOCTOR_ADVICE : DOCTOR_OK, "%.1f GiB free in %.100s", free_gib,
          directory);
    if (is_full)
        fix(findings,
            "make room there: once it is full, pushes wait; the log has up to all that was pushed between "
            "two checkpoints");
}

/* A cluster goes on as long as more than half of the servers serve. */
void doctor_judge_zookeeper(const struct doctor_zookeeper *ensemble, struct doctor_findings *findings)
{
    uint32_t serving = 0;
    const char *version = "";
    for (uint32_t i = 0; i < ensemble->count; i++) {
        serving += ensemble->servers[i].mode[0] != '\0';
        version = ensemble->servers[i].version[0] != '\0' ? ensemble->servers[i].version : version;
    }
    const bool has_quorum = 2 * serving > ensemble->count;
    if (has_quorum)
        found(findings, "zookeeper", DOCTOR_OK, "%u of %u server%s serve%s, version %s", serving,
              ensemble->count, mr_plural(ensemble->count), serving == 1 ? "s" : "", version);
    else
        found(findings, "zookeeper", DOCTOR_PROBLEM,
              "%u of %u server%s serve%s: nodes stop to serve when their leases end", serving,
              ensemble->count, mr_plural(ensemble->count), serving == 1 ? "s" : "");
    if (ensemble->count == 1 && has_quorum)
        fix(findings, "with three servers, one may fail: name all of them in cluster.zookeeper");
    for (uint32_t i = 0; i < ensemble->count; i++) {
        const struct doctor_zookeeper_server *s = &ensemble->servers[i];
        if (s->mode[0] != '\0')
            continue;
        found(findings, "zookeeper", has_quorum ? DOCTOR_ADVICE : DOCTOR_PROBLEM, "%s: %s", s->address,
              s->why[0] != '\0' ? s->why : "it runs, and has no quorum");
        fix(findings, "%s",
            s->why[0] != '\0' ? "systemctl status zookeeper, there; or correct cluster.zookeeper"
                              : "start the others, more than half of them, and see that they reach "
                                "each other");
    }
}

const char *doctor_level_name(enum doctor_level level)
{
    static const char *const names[] = {"ok", "advice", "problem"};
    return names[level];
}

uint32_t doctor_count(const struct doctor_findings *findings, enum doctor_level level)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < findings->count; i++)
        count += findings->list[i].level == level;
    return count;
}
