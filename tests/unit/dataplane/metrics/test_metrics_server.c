/* The HTTP server on the loopback, asked by sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dataplane/metrics/metrics_server.h"
#include "tests/test.h"

#define CONNECTIONS_MAX 8u    /* of one address */
#define NEVER_S         3600u /* no connection ends by its silence while a test runs */

static const char *ailment; /* what the application says of itself */
static const struct mr_counter counters[] = {{"calls", MR_COUNTER, MR_UNIT_NONE, "calls"}};
static const struct mr_counter_set set = {.name = "test", MR_COUNTERS(counters)};

static void write_metrics(void *app, struct mr_metrics_text *text)
{
    mr_metrics_family(text, &set, &counters[0]);
    mr_metrics_sample(text, NULL, *(const uint64_t *)app);
}

static bool ailment_of(void *app, char *out, size_t out_bytes)
{
    const char *why = *(const uint64_t *)app != 0 ? ailment : "no calls yet";
    if (why != NULL)
        (void)snprintf(out, out_bytes, "%s", why);
    return why != NULL;
}

static uint64_t calls;

static struct mr_metrics_server *server_start_with_silence(uint32_t silence_s_max)
{
    const struct mr_metrics_server_options options = {.listen = "127.0.0.1:0",
                                                      .silence_s_max = silence_s_max,
                                                      .app = &calls,
                                                      .write = write_metrics,
                                                      .ailment = ailment_of};
    struct mr_metrics_server *server = NULL;
    char error[256] = "";
    if (mr_metrics_server_start(&options, &server, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return server;
}

static struct mr_metrics_server *server_start(void)
{
    return server_start_with_silence(NEVER_S);
}

static int connect_from(const struct mr_metrics_server *server, uint32_t address)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    const struct sockaddr_in place = {.sin_family = AF_INET,
                                      .sin_port = htons(mr_metrics_server_port(server)),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof(own)), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&place, sizeof(place)), 0);
    return fd;
}

static int connect_to(const struct mr_metrics_server *server)
{
    return connect_from(server, INADDR_LOOPBACK);
}

/* What comes until the server ends the connection. */
static void read_answer(int fd, char *answer, size_t bytes)
{
    size_t length = 0;
    for (ssize_t got = 1; got > 0 && length + 1 < bytes; length += got > 0 ? (size_t)got : 0)
        got = read(fd, answer + length, bytes - 1 - length);
    answer[length] = '\0';
    close(fd);
}

static char answer[8192];

static void metrics_server_ask(const struct mr_metrics_server *server, const char *request)
{
    int fd = connect_to(server);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    read_answer(fd, answer, sizeof(answer));
}

static void expect(const char *begins, const char *holds)
{
    if (strncmp(answer, begins, strlen(begins)) != 0 || strstr(answer, holds) == NULL)
        fail_msg("expected %s ... %s, got:\n%s", begins, holds, answer);
}

TEST(metrics_come_in_both_forms)
{
    struct mr_metrics_server *server = server_start();
    calls = 7;
    metrics_server_ask(server, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 200", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
    expect("HTTP/1.1 200", "\r\n\r\n# HELP millrace_test_calls_total calls\n");
    assert_null(strstr(answer, "# EOF"));
    metrics_server_ask(server,
                       "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n");
    expect("HTTP/1.1 200", "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n");
    expect("HTTP/1.1 200", "\nmillrace_test_calls_total 7\n# EOF\n");
    mr_metrics_server_stop(server);
}

TEST(health_says_what_is_wrong)
{
    struct mr_metrics_server *server = server_start();
    calls = 7;
    ailment = "restoring";
    metrics_server_ask(server, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 503", "\r\n\r\nrestoring\n");
    ailment = NULL;
    metrics_server_ask(server, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 200", "\r\n\r\nok\n");
    mr_metrics_server_stop(server);
}

TEST(nothing_else_is_answered)
{
    struct mr_metrics_server *server = server_start();
    metrics_server_ask(server, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    expect("HTTP/1.1 405", "Allow: GET\r\n");
    metrics_server_ask(server, "DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 405", "only GET");
    metrics_server_ask(server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 404", "/metrics");
    metrics_server_ask(server, "GET /metrics/../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 404", "/metrics");
    metrics_server_ask(server, "no request at all\r\n\r\n");
    assert_null(strstr(answer, " 200 "));
    mr_metrics_server_stop(server);
}

static bool is_cut(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

static void healthy(const struct mr_metrics_server *server)
{
    metrics_server_ask(server, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    expect("HTTP/1.1 200", "ok");
}

TEST(a_silent_connection_ends)
{
    struct mr_metrics_server *server = server_start_with_silence(1);
    const int silent = connect_to(server);
    char byte;
    assert_int_equal(read(silent, &byte, 1), 0);
    close(silent);
    mr_metrics_server_stop(server);
}

/* Who opens connections and never ends a request keeps only as many as one address may have, and nobody from
 * his own; the end does not wait for them. */
TEST(connections_of_an_address_are_bounded)
{
    struct mr_metrics_server *server = server_start();
    int silent[CONNECTIONS_MAX];
    char byte;
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++)
        silent[i] = connect_to(server);
    healthy(server);
    assert_int_equal(read(silent[0], &byte, 1), 0); /* the oldest is cut off */
    for (uint32_t i = 1; i < CONNECTIONS_MAX; i++)
        assert_false(is_cut(silent[i]));
    for (uint32_t i = 0; i < 100; i++)
        healthy(server);
    mr_metrics_server_stop(server);
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++)
        close(silent[i]);
}

/* Of the address that has most. */
TEST(slow_connections_shut_nobody_out)
{
    static const char begins[] = "GET /metrics HTTP/1.1\r\nX: ";
    struct mr_metrics_server *server = server_start();
    int slow[2 * CONNECTIONS_MAX];
    char byte;
    for (uint32_t i = 0; i < 2 * CONNECTIONS_MAX; i++) {
        slow[i] = connect_from(server, INADDR_LOOPBACK + 1 + (i >= CONNECTIONS_MAX - 1));
        assert_int_equal(write(slow[i], begins, strlen(begins)), strlen(begins));
    }
    /* The first address has 7, and the second 8 of 9. */
    assert_int_equal(read(slow[CONNECTIONS_MAX - 1], &byte, 1), 0);
    healthy(server);
    int other = connect_from(server, INADDR_LOOPBACK + 9),
        another = connect_from(server, INADDR_LOOPBACK + 10);
    assert_int_equal(read(slow[CONNECTIONS_MAX], &byte, 1), 0);
    for (uint32_t i = 0; i < CONNECTIONS_MAX - 1; i++)
        assert_false(is_cut(slow[i]));
    for (uint32_t i = CONNECTIONS_MAX + 1; i < 2 * CONNECTIONS_MAX; i++)
        assert_false(is_cut(slow[i]));
    for (uint32_t i = 0; i < 100; i++)
        healthy(server);
    mr_metrics_server_stop(server);
    close(other);
    close(another);
    for (uint32_t i = 0; i < 2 * CONNECTIONS_MAX; i++)
        close(slow[i]);
}

TEST(what_cannot_be_listened_on_is_said)
{
    static const char *const cases[][2] = {
        {"127.0.0.1", "127.0.0.1: expected an address with its port"},
        {"fd00::1", "fd00::1: expected an address with its port"},
        {"127.0.0.1:", "127.0.0.1:: expected an address with its port"},
        {"127.0.0.1:no", "127.0.0.1:no"},
        {"192.0.2.1:7790", "192.0.2.1:7790: Cannot assign requested address"},
    };
    char error[256], taken[32];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct mr_metrics_server_options options = {
            .listen = cases[i][0], .write = write_metrics, .ailment = ailment_of};
        struct mr_metrics_server *server = NULL;
        assert_int_not_equal(mr_metrics_server_start(&options, &server, error, sizeof(error)), MR_OK);
        assert_null(server);
        if (strstr(error, cases[i][1]) == NULL)
            fail_msg("%s", error);
    }
    struct mr_metrics_server *server = server_start(), *second = NULL;
    snprintf(taken, sizeof(taken), "127.0.0.1:%u", mr_metrics_server_port(server));
    const struct mr_metrics_server_options options = {
        .listen = taken, .write = write_metrics, .ailment = ailment_of};
    assert_int_equal(mr_metrics_server_start(&options, &second, error, sizeof(error)), MR_IO_ERROR);
    assert_non_null(strstr(error, "Address already in use"));
    mr_metrics_server_stop(server);
}
