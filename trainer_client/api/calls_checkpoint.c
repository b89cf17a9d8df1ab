/* How saves and restores are getting on. */
#include <stdio.h>
#include <string.h>
#include "trainer_client/api/calls.h"

#define STATUS_WORDS                                                                                         \
    8u /* state, id, bytes done, bytes total, duration us, last good id, last status, errno */

struct status_context {
    struct mr_checkpoint_status *status;
};

static enum mr_status finish_status(struct mr_future *f, struct mr_reply **reply)
{
    const struct status_context *context = f->context;
    const struct mr_tensor *words = mrc_part_tensor(f, 0, 0, MR_U64, 1);
    const struct mr_tensor *text = mrc_part_tensor(f, 0, 1, MR_U8, 1);

    (void)reply;
    if (words == NULL || text == NULL || words->dims[0] < STATUS_WORDS)
        return mrc_part_garbled(f, 0);
    const uint64_t *w = words->data;
    struct mr_checkpoint_status status = {.state = (enum mr_checkpoint_state)w[0],
                                          .id = w[1],
                                          .bytes_done = w[2],
                                          .bytes_total = w[3],
                                          .duration_us = w[4],
                                          .last_good_id = w[5],
                                          .last_status = (enum mr_status)w[6]};

    snprintf(status.last_error, sizeof(status.last_error), "%.*s", (int)text->bytes,
             (const char *)text->data);
    *context->status = status;
    return MR_OK;
}

enum mr_status mr_checkpoint_status(struct mr_client *client, const struct mr_options *options,
                                    struct mr_checkpoint_status *status)
{
    struct mr_future *f;

    if (client == NULL || status == NULL)
        return mrc_bad_argument("mr_checkpoint_status", client == NULL ? "client is NULL" : "status is NULL");
    enum mr_status made = mrc_call_core0(client, options, MR_OP_CHECKPOINT_STATUS, NULL, 0, finish_status,
                                         sizeof(struct status_context), &f);

    if (made != MR_OK)
        return made;
    ((struct status_context *)f->context)->status = status;
    return mrc_future_run(f, options, NULL);
}
