/* Saves with options, and the list of them. */
#include <stdio.h>
#include <string.h>
#include "trainer_client/calls.h"

#define DIRECTORY_BYTES_MAX 4096u
#define STATUS_WORDS        8u
#define DETAIL_WORDS        10u
#define SAVE_WORDS          12u

/* ---- save ---- */

struct save_context {
    uint64_t *number;
};

static enum mr_status finish_save(struct mr_future *f, struct mr_reply **reply)
{
    const struct save_context *context = f->context;
    const struct mr_tensor *number = mrc_part_tensor(f, 0, 1, MR_U64, 1);

    (void)reply;
    if (number == NULL || number->dims[0] != 1)
        return mrc_part_garbled(f, 0);
    if (context->number != NULL)
        *context->number = *(const uint64_t *)number->data;
    return MR_OK;
}

static enum mr_status check_save(const struct mr_save_options *save)
{
    if (save->bytes < sizeof *save)
        return mrc_error(MR_INVALID_ARGUMENT,
                         "mr_checkpoint_save: save->bytes is %zu; set it to sizeof(struct mr_save_options)",
                         save->bytes);
    if (save->directory != NULL && strlen(save->directory) > DIRECTORY_BYTES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_checkpoint_save: directory has %zu bytes; at most %u",
                         strlen(save->directory), DIRECTORY_BYTES_MAX);
    return MR_OK;
}

enum mr_status mr_checkpoint_save(struct mr_client *client, const struct mr_options *options,
                                  const struct mr_save_options *save, uint64_t *number)
{
    static const struct mr_save_options nothing = {.bytes = sizeof nothing};
    const struct mr_save_options *wish = save == NULL ? &nothing : save;
    struct mr_future *f;

    if (client == NULL)
        return mrc_bad_argument("mr_checkpoint_save", "client is NULL");
    enum mr_status status = check_save(wish);

    if (status != MR_OK)
        return status;
    const char *directory = wish->directory == NULL ? "" : wish->directory;
    uint64_t words[4] = {wish->kind, wish->step, wish->trainers, wish->queue};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory),
                                   mr_tensor_1d(MR_U64, 4, words)};

    status =
        mrc_call_core0(client, options, MR_OP_SAVE, tensors, 2, finish_save, sizeof(struct save_context), &f);
    if (status != MR_OK)
        return status;
    ((struct save_context *)f->context)->number = number;
    return mrc_future_run(f, options, NULL);
}

/* ---- the list ---- */

struct info_context {
    struct mr_checkpoint_info *info;
    void (*visit)(void *arg, const struct mr_save_info *save);
    void *arg;
};

static struct mr_save_info save_info(const uint64_t *w, const char *line, size_t line_bytes)
{
    struct mr_save_info info = {.number = w[0],
                                .state = (enum mr_save_state)w[1],
                                .id = w[2],
                                .kind = (enum mr_save_kind)w[3],
                                .parent_id = w[4],
                                .step = w[5],
                                .is_at_step = w[6] != 0,
                                .bytes = w[7],
                                .duration_us = w[8],
                                .status = (enum mr_status)w[9],
                                .is_automatic = w[11] != 0};

    (void)snprintf(info.error, sizeof info.error, "%.*s", (int)line_bytes, line);
    return info;
}

static void visit_saves(const struct info_context *context, const struct mr_tensor *saves,
                        const struct mr_tensor *lines)
{
    const char *at = lines->data, *end = at + lines->bytes;

    for (uint32_t i = 0; i < saves->dims[0] && context->visit != NULL; i++) {
        size_t left = (size_t)(end - at);
        const char *line_end = left > 0 ? memchr(at, '\n', left) : NULL;
        size_t line_bytes = line_end == NULL ? left : (size_t)(line_end - at);
        struct mr_save_info info =
            save_info((const uint64_t *)saves->data + (size_t)i * saves->dims[1], at, line_bytes);

        context->visit(context->arg, &info);
        at = line_end == NULL ? end : line_end + 1;
    }
}

/* As much as the caller's struct has room for. */
static void give_info(struct mr_checkpoint_info *to, const uint64_t *status, const uint64_t *d)
{
    struct mr_checkpoint_info info = {.step = d[0],
                                      .restored_id = d[1],
                                      .restored_step = d[2],
                                      .restored_is_at_step = d[3] != 0,
                                      .last_good_id = status[5],
                                      .last_good_step = d[4],
                                      .saves_queued = d[5],
                                      .waiting_step = d[6],
                                      .trainers_held = d[7],
                                      .trainers_awaited = d[8]};

    info.bytes = to->bytes;
    memcpy(to, &info, to->bytes < sizeof info ? to->bytes : sizeof info);
}

static enum mr_status finish_info(struct mr_future *f, struct mr_reply **reply)
{
    const struct info_context *context = f->context;
    const struct mr_tensor *status = mrc_part_tensor(f, 0, 0, MR_U64, 1);
    const struct mr_tensor *details = mrc_part_tensor(f, 0, 2, MR_U64, 1);
    const struct mr_tensor *saves = mrc_part_tensor(f, 0, 3, MR_U64, 2);
    const struct mr_tensor *lines = mrc_part_tensor(f, 0, 4, MR_U8, 1);

    (void)reply;
    if (status == NULL || details == NULL || saves == NULL || lines == NULL ||
        status->dims[0] < STATUS_WORDS || details->dims[0] < DETAIL_WORDS || saves->dims[1] < SAVE_WORDS)
        return mrc_part_garbled(f, 0);
    if (context->info != NULL)
        give_info(context->info, status->data, details->data);
    visit_saves(context, saves, lines);
    return MR_OK;
}

enum mr_status mr_checkpoint_info(struct mr_client *client, const struct mr_options *options, uint64_t number,
                                  struct mr_checkpoint_info *info,
                                  void (*visit)(void *arg, const struct mr_save_info *save), void *arg)
{
    struct mr_tensor one = mr_tensor_1d(MR_U64, 1, &number);
    struct mr_future *f;

    if (client == NULL)
        return mrc_bad_argument("mr_checkpoint_info", "client is NULL");
    if (info != NULL && info->bytes < sizeof info->bytes)
        return mrc_bad_argument("mr_checkpoint_info", "info->bytes is not set to its size");
    enum mr_status status = mrc_call_core0(client, options, MR_OP_CHECKPOINT_STATUS, &one,
                                           number != 0 ? 1 : 0, finish_info, sizeof(struct info_context), &f);

    if (status != MR_OK)
        return status;
    *(struct info_context *)f->context = (struct info_context){info, visit, arg};
    return mrc_future_run(f, options, NULL);
}
