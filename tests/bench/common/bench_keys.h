/* Keys for benchmarks, the same on every run: the i-th key of a table, and draws from them. */
#ifndef BENCH_KEYS_H
#define BENCH_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* tools/bench/random.h */
uint64_t bench_random_next(uint64_t *state);
/* The i-th key: any u64, without a pattern; distinct for distinct i. */
uint64_t bench_key_at(uint64_t i);
/* out[i]: a number below key_count, each as likely: of bulk calls, the same keys in all programs. */
void bench_keys_dense(uint64_t *out, size_t count, uint64_t key_count);
/* out[i]: one of the keys 0 .. key_count - 1, each as likely as any other. */
void bench_keys_uniform(uint64_t *out, size_t count, uint64_t key_count, uint64_t seed);
/* out[i]: key r with a probability proportional to (r + 1)^-shape, exactly so (tools/bench/zipf.h). */
void bench_keys_zipf(uint64_t *out, size_t count, uint64_t key_count, double shape, uint64_t seed);

#endif
