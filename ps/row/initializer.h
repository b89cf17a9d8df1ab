/* First values of rows and variables: a pure function of seed, key and element, in plain IEEE arithmetic
 * without libm, so that they are the same bits on every core, machine and vector width, in whatever order
 * keys appear. Any thread. */
#ifndef PS_INITIALIZER_H
#define PS_INITIALIZER_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct ps_initializer {
    uint32_t kind; /* enum mr_initializer */
    float a, b;    /* as in struct mr_feature */
    uint64_t seed;
};

/* MR_UNSUPPORTED names an unknown kind in *what. */
enum mr_status ps_initializer_init(const struct mr_feature *feature, struct ps_initializer *out,
                                   const char **what);
/* Elements [0, count) of the values for `key`. */
void ps_initializer_fill(const struct ps_initializer *init, uint64_t key, float *out, size_t count);
/* Elements [first, first + count). */
void ps_initializer_fill_from(const struct ps_initializer *init, uint64_t key, size_t first, float *out,
                              size_t count);
/* Inverse of the standard normal distribution function, 0 < p < 1; relative error about 1e-15. */
double ps_normal_quantile(double p);

#endif
