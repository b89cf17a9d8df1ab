#include "tests/bench/common/bench_keys.h"

#include <math.h>

uint64_t bench_random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t bench_key_at(uint64_t i)
{
    uint64_t state = i;
    return bench_random_next(&state);
}

void bench_keys_uniform(uint64_t *out, size_t count, uint64_t key_count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        out[i] = bench_key_at(bench_random_next(&seed) % key_count);
}

/* The integral of x^-shape, and its inverse. */
static double integral(double x, double shape)
{
    return (pow(x, 1 - shape) - 1) / (1 - shape);
}

static double integral_inverse(double y, double shape)
{
    return pow(1 + (1 - shape) * y, 1 / (1 - shape));
}

void bench_keys_zipf(uint64_t *out, size_t count, uint64_t key_count, double shape, uint64_t seed)
{
    double low = integral(1.5, shape) - 1, high = integral((double)key_count + 0.5, shape);
    double always = 2 - integral_inverse(integral(2.5, shape) - pow(2, -shape), shape);
    for (size_t i = 0; i < count;) {
        double u = (double)(bench_random_next(&seed) >> 11) * 0x1p-53;
        double area = high + u * (low - high), x = integral_inverse(area, shape);
        double rank = fmin(fmax(floor(x + 0.5), 1), (double)key_count);
        if (rank - x <= always || area >= integral(rank + 0.5, shape) - pow(rank, -shape))
            out[i++] = bench_key_at((uint64_t)rank - 1);
    }
}
