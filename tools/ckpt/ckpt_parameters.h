/* The parameters of two checkpoints side by side: parameters of remote calls that have names, and the states
 * that optimizers keep beside them. Belongs to one thread. */
#ifndef TOOL_CKPT_PARAMETERS_H
#define TOOL_CKPT_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/ckpt/ckpt_chain.h"
#include "tools/ckpt/ckpt_progress.h"

struct ckpt_parameter_pair {
    const struct ps_saved_parameter *a, *b; /* of the chains; NULL: only the other has it */
    uint64_t a_sum, b_sum;                  /* over each value and its place */
    bool differs;                           /* in one of them only, or in shape, rule, step or a value */
};

struct ckpt_parameter_pairs {
    struct ckpt_parameter_pair *pairs; /* by name, and then by optimizer */
    uint32_t count;
};

/* Reads the blocks of both checkpoints. `text` (PS_TEXT_BYTES) says what is wrong. */
enum mr_status ckpt_parameters_compare(const struct ckpt_chain *a, const struct ckpt_chain *b,
                                       struct ckpt_progress *progress, struct ckpt_parameter_pairs *out,
                                       char *text);
void ckpt_parameters_free(struct ckpt_parameter_pairs *pairs);

#endif
