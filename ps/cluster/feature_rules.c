#include "ps/cluster/feature_rules.h"

#include <stdio.h>
#include <string.h>

enum mr_status ps_rules_create(const struct mr_feature *features, uint32_t index,
                               const struct mr_feature *known, char *text)
{
    const struct mr_feature *f = &features[index];
    char wrong[MR_FEATURE_TEXT_BYTES];
    const char *field = mr_feature_check(f);
    if (field != NULL) {
        mr_feature_explain(f, field, wrong, sizeof(wrong));
        (void)snprintf(text, PS_RULES_TEXT_BYTES, "feature %u (%.63s): %.300s", index, f->name, wrong);
        return MR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < index && known == NULL; i++)
        if (strncmp(features[i].name, f->name, MR_NAME_BYTES) == 0)
            known = &features[i];
    field = known != NULL ? mr_feature_conflict(f, known) : NULL;
    if (field != NULL) {
        mr_feature_explain_diff(f, known, field, wrong, sizeof(wrong));
        (void)snprintf(text, PS_RULES_TEXT_BYTES,
                       "%.63s exists with %.250s; millrace ctl list shows its options", f->name, wrong);
        return MR_FEATURE_MISMATCH;
    }
    return MR_OK;
}

enum mr_status ps_rules_alter(const struct mr_feature *is, const struct mr_feature *before,
                              const struct mr_feature *after, ps_rules_may_alter *may_alter,
                              struct mr_feature *out, char *text)
{
    char wrong[MR_FEATURE_TEXT_BYTES];
    *out = *is;
    const char *field = mr_feature_alter(out, before, after);
    if (field != NULL) {
        (void)snprintf(text, PS_RULES_TEXT_BYTES, "%.63s: %s cannot be altered: %s", is->name, field,
                       mr_feature_why_fixed(field));
        return MR_UNSUPPORTED;
    }
    field = mr_feature_check(out);
    if (field != NULL) {
        mr_feature_explain(out, field, wrong, sizeof(wrong));
        (void)snprintf(text, PS_RULES_TEXT_BYTES, "%.63s: %.300s", is->name, wrong);
        return MR_INVALID_ARGUMENT;
    }
    if (!may_alter(is, out, wrong, sizeof(wrong))) {
        (void)snprintf(text, PS_RULES_TEXT_BYTES, "%.63s: %.300s", is->name, wrong);
        return MR_UNSUPPORTED;
    }
    return MR_OK;
}
