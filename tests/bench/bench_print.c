#include "tests/bench/bench_print.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

double bench_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
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
