#include "tests/bench/common/bench_print.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void bench_give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

void *bench_allocate(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL)
        bench_give_up("out of memory");
    memset(p, 0, bytes);
    return p;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_print_latency(const char *name, double *us, uint32_t runs)
{
    qsort(us, runs, sizeof(*us), compare_double);
    printf("{\"name\": \"%s\", \"value\": %.2f, \"unit\": \"us\", \"p99\": %.2f, \"runs\": %u}\n", name,
           us[runs / 2], us[(uint64_t)runs * 99 / 100], runs);
    fflush(stdout);
}

void bench_print_rate(const char *name, double value, const char *unit, uint64_t runs)
{
    printf("{\"name\": \"%s\", \"value\": %.1f, \"unit\": \"%s\", \"p99\": null, \"runs\": %" PRIu64 "}\n",
           name, value, unit, runs);
    fflush(stdout);
}

void bench_print_ratio(const char *name, double value, const char *unit, double limit, const char *better,
                       double target)
{
    printf("{\"name\": \"%s\", \"value\": %.2f, \"unit\": \"%s\", \"limit\": %.2f, \"ratio\": %.4f, "
           "\"better\": \"%s\", \"target\": %.2f}\n",
           name, value, unit, limit, value / limit, better, target);
    fflush(stdout);
}
