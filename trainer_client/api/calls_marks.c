/* Marks: set, and read. */
#include <assert.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "trainer_client/api/calls.h"

static_assert(sizeof(struct mr_mark) == 256, "as on the wire");

struct context {
    uint64_t since;
    uint64_t *last, *missed;
    void (*visit)(void *arg, const struct mr_mark *mark);
    void *arg;
};

static bool ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

static enum mr_status finish(struct mr_future *f, struct mr_reply **reply)
{
    const struct context *context = f->context;
    const struct mr_tensor *words = mrc_part_tensor(f, 0, 0, MR_U64, 1);
    const struct mr_tensor *marks = mrc_part_tensor(f, 0, 1, MR_U8, 2);
    (void)reply;
    if (words == NULL || words->dims[0] != 2 || marks == NULL || marks->dims[1] != sizeof(struct mr_mark))
        return mrc_part_garbled(f, 0);
    const struct mr_mark *list = marks->data;
    for (uint32_t i = 0; i < marks->dims[0]; i++) {
        if (!ends(list[i].event, sizeof(list[i].event)) || !ends(list[i].client, sizeof(list[i].client)) ||
            !ends(list[i].text, sizeof(list[i].text)))
            return mrc_part_garbled(f, 0);
        struct mr_mark mark = list[i];
        mr_make_printable(mark.event, sizeof(mark.event));
        mr_make_printable(mark.client, sizeof(mark.client));
        mr_make_printable(mark.text, sizeof(mark.text));
        if (context->visit != NULL)
            context->visit(context->arg, &mark);
    }
    if (context->last != NULL)
        *context->last = ((const uint64_t *)words->data)[0];
    if (context->missed != NULL)
        *context->missed = ((const uint64_t *)words->data)[1];
    return MR_OK;
}

static enum mr_status run(const char *call, struct mr_client *client, const struct mr_options *options,
                          uint32_t core, const char *text, const struct context *wanted)
{
    struct mr_future *f;
    uint32_t map_changes = 0;
    enum mr_status status = mrc_check_core(call, client, core, &map_changes);
    if (status != MR_OK)
        return status;
    const size_t bytes = strlen(text);
    status = mrc_future_new(client, options, MR_OP_MARK, 0, 1, 2, sizeof(*wanted), &f);
    if (status != MR_OK)
        return status;
    struct context *kept = f->context;
    *kept = *wanted;
    f->parts[0].owner = (uint16_t)core;
    f->finish = finish;
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, 1, &kept->since));
    mrc_part_add(f, 0, mr_tensor_1d(MR_U8, (uint32_t)bytes, text));
    return mrc_run_by_map(f, map_changes, options, NULL);
}

enum mr_status mr_mark(struct mr_client *client, const struct mr_options *options, const char *text)
{
    const struct context wanted = {.since = UINT64_MAX};
    if (text == NULL || text[0] == '\0')
        return mrc_bad_argument("mr_mark", "text is empty");
    if (strlen(text) >= MR_MARK_TEXT_BYTES)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_mark: a text of %zu bytes; there may be %u", strlen(text),
                         MR_MARK_TEXT_BYTES - 1);
    return run("mr_mark", client, options, 0, text, &wanted);
}

enum mr_status mr_marks(struct mr_client *client, const struct mr_options *options, uint32_t core,
                        uint64_t since, uint64_t *last, uint64_t *missed,
                        void (*visit)(void *arg, const struct mr_mark *mark), void *arg)
{
    struct context wanted = {.since = since, .visit = visit, .arg = arg};
    wanted.last = last;
    wanted.missed = missed;
    return run("mr_marks", client, options, core, "", &wanted);
}
