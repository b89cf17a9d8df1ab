/* A clock, memory, results as lines of JSON, and an end when something fails. Needs no library, so that
 * programs beside Millrace's own use it, too. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

double bench_now_us(void);
/* Ends the program with a line. */
__attribute__((noreturn)) void bench_give_up(const char *what);
/* Returns memory on cache lines of its own, zeroed; ends the program when there is none. */
void *bench_allocate(size_t bytes);
/* {"name": ..., "value": median, "unit": "us", "p99": ..., "runs": ...}; sorts `us`. */
void bench_print_latency(const char *name, double *us, uint32_t runs);
void bench_print_rate(const char *name, double value, const char *unit, uint64_t runs);
/* {"name": ..., "value": ..., "unit": ..., "limit": ..., "ratio": value / limit, "better": "higher" or
 * "lower", "target": the ratio that is wanted} */
void bench_print_ratio(const char *name, double value, const char *unit, double limit, const char *better,
                       double target);

#ifdef __cplusplus
}
#endif

#endif
