/* Saves, the list of them, restores of all of a checkpoint or of features by name, and the progress of
 * both. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/base/clock.h"
#include "millrace_admin.h"
#include "trainer_client/api/calls.h"

#define DIRECTORY_BYTES_MAX 4096u
/* of struct mr_save_options, as it was at first */
#define SAVE_OPTIONS_BYTES_MIN offsetof(struct mr_save_options, names)

/* ---- save ---- */

struct save_context {
    uint64_t *checkpoint_id, *number; /* NULL: not wanted */
    uint64_t start_id;                /* of the server that has all pushes; 0: any */
};

static enum mr_status finish_save(struct mr_future *f, struct mr_reply **reply)
{
    const struct save_context *context = f->context;
    const struct mr_tensor *id = mrc_answer_tensor(f, 0, 0, MR_U64, 1);
    const struct mr_tensor *number = mrc_answer_tensor(f, 0, 1, MR_U64, 1);
    if (id == NULL || id->dims[0] != 1 ||
        (context->number != NULL && (number == NULL || number->dims[0] != 1)))
        return mrc_answer_garbled(f, 0);
    if (context->start_id != 0 && mr_client_start_id(f->client) != context->start_id)
        return mrc_error(
            MR_UNKNOWN_OUTCOME,
            "%s: save: the server was restarted at that moment, and the checkpoint may lack pushes "
            "that are only now given to it again: save once more",
            f->client->server);
    if (context->checkpoint_id != NULL)
        *context->checkpoint_id = *(const uint64_t *)id->data;
    if (context->number != NULL)
        *context->number = *(const uint64_t *)number->data;
    return MR_OK;
}

static enum mr_status take_any(struct mr_future *f, struct mr_reply **reply)
{
    return MR_OK;
}

static enum mr_status heartbeats_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status = mrc_future_for_cores(r, 0, NULL, 0, 0, &f);
    if (status != MR_OK)
        return status;
    f->finish = take_any;
    return mrc_future_run(f, r->options, reply);
}

/* A core answers a call after it has been sent again what it lacks: when all have answered, all pushes are
 * there. */
static enum mr_status wait_for_replay(struct mr_client *client, uint32_t deadline_ms)
{
    char why[MRC_ERROR_BYTES];
    const struct mr_options options = {.deadline_ms = deadline_ms};
    struct mrc_retry heartbeats = {.client = client,
                                   .options = &options,
                                   .op = MR_OP_HEARTBEAT,
                                   .make = heartbeats_make,
                                   .is_due = mrc_retry_by_map};
    const enum mr_status status = mrc_retry_run(&heartbeats, NULL);
    if (status == MR_OK)
        return MR_OK;
    (void)snprintf(why, sizeof(why), "%s", mr_last_error());
    return mrc_error(status, "the save was not sent: first every core is to have its pushes again: %s", why);
}

struct save_call {
    struct mrc_retry retry;
    const struct mr_tensor *tensors; /* [tensor_count] */
    uint32_t tensor_count;
    struct save_context context;
    bool replays;     /* the server is to have all pushes before */
    bool is_repeated; /* made again when the server was restarted meanwhile, and knows nothing of it */
    char why[MRC_ERROR_BYTES]; /* the outcome of the try before is unknown; empty: there was none */
};

/* Returns what is left of the call's time, as mr_options.deadline_ms: at least 1, as 0 is the default. */
static uint32_t save_left_ms(const struct save_call *c)
{
    const uint32_t left_ms = mrc_left_ms(c->retry.deadline_us, mr_clock_us());
    return left_ms > 0 ? left_ms : 1;
}

/* Waits until the server has all pushes, and says in the context which start of it that is. Repeated when the
 * server was restarted between two cores' answers: then not all cores have their pushes. */
static enum mr_status save_catch_up(struct save_call *c, struct mr_options *left)
{
    struct mr_client *client = c->retry.client;
    uint64_t before;
    do {
        before = mr_client_start_id(client);
        const enum mr_status status = wait_for_replay(client, left->deadline_ms);
        if (status != MR_OK)
            return status;
        left->deadline_ms = save_left_ms(c);
        c->context.start_id = mr_client_start_id(client);
    } while (c->context.start_id != before);
    return MR_OK;
}

static enum mr_status save_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct save_call *c = MR_CONTAINER(r, struct save_call, retry);
    struct mr_options left = r->options != NULL ? *r->options : (struct mr_options){.deadline_ms = 0};
    const uint64_t sent_to = c->context.start_id;
    if (c->why[0] != '\0')
        left.deadline_ms = save_left_ms(c);
    if (c->replays) {
        const enum mr_status status = save_catch_up(c, &left);
        if (status != MR_OK) {
            c->is_repeated = false;
            return status;
        }
    }
    if (c->why[0] != '\0' && c->context.start_id == sent_to) {
        c->is_repeated = false;
        return mrc_error(MR_UNKNOWN_OUTCOME, "%s", c->why);
    }
    const enum mr_status status = mrc_run_core0(r->client, &left, r->op, c->tensors, c->tensor_count,
                                                finish_save, &c->context, sizeof(c->context));
    (void)snprintf(c->why, sizeof(c->why), "%s", mr_last_error());
    return status;
}

static enum mrc_retry_due save_is_due(struct mrc_retry *r, enum mr_status status)
{
    const struct save_call *c = MR_CONTAINER(r, struct save_call, retry);
    return status == MR_UNKNOWN_OUTCOME && c->is_repeated ? MRC_RETRY_NOW : MRC_RETRY_NO;
}

static enum mr_status run_save(struct mr_client *client, const struct mr_options *options,
                               const struct mr_tensor *tensors, uint32_t tensor_count,
                               struct save_context context)
{
    const bool replays = client->replay && !mrc_is_inherited(client);
    struct save_call c = {.retry = {.client = client,
                                    .options = options,
                                    .op = MR_OP_SAVE,
                                    .make = save_make,
                                    .is_due = save_is_due},
                          .tensors = tensors,
                          .tensor_count = tensor_count,
                          .context = context,
                          .replays = replays,
                          .is_repeated = replays && (options == NULL || options->future == NULL)};
    return mrc_retry_run(&c.retry, NULL);
}

static struct mr_tensor directory_tensor(const char *directory)
{
    return directory == NULL ? mr_tensor_1d(MR_U8, 0, "")
                             : mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory);
}

/* Copies the options; what a caller of an earlier version does not know is not set. */
static enum mr_status read_options(const struct mr_save_options *save, struct mr_save_options *out)
{
    *out = (struct mr_save_options){.bytes = sizeof(*out)};
    if (save == NULL)
        return MR_OK;
    if (save->bytes < SAVE_OPTIONS_BYTES_MIN)
        return mrc_error(MR_INVALID_ARGUMENT,
                         "mr_save: save->bytes is %zu; set it to sizeof(struct mr_save_options)",
                         save->bytes);
    memcpy(out, save, save->bytes < sizeof(*out) ? save->bytes : sizeof(*out));
    if ((out->names == NULL) != (out->name_count == 0) || out->name_count > MR_FEATURE_MAX)
        return mrc_error(MR_INVALID_ARGUMENT,
                         "mr_save: names and name_count do not fit together, or there are too "
                         "many");
    if (out->directory != NULL && strlen(out->directory) > DIRECTORY_BYTES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_save: directory has %zu bytes; at most %u",
                         strlen(out->directory), DIRECTORY_BYTES_MAX);
    return MR_OK;
}

enum mr_status mr_save(struct mr_client *client, const struct mr_options *options,
                       const struct mr_save_options *save, uint64_t *checkpoint_id, uint64_t *number)
{
    struct mr_save_options wanted;
    char *names = NULL;
    if (client == NULL)
        return mrc_bad_argument("mr_save", "client is NULL");
    enum mr_status status = read_options(save, &wanted);
    if (status == MR_OK && wanted.name_count > 0)
        names = mrc_copy_names("mr_save", wanted.names, wanted.name_count, &status);
    if (status != MR_OK)
        return status;

    const uint64_t words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_KIND] = wanted.kind,
                                               [MR_SAVE_ASK_STEP] = wanted.step,
                                               [MR_SAVE_ASK_TRAINERS] = wanted.trainers,
                                               [MR_SAVE_ASK_QUEUE] = wanted.queue};
    const struct mr_tensor tensors[3] = {
        directory_tensor(wanted.directory),
        mr_tensor_1d(MR_U64, MR_SAVE_ASK_CANCEL, words), /* for old servers */
        mr_tensor_2d(MR_U8, wanted.name_count, MR_NAME_BYTES, names)};
    status = run_save(client, options, tensors, names == NULL ? 2 : 3,
                      (struct save_context){.checkpoint_id = checkpoint_id, .number = number});
    free(names);
    return status;
}

enum mr_status mr_checkpoint_cancel(struct mr_client *client, const struct mr_options *options,
                                    uint64_t number)
{
    const uint64_t words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_CANCEL] = number};
    const struct mr_tensor tensors[2] = {directory_tensor(NULL), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    if (client == NULL || number == 0)
        return mrc_bad_argument("mr_checkpoint_cancel",
                                client == NULL ? "client is NULL" : "number is 0; saves count from 1");
    return mrc_run_core0(client, options, MR_OP_SAVE, tensors, 2, take_any, NULL, 0);
}

/* ---- the list ---- */

struct info_context {
    struct mr_checkpoint_info *info;
    void (*visit)(void *arg, const struct mr_save_info *save);
    void *arg;
};

static struct mr_save_info save_info(const uint64_t *w, const char *line, size_t line_bytes)
{
    struct mr_save_info info = {.number = w[MR_SAVE_ROW_NUMBER],
                                .state = (enum mr_save_state)w[MR_SAVE_ROW_STATE],
                                .id = w[MR_SAVE_ROW_ID],
                                .kind = (enum mr_save_kind)w[MR_SAVE_ROW_KIND],
                                .parent_id = w[MR_SAVE_ROW_PARENT_ID],
                                .step = w[MR_SAVE_ROW_STEP],
                                .is_at_step = w[MR_SAVE_ROW_IS_AT_STEP] != 0,
                                .bytes = w[MR_SAVE_ROW_BYTES],
                                .duration_us = w[MR_SAVE_ROW_DURATION_US],
                                .status = (enum mr_status)w[MR_SAVE_ROW_STATUS],
                                .is_automatic = w[MR_SAVE_ROW_IS_AUTOMATIC] != 0,
                                .committed_ms = w[MR_SAVE_ROW_COMMITTED_MS],
                                .remote_ms = w[MR_SAVE_ROW_REMOTE_MS],
                                .remote = (enum mr_save_remote)w[MR_SAVE_ROW_REMOTE]};
    (void)mr_printable(info.error, sizeof(info.error), line, line_bytes);
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
        uint64_t row[MR_SAVE_ROW_WORDS];
        mr_body_read_row(MR_BODY_SAVE_ROW, saves, i, row);
        struct mr_save_info info = save_info(row, at, line_bytes);
        context->visit(context->arg, &info);
        at = line_end == NULL ? end : line_end + 1;
    }
}

/* Copies as much as the caller's struct has room for. */
static void give_info(struct mr_checkpoint_info *to, const uint64_t *progress, const struct mr_tensor *text,
                      const uint64_t *details)
{
    struct mr_checkpoint_info info = {.step = details[MR_DETAIL_STEP],
                                      .restored_id = details[MR_DETAIL_RESTORED_ID],
                                      .restored_step = details[MR_DETAIL_RESTORED_STEP],
                                      .restored_is_at_step = details[MR_DETAIL_RESTORED_IS_AT_STEP] != 0,
                                      .last_good_id = progress[MR_PROGRESS_LAST_GOOD_ID],
                                      .last_good_step = details[MR_DETAIL_LAST_GOOD_STEP],
                                      .saves_queued = details[MR_DETAIL_SAVES_QUEUED],
                                      .waiting_step = details[MR_DETAIL_WAITING_STEP],
                                      .trainers_held = details[MR_DETAIL_TRAINERS_HELD],
                                      .trainers_awaited = details[MR_DETAIL_TRAINERS_AWAITED],
                                      .state = (enum mr_checkpoint_state)progress[MR_PROGRESS_STATE],
                                      .id = progress[MR_PROGRESS_ID],
                                      .bytes_done = progress[MR_PROGRESS_BYTES_DONE],
                                      .bytes_total = progress[MR_PROGRESS_BYTES_TOTAL],
                                      .duration_us = progress[MR_PROGRESS_DURATION_US],
                                      .last_status = (enum mr_status)progress[MR_PROGRESS_STATUS]};
    info.bytes = to->bytes;
    (void)mr_printable(info.last_error, sizeof(info.last_error), text->data, text->bytes);
    memcpy(to, &info, to->bytes < sizeof(info) ? to->bytes : sizeof(info));
}

static enum mr_status finish_info(struct mr_future *f, struct mr_reply **reply)
{
    const struct info_context *context = f->context;
    uint64_t progress[MR_PROGRESS_WORDS], details[MR_DETAIL_WORDS];
    const struct mr_tensor *text = mrc_answer_tensor(f, 0, 1, MR_U8, 1);
    const struct mr_tensor *saves = mrc_answer_body_rows(f, 0, 3, MR_BODY_SAVE_ROW);
    const struct mr_tensor *lines = mrc_answer_tensor(f, 0, 4, MR_U8, 1);
    if (!mrc_answer_body(f, 0, 0, MR_BODY_PROGRESS, progress) || text == NULL ||
        !mrc_answer_body(f, 0, 2, MR_BODY_DETAIL, details) || saves == NULL || lines == NULL)
        return mrc_answer_garbled(f, 0);
    if (context->info != NULL)
        give_info(context->info, progress, text, details);
    visit_saves(context, saves, lines);
    return MR_OK;
}

enum mr_status mr_checkpoint_info(struct mr_client *client, const struct mr_options *options, uint64_t number,
                                  struct mr_checkpoint_info *info,
                                  void (*visit)(void *arg, const struct mr_save_info *save), void *arg)
{
    struct mr_tensor one = mr_tensor_1d(MR_U64, 1, &number);
    const struct info_context context = {info, visit, arg};
    if (client == NULL)
        return mrc_bad_argument("mr_checkpoint_info", "client is NULL");
    if (info != NULL && info->bytes < sizeof(info->bytes))
        return mrc_bad_argument("mr_checkpoint_info", "info->bytes is not set to its size");
    return mrc_run_core0(client, options, MR_OP_CHECKPOINT_STATUS, &one, number != 0 ? 1 : 0, finish_info,
                         &context, sizeof(context));
}

/* ---- restore ---- */

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

struct restore_context {
    struct mr_restored *restored; /* NULL: not wanted */
};

static enum mr_status finish_restore(struct mr_future *f, struct mr_reply **reply)
{
    const struct restore_context *context = f->context;
    uint64_t words[MR_RESTORED_WORDS];
    if (!mrc_answer_body(f, 0, 0, MR_BODY_RESTORED, words))
        return mrc_answer_garbled(f, 0);
    /* The checkpoint's features may have other numbers and descriptors. */
    pthread_mutex_lock(&f->client->lock);
    mrc_features_clear(&f->client->features);
    pthread_mutex_unlock(&f->client->lock);
    if (context->restored != NULL)
        give_restored(context->restored, words);
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
    struct restore_context context = {restored};
    struct mr_tensor tensors[4] = {
        mr_tensor_1d(MR_U8, (uint32_t)bytes, path), mr_tensor_1d(MR_U64, 1, &what->id),
        mr_tensor_2d(MR_U8, what->name_count, sizeof(*pairs), pairs), mr_tensor_1d(MR_U32, 1, &flags)};

    return mrc_run_core0(client, options, MR_OP_RESTORE, tensors, pairs == NULL ? 2 : 4, finish_restore,
                         &context, sizeof(context));
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
