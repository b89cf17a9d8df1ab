/* Two hosts and a cable, for tests: each end of a veth pair in a network namespace of its own.
 *
 *     server's namespace                        client's namespace
 *     server0  (no kernel address; DPDK's) ==== client0  10.99.0.2/24, fd99::2/64
 *     server: 10.99.0.1, fd99::1 by DPDK
 *
 * Or three hosts, each on a link of its own, and a router (`routed`):
 *
 *     server's                router's                          client's
 *     server0 ============== route0  10.99.0.254, fd99::ff
 *     second's                route1  10.99.1.254, fd99:0:0:1::ff ==== client0  10.99.1.2, fd99:0:0:1::2
 *     second0 ============== route2  10.99.2.254, fd99:0:0:2::ff
 *     beside0 ============== route3  10.99.3.254
 *     second: 10.99.2.1, fd99:0:0:2::1 by DPDK, and 10.99.3.2 by the kernel
 *
 * The namespaces have no names: a child process holds each open and ends with the test, so nothing is left
 * behind however the test ends, and tests run side by side. Needs root.
 */
#ifndef TESTS_NETNS_H
#define TESTS_NETNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NETNS_SERVER_IF   "server0"
#define NETNS_CLIENT_IF   "client0"
#define NETNS_SERVER_END  "wire0" /* of a cut cable: where server0 leads to, and */
#define NETNS_CLIENT_END  "wire1" /* where client0 leads to; both in the server's namespace */
#define NETNS_SERVER_IPV4 "10.99.0.1"
#define NETNS_CLIENT_IPV4 "10.99.0.2"
#define NETNS_SERVER_IPV6 "fd99::1"
#define NETNS_CLIENT_IPV6 "fd99::2"
#define NETNS_SECOND_IF   "second0"
/* Where routed: */
#define NETNS_FAR_IPV4        "10.99.1.2" /* the client's */
#define NETNS_FAR_IPV6        "fd99:0:0:1::2"
#define NETNS_SECOND_IPV4     "10.99.2.1"
#define NETNS_SECOND_IPV6     "fd99:0:0:2::1"
#define NETNS_SERVER_GATEWAY4 "10.99.0.254"
#define NETNS_SERVER_GATEWAY6 "fd99::ff"
#define NETNS_SECOND_GATEWAY4 "10.99.2.254"
#define NETNS_SECOND_GATEWAY6 "fd99:0:0:2::ff"
#define NETNS_BESIDE_IPV4     "10.99.3.2" /* of the second one's kernel */
#define NETNS_SKIP            77          /* exit code by which a test says that it could not run */

enum netns_side { NETNS_SERVER, NETNS_CLIENT, NETNS_SECOND, NETNS_ROUTER, NETNS_SIDES };

struct netns {
    uint32_t sides; /* the first two, or all */
    pid_t holders[NETNS_SIDES];
    int fds[NETNS_SIDES]; /* the namespaces */
    int home;             /* the namespace the test started in */
    char directory[64];   /* programs' run-time files, DPDK's among them; removed at the end */
};

struct netns_options {
    uint16_t mtu;       /* 0 = 1500 */
    uint16_t queues;    /* of each end; 0 = 1. The kernel spreads flows over them */
    bool cut;           /* the cable is cut in the middle: somebody must carry the frames from end to end */
    bool server_kernel; /* the kernels of server and second have their addresses, too */
    bool routed;  /* three hosts around a router, see above; with mtu and server_kernel alone of these */
    bool no_veth; /* no cable (tap makes its own, memif needs none) */
    /* leave checksum and segmentation offload of the client's end on; af_packet loses packets then. The
     * server's kernel keeps its own unless the cable is cut */
    bool keep_offloads;
};

/* Ends the process with NETNS_SKIP, saying why, unless it may make namespaces. */
void netns_require_root(void);

/* Aborts the test with a message on failure: a broken fixture is no result. */
void netns_create(struct netns *net, const struct netns_options *options);
/* Ends the holders; the kernel takes down the rest. Back to the namespace the test started in. */
void netns_destroy(struct netns *net);

/* Puts the calling thread into a namespace (sockets that it opens then belong there). */
void netns_enter(const struct netns *net, enum netns_side side);
void netns_leave(const struct netns *net);

/* Runs a shell command in a namespace; returns its exit code. */
int netns_run(const struct netns *net, enum netns_side side, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Moves an interface from the server's namespace to the client's, names it client0 and gives it the client's
 * addresses. */
void netns_give_to_client(const struct netns *net, const char *interface);

/* ---- programs under test ---- */

struct netns_process {
    pid_t pid;
    int out; /* its stdout */
    char line[2048];
    size_t line_bytes;
};

/* Starts argv in a namespace. It is killed when the test ends. */
void netns_spawn(const struct netns *net, enum netns_side side, char *const argv[],
                 struct netns_process *out);
/* Reads stdout until a line contains `text`; false when the output ends or `timeout_ms` passes first. The
 * line is in process->line. */
bool netns_wait_line(struct netns_process *process, const char *text, int timeout_ms);
/* Suspends a program that the test started, and returns once all of its threads have stopped: after kill()
 * alone they run on until the program's main thread gets a processor. */
void netns_suspend(pid_t pid);
void netns_resume(pid_t pid);
/* Sends `signal` (0 = none) and waits for the end; returns the exit code, or 128 + signal. */
int netns_end(struct netns_process *process, int signal);

#endif
