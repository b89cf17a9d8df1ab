#include "ps/store/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "ps/io/store.h"

#define EXPLAIN_BYTES 192u
#define WAIT_MS       100 /* at a time, for the network */

struct ps_http {
    struct ps_http_options options;
    pthread_mutex_t lock;
    CURL *idle[PS_HTTP_IDLE_MAX]; /* each with its connections */
    uint32_t idle_count;
    atomic_uint seed;
    char server[PS_HTTP_SERVER_BYTES];
    bool has_date;
    int64_t ahead_s;
};

/* One try of a request. */
struct attempt {
    struct ps_http *http;
    CURL *easy;
    struct curl_slist *headers;
    const struct ps_http_request *request;
    struct ps_http_answer *answer;
    size_t sent, error_bytes;
    char date[64];
    bool is_too_long;
    bool has_all_headers; /* libcurl takes an answer that ends among them for a good one */
    char curl_error[CURL_ERROR_SIZE];
};

/* ---- connections ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void initialise(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static char *copy_of(const char *text)
{
    return text ? strdup(text) : NULL;
}

struct ps_http *ps_http_create(const struct ps_http_options *options)
{
    (void)pthread_once(&once, initialise);
    struct ps_http *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->options = *options;
    h->options.tries = options->tries > 0 ? options->tries : PS_HTTP_TRIES_MAX;
    h->options.stall_s = options->stall_s > 0 ? options->stall_s : PS_HTTP_STALL_S_MAX;
    h->options.pause_ms_max = options->pause_ms_max > 0 ? options->pause_ms_max : PS_HTTP_PAUSE_MS_MAX;
    h->options.user = copy_of(options->user);
    h->options.password = copy_of(options->password);
    h->options.sigv4 = copy_of(options->sigv4);
    h->options.ca = copy_of(options->ca);
    pthread_mutex_init(&h->lock, NULL);
    atomic_init(&h->seed, (unsigned)mr_clock_us());
    if ((options->user && !h->options.user) || (options->password && !h->options.password) ||
        (options->sigv4 && !h->options.sigv4) || (options->ca && !h->options.ca)) {
        ps_http_destroy(h);
        return NULL;
    }
    return h;
}

static void free_secret(const char *secret)
{
    char *text = (char *)(uintptr_t)secret;
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void ps_http_destroy(struct ps_http *h)
{
    if (!h)
        return;
    while (h->idle_count > 0)
        curl_easy_cleanup(h->idle[--h->idle_count]);
    free_secret(h->options.user);
    free_secret(h->options.password);
    free_secret(h->options.sigv4);
    free_secret(h->options.ca);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static CURL *take_handle(struct ps_http *h)
{
    CURL *easy = NULL;
    pthread_mutex_lock(&h->lock);
    if (h->idle_count > 0)
        easy = h->idle[--h->idle_count];
    pthread_mutex_unlock(&h->lock);
    if (!easy)
        return curl_easy_init();
    curl_easy_reset(easy);
    return easy;
}

static void give_handle(struct ps_http *h, CURL *easy)
{
    pthread_mutex_lock(&h->lock);
    const bool is_kept = h->idle_count < PS_HTTP_IDLE_MAX;
    if (is_kept)
        h->idle[h->idle_count++] = easy;
    pthread_mutex_unlock(&h->lock);
    if (!is_kept)
        curl_easy_cleanup(easy);
}

/* ---- one try: what libcurl calls ---- */

static size_t send_body(char *to, size_t size, size_t count, void *arg)
{
    struct attempt *a = arg;
    const size_t left = a->request->body_bytes - a->sent, room = size * count;
    const size_t bytes = left < room ? left : room;
    if (bytes > 0)
        memcpy(to, (const char *)a->request->body + a->sent, bytes);
    a->sent += bytes;
    return bytes;
}

/* A request that is sent once more on another connection. */
static int rewind_body(void *arg, curl_off_t offset, int origin)
{
    struct attempt *a = arg;
    if (origin != SEEK_SET || offset < 0 || (size_t)offset > a->request->body_bytes)
        return CURL_SEEKFUNC_FAIL;
    a->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static bool is_good(long status)
{
    return status >= 200 && status < 300;
}

static void keep_error(struct attempt *a, const char *data, size_t bytes)
{
    const size_t room = sizeof(a->answer->error_body) - 1 - a->error_bytes;
    const size_t kept = bytes < room ? bytes : room;
    memcpy(a->answer->error_body + a->error_bytes, data, kept);
    a->error_bytes += kept;
}

static size_t receive_body(char *data, size_t size, size_t count, void *arg)
{
    struct attempt *a = arg;
    const size_t bytes = size * count;
    long status = 0;
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    if (!is_good(status)) {
        keep_error(a, data, bytes);
        return bytes;
    }
    if (!a->request || !a->request->into)
        return bytes;
    a->is_too_long = bytes > a->request->into_bytes - a->answer->body_bytes;
    if (a->is_too_long)
        return 0;
    memcpy((char *)a->request->into + a->answer->body_bytes, data, bytes);
    a->answer->body_bytes += bytes;
    return bytes;
}

static void keep_header(char *out, size_t out_bytes, const char *line, size_t bytes, const char *name)
{
    const size_t name_bytes = strlen(name);
    if (bytes <= name_bytes || strncasecmp(line, name, name_bytes) != 0)
        return;
    const char *value = line + name_bytes, *end = line + bytes;
    while (value < end && *value == ' ')
        value++;
    while (end > value && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    if ((size_t)(end - value) < out_bytes) {
        memcpy(out, value, (size_t)(end - value));
        out[end - value] = '\0';
    }
}

static size_t receive_header(char *line, size_t size, size_t count, void *arg)
{
    struct attempt *a = arg;
    const size_t bytes = size * count;
    a->has_all_headers = bytes <= 2 && (line[0] == '\r' || line[0] == '\n');
    keep_header(a->answer->location, sizeof(a->answer->location), line, bytes, "Location:");
    keep_header(a->answer->etag, sizeof(a->answer->etag), line, bytes, "ETag:");
    keep_header(a->answer->server, sizeof(a->answer->server), line, bytes, "Server:");
    keep_header(a->date, sizeof(a->date), line, bytes, "Date:");
    return bytes;
}

static bool is_stopped(const struct ps_http *h)
{
    return h->options.stop && atomic_load(h->options.stop);
}

static int look_for_stop(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return is_stopped(((struct attempt *)arg)->http);
}

/* ---- one try ---- */

static bool add_header(struct attempt *a, const char *line)
{
    struct curl_slist *longer = curl_slist_append(a->headers, line);
    if (longer)
        a->headers = longer;
    return longer != NULL;
}

static void set_identity(const struct ps_http_options *o, CURL *easy)
{
    if (o->sigv4) {
        (void)curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, o->sigv4);
        (void)curl_easy_setopt(easy, CURLOPT_USERNAME, o->user);
        (void)curl_easy_setopt(easy, CURLOPT_PASSWORD, o->password);
    }
    if (o->negotiate) {
        (void)curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_NEGOTIATE);
        (void)curl_easy_setopt(easy, CURLOPT_USERPWD, ":");
        (void)curl_easy_setopt(easy, CURLOPT_COOKIEFILE, ""); /* what the server gives instead of a ticket */
    }
    if (o->ca)
        (void)curl_easy_setopt(easy, CURLOPT_CAINFO, o->ca);
}

static void set_limits(struct attempt *a)
{
    CURL *easy = a->easy;
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)PS_HTTP_CONNECT_S_MAX);
    (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)a->http->options.stall_s);
    (void)curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, look_for_stop);
    (void)curl_easy_setopt(easy, CURLOPT_XFERINFODATA, a);
    (void)curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 4L);
    (void)curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    (void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
}

/* A server is not asked whether a body may come, but for signed requests: curl would sign a header that it
 * then leaves out. */
static bool set_expectation(struct attempt *a)
{
    (void)curl_easy_setopt(a->easy, CURLOPT_EXPECT_100_TIMEOUT_MS, (long)PS_HTTP_EXPECT_MS_MAX);
    return a->http->options.sigv4 || add_header(a, "Expect:");
}

/* What all requests have in common. */
static bool set_common(struct attempt *a, const char *url)
{
    CURL *easy = a->easy;
    const char *protocols = a->http->options.secure ? "https" : "http,https";
    /* A redirect never leads from HTTPS to plain HTTP: its URL may have a delegation token. */
    const bool is_secure = a->http->options.secure || strncasecmp(url, "https:", 6) == 0;
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, protocols);
    (void)curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, is_secure ? "https" : "http,https");
    set_identity(&a->http->options, easy);
    set_limits(a);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, a->curl_error);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive_body);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, a);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, receive_header);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, a);
    (void)curl_easy_setopt(easy, CURLOPT_FILETIME, 1L);
    return set_expectation(a) && curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK;
}

static bool set_request(struct attempt *a)
{
    const struct ps_http_request *r = a->request;
    CURL *easy = a->easy;
    bool is_set = set_common(a, r->url);
    for (uint32_t i = 0; i < PS_HTTP_HEADERS_MAX && is_set; i++)
        is_set = !r->headers[i] || add_header(a, r->headers[i]);
    if (strcmp(r->method, "HEAD") == 0)
        (void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (r->has_body) {
        (void)curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, send_body);
        (void)curl_easy_setopt(easy, CURLOPT_READDATA, a);
        (void)curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_body);
        (void)curl_easy_setopt(easy, CURLOPT_SEEKDATA, a);
        (void)curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body_bytes);
    }
    (void)curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, r->follow ? 1L : 0L);
    (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r->method);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, a->headers);
    return is_set;
}

static void note_server(struct ps_http *h, const struct ps_http_answer *answer)
{
    pthread_mutex_lock(&h->lock);
    if (answer->server[0] != '\0')
        memcpy(h->server, answer->server, sizeof(h->server));
    if (answer->date_s > 0) {
        h->has_date = true;
        h->ahead_s = answer->date_s - (int64_t)time(NULL);
    }
    pthread_mutex_unlock(&h->lock);
}

bool ps_http_server(struct ps_http *h, char *server, int64_t *ahead_s)
{
    pthread_mutex_lock(&h->lock);
    memcpy(server, h->server, sizeof(h->server));
    *ahead_s = h->ahead_s;
    const bool has_date = h->has_date;
    pthread_mutex_unlock(&h->lock);
    return has_date;
}

static void read_facts(struct attempt *a)
{
    curl_off_t length = -1, modified_s = -1;
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &a->answer->status);
    (void)curl_easy_getinfo(a->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    (void)curl_easy_getinfo(a->easy, CURLINFO_FILETIME_T, &modified_s);
    a->answer->length = length > 0 ? (uint64_t)length : 0;
    a->answer->modified_s = modified_s > 0 ? modified_s : 0;
    a->answer->error_body[a->error_bytes] = '\0';
    const time_t date_s = a->date[0] != '\0' ? curl_getdate(a->date, NULL) : -1;
    a->answer->date_s = date_s > 0 ? date_s : 0;
    note_server(a->http, a->answer);
}

/* ---- what it means ---- */

static int error_of_curl(const struct attempt *a, CURLcode code, bool *is_transient)
{
    *is_transient = true;
    switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
        *is_transient = false;
        return ECANCELED;
    case CURLE_WRITE_ERROR:
        *is_transient = false;
        return a->is_too_long ? EMSGSIZE : EIO;
    case CURLE_OUT_OF_MEMORY:
        *is_transient = false;
        return ENOMEM;
    case CURLE_UNSUPPORTED_PROTOCOL:
        *is_transient = false;
        return EPROTO;
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_TOO_MANY_REDIRECTS:
        *is_transient = false;
        return EIO;
    case CURLE_OPERATION_TIMEDOUT:
        return ETIMEDOUT;
    case CURLE_COULDNT_CONNECT:
        return ECONNREFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
        return EHOSTUNREACH;
    default:
        return ECONNRESET;
    }
}

static int error_of_status(long status, bool *is_transient)
{
    *is_transient = status >= 500 || status == 408 || status == 429;
    switch (status) {
    case 404:
        return ENOENT;
    case 401:
    case 403:
        return EACCES;
    case 409:
    case 412:
        return EEXIST;
    case 507:
        *is_transient = false;
        return ENOSPC;
    default:
        return EIO;
    }
}

bool ps_http_mean(const struct ps_http_meaning *meanings, size_t count, const char *name, int *error_number,
                  bool *is_transient, char *text, size_t text_bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, meanings[i].name) != 0)
            continue;
        *error_number = meanings[i].error_number;
        *is_transient = meanings[i].is_transient;
        (void)snprintf(text, text_bytes, "%s; %s", name, meanings[i].remedy);
        return true;
    }
    return false;
}

static void explain_curl(const struct attempt *a, CURLcode code, int error)
{
    const char *why = a->curl_error[0] != '\0' ? a->curl_error : curl_easy_strerror(code);
    if (error == ECANCELED)
        ps_store_explain(error, "it was stopped");
    else if (error == EMSGSIZE)
        ps_store_explain(error, "the answer is longer than any that was expected");
    else if (code == CURLE_UNSUPPORTED_PROTOCOL)
        ps_store_explain(
            error,
            "the store leads to a URL of another protocol (%s); a store of HTTPS must not lead to "
            "plain HTTP",
            why);
    else if (code == CURLE_PEER_FAILED_VERIFICATION && strstr(why, "subject name"))
        ps_store_explain(error, "%.120s; name the host as its certificate does", why);
    else if (code == CURLE_PEER_FAILED_VERIFICATION)
        ps_store_explain(error, "%.120s; name the file of its CA: ca=/FILE in the URL, or CURL_CA_BUNDLE",
                         why);
    else if (code == CURLE_SSL_CACERT_BADFILE)
        ps_store_explain(error, "%.160s; ca or CURL_CA_BUNDLE is to name a PEM file of certificates", why);
    else
        ps_store_explain(error, "%.120s; is the store running, and are host and port right?", why);
}

/* Returns 0 or the errno of the answer. */
static int judge(struct attempt *a, CURLcode code)
{
    bool *is_transient = &a->answer->is_transient;
    const long status = a->answer->status;
    char text[EXPLAIN_BYTES] = "";
    if (code == CURLE_OK && !a->has_all_headers)
        code = CURLE_RECV_ERROR;
    if (code != CURLE_OK) {
        const int error = error_of_curl(a, code, is_transient);
        explain_curl(a, code, error);
        return error;
    }
    if (is_good(status) || (status == 307 && a->request && a->request->asks_whither))
        return 0;
    int error = error_of_status(status, is_transient);
    if (a->http->options.explain)
        error = a->http->options.explain(a->answer, error, is_transient, text, sizeof(text));
    if (text[0] != '\0')
        ps_store_explain(error, "%s", text);
    else
        ps_store_explain(error, "the server answered with HTTP status %ld", status);
    return error;
}

static void attempt_begin(struct attempt *a, struct ps_http *h, const struct ps_http_request *request,
                          struct ps_http_answer *answer)
{
    memset(answer, 0, offsetof(struct ps_http_answer, etag));
    answer->etag[0] = answer->server[0] = answer->location[0] = answer->error_body[0] = '\0';
    *a = (struct attempt){.http = h, .easy = take_handle(h), .request = request, .answer = answer};
}

static void attempt_end(struct attempt *a, bool is_reusable)
{
    curl_slist_free_all(a->headers);
    if (a->easy && is_reusable)
        give_handle(a->http, a->easy);
    else if (a->easy)
        curl_easy_cleanup(a->easy);
}

static int try_once(struct ps_http *h, const struct ps_http_request *request, struct ps_http_answer *answer)
{
    struct attempt a;
    attempt_begin(&a, h, request, answer);
    int error = ENOMEM;
    if (a.easy && set_request(&a)) {
        const CURLcode code = curl_easy_perform(a.easy);
        read_facts(&a);
        error = judge(&a, code);
    } else {
        ps_store_explain(error, "no memory for a request");
    }
    attempt_end(&a, true);
    return error;
}

/* ---- again ---- */

/* Between half and all of the pause, so that those who failed together do not come back together. False: it
 * was stopped. */
static bool pause_before(struct ps_http *h, uint32_t attempt)
{
    uint32_t ms = PS_HTTP_PAUSE_MS_MIN << (attempt - 1);
    ms = ms < h->options.pause_ms_max ? ms : h->options.pause_ms_max;
    const unsigned random = atomic_fetch_add(&h->seed, 0x9E3779B9u) * 2654435761u;
    const uint64_t until_us = mr_clock_us() + ms * 500u + (uint64_t)(random >> 16) * ms * 500u / 65536u;
    while (!is_stopped(h) && mr_clock_us() < until_us)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return !is_stopped(h);
}

bool ps_http_try_again(struct ps_http *h, uint32_t tries)
{
    return tries < h->options.tries && pause_before(h, tries);
}

int ps_http_perform(struct ps_http *h, const struct ps_http_request *request, struct ps_http_answer *answer)
{
    int error = 0;
    for (uint32_t i = 0; i == 0 || ps_http_try_again(h, i); i++) {
        error = try_once(h, request, answer);
        if (error == 0 || !answer->is_transient || request->once)
            break;
    }
    if (error == 0)
        ps_store_explain(0, "%s", ""); /* of the tries before */
    if (error == 0 && request->into && answer->body_bytes < request->into_bytes)
        ((char *)request->into)[answer->body_bytes] = '\0';
    return -error;
}

/* ---- a body that is sent as it comes ---- */

struct ps_http_stream {
    struct attempt attempt;
    struct ps_http_answer answer;
    CURLM *multi;
    const char *data; /* what is left of the caller's */
    size_t bytes;
    bool is_paused, is_ended, is_done, is_added;
    CURLcode code; /* once done */
};

static size_t send_stream(char *to, size_t size, size_t count, void *arg)
{
    struct ps_http_stream *s = arg;
    const size_t room = size * count, bytes = s->bytes < room ? s->bytes : room;
    if (bytes == 0 && !s->is_ended) {
        s->is_paused = true;
        return CURL_READFUNC_PAUSE;
    }
    if (bytes > 0)
        memcpy(to, s->data, bytes);
    s->data += bytes;
    s->bytes -= bytes;
    return bytes;
}

static void look_for_end(struct ps_http_stream *s)
{
    int left;
    for (CURLMsg *m = curl_multi_info_read(s->multi, &left); m; m = curl_multi_info_read(s->multi, &left)) {
        if (m->msg == CURLMSG_DONE) {
            s->is_done = true;
            s->code = m->data.result;
        }
    }
}

/* Works on the transfer until `is_ready`; ends it when nothing moves for too long. */
static int drive(struct ps_http_stream *s, bool (*is_ready)(const struct ps_http_stream *s))
{
    uint64_t moved_us = mr_clock_us();
    curl_off_t moved = 0;
    if (s->is_paused) {
        s->is_paused = false;
        (void)curl_easy_pause(s->attempt.easy, CURLPAUSE_CONT);
    }
    for (;;) {
        int running;
        curl_off_t sent = 0;
        if (curl_multi_perform(s->multi, &running) != CURLM_OK)
            return -EIO;
        look_for_end(s);
        if (s->is_done || is_ready(s))
            return 0;
        (void)curl_easy_getinfo(s->attempt.easy, CURLINFO_SIZE_UPLOAD_T, &sent);
        const uint64_t now_us = mr_clock_us();
        if (sent != moved)
            moved_us = now_us;
        moved = sent;
        if (now_us - moved_us > (uint64_t)s->attempt.http->options.stall_s * 1000000u) {
            ps_store_explain(ETIMEDOUT, "nothing was taken for %u s; is the store overloaded?",
                             s->attempt.http->options.stall_s);
            return -ETIMEDOUT;
        }
        (void)curl_multi_poll(s->multi, NULL, 0, WAIT_MS, NULL);
    }
}

static int answer_of(struct ps_http_stream *s)
{
    read_facts(&s->attempt);
    return -judge(&s->attempt, s->code);
}

/* An answer before the end of the body is always an error. */
static int answer_early(struct ps_http_stream *s)
{
    const int error = answer_of(s);
    if (error != 0)
        return error;
    ps_store_explain(EIO, "the server answered before the end of the file");
    return -EIO;
}

/* The connection is there, and the body may come. */
static bool is_wanted(const struct ps_http_stream *s)
{
    return s->is_paused;
}

static bool is_taken(const struct ps_http_stream *s)
{
    return s->bytes == 0;
}

static bool is_never(const struct ps_http_stream *s)
{
    (void)s;
    return false;
}

/* Begins the transfer; nothing of it has been sent yet. */
static struct ps_http_stream *stream_new(struct ps_http *h, const char *url, const char *header)
{
    struct ps_http_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    attempt_begin(&s->attempt, h, NULL, &s->answer);
    s->multi = curl_multi_init();
    bool is_set =
        s->attempt.easy && s->multi && set_common(&s->attempt, url) && add_header(&s->attempt, header);
    if (is_set) {
        CURL *easy = s->attempt.easy;
        (void)curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, send_stream);
        (void)curl_easy_setopt(easy, CURLOPT_READDATA, s);
        (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, s->attempt.headers);
        /* A pause between two writes is ours, not the server's. */
        (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 0L);
        is_set = s->is_added = curl_multi_add_handle(s->multi, easy) == CURLM_OK;
    }
    if (is_set)
        return s;
    ps_http_stream_close(s);
    return NULL;
}

int ps_http_stream_open(struct ps_http *h, const char *url, const char *header, bool *is_transient,
                        struct ps_http_stream **out)
{
    struct ps_http_stream *s = stream_new(h, url, header);
    *is_transient = false;
    if (!s)
        return -ENOMEM;
    int error = drive(s, is_wanted);
    if (error == 0 && s->is_done)
        error = answer_early(s);
    *is_transient = s->answer.is_transient;
    if (error == 0)
        *out = s;
    else
        ps_http_stream_close(s);
    return error;
}

int ps_http_stream_write(struct ps_http_stream *s, const void *data, size_t bytes)
{
    s->data = data;
    s->bytes = bytes;
    const int error = drive(s, is_taken);
    return error == 0 && s->is_done ? answer_early(s) : error;
}

int ps_http_stream_finish(struct ps_http_stream *s)
{
    s->is_ended = true;
    const int error = drive(s, is_never);
    return error != 0 ? error : answer_of(s);
}

void ps_http_stream_close(struct ps_http_stream *s)
{
    if (!s)
        return;
    if (s->is_added)
        (void)curl_multi_remove_handle(s->multi, s->attempt.easy);
    attempt_end(&s->attempt, false);
    if (s->multi)
        (void)curl_multi_cleanup(s->multi);
    free(s);
}
