#include "tests/bench/limits/bare_socket.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/bench/common/bench_print.h"

#define RECEIVED_BYTES 65536u
#define BUFFER_BYTES   (16 << 20)
#define IPV4_UDP_BYTES 28u
#define CONTROL_BYTES  CMSG_SPACE(sizeof(int))

void bare_socket_open(struct bare_socket *s, uint32_t mtu)
{
    int bytes = BUFFER_BYTES, on = 1;
    *s = (struct bare_socket){.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    s->payload_bytes_max = (mtu - IPV4_UDP_BYTES - (uint32_t)sizeof(struct bare_header)) / 8 * 8;
    s->received = bench_allocate((size_t)BARE_RECEIVED_RUNS_MAX * RECEIVED_BYTES);
    if (s->fd < 0 || setsockopt(s->fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) != 0)
        bench_give_up("no UDP socket that receives runs");
    (void)setsockopt(s->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    (void)setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
}

void bare_socket_flush(struct bare_socket *s)
{
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct msghdr message = {.msg_name = &s->peer,
                             .msg_namelen = sizeof(s->peer),
                             .msg_iov = s->vector,
                             .msg_iovlen = s->pieces,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    const uint16_t segment_bytes = (uint16_t)s->datagram_bytes;

    if (s->datagrams == 0)
        return;
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof(segment_bytes));
    memcpy(CMSG_DATA(header), &segment_bytes, sizeof(segment_bytes));
    while (sendmsg(s->fd, &message, 0) < 0)
        if (errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED && errno != ENOBUFS)
            bench_give_up("a run cannot be sent");
    s->datagrams = s->bytes = s->pieces = 0;
}

void bare_socket_add(struct bare_socket *s, const struct bare_header *header, const struct iovec *pieces,
                     uint32_t piece_count)
{
    uint32_t bytes = sizeof(*header);
    for (uint32_t i = 0; i < piece_count; i++)
        bytes += (uint32_t)pieces[i].iov_len;
    if (s->datagrams > 0 && (bytes > s->datagram_bytes || s->bytes + bytes > BARE_RUN_BYTES_MAX))
        bare_socket_flush(s);
    if (s->datagrams == 0)
        s->datagram_bytes = bytes;
    s->headers[s->datagrams] = *header;
    s->vector[s->pieces++] = (struct iovec){&s->headers[s->datagrams++], sizeof(*header)};
    for (uint32_t i = 0; i < piece_count; i++)
        s->vector[s->pieces++] = pieces[i];
    s->bytes += bytes;
    if (bytes < s->datagram_bytes || s->datagrams == BARE_RUN_DATAGRAMS_MAX)
        bare_socket_flush(s);
}

/* Bytes of each datagram of a run but the last. */
static uint32_t run_segment_bytes(struct msghdr *message, uint32_t bytes)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        int segment_bytes;
        if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO)
            continue;
        memcpy(&segment_bytes, CMSG_DATA(c), sizeof(segment_bytes));
        return (uint32_t)segment_bytes;
    }
    return bytes;
}

uint32_t bare_socket_receive(struct bare_socket *s,
                             void (*take)(void *arg, const struct bare_header *header, const void *payload,
                                          uint32_t bytes),
                             void *arg)
{
    _Alignas(struct cmsghdr) uint8_t control[BARE_RECEIVED_RUNS_MAX][CONTROL_BYTES];
    struct mmsghdr messages[BARE_RECEIVED_RUNS_MAX];
    struct iovec vector[BARE_RECEIVED_RUNS_MAX];
    uint32_t datagrams = 0;

    for (uint32_t i = 0; i < BARE_RECEIVED_RUNS_MAX; i++) {
        vector[i] = (struct iovec){s->received + (size_t)i * RECEIVED_BYTES, RECEIVED_BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &s->peer,
                                              .msg_namelen = sizeof(s->peer),
                                              .msg_iov = &vector[i],
                                              .msg_iovlen = 1,
                                              .msg_control = control[i],
                                              .msg_controllen = CONTROL_BYTES};
    }
    int runs = recvmmsg(s->fd, messages, BARE_RECEIVED_RUNS_MAX, MSG_DONTWAIT, NULL);
    for (int i = 0; i < runs; i++) {
        const uint32_t bytes = messages[i].msg_len;
        const uint32_t segment_bytes = run_segment_bytes(&messages[i].msg_hdr, bytes);
        for (uint32_t at = 0; at < bytes; at += segment_bytes) {
            const uint32_t left = bytes - at < segment_bytes ? bytes - at : segment_bytes;
            struct bare_header header;
            if (left < sizeof(header))
                break;
            memcpy(&header, (uint8_t *)vector[i].iov_base + at, sizeof(header));
            take(arg, &header, (uint8_t *)vector[i].iov_base + at + sizeof(header),
                 left - (uint32_t)sizeof(header));
            datagrams++;
        }
    }
    return datagrams;
}
