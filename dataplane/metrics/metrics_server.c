#include "dataplane/metrics/metrics_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/metrics/metrics_accept.h"
#include "dataplane/udp/address.h"

#define CONNECTIONS_MAX  16u
#define PER_ADDRESS_MAX  8u
#define PLACES           (2 * CONNECTIONS_MAX) /* also of those that were cut off, and are being closed */
#define SILENCE_S_MAX    5u                    /* of a connection, unless the options say */
#define CONNECTION_BYTES (32u << 10)           /* of memory: a request's headers, mostly */
#define BACKLOG          16
#define AILMENT_BYTES    512
#define HINT             "metrics are at /metrics, and whether all is well at /healthz\n"

/* The daemon's thread alone knows them. */
struct connection {
    bool is_open, is_cut;
    int fd;
    uint64_t number; /* rises with each */
    struct mr_address peer;
};

struct mr_metrics_server {
    struct mr_metrics_server_options options;
    struct connection connections[PLACES];
    uint64_t connection_count; /* so far */
    struct MHD_Daemon *daemon;
    uint16_t port;
};

/* ---- answers ---- */

/* `data` is malloc()ed, and given away. */
static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned int code, const char *type,
                                 char *data, size_t bytes)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(data);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_GET);
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_line(struct MHD_Connection *connection, unsigned int code, const char *line)
{
    char *copy = strdup(line);
    return copy == NULL ? MHD_NO
                        : send_text(connection, code, "text/plain; charset=utf-8", copy, strlen(copy));
}

static enum MHD_Result send_metrics(const struct mr_metrics_server *server, struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    struct mr_metrics_text text = {.open_metrics = mr_metrics_wants_open(accept)};
    server->options.write(server->options.app, &text);
    if (!mr_metrics_end(&text)) {
        free(text.data);
        return send_line(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n");
    }
    return send_text(connection, MHD_HTTP_OK,
                     text.open_metrics ? MR_METRICS_TYPE_OPEN : MR_METRICS_TYPE_PROMETHEUS, text.data,
                     text.bytes);
}

static enum MHD_Result send_health(const struct mr_metrics_server *server, struct MHD_Connection *connection)
{
    char why[AILMENT_BYTES] = "ok", line[AILMENT_BYTES + 1];
    const bool is_ill = server->options.ailment(server->options.app, why, sizeof(why));
    (void)snprintf(line, sizeof(line), "%s\n", why);
    return send_line(connection, is_ill ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, line);
}

/* What a request has for a body is not taken: the answer comes first, and the connection ends. */
static enum MHD_Result metrics_server_answer(void *app, struct MHD_Connection *connection, const char *url,
                                             const char *method, const char *version, const char *body,
                                             size_t *body_bytes, void **state)
{
    static char is_known;
    const struct mr_metrics_server *server = app;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        return send_line(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (*state == NULL) { /* the headers are there, and the end of the request is not yet */
        *state = &is_known;
        return MHD_YES;
    }
    if (strcmp(url, "/metrics") == 0)
        return send_metrics(server, connection);
    if (strcmp(url, "/healthz") == 0)
        return send_health(server, connection);
    return send_line(connection, MHD_HTTP_NOT_FOUND, HINT);
}

/* ---- connections ---- */

static bool is_of_peer(const struct connection *c, const struct mr_address *peer)
{
    return c->is_open && !c->is_cut && memcmp(c->peer.ip, peer->ip, sizeof(peer->ip)) == 0;
}

static uint32_t connections_of(const struct mr_metrics_server *server, const struct mr_address *peer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACES; i++)
        count += is_of_peer(&server->connections[i], peer);
    return count;
}

/* Ends the oldest connection of this address. The daemon sees its end, and closes it. */
static void connection_cut(struct mr_metrics_server *server, const struct mr_address *peer)
{
    struct connection *oldest = NULL;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct connection *c = &server->connections[i];
        if (is_of_peer(c, peer) && (oldest == NULL || c->number < oldest->number))
            oldest = c;
    }
    if (oldest == NULL)
        return;
    oldest->is_cut = true;
    (void)shutdown(oldest->fd, SHUT_RDWR);
}

/* Who sends a byte now and then could keep a connection for ever. So a new one is never refused: where there
 * are too many, the address that has most of them loses its oldest, which has had the longest time. */
static void connections_bound(struct mr_metrics_server *server, const struct mr_address *newest)
{
    const struct connection *busiest = NULL;
    uint32_t open = 0, most = 0;
    for (uint32_t i = 0; i < PLACES; i++) {
        const struct connection *c = &server->connections[i];
        const uint32_t count = c->is_open && !c->is_cut ? connections_of(server, &c->peer) : 0;
        open += count > 0;
        if (count > most || (count == most && count > 0 && c->number < busiest->number)) {
            most = count;
            busiest = c;
        }
    }
    if (connections_of(server, newest) > PER_ADDRESS_MAX)
        connection_cut(server, newest);
    else if (open > CONNECTIONS_MAX)
        connection_cut(server, &busiest->peer);
}

static void connection_begins(struct mr_metrics_server *server, struct MHD_Connection *connection,
                              struct connection *c)
{
    /* From libmicrohttpd 1.0 on the next question writes over the answer. */
    const union MHD_ConnectionInfo *answer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int fd = answer != NULL ? answer->connect_fd : -1;
    answer = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (fd < 0 || answer == NULL || answer->client_addr == NULL)
        return;
    *c = (struct connection){.is_open = true, .fd = fd, .number = ++server->connection_count};
    mr_address_from_sockaddr(answer->client_addr, &c->peer);
    connections_bound(server, &c->peer);
}

static void connection_changes(void *app, struct MHD_Connection *connection, void **state,
                               enum MHD_ConnectionNotificationCode what)
{
    struct mr_metrics_server *server = app;
    struct connection *c = *state;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && c != NULL)
        c->is_open = false;
    for (uint32_t i = 0; what == MHD_CONNECTION_NOTIFY_STARTED && i < PLACES && *state == NULL; i++) {
        if (server->connections[i].is_open)
            continue;
        *state = &server->connections[i];
        connection_begins(server, connection, *state);
    }
}

/* ---- the socket ---- */

static bool has_port(const char *text)
{
    const char *colon = strrchr(text, ':');
    bool is_ipv6_alone = colon != NULL && strchr(text, ':') != colon && colon[-1] != ']';
    return colon != NULL && colon[1] != '\0' && !is_ipv6_alone;
}

static int open_socket(const struct mr_address *address, uint16_t *port)
{
    struct sockaddr_storage place;
    int family;
    const int fd = mr_address_open_socket(address, SOCK_STREAM, &family);
    socklen_t length = mr_address_to_sockaddr(address, family, &place);
    const int yes = 1;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)); /* a restart finds its port again */
    if (bind(fd, (struct sockaddr *)&place, length) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&place, &length) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    struct mr_address own;
    mr_address_from_sockaddr((struct sockaddr *)&place, &own);
    *port = own.port;
    return fd;
}

/* The daemon's thread takes none of the program's signals. */
static struct MHD_Daemon *start_daemon(struct mr_metrics_server *server, int fd)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_USE_ITC, 0, NULL, NULL, metrics_server_answer,
        server, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd, MHD_OPTION_CONNECTION_LIMIT, PLACES,
        MHD_OPTION_NOTIFY_CONNECTION, connection_changes, server, MHD_OPTION_CONNECTION_TIMEOUT,
        server->options.silence_s_max != 0 ? server->options.silence_s_max : SILENCE_S_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

enum mr_status mr_metrics_server_start(const struct mr_metrics_server_options *options,
                                       struct mr_metrics_server **out, char *error, size_t error_bytes)
{
    struct mr_address address;
    char why[256];
    if (!has_port(options->listen)) {
        snprintf(error, error_bytes, "%s: expected an address with its port, as 127.0.0.1:7790",
                 options->listen);
        return MR_INVALID_ARGUMENT;
    }
    if (mr_address_resolve(options->listen, true, &address, why, sizeof(why)) != MR_OK) {
        snprintf(error, error_bytes, "%s", why);
        return MR_INVALID_ARGUMENT;
    }
    struct mr_metrics_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        snprintf(error, error_bytes, "no memory");
        return MR_NO_MEMORY;
    }
    server->options = *options;
    int fd = open_socket(&address, &server->port);
    if (fd < 0) {
        snprintf(error, error_bytes, "%s: %s", options->listen, strerror(errno));
        free(server);
        return MR_IO_ERROR;
    }
    server->daemon = start_daemon(server, fd);
    if (server->daemon == NULL) {
        snprintf(error, error_bytes, "%s: the thread cannot be started: raise the limit of threads",
                 options->listen);
        close(fd);
        free(server);
        return MR_NO_MEMORY;
    }
    *out = server;
    return MR_OK;
}

uint16_t mr_metrics_server_port(const struct mr_metrics_server *server)
{
    return server->port;
}

void mr_metrics_server_stop(struct mr_metrics_server *server)
{
    if (server == NULL)
        return;
    MHD_stop_daemon(server->daemon);
    free(server);
}
