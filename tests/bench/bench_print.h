/* A clock, and results as lines of JSON. Needs no library, so that programs beside Millrace's own use it,
 * too. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

double bench_now_us(void);
/* {"name": ..., "value": median, "unit": "us", "p99": ..., "runs": ...}; sorts `us`. */
void bench_print_latency(const char *name, double *us, uint32_t runs);
void bench_print_rate(const char *name, double value, const char *unit, uint64_t runs);

#ifdef __cplusplus
}
#endif

#endif
