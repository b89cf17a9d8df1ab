/* Saves and restores of whole checkpoints in one line, for tests. */
#ifndef MR_TEST_CHECKPOINT_CALLS_H
#define MR_TEST_CHECKPOINT_CALLS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include "millrace_admin.h"

/* Saves into a directory (NULL: the server's own). checkpoint_id may be NULL. */
static inline enum mr_status save_into(struct mr_client *client, const struct mr_options *options,
                                       const char *directory, uint64_t *checkpoint_id)
{
    const struct mr_save_options save = {.bytes = sizeof(save), .directory = directory};
    return mr_save(client, options, &save, checkpoint_id, NULL);
}

/* Restores checkpoint `id` (0: the newest that verifies) of a directory (NULL: the server's own), and waits
 * for it. checkpoint_id: which one that was; may be NULL, and is untouched on failure. */
static inline enum mr_status restore_from(struct mr_client *client, const struct mr_options *options,
                                          const char *directory, uint64_t id, uint64_t *checkpoint_id)
{
    const struct mr_restore_options what = {.bytes = sizeof(what), .directory = directory, .id = id};
    struct mr_restored restored = {.bytes = sizeof(restored)};
    assert(options == NULL || options->future == NULL);
    const enum mr_status status = mr_restore(client, options, &what, &restored);
    if (status == MR_OK && checkpoint_id != NULL)
        *checkpoint_id = restored.id;
    return status;
}

#endif
