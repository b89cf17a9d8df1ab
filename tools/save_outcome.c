#include "tools/save_outcome.h"

bool tool_save_is_good(const struct mr_checkpoint_status *s, uint64_t id)
{
    /* Ids rise within one directory only: as long as the server speaks of this very save, its outcome is what counts. */
    return s->id == id ? s->last_status == MR_OK : s->last_good_id >= id;
}
