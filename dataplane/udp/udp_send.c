#include "dataplane/udp/udp_send.h"

#include <assert.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/random.h"
#include "dataplane/wire/format/packet.h"

#define BATCH_PACKETS_MAX  256u
#define BATCH_BYTES        (1u << 20)
#define RUN_PACKETS_MAX    64u    /* the kernel's UDP_MAX_SEGMENTS */
#define RUN_BYTES_MAX      65000u /* below the largest IP packet */
#define RUNS_MAX           64u    /* per system call */
#define CONTROL_BYTES      128u
#define TYPE_OFFSET        3u /* of every packet, in all versions */
#define STRANGERS_PER_LOOK 16u
#define ERRORS_MAX         4u /* refusals of one datagram before it is dropped */
/* An incomplete run stays where it is, and what comes next is written after it: but not so far that the
 * memory no longer fits into the processor's cache. */
#define KEEP_BYTES_MAX (384u << 10)

struct packet {
    uint32_t offset, bytes;
    struct mr_address to;
};

struct run {
    uint32_t first, count;
};

struct mr_udp_sender {
    const struct mr_udp_socket *socket;
    bool offload, too_long;
    uint64_t offloaded;
    uint64_t strangers, strangers_dropped; /* answers to peers without a session */
    bool is_crowded;                       /* as the kernel said last: half of the socket's buffer is used */
    uint8_t *memory;
    uint32_t used; /* bytes of memory; 8-byte multiple */
    uint32_t head, count;
    struct packet packets[BATCH_PACKETS_MAX];
    struct run runs[RUNS_MAX];
    struct mmsghdr messages[RUNS_MAX];
    struct iovec vectors[RUNS_MAX];
    struct sockaddr_storage names[RUNS_MAX];
    _Alignas(struct cmsghdr) uint8_t control[RUNS_MAX][CONTROL_BYTES];
};

struct mr_udp_sender *mr_udp_sender_create(const struct mr_udp_socket *socket, bool offload)
{
    struct mr_udp_sender *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->socket = socket;
    s->offload = offload;
    s->memory = mmap(NULL, BATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->memory == MAP_FAILED) {
        free(s);
        return NULL;
    }
    return s;
}

void mr_udp_sender_destroy(struct mr_udp_sender *s)
{
    if (s == NULL)
        return;
    munmap(s->memory, BATCH_BYTES);
    free(s);
}

uint8_t *mr_udp_send_begin(struct mr_udp_sender *s, const struct mr_address *to, uint32_t bytes_max)
{
    assert(bytes_max <= MR_UDP_DATAGRAM_BYTES_MAX);
    if (s->count == BATCH_PACKETS_MAX || BATCH_BYTES - s->used < bytes_max) {
        if (!mr_udp_send_flush(s))
            return NULL;
    }
    s->packets[s->count] = (struct packet){.offset = s->used, .to = *to};
    return s->memory + s->used;
}

/* Whether it answers somebody without a session. */
static bool is_for_stranger(const uint8_t *datagram, uint32_t bytes)
{
    const uint8_t type = bytes > TYPE_OFFSET ? datagram[TYPE_OFFSET] : 0;
    return type == MR_PACKET_RETRY || type == MR_PACKET_RESET || type == MR_PACKET_VERSION;
}

static bool socket_is_crowded(const struct mr_udp_socket *socket)
{
    uint32_t memory[SK_MEMINFO_VARS] = {0};
    socklen_t bytes = sizeof(memory);
    return getsockopt(socket->fd, SOL_SOCKET, SO_MEMINFO, memory, &bytes) == 0 &&
           memory[SK_MEMINFO_WMEM_ALLOC] > memory[SK_MEMINFO_SNDBUF] / 2;
}

static bool stranger_is_dropped(struct mr_udp_sender *s)
{
    if (s->strangers++ % STRANGERS_PER_LOOK == 0)
        s->is_crowded = socket_is_crowded(s->socket);
    if (s->is_crowded)
        __atomic_store_n(&s->strangers_dropped, s->strangers_dropped + 1, __ATOMIC_RELAXED);
    return s->is_crowded;
}

uint64_t mr_udp_send_strangers_dropped(const struct mr_udp_sender *s)
{
    return __atomic_load_n(&s->strangers_dropped, __ATOMIC_RELAXED);
}

void mr_udp_send_end(struct mr_udp_sender *s, uint32_t bytes)
{
    if (bytes == 0)
        return;
    if (is_for_stranger(s->memory + s->used, bytes) && !s->socket->connected && stranger_is_dropped(s))
        return;
    s->packets[s->count].bytes = bytes;
    s->count++;
    s->used += (uint32_t)mr_padded(bytes);
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    return mr_udp_send_begin(self, to, bytes_max);
}

static void tx_end(void *self, uint32_t bytes)
{
    mr_udp_send_end(self, bytes);
}

static void fill_random(void *self, void *out, size_t n)
{
    (void)self;
    mr_random_fill(out, n);
}

struct mr_endpoint_io mr_udp_io(struct mr_udp_sender *s)
{
    return (struct mr_endpoint_io){.self = s, .tx_begin = tx_begin, .tx_end = tx_end, .random = fill_random};
}

static bool same_peer(const struct mr_udp_sender *s, const struct packet *a, const struct packet *b)
{
    return s->socket->connected || memcmp(&a->to, &b->to, sizeof(a->to)) == 0;
}

uint32_t mr_udp_run_datagrams(uint32_t datagram_bytes)
{
    uint32_t datagrams = RUN_BYTES_MAX / datagram_bytes;
    return datagrams < RUN_PACKETS_MAX ? datagrams : RUN_PACKETS_MAX;
}

/* How many packets from `first` on can go as one send: all of one length, but for a shorter last one. */
static uint32_t run_length(const struct mr_udp_sender *s, uint32_t first)
{
    const struct packet *a = &s->packets[first];
    uint32_t n = 1, bytes = a->bytes;
    if (!s->offload || a->bytes % 8 != 0)
        return 1;
    while (first + n < s->count && n < RUN_PACKETS_MAX) {
        const struct packet *b = &s->packets[first + n];
        if (b->bytes > a->bytes || bytes + b->bytes > RUN_BYTES_MAX || !same_peer(s, a, b))
            break;
        n++;
        bytes += b->bytes;
        if (b->bytes < a->bytes)
            break;
    }
    return n;
}

static void *append_control(struct msghdr *header, int level, int type, size_t bytes)
{
    struct cmsghdr *c = (struct cmsghdr *)((uint8_t *)header->msg_control + header->msg_controllen);
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(bytes);
    header->msg_controllen += CMSG_SPACE(bytes);
    return CMSG_DATA(c);
}

/* Answer from the address that was asked: the peer's connected socket takes no other. */
static void append_source(const struct mr_udp_sender *s, struct msghdr *header, const struct mr_address *to)
{
    struct mr_address local = {.port = 0};
    memcpy(local.ip, to->path, sizeof(local.ip));
    if (!s->socket->tells_local || mr_address_is_any(&local))
        return;
    if (mr_address_is_ipv4(&local)) {
        struct in_pktinfo info = {.ipi_ifindex = 0};
        memcpy(&info.ipi_spec_dst, local.ip + 12, 4);
        memcpy(append_control(header, IPPROTO_IP, IP_PKTINFO, sizeof(info)), &info, sizeof(info));
    } else {
        struct in6_pktinfo info = {.ipi6_ifindex = to->path[4]};
        memcpy(&info.ipi6_addr, local.ip, 16);
        memcpy(append_control(header, IPPROTO_IPV6, IPV6_PKTINFO, sizeof(info)), &info, sizeof(info));
    }
}

static void describe_run(struct mr_udp_sender *s, uint32_t i, uint32_t first, uint32_t count)
{
    const struct packet *a = &s->packets[first], *last = &s->packets[first + count - 1];
    struct msghdr *header = &s->messages[i].msg_hdr;
    s->runs[i] = (struct run){.first = first, .count = count};
    s->vectors[i] =
        (struct iovec){.iov_base = s->memory + a->offset, .iov_len = last->offset + last->bytes - a->offset};
    *header = (struct msghdr){.msg_iov = &s->vectors[i], .msg_iovlen = 1, .msg_control = s->control[i]};
    if (!s->socket->connected) {
        header->msg_name = &s->names[i];
        header->msg_namelen = mr_address_to_sockaddr(&a->to, s->socket->family, &s->names[i]);
        append_source(s, header, &a->to);
    }
    if (count > 1) {
        uint16_t segment_bytes = (uint16_t)a->bytes;
        memcpy(append_control(header, IPPROTO_UDP, UDP_SEGMENT, sizeof(segment_bytes)), &segment_bytes,
               sizeof(segment_bytes));
    }
    if (header->msg_controllen == 0)
        header->msg_control = NULL;
}

/* Whether these, the last of the batch, are less than half a run, which the next datagram may make longer.
 * More than that leave: their receiver would be idle meanwhile. */
static bool waits_for_more(const struct mr_udp_sender *s, uint32_t first, uint32_t count)
{
    const struct packet *a = &s->packets[first], *last = &s->packets[first + count - 1];
    return first + count == s->count && s->offload && a->bytes % 8 == 0 && last->bytes == a->bytes &&
           count < mr_udp_run_datagrams(a->bytes) / 2;
}

static uint32_t describe(struct mr_udp_sender *s, bool more_comes)
{
    uint32_t n = 0;
    for (uint32_t first = s->head; first < s->count && n < RUNS_MAX; n++) {
        uint32_t count = run_length(s, first);
        if (more_comes && waits_for_more(s, first, count))
            break;
        describe_run(s, n, first, count);
        first += count;
    }
    return n;
}

static void runs_sent(struct mr_udp_sender *s, uint32_t runs)
{
    for (uint32_t i = 0; i < runs; i++) {
        if (s->runs[i].count > 1)
            s->offloaded += s->runs[i].count;
        s->head += s->runs[i].count;
    }
}

static bool flush(struct mr_udp_sender *s, bool more_comes)
{
    uint32_t errors = 0;
    while (s->head < s->count) {
        uint32_t runs = describe(s, more_comes);
        if (runs == 0)
            return true;
        int sent = sendmmsg(s->socket->fd, s->messages, runs, MSG_DONTWAIT);
        s->too_long |= sent < 0 && errno == EMSGSIZE;
        if (sent > 0) {
            runs_sent(s, (uint32_t)sent);
            errors = 0;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
            return false;
        } else if (s->runs[0].count > 1 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
            s->offload =
                false; /* the device cannot checksum for us, or the kernel does not know the option */
        } else if (errno != EINTR && ++errors == ERRORS_MAX) {
            s->head += s->runs[0].count;
            errors = 0;
        }
    }
    s->head = 0;
    s->count = 0;
    s->used = 0;
    return true;
}

bool mr_udp_send_flush(struct mr_udp_sender *s)
{
    return flush(s, false);
}

bool mr_udp_send_flush_runs(struct mr_udp_sender *s)
{
    return flush(s, s->used <= KEEP_BYTES_MAX);
}

void mr_udp_send_set_offload(struct mr_udp_sender *s, bool offload)
{
    s->offload = offload;
}

bool mr_udp_send_too_long(struct mr_udp_sender *s)
{
    bool too_long = s->too_long;
    s->too_long = false;
    return too_long;
}

uint64_t mr_udp_send_offloaded(const struct mr_udp_sender *s)
{
    return s->offloaded;
}
