#include "dataplane/udp/udp_receive.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "dataplane/udp/address.h"

#define SLOTS         32u
#define SLOT_BYTES    65536u /* a run of joined datagrams is at most one IP packet's length */
#define CONTROL_BYTES 128u

struct mr_udp_receiver {
    const struct mr_udp_socket *socket;
    uint8_t *memory;
    uint32_t filled, slot; /* slots of the burst, and the one being handed out */
    uint32_t offset;       /* in that slot */
    uint32_t run_bytes;    /* of each datagram in it; the last may be shorter */
    struct mr_address from;
    bool refused, too_long;
    struct mmsghdr messages[SLOTS];
    struct iovec vectors[SLOTS];
    struct sockaddr_storage names[SLOTS];
    _Alignas(struct cmsghdr) uint8_t control[SLOTS][CONTROL_BYTES];
};

struct mr_udp_receiver *mr_udp_receiver_create(const struct mr_udp_socket *socket)
{
    struct mr_udp_receiver *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return NULL;
    r->socket = socket;
    /* Mapped, not allocated: only the pages that datagrams reach cost memory. */
    r->memory = mmap(NULL, (size_t)SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->memory == MAP_FAILED) {
        free(r);
        return NULL;
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        r->vectors[i] = (struct iovec){.iov_base = r->memory + (size_t)i * SLOT_BYTES, .iov_len = SLOT_BYTES};
    return r;
}

void mr_udp_receiver_destroy(struct mr_udp_receiver *r)
{
    if (r == NULL)
        return;
    munmap(r->memory, (size_t)SLOTS * SLOT_BYTES);
    free(r);
}

static void prepare(struct mr_udp_receiver *r, uint32_t i)
{
    r->messages[i].msg_hdr = (struct msghdr){
        .msg_name = r->socket->connected ? NULL : &r->names[i],
        .msg_namelen = r->socket->connected ? 0 : sizeof(r->names[i]),
        .msg_iov = &r->vectors[i],
        .msg_iovlen = 1,
        .msg_control = r->control[i],
        .msg_controllen = CONTROL_BYTES,
    };
}

bool mr_udp_receive(struct mr_udp_receiver *r)
{
    /* The kernel overwrites the headers of the slots it fills, and only those. */
    uint32_t stale = r->messages[0].msg_hdr.msg_iov == NULL ? SLOTS : r->filled;

    for (uint32_t i = 0; i < stale; i++)
        prepare(r, i);
    r->filled = 0;
    r->slot = 0;
    r->offset = 0;

    int got = recvmmsg(r->socket->fd, r->messages, SLOTS, MSG_DONTWAIT, NULL);

    if (got > 0) {
        r->filled = (uint32_t)got;
        return true;
    }
    if (got < 0 && errno == ECONNREFUSED)
        r->refused = true;
    if (got < 0 && errno == EMSGSIZE)
        r->too_long = true;
    return false;
}

/* Reads what the kernel says of slot i: the length of the datagrams in it, and where it was sent to. */
static void read_control(struct mr_udp_receiver *r, uint32_t i)
{
    struct msghdr *header = &r->messages[i].msg_hdr;
    r->run_bytes = r->messages[i].msg_len;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int segment_bytes;
            memcpy(&segment_bytes, CMSG_DATA(c), sizeof(segment_bytes));
            if (segment_bytes > 0)
                r->run_bytes = (uint32_t)segment_bytes;
        } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            r->from.path[2] = htonl(0xffff);
            memcpy(&r->from.path[3], &info.ipi_addr, 4);
            r->from.path[4] = (uint32_t)info.ipi_ifindex;
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            memcpy(r->from.path, &info.ipi6_addr, 16);
            r->from.path[4] = (uint32_t)info.ipi6_ifindex;
        }
    }
}

bool mr_udp_receive_next(struct mr_udp_receiver *r, struct mr_address *from, const uint8_t **datagram,
                         size_t *datagram_bytes)
{
    while (r->slot < r->filled) {
        uint32_t i = r->slot, slot_bytes = r->messages[i].msg_len;
        if (r->offset == 0) {
            if (!r->socket->connected)
                mr_address_from_sockaddr((const struct sockaddr *)&r->names[i], &r->from);
            read_control(r, i);
        }
        const bool is_empty = slot_bytes == 0; /* a datagram all the same, whose receiver counts it */
        if (is_empty || r->offset < slot_bytes) {
            uint32_t left = slot_bytes - r->offset;
            *from = r->from;
            *datagram = (const uint8_t *)r->vectors[i].iov_base + r->offset;
            *datagram_bytes = left < r->run_bytes ? left : r->run_bytes;
            r->offset += (uint32_t)*datagram_bytes;
            r->slot += is_empty;
            return true;
        }
        r->slot++;
        r->offset = 0;
    }
    return false;
}

bool mr_udp_receive_refused(struct mr_udp_receiver *r)
{
    bool refused = r->refused;
    r->refused = false;
    return refused;
}

bool mr_udp_receive_too_long(struct mr_udp_receiver *r)
{
    bool too_long = r->too_long;
    r->too_long = false;
    return too_long;
}
