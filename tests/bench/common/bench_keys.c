#include "tests/bench/common/bench_keys.h"

#include "tools/bench/random.h"
#include "tools/bench/zipf.h"

uint64_t bench_random_next(uint64_t *state)
{
    return tool_random_next(state);
}

uint64_t bench_key_at(uint64_t i)
{
    uint64_t state = i;
    return bench_random_next(&state);
}

void bench_keys_dense(uint64_t *out, size_t count, uint64_t key_count)
{
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] = (state >> 33) % key_count;
    }
}

void bench_keys_uniform(uint64_t *out, size_t count, uint64_t key_count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        out[i] = bench_key_at(bench_random_next(&seed) % key_count);
}

void bench_keys_zipf(uint64_t *out, size_t count, uint64_t key_count, double shape, uint64_t seed)
{
    struct tool_zipf zipf;
    tool_zipf_init(&zipf, key_count, shape);
    for (size_t i = 0; i < count; i++)
        out[i] = bench_key_at(tool_zipf_draw(&zipf, &seed));
}
