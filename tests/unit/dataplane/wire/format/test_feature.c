#include <math.h>
#include <string.h>
#include "dataplane/wire/format/ranges.h"
#include "tests/test.h"

static struct mr_feature table(void)
{
    return mr_feature_table("emb", 16);
}

static struct mr_feature variable(void)
{
    return mr_feature_variable("dense/w.0:kernel-1", 2, (uint32_t[]){3, 4});
}

TEST(defaults_are_well_formed)
{
    struct mr_feature t = table(), v = variable(), s = mr_feature_variable("bias", 0, NULL);
    assert_null(mr_feature_check(&t));
    assert_null(mr_feature_check(&v));
    assert_null(mr_feature_check(&s));
    assert_int_equal(t.kind, MR_TABLE);
    assert_int_equal(t.dtype, MR_F32);
    assert_int_equal(t.rank, 1);
    assert_int_equal(t.dims[0], 16);
    assert_int_equal(t.initializer, MR_INIT_CONSTANT);
    assert_int_equal(t.optimizer, MR_OPT_SGD);
    assert_true(t.learning_rate > 0.0099f && t.learning_rate < 0.0101f);
    assert_int_equal(t.pooling, MR_POOL_SUM);
    assert_int_equal(v.kind, MR_VARIABLE);
    assert_int_equal(v.rank, 2);
    assert_int_equal(v.dims[1], 4);
    assert_int_equal(v.dims[2], 0);
}

/* CASE(change to a well-formed table `f`, the field that must be named) */
#define REFUSED(make, change, field)                                                                         \
    do {                                                                                                     \
        struct mr_feature f = make();                                                                        \
        assert_null(mr_feature_check(&f));                                                                   \
        change;                                                                                              \
        const char *named = mr_feature_check(&f);                                                            \
        assert_non_null(named);                                                                              \
        assert_string_equal(named, field);                                                                   \
    } while (0)
#define TAKEN(make, change)                                                                                  \
    do {                                                                                                     \
        struct mr_feature f = make();                                                                        \
        change;                                                                                              \
        assert_null(mr_feature_check(&f));                                                                   \
    } while (0)

TEST(names_are_checked)
{
    REFUSED(table, f.name[0] = '\0', "name");
    REFUSED(table, f.name[1] = ' ', "name");
    REFUSED(table, f.name[1] = '\xc3', "name");
    REFUSED(table, f.name[40] = 'x', "name"); /* behind the NUL */
    REFUSED(table, memset(f.name, 'a', sizeof(f.name)), "name");
    TAKEN(table, memset(f.name, 'a', sizeof(f.name) - 1));

    char longer[80];
    memset(longer, 'b', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    struct mr_feature f = mr_feature_table(longer, 4);
    assert_string_equal(mr_feature_check(&f), "name");
    f = mr_feature_table(NULL, 4);
    assert_string_equal(mr_feature_check(&f), "name");
}

TEST(shapes_are_checked)
{
    REFUSED(table, f.kind = 0, "kind");
    REFUSED(table, f.kind = 3, "kind");
    REFUSED(table, f.dtype = MR_U8, "dtype");
    REFUSED(table, f.dtype = 0, "dtype");
    TAKEN(table, f.dtype = MR_BF16);
    REFUSED(table, f.rank = 0, "rank");
    REFUSED(table, f.rank = 2, "rank");
    REFUSED(table, f.dims[0] = 0, "dim");
    REFUSED(table, f.dims[0] = MR_DIM_MAX + 1, "dim");
    TAKEN(table, f.dims[0] = MR_DIM_MAX);
    REFUSED(table, f.dims[1] = 1, "dims");
    REFUSED(variable, f.rank = 5, "rank");
    REFUSED(variable, f.rank = UINT32_MAX, "rank");
    REFUSED(variable, f.dims[1] = 0, "dims");
    REFUSED(variable, f.dims[2] = 1, "dims");
    REFUSED(variable, (f.rank = 1, f.dims[1] = 0, f.dims[0] = (1u << 30) + 1), "dims");
    TAKEN(variable, (f.rank = 1, f.dims[1] = 0, f.dims[0] = 1u << 30));
    REFUSED(variable, (f.rank = 4, f.dims[0] = f.dims[1] = f.dims[2] = f.dims[3] = UINT32_MAX), "dims");
    REFUSED(variable, (f.rank = 4, f.dims[0] = f.dims[1] = f.dims[2] = f.dims[3] = 1u << 16), "dims");
}

TEST(initializers_are_checked)
{
    REFUSED(table, f.initializer = 0, "initializer");
    REFUSED(table, f.initializer = 5, "initializer");
    REFUSED(table, f.init_a = NAN, "init_a");
    REFUSED(table, f.init_b = INFINITY, "init_b");
    REFUSED(table, (f.initializer = MR_INIT_UNIFORM, f.init_a = 1.0f, f.init_b = 0.5f), "init_b");
    REFUSED(table, (f.initializer = MR_INIT_NORMAL, f.init_b = -1.0f), "init_b");
    REFUSED(table, (f.initializer = MR_INIT_TRUNCATED_NORMAL, f.init_b = -1.0f), "init_b");
    /* no first value may be NaN or Inf */
    REFUSED(table, (f.initializer = MR_INIT_UNIFORM, f.init_a = -3e38f, f.init_b = 3e38f), "init_b");
    REFUSED(table, (f.initializer = MR_INIT_NORMAL, f.init_b = 1e38f), "init_b");
    REFUSED(table, (f.initializer = MR_INIT_TRUNCATED_NORMAL, f.init_a = -3e38f, f.init_b = 1e37f), "init_b");
    TAKEN(table, (f.init_a = -3e38f, f.init_b = 3e38f));
    TAKEN(table, (f.initializer = MR_INIT_UNIFORM, f.init_a = -1.5e38f, f.init_b = 1.5e38f));
    TAKEN(table, (f.initializer = MR_INIT_NORMAL, f.init_b = 4e37f));
    TAKEN(table, (f.initializer = MR_INIT_UNIFORM, f.init_a = -0.1f, f.init_b = 0.1f));
    TAKEN(table, (f.initializer = MR_INIT_NORMAL, f.init_a = -5.0f, f.init_b = 0.0f));
}

TEST(optimizers_are_checked)
{
    REFUSED(table, f.optimizer = 0, "optimizer");
    REFUSED(table, f.optimizer = 10, "optimizer");
    TAKEN(table, f.learning_rate = 0.0f);
    TAKEN(variable, f.learning_rate = 0.0f);
    REFUSED(table, f.learning_rate = -1.0f, "learning_rate");
    REFUSED(table, f.learning_rate = NAN, "learning_rate");
    REFUSED(table, f.learning_rate = INFINITY, "learning_rate");
    REFUSED(table, f.optimizer_args[5] = NAN, "optimizer_args");
    TAKEN(table, f.optimizer = MR_OPT_ADAGRAD);
    REFUSED(table, (f.optimizer = MR_OPT_ADAGRAD, f.optimizer_args[1] = 0.0f), "optimizer_args"); /* 0 / 0 */
    REFUSED(table, (f.optimizer = MR_OPT_ADAGRAD, f.optimizer_args[0] = -1.0f), "optimizer_args");
    REFUSED(table, (f.optimizer = MR_OPT_ADAGRAD, f.optimizer_args[0] = 1.0f, f.optimizer_args[1] = -1e-9f),
            "optimizer_args");
    REFUSED(table, (f.optimizer = MR_OPT_ROWWISE_ADAGRAD, f.optimizer_args[1] = 0.0f), "optimizer_args");
    TAKEN(table, (f.optimizer = MR_OPT_ADAGRAD, f.optimizer_args[1] = 1e-10f));
    TAKEN(table, (f.optimizer = MR_OPT_ADAGRAD, f.optimizer_args[0] = 0.1f));
    REFUSED(table, (f.optimizer = MR_OPT_ADAGRAD, f.optimizer_args[2] = 1.0f), "optimizer_args");
    REFUSED(table, f.weight_decay = -0.1f, "weight_decay");
    REFUSED(table, f.weight_decay = NAN, "weight_decay");
    REFUSED(table, f.clip_value = -1.0f, "clip_value");
    REFUSED(table, f.clip_norm = INFINITY, "clip_norm");
}

/* Torch's, where torch has it. */
TEST(optimizers_have_defaults)
{
    static const float wanted[][MR_OPTIMIZER_ARGS] = {
        [MR_OPT_SGD] = {0, 1e-10f},
        [MR_OPT_MOMENTUM] = {0.9f},
        [MR_OPT_ADAGRAD] = {0, 1e-10f},
        [MR_OPT_ROWWISE_ADAGRAD] = {0, 1e-10f},
        [MR_OPT_ADAM] = {0.9f, 0.999f, 1e-8f},
        [MR_OPT_ADAMW] = {0.9f, 0.999f, 1e-8f},
        [MR_OPT_FTRL] = {0, 1},
        [MR_OPT_GROUP_FTRL] = {0, 1},
        [MR_OPT_ASSIGN] = {0},
    };
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_LAST; kind++) {
        struct mr_feature f = table();
        memset(f.optimizer_args, 0x40, sizeof(f.optimizer_args));
        mr_feature_set_optimizer(&f, (enum mr_optimizer)kind);
        assert_null(mr_feature_check(&f));
        assert_int_equal(f.optimizer, kind);
        assert_memory_equal(f.optimizer_args, wanted[kind], sizeof(f.optimizer_args));
    }
    REFUSED(table, mr_feature_set_optimizer(&f, (enum mr_optimizer)77), "optimizer");
}

static struct mr_feature set_table(void)
{
    struct mr_feature f = table();
    mr_feature_set_optimizer(&f, MR_OPT_ASSIGN);
    return f;
}

/* What is set is set as it is. */
TEST(rows_that_are_set_have_no_options)
{
    TAKEN(set_table, f.learning_rate = 3.0f);
    TAKEN(set_table, f.dtype = MR_BF16);
    REFUSED(set_table, f.weight_decay = 0.1f, "weight_decay");
    REFUSED(set_table, f.clip_value = 1.0f, "clip_value");
    REFUSED(set_table, f.clip_norm = 1.0f, "clip_norm");
    REFUSED(set_table, f.schedule_warmup_steps = 1, "schedule_warmup_steps");
    REFUSED(set_table, (f.schedule = MR_SCHEDULE_COSINE, f.schedule_steps = 10), "schedule");
}

/* An optimizer with one of its arguments changed. */
static const char *with_arg(enum mr_optimizer optimizer, uint32_t i, float value)
{
    struct mr_feature f = table();
    mr_feature_set_optimizer(&f, optimizer);
    f.optimizer_args[i] = value;
    return mr_feature_check(&f);
}

TEST(arguments_are_checked)
{
    static const struct {
        enum mr_optimizer optimizer;
        uint32_t arg;
        float good, bad;
    } cases[] = {
        {MR_OPT_MOMENTUM, 0, 0.0f, 1.0f},   {MR_OPT_MOMENTUM, 0, 0.99f, -0.1f},
        {MR_OPT_MOMENTUM, 1, 0.5f, 1.0f},   {MR_OPT_MOMENTUM, 2, 1.0f, 0.5f},
        {MR_OPT_MOMENTUM, 3, 0.0f, 0.1f},   {MR_OPT_ROWWISE_ADAGRAD, 2, 0.0f, 1.0f},
        {MR_OPT_ADAM, 0, 0.0f, 1.0f},       {MR_OPT_ADAM, 1, 0.0f, -0.5f},
        {MR_OPT_ADAM, 2, 1.0f, 0.0f},       {MR_OPT_ADAM, 3, 1.0f, 0.5f},
        {MR_OPT_ADAMW, 1, 0.5f, 1.0f},      {MR_OPT_ADAMW, 2, 1e-6f, -1.0f},
        {MR_OPT_FTRL, 0, 0.1f, -0.1f},      {MR_OPT_FTRL, 1, 2.0f, 0.0f},
        {MR_OPT_FTRL, 2, 3.0f, -1.0f},      {MR_OPT_FTRL, 3, 3.0f, -1.0f},
        {MR_OPT_FTRL, 4, 0.0f, 1.0f},       {MR_OPT_GROUP_FTRL, 4, 1.0f, -1.0f},
        {MR_OPT_GROUP_FTRL, 5, 0.0f, 1.0f}, {MR_OPT_ASSIGN, 0, 0.0f, 1.0f},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(with_arg(cases[i].optimizer, cases[i].arg, cases[i].good));
        const char *named = with_arg(cases[i].optimizer, cases[i].arg, cases[i].bad);
        assert_non_null(named);
        assert_string_equal(named, "optimizer_args");
    }
    /* Nesterov as torch has it */
    REFUSED(table,
            (f.optimizer = MR_OPT_MOMENTUM, f.optimizer_args[0] = 0.9f, f.optimizer_args[1] = 0.1f,
             f.optimizer_args[2] = 1.0f),
            "optimizer_args");
    REFUSED(table, (f.optimizer = MR_OPT_MOMENTUM, f.optimizer_args[1] = 0.0f, f.optimizer_args[2] = 1.0f),
            "optimizer_args");
    TAKEN(table, (f.optimizer = MR_OPT_FTRL, f.optimizer_args[0] = 0.1f, f.optimizer_args[1] = 0.0f));
}

TEST(schedules_are_checked)
{
    REFUSED(table, f.schedule = 4, "schedule");
    REFUSED(table, f.schedule = MR_SCHEDULE_COSINE, "schedule_steps");
    REFUSED(table, f.schedule_steps = 10, "schedule_steps");
    TAKEN(table, f.schedule_warmup_steps = 10);
    TAKEN(variable, (f.schedule = MR_SCHEDULE_COSINE, f.schedule_steps = 10));
    REFUSED(table, f.learning_rate_end = 0.1f, "learning_rate_end");
    REFUSED(table, (f.schedule = MR_SCHEDULE_LINEAR, f.schedule_steps = 10, f.learning_rate_end = -0.1f),
            "learning_rate_end");
    REFUSED(table, (f.schedule = MR_SCHEDULE_EXPONENTIAL, f.schedule_steps = 10), "learning_rate_end");
    TAKEN(table, (f.schedule = MR_SCHEDULE_LINEAR, f.schedule_steps = 10));
    TAKEN(table, (mr_feature_set_optimizer(&f, MR_OPT_FTRL), f.schedule = MR_SCHEDULE_LINEAR,
                  f.schedule_steps = 10));
    TAKEN(table, (f.learning_rate = 0, f.schedule = MR_SCHEDULE_LINEAR, f.schedule_steps = 10,
                  f.learning_rate_end = 0.1f));
    REFUSED(table,
            (f.learning_rate = 0, f.schedule = MR_SCHEDULE_EXPONENTIAL, f.schedule_steps = 10,
             f.learning_rate_end = 0.1f),
            "learning_rate"); /* no factor leads away from 0 */
    TAKEN(table, (f.schedule = MR_SCHEDULE_EXPONENTIAL, f.schedule_steps = 10, f.learning_rate_end = 0.1f));
}

TEST(rows_options_are_checked)
{
    REFUSED(table, f.pooling = 4, "pooling");
    REFUSED(variable, f.pooling = MR_POOL_MEAN, "pooling");
    TAKEN(table, f.pooling = MR_POOL_NONE);
    REFUSED(table, f.admission = 3, "admission");
    REFUSED(table, f.admission_arg = NAN, "admission_arg");
    REFUSED(table, f.admission = MR_ADMIT_PROBABILITY, "admission_arg");
    REFUSED(table, (f.admission = MR_ADMIT_PROBABILITY, f.admission_arg = 1.5f), "admission_arg");
    TAKEN(table, (f.admission = MR_ADMIT_PROBABILITY, f.admission_arg = 1.0f));
    REFUSED(table, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 0.5f), "admission_arg");
    TAKEN(table, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 3.0f));
    TAKEN(table, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 255.0f));
    REFUSED(table, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 256.0f), "admission_arg");
    REFUSED(table, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 2.5f), "admission_arg");
    REFUSED(variable, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 3.0f), "admission");
    REFUSED(table, f.eviction = 6, "eviction");
    REFUSED(table, f.eviction_arg = -1.0f, "eviction_arg");
    REFUSED(table, f.eviction = MR_EVICT_AGE, "eviction_arg");
    REFUSED(table, f.eviction = MR_EVICT_NORM, "eviction_arg");
    REFUSED(table, f.eviction = MR_EVICT_STEPS, "eviction_arg");
    TAKEN(table, f.eviction = MR_EVICT_LRU);
    TAKEN(table, (f.eviction = MR_EVICT_LRU, f.memory_bytes = MR_MEMORY_BYTES_MIN));
    REFUSED(table, f.memory_bytes = MR_MEMORY_BYTES_MIN - 1, "memory_bytes");
    REFUSED(variable, f.memory_bytes = 1 << 20, "memory_bytes");
    REFUSED(table, f.filter_bytes = 1 << 20, "filter_bytes");
    REFUSED(table,
            (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 2.0f,
             f.filter_bytes = MR_FILTER_BYTES_MAX + 1),
            "filter_bytes");
    TAKEN(table, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 2.0f, f.filter_bytes = 1 << 20));
    TAKEN(table, (f.eviction = MR_EVICT_LFU, f.capacity_rows = 1000));
    REFUSED(variable, (f.eviction = MR_EVICT_AGE, f.eviction_arg = 1.0f), "eviction");
    REFUSED(variable, f.capacity_rows = 1, "capacity_rows");
    REFUSED(table, f.reserved[0] = 1, "reserved");
    REFUSED(table, f.reserved[15] = 1, "reserved");
    REFUSED(table, f.altered = 1u << 15, "altered");
}

/* Every byte belongs to a field, and a change of any one of them is found. */
TEST(any_changed_byte_is_a_difference)
{
    struct mr_feature a = table();
    assert_null(mr_feature_diff(&a, &a));
    for (size_t i = 0; i < sizeof(a); i++) {
        struct mr_feature b = a;
        ((uint8_t *)&b)[i] ^= 1;
        assert_non_null(mr_feature_diff(&a, &b));
    }
}

TEST(differences_are_named)
{
    struct mr_feature a = table(), b = table();
    b.dims[0] = 32;
    assert_string_equal(mr_feature_diff(&a, &b), "dim");
    b = a;
    b.learning_rate = 0.5f;
    assert_string_equal(mr_feature_diff(&a, &b), "learning_rate");
    b.dtype = MR_F16; /* the first one counts */
    b.dims[0] = 32;
    assert_string_equal(mr_feature_diff(&a, &b), "dtype");
    a = variable();
    b = variable();
    b.dims[1] = 5;
    assert_string_equal(mr_feature_diff(&a, &b), "dims");
    b = a;
    b.optimizer_args[3] = 1.0f;
    assert_string_equal(mr_feature_diff(&a, &b), "optimizer_args");
}

/* Changes go to the feature as it is now, and only they. */
TEST(differences_alter)
{
    const struct mr_feature before = table();
    struct mr_feature is = before, after = before;
    is.clip_norm = 7; /* by somebody else, meanwhile */
    after.learning_rate = 0.5f;
    after.optimizer_args[1] = 2.0f;
    after.memory_bytes = UINT64_C(1) << 30;
    after.altered = 0xff; /* is not for callers to set */
    assert_null(mr_feature_alter(&is, &before, &after));
    assert_float_equal(is.learning_rate, 0.5, 0);
    assert_float_equal(is.optimizer_args[1], 2, 0);
    assert_float_equal(is.clip_norm, 7, 0);
    assert_true(is.memory_bytes == UINT64_C(1) << 30);
    assert_int_equal(is.altered, 1u << 0 | 1u << 1 | 1u << 14); /* part of the protocol */
    assert_null(mr_feature_check(&is));
    const struct mr_feature kept = is;
    assert_null(mr_feature_alter(&is, &before, &before));
    after.dims[0]++;
    assert_string_equal(mr_feature_alter(&is, &before, &after), "dim");
    assert_memory_equal(&is, &kept, sizeof(is));
}

/* A feature may be described as it was made, or as it is; where nobody altered it, there is one way. */
TEST(what_was_altered_is_no_conflict)
{
    const struct mr_feature made = table();
    struct mr_feature is = made, after = made, other = made;
    after.learning_rate = 0.5f;
    assert_null(mr_feature_alter(&is, &made, &after));
    assert_null(mr_feature_conflict(&made, &is));
    assert_null(mr_feature_conflict(&is, &is));
    assert_null(mr_feature_conflict(&after, &is));
    other.clip_value = 3;
    assert_string_equal(mr_feature_conflict(&other, &is), "clip_value");
    assert_string_equal(mr_feature_conflict(&after, &made), "learning_rate");
}

/* Computed from XXH3's specification by another program: client and server of all versions must agree on
 * these. */
TEST(key_hashes_are_xxh3)
{
    static const struct {
        uint64_t key, seed, hash;
    } known[] = {
        {0, 0, UINT64_C(0xc77b3abb6f87acd9)},
        {1, 0, UINT64_C(0x2fbc593564db792e)},
        {UINT64_C(0x0123456789abcdef), 0, UINT64_C(0xb78df414284277a6)},
        {UINT64_C(0x0123456789abcdef), 42, UINT64_C(0xad2ad1ac61c2919a)},
        {UINT64_MAX, UINT64_C(0xdeadbeefcafef00d), UINT64_C(0x22fbf153bc769f75)},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_true(mr_key_hash(known[i].key, known[i].seed) == known[i].hash);
}

TEST(partitions_are_the_top_bits_and_evenly_filled)
{
    enum { KEYS = 4096 * 64 };
    static uint32_t filled[MR_PARTITION_COUNT];
    assert_int_equal(mr_partition_of(UINT64_MAX), MR_PARTITION_COUNT - 1);
    assert_int_equal(mr_partition_of(UINT64_C(0x0010000000000000)), 1);
    for (uint64_t key = 0; key < KEYS; key++)
        filled[mr_partition_of(mr_key_hash(key, 7))]++;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        assert_int_in_range(filled[p], 16, 128); /* 64 on average, 8 deviations to each side */
}

TEST(variables_live_by_their_name)
{
    assert_int_equal(mr_variable_partition("bias"), 2891);
    assert_int_equal(mr_variable_partition("dense/layer1.weight:0"), 3220);
    assert_int_equal(mr_variable_partition("w"), 2766);
    /* A name in a descriptor, as it stands there. */
    struct mr_feature f = mr_feature_variable("bias", 0, NULL);
    assert_int_equal(mr_variable_partition(f.name), 2891);
}

static struct mr_feature wide(void)
{
    const uint32_t dims[2] = {1000, 1000};
    return mr_feature_variable("wide", 2, dims);
}

TEST(ranges_are_checked)
{
    REFUSED(table, f.range_values = 1, "range_values");
    REFUSED(wide, f.range_values = 244, "range_values"); /* 4099 ranges */
    TAKEN(wide, f.range_values = 245);
    TAKEN(wide, f.range_values = MR_VARIABLE_WHOLE);
    REFUSED(wide, f.range_values = 65536; f.clip_norm = 1, "range_values");
    REFUSED(wide, f.range_values = 65536; f.optimizer = MR_OPT_ROWWISE_ADAGRAD, "range_values");
    REFUSED(wide, f.range_values = 65536; mr_feature_set_optimizer(&f, MR_OPT_GROUP_FTRL), "range_values");
    TAKEN(wide, f.range_values = 1000000; f.clip_norm = 1);
}

TEST(large_variables_are_spread)
{
    struct mr_feature f = wide();
    const uint32_t small[1] = {MR_RANGE_VALUES}, largest[1] = {1u << 30};
    mr_feature_spread(&f);
    assert_int_equal(f.range_values, MR_RANGE_VALUES);
    assert_int_equal(mr_variable_ranges(&f), 16);
    f = mr_feature_variable("f", 1, small);
    mr_feature_spread(&f);
    assert_int_equal(f.range_values, 0);
    f = mr_feature_variable("f", 1, largest);
    mr_feature_spread(&f);
    assert_null(mr_feature_check(&f));
    assert_int_equal(mr_variable_ranges(&f), MR_RANGES_MAX);
    f = wide();
    f.clip_norm = 1;
    mr_feature_spread(&f);
    assert_int_equal(f.range_values, 0);
    f = wide();
    f.range_values = MR_VARIABLE_WHOLE;
    mr_feature_spread(&f);
    assert_int_equal(f.range_values, MR_VARIABLE_WHOLE);
}

/* However a node has split a variable that is there, nobody has to know. */
TEST(ranges_are_no_conflict)
{
    struct mr_feature mine = wide(), other = wide();
    other.range_values = 65536;
    assert_null(mr_feature_conflict(&mine, &other));
    assert_string_equal(mr_feature_diff(&mine, &other), "range_values");
}

TEST(a_range_lives_by_its_number)
{
    assert_int_equal(mr_range_partition("bias", 0), mr_variable_partition("bias"));
    assert_int_equal(mr_range_partition("bias", 1), 3411);
    assert_int_equal(mr_range_partition("bias", 4095), 1519);
}

TEST(pieces_are_made_of_runs)
{
    struct mr_feature f = wide();
    f.range_values = 300000;
    assert_int_equal(mr_variable_ranges(&f), 4);
    struct mr_run run = mr_run_of(&f, 299999, 500000);
    assert_true(run.range == 0 && run.at == 299999 && run.count == 1);
    run = mr_run_of(&f, 300000, 500000);
    assert_true(run.range == 1 && run.at == 0 && run.count == 300000);
    run = mr_run_of(&f, 999999, 1);
    assert_true(run.range == 3 && run.at == 99999 && run.count == 1);
    f.range_values = 0;
    run = mr_run_of(&f, 299999, 500000);
    assert_true(run.range == 0 && run.at == 299999 && run.count == 500000);
}
