/* What a network does for one size of batch: its stages, with their primitives and formats, and where in a
 * saved forward's memory each output lies. Inside ps/modules/layers/ only.
 *
 * The gradient of an output has the output's format. A plan does not change once made: any number of threads
 * may run it at once.
 */
#ifndef PS_LAYERS_PLAN_H
#define PS_LAYERS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/modules/layers/stage.h"

struct ps_plan {
    uint32_t batch, stage_count;
    uint32_t first_trained; /* the first stage with parameters; stage_count: none */
    struct ps_stage *stages;
    struct ps_formats formats; /* of all stages */
    ps_format input, output;
    size_t output_at;
    size_t gradients_at[2]; /* two rooms for gradients of any output */
    size_t scratch_at, memory_bytes;
    /* Of the cache in network.c: */
    uint32_t users;
    uint64_t used_last;
    bool is_kept; /* it is in the cache; else it goes with its last user */
};

/* For `batch` samples. The network's threads are taken. */
enum mr_status ps_plan_create(const struct ps_layer_list *list, uint32_t threads, uint32_t batch,
                              struct ps_plan **out);
void ps_plan_destroy(struct ps_plan *plan); /* NULL is fine */

#endif
