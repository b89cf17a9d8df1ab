#include "tools/ckpt/ckpt_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt_store.h"
#include "dataplane/wire/base/cli.h"

void ckpt_check_begin(struct ckpt_check *check, uint64_t total_bytes)
{
    *check = (struct ckpt_check){0};
    ckpt_progress_begin(&check->progress, "verify", total_bytes);
}

void ckpt_check_end(struct ckpt_check *check)
{
    ckpt_progress_end(&check->progress);
    free(check->done);
    check->done = NULL;
}

static const struct ckpt_checked *check_link(struct ckpt_check *check, const struct ps_chain_link *link)
{
    for (uint32_t i = 0; i < check->count; i++)
        if (strcmp(check->done[i].path, link->path) == 0)
            return &check->done[i];
    struct ckpt_checked *done = realloc(check->done, (check->count + 1) * sizeof(*done));
    if (!done)
        return NULL;
    check->done = done;
    struct ckpt_checked *found = &done[check->count++];
    *found = (struct ckpt_checked){0};
    memcpy(found->path, link->path, sizeof(found->path));
    found->status = ckpt_link_each(link, NULL, NULL, &check->progress, found->text);
    return found;
}

enum mr_status ckpt_check_chain(struct ckpt_check *check, const struct ckpt_chain *chain, char *text)
{
    for (uint32_t i = 0; i < chain->files.count; i++) {
        const struct ckpt_checked *found = check_link(check, chain->files.links[i]);
        if (!found)
            return ps_checkpoint_fail(text, "read", chain->files.links[i]->path, -ENOMEM);
        if (found->status != MR_OK) {
            memcpy(text, found->text, sizeof(found->text));
            return found->status;
        }
    }
    return MR_OK;
}

static void ignore_name(void *arg, const char *name)
{
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* All published checkpoints of a directory, oldest first. */
static int all_ids(const char *command, const char *directory, uint64_t **ids, uint32_t *count)
{
    const struct ps_store *store = ckpt_store_of(directory);
    int error = store->list(store->self, directory, ignore_name, NULL);
    const char *explained = ps_store_explanation(-error);
    if (error != 0 && explained)
        return cli_fail(command, "%s: %s", directory, explained);
    if (error != 0)
        return cli_fail(command, "%s: %s; name a directory of checkpoints, or one of them as DIR/ckpt-N",
                        directory, strerror(-error));
    const uint32_t room = ps_checkpoint_list(store, directory, NULL, 0);
    *ids = malloc((room + 1u) * sizeof **ids);
    if (!*ids)
        return cli_fail(command, "no memory");
    *count = ps_checkpoint_list(store, directory, *ids, room);
    if (*count > room) /* some have come since they were counted */
        *count = room;
    qsort(*ids, *count, sizeof(**ids), compare_ids);
    return 0;
}

int ckpt_find_ids(const char *command, const char *path, char directory[PS_PATH_BYTES], uint64_t **ids,
                  uint32_t *count)
{
    uint64_t id;
    const int exit_code = ckpt_place_open(command, path, directory, &id);
    if (exit_code != 0)
        return exit_code;
    if (id == 0)
        return all_ids(command, directory, ids, count);
    *ids = malloc(sizeof **ids);
    if (!*ids)
        return cli_fail(command, "no memory");
    **ids = id;
    *count = 1;
    return 0;
}
