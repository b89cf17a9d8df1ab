#include "trainer_client/replay/replay_hooks.h"

#include <stdlib.h>
#include "trainer_client/call/call_hooks.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/resend.h"

static bool hooks_client_init(struct mr_client *client)
{
    client->reshard = calloc(1, sizeof(*client->reshard));
    if (client->reshard != NULL)
        mrc_reshard_init(client->reshard);
    return client->reshard != NULL;
}

static void hooks_client_fini(struct mr_client *client)
{
    if (client->reshard != NULL)
        mrc_reshard_fini(client->reshard);
    free(client->reshard);
}

static bool hooks_node_init(struct mrc_node *node)
{
    node->replay = calloc(1, sizeof(*node->replay));
    return node->replay != NULL;
}

static void hooks_node_fini(struct mrc_node *node)
{
    free(node->replay);
}

static bool hooks_link_init(struct mrc_link *link)
{
    link->replay = calloc(1, sizeof(*link->replay));
    if (link->replay != NULL)
        mrc_resend_init(link);
    return link->replay != NULL;
}

static void hooks_link_fini(struct mrc_link *link)
{
    if (link->replay != NULL)
        mrc_resend_fini(link);
    free(link->replay);
}

static void hooks_ended(struct mrc_shard_request *request, const struct mr_message *reply)
{
    mrc_resend_ended(request, reply);
    if (reply != NULL)
        mrc_state_probe_answered(request->link->node, reply->preamble.restores);
}

static uint64_t hooks_next_us(const struct mr_client *client)
{
    const uint64_t resend_us = mrc_resend_next_us(client), reshard_us = mrc_reshard_next_us(client);
    return resend_us < reshard_us ? resend_us : reshard_us;
}

const struct mrc_call_hooks mrc_call_hooks = {
    .client_init = hooks_client_init,
    .client_fini = hooks_client_fini,
    .node_init = hooks_node_init,
    .node_fini = hooks_node_fini,
    .link_init = hooks_link_init,
    .link_fini = hooks_link_fini,
    .numbers = mrc_resend_numbers,
    .prepare = mrc_resend_prepare,
    .check = mrc_state_probe_check,
    .is_open = mrc_reshard_is_over,
    .begin = mrc_resend_begin,
    .undo = mrc_resend_undo,
    .copy = mrc_resend_copy,
    .ended = hooks_ended,
    .all_ended = mrc_resend_all_ended,
    .has_settled = mrc_reshard_has_settled,
    .settle = mrc_reshard_settle,
    .leave = mrc_reshard_leave,
    .free = mrc_resend_free,
    .is_pending = mrc_resend_pending,
    .met = mrc_state_probe_meet,
    .node_up = mrc_state_probe_session_up,
    .core_up = mrc_resend_session_up,
    .take_regrouped = mrc_reshard_begin,
    .give_regrouped = mrc_reshard_poll,
    .replaced = mrc_reshard_replaced,
    .restored = mrc_reshard_taken_over,
    .poll_node = mrc_state_probe_poll,
    .node_next_us = mrc_state_probe_next_us,
    .poll = mrc_resend_poll,
    .next_us = hooks_next_us,
    .info = mrc_resend_info,
};
