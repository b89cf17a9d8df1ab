/* Requests over HTTP: what is tried again, what is not, and what is said of it, against a server that
 * fails on purpose. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_server.h"
#include "ps/io/store.h"
#include "ps/store/http.h"
#include "tests/test.h"

enum { TRIES = 3, BODY_BYTES = 200000 };

struct fixture {
    struct http_server *server;
    struct ps_http *http;
    atomic_bool stop;
    bool stops; /* the handler sets `stop` */
    char url[128], into[BODY_BYTES + 1];
    /* what the handler has seen last */
    struct http_server_request *seen;
    size_t seen_bytes;
    uint32_t seen_count;
    char expected[BODY_BYTES + 1];
};

/* Answers with the status that the path names; 200 has a long body. */
static void http_handle(void *arg, const struct http_server_request *r, struct http_server_answer *a)
{
    struct fixture *x = arg;
    const int status = atoi(r->target + 1);
    *x->seen = *r;
    x->seen_bytes = r->body_bytes;
    x->seen_count++;
    if (r->body_bytes > 0 && r->body_bytes <= BODY_BYTES)
        memcpy(x->into, r->body, r->body_bytes);
    if (x->stops)
        atomic_store(&x->stop, true);
    if (status == 200)
        http_server_say(a, 200, "%s", x->expected);
    else
        http_server_say(a, status, "<Code>Because</Code>");
    if (status == 200)
        (void)snprintf(a->headers, sizeof(a->headers),
                       "ETag: \"abc\"\r\nLast-Modified: Thu, 01 Jan 1970 00:01:40 GMT\r\n");
    if (status == 307)
        (void)snprintf(a->headers, sizeof(a->headers), "Location: http://127.0.0.1:%u/200\r\n",
                       http_server_port(x->server));
}

static void open_http(struct fixture *x, struct ps_http_options options)
{
    options.tries = options.tries > 0 ? options.tries : TRIES;
    options.pause_ms_max = 1;
    options.stop = &x->stop;
    x->http = ps_http_create(&options);
    assert_non_null(x->http);
}

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    x->seen = calloc(1, sizeof(*x->seen));
    for (size_t i = 0; i < BODY_BYTES; i++)
        x->expected[i] = (char)('a' + i * i % 23);
    x->server = http_server_start(http_handle, x);
    open_http(x, (struct ps_http_options){0});
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    ps_http_destroy(x->http);
    http_server_stop(x->server);
    free(x->seen);
    free(x);
    return 0;
}

static const char *url_of(struct fixture *x, const char *path)
{
    (void)snprintf(x->url, sizeof(x->url), "http://127.0.0.1:%u/%s", http_server_port(x->server), path);
    return x->url;
}

static int perform(struct fixture *x, const char *method, const char *path, struct ps_http_answer *answer)
{
    const struct ps_http_request request = {
        .method = method, .url = url_of(x, path), .into = x->into, .into_bytes = sizeof(x->into)};
    return ps_http_perform(x->http, &request, answer);
}

static void check_explained(int error, const char *says)
{
    const char *text = ps_store_explanation(error);
    assert_non_null(text);
    if (!strstr(text, says) || strchr(text, '\n') || strstr(text, "hunter2"))
        fail_msg("\"%s\" instead of \"%s\"", text, says);
}

TEST(an_answer_has_body_and_headers, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    assert_int_equal(perform(x, "GET", "200", &answer), 0);
    assert_int_equal(answer.status, 200);
    assert_int_equal(answer.body_bytes, BODY_BYTES);
    assert_string_equal(x->into, x->expected);
    assert_string_equal(answer.etag, "\"abc\"");
    assert_int_equal(answer.modified_s, 100);
    assert_int_equal(perform(x, "HEAD", "200", &answer), 0);
    assert_int_equal(answer.length, BODY_BYTES);
    assert_int_equal(answer.body_bytes, 0);
}

/* Each of these once: the second try succeeds, and its body is whole. */
TEST(what_may_pass_is_tried_again, set_up, tear_down)
{
    static const enum http_server_fault faults[] = {HTTP_FAULT_503, HTTP_FAULT_CUT_BEFORE,
                                                    HTTP_FAULT_CUT_AFTER, HTTP_FAULT_CUT_ANSWER};
    struct fixture *x = *state;
    struct ps_http_answer answer;
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        http_server_fail(x->server, faults[i], 1, 1);
        memset(x->into, 0, sizeof(x->into));
        assert_int_equal(perform(x, "GET", "200", &answer), 0);
        assert_int_equal(answer.body_bytes, BODY_BYTES);
        assert_string_equal(x->into, x->expected);
        assert_int_equal(http_server_count(x->server), 2);
        assert_null(ps_store_explanation(EIO));
        assert_null(ps_store_explanation(ECONNRESET));
    }
}

/* A HEAD's answer is all headers: one that ends among them is not taken for good. */
TEST(headers_that_are_cut_are_an_error, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    http_server_fail(x->server, HTTP_FAULT_CUT_ANSWER, 1, 1);
    assert_int_equal(perform(x, "HEAD", "200", &answer), 0);
    assert_int_equal(http_server_count(x->server), 2);
    assert_string_equal(answer.etag, "\"abc\"");
    http_server_fail(x->server, HTTP_FAULT_CUT_ANSWER, 1, UINT32_MAX);
    assert_int_equal(perform(x, "HEAD", "200", &answer), -ECONNRESET);
}

TEST(tries_end, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    http_server_fail(x->server, HTTP_FAULT_503, 1, UINT32_MAX);
    assert_int_equal(perform(x, "GET", "200?delegation=hunter2", &answer), -EIO);
    assert_int_equal(http_server_count(x->server), TRIES);
    check_explained(EIO, "HTTP status 503");
    http_server_fail(x->server, HTTP_FAULT_CUT_ANSWER, 1, UINT32_MAX);
    assert_int_equal(perform(x, "GET", "200?delegation=hunter2", &answer), -ECONNRESET);
    check_explained(ECONNRESET, "is the store running");
}

TEST(what_will_not_pass_is_not_tried_again, set_up, tear_down)
{
    static const struct {
        const char *path;
        int error;
    } permanent[] = {{"400", EIO},    {"401", EACCES}, {"403", EACCES}, {"404", ENOENT},
                     {"409", EEXIST}, {"412", EEXIST}, {"507", ENOSPC}, {"307", EIO}};
    struct fixture *x = *state;
    struct ps_http_answer answer;

    for (size_t i = 0; i < sizeof(permanent) / sizeof(*permanent); i++) {
        http_server_fail(x->server, HTTP_FAULT_503, 0, 0);
        assert_int_equal(perform(x, "GET", permanent[i].path, &answer), -permanent[i].error);
        assert_int_equal(http_server_count(x->server), 1);
        assert_string_equal(answer.error_body, "<Code>Because</Code>");
        check_explained(permanent[i].error, permanent[i].path);
    }
}

TEST(redirects_are_followed_or_answered, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    struct ps_http_request request = {.method = "GET",
                                      .url = url_of(x, "307"),
                                      .follow = true,
                                      .into = x->into,
                                      .into_bytes = sizeof(x->into)};
    assert_int_equal(ps_http_perform(x->http, &request, &answer), 0);
    assert_string_equal(x->into, x->expected);
    request.follow = false;
    request.asks_whither = true;
    assert_int_equal(ps_http_perform(x->http, &request, &answer), 0);
    assert_int_equal(answer.status, 307);
    assert_non_null(strstr(answer.location, "/200"));
}

TEST(a_body_that_is_too_long_is_refused, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    const struct ps_http_request request = {
        .method = "GET", .url = url_of(x, "200"), .into = x->into, .into_bytes = BODY_BYTES - 1};
    http_server_fail(x->server, HTTP_FAULT_503, 0, 0);
    assert_int_equal(ps_http_perform(x->http, &request, &answer), -EMSGSIZE);
    assert_int_equal(http_server_count(x->server), 1);
    check_explained(EMSGSIZE, "longer than");
}

TEST(a_body_is_sent_whole_at_each_try, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    const struct ps_http_request request = {.method = "PUT",
                                            .url = url_of(x, "201"),
                                            .headers = {"X-Test: value"},
                                            .body = x->expected,
                                            .body_bytes = BODY_BYTES,
                                            .has_body = true};
    char value[16];
    http_server_fail(x->server, HTTP_FAULT_CUT_AFTER, 1, 1);
    assert_int_equal(ps_http_perform(x->http, &request, &answer), 0);
    assert_int_equal(x->seen_count, 2);
    assert_int_equal(x->seen_bytes, BODY_BYTES);
    assert_memory_equal(x->into, x->expected, BODY_BYTES);
    http_server_header(x->seen, "x-test", value, sizeof(value));
    assert_string_equal(value, "value");
}

TEST(nobody_listens, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    const struct ps_http_request request = {.method = "GET",
                                            .url = "http://127.0.0.1:1/x?delegation=hunter2"};
    assert_int_equal(ps_http_perform(x->http, &request, &answer), -ECONNREFUSED);
    check_explained(ECONNREFUSED, "is the store running, and are host and port right?");
}

TEST(a_server_that_stalls_is_given_up, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    ps_http_destroy(x->http);
    open_http(x, (struct ps_http_options){.tries = 1, .stall_s = 1});
    http_server_fail(x->server, HTTP_FAULT_STALL, 1, UINT32_MAX);
    assert_int_equal(perform(x, "GET", "200", &answer), -ETIMEDOUT);
}

TEST(a_request_can_be_stopped, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    x->stops = true;
    http_server_fail(x->server, HTTP_FAULT_STALL, 1, UINT32_MAX);
    assert_int_equal(perform(x, "GET", "200", &answer), -ECANCELED);
    assert_int_equal(http_server_count(x->server), 1);
    check_explained(ECANCELED, "stopped");
}

/* ---- streams ---- */

static struct ps_http_stream *open_stream(struct fixture *x, const char *path)
{
    struct ps_http_stream *s;
    bool is_transient;
    assert_int_equal(ps_http_stream_open(x->http, url_of(x, path), "Content-Type: x", &is_transient, &s), 0);
    return s;
}

TEST(a_stream_is_one_body, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_stream *s = open_stream(x, "201");
    for (size_t at = 0; at < BODY_BYTES; at += BODY_BYTES / 8)
        assert_int_equal(ps_http_stream_write(s, x->expected + at, BODY_BYTES / 8), 0);
    assert_int_equal(x->seen_count, 0);
    assert_int_equal(ps_http_stream_finish(s), 0);
    ps_http_stream_close(s);
    assert_int_equal(x->seen_bytes, BODY_BYTES);
    assert_memory_equal(x->into, x->expected, BODY_BYTES);
    assert_string_equal(x->seen->method, "PUT");
}

TEST(a_stream_that_is_not_finished_is_no_request, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_stream *s = open_stream(x, "201");
    assert_int_equal(ps_http_stream_write(s, x->expected, BODY_BYTES), 0);
    ps_http_stream_close(s);
    http_server_stop(x->server); /* after its threads have ended */
    assert_int_equal(x->seen_count, 0);
    x->server = http_server_start(http_handle, x);
}

TEST(a_stream_says_what_the_server_answered, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_stream *s = open_stream(x, "403");
    assert_int_equal(ps_http_stream_write(s, x->expected, 10), 0);
    assert_int_equal(ps_http_stream_finish(s), -EACCES);
    check_explained(EACCES, "403");
    ps_http_stream_close(s);
    http_server_fail(x->server, HTTP_FAULT_CUT_AFTER, 1, UINT32_MAX);
    s = open_stream(x, "201");
    assert_int_equal(ps_http_stream_write(s, x->expected, 10), 0);
    assert_int_equal(ps_http_stream_finish(s), -ECONNRESET);
    ps_http_stream_close(s);
}

/* Somebody who accepts connections and reads nothing: a server of HTTP would not understand TLS. */
static int listen_silently(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(bind(fd, (const struct sockaddr *)&address, bytes), errno);
    assert_return_code(listen(fd, 8), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &bytes), errno);
    *port = ntohs(address.sin_port);
    return fd;
}

TEST(certificates_that_cannot_be_read_are_named, set_up, tear_down)
{
    struct ps_http_answer answer;
    const struct ps_http_options options = {.ca = "/no/such.pem", .tries = TRIES, .pause_ms_max = 1};
    struct ps_http *http = ps_http_create(&options);
    uint16_t port;
    const int fd = listen_silently(&port);
    char url[64];
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/200", port);
    const struct ps_http_request request = {.method = "GET", .url = url};
    assert_int_equal(ps_http_perform(http, &request, &answer), -EIO);
    assert_false(answer.is_transient);
    check_explained(EIO, "/no/such.pem; ca or CURL_CA_BUNDLE is to name a PEM file");
    ps_http_destroy(http);
    assert_return_code(close(fd), errno);
}

/* Its URL may have a delegation token, wherever it came from. */
TEST(a_secure_store_is_never_asked_by_plain_http, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_http_answer answer;
    struct ps_http_stream *stream;
    bool is_transient = true;
    const struct ps_http_options options = {.secure = true, .tries = TRIES, .pause_ms_max = 1};
    struct ps_http *http = ps_http_create(&options);
    const struct ps_http_request request = {.method = "GET", .url = url_of(x, "200"), .follow = true};
    assert_int_equal(ps_http_perform(http, &request, &answer), -EPROTO);
    assert_false(answer.is_transient);
    check_explained(EPROTO, "a store of HTTPS must not lead to plain HTTP");
    assert_int_equal(ps_http_stream_open(http, url_of(x, "201"), "X: y", &is_transient, &stream), -EPROTO);
    assert_false(is_transient);
    ps_http_destroy(http);
    assert_int_equal(x->seen_count, 0);
}
