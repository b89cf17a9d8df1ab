/* Feature descriptors: what Create asks for. A feature is a table (u64 key -> row) or a variable (dense tensor).
 *
 * This is a layout, shared by client and server; its meaning lives in ps/. The struct travels as it stands
 * (little-endian, naturally aligned, static_assert on every offset in feature.c), so append in `reserved` only.
 */
#ifndef MR_FEATURE_H
#define MR_FEATURE_H

#include <stdint.h>
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_NAME_BYTES            64   /* feature names: 1..63 bytes of [A-Za-z0-9_./:-], NUL padded */
#define MR_DIM_MAX               1024 /* floats per row */
#define MR_FEATURE_MAX           4096 /* features per node */
#define MR_PARTITION_COUNT       4096 /* slices of the hashed key space */
#define MR_VARIABLE_ELEMENTS_MAX (UINT64_C(1) << 30)

enum mr_feature_kind { MR_TABLE = 1, MR_VARIABLE = 2 };

/* How an entry that does not exist yet gets its values: a function of seed and key alone. */
enum mr_initializer {
    MR_INIT_CONSTANT = 1,         /* a = value */
    MR_INIT_UNIFORM = 2,          /* a = low, b = high */
    MR_INIT_NORMAL = 3,           /* a = mean, b = standard deviation */
    MR_INIT_TRUNCATED_NORMAL = 4, /* a = mean, b = standard deviation, cut at 2 standard deviations */
};

enum mr_optimizer {
    MR_OPT_SGD = 1,
    MR_OPT_MOMENTUM = 2,
    MR_OPT_ADAGRAD = 3,
    MR_OPT_ROWWISE_ADAGRAD = 4,
    MR_OPT_ADAM = 5,
    MR_OPT_ADAMW = 6,
    MR_OPT_FTRL = 7,
    MR_OPT_GROUP_FTRL = 8,
};

enum mr_admission { MR_ADMIT_ALWAYS = 0, MR_ADMIT_PROBABILITY = 1, MR_ADMIT_SIGHTINGS = 2 };
enum mr_eviction {
    MR_EVICT_NEVER = 0,
    MR_EVICT_AGE = 1,
    MR_EVICT_LRU = 2,
    MR_EVICT_LFU = 3,
    MR_EVICT_NORM = 4
};
enum mr_pooling { MR_POOL_SUM = 0, MR_POOL_MEAN = 1, MR_POOL_SQRTN = 2, MR_POOL_NONE = 3 };

struct mr_feature {
    char name[MR_NAME_BYTES];
    uint32_t kind;              /* enum mr_feature_kind */
    uint32_t dtype;             /* enum mr_dtype of the values */
    uint32_t rank;              /* variables: 0..4; tables: 1 */
    uint32_t dims[MR_RANK_MAX]; /* tables: dims[0] is the row length, 1..MR_DIM_MAX */
    uint32_t initializer;       /* enum mr_initializer */
    float init_a, init_b;
    uint64_t seed;           /* of initializer and key hash */
    uint32_t optimizer;      /* enum mr_optimizer */
    float learning_rate;     /* > 0 */
    float optimizer_args[6]; /* SGD: none. Adagrad: [0] initial accumulator, [1] epsilon (not both 0) */
    float weight_decay;      /* >= 0; L2, added to the gradient of the rows a push touches */
    float clip_value;        /* 0 = off */
    float clip_norm;         /* 0 = off; per row (tables) or whole tensor (variables) */
    uint32_t pooling;        /* enum mr_pooling: how bags are reduced; tables only */
    uint32_t admission;      /* enum mr_admission */
    float admission_arg;
    uint32_t eviction; /* enum mr_eviction */
    float eviction_arg;
    uint64_t capacity_rows; /* 0 = bounded by memory only */
    uint8_t reserved[56];   /* zero */
};

/* A table of f32 rows with the defaults: sum pooling, constant 0, SGD with learning rate 0.01; Adagrad's epsilon, should
 * it be chosen, 1e-10. */
struct mr_feature mr_feature_table(const char *name, uint32_t dim);
/* An f32 variable with the same defaults. dims has `rank` entries. */
struct mr_feature mr_feature_variable(const char *name, uint32_t rank, const uint32_t *dims);

/* NULL when `f` is well-formed, else the name of the first field that is not ("dim", "learning_rate", ...). */
const char *mr_feature_check(const struct mr_feature *f);
/* NULL when equal, else the name of the first field that differs. */
const char *mr_feature_diff(const struct mr_feature *a, const struct mr_feature *b);
const char *mr_optimizer_name(uint32_t optimizer); /* "adagrad"; "?" when unknown */
const char *mr_initializer_name(uint32_t initializer);

/* ---- where keys live: the same function in client and server ---- */

/* Hash of a key in a feature with `seed`: XXH3-64 of the 8 key bytes (little-endian) with that seed. */
uint64_t mr_key_hash(uint64_t key, uint64_t seed);
/* Partition of a hash: its top 12 bits. */
static inline uint32_t mr_partition_of(uint64_t hash)
{
    return (uint32_t)(hash >> 52);
}
/* Partition of a variable: that of XXH3-64 over its name, seed 0. */
uint32_t mr_variable_partition(const char *name);

#ifdef __cplusplus
}
#endif
#endif
