/* Any bytes as two feature descriptors: what passes the check keeps the promises that ps/ builds on, and two differ
 * exactly when their bytes do. */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "dataplane/wire/mr_feature.h"
#include "fuzz_assert.h"

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
    FUZZ_ASSERT(f->learning_rate > 0 && isfinite(f->learning_rate));
    FUZZ_ASSERT(isfinite(f->init_a) && isfinite(f->init_b) && f->weight_decay >= 0);
    FUZZ_ASSERT(mr_optimizer_name(f->optimizer)[0] != '?');
    FUZZ_ASSERT(mr_initializer_name(f->initializer)[0] != '?');
    FUZZ_ASSERT(mr_variable_partition(f->name) < MR_PARTITION_COUNT);
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
        if (mr_feature_check(&f[i]) == NULL)
            check_well_formed(&f[i]);
        FUZZ_ASSERT(mr_feature_diff(&f[i], &f[i]) == NULL);
    }
    uint8_t layout[2][sizeof(f[0])];
    memcpy(layout, f, sizeof(layout));
    bool equal = memcmp(layout[0], layout[1], sizeof(layout[0])) == 0;
    const char *one = mr_feature_diff(&f[0], &f[1]), *other = mr_feature_diff(&f[1], &f[0]);
    FUZZ_ASSERT((one == NULL) == equal);
    FUZZ_ASSERT(one == NULL ? other == NULL : strcmp(one, other) == 0);
    return 0;
}
