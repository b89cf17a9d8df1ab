/* Restore: all of a checkpoint, or features of it by name. */
#include <stdlib.h>
#include <string.h>
#include "trainer_client/calls.h"

#define DIRECTORY_BYTES_MAX 4096u

struct restore_context {
    uint64_t *checkpoint_id;
};

static enum mr_status finish_restore(struct mr_future *f, struct mr_reply **reply)
{
    const struct restore_context *context = f->context;
    const struct mr_tensor *id = mrc_part_tensor(f, 0, 0, MR_U64, 1);

    (void)reply;
    if (id == NULL || id->dims[0] < 1)
        return mrc_part_garbled(f, 0);
    /* The checkpoint's features may have other numbers and descriptors. */
    pthread_mutex_lock(&f->client->lock);
    mrc_features_clear(&f->client->features);
    pthread_mutex_unlock(&f->client->lock);
    if (context->checkpoint_id != NULL)
        *context->checkpoint_id = *(const uint64_t *)id->data;
    return MR_OK;
}

/* `pairs` NULL: everything. */
static enum mr_status run(struct mr_client *client, const struct mr_options *options, const char *call,
                          const char *directory, uint64_t id, const struct mr_restore_pair *pairs,
                          uint32_t pair_count, uint32_t flags, uint64_t *checkpoint_id)
{
    const char *path = directory == NULL ? "" : directory;
    size_t bytes = strlen(path);
    struct mr_future *f;

    if (bytes > DIRECTORY_BYTES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: directory has %zu bytes; at most %u", call, bytes,
                         DIRECTORY_BYTES_MAX);
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U8, (uint32_t)bytes, path), mr_tensor_1d(MR_U64, 1, &id),
                                   mr_tensor_2d(MR_U8, pair_count, sizeof *pairs, pairs),
                                   mr_tensor_1d(MR_U32, 1, &flags)};
    enum mr_status status = mrc_call_core0(client, options, MR_OP_RESTORE, tensors, pairs == NULL ? 2 : 4,
                                           finish_restore, sizeof(struct restore_context), &f);

    if (status != MR_OK)
        return status;
    ((struct restore_context *)f->context)->checkpoint_id = checkpoint_id;
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_restore(struct mr_client *client, const struct mr_options *options, const char *directory,
                          uint64_t id, uint64_t *checkpoint_id)
{
    if (client == NULL)
        return mrc_bad_argument("mr_restore", "client is NULL");
    return run(client, options, "mr_restore", directory, id, NULL, 0, 0, checkpoint_id);
}

static bool set_name(char to[MR_NAME_BYTES], const char *name)
{
    size_t bytes = strlen(name);

    if (bytes >= MR_NAME_BYTES)
        return false;
    memcpy(to, name, bytes);
    return true;
}

static enum mr_status set_pairs(const struct mr_restore_name *names, uint32_t count,
                                struct mr_restore_pair *pairs)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_restore_name *name = &names[i];

        if (name->name == NULL || name->name[0] == '\0' || !set_name(pairs[i].name, name->name) ||
            (name->new_name != NULL && !set_name(pairs[i].new_name, name->new_name)))
            return mrc_error(MR_INVALID_ARGUMENT,
                             "mr_restore_named: names[%u] must have names of 1 to %u bytes", i,
                             MR_NAME_BYTES - 1);
    }
    return MR_OK;
}

enum mr_status mr_restore_named(struct mr_client *client, const struct mr_options *options,
                                const char *directory, uint64_t id, const struct mr_restore_name *names,
                                uint32_t count, bool replace, uint64_t *checkpoint_id)
{
    if (client == NULL || names == NULL || count == 0 || count > MR_FEATURE_MAX)
        return mrc_bad_argument("mr_restore_named", client == NULL  ? "client is NULL"
                                                    : names == NULL ? "names is NULL"
                                                                    : "count is out of its range");
    struct mr_restore_pair *pairs = calloc(count, sizeof *pairs);

    if (pairs == NULL)
        return mrc_error(MR_NO_MEMORY, "mr_restore_named: no memory left");
    enum mr_status status = set_pairs(names, count, pairs);

    if (status == MR_OK)
        status = run(client, options, "mr_restore_named", directory, id, pairs, count,
                     replace ? MR_RESTORE_REPLACE : 0, checkpoint_id);
    free(pairs);
    return status;
}
