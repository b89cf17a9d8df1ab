/* The limit that the kernel's sockets set: raw_server's modes from a plain UDP socket, without the transport.
 *
 *   raw_socket echo  PORT   every datagram goes back as it came
 *   raw_socket blast PORT   a datagram holding u32 {packets, payload bytes} is answered with so many
 *                           datagrams, in runs that the kernel moves as one (UDP_SEGMENT)
 *
 * Spins instead of sleeping. Prints "ready" once it serves; ends on SIGTERM. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DATAGRAM_BYTES_MAX 65536u
#define BUFFER_BYTES       (16 << 20)
#define BLAST_PACKETS_MAX  65536u
#define RUN_PACKETS_MAX    64u /* UDP_MAX_SEGMENTS of Linux up to 6.8 */
#define RUN_BYTES_MAX      65000u

static volatile sig_atomic_t stop_requested;

static void on_signal(int signal)
{
    stop_requested = signal;
}

static int open_socket(uint16_t port)
{
    struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), bytes = BUFFER_BYTES;
    if (fd < 0 || bind(fd, (const struct sockaddr *)&local, sizeof(local)) != 0) {
        fprintf(stderr, "raw_socket: port %u: %s\n", port, strerror(errno));
        exit(1);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
    return fd;
}

/* One send of `packets` datagrams; false when the socket's buffer is full. */
static bool send_run(int fd, const struct sockaddr_in *to, uint32_t packets, uint16_t payload_bytes)
{
    static uint8_t payload[DATAGRAM_BYTES_MAX];
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(payload_bytes))] = {0};
    struct iovec vector = {.iov_base = payload, .iov_len = (size_t)packets * payload_bytes};
    struct msghdr message = {.msg_name = (void *)(uintptr_t)to,
                             .msg_namelen = sizeof(*to),
                             .msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof(payload_bytes));
    memcpy(CMSG_DATA(header), &payload_bytes, sizeof(payload_bytes));
    return sendmsg(fd, &message, 0) >= 0;
}

static void blast(int fd, const struct sockaddr_in *to, const uint32_t order[2])
{
    uint32_t left = order[0], run = order[1] == 0 ? 0 : RUN_BYTES_MAX / order[1];
    if (left > BLAST_PACKETS_MAX || run == 0)
        return;
    run = run < RUN_PACKETS_MAX ? run : RUN_PACKETS_MAX;
    while (left > 0 && !stop_requested) {
        uint32_t packets = left < run ? left : run;
        if (send_run(fd, to, packets, (uint16_t)order[1]))
            left -= packets;
    }
}

int main(int argc, char **argv)
{
    static uint8_t datagram[DATAGRAM_BYTES_MAX];
    bool echo = argc == 3 && strcmp(argv[1], "echo") == 0;
    if (argc != 3 || (!echo && strcmp(argv[1], "blast") != 0)) {
        fprintf(stderr, "usage: raw_socket echo|blast PORT\n");
        return 2;
    }
    int fd = open_socket((uint16_t)atoi(argv[2]));

    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    printf("ready\n");
    fflush(stdout);
    while (!stop_requested) {
        struct sockaddr_in from;
        socklen_t from_bytes = sizeof(from);
        ssize_t bytes = recvfrom(fd, datagram, sizeof(datagram), 0, (struct sockaddr *)&from, &from_bytes);
        uint32_t order[2];
        if (bytes < 0) {
            (void)sched_yield();
        } else if (echo) {
            (void)sendto(fd, datagram, (size_t)bytes, 0, (const struct sockaddr *)&from, from_bytes);
        } else if ((size_t)bytes >= sizeof(order)) {
            memcpy(order, datagram, sizeof(order));
            blast(fd, &from, order);
        }
    }
    close(fd);
    return 0;
}
