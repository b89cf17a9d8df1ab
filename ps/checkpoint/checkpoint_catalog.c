/* Which checkpoints a directory holds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_error.h"
#include "ps/checkpoint/checkpoint_format.h"

#define CHECKPOINTS_MAX 4096u /* looked at when searching for the newest that is whole */

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
    memmove(&list->ids[at + 1], &list->ids[at], tail * sizeof(*list->ids));
    list->ids[at] = id;
    if (list->kept < list->limit)
        list->kept++;
}

int ps_checkpoint_list_all(const struct ps_store *store, const char *directory, uint64_t *ids,
                           uint32_t ids_max, uint32_t *count)
{
    struct id_list list = {.id_of = ps_name_published, .limit = ids_max};
    list.ids = ids;
    store = store ? store : ps_store_local();
    int error = store->list(store->self, directory, collect, &list);
    *count = list.seen;
    return error == -ENOENT ? 0 : error;
}

uint32_t ps_checkpoint_list(const struct ps_store *store, const char *directory, uint64_t *ids,
                            uint32_t ids_max)
{
    uint32_t count;
    (void)ps_checkpoint_list_all(store, directory, ids, ids_max, &count);
    return count;
}

enum mr_status ps_checkpoint_next_id(const struct ps_store *store, const char *directory, uint64_t *id,
                                     char *text)
{
    uint64_t newest = 0;
    uint32_t count;
    int error = ps_checkpoint_list_all(store, directory, &newest, 1, &count);
    if (error != 0) {
        ps_text_io(text, "open", directory, -error);
        return MR_IO_ERROR;
    }
    if (newest == (uint64_t)PS_CHECKPOINT_ID_MAX) {
        ps_text_path(text, directory,
                     "it has the checkpoint of the highest number: save to another directory");
        return MR_INVALID_ARGUMENT;
    }
    *id = newest + 1;
    return MR_OK;
}

static void ignore_name(void *arg, const char *name)
{
    (void)arg;
    (void)name;
}

/* MR_OK when the directory is one that can be listed. */
static enum mr_status look_at(const struct ps_store *store, const char *directory, char *text)
{
    int error = store->list(store->self, directory, ignore_name, NULL);
    if (error == 0)
        return MR_OK;
    if (error == -ENOENT) {
        ps_text_path(text, directory, "there is no such directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    ps_text_io(text, "open", directory, -error);
    return MR_IO_ERROR;
}

static enum mr_status try_all(const uint64_t *ids, uint32_t count, ps_try_checkpoint attempt, void *arg,
                              char *text)
{
    char why[PS_TEXT_BYTES], passed_over[PS_TEXT_BYTES] = "";
    enum mr_status status = MR_CHECKPOINT_NOT_FOUND;
    for (uint32_t i = 0; i < count; i++) {
        bool is_damaged = false;
        why[0] = '\0';
        status = attempt(arg, ids[i], &is_damaged, why);
        if (status == MR_OK)
            break;
        /* Only a checkpoint that is broken may be passed over: an older one loses training that a newer one
         * holds. */
        if (!is_damaged) {
            memcpy(passed_over, why, sizeof(why));
            break;
        }
        if (passed_over[0] == '\0')
            memcpy(passed_over, why, sizeof(why));
    }
    memcpy(text, passed_over, sizeof(passed_over));
    return status;
}

enum mr_status ps_checkpoint_newest(const struct ps_store *store, const char *directory,
                                    ps_try_checkpoint attempt, void *arg, char *text)
{
    store = store ? store : ps_store_local();
    enum mr_status status = look_at(store, directory, text);
    if (status != MR_OK)
        return status;
    uint64_t *ids = calloc(CHECKPOINTS_MAX, sizeof(*ids));
    if (!ids)
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    uint32_t count = ps_checkpoint_list(store, directory, ids, CHECKPOINTS_MAX);
    if (count == 0) {
        ps_text_path(text, directory, "there is no checkpoint in this directory");
        status = MR_CHECKPOINT_NOT_FOUND;
    } else {
        status = try_all(ids, count < CHECKPOINTS_MAX ? count : CHECKPOINTS_MAX, attempt, arg, text);
    }
    free(ids);
    return status;
}
