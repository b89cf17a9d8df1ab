/* A range of a named dense tensor (dataplane/wire/format/ranges.h) with its optimizer: the whole tensor,
 * if it is not split. Ranges are updated each by itself, with the same bits wherever they are. Belongs to
 * one thread. */
#ifndef PS_VARIABLE_H
#define PS_VARIABLE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/memory/arena.h"

struct ps_variable;

/* Makes range `range` with its first values. MR_UNSUPPORTED with *what set, MR_OUT_OF_MEMORY. */
enum mr_status ps_variable_create(const struct mr_feature *feature, uint32_t range, struct ps_arena *arena,
                                  struct ps_variable **out, const char **what);
/* The options are `feature`'s from now on, which ps_alter_check() has let pass. */
void ps_variable_alter(struct ps_variable *v, const struct mr_feature *feature);
void ps_variable_destroy(struct ps_variable *v); /* NULL is fine */
/* Frees a huge page (ps/memory/huge_pages.h) of a variable that is no longer used. True when there is
 * more; only this and ps_variable_destroy() may be called from now on. */
bool ps_variable_destroy_some(struct ps_variable *v);
/* Of the range, as are the elements below. */
uint64_t ps_variable_elements(const struct ps_variable *v);
const float *ps_variable_values(const struct ps_variable *v);
/* MR_WRONG_SHAPE when [first, first + count) is not inside. */
enum mr_status ps_variable_set(struct ps_variable *v, uint64_t first, const float *values, uint64_t count);
/* Runs the optimizer once over the whole range. NaN or Inf anywhere: nothing is changed, false is returned
 * (counted by the caller). step: as in struct ps_table_push. learning_rate: of this push alone; NULL: as the
 * schedule has it. `gradient` has ps_variable_elements() floats. */
bool ps_variable_push(struct ps_variable *v, uint64_t step, const float *learning_rate,
                      const float *gradient);
/* Values, then optimizer state: for checkpoints, piece by piece. */
uint64_t ps_variable_stored_bytes(const struct ps_variable *v);
void ps_variable_store(const struct ps_variable *v, uint64_t first_byte, uint64_t bytes, uint8_t *out);
void ps_variable_load(struct ps_variable *v, const uint8_t *stored);

#endif
