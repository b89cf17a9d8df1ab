#include "trainer_client/call/reply.h"

#include <stdlib.h>
#include <string.h>
#include "trainer_client/call/last_error.h"

struct mr_reply {
    struct mr_client *client; /* NULL when the memory is its own */
    struct mrc_link *link;
    struct mr_call *call;
    const struct mr_tensor *tensors;
    uint32_t tensor_count;
    struct mr_tensor few[MRC_FEW_ANSWERS];
    void *memory;      /* of the tensors' bytes, where they are not in the call */
    void *descriptors; /* of `tensors`, where they are many */
};

struct mr_reply *mrc_reply_view(struct mr_future *f, uint32_t i)
{
    struct mrc_part *part = &f->parts[i];
    struct mr_reply *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        mrc_error_line("no memory for a reply");
        return NULL;
    }
    if (part->call != NULL) {
        r->client = f->client;
        r->link = part->link;
        r->call = part->call;
        part->call = NULL;
    }
    r->memory = part->copy;
    part->copy = NULL;
    r->tensors = r->few;
    if (part->answers == part->few) {
        memcpy(r->few, part->few, sizeof(r->few));
    } else {
        r->tensors = part->answers;
        r->descriptors = part->answers;
        part->answers = NULL;
    }
    r->tensor_count = part->answer_count;
    return r;
}

enum mr_status mrc_reply_give(struct mr_future *f, struct mr_reply **reply)
{
    if (reply == NULL)
        return MR_OK;
    struct mr_reply *view = mrc_reply_view(f, 0);

    if (view == NULL)
        return MR_NO_MEMORY;
    *reply = view;
    return MR_OK;
}

struct mr_reply *mrc_reply_own(struct mr_tensor tensor, void *memory)
{
    struct mr_reply *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        free(memory);
        mrc_error_line("no memory for a reply");
        return NULL;
    }
    r->few[0] = tensor;
    r->few[0].data = memory;
    r->tensors = r->few;
    r->tensor_count = 1;
    r->memory = memory;
    return r;
}

uint32_t mr_reply_tensor_count(const struct mr_reply *reply)
{
    return reply == NULL ? 0 : reply->tensor_count;
}

const struct mr_tensor *mr_reply_tensor(const struct mr_reply *reply, uint32_t i)
{
    return reply == NULL || i >= reply->tensor_count ? NULL : &reply->tensors[i];
}

void mr_reply_free(struct mr_reply *reply)
{
    if (reply == NULL)
        return;
    if (reply->client != NULL && !mrc_is_inherited(reply->client)) {
        struct mr_client *client = reply->client;

        pthread_mutex_lock(&client->lock);
        mrc_client_release_reply(client, reply->link, reply->call);
    }
    free(reply->memory);
    free(reply->descriptors);
    free(reply);
}
