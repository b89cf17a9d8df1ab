/* What became of a save, from the server's word on its checkpoints. */
#ifndef TOOL_SAVE_OUTCOME_H
#define TOOL_SAVE_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/millrace.h"

/* Whether save `id`, which is no longer under way, is on disk. */
bool tool_save_is_good(const struct mr_checkpoint_status *s, uint64_t id);

#endif
