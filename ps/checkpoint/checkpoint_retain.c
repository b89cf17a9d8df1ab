/* Removing chains that are no longer wanted, and what dead writers left. */
#include <stdlib.h>

#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/manifest_file.h"

/* A published checkpoint. Entries are in ascending order of ids, so that a parent comes before its deltas. */
struct entry {
    uint64_t id, parent;
    struct ps_hash hash, parent_hash;
    bool is_newer; /* of a later format version: nobody here knows what it is based on */
    uint32_t root; /* index of its chain's first entry */
    /* of a root: */
    bool is_broken; /* nothing of the chain can be restored */
    bool stays;
    uint64_t newest; /* id */
};

struct directory {
    const struct ps_store *store;
    const char *path;
    struct entry *entries;
    uint32_t count;
};

/* ---- removing ---- */

/* Nobody holds a dead writer's directory. */
static void remove_temporary(const struct ps_store *store, const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    int claim;
    if (!ps_path_temporary(directory, id, path) || ps_store_claim(store, path, false, &claim) != 0)
        return;
    (void)ps_store_remove_tree(store, path, PS_MANIFEST_NAME);
    ps_store_release(store, claim);
}

struct temporary_list {
    uint64_t *ids; /* NULL: they are only counted */
    uint32_t count, room;
};

static void collect_temporary(void *arg, const char *name)
{
    struct temporary_list *list = arg;
    const uint64_t id = ps_name_temporary(name);
    if (id == 0 || (list->ids && list->count == list->room))
        return;
    if (list->ids)
        list->ids[list->count] = id;
    list->count++;
}

static void remove_temporaries(const struct ps_store *store, const char *directory)
{
    struct temporary_list counted = {0}, list = {0};
    if (store->list(store->self, directory, collect_temporary, &counted) != 0 || counted.count == 0)
        return;
    list.room = counted.count;
    list.ids = calloc(list.room, sizeof(*list.ids));
    if (list.ids && store->list(store->self, directory, collect_temporary, &list) == 0)
        for (uint32_t i = 0; i < list.count; i++)
            remove_temporary(store, directory, list.ids[i]);
    free(list.ids);
}

/* Out of sight in one step, which lasts before anything else is done. */
static bool hide(const struct directory *d, uint64_t id)
{
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
    return ps_path_published(d->path, id, from) && ps_path_temporary(d->path, id, to) &&
           d->store->rename(d->store->self, from, to) == 0 &&
           d->store->sync_directory(d->store->self, d->path) == 0;
}

/* Newest first: whenever it is interrupted, no delta lacks its parent. A chain that somebody reads stays. */
static void remove_chain(const struct directory *d, uint32_t root)
{
    char path[PS_PATH_BYTES];
    int claim;
    if (!ps_path_published(d->path, d->entries[root].id, path) ||
        ps_store_claim(d->store, path, false, &claim) != 0)
        return;
    uint32_t at = d->count;
    bool hidden = true;
    while (hidden && at > root)
        if (d->entries[--at].root == root)
            hidden = hide(d, d->entries[at].id);
    for (uint32_t i = d->count; i > at; i--)
        if (d->entries[i - 1].root == root && ps_path_temporary(d->path, d->entries[i - 1].id, path))
            (void)ps_store_remove_tree(d->store, path, PS_MANIFEST_NAME);
    ps_store_release(d->store, claim);
}

/* ---- choosing ---- */

static struct entry *find(const struct directory *d, uint64_t id, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--)
        if (d->entries[i - 1].id == id)
            return &d->entries[i - 1];
    return NULL;
}

/* False when the machine is at fault: then nothing is known of the checkpoint. */
static bool read_entry(const struct directory *d, struct entry *e)
{
    struct ps_manifest m;
    char ignored[PS_TEXT_BYTES];
    enum mr_status status = ps_manifest_read(d->store, d->path, e->id, &m, ignored);
    e->is_broken = status != MR_OK;
    e->is_newer = status == MR_CHECKPOINT_NEWER;
    if (status == MR_OK) {
        e->parent = m.parent;
        e->hash = m.hash;
        e->parent_hash = m.parent_hash;
        ps_manifest_clear(&m);
    }
    return status == MR_OK || status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND ||
           status == MR_CHECKPOINT_NEWER;
}

/* The entries before it are in their chains. */
static void join_chain(const struct directory *d, uint32_t at)
{
    struct entry *e = &d->entries[at];
    e->root = at;
    e->newest = e->id;
    if (e->is_broken || e->parent == 0)
        return;
    const struct entry *parent = find(d, e->parent, at);
    e->is_broken =
        !parent || parent->hash.low != e->parent_hash.low || parent->hash.high != e->parent_hash.high;
    if (e->is_broken)
        return;
    e->root = parent->root;
    d->entries[e->root].newest = e->id;
}

static bool read_entries(struct directory *d)
{
    uint32_t room = 0, count = 0;
    /* Of a list with gaps nobody can tell what is still needed. */
    bool is_known = ps_checkpoint_list_all(d->store, d->path, NULL, 0, &room) == 0;
    uint64_t *ids = calloc(room + 1u, sizeof(*ids));
    is_known = is_known && ids && ps_checkpoint_list_all(d->store, d->path, ids, room, &count) == 0;
    is_known = is_known && count <= room;
    count = count < room ? count : room;
    d->entries = calloc(count + 1u, sizeof(*d->entries));
    is_known = is_known && d->entries;
    for (uint32_t i = 0; i < count && is_known; i++) {
        d->entries[i].id = ids[count - 1 - i];
        is_known = read_entry(d, &d->entries[i]);
        join_chain(d, i);
    }
    d->count = count;
    free(ids);
    return is_known;
}

/* Marks the newest chains as staying; the lowest id among them, 0 when there are none. */
static uint64_t choose(const struct directory *d, uint32_t keep)
{
    uint64_t lowest = 0;
    for (uint32_t i = d->count; i > 0 && keep > 0; i--) {
        const struct entry *e = &d->entries[i - 1];
        struct entry *root = &d->entries[e->root];
        if (root->is_broken || root->stays)
            continue;
        root->stays = true;
        lowest = lowest == 0 || root->id < lowest ? root->id : lowest;
        keep--;
    }
    return lowest;
}

/* Behind the last one of a later format version: that may be based on all before it. */
static uint32_t first_to_go(const struct directory *d)
{
    uint32_t i = d->count;
    while (i > 0 && !d->entries[i - 1].is_newer)
        i--;
    return i;
}

void ps_checkpoint_retain(const struct ps_store *store, const char *directory, uint32_t keep)
{
    struct directory d = {.store = store ? store : ps_store_local(), .path = directory};
    remove_temporaries(d.store, directory);
    if (read_entries(&d)) {
        const uint64_t lowest = choose(&d, keep > 0 ? keep : 1);
        for (uint32_t i = first_to_go(&d); i < d.count; i++) {
            const struct entry *e = &d.entries[i];
            if (e->root == i && !e->stays && (!e->is_broken || e->newest < lowest))
                remove_chain(&d, i);
        }
    }
    free(d.entries);
}
