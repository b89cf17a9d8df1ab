/* An HTTP/1.1 server on a port of the loopback, which fails on purpose: for tests of what speaks HTTP. Each
 * connection has a thread; the handler is called by one at a time. A request that the server cannot parse
 * ends the program.
 */
#ifndef TESTS_HTTP_SERVER_H
#define TESTS_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server_request {
    char method[8], target[8192]; /* the target with its query */
    char headers[16384];          /* "Name: value\r\n", one after the other */
    uint8_t *body;
    size_t body_bytes;
};

struct http_server_answer {
    int status;
    char headers[1024]; /* further ones, each with its "\r\n" */
    uint8_t *body;      /* of malloc(); of a HEAD it is not sent, but its length is */
    size_t body_bytes;
};

typedef void http_server_handler(void *arg, const struct http_server_request *request,
                                 struct http_server_answer *answer);

enum http_server_fault {
    HTTP_FAULT_503,        /* answers so, and does not ask the handler */
    HTTP_FAULT_CUT_BEFORE, /* closes the connection instead of asking the handler */
    HTTP_FAULT_CUT_AFTER,  /* asks the handler, and closes the connection without an answer */
    HTTP_FAULT_CUT_ANSWER, /* asks the handler, and closes the connection in the middle of the answer */
    HTTP_FAULT_STALL,      /* asks the handler, and says nothing until the server ends */
};

struct http_server;

struct http_server *http_server_start(http_server_handler *handler, void *arg);
void http_server_stop(struct http_server *server);
uint16_t http_server_port(const struct http_server *server);
/* Requests `first` to `last` fail, counted from 1, which is the next one; 0: none. Counts from there. */
void http_server_fail(struct http_server *server, enum http_server_fault fault, uint32_t first,
                      uint32_t last);
/* Returns how many requests there were since then. */
uint32_t http_server_count(struct http_server *server);

/* Copies the value of a header, "" if there is none. */
void http_server_header(const struct http_server_request *request, const char *name, char *out,
                        size_t out_bytes);
/* Copies a parameter of the query, without its %XX, and returns whether it is there. */
bool http_server_parameter(const struct http_server_request *request, const char *name, char *out,
                           size_t out_bytes);
/* Copies the path of the target, without its %XX. */
void http_server_path(const struct http_server_request *request, char *out, size_t out_bytes);
/* Sets status and body. */
void http_server_say(struct http_server_answer *answer, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
