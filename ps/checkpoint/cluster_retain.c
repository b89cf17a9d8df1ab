#include "ps/checkpoint/cluster_retain.h"

#include <stdlib.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/cluster_manifest.h"

#define IDS_MAX 4096u

/* Newest first. False: not all are known. */
static bool list_clusters(const struct ps_store *store, const char *directory, uint64_t **ids,
                          uint32_t *count)
{
    *ids = calloc(IDS_MAX, sizeof(**ids));
    return *ids && ps_checkpoint_list_clusters(store, directory, *ids, IDS_MAX, count) == 0 &&
           *count <= IDS_MAX;
}

/* One that this version cannot read is not its own to remove: a later version wrote it. */
static bool can_go(const struct ps_store *store, const char *directory, uint64_t id)
{
    char ignored[PS_TEXT_BYTES];
    struct ps_cluster_manifest *found = malloc(sizeof(*found));
    const enum mr_status status =
        found ? ps_cluster_manifest_read(store, directory, id, found, ignored) : MR_NO_MEMORY;
    free(found);
    return status == MR_OK || status == MR_CHECKPOINT_CORRUPT;
}

void ps_cluster_retain(const struct ps_store *store, const char *directory, uint64_t committed, uint32_t keep)
{
    char path[PS_PATH_BYTES];
    uint64_t *ids;
    uint32_t count = 0, kept = 1;
    if (list_clusters(store, directory, &ids, &count)) {
        for (uint32_t i = 0; i < count; i++) {
            const bool stays = ids[i] >= committed || kept < keep;
            kept += stays && ids[i] < committed;
            if (!stays && can_go(store, directory, ids[i]) && ps_path_cluster(directory, ids[i], path))
                (void)store->remove(store->self, path);
        }
    }
    free(ids);
}

void ps_cluster_retain_parts(const struct ps_store *store, const char *directory, const char *folder,
                             uint64_t committed)
{
    uint64_t *ids;
    uint32_t count = 0;
    /* Without a list that has the committed one, nothing is known to be needed no more. */
    if (list_clusters(store, directory, &ids, &count)) {
        uint32_t i = 0;
        while (i < count && ids[i] != committed)
            i++;
        if (i < count)
            ps_checkpoint_retain_parts(store, folder, ids, count, committed);
    }
    free(ids);
}
