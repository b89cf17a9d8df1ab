/* Metrics over HTTP: GET /metrics and GET /healthz, and nothing else. One thread of its own answers, with few
 * connections at a time, each for one answer: one that is silent for a few seconds ends, and where there are
 * too many, the oldest of the address that has most of them. There is no authentication:
 * whoever reaches the address reads what is there. */
#ifndef MR_METRICS_SERVER_H
#define MR_METRICS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/metrics/metrics_text.h"
#include "dataplane/wire/format/mr_status.h"

struct mr_metrics_server;

struct mr_metrics_server_options {
    const char *listen; /* "127.0.0.1:7790", "[::1]:7790", "name:7790"; ":7790": all addresses. Port 0: any */
    uint32_t silence_s_max; /* a connection that says nothing ends after it; 0: 5 s */
    void *app;
    /* Both on the server's thread. Writes all families. */
    void (*write)(void *app, struct mr_metrics_text *text);
    /* False: the process does its work; otherwise a line says why not, as "restoring". */
    bool (*ailment)(void *app, char *out, size_t out_bytes);
};

/* Listens, and starts the thread, which has the caller's processors and takes no signals.
 * MR_INVALID_ARGUMENT, MR_IO_ERROR, MR_NO_MEMORY: `error` has a line that names the address. */
enum mr_status mr_metrics_server_start(const struct mr_metrics_server_options *options,
                                       struct mr_metrics_server **out, char *error, size_t error_bytes);
uint16_t mr_metrics_server_port(const struct mr_metrics_server *server);
/* Ends it, cutting off connections. NULL is fine. */
void mr_metrics_server_stop(struct mr_metrics_server *server);

#endif
