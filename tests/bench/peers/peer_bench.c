#include "tests/bench/peers/peer_bench.h"
#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/bench/common/bench_print.h"

#define RUNS_MAX      200000u
#define RUNS_MIN      10u
#define WARM_SHARE    0.1
#define ROW_ELEMENTS  (WORK_ROWS * WORK_DIM)
#define BAG_ELEMENTS  (WORK_BAGS * WORK_DIM)
#define CHECKS_BYTES  512u
#define ADDRESS_BYTES 64u

void peer_give_up(const char *program, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static void usage(FILE *out, const char *program)
{
    fprintf(out,
            "usage: %s --server ADDRESS:PORT [--rows NAME,...] [--seconds S] [--api NAME]\n"
            "Measures a peer for tests/bench/peers/peers.py; prints one JSON object per line.\n"
            "rows: empty_1 empty_64 pull lookup lookup_fed push set (default: all that the peer can)\n",
            program);
}

static bool parse_server(char *text, struct peer_options *out)
{
    char *colon = strrchr(text, ':'), *end;
    unsigned long port = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
    if (colon == NULL || *end != '\0' || port == 0 || port > UINT16_MAX || colon - text >= (int)ADDRESS_BYTES)
        return false;
    *colon = '\0';
    out->address = text;
    out->port = (uint16_t)port;
    return true;
}

struct peer_options peer_options_read(const char *program, int argc, char **argv)
{
    static const struct option names[] = {
        {"server", required_argument, NULL, 's'},  {"rows", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 't'}, {"api", required_argument, NULL, 'a'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    struct peer_options options = {.seconds = 1.0};
    bool good = true;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        if (c == 's')
            good = good && parse_server(optarg, &options);
        else if (c == 'r')
            options.rows = optarg;
        else if (c == 't')
            options.seconds = strtod(optarg, NULL);
        else if (c == 'a')
            options.api = optarg;
        else if (c == 'h') {
            usage(stdout, program);
            exit(0);
        } else
            good = false;
    if (!good || options.address == NULL || optind != argc || !(options.seconds > 0)) {
        usage(stderr, program);
        exit(2);
    }
    return options;
}

bool peer_wants(const struct peer_options *options, const char *row)
{
    size_t bytes = strlen(row);
    if (options->rows == NULL)
        return true;
    for (const char *at = options->rows; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, row, bytes) == 0 && (at[bytes] == ',' || at[bytes] == '\0'))
            return true;
    }
    return false;
}

struct bench {
    const struct peer *peer;
    const struct workload *work;
    double seconds;
    double *us; /* [RUNS_MAX] */
    char checks[CHECKS_BYTES];
};

static void note_check(struct bench *b, const char *row, const float *values, uint32_t count)
{
    size_t used = strlen(b->checks);
    (void)snprintf(b->checks + used, sizeof(b->checks) - used, ", \"%s\": \"%016" PRIx64 "\"", row,
                   work_checksum(values, count));
}

static void peer_bench_check(const struct bench *b, bool right, const char *row, const float *values,
                             uint32_t at)
{
    if (!right)
        peer_give_up(b->peer->program, "%s: element %u of what came back is wrong: %g", row, at,
                     (double)values[at]);
}

enum call { EMPTY, PULL, LOOKUP, LOOKUP_FED, PUSH, SET };

/* One call; what it returned, if anything. */
static const float *run_call(const struct bench *b, enum call call, double *us)
{
    const struct peer *p = b->peer;
    const float *values = NULL;
    if (call == LOOKUP_FED)
        p->feed(p->state, b->work);
    double start = bench_now_us();
    switch (call) {
    case EMPTY:
        p->empty(p->state);
        break;
    case PULL:
        values = p->pull(p->state, b->work);
        break;
    case LOOKUP:
        values = p->lookup(p->state, b->work);
        break;
    case LOOKUP_FED:
        values = p->lookup_fed(p->state, b->work);
        break;
    case PUSH:
        p->push(p->state, b->work);
        break;
    case SET:
        p->set(p->state, b->work);
        break;
    }
    *us = bench_now_us() - start;
    return values;
}

/* Prints the median; returns what the last call did. */
static const float *measure(const struct bench *b, const char *row, enum call call)
{
    double start = bench_now_us(), warm = start + WARM_SHARE * b->seconds * 1e6,
           end = warm + b->seconds * 1e6, us;
    const float *values;
    uint32_t runs = 0;
    do
        values = run_call(b, call, &us);
    while (bench_now_us() < warm);
    while (runs < RUNS_MIN || (runs < RUNS_MAX && bench_now_us() < end))
        values = run_call(b, call, &b->us[runs++]);
    bench_print_latency(row, b->us, runs);
    return values;
}

static void measure_empty_many(const struct bench *b)
{
    const struct peer *p = b->peer;
    (void)p->empty_many(p->state, bench_now_us() + WARM_SHARE * b->seconds * 1e6);
    double start = bench_now_us();
    uint64_t calls = p->empty_many(p->state, start + b->seconds * 1e6);
    bench_print_rate("empty_64", (double)calls / (bench_now_us() - start) * 1e6, "calls/s", calls);
}

/* The rows before the first push and after one: then comes what is timed. */
static void measure_push(struct bench *b)
{
    const struct peer *p = b->peer;
    uint32_t at;
    p->push(p->state, b->work);
    const float *rows = (p->pushed != NULL ? p->pushed : p->pull)(p->state, b->work);
    peer_bench_check(b, work_pushed(b->work, p->update, p->push_from_zero, rows, &at), "push", rows, at);
    (void)measure(b, "push", PUSH);
    rows = (p->pushed != NULL ? p->pushed : p->pull)(p->state, b->work);
    for (uint32_t i = 0; i < ROW_ELEMENTS; i++)
        peer_bench_check(b, isfinite(rows[i]), "rows after all pushes", rows, i);
}

static void measure_set(struct bench *b)
{
    const struct peer *p = b->peer;
    uint32_t at;
    (void)measure(b, "set", SET);
    const float *rows = p->pull(p->state, b->work);
    peer_bench_check(b, work_set(b->work, rows, &at), "set", rows, at);
    note_check(b, "set", rows, ROW_ELEMENTS);
}

static void measure_lookup(struct bench *b, const char *row, enum call call)
{
    uint32_t at;
    const float *sums = measure(b, row, call);
    peer_bench_check(b, work_summed(b->work, sums, &at), row, sums, at);
    note_check(b, row, sums, BAG_ELEMENTS);
}

void peer_bench(const struct peer *peer, const struct peer_options *options)
{
    static struct workload work;
    static double us[RUNS_MAX];
    struct bench b = {.peer = peer, .work = &work, .seconds = options->seconds, .us = us};
    uint32_t at;
    assert(peer->pull != NULL);
    work_make(&work);
    if (peer->empty != NULL && peer_wants(options, "empty_1"))
        (void)measure(&b, "empty_1", EMPTY);
    if (peer->empty_many != NULL && peer_wants(options, "empty_64"))
        measure_empty_many(&b);
    if (peer_wants(options, "pull")) {
        const float *rows = measure(&b, "pull", PULL);
        peer_bench_check(&b, work_pulled(&work, rows, &at), "pull", rows, at);
        note_check(&b, "pull", rows, ROW_ELEMENTS);
    }
    if (peer->lookup != NULL && peer_wants(options, "lookup"))
        measure_lookup(&b, "lookup", LOOKUP);
    if (peer->lookup_fed != NULL && peer_wants(options, "lookup_fed"))
        measure_lookup(&b, "lookup_fed", LOOKUP_FED);
    if (peer->push != NULL && peer_wants(options, "push"))
        measure_push(&b);
    if (peer->set != NULL && peer_wants(options, "set")) /* last: the table is another one afterwards */
        measure_set(&b);
    printf("{\"name\": \"checks\"%s}\n", b.checks);
    (void)fflush(stdout);
}
