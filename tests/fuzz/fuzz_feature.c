/* Any bytes as two feature descriptors: what passes the check keeps the promises that ps/ builds on, and two
 * differ exactly when their bytes do. */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "fuzz_assert.h"
#include "ps/table/table.h"
#include "tests/unit/ps/table_calls.h"

#define LIMIT_BYTES ((size_t)64 << 20)

static void check_schedule(const struct mr_feature *f)
{
    FUZZ_ASSERT(f->schedule <= MR_SCHEDULE_EXPONENTIAL);
    FUZZ_ASSERT(isfinite(f->learning_rate_end) && f->learning_rate_end >= 0);
    FUZZ_ASSERT((f->schedule == MR_SCHEDULE_CONSTANT) == (f->schedule_steps == 0));
    if (f->schedule == MR_SCHEDULE_CONSTANT)
        FUZZ_ASSERT(f->learning_rate_end <= 0);
    if (f->schedule == MR_SCHEDULE_EXPONENTIAL)
        FUZZ_ASSERT(f->learning_rate_end > 0);
}

/* Which rows come and which go. */
static void check_rows(const struct mr_feature *f)
{
    FUZZ_ASSERT(f->admission <= MR_ADMIT_OBSERVATIONS && f->eviction <= MR_EVICT_STEPS);
    if (f->kind == MR_VARIABLE)
        FUZZ_ASSERT(f->admission == 0 && f->eviction == 0 && f->memory_bytes == 0 && f->filter_bytes == 0);
    if (f->admission == MR_ADMIT_PROBABILITY)
        FUZZ_ASSERT(f->admission_arg > 0 && f->admission_arg <= 1);
    if (f->admission == MR_ADMIT_OBSERVATIONS)
        FUZZ_ASSERT(f->admission_arg >= 1 && f->admission_arg <= MR_OBSERVATIONS_MAX &&
                    fmodf(f->admission_arg, 1) <= 0);
    else
        FUZZ_ASSERT(f->filter_bytes == 0);
    if (f->eviction == MR_EVICT_AGE || f->eviction == MR_EVICT_STEPS || f->eviction == MR_EVICT_NORM)
        FUZZ_ASSERT(f->eviction_arg > 0 && isfinite(f->eviction_arg));
}

static struct ps_arena *shared_arena(void)
{
    static struct ps_arena *arena; /* for all inputs: each gives back what it took */
    if (arena == NULL)
        arena = ps_arena_create(LIMIT_BYTES);
    FUZZ_ASSERT(arena != NULL);
    return arena;
}

/* A table of any well-formed descriptor is made and used, or refused with a name for what is missing. */
static void check_table(const struct mr_feature *f)
{
    static const uint64_t keys[] = {1, 2, 1};
    static float gradients[3 * MR_DIM_MAX], out[3 * MR_DIM_MAX];
    struct ps_arena *arena = shared_arena();
    struct ps_table *t;
    const char *what = NULL;
    const struct ps_key_secret secret = {{0}};
    size_t before = ps_arena_allocated_bytes(arena);
    enum mr_status status = ps_table_create(f, arena, &secret, &t, &what);
    if (status == MR_OK) {
        for (uint32_t i = 0; i < 3 * f->dims[0]; i++)
            gradients[i] = (float)(i % 5) - 2;
        table_lookup(t, keys, 3, true, out);
        table_push(t, keys, 3, gradients);
        table_lookup(t, keys, 3, false, out);
        FUZZ_ASSERT(ps_table_rows(t) <= 2 && ps_table_counters(t)->keys_pushed == 3);
        ps_table_destroy(t);
    } else {
        FUZZ_ASSERT(status == MR_OUT_OF_MEMORY || (status == MR_UNSUPPORTED && what != NULL));
    }
    FUZZ_ASSERT(ps_arena_allocated_bytes(arena) == before);
}

static void check_well_formed(const struct mr_feature *f)
{
    uint64_t elements = 1;
    FUZZ_ASSERT(memchr(f->name, '\0', sizeof(f->name)) != NULL && f->name[0] != '\0');
    for (const char *c = f->name; *c != '\0'; c++)
        FUZZ_ASSERT(*c > ' ' && *c <= 'z');
    FUZZ_ASSERT(f->rank <= MR_RANK_MAX);
    for (uint32_t d = 0; d < f->rank; d++) {
        FUZZ_ASSERT(f->dims[d] >= 1 && f->dims[d] <= MR_VARIABLE_ELEMENTS_MAX);
        elements *= f->dims[d];
        FUZZ_ASSERT(elements <= MR_VARIABLE_ELEMENTS_MAX);
    }
    if (f->kind == MR_TABLE)
        FUZZ_ASSERT(f->rank == 1 && f->dims[0] <= MR_DIM_MAX);
    else
        FUZZ_ASSERT(f->kind == MR_VARIABLE && f->pooling == 0 && f->capacity_rows == 0);
    FUZZ_ASSERT(f->learning_rate >= 0 && isfinite(f->learning_rate));
    FUZZ_ASSERT(isfinite(f->init_a) && isfinite(f->init_b) && f->weight_decay >= 0);
    check_schedule(f);
    check_rows(f);
    if (f->kind == MR_TABLE)
        check_table(f);
    FUZZ_ASSERT(mr_optimizer_name(f->optimizer)[0] != '?');
    FUZZ_ASSERT(mr_initializer_name(f->initializer)[0] != '?');
    FUZZ_ASSERT(mr_variable_partition(f->name) < MR_PARTITION_COUNT);
    if (f->optimizer == MR_OPT_ASSIGN)
        FUZZ_ASSERT(f->weight_decay <= 0 && f->clip_value <= 0 && f->clip_norm <= 0 &&
                    f->schedule == MR_SCHEDULE_CONSTANT && f->schedule_warmup_steps == 0);
    if (f->optimizer == MR_OPT_ADAGRAD) { /* one step from nothing is a number */
        float sum = f->optimizer_args[0], epsilon = f->optimizer_args[1];
        FUZZ_ASSERT(!isnan(0.0f / (sqrtf(sum) + epsilon)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct mr_feature f[2] = {mr_feature_table("a", 4), mr_feature_variable("a", 0, NULL)};
    memcpy(f, data, bytes < sizeof(f) ? bytes : sizeof(f));
    for (int i = 0; i < 2; i++) {
        const char *wrong = mr_feature_check(&f[i]);
        char text[MR_FEATURE_TEXT_BYTES];
        if (wrong == NULL)
            check_well_formed(&f[i]);
        else
            mr_feature_explain(&f[i], wrong, text, sizeof(text));
        FUZZ_ASSERT(mr_feature_diff(&f[i], &f[i]) == NULL);
    }
    uint8_t layout[2][sizeof(f[0])];
    memcpy(layout, f, sizeof(layout));
    bool equal = memcmp(layout[0], layout[1], sizeof(layout[0])) == 0;
    const char *one = mr_feature_diff(&f[0], &f[1]), *other = mr_feature_diff(&f[1], &f[0]);
    FUZZ_ASSERT((one == NULL) == equal);
    FUZZ_ASSERT(one == NULL ? other == NULL : strcmp(one, other) == 0);
    struct mr_feature is = f[0];
    uint8_t altered[sizeof(is)];
    const char *fixed = mr_feature_alter(&is, &f[0], &f[1]);
    if (fixed != NULL) {
        memcpy(altered, &is, sizeof(is));
        FUZZ_ASSERT(memcmp(altered, layout[0], sizeof(is)) == 0 && mr_feature_why_fixed(fixed) != NULL);
    } else { /* all that differs was taken, and is no conflict with what was there before */
        is.altered = f[1].altered;
        memcpy(altered, &is, sizeof(is));
        FUZZ_ASSERT(memcmp(altered, layout[1], sizeof(is)) == 0);
        is.altered = UINT32_MAX;
        FUZZ_ASSERT(mr_feature_conflict(&f[0], &is) == NULL);
    }
    return 0;
}
