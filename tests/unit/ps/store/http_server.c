#include "http_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, BODY_BYTES_MAX = 64 << 20 };

struct connection {
    struct http_server *server;
    pthread_t thread;
    int fd;
    bool is_used, is_over; /* under the server's lock */
    char buffer[65536];
    size_t begin, end; /* of what was received and not taken */
};

struct http_server {
    http_server_handler *handler;
    void *arg;
    int listener;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows, and around the handler */
    pthread_cond_t ends;
    bool is_ending;
    enum http_server_fault fault;
    uint32_t first, last, count;
    struct connection connections[CONNECTIONS_MAX];
};

static void http_server_check(bool is_true, const char *what)
{
    if (is_true)
        return;
    (void)fprintf(stderr, "http_server: %s\n", what);
    abort();
}

/* ---- receiving ---- */

/* False: the other side has closed the connection. */
static bool receive_more(struct connection *c)
{
    if (c->begin > 0) {
        memmove(c->buffer, c->buffer + c->begin, c->end - c->begin);
        c->end -= c->begin;
        c->begin = 0;
    }
    http_server_check(c->end < sizeof(c->buffer), "a line or the headers are too long");
    const ssize_t n = recv(c->fd, c->buffer + c->end, sizeof(c->buffer) - c->end, 0);
    c->end += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* A line without its end. */
static bool receive_line(struct connection *c, char *line, size_t line_bytes)
{
    for (;;) {
        const char *from = c->buffer + c->begin;
        const char *newline = memchr(from, '\n', c->end - c->begin);
        if (newline) {
            const size_t bytes = (size_t)(newline - from);
            http_server_check(bytes > 0 && newline[-1] == '\r' && bytes - 1 < line_bytes,
                              "a line is no line of HTTP");
            memcpy(line, from, bytes - 1);
            line[bytes - 1] = '\0';
            c->begin += bytes + 1;
            return true;
        }
        if (!receive_more(c))
            return false;
    }
}

/* Room for a body of so many bytes, and a 0 behind it. */
static void resize_body(struct http_server_request *r, size_t bytes)
{
    http_server_check(bytes <= BODY_BYTES_MAX, "a body is too long");
    r->body = realloc(r->body, bytes + 1);
    http_server_check(r->body != NULL, "no memory");
}

/* Further bytes of the body, into room that is there. */
static bool receive_bytes(struct connection *c, struct http_server_request *r, size_t bytes)
{
    while (bytes > 0) {
        if (c->begin == c->end && !receive_more(c))
            return false;
        const size_t some = bytes < c->end - c->begin ? bytes : c->end - c->begin;

        memcpy(r->body + r->body_bytes, c->buffer + c->begin, some);
        c->begin += some;
        r->body_bytes += some;
        bytes -= some;
    }
    r->body[r->body_bytes] = '\0';
    return true;
}

static bool receive_chunks(struct connection *c, struct http_server_request *r)
{
    char line[256];
    size_t room = 0;
    for (;;) {
        if (!receive_line(c, line, sizeof(line)))
            return false;
        const size_t bytes = strtoul(line, NULL, 16);

        http_server_check(bytes <= BODY_BYTES_MAX - r->body_bytes, "a body is too long");
        if (bytes > room - r->body_bytes) { /* twice as much: a body may come in thousands of chunks */
            room = r->body_bytes + bytes < BODY_BYTES_MAX / 2 ? 2 * (r->body_bytes + bytes) : BODY_BYTES_MAX;
            resize_body(r, room);
        }
        if (bytes == 0)
            resize_body(r, r->body_bytes); /* no more, for AddressSanitizer */
        if (!receive_bytes(c, r, bytes) || !receive_line(c, line, sizeof(line)))
            return false;
        if (bytes == 0)
            return true;
    }
}

static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        const ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool receive_request(struct connection *c, struct http_server_request *r)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    char line[8300], text[64];
    *r = (struct http_server_request){0};
    if (!receive_line(c, line, sizeof(line)))
        return false;
    http_server_check(sscanf(line, "%7s %8191s HTTP/1.1", r->method, r->target) == 2,
                      "a request has no first line");
    for (size_t at = 0; receive_line(c, line, sizeof(line)) && line[0] != '\0';) {
        at += (size_t)snprintf(r->headers + at, sizeof(r->headers) - at, "%s\r\n", line);
        http_server_check(at < sizeof(r->headers), "headers are too long");
    }
    http_server_header(r, "Expect", text, sizeof(text));
    if (strcasecmp(text, "100-continue") == 0 && !send_all(c->fd, go_on, strlen(go_on)))
        return false;
    http_server_header(r, "Transfer-Encoding", text, sizeof(text));
    if (strcasecmp(text, "chunked") == 0)
        return receive_chunks(c, r);
    http_server_header(r, "Content-Length", text, sizeof(text));
    const size_t bytes = strtoul(text, NULL, 10);
    resize_body(r, bytes);
    return receive_bytes(c, r, bytes);
}

/* ---- answering ---- */

static bool send_answer(int fd, const struct http_server_request *r, const struct http_server_answer *a,
                        bool is_cut)
{
    char head[2048];
    const bool has_body = strcmp(r->method, "HEAD") != 0;
    const int bytes = snprintf(head, sizeof(head), "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\n%s\r\n",
                               a->status, a->body_bytes, a->headers);
    http_server_check(bytes > 0 && (size_t)bytes < sizeof(head), "headers of an answer are too long");
    if (is_cut && (!has_body || a->body_bytes == 0)) {
        (void)send_all(fd, head, (size_t)bytes / 2);
        return false;
    }
    if (!send_all(fd, head, (size_t)bytes))
        return false;
    if (!has_body)
        return true;
    return send_all(fd, a->body, is_cut ? a->body_bytes / 2 : a->body_bytes) && !is_cut;
}

/* False: the connection is to be closed. */
static bool answer_http(struct connection *c, const struct http_server_request *r)
{
    struct http_server *s = c->server;
    struct http_server_answer a = {.status = 500};
    pthread_mutex_lock(&s->lock);
    s->count++;
    const bool fails = s->count >= s->first && s->count <= s->last;
    const enum http_server_fault fault = s->fault;

    if (fails && fault == HTTP_FAULT_503)
        http_server_say(&a, 503, "busy");
    else if (!fails || fault != HTTP_FAULT_CUT_BEFORE)
        s->handler(s->arg, r, &a);
    while (fails && fault == HTTP_FAULT_STALL && !s->is_ending)
        pthread_cond_wait(&s->ends, &s->lock);
    pthread_mutex_unlock(&s->lock);
    const bool is_said = !fails || fault == HTTP_FAULT_503 || fault == HTTP_FAULT_CUT_ANSWER;
    const bool goes_on = is_said && send_answer(c->fd, r, &a, fails && fault == HTTP_FAULT_CUT_ANSWER);

    free(a.body);
    return goes_on;
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    struct http_server_request *r = calloc(1, sizeof(*r));
    bool goes_on = true;
    http_server_check(r != NULL, "no memory");
    while (goes_on) {
        goes_on = receive_request(c, r) && answer_http(c, r);
        free(r->body);
        r->body = NULL;
    }
    free(r);
    (void)shutdown(c->fd, SHUT_RDWR);
    pthread_mutex_lock(&c->server->lock);
    c->is_over = true;
    pthread_mutex_unlock(&c->server->lock);
    return NULL;
}

/* ---- the server ---- */

static void end_connection(struct connection *c)
{
    (void)pthread_join(c->thread, NULL);
    (void)close(c->fd);
    c->is_used = false;
}

static struct connection *free_connection(struct http_server *s)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &s->connections[i];
        pthread_mutex_lock(&s->lock);
        const bool is_over = c->is_used && c->is_over;

        pthread_mutex_unlock(&s->lock);
        if (is_over)
            end_connection(c);
        if (!c->is_used)
            return c;
    }
    return NULL;
}

static void *accept_all(void *arg)
{
    struct http_server *s = arg;
    for (;;) {
        const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL; /* the listener was shut down */
        const int one = 1;

        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct connection *c = free_connection(s);

        http_server_check(c != NULL, "there are too many connections");
        c->server = s;
        c->fd = fd;
        c->begin = c->end = 0;
        c->is_over = false;
        pthread_mutex_lock(&s->lock);
        c->is_used = true;
        pthread_mutex_unlock(&s->lock);
        http_server_check(pthread_create(&c->thread, NULL, serve, c) == 0, "no thread");
    }
}

struct http_server *http_server_start(http_server_handler *handler, void *arg)
{
    struct http_server *s = calloc(1, sizeof(*s));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    http_server_check(s != NULL, "no memory");
    s->handler = handler;
    s->arg = arg;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    http_server_check(s->listener >= 0 && bind(s->listener, (struct sockaddr *)&address, bytes) == 0 &&
                          listen(s->listener, CONNECTIONS_MAX) == 0 &&
                          getsockname(s->listener, (struct sockaddr *)&address, &bytes) == 0,
                      "no port of the loopback");
    s->port = ntohs(address.sin_port);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->ends, NULL);
    http_server_check(pthread_create(&s->thread, NULL, accept_all, s) == 0, "no thread");
    return s;
}

void http_server_stop(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    pthread_cond_broadcast(&s->ends);
    pthread_mutex_unlock(&s->lock);
    (void)shutdown(s->listener, SHUT_RDWR);
    (void)pthread_join(s->thread, NULL);
    (void)close(s->listener);
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (!s->connections[i].is_used)
            continue;
        (void)shutdown(s->connections[i].fd, SHUT_RDWR);
        end_connection(&s->connections[i]);
    }
    pthread_cond_destroy(&s->ends);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_fail(struct http_server *s, enum http_server_fault fault, uint32_t first, uint32_t last)
{
    pthread_mutex_lock(&s->lock);
    s->fault = fault;
    s->first = first;
    s->last = last;
    s->count = 0;
    pthread_mutex_unlock(&s->lock);
}

uint32_t http_server_count(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    const uint32_t count = s->count;

    pthread_mutex_unlock(&s->lock);
    return count;
}

/* ---- for handlers ---- */

void http_server_header(const struct http_server_request *r, const char *name, char *out, size_t out_bytes)
{
    const size_t name_bytes = strlen(name);
    out[0] = '\0';
    for (const char *line = r->headers; *line != '\0'; line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, name, name_bytes) != 0 || line[name_bytes] != ':')
            continue;
        const char *value = line + name_bytes + 1 + strspn(line + name_bytes + 1, " ");

        http_server_check((size_t)snprintf(out, out_bytes, "%.*s", (int)strcspn(value, "\r"), value) <
                              out_bytes,
                          "a header is too long");
        return;
    }
}

static void decode(const char *from, size_t bytes, char *out, size_t out_bytes)
{
    size_t at = 0;
    http_server_check(bytes < out_bytes, "a part of a URL is too long");
    for (size_t i = 0; i < bytes; i++) {
        unsigned value = (unsigned char)from[i];
        if (from[i] == '%') {
            http_server_check(sscanf(from + i + 1, "%2x", &value) == 1, "a URL has a % that says nothing");
            i += 2;
        }
        out[at++] = (char)value;
    }
    out[at] = '\0';
}

bool http_server_parameter(const struct http_server_request *r, const char *name, char *out, size_t out_bytes)
{
    const size_t name_bytes = strlen(name);
    const char *pair = strchr(r->target, '?');
    for (; pair; pair = strchr(pair + 1, '&')) {
        const char *value = pair + 1 + name_bytes;
        if (strncmp(pair + 1, name, name_bytes) != 0 || !strchr("=&", *value))
            continue;
        value += *value == '=';
        decode(value, strcspn(value, "&"), out, out_bytes);
        return true;
    }
    return false;
}

void http_server_path(const struct http_server_request *r, char *out, size_t out_bytes)
{
    decode(r->target, strcspn(r->target, "?"), out, out_bytes);
}

void http_server_say(struct http_server_answer *a, int status, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    const int bytes = vasprintf(&text, format, arguments);

    va_end(arguments);
    http_server_check(bytes >= 0, "no memory");
    free(a->body);
    a->status = status;
    a->body = (uint8_t *)text;
    a->body_bytes = (size_t)bytes;
}
