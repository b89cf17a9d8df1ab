/* A bad cable: carries frames between two network interfaces, and loses, repeats, reorders and damages some
 * of them.
 *
 *   forwarder IF IF LOSS_PPM DUPLICATE_PPM REORDER_PPM CORRUPT_PPM SEED
 *
 * Prints "forwarding", and when it is ended by SIGTERM what it did. Shares no code with what it tests. */
#include <errno.h>
#include <net/if.h>
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { FRAME_BYTES = 16384, BUFFER_BYTES = 32 << 20, OVERTAKEN_BY = 4, QUIET_MS = 5, BURST = 64 };

enum fault { LOSS, DUPLICATE, REORDER, CORRUPT, FAULTS };

struct way {
    int in, out;
    uint8_t held[FRAME_BYTES];
    ssize_t held_bytes; /* 0 = none is held back */
    uint32_t overtaken;
};

static volatile sig_atomic_t stop_requested;
static unsigned long ppm[FAULTS], done[FAULTS], carried;
static uint64_t state;

static void on_signal(int number)
{
    (void)number;
    stop_requested = 1;
}

/* splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t random_number(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool strikes(enum fault fault)
{
    bool now = random_number() % 1000000 < ppm[fault];
    done[fault] += now;
    return now;
}

static int open_end(const char *name)
{
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)), bytes = BUFFER_BYTES, on = 1;
    if (fd < 0 || at.sll_ifindex == 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0) {
        fprintf(stderr, "forwarder: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
    return fd;
}

/* What does not fit is lost: a cable waits for nobody. */
static void forwarder_put(const struct way *way, const uint8_t *frame, ssize_t bytes)
{
    if (send(way->out, frame, (size_t)bytes, 0) == bytes)
        carried++;
}

static void let_go(struct way *way)
{
    if (way->held_bytes > 0)
        forwarder_put(way, way->held, way->held_bytes);
    way->held_bytes = 0;
}

static void carry(struct way *way, uint8_t *frame, ssize_t bytes)
{
    if (strikes(LOSS))
        return;
    if (strikes(CORRUPT)) {
        uint64_t bit = random_number() % ((uint64_t)(bytes - ETH_HLEN) * 8);
        frame[ETH_HLEN + bit / 8] = (uint8_t)(frame[ETH_HLEN + bit / 8] ^ 1u << bit % 8);
    }
    if (way->held_bytes == 0 && strikes(REORDER)) {
        memcpy(way->held, frame, (size_t)bytes);
        way->held_bytes = bytes;
        way->overtaken = 0;
        return;
    }
    forwarder_put(way, frame, bytes);
    if (strikes(DUPLICATE))
        forwarder_put(way, frame, bytes);
    if (way->held_bytes > 0 && ++way->overtaken == OVERTAKEN_BY)
        let_go(way);
}

static void drain(struct way *way)
{
    static uint8_t frame[FRAME_BYTES];
    for (int i = 0; i < BURST; i++) {
        ssize_t bytes = recv(way->in, frame, sizeof(frame), MSG_DONTWAIT);
        if (bytes <= ETH_HLEN)
            return;
        carry(way, frame, bytes);
    }
}

int main(int argc, char **argv)
{
    static struct way ways[2];
    if (argc != 8) {
        fprintf(stderr, "usage: forwarder IF IF LOSS_PPM DUPLICATE_PPM REORDER_PPM CORRUPT_PPM SEED\n");
        return 2;
    }
    ways[0].in = ways[1].out = open_end(argv[1]);
    ways[0].out = ways[1].in = open_end(argv[2]);
    for (int i = 0; i < FAULTS; i++)
        ppm[i] = strtoul(argv[3 + i], NULL, 10);
    state = strtoull(argv[7], NULL, 10);
    (void)sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    printf("forwarding\n");
    fflush(stdout);
    while (!stop_requested) {
        struct pollfd readable[2] = {{.fd = ways[0].in, .events = POLLIN},
                                     {.fd = ways[1].in, .events = POLLIN}};
        bool quiet = poll(readable, 2, QUIET_MS) == 0;
        for (int i = 0; i < 2; i++)
            if (quiet)
                let_go(&ways[i]);
            else
                drain(&ways[i]);
    }
    printf("carried %lu lost %lu duplicated %lu reordered %lu corrupted %lu\n", carried, done[LOSS],
           done[DUPLICATE], done[REORDER], done[CORRUPT]);
    return 0;
}
