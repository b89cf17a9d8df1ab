/* What the files of ps/save/save.h share. */
#ifndef PS_SAVE_INTERNAL_H
#define PS_SAVE_INTERNAL_H

#include "ps/core/core.h"

/* How a step of the cursor went. */
enum ps_save_went {
    PS_SAVE_WENT_ON,
    PS_SAVE_NO_ROOM, /* in the writer's buffers: nothing was written */
    PS_SAVE_THROUGH, /* there is no more of it */
};

static inline size_t ps_save_padded(uint64_t bytes)
{
    return (size_t)((bytes + 7) & ~UINT64_C(7));
}

/* ps_writer_append() for the cursor, which leaves the room that pushes wait for. NULL when there is no
 * more. */
uint8_t *ps_save_append(struct ps_core *core, const struct ps_record *record, uint64_t now_us);

/* Streams, clients and lanes: copied at once. False when memory is short. */
bool ps_save_copy_begin(const struct ps_core *core, struct ps_save *save);
enum ps_save_went ps_save_copy_step(struct ps_core *core, uint64_t now_us);

/* A variable that the cut is not through with. */
enum ps_save_went ps_save_variable_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us);
/* Now it is. */
void ps_save_variable_end(struct ps_core *core, struct ps_feature *f);

#endif
