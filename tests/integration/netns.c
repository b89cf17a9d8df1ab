#include "tests/integration/netns.h"
#include "tests/integration/end_with_test.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/wait.h"

#define COMMAND_BYTES 1024
#define TREE_DEPTH    8
#define REMOVE_S      5

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "netns: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, " (%s)\n", strerror(errno));
    va_end(list);
    exit(1);
}

void netns_require_root(void)
{
    if (geteuid() == 0)
        return;
    printf("skipped: network namespaces need root; run it with sudo\n");
    exit(NETNS_SKIP);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    return remove(path);
}

/* Programs that are being killed may still write: try again a few times. */
static void remove_tree(const char *path)
{
    (void)WAIT_WITHIN(REMOVE_S, access(path, F_OK) != 0 ||
                                    nftw(path, remove_entry, TREE_DEPTH, FTW_DEPTH | FTW_PHYS) == 0);
}

/* Keeps the namespace and the directory until the test is gone or says so, and takes the directory along. */
__attribute__((noreturn)) static void hold(const char *directory)
{
    sigset_t signals;
    int signal;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigwait(&signals, &signal);
    remove_tree(directory);
    _exit(0);
}

/* A process that does nothing but keep a new namespace alive until the test is gone. */
static pid_t hold_namespace(const char *directory, int *fd)
{
    pid_t parent = getpid();
    int ready[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) != 0)
        give_up("pipe");
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork");
    if (pid == 0) {
        sigset_t all;
        /* A test that is interrupted from the keyboard must not take this process along before it has cleaned
         * up. */
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent || unshare(CLONE_NEWNET) != 0 || write(ready[1], "r", 1) != 1)
            _exit(1);
        hold(directory);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        give_up("a network namespace cannot be made");
    close(ready[0]);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        give_up("%s", path);
    return pid;
}

static void move_to(int fd)
{
    if (setns(fd, CLONE_NEWNET) != 0)
        give_up("setns");
}

void netns_enter(const struct netns *net, enum netns_side side)
{
    move_to(net->fds[side]);
}

void netns_leave(const struct netns *net)
{
    move_to(net->home);
}

static pid_t netns_start(const struct netns *net, enum netns_side side, char *const argv[], int out)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork");
    if (pid > 0)
        return pid;
    end_with_test(parent);
    move_to(net->fds[side]);
    (void)setenv("RUNTIME_DIRECTORY", net->directory, 1);
    if (out >= 0)
        (void)dup2(out, STDOUT_FILENO);
    execvp(argv[0], argv);
    give_up("cannot run %s", argv[0]);
}

static int exit_code(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int netns_run(const struct netns *net, enum netns_side side, const char *format, ...)
{
    char command[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof(command), format, list);
    va_end(list);
    char *argv[] = {"/bin/sh", "-c", command, NULL};
    return exit_code(netns_start(net, side, argv, -1));
}

static void must_run(const struct netns *net, enum netns_side side, const char *command)
{
    if (netns_run(net, side, "%s", command) != 0)
        give_up("\"%s\" failed", command);
}

static void configure_client(const struct netns *net)
{
    must_run(net, NETNS_CLIENT,
             "ip link set lo up && ip link set " NETNS_CLIENT_IF " up && "
             "ip addr add " NETNS_CLIENT_IPV4 "/24 dev " NETNS_CLIENT_IF " && "
             "ip addr add " NETNS_CLIENT_IPV6 "/64 dev " NETNS_CLIENT_IF " nodad");
}

/* A veth pair from the server's namespace into that of `peer_holder`. */
static void lay_piece(const struct netns *net, const char *name, const char *peer, pid_t peer_holder,
                      const struct netns_options *o)
{
    unsigned mtu = o->mtu != 0 ? o->mtu : 1500, queues = o->queues != 0 ? o->queues : 1;
    if (netns_run(net, NETNS_SERVER,
                  "ip link add %s mtu %u numtxqueues %u numrxqueues %u type veth "
                  "peer name %s mtu %u numtxqueues %u numrxqueues %u netns %d && ip link set %s up",
                  name, mtu, queues, queues, peer, mtu, queues, queues, (int)peer_holder, name) != 0)
        give_up("a veth pair cannot be made");
}

static void lay_cable(const struct netns *net, const struct netns_options *o)
{
    const pid_t *holders = net->holders;
    if (!o->cut) {
        lay_piece(net, NETNS_SERVER_IF, NETNS_CLIENT_IF, holders[NETNS_CLIENT], o);
        return;
    }
    lay_piece(net, NETNS_SERVER_IF, NETNS_SERVER_END, holders[NETNS_SERVER], o);
    lay_piece(net, NETNS_CLIENT_END, NETNS_CLIENT_IF, holders[NETNS_CLIENT], o);
    must_run(net, NETNS_SERVER, "ip link set " NETNS_SERVER_END " up");
}

static void configure_server(const struct netns *net)
{
    must_run(net, NETNS_SERVER,
             "echo 0 > /proc/sys/net/ipv6/conf/" NETNS_SERVER_IF "/disable_ipv6 && "
             "ip link set " NETNS_SERVER_IF " up && "
             "ip addr add " NETNS_SERVER_IPV4 "/24 dev " NETNS_SERVER_IF " && "
             "ip addr add " NETNS_SERVER_IPV6 "/64 dev " NETNS_SERVER_IF " nodad");
}

/* A veth pair between a host and the router, `number` of the router's links. Frames are whole, and have
 * checksums: those who read them from a port could not tell otherwise. */
static void lay_link(const struct netns *net, enum netns_side side, const char *name, unsigned number,
                     unsigned mtu)
{
    char ipv6[64] = "fd99::ff";
    if (number != 0)
        snprintf(ipv6, sizeof(ipv6), "fd99:0:0:%u::ff", number);
    if (netns_run(net, NETNS_ROUTER,
                  "ip link add route%u mtu %u type veth peer name %s mtu %u netns %d && "
                  "ethtool -K route%u tx off gso off gro off >/dev/null && ip link set route%u up && "
                  "ip addr add 10.99.%u.254/24 dev route%u && ip addr add %s/64 dev route%u nodad",
                  number, mtu, name, mtu, (int)net->holders[side], number, number, number, number, ipv6,
                  number) != 0 ||
        netns_run(net, side, "ethtool -K %s tx off gso off >/dev/null && ip link set %s up", name, name) != 0)
        give_up("a link to the router cannot be made");
}

/* The server's and the second host's kernels have the addresses that are DPDK's otherwise, and the routes. */
static void configure_routed_servers(const struct netns *net)
{
    configure_server(net);
    must_run(net, NETNS_SERVER,
             "ip route add default via " NETNS_SERVER_GATEWAY4 " && "
             "ip -6 route add default via " NETNS_SERVER_GATEWAY6);
    must_run(net, NETNS_SECOND,
             "echo 0 > /proc/sys/net/ipv6/conf/" NETNS_SECOND_IF "/disable_ipv6 && "
             "ip addr add " NETNS_SECOND_IPV4 "/24 dev " NETNS_SECOND_IF " && "
             "ip addr add " NETNS_SECOND_IPV6 "/64 dev " NETNS_SECOND_IF " nodad && "
             "ip route replace default via " NETNS_SECOND_GATEWAY4 " && "
             "ip -6 route add default via " NETNS_SECOND_GATEWAY6);
}

static void lay_router(const struct netns *net, const struct netns_options *o)
{
    unsigned mtu = o->mtu != 0 ? o->mtu : 1500;
    must_run(net, NETNS_ROUTER,
             "ip link set lo up && echo 1 > /proc/sys/net/ipv4/ip_forward && "
             "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding && "
             "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
    lay_link(net, NETNS_SERVER, NETNS_SERVER_IF, 0, mtu);
    lay_link(net, NETNS_CLIENT, NETNS_CLIENT_IF, 1, mtu);
    lay_link(net, NETNS_SECOND, NETNS_SECOND_IF, 2, mtu);
    lay_link(net, NETNS_SECOND, "beside0", 3, mtu);
    must_run(net, NETNS_SECOND,
             "ip link set lo up && ip addr add " NETNS_BESIDE_IPV4 "/24 dev beside0 && "
             "ip route add default via 10.99.3.254");
    must_run(net, NETNS_CLIENT,
             "ip link set lo up && ip addr add " NETNS_FAR_IPV4 "/24 dev " NETNS_CLIENT_IF " && "
             "ip addr add " NETNS_FAR_IPV6 "/64 dev " NETNS_CLIENT_IF " nodad && "
             "ip route add default via 10.99.1.254 && ip -6 route add default via fd99:0:0:1::ff");
    if (o->server_kernel)
        configure_routed_servers(net);
}

/* Its kernel must not answer in DPDK's place. */
static void silence_kernel(const struct netns *net, enum netns_side side)
{
    must_run(net, side,
             "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 && "
             "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
}

void netns_create(struct netns *net, const struct netns_options *options)
{
    static const struct netns_options none;
    const struct netns_options *o = options != NULL ? options : &none;
    *net = (struct netns){.home = -1, .sides = o->routed ? NETNS_SIDES : NETNS_CLIENT + 1};
    snprintf(net->directory, sizeof(net->directory), "/tmp/millrace-test-XXXXXX");
    if (mkdtemp(net->directory) == NULL)
        give_up("%s", net->directory);
    net->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (uint32_t side = 0; side < net->sides; side++)
        net->holders[side] = hold_namespace(net->directory, &net->fds[side]);
    silence_kernel(net, NETNS_SERVER);
    if (o->routed)
        silence_kernel(net, NETNS_SECOND);
    /* The client need not wait for duplicate addresses. */
    must_run(net, NETNS_CLIENT,
             "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad && "
             "echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad");
    if (o->routed)
        lay_router(net, o);
    if (o->no_veth || o->routed)
        return;
    lay_cable(net, o);
    if (!o->keep_offloads)
        must_run(net, NETNS_CLIENT, "ethtool -K " NETNS_CLIENT_IF " tx off gso off >/dev/null");
    configure_client(net);
    if (o->server_kernel)
        configure_server(net);
    if (o->server_kernel && o->cut && !o->keep_offloads) /* whole frames for who carries them */
        must_run(net, NETNS_SERVER, "ethtool -K " NETNS_SERVER_IF " tx off gso off >/dev/null");
}

void netns_give_to_client(const struct netns *net, const char *interface)
{
    if (netns_run(net, NETNS_SERVER, "ip link set %s netns %d name " NETNS_CLIENT_IF, interface,
                  (int)net->holders[NETNS_CLIENT]) != 0)
        give_up("%s cannot be moved", interface);
    configure_client(net);
}

void netns_destroy(struct netns *net)
{
    move_to(net->home);
    close(net->home);
    for (uint32_t side = 0; side < net->sides; side++) {
        close(net->fds[side]);
        kill(net->holders[side], SIGTERM);
        (void)exit_code(net->holders[side]);
    }
}

void netns_spawn(const struct netns *net, enum netns_side side, char *const argv[], struct netns_process *out)
{
    int out_pipe[2];
    if (pipe2(out_pipe, O_CLOEXEC) != 0)
        give_up("pipe");
    *out = (struct netns_process){.pid = netns_start(net, side, argv, out_pipe[1]), .out = out_pipe[0]};
    close(out_pipe[1]);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool netns_wait_line(struct netns_process *process, const char *text, int timeout_ms)
{
    int64_t deadline_ms = now_ms() + timeout_ms;
    char c;
    process->line_bytes = 0;
    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        struct pollfd readable = {.fd = process->out, .events = POLLIN};
        if (left_ms <= 0 || poll(&readable, 1, (int)left_ms) <= 0 || read(process->out, &c, 1) != 1)
            return false;
        if (c != '\n') {
            if (process->line_bytes + 1 < sizeof(process->line))
                process->line[process->line_bytes++] = c;
            continue;
        }
        process->line[process->line_bytes] = '\0';
        if (strstr(process->line, text) != NULL)
            return true;
        process->line_bytes = 0;
    }
}

void netns_suspend(pid_t pid)
{
    siginfo_t info;
    if (kill(pid, SIGSTOP) != 0 || waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 ||
        info.si_code != CLD_STOPPED)
        give_up("suspend");
}

void netns_resume(pid_t pid)
{
    if (kill(pid, SIGCONT) != 0)
        give_up("resume");
}

int netns_end(struct netns_process *process, int signal)
{
    if (signal != 0)
        kill(process->pid, signal);
    int code = exit_code(process->pid);
    close(process->out);
    return code;
}
