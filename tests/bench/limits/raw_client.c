/* Measures raw_server through an ordinary socket, one JSON object per line:
 *
 *   raw_client echo  --server 10.99.0.1:7700 [--payload 96] [--runs 20000]
 *       raw_echo_1    median round trip in us, one datagram at a time
 *       raw_echo_64   round trips a second, 64 in flight
 *   raw_client blast --server 10.99.0.1:7700 --bytes 851968 --mtu 1500 [--runs 500]
 *       raw_blast     median us from the order to the last byte
 *
 * The socket spins instead of sleeping: a limit knows no wake-ups. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/bench/common/bench_print.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#define OUTSTANDING    64u
#define WARM_UP_RUNS   1000u
#define LOST_AFTER_US  200000.0
#define GRO_BYTES      65536u
#define RUNS_MAX       1000000u
#define IPV4_UDP_BYTES 28u

struct options {
    const char *mode;
    struct sockaddr_in server;
    uint32_t payload_bytes, bytes, mtu, runs;
};

__attribute__((noreturn)) static void give_up(const char *what)
{
    fprintf(stderr, "raw_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_socket(const struct options *options)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), buffer_bytes = 16 << 20, on = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&options->server, sizeof(options->server)) != 0)
        give_up("socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes));
    if (strcmp(options->mode, "blast") == 0)
        (void)setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
    return fd;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_latency(const char *name, double *us, uint32_t runs, uint32_t lost)
{
    qsort(us, runs, sizeof(us[0]), compare_double);
    printf(
        "{\"name\": \"%s\", \"value\": %.2f, \"unit\": \"us\", \"p99\": %.2f, \"runs\": %u, \"lost\": %u}\n",
        name, us[runs / 2], us[(uint64_t)runs * 99 / 100], runs, lost);
    fflush(stdout);
}

/* Spins until a datagram is there; false when it must be lost. */
static bool spin_receive(int fd, uint8_t *in, size_t bytes_max, ssize_t *bytes)
{
    double deadline = bench_now_us() + LOST_AFTER_US;
    do {
        *bytes = recv(fd, in, bytes_max, MSG_DONTWAIT);
        if (*bytes >= 0)
            return true;
        if (errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
            give_up("receive");
        /* The packet may wait for the kernel's own thread on this CPU. */
        (void)sched_yield();
    } while (bench_now_us() < deadline);
    return false;
}

static void echo_one(int fd, const struct options *options)
{
    double *us = calloc(options->runs, sizeof(us[0]));
    uint8_t out[2048] = {0}, in[2048];
    uint32_t lost = 0, done = 0;
    ssize_t bytes;
    if (us == NULL)
        give_up("memory");
    while (done < options->runs + WARM_UP_RUNS) {
        double start = bench_now_us();
        if (send(fd, out, options->payload_bytes, 0) < 0 && errno != ECONNREFUSED)
            give_up("send");
        if (!spin_receive(fd, in, sizeof(in), &bytes)) {
            if (++lost > 1000)
                give_up("the server does not answer");
            continue;
        }
        if (done >= WARM_UP_RUNS)
            us[done - WARM_UP_RUNS] = bench_now_us() - start;
        done++;
    }
    print_latency("raw_echo_1", us, options->runs, lost);
    free(us);
}

struct window {
    struct mmsghdr messages[OUTSTANDING];
    struct iovec iov[OUTSTANDING];
    uint8_t data[OUTSTANDING][2048];
};

static struct window *window_make(uint32_t bytes)
{
    struct window *window = calloc(1, sizeof(*window));
    if (window == NULL)
        give_up("memory");
    for (uint32_t i = 0; i < OUTSTANDING; i++) {
        window->iov[i] = (struct iovec){window->data[i], bytes};
        window->messages[i].msg_hdr.msg_iov = &window->iov[i];
        window->messages[i].msg_hdr.msg_iovlen = 1;
    }
    return window;
}

static uint32_t send_some(int fd, struct window *window, uint32_t count)
{
    uint32_t sent = 0;
    while (sent < count) {
        int n = sendmmsg(fd, window->messages + sent, count - sent, 0);
        if (n < 0)
            give_up("send");
        sent += (uint32_t)n;
    }
    return sent;
}

static void echo_many(int fd, const struct options *options)
{
    struct window *out = window_make(options->payload_bytes), *in = window_make(2048);
    uint64_t wanted = (uint64_t)options->runs * 50, done = 0;
    uint32_t in_flight = 0, lost = 0;
    double start = bench_now_us(), heard = start;
    while (done < wanted) {
        in_flight += send_some(fd, out, OUTSTANDING - in_flight);
        int n = recvmmsg(fd, in->messages, OUTSTANDING, MSG_DONTWAIT, NULL);
        if (n > 0) {
            in_flight -= (uint32_t)n < in_flight ? (uint32_t)n : in_flight;
            done += (uint32_t)n;
            heard = bench_now_us();
        } else if (sched_yield() == 0 && bench_now_us() - heard > LOST_AFTER_US) {
            lost += in_flight;
            in_flight = 0;
            heard = bench_now_us();
            if (lost > 100000)
                give_up("the server does not answer");
        }
    }
    printf(
        "{\"name\": \"raw_echo_64\", \"value\": %.0f, \"unit\": \"calls/s\", \"runs\": %llu, \"lost\": %u}\n",
        (double)done / (bench_now_us() - start) * 1e6, (unsigned long long)done, lost);
    fflush(stdout);
    free(out);
    free(in);
}

/* One order and all that comes for it; false when something of it was lost. */
static bool blast_once(int fd, const uint32_t order[2], uint8_t *in, double *us)
{
    uint64_t wanted = (uint64_t)order[0] * order[1], got = 0;
    double start = bench_now_us();
    ssize_t bytes;
    if (send(fd, order, 2 * sizeof(order[0]), 0) < 0)
        give_up("send");
    while (got < wanted) {
        if (!spin_receive(fd, in, GRO_BYTES, &bytes))
            return false;
        got += (uint64_t)bytes;
    }
    *us = bench_now_us() - start;
    return true;
}

static void blast(int fd, const struct options *options)
{
    double *us = calloc(options->runs, sizeof(us[0]));
    uint8_t *in = malloc(GRO_BYTES);
    uint32_t payload = (options->mtu - IPV4_UDP_BYTES - 20) / 8 * 8, lost = 0, done = 0;
    uint32_t order[2] = {(options->bytes + payload - 1) / payload, payload};
    if (us == NULL || in == NULL)
        give_up("memory");
    while (done < options->runs)
        if (blast_once(fd, order, in, &us[done]))
            done++;
        else if (++lost > options->runs)
            give_up("every other blast loses packets");
    print_latency("raw_blast", us, options->runs, lost);
    free(us);
    free(in);
}

static void parse_server(const char *text, struct sockaddr_in *out)
{
    char ip[64];
    unsigned port;
    if (sscanf(text, "%63[^:]:%u", ip, &port) != 2 || port > UINT16_MAX ||
        inet_pton(AF_INET, ip, &out->sin_addr) != 1) {
        fprintf(stderr, "raw_client: --server wants 10.99.0.1:7700, not %s\n", text);
        exit(2);
    }
    out->sin_family = AF_INET;
    out->sin_port = htons((uint16_t)port);
}

static struct options raw_client_parse(int argc, char **argv)
{
    struct options options = {
        .mode = argc > 1 ? argv[1] : "", .payload_bytes = 96, .bytes = 851968, .mtu = 1500};
    for (int i = 2; i + 1 < argc; i += 2) {
        uint32_t number = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--server") == 0)
            parse_server(argv[i + 1], &options.server);
        else if (strcmp(argv[i], "--payload") == 0)
            options.payload_bytes = number;
        else if (strcmp(argv[i], "--bytes") == 0)
            options.bytes = number;
        else if (strcmp(argv[i], "--mtu") == 0)
            options.mtu = number;
        else if (strcmp(argv[i], "--runs") == 0)
            options.runs = number;
        else
            options.mode = "";
    }
    bool echo = strcmp(options.mode, "echo") == 0;
    if (options.runs == 0)
        options.runs = echo ? 20000 : 500;
    if ((!echo && strcmp(options.mode, "blast") != 0) || options.server.sin_port == 0 ||
        options.runs > RUNS_MAX || options.payload_bytes < 1 || options.payload_bytes > 1400 ||
        options.mtu < 1280 || options.mtu > 9000) {
        fprintf(
            stderr,
            "usage: raw_client echo|blast --server IP:PORT [--payload N] [--bytes N] [--mtu N] [--runs N]\n");
        exit(2);
    }
    return options;
}

int main(int argc, char **argv)
{
    struct options options = raw_client_parse(argc, argv);
    int fd = open_socket(&options);
    if (strcmp(options.mode, "echo") == 0) {
        echo_one(fd, &options);
        echo_many(fd, &options);
    } else {
        blast(fd, &options);
    }
    close(fd);
    return 0;
}
