/* What the benchmarks through the public header share: an end at the first error, and a clock and results as
 * bench_print.h has them. */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stdint.h>
#include "millrace.h"
#include "tests/bench/common/bench_print.h"

/* Ends the program with a line unless the status is MR_OK. */
void bench_check(enum mr_status status, const char *what);
/* Connects, spinning while it waits unless busy_poll_us is set, or ends the program with a line. */
struct mr_client *bench_connect(struct mr_client_options *options);
/* Returns the memory of a process that is in RAM, as the kernel counts it. */
double bench_resident_bytes(unsigned long pid);

#endif
