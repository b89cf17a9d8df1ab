/* What Create and Alter demand of features, on one node and in a cluster. Pure. Any thread. */
#ifndef PS_FEATURE_RULES_H
#define PS_FEATURE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

#define PS_RULES_TEXT_BYTES 400u
/* of how many there may be, and are */
#define PS_RULES_TRAINER_TABLES                                                                              \
    "trainers create tables and variables until there are %u (memory.trainer_tables), and there are %u: "    \
    "to create more needs an operator's key"

/* Feature `index` of a list is to be created: it is well-formed, and agrees with `known`, which has the
 * same name (NULL: none has), and with those before it in the list. MR_INVALID_ARGUMENT,
 * MR_FEATURE_MISMATCH; `text` (PS_RULES_TEXT_BYTES) says why. */
enum mr_status ps_rules_create(const struct mr_feature *features, uint32_t index,
                               const struct mr_feature *known, char *text);

/* Whether what is stored of a feature fits its new options (ps_alter_check()). */
typedef bool ps_rules_may_alter(const struct mr_feature *is, const struct mr_feature *after, char *text,
                                size_t text_bytes);

/* Finds out what `is` becomes. What differs between `before` and `after` is changed, whatever the other
 * options have become since the caller saw them. MR_UNSUPPORTED, MR_INVALID_ARGUMENT; `text` says why. */
enum mr_status ps_rules_alter(const struct mr_feature *is, const struct mr_feature *before,
                              const struct mr_feature *after, ps_rules_may_alter *may_alter,
                              struct mr_feature *out, char *text);

#endif
