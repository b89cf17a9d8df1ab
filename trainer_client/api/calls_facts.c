/* What a node is: its configuration, and what it runs on. */
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "trainer_client/api/calls.h"

struct context {
    void (*visit)(void *arg, const char *name, const char *value);
    void *arg;
};

/* "name = value"; lines that are none are left out. */
static void visit_line(const struct context *context, const char *line, size_t bytes)
{
    char copy[1024];
    if (bytes >= sizeof(copy))
        return;
    (void)mr_printable(copy, sizeof(copy), line, bytes);
    char *equals = strstr(copy, " = ");
    if (equals == NULL)
        return;
    *equals = '\0';
    context->visit(context->arg, copy, equals + 3);
}

static enum mr_status finish(struct mr_future *f, struct mr_reply **reply)
{
    const struct mr_tensor *text = mrc_part_tensor(f, 0, 0, MR_U8, 1);
    (void)reply;
    if (text == NULL)
        return mrc_part_garbled(f, 0);
    const char *at = text->data, *end = at + text->bytes;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((line_end != NULL ? line_end : end) - at);
        visit_line(f->context, at, bytes);
        at += bytes + 1;
    }
    return MR_OK;
}

enum mr_status mr_facts(struct mr_client *client, const struct mr_options *options, uint32_t core,
                        void (*visit)(void *arg, const char *name, const char *value), void *arg)
{
    struct mr_future *f;
    uint32_t map_changes = 0;
    enum mr_status status = mrc_check_core("mr_facts", client, core, &map_changes);
    if (status != MR_OK)
        return status;
    if (visit == NULL)
        return mrc_bad_argument("mr_facts", "visit is NULL");
    status = mrc_future_new(client, options, MR_OP_FACTS, 0, 1, 0, sizeof(struct context), &f);
    if (status != MR_OK)
        return status;
    *(struct context *)f->context = (struct context){visit, arg};
    f->parts[0].owner = (uint16_t)core;
    f->finish = finish;
    return mrc_run_by_map(f, map_changes, options, NULL);
}
