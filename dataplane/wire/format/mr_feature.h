/* Feature descriptors: what Create asks for. A feature is a table (u64 key -> row) or a variable (dense
 * tensor).
 *
 * This is a layout, shared by client and server; its meaning lives in ps/. The struct travels as it stands
 * (little-endian, naturally aligned, static_assert on every offset in feature.c), so append in `reserved`
 * only.
 */
#ifndef MR_FEATURE_H
#define MR_FEATURE_H

#include <stdbool.h>
#include <stdint.h>
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_NAME_BYTES            64    /* feature names: 1..63 bytes of [A-Za-z0-9_./:-], NUL padded */
#define MR_DIM_MAX               1024  /* floats per row */
#define MR_FEATURE_MAX           4096  /* features per node */
#define MR_FEATURE_ID_MAX        65535 /* their numbers, which are never used again */
#define MR_PARTITION_COUNT       4096  /* slices of the hashed key space */
#define MR_VARIABLE_ELEMENTS_MAX (UINT64_C(1) << 30)
#define MR_RANGES_MAX            4096       /* of a variable */
#define MR_RANGE_VALUES          65536      /* mr_create() splits variables of more elements than that */
#define MR_VARIABLE_WHOLE        UINT32_MAX /* range_values: it is one range, whatever its size */
#define MR_OBSERVATIONS_MAX      255        /* lookups before a key is admitted, at most */
#define MR_FILTER_BYTES_MAX      (UINT64_C(8) << 30)
#define MR_MEMORY_BYTES_MIN      (UINT64_C(1) << 20) /* of a table */

enum mr_feature_kind { MR_TABLE = 1, MR_VARIABLE = 2 };

/* How an entry that does not exist yet gets its values: a function of seed and key alone. */
enum mr_initializer {
    MR_INIT_CONSTANT = 1,         /* a = value */
    MR_INIT_UNIFORM = 2,          /* a = low, b = high */
    MR_INIT_NORMAL = 3,           /* a = mean, b = standard deviation */
    MR_INIT_TRUNCATED_NORMAL = 4, /* a = mean, b = standard deviation, cut at 2 standard deviations */
};

#define MR_OPTIMIZER_ARGS      6
#define MR_OPTIMIZER_ARG_DENSE 5
/* With their arguments, in the order of optimizer_args. docs/optimizers.md says what each does. In tables of
 * f32 the first three and both Adams have one more, argument MR_OPTIMIZER_ARG_DENSE, 0 or 1: with 1, rows go
 * through the steps that have no gradient for them, too. */
enum mr_optimizer {
    MR_OPT_SGD = 1,             /* none */
    MR_OPT_MOMENTUM = 2,        /* momentum [0, 1), dampening [0, 1), Nesterov (0, or 1 without dampening) */
    MR_OPT_ADAGRAD = 3,         /* initial accumulator, epsilon; not both 0 */
    MR_OPT_ROWWISE_ADAGRAD = 4, /* the same */
    MR_OPT_ADAM = 5,            /* beta1 [0, 1), beta2 [0, 1), epsilon > 0, 1: t is the step of pushes */
    MR_OPT_ADAMW = 6,           /* the same */
    MR_OPT_FTRL = 7,            /* initial accumulator, beta (not both 0), l1, l2 */
    MR_OPT_GROUP_FTRL = 8,      /* the same, then l21 */
    MR_OPT_ASSIGN = 9,          /* none: what is pushed becomes the row, and makes it */
};
#define MR_OPT_LAST MR_OPT_ASSIGN

/* Which keys get a row when they are looked up. The others are answered with their initial values. */
enum mr_admission {
    MR_ADMIT_ALWAYS = 0,
    /* the share admission_arg of all keys; which ones follows from key and seed alone */
    MR_ADMIT_PROBABILITY = 1,
    MR_ADMIT_OBSERVATIONS = 2, /* at its admission_arg-th lookup; a whole number up to MR_OBSERVATIONS_MAX */
};
/* When a row is evicted. LRU, LFU, AGE and STEPS: also when the table is at its limit (capacity_rows,
 * memory_bytes, or the node's memory) and a new key needs a row; of AGE and STEPS the one unused for
 * longest. Otherwise a table at its limit takes no new keys. */
enum mr_eviction {
    MR_EVICT_NEVER = 0,
    MR_EVICT_AGE = 1,   /* no push, and no lookup but read-only ones, for eviction_arg seconds */
    MR_EVICT_LRU = 2,   /* least recently used; eviction_arg unused */
    MR_EVICT_LFU = 3,   /* least often used; eviction_arg unused */
    MR_EVICT_NORM = 4,  /* L2 norm of the values below eviction_arg, and unused for a minute */
    MR_EVICT_STEPS = 5, /* neither looked up nor pushed for eviction_arg steps (those that calls name) */
};
/* The learning rate at a push of step s, where `warm` is schedule_warmup_steps and t = min(1, (s - warm) /
 * schedule_steps): below `warm`, learning_rate * (s + 1) / warm; from there on as named. Pushes without a
 * step count as step 0. */
enum mr_schedule {
    MR_SCHEDULE_CONSTANT = 0,    /* learning_rate */
    MR_SCHEDULE_LINEAR = 1,      /* to learning_rate_end, in a straight line over t */
    MR_SCHEDULE_COSINE = 2,      /* to learning_rate_end, by half a cosine wave over t */
    MR_SCHEDULE_EXPONENTIAL = 3, /* to learning_rate_end, by equal factors over t; both > 0 */
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
    uint64_t seed;       /* of initializer and key hash */
    uint32_t optimizer;  /* enum mr_optimizer */
    float learning_rate; /* >= 0; at 0 values stay, and state changes; MR_OPT_ASSIGN ignores it */
    float optimizer_args[MR_OPTIMIZER_ARGS]; /* see enum mr_optimizer; those without a meaning are 0 */
    float weight_decay; /* >= 0; L2, added to the gradient of the rows a push touches; AdamW: decoupled */
    float clip_value;   /* 0 = off */
    /* 0 = off; per row (tables) or whole tensor (variables). MR_OPT_ASSIGN has none of these three */
    float clip_norm;
    uint32_t pooling;   /* enum mr_pooling: how bags are reduced; tables only */
    uint32_t admission; /* enum mr_admission */
    float admission_arg;
    uint32_t eviction; /* enum mr_eviction */
    float eviction_arg;
    uint64_t capacity_rows; /* of the node; 0 = bounded by memory only */
    /* of the node, index, rows and filter together; 0 = bounded by the node's limit only */
    uint64_t memory_bytes;
    /* of the node, for counting observations; 0 = 16 MiB; a quarter of memory_bytes at most */
    uint64_t filter_bytes;
    uint32_t schedule; /* enum mr_schedule */
    uint32_t schedule_warmup_steps;
    uint32_t schedule_steps;
    float learning_rate_end;
    uint32_t altered; /* which fields mr_alter() has set since the feature was made: a bit for each */
    /* Variables: this many values at a time make a range, which has an owner of its own and is updated by
     * itself (mr_range_partition()). 0: the variable is one range; mr_create() chooses, see
     * mr_feature_spread(). */
    uint32_t range_values;
    uint8_t reserved[16]; /* zero */
};

/* Whether rows go through the steps that have no gradient for them, too. */
static inline bool mr_feature_is_dense(const struct mr_feature *f)
{
    const bool has_argument = f->optimizer == MR_OPT_SGD || f->optimizer == MR_OPT_MOMENTUM ||
                              f->optimizer == MR_OPT_ADAGRAD || f->optimizer == MR_OPT_ADAM ||
                              f->optimizer == MR_OPT_ADAMW;
    return has_argument && f->kind == MR_TABLE && f->dtype == MR_F32 &&
           f->optimizer_args[MR_OPTIMIZER_ARG_DENSE] == 1.0f;
}

/* A table of f32 rows with the defaults: sum pooling, constant 0, SGD with learning rate 0.01; Adagrad's
 * epsilon, should it be chosen, 1e-10. */
MR_API struct mr_feature mr_feature_table(const char *name, uint32_t dim);
/* An f32 variable with the same defaults. dims has `rank` entries. */
MR_API struct mr_feature mr_feature_variable(const char *name, uint32_t rank, const uint32_t *dims);

/* Names the optimizer and sets all its arguments: torch's defaults for Adagrad (both) and Adam (both);
 * momentum 0.9 without dampening or Nesterov; FTRL's beta 1 and all else 0. learning_rate and weight_decay
 * stay as they are (torch's AdamW has 0.001 and 0.01). A number that is no optimizer is set as it is, for
 * mr_feature_check() to refuse. */
MR_API void mr_feature_set_optimizer(struct mr_feature *f, enum mr_optimizer optimizer);

/* NULL when `f` is well-formed, else the name of the first field that is not ("dim", "learning_rate",
 * ...). */
MR_API const char *mr_feature_check(const struct mr_feature *f);
/* NULL when equal, else the name of the first field that differs. */
MR_API const char *mr_feature_diff(const struct mr_feature *a, const struct mr_feature *b);

/* Changes in `f` what differs between `before` and `after`, and notes these fields in f->altered. Returns
 * NULL, or the first of them that cannot be altered; `f` is as it was then. What comes out may be refused
 * by mr_feature_check(). */
MR_API const char *mr_feature_alter(struct mr_feature *f, const struct mr_feature *before,
                                    const struct mr_feature *after);
/* As mr_feature_diff(), apart from fields that were altered in `other`: NULL when `mine` describes the
 * feature as it was made, or as it is. */
MR_API const char *mr_feature_conflict(const struct mr_feature *mine, const struct mr_feature *other);

/* Sets range_values of a variable where it is 0: MR_RANGE_VALUES, or more so that there are at most
 * MR_RANGES_MAX ranges. Leaves it for variables that are no larger than a range, and for those whose update
 * needs all elements at once: with rowwise_adagrad, group_ftrl or clip_norm. */
MR_API void mr_feature_spread(struct mr_feature *f);

/* ---- in words ---- */

/* The names of the enums' members: "adagrad", "uniform", "cosine", "sqrtn", "observations", "lru"; "?" when
 * unknown. */
MR_API const char *mr_optimizer_name(uint32_t optimizer);
MR_API const char *mr_initializer_name(uint32_t initializer);
MR_API const char *mr_schedule_name(uint32_t schedule);
MR_API const char *mr_pooling_name(uint32_t pooling);
MR_API const char *mr_admission_name(uint32_t admission);
MR_API const char *mr_eviction_name(uint32_t eviction);

#define MR_FEATURE_TEXT_BYTES 320u /* room for the texts below, whatever they say */
/* What mr_feature_check() refuses in `f`, for people: "learning_rate is -1: it is above 0, and finite". */
MR_API void mr_feature_explain(const struct mr_feature *f, const char *field, char *text, size_t bytes);
/* Why a field that mr_feature_alter() returned cannot be altered. */
MR_API const char *mr_feature_why_fixed(const char *field);
/* What mr_feature_diff() found: "dim 8, not 16" where `mine` has 16. */
MR_API void mr_feature_explain_diff(const struct mr_feature *mine, const struct mr_feature *other,
                                    const char *field, char *text, size_t bytes);

/* ---- where keys live: the same function in client and server ---- */

/* Hash of a key in a feature with `seed`: XXH3-64 of the 8 key bytes (little-endian) with that seed. */
MR_API uint64_t mr_key_hash(uint64_t key, uint64_t seed);
/* Partition of a hash: its top 12 bits. */
static inline uint32_t mr_partition_of(uint64_t hash)
{
    return (uint32_t)(hash >> 52);
}
/* Partition of a variable of one range: that of XXH3-64 over its name, seed 0. */
MR_API uint32_t mr_variable_partition(const char *name);
/* Partition of a range of a variable: that of XXH3-64 over its name, with the range's number as seed. */
MR_API uint32_t mr_range_partition(const char *name, uint32_t range);

#ifdef __cplusplus
}
#endif
#endif
