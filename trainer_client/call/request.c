#include "trainer_client/call/request.h"

#include <assert.h>
#include <string.h>
#include "trainer_client/call/last_error.h"
#include "trainer_client/replay/resend.h"

static enum mr_status begin_part(struct mr_future *f, struct mrc_part *part)
{
    struct mr_client *client = f->client;
    struct mrc_link *link = part->core < client->link_count ? client->links[part->core] : NULL;

    if (link == NULL || link->session == NULL)
        return mrc_error(MR_UNREACHABLE, "%s: %s: the node has no core %u any more", client->server,
                         mr_op_name(f->options.op), part->core);
    f->options.user = part;
    for (uint32_t t = 0; t < part->tensor_count; t++)
        part->tensors[t].data = NULL;
    part->request_bytes = mr_message_bytes(part->tensors, part->tensor_count);
    if (!f->options.ahead && part->request_bytes > 0 &&
        (!mrc_link_has_room(link, part->request_bytes) || !mrc_remap_is_over(link)))
        return MR_NO_MEMORY;
    enum mr_status status = mrc_resend_begin(f, part, link);

    if (status != MR_OK)
        return status;
    part->link = link;
    status =
        mr_call_begin(link->ep, link->session, &f->options, part->tensors, part->tensor_count, &part->call);

    if (status == MR_OK) {
        link->calls_pending++;
        link->request_bytes += part->request_bytes;
        client->calls_held++;
        mr_list_append(&link->parts, &part->under_way);
        return MR_OK;
    }
    mrc_resend_undo(part);
    if (status != MR_NO_MEMORY)
        mrc_error_line("%s: %s: %s", link->name, mr_op_name(f->options.op), mr_status_text(status));
    return status;
}

void mrc_request_ended(struct mrc_part *part)
{
    assert(part->link->calls_pending > 0);
    part->link->calls_pending--;
    mr_list_remove(&part->under_way);
    part->link->request_bytes -= part->request_bytes;
}

void mrc_request_undo(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];

        if (part->call == NULL)
            continue;
        mrc_resend_undo(part);
        mrc_request_ended(part);
        /* Counts as no room made for others: two calls that never fit at once would wake each other for
         * ever. */
        mr_call_free(part->link->ep, part->call);
        f->client->calls_held--;
        part->call = NULL;
    }
    f->begun = false;
}

enum mr_status mrc_request_begin(struct mr_future *f)
{
    if (mrc_map_has_changed(f))
        return MRC_STALE_MAP;
    enum mr_status known = mrc_survey_check(f);

    if (known != MR_OK)
        return known;
    for (uint32_t i = 0; i < f->part_count; i++) {
        enum mr_status status = begin_part(f, &f->parts[i]);

        if (status != MR_OK) {
            mrc_request_undo(f);
            return status;
        }
    }
    f->begun = true;
    f->parts_pending = f->part_count;
    return MR_OK;
}

struct room_wait {
    const struct mr_client *client;
    uint64_t room_made;
};

static bool room_was_made(const void *arg)
{
    const struct room_wait *w = arg;

    return w->client->room_made != w->room_made;
}

enum mr_status mrc_request_begin_waiting(struct mr_future *f)
{
    struct mr_client *client = f->client;
    const char *op = mr_op_name(f->options.op);

    for (;;) {
        enum mr_status status = mrc_request_begin(f);
        struct room_wait wait = {.client = client, .room_made = client->room_made};

        if (status != MR_NO_MEMORY)
            return status;
        if (mrc_client_calls_pending(client) == 0 && !mrc_resend_pending(client))
            return mrc_error(
                MR_NO_MEMORY,
                "%s: %s: the request does not fit into the memory for messages, memory_bytes = %u",
                client->server, op, client->link_config.memory_bytes);
        client->room_waiters++;
        bool made = mrc_wait(client, room_was_made, &wait, f->options.deadline_us);

        client->room_waiters--;
        if (!made)
            return mrc_error(MR_NO_MEMORY, "%s: %s: no room for the request became free before its deadline",
                             client->server, op);
    }
}

uint64_t mrc_request_bytes(const struct mr_future *f)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < f->part_count; i++) {
        for (uint32_t t = 0; t < f->parts[i].tensor_count; t++)
            bytes += f->parts[i].tensors[t].bytes;
    }
    return bytes;
}

void mrc_request_copy(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];

        for (uint32_t t = 0; t < part->tensor_count; t++) {
            if (part->sources[t] != NULL && part->tensors[t].bytes > 0)
                memcpy(part->tensors[t].data, part->sources[t], part->tensors[t].bytes);
        }
    }
}
