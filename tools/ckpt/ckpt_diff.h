/* What differs between two checkpoints, feature by feature. Belongs to one thread. */
#ifndef TOOL_CKPT_DIFF_H
#define TOOL_CKPT_DIFF_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/ckpt/ckpt_chain.h"

/* Features of one name and kind. What is in one checkpoint only has NULL for the other. */
struct ckpt_pair {
    const struct mr_feature *a, *b;
    uint32_t kind; /* enum mr_feature_kind */
    uint32_t a_id, b_id;
    bool is_comparable;        /* rows have as many values, variables as many elements; else any two differ */
    bool has_same_state;       /* optimizers keep the same beside them; else state is not compared */
    uint64_t a_count, b_count; /* rows, or elements */
    uint64_t added, removed;   /* rows of b that a has not, and the other way round */
    uint64_t changed;          /* rows whose values differ by a bit, or elements */
    /* rows of the same values, or elements of state, where what the optimizer keeps differs */
    uint64_t state_changed;
    double largest;      /* |a - b| over all values; NaN where one of the two is NaN */
    uint64_t largest_at; /* the row's key, or the element */
    uint32_t largest_column;
};

struct ckpt_diff {
    const struct ckpt_chain *a, *b;
    struct ckpt_pair *pairs; /* tables and variables of a in its order, then those of b alone */
    uint32_t pair_count;
    struct ckpt_progress progress;
};

/* Rows of all tables: a's are held in memory, as many at a time as memory_bytes take with their keys and
 * those of deltas, and b's are laid beside them. */
enum mr_status ckpt_diff_tables(struct ckpt_diff *d, uint64_t memory_bytes, char *text);
/* All variables, memory_bytes of them at a time. */
enum mr_status ckpt_diff_variables(struct ckpt_diff *d, uint64_t memory_bytes, char *text);

/* Notes the differences of two rows of values; true when there is one. `at` and first_column say where they
 * are. */
bool ckpt_pair_compare(struct ckpt_pair *pair, const float *a, const float *b, uint32_t count, uint64_t at,
                       uint32_t first_column);

#endif
