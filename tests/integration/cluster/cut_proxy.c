#include "tests/integration/cluster/cut_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "tests/test.h"

#define CHUNK_BYTES 65536u

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

struct orders {
    bool holds, stops;
};

static struct orders orders_of(struct cut_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    const struct orders o = {.holds = p->holds, .stops = p->stops};
    pthread_mutex_unlock(&p->lock);
    return o;
}

/* The thread that forwards looks at its orders again. */
static void cut_proxy_wake(struct cut_proxy *p)
{
    assert_int_equal(write(p->wake[1], "", 1), 1);
}

static void was_woken(struct cut_proxy *p)
{
    char byte;
    (void)!read(p->wake[0], &byte, 1);
}

/* Is this the request whose answer is to be lost? */
static bool is_marked(struct cut_proxy *p, const char *bytes, size_t count)
{
    pthread_mutex_lock(&p->lock);
    const bool is = p->needle[0] != '\0' && memmem(bytes, count, p->needle, strlen(p->needle)) != NULL;
    if (is)
        p->needle[0] = '\0';
    pthread_mutex_unlock(&p->lock);
    return is;
}

static bool send_all(int to, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

/* Until one side closes, the marked request has been answered, or there are new orders. */
static void forward(struct cut_proxy *p, int client, int server)
{
    static char chunk[CHUNK_BYTES];
    bool loses = false;
    for (;;) {
        struct pollfd fds[] = {{.fd = client, .events = POLLIN},
                               {.fd = server, .events = POLLIN},
                               {.fd = p->wake[0], .events = POLLIN}};
        if (poll(fds, 3, -1) < 0 || fds[2].revents != 0)
            return;
        if (fds[0].revents != 0) {
            const ssize_t count = recv(client, chunk, sizeof(chunk), 0);
            if (count <= 0)
                return;
            loses = loses || is_marked(p, chunk, (size_t)count);
            if (!send_all(server, chunk, (size_t)count))
                return;
        }
        if (fds[1].revents != 0) {
            const ssize_t count = recv(server, chunk, sizeof(chunk), 0);
            if (count > 0 && loses) {
                pthread_mutex_lock(&p->lock);
                p->cuts++;
                pthread_mutex_unlock(&p->lock);
            }
            if (count <= 0 || loses || !send_all(client, chunk, (size_t)count))
                return;
        }
    }
}

static void serve_one(struct cut_proxy *p)
{
    const struct sockaddr_in address = loopback(p->target_port);
    const int client = accept(p->listener, NULL, NULL);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client >= 0 && connect(server, (const struct sockaddr *)&address, sizeof(address)) == 0)
        forward(p, client, server);
    if (client >= 0)
        close(client);
    close(server);
}

static void *cut_proxy_run(void *arg)
{
    struct cut_proxy *p = arg;
    for (struct orders o = orders_of(p); !o.stops; o = orders_of(p)) {
        struct pollfd fds[] = {{.fd = p->wake[0], .events = POLLIN}, {.fd = p->listener, .events = POLLIN}};
        if (poll(fds, o.holds ? 1 : 2, -1) < 0)
            break;
        if (fds[0].revents != 0)
            was_woken(p);
        else if (fds[1].revents != 0)
            serve_one(p);
    }
    return NULL;
}

void cut_proxy_start(struct cut_proxy *p, uint16_t target_port)
{
    struct sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof(address);
    *p = (struct cut_proxy){.target_port = target_port};
    assert_int_equal(pthread_mutex_init(&p->lock, NULL), 0);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(p->listener >= 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&address, &bytes), 0);
    p->port = ntohs(address.sin_port);
    assert_int_equal(pipe(p->wake), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, cut_proxy_run, p), 0);
}

void cut_proxy_lose_answer(struct cut_proxy *p, const char *needle)
{
    pthread_mutex_lock(&p->lock);
    (void)snprintf(p->needle, sizeof(p->needle), "%s", needle);
    pthread_mutex_unlock(&p->lock);
}

unsigned cut_proxy_cuts(struct cut_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    const unsigned cuts = p->cuts;
    pthread_mutex_unlock(&p->lock);
    return cuts;
}

void cut_proxy_hold(struct cut_proxy *p, bool holds)
{
    pthread_mutex_lock(&p->lock);
    p->holds = holds;
    pthread_mutex_unlock(&p->lock);
    cut_proxy_wake(p);
}

void cut_proxy_stop(struct cut_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->stops = true;
    pthread_mutex_unlock(&p->lock);
    cut_proxy_wake(p);
    (void)pthread_join(p->thread, NULL);
    close(p->listener);
    close(p->wake[0]);
    close(p->wake[1]);
    pthread_mutex_destroy(&p->lock);
}
