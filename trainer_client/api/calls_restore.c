/* Restore: all of a checkpoint, or features of it by name. */
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "trainer_client/api/calls.h"

#define DIRECTORY_BYTES_MAX 4096u

/* Copies as much as the caller's struct has room for. */
static void give_restored(struct mr_restored *to, const uint64_t words[MR_RESTORED_WORDS])
{
    const struct mr_restored restored = {.bytes = to->bytes,
                                         .id = words[MR_RESTORED_ID],
                                         .step = words[MR_RESTORED_STEP],
                                         .is_at_step = words[MR_RESTORED_IS_AT_STEP] != 0,
                                         .tables = (uint32_t)words[MR_RESTORED_TABLES],
                                         .variables = (uint32_t)words[MR_RESTORED_VARIABLES],
                                         .parameters = (uint32_t)words[MR_RESTORED_PARAMETERS]};

    memcpy(to, &restored, to->bytes < sizeof(restored) ? to->bytes : sizeof(restored));
}

static enum mr_status finish_restore(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_restored *const *restored = f->context;
    uint64_t words[MR_RESTORED_WORDS];
    if (!mrc_answer_body(f, 0, 0, MR_BODY_RESTORED, words))
        return mrc_answer_garbled(f, 0);
    /* The checkpoint's features may have other numbers and descriptors. */
    pthread_mutex_lock(&f->client->lock);
    mrc_features_clear(&f->client->features);
    pthread_mutex_unlock(&f->client->lock);
    if (*restored != NULL)
        give_restored(*restored, words);
    return MR_OK;
}

/* `pairs` NULL: everything. */
static enum mr_status calls_restore_run(struct mr_client *client, const struct mr_options *options,
                                        const struct mr_restore_options *what,
                                        const struct mr_restore_pair *pairs, struct mr_restored *restored)
{
    const char *path = what->directory == NULL ? "" : what->directory;
    size_t bytes = strlen(path);
    uint32_t flags = what->replace ? MR_RESTORE_REPLACE : 0;
    if (bytes > DIRECTORY_BYTES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "restore: directory has %zu bytes; at most %u", bytes,
                         DIRECTORY_BYTES_MAX);
    struct mr_tensor tensors[4] = {
        mr_tensor_1d(MR_U8, (uint32_t)bytes, path), mr_tensor_1d(MR_U64, 1, &what->id),
        mr_tensor_2d(MR_U8, what->name_count, sizeof(*pairs), pairs), mr_tensor_1d(MR_U32, 1, &flags)};

    return mrc_run_core0(client, options, MR_OP_RESTORE, tensors, pairs == NULL ? 2 : 4, finish_restore,
                         &restored, sizeof(restored));
}

static bool set_name(char to[MR_NAME_BYTES], const char *name)
{
    size_t bytes = strlen(name);
    if (bytes >= MR_NAME_BYTES)
        return false;
    memcpy(to, name, bytes + 1);
    return true;
}

static enum mr_status set_pairs(const struct mr_restore_options *what, struct mr_restore_pair *pairs)
{
    for (uint32_t i = 0; i < what->name_count; i++) {
        const struct mr_restore_name *name = &what->names[i];
        if (name->name == NULL || name->name[0] == '\0' || !set_name(pairs[i].name, name->name) ||
            (name->new_name != NULL && !set_name(pairs[i].new_name, name->new_name)))
            return mrc_error(MR_INVALID_ARGUMENT, "mr_restore: names[%u] must have names of 1 to %u bytes", i,
                             MR_NAME_BYTES - 1);
    }
    return MR_OK;
}

static const char *wrong_with(const struct mr_client *client, const struct mr_restore_options *what,
                              const struct mr_restored *restored)
{
    if (client == NULL)
        return "client is NULL";
    if (what->bytes < sizeof(*what))
        return "what->bytes is not set to its size";
    if (restored != NULL && restored->bytes < sizeof(restored->bytes))
        return "restored->bytes is not set to its size";
    if ((what->names == NULL) != (what->name_count == 0) || what->name_count > MR_FEATURE_MAX)
        return "names and name_count do not fit together, or there are too many";
    return what->replace && what->name_count == 0
               ? "replace is for names: without any, everything is replaced"
               : NULL;
}

enum mr_status mr_restore(struct mr_client *client, const struct mr_options *options,
                          const struct mr_restore_options *what, struct mr_restored *restored)
{
    static const struct mr_restore_options nothing = {.bytes = sizeof(nothing)};
    const struct mr_restore_options *wanted = what == NULL ? &nothing : what;
    const char *wrong = wrong_with(client, wanted, restored);
    if (wrong != NULL)
        return mrc_bad_argument("mr_restore", wrong);
    if (wanted->name_count == 0)
        return calls_restore_run(client, options, wanted, NULL, restored);
    struct mr_restore_pair *pairs = calloc(wanted->name_count, sizeof(*pairs));

    if (pairs == NULL)
        return mrc_error(MR_NO_MEMORY, "mr_restore: no memory left");
    enum mr_status status = set_pairs(wanted, pairs);

    if (status == MR_OK)
        status = calls_restore_run(client, options, wanted, pairs, restored);
    free(pairs);
    return status;
}
