/* HTTP for stores, over libcurl: requests that are tried again where that helps, and connections that are
 * kept for the next one. Any thread; every request has its connection to itself.
 *
 * Calls return 0 or -errno. On an error ps_store_explanation() has one line: what the server said, or why it
 * could not be asked, and how to fix it. No line names a query, a header or a credential.
 */
#ifndef PS_STORE_HTTP_H
#define PS_STORE_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_HTTP_URL_BYTES     4096u
#define PS_HTTP_HEADERS_MAX   4u
#define PS_HTTP_ERROR_BYTES   4096u /* of what a server says about an error */
#define PS_HTTP_TRIES_MAX     6u    /* of one request */
#define PS_HTTP_PAUSE_MS_MIN  100u  /* before the second try; each further pause is twice as long */
#define PS_HTTP_PAUSE_MS_MAX  5000u
#define PS_HTTP_CONNECT_S_MAX 10u
#define PS_HTTP_STALL_S_MAX   30u  /* without a byte in either direction */
#define PS_HTTP_EXPECT_MS_MAX 100u /* for a server's word that a body may come, if it is asked for one */
#define PS_HTTP_IDLE_MAX      16u  /* connections kept */
#define PS_HTTP_SERVER_BYTES  64u

struct ps_http;
struct ps_http_answer;

struct ps_http_options {
    const char *user, *password; /* S3's keys; NULL: none */
    const char *sigv4;           /* "aws:amz:REGION:s3": sign requests with these; NULL: do not */
    bool negotiate;              /* Kerberos */
    bool secure; /* the store is one of HTTPS: no request goes by plain HTTP, whatever its servers say */
    /* File of certificates that HTTPS trusts; NULL: the system's. */
    const char *ca;
    /* What an error of the server means: fills in `text`, and may change the errno that follows from the
     * status. Sets *is_transient where the same request may succeed later. */
    int (*explain)(const struct ps_http_answer *answer, int error_number, bool *is_transient, char *text,
                   size_t text_bytes);
    uint32_t tries;          /* 0: PS_HTTP_TRIES_MAX */
    uint32_t stall_s;        /* 0: PS_HTTP_STALL_S_MAX */
    uint32_t pause_ms_max;   /* between tries; 0: PS_HTTP_PAUSE_MS_MAX */
    const atomic_bool *stop; /* true: requests end with -ECANCELED; NULL: never */
};

struct ps_http_request {
    const char *method, *url;
    const char *headers[PS_HTTP_HEADERS_MAX]; /* "Name: value"; unused ones NULL */
    const void *body;
    size_t body_bytes;
    bool has_body;     /* also one of no bytes */
    bool once;         /* never tried again */
    bool follow;       /* redirects of a GET */
    bool asks_whither; /* a redirect, 307, is the answer that is wanted: see location */
    void *into; /* where the body of a good answer goes, NUL after it if there is room; NULL: nowhere */
    size_t into_bytes;
};

struct ps_http_answer {
    long status;        /* 0: there was none */
    bool is_transient;  /* of an error: the same request may succeed later */
    size_t body_bytes;  /* in `into` */
    uint64_t length;    /* Content-Length; of a HEAD, too */
    int64_t modified_s; /* Last-Modified; 0: not said */
    int64_t date_s;     /* the server's clock; 0: not said */
    char etag[128];
    char server[PS_HTTP_SERVER_BYTES];    /* what it calls itself; "": it does not say */
    char location[PS_HTTP_URL_BYTES];     /* of a redirect that was not followed */
    char error_body[PS_HTTP_ERROR_BYTES]; /* of an answer that is not good */
};

/* NULL: no memory. The strings of the options are copied. */
struct ps_http *ps_http_create(const struct ps_http_options *options);
void ps_http_destroy(struct ps_http *http); /* NULL is fine */

/* What the last server that said so calls itself (PS_HTTP_SERVER_BYTES), "" if none did. True: it has told
 * its time, and *ahead_s is how far that was ahead of this machine's. */
bool ps_http_server(struct ps_http *http, char *server, int64_t *ahead_s);

/* What a server's name for an error means. */
struct ps_http_meaning {
    const char *name;
    int error_number;
    bool is_transient;
    const char *remedy;
};

/* For `explain`: looks a name up, and if it is there, sets the other three, `text` to the name and its
 * remedy. */
bool ps_http_mean(const struct ps_http_meaning *meanings, size_t count, const char *name, int *error_number,
                  bool *is_transient, char *text, size_t text_bytes);

/* A good answer is one of status 2xx, or 307 if `asks_whither`. -EMSGSIZE: it is longer than into_bytes.
 * EPROTO: a plain URL in a secure store. ENOENT is 404, EACCES 401 and 403, EEXIST 409 and 412. */
int ps_http_perform(struct ps_http *http, const struct ps_http_request *request,
                    struct ps_http_answer *answer);

/* Whether a request that has failed so many times, transiently, is to be made again; pauses before that. For
 * those who ask another server then: ps_http_perform() does it by itself. */
bool ps_http_try_again(struct ps_http *http, uint32_t tries);

/* A body that is sent as it comes, by one PUT: never tried again. One thread at a time. It is open once the
 * server is connected; *is_transient is set where it was not, and may be later. */
struct ps_http_stream;
int ps_http_stream_open(struct ps_http *http, const char *url, const char *header, bool *is_transient,
                        struct ps_http_stream **out);
/* Returns when all of it is taken. */
int ps_http_stream_write(struct ps_http_stream *s, const void *data, size_t bytes);
/* Sends the end and waits for the answer. The stream is to be closed afterwards. */
int ps_http_stream_finish(struct ps_http_stream *s);
void ps_http_stream_close(struct ps_http_stream *s); /* NULL is fine; one that is not finished is cut off */

#endif
