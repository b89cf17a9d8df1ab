/* Which checkpoints a directory holds, and removing those no longer wanted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint.h"
#include "ps/checkpoint_manifest.h"

/* The `limit` largest ids seen, in descending order. */
struct id_list {
    uint64_t (*id_of)(const char *name);
    uint64_t *ids;
    uint32_t limit, kept, seen;
};

static void collect(void *arg, const char *name)
{
    struct id_list *list = arg;
    uint64_t id = list->id_of(name);
    if (id == 0)
        return;
    list->seen++;
    uint32_t at = list->kept;
    while (at > 0 && list->ids[at - 1] < id)
        at--;
    if (at == list->limit)
        return;
    uint32_t tail = list->kept < list->limit ? list->kept - at : list->limit - 1 - at;
    memmove(&list->ids[at + 1], &list->ids[at], tail * sizeof *list->ids);
    list->ids[at] = id;
    if (list->kept < list->limit)
        list->kept++;
}

uint32_t ps_checkpoint_list_on(const struct ps_store *store, const char *directory, uint64_t *ids,
                               uint32_t ids_max)
{
    struct id_list list = {.id_of = ps_name_published, .limit = ids_max};
    list.ids = ids;
    (void)store->list(store->self, directory, collect, &list);
    return list.seen;
}

uint32_t ps_checkpoint_list(const char *directory, uint64_t *ids, uint32_t ids_max)
{
    return ps_checkpoint_list_on(ps_store_local(), directory, ids, ids_max);
}

/* Nobody holds a dead writer's directory. */
static void remove_temporary(const struct ps_store *store, const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    int claim;
    if (!ps_path_temporary(directory, id, path) || store->claim(store->self, path, &claim) != 0)
        return;
    (void)ps_store_remove_tree(store, path, PS_MANIFEST_NAME);
    store->release(store->self, claim);
}

/* Out of sight in one step first, so that no half of it is ever seen. */
static void remove_published(const struct ps_store *store, const char *directory, uint64_t id)
{
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
    if (ps_path_published(directory, id, from) && ps_path_temporary(directory, id, to) &&
        store->rename(store->self, from, to) == 0)
        remove_temporary(store, directory, id);
}

static void collect_at_most(const struct ps_store *store, const char *directory, struct id_list *list)
{
    list->ids = calloc(PS_STORE_ENTRIES_MAX, sizeof *list->ids);
    list->limit = list->ids ? PS_STORE_ENTRIES_MAX : 0;
    (void)store->list(store->self, directory, collect, list);
}

void ps_checkpoint_retain_on(const struct ps_store *store, const char *directory, uint32_t keep)
{
    struct id_list old = {.id_of = ps_name_temporary};
    collect_at_most(store, directory, &old);
    for (uint32_t i = 0; i < old.kept; i++)
        remove_temporary(store, directory, old.ids[i]);
    free(old.ids);

    struct id_list published = {.id_of = ps_name_published};
    collect_at_most(store, directory, &published);
    for (uint32_t i = published.kept; i > (keep > 0 ? keep : 1); i--)
        remove_published(store, directory, published.ids[i - 1]);
    free(published.ids);
}

void ps_checkpoint_retain(const char *directory, uint32_t keep)
{
    ps_checkpoint_retain_on(ps_store_local(), directory, keep);
}
