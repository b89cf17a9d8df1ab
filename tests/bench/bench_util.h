/* What the benchmarks through the public header share: a clock, an end at the first error, and JSON lines. */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stdint.h>
#include "millrace.h"

double bench_now_us(void);
/* Ends the program with a line unless the status is MR_OK. */
void bench_check(enum mr_status status, const char *what);
/* Connects, spinning while it waits, or ends the program with a line. */
struct mr_client *bench_connect(struct mr_client_options *options);
/* {"name": ..., "value": median, "unit": "us", "p99": ..., "runs": ...}; sorts `us`. */
void bench_print_latency(const char *name, double *us, uint32_t runs);
void bench_print_rate(const char *name, double value, const char *unit, uint64_t runs);

#endif
