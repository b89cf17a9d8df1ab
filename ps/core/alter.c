#include "ps/core/alter.h"

#include <stdio.h>
#include "dataplane/optimizer/rule.h"
#include "ps/table/table.h"

/* What the stamps of rows count (ps/row/row_use.h). */
enum stamp { STAMP_NONE, STAMP_SECONDS, STAMP_STEPS, STAMP_USES, STAMP_USES_AND_COUNT };

static enum stamp stamp_of(uint32_t eviction)
{
    switch (eviction) {
    case MR_EVICT_AGE:
    case MR_EVICT_NORM:
        return STAMP_SECONDS;
    case MR_EVICT_STEPS:
        return STAMP_STEPS;
    case MR_EVICT_LRU:
        return STAMP_USES;
    case MR_EVICT_LFU:
        return STAMP_USES_AND_COUNT;
    default:
        return STAMP_NONE;
    }
}

static bool is_counting(const struct mr_feature *f)
{
    return f->admission == MR_ADMIT_OBSERVATIONS;
}

/* Floats of state beside one value, which tell layouts of any length apart. */
static size_t state_floats(const struct mr_feature *f)
{
    struct mr_rule rule;
    const char *what;
    return mr_rule_init(f, &rule, &what) == MR_OK ? mr_rule_state_floats(&rule, 1) : 0;
}

bool ps_alter_check(const struct mr_feature *is, const struct mr_feature *after, char *text,
                    size_t text_bytes)
{
    if (state_floats(is) != state_floats(after) || mr_feature_is_dense(is) != mr_feature_is_dense(after)) {
        snprintf(
            text, text_bytes,
            "optimizer_args cannot be altered like this: with dampening, or dense, the optimizer keeps other "
            "state for each row");
        return false;
    }
    if (stamp_of(is->eviction) != stamp_of(after->eviction)) {
        snprintf(
            text, text_bytes,
            "eviction cannot be altered from %s to %s: rows do not carry what that goes by; age and norm can "
            "become each other",
            mr_eviction_name(is->eviction), mr_eviction_name(after->eviction));
        return false;
    }
    if (is_counting(is) != is_counting(after)) {
        snprintf(
            text, text_bytes,
            "admission cannot be altered from %s to %s: the filter that counts the occurrences of keys is "
            "made with the table",
            mr_admission_name(is->admission), mr_admission_name(after->admission));
        return false;
    }
    if (ps_table_filter_size(is) != ps_table_filter_size(after)) {
        snprintf(text, text_bytes,
                 "memory_bytes cannot be altered to %llu: a quarter of it bounds the filter that counts the "
                 "occurrences of keys, which would have another size",
                 (unsigned long long)after->memory_bytes);
        return false;
    }
    return true;
}
