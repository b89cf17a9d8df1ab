/* Times the same calls of any peer, and checks what comes back: a figure of wrong answers is never printed.
 *
 * One line of JSON per row, as bench_print.h has them, and {"name": "checks", "pull": "<checksum>", ...}. */
#ifndef PEERS_PEER_BENCH_H
#define PEERS_PEER_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include "tests/bench/peers/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

struct peer_options {
    const char *address; /* of the server, without its port */
    uint16_t port;
    const char *api;  /* of the peer's own; NULL: its default */
    const char *rows; /* names between commas; NULL: all */
    double seconds;   /* that a row is measured for */
};

/* What a peer can do; NULL: it cannot, but all can pull. Each ends the program with a line when it fails.
 * What is returned stays until the next call. */
struct peer {
    const char *program;
    void *state;
    enum work_update update;
    bool push_from_zero; /* pushes go to a table of their own, whose rows are zero before */
    void (*empty)(void *state);
    /* Keeps WORK_OUTSTANDING empty calls in flight until then, and returns how many were answered by it. */
    uint64_t (*empty_many)(void *state, double until_us);
    const float *(*pull)(void *state, const struct workload *w); /* [13312, 16] */
    const float *(*pushed)(void *state,
                           const struct workload *w); /* the rows that were pushed to; NULL: pull */
    const float *(*lookup)(void *state, const struct workload *w); /* [512, 16] */
    void (*push)(void *state, const struct workload *w);
    void (*set)(void *state, const struct workload *w);
    /* The lookup when its keys were sent before: feed (not timed), then lookup_fed. */
    void (*feed)(void *state, const struct workload *w);
    const float *(*lookup_fed)(void *state, const struct workload *w);
};

/* Ends the program with a line when the options are wrong. */
struct peer_options peer_options_read(const char *program, int argc, char **argv);
bool peer_wants(const struct peer_options *options, const char *row);
void peer_bench(const struct peer *peer, const struct peer_options *options);
__attribute__((noreturn, format(printf, 2, 3))) void peer_give_up(const char *program, const char *format,
                                                                  ...);

#ifdef __cplusplus
}
#endif

#endif
