#include "cuts_net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "fiber.h"
#include "tests/property/random.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_send.h"

#define CLIENT_PORT       20000u
#define SOCKET_ROOM_BYTES (1u << 20)
#define MILLION           1000000u

struct net_socket { /* a client's */
    int fd;         /* an eventfd: readable when something has come; -1: closed */
    uint32_t server_core;
    struct net_packet *first, **last;
    uint32_t bytes;
};

static struct {
    struct net_faults faults;
    bool server_off;
    uint32_t life; /* of the server: what an earlier one sent is lost */
    struct net_socket sockets[NET_SOCKETS_MAX];
    uint32_t socket_count;
} net;

static const int somebody; /* what clients wait on */

void net_begin(const struct net_faults *faults)
{
    memset(&net, 0, sizeof(net));
    net.faults = *faults;
}

void net_calm(void)
{
    net.faults.lose_ppm = net.faults.repeat_ppm = net.faults.late_ppm = 0;
}

void net_server_off(bool off)
{
    net.server_off = off;
}

static bool happens(uint32_t ppm)
{
    return ppm > 0 && random_below(fiber_random(), MILLION) < ppm;
}

/* ---- on the way ---- */

static void arrive_at_client(struct net_packet *packet)
{
    struct net_socket *s = &net.sockets[packet->socket];
    const uint64_t one = 1;
    if (s->fd < 0 || s->bytes + packet->bytes > SOCKET_ROOM_BYTES) {
        free(packet);
        return;
    }
    packet->next = NULL;
    *s->last = packet;
    s->last = &packet->next;
    s->bytes += packet->bytes;
    ssize_t written = write(s->fd, &one, sizeof(one));

    assert(written == sizeof(one));
    (void)written;
    fiber_wake(&somebody);
}

static void arrive(void *arg)
{
    struct net_packet *packet = arg;
    fibers_note(packet->bytes);
    if (net.server_off)
        free(packet);
    else if (packet->to_server)
        net_to_core(packet);
    else
        arrive_at_client(packet);
}

static void put_on_the_way(const struct net_packet *head, const uint8_t *data)
{
    struct net_packet *packet = malloc(sizeof(*packet) + head->bytes);
    uint64_t delay_ns = 1000 + random_below(fiber_random(), net.faults.delay_ns);
    assert(packet != NULL);
    *packet = *head;
    memcpy(packet->data, data, head->bytes);
    if (happens(net.faults.late_ppm))
        delay_ns += random_below(fiber_random(), net.faults.late_ns);
    fiber_at(fiber_now_ns() + delay_ns, arrive, packet);
}

static void send_packet(const struct net_packet *head, const uint8_t *data)
{
    if (net.server_off || happens(net.faults.lose_ppm))
        return;
    put_on_the_way(head, data);
    if (happens(net.faults.repeat_ppm))
        put_on_the_way(head, data);
}

static struct mr_address address_of(uint8_t host, uint32_t port)
{
    struct mr_address address = {.port = (uint16_t)port};
    address.ip[10] = address.ip[11] = 0xff;
    address.ip[12] = 10;
    address.ip[15] = host;
    return address;
}

void net_from_core(uint32_t core, const struct mr_address *to, const uint8_t *data, uint32_t bytes)
{
    struct net_packet head = {
        .from = address_of(1, NET_SERVER_PORT + core), .socket = to->port - CLIENT_PORT, .bytes = bytes};
    assert(to->port >= CLIENT_PORT && head.socket < net.socket_count);
    send_packet(&head, data);
}

/* ---- the library's sockets ---- */

enum mr_status __wrap_mr_udp_connect(const struct mr_address *peer, const struct mr_udp_options *options,
                                     struct mr_udp_socket *out, char *error, size_t error_bytes);
void __wrap_mr_udp_close(struct mr_udp_socket *s);
struct mr_udp_receiver *__wrap_mr_udp_receiver_create(const struct mr_udp_socket *socket);
void __wrap_mr_udp_receiver_destroy(struct mr_udp_receiver *r);
bool __wrap_mr_udp_receive(struct mr_udp_receiver *r);
bool __wrap_mr_udp_receive_next(struct mr_udp_receiver *r, struct mr_address *from, const uint8_t **datagram,
                                size_t *datagram_bytes);
bool __wrap_mr_udp_receive_refused(struct mr_udp_receiver *r);
bool __wrap_mr_udp_receive_too_long(struct mr_udp_receiver *r);
bool __wrap_mr_udp_send_too_long(struct mr_udp_sender *s);
struct mr_udp_sender *__wrap_mr_udp_sender_create(const struct mr_udp_socket *socket, bool offload);
void __wrap_mr_udp_sender_destroy(struct mr_udp_sender *s);
bool __wrap_mr_udp_send_flush(struct mr_udp_sender *s);
struct mr_endpoint_io __wrap_mr_udp_io(struct mr_udp_sender *s);
void __wrap_mr_udp_send_set_offload(struct mr_udp_sender *s, bool offload);
uint64_t __wrap_mr_udp_send_offloaded(const struct mr_udp_sender *s);
int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *limit,
                        const sigset_t *mask);

struct mr_udp_receiver {
    const struct mr_udp_socket *socket; /* another may take its place there */
    struct net_packet *burst, *next;
};

struct mr_udp_sender {
    const struct mr_udp_socket *socket;
    uint8_t open[NET_UDP_BYTES + 8];
};

static struct net_socket *socket_of(const struct mr_udp_socket *s)
{
    uint32_t at = 0;
    while (net.sockets[at].fd != s->fd)
        at++;
    assert(at < net.socket_count);
    return &net.sockets[at];
}

enum mr_status __wrap_mr_udp_connect(const struct mr_address *peer, const struct mr_udp_options *options,
                                     struct mr_udp_socket *out, char *error, size_t error_bytes)
{
    (void)options;
    if (error_bytes > 0)
        error[0] = '\0';
    assert(net.socket_count < NET_SOCKETS_MAX);
    struct net_socket *s = &net.sockets[net.socket_count++];

    *s = (struct net_socket){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                             .server_core = (uint32_t)(peer->port - NET_SERVER_PORT),
                             .last = &s->first};
    assert(s->fd >= 0);
    *out = (struct mr_udp_socket){.fd = s->fd,
                                  .family = AF_INET,
                                  .connected = true,
                                  .udp_bytes_max = NET_UDP_BYTES,
                                  .receive_buffer_bytes = SOCKET_ROOM_BYTES,
                                  .receive_window_bytes = SOCKET_ROOM_BYTES / 4};
    return MR_OK;
}

static void free_packets(struct net_packet *packet)
{
    while (packet != NULL) {
        struct net_packet *next = packet->next;
        free(packet);
        packet = next;
    }
}

void __wrap_mr_udp_close(struct mr_udp_socket *s)
{
    struct net_socket *mine = socket_of(s);
    free_packets(mine->first);
    (void)close(mine->fd);
    mine->fd = -1;
}

struct mr_udp_receiver *__wrap_mr_udp_receiver_create(const struct mr_udp_socket *socket)
{
    struct mr_udp_receiver *r = calloc(1, sizeof(*r));
    assert(r != NULL);
    r->socket = socket;
    return r;
}

void __wrap_mr_udp_receiver_destroy(struct mr_udp_receiver *r)
{
    if (r != NULL)
        free_packets(r->burst);
    free(r);
}

bool __wrap_mr_udp_receive(struct mr_udp_receiver *r)
{
    struct net_socket *s = socket_of(r->socket);
    uint64_t count;
    free_packets(r->burst);
    r->burst = r->next = s->first;
    if (s->first == NULL)
        return false;
    s->first = NULL;
    s->last = &s->first;
    s->bytes = 0;
    (void)!read(s->fd, &count, sizeof(count));
    return true;
}

bool __wrap_mr_udp_receive_next(struct mr_udp_receiver *r, struct mr_address *from, const uint8_t **datagram,
                                size_t *datagram_bytes)
{
    if (r->next == NULL)
        return false;
    *from = r->next->from;
    *datagram = r->next->data;
    *datagram_bytes = r->next->bytes;
    r->next = r->next->next;
    return true;
}

bool __wrap_mr_udp_receive_refused(struct mr_udp_receiver *r)
{
    (void)r;
    return false;
}

bool __wrap_mr_udp_receive_too_long(struct mr_udp_receiver *r)
{
    (void)r;
    return false;
}

bool __wrap_mr_udp_send_too_long(struct mr_udp_sender *s)
{
    (void)s;
    return false;
}

struct mr_udp_sender *__wrap_mr_udp_sender_create(const struct mr_udp_socket *socket, bool offload)
{
    struct mr_udp_sender *s = calloc(1, sizeof(*s));
    (void)offload;
    assert(s != NULL);
    s->socket = socket;
    return s;
}

void __wrap_mr_udp_sender_destroy(struct mr_udp_sender *s)
{
    free(s);
}

static uint8_t *send_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct mr_udp_sender *s = self;
    (void)to;
    assert(bytes_max <= NET_UDP_BYTES);
    (void)bytes_max;
    return s->open;
}

static void send_end(void *self, uint32_t bytes)
{
    struct mr_udp_sender *s = self;
    const struct net_socket *from = socket_of(s->socket);
    const uint32_t index = (uint32_t)(from - net.sockets);
    struct net_packet head = {.from = address_of(2, CLIENT_PORT + index),
                              .core = from->server_core,
                              .to_server = true,
                              .bytes = bytes};
    if (bytes > 0)
        send_packet(&head, s->open);
}

static void fill_random(void *self, void *out, size_t bytes)
{
    uint8_t *to = out;
    (void)self;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)random_next(fiber_random());
}

struct mr_endpoint_io __wrap_mr_udp_io(struct mr_udp_sender *s)
{
    return (struct mr_endpoint_io){s, send_begin, send_end, fill_random};
}

bool __wrap_mr_udp_send_flush(struct mr_udp_sender *s)
{
    (void)s;
    return true;
}

void __wrap_mr_udp_send_set_offload(struct mr_udp_sender *s, bool offload)
{
    (void)s;
    (void)offload;
}

uint64_t __wrap_mr_udp_send_offloaded(const struct mr_udp_sender *s)
{
    (void)s;
    return 0;
}

/* Ready is what the kernel says of the descriptors; only the waiting is ours. */
int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *limit,
                        const sigset_t *mask)
{
    const uint64_t until_ns =
        fiber_now_ns() + (uint64_t)limit->tv_sec * UINT64_C(1000000000) + (uint64_t)limit->tv_nsec;
    (void)mask;
    for (;;) {
        int ready = epoll_wait(fd, events, count, 0);
        if (ready != 0 || fiber_now_ns() >= until_ns)
            return ready;
        (void)fiber_wait(&somebody, until_ns);
    }
}
