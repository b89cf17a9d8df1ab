#include "ps/checkpoint/cluster_retain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/checkpoint_manifest.h"
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

/* A file CLUSTER. */
struct cluster_file {
    uint64_t id;
    int64_t committed_s;
    bool can_go; /* one that this version cannot read is not its own to remove: a later version wrote it */
    bool is_by_trainer;
    bool goes;
};

/* Whether a part of it is missing: it was given up, its parts went, and a leader that was slow wrote its file
 * all the same. */
static bool lacks_part(const struct ps_store *store, const char *directory,
                       const struct ps_cluster_manifest *m)
{
    char folder[PS_PATH_BYTES], path[PS_PATH_BYTES];
    for (uint32_t i = 0; i < m->part_count; i++) {
        uint64_t bytes;
        int64_t written_s;
        if (ps_path_join(directory, m->parts[i].name, folder) && ps_path_published(folder, m->id, path) &&
            ps_path_join(path, PS_MANIFEST_NAME, folder) &&
            store->facts(store->self, folder, &bytes, &written_s) == -ENOENT)
            return true;
    }
    return false;
}

/* The node that a trainer asked marks its part. False: whether there is such a part is not known. */
static bool read_kind(const struct ps_store *store, const char *directory,
                      const struct ps_cluster_manifest *m, bool *is_by_trainer)
{
    char folder[PS_PATH_BYTES];
    *is_by_trainer = false;
    for (uint32_t i = 0; i < m->part_count && !*is_by_trainer; i++)
        if (!ps_path_join(directory, m->parts[i].name, folder) ||
            ps_checkpoint_is_by_trainer(store, folder, m->id, is_by_trainer) != 0)
            return false;
    return true;
}

static bool read_files(const struct ps_store *store, const char *directory, const uint64_t *ids,
                       uint32_t count, uint64_t committed, struct cluster_file *files)
{
    char ignored[PS_TEXT_BYTES];
    struct ps_cluster_manifest *found = malloc(sizeof(*found));
    bool is_known = found != NULL;
    for (uint32_t i = 0; i < count && is_known; i++) {
        const enum mr_status status = ps_cluster_manifest_read(store, directory, ids[i], found, ignored);
        files[i].id = ids[i];
        files[i].can_go = status == MR_OK || status == MR_CHECKPOINT_CORRUPT;
        files[i].goes = status == MR_OK && ids[i] < committed && lacks_part(store, directory, found);
        if (status != MR_OK || files[i].goes)
            continue;
        files[i].committed_s = (int64_t)found->time_s;
        is_known = read_kind(store, directory, found, &files[i].is_by_trainer);
    }
    free(found);
    return is_known;
}

static bool has_age(const struct cluster_file *file, uint32_t least_age_s)
{
    const int64_t age_s = (int64_t)time(NULL) - file->committed_s;
    return age_s < 0 || age_s >= (int64_t)least_age_s;
}

/* Sets `goes` for the files of a kind, which are listed newest first. list[count]: room for indices. */
static void retain_kind(struct cluster_file *files, uint32_t count, bool is_by_trainer, uint64_t committed,
                        uint32_t keep, uint32_t least_age_s, uint32_t *list)
{
    uint32_t listed = 0;
    for (uint32_t i = 0; i < count; i++)
        if (files[i].is_by_trainer == is_by_trainer && files[i].id <= committed && !files[i].goes)
            list[listed++] = i;
    keep = keep > 0 ? keep : 1;
    while (listed > keep) {
        const bool oldest_goes = has_age(&files[list[listed - 1]], least_age_s);
        const uint32_t at = oldest_goes ? listed - 1 : 1;
        files[list[at]].goes = files[list[at]].can_go;
        listed--;
        memmove(&list[at], &list[at + 1], (listed - at) * sizeof(*list));
    }
}

/* ---- what writers left that died ---- */

#define UNFINISHED_MAX 16u /* removed at one time */

struct unfinished {
    uint64_t committed;
    uint32_t count;
    char names[UNFINISHED_MAX][PS_PATH_BYTES / 4];
};

static void note_unfinished(void *arg, const char *name)
{
    struct unfinished *u = arg;
    const uint64_t id = ps_name_cluster_unfinished(name);
    if (id != 0 && id <= u->committed && u->count < UNFINISHED_MAX && strlen(name) < sizeof(u->names[0]))
        (void)snprintf(u->names[u->count++], sizeof(u->names[0]), "%s", name);
}

static void remove_unfinished(const struct ps_store *store, const char *directory, uint64_t committed)
{
    char path[PS_PATH_BYTES];
    struct unfinished u = {.committed = committed};
    (void)store->list(store->self, directory, note_unfinished, &u);
    for (uint32_t i = 0; i < u.count; i++)
        if (ps_path_join(directory, u.names[i], path))
            (void)store->remove(store->self, path);
}

void ps_cluster_retain(const struct ps_store *store, const char *directory, uint64_t committed,
                       const struct ps_retention *r)
{
    char path[PS_PATH_BYTES];
    uint64_t *ids;
    uint32_t count = 0;
    const bool is_listed = list_clusters(store, directory, &ids, &count);
    struct cluster_file *files = is_listed ? calloc(count + 1u, sizeof(*files)) : NULL;
    uint32_t *list = is_listed ? calloc(count + 1u, sizeof(*list)) : NULL;
    if (files && list && read_files(store, directory, ids, count, committed, files)) {
        retain_kind(files, count, false, committed, r->keep, r->least_age_s, list);
        retain_kind(files, count, true, committed, r->keep_trainers, r->least_age_s, list);
        for (uint32_t i = 0; i < count; i++)
            if (files[i].goes && ps_path_cluster(directory, files[i].id, path))
                (void)store->remove(store->self, path);
    }
    free(list);
    free(files);
    free(ids);
    remove_unfinished(store, directory, committed);
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
